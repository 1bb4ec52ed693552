//! Elastic clusters: scenarios that are refused with what to do, runs that repeat, and rules that hold under every policy.

use policy::Span;
use proptest::prelude::*;
use sim::elastic::{Interference, NAMES, Report, Scenario, parse, run};

/// Latency is `(8 + 4 b) / (0.1 + share)` milliseconds or so, by batch and share.
fn grid() -> String {
    let mut rows = String::new();
    for batch in [1, 2, 4, 8, 16] {
        for percent in [10, 20, 30, 50, 100] {
            let millis = (4.0 + f64::from(batch) * 2.0) * (0.3 + 0.7 * 30.0 / f64::from(percent.min(60)));
            rows += &format!("{batch},{percent},{},{}\n", millis / 1e3, f64::from(batch) * 1e3 / millis);
        }
    }
    rows
}

fn read(path: &str) -> Result<String, String> {
    match path {
        "model.csv" => Ok(grid()),
        "cut.csv" => Ok("1,10,0.1,5\n2,x,0.1,5\n".to_owned()),
        "slices.csv" => {
            Ok("Mig instance,Batch size,Workload Number,Throughput,Latency\n1,1,1,50,0.02\n7,1,1,200,0.005\n"
                .to_owned())
        }
        "trace.txt" => Ok("1\n5\n0\n0\n9\n2\n".to_owned()),
        "gap.txt" => Ok("1\n5\nnone\n9\n".to_owned()),
        "azure.csv" => Ok("HashOwner,HashApp,HashFunction,Trigger,1,2\na,b,c,d,60,120\na,b,c,d,0,30\n".to_owned()),
        _ => Err("no such file or folder".to_owned()),
    }
}

const HEAD: &str = "warmup = \"5s\"\nduration = \"60s\"\n[cluster]\ngpus = 8\n";
const FUNCTION: &str = "[[function]]\nname = \"f\"\nprofile = \"model.csv\"\nobjective = \"60ms\"\n";

fn scenario(rest: &str) -> Scenario {
    parse("s.toml", &format!("{HEAD}{rest}"), &read).unwrap()
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let check = |rest: &str, expected: &str| {
        let text = format!("{HEAD}{rest}");
        assert_eq!(parse("s.toml", &text, &read).unwrap_err().to_string(), expected);
    };
    check("", "s.toml: no functions: expected [[function]]");
    check(
        &format!("{FUNCTION}rat = 2"),
        "s.toml:9: unknown key `rat`, did you mean `rate`? expected one of: name, profile, objective, cold_start, memory_gb, batch_max, min, max, rate, trace",
    );
    check(FUNCTION, "s.toml:5: expected rate = 20 or trace = { path = \"FILE\", format = \"per-second\" }");
    check(&format!("{FUNCTION}rate = 5\nmin = 4\nmax = 2"), "s.toml:10: min = 4 is more than max = 2");
    check(&format!("{FUNCTION}rate = -1"), "s.toml:9: rate = -1 is out of range: expected 0 to 1000000");
    check(&format!("{FUNCTION}rate = 1\n{FUNCTION}rate = 1"), "s.toml:11: two are named \"f\"");
    check(
        &format!("{}rate = 1", FUNCTION.replace("60ms", "4ms")),
        "s.toml:8: objective = \"4ms\" cannot be met: the fastest batch of model.csv takes 3.9ms, and half of an objective \
         is for the wait while another batch runs",
    );
    check(
        &format!("{}rate = 1", FUNCTION.replace("model", "none")),
        "s.toml:7: cannot read \"none.csv\": no such file or folder",
    );
    check(
        &format!("{}rate = 1", FUNCTION.replace("model", "cut")),
        "cut.csv:2: expected a number, found \"x\": a row is batch, SM percent, latency in seconds, throughput",
    );
    let trace = |keys: &str| format!("{FUNCTION}trace = {{ {keys} }}");
    check(
        &trace("path = \"gap.txt\", format = \"per-second\""),
        "gap.txt:3: expected a number for rate, found \"none\"",
    );
    check(
        &trace("path = \"azure.csv\", format = \"azure\", row = 3"),
        "s.toml:9: row = 3 is out of range: expected 1 to 2",
    );
    check(
        &format!("{FUNCTION}rate = 1\ntrace = {{ path = \"trace.txt\", format = \"per-second\", scale = 2.0 }}"),
        "s.toml:9: expected rate, the mean of the trace, or its scale, not both",
    );
    let training = |keys: &str| format!("{FUNCTION}rate = 1\n[[training]]\nname = \"t\"\n{keys}");
    check(&training("request = \"70%\"\nlimit = \"40%\""), "s.toml:12: request \"70%\" is more than limit \"40%\"");
    check(
        &training("request = \"0%\"\nlimit = \"40%\""),
        "s.toml:12: request = \"0%\" is out of range: expected \"0.1%\" to \"100%\"",
    );
    check(
        &training("request = \"10%\"\nlimit = \"40%\"\ngpus = 9"),
        "s.toml:14: gpus = 9 is out of range: expected 1 to 8",
    );
    let missing = parse("s.toml", "seed = 1", &read).unwrap_err().to_string();
    assert_eq!(missing, "s.toml: missing [cluster]: expected gpus = 8");
    for wrong in ["lots", "101%", "5"] {
        let text = format!("interference = \"{wrong}\"\n{HEAD}{FUNCTION}rate = 1");
        let expected =
            format!("s.toml:1: interference = \"{wrong}\" is unknown: expected \"predicted\", or \"0%\" to \"100%\"");
        assert_eq!(parse("s.toml", &text, &read).unwrap_err().to_string(), expected);
    }
}

