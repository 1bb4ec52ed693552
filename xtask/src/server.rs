//! A server started here, whoever wrote it: until it answers, what it uses, and until all of it is gone.

mod http;
mod processes;

use crate::program::{Program, seconds};
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};
use weft_tests::free_port;

pub(crate) use processes::{MachineTime, Memory, Process, command_line, is_alive, tree};

/// Where a server listens, on 127.0.0.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    pub(crate) http: u16,
    pub(crate) grpc: u16,
    pub(crate) metrics: u16,
}

impl Ports {
    /// Three that nobody uses at the moment.
    pub(crate) fn free() -> Ports {
        Ports { http: free_port(), grpc: free_port(), metrics: free_port() }
    }
}

/// What is sent to a server and what in its answer shows that it understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) path: String,
    pub(crate) body: String,
    pub(crate) answer_has: String,
}

impl Question {
    /// Whether a server answers it well.
    fn is_answered(&self, port: u16) -> Result<()> {
        let (status, body) = http::post(port, &self.path, &self.body)?;
        if status != 200 {
            bail!("expect 200, got {status}: {}", body.chars().take(300).collect::<String>());
        }
        if !body.contains(&self.answer_has) {
            bail!("find {} in the answer {}", self.answer_has, body.chars().take(300).collect::<String>());
        }
        Ok(())
    }
}

/// A server that runs. It is stopped when this goes out of scope.
#[derive(Debug)]
pub(crate) struct Server {
    name: String,
    child: Child,
    log: PathBuf,
    started: Instant,
    pub(crate) ports: Ports,
}

impl Server {
    /// Starts it; what it says goes to `NAME.log` in the folder.
    pub(crate) fn start(name: &str, program: Program, ports: Ports, folder: &Path) -> Result<Server> {
        let log = folder.join(format!("{}.log", name.replace([' ', ',', '/'], "-")));
        let started = Instant::now();
        let child = program.start(&log)?;
        Ok(Server { name: name.to_owned(), child, log, started, ports })
    }

