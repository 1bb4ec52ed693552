//! What docs/security.md promises, held against a server as people start it: by strangers on the network, by other users
//! of the machine, and by pages that a browser shows.

mod support;

use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use support::weft;
use tempfile::TempDir;
use weft_tests::{Server, ask, outcome};

const MODEL: &str = "[node]\nvirtual_gpus = 1\n[[model]]\nname = \"v\"\nkind = \"virtual\"\nlatency = { alpha = \"1ms\", \
                     beta = \"5ms\" }\nslo = \"2s\"\nenv = { SECRET = \"hunter2\" }\n";

/// A server in a folder of its own.
fn serve(config: &str) -> (TempDir, Server) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(weft(), folder.path(), config);
    (folder, server)
}

const JSON: &str = "Content-Type: application/json\r\n";
const OTHER: &str = r#"{"name": "w", "kind": "virtual", "latency": {"alpha": "1ms", "beta": "1ms"}}"#;

#[test]
fn documented_commands_need_no_flag_in_the_servers_folder_and_the_key_elsewhere() {
    let (_folder, server) = serve(MODEL);
    let here = |arguments: &[&str]| {
        outcome(&Command::new(weft()).args(arguments).current_dir(server.folder()).output().expect("weft runs"))
            .unwrap()
    };
    let said = here(&["deploy", "w", "--virtual", "1ms,5ms", "--slo", "1s"]);
    assert_eq!(said, "w version 1 is ready: 1 request takes 6 ms, 32 take 37 ms (objective 1000 ms)\n");
    assert!(here(&["models"]).contains('w'));
    here(&["explain", "w"]);
    here(&["logs", "w"]);
    here(&["undeploy", "w"]);
    assert!(!here(&["models", "--json"]).contains("\"w\""));
    // With its address it is the same server.
    let url = format!("http://127.0.0.1:{}", server.metrics);
    here(&["models", "--server", &url]);

    let elsewhere = tempfile::tempdir().unwrap();
    let there = |arguments: &[&str], key: Option<&str>| {
        let mut command = Command::new(weft());
        command.args(arguments).current_dir(elsewhere.path());
        key.map(|key| command.env("WEFT_ADMIN_KEY", key));
        outcome(&command.output().expect("weft runs"))
    };
    let refused = there(&["models", "--server", &url], None).unwrap_err();
    assert!(refused.contains("admin key") && refused.contains("--state"), "{refused}");
    let wrong = there(&["models", "--server", &url], Some("wrong")).unwrap_err();
    assert!(wrong.contains("the admin key is missing or wrong"), "{wrong}");
    there(&["models", "--server", &url], Some(&server.key())).unwrap();
    let state = server.folder().join(".weft").display().to_string();
    there(&["models", "--state", &state], None).unwrap();
}

#[test]
#[allow(clippy::print_stderr, reason = "a test that is skipped says so")]
fn another_user_of_the_machine_reads_nothing_and_changes_nothing() {
    let (_folder, server) = serve(MODEL);
    let state = server.folder().join(".weft");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let (key, socket) = (state.join("admin.key"), state.join(format!("admin-{}.sock", server.metrics)));
    assert_eq!((mode(&state), mode(&key), mode(&socket)), (0o700, 0o600, 0o600));
    assert_eq!(server.key().len(), 64);
    assert!(UnixStream::connect(&socket).is_ok(), "its own user may");
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: only root can become another user; run this test as root");
    }
    let metrics = server.metrics;
    // Even where the folder is not in the way, the file is, and the kernel tells the server who comes by the socket.
    for open in [false, true] {
        if open {
            fs::set_permissions(server.folder(), fs::Permissions::from_mode(0o755)).unwrap();
            fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).unwrap();
            fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).unwrap();
        }
        let (key, socket) = (key.clone(), socket.clone());
        let stranger = std::thread::spawn(move || {
            let nobody = rustix::process::Uid::from_raw(65_534);
            rustix::thread::set_thread_uid(nobody).unwrap();
            let key = fs::read_to_string(&key).is_ok();
            let answer = UnixStream::connect(&socket).map(|mut stream| {
                let _ = stream.write_all(b"GET /admin/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
                let mut answer = String::new();
                let _ = stream.read_to_string(&mut answer);
                answer
            });
            let (status, _) = ask(metrics, "POST /admin/models", JSON, OTHER);
            (key, answer.unwrap_or_default(), status)
        });
        assert_eq!(stranger.join().unwrap(), (false, String::new(), 401), "open: {open}");
    }
    let talk = server.log();
    assert!(talk.contains("a connection to the admin socket from another user"), "{talk}");
    assert!(talk.contains("the admin key is missing or wrong"), "{talk}");
    assert_eq!(server.command(&["models"]).unwrap().lines().count(), 2, "nothing was deployed");
}

