//! Who gets the GPU for how long, by the GPU's own books and a clock that the test moves.

mod support;

use fakecuda::book::{SLICE_NS, Slot};
use std::time::Duration;
use support::{Running, TestMachine};

const GIB: u64 = 1 << 30;

#[test]
fn a_program_gets_exactly_the_time_of_its_kernels() {
    let machine = TestMachine::new(GIB);
    machine.run("launches", &["--count", "300", "--us", "500", "--streams", "4"]);
    let [counters] = machine.counters()[..] else { panic!("one process") };
    assert_eq!((counters.launches, counters.given_ns, counters.submitted_ns), (300, 150_000_000, 150_000_000));
    assert_eq!(machine.look(|book| book.busy_ns), 150_000_000);
}

#[test]
fn a_program_alone_has_the_gpu_all_the_time() {
    let machine = TestMachine::in_virtual_time(GIB);
    let program = busy(&machine, &[]);
    let (before, after) = observe(&machine, &[&program]);
    let (time, given) = (after.0 - before.0, after.1[0].given_ns - before.1[0].given_ns);
    assert_eq!(given, time);
}

#[test]
fn two_busy_programs_share_equally() {
    let machine = TestMachine::in_virtual_time(GIB);
    let programs = [busy(&machine, &[]), busy(&machine, &[])];
    let (before, after) = observe(&machine, &[&programs[0], &programs[1]]);
    let given: Vec<u64> = (0..2).map(|index| after.1[index].given_ns - before.1[index].given_ns).collect();
    assert_eq!(given[0] + given[1], after.0 - before.0, "no time is lost");
    assert!(given[0].abs_diff(given[1]) <= 2 * SLICE_NS, "{given:?}");
}

#[test]
fn shares_follow_slices_set_through_ioctl() {
    let machine = TestMachine::in_virtual_time(GIB);
    let programs = [busy(&machine, &["--slice", "512"]), busy(&machine, &[])];
    let (before, after) = observe(&machine, &[&programs[0], &programs[1]]);
    let given: Vec<u64> = (0..2).map(|index| after.1[index].given_ns - before.1[index].given_ns).collect();
    assert_eq!(given[0] + given[1], after.0 - before.0, "no time is lost");
    assert!((given[0] * 4).abs_diff(given[1]) <= 10 * SLICE_NS, "a quarter of the slice, {given:?}");
}

/// A program that keeps its queue full.
fn busy(machine: &TestMachine, arguments: &[&str]) -> Running {
    let all = [&["--us", "2000", "--seconds", "60"], arguments].concat();
    machine.start("slices", &all)
}

type Observation = (u64, Vec<Slot>);

/// The books at two times that are 300 ms apart and between which every program had work all the time.
fn observe(machine: &TestMachine, programs: &[&Running]) -> (Observation, Observation) {
    let counters = || {
        machine.look(|book| {
            let find = |running: &&Running| book.occupied().find(|(_, slot)| slot.pid == running.0.id());
            let slots: Option<Vec<Slot>> = programs.iter().map(|running| Some(*find(running)?.1)).collect();
            slots.map(|slots| (book.now_ns, slots))
        })
    };
    let full = |slot: &Slot| slot.submitted_ns >= slot.given_ns + 1_500_000_000;
    // A queue that holds more than a second of work cannot run dry in the third of a second that is looked at.
    machine.clock().run_until("full queues", || false, || counters().is_some_and(|(_, slots)| slots.iter().all(full)));
    let before = counters().unwrap();
    machine.clock().run_for(Duration::from_millis(300), || false);
    let after = counters().unwrap();
    assert!(after.1.iter().all(|slot| slot.submitted_ns > slot.given_ns), "a queue ran dry");
    (before, after)
}
