//! What the library adds to a latency tenant's launch: nanoseconds, and instructions by valgrind where it is installed.
//!
//! `cargo bench -p weft-shim` prints both and fails above 150 ns or 500 instructions. The driver does nothing, 50
//! identities are launched in turn, 200 in a burst, and a daemon is there. Beside others every launch is looked at;
//! alone, once enough bursts were, those of one burst in 32. Instructions are the difference between N and 2N launches, with
//! and without the library; the clock is read with a system call there, because valgrind hides the kernel's quick way.
//!
//! A program that does much between two launches finds nothing of ours in its nearest caches, or in none: what that costs
//! is printed for so many kilobytes of other code, and as much other data, in between. It is what programs feel, and varies
//! too much to fail.

#[path = "../tests/support/mod.rs"]
mod support;

use shm::{ControlPage, now_ns};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::{Daemon, library};

const NANOSECONDS_MAX: f64 = 150.0;
const INSTRUCTIONS_MAX: f64 = 500.0;
/// Kilobytes in between: more than the nearest caches of a core hold, and about as much as a core has for itself.
const BETWEEN: [&str; 2] = ["128", "1024"];

struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn compile(&self, source: &str, out: &str, options: &[&str]) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches").join(source);
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-w"]).args(options).arg(source).arg("-o").arg(self.path(out)).arg("-ldl");
        assert!(gcc.status().expect("gcc is needed").success());
    }

    fn command(&self, program: &str, shared: bool) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.folder.path()).env("WEFT_SOCKET", self.path("node.sock"));
        if shared {
            command.env("LD_PRELOAD", library());
        }
        command
    }

    /// Nanoseconds of one launch after another.
    fn nanoseconds(&self, shared: bool) -> f64 {
        self.measure(shared, &["200000", "15"])
    }

    /// The same with so many kilobytes of other code and data in between: the least of several, with and without in
    /// turns.
    fn nanoseconds_cold(&self, kilobytes: &str) -> (f64, f64) {
        (0..7).fold((f64::MAX, f64::MAX), |(without, with), _| {
            let once = |shared| self.measure(shared, &["2000", "10", kilobytes]);
            (once(false).min(without), once(true).min(with))
        })
    }

    fn measure(&self, shared: bool, arguments: &[&str]) -> f64 {
        let program = self.path("launch");
        let output = self.command(program.to_str().unwrap(), shared).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
    }

    /// Instructions of one launch; `None` without valgrind.
    fn instructions(&self, shared: bool) -> Option<f64> {
        let count = |launches: u32| -> Option<f64> {
            let mut command = Command::new("valgrind");
            command.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", self.path("callgrind").display()));
            command.env("LD_LIBRARY_PATH", self.folder.path()).env("WEFT_SOCKET", self.path("node.sock"));
            if shared {
                command.env("LD_PRELOAD", library());
            }
            let output = command.arg(self.path("launch")).arg(launches.to_string()).arg("1").output().ok()?;
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            let line = text.lines().find(|line| line.contains("Collected"))?;
            line.rsplit(' ').next()?.parse().ok()
        };
        Some((count(40_000)? - count(20_000)?) / 20_000.0)
    }
}

#[allow(clippy::print_stdout, reason = "a benchmark prints")]
impl Bench {
    /// Everything that a latency tenant is measured for.
    fn latency_tenant(&self, who: &str, daemon: &Daemon) {
        let (without, with) = (self.nanoseconds(false), self.nanoseconds(true));
        assert_eq!(daemon.pages()[0].launches, 15 * 200_000, "the daemon saw them");
        let added = with - without;
        println!("{who}: {added:.1} ns added to a launch ({without:.1} ns without, {with:.1} ns with)");
        assert!(added <= NANOSECONDS_MAX, "at most {NANOSECONDS_MAX} ns");
        for kilobytes in BETWEEN {
            let (without, with) = self.nanoseconds_cold(kilobytes);
            let added = with - without;
            println!(
                "{who}, {kilobytes} KB of other code in between: {added:.0} ns ({without:.0} without, {with:.0} with)"
            );
        }
        match (self.instructions(false), self.instructions(true)) {
            (Some(without), Some(with)) => {
                let added = with - without;
                println!("{who}: {added:.0} instructions ({without:.0} without, {with:.0} with)");
                assert!(added <= INSTRUCTIONS_MAX, "at most {INSTRUCTIONS_MAX} instructions");
            }
            _ => println!("SKIPPED: instructions (valgrind is not installed)"),
        }
    }
}

#[allow(clippy::print_stdout, reason = "a benchmark prints")]
fn main() {
    let bench = Bench { folder: tempfile::tempdir().unwrap() };
    bench.compile("null.c", "libcuda.so.1", &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]);
    bench.compile("launch.c", "launch", &[]);
    for (who, others) in [("beside others", !0), ("alone", 0)] {
        let rule = move |control: &ControlPage| control.others.store(others, Ordering::Relaxed);
        let daemon = Daemon::bind(&bench.path("node.sock"), now_ns(), rule);
        served(&daemon, || bench.latency_tenant(who, &daemon));
    }
    let daemon = Daemon::bind(&bench.path("node.sock"), now_ns(), |control| {
        control.class.store(2, Ordering::Relaxed);
        control.budget_ns.store(u64::MAX, Ordering::Relaxed);
    });
    let (without, with) = served(&daemon, || (bench.nanoseconds(false), bench.nanoseconds(true)));
    println!("best-effort tenant, gate open: {:.1} ns added to a launch", with - without);
}

/// Does something while a daemon serves whoever comes.
fn served<T>(daemon: &Daemon, work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                daemon.serve_at(now_ns());
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let done = work();
        over.store(true, Ordering::Relaxed);
        done
    })
}
