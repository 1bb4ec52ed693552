//! Clients that are slow, greedy, clumsy or unknown, and a server that stops under load.

mod support;

use gateway::http::{Administration, Encoding, Hosts, HttpConfig, Keys, Limits, pack, tls};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use support::{Client, HELD, NEVER, ask, echo_body, ended, start, wait_for};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const BODY: &str = r#"{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}"#;

fn with(limits: Limits) -> HttpConfig {
    HttpConfig { limits, ..HttpConfig::default() }
}

fn head(path: &str, rest: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: test\r\n{rest}\r\n")
}

#[tokio::test]
async fn one_connection_serves_many_requests_also_pipelined() {
    let served = start(Default::default()).await;
    let mut client = Client::connect(served.address).await;
    for _ in 0..5 {
        client.request("POST", "/v2/models/echo/infer", &[], echo_body().as_bytes()).await;
        assert_eq!(client.answer().await.unwrap().status, 200);
        client.request("POST", "/v2/models/echo/infer", &[], b"{").await;
        assert_eq!(client.answer().await.unwrap().status, 400);
    }
    for number in 0..20 {
        let body = echo_body().replacen('{', &format!("{{\"id\":\"{number}\","), 1);
        client.request("POST", "/v2/models/echo/infer", &[], body.as_bytes()).await;
        client.request("GET", "/v2/health/live", &[], b"").await;
    }
    for number in 0..20 {
        assert_eq!(client.answer().await.unwrap().json()["id"], number.to_string());
        assert_eq!(client.answer().await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn the_request_of_a_client_that_goes_away_is_taken_back_from_the_scheduler() {
    let served = start(Default::default()).await;
    let mut stays = Client::connect(served.address).await;
    stays.request("POST", "/v2/models/held/infer", &[], BODY.as_bytes()).await;
    wait_for("the first request", async || served.gateway.in_flight() == 1).await;
    let mut goes = Client::connect(served.address).await;
    goes.request("POST", "/v2/models/held/infer", &[], BODY.as_bytes()).await;
    wait_for("the second request", async || served.gateway.in_flight() == 2).await;
    drop(goes);
    wait_for("the scheduler to be told", async || !served.withdrawn.lock().unwrap().is_empty()).await;
    assert_eq!(served.gateway.in_flight(), 1);
    served.held.send_replace(false);
    assert_eq!(stays.answer().await.unwrap().status, 200);
    // One that was answered is not taken back when its client goes.
    drop(stays);
    served.stop.send(()).unwrap();
    ended(served.task).await;
    let withdrawn = served.withdrawn.lock().unwrap();
    let second = rpc::request_id(1, 1, 0);
    assert_eq!(*withdrawn, [(second, HELD)]);
    let statistics = served.gateway.statistics("held", 1);
    assert_eq!([&statistics.withdrawn, &statistics.good].map(|count| count.load(Relaxed)), [1, 1]);
}

#[tokio::test]
async fn chunked_and_late_bodies_are_read() {
    let served = start(Default::default()).await;
    let mut client = Client::connect(served.address).await;
    let body = echo_body();
    for _ in 0..2 {
        client.send(head("/v2/models/echo/infer", "Transfer-Encoding: chunked\r\n")).await;
        for piece in body.as_bytes().chunks(7) {
            client.send([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat()).await;
        }
        client.send("0\r\n\r\n").await;
        assert_eq!(client.answer().await.unwrap().status, 200);
    }
    client.send(head("/v2/models/echo/infer", &format!("Content-Length: {}\r\n", body.len()))).await;
    for piece in body.as_bytes().chunks(50) {
        tokio::time::sleep(Duration::from_millis(5)).await;
        client.send(piece).await;
    }
    assert_eq!(client.answer().await.unwrap().status, 200);
    client.send(head("/v2/models/echo/infer", "Transfer-Encoding: chunked\r\n")).await;
    client.send("zz\r\n").await;
    let answer = client.answer().await.unwrap();
    assert!(answer.status == 400 && answer.error().contains("the body cannot be read"), "{answer:?}");
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn who_expects_a_continue_gets_one_or_a_refusal() {
    let served = start(with(Limits { body_bytes: 1000, ..Limits::default() })).await;
    let body = echo_body();
    let mut client = Client::connect(served.address).await;
    client
        .send(head("/v2/models/echo/infer", &format!("Content-Length: {}\r\nExpect: 100-continue\r\n", body.len())))
        .await;
    assert_eq!(client.answer().await.unwrap().status, 100);
    client.send(&body).await;
    assert_eq!(client.answer().await.unwrap().status, 200);
    client.send(head("/v2/models/echo/infer", "Content-Length: 1001\r\nExpect: 100-continue\r\n")).await;
    let answer = client.answer().await.unwrap();
    assert_eq!((answer.status, answer.error().as_str()), (413, "the body is longer than the 1000 bytes allowed"));
}

#[tokio::test]
async fn long_bodies_are_refused_also_when_they_do_not_say_so() {
    let served = start(with(Limits { body_bytes: 100_000, ..Limits::default() })).await;
    let mut client = Client::connect(served.address).await;
    client.request("POST", "/v2/models/echo/infer", &[], &vec![b' '; 5_000_000]).await;
    assert_eq!(client.answer().await.unwrap().status, 413);
    let mut client = Client::connect(served.address).await;
    client.send(head("/v2/models/echo/infer", "Transfer-Encoding: chunked\r\n")).await;
    for _ in 0..50 {
        client.send([format!("{:x}\r\n", 10_000).as_bytes(), &[b' '; 10_000], b"\r\n"].concat()).await;
    }
    assert_eq!(client.answer().await.unwrap().status, 413);
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn memory_is_limited_over_all_requests() {
    let limits = Limits { memory_bytes: 1 << 20, body_bytes: 1 << 20, ..Limits::default() };
    let served = start(with(limits)).await;
    // Half of it is taken by a request that does not end.
    let mut slow = Client::connect(served.address).await;
    slow.send(head("/v2/models/echo/infer", "Content-Length: 800000\r\n")).await;
    slow.send(vec![b' '; 700_000]).await;
    let asked = async || ask(served.address, "POST", "/v2/models/echo/infer", &[], &vec![b' '; 600_000]).await;
    // What was sent is not all read yet, at first.
    wait_for("a refusal", async || asked().await.status != 400).await;
    let answer = asked().await;
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
    assert!(answer.error().contains("all the memory"));
    drop(slow);
    wait_for("its memory", async || asked().await.status == 400).await;
}

#[tokio::test]
async fn huge_heads_are_refused_with_words() {
    let served = start(Default::default()).await;
    // Ten megabytes in one field, in many, and in the path.
    let one = format!("GET /v2 HTTP/1.1\r\nHost: test\r\nx-long: {}\r\n\r\n", "a".repeat(10 << 20));
    let many = format!("GET /v2 HTTP/1.1\r\nHost: test\r\n{}\r\n", "x-many: aaaaaaaaaaaaaaaaaaaaa\r\n".repeat(300_000));
    let path = format!("GET /{} HTTP/1.1\r\nHost: test\r\n\r\n", "a".repeat(10 << 20));
    let several = format!("GET /v2 HTTP/1.1\r\nHost: test\r\n{}\r\n", "a: b\r\n".repeat(101));
    for (text, statuses) in [(one, [431, 431]), (many, [431, 431]), (path, [414, 431]), (several, [431, 431])] {
        let mut client = Client::connect(served.address).await;
        client.send(text).await;
        let answer = client.answer().await.unwrap();
        assert!(statuses.contains(&answer.status), "{answer:?}");
        assert!(answer.error().contains("too l"), "{answer:?}");
    }
    let mut client = Client::connect(served.address).await;
    client.send("this is no HTTP\r\n\r\n").await;
    let answer = client.answer().await.unwrap();
    assert_eq!((answer.status, answer.error().as_str()), (400, "this is not an HTTP request"));
    assert!(client.is_closed().await);
}

/// Limits that nobody reaches who is not slow in the one way that a test is about.
fn patient() -> Limits {
    Limits { header_timeout: NEVER, stall_timeout: NEVER, keep_alive_timeout: NEVER, ..Limits::default() }
}

const SHORT: Duration = Duration::from_millis(300);

#[tokio::test]
async fn silent_connections_and_slow_heads_are_cut() {
    let served = start(with(Limits { header_timeout: SHORT, ..patient() })).await;
    assert!(Client::connect(served.address).await.is_closed().await);
    // A head that never ends, one byte at a time.
    let mut slow = Client::connect(served.address).await;
    let _ = slow.socket.write_all(b"GET /v2 HTTP/1.1\r\nx: ").await;
    wait_for("the connection to be cut", async || slow.socket.write_all(b"a").await.is_err()).await;
}

#[tokio::test]
async fn bodies_that_stop_or_trickle_are_cut_with_an_answer() {
    let served = start(with(Limits { stall_timeout: SHORT, ..patient() })).await;
    for trickles in [false, true] {
        let mut slow = Client::connect(served.address).await;
        slow.send(head("/v2/models/echo/infer", "Content-Length: 100000\r\n") + "{").await;
        let answer = loop {
            tokio::select! {
                answer = slow.answer() => break answer.unwrap(),
                () = tokio::time::sleep(Duration::from_millis(30)), if trickles => {
                    let _ = slow.socket.try_write(b" ");
                }
            }
        };
        assert_eq!(answer.status, 408, "{answer:?}");
        assert!(answer.error().contains("too slowly"));
    }
}

#[tokio::test]
async fn idle_connections_are_cut_and_a_request_that_is_computed_is_not_idle() {
    let served = start(with(Limits { keep_alive_timeout: SHORT, ..patient() })).await;
    let mut busy = Client::connect(served.address).await;
    busy.request("POST", "/v2/models/held/infer", &[], BODY.as_bytes()).await;
    wait_for("the request", async || served.gateway.in_flight() == 1).await;
    // By when this one is cut, the other has been open for longer than that.
    let mut idle = Client::connect(served.address).await;
    idle.request("GET", "/v2/health/live", &[], b"").await;
    assert_eq!(idle.answer().await.unwrap().status, 200);
    assert!(idle.is_closed().await);
    served.held.send_replace(false);
    assert_eq!(busy.answer().await.unwrap().status, 200);
    assert!(busy.is_closed().await);
}

/// Waits until a server has room for another connection.
async fn wait_for_room(served: &support::Served) {
    wait_for("room for a connection", async || {
        let mut client = Client::connect(served.address).await;
        // Who is turned away may be so before anything is sent.
        let _ = client.socket.write_all(b"GET /v2/health/live HTTP/1.1\r\nHost: test\r\n\r\n").await;
        client.answer().await.is_some_and(|answer| answer.status == 200)
    })
    .await;
}

#[tokio::test]
async fn who_does_not_take_the_answer_is_given_up() {
    let served = start(with(Limits { stall_timeout: SHORT, connections: 1, ..patient() })).await;
    let mut client = Client::connect(served.address).await;
    let count = 4_000_000;
    let zeros = "0,".repeat(count - 1);
    let body = format!(r#"{{"inputs":[{{"name":"x","shape":[{count}],"datatype":"FP32","data":[{zeros}0]}}]}}"#);
    // Packed it comes at once, so that the request itself is not too slow.
    let body = pack(Encoding::Gzip, &[body.into()]);
    client.request("POST", "/v2/models/plain/infer", &[("Content-Encoding", "gzip")], &body).await;
    // Its answer is many times what a connection holds.
    wait_for_room(&served).await;
    let mut all = Vec::new();
    let _ = client.socket.read_to_end(&mut all).await;
    assert!(all.len() < 4 * count, "{} bytes came", all.len());
    assert!(all.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&all[..all.len().min(1000)]));
}

#[tokio::test]
async fn connections_are_limited() {
    let served = start(with(Limits { connections: 2, ..Limits::default() })).await;
    let mut first = Client::connect(served.address).await;
    first.request("GET", "/v2/health/live", &[], b"").await;
    assert_eq!(first.answer().await.unwrap().status, 200);
    let second = Client::connect(served.address).await;
    let mut third = Client::connect(served.address).await;
    let answer = third.answer().await.unwrap();
    assert_eq!((answer.status, answer.error().as_str()), (503, "there are too many connections now"));
    assert!(third.is_closed().await);
    drop(second);
    wait_for_room(&served).await;
}

#[tokio::test]
async fn keys_open_what_they_are_for() {
    let keys = |key: &str| Some(Arc::new(Keys::from_hashes([Keys::hash(key).as_str()]).unwrap()));
    let config = HttpConfig { keys: keys("guest"), admin_keys: keys("host"), ..HttpConfig::default() };
    let served = start(config).await;
    let check = async |method: &str, path: &str, headers: &[(&str, &str)], status: u16| {
        let answer = ask(served.address, method, path, headers, b"").await;
        assert_eq!(answer.status, status, "{method} {path} {headers:?}");
        if status == 401 {
            let error = answer.error();
            assert!(
                (error.contains("API key") || error.contains("admin key"))
                    && answer.header("www-authenticate") == Some("Bearer")
            );
        }
    };
    let (guest, host) = (("Authorization", "Bearer guest"), ("x-api-key", "host"));
    check("GET", "/v2/health/live", &[], 200).await;
    check("GET", "/v2/models/echo/ready", &[], 200).await;
    check("GET", "/v2/models/echo", &[], 401).await;
    check("GET", "/v2/models/echo", &[("x-api-key", "wrong")], 401).await;
    check("GET", "/v2/models/echo", &[guest], 200).await;
    check("POST", "/v2/repository/models/echo/load", &[guest], 401).await;
    check("POST", "/v2/repository/models/echo/load", &[host], 200).await;
    check("GET", "/v2/logging", &[guest], 200).await;
    check("POST", "/v2/logging", &[guest], 401).await;
    check("POST", "/v2/models/echo/infer", &[], 401).await;
}

/// Every path that changes the server.
const CHANGES: [&str; 8] = [
    "/v2/repository/models/echo/load",
    "/v2/repository/models/echo/unload",
    "/v2/systemsharedmemory/region/r/register",
    "/v2/systemsharedmemory/region/r/unregister",
    "/v2/systemsharedmemory/unregister",
    "/v2/cudasharedmemory/region/r/register",
    "/v2/trace/setting",
    "/v2/logging",
];

#[tokio::test]
async fn changing_the_server_takes_the_admin_key_or_leave_for_all() {
    let keys = Some(Arc::new(Keys::from_hashes([Keys::hash("host").as_str()]).unwrap()));
    let statuses = async |config: HttpConfig, headers: &[(&str, &str)]| {
        let served = start(config).await;
        let mut statuses = Vec::new();
        for path in CHANGES {
            statuses.push(ask(served.address, "POST", path, headers, b"").await.status);
        }
        statuses
    };
    let config = |administration| HttpConfig { administration, admin_keys: keys.clone(), ..HttpConfig::default() };
    // Without a key nobody has, not even the server, it stays shut.
    assert_eq!(statuses(HttpConfig::default(), &[]).await, [401; 8]);
    assert_eq!(statuses(config(Administration::Key), &[]).await, [401; 8]);
    assert_eq!(statuses(config(Administration::Key), &[("x-api-key", "guest")]).await, [401; 8]);
    assert_eq!(statuses(config(Administration::Off), &[("x-api-key", "host")]).await, [403; 8]);
    let done = |statuses: Vec<u16>| statuses.iter().all(|status| [200, 400].contains(status));
    assert!(done(statuses(config(Administration::Key), &[("x-api-key", "host")]).await));
    assert!(done(statuses(config(Administration::Open), &[]).await));
}

#[tokio::test]
async fn pages_of_other_sites_and_strange_hosts_change_nothing() {
    let hosts = Hosts::new(["gpu.example"]);
    let served = start(HttpConfig { administration: Administration::Open, hosts, ..HttpConfig::default() }).await;
    let send = async |path: &str, head: &str| {
        let mut client = Client::connect(served.address).await;
        client.send(format!("POST {path} HTTP/1.1\r\n{head}Content-Length: 0\r\n\r\n")).await;
        client.answer().await.unwrap()
    };
    for path in CHANGES {
        for head in [
            "Host: evil.example\r\n",
            "Host: 127.0.0.1.evil.example:8000\r\n",
            "Host: 127.0.0.1\r\nOrigin: http://evil.example\r\n",
            "Host: 127.0.0.1\r\nOrigin: null\r\n",
            "Host: 127.0.0.1\r\nSec-Fetch-Site: cross-site\r\n",
        ] {
            let answer = send(path, head).await;
            assert_eq!(answer.status, 403, "{path} {head}: {answer:?}");
            assert!(!answer.error().is_empty());
        }
        for head in ["Host: 127.0.0.1:8000\r\n", "Host: gpu.example\r\nOrigin: http://gpu.example\r\n"] {
            assert!([200, 400].contains(&send(path, head).await.status), "{path} {head}");
        }
    }
    // What changes nothing is asked under any name: by those behind a proxy, for one.
    assert_eq!(send("/v2/repository/index", "Host: models.example\r\n").await.status, 200);
}

#[tokio::test]
async fn stopping_finishes_what_was_accepted() {
    let served = start(Default::default()).await;
    let mut idle = Client::connect(served.address).await;
    idle.request("GET", "/v2/health/live", &[], b"").await;
    idle.answer().await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..20 {
        let mut client = Client::connect(served.address).await;
        client.request("POST", "/v2/models/held/infer", &[], BODY.as_bytes()).await;
        waiting.push(client);
    }
    let waits = async |count| wait_for("requests", async || served.gateway.in_flight() == count).await;
    waits(20).await;
    // The kernel has accepted this one, and the server may not have.
    let mut last = Client::connect(served.address).await;
    last.request("POST", "/v2/models/held/infer", &[], BODY.as_bytes()).await;
    served.stop.send(()).unwrap();
    // What is on the wire of a connection that was idle is answered, too.
    idle.request("POST", "/v2/models/held/infer", &[], BODY.as_bytes()).await;
    waits(22).await;
    served.held.send_replace(false);
    for mut client in waiting.into_iter().chain([last, idle]) {
        let answer = client.answer().await.expect("an answer");
        assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
        assert!(client.is_closed().await);
    }
    ended(served.task).await;
    assert!(tokio::net::TcpStream::connect(served.address).await.is_err());
    assert_eq!(served.gateway.in_flight(), 0);
}

#[tokio::test]
async fn a_client_that_leaves_is_not_counted_as_waiting() {
    let served = start(Default::default()).await;
    let mut client = Client::connect(served.address).await;
    client.request("POST", "/v2/models/held/infer", &[], BODY.as_bytes()).await;
    let now = || {
        let pending = served.gateway.statistics("held", 1).pending.load(std::sync::atomic::Ordering::Relaxed);
        (pending, served.gateway.in_flight())
    };
    wait_for("the request", async || now() == (1, 1)).await;
    drop(client);
    wait_for("nobody to wait", async || now() == (0, 0)).await;
}

#[tokio::test]
async fn http2_without_tls_is_understood() {
    let served = start(Default::default()).await;
    let socket = tokio::net::TcpStream::connect(served.address).await.unwrap();
    let executor = hyper_util::rt::TokioExecutor::new();
    let io = hyper_util::rt::TokioIo::new(socket);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    tokio::spawn(connection);
    let mut answers = Vec::new();
    for _ in 0..10 {
        let body = http_body_util::Full::new(bytes::Bytes::from(echo_body()));
        let request = hyper::Request::post("http://test/v2/models/echo/infer").body(body).unwrap();
        answers.push(sender.send_request(request));
    }
    for answer in answers {
        assert_eq!(answer.await.unwrap().status(), 200);
    }
    served.stop.send(()).unwrap();
    ended(served.task).await;
}

#[tokio::test]
async fn tls_is_spoken_where_there_is_a_certificate() {
    use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring::default_provider};
    let made = rcgen::generate_simple_self_signed(["localhost".to_string()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("certificate.pem"), folder.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let tls = Some(tls::load(&certificate, &key).unwrap());
    assert!(tls::load(&key, &key).is_err() && tls::load(&folder.path().join("none"), &key).is_err());
    let served = start(HttpConfig { tls, ..HttpConfig::default() }).await;
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(client));
    let socket = tokio::net::TcpStream::connect(served.address).await.unwrap();
    let mut stream = connector.connect("localhost".try_into().unwrap(), socket).await.unwrap();
    stream.write_all(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    // Who speaks no TLS is turned away.
    let mut plain = Client::connect(served.address).await;
    plain.send("GET /v2 HTTP/1.1\r\n\r\n").await;
    let mut rest = Vec::new();
    let _ = plain.socket.read_to_end(&mut rest).await;
    assert!(!rest.starts_with(b"HTTP"));
}
