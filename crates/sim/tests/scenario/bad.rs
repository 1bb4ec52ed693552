//! Everything that is refused, and the one message it is refused with.

use crate::{BASE, read};

/// Without the model at its end, for those that name a workload file.
fn without_model() -> &'static str {
    BASE.split("[[model]]").next().unwrap()
}

/// Cases are lines: changes to `base` as `old => new`, then the message, indented. In changes, `\n` breaks the
/// line; with nothing before the arrow, text is added at the end.
fn check(base: &str, cases: &str) {
    let mut text = base.to_owned();
    for line in cases.lines().filter(|line| !line.is_empty()) {
        if let Some(expected) = line.strip_prefix("    ") {
            let found = sim::parse("s.toml", &text, &read);
            let found = found.map_or_else(|error| error.to_string(), |_| "nothing wrong".to_owned());
            assert_eq!(found, expected, "for:\n{text}");
            text = base.to_owned();
        } else {
            let (old, new) = line.split_once("=>").unwrap();
            let (old, new) = (old.trim().replace("\\n", "\n"), new.trim().replace("\\n", "\n"));
            assert!(text.contains(&old), "no {old} in:\n{text}");
            text = if old.is_empty() { text + &new } else { text.replacen(&old, &new, 1) };
        }
    }
}

#[test]
fn syntax_types_and_keys() {
    check(
        BASE,
        r#"
seed = 1 => seed =
    s.toml:1: string values must be quoted, expected literal string
seed = 1 => seed = 1\nseed = 2
    s.toml:2: duplicate key
seed = 1 => seed = "one"
    s.toml:1: invalid type: string "one", expected a whole number
seed = 1 => seed = -1
    s.toml:1: seed = -1 is out of range: expected 0 to 9223372036854775807
seed = 1 => seed = 1.5
    s.toml:1: invalid type: floating point `1.5`, expected a whole number
seed = 1 => seed = 99999999999999999999
    s.toml:1: invalid type: integer `99999999999999999999`, expected a smaller whole number
rate = 3000 => rate = "fast"
    s.toml:5: invalid type: string "fast", expected a number
seed = 1 => sede = 1
    s.toml:1: unknown key `sede`, did you mean `seed`? expected one of: seed, warmup, duration, policy, rate, noise, popularity, models, cluster, network, arrivals, model
seed = 1 => colour = 1
    s.toml:1: unknown key `colour`, expected one of: seed, warmup, duration, policy, rate, noise, popularity, models, cluster, network, arrivals, model
gpus = 8 => gpu_count = 8
    s.toml:9: unknown key `gpu_count`, expected one of: gpus, gpu, failure
control = "10us" => controll = "10us"
    s.toml:12: unknown key `controll`, did you mean `control`? expected one of: control, data_per_request, response, jitter
kind = "poisson" => knid = "poisson"
    s.toml:15: unknown key `knid`, did you mean `kind`? expected one of: kind, shape, path, format, speedup, slot, rows
slo = "25ms" => sol = "25ms"
    s.toml:19: unknown key `sol`, did you mean `slo`? expected one of: name, count, slo, weight, max_batch, latency, latency_on
slo = "25ms"\n =>
    s.toml:17: missing key `slo`
slo = "25ms" => slo = 25
    s.toml:19: invalid type: integer `25`, expected a length of time in quotes, like "25ms"
slo = "25ms" => slo = "25"
    s.toml:19: "25" is no length of time: expected a number with a unit, like "250us", "1.5ms", "25ms" or "60s"
[cluster] => [[cluster]]
    s.toml:8: invalid type: list, expected a table of keys
[[model]] => [model]
    s.toml:17: invalid type: table, expected a list, [[...]] or [...]
[network] => [[network]]
    s.toml:11: invalid type: list, expected a table of keys
[arrivals]\nkind = "poisson"\n\n[[model]] => [[model]]\nlatency_on.gpu = [1]
    s.toml:15: invalid type: list, expected a table of keys
policy = "weft" => policy = "wefft"
    s.toml:4: unknown policy `wefft`, did you mean `weft`? expected one of: weft, deferred, eager, eager-timeout, clockwork, clockwork-10ms, nexus, shepherd, static, timeshare
policy = "weft" => policy = "fastest-first"
    s.toml:4: unknown policy `fastest-first`, expected one of: weft, deferred, eager, eager-timeout, clockwork, clockwork-10ms, nexus, shepherd, static, timeshare
policy = "weft" => policy = """\nweft\n"""
    s.toml:4: unknown policy `weft `, did you mean `weft`? expected one of: weft, deferred, eager, eager-timeout, clockwork, clockwork-10ms, nexus, shepherd, static, timeshare
kind = "poisson" => kind = "posson"
    s.toml:15: unknown value `posson`, did you mean `poisson`? expected one of: poisson, gamma, constant, trace
"#,
    );
}

