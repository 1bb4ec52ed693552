//! Daemons that hold, limit, die, come back, speak nonsense or another version. Programs live by a clock that the test
//! moves, so that what they see in time is exact.

mod support;
use shm::{BUDGET_NS, Connection, FileList, GATE_HELD, Listener, Message, VERSION};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;
use support::{Daemon, Machine};

const MS: u64 = 1_000_000;

fn launches(machine: &Machine, count: &str, microseconds: &str) -> Command {
    let mut command = program(machine, "launches");
    command.args(["--count", count, "--us", microseconds]);
    command
}

/// Waits after every tenth kernel, for so many seconds.
fn closed_loop(machine: &Machine, seconds: &str, microseconds: &str) -> Command {
    let mut command = program(machine, "closedloop");
    command.args(["--seconds", seconds, "--us", microseconds]);
    command
}

fn program(machine: &Machine, name: &str) -> Command {
    let program = machine.path(name);
    machine.command(&if program.exists() { program } else { machine.compile(name) })
}

#[test]
fn a_quota_holds_launches_and_a_larger_one_lets_them_go() {
    for class in [0, 2] {
        let machine = Machine::new();
        let daemon = Daemon::start(&machine, move |control| {
            control.class.store(class, Ordering::Relaxed);
            control.allowed_ns.store(MS, Ordering::Relaxed);
        });
        let child = machine.start(&mut launches(&machine, "500", "100"));
        let waits = |page: &shm::Tenant| page.waiting_since_ns != 0 && page.charged_ns >= MS;
        machine.run_until(&daemon, "a wait for more", || daemon.pages().first().is_some_and(waits));
        let held = daemon.pages()[0];
        machine.run_for(&daemon, 400);
        assert_eq!(daemon.pages()[0].launches, held.launches, "nothing is launched meanwhile");
        daemon.control(0, |control| {
            control.allowed_ns.store(u64::MAX, Ordering::Relaxed);
            control.set_gate(false);
        });
        assert_eq!(machine.finish(&daemon, child).code, Some(0));
        let page = daemon.pages()[0];
        assert!(page.waiting_since_ns == 0 && page.launches == 500, "{page:?}");
        let waited_ns = page.waited_ns - held.waited_ns;
        // Best-effort launches also wait for what they have outstanding: 50 ms, in all.
        let most_ns = if class == 0 { 402 * MS } else { 452 * MS };
        assert!((400 * MS..most_ns).contains(&waited_ns), "as long as it was held: {waited_ns}");
    }
}

#[test]
fn the_gate_holds_best_effort_launches_until_it_opens_or_the_daemon_dies() {
    for dies in [false, true] {
        let machine = Machine::new();
        let daemon = Daemon::start(&machine, |control| {
            control.class.store(2, Ordering::Relaxed);
            control.set_gate(true);
        });
        let child = machine.start(&mut launches(&machine, "100", "10"));
        machine.run_for(&daemon, 300);
        assert_eq!(daemon.pages()[0].launches, 0);
        daemon.control(0, |control| assert!(control.gate.load(Ordering::Relaxed) & GATE_HELD != 0));
        let before = machine.clock.now_ns();
        let ran = if dies {
            daemon.kill(&machine);
            machine.finish_alone(child)
        } else {
            daemon.control(0, |control| control.set_gate(false));
            machine.finish(&daemon, child)
        };
        assert_eq!(ran.code, Some(0));
        let took = machine.clock.now_ns() - before;
        // A millisecond of kernels, after whatever it takes to see that the daemon is dead.
        let most = if dies { 300 * MS } else { 3 * MS };
        assert!((MS..most).contains(&took), "{took} ns, dies: {dies}");
    }
}

#[test]
fn a_more_important_burst_is_yielded_to_for_a_while() {
    let machine = Machine::new();
    let daemon = Daemon::start(&machine, |control| {
        control.class.store(2, Ordering::Relaxed);
        control.above.store(1 << 63, Ordering::Relaxed);
    });
    // A tenant in the last slot that is busy for ever, or says so.
    daemon.page(63, |page| {
        page.occupy(1, 63, 1, 9);
        page.burst_since_ns.store(1, Ordering::Relaxed);
        page.busy_until_ns.store(machine.clock.now_ns() + 600 * MS, Ordering::Relaxed);
    });
    let ran = machine.run(&daemon, &mut launches(&machine, "5", "10"));
    assert_eq!(ran.code, Some(0));
    let page = daemon.pages()[0];
    assert!(page.waits > 0 && page.waited_ns >= 20 * MS, "{page:?}");
    assert!(page.waited_ns < 600 * MS, "{page:?}");
}

