//! What a process and its children use, from `/proc`.

use crate::program::Program;
use std::iter::Sum;
use std::time::Duration;

/// A process, told apart from a later one with the same number by when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    number: u32,
    started: u64,
}

/// Memory in bytes. What several processes share is divided among them in `proportional` and counted for each in
/// `resident`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) proportional: u64,
    pub(crate) resident: u64,
}

impl Sum for Memory {
    fn sum<I: Iterator<Item = Memory>>(parts: I) -> Memory {
        parts.fold(Memory::default(), |sum, part| Memory {
            proportional: sum.proportional + part.proportional,
            resident: sum.resident + part.resident,
        })
    }
}

/// What `/proc/N/stat` says of a process.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    parent: u32,
    /// In ticks, of which Linux shows 100 a second on every machine.
    user: u64,
    system: u64,
    started: u64,
}

const TICK: Duration = Duration::from_millis(10);

/// The process with this number, first, and all its descendants. Empty when it is gone.
pub(super) fn tree(root: u32) -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let all: Vec<(u32, Stat)> = numbers.filter_map(|number| Some((number, stat(number)?))).collect();
    let mut tree: Vec<Process> = Vec::new();
    let mut next = vec![root];
    while let Some(number) = next.pop() {
        let found = all.iter().find(|(other, _)| *other == number);
        tree.extend(found.map(|(number, stat)| Process { number: *number, started: stat.started }));
        next.extend(all.iter().filter(|(_, stat)| stat.parent == number).map(|(child, _)| *child));
    }
    tree
}

pub(super) fn is_alive(process: &Process) -> bool {
    stat(process.number).is_some_and(|stat| stat.started == process.started && stat.state != 'Z')
}

pub(super) fn processor_time(process: &Process) -> Option<Duration> {
    let stat = stat(process.number)?;
    Some(TICK * u32::try_from(stat.user + stat.system).ok()?)
}

pub(super) fn memory(process: &Process) -> Memory {
    let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", process.number)).unwrap_or_default();
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().next().and_then(|kibibytes| kibibytes.parse::<u64>().ok()).unwrap_or(0) * 1024
    };
    Memory { proportional: bytes("Pss:"), resident: bytes("Rss:") }
}

/// Sends a signal to each. One that is gone does not matter.
pub(super) fn signal(name: &str, processes: &[Process]) {
    for process in processes {
        let command = format!("kill -{name} {}", process.number);
        Program::new("sh").arguments(["-c", &command]).works();
    }
}

/// Processes that wanted to run over the last minute, on average; 0 when it cannot be known.
pub(crate) fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

fn stat(number: u32) -> Option<Stat> {
    parse(&std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?)
}

fn parse(text: &str) -> Option<Stat> {
    // The name comes second, in brackets, and may itself have brackets and spaces.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: u32::try_from(number(1)?).ok()?,
        user: number(11)?,
        system: number(12)?,
        started: number(19)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_brackets_and_spaces() {
        let text = "12 (a) b) S 7 12 12 0 -1 0 0 0 0 0 31 4 0 0 20 0 1 0 5555 0 0";
        assert_eq!(parse(text), Some(Stat { state: 'S', parent: 7, user: 31, system: 4, started: 5555 }));
        assert_eq!(parse("12 (a"), None);
    }

    #[test]
    fn this_process_is_alive_and_holds_memory() {
        let tree = tree(std::process::id());
        assert!(is_alive(&tree[0]));
        assert!(memory(&tree[0]).resident > 0);
        assert!(memory(&tree[0]).proportional <= memory(&tree[0]).resident);
    }
}