#[test]
fn rates_times_and_noise() {
    check(
        BASE,
        r#"
rate = 3000\n =>
    s.toml: missing key `rate`, requests a second over all models; only a trace file has its own
rate = 3000 => rate = 0
    s.toml:5: rate = 0 is out of range: expected 0.001 to 100000000
rate = 3000 => rate = -5
    s.toml:5: rate = -5 is out of range: expected 0.001 to 100000000
rate = 3000 => rate = nan
    s.toml:5: rate = nan is out of range: expected 0.001 to 100000000
rate = 3000 => rate = inf
    s.toml:5: rate = inf is out of range: expected 0.001 to 100000000
rate = 3000 => rate = 1e300
    s.toml:5: rate = 1e300 is out of range: expected 0.001 to 100000000
rate = 3000 => rate = 100000001
    s.toml:5: rate = 100000001 is out of range: expected 0.001 to 100000000
duration = "60s" => duration = "0s"
    s.toml:3: duration = "0s" is out of range: expected 1ns to 86400s
duration = "60s" => duration = "-5s"
    s.toml:3: "-5s" is no length of time: expected a number with a unit, like "250us", "1.5ms", "25ms" or "60s"
duration = "60s" => duration = "25h"
    s.toml:3: duration = "25h" is out of range: expected 1ns to 86400s
duration = "60s" => duration = "24h"
    s.toml:3: warmup and duration come to 86405s: expected at most 86400s
duration = "60s" => duration = "99999999999h"
    s.toml:3: "99999999999h" is no length of time: expected a number with a unit, like "250us", "1.5ms", "25ms" or "60s"
warmup = "5s" => warmup = "86400s"
    s.toml:3: warmup and duration come to 86460s: expected at most 86400s
noise = 0.0 => noise = 0.6
    s.toml:6: noise = 0.6 is out of range: expected 0 to 0.5
noise = 0.0 => noise = nan
    s.toml:6: noise = nan is out of range: expected 0 to 0.5
"#,
    );
}

#[test]
fn clusters() {
    check(
        BASE,
        r#"
[cluster]\ngpus = 8\n =>
    s.toml: missing [cluster]: expected gpus = 8 or [[cluster.gpu]] entries
gpus = 8\n =>
    s.toml:8: no GPUs in [cluster]: expected gpus = 8 or [[cluster.gpu]] entries
gpus = 8 => gpus = 0
    s.toml:9: gpus = 0 is out of range: expected 1 to 100000
gpus = 8 => gpus = -8
    s.toml:9: gpus = -8 is out of range: expected 1 to 100000
gpus = 8 => gpus = 100001
    s.toml:9: gpus = 100001 is out of range: expected 1 to 100000
gpus = 8 => gpu = []
    s.toml:8: no GPUs in [cluster]: expected gpus = 8 or [[cluster.gpu]] entries
gpus = 8 => gpus = 8\n[[cluster.gpu]]\ntype = "a100"
    s.toml:9: both gpus and [[cluster.gpu]]: expected one of them
gpus = 8 => [[cluster.gpu]]\ncount = 4
    s.toml:9: missing key `type`
gpus = 8 => [[cluster.gpu]]\ntype = ""
    s.toml:10: type is empty or has control characters: expected a word
gpus = 8 => [[cluster.gpu]]\ntype = "a100"\ncount = 0
    s.toml:11: count = 0 is out of range: expected 1 to 100000
gpus = 8 => [[cluster.gpu]]\ntype = "a100"\nspeed = 0
    s.toml:11: speed = 0 is out of range: expected 0.01 to 100
gpus = 8 => [[cluster.gpu]]\ntype = "a100"\nspeed = 101
    s.toml:11: speed = 101 is out of range: expected 0.01 to 100
gpus = 8 => [[cluster.gpu]]\ntype = "a100"\n[[cluster.gpu]]\ntype = "a100"
    s.toml:12: two [[cluster.gpu]] entries have type "a100"
gpus = 8 => [[cluster.gpu]]\ntype = "a"\ncount = 60000\n[[cluster.gpu]]\ntype = "b"\ncount = 60000
    s.toml:12: too many GPUs: expected at most 100000, of at most 100 types
gpus = 8 => gpus = 8\n[[cluster.failure]]\ngpu = 8\nat = "20s"
    s.toml:11: gpu = 8 is out of range: expected 0 to 7
gpus = 8 => gpus = 8\n[[cluster.failure]]\ngpu = -1\nat = "20s"
    s.toml:11: gpu = -1 is out of range: expected 0 to 7
gpus = 8 => gpus = 8\n[[cluster.failure]]\ngpu = 0
    s.toml:10: missing key `at`
gpus = 8 => gpus = 8\n[[cluster.failure]]\ngpu = 0\nat = "20s"\ndown_for = "0s"
    s.toml:13: down_for = "0s" is out of range: expected 1ns to 86400s
control = "10us" => control = "30h"
    s.toml:12: control = "30h" is out of range: expected 0us to 86400s
"#,
    );
}

