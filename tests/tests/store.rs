//! What is deployed is there again: after stops and restarts, on a full disk, beside damaged records, and whatever the
//! configuration file says meanwhile.

mod support;

use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use support::weft;
use weft_tests::Server;

/// Starts a server over a folder that outlives it.
fn start(folder: &Path, models: &str) -> Server {
    Server::start(weft(), folder, &config(models))
}

fn config(models: &str) -> String {
    format!("[node]\nvirtual_gpus = 1\n{models}")
}

fn deploy(server: &Server, name: &str) {
    let done = server.run(&["deploy", name, "--virtual", "1ms,5ms"]);
    assert!(done.status.success(), "{}", told(&done));
}

/// State, source and reason of a model.
fn model(server: &Server, name: &str) -> Option<[String; 3]> {
    let listed = server.run(&["models", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("it is JSON");
    let found = listed["models"].as_array().unwrap().iter().find(|model| model["name"] == name)?.clone();
    Some(["state", "source", "reason"].map(|key| found[key].as_str().unwrap().to_owned()))
}

fn is_ready(server: &Server, name: &str) -> bool {
    model(server, name).is_some_and(|[state, ..]| state == "ready")
}

/// Everything that a command said.
fn told(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// Runs a command that asks no server; its exit code and what it said.
fn alone(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(weft()).args(arguments).current_dir(folder).output().expect("weft runs");
    (output.status.code(), told(&output))
}

fn file(folder: &Path) -> std::path::PathBuf {
    folder.join(".weft/deployments.txt")
}

fn virtual_model(name: &str) -> String {
    let latency = "{ alpha = \"1ms\", beta = \"5ms\" }";
    format!("[[model]]\nname = \"{name}\"\nkind = \"virtual\"\nlatency = {latency}\n")
}

#[test]
fn a_full_disk_loses_nothing_and_needs_no_restart() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let server = start(folder, "");
    deploy(&server, "first");
    let (pid, size) = (server.pid().to_string(), fs::metadata(file(folder)).unwrap().len());
    let limit = |bytes: &str| {
        let set = Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={bytes}")]).status();
        assert!(set.expect("prlimit of util-linux runs").success());
    };
    // Every length that is too short, in steps: the write ends in the middle of a line, or with the first byte.
    for most in (0..size + 100).step_by(61) {
        limit(&format!("{most}:"));
        let refused = server.run(&["deploy", "second", "--virtual", "1ms,5ms"]);
        let (code, words) = (refused.status.code(), told(&refused));
        assert!(code == Some(2) && words.contains("make room on that disk and try again"), "{most}: {words}");
        assert!(is_ready(&server, "first") && model(&server, "second").is_none(), "{most}");
    }
    limit("unlimited:");
    deploy(&server, "second");
    server.stop();
    let server = start(folder, "");
    assert!(is_ready(&server, "first") && is_ready(&server, "second"));
}

#[test]
fn a_damaged_record_is_one_models_trouble() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let server = start(folder, "");
    for name in ["one", "two", "three"] {
        deploy(&server, name);
    }
    let (code, words) = alone(folder, &["store", "check"]);
    assert!(code == Some(1) && words.contains("another `weft` is running with them"), "{words}");
    server.stop();
    assert_eq!(alone(folder, &["store", "check"]).0, Some(0));
    let text = fs::read_to_string(file(folder)).unwrap();
    fs::write(file(folder), text.replacen("two:1 {", "two:1 }", 1)).unwrap();

    let server = start(folder, "");
    assert!(is_ready(&server, "one") && is_ready(&server, "three"));
    let [state, source, reason] = model(&server, "two").unwrap();
    assert_eq!((state.as_str(), source.as_str()), ("unavailable", "command"));
    assert!(reason.contains("its checksum is wrong") && reason.contains("deploy it again, or undeploy it"), "{reason}");
    assert!(server.log().contains("two:1") && server.log().contains("its checksum is wrong"), "{}", server.log());
    let url = format!("http://127.0.0.1:{}/v2/repository/index", server.http);
    let index = Command::new("curl").args(["--silent", "--request", "POST", &url]).output().expect("curl runs");
    let index: Value = serde_json::from_slice(&index.stdout).unwrap();
    let two = index.as_array().unwrap().iter().find(|model| model["name"] == "two").unwrap();
    assert!(two["state"] == "UNAVAILABLE" && two["reason"].as_str().unwrap().contains("checksum"), "{index}");
    let scaled = server.run(&["set", "two", "--replicas", "2"]);
    assert!(!scaled.status.success() && told(&scaled).contains("cannot be read"), "{}", told(&scaled));
    deploy(&server, "four");
    server.stop();

    let (code, words) = alone(folder, &["store", "check"]);
    assert!(code == Some(1) && words.contains("bad  its checksum is wrong"), "{words}");
    let (_, words) = alone(folder, &["store", "check", "--json"]);
    let json: Value = serde_json::from_str(words.rsplit_once("weft: failed").unwrap().0).unwrap();
    assert_eq!((json["ok"].as_bool(), json["records"].as_array().unwrap().len()), (Some(false), 4), "{json}");

    // A deployment takes its place.
    let server = start(folder, "");
    deploy(&server, "two");
    server.stop();
    assert_eq!(alone(folder, &["store", "check"]).0, Some(0));
}

#[test]
fn a_file_that_is_not_whole_stops_the_start_and_can_be_repaired() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let server = start(folder, "");
    deploy(&server, "one");
    deploy(&server, "two");
    server.stop();
    let whole = fs::read(file(folder)).unwrap();
    for length in [0, 5, whole.len() / 2, whole.len() - 1] {
        fs::write(file(folder), &whole[..length]).unwrap();
        let mut server = Server::spawn("127.0.0.1", weft(), folder, &config(""));
        assert_eq!(server.ended(), Some(1));
        assert!(server.log().contains("weft store repair --state"), "{length}: {}", server.log());
        assert_eq!(fs::read(file(folder)).unwrap(), whole[..length], "it is left as it is");
    }
    let (code, words) = alone(folder, &["store", "repair"]);
    assert!(code == Some(0) && words.contains("kept 2 of 3 records"), "{words}");
    assert!(fs::read_to_string(folder.join(".weft/deployments.txt.damaged")).unwrap().contains(" end 2"));
    let server = start(folder, "");
    assert!(is_ready(&server, "one") && is_ready(&server, "two"));
}

