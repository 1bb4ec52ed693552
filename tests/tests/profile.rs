//! `weft profile` against real servers and programs: with a stand-in GPU, and without one. What is asserted of times are
//! bounds that a busy machine cannot break: nothing is faster than it sleeps. What a share is worth is measured as well as
//! the machine lets it be, and how a search goes on from there is for the tests of `policy` to say.

mod served;
#[allow(dead_code, reason = "other tests use the rest")]
mod stand_in;
mod support;

use serde_json::Value;
use served::{BUSY, Server, prepare};
use stand_in::{Machine, Running, program};
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::weft;
use tempfile::TempDir;
use weft_tests::free_port;

const QUICK: [&str; 2] = ["--probe", "400ms"];

/// Takes 20 ms, and 10 ms for each request: 30, 40, 60 and 100 ms for batches of 1 to 8.
const SLOW: &str = r#"
import time

class Slow:
    inputs = [("x", "FP32", [-1, 4])]
    outputs = [("y", "FP32", [-1, 4])]
    max_batch = 8

    def predict(self, inputs):
        time.sleep(0.020 + 0.010 * len(inputs["x"]))
        return {"y": inputs["x"] * 2}
"#;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A machine without a GPU.
fn plain() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path(), "slow", SLOW, "slo = \"60s\"");
    folder
}

fn weft_in(folder: &Path) -> Command {
    let mut command = Command::new(weft());
    command.env("WEFT_NVML", "/nothing.so").env("WEFT_SOCKET", folder.join("node.sock")).current_dir(folder);
    command
}

fn profile(mut weft: Command, words: &[&str]) -> Output {
    weft.arg("profile").args(words).args(QUICK).stdin(Stdio::null()).output().unwrap()
}

