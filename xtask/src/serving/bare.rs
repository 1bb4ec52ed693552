//! A server that knows one answer and gives it at once: what a request takes that nobody thinks about.

use anyhow::{Context, Result};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

const METADATA: &str = r#"{"name":"echo","versions":["1"],"platform":"none","inputs":[{"name":"INPUT","datatype":"FP32","shape":[-1,16]}],"outputs":[{"name":"OUTPUT","datatype":"FP32","shape":[-1,16]}]}"#;
const ANSWER: &str = r#"{"model_name":"echo","model_version":"1","outputs":[{"name":"OUTPUT","datatype":"FP32","shape":[1,16],"data":[0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5]}]}"#;

/// Starts it, for as long as this program runs; where it listens.
pub(super) fn start() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("find a free port")?;
    let port = listener.local_addr().context("find a free port")?.port();
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            // A client that hangs up is done.
            std::thread::spawn(move || answer_all(&connection));
        }
    });
    Ok(port)
}

fn answer_all(mut connection: &TcpStream) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    let mut reader = BufReader::new(connection);
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let body = if line.starts_with("POST") { ANSWER } else { METADATA };
        let mut length = 0;
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line)?;
            let header = line.to_ascii_lowercase();
            length = header.strip_prefix("content-length:").and_then(|text| text.trim().parse().ok()).unwrap_or(length);
        }
        std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink())?;
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        connection.write_all((head + body).as_bytes())?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_answers_one_request_after_the_other() {
        let mut client = TcpStream::connect(("127.0.0.1", start().unwrap())).unwrap();
        for (request, answer) in
            [("GET /x HTTP/1.1\r\n\r\n", METADATA), ("POST /x HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", ANSWER)]
        {
            client.write_all(request.as_bytes()).unwrap();
            let mut text = String::new();
            while !text.ends_with(answer) {
                let mut buffer = [0; 1024];
                let length = client.read(&mut buffer).unwrap();
                assert!(length > 0, "{text}");
                text.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
            }
        }
    }
}
