//! A server with one model, which does what a test wants done with each request to infer.

use load::{Config, Connections, Encoding, Inputs, ModelShare, Protocol};
use policy::Span;
use sim::Spacing;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What is done with a request.
pub(crate) enum Deed {
    /// Send these bytes.
    Say(Vec<u8>),
    /// Wait.
    Wait(Duration),
    /// Wait until so many requests have come.
    Until(usize),
    /// Close the connection. Nothing after it is done.
    Close,
    /// Send these bytes and close the connection at once: who has them knows that it is closed.
    SayAndClose(Vec<u8>),
}

/// A request to infer, as a test sees it.
pub(crate) struct Asked {
    /// How many there were before it.
    pub(crate) number: usize,
    /// Everything that was sent.
    pub(crate) bytes: Vec<u8>,
}

/// A server that is running, until the test process ends.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
    /// Requests to infer that came so far.
    pub(crate) asked: Arc<AtomicUsize>,
}

const METADATA: &str = r#"{"name": "echo", "versions": ["1"], "platform": "test",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 16]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 16]}]}"#;

/// Starts one.
pub(crate) fn start(deeds: impl Fn(&Asked) -> Vec<Deed> + Send + Sync + 'static) -> Server {
    let (tell, address) = std::sync::mpsc::channel();
    let (connections, asked) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (counted, number) = (connections.clone(), asked.clone());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            tell.send(listener.local_addr().unwrap()).unwrap();
            let deeds = Arc::new(deeds);
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Ordering::Relaxed);
                let (deeds, number) = (deeds.clone(), number.clone());
                tokio::spawn(async move { serve(stream, &*deeds, &number).await });
            }
        });
    });
    Server { address: address.recv().unwrap(), connections, asked }
}

async fn serve(
    mut stream: TcpStream,
    deeds: &(impl Fn(&Asked) -> Vec<Deed> + Send + Sync),
    asked: &AtomicUsize,
) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut buffer = Vec::new();
    loop {
        let request = read(&mut stream, &mut buffer).await?;
        let line = String::from_utf8_lossy(request.split(|byte| *byte == b'\r').next()?).into_owned();
        match line.as_str() {
            "GET /v2/models/echo HTTP/1.1" | "GET /v2/models/other HTTP/1.1" => {
                stream.write_all(&answer(200, METADATA)).await.ok()?;
            }
            "POST /v2/repository/index HTTP/1.1" => {
                let index = r#"[{"name": "other"}, {"name": "echo"}, {"name": "echo"}]"#;
                stream.write_all(&answer(200, index)).await.ok()?;
            }
            line if line.starts_with("POST ") => {
                let number = asked.fetch_add(1, Ordering::Relaxed);
                for deed in deeds(&Asked { number, bytes: request }) {
                    match deed {
                        Deed::Say(bytes) => stream.write_all(&bytes).await.ok()?,
                        Deed::Wait(time) => tokio::time::sleep(time).await,
                        Deed::Until(count) => {
                            while asked.load(Ordering::Relaxed) < count {
                                tokio::time::sleep(Duration::from_millis(1)).await;
                            }
                        }
                        Deed::Close => return None,
                        Deed::SayAndClose(bytes) => {
                            rustix::net::sockopt::set_tcp_cork(&stream, true).ok()?;
                            stream.write_all(&bytes).await.ok()?;
                            return stream.shutdown().await.ok();
                        }
                    }
                }
            }
            _ => stream.write_all(&answer(404, r#"{"error": "no such thing"}"#)).await.ok()?,
        }
    }
}

/// A whole request.
async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Vec<u8>> {
    loop {
        if let Some(head) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(&buffer[..head]).to_lowercase();
            let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            let whole = head + 4 + length.unwrap_or(0);
            if buffer.len() >= whole {
                return Some(buffer.drain(..whole).collect());
            }
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

/// An answer with a body of known length.
pub(crate) fn answer(status: u16, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} Word\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// What most tests answer with.
pub(crate) fn fine() -> Deed {
    Deed::Say(answer(200, "{}"))
}

/// A second at 200 requests a second, equally spaced, and in time whenever they are answered.
pub(crate) fn config(server: &Server) -> Config {
    Config {
        protocol: Protocol::Http(format!("http://{}", server.address).parse().unwrap()),
        models: vec![ModelShare { name: "echo".into(), share: 1.0 }],
        rate: 200.0,
        spacing: Spacing::Constant,
        warmup: Span::from_millis(100),
        duration: Span::from_secs(1),
        objective: Span::from_secs(3600),
        patience: Span::from_secs(60),
        timeout_parameter: false,
        connections: Connections::Auto,
        batch: 1,
        inputs: Inputs::Zeros,
        shapes: Vec::new(),
        encoding: Encoding::Binary,
        headers: Vec::new(),
        seed: 1,
    }
}
