//! What becomes of the others when a process is killed.

mod support;

use std::io::{BufRead, BufReader};
use std::time::Duration;
use support::{Running, TestMachine, wait_for};

const GIB: u64 = 1 << 30;

#[test]
fn memory_and_queue_of_a_killed_process_are_gone_at_once() {
    let machine = TestMachine::new(GIB);
    let mut holder = machine.start("allocations", &["--hold", "60", "700"]);
    let mut lines = BufReader::new(holder.0.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "holding"));
    assert_eq!(machine.look(|book| book.used_bytes()), 700 << 20);
    holder.0.kill().unwrap();
    // Nobody waits for it, so it stays as a zombie.
    wait_for("its end", || std::fs::read_to_string(format!("/proc/{}/stat", holder.0.id())).unwrap().contains(") Z "));
    wait_for("what it held", || machine.look(|book| (book.used_bytes(), book.occupied().count())) == (0, 0));
    let truth = machine.truth(holder.0.id()).expect("it is remembered");
    assert!(!truth.alive);
    assert_eq!(truth.counters.used_bytes, 700 << 20, "what it held at its end");
}

#[test]
fn memory_of_the_dead_is_there_for_who_needs_it() {
    let machine = TestMachine::new(GIB);
    let mut holder = machine.start("allocations", &["--hold", "60", "900"]);
    let mut lines = BufReader::new(holder.0.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "holding"));
    assert!(machine.run("allocations", &["500"]).starts_with("alloc 500 MiB: 2"));
    holder.0.kill().unwrap();
    holder.0.wait().unwrap();
    assert!(machine.run("allocations", &["500"]).starts_with("alloc 500 MiB: 0"));
}

#[test]
fn others_go_on_while_processes_are_killed_at_random() {
    let machine = TestMachine::new(GIB);
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(11);
    let again = format!("again with: SEED={seed} cargo test -p fakecuda --test deaths");
    let mut random = Random(seed);
    let mut survivor = machine.start("launches", &["--count", "5000", "--us", "100"]);
    let pid = survivor.0.id();
    let start = |machine: &TestMachine, which: u64| match which % 3 {
        // Launches of no time change the books as often as can be, and are killed in the middle of that most often.
        0 => machine.start("launches", &["--count", "100000000", "--us", "0"]),
        1 => machine.start("closedloop", &["--seconds", "60", "--us", "300", "--memory", "50"]),
        _ => machine.start("closedloop", &["--seconds", "60", "--us", "100", "--graphs", "1"]),
    };
    let mut victims: Vec<Running> = (0..10).map(|which| start(&machine, which)).collect();
    for round in 0..40 {
        std::thread::sleep(Duration::from_micros(random.next() % 10_000));
        let victim = (random.next() % 10) as usize;
        victims[victim].0.kill().unwrap();
        // The books can be had after a kill, by whoever waits for them.
        machine.look(|book| book.used_bytes());
        // Killed and replaced; dropping the old one waits for it.
        victims[victim] = start(&machine, round + victim as u64);
    }
    drop(victims);
    assert!(survivor.0.wait().unwrap().success());
    let truth = machine.truth(pid).unwrap();
    assert_eq!((truth.counters.launches, truth.counters.given_ns), (5000, 500_000_000), "{again}");
    // The dead are looked for at most once a millisecond.
    let leaked = || machine.look(|book| (book.used_bytes(), book.occupied().count()));
    wait_for(&format!("the end of all; {again}"), || leaked() == (0, 0));
    let sum: u64 = machine.counters().iter().map(|counters| counters.given_ns).sum();
    assert_eq!(sum, machine.look(|book| book.busy_ns), "time was lost; {again}");
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
