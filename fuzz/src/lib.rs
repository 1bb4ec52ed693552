//! What must hold of any bytes that come in as a scenario, a trace or a profile: they are read or refused with
//! one line of text, and what was read can be written, read again and run. A broken rule is a panic.
//!
//! The fuzz targets and the ordinary test `crates/sim/tests/fuzz_smoke.rs` share this file.

use policy::predict::accuracy::{self, Half, Slices};
use policy::search::{Outcome, Search, Space};
use policy::surface::Surface;
use policy::{LatencyTable, MAX_BATCH, Selection, Span};
use sim::Scenario;

/// Stands between a scenario and the text of every file that it names.
pub const SEPARATOR: &str = "---- file ----\n";

/// Requests in a run, about. Enough for queues to form and batches to be refused.
const REQUESTS: f64 = 300.0;
/// Larger clusters and more models are read but not run: a fuzzer's time is better spent on other input.
const LARGEST_RUN: usize = 64;

/// A scenario and, after [`SEPARATOR`], the text of every file that it names.
pub fn scenario(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (text, file) = text.split_once(SEPARATOR).unwrap_or((&text, ""));
    check(text, &|_| Ok(file.to_owned()));
}

/// A trace file, in either format.
pub fn trace(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for format in ["azure", "per-second"] {
        let scenario = format!(
            "cluster.gpus = 2\narrivals = {{ kind = \"trace\", path = \"trace\", format = \"{format}\" }}\n\
             [[model]]\nname = \"m\"\ncount = 3\nslo = \"25ms\"\nlatency = {{ alpha = \"1ms\", beta = \"5ms\" }}\n"
        );
        check(&scenario, &|_| Ok(text.clone().into_owned()));
    }
}

/// A profile, with and without a choice among its measurements.
pub fn profile_csv(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let row = Selection { model: Some("m".to_owned()), gpu: Some("g".to_owned()), ..Selection::default() };
    let line = Selection { line: true, ..row.clone() };
    let part = Selection { instance: Some(1), processes: Some(2), share: Some(50), ..Selection::default() };
    for selection in [Selection::default(), row, line, part] {
        match LatencyTable::from_csv(&text, &selection) {
            Ok(table) => {
                assert!(table.max_batch() <= MAX_BATCH, "{} sizes", table.max_batch());
                let falls = (2..=table.max_batch()).find(|size| table.latency(*size) < table.latency(size - 1));
                assert_eq!(falls, None, "latency falls with the batch size");
            }
            Err(error) => assert!(!error.problem.is_empty() && error.line <= text.lines().count().max(1)),
        }
    }
    if let Ok(surface) = Surface::from_csv(&text) {
        searched(&surface);
        assert!(accuracy::solo(&surface, Half::Drawn(1)).trials.iter().all(|trial| trial.uncertainty.is_finite()));
    }
    if let Ok(slices) = Slices::from_csv(&text) {
        accuracy::company(&[slices], Half::EveryOther(true), true);
    }
}

/// A search of any surface ends, and what it finds meets the objective.
fn searched(surface: &Surface) {
    let objective = surface.points()[surface.points().len() / 2].latency;
    let space = Space::new(surface.batches(), surface.shares()).expect("a surface has a point");
    let points = space.points();
    let mut search = Search::new(space, objective);
    while let Some(probe) = search.next() {
        match surface.at(probe.batch, probe.share) {
            Some(point) => search.observe(point.latency, point.throughput),
            None => search.cannot_run(),
        }
        assert!(search.probes() <= points, "more probes than points");
    }
    match search.outcome() {
        Some(Outcome::Found(point)) => assert!(point.latency <= objective),
        outcome => assert!(matches!(outcome, Some(Outcome::Unmet(_))), "a search that does not end"),
    }
}

fn check(text: &str, read: sim::ReadFile) {
    match sim::parse("s.toml", text, read) {
        Ok(scenario) if scenario.models.len() <= LARGEST_RUN && scenario.gpu_types().len() <= LARGEST_RUN => {
            let written = sim::effective(&scenario);
            let again = sim::parse("effective.toml", &written, &|path| Err(format!("{path} is not needed")));
            assert!(again.as_ref() == Ok(&scenario), "does not read back: {again:?}\n{written}");
            run(scenario);
        }
        Ok(_) => {}
        Err(error) => {
            let message = error.to_string();
            assert!(!error.problem.is_empty() && !message.contains('\n') && message.len() < 3000, "{message}");
        }
    }
}

/// Runs a scenario for as long as about [`REQUESTS`] requests take to come. The simulator checks its own rules.
fn run(scenario: Scenario) {
    let longest = Span::from_secs_f64(REQUESTS / scenario.rate);
    let (warmup, duration) = (scenario.warmup.min(longest), scenario.duration.min(longest));
    let bound = sim::bound::good_rate(&scenario);
    assert!(bound >= 0.0 && bound <= scenario.rate * (1.0 + 1e-9), "bound {bound} at rate {}", scenario.rate);
    let report = sim::run(&Scenario { warmup, duration, ..scenario });
    for fraction in [report.bad_average, report.bad_worst] {
        assert!((0.0..=1.0).contains(&fraction), "{fraction} of the requests were bad");
    }
}
