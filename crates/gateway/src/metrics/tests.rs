//! The text, read back by a parser of its own, and the port, asked as anybody would.

use super::*;
use crate::fixture::{HOSTILE, catalog, gateway, overview, use_it, worker};
use crate::statistics::{Refused, Served};
use policy::Span;
use std::collections::{BTreeMap, BTreeSet};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

type Labels = BTreeMap<String, String>;

/// What was read: types by family, and samples in order.
#[derive(Default)]
struct Read {
    types: BTreeMap<String, String>,
    samples: Vec<(String, Labels, f64)>,
}

impl Read {
    /// Reads a text and checks that it is well formed: every family is announced once, before its samples, and these
    /// are together and different.
    fn new(text: &str) -> Read {
        let mut read = Read::default();
        let mut seen = BTreeSet::new();
        let mut family = String::new();
        assert!(text.ends_with('\n'));
        for line in text.lines().filter(|line| *line != "# EOF") {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, words) = help.split_once(' ').expect("a name and words");
                assert!(!words.is_empty());
                family = name.to_string();
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').expect("a name and a type");
                assert_eq!(name, family, "TYPE follows HELP");
                assert!(read.types.insert(family.clone(), kind.into()).is_none(), "{family} twice");
            } else if let Some(unit) = line.strip_prefix("# UNIT ") {
                let (name, unit) = unit.split_once(' ').expect("a name and a unit");
                assert!(name == family && name.ends_with(&format!("_{unit}")), "{line}");
            } else {
                let (name, labels, value) = sample(line);
                let suffixes: &[&str] = match read.types[&family].as_str() {
                    "histogram" => &["_bucket", "_sum", "_count"],
                    _ => &["", "_total"],
                };
                assert!(suffixes.contains(&name.strip_prefix(&family).expect(line)), "{line} in {family}");
                assert!(seen.insert((name.clone(), labels.clone())), "{line} twice");
                read.samples.push((name, labels, value));
            }
        }
        read
    }

    fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let wanted: Labels = labels.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let found = self.samples.iter().find(|(other, labels, _)| other == name && *labels == wanted);
        found.unwrap_or_else(|| panic!("no {name} {wanted:?}")).2
    }

    /// Checks all histograms: counts rise with their ends, and the last is the count.
    fn check_histograms(&self) -> usize {
        let mut open: Option<(Labels, f64, f64)> = None;
        let mut checked = 0;
        for (name, labels, value) in &self.samples {
            let mut others = labels.clone();
            let end = others.remove("le");
            if let (true, Some(end)) = (name.ends_with("_bucket"), end) {
                let end: f64 = end.parse().unwrap();
                if let Some((before, last_end, last)) = &open {
                    assert_eq!(*before, others);
                    assert!(end > *last_end && value >= last, "{name} {labels:?}");
                }
                open = Some((others, end, *value));
            } else if name.ends_with("_sum") && open.is_some() {
                assert!(*value >= 0.0);
            } else if let (true, Some((before, last_end, last))) = (name.ends_with("_count"), open.take()) {
                assert_eq!((before, last_end, last), (others, f64::INFINITY, *value), "{name}");
                checked += 1;
            }
        }
        checked
    }
}

/// Reads `name{label="value",...} number`.
fn sample(line: &str) -> (String, Labels, f64) {
    let end = line.find(['{', ' ']).expect(line);
    let (name, mut rest) = line.split_at(end);
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    assert!(is_name(name), "{line}");
    let mut labels = Labels::new();
    if let Some(mut inside) = rest.strip_prefix('{') {
        loop {
            let (label, value) = inside.split_once("=\"").expect(line);
            assert!(is_name(label), "{line}");
            let mut letters = value.char_indices();
            let mut text = String::new();
            let close = loop {
                match letters.next().expect(line) {
                    (place, '"') => break place,
                    (_, '\\') => text.push(match letters.next().expect(line).1 {
                        'n' => '\n',
                        same @ ('\\' | '"') => same,
                        other => panic!("\\{other} in {line}"),
                    }),
                    (_, letter) => text.push(letter),
                }
            };
            assert!(labels.insert(label.into(), text).is_none(), "{line}");
            match value[close + 1..].strip_prefix(',') {
                Some(more) => inside = more,
                None => break rest = value[close + 1..].strip_prefix('}').expect(line),
            }
        }
    }
    (name.into(), labels, rest.strip_prefix(' ').expect(line).parse().expect(line))
}

fn busy_gateway() -> Arc<Gateway> {
    let gateway = gateway();
    gateway.publish(catalog(&["busy", "idle", HOSTILE]));
    use_it(&gateway.statistics("busy", 1), 1_000);
    use_it(&gateway.statistics(HOSTILE, 1), 3);
    let workers = vec![worker(1, "busy:1", Span::from_millis(1_500)), worker(2, "virtual GPU", Span::ZERO)];
    let number = gateway.catalog().find("busy", None).unwrap().model;
    gateway.look(overview(workers, &[(number, 12)]));
    gateway
}

