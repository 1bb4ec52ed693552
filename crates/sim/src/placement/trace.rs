//! Event traces: a line for every start and end of an instance, as Dilu publishes them.
//!
//! ```text
//! {'Time': '2024-06-19 15:46:09', 'Action': 'start', 'Instance': {'service_name': 'training-8b', 'type': 'training',
//!  'gpu_num': 2, 'sm_requests': 0.55, 'sm_limits': 0.81, 'memory': [30, 30]}}
//! ```
//!
//! on one line. `Action` is `start` or `delete`; `memory` is in GB, one number for each GPU. An instance is told by its
//! service name. Blank lines and lines that start with `#` are skipped.

use super::literal::{Literal, read};
use crate::ScenarioError;
use crate::scenario::source::{Source, unknown};
use policy::InstanceId;
use policy::placement::{Demand, Kind, Need, WHOLE};
use std::collections::BTreeMap;

/// What a cluster is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// GPUs in a machine.
    pub node_gpus: usize,
    /// GB of memory in a GPU.
    pub memory_gb: u32,
}

impl Default for Cluster {
    /// Machines of eight GPUs with 40 GB.
    fn default() -> Cluster {
        Cluster { node_gpus: 8, memory_gb: 40 }
    }
}

/// Bytes in a GB.
const GB: f64 = (1u64 << 30) as f64;
/// GPUs of one instance, at most.
const GPUS_MAX: f64 = 1_024.0;
/// GPUs of all instances at one time, at most.
const LIVE_MAX: usize = 100_000;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// An instance is wanted.
    Start(Demand),
    /// It ends.
    Stop,
}

/// A line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Seconds since the trace began.
    pub seconds: u64,
    /// Whose.
    pub instance: InstanceId,
    /// What.
    pub change: Change,
}

/// Instances that come and go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// In order; every end is that of an instance that has started and not ended.
    pub events: Vec<Event>,
}

/// Reads a trace for a cluster like this. `file` is for messages.
pub fn parse(file: &str, text: &str, cluster: Cluster) -> Result<Trace, ScenarioError> {
    let source = Source { file, text };
    let mut events: Vec<Event> = Vec::new();
    // By name: which one it is, where it started, and its GPUs.
    let mut living: BTreeMap<String, (InstanceId, usize, usize)> = BTreeMap::new();
    let (mut first, mut last, mut started, mut live) = (None, 0, 0, 0);
    for (index, line) in text.lines().enumerate() {
        let (number, line) = (index + 1, line.trim());
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let entry = entry(line, cluster).map_err(|problem| source.error_on(number, problem))?;
        let begin = *first.get_or_insert(entry.time);
        if entry.time < begin + last {
            let problem = "the time goes back: expected events in order, so sort the file by Time";
            return Err(source.error_on(number, problem));
        }
        last = entry.time - begin;
        let name = &entry.demand.service;
        let (instance, change) = match (entry.start, living.remove(name)) {
            (true, Some((_, since, _))) => {
                let problem = format!(
                    "instance `{name}` starts but is running since line {since}: end it first, or give it another \
                     service_name"
                );
                return Err(source.error_on(number, problem));
            }
            (true, None) => {
                let id = InstanceId::new(started);
                started += 1;
                live += entry.demand.gpus;
                if live > LIVE_MAX {
                    let problem =
                        format!("more than {LIVE_MAX} GPUs are asked for at one time: replay a smaller trace");
                    return Err(source.error_on(number, problem));
                }
                living.insert(name.clone(), (id, number, entry.demand.gpus));
                (id, Change::Start(entry.demand))
            }
            (false, Some((id, _, gpus))) => {
                live -= gpus;
                (id, Change::Stop)
            }
            (false, None) => {
                let problem =
                    format!("instance `{name}` ends but is not running: expected a line that starts it before");
                return Err(source.error_on(number, problem));
            }
        };
        events.push(Event { seconds: last, instance, change });
    }
    if events.is_empty() {
        let problem = "no events: expected a line like {'Time': '2024-06-19 15:46:09', 'Action': 'start', 'Instance': \
                       {...}}";
        return Err(source.error_on(0, problem));
    }
    Ok(Trace { events })
}

/// What a line says.
struct Entry {
    /// Seconds since 1970.
    time: u64,
    start: bool,
    demand: Demand,
}

