//! What the commands leave behind: the same bytes for the same seed, and a whole report or none.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use support::{root, weft};

fn run(arguments: &[&str]) -> Output {
    Command::new(weft()).args(arguments).current_dir(root()).output().expect("weft runs")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    entries.map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned()).collect()
}

/// The noisiest example: two types of GPU, jitter, noise, bursts and a failure.
const NOISY: &str = "examples/08-mixed-gpus-and-a-failure/scenario.toml";
const ONE: &str = "examples/01-one-model/scenario.toml";

#[test]
fn one_seed_twice_gives_identical_bytes() {
    for policy in ["weft", "deferred", "shepherd", "nexus"] {
        let [one, other] = [(); 2].map(|()| run(&["sim", "run", NOISY, "--policy", policy, "--json"]));
        assert!(one.status.success() && !one.stdout.is_empty(), "{one:?}");
        assert!(one.stdout == other.stdout, "two runs of {policy} on {NOISY} differ");
    }
    let another = run(&["sim", "run", NOISY, "--policy", "deferred", "--json", "--seed", "2"]);
    assert!(another.stdout != run(&["sim", "run", NOISY, "--policy", "deferred", "--json"]).stdout);
}

#[test]
fn goodput_does_not_depend_on_which_search_ends_first() {
    let arguments = ["sim", "goodput", ONE, "--policies", "eager,deferred,clockwork", "--seeds", "2", "--json"];
    let [one, other] = [(); 2].map(|()| run(&arguments));
    assert!(one.stdout == other.stdout, "two searches on {ONE} differ");
    let list: serde_json::Value = serde_json::from_slice(&one.stdout).expect("it is JSON");
    let policies = list.as_array().expect("it is a list").iter().map(|entry| entry["policy"].as_str());
    assert_eq!(policies.flatten().collect::<Vec<_>>(), ["eager", "deferred", "clockwork"]);
    for entry in list.as_array().into_iter().flatten() {
        let number = |key: &str| entry[key].as_f64().unwrap_or_else(|| panic!("{key} in {entry}"));
        assert!(number("goodput_worst") <= number("goodput_average"), "{entry}");
        assert!(number("goodput_average_low") <= number("goodput_average_high"), "{entry}");
        assert_eq!(entry["seeds"].as_array().map(Vec::len), Some(2));
    }
}

#[test]
fn a_checked_scenario_gives_the_same_run() {
    for example in [NOISY, "examples/07-replay-a-trace/scenario.toml"] {
        let checked = run(&["sim", "check", example]).stdout;
        let mut piped = Command::new(weft());
        piped.args(["sim", "run", "-", "--policy", "deferred", "--json"]).current_dir(root());
        piped.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().expect("weft runs");
        std::io::Write::write_all(&mut child.stdin.take().expect("it is piped"), &checked).expect("weft reads");
        let whole = child.wait_with_output().expect("weft ends").stdout;
        assert!(!whole.is_empty() && whole == run(&["sim", "run", example, "--policy", "deferred", "--json"]).stdout);
    }
}

#[test]
fn a_report_is_one_page_that_needs_no_network() {
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path().join("report.html");
    let output = path.to_str().expect("it is text");
    fs::write(&path, "an older report").expect("there is room");
    let done = run(&["sim", "report", ONE, "-o", output, "--policies", "deferred,eager", "--seeds", "1"]);
    assert_eq!((done.status.code(), String::from_utf8_lossy(&done.stdout)), (Some(0), format!("{output}\n").into()));
    assert_eq!(names(folder.path()), ["report.html"]);
    let page = fs::read_to_string(&path).expect("it is text");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    for expected in ["deferred", "eager", "8 x gpu", "25ms", "Poisson"] {
        assert!(page.contains(expected), "{expected} is missing");
    }
    for elsewhere in ["http:", "https:", "src=", "href=", "url(", "@import", "<script", "<link"] {
        assert!(!page.contains(elsewhere), "{elsewhere} in the page");
    }
}

#[test]
fn a_report_that_fails_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("there is room");
    let scenario = folder.path().join("bad.toml");
    fs::write(&scenario, "rate = 0\n").expect("there is room");
    let scenario = scenario.to_str().expect("it is text");
    let report = |scenario: &str, output: &Path| {
        let output = output.to_str().expect("it is text");
        let done = run(&["sim", "report", scenario, "-o", output, "--policies", "deferred", "--seeds", "1"]);
        assert!(done.stdout.is_empty(), "{done:?}");
        assert_eq!(String::from_utf8_lossy(&done.stderr).lines().count(), 1, "{done:?}");
        done.status.code()
    };
    assert_eq!(report(scenario, &folder.path().join("report.html")), Some(2));
    assert_eq!(report(ONE, &folder.path().join("nowhere/report.html")), Some(1));
    assert_eq!(report(ONE, folder.path()), Some(1));
    assert_eq!(names(folder.path()), ["bad.toml"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_reader_that_left_is_no_failure_and_a_full_disk_is() {
    let to = |stdout: Stdio| {
        let check = ["sim", "check", "examples/05-hundred-models/scenario.toml"];
        let mut command = Command::new(weft());
        let child = command.args(check).current_dir(root()).stdout(stdout).stderr(Stdio::piped()).spawn();
        let done = child.expect("weft runs").wait_with_output().expect("weft ends");
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (reader, writer) = std::io::pipe().expect("there are pipes");
    drop(reader);
    assert_eq!(to(writer.into()), (Some(0), String::new()));
    let full = fs::File::options().write(true).open("/dev/full").expect("there is a full device");
    let told = "weft: failed to write to stdout: No space left on device (os error 28)\n";
    assert_eq!(to(full.into()), (Some(1), told.into()));
}