fn gpus() -> Arc<Vec<GpuView>> {
    let gpu = |gpu| GpuView {
        node: "node-1".into(),
        gpu,
        uuid: format!("GPU-{gpu}"),
        name: "H200".into(),
        utilization: 0.25,
        memory_bytes: 1 << 30,
        memory_total_bytes: 1 << 37,
    };
    Arc::new(vec![gpu(0), gpu(1)])
}

#[test]
fn counters_are_consistent() {
    let text = write(&Scrape::new(&busy_gateway(), 1e9, gpus()), Format::Prometheus);
    let read = Read::new(&text);
    assert_eq!(read.check_histograms(), 6, "two for each of three models");
    let of = |name: &str, more: &[(&str, &str)]| {
        let labels = [&[("model", "busy"), ("version", "1")], more].concat();
        read.value(name, &labels)
    };
    let outcome = |outcome: &str| of("weft_requests_total", &[("outcome", outcome)]);
    assert_eq!((outcome("good"), outcome("late"), outcome("failed")), (900.0, 100.0, 1.0));
    let refused: f64 = Refused::ALL.iter().map(|reason| outcome(&format!("refused_{}", reason.name()))).sum();
    assert_eq!(refused, Refused::ALL.len() as f64);
    assert_eq!(of("nv_inference_request_success", &[]), outcome("good") + outcome("late"));
    assert_eq!(of("nv_inference_request_failure", &[("reason", "REJECTED")]), refused);
    assert_eq!(of("nv_inference_request_failure", &[("reason", "BACKEND")]), 1.0);
    assert_eq!(of("weft_request_duration_seconds_count", &[]), 1_000.0);
    assert_eq!((of("weft_rows_total", &[]), of("nv_inference_count", &[])), (2_000.0, 2_000.0));
    assert_eq!(of("nv_inference_exec_count", &[]), of("weft_batch_requests_count", &[]));
    let micros = of("nv_inference_request_duration_us", &[]);
    assert!((of("weft_request_duration_seconds_sum", &[]) * 1e6 - micros).abs() <= 1.0);
    let parts = ["queue", "compute_input", "compute_infer", "compute_output"];
    let parts = parts.map(|part| of(&format!("nv_inference_{part}_duration_us"), &[]));
    assert!(parts.iter().all(|part| *part > 0.0), "{parts:?}");
    assert!((parts.iter().sum::<f64>() - micros).abs() <= 4.0);
    assert_eq!((of("weft_queue_requests", &[]), of("nv_inference_pending_request_count", &[])), (12.0, 12.0));
    assert_eq!(read.value("weft_workers", &[("state", "ready")]), 2.0);
    let labels = [("worker", "1"), ("node", "node-1"), ("model", "busy"), ("version", "1")];
    assert_eq!(read.value("weft_worker_busy_seconds_total", &labels), 1.5);
    assert_eq!(read.value("weft_start_time_seconds", &[]), 1e9);
    assert_eq!(read.value("nv_gpu_memory_used_bytes", &[("gpu_uuid", "GPU-1")]), (1u64 << 30) as f64);
    assert!(read.value("process_resident_memory_bytes", &[]) > 1e6);
}

#[test]
fn a_fine_latency_falls_into_the_bucket_that_holds_it() {
    let gateway = gateway();
    gateway.publish(catalog(&["a"]));
    let statistics = gateway.statistics("a", 1);
    let total = Span::from_millis(20);
    let served = Served { total, compute: total.into(), good: true, rows: 1, batch_size: 5, leads: true };
    statistics.served(served);
    let read = Read::new(&write(&Scrape::new(&gateway, 0.0, Arc::default()), Format::Prometheus));
    for (name, value) in [("weft_request_duration_seconds_bucket", 0.020), ("weft_batch_requests_bucket", 5.0)] {
        for (_, labels, count) in read.samples.iter().filter(|(other, ..)| other == name) {
            let end: f64 = labels["le"].parse().unwrap();
            assert_eq!(*count, f64::from(u8::from(end >= value)), "{name} {end}");
        }
    }
}

#[test]
fn any_name_is_a_label() {
    let read = Read::new(&write(&Scrape::new(&busy_gateway(), 0.0, Arc::default()), Format::Prometheus));
    assert_eq!(read.value("weft_rows_total", &[("model", HOSTILE), ("version", "1")]), 6.0);
    assert!(!read.types.keys().any(|name| name.starts_with("nv_gpu")), "there is no GPU");
}

#[test]
fn open_metrics_say_the_same() {
    let scrape = Scrape::new(&busy_gateway(), 1e9, gpus());
    let (plain, open) = (write(&scrape, Format::Prometheus), write(&scrape, Format::OpenMetrics));
    assert!(open.ends_with("\n# EOF\n"));
    let samples = |text: &str| {
        let without = |line: &&str| !line.starts_with(['#']) && !line.starts_with("process_");
        text.lines().filter(without).map(str::to_string).collect::<Vec<_>>()
    };
    assert_eq!(samples(&plain), samples(&open));
    let read = Read::new(&open);
    for (name, kind) in &read.types {
        assert_eq!(kind == "unknown", name.starts_with("nv_inference") && !name.contains("pending"), "{name}");
        assert!(kind != "counter" || !name.ends_with("_total"), "{name}");
    }
    assert_eq!(read.check_histograms(), 6);
}