fn entry(line: &str, cluster: Cluster) -> Result<Entry, String> {
    let mut keys = Keys::new("the line", read(line)?, &["Time", "Action", "Instance"])?;
    let time = keys.text("Time")?;
    let time =
        seconds(&time).ok_or_else(|| format!("Time '{time}' is no time: expected one like '2024-06-19 15:46:09'"))?;
    let start = match keys.text("Action")?.as_str() {
        "start" => true,
        "delete" => false,
        other => return Err(unknown("Action", other, &["start", "delete"])),
    };
    let names = ["service_name", "type", "gpu_num", "sm_requests", "sm_limits", "memory"];
    let mut keys = Keys::new("Instance", keys.take("Instance")?, &names)?;
    let service = keys.text("service_name")?;
    let kind = match keys.text("type")?.as_str() {
        "inference" => Kind::Inference,
        "training" => Kind::Training,
        "llm-inference" => Kind::Llm,
        other => return Err(unknown("type", other, &["inference", "training", "llm-inference"])),
    };
    let gpus = keys.number("gpu_num")?;
    if gpus.fract() != 0.0 || !(1.0..=GPUS_MAX).contains(&gpus) {
        return Err(format!("gpu_num {gpus} is out of range: expected a whole number from 1 to {GPUS_MAX}"));
    }
    let request = keys.share("sm_requests", 0.001)?;
    let limit = keys.share("sm_limits", f64::from(request) / f64::from(WHOLE))?;
    let memory = memory(keys.take("memory")?, gpus as usize, cluster)?;
    Ok(Entry { time, start, demand: Demand::new(service, kind, gpus as usize, Need::new(request, limit, memory)) })
}

/// Bytes on each GPU.
fn memory(value: Literal, gpus: usize, cluster: Cluster) -> Result<u64, String> {
    let Literal::List(values) = value else {
        return Err(format!("memory is {}: expected a list of GB, one for each GPU", value.name()));
    };
    if values.len() != gpus {
        return Err(format!("memory has {} numbers and gpu_num is {gpus}: expected one for each GPU", values.len()));
    }
    let mut found = None;
    for value in values {
        let Literal::Number(gb) = value else { return Err(format!("memory holds {}: expected GB", value.name())) };
        if gb > f64::from(cluster.memory_gb) {
            return Err(format!(
                "memory {gb} GB is more than a GPU has, {} GB: divide it among more GPUs, or say --gpu-memory",
                cluster.memory_gb
            ));
        }
        if gb < 0.001 {
            return Err(format!("memory {gb} GB is out of range: expected 0.001 to {}", cluster.memory_gb));
        }
        if found.is_some_and(|other| other != gb) {
            return Err("memory differs from GPU to GPU: expected the same number for each".to_owned());
        }
        found = Some(gb);
    }
    Ok((found.unwrap_or_default() * GB).round() as u64)
}

/// A dictionary whose keys are taken one by one.
struct Keys {
    what: &'static str,
    entries: Vec<(String, Literal)>,
}

impl Keys {
    fn new(what: &'static str, value: Literal, known: &[&str]) -> Result<Keys, String> {
        let Literal::Dictionary(entries) = value else {
            return Err(format!("{what} is {}: expected {{'{}': ...}}", value.name(), known.join("': ..., '")));
        };
        for (index, (key, _)) in entries.iter().enumerate() {
            if !known.contains(&key.as_str()) {
                return Err(unknown("key", key, known));
            }
            if entries[..index].iter().any(|(other, _)| other == key) {
                return Err(format!("{what} has the key `{key}` twice: leave one out"));
            }
        }
        Ok(Keys { what, entries })
    }

    fn take(&mut self, key: &str) -> Result<Literal, String> {
        let at = self.entries.iter().position(|(other, _)| other == key);
        at.map(|at| self.entries.swap_remove(at).1).ok_or_else(|| format!("{} has no `{key}`: add it", self.what))
    }

    fn text(&mut self, key: &str) -> Result<String, String> {
        match self.take(key)? {
            Literal::Text(text) => Ok(text),
            other => Err(format!("{key} is {}: expected text in quotes", other.name())),
        }
    }

    fn number(&mut self, key: &str) -> Result<f64, String> {
        match self.take(key)? {
            Literal::Number(number) => Ok(number),
            other => Err(format!("{key} is {}: expected a number", other.name())),
        }
    }

    /// A part of a GPU, in thousandths.
    fn share(&mut self, key: &str, least: f64) -> Result<u32, String> {
        let number = self.number(key)?;
        // Sums of decimals are a little off.
        match number >= least - 1e-9 && number <= 1.0 + 1e-9 {
            true => Ok((number * f64::from(WHOLE)).round() as u32),
            false => Err(format!("{key} {number} is out of range: expected {least} to 1")),
        }
    }
}

