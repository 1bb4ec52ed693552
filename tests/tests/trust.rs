//! Faults that ended somebody's first day with Weft, each as it was met: by commands, requests and restarts alone. With
//! `WEFT_TEST_BINARY` these run against an older version, which fails them.

#[allow(dead_code, reason = "other tests use the rest")]
mod support;

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{root, weft};
use weft_tests::{Server, ask};

const VIRTUAL: &str = "[node]\nvirtual_gpus = 1\n";
const PATIENCE: Duration = Duration::from_secs(60);

/// Where Python workers are found, as `weft setup` says.
fn python() -> String {
    let state = root().join("target/tmp/serve-state");
    let setup = Command::new(weft()).arg("setup").arg("--state").arg(&state).output().expect("weft runs");
    let printed = String::from_utf8(setup.stdout).unwrap();
    let path = printed.lines().find_map(|line| line.strip_prefix("Python")).expect("it names its Python");
    format!("[node]\npython = {:?}\nvirtual_gpus = 1\n", path.trim())
}

/// A model in Python whose method `predict` has this body.
fn model(folder: &Path, name: &str, predict: &str) -> String {
    let text = format!(
        "import time\n\nclass Model:\n    inputs = [('x', 'FP32', [-1, 4])]\n    outputs = [('y', 'FP32', [-1, 4])]\n    \
         calls = 0\n\n    def predict(self, inputs):\n        x = inputs['x']\n        self.calls += 1\n        {predict}\n"
    );
    fs::write(folder.join(format!("{name}.py")), text).unwrap();
    format!("{name}.py")
}

fn is_ready(server: &Server, name: &str) -> bool {
    server.status(&format!("/v2/models/{name}/ready")) == Some(200)
}

#[test]
fn what_the_guide_types_in_this_order_can_be_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let config = python();
    let file = model(folder.path(), "nearest", "return {'y': x}");
    let server = Server::start(weft(), folder.path(), &config);
    let deploy = ["deploy", "nearest", &file, "--workers", "0..4", "--keep-alive", "300s", "--slo", "5s"];
    server.command(&deploy).unwrap();
    server.command(&["set", "nearest", "--replicas", "1..4"]).unwrap();
    server.stop();
    let server = Server::start(weft(), folder.path(), &config);
    server.wait("the model", || is_ready(&server, "nearest"));
}

#[test]
fn after_a_full_disk_there_is_room_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(weft(), folder.path(), VIRTUAL);
    let pid = server.pid().to_string();
    let limit = |bytes: &str| {
        let set = Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={bytes}:")]).status();
        assert!(set.expect("prlimit of util-linux runs").success());
    };
    server.command(&["deploy", "first", "--virtual", "1ms,5ms"]).unwrap();
    limit("0");
    server.command(&["deploy", "second", "--virtual", "1ms,5ms"]).unwrap_err();
    limit("unlimited");
    server.command(&["deploy", "third", "--virtual", "1ms,5ms"]).unwrap();
    server.stop();
    let server = Server::start(weft(), folder.path(), VIRTUAL);
    server.wait("both models", || is_ready(&server, "first") && is_ready(&server, "third"));
}

#[test]
fn an_empty_store_is_not_taken_for_a_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(weft(), folder.path(), VIRTUAL);
    server.command(&["deploy", "kept", "--virtual", "1ms,5ms"]).unwrap();
    server.stop();
    for entry in fs::read_dir(folder.path().join(".weft")).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_file() && !name.contains("admin") {
            fs::write(entry.path(), "").unwrap();
        }
    }
    let mut server = Server::spawn("127.0.0.1", weft(), folder.path(), VIRTUAL);
    let begun = Instant::now();
    while ask(server.metrics, "GET /health", "", "").0 != 200 && !server.log().contains("weft store repair") {
        assert!(begun.elapsed() < PATIENCE, "{}", server.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(server.log().contains("weft store repair"), "it started with nothing and said: {}", server.log());
    assert_eq!(server.ended(), Some(1));
}

#[test]
fn ready_means_that_it_answered_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(weft(), folder.path(), &python());
    for (name, predict) in [
        ("raises", "raise ValueError('no')"),
        ("another-name", "return {'z': x}"),
        ("another-type", "return {'y': x.astype('float64')}"),
        ("none", "return None"),
        ("coroutine", "return (lambda: (yield))()"),
        ("slow", "time.sleep(0.3); return {'y': x}"),
    ] {
        let file = model(folder.path(), name, predict);
        let refused = server.command(&["deploy", name, &file]);
        let why = refused.expect_err(&format!("{name} is said to be ready"));
        assert!(why.contains(name) && why.trim_end().lines().count() == 1, "{why}");
        assert!(!is_ready(&server, name), "{name}");
    }
}

#[test]
fn a_server_with_a_broken_model_is_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let file = model(folder.path(), "broken", "raise ValueError('no')");
    let config = format!("{}[[model]]\nname = \"broken\"\nkind = \"python\"\npath = {file:?}\n", python());
    let server = Server::start(weft(), folder.path(), &config);
    let says_why = || server.run(&["models"]).stdout.windows(2).any(|two| two == b"no");
    let begun = Instant::now();
    while !says_why() && begun.elapsed() < Duration::from_secs(20) {
        assert_ne!(server.status("/v2/health/ready"), Some(200), "{}", server.log());
    }
    assert_ne!(server.status("/v2/health/ready"), Some(200), "{}", server.log());
    assert!(says_why(), "nobody says why: {:?}", server.command(&["models"]));
}

