//! Daemons that hold, limit, die, come back, speak nonsense or another version.

mod support;
use shm::{Connection, FileList, GATE_HELD, Listener, Message, VERSION};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use support::{Daemon, Machine, run};
use weft_tests::when_calm;

fn launches(machine: &Machine, count: &str, microseconds: &str) -> std::process::Command {
    let program = machine.path("launches");
    let program = if program.exists() { program } else { machine.compile("launches") };
    let mut command = machine.shared(&program);
    command.args(["--count", count, "--us", microseconds]);
    command
}

#[test]
fn a_quota_holds_launches_and_a_larger_one_lets_them_go() {
    when_calm(|| {
        for class in [0, 2] {
            let machine = Machine::new();
            let daemon = Daemon::start(&machine.socket(), move |control| {
                control.class.store(class, Ordering::Relaxed);
                control.allowed_ns.store(1_000_000, Ordering::Relaxed);
            });
            let mut child = launches(&machine, "500", "100").spawn().unwrap();
            std::thread::sleep(Duration::from_millis(400));
            assert!(child.try_wait().unwrap().is_none());
            let page = daemon.pages()[0];
            assert!(page.waiting_since_ns != 0 && page.waits > 0 && page.charged_ns >= 1_000_000, "{page:?}");
            daemon.control(0, |control| {
                control.allowed_ns.store(u64::MAX, Ordering::Relaxed);
                control.set_gate(false);
            });
            assert!(child.wait().unwrap().success());
            let page = daemon.pages()[0];
            assert!(page.waiting_since_ns == 0 && page.waited_ns > 300_000_000 && page.launches == 500, "{page:?}");
        }
    });
}

#[test]
fn the_gate_holds_best_effort_launches_until_it_opens_or_the_daemon_dies() {
    when_calm(|| {
        for dies in [false, true] {
            let machine = Machine::new();
            let daemon = Daemon::start(&machine.socket(), |control| {
                control.class.store(2, Ordering::Relaxed);
                control.set_gate(true);
            });
            let mut child = launches(&machine, "100", "10").spawn().unwrap();
            std::thread::sleep(Duration::from_millis(300));
            assert_eq!(daemon.pages()[0].launches, 0);
            daemon.control(0, |control| assert!(control.gate.load(Ordering::Relaxed) & GATE_HELD != 0));
            let began = Instant::now();
            if dies {
                daemon.kill();
            } else {
                daemon.control(0, |control| control.set_gate(false));
            }
            assert!(child.wait().unwrap().success());
            assert!(began.elapsed() < Duration::from_secs(2));
        }
    });
}

#[test]
fn a_more_important_burst_is_yielded_to_for_a_while() {
    when_calm(|| {
        let machine = Machine::new();
        let daemon = Daemon::start(&machine.socket(), |control| {
            control.class.store(2, Ordering::Relaxed);
            control.above.store(1 << 63, Ordering::Relaxed);
        });
        // A tenant in the last slot that is busy for ever, or says so.
        daemon.page(63, |page| {
            page.occupy(1, 63, 1, 9);
            page.burst_since_ns.store(1, Ordering::Relaxed);
            page.busy_until_ns.store(shm::now_ns() + 600_000_000, Ordering::Relaxed);
        });
        let ran = run(&mut launches(&machine, "5", "10"));
        assert_eq!(ran.code, Some(0));
        let page = daemon.pages()[0];
        assert!(page.waits > 0 && page.waited_ns >= 20_000_000, "{page:?}");
        assert!(page.waited_ns < 600_000_000, "{page:?}");
    });
}

#[test]
fn a_daemon_that_comes_back_is_found_without_a_failure() {
    when_calm(|| {
        let machine = Machine::new();
        let program = machine.compile("closedloop");
        let rule = |control: &shm::ControlPage| control.class.store(2, Ordering::Relaxed);
        let mut daemon = Daemon::start(&machine.socket(), rule);
        let mut child = machine.shared(&program).args(["--seconds", "4"]).spawn().unwrap();
        let mut before = 0;
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(500));
            assert!(daemon.pages().first().is_some_and(|page| page.launches > before), "found again");
            before = daemon.pages()[0].launches;
            daemon.kill();
            daemon = Daemon::start(&machine.socket(), rule);
        }
        assert!(child.wait().unwrap().success());
        assert!(daemon.attaches()[0].1 > 0, "what was charged goes on");
        let truth = machine.truth()[0].counters;
        assert_eq!(daemon.pages()[0].launches, truth.launches);
    });
}