#[test]
fn neighbours_cost_what_is_predicted_unless_something_else_is_said() {
    let of = |line: &str| parse("s.toml", &format!("{line}{HEAD}{FUNCTION}rate = 1"), &read).unwrap().interference;
    assert_eq!((of(""), of("interference = \"predicted\"\n")), (Interference::Predicted, Interference::Predicted));
    assert_eq!(of("interference = \"7.5%\"\n"), Interference::Flat(0.075));
}

#[test]
fn traces_are_scaled_turned_and_sped_up() {
    let rate = |keys: &str| scenario(&format!("{FUNCTION}{keys}")).functions[0].rate;
    assert!((rate("trace = { path = \"trace.txt\", format = \"per-second\", scale = 6.0 }") - 17.0).abs() < 1e-9);
    assert!((rate("rate = 3.0\ntrace = { path = \"trace.txt\", format = \"per-second\" }") - 3.0).abs() < 1e-9);
    let azure = "trace = { path = \"azure.csv\", format = \"azure\", row = 1, speedup = 10.0 }";
    assert!((rate(azure) - 15.0).abs() < 1e-9, "{}", rate(azure));
    let turned =
        scenario(&format!("{FUNCTION}trace = {{ path = \"trace.txt\", format = \"per-second\", offset = \"4s\" }}"));
    let sim::Spacing::Trace { rows, .. } = &turned.functions[0].spacing else { panic!("a trace") };
    let most = rows[0].iter().copied().fold(0.0, f64::max);
    assert_eq!(rows[0][0], most);
}

fn busy() -> Scenario {
    let bursty = FUNCTION.replace("\"f\"", "\"g\"");
    let job = "[[training]]\nname = \"t\"\nrequest = \"40%\"\nlimit = \"70%\"\n[[training]]\nname = \"u\"\ngpus = 2\nrequest = \"50%\"\nlimit = \"80%\"\n";
    scenario(&format!(
        "{FUNCTION}rate = 120\n{bursty}trace = {{ path = \"trace.txt\", format = \"per-second\", scale = 40.0 }}\n{job}"
    ))
}

#[test]
fn one_seed_gives_one_report() {
    let mut scenario = busy();
    for policy in NAMES {
        assert_eq!(run(&scenario, policy), run(&scenario, policy), "{policy}");
    }
    let first = run(&scenario, "weft");
    scenario.seed = 2;
    assert_ne!(first, run(&scenario, "weft"));
    assert_eq!(run(&scenario, "none"), None);
}

#[test]
fn every_policy_meets_the_same_requests_and_the_cluster_bounds_it() {
    let scenario = busy();
    let reports: Vec<Report> = NAMES.iter().map(|policy| run(&scenario, policy).unwrap()).collect();
    for report in &reports {
        assert_eq!(report.requests, reports[0].requests);
        makes_sense(&scenario, report);
    }
    let of = |name: &str| reports.iter().find(|report| report.policy == name).unwrap();
    assert!((of("exclusive").training.unwrap() - 1.0).abs() < 1e-9);
    assert!((of("limit").training.unwrap() - 0.98).abs() < 1e-9);
    assert!((of("request").training.unwrap() - 0.8).abs() < 1e-9);
    assert!(of("weft").gpu_seconds < of("exclusive").gpu_seconds);
}

#[test]
fn a_function_that_nobody_calls_costs_nothing_under_weft_and_is_never_violated() {
    let quiet = Scenario { duration: Span::from_secs(300), ..scenario(&format!("{FUNCTION}rate = 0.0")) };
    let report = run(&quiet, "weft").unwrap();
    assert_eq!((report.requests, report.violations, report.cold_starts), (0, 0.0, 0));
    assert!(report.gpu_seconds < 301.0, "{}", report.gpu_seconds);
}

#[test]
fn mig_slices_are_a_profile_too() {
    let sliced = FUNCTION.replace("model.csv", "slices.csv");
    let report = run(&scenario(&format!("{sliced}rate = 20")), "weft").unwrap();
    assert!(report.violations < 0.05, "{}", report.violations);
}

fn makes_sense(scenario: &Scenario, report: &Report) {
    let name = &report.policy;
    let parts = [report.violations, report.fragmentation, report.training.unwrap_or(0.0)];
    assert!(parts.iter().all(|part| (-1e-9..=1.0 + 1e-9).contains(part)), "{name}: {parts:?}");
    let most = scenario.gpus as f64 * scenario.duration.seconds();
    assert!((0.0..=most + 1e-6).contains(&report.gpu_seconds), "{name}: {}", report.gpu_seconds);
    assert!(report.peak_gpus <= scenario.gpus, "{name}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// The rules of `check` hold, whatever the load: a run that breaks one panics.
    #[test]
    fn rules_hold_under_every_policy(
        rates in prop::collection::vec(0.0..400.0, 1..4),
        scale in 1.0..80.0,
        gpus in 1..6usize,
        jobs in 0..3usize,
        cold in 0..9u64,
        seed in 0..1_000u64,
    ) {
        let mut text = String::new();
        for (index, rate) in rates.iter().enumerate() {
            text += &FUNCTION.replace("\"f\"", &format!("\"f{index}\""));
            text += &match index {
                0 => format!("trace = {{ path = \"trace.txt\", format = \"per-second\", scale = {scale:?} }}\n"),
                _ => format!("rate = {rate:?}\n"),
            };
            text += &format!("cold_start = \"{cold}s\"\n");
        }
        for index in 0..jobs {
            text += &format!("[[training]]\nname = \"t{index}\"\nrequest = \"45%\"\nlimit = \"70%\"\n");
        }
        let scenario = Scenario { gpus, seed, duration: Span::from_secs(20), ..scenario(&text) };
        for policy in NAMES {
            makes_sense(&scenario, &run(&scenario, policy).unwrap());
        }
    }
}