#[test]
fn own_names_follow_the_rules_for_names() {
    let read = Read::new(&write(&Scrape::new(&busy_gateway(), 1e9, gpus()), Format::Prometheus));
    for (name, kind) in read.types.iter().filter(|(name, _)| !name.starts_with("nv_")) {
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
        let ends = ["_count", "_sum", "_bucket", "_ms", "_us", "_milliseconds", "_percent"];
        assert!(!ends.iter().any(|end| name.ends_with(end)), "{name}");
    }
}

/// Asks the port, as it is written, and reads until the connection ends.
async fn ask(address: std::net::SocketAddr, request: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("{request}\r\nhost: localhost\r\nconnection: close\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("headers end") + 4;
    (String::from_utf8(answer[..end].to_vec()).unwrap(), answer[end..].to_vec())
}

fn unpack(body: &[u8]) -> String {
    std::io::read_to_string(flate2::read::GzDecoder::new(body)).unwrap()
}

#[tokio::test]
async fn the_port_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let admin: AdminHandler = Arc::new(|request, _| {
        let path = request.uri().path().to_string();
        Box::pin(async move { text(StatusCode::ACCEPTED, "text/plain", path) })
    });
    let config = MetricsConfig { cluster: "lab".into(), admin: Some(admin), ..MetricsConfig::default() };
    let shutdown = async { stopped.await.unwrap() };
    let server = tokio::spawn(serve(busy_gateway(), listener, config, shutdown));

    let (headers, body) = ask(address, "GET /health HTTP/1.1").await;
    assert!(headers.starts_with("HTTP/1.1 200") && body == b"ok\n", "{headers}");
    let (headers, body) = ask(address, "GET /metrics HTTP/1.1").await;
    assert!(headers.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{headers}");
    Read::new(std::str::from_utf8(&body).unwrap());
    let asked = "GET /metrics HTTP/1.1\r\naccept: application/openmetrics-text\r\naccept-encoding: gzip";
    let (headers, body) = ask(address, asked).await;
    assert!(headers.contains("content-type: application/openmetrics-text; version=1.0.0"), "{headers}");
    assert!(headers.contains("content-encoding: gzip"), "{headers}");
    assert!(unpack(&body).ends_with("# EOF\n"));

    let (headers, _) = ask(address, "GET / HTTP/1.1").await;
    assert!(headers.starts_with("HTTP/1.1 302") && headers.contains("location: /ui\r\n"), "{headers}");
    let (headers, page) = ask(address, "GET /ui HTTP/1.1").await;
    for expected in [
        "HTTP/1.1 200",
        "content-type: text/html; charset=utf-8\r\n",
        "cache-control: no-cache\r\n",
        "x-content-type-options: nosniff\r\n",
        "x-frame-options: DENY\r\n",
        "referrer-policy: no-referrer\r\n",
        "content-security-policy: default-src 'none'; script-src 'sha256-",
    ] {
        assert!(headers.contains(expected), "{expected} in {headers}");
    }
    let (packed_headers, packed) = ask(address, "GET /ui HTTP/1.1\r\naccept-encoding: gzip").await;
    assert!(packed_headers.contains("content-encoding: gzip") && unpack(&packed).as_bytes() == page);
    let tag = headers.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    let (headers, body) = ask(address, &format!("GET /ui/ HTTP/1.1\r\nif-none-match: \"x\", {tag}")).await;
    assert!(headers.starts_with("HTTP/1.1 304") && body.is_empty(), "{headers}");

    let (headers, body) = ask(address, "GET /ui/data?since=0 HTTP/1.1\r\naccept-encoding: gzip").await;
    assert!(headers.contains("content-type: application/json\r\n") && headers.contains("no-store"), "{headers}");
    let told: serde_json::Value = serde_json::from_str(&unpack(&body)).unwrap();
    assert_eq!(told["models"].as_array().unwrap().len(), 3);
    for (request, status) in [
        ("GET /ui/data?since=x HTTP/1.1", "400"),
        ("GET /nothing HTTP/1.1", "404"),
        ("GET /admin HTTP/1.1", "404"),
        ("POST /metrics HTTP/1.1", "405"),
        ("HEAD /metrics HTTP/1.1", "200"),
        ("GET /admin/models?x HTTP/1.1", "202"),
        (&format!("GET /health HTTP/1.1\r\nlong: {}", "x".repeat(40_000)), "431"),
        (&format!("GET /health HTTP/1.1{}", "\r\na: b".repeat(100)), "431"),
    ] {
        let (headers, _) = ask(address, request).await;
        assert!(headers.starts_with(&format!("HTTP/1.1 {status}")), "{request:.60}: {headers}");
    }

    // A connection that does nothing does not keep the server from ending.
    let idle = TcpStream::connect(address).await.unwrap();
    stop.send(()).unwrap();
    tokio::time::timeout(std::time::Duration::from_secs(4), server).await.unwrap().unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err());
    drop(idle);
}