#[test]
fn a_daemon_that_comes_back_is_found_without_a_failure() {
    let machine = Machine::new();
    let rule = |control: &shm::ControlPage| control.class.store(2, Ordering::Relaxed);
    let mut daemon = Daemon::start(&machine, rule);
    let child = machine.start(&mut closed_loop(&machine, "2", "100"));
    let mut before = 0;
    for _ in 0..3 {
        machine.run_for(&daemon, 500);
        assert!(daemon.pages().first().is_some_and(|page| page.launches > before), "found again");
        before = daemon.pages()[0].launches;
        daemon.kill(&machine);
        daemon = Daemon::start(&machine, rule);
    }
    assert_eq!(machine.finish(&daemon, child).code, Some(0));
    assert!(daemon.attaches()[0].1 > 0, "what was charged goes on");
    let truth = machine.truth()[0].counters;
    assert_eq!(daemon.pages()[0].launches, truth.launches);
}

#[test]
fn a_process_that_is_told_another_generation_attaches_again() {
    let machine = Machine::new();
    let daemon = Daemon::start(&machine, |_| {});
    let child = machine.start(&mut closed_loop(&machine, "1", "100"));
    machine.run_for(&daemon, 300);
    daemon.control(0, |control| control.generation.store(1, Ordering::Relaxed));
    assert_eq!(machine.finish(&daemon, child).code, Some(0));
    assert_eq!(daemon.attaches().len(), 2);
}

#[test]
fn control_pages_of_random_bytes_harm_nobody() {
    let mut seed = 0x1234_5678_9abc_def1_u64;
    for round in 0..12 {
        let machine = Machine::new();
        let next = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407 + round);
            seed
        };
        let next = std::sync::Mutex::new(next);
        let valid = round % 2 == 0;
        let daemon = Daemon::start(&machine, move |control| {
            let mut next = next.lock().unwrap();
            for word in [&control.allowed_ns, &control.budget_ns, &control.above, &control.siblings] {
                word.store(next(), Ordering::Relaxed);
            }
            control.memory_limit.store(u64::MAX - 1, Ordering::Relaxed);
            let words = [&control.class, &control.priority, &control.mode, &control.revision];
            for word in words.into_iter().chain([&control.slice_us, &control.admission]) {
                word.store(next() as u32, Ordering::Relaxed);
            }
            if !valid {
                control.magic.store(next() as u32, Ordering::Relaxed);
                control.version.store(next() as u32, Ordering::Relaxed);
                control.gate.store(next() as u32, Ordering::Relaxed);
            }
        });
        let ran = machine.run(&daemon, &mut launches(&machine, "200", "10"));
        assert_eq!(ran.code, Some(0), "round {round}: {}", ran.stderr);
    }
}

