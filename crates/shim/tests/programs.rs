//! Programs print under the library what they print without it, and the library sees what they really do.

mod support;
use shm::{ControlPage, NO_LIMIT, Tenant};
use std::process::Command;
use std::sync::atomic::Ordering;
use support::{Daemon, Machine, library, run};

/// Runs a program without and with the library and a daemon; it prints the same, and the pages say the truth.
fn check(name: &str, arguments: &[&str]) -> Vec<Tenant> {
    check_as(0, name, arguments);
    check_as(2, name, arguments)
}

fn check_as(class: u32, name: &str, arguments: &[&str]) -> Vec<Tenant> {
    check_with(name, arguments, &[], move |control| control.class.store(class, Ordering::Relaxed))
}

/// As a latency tenant that has the GPU to itself.
fn check_alone(name: &str, arguments: &[&str]) -> Vec<Tenant> {
    check_with(name, arguments, &[], alone)
}

fn alone(control: &ControlPage) {
    control.class.store(0, Ordering::Relaxed);
    control.others.store(0, Ordering::Relaxed);
}

fn check_with(
    name: &str,
    arguments: &[&str],
    variables: &[(&str, &str)],
    rule: impl Fn(&ControlPage) + Send + 'static,
) -> Vec<Tenant> {
    let machine = Machine::new();
    let program = machine.compile(name);
    let mut native = machine.command(&program);
    native.args(arguments).env("FAKECUDA_STATE", machine.path("native")).envs(variables.to_vec());
    let native = machine.native(&mut native);
    assert_eq!(native.code, Some(0), "{name}: {}", native.stderr);
    let daemon = Daemon::start(&machine, rule);
    let shared = machine.run(&daemon, machine.command(&program).args(arguments).envs(variables.to_vec()));
    assert_eq!(shared.stdout, native.stdout, "{name}: {}", shared.stderr);
    assert_eq!(shared.code, Some(0), "{name}: {}", shared.stderr);
    let pages = daemon.pages();
    let truth: Vec<_> = machine.truth().into_iter().map(|truth| truth.counters).collect();
    let sum = |choose: fn(&Tenant) -> u64| pages.iter().map(choose).sum::<u64>();
    assert_eq!(sum(|page| page.launches), truth.iter().map(|slot| slot.launches).sum::<u64>(), "{name}: launches");
    let graphs = truth.iter().map(|slot| slot.graph_launches).sum::<u64>();
    assert_eq!(sum(|page| page.graph_launches), graphs, "{name}: graphs");
    let kernels = truth.iter().map(|slot| slot.graph_kernels).sum::<u64>();
    assert_eq!(sum(|page| page.graph_kernels), kernels, "{name}: kernels in graphs");
    assert!(daemon.hellos().iter().all(|name| name == "test"));
    pages
}

#[test]
fn hello() {
    check("hello", &[]);
}

#[test]
fn launches() {
    let pages = check("launches", &["--count", "2000", "--us", "20"]);
    let charged = pages[0].charged_ns;
    assert!(pages[0].launches == 2000 && pages[0].syncs > 0 && charged > 0, "{pages:?}");
    check("launches", &["--streams", "5"]);
}

#[test]
fn threads() {
    check("threads", &[]);
}

#[test]
fn graphs() {
    check("graphs", &[]);
}

#[test]
fn forks() {
    check("forks", &[]);
}

