//! What a process and its children use, from `/proc`.

use crate::program::Program;
use std::iter::Sum;
use std::time::Duration;

/// A process, told apart from a later one with the same number by when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process {
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
    /// Of children that ended and were waited for.
    children: u64,
    started: u64,
}

const TICK: Duration = Duration::from_millis(10);

/// The process with this number, first, and all its descendants. Empty when it is gone.
pub(crate) fn tree(root: u32) -> Vec<Process> {
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

pub(crate) fn is_alive(process: &Process) -> bool {
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

/// How a process was called, its words apart by spaces.
pub(crate) fn command_line(process: &Process) -> String {
    let text = std::fs::read(format!("/proc/{}/cmdline", process.number)).unwrap_or_default();
    String::from_utf8_lossy(&text).replace('\0', " ")
}

/// Sends a signal to each. One that is gone does not matter.
pub(super) fn signal(name: &str, processes: &[Process]) {
    for process in processes {
        let command = format!("kill -{name} {}", process.number);
        Program::new("sh").arguments(["-c", &command]).works();
    }
}

/// Processor time of the whole machine, and of the programs that this one ran to their end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MachineTime {
    busy: Duration,
    all: Duration,
    stolen: Duration,
    own: Duration,
}

impl MachineTime {
    pub(crate) fn now() -> MachineTime {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let own = std::fs::read_to_string("/proc/self/stat").ok().and_then(|text| parse(&text));
        let ticks = |count: u64| TICK * u32::try_from(count).unwrap_or(u32::MAX);
        let [busy, all, stolen] = machine(&text).unwrap_or_default();
        let own = own.map_or(0, |stat| stat.user + stat.system + stat.children);
        MachineTime { busy: ticks(busy), all: ticks(all), stolen: ticks(stolen), own: ticks(own) }
    }

    /// The part of the machine since then that had work to do while its host did something else.
    pub(crate) fn stolen_since(self, start: MachineTime) -> f64 {
        let all = self.all.saturating_sub(start.all).max(TICK);
        self.stolen.saturating_sub(start.stolen).as_secs_f64() / all.as_secs_f64()
    }

    /// The part of the machine that others used since then, when a server used `server`.
    pub(crate) fn others_since(self, start: MachineTime, server: Duration) -> f64 {
        let others = self
            .busy
            .saturating_sub(start.busy)
            .saturating_sub(self.own.saturating_sub(start.own))
            .saturating_sub(server);
        others.as_secs_f64() / self.all.saturating_sub(start.all).max(TICK).as_secs_f64()
    }
}

/// Ticks in which the machine's cores worked, all ticks, and those that were stolen.
fn machine(text: &str) -> Option<[u64; 3]> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    // User, nice, system, idle, waiting for a disk, interrupts, soft interrupts, stolen; then what user has already.
    let ticks: Vec<u64> = line.split_whitespace().take(8).filter_map(|tick| tick.parse().ok()).collect();
    let all = ticks.iter().sum();
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some([all - idle, all, *ticks.get(7)?])
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
        children: number(13)? + number(14)?,
        started: number(19)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_brackets_and_spaces() {
        let text = "12 (a) b) S 7 12 12 0 -1 0 0 0 0 0 31 4 2 1 20 0 1 0 5555 0 0";
        assert_eq!(parse(text), Some(Stat { state: 'S', parent: 7, user: 31, system: 4, children: 3, started: 5555 }));
        assert_eq!(parse("12 (a"), None);
    }

    #[test]
    fn what_is_neither_the_servers_nor_ours_is_others() {
        assert_eq!(machine("cpu  10 0 20 60 10 0 0 0 5 5\ncpu0 1"), Some([30, 100, 0]));
        let [zero, second] = [Duration::ZERO, Duration::from_secs(1)];
        let start = MachineTime { busy: second, all: second * 10, stolen: second, own: zero };
        let end = MachineTime { busy: second * 9, all: second * 20, stolen: second * 3, own: second * 2 };
        assert_eq!(end.others_since(start, second * 5), 0.1);
        assert_eq!(end.stolen_since(start), 0.2);
        assert_eq!(end.others_since(start, second * 7), 0.0);
    }

    #[test]
    fn this_process_is_alive_and_holds_memory() {
        let tree = tree(std::process::id());
        assert!(is_alive(&tree[0]));
        assert!(memory(&tree[0]).resident > 0);
        assert!(memory(&tree[0]).proportional <= memory(&tree[0]).resident);
    }
}
