//! A `weft up` that a test started, in a folder of the test's.

use crate::free_port;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);
const LOG: &str = "server.log";

/// A server that ends with the test. Its configuration, its state and its log are in its folder, and so are the commands
/// that are run with it.
#[derive(Debug)]
pub struct Server {
    process: Child,
    weft: PathBuf,
    folder: PathBuf,
    /// Where it serves HTTP.
    pub http: u16,
    /// Where it serves gRPC.
    pub grpc: u16,
    /// Where it serves metrics and its administrators.
    pub metrics: u16,
}

impl Server {
    /// Starts it on this machine's own address, and waits until commands are answered.
    pub fn start(weft: &Path, folder: &Path, config: &str) -> Server {
        Server::start_on("127.0.0.1", weft, folder, config)
    }

    /// The same on another address.
    pub fn start_on(host: &str, weft: &Path, folder: &Path, config: &str) -> Server {
        let mut server = Server::spawn(host, weft, folder, config);
        let deadline = Instant::now() + PATIENCE;
        while !server.run(&["models"]).status.success() {
            let ended = server.process.try_wait().expect("its end can be asked for");
            assert!(ended.is_none() && Instant::now() < deadline, "no server, {ended:?}: {}", server.log());
        }
        server
    }

    /// Starts it, whatever becomes of it.
    pub fn spawn(host: &str, weft: &Path, folder: &Path, config: &str) -> Server {
        fs::write(folder.join("weft.toml"), config).expect("a configuration can be written");
        let [http, grpc, metrics] = [(); 3].map(|()| free_port());
        // A file that would become too large is an error to it and not its end.
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(weft).arg("up").current_dir(folder);
        for (name, port) in [("--http", http), ("--grpc", grpc), ("--metrics", metrics)] {
            command.arg(name).arg(format!("{host}:{port}"));
        }
        let log = File::create(folder.join(LOG)).expect("a log can be written");
        let process = command.stderr(Stdio::from(log)).spawn().expect("weft runs");
        Server { process, weft: weft.into(), folder: folder.into(), http, grpc, metrics }
    }

    /// Everything that it said so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join(LOG)).unwrap_or_default()
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The key of its administrators.
    pub fn key(&self) -> String {
        fs::read_to_string(self.folder.join(".weft/admin.key")).expect("it has a key").trim().to_owned()
    }

    /// Runs a command about it.
    pub fn run(&self, arguments: &[&str]) -> Output {
        let url = format!("http://127.0.0.1:{}", self.metrics);
        let mut command = Command::new(&self.weft);
        command.args(arguments).args(["--server", &url]).current_dir(&self.folder).output().expect("weft runs")
    }

    /// The same: what it printed, or what it said when it failed.
    pub fn command(&self, arguments: &[&str]) -> Result<String, String> {
        outcome(&self.run(arguments))
    }

    /// The status with which it answers on its HTTP port; `None` where it does not.
    pub fn status(&self, path: &str) -> Option<u16> {
        Some(ask(self.http, &format!("GET {path}"), "", "").0).filter(|status| *status != 0)
    }

    /// Waits until something holds.
    pub fn wait(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds() {
            assert!(Instant::now() < deadline, "waited in vain for {what}; the server said:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for its end; the exit code.
    pub fn ended(&mut self) -> Option<i32> {
        self.process.wait().expect("its end can be asked for").code()
    }

    /// Ends it as an operator does.
    pub fn stop(mut self) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs").success());
        assert_eq!(self.ended(), Some(0), "{}", self.log());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What a command printed, or what it said when it failed.
pub fn outcome(output: &Output) -> Result<String, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Sends a request as it is written, to this machine; the status and the body of what comes back, or 0 and nothing.
pub fn ask(port: u16, line: &str, head: &str, body: &str) -> (u16, String) {
    let mut answer = Vec::new();
    if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
        stream.set_read_timeout(Some(PATIENCE)).expect("a time is no error");
        let host = if head.contains("Host:") { "" } else { "Host: 127.0.0.1\r\n" };
        let length = body.len();
        let text =
            format!("{line} HTTP/1.1\r\n{host}Connection: close\r\n{head}Content-Length: {length}\r\n\r\n{body}");
        let _ = stream.write_all(text.as_bytes());
        let _ = stream.read_to_end(&mut answer);
    }
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0), body.to_owned())
}