/// With a limit, a program is told what the library counted and not what the driver did: it says the same after every
/// step where both agree.
#[test]
fn several_gpus_and_contexts_are_told_apart() {
    for class in [0, 2] {
        let machine = Machine::new();
        let program = machine.compile("contexts");
        let arguments = ["--used", "1", "--us", "100"];
        let mut native = machine.command(&program);
        native.args(arguments).env("FAKECUDA_GPUS", "2").env("FAKECUDA_STATE", machine.path("native"));
        let native = machine.native(&mut native);
        assert_eq!(native.code, Some(0), "{}", native.stderr);
        assert!(native.stdout.ends_with("released, 0 MiB on GPU 0, 0 MiB on GPU 1\n"), "{}", native.stdout);
        let daemon = Daemon::start(&machine, move |control| {
            control.class.store(class, Ordering::Relaxed);
            control.memory_limit.store(1 << 30, Ordering::Relaxed);
            // Long kernels of the primary contexts run on a part of the SMs.
            control.space_permille.store(500, Ordering::Relaxed);
            control.space_always.store(1, Ordering::Relaxed);
        });
        let shared = machine.run(&daemon, machine.command(&program).args(arguments).env("FAKECUDA_GPUS", "2"));
        assert_eq!(shared.stdout, native.stdout, "class {class}: {}", shared.stderr);
        assert_eq!(shared.code, Some(0), "class {class}: {}", shared.stderr);

        let (pages, gpus, truth) = (daemon.pages(), daemon.gpus(), machine.truth());
        assert_eq!((pages.len(), truth.len()), (2, 2), "one for each GPU");
        for (page, uuid) in pages.iter().zip(gpus) {
            let gpu = (0..2).find(|gpu| machine.uuid(*gpu) == uuid).unwrap();
            let counters = truth.iter().find(|truth| truth.gpu == gpu).unwrap().counters;
            let seen = (page.launches, page.used_bytes, page.peak_bytes, page.refused);
            assert_eq!(seen, (counters.launches, 0, counters.peak_bytes, 0), "class {class}, GPU {gpu}");
            assert_eq!(page.confined > 0, class != 0, "class {class}, GPU {gpu}: {page:?}");
        }
    }
}

#[test]
fn threads_that_come_first_together_are_all_limited_and_counted() {
    let machine = Machine::new();
    let program = machine.compile("together");
    let daemon = Daemon::start(&machine, |control| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        control.memory_limit.store(100 << 20, Ordering::Relaxed);
    });
    let ran = machine.run(&daemon, &mut machine.command(&program));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    // Two that ask for the last bytes in the same moment may both be refused.
    let got = (0..=1).find(|got| ran.stdout == format!("{got} got memory\n")).expect(&ran.stdout);
    let (pages, truth) = (daemon.pages(), machine.truth()[0].counters);
    assert_eq!((pages.len(), pages[0].launches, pages[0].refused), (1, 80, 8 - got));
    assert_eq!((truth.launches, truth.peak_bytes), (80, got * (64 << 20)));
}

#[test]
fn every_way_to_allocate_is_counted_and_given_back() {
    let pages = check("allocations", &["16", "64"]);
    assert_eq!(pages[0].used_bytes, 0, "{pages:?}");
    assert!(pages[0].peak_bytes >= 64 << 20, "{pages:?}");
    assert_eq!(pages[0].refused, 0);
}

#[test]
fn no_way_to_allocate_goes_past_the_limit() {
    let machine = Machine::new();
    let program = machine.compile("allocations");
    let limit = 100u64 << 20;
    let daemon = Daemon::start(&machine, move |control| control.memory_limit.store(limit, Ordering::Relaxed));
    let ran = machine.run(&daemon, machine.command(&program).args(["60", "200"]));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let refused: Vec<_> = ran.stdout.lines().filter(|line| line.contains("200 MiB: ")).collect();
    assert!(refused.len() >= 8 && refused.iter().all(|line| line.contains("MiB: 2")), "{}", ran.stdout);
    assert!(!ran.stdout.contains("NOT taken"), "{}", ran.stdout);
    let pages = daemon.pages();
    assert_eq!((pages[0].used_bytes, pages[0].refused), (0, refused.len() as u64), "{pages:?}");
    assert!(machine.truth()[0].counters.peak_bytes <= limit);
}

#[test]
fn wrong_frees_are_the_drivers_errors_and_count_for_nothing() {
    let machine = Machine::new();
    let program = machine.compile("frees");
    let daemon = Daemon::start(&machine, |control| control.memory_limit.store(100 << 20, Ordering::Relaxed));
    let ran = machine.run(&daemon, &mut machine.command(&program));
    let expected = "total 100 MiB, left 36 MiB, device 100 MiB\nunknown: error\nnull: 0\nunknown handle: error\n\
                    huge: 2\nhalf a terabyte: 2\nagain: error\ntotal 100 MiB, left 100 MiB\n";
    assert_eq!(ran.stdout, expected, "{}", ran.stderr);
    let page = daemon.pages()[0];
    assert_eq!((page.used_bytes, page.refused), (0, 2));
}

