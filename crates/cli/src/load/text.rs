//! A report as text.

use load::{Failures, ModelReport, Percentiles, Report};
use report::columns::{align, row};
use report::numbers::{count, decimal, rate, share};

/// Everything a person wants to know.
pub(super) fn report(report: &Report) -> String {
    let stopped = if report.stopped_early { ", stopped early" } else { "" };
    let mut parts = vec![
        format!(
            "objective {} ms, seed {}, {} s measured{stopped}\n",
            rate(report.slo_ms),
            report.seed,
            decimal(report.duration_s, 1)
        ),
        align(&outcomes(report)),
    ];
    if report.refused + report.errors > 0 {
        parts.push(align(&reasons(report)));
    }
    let mut spread = vec![row(["ms", "mean", "p50", "p90", "p99", "p99.9", "max"])];
    spread.push(percentiles("all answered", &report.latency_ms));
    spread.push(percentiles("good", &report.good_latency_ms));
    if report.refused > 0 {
        spread.push(percentiles("refused", &report.refusal_latency_ms));
    }
    parts.push(align(&spread));
    if report.models.len() > 1 {
        parts.push(align(&models(&report.models)));
    }
    parts.push(generator(report));
    parts.join("\n")
}

fn outcomes(report: &Report) -> Vec<Vec<String>> {
    let line = |name: &str, number: u64, per_second: f64| {
        let of_offered = if report.offered > 0 { number as f64 / report.offered as f64 } else { f64::NAN };
        vec![name.to_owned(), rate(per_second), count(number as usize), share(of_offered)]
    };
    let mut rows = vec![
        row(["", "requests/s", "requests", "of offered"]),
        line("offered", report.offered, report.offered_rps),
        line("good", report.good, report.good_rps),
        line("late", report.late, report.late_rps),
        line("refused", report.refused, report.refused_rps),
        line("errors", report.errors, report.error_rps),
    ];
    if report.sent < report.offered {
        rows.insert(2, line("sent", report.sent, report.sent_rps));
    }
    rows
}

/// Why requests were refused or had no answer. Reasons come last, where they may be long.
fn reasons(report: &Report) -> Vec<Vec<String>> {
    let refused = report.refusals.iter().map(|told| (told.status.to_string(), told.reason.as_str(), told.count));
    let failed = report.failures.iter().map(|told| (cause(told), told.reason.as_str(), told.count));
    let line = |(name, reason, number): (String, &str, u64)| {
        let name = if reason.is_empty() { name } else { format!("{name}: {reason}") };
        vec![name, count(number as usize)]
    };
    std::iter::once(row(["refusals and errors", "requests"])).chain(refused.chain(failed).map(line)).collect()
}

/// Who or what is to blame for requests without an answer: a status says more than the word for it.
fn cause(failures: &Failures) -> String {
    failures.status.map_or_else(|| failures.kind.to_owned(), |status| format!("error {status}"))
}

/// What is said aloud when requests failed; none where none did.
pub(super) fn alarm(report: &Report) -> Option<String> {
    let first = report.failures.first()?;
    let (errors, offered) = (count(report.errors as usize), count(report.offered as usize));
    Some(format!("{errors} of {offered} requests failed; most often: {}: {}", cause(first), first.reason))
}

fn percentiles(name: &str, of: &Percentiles) -> Vec<String> {
    let numbers = [of.mean, of.p50, of.p90, of.p99, of.p999, of.max].map(|value| decimal(value, 2));
    std::iter::once(name.to_owned()).chain(numbers).collect()
}

fn models(models: &[ModelReport]) -> Vec<Vec<String>> {
    let line = |model: &ModelReport| {
        let rates = [model.offered_rps, model.good_rps, model.late_rps, model.refused_rps, model.error_rps].map(rate);
        let times = [model.latency_ms.p50, model.latency_ms.p99].map(|value| decimal(value, 2));
        std::iter::once(model.name.clone()).chain(rates).chain(times).collect()
    };
    let head = row(["requests/s by model", "offered", "good", "late", "refused", "errors", "p50 ms", "p99 ms"]);
    std::iter::once(head).chain(models.iter().map(line)).collect()
}

