//! The metrics port as strangers, pages of other sites and slow clients meet it, and as its user does.

mod support;

use gateway::admin::{Admin, LogSource};
use gateway::http::{Hosts, tls};
use gateway::keys::Keys;
use gateway::metrics::{MetricsConfig, serve};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

struct Served {
    address: SocketAddr,
    folder: TempDir,
    gateway: Arc<gateway::Gateway>,
}

struct NoLogs;

impl LogSource for NoLogs {
    fn last_lines(&self, _: &str, _: usize) -> Vec<String> {
        Vec::new()
    }
}

async fn start(change: impl FnOnce(&mut MetricsConfig)) -> Served {
    let gateway = support::gateway();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let keys = Arc::new(Keys::from_hashes([Keys::hash("host").as_str()]).unwrap());
    let admin = Arc::new(Admin { gateway: gateway.clone(), logs: Arc::new(NoLogs), keys });
    let mut config = MetricsConfig {
        admin: Some(Arc::new(move |request, caller| Box::pin(admin.clone().answer(request, caller)))),
        hosts: Hosts::new(["gpu.example"]),
        local: Some(UnixListener::bind(folder.path().join("admin.sock")).unwrap()),
        ..MetricsConfig::default()
    };
    change(&mut config);
    tokio::spawn(serve(gateway.clone(), listener, config, std::future::pending()));
    Served { address, folder, gateway }
}

/// Sends a request as it is written, and reads until the connection ends: the status, the head and the body.
async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> (u16, String, String) {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let text = String::from_utf8(answer).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    (head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0), head.to_lowercase(), body.into())
}

fn written(line: &str, head: &str, body: &str) -> String {
    let host = if head.to_lowercase().contains("host:") { "" } else { "Host: 127.0.0.1:8002\r\n" };
    let length = body.len();
    format!("{line} HTTP/1.1\r\n{host}Connection: close\r\n{head}Content-Length: {length}\r\n\r\n{body}")
}

impl Served {
    async fn ask(&self, line: &str, head: &str, body: &str) -> (u16, String, String) {
        exchange(TcpStream::connect(self.address).await.unwrap(), &written(line, head, body)).await
    }

    async fn status(&self, line: &str, head: &str, body: &str) -> u16 {
        self.ask(line, head, body).await.0
    }
}

const KEY: &str = "Authorization: Bearer host\r\n";
const JSON: &str = "Content-Type: application/json\r\n";
const SPEC: &str = r#"{"name": "m", "kind": "onnx", "path": "m.onnx"}"#;
const ROUTES: [&str; 9] = [
    "GET /admin/models",
    "GET /admin/workers",
    "GET /admin/logs/echo",
    "GET /admin/models/echo/scaling",
    "POST /admin/models",
    "DELETE /admin/models/echo",
    "POST /admin/models/echo/load",
    "POST /admin/models/echo/unload",
    "POST /admin/models/echo/workers",
];

#[tokio::test]
async fn admin_takes_the_key_or_the_users_own_socket() {
    let served = start(|_| {}).await;
    for route in ROUTES {
        for head in ["", "Authorization: Bearer guest\r\n", "Authorization: Basic host\r\n", "x-api-key: \r\n"] {
            let (status, answered, body) = served.ask(route, &format!("{head}{JSON}"), "{}").await;
            assert_eq!(status, 401, "{route} {head}");
            assert!(answered.contains("www-authenticate: bearer") && body.contains("admin.key"), "{answered} {body}");
        }
        assert_ne!(served.status(route, &format!("{KEY}{JSON}"), "{}").await, 401, "{route}");
    }
    let stream = UnixStream::connect(served.folder.path().join("admin.sock")).await.unwrap();
    let (status, _, body) = exchange(stream, &written("GET /admin/models", "Host: anything\r\n", "")).await;
    assert_eq!(status, 200, "{body}");
    assert!(serde_json::from_str::<Value>(&body).unwrap()["models"].as_array().unwrap().len() > 5);
    // Looking needs no key.
    for path in ["/health", "/metrics", "/ui", "/ui/data?since=0"] {
        assert_eq!(served.status(&format!("GET {path}"), "", "").await, 200, "{path}");
    }
}

#[tokio::test]
async fn a_body_is_json_and_says_so() {
    let served = start(|_| {}).await;
    for kind in [
        "",
        "Content-Type: text/plain\r\n",
        "Content-Type: application/x-www-form-urlencoded\r\n",
        "Content-Type: multipart/form-data; boundary=application/json\r\n",
        "Content-Type: text/plain; application/json\r\n",
    ] {
        let (status, _, body) = served.ask("POST /admin/models", &format!("{KEY}{kind}"), SPEC).await;
        assert_eq!(status, 415, "{kind}: {body}");
    }
    for kind in [JSON, "content-type: Application/JSON; charset=utf-8\r\n"] {
        let (status, _, body) = served.ask("POST /admin/models", &format!("{KEY}{kind}"), SPEC).await;
        // The back end of this test deploys nothing.
        assert!(status == 400 && body.contains("not here"), "{kind}: {status} {body}");
    }
    assert_eq!(served.status("POST /admin/models/echo/load", KEY, "").await, 200);
    let large = format!("{{\"name\": \"{}\"}}", "x".repeat(2 << 20));
    let (status, _, body) = served.ask("POST /admin/models", &format!("{KEY}{JSON}"), &large).await;
    assert!(status == 400 || status == 0, "{status} {body}");
}

