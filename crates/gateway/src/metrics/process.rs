//! What the kernel knows about this process.

use std::fs;

/// The kernel counts processor time for user space in hundredths of a second, whatever its own clock.
const TICKS_PER_SECOND: f64 = 100.0;

/// What a process has used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Process {
    /// Processor time, in user and in kernel mode.
    pub(crate) cpu_seconds: f64,
    /// Memory that is in use now.
    pub(crate) resident_bytes: u64,
    /// Threads it has.
    pub(crate) threads: u64,
}

impl Process {
    /// This one; none where there is no `/proc`.
    pub(crate) fn own() -> Option<Process> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let status = fs::read_to_string("/proc/self/status").ok()?;
        Process::parse(&stat, &status)
    }

    fn parse(stat: &str, status: &str) -> Option<Process> {
        // The second field is a name in brackets that may hold anything, so counting begins after its end.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |place: usize| fields.get(place)?.parse::<u64>().ok();
        let kibibytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim();
        Some(Process {
            cpu_seconds: (number(11)? + number(12)?) as f64 / TICKS_PER_SECOND,
            resident_bytes: kibibytes.strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10,
            threads: number(17)?,
        })
    }
}

/// Open files of this process.
pub(crate) fn open_files() -> Option<usize> {
    // One of them is the folder that is being read.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_moves_nothing() {
        let stat = "42 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 50 13 14 20 0 9 0 1000 1 2";
        let parsed = Process::parse(stat, "Name:\ta\nVmRSS:\t    2048 kB\nThreads:\t9\n");
        assert_eq!(parsed, Some(Process { cpu_seconds: 2.0, resident_bytes: 2 << 20, threads: 9 }));
        assert_eq!(Process::parse("", ""), None);
    }

    #[test]
    fn this_process_is_there() {
        let own = Process::own().expect("tests run on Linux");
        assert!(own.resident_bytes > 1 << 20 && own.threads >= 1, "{own:?}");
        assert!(open_files().unwrap() >= 3);
    }
}