/// Whether the figures are those of the server alone.
fn generator(report: &Report) -> String {
    let late = &report.send_lateness_ms;
    let lateness = |of: f64| decimal(of, 2);
    let connections = count(report.connections_max);
    match report.generator_late {
        false => format!(
            "sent within {} ms of the plan at p99 (p50 {}, max {}), over up to {connections} connections\n",
            lateness(late.p99),
            lateness(late.p50),
            lateness(late.max)
        ),
        true => {
            let why = match report.connections_limit.is_some_and(|limit| report.connections_max >= limit) {
                true => format!("all {connections} connections were in use: allow more with --connections"),
                false => "this machine is too busy: lower --rate, or send from another machine".into(),
            };
            format!(
                "the generator was late by {} ms at p99 (p50 {}, max {}), which counts as latency; {why}\n",
                lateness(late.p99),
                lateness(late.p50),
                lateness(late.max)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use load::{Refusals, SendLateness};

    fn sample() -> Report {
        let times = Percentiles { p50: 10.0, p90: 20.0, p99: 30.5, p999: 99.0, max: 120.25, mean: 12.0 };
        let model = |name: &str| ModelReport {
            name: name.into(),
            offered_rps: 100.0,
            good_rps: 90.0,
            late_rps: 4.0,
            refused_rps: 5.0,
            error_rps: 1.0,
            latency_ms: times.clone(),
            good_latency_ms: times.clone(),
        };
        Report {
            offered_rps: 200.0,
            sent_rps: 199.8,
            good_rps: 180.0,
            late_rps: 8.0,
            refused_rps: 10.0,
            error_rps: 2.0,
            offered: 2_000,
            sent: 1_998,
            good: 1_800,
            late: 80,
            refused: 100,
            errors: 20,
            latency_ms: times.clone(),
            good_latency_ms: times.clone(),
            refusal_latency_ms: times.clone(),
            send_lateness_ms: SendLateness { p50: 0.05, p99: 0.2, max: 3.0 },
            generator_late: false,
            connections_max: 12,
            connections_limit: Some(4_000),
            refusals: vec![Refusals { status: 429, reason: "late by # ms".into(), count: 100 }],
            failures: vec![
                Failures { kind: "status", status: Some(500), reason: "ValueError: no".into(), count: 12 },
                Failures { kind: "connection", status: None, reason: "closed before an answer".into(), count: 8 },
            ],
            models: vec![model("bert"), model("resnet")],
            slo_ms: 100.0,
            duration_s: 10.0,
            stopped_early: false,
            seed: 1,
        }
    }

    #[test]
    fn a_report_reads_well() {
        let expected = "\
objective 100 ms, seed 1, 10.0 s measured

         requests/s  requests  of offered
offered         200     2,000      100.0%
sent            200     1,998       99.9%
good            180     1,800       90.0%
late           8.00        80        4.0%
refused        10.0       100        5.0%
errors         2.00        20        1.0%

refusals and errors                  requests
429: late by # ms                         100
error 500: ValueError: no                  12
connection: closed before an answer         8

ms             mean    p50    p90    p99  p99.9     max
all answered  12.00  10.00  20.00  30.50  99.00  120.25
good          12.00  10.00  20.00  30.50  99.00  120.25
refused       12.00  10.00  20.00  30.50  99.00  120.25

requests/s by model  offered  good  late  refused  errors  p50 ms  p99 ms
bert                     100  90.0  4.00     5.00    1.00   10.00   30.50
resnet                   100  90.0  4.00     5.00    1.00   10.00   30.50

sent within 0.20 ms of the plan at p99 (p50 0.05, max 3.00), over up to 12 connections
";
        assert_eq!(report(&sample()), expected);
    }

    #[test]
    fn a_generator_that_was_late_says_so_and_why() {
        let late = Report {
            generator_late: true,
            send_lateness_ms: SendLateness { p50: 0.5, p99: 12.0, max: 30.0 },
            ..sample()
        };
        let text = report(&late);
        assert!(text.contains("the generator was late by 12.00 ms at p99"), "{text}");
        assert!(text.ends_with("this machine is too busy: lower --rate, or send from another machine\n"), "{text}");
        let text = report(&Report { connections_limit: Some(12), ..late });
        assert!(text.ends_with("all 12 connections were in use: allow more with --connections\n"), "{text}");
    }

    #[test]
    fn errors_are_said_aloud() {
        let said = alarm(&sample()).unwrap();
        assert_eq!(said, "20 of 2,000 requests failed; most often: error 500: ValueError: no");
        assert_eq!(alarm(&Report { failures: vec![], ..sample() }), None);
    }

    #[test]
    fn nothing_offered_is_no_division() {
        let none = Report { offered: 0, sent: 0, good: 0, late: 0, refused: 0, errors: 0, ..sample() };
        assert!(report(&none).contains("offered         200         0           –"));
    }
}