#[test]
fn the_configuration_file_and_commands_do_not_override_each_other() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let both = virtual_model("written") + &virtual_model("adopted");
    let server = start(folder, &virtual_model("written"));
    deploy(&server, "typed");
    deploy(&server, "adopted");
    let source = |server: &Server, name: &str| model(server, name).map(|[_, source, _]| source);
    assert_eq!(source(&server, "written").as_deref(), Some("file"));
    assert_eq!(source(&server, "typed").as_deref(), Some("command"));
    let refused: [&[&str]; 3] = [
        &["deploy", "written", "--virtual", "1ms,5ms"],
        &["undeploy", "written"],
        &["set", "written", "--replicas", "2"],
    ];
    for arguments in refused {
        let refused = server.run(arguments);
        let words = told(&refused);
        assert!(refused.status.code() == Some(2) && words.contains("is in the configuration file"), "{words}");
    }
    assert!(is_ready(&server, "written"));
    server.stop();

    // The file takes over what a command deployed, and says so.
    let server = start(folder, &both);
    let table = told(&server.run(&["models"]));
    assert!(table.contains("file, over a command"), "{table}");
    assert!(server.log().contains("`adopted` version 1 was deployed by a command"), "{}", server.log());
    server.stop();

    // What left the file is gone, and what commands deployed is there.
    let server = start(folder, "");
    assert!(model(&server, "written").is_none() && model(&server, "adopted").is_none());
    assert!(is_ready(&server, "typed"));
    assert!(server.run(&["undeploy", "typed"]).status.success());
    server.stop();
    assert!(model(&start(folder, ""), "typed").is_none());
}

#[test]
fn the_state_folder_is_its_owners() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    fs::create_dir(folder.join(".weft")).unwrap();
    fs::set_permissions(folder.join(".weft"), PermissionsExt::from_mode(0o755)).unwrap();
    let server = start(folder, "");
    deploy(&server, "secret");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder.join(".weft")), mode(&file(folder))), (0o700, 0o600));
    assert!(server.log().contains("open to others (mode 755)"), "{}", server.log());
}

#[test]
fn a_check_refuses_what_is_not_there() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let model = "[[model]]\nname = \"m\"\nkind = \"onnx\"\npath = \"gone.onnx\"\n";
    fs::write(folder.join("weft.toml"), format!("[node]\npython = \"no/python\"\n\n{model}")).unwrap();
    let (code, words) = alone(folder, &["up", "--check"]);
    assert_eq!(code, Some(2), "{words}");
    assert!(words.contains("weft.toml") && words.contains("line 4, model `m` version 1: cannot read"), "{words}");
    assert!(words.contains("`python` under [node]: cannot read"), "{words}");
    let (code, words) = alone(folder, &["scheduler", "--check"]);
    assert!(code == Some(0) && words.contains("makes sense"), "its models are on the nodes: {words}");
}