#[test]
fn a_process_that_is_told_another_generation_attaches_again() {
    when_calm(|| {
        let machine = Machine::new();
        let program = machine.compile("closedloop");
        let daemon = Daemon::start(&machine.socket(), |_| {});
        let mut child = machine.shared(&program).args(["--seconds", "1"]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        daemon.control(0, |control| control.generation.store(1, Ordering::Relaxed));
        assert!(child.wait().unwrap().success());
        assert_eq!(daemon.attaches().len(), 2);
    });
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
        let daemon = Daemon::start(&machine.socket(), move |control| {
            let mut next = next.lock().unwrap();
            for word in [&control.allowed_ns, &control.depth_ns, &control.above, &control.siblings] {
                word.store(next(), Ordering::Relaxed);
            }
            control.memory_limit.store(u64::MAX - 1, Ordering::Relaxed);
            let words = [&control.class, &control.priority, &control.mode, &control.revision];
            for word in words.into_iter().chain([&control.slice_us, &control.filling]) {
                word.store(next() as u32, Ordering::Relaxed);
            }
            if !valid {
                control.magic.store(next() as u32, Ordering::Relaxed);
                control.version.store(next() as u32, Ordering::Relaxed);
                control.gate.store(next() as u32, Ordering::Relaxed);
            }
        });
        let ran = run(&mut launches(&machine, "200", "10"));
        assert_eq!(ran.code, Some(0), "round {round}: {}", ran.stderr);
        drop(daemon);
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
        let ran = run(&mut launches(&machine, "100", "10"));
        assert_eq!(ran.code, Some(0), "{packets:?}: {}", ran.stderr);
        assert_eq!(ran.stdout, "100 launches of 10 us on 1 streams\n");
        assert_eq!(ran.stderr.matches("weft: ").count(), 1, "{}", ran.stderr);
    }
}

#[test]
fn a_daemon_that_says_nothing_costs_two_seconds_once() {
    when_calm(|| {
        let machine = Machine::new();
        answers(&machine.socket(), vec![], false);
        let mut program = launches(&machine, "100", "10");
        let began = Instant::now();
        let ran = run(&mut program);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(began.elapsed() < Duration::from_secs(4));
    });
}