#[test]
fn a_request_that_failed_is_an_error_to_whoever_measures() {
    let folder = tempfile::tempdir().unwrap();
    let file = model(folder.path(), "tires", "assert self.calls < 40\n        return {'y': x}");
    let server = Server::start(weft(), folder.path(), &python());
    server.command(&["deploy", "tires", &file, "--slo", "5s", "--workers", "1"]).unwrap();
    let url = format!("http://127.0.0.1:{}", server.http);
    let words = ["load", "--url", &url, "--model", "tires", "--rate", "50", "--duration", "3s", "--shape", "x:1x4"];
    let load = Command::new(weft()).args(words).arg("--json").output().expect("weft runs");
    let measured: Value = serde_json::from_slice(&load.stdout).unwrap();
    assert!(measured["errors"].as_u64().unwrap() > 50, "{measured}");
}

#[test]
fn a_check_looks_for_what_the_file_names() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[[model]]\nname = \"m\"\nkind = \"onnx\"\npath = \"gone.onnx\"\n";
    fs::write(folder.path().join("weft.toml"), text).unwrap();
    let check = Command::new(weft()).args(["up", "--check"]).current_dir(folder.path()).output().expect("weft runs");
    assert_eq!(check.status.code(), Some(2), "{check:?}");
}

#[test]
fn a_model_that_left_the_file_does_not_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let latency = "latency = { alpha = \"1ms\", beta = \"5ms\" }";
    let config = format!("{VIRTUAL}[[model]]\nname = \"ghost\"\nkind = \"virtual\"\n{latency}\n");
    let server = Server::start(weft(), folder.path(), &config);
    server.wait("the model", || is_ready(&server, "ghost"));
    // A command about it is refused, or would be undone by the next start: the file is where it is changed.
    let _ = server.command(&["set", "ghost", "--replicas", "2"]);
    let _ = server.command(&["deploy", "ghost", "--virtual", "2ms,5ms"]);
    server.stop();
    let server = Server::start(weft(), folder.path(), VIRTUAL);
    assert!(!server.command(&["models"]).unwrap().contains("ghost"));
}

/// Calls a method over gRPC without any key; the status that comes back.
fn call(server: &Server, method: &str, message: &[u8]) -> Option<u32> {
    let mut frame = vec![0];
    frame.extend((message.len() as u32).to_be_bytes());
    frame.extend(message);
    let file = server.folder().join("message");
    fs::write(&file, frame).unwrap();
    let url = format!("http://127.0.0.1:{}/inference.GRPCInferenceService/{method}", server.grpc);
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--verbose", "--http2-prior-knowledge", "--output", "/dev/null", "--data-binary"]);
    curl.arg(format!("@{}", file.display())).args(["-H", "content-type: application/grpc", "-H", "te: trailers", &url]);
    let said = String::from_utf8_lossy(&curl.output().expect("curl runs").stderr).into_owned();
    said.lines().find_map(|line| line.strip_prefix("< grpc-status: ")?.trim().parse().ok())
}

#[test]
fn over_grpc_nobody_unloads_models_or_maps_memory_without_the_key() {
    const UNAUTHENTICATED: u32 = 16;
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(weft(), folder.path(), VIRTUAL);
    assert_eq!(call(&server, "ServerLive", &[]), Some(0), "{}", server.log());
    assert_eq!(call(&server, "RepositoryModelUnload", b"\x12\x01m"), Some(UNAUTHENTICATED));
    assert_eq!(call(&server, "RepositoryModelLoad", b"\x12\x01m"), Some(UNAUTHENTICATED));
    let object = Path::new("/dev/shm/weft-trust-test");
    fs::write(object, b"safe").unwrap();
    let status = call(&server, "SystemSharedMemoryRegister", b"\x0a\x01r\x12\x10/weft-trust-test\x20\x04");
    fs::remove_file(object).unwrap();
    assert_eq!(status, Some(UNAUTHENTICATED));
}

#[test]
fn a_page_of_another_site_runs_no_code() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(weft(), folder.path(), VIRTUAL);
    let body = r#"{"name": "evil", "kind": "virtual", "latency": {"alpha": "1ms", "beta": "1ms"}, "env": {"A": "b"}}"#;
    let head = "Content-Type: text/plain\r\nOrigin: http://evil.example\r\nHost: rebound.example\r\n";
    let (status, _) = ask(server.metrics, "POST /admin/models", head, body);
    assert!((400..500).contains(&status), "{status}");
    assert!(!server.command(&["models"]).unwrap().contains("evil"));
}

#[test]
fn secrets_stay_with_their_owner() {
    let folder = tempfile::tempdir().unwrap();
    let latency = "latency = { alpha = \"1ms\", beta = \"5ms\" }\nenv = { TOKEN_OF_SOMETHING = \"hunter2\" }";
    let config = format!("{VIRTUAL}[[model]]\nname = \"m\"\nkind = \"virtual\"\n{latency}\n");
    let server = Server::start(weft(), folder.path(), &config);
    assert!(!server.command(&["models", "--json"]).unwrap().contains("hunter2"));
    assert!(!ask(server.metrics, "GET /admin/models", "", "").1.contains("hunter2"));
    server.command(&["deploy", "w", "--virtual", "1ms,5ms"]).unwrap();
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(folder.path().join(".weft")).unwrap().permissions());
    assert_eq!(mode & 0o077, 0, "the state folder is open to others");
}
