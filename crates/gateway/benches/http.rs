//! How fast the HTTP server is with the smallest useful request: the echo of sixteen floats, by a back end that
//! answers at once.
//!
//! ```text
//! cargo bench -p weft-gateway --bench http
//! cargo bench -p weft-gateway --bench http -- serve
//! ```
//!
//! The second serves on some port until it is interrupted, for load and fuzzing by other programs.
//!
//! Other programs take their share of a machine. So what a request costs the server is measured in processor time of
//! its one thread, and rates are those of a thread that has a core to itself.

#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]

#[path = "../tests/support/mod.rs"]
mod support;

use bytes::Bytes;
use config::DataType;
use gateway::http::{HttpConfig, decode, encode, serve};
use rpc::Tensor;
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const CONNECTIONS: usize = 8;
const SECONDS: u64 = 5;

fn main() {
    if std::env::args().any(|argument| argument == "serve") {
        println!("http://{}", Server::start().address);
        loop {
            std::thread::park();
        }
    }
    let body = Bytes::from(support::echo_body());
    println!("body of {} bytes", body.len());
    let nanos = each(|| drop(black_box(decode(&body, None))));
    println!("decode          {nanos:8.0} ns");
    let numbers: Vec<String> = (0..16).map(|number| (f64::from(number) * 0.123_456_789_012).to_string()).collect();
    let long =
        format!(r#"{{"inputs":[{{"name":"x","shape":[1,16],"datatype":"FP32","data":[{}]}}]}}"#, numbers.join(","));
    let long = Bytes::from(long);
    let nanos = each(|| drop(black_box(decode(&long, None))));
    println!("decode, 12 digits {nanos:6.0} ns");
    let nanos = each(|| drop(black_box(serde_json::from_slice::<serde_json::Value>(&body))));
    println!("serde_json::Value {nanos:6.0} ns, for comparison");
    let request = decode(&body, None).expect("a request that is right");
    let data: Vec<u8> = (0..16u32).flat_map(|number| (number as f32 * 0.617).to_le_bytes()).collect();
    let tensor = Tensor { name: "y".into(), datatype: DataType::Fp32, shape: vec![1, 16], data: data.into() };
    let nanos = each(|| drop(black_box(encode(&request, "echo", 1, std::slice::from_ref(&tensor)))));
    println!("encode          {nanos:8.0} ns");
    let megabyte = format!(
        r#"{{"inputs":[{{"name":"x","shape":[100000],"datatype":"FP32","data":[{}0.5]}}]}}"#,
        "0.123456,".repeat(99_999)
    );
    let megabyte = Bytes::from(megabyte);
    let nanos = each(|| drop(black_box(decode(&megabyte, None))));
    println!("decode, 100,000 floats {:5.0} MB/s", megabyte.len() as f64 / nanos * 1e3);

    let server = Server::start();
    for (name, path) in [("health", "GET /v2/health/live"), ("echo", "POST /v2/models/echo/infer")] {
        let body = if name == "echo" { body.clone() } else { Bytes::new() };
        let request = format!("{path} HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n", body.len());
        let request = [request.as_bytes(), &body].concat();
        let (requests, busy, wall) = load(&server, &request);
        println!(
            "{name:8} {CONNECTIONS} connections: {:7.0} requests/s on a core, {:5.2} us each; {:7.0} requests/s here",
            requests as f64 / busy.as_secs_f64(),
            busy.as_secs_f64() * 1e6 / requests as f64,
            requests as f64 / wall.as_secs_f64(),
        );
    }
}

/// Nanoseconds that something takes: the best of many rounds.
fn each(mut work: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..300 {
        let count = 200;
        let begun = Instant::now();
        (0..count).for_each(|_| work());
        best = best.min(begun.elapsed().as_nanos() as f64 / f64::from(count));
        if begun.elapsed() > Duration::from_millis(100) {
            break;
        }
    }
    best
}

/// A server on a thread of its own.
struct Server {
    address: SocketAddr,
    /// Asks for its processor time so far.
    ask: tokio::sync::mpsc::UnboundedSender<mpsc::Sender<Duration>>,
}

impl Server {
    fn start() -> Server {
        let (tell, told) = mpsc::channel();
        let (ask, mut asked) = tokio::sync::mpsc::unbounded_channel::<mpsc::Sender<Duration>>();
        let thread = std::thread::Builder::new().name("server".into());
        let spawned = thread.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
                let _ = tell.send(listener.local_addr().expect("an address"));
                tokio::spawn(async move {
                    while let Some(back) = asked.recv().await {
                        let _ = back.send(processor_time());
                    }
                });
                let gateway = support::gateway();
                let mut catalog = (*gateway.catalog()).clone();
                catalog.entries.retain(|entry| entry.info.is_some());
                gateway.publish(catalog);
                let never = std::future::pending::<()>();
                serve(gateway, listener, HttpConfig::default(), never).await.expect("a server");
            });
        });
        spawned.expect("a thread");
        Server { address: told.recv().expect("an address"), ask }
    }

    fn busy(&self) -> Duration {
        let (tell, told) = mpsc::channel();
        let _ = self.ask.send(tell);
        told.recv().expect("a server")
    }
}

/// Processor time of this thread.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    Duration::from_nanos(text.split(' ').next().and_then(|nanos| nanos.parse().ok()).expect("nanoseconds"))
}

/// Asks as fast as it is answered: requests, processor time of the server, time.
fn load(server: &Server, request: &[u8]) -> (u64, Duration, Duration) {
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let (stop, count, request) = (stop.clone(), count.clone(), request.to_vec());
            let mut socket = TcpStream::connect(server.address).expect("a connection");
            std::thread::spawn(move || {
                socket.set_nodelay(true).expect("a socket");
                let mut buffer = [0; 4096];
                while !stop.load(Relaxed) {
                    socket.write_all(&request).expect("a server that reads");
                    // Answers are smaller than a packet and come in one piece.
                    let length = socket.read(&mut buffer).expect("a server that answers");
                    assert!(buffer[..length].starts_with(b"HTTP/1.1 200"));
                    count.fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    let (begun, busy, before) = (Instant::now(), server.busy(), count.load(Relaxed));
    std::thread::sleep(Duration::from_secs(SECONDS));
    let (busy, requests, wall) = (server.busy() - busy, count.load(Relaxed) - before, begun.elapsed());
    stop.store(true, Relaxed);
    clients.into_iter().for_each(|client| client.join().expect("a client that ends"));
    (requests, busy, wall)
}