/// A daemon that reads what comes and answers with these packets.
fn answers(socket: &Path, packets: Vec<Vec<u8>>, close: bool) {
    let listener = Listener::bind(socket).unwrap();
    std::thread::spawn(move || {
        let mut kept: Vec<Connection> = Vec::new();
        loop {
            if let Ok(connection) = listener.accept(false) {
                connection.set_timeout(Duration::from_millis(100)).unwrap();
                let _ = connection.receive(&mut [0; 1024], &mut FileList::new());
                for packet in &packets {
                    let _ = connection.send(packet, &[]);
                }
                if !close {
                    kept.push(connection);
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn nonsense_and_half_messages_are_outlived() {
    let mut buffer = [0; 1024];
    let attached = Message::Attached { slot: 1, slots: 64, generation: 1, tenant: 1 };
    let whole = attached.encode(&mut buffer).unwrap().to_vec();
    let mut far = whole.clone();
    far[16] = 99;
    let cases: [(Vec<Vec<u8>>, bool); 6] = [
        (vec![], true),
        (vec![b"hello".to_vec()], false),
        (vec![whole[..20].to_vec()], false),
        (vec![whole], false),
        (vec![far], false),
        (vec![vec![0xff; 60_000]], false),
    ];
    for (packets, close) in cases {
        let machine = Machine::new();
        answers(&machine.socket(), packets.clone(), close);
        let ran = machine.alone(&mut launches(&machine, "100", "10"));
        assert_eq!(ran.code, Some(0), "{packets:?}: {}", ran.stderr);
        assert_eq!(ran.stdout, "100 launches of 10 us on 1 streams\n");
        assert_eq!(ran.stderr.matches("weft: ").count(), 1, "{}", ran.stderr);
    }
}

#[test]
fn a_daemon_that_says_nothing_is_outlived() {
    let machine = Machine::new();
    answers(&machine.socket(), vec![], false);
    let ran = machine.alone(&mut launches(&machine, "100", "10"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(ran.stdout, "100 launches of 10 us on 1 streams\n");
}

#[test]
fn another_version_is_said_once_and_the_program_runs_on() {
    let machine = Machine::new();
    let mut buffer = [0; 1024];
    let mut refusal = Message::Refused { version: 7, text: "speak version 7" }.encode(&mut buffer).unwrap().to_vec();
    refusal[4] = 7;
    answers(&machine.socket(), vec![refusal], false);
    let ran = machine.alone(&mut launches(&machine, "100", "10"));
    assert_eq!(ran.code, Some(0));
    let said = format!("weft: the daemon speaks version 7 and this library version {VERSION}; nothing is limited");
    assert!(ran.stderr.contains(&said), "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("weft: ").count(), 1, "{}", ran.stderr);
    let quiet = machine.alone(launches(&machine, "100", "10").env("WEFT_QUIET", "1"));
    assert!(!quiet.stderr.contains("weft: "));
}

#[test]
fn slices_are_set_and_given_back() {
    let machine = Machine::new();
    let daemon = Daemon::start(&machine, |_| {});
    let child = machine.start(&mut closed_loop(&machine, "2", "100"));
    machine.run_for(&daemon, 500);
    let page = daemon.pages()[0];
    assert!(page.channel_groups > 0, "{page:?}");
    let set = |microseconds, revision| {
        daemon.control(0, |control| {
            control.slice_us.store(microseconds, Ordering::Relaxed);
            control.revision.store(revision, Ordering::Release);
        });
        machine.run_for(&daemon, 300);
        let page = daemon.pages()[0];
        (page.slice_us, page.slice_capability, machine.truth()[0].counters.slice_ns / 1000)
    };
    let own = machine.truth()[0].counters.slice_ns / 1000;
    assert_eq!(set(400, 5), (400, 1, 400));
    assert_eq!(set(0, 6), (0, 1, own));
    assert_eq!(machine.finish(&daemon, child).code, Some(0));
}

/// A daemon whose best-effort processes leave the GPU to the bursts of a tenant in the last slot.
fn preempting_daemon(machine: &Machine, budget_ns: u64) -> Daemon {
    let daemon = Daemon::start(machine, move |control| {
        control.budget_ns.store(budget_ns, Ordering::Relaxed);
        control.class.store(shm::Class::BestEffort as u32, Ordering::Relaxed);
        control.admission.store(shm::Admission::Exclusive as u32, Ordering::Relaxed);
        control.above.store(1 << 63, Ordering::Relaxed);
    });
    daemon.page(63, |page| page.occupy(1, 63, 1, 9));
    daemon
}

/// The tenant in the last slot begins a burst, or ends it.
fn burst(machine: &Machine, daemon: &Daemon, goes_on: bool) {
    daemon.page(63, |page| {
        let until = if goes_on { machine.clock.now_ns() + 900 * MS } else { 0 };
        page.busy_until_ns.store(until, Ordering::Relaxed);
        page.burst_since_ns.store(until / 2, Ordering::Relaxed);
    });
}

/// Whether the GPU's word on the only process is that its queue is held.
fn is_held(machine: &Machine) -> bool {
    machine.truth()[0].counters.held != 0
}

/// Whether a program had all of the time that passed. To look at the clock moves it a little.
fn is_all(got_ns: u64, passed_ns: u64) -> bool {
    got_ns.abs_diff(passed_ns) < 10_000
}

/// What it takes to see a burst begin or end and to disable or enable channels, at most: a slow poll and a fast one.
const SEEN_WITHIN_MS: u64 = 3;

#[test]
fn what_runs_is_off_the_gpu_within_bursts_of_others() {
    let machine = Machine::new();
    let daemon = preempting_daemon(&machine, BUDGET_NS);
    let mut child = machine.start(&mut closed_loop(&machine, "60", "100000"));
    machine.run_for(&daemon, 400);
    for round in 1..=3 {
        assert!(!is_held(&machine), "round {round}");
        burst(&machine, &daemon, true);
        machine.run_for(&daemon, SEEN_WITHIN_MS);
        assert!(is_held(&machine), "round {round}");
        let given = || machine.truth()[0].counters.given_ns;
        let before = given();
        machine.run_for(&daemon, 60);
        assert_eq!(given(), before, "in the middle of a kernel");
        burst(&machine, &daemon, false);
        machine.run_for(&daemon, SEEN_WITHIN_MS);
        assert!(!is_held(&machine), "round {round}");
        let (before, began) = (given(), machine.clock.now_ns());
        machine.run_for(&daemon, 60);
        let (got, passed) = (given() - before, machine.clock.now_ns() - began);
        assert!(is_all(got, passed) && passed >= 60 * MS, "and has all of it again: {got} of {passed}");
        let page = daemon.pages()[0];
        assert!(page.preemptions == round && page.preempt_capability == 1 && page.channels == 8, "{page:?}");
    }
    burst(&machine, &daemon, true);
    machine.run_for(&daemon, SEEN_WITHIN_MS);
    assert!(is_held(&machine));
    daemon.kill(&machine);
    // The lease ends by itself.
    machine.clock.run_for(Duration::from_millis(250), || false);
    assert!(!is_held(&machine));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// On an H200 a training that waited for a step in slices of 150 us never had one of 20 ms, and so never ended the step.
#[test]
fn slices_are_set_while_a_program_waits_for_its_work() {
    let machine = Machine::new();
    let daemon = preempting_daemon(&machine, BUDGET_NS);
    let mut child = machine.start(&mut closed_loop(&machine, "60", "100000"));
    machine.run_for(&daemon, 410);
    let launches = daemon.pages()[0].launches;
    daemon.control(0, |control| {
        control.slice_us.store(400, Ordering::Relaxed);
        control.revision.store(5, Ordering::Release);
    });
    machine.run_for(&daemon, 2 * SEEN_WITHIN_MS);
    let page = daemon.pages()[0];
    assert_eq!((page.slice_us, page.launches), (400, launches), "{page:?}");
    assert_eq!(machine.truth()[0].counters.slice_ns, 400_000);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// What is off the GPU does not go on, and what is launched meanwhile is not late by all of that time: what a program believes
/// to be in flight is what is.
#[test]
fn who_was_held_off_the_gpu_knows_what_is_in_flight() {
    let machine = Machine::new();
    let daemon = preempting_daemon(&machine, 4 * MS);
    let mut child = machine.start(&mut launches(&machine, "60000", "1000"));
    // What it launched before it knew how long that takes is over.
    machine.run_for(&daemon, 800);
    for (held, milliseconds) in [(true, 300), (false, 10)] {
        daemon.control(0, |control| control.set_gate(held));
        machine.run_for(&daemon, milliseconds);
        assert_eq!(is_held(&machine), held);
        let page = daemon.pages()[0];
        let left = page.launches * MS - machine.truth()[0].counters.given_ns;
        let believed = page.busy_until_ns.saturating_sub(machine.clock.now_ns());
        assert!(believed.abs_diff(left) < 2 * MS, "held: {held}, {believed} of {left} ns");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A program on two GPUs is preempted, and its slices are set, on the one where somebody needs it.
#[test]
fn programs_on_several_gpus_are_preempted_on_each() {
    let machine = Machine::new();
    let daemon = preempting_daemon(&machine, BUDGET_NS);
    let mut both = program(&machine, "both");
    let mut child = machine.start(both.args(["--seconds", "2", "--us", "100000"]).env("FAKECUDA_GPUS", "2"));
    machine.run_for(&daemon, 400);
    let gpus = daemon.gpus();
    assert_eq!(gpus.len(), 2);
    let slot_of = |gpu: usize| gpus.iter().position(|uuid| *uuid == machine.uuid(gpu)).unwrap();
    let counters = |gpu: usize| machine.truth().iter().find(|truth| truth.gpu == gpu).unwrap().counters;
    // Only one of the GPUs has somebody more important on it.
    daemon.control(slot_of(0), |control| control.above.store(0, Ordering::Relaxed));
    let given = || [0, 1].map(|gpu| counters(gpu).given_ns);
    burst(&machine, &daemon, true);
    machine.run_for(&daemon, SEEN_WITHIN_MS);
    // What each got in the next 60 ms, and how long those were.
    let got = || {
        let (before, began) = (given(), machine.clock.now_ns());
        machine.run_for(&daemon, 60);
        let after = given();
        ([after[0] - before[0], after[1] - before[1]], machine.clock.now_ns() - began)
    };
    let ([on, off], passed) = got();
    assert!(is_all(on, passed) && off == 0, "off one, and on the other: {on} and {off} of {passed}");
    burst(&machine, &daemon, false);
    machine.run_for(&daemon, SEEN_WITHIN_MS);
    let (both, passed) = got();
    assert!(both.iter().all(|one| is_all(*one, passed)), "{both:?} of {passed}");
    let preemptions = |gpu: usize| daemon.pages()[slot_of(gpu)].preemptions;
    assert_eq!([preemptions(0), preemptions(1)], [0, 1]);

    let own = counters(0).slice_ns / 1000;
    daemon.control(slot_of(1), |control| {
        control.slice_us.store(400, Ordering::Relaxed);
        control.revision.store(5, Ordering::Release);
    });
    machine.run_until(&daemon, "the next launch", || daemon.pages()[slot_of(1)].slice_us == 400);
    assert_eq!([0, 1].map(|gpu| counters(gpu).slice_ns / 1000), [own, 400]);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// What cannot be told apart is left alone, and nobody says otherwise.
#[test]
fn programs_on_gpus_that_cannot_be_told_apart_run_on() {
    let machine = Machine::new();
    let daemon = preempting_daemon(&machine, BUDGET_NS);
    let mut both = program(&machine, "both");
    both.args(["--seconds", "0.5", "--us", "10000"]).env("FAKECUDA_GPUS", "2").env("FAKECUDA_REFUSES", "identity");
    let child = machine.start(&mut both);
    machine.run_for(&daemon, 150);
    burst(&machine, &daemon, true);
    for slot in [0, 1] {
        daemon.control(slot, |control| {
            control.slice_us.store(400, Ordering::Relaxed);
            control.revision.store(5, Ordering::Release);
        });
    }
    machine.run_for(&daemon, 20);
    assert!(machine.truth().iter().all(|truth| truth.counters.held == 0 && truth.counters.slice_ns != 400_000));
    for page in daemon.pages() {
        assert!(page.preempt_capability > 1 && page.preemptions == 0 && !page.preempted, "{page:?}");
        assert_eq!((page.slice_us, page.slice_capability), (0, 0), "{page:?}");
    }
    burst(&machine, &daemon, false);
    assert_eq!(machine.finish(&daemon, child).code, Some(0));
}

#[test]
fn a_driver_that_takes_nothing_off_is_asked_once() {
    let machine = Machine::new();
    let daemon = preempting_daemon(&machine, BUDGET_NS);
    let child = machine.start(closed_loop(&machine, "1", "2000").env("FAKECUDA_REFUSES", "preempt"));
    machine.run_for(&daemon, 300);
    burst(&machine, &daemon, true);
    machine.run_for(&daemon, 200);
    let page = daemon.pages()[0];
    assert!(page.preempt_capability > 1 && page.preemptions == 0 && !page.preempted, "{page:?}");
    assert!(!is_held(&machine));
    burst(&machine, &daemon, false);
    assert_eq!(machine.finish(&daemon, child).code, Some(0));
}

/// Kernels of 1 ms take twice as long on 64 of 132 SMs, and are done in the order in which they were launched.
#[test]
fn long_kernels_are_confined_from_one_launch_to_the_next() {
    let machine = Machine::new();
    let daemon = Daemon::start(&machine, |control| control.class.store(2, Ordering::Relaxed));
    let mut child = machine.start(&mut closed_loop(&machine, "60", "1000"));
    machine.run_for(&daemon, 300);
    // Kernels in 700 ms, and how many of them were confined.
    let kernels = |permille| {
        daemon.control(0, |control| control.space_permille.store(permille, Ordering::Relaxed));
        machine.run_for(&daemon, 300);
        let before = daemon.pages()[0];
        machine.run_for(&daemon, 700);
        let after = daemon.pages()[0];
        (after.launches - before.launches, after.confined - before.confined)
    };
    let (all, half, again) = (kernels(0), kernels(500), kernels(1000));
    assert_eq!(daemon.pages()[0].space_capability, 1);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((all.1, again.1), (0, 0));
    assert_eq!(half.0, half.1, "every kernel is confined");
    // Launched in tens.
    assert!(all.0.abs_diff(700) <= 20 && again.0.abs_diff(700) <= 20, "{all:?} and {again:?} of 700");
    assert!(half.0.abs_diff(700 * 64 / 132) <= 20, "{half:?} of {}", 700 * 64 / 132);
}

/// What the driver refuses is launched as the program asked, and given up after a few times.
#[test]
fn a_driver_that_confines_nothing_runs_everything() {
    let machine = Machine::new();
    let daemon = Daemon::start(&machine, |control| {
        control.class.store(2, Ordering::Relaxed);
        control.space_permille.store(500, Ordering::Relaxed);
    });
    let ran = machine.run(&daemon, closed_loop(&machine, "0.5", "1000").env("FAKECUDA_REFUSES", "parts"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let page = daemon.pages()[0];
    assert!(page.confined == 0 && page.space_capability > 1 && page.launches > 450, "{page:?}");
}

#[test]
fn what_one_run_learned_the_next_knows() {
    for class in [0, 1, 2] {
        let machine = Machine::new();
        let daemon = Daemon::start(&machine, move |control| control.class.store(class, Ordering::Relaxed));
        let runs = |command: &mut Command| {
            let ran = machine.run(&daemon, command);
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
            daemon.pages().last().unwrap().charged_ns
        };
        let first = runs(&mut launches(&machine, "1", "20000"));
        assert!(first < 100_000, "class {class}: {first} before anything is known");
        runs(closed_loop(&machine, "0.7", "20000").args(["--every", "1"]));
        let next = runs(&mut launches(&machine, "1", "20000"));
        assert!(next.abs_diff(20 * MS) < MS, "class {class}: {next} with what was learned");
        let other = runs(&mut launches(&machine, "1", "30000"));
        assert!(other < 100_000, "class {class}: {other} for another kernel");
    }
}

#[test]
fn a_lone_tenant_is_tracked_again_when_another_comes() {
    const EVERY: u64 = 20;
    let machine = Machine::new();
    let daemon = Daemon::start(&machine, |control| control.others.store(0, Ordering::Relaxed));
    let mut child = machine.start(program(&machine, "bursts").args(["--bursts", "100000"]));
    // Of so many more bursts, in thousandths, how many were tracked.
    let tracked = |bursts: u64| {
        let seen = || daemon.pages().first().map_or((0, 0), |page| (page.launches, page.bursts));
        let (launches, before) = seen();
        machine.run_until(&daemon, "launches", || seen().0 >= launches + bursts * EVERY);
        let (now, tracked) = seen();
        (tracked - before) * EVERY * 1000 / (now - launches)
    };
    tracked(100);
    let alone = tracked(300);
    daemon.control(0, |control| control.others.store(2, Ordering::Relaxed));
    tracked(20);
    let beside_others = tracked(300);
    daemon.control(0, |control| control.others.store(0, Ordering::Relaxed));
    tracked(20);
    let again = tracked(300);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(alone < 100 && beside_others > 900 && again < 100, "{alone}, {beside_others}, {again}");
}