#[test]
fn arrivals() {
    check(
        BASE,
        r#"
kind = "poisson" =>
    s.toml:14: missing key `kind`
kind = "poisson" => kind = "gamma"
    s.toml:14: the keys of [arrivals] do not match its kind: poisson and constant have none, gamma has shape, trace has path, format and speedup, or slot and rows
kind = "poisson" => kind = "gamma"\nshape = 0.001
    s.toml:16: shape = 0.001 is out of range: expected 0.01 to 100
kind = "poisson" => kind = "gamma"\nshape = 101
    s.toml:16: shape = 101 is out of range: expected 0.01 to 100
kind = "poisson" => kind = "poisson"\nshape = 1
    s.toml:14: the keys of [arrivals] do not match its kind: poisson and constant have none, gamma has shape, trace has path, format and speedup, or slot and rows
kind = "poisson" => kind = "trace"
    s.toml:14: a trace needs path and format ("azure" or "per-second"), with or without speedup; or slot and rows
kind = "poisson" => kind = "trace"\npath = "rates.txt"
    s.toml:14: a trace needs path and format ("azure" or "per-second"), with or without speedup; or slot and rows
kind = "poisson" => kind = "trace"\npath = "rates.txt"\nformat = "azur"
    s.toml:17: unknown value `azur`, did you mean `azure`? expected one of: azure, per-second
kind = "poisson" => kind = "trace"\npath = "rates.txt"\nformat = "per-second"\nspeedup = 0
    s.toml:18: speedup = 0 is out of range: expected 0.001 to 100000
kind = "poisson" => kind = "trace"\npath = "nowhere.csv"\nformat = "azure"
    s.toml:16: cannot read "nowhere.csv": No such file or directory (os error 2)
kind = "poisson" => kind = "trace"\npath = "empty"\nformat = "azure"
    empty:1: expected a header "HashOwner,HashApp,HashFunction,Trigger," and then a column per minute
kind = "poisson" => kind = "trace"\npath = "prose"\nformat = "azure"
    prose:1: expected a header "HashOwner,HashApp,HashFunction,Trigger," and then a column per minute
kind = "poisson" => kind = "trace"\npath = "azure-cut.csv"\nformat = "azure"
    azure-cut.csv:3: expected 6 cells as in the header, found 5
kind = "poisson" => kind = "trace"\npath = "azure-text.csv"\nformat = "azure"
    azure-text.csv:2: expected a count of invocations, found "many"
kind = "poisson" => kind = "trace"\npath = "azure-header.csv"\nformat = "azure"
    azure-header.csv: no invocations: expected a row of counts per function
kind = "poisson" => kind = "trace"\npath = "empty"\nformat = "per-second"
    empty: no requests: expected one rate per line, one of them above 0
kind = "poisson" => kind = "trace"\npath = "prose"\nformat = "per-second"
    prose:1: expected a number for rate, found "Once upon a time"
kind = "poisson" => kind = "trace"\npath = "below.txt"\nformat = "per-second"
    below.txt:2: rate -1 is out of range: expected 0 to 1000000000000
kind = "poisson" => kind = "trace"\nslot = "0s"\nrows = [[1]]
    s.toml:16: slot = "0s" is out of range: expected 1us to 86400s
kind = "poisson" => kind = "trace"\nslot = "1s"\nrows = [[1], [1]]
    s.toml:17: rows has 2 lists: expected 1 for all models, or up to one for each of 1
kind = "poisson" => kind = "trace"\nslot = "1s"\nrows = [[0, 0]]
    s.toml:17: list 1 of rows: expected weights of 0 to 1000000000000, one of them above 0
kind = "poisson" => kind = "trace"\nslot = "1s"\nrows = [[nan]]
    s.toml:17: list 1 of rows: expected weights of 0 to 1000000000000, one of them above 0
"#,
    );
}