#[test]
fn another_version_is_said_once_and_the_program_runs_on() {
    let machine = Machine::new();
    let mut buffer = [0; 1024];
    let mut refusal = Message::Refused { version: 7, text: "speak version 7" }.encode(&mut buffer).unwrap().to_vec();
    refusal[4] = 7;
    answers(&machine.socket(), vec![refusal], false);
    let ran = run(&mut launches(&machine, "100", "10"));
    assert_eq!(ran.code, Some(0));
    let said = format!("weft: the daemon speaks version 7 and this library version {VERSION}; nothing is limited");
    assert!(ran.stderr.contains(&said), "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("weft: ").count(), 1, "{}", ran.stderr);
    let quiet = run(launches(&machine, "100", "10").env("WEFT_QUIET", "1"));
    assert!(!quiet.stderr.contains("weft: "));
}

#[test]
fn slices_are_set_and_given_back() {
    when_calm(|| {
        let machine = Machine::new();
        let program = machine.compile("closedloop");
        let daemon = Daemon::start(&machine.socket(), |_| {});
        let mut child = machine.shared(&program).args(["--seconds", "2"]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(500));
        let page = daemon.pages()[0];
        assert!(page.channel_groups > 0, "{page:?}");
        let set = |microseconds, revision| {
            daemon.control(0, |control| {
                control.slice_us.store(microseconds, Ordering::Relaxed);
                control.revision.store(revision, Ordering::Release);
            });
            std::thread::sleep(Duration::from_millis(300));
            let page = daemon.pages()[0];
            (page.slice_us, page.slice_capability, machine.truth()[0].counters.slice_ns / 1000)
        };
        let own = machine.truth()[0].counters.slice_ns / 1000;
        assert_eq!(set(400, 5), (400, 1, 400));
        assert_eq!(set(0, 6), (0, 1, own));
        assert!(child.wait().unwrap().success());
    });
}

/// A daemon whose best-effort processes leave the GPU to the bursts of a tenant in the last slot.
fn preempting_daemon(machine: &Machine) -> Daemon {
    let daemon = Daemon::start(&machine.socket(), |control| {
        control.class.store(shm::Class::BestEffort as u32, Ordering::Relaxed);
        control.filling.store(shm::Filling::Nothing as u32, Ordering::Relaxed);
        control.above.store(1 << 63, Ordering::Relaxed);
    });
    daemon.page(63, |page| page.occupy(1, 63, 1, 9));
    daemon
}

/// The tenant in the last slot begins a burst, or ends it.
fn burst(daemon: &Daemon, goes_on: bool) {
    daemon.page(63, |page| {
        let until = if goes_on { shm::now_ns() + 900_000_000 } else { 0 };
        page.busy_until_ns.store(until, Ordering::Relaxed);
        page.burst_since_ns.store(until / 2, Ordering::Relaxed);
    });
}

/// Waits until the GPU's word on the only process is this: whether its queue is held.
fn until_held(machine: &Machine, held: bool) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while (machine.truth()[0].counters.held != 0) != held {
        assert!(Instant::now() < deadline, "held is not {held}: {:?}", machine.truth()[0].counters);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_runs_is_off_the_gpu_within_bursts_of_others() {
    when_calm(|| {
        let machine = Machine::new();
        let program = machine.compile("closedloop");
        let daemon = preempting_daemon(&machine);
        let mut child = machine.shared(&program).args(["--seconds", "60", "--us", "20000"]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(400));
        for round in 1..=3 {
            until_held(&machine, false);
            burst(&daemon, true);
            until_held(&machine, true);
            let given = || machine.truth()[0].counters.given_ns;
            let before = given();
            std::thread::sleep(Duration::from_millis(60));
            assert_eq!(given(), before, "in the middle of a kernel");
            burst(&daemon, false);
            until_held(&machine, false);
            std::thread::sleep(Duration::from_millis(60));
            assert!(given() > before + 20_000_000, "and goes on");
            let page = daemon.pages()[0];
            assert!(page.preemptions >= round && page.preempt_capability == 1 && page.channels == 8, "{page:?}");
        }
        burst(&daemon, true);
        until_held(&machine, true);
        daemon.kill();
        until_held(&machine, false);
        child.kill().unwrap();
        child.wait().unwrap();
    });
}

#[test]
fn a_driver_that_takes_nothing_off_is_asked_once() {
    when_calm(|| {
        let machine = Machine::new();
        let program = machine.compile("closedloop");
        let daemon = preempting_daemon(&machine);
        let mut command = machine.shared(&program);
        let mut child =
            command.args(["--seconds", "1", "--us", "2000"]).env("FAKECUDA_REFUSES", "preempt").spawn().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        burst(&daemon, true);
        std::thread::sleep(Duration::from_millis(200));
        let page = daemon.pages()[0];
        assert!(page.preempt_capability > 1 && page.preemptions == 0 && !page.preempted, "{page:?}");
        assert_eq!(machine.truth()[0].counters.held, 0);
        burst(&daemon, false);
        assert!(child.wait().unwrap().success());
    });
}

/// Kernels of 1 ms take twice as long on 64 of 132 SMs, and are done in the order in which they were launched.
#[test]
fn long_kernels_are_confined_from_one_launch_to_the_next() {
    when_calm(|| {
        let machine = Machine::new();
        let program = machine.compile("closedloop");
        let daemon = Daemon::start(&machine.socket(), |control| control.class.store(2, Ordering::Relaxed));
        let mut child = machine.shared(&program).args(["--seconds", "60", "--us", "1000"]).spawn().unwrap();
        let rate = |permille| {
            daemon.control(0, |control| control.space_permille.store(permille, Ordering::Relaxed));
            std::thread::sleep(Duration::from_millis(300));
            let (before, began) = (daemon.pages()[0], Instant::now());
            std::thread::sleep(Duration::from_millis(700));
            let after = daemon.pages()[0];
            let seconds = began.elapsed().as_secs_f64();
            let rate = |now: u64, then: u64| (now - then) as f64 / seconds;
            (rate(after.launches, before.launches), rate(after.confined, before.confined), after.space_capability)
        };
        std::thread::sleep(Duration::from_millis(300));
        // A machine that does something else slows any of them; in one of a few rounds it does not.
        let mut rounds = Vec::new();
        let shown = (0..5).any(|_| {
            let (all, none, _) = rate(0);
            let (half, confined, capability) = rate(500);
            let (again, freed, _) = rate(1000);
            assert_eq!((none, freed, capability), (0.0, 0.0, 1));
            assert!((half - confined).abs() <= 0.05 * half, "{confined} of {half} kernels a second were confined");
            rounds.push([all, half, again]);
            half < 0.7 * all && again > 1.4 * half
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(shown, "{rounds:?} kernels a second");
    });
}

/// What the driver refuses is launched as the program asked, and given up after a few times.
#[test]
fn a_driver_that_confines_nothing_runs_everything() {
    when_calm(|| {
        let machine = Machine::new();
        let program = machine.compile("closedloop");
        let daemon = Daemon::start(&machine.socket(), |control| {
            control.class.store(2, Ordering::Relaxed);
            control.space_permille.store(500, Ordering::Relaxed);
        });
        let mut command = machine.shared(&program);
        let ran = run(command.args(["--seconds", "0.5", "--us", "1000"]).env("FAKECUDA_REFUSES", "parts"));
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let page = daemon.pages()[0];
        assert!(page.confined == 0 && page.space_capability > 1 && page.launches > 100, "{page:?}");
    });
}

#[test]
fn what_one_run_learned_the_next_knows() {
    when_calm(|| {
        for class in [0, 1, 2] {
            let machine = Machine::new();
            let daemon = Daemon::start(&machine.socket(), move |control| control.class.store(class, Ordering::Relaxed));
            let runs = |command: &mut std::process::Command| {
                let ran = run(command);
                assert_eq!(ran.code, Some(0), "{}", ran.stderr);
                daemon.pages().last().unwrap().charged_ns
            };
            let first = runs(&mut launches(&machine, "1", "20000"));
            assert!(first < 100_000, "class {class}: {first} before anything is known");
            let learning = machine.compile("closedloop");
            runs(machine.shared(&learning).args(["--seconds", "0.7", "--us", "20000", "--every", "1"]));
            let next = runs(&mut launches(&machine, "1", "20000"));
            assert!((15_000_000..30_000_000).contains(&next), "class {class}: {next} with what was learned");
            let other = runs(&mut launches(&machine, "1", "30000"));
            assert!(other < 100_000, "class {class}: {other} for another kernel");
        }
    });
}

#[test]
fn who_is_alone_is_looked_at_again_when_somebody_comes() {
    when_calm(|| {
        const EVERY: u64 = 20;
        let machine = Machine::new();
        let daemon = Daemon::start(&machine.socket(), |control| control.others.store(0, Ordering::Relaxed));
        let mut child = machine.shared(&machine.compile("bursts")).args(["--bursts", "100000"]).spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        // Of so many more bursts, in thousandths, how many were looked at.
        let looked_at = |bursts: u64| {
            let seen = || daemon.pages().first().map_or((0, 0), |page| (page.launches, page.bursts));
            let (launches, before) = seen();
            while seen().0 < launches + bursts * EVERY && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            let (now, looked_at) = seen();
            assert!(now > launches, "it launches nothing");
            (looked_at - before) * EVERY * 1000 / (now - launches)
        };
        looked_at(100);
        let alone = looked_at(300);
        daemon.control(0, |control| control.others.store(2, Ordering::Relaxed));
        looked_at(20);
        let beside_others = looked_at(300);
        daemon.control(0, |control| control.others.store(0, Ordering::Relaxed));
        looked_at(20);
        let again = looked_at(300);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(alone < 100 && beside_others > 900 && again < 100, "{alone}, {beside_others}, {again}");
    });
}
