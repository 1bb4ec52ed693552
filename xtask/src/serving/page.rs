//! The page: tables of what was measured. Every number on it comes from the results.

use super::fidelity::RATES;
use super::results::{EchoSample, FidelitySample, LoneSample, OverloadSample, Results, Rounds, Spread};
use super::{BARE, DISTURBED, TIMES_CAPACITY};
use std::fmt::Write;

const TRITON: &str = "triton";
const DEFAULT: &str = "triton-magika, default";

/// The page for these results.
pub(super) fn page(results: &Results) -> String {
    let mut out = String::new();
    write_page(results, &mut out).expect("text can always be added to a string");
    out
}

fn write_page(results: &Results, out: &mut String) -> std::fmt::Result {
    writeln!(out, "# Serving\n\n<!-- Written by `cargo xtask bench serving` from serving.json; do not edit. -->\n")?;
    writeln!(
        out,
        "Contenders take turns; each is started, measured and stopped before the next. Figures are medians over the \
         rounds with the lowest and the highest in brackets; ratios are taken within a round, because the machine is \
         not the same from one minute to the next.\n"
    )?;
    writeln!(out, "- Command: `{}`", results.command)?;
    if !results.weft.is_empty() {
        writeln!(out, "- Version: {}", results.weft)?;
    }
    if let Some(machine) = &results.machine {
        writeln!(out, "- Machine: {machine}, shared by server and load generator")?;
    }
    let of_echo = results.echo.iter().flat_map(|result| &result.rounds).map(|sample| sample.others);
    let of_overload = results.overload.iter().flat_map(|result| &result.rounds).map(|sample| sample.others);
    if let Some(others) = Spread::of(of_echo.chain(of_overload).map(|part| part * 100.0)) {
        writeln!(out, "- Percent of the machine that others used during a turn: {}", text(Some(others), 0))?;
        let limit = DISTURBED * 100.0;
        if others.most > limit {
            writeln!(out, "- **Disturbed**: some turns stand although others used more than {limit:.0}% meanwhile")?;
        }
    }
    echo(results, out)?;
    lone(results, out)?;
    steady(results, out)?;
    overload(results, out)?;
    fidelity(results, out)
}

fn echo(results: &Results, out: &mut String) -> std::fmt::Result {
    let Some(first) = results.echo.first() else { return Ok(()) };
    writeln!(out, "\n## An echo of 16 floats\n")?;
    writeln!(
        out,
        "A model that gives back its input, JSON over HTTP on loopback, one worker; {}. Triton, MLServer, KServe and \
         weft speak the Open Inference Protocol, the others JSON of their own. CPU is that of the server with all its \
         processes, per request. Memory is that of the idle server with all its processes after its first answer: \
         shared pages divided among those that share them (PSS), and counted for each (RSS).\n",
        first.settings
    )?;
    writeln!(
        out,
        "| server | rounds | requests/s | against Triton | p50 ms | p99 ms | CPU ms | PSS MB | RSS MB | start s | \
         failed |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    )?;
    let triton = results.echo.iter().find(|result| result.contender == TRITON);
    for result in results.echo.iter().filter(|result| !result.rounds.is_empty()) {
        let of = |value: fn(&EchoSample) -> f64, digits| text(Spread::of(result.rounds.iter().map(value)), digits);
        let ratios = triton.and_then(|triton| Spread::of(ratios(result, triton)));
        let failed: u64 = result.rounds.iter().map(|sample| sample.failed).sum();
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {failed} |",
            result.title,
            result.rounds.len(),
            of(|sample| sample.requests_per_second, 0),
            text(ratios, 3),
            of(|sample| sample.p50_ms, 2),
            of(|sample| sample.p99_ms, 2),
            of(|sample| sample.cpu_ms_per_request, 3),
            of(|sample| sample.memory_mb, 0),
            of(|sample| sample.resident_mb, 0),
            of(|sample| sample.start_s, 2),
        )?;
    }
    Ok(())
}

/// A contender's rate over another's, for each round in which both had a turn.
fn ratios(result: &Rounds<EchoSample>, other: &Rounds<EchoSample>) -> Vec<f64> {
    let same_round = |sample: &EchoSample| other.rounds.iter().find(|base| base.round == sample.round).copied();
    let ratio = |sample: &EchoSample| Some(sample.requests_per_second / same_round(sample)?.requests_per_second);
    result.rounds.iter().filter_map(ratio).collect()
}

