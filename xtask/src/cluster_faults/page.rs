//! `docs/benchmarks/cluster-faults.md`.

use super::Results;
use super::row::Row;
use crate::serving::Spread;
use std::fmt::Write;

const HEAD: &str = "\
# When a part of the cluster fails

One scheduler, two gateways and three nodes on one machine, a Python model (`echo`, objective 300 ms, six workers) and a
virtual model (objective 500 ms). Requests come at a steady rate over both gateways, like from a load balancer with health
checks, while every part is killed (`kill`), told to end (`term`, `term-twice`) and stopped (`stop`), and while all parts are
restarted in turn (`rolling`). A part is started again after it ended. Written by `cargo xtask cluster-faults`; everything
that was counted is in [cluster-faults.json](cluster-faults.json).

What must hold, in every run:

- Every request gets an answer, its own, once. Only a gateway that is killed may drop what it had accepted.
- No answer comes later than its deadline plus 250 ms. The time in which a request's own gateway is stopped does not count.
- The good rate is back to 95% within 2 s after the part is back.
- The in-flight gauges return to 0.
- No worker is counted for longer than 1 s whose process is not there.
- SIGTERM ends a process within 15 s, a second one within 1 s.
- A deployed model is never answered with 404, and 503 says when to try again.
- After the scheduler is back, the workers are not all on one node.
";

/// The page that tells the results; without any, what will be told.
pub(super) fn page(results: Option<&Results>) -> String {
    let mut page = HEAD.to_owned();
    match results {
        Some(results) => write_results(results, &mut page).expect("text can always be added to a string"),
        None => page += "\nNot measured yet: run `cargo xtask cluster-faults`.\n",
    }
    page
}

fn write_results(results: &Results, page: &mut String) -> std::fmt::Result {
    writeln!(page, "\n- command: `{}`", results.command)?;
    writeln!(page, "- version: {}", results.version)?;
    writeln!(page, "- machine: {}; stolen by its host: {:.1}% of the time", results.machine, results.stolen_percent)?;
    writeln!(page, "- date: {}", results.date)?;
    let lag = results.rows.iter().map(|row| row.lag_ms).fold(0.0, f64::max);
    writeln!(page, "- the load generator itself was late by {lag:.0} ms at the worst\n")?;
    page.push_str(&table(&results.rows));
    let mut reasons: Vec<(&String, usize)> = Vec::new();
    for (reason, count) in results.rows.iter().flat_map(|row| &row.refused) {
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, sum)) => *sum += count,
            None => reasons.push((reason, *count)),
        }
    }
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    if !reasons.is_empty() {
        writeln!(page, "\nAnswers other than 200, by status and reason (a number in it is `N`):\n")?;
        writeln!(page, "| count | answer |\n|---|---|")?;
        reasons.iter().try_for_each(|(reason, count)| writeln!(page, "| {count} | {} |", reason.replace('|', "/")))?;
    }
    writeln!(page, "\n## Broken promises\n")?;
    let broken = results.broken();
    if broken.is_empty() {
        writeln!(page, "None.")?;
    }
    broken.iter().try_for_each(|broken| writeln!(page, "- {broken}"))
}

fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| part | fault | runs | requests | good | refused | late (worst) | hung | dropped | retried | wrong, doubled | \
         back after, ms: median (worst) | in flight | phantoms | ended after, ms: worst |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let recovery = match (Spread::of(row.recovery_ms.iter().copied()), row.unrecovered) {
            (Some(Spread { median, most, .. }), 0) => format!("{median:.0} ({most:.0})"),
            (Some(Spread { median, .. }), times) => format!("{median:.0} ({times} times never)"),
            (None, _) => "never".to_owned(),
        };
        let late = if row.late > 0 { format!("{} ({:.0} ms)", row.late, row.late_worst_ms) } else { "0".to_owned() };
        let ended = match (row.ignored[0] + row.ignored[1], row.end_ms.is_empty()) {
            (0, true) => "-".to_owned(),
            (0, false) => format!("{:.0}", row.end_ms.iter().copied().fold(0.0, f64::max)),
            _ => format!("never, {} times", row.ignored[0].max(row.ignored[1])),
        };
        let cells = [
            row.part.clone(),
            row.fault.clone(),
            row.runs.to_string(),
            row.requests.to_string(),
            row.good.to_string(),
            row.refused.values().sum::<usize>().to_string(),
            late,
            row.hung.to_string(),
            row.dropped.to_string(),
            row.retried.to_string(),
            format!("{}, {}", row.wrong, row.doubled),
            recovery,
            row.in_flight.map_or_else(|| "?".to_owned(), |left| left.to_string()),
            row.phantoms.to_string(),
            ended,
        ];
        text += &format!("| {} |\n", cells.join(" | "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_the_repository_is_the_one_that_is_written() {
        let documents = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/benchmarks");
        let kept = std::fs::read_to_string(documents.join("cluster-faults.md")).unwrap();
        let results = std::fs::read_to_string(documents.join("cluster-faults.json")).ok();
        let results: Option<Results> = results.map(|text| serde_json::from_str(&text).unwrap());
        assert_eq!(kept, page(results.as_ref()));
    }

    #[test]
    fn a_row_shows_what_is_wrong() {
        let refused = [("503 N wait".to_owned(), 4)].into();
        let row = Row { part: "node-1".to_owned(), fault: "stop".to_owned(), hung: 3, refused, ..Row::default() };
        let text = table(std::slice::from_ref(&row));
        assert!(
            text.ends_with("| node-1 | stop | 0 | 0 | 0 | 4 | 0 | 3 | 0 | 0 | 0, 0 | never | ? | 0 | - |\n"),
            "{text}"
        );
    }
}