    /// How long it took from the start to the first good answer.
    pub(crate) fn wait(&mut self, question: &Question, limit: Duration) -> Result<Duration> {
        loop {
            let answered = question.is_answered(self.ports.http);
            let took = self.started.elapsed();
            let Err(why) = answered else { return Ok(took) };
            if let Some(status) = self.child.try_wait().context("look after a server")? {
                bail!("start {}: it ended with {status}; it said:\n{}", self.name, self.last_words());
            }
            if took > limit {
                let limit = seconds(limit);
                bail!("get an answer from {} in {limit}: {why:#}; it said:\n{}", self.name, self.last_words());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// How long it took from the start until it said that it is ready.
    pub(crate) fn wait_until_ready(&mut self, limit: Duration) -> Result<Duration> {
        loop {
            let took = self.started.elapsed();
            if http::get(self.ports.http, "/v2/health/ready").is_ok_and(|(status, _)| status == 200) {
                return Ok(took);
            }
            if let Some(status) = self.child.try_wait().context("look after a server")? {
                bail!("start {}: it ended with {status}; it said:\n{}", self.name, self.last_words());
            }
            if took > limit {
                bail!("wait {} for {}; it said:\n{}", seconds(limit), self.name, self.last_words());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until a model of it can be asked.
    pub(crate) fn wait_until_asked(&mut self, model: &str, limit: Duration) -> Result<()> {
        let path = format!("/v2/models/{model}/ready");
        while !http::get(self.ports.http, &path).is_ok_and(|(status, _)| status == 200) {
            if self.started.elapsed() > limit {
                bail!("wait {} for model {model}; {} said:\n{}", seconds(limit), self.name, self.last_words());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Asks its admin interface for something, with the key in its state folder.
    pub(crate) fn admin(&self, state: &Path, what: &str) -> Result<serde_json::Value> {
        let key = std::fs::read_to_string(state.join("admin.key")).context("read the admin key")?;
        let (status, body) = http::get_with_key(self.ports.metrics, &format!("/admin/{what}"), key.trim())?;
        ensure!(status == 200, "ask {} for {what}: {status} {body}", self.name);
        serde_json::from_str(&body).with_context(|| format!("read what {} says of {what}", self.name))
    }

    /// Sends it a request; the status and the body of its answer.
    pub(crate) fn post(&self, path: &str, body: &str) -> Result<(u16, String)> {
        http::post(self.ports.http, path, body)
    }

    /// Kills it, with all its children, as a machine does that loses power.
    pub(crate) fn kill(mut self) {
        processes::signal("KILL", &processes::tree(self.child.id()));
        let _ = self.child.wait();
    }

    /// Kills one of its children whose command line has this in it; whether there was one.
    pub(crate) fn kill_child(&self, command: &str) -> bool {
        let tree = processes::tree(self.child.id());
        let found = tree.iter().skip(1).find(|process| processes::command_line(process).contains(command));
        if let Some(process) = found {
            processes::signal("KILL", std::slice::from_ref(process));
        }
        found.is_some()
    }

    /// How many processes below it run a program with this in its name.
    pub(crate) fn children(&self, program: &str) -> usize {
        let runs =
            |process: &&Process| command_line(process).split(' ').next().is_some_and(|word| word.contains(program));
        processes::tree(self.child.id()).iter().skip(1).filter(runs).count()
    }

    /// Sends a signal to it and to none of its children.
    pub(crate) fn signal(&self, name: &str) {
        let own = processes::tree(self.child.id());
        processes::signal(name, own.get(..1).unwrap_or_default());
    }

    /// Waits for its end; how long that took, or `None` when it still runs after the limit.
    pub(crate) fn ends_within(&mut self, limit: Duration) -> Result<Option<Duration>> {
        let start = Instant::now();
        while self.child.try_wait().with_context(|| format!("wait for {}", self.name))?.is_none() {
            if start.elapsed() > limit {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Some(start.elapsed()))
    }

    /// Whether it still answers.
    pub(crate) fn ask(&self, question: &Question) -> Result<()> {
        question.is_answered(self.ports.http).with_context(|| format!("ask {}", self.name))
    }

    /// Its page of metrics.
    pub(crate) fn metrics(&self) -> Result<String> {
        let (status, page) = http::get(self.ports.metrics, "/metrics").with_context(|| format!("ask {}", self.name))?;
        if status != 200 {
            bail!("read the metrics of {}: it answered {status}", self.name);
        }
        Ok(page)
    }

    /// What it says that a model took for a request, in the mean, in milliseconds.
    pub(crate) fn computed_ms(&self, model: &str) -> Result<f64> {
        let (_, page) = http::get(self.ports.http, &format!("/v2/models/{model}/stats"))?;
        let statistics: serde_json::Value = serde_json::from_str(&page).context("read a model's statistics")?;
        let infer = &statistics["model_stats"][0]["inference_stats"]["compute_infer"];
        let (Some(count), Some(nanos)) = (infer["count"].as_f64(), infer["ns"].as_f64()) else {
            bail!("find what model {model} took in what {} says: {page}", self.name);
        };
        Ok(nanos / count.max(1.0) / 1e6)
    }

    /// Processor time it has used, with all its children.
    pub(crate) fn processor_time(&self) -> Duration {
        processes::tree(self.child.id()).iter().filter_map(processes::processor_time).sum()
    }

    /// Memory it holds, with all its children.
    pub(crate) fn memory(&self) -> Memory {
        processes::tree(self.child.id()).iter().map(processes::memory).sum()
    }

    /// Asks it to end, waits, and ends by force what is left of it.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if let Ok(Some(_)) = self.child.try_wait() {
            return Ok(());
        }
        let tree = processes::tree(self.child.id());
        processes::signal("TERM", &tree[..1]);
        let deadline = Instant::now() + Duration::from_secs(15);
        let mut waiting = true;
        while waiting && Instant::now() < deadline {
            waiting = self.child.try_wait().context("look after a server")?.is_none();
            std::thread::sleep(Duration::from_millis(20));
        }
        // Children may outlive their parent, and the parent may not listen.
        let left: Vec<_> = tree.into_iter().filter(processes::is_alive).collect();
        processes::signal("KILL", &left);
        self.child.wait().with_context(|| format!("stop {}", self.name)).map(drop)
    }

    fn last_words(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("  could not stop {}: {error:#}", self.name);
        }
    }
}