fn lone(results: &Results, out: &mut String) -> std::fmt::Result {
    let Some(first) = results.lone.first() else { return Ok(()) };
    writeln!(
        out,
        "\n## A request that meets no other\n\n{}: the whole way of a request to the echo model and back, from the time at \
         which it was to be sent to the last byte of the answer. *Model* is what the server says that the model took, in the \
         mean, worker and way to it included. *Added* is what is left of the way without the model and without what the \
         same client needs with a server that knows one answer, in the same round: gateway and scheduler.\n",
        first.settings
    )?;
    writeln!(out, "| server | rounds | p50 ms | p99 ms | model ms | added p50 ms | added p99 ms |")?;
    writeln!(out, "|---|---:|---:|---:|---:|---:|---:|")?;
    let bare = results.lone.iter().find(|result| result.contender == BARE);
    for result in results.lone.iter().filter(|result| !result.rounds.is_empty()) {
        let of = |value: fn(&LoneSample) -> f64| text(Spread::of(result.rounds.iter().map(value)), 3);
        let added = |value: fn(&LoneSample) -> f64| {
            let added = |sample: &LoneSample| {
                let bare = bare?.rounds.iter().find(|bare| bare.round == sample.round)?;
                Some(value(sample) - value(bare) - sample.computed_ms?)
            };
            Spread::of(result.rounds.iter().filter_map(added))
        };
        let computed = text(Spread::of(result.rounds.iter().filter_map(|sample| sample.computed_ms)), 3);
        writeln!(
            out,
            "| {} | {} | {} | {} | {computed} | {} | {} |",
            result.title,
            result.rounds.len(),
            of(|sample| sample.p50_ms),
            of(|sample| sample.p99_ms),
            text(added(|sample| sample.p50_ms), 3),
            text(added(|sample| sample.p99_ms), 3)
        )?;
    }
    Ok(())
}

fn fidelity(results: &Results, out: &mut String) -> std::fmt::Result {
    let Some(first) = results.fidelity.first() else { return Ok(()) };
    writeln!(
        out,
        "\n## The live scheduler against the simulator\n\n{}. Requests a second answered within their objectives, by \
         the server's own clock.\n",
        first.settings
    )?;
    writeln!(out, "| offered/s | simulated | live | live over simulated |\n|---:|---:|---:|---:|")?;
    for rate in RATES {
        let of = |value: fn(&FidelitySample) -> f64| {
            Spread::of(first.rounds.iter().filter(|sample| sample.rate == rate).map(value))
        };
        let simulated = text(of(|sample| sample.simulated_good_rps), 0);
        let live = text(of(|sample| sample.live_good_rps), 0);
        let ratio = text(of(|sample| sample.live_good_rps / sample.simulated_good_rps), 3);
        writeln!(out, "| {rate} | {simulated} | {live} | {ratio} |")?;
    }
    Ok(())
}

fn steady(results: &Results, out: &mut String) -> std::fmt::Result {
    let Some(first) = results.steady.first() else { return Ok(()) };
    writeln!(out, "\n## The echo at the rate at which Triton is full\n\n{}.\n", first.settings)?;
    writeln!(out, "| server | rounds | offered/s | good/s | p99 ms |\n|---|---:|---:|---:|---:|")?;
    for result in results.steady.iter().filter(|result| !result.rounds.is_empty()) {
        let rate = Spread::of(result.rounds.iter().map(|sample| sample.rate));
        let good = Spread::of(result.rounds.iter().map(|sample| sample.good_rps));
        let p99 = Spread::of(result.rounds.iter().filter_map(|sample| sample.p99_ms));
        let (title, rounds) = (&result.title, result.rounds.len());
        writeln!(out, "| {title} | {rounds} | {} | {} | {} |", text(rate, 0), text(good, 0), text(p99, 2))?;
    }
    Ok(())
}