#[test]
fn processes_of_one_tenant_share_its_limit() {
    let machine = Machine::new();
    let program = machine.compile("allocations");
    let daemon = Daemon::start(&machine, |control| {
        control.memory_limit.store(100 << 20, Ordering::Relaxed);
        control.siblings.store(u64::MAX, Ordering::Relaxed);
    });
    let mut first = machine.start(machine.command(&program).args(["60", "--hold", "5"]));
    // Every way to allocate comes and goes in no time; what it sleeps with is held.
    machine.run_for(&daemon, 1000);
    assert_eq!(daemon.pages()[0].used_bytes, 60 << 20);
    let second = machine.run(&daemon, machine.command(&program).arg("60"));
    assert!(second.stdout.contains("60 MiB: 2, nothing taken"), "{}", second.stdout);
    first.kill().unwrap();
    first.wait().unwrap();
}

#[test]
fn a_latency_tenant_and_a_standard_one_are_charged_what_they_use() {
    for class in [0, 1, 2] {
        let machine = Machine::new();
        let program = machine.compile("launches");
        let daemon = Daemon::start(&machine, move |control| {
            control.class.store(class, Ordering::Relaxed);
            control.allowed_ns.store(NO_LIMIT, Ordering::Relaxed);
        });
        let ran = machine.run(&daemon, machine.command(&program).args(["--count", "3000", "--us", "100"]));
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let page = daemon.pages()[0];
        assert_eq!(page.launches, 3000);
        let percent = page.charged_ns / 3_000_000;
        // A single run that is synced once teaches a latency tenant's clock nothing in time.
        let expected = if class == 0 { 1..=150 } else { 85..=115 };
        assert!(expected.contains(&percent), "class {class}: charged {percent}% of what was used");
    }
}

/// What a framework does looks different from a loop of launches and syncs: it waits in copies, and uses other streams
/// before it serves.
#[test]
fn requests_as_frameworks_make_them_are_seen_as_they_are() {
    for (class, joined) in [(0, "1"), (0, "0"), (2, "1")] {
        let page = &check_as(class, "inference", &["--count", "600", "--joined", joined])[0];
        assert_eq!(page.graph_launches, 600);
        // Without a word that the warm-up is over, it is taken to be after a while.
        let bursts = if joined == "1" { 590..=620 } else { 400..=620 };
        assert!(bursts.contains(&page.bursts), "class {class}: {} bursts of 600 requests", page.bursts);
        let charged = page.charged_ns / (600 * 800_000 / 100);
        assert!((75..=150).contains(&charged), "class {class}: charged {charged}% of what was used");
    }
}

/// Most launches of a tenant that is alone are untracked, and charged what the tracked ones took.
#[test]
fn who_is_alone_is_counted_exactly_and_charged_what_it_used() {
    // Plain, with a graph now and then and in every burst, and with another stream in every second.
    for (with, most_tracked) in [("--none", 100), ("--graph", 150), ("--side", 700)] {
        let every = if with == "--side" { "2" } else { "40" };
        let page = &check_alone("bursts", &["--bursts", "1000", with, every])[0];
        let bursts = page.bursts + page.untracked_bursts;
        assert!((950..=1050).contains(&bursts), "{with}: {bursts} bursts of 1000");
        assert!((32..most_tracked).contains(&page.bursts), "{with}: {} bursts were tracked", page.bursts);
        let used_ns = (page.launches + page.graph_kernels) * 20_000;
        let charged = page.charged_ns * 100 / used_ns;
        assert!((75..=150).contains(&charged), "{with}: charged {charged}% of what was used");
    }
    let page = &check_alone("bursts", &["--graph", "1"])[0];
    assert_eq!(page.untracked_bursts, 0, "what a kernel takes is not known where there is always a graph");
}

#[test]
fn threads_and_gpus_of_who_is_alone_are_counted_exactly() {
    check_alone("bursts", &["--threads", "4", "--every", "7", "--us", "3"]);
    let pages = check_alone("bursts", &["--threads", "4", "--turns", "1", "--every", "7", "--us", "3"]);
    // A thread that is done leaves work behind, which the others do not wait for.
    assert!(pages[0].untracked_bursts > 100, "of 1600: {pages:?}");
    let pages = check_with("bursts", &["--second", "1"], &[("FAKECUDA_GPUS", "2")], alone);
    assert_eq!(pages.iter().map(|page| page.launches).collect::<Vec<_>>(), [401 * 20, 30]);
    assert!((100..=210).contains(&pages[0].untracked_bursts), "until it used the other: {pages:?}");
}

