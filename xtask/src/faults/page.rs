//! `docs/benchmarks/faults.md`.

use super::{AFTER, HOLD_AGAIN, KEPT, Results};
use std::fmt::Write;

/// The page that tells the results.
pub(super) fn page(results: &Results) -> String {
    let mut page = String::new();
    let deaths = &results.deaths;
    let _ = writeln!(
        page,
        "# When something dies\n\nOn the stand-in GPU, which keeps time between processes and computes nothing. Written by \
         `cargo xtask faults`;\nthe samples are in [faults.json](faults.json).\n\n- machine: {}\n- {}\n- stolen by the machine's host: {:.1}% of the time\n",
        results.machine, results.weft, results.stolen_percent
    );
    let _ = writeln!(
        page,
        "## {} deaths among {} programs\n\nEvery program launches a kernel of 0.1 ms and waits for it, again and again. A \
         third of them are latency tenants\nthat sleep for 4 ms after each, a third standard tenants that sleep for 2 ms, \
         and the rest best-effort ones that never\nsleep. One of them is killed with SIGKILL at a random moment and started \
         again. Of every other program, the longest\nwait that was under way in the {} ms after the death, and in {} ms \
         shortly before it:\n",
        deaths.kills,
        deaths.programs,
        AFTER.as_millis(),
        AFTER.as_millis()
    );
    let _ = writeln!(page, "| longest wait, ms | p50 | p90 | p99 | p99.9 | longest |\n|---|---|---|---|---|---|");
    for (name, waits) in [("after a death", &deaths.after_ms), ("without one", &deaths.between_ms)] {
        let _ = write!(page, "| {name} ");
        for part in [0.5, 0.9, 0.99, 0.999, 1.0] {
            let _ = write!(page, "| {:.2} ", at(waits, part));
        }
        page.push_str("|\n");
    }
    let longer = at(&deaths.after_ms, 1.0) - at(&deaths.between_ms, 1.0);
    let _ = writeln!(
        page,
        "\nThe longest wait after a death was {longer:+.2} ms against the longest without one (asked: at most 10 more). \
         Left behind\nin the end: {} tenants, {} bytes; the daemon had {} files open before and {} after.\n",
        deaths.left_tenants, deaths.left_bytes, deaths.files[0], deaths.files[1]
    );
    let mut back: Vec<f64> = results.daemons.iter().map(|one| one.back_ms).collect();
    back.sort_by(f64::total_cmp);
    let off: Vec<f64> = results.daemons.iter().map(|one| (one.given - KEPT).abs()).collect();
    let failed = results.daemons.iter().filter(|one| !one.alive).count();
    let _ = writeln!(
        page,
        "## {} daemons killed\n\nTwo busy programs, one with a limit of {KEPT}%. The daemon is killed and another started at \
         once. Until the new one\nknew both, seen from outside by asking it again and again: p50 {:.0} ms, p99 {:.0} ms, \
         longest {:.0} ms. In the half second that\nbegan {} ms after its start, the limited program's share was at most {:.1} \
         points off, {:.1} in the mean\n(asked: holds again within 100 ms). Programs that failed: {failed}.\n",
        results.daemons.len(),
        at(&back, 0.5),
        at(&back, 0.99),
        at(&back, 1.0),
        HOLD_AGAIN.as_millis(),
        off.iter().copied().fold(0.0, f64::max),
        off.iter().sum::<f64>() / off.len().max(1) as f64,
    );
    let _ = writeln!(
        page,
        "## Quotas\n\nWhat a program was given of the GPU's time in 2 s beside a busy neighbour, by the stand-in's own books (asked: within 3 \
         points), and what it was\ncharged of that.\n\n| asked | with kernels | charged | with graphs | charged |\n|---|---|---|---|---|"
    );
    for quota in results.quotas.iter().filter(|quota| !quota.graphs) {
        let graphs = results.quotas.iter().find(|other| other.graphs && other.asked == quota.asked);
        let graphs = graphs.map_or_else(String::new, |quota| format!("{:.1}% | {:.1}%", quota.given, quota.charged));
        let _ = writeln!(page, "| {:.0}% | {:.1}% | {:.1}% | {graphs} |", quota.asked, quota.given, quota.charged);
    }
    page
}

/// Of sorted values, the one that such a part of them does not exceed.
pub(super) fn at(sorted: &[f64], part: f64) -> f64 {
    let place = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(place.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}