/// Seconds since 1970 of a time like `2024-06-19 15:46:09`.
fn seconds(text: &str) -> Option<u64> {
    let (date, time) = text.split_once([' ', 'T'])?;
    let numbers = |text: &str, by: char| -> Option<[u64; 3]> {
        let parts: Vec<&str> = text.split(by).collect();
        let digits =
            |part: &&str| !part.is_empty() && part.len() <= 4 && part.bytes().all(|byte| byte.is_ascii_digit());
        let numbers: Option<Vec<u64>> = parts.iter().map(|part| part.parse().ok().filter(|_| digits(part))).collect();
        numbers?.try_into().ok()
    };
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time, ':')?;
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = [31, if leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let sound = year >= 1970 && (1..=12).contains(&month) && hour < 24 && minute < 60 && second < 60;
    if !sound || day == 0 || day > days[month as usize - 1] {
        return None;
    }
    let years: u64 = (1970..year).map(|year| if leap(year) { 366 } else { 365 }).sum();
    let months: u64 = days[..month as usize - 1].iter().sum();
    Some((((years + months + day - 1) * 24 + hour) * 60 + minute) * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: &str = "{'Time': '2024-06-19 15:46:09', 'Action': 'start', 'Instance': {'service_name': 'a', 'type': \
                         'training', 'gpu_num': 2, 'sm_requests': 0.55, 'sm_limits': 0.5900000000000001, 'memory': \
                         [30, 30]}}";

    fn read_lines(text: &str) -> Result<Trace, String> {
        parse("t.txt", text, Cluster::default()).map_err(|error| error.to_string())
    }

    fn stop() -> String {
        START.replace("start", "delete")
    }

    #[test]
    fn a_trace_is_read() {
        let later = stop().replace("15:46:09", "16:00:00");
        let trace = read_lines(&format!("# a comment\n{START}\n\n{later}\n")).unwrap();
        let need = Need::new(550, 590, 30 << 30);
        let demand = Demand::new("a", Kind::Training, 2, need);
        assert_eq!(
            trace.events,
            [
                Event { seconds: 0, instance: InstanceId(0), change: Change::Start(demand) },
                Event { seconds: 831, instance: InstanceId(0), change: Change::Stop },
            ]
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_the_line_and_what_to_do() {
        let check = |text: &str, expected: &str| assert_eq!(read_lines(text).unwrap_err(), expected);
        check("\n{'Time': 1", "t.txt:2: expected `,` or `}` at the end of the line");
        check("[]", "t.txt:1: the line is a list: expected {'Time': ..., 'Action': ..., 'Instance': ...}");
        check(
            &format!("{START}\n{START}"),
            "t.txt:2: instance `a` starts but is running since line 1: end it first, or give it another service_name",
        );
        check(&stop(), "t.txt:1: instance `a` ends but is not running: expected a line that starts it before");
        check(
            &START.replace("[30, 30]", "[30, 41]"),
            "t.txt:1: memory 41 GB is more than a GPU has, 40 GB: divide it among more GPUs, or say --gpu-memory",
        );
        check(
            &START.replace("[30, 30]", "[30]"),
            "t.txt:1: memory has 1 numbers and gpu_num is 2: expected one for each GPU",
        );
        check(
            &format!("{START}\n{}", stop().replace("15:46", "15:45")),
            "t.txt:2: the time goes back: expected events in order, so sort the file by Time",
        );
        check(
            " \n",
            "t.txt: no events: expected a line like {'Time': '2024-06-19 15:46:09', 'Action': 'start', 'Instance': {...}}",
        );
        check(
            &START.replace("'sm_requests'", "'sm_request'"),
            "t.txt:1: unknown key `sm_request`, did you mean `sm_requests`? expected one of: service_name, type, \
             gpu_num, sm_requests, sm_limits, memory",
        );
        check(&START.replace("0.55", "1.5"), "t.txt:1: sm_requests 1.5 is out of range: expected 0.001 to 1");
        check(
            &START.replace("0.5900000000000001", "0.5"),
            "t.txt:1: sm_limits 0.5 is out of range: expected 0.55 to 1",
        );
        check(
            &START.replace("15:46:09", "25:46:09"),
            "t.txt:1: Time '2024-06-19 25:46:09' is no time: expected one like '2024-06-19 15:46:09'",
        );
        check(
            &START.replace("'start'", "'stat'"),
            "t.txt:1: unknown Action `stat`, did you mean `start`? expected one of: start, delete",
        );
    }

    #[test]
    fn times_are_counted_over_months_and_leap_years() {
        assert_eq!(seconds("1970-01-01 00:00:00"), Some(0));
        assert_eq!(seconds("2024-03-01 00:00:00").unwrap() - seconds("2024-02-28 00:00:00").unwrap(), 2 * 86_400);
        assert_eq!(seconds("2024-06-19 15:46:09"), Some(1_718_811_969));
        for text in
            ["", "2023-02-29 00:00:00", "2024-06-19", "2024-13-01 00:00:00", "-1-01-01 00:00:00", "99999-01-01 0:0:0"]
        {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}