/// Waits until something holds.
fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(Instant::now() < until, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether it was measured, into a file that was not there. A machine that is busy otherwise may contradict itself, which is
/// refused and leaves nothing.
#[track_caller]
fn measured(output: &Output, path: &Path) -> bool {
    let told = text(&output.stderr);
    if told.contains("believe what was measured") {
        assert_eq!((output.status.code(), path.exists()), (Some(2), false), "{told}");
        return false;
    }
    assert!(output.status.success(), "{told}");
    true
}

fn refused(output: &Output, code: i32, expected: &str) {
    let told = text(&output.stderr);
    assert!(output.status.code() == Some(code) && told.contains(expected), "{}: {told}", output.status);
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn millis(value: &Value) -> f64 {
    let text = value.as_str().unwrap();
    let (number, factor) = match (text.strip_suffix("ms"), text.strip_suffix("us")) {
        (Some(number), _) => (number, 1.0),
        (None, Some(number)) => (number, 1e-3),
        (None, None) => (text.strip_suffix('s').unwrap(), 1e3),
    };
    number.parse::<f64>().unwrap() * factor
}

fn percent(value: &Value) -> f64 {
    value.as_str().unwrap().strip_suffix('%').unwrap().parse().unwrap()
}

#[test]
fn a_model_in_a_file_is_measured_once_and_its_profile_used_again() {
    let folder = plain();
    // A batch of eight takes longer than the objective on every machine, and the others less on almost any.
    let long = SLOW.replace("0.020 +", "(2.5 if len(inputs[\"x\"]) == 8 else 0.020) +");
    fs::write(folder.path().join("slow.py"), &long).unwrap();
    let weft = || weft_in(folder.path());
    let first = profile(weft(), &["slow.py", "--slo", "2s"]);
    assert!(first.status.success(), "{}", text(&first.stderr));
    assert!(
        text(&first.stderr).contains("only batches are measured: no GPU is shared here"),
        "{}",
        text(&first.stderr)
    );
    let path = folder.path().join("slow.profile.json");
    let written = read(&path);
    let choice = &written["choice"];
    let batch = choice["batch"].as_u64().unwrap();
    assert_eq!((&choice["request"], &choice["limit"]), (&"100%".into(), &"100%".into()));
    let points = written["points"].as_array().unwrap();
    let chosen = points.iter().find(|point| point["batch"] == batch).unwrap();
    assert!(batch < 8 && millis(&chosen["latency"]) <= 2_000.0, "{written:#}");
    for point in points {
        let least = 20.0 + 10.0 * point["batch"].as_f64().unwrap();
        assert!(millis(&point["latency"]) >= least, "{point}");
    }
    assert!(written["gpu"].as_str().unwrap().starts_with("no GPU, "), "{written:#}");

    // Shown as it was told; and not measured again.
    let shown = weft().args(["profile", "show", "slow.profile.json"]).output().unwrap();
    assert_eq!(text(&shown.stdout), text(&first.stdout));
    assert!(text(&shown.stdout).contains(&format!("* batch {batch}: ")), "{}", text(&shown.stdout));
    let second = profile(weft(), &["slow.py", "--slo", "2s", "--json"]);
    assert!(text(&second.stderr).contains("measured already on 20"), "{}", text(&second.stderr));
    assert!(text(&second.stderr).contains("--again to measure anew"), "{}", text(&second.stderr));
    assert_eq!(serde_json::from_slice::<Value>(&second.stdout).unwrap(), written);
    assert_eq!(read(&path), written);

    // Another objective asks for what is not known; one that cannot be met leaves what was found.
    refused(
        &profile(weft(), &["slow.py", "--slo", "10ms"]),
        2,
        "find a point of `slow` within 10ms: the fastest, batch ",
    );
    assert_eq!(read(&path), written);
    let wide = profile(weft(), &["slow.py", "--slo", "60s"]);
    assert!(wide.status.success(), "{}", text(&wide.stderr));
    assert_eq!(read(&path)["choice"]["objective"], "60s");

    // Another model is another profile.
    fs::write(folder.path().join("slow.py"), SLOW.replace("* 2", "* 3")).unwrap();
    refused(&profile(weft(), &["slow.py", "--slo", "60s"]), 2, "it was measured with another model, sha256:");
    let again = profile(weft(), &["slow.py", "--slo", "60s", "--again"]);
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert_ne!(read(&path)["model"], written["model"]);
}

#[test]
fn what_cannot_be_profiled_says_what_to_do() {
    let folder = plain();
    let weft = || weft_in(folder.path());
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    refused(&profile(weft(), &["none.py"]), 2, "read model none.py: no such file; a model is an .onnx or .py file");
    refused(
        &profile(weft(), &["slow.py", "-o", "no/such/folder.json"]),
        2,
        "write profile no/such/folder.json: no such",
    );
    refused(&profile(weft(), &["slow.py", "-o", "."]), 2, "write profile .: it is a folder");
    write("broken.json", "{\"version\": 1}");
    refused(&profile(weft(), &["slow.py", "-o", "broken.json"]), 2, "it is no profile: missing field `model`");
    write("fails.py", &SLOW.replace("time.sleep", "1 / 0 #"));
    let fails = profile(weft(), &["fails.py"]);
    assert!(fails.status.code() == Some(2), "{}", text(&fails.stderr));
    refused(&profile(weft(), &["slow.py", "--gpu", "0"]), 2, "measure on a GPU: no GPU is shared here");
    let nobody = format!("http://127.0.0.1:{}", free_port());
    refused(&profile(weft(), &["slow", "--server", &nobody]), 2, "is `weft up` running there?");
    refused(&profile(weft(), &["--training", "--", "sleep", "60"]), 2, "there is no GPU to share");
    assert!(!folder.path().join("slow.profile.json").exists());
    refused(&profile(weft(), &["slow.py", "--training", "--", "true"]), 2, "cannot be used with");
    refused(&profile(weft(), &["slow.py", "--probe", "1ms"]), 2, "expected 100ms to 10 minutes");

    // What was measured on another GPU is not taken for this one.
    let first = profile(weft(), &["slow.py", "--slo", "60s", "-o", "other.json"]);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let mut other = read(&folder.path().join("other.json"));
    other["gpu"] = "NVIDIA H200".into();
    write("other.json", &other.to_string());
    let expected = "it was measured with another GPU, NVIDIA H200 and not no GPU, ";
    refused(&profile(weft(), &["slow.py", "--slo", "60s", "-o", "other.json"]), 2, expected);
    assert_eq!(read(&folder.path().join("other.json")), other);
}

#[test]
fn a_server_that_goes_away_is_said_and_nothing_is_written() {
    let folder = plain();
    let mut server = Server::start(weft_in(folder.path()), folder.path());
    let unknown = profile(weft_in(folder.path()), &server.words(&["nobody"]));
    refused(&unknown, 2, "find model `nobody`: the server has slow; `weft deploy` adds one");
    let words = server.words(&["profile", "slow", "--slo", "60s", "--probe", "60s", "-o", "gone.json"]);
    let mut command = weft_in(folder.path());
    let running = command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
    let running = running.spawn().unwrap();
    // It asks once to see that the model is there, and then measures its first point for a minute.
    let port: u16 = server.url[0].rsplit(':').next().unwrap().parse().unwrap();
    wait_for("a measurement", || {
        let (_, stats) = weft_tests::ask(port, "GET /v2/models/slow/stats", "", "");
        let stats: Value = serde_json::from_str(&stats).unwrap_or_default();
        stats["model_stats"][0]["inference_count"].as_u64() > Some(1)
    });
    server.process.0.kill().unwrap();
    let output = running.wait_with_output().unwrap();
    refused(&output, 2, "the server is gone");
    assert!(!folder.path().join("gone.json").exists());
}

#[test]
fn a_model_that_is_still_being_loaded_is_waited_for() {
    let folder = plain();
    let server = Server::start(weft_in(folder.path()), folder.path());
    let loads =
        "def load(self):\n        import os\n        while not os.path.exists(GO):\n            time.sleep(0.01)\n";
    let go = folder.path().join("go");
    let late = SLOW.replace("def predict", &format!("{}\n    def predict", loads.replace("GO", &format!("{go:?}"))));
    fs::write(folder.path().join("late.py"), late).unwrap();
    let run = |words: &[&str]| {
        let talk = fs::File::create(folder.path().join(format!("{}.txt", words[0]))).unwrap();
        let mut command = weft_in(folder.path());
        Running(command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(talk).spawn().unwrap())
    };
    let said = |command: &str| fs::read_to_string(folder.path().join(format!("{command}.txt"))).unwrap();
    let deploying = run(&["deploy", "late", "late.py", "--slo", "60s", "--server", &server.url[1]]);
    wait_for("the model to be listed", || {
        let asked = weft_in(folder.path()).args(["models", "--json", "--server", &server.url[1]]).output().unwrap();
        text(&asked.stdout).contains("late")
    });
    let words = server.words(&["profile", "late", "--slo", "10s"]);
    let mut profiling = run(&[&words[..], &QUICK].concat());
    // It has asked what the model takes, which nobody knows yet. No more than 8 at a time, as it will say.
    wait_for("it to wait", || said("profile").contains("waiting for `late` to be loaded"));
    assert_eq!(profiling.0.try_wait().unwrap(), None, "it waits");
    fs::write(&go, "").unwrap();
    for (mut waiting, command) in [(deploying, "deploy"), (profiling, "profile")] {
        assert!(waiting.0.wait().unwrap().success(), "{}", said(command));
    }
    assert_eq!(read(&folder.path().join("late.profile.json"))["choice"]["objective"], "10s");
}

#[test]
fn shares_are_measured_on_a_gpu() {
    let machine = Machine::bare();
    let folder = machine.folder.path();
    prepare(folder, "busy", BUSY, "");
    let output = profile(machine.weft(&[]), &["busy.py", "--slo", "60s"]);
    let path = folder.join("busy.profile.json");
    if measured(&output, &path) {
        let written = read(&path);
        assert_eq!((&written["gpu"], &written["driver"]), (&"Weft stand-in GPU".into(), &"580.00-fakecuda".into()));
        let choice = &written["choice"];
        assert!(percent(&choice["request"]) <= percent(&choice["limit"]), "{written:#}");
        let points = written["points"].as_array().unwrap();
        let chosen = |point: &&Value| point["batch"] == choice["batch"] && point["share"] == choice["request"];
        assert!(points.iter().any(|point| chosen(&point)), "{written:#}");
        assert!(points.iter().any(|point| percent(&point["share"]) < 100.0), "shares are measured: {written:#}");
        let shown = machine.ask(&["profile", "show", "busy.profile.json"]);
        assert_eq!(text(&shown.stdout), text(&output.stdout));
        assert!(text(&shown.stdout).contains("requests a second for each percent of the GPU"));
        assert!(text(&shown.stdout).contains("; request "), "{}", text(&shown.stdout));
        let again = profile(machine.weft(&[]), &["busy.py", "--slo", "60s"]);
        assert!(text(&again.stderr).contains("measured already on"), "{}", text(&again.stderr));
    }
    // A batch of one is 6 ms of the GPU.
    let never = profile(machine.weft(&[]), &["busy.py", "--slo", "3ms", "-o", "never.json"]);
    refused(&never, 2, "find a point of `busy` within 3ms: the fastest, batch ");
    assert_eq!(read(&folder.join("never.json")).get("choice"), None);
    let shown = machine.ask(&["profile", "show", "never.json"]);
    assert!(text(&shown.stdout).contains("nothing is chosen"), "{}", text(&shown.stdout));
}

#[test]
fn a_served_model_has_its_share_back_whatever_ends_the_measurements() {
    let machine = Machine::bare();
    let folder = machine.folder.path();
    prepare(folder, "busy", BUSY, "slo = \"60s\"\nshare = { request = \"30%\", limit = \"80%\" }");
    let server = Server::start(machine.weft(&[]), folder);
    let limit =
        || machine.tenant("busy").map(|tenant| [tenant["share"]["request"].clone(), tenant["share"]["limit"].clone()]);
    let before = machine.wait("the worker", |_| limit());
    assert_eq!(before, [Value::from("30%"), Value::from("80%")]);

    let running = machine.weft(&server.words(&["profile", "busy", "--probe", "60s", "-o", "stopped.json"]));
    let mut running = { running }.stderr(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
    machine.wait("another share", |_| limit().filter(|now| *now != before));
    assert!(Command::new("kill").args(["-INT", &running.id().to_string()]).status().unwrap().success());
    assert_eq!(running.wait().unwrap().code(), Some(130));
    let mut said = String::new();
    running.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("stopped; shares are as they were, and nothing was written"), "{said}");
    assert_eq!(limit(), Some(before.clone()));
    assert!(!folder.join("stopped.json").exists());

    let elsewhere = profile(machine.weft(&[]), &server.words(&["busy", "--gpu", "7"]));
    refused(&elsewhere, 2, "measure on GPU 7: its workers are on GPU 0, Weft stand-in GPU");
    let whole = profile(machine.weft(&[]), &server.words(&["busy"]));
    let path = folder.join("busy.profile.json");
    if measured(&whole, &path) {
        assert_eq!(read(&path)["choice"]["objective"], "60s", "the deployment's");
    }
    assert_eq!(limit(), Some(before));
}

/// Half a millisecond of work in two: half of the GPU is all that it can use.
const TRAIN: [&str; 6] = ["--us", "500", "--every", "1", "--pause", "1500"];

#[test]
fn training_gets_the_shares_that_it_is_worth() {
    let machine = Machine::new();
    let folder = machine.folder.path();
    let train = program("closedloop");
    let train = train.to_str().unwrap();
    let words = |more: &[&'static str], seconds: &'static str| -> Vec<String> {
        let words = [&["--training"], more, &["--", train, "--seconds", seconds], &TRAIN[..]].concat();
        words.into_iter().map(str::to_owned).collect()
    };
    let run = |words: &[String]| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        machine.weft(&[&["profile", "--probe", "600ms"], &words[..]].concat()).output().unwrap()
    };
    let output = run(&words(&[], "600"));
    let path = folder.join("closedloop.profile.json");
    if measured(&output, &path) {
        let written = read(&path);
        let (request, limit) = (percent(&written["choice"]["request"]), percent(&written["choice"]["limit"]));
        assert!(request <= limit && written["work"] == "launches", "{written:#}");
        let points = written["points"].as_array().unwrap();
        assert!(points.iter().any(|point| percent(&point["share"]) < 100.0), "{written:#}");
        let shown = machine.ask(&["profile", "show", "closedloop.profile.json"]);
        assert_eq!(text(&shown.stdout), text(&output.stdout));
        assert!(text(&shown.stdout).contains("keeps 80% of what the whole GPU gives"), "{}", text(&shown.stdout));
        let again = run(&words(&[], "600"));
        assert!(text(&again.stderr).contains("measured already on"), "{}", text(&again.stderr));
        assert_eq!(read(&path), written);
    }

    refused(&run(&words(&["-o", "short.json"], "1")), 2, "closedloop ended (exit status: 0); it said last: ");
    assert!(!folder.join("short.json").exists());
    machine.wait("nobody to be left", |machine| {
        let status = machine.try_status()?;
        status["gpus"][0]["tenants"].as_array()?.is_empty().then_some(())
    });
}

#[test]
fn training_that_tells_its_steps_is_believed() {
    let machine = Machine::new();
    // Speaks as the programs of `bench/workloads` do, and always does the same: what it says counts, not what it launches.
    let script = format!(
        "echo ready; {} --seconds 600 --us 100 >/dev/null 2>&1 & \
         while read line; do echo '{{\"done\": 0, \"seconds\": 1, \"latencies_us\": [], \"per_second\": 50}}'; done",
        program("closedloop").display()
    );
    let output =
        machine.ask(&["profile", "--probe", "300ms", "-o", "steps.json", "--training", "--", "sh", "-c", &script]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let written = read(&machine.folder.path().join("steps.json"));
    assert_eq!((&written["work"], &written["choice"]["request"]), (&"steps".into(), &"5%".into()));
    assert!(text(&output.stdout).contains("steps/s"), "{}", text(&output.stdout));
}