#[test]
fn pages_and_strangers_are_refused_with_a_line_in_the_log() {
    let (_folder, server) = serve(MODEL);
    let key = format!("Authorization: Bearer {}\r\n", server.key());
    let metrics = |line: &str, head: &str, body: &str| ask(server.metrics, line, head, body).0;
    let http = |line: &str, head: &str, body: &str| ask(server.http, line, head, body).0;
    assert_eq!(metrics("POST /admin/models", "Content-Type: text/plain\r\n", OTHER), 401);
    assert_eq!(metrics("POST /admin/models", &format!("{key}Content-Type: text/plain\r\n"), OTHER), 415);
    assert_eq!(metrics("POST /admin/models", &format!("{key}{JSON}Origin: http://evil.example\r\n"), OTHER), 403);
    assert_eq!(metrics("POST /admin/models", &format!("{key}{JSON}Host: rebound.example\r\n"), OTHER), 403);
    let unload = "POST /v2/repository/models/v/unload";
    let register = "POST /v2/systemsharedmemory/region/r/register";
    let region = r#"{"key": "/weft-secure-test", "byte_size": 4}"#;
    for (line, body) in [(unload, "{}"), (register, region), ("POST /v2/logging", "{\"log_info\": false}")] {
        assert_eq!(http(line, "", body), 401, "{line}");
        assert_eq!(http(line, &format!("{key}Origin: http://evil.example\r\n"), body), 403, "{line}");
        assert_eq!(http(line, &format!("{key}Host: rebound.example\r\n"), body), 403, "{line}");
    }
    // With the key: memory that the settings do not name is not even looked for.
    let object = Path::new("/dev/shm/weft-secure-test");
    fs::write(object, b"safe").unwrap();
    let (status, why) = ask(server.http, register, &key, region);
    let kept = fs::read(object).unwrap();
    fs::remove_file(object).unwrap();
    assert!(status == 400 && why.contains("takes no shared memory") && kept == b"safe", "{status} {why}");
    assert_eq!(http(unload, &key, "{}"), 200);
    let talk = server.log();
    for line in
        ["comes from a page of `http://evil.example`", "the request is for `rebound.example`", "takes no shared memory"]
    {
        assert!(talk.contains(line), "{line} in {talk}");
    }
}

#[test]
fn secrets_of_a_deployment_are_not_shown() {
    let (_folder, server) = serve(MODEL);
    let shown = server.command(&["models", "--json"]).unwrap();
    assert!(shown.contains("SECRET") && shown.contains("(not shown)"), "{shown}");
    let key = format!("Authorization: Bearer {}\r\n", server.key());
    let data = ask(server.metrics, "GET /ui/data?since=0", "", "").1;
    let config = ask(server.http, "GET /v2/models/v/config", "", "").1;
    let models = ask(server.metrics, "GET /admin/models", &key, "").1;
    for text in [shown, data, config, models, server.log()] {
        assert!(!text.is_empty() && !text.contains("hunter2"), "{text}");
    }
    let bad = json!({"name": "w", "kind": "python", "path": "x.py", "env": {"PYTHONPATH": "/tmp"}}).to_string();
    let (status, why) = ask(server.metrics, "POST /admin/models", &format!("{key}{JSON}"), &bad);
    assert!(status == 400 && why.contains("may not set `PYTHONPATH`"), "{status} {why}");
}

#[test]
fn three_hundred_idle_connections_do_not_delay_the_health_check() {
    let (_folder, server) = serve(MODEL);
    let _held: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(("127.0.0.1", server.metrics)).unwrap()).collect();
    let begun = Instant::now();
    assert_eq!(ask(server.metrics, "GET /health", "", ""), (200, "ok\n".to_owned()));
    assert!(begun.elapsed() < Duration::from_secs(5), "it took {:?}", begun.elapsed());
}

