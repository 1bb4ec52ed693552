//! The test programs on the stand-in: what they print, and what the books say of them.

mod support;

use fakecuda::book::SLOTS;
use fakecuda::state::GRAVES;
use support::TestMachine;

const GIB: u64 = 1 << 30;

fn check(name: &str, arguments: &[&str], expected: &str) -> TestMachine {
    let machine = TestMachine::new(GIB);
    assert_eq!(machine.run(name, arguments), expected, "{name}");
    machine
}

#[test]
fn hello() {
    let machine = check("hello", &[], "hello from the device\n");
    let [counters] = machine.counters()[..] else { panic!("one process") };
    assert_eq!((counters.launches, counters.given_ns, counters.peak_bytes, counters.used_bytes), (1, 100_000, 64, 0));
}

#[test]
fn graphs_and_the_rules_of_capture() {
    let expected = "\
10 launches of a graph of 5 kernels
nothing: 0, capture status 1, end 0, graph yes
synchronize the stream: 900, capture status 2, end 901, graph no
synchronize the context: 900, capture status 2, end 901, graph no
allocate: 900, capture status 2, end 901, graph no
leave a stream unjoined: 0, capture status 1, end 904, graph no
nothing again: 0, capture status 1, end 0, graph yes
";
    let machine = check("graphs", &[], expected);
    let [counters] = machine.counters()[..] else { panic!("one process") };
    assert_eq!((counters.launches, counters.graph_launches, counters.graph_kernels), (0, 10, 50));
    assert_eq!(counters.given_ns, 5_000_000);
}

#[test]
fn allocations_by_every_path() {
    let expected = "\
alloc 10 MiB: 0, taken
pitch 10 MiB: 0, taken
managed 10 MiB: 0
async 10 MiB: 0, taken
pool 10 MiB: 0, taken
create 10 MiB: 0, taken
mapped memory reads 42
array 10 MiB: 0, taken
array 3D 10 MiB: 0, taken
mipmapped 10 MiB: 0, taken
all given back: yes
alloc 2000 MiB: 2, nothing taken
pitch 2000 MiB: 2, nothing taken
managed 2000 MiB: 2
async 2000 MiB: 2, nothing taken
pool 2000 MiB: 2, nothing taken
create 2000 MiB: 2, nothing taken
array 2000 MiB: 2, nothing taken
array 3D 2000 MiB: 2, nothing taken
mipmapped 2000 MiB: 2, nothing taken
all given back: yes
";
    let machine = check("allocations", &["10", "2000"], expected);
    let [counters] = machine.counters()[..] else { panic!("one process") };
    assert_eq!((counters.allocations, counters.refused, counters.used_bytes), (9, 9, 0));
}

#[test]
fn forks() {
    let expected = "\
child before launched
child before: exit 0
parent launched
child after: cuInit 3, cuCtxSynchronize 3
child after: exit 0
new program launched
child that became a new program: exit 0
parent again launched
";
    let machine = check("forks", &[], expected);
    let launches: Vec<u64> = machine.counters().iter().map(|counters| counters.launches).collect();
    assert_eq!(launches, [10, 10, 20], "the children that may, and the parent, which ends last");
}

#[test]
fn threads() {
    let machine = check("threads", &[], "8 threads, 4000 launches\n");
    assert_eq!(machine.counters()[0].launches, 4000);
}

#[test]
fn events() {
    let expected = "\
not recorded: query 0, elapsed 400
at once: event 600, stream 600
after waiting: event 0
host function called: 1, stream 0
elapsed is the kernels' time: yes
";
    check("events", &[], expected);
}

#[test]
fn time_slices() {
    let expected = "\
4 channel groups
group 0: slice 2048 us, status 0
group 1: slice 1024 us, status 0
group 2: slice 1024 us, status 0
group 3: slice 1024 us, status 0
slice of nothing: status 0x1f
preempt: status 0
schedule: status 0
interleave: as it should be
";
    check("slices", &[], expected);
}

#[test]
fn addresses_by_name_version_and_stream() {
    let machine = TestMachine::new(GIB);
    let text = machine.run("procaddress", &["cuLaunchKernel", "cuCtxSynchronize", "cudnnCreate"]);
    for line in [
        "cuLaunchKernel: dlsym cuLaunchKernel",
        "  12080 flag 1: 0 status 0 cuLaunchKernel; v1 0 the same",
        "  12080 flag 2: 0 status 0 cuLaunchKernel_ptsz; v1 0 the same",
        "  2000 flag 0: 500 status 2 nothing; v1 500 the same",
        "  13000 flag 0: 0 status 0 cuCtxSynchronize_v2; v1 0 the same",
        "cudnnCreate: dlsym nothing",
        "  13000 flag 0: 500 status 1 nothing; v1 500 the same",
    ] {
        assert!(text.lines().any(|printed| printed == line), "{line}\n{text}");
    }
}

#[test]
fn slots_and_graves_run_out_in_order() {
    let machine = TestMachine::new(GIB);
    let gpu = machine.state.gpu(0).unwrap();
    for slot in 0..SLOTS {
        assert_eq!(gpu.attach(), Some(slot));
    }
    assert_eq!(gpu.attach(), None);
    gpu.detach(7);
    assert_eq!(gpu.attach(), Some(7));
    for _ in 0..GRAVES {
        gpu.detach(7);
        assert_eq!(gpu.attach(), Some(7));
    }
    let (living, dead) = gpu.everybody();
    assert_eq!((living.len(), dead.len()), (SLOTS, GRAVES));
}