#[test]
fn models_and_their_popularity() {
    check(
        BASE,
        r#"
slo = "25ms" => slo = "0ms"
    s.toml:19: slo = "0ms" is out of range: expected 1ns to 86400s
slo = "25ms" => slo = "25h"
    s.toml:19: slo = "25h" is out of range: expected 1ns to 86400s
slo = "25ms" => slo = "6ms"
    s.toml:19: model "resnet50" cannot meet its objective of 6ms: a batch of one takes at least 6.135ms with network delays, on the fastest GPU type for it
name = "resnet50" => name = ""
    s.toml:18: name is empty or has control characters: expected a word
name = "resnet50" => name = "a\tb"
    s.toml:18: name is empty or has control characters: expected a word
name = "resnet50" => name = "resnet50"\ncount = 0
    s.toml:19: count = 0 is out of range: expected 1 to 100000
name = "resnet50" => name = "resnet50"\ncount = 100001
    s.toml:19: count = 100001 is out of range: expected 1 to 100000
name = "resnet50" => name = "resnet50"\nweight = -1
    s.toml:19: weight = -1 is out of range: expected 0 to 1000000000
name = "resnet50" => name = "resnet50"\nweight = 0
    s.toml:19: the weight of every model is 0: expected one above 0
name = "resnet50" => name = "resnet50"\nweight = nan
    s.toml:19: weight = nan is out of range: expected 0 to 1000000000
name = "resnet50" => name = "resnet50"\nmax_batch = 0
    s.toml:19: max_batch = 0 is out of range: expected 1 to 512
name = "resnet50" => name = "resnet50"\nmax_batch = 513
    s.toml:19: max_batch = 513 is out of range: expected 1 to 512
 => [[model]]\nname = "resnet50"\nslo = "25ms"\nlatency = { alpha = "1ms", beta = "5ms" }
    s.toml:22: two models are named "resnet50"
 => [[model]]\nname = "other"\ncount = 100000\nslo = "25ms"\nlatency = { alpha = "1ms", beta = "5ms" }
    s.toml:21: more than 100000 models
gpus = 8 => [[cluster.gpu]]\ntype = "a"\n[[cluster.gpu]]\ntype = "b"
name = "resnet50" => name = "resnet50"\ncount = 50001
    s.toml:20: more than 50000 models on 2 GPU types
noise = 0.0 => popularity = "even"
    s.toml:6: invalid value: string "even", expected "equal" or { zipf = 0.9 }
noise = 0.0 => popularity = 1
    s.toml:6: invalid type: integer `1`, expected "equal" or { zipf = 0.9 }
noise = 0.0 => popularity = { zip = 1 }
    s.toml:6: unknown key `zip`, did you mean `zipf`? expected one of: zipf
noise = 0.0 => popularity = { zipf = -0.1 }
    s.toml:6: zipf = -0.1 is out of range: expected 0 to 10
noise = 0.0 => popularity = { zipf = 10.5 }
    s.toml:6: zipf = 10.5 is out of range: expected 0 to 10
noise = 0.0 => popularity = { zipf = nan }
    s.toml:6: zipf = NaN is out of range: expected 0 to 10
"#,
    );
    check(
        without_model(),
        r#"
noise = 0.0 => noise = 0.0
    s.toml: no models: expected [[model]] or models = "FILE.txt"
noise = 0.0 => model = []
    s.toml: no models: expected [[model]] or models = "FILE.txt"
"#,
    );
}

