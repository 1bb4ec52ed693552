//! A workload program: says `ready`, and answers each line of JSON with a line of JSON. What the lines mean is written at
//! the top of `bench/workloads/workload.py`.

use crate::interrupt::Interrupt;
use crate::process::{self, Process};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::process::{ChildStdin, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long a wait goes on before somebody who wants to stop is heard.
const GLANCE: Duration = Duration::from_millis(50);

/// The longest part of a bad answer that is shown.
const SHOWN: usize = 80;

/// What a program is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Order {
    /// From when on it is measured, by CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// For how long.
    pub seconds: f64,
    /// Requests a second that come at random; 0: one after the other.
    pub rate: f64,
    /// Seed of the times at which they come.
    pub seed: u64,
}

/// What a program did.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Answer {
    /// Requests, or steps of a training.
    pub done: u64,
    /// Until the last request that was done in time.
    pub seconds: f64,
    /// How long each took.
    pub latencies_us: Vec<u64>,
    /// When each came, from the time on that it was told, where it says.
    #[serde(default)]
    pub came_us: Option<Vec<u64>>,
    /// What it did a second, parts of requests included, where it knows.
    #[serde(default)]
    pub per_second: Option<f64>,
}

/// A program that runs.
#[derive(Debug)]
pub struct Program {
    /// What it is called in messages.
    name: String,
    process: Process,
    /// `None` once it was told to end.
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Program {
    /// Starts it and does not wait.
    pub fn start(name: String, command: Command) -> Result<Program, String> {
        let file = command.get_program().to_string_lossy().into_owned();
        let started = Process::start(command).map_err(|error| {
            let reason = crate::file::reason(&error);
            format!("{name} cannot be started: {file}: {reason}")
        });
        let (process, input, output) = started?;
        let (sender, lines) = channel();
        std::thread::spawn(move || process::lines(output, |line| drop(sender.send(line))));
        Ok(Program { name, process, input: Some(input), lines })
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits until it is warm. What it prints before that is talk.
    pub fn wait_ready(&mut self, patience: Duration, interrupt: &Interrupt) -> Result<(), String> {
        let until = Instant::now() + patience;
        loop {
            match self.line(until, interrupt)? {
                Some(line) if line == "ready" => return Ok(()),
                Some(line) => self.process.said.add(&line),
                None => {
                    let (said, name, seconds) = (self.process.last_words(), &self.name, patience.as_secs_f64());
                    return Err(format!("{name} did not say `ready` within {seconds} s; {said}"));
                }
            }
        }
    }

    /// Whether it said that it is warm since the last look, without waiting. An error when it has ended.
    pub fn says_ready(&mut self) -> Result<bool, String> {
        let mut ready = false;
        while let Ok(line) = self.lines.try_recv() {
            ready |= line == "ready";
            self.process.said.add(&line);
        }
        match self.process.ended() {
            Some(_) => Err(self.death()),
            None => Ok(ready),
        }
    }

    /// Tells it what to do.
    pub fn order(&mut self, order: &Order) -> Result<(), String> {
        let line = serde_json::to_string(order).expect("numbers can be written") + "\n";
        let input = self.input.as_mut().expect("it was not told to end");
        if input.write_all(line.as_bytes()).and_then(|()| input.flush()).is_err() {
            return Err(self.death());
        }
        Ok(())
    }

    /// Waits for its answer to what it was told.
    pub fn answer(&mut self, until: Instant, interrupt: &Interrupt) -> Result<Answer, String> {
        match self.line(until, interrupt)? {
            Some(line) => read(&line).map_err(|problem| {
                let shown: String = line.chars().take(SHOWN).collect();
                format!("{} answered `{shown}`: {problem}; {}", self.name, self.process.last_words())
            }),
            None => Err(format!("{} did not answer in time; {}", self.name, self.process.last_words())),
        }
    }

    /// The next line that it prints; `None` when there is none in time.
    fn line(&mut self, until: Instant, interrupt: &Interrupt) -> Result<Option<String>, String> {
        loop {
            if interrupt.is_set() {
                return Err("interrupted".into());
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left.min(GLANCE)) {
                Ok(line) => return Ok(Some(line)),
                Err(RecvTimeoutError::Disconnected) => return Err(self.death()),
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// How it ended, for a program that takes or says no more.
    fn death(&mut self) -> String {
        let status = self.process.wait(Instant::now() + Duration::from_secs(2));
        let (said, name) = (self.process.last_words(), &self.name);
        match status {
            Some(status) => format!("{name} ended ({status}); {said}"),
            None => format!("{name} closed its output and goes on; {said}"),
        }
    }

    /// Tells it to end, and does not wait.
    pub fn close(&mut self) {
        self.input = None;
    }

    /// Asks it to end as a person would, and waits for that; what does not listen is killed.
    pub fn end(self, patience: Duration) {
        let Program { mut process, .. } = self;
        process.ask_to_end();
        process.wait(Instant::now() + patience);
    }

    /// Waits until it has ended after [`Program::close`].
    pub fn wait_end(&mut self, until: Instant) {
        self.process.wait(until);
    }
}

/// The clock that programs are told times by.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn read(line: &str) -> Result<Answer, String> {
    let answer: Answer = serde_json::from_str(line).map_err(|error| format!("that is no answer ({error})"))?;
    if answer.done != answer.latencies_us.len() as u64 {
        return Err(format!("{} done, {} latencies", answer.done, answer.latencies_us.len()));
    }
    if let Some(came) = answer.came_us.as_ref().filter(|came| came.len() != answer.latencies_us.len()) {
        return Err(format!("{} done, {} times", answer.done, came.len()));
    }
    if let Some(rate) = answer.per_second.filter(|rate| !rate.is_finite() || *rate < 0.0) {
        return Err(format!("{rate} requests a second"));
    }
    if !answer.seconds.is_finite() || answer.seconds < 0.0 || (answer.done > 0 && answer.seconds == 0.0) {
        return Err(format!("{} done in {} s", answer.done, answer.seconds));
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Program::start("it".into(), command).unwrap()
    }

    const ORDER: Order = Order { at_ns: 1, seconds: 2.0, rate: 0.0, seed: 3 };

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    /// What is wrong with a program, from its start on.
    fn wrong(script: &str, patience: Duration) -> String {
        let (mut program, interrupt) = (shell(script), Interrupt::default());
        let mut asked = || {
            program.wait_ready(patience, &interrupt)?;
            program.order(&ORDER)?;
            program.answer(Instant::now() + patience, &interrupt)
        };
        asked().unwrap_err()
    }

    #[test]
    fn a_program_is_told_and_answers() {
        let mut program = shell(
            "echo loading; echo ready; read line; echo \"$line\" >&2; \
             echo '{\"done\": 2, \"seconds\": 1.5, \"latencies_us\": [7, 9]}'; cat > /dev/null",
        );
        let interrupt = Interrupt::default();
        program.wait_ready(Duration::from_secs(20), &interrupt).unwrap();
        program.order(&ORDER).unwrap();
        let answer = program.answer(soon(), &interrupt).unwrap();
        let latencies_us = vec![7, 9];
        assert_eq!(answer, Answer { done: 2, seconds: 1.5, latencies_us, came_us: None, per_second: None });
        program.close();
        program.wait_end(soon());
        assert!(program.process.ended().unwrap().success());
        let said = program.process.last_words();
        assert_eq!(said, "it said last: loading / {\"at_ns\":1,\"seconds\":2.0,\"rate\":0.0,\"seed\":3}");
    }

    #[test]
    fn what_goes_wrong_is_said_with_its_last_words() {
        let long = Duration::from_secs(20);
        let died = wrong("echo no memory >&2; exit 3", long);
        assert_eq!(died, "it ended (exit status: 3); it said last: no memory");
        assert!(wrong("echo ready; exit 4", long).contains("it ended (exit status: 4)"));
        assert!(wrong("echo ready; read line; kill -9 $$", long).contains("signal: 9"));
        let silent = wrong("echo loading; sleep 60", Duration::from_millis(300));
        assert_eq!(silent, "it did not say `ready` within 0.3 s; it said last: loading");
        assert!(wrong("echo ready; sleep 60", Duration::from_millis(300)).contains("did not answer in time"));
        let garbage = wrong("echo ready; read line; echo garbage; sleep 60", long);
        assert!(garbage.starts_with("it answered `garbage`: that is no answer"), "{garbage}");
        let count = "echo ready; read line; echo '{\"done\":2,\"seconds\":1,\"latencies_us\":[7]}'; sleep 60";
        assert!(wrong(count, long).contains("2 done, 1 latencies"));
        let times =
            "echo ready; read line; echo '{\"done\":1,\"seconds\":1,\"latencies_us\":[7],\"came_us\":[]}'; sleep 60";
        assert!(wrong(times, long).contains("1 done, 0 times"));
        let never = "echo ready; read line; echo '{\"done\":1,\"seconds\":0,\"latencies_us\":[7]}'; sleep 60";
        assert!(wrong(never, long).contains("1 done in 0 s"));
        let less =
            "echo ready; read line; echo '{\"done\":0,\"seconds\":1,\"latencies_us\":[],\"per_second\":-1}'; sleep 60";
        assert!(wrong(less, long).contains("-1 requests a second"));
        let missing = Program::start("it".into(), Command::new("/nothing/of/this/name")).unwrap_err();
        assert_eq!(missing, "it cannot be started: /nothing/of/this/name: no such file or folder");
    }
}