#[test]
fn clients_leave_files_for_administrators_and_one_byte_holds_no_connection() {
    let folder = tempfile::tempdir().unwrap();
    // Fewer files than the connections that a server would take.
    let few = folder.path().join("weft-with-few-files");
    fs::write(&few, format!("#!/bin/sh\nulimit -n 700\nexec {} \"$@\"\n", weft().display())).unwrap();
    fs::set_permissions(&few, fs::Permissions::from_mode(0o755)).unwrap();
    let server = Server::start(&few, folder.path(), MODEL);
    let open = |port: u16| -> Vec<TcpStream> {
        let mut streams: Vec<TcpStream> = (0..500).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
        streams.iter_mut().for_each(|stream| drop(stream.write_all(b"P")));
        streams
    };
    let (grpc, http) = (open(server.grpc), open(server.http));
    for _ in 0..5 {
        let begun = Instant::now();
        assert_eq!(ask(server.metrics, "GET /health", "", "").0, 200);
        assert!(begun.elapsed() < Duration::from_secs(5), "it took {:?}", begun.elapsed());
    }
    server.command(&["models"]).unwrap();
    // Each is closed, though it said something.
    for mut stream in grpc {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
    }
    drop(http);
}

#[test]
#[allow(clippy::print_stderr, reason = "a test that is skipped says so")]
fn a_state_folder_that_others_may_have_filled_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join(".weft");
    let refused = |what: &str| {
        let mut server = Server::spawn("127.0.0.1", weft(), folder.path(), MODEL);
        assert_eq!(server.ended(), Some(1), "{}", server.log());
        assert!(server.log().contains(what), "{}", server.log());
    };
    fs::create_dir(&state).unwrap();
    fs::write(state.join("deployments.txt"), "").unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).unwrap();
    refused("everybody may write to it");
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: only root can give a folder away; run this test as root");
    }
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(&state, Some(65_534), Some(65_534)).unwrap();
    refused("it belongs to another user");
    fs::rename(&state, folder.path().join("theirs")).unwrap();
    std::os::unix::fs::symlink(folder.path().join("theirs"), &state).unwrap();
    refused("it belongs to another user");
}

#[test]
fn there_is_no_cluster_without_a_token() {
    let folder = tempfile::tempdir().unwrap();
    for words in [
        &["scheduler", "--listen", "127.0.0.1:0"][..],
        &["gateway", "--scheduler", "http://127.0.0.1:1"],
        &["node", "--scheduler", "http://127.0.0.1:1"],
    ] {
        let mut command = Command::new(weft());
        command.args(words).current_dir(folder.path()).env_remove("WEFT_TOKEN");
        let output = command.output().expect("weft runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains("without a token") && said.contains("WEFT_TOKEN"), "{said}");
    }
}

#[test]
fn listening_for_other_machines_without_tls_is_said_loudly() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_on("0.0.0.0", weft(), folder.path(), MODEL);
    let talk = server.log();
    assert!(talk.contains("WARN") && talk.matches("WITHOUT TLS").count() == 3, "{talk}");
    assert!(!serve(MODEL).1.log().contains("WITHOUT TLS"));
}

#[test]
fn tls_covers_every_port_and_commands_speak_it() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_string()]).unwrap();
    fs::write(folder.path().join("own.pem"), made.cert.pem()).unwrap();
    fs::write(folder.path().join("own.key"), made.signing_key.serialize_pem()).unwrap();
    let config = format!("[tls]\ncertificate = \"own.pem\"\nkey = \"own.key\"\n{MODEL}");
    let server = Server::start(weft(), folder.path(), &config);
    for (port, line) in [(server.metrics, "GET /health"), (server.http, "GET /v2/health/live")] {
        assert_eq!(ask(port, line, "", "").0, 0, "{line} is not answered in clear");
    }
    server.command(&["models"]).unwrap();
    // From elsewhere: with the key, and the certificate that vouches for the server.
    let elsewhere = tempfile::tempdir().unwrap();
    let url = format!("https://127.0.0.1:{}", server.metrics);
    let certificate = server.folder().join("own.pem").display().to_string();
    let there = |more: &[&str]| {
        let mut command = Command::new(weft());
        command.args(["models", "--json", "--server", &url, "--key", &server.key()]).args(more);
        outcome(&command.current_dir(elsewhere.path()).output().expect("weft runs"))
    };
    let models: Value = serde_json::from_str(&there(&["--ca", &certificate]).unwrap()).unwrap();
    assert_eq!(models["models"][0]["name"], "v");
    assert!(there(&[]).is_err(), "nobody vouches for it");
}