#[test]
fn latencies() {
    check(
        BASE,
        r#"
latency = { alpha = "1.053ms", beta = "5.072ms" } =>
    s.toml:17: model "resnet50" has no latency on GPU type `gpu`: expected `latency` or `latency_on.gpu`
{ alpha = "1.053ms", beta = "5.072ms" } => { alpha = "1ms" }
    s.toml:20: latency takes one of three forms: { alpha = "1ms", beta = "5ms" }, { table = [[1, "5ms"], [8, "9ms"]] } or { profile = "FILE.csv" } with any of instance, processes, share, model, gpu and fit
{ alpha = "1.053ms", beta = "5.072ms" } => { alpha = "0ms", beta = "0ms" }
    s.toml:19: model "resnet50" takes no time at all: expected a latency of at least 1ns
{ alpha = "1.053ms", beta = "5.072ms" } => { alpha = "1ms", beta = "1ms", table = [[1, "5ms"]] }
    s.toml:20: latency takes one of three forms: { alpha = "1ms", beta = "5ms" }, { table = [[1, "5ms"], [8, "9ms"]] } or { profile = "FILE.csv" } with any of instance, processes, share, model, gpu and fit
{ alpha = "1.053ms", beta = "5.072ms" } => { alpha = "1ms", beta = "1ms", profile = "good.csv" }
    s.toml:20: latency takes one of three forms: { alpha = "1ms", beta = "5ms" }, { table = [[1, "5ms"], [8, "9ms"]] } or { profile = "FILE.csv" } with any of instance, processes, share, model, gpu and fit
{ alpha = "1.053ms", beta = "5.072ms" } => { alpha = "1ms", beta = "1ms", instance = 7 }
    s.toml:20: latency takes one of three forms: { alpha = "1ms", beta = "5ms" }, { table = [[1, "5ms"], [8, "9ms"]] } or { profile = "FILE.csv" } with any of instance, processes, share, model, gpu and fit
{ alpha = "1.053ms", beta = "5.072ms" } => { table = [] }
    s.toml:19: model "resnet50" has an empty latency table on every GPU type of the cluster
{ alpha = "1.053ms", beta = "5.072ms" } => { table = [[0, "5ms"]] }
    s.toml:20: [0, "5ms"] is out of range: expected a batch size of 1 to 512 and a latency of 1ns to 86400s
{ alpha = "1.053ms", beta = "5.072ms" } => { table = [[513, "5ms"]] }
    s.toml:20: [513, "5ms"] is out of range: expected a batch size of 1 to 512 and a latency of 1ns to 86400s
{ alpha = "1.053ms", beta = "5.072ms" } => { table = [[1, "0ms"]] }
    s.toml:20: [1, "0us"] is out of range: expected a batch size of 1 to 512 and a latency of 1ns to 86400s
{ alpha = "1.053ms", beta = "5.072ms" } => { table = [[1, "5ms"], [1, "6ms"]] }
    s.toml:20: two latencies for a batch of 1
{ alpha = "1.053ms", beta = "5.072ms" } => { table = [[1, "5ms", 3]] }
    s.toml:20: invalid length 3, expected a batch size and its latency, like [8, "9ms"]
{ alpha = "1.053ms", beta = "5.072ms" } => { table = [[1]] }
    s.toml:20: invalid length 1, expected a batch size and its latency, like [8, "9ms"]
{ alpha = "1.053ms", beta = "5.072ms" } => { table = ["5ms"] }
    s.toml:20: invalid type: string "5ms", expected a batch size and its latency, like [8, "9ms"]
{ alpha = "1.053ms", beta = "5.072ms" } => { profile = "nowhere.csv" }
    s.toml:20: cannot read "nowhere.csv": No such file or directory (os error 2)
{ alpha = "1.053ms", beta = "5.072ms" } => { profile = "empty" }
    empty:1: expected a header "Mig instance,Batch size,..." or "model,gpu,runtime,...", or rows of four numbers: batch, SM percent, latency in seconds, throughput
{ alpha = "1.053ms", beta = "5.072ms" } => { profile = "prose" }
    prose:1: expected a header "Mig instance,Batch size,..." or "model,gpu,runtime,...", or rows of four numbers: batch, SM percent, latency in seconds, throughput
{ alpha = "1.053ms", beta = "5.072ms" } => { profile = "cut.csv" }
    cut.csv:3: expected 5 cells, found 3
{ alpha = "1.053ms", beta = "5.072ms" } => { profile = "good.csv", instance = 3 }
    good.csv: no measurement with instance = 3 and processes = 1
{ alpha = "1.053ms", beta = "5.072ms" } => { profile = "good.csv", instance = -3 }
    s.toml:20: invalid value: integer `-3`, expected a whole number, 0 or more
{ alpha = "1.053ms", beta = "5.072ms" } => { profile = "good.csv", fit = "curve" }
    s.toml:20: unknown value `curve`, expected one of: line, hinge
latency = { alpha = "1.053ms", beta = "5.072ms" } => latency_on.t4 = { alpha = "1ms", beta = "5ms" }
    s.toml:20: unknown GPU type `t4`, expected one of: gpu
"#,
    );
}