#[tokio::test]
async fn pages_of_other_sites_and_strange_hosts_are_refused() {
    let served = start(|_| {}).await;
    let strange = [
        "Host: evil.example\r\n",
        "Host: evil.example:8002\r\nOrigin: http://evil.example:8002\r\nSec-Fetch-Site: same-origin\r\n",
        "Origin: http://evil.example\r\n",
        "Origin: null\r\n",
        "Origin: http://127.0.0.1:8000\r\n",
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n",
        "Sec-Fetch-Site: same-site\r\n",
    ];
    for head in strange {
        for route in ROUTES.into_iter().chain(["GET /metrics", "GET /ui/data?since=0"]) {
            let (status, answered, body) = served.ask(route, &format!("{KEY}{JSON}{head}"), "{}").await;
            assert_eq!(status, 403, "{route} {head}: {body}");
            assert!(!answered.contains("access-control-allow"), "{answered}");
        }
        assert_eq!(served.status("GET /health", head, "").await, 200, "{head}");
        // A page that asks first whether it may is told that it may not.
        let (status, answered, _) = served.ask("OPTIONS /admin/models", head, "").await;
        assert!(status == 403 && !answered.contains("access-control-allow"), "{status} {answered}");
    }
    // The dashboard asks its own server, and people follow links to it.
    let own = "Origin: http://127.0.0.1:8002\r\nSec-Fetch-Site: same-origin\r\n";
    assert_eq!(served.status("GET /ui/data?since=0", own, "").await, 200);
    assert_eq!(served.status("GET /ui/data?since=0", "Host: gpu.example:8002\r\n", "").await, 200);
    let link = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n";
    assert_eq!(served.status("GET /ui", link, "").await, 200);
    assert_eq!(served.status("GET /ui", &format!("{link}Host: evil.example\r\n"), "").await, 403);
    assert_eq!(served.status("GET /admin/models", &format!("{KEY}{link}"), "").await, 403);
}

#[tokio::test]
async fn connections_that_do_nothing_delay_nobody() {
    let served = start(|_| {}).await;
    let mut held = Vec::new();
    for index in 0..600 {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        if index % 2 == 0 {
            // A request that never ends.
            let _ = stream.write_all(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ").await;
        }
        held.push(stream);
    }
    for _ in 0..20 {
        assert_eq!(served.status("GET /health", "", "").await, 200);
    }
    // Those that came first made room, and the last are still there: nobody had to be given up first.
    let mut byte = [0];
    assert!(matches!(held[0].read(&mut byte).await, Ok(0) | Err(_)));
    held[599].write_all(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    held[599].read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn values_of_variables_are_nowhere_to_be_seen() {
    let served = start(|_| {}).await;
    let mut catalog = rpc::Catalog::clone(&served.gateway.catalog());
    for entry in &mut catalog.entries {
        let mut spec = config::ModelSpec::clone(&entry.spec);
        spec.env.insert("TOKEN".into(), "hunter2".into());
        entry.spec = Arc::new(spec);
    }
    served.gateway.publish(catalog);
    for route in ROUTES.into_iter().chain(["GET /metrics", "GET /ui/data?since=0", "GET /ui"]) {
        let (_, head, body) = served.ask(route, &format!("{KEY}{JSON}"), "{}").await;
        assert!(!body.contains("hunter2") && !head.contains("hunter2"), "{route}: {body}");
    }
    let (_, _, models) = served.ask("GET /admin/models", KEY, "").await;
    let models: Value = serde_json::from_str(&models).unwrap();
    assert_eq!(models["models"][0]["spec"]["env"], json!({"TOKEN": "(not shown)"}));
    // What is shown is not deployed by mistake.
    let shown = models["models"][0]["spec"].to_string();
    let (status, _, body) = served.ask("POST /admin/models", &format!("{KEY}{JSON}"), &shown).await;
    assert!(status == 400 && body.contains("send the value"), "{status} {body}");
    let bad = r#"{"name": "m", "kind": "onnx", "path": "m.onnx", "env": {"LD_PRELOAD": "/tmp/x.so"}}"#;
    let (status, _, body) = served.ask("POST /admin/models", &format!("{KEY}{JSON}"), bad).await;
    assert!(status == 400 && body.contains("may not set `LD_PRELOAD`"), "{status} {body}");
}

#[tokio::test]
async fn tls_covers_the_metrics_port() {
    use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring::default_provider};
    let made = rcgen::generate_simple_self_signed(["localhost".to_string()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("certificate.pem"), folder.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let served = start(|config| config.tls = Some(tls::load(&certificate, &key).unwrap())).await;
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(client));
    let socket = TcpStream::connect(served.address).await.unwrap();
    let stream = connector.connect("localhost".try_into().unwrap(), socket).await.unwrap();
    let (status, _, body) = exchange(stream, &written("GET /admin/models", KEY, "")).await;
    assert_eq!(status, 200, "{body}");
    // A key that is sent in clear is not even read.
    assert_eq!(served.ask("GET /admin/models", KEY, "").await.0, 0);
    // Those who say nothing do not keep others from their handshake.
    let mut held = Vec::new();
    for _ in 0..400 {
        held.push(TcpStream::connect(served.address).await.unwrap());
    }
    let socket = TcpStream::connect(served.address).await.unwrap();
    let shake = connector.connect("localhost".try_into().unwrap(), socket);
    let stream = shake.await.unwrap();
    assert_eq!(exchange(stream, &written("GET /health", "", "")).await.0, 200);
    // It was not the end of their time that let it in: the last of them has some left.
    let unread = held[399].try_read(&mut [0]);
    assert!(unread.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock));
}