fn overload(results: &Results, out: &mut String) -> std::fmt::Result {
    let Some(first) = results.overload.first() else { return Ok(()) };
    writeln!(out, "\n## magika past its capacity\n")?;
    writeln!(
        out,
        "Requests a second answered within the objective; {}; rounds: {}. Capacity is what Triton with default settings answers \
         to 8 connections, measured in each round. Triton's other rows are settings of its queue.\n",
        first.settings,
        good(first, TIMES_CAPACITY[0]).len()
    )?;
    let columns: String = TIMES_CAPACITY.iter().map(|times| format!(" {times} times |")).collect();
    writeln!(out, "| server |{columns}\n|---|{}", "---:|".repeat(TIMES_CAPACITY.len()))?;
    for result in &results.overload {
        let cells = TIMES_CAPACITY.map(|times| format!(" {} |", text(Spread::of(good(result, times)), 1)));
        writeln!(out, "| {} |{}", result.title, cells.concat())?;
    }
    let of = |name: &str| results.overload.iter().find(|result| result.contender == name);
    let (Some(ours), Some(default)) = (of("weft-magika"), of(DEFAULT)) else { return Ok(()) };
    writeln!(out, "\n| weft against |{columns}\n|---|{}", "---:|".repeat(TIMES_CAPACITY.len()))?;
    let against = |others: &[&Rounds<OverloadSample>]| {
        TIMES_CAPACITY.map(|times| {
            // Within a round, against the best of the others in that round.
            let best = |sample: &OverloadSample| {
                let all = others.iter().flat_map(|other| &other.rounds);
                let same = all.filter(|other| other.round == sample.round && other.times_capacity == times);
                same.map(|other| other.good_rps).reduce(f64::max).filter(|best| *best > 0.0)
            };
            let ours = ours.rounds.iter().filter(|sample| sample.times_capacity == times);
            format!(" {} |", text(Spread::of(ours.filter_map(|sample| Some(sample.good_rps / best(sample)?))), 2))
        })
    };
    writeln!(out, "| Triton, default |{}", against(&[default]).concat())?;
    let tuned: Vec<_> = results.overload.iter().filter(|result| result.contender.starts_with(TRITON)).collect();
    writeln!(out, "| Triton, the best of its settings at each rate |{}", against(&tuned).concat())?;
    let best = |round: u64| {
        let same = ours.rounds.iter().filter(|sample| sample.round == round);
        same.map(|sample| sample.good_rps).reduce(f64::max).unwrap_or(f64::NAN)
    };
    let most = TIMES_CAPACITY[TIMES_CAPACITY.len() - 1];
    let kept = ours.rounds.iter().filter(|sample| sample.times_capacity == most);
    let kept = text(Spread::of(kept.map(|sample| sample.good_rps / best(sample.round))), 2);
    writeln!(out, "\nAt {most} times capacity weft keeps {kept} of the best that it reached in the round.")
}

fn good(result: &Rounds<OverloadSample>, times: f64) -> Vec<f64> {
    let samples = result.rounds.iter().filter(|sample| sample.times_capacity == times);
    samples.map(|sample| sample.good_rps).collect()
}

/// Like `12 [10, 15]`; a bar when there is nothing, no brackets when there is no spread.
fn text(spread: Option<Spread>, digits: usize) -> String {
    match spread {
        None => "-".to_owned(),
        Some(Spread { median, least, most }) if least == most => format!("{median:.digits$}"),
        Some(Spread { median, least, most }) => format!("{median:.digits$} [{least:.digits$}, {most:.digits$}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(round: u64, times_capacity: f64, good_rps: f64) -> OverloadSample {
        OverloadSample { round, capacity: 10.0, times_capacity, good_rps, others: 0.0 }
    }

    #[test]
    fn ratios_are_taken_within_a_round_and_against_the_best() {
        let mut results = Results::default();
        for (name, values) in [("weft-magika", [8.0, 30.0]), (DEFAULT, [8.0, 10.0]), ("triton-magika, x", [4.0, 20.0])]
        {
            let rounds = results.overload_of(name, name.to_owned(), "10 s");
            rounds.rounds = vec![sample(1, 3.0, values[0]), sample(2, 3.0, values[1])];
        }
        let page = page(&results);
        assert!(page.contains("| Triton, default | - | - | - | 2.00 [1.00, 3.00] |"), "{page}");
        assert!(page.contains("at each rate | - | - | - | 1.25 [1.00, 1.50] |"), "{page}");
    }
}