#[test]
fn workload_files() {
    check(
        BASE,
        r#"
noise = 0.0 => models = "good.txt"
    s.toml:6: both models and [[model]]: expected one of them
"#,
    );
    check(
        without_model(),
        r#"
noise = 0.0 => models = 5
    s.toml:6: invalid type: integer `5`, expected "FILE.txt" or { path = "FILE.txt", profiles = ["a.csv", ...] }
noise = 0.0 => models = { path = "good.txt", profile = ["good.csv"] }
    s.toml:6: unknown key `profile`, did you mean `profiles`? expected one of: path, profiles
noise = 0.0 => models = "nowhere.txt"
    s.toml:6: cannot read "nowhere.txt": No such file or directory (os error 2)
noise = 0.0 => models = "empty"
    empty: no models: expected lines of alpha_ms beta_ms objective_ms weight
noise = 0.0 => models = "prose"
    prose:1: expected a number for alpha_ms, found "Once"
noise = 0.0 => models = "cut.txt"
    cut.txt:2: expected four numbers, alpha_ms beta_ms objective_ms weight, found 2 words
noise = 0.0 => models = "text.txt"
    text.txt:1: expected a number for objective_ms, found "soon"
noise = 0.0 => models = "weightless.txt"
    weightless.txt: the weight of every model is 0: expected one above 0
noise = 0.0 => models = "late.txt"
    late.txt:2: model "late-2" cannot meet its objective of 6ms: a batch of one takes at least 6.135ms with network delays, on the fastest GPU type for it
noise = 0.0 => models = "negative.txt"
    negative.txt:2: alpha_ms -1 is out of range: expected 0 to 86400000
noise = 0.0 => models = { path = "good.txt", profiles = ["good.csv"] }
    s.toml:6: profiles lists 1 files: expected 2, one for each distinct alpha and beta in "good.txt"
noise = 0.0 => models = { path = "good.txt", profiles = ["good.csv", "prose"] }
    prose:1: expected a header "Mig instance,Batch size,..." or "model,gpu,runtime,...", or rows of four numbers: batch, SM percent, latency in seconds, throughput
"#,
    );
}

#[test]
fn keys_that_exclude_each_other() {
    check(
        BASE,
        r#"
name = "resnet50" => name = "resnet50"\nweight = 1
noise = 0.0 => popularity = "equal"
    s.toml:19: both popularity and weight: expected one of them
name = "resnet50" => name = "resnet50"\nweight = 1
kind = "poisson" => kind = "trace"\npath = "azure.csv"\nformat = "azure"
    s.toml:21: popularity comes from the azure trace: expected no weight
noise = 0.0 => popularity = "equal"
kind = "poisson" => kind = "trace"\npath = "azure.csv"\nformat = "azure"
    s.toml:6: popularity comes from the azure trace: expected no popularity
rate = 3000\n =>
kind = "poisson" => kind = "trace"\npath = "huge.txt"\nformat = "per-second"
    s.toml:13: the trace has 100000000000.0 requests a second: expected rate = 0.001 to 100000000
rate = 3000\n =>
kind = "poisson" => kind = "trace"\nslot = "1s"\nrows = [[1]]
    s.toml: missing key `rate`, requests a second over all models; only a trace file has its own
"#,
    );
}