#[test]
fn beside_a_busy_neighbour_what_is_charged_is_what_was_given() {
    for (class, microseconds) in [(1, "100"), (2, "100"), (1, "3000"), (2, "3000"), (0, "100")] {
        let charged = charged_of_given(class, microseconds);
        // Kernels longer than a slice are never seen alone, and a latency tenant's are never measured.
        let slack = if class == 0 || microseconds == "3000" { 500 } else { 250 };
        let close = charged.iter().all(|one| (1000 - slack..=1000 + slack).contains(one));
        assert!(close, "class {class}, {microseconds} us, of a thousand: {charged:?}");
    }
}

/// Two busy programs side by side: what each was charged, in thousandths of what it was given.
fn charged_of_given(class: u32, microseconds: &str) -> Vec<u64> {
    let machine = Machine::new();
    let program = machine.compile("closedloop");
    let daemon = Daemon::start(&machine, move |control| control.class.store(class, Ordering::Relaxed));
    let start = || machine.start(machine.command(&program).args(["--seconds", "1", "--us", microseconds]));
    for child in [start(), start()] {
        assert_eq!(machine.finish(&daemon, child).code, Some(0));
    }
    let truth = machine.truth();
    let given = |pid| truth.iter().find(|truth| truth.counters.pid == pid).unwrap().counters.given_ns;
    daemon.pages().iter().map(|page| page.charged_ns * 1000 / given(page.pid)).collect()
}

#[test]
fn best_effort_work_stays_short_when_others_have_the_gpu() {
    let machine = Machine::new();
    let (busy, queue) = (machine.compile("closedloop"), machine.compile("launches"));
    let daemon = Daemon::start(&machine, |control| control.class.store(2, Ordering::Relaxed));
    let mut neighbour = machine.start_with(machine.command(&busy).args(["--seconds", "30"]), &[]);
    machine.run_for(&daemon, 200);
    // 0.5 s of work in one queue, without a sync, beside a neighbour that has half of the GPU.
    let mut child = machine.start(machine.command(&queue).args(["--count", "5000", "--us", "100"]));
    let mut most = 0;
    machine.run_until(&daemon, "its end", || {
        let page = daemon.pages();
        let truth = machine.truth();
        let given = page.first().and_then(|page| truth.iter().find(|truth| truth.counters.pid == page.pid));
        most = most.max(given.map_or(0, |truth| truth.counters.submitted_ns - truth.counters.given_ns));
        child.try_wait().unwrap().is_some()
    });
    assert!(child.wait().unwrap().success());
    neighbour.kill().unwrap();
    neighbour.wait().unwrap();
    assert!((1..5_000_000).contains(&most), "{most} ns were outstanding");
}

#[test]
fn programs_without_cuda_do_not_notice() {
    let machine = Machine::new();
    let daemon = Daemon::start(&machine, |_| {});
    for (program, arguments) in
        [("ls", vec!["/"]), ("python3", vec!["-c", "import ctypes, json; print(ctypes.CDLL(None).getppid() > 0)"])]
    {
        let native = run(Command::new(program).args(&arguments));
        let shared = run(Command::new(program).args(&arguments).env("LD_PRELOAD", library()));
        assert_eq!((native.stdout, native.stderr, native.code), (shared.stdout, shared.stderr, shared.code));
    }
    assert!(daemon.hellos().is_empty());
}

#[test]
fn the_library_can_be_switched_off_and_loaded_twice() {
    let machine = Machine::new();
    let program = machine.compile("launches");
    let daemon = Daemon::start(&machine, |_| {});
    let ran = machine.run(&daemon, machine.command(&program).env("WEFT_DISABLE", "1"));
    assert_eq!((ran.code, daemon.hellos().len()), (Some(0), 0), "{}", ran.stderr);
    let copy = machine.path("libweft-copy.so");
    std::fs::copy(library(), &copy).unwrap();
    let child = machine.start_with(&mut machine.command(&program), &[library(), copy]);
    let ran = machine.finish(&daemon, child);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(daemon.pages().iter().map(|page| page.launches).sum::<u64>(), 1000);
}
