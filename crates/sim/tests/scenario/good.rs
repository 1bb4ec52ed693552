//! What scenario files mean, and that a scenario survives being written and read.

use crate::{BASE, read};
use policy::{LatencyTable, Span};
use sim::{Scenario, Spacing};

fn parse(text: &str) -> Scenario {
    sim::parse("s.toml", text, &read).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn ms(millis: f64) -> Span {
    Span::from_millis_f64(millis)
}

fn latencies(table: &LatencyTable) -> Vec<f64> {
    (1..=table.max_batch()).map(|size| table.latency(size).millis()).collect()
}

fn shares(scenario: &Scenario) -> Vec<f64> {
    scenario.models.iter().map(|model| model.share).collect()
}

const LEAST: &str = r#"
rate = 100
cluster.gpus = 2
[[model]]
name = "m"
slo = "25ms"
latency = { alpha = "1ms", beta = "5ms" }
"#;

const MOST: &str = r#"
seed = 7
warmup = "1s"
duration = "10s"
policy = "shepherd"
rate = 500.5
noise = 0.05
popularity = { zipf = 0.9 }

[[cluster.gpu]]
type = "a100"
count = 4
[[cluster.gpu]]
type = "t4"
count = 2
speed = 0.3
[[cluster.gpu]]
type = "a \"big\" one"
speed = 1.7
[[cluster.failure]]
gpu = 3
at = "2s"
down_for = "1.5s"
[[cluster.failure]]
gpu = 4
at = "3s"

[network]
control = "20us"
data_per_request = "33us"
response = "15us"
jitter = "5us"

[arrivals]
kind = "gamma"
shape = 0.2

[[model]]
name = "line"
count = 3
slo = "25ms"
max_batch = 9
latency = { alpha = "1.053ms", beta = "5.072ms" }
latency_on.t4 = { alpha = "3ms", beta = "9ms" }
[[model]]
name = "table"
slo = "12ms"
latency = { table = [[1, "5ms"], [8, "9.0001ms"]] }
[[model]]
name = "slices"
slo = "50ms"
latency = { profile = "good.csv", instance = 7, processes = 1 }
[[model]]
name = "shares"
slo = "50ms"
latency = { profile = "shares.csv", share = 50 }
[[model]]
name = "fitted"
slo = "50ms"
latency = { profile = "zoo.csv", model = "bert", gpu = "A100", fit = "line" }
[model.latency_on.t4]
profile = "zoo.csv"
model = "bert"
gpu = "A100"
fit = "hinge"
"#;

const WORKLOAD: &str = "rate = 100\nmodels = \"workloads/good.txt\"\ncluster.gpus = 2\n";
const PROFILED: &str = r#"
rate = 100
popularity = "equal"
models = { path = "good.txt", profiles = ["good.csv", "shares.csv"] }
arrivals.kind = "constant"
cluster.gpus = 2
"#;

fn with_arrivals(arrivals: &str) -> String {
    BASE.replace("kind = \"poisson\"", arrivals)
        .replace("rate = 3000\n", "")
        .replace("name = \"resnet50\"", "name = \"resnet50\"\ncount = 2")
}

fn azure(speedup: f64) -> String {
    with_arrivals(&format!("kind = \"trace\"\npath = \"azure.csv\"\nformat = \"azure\"\nspeedup = {speedup}"))
}

fn per_second() -> String {
    with_arrivals("kind = \"trace\"\npath = \"rates.txt\"\nformat = \"per-second\"")
}

#[test]
fn what_is_not_said_has_a_default() {
    let scenario = parse(LEAST);
    assert_eq!((scenario.seed, scenario.policy.as_str(), scenario.noise), (1, "weft", 0.0));
    assert_eq!((scenario.warmup, scenario.duration), (Span::from_secs(5), Span::from_secs(60)));
    assert_eq!((scenario.network, scenario.arrivals), (Default::default(), Spacing::Poisson));
    assert_eq!((scenario.gpus[0].count, scenario.gpus[0].speed, scenario.give_up_at), (2, 1.0, None));
    assert_eq!(scenario.models[0].tables[0].max_batch(), 20);
}

#[test]
fn latency_follows_the_type_of_gpu_and_is_cut_to_what_can_be_on_time() {
    let scenario = parse(MOST);
    let names: Vec<_> = scenario.models.iter().map(|model| model.name.as_str()).collect();
    assert_eq!(names, ["line-1", "line-2", "line-3", "table", "slices", "shares", "fitted"]);
    let [line, .., table, _slices, shares, fitted] = &scenario.models[..] else { panic!() };
    // Cut by max_batch, by 20us + 33us * size + 15us, and by that again at another speed.
    assert_eq!(line.tables.iter().map(LatencyTable::max_batch).collect::<Vec<_>>(), [9, 5, 9]);
    assert_eq!(line.tables[1].latency(5), ms(24.0));
    assert_eq!(line.tables[2].latency(1), Span::from_secs_f64(0.006125 / 1.7));
    // Too slow on the t4, and no reason to refuse the scenario.
    assert_eq!(table.tables[1], LatencyTable::default());
    assert_eq!(table.tables[0].max_batch(), 8);
    assert_eq!(latencies(&shares.tables[0]), [10.0]);
    assert_eq!((fitted.tables[0].latency(1), fitted.tables[1].latency(1)), (ms(1.8), ms(2.0)));
}

#[test]
fn a_size_that_is_late_by_a_nanosecond_is_cut() {
    let sizes = |slo: &str| {
        let text = LEAST.replace("25ms", slo)
            + "[network]\ncontrol = \"1ms\"\ndata_per_request = \"0.5ms\"\nresponse = \"1ms\"";
        parse(&text).models[0].tables[0].max_batch()
    };
    assert_eq!((sizes("13ms"), sizes("12.999999ms")), (4, 3));
}

#[test]
fn popularity_is_by_weight_or_rank() {
    let zipf: f64 = (1..=7).map(|rank| f64::powf(rank.into(), -0.9)).sum();
    let scenario = parse(MOST);
    assert!((scenario.models[1].share - 0.5f64.powf(0.9) / zipf).abs() < 1e-12);
    assert_eq!(shares(&parse(WORKLOAD)), [0.125, 0.375, 0.5]);
    assert_eq!(shares(&parse(PROFILED)), [1.0 / 3.0; 3]);
}

#[test]
fn workload_files_name_models_by_line_and_take_profiles_by_kind() {
    let scenario = parse(WORKLOAD);
    let names: Vec<_> = scenario.models.iter().map(|model| model.name.as_str()).collect();
    assert_eq!(names, ["good-2", "good-4", "good-5"]);
    assert_eq!((scenario.models[1].tables[0].latency(1), scenario.models[1].objective), (ms(5.5), ms(25.0)));
    let scenario = parse(PROFILED);
    let first: Vec<_> = scenario.models.iter().map(|model| model.tables[0].latency(1).millis()).collect();
    assert_eq!(first, [5.0, 4.0, 5.0]);
}

#[test]
fn functions_are_dealt_out_to_models() {
    let scenario = parse(&azure(1.0));
    // Functions 1 and 3 make the first model, 90 and 26 invocations; function 2 the second, 1 and 3.
    let rows = vec![vec![90.0 / 116.0 * 2.0, 26.0 / 116.0 * 2.0], vec![0.5, 1.5]];
    assert_eq!(scenario.arrivals, Spacing::Trace { slot: Span::from_secs(60), rows: rows.clone() });
    assert_eq!((scenario.rate, shares(&scenario)), (1.0, vec![116.0 / 120.0, 4.0 / 120.0]));
    let fast = parse(&azure(60.0));
    assert_eq!((fast.arrivals, fast.rate), (Spacing::Trace { slot: Span::from_secs(1), rows }, 60.0));
}

#[test]
fn models_beyond_the_functions_have_no_traffic() {
    let scenario = parse(&azure(1.0).replace("count = 2", "count = 5"));
    let Spacing::Trace { rows, .. } = &scenario.arrivals else { panic!() };
    assert_eq!((rows.len(), shares(&scenario)), (3, vec![0.5, 4.0 / 120.0, 56.0 / 120.0, 0.0, 0.0]));
}

#[test]
fn rates_by_second_drive_all_models() {
    let scenario = parse(&per_second());
    let rows = vec![vec![0.5, 1.5, 1.0]];
    assert_eq!(scenario.arrivals, Spacing::Trace { slot: Span::from_secs(1), rows });
    assert_eq!((scenario.rate, shares(&scenario)), (2.0, vec![0.5; 2]));
    let text = per_second().replace("noise = 0.0", "rate = 50");
    assert_eq!(parse(&text).rate, 50.0);
}

#[test]
fn the_effective_scenario_leaves_nothing_to_a_default() {
    let text = LEAST.replace("name = \"m\"", "name = \"m\"\ncount = 4\nmax_batch = 8");
    let expected = r#"seed = 1
warmup = "5s"
duration = "60s"
policy = "weft"
rate = 100.0
noise = 0.0

[cluster]

[[cluster.gpu]]
type = "gpu"
count = 2
speed = 1.0

[network]
control = "0us"
data_per_request = "0us"
response = "0us"
jitter = "0us"

[arrivals]
kind = "poisson"

[[model]]
name = "m"
count = 4
slo = "25ms"
weight = 0.25
max_batch = 8
latency = { table = [[1, "6ms"], [8, "13ms"]] }
"#;
    assert_eq!(sim::effective(&parse(&text)), expected);
}

#[test]
fn what_is_written_reads_back() {
    let inline = LEAST.to_owned() + "[arrivals]\nkind = \"trace\"\nslot = \"250ms\"\nrows = [[0, 1, 7.5]]\n";
    let texts = [LEAST, MOST, WORKLOAD, PROFILED, &azure(1.0), &azure(0.7), &per_second(), &inline];
    for text in texts {
        let scenario = parse(text);
        let written = sim::effective(&scenario);
        let nothing = |path: &str| Err(format!("{path} is named in an effective scenario"));
        assert_eq!(sim::parse("effective.toml", &written, &nothing).as_ref(), Ok(&scenario), "{written}");
    }
}

#[test]
fn what_was_read_runs() {
    for text in [LEAST, MOST, &per_second()] {
        let mut scenario = parse(text);
        scenario.duration = Span::from_secs(4);
        sim::run(&scenario);
    }
}
