//! As much of HTTP as it takes to ask a server on this machine one thing.

use anyhow::{Context, Result, bail};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// The status and the body of the answer; the body may still have its chunk sizes in it.
pub(super) fn post(port: u16, path: &str, body: &str) -> Result<(u16, String)> {
    ask("POST", port, path, "", body)
}

/// The same for a page.
pub(super) fn get(port: u16, path: &str) -> Result<(u16, String)> {
    ask("GET", port, path, "", "")
}

/// The same for a page that takes a key.
pub(super) fn get_with_key(port: u16, path: &str, key: &str) -> Result<(u16, String)> {
    ask("GET", port, path, &format!("Authorization: Bearer {key}\r\n"), "")
}

fn ask(method: &str, port: u16, path: &str, head: &str, body: &str) -> Result<(u16, String)> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let patience = Duration::from_secs(5);
    let mut stream = TcpStream::connect_timeout(&address, patience).context("connect")?;
    stream.set_read_timeout(Some(patience)).context("connect")?;
    stream.set_write_timeout(Some(patience)).context("connect")?;
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Connection: close\r\n{head}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).context("send a request")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).context("read an answer")?;
    parse(&String::from_utf8_lossy(&answer))
}

fn parse(answer: &str) -> Result<(u16, String)> {
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { bail!("read an answer: it has no end") };
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.context("read an answer: it has no status")?, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_status_and_a_body() {
        assert_eq!(parse("HTTP/1.1 404 Not Found\r\nA: b\r\n\r\nno").unwrap(), (404, "no".to_owned()));
        assert!(parse("HTTP/1.1 404").is_err());
        assert!(parse("").is_err());
    }
}
