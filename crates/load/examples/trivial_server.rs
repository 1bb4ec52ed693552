//! A server with one model, `echo`, that answers every request at once with the same bytes: what the generator's own
//! cost is measured against.
//!
//! `cargo run --release -p weft-load --example trivial_server -- 8000`, and then
//! `weft load --model echo --rate 10000`.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const METADATA: &str =
    r#"{"name": "echo", "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 16]}], "outputs": []}"#;
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ncontent-length: 64\r\n\r\n\
    0123456701234567012345670123456701234567012345670123456701234567";

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let port: u16 = std::env::args().nth(1).and_then(|port| port.parse().ok()).unwrap_or(8000);
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(serve(stream));
    }
}

/// Takes each piece that comes for a whole request: they are small enough.
async fn serve(mut stream: TcpStream) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut buffer = vec![0; 64 << 10];
    loop {
        let length = stream.read(&mut buffer).await.ok().filter(|length| *length > 0)?;
        match buffer[..length].starts_with(b"GET") {
            false => stream.write_all(ANSWER).await.ok()?,
            true => {
                let length = METADATA.len();
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{METADATA}");
                stream.write_all(answer.as_bytes()).await.ok()?;
            }
        }
    }
}
