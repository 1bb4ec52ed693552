use super::*;
use crate::registry::TenantState;
use config::Share;
use share_client::Uuid;
use shm::{NO_LIMIT, TenantPage};

const MS: u64 = 1_000_000;

/// A GPU with one slot for each share, by fake processes that all have this process's number.
struct Bench {
    gpu_state: GpuState,
    registry: TenantRegistry,
    tenants: Vec<u32>,
    now_ns: u64,
}

impl Bench {
    fn new(shares: &[&str]) -> Bench {
        let gpu = Gpu { index: 0, uuid: Uuid([1; 16]), name: "Test".into(), memory_bytes: 8 << 30 };
        // These processes do not exist, so nothing is ever written there.
        let learned = Learned::new("/nowhere".into(), None);
        let mut bench = Bench {
            gpu_state: GpuState::new(gpu, learned, &policy::sharing::SharingConfig::default(), None),
            registry: TenantRegistry::default(),
            tenants: vec![],
            now_ns: 1_000 * MS,
        };
        for (index, share) in shares.iter().enumerate() {
            let share: Share = serde_json::from_str(share).unwrap();
            let number = bench.registry.add(TenantState::new(format!("t{index}"), 7, share)).unwrap();
            bench.tenants.push(number);
            bench.attach(number, index as u64);
        }
        bench
    }

    /// Every fake process is one of ours with a number of its own, so that none replaces another.
    fn attach(&mut self, tenant: u32, token: Token) -> AttachedSlot {
        let process = Watched { pid: 1_000_000_000 + token as u32, ..Watched::new(std::process::id()).unwrap() };
        let place = self
            .gpu_state
            .attach(Attaching { tenant, token, process, user: 7, command: None, charged_ns: 0 }, self.now_ns)
            .unwrap();
        self.page(place.slot).occupy(1, place.slot, place.generation, tenant);
        place
    }

    fn page(&self, slot: u32) -> &TenantPage {
        self.gpu_state.slot(slot).page()
    }

    fn control(&self, slot: u32) -> shm::Control {
        self.gpu_state.slot(slot).control.read().unwrap()
    }

    fn tick(&mut self) {
        self.now_ns += 2 * MS;
        self.gpu_state.tick(self.now_ns, &self.registry);
    }

    /// Programs that launch whenever they may and never wait, one after the other, on a GPU that is never idle; GPU time
    /// each got.
    fn run(&mut self, ticks: u32, kernel_ns: u64) -> Vec<u64> {
        let count = self.tenants.len() as u32;
        let mut given = vec![0; count as usize];
        let mut turn = 0;
        for _ in 0..ticks {
            let mut left = 2 * MS;
            let mut tried = 0;
            while left >= kernel_ns && tried < count {
                let slot = turn % count;
                turn += 1;
                let (page, control) = (self.page(slot), self.control(slot));
                if page.charged_ns.load(Ordering::Relaxed) >= control.allowed_ns {
                    let since = page.waiting_since_ns.load(Ordering::Relaxed);
                    page.waiting_since_ns.store(if since == 0 { self.now_ns } else { since }, Ordering::Relaxed);
                    tried += 1;
                    continue;
                }
                tried = 0;
                page.waiting_since_ns.store(0, Ordering::Relaxed);
                page.charged_ns.fetch_add(kernel_ns, Ordering::Relaxed);
                page.busy_until_ns.store(self.now_ns + 2 * MS, Ordering::Relaxed);
                page.burst_since_ns.store(self.now_ns, Ordering::Relaxed);
                page.launches.fetch_add(1, Ordering::Relaxed);
                given[slot as usize] += kernel_ns;
                left -= kernel_ns;
            }
            self.tick();
        }
        given
    }
}

#[test]
fn shares_and_ranks_are_on_the_pages() {
    let mut bench = Bench::new(&[
        r#"{"class": "latency", "memory": "1GiB"}"#,
        r#"{"class": "best-effort", "priority": 3, "limit": "40%"}"#,
        r#"{"class": "best-effort", "priority": 7}"#,
    ]);
    bench.tick();
    let [latency, middle, last] = [0, 1, 2].map(|slot| bench.control(slot));
    assert_eq!((latency.above, middle.above, last.above), (0, 0b001, 0b011));
    assert_eq!((latency.memory_limit, latency.memory_total, middle.memory_limit), (1 << 30, 1 << 30, NO_LIMIT));
    assert_eq!((middle.limit_permille, middle.priority), (400, 3));
    assert_eq!(last.heartbeat_ns, bench.now_ns);
    assert!(middle.allowed_ns != NO_LIMIT);
}

#[test]
fn a_limit_is_kept_beside_a_busy_neighbour() {
    for percent in [10, 50, 90] {
        let limited = format!(r#"{{"request": "{percent}%", "limit": "{percent}%"}}"#);
        let mut bench = Bench::new(&[&limited, "{}"]);
        bench.run(500, 100_000);
        let given = bench.run(500, 100_000);
        let share = given[0] as f64 / (1_000 * MS) as f64 * 100.0;
        assert!((share - f64::from(percent)).abs() < 3.0, "{percent}% asked, {share:.1}% given");
    }
}

#[test]
fn processes_of_one_tenant_share_its_limit() {
    let mut bench = Bench::new(&[r#"{"limit": "30%", "memory": "1GiB"}"#]);
    let first = bench.tenants[0];
    bench.attach(first, 1);
    bench.tenants.push(first);
    bench.run(500, 100_000);
    let given = bench.run(500, 100_000);
    let share = given.iter().sum::<u64>() as f64 / (1_000 * MS) as f64 * 100.0;
    assert!((share - 30.0).abs() < 3.0, "{share:.1}% given");
    assert_eq!((bench.control(0).siblings, bench.control(1).siblings), (0b10, 0b01));
    assert_eq!((bench.control(0).others, bench.control(1).others), (0b10, 0b01));
    let status = bench.gpu_state.status(bench.now_ns, &bench.registry);
    assert_eq!(status.tenants.len(), 1);
    assert_eq!(status.tenants[0].processes.len(), 2);
    assert!(status.tenants[0].used_permille.abs_diff(300) < 40);
}

#[test]
fn a_change_takes_effect_at_the_next_tick() {
    let mut bench = Bench::new(&["{}"]);
    bench.tick();
    assert_eq!(bench.control(0).allowed_ns, NO_LIMIT);
    let before = bench.control(0).revision;
    let tenant = bench.registry.get_mut(bench.tenants[0]).unwrap();
    tenant.share = serde_json::from_str(r#"{"limit": "20%", "memory": "2GiB"}"#).unwrap();
    bench.tick();
    let control = bench.control(0);
    assert!(control.allowed_ns != NO_LIMIT && control.memory_limit == 2 << 30 && control.revision != before);
}

#[test]
fn who_leaves_is_seen_by_nobody_and_takes_nothing_back() {
    let mut bench = Bench::new(&["{}", "{}"]);
    bench.page(0).used_bytes.store(5, Ordering::Relaxed);
    bench.run(3, 100_000);
    bench.gpu_state.release(0);
    bench.tick();
    assert_eq!(bench.page(0).read(), None);
    assert_eq!(bench.page(0).used_bytes.load(Ordering::Relaxed), 0);
    assert_eq!(bench.gpu_state.status(bench.now_ns, &bench.registry).tenants.len(), 1);
    assert!(!bench.gpu_state.has(bench.tenants[0]) && bench.gpu_state.has(bench.tenants[1]));
    bench.gpu_state.release(1);
    assert!(bench.gpu_state.is_idle());
}

#[test]
fn a_page_is_not_given_away_under_a_process_that_lives() {
    let mut bench = Bench::new(&["{}"]);
    let tenant = bench.tenants[0];
    bench.gpu_state.release(0);
    for token in 1..SLOTS as u64 {
        assert_ne!(bench.attach(tenant, token).slot, 0);
    }
    let process = Watched { pid: 999_999_999, ..Watched::new(std::process::id()).unwrap() };
    let attaching = Attaching { tenant, token: 99, process, user: 7, command: None, charged_ns: 0 };
    assert!(bench.gpu_state.attach(attaching, bench.now_ns).unwrap_err().contains("64 processes"));
    // The one that had it may have it again.
    assert_eq!(bench.attach(tenant, 0), AttachedSlot { slot: 0, generation: 2 });
}

#[test]
fn rubbish_in_a_page_is_its_own_trouble() {
    let mut bench = Bench::new(&[r#"{"limit": "50%"}"#, r#"{"limit": "50%"}"#]);
    bench.tick();
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..2_000 {
        let mut next = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            if seed & 0x300 == 0 { u64::MAX } else { seed }
        };
        let page = bench.page(0);
        for word in [
            &page.charged_ns,
            &page.waited_ns,
            &page.waiting_since_ns,
            &page.busy_until_ns,
            &page.launches,
            &page.graph_launches,
            &page.bursts,
            &page.last_burst_ns,
            &page.used_bytes,
            &page.refused,
            &page.gap_ns,
        ] {
            word.store(next(), Ordering::Relaxed);
        }
        page.ended_bursts.store(next(), Ordering::Relaxed);
        for burst in &page.ended {
            for word in [&burst.since_ns, &burst.length_ns, &burst.wait_ns, &burst.work_ns] {
                word.store(next(), Ordering::Relaxed);
            }
        }
        page.channel_groups.store(next() as u32, Ordering::Relaxed);
        bench.tick();
        bench.gpu_state.status(bench.now_ns, &bench.registry);
    }
    // The neighbour's counters are its own, and it still gets what it may have.
    let before = bench.page(1).charged_ns.load(Ordering::Relaxed);
    assert!(bench.control(1).allowed_ns > before);
}

/// A burst of the first tenant: it launches for so long and then waits for so long, in a tick of its own.
fn burst(bench: &mut Bench, host_ns: u64, wait_ns: u64, neighbour_until_ns: u64) -> (u64, u64) {
    let page = bench.page(0);
    page.charged_ns.fetch_add(MS, Ordering::Relaxed);
    page.bursts.fetch_add(1, Ordering::Relaxed);
    page.burst_ns_total.fetch_add(host_ns + wait_ns, Ordering::Relaxed);
    page.burst_wait_ns_total.fetch_add(wait_ns, Ordering::Relaxed);
    page.burst_work_ns_total.fetch_add(MS, Ordering::Relaxed);
    page.burst_ended(bench.now_ns - host_ns - wait_ns, host_ns + wait_ns, wait_ns, MS);
    bench.page(1).busy_until_ns.store(neighbour_until_ns, Ordering::Relaxed);
    bench.tick();
    let last = last(bench);
    (last.took.nanos(), last.alone.nanos())
}

/// The first tenant's burst that ended last.
fn last(bench: &Bench) -> policy::sharing::Burst {
    *bench.gpu_state.view.tenants[0].ended.last().expect("one ended")
}

#[test]
fn a_slower_host_is_no_neighbour_and_a_neighbour_is() {
    let mut bench = Bench::new(&[r#"{"class": "latency"}"#, r#"{"class": "best-effort"}"#]);
    bench.tick();
    assert_eq!(burst(&mut bench, 4 * MS, MS / 2, u64::MAX), (4 * MS + MS / 2, 0), "never seen alone");
    // Its neighbour launched once, long ago, and its kernel runs on: that is not alone.
    assert_eq!(burst(&mut bench, 4 * MS, 2 * MS, u64::MAX).1, 0);
    assert_eq!(burst(&mut bench, 4 * MS, MS / 2, 0).1, 0, "it may have begun in the tick before");
    for _ in 0..3 {
        assert_eq!(burst(&mut bench, 4 * MS, MS / 2, 0), (4 * MS + MS / 2, 4 * MS + MS / 2));
        assert!(last(&bench).undisturbed);
    }
    let (took, alone) = burst(&mut bench, 6 * MS, MS / 2, u64::MAX);
    assert_eq!((took, alone), (6 * MS + MS / 2, 6 * MS + MS / 2), "its host was slower");
    assert!(!last(&bench).undisturbed, "and its neighbour computed");
    let (took, alone) = burst(&mut bench, 4 * MS, 2 * MS, u64::MAX);
    assert_eq!((took, alone), (6 * MS, 4 * MS + MS / 2), "it waited longer for the GPU");
}

#[test]
fn best_effort_work_is_not_blamed_for_what_others_do() {
    for (neighbour, undisturbed) in [("latency", true), ("standard", true), ("best-effort", false)] {
        let mut bench = Bench::new(&[r#"{"class": "latency"}"#, &format!(r#"{{"class": "{neighbour}"}}"#)]);
        bench.tick();
        for _ in 0..3 {
            assert_eq!(burst(&mut bench, 0, MS, u64::MAX).1, 0, "it is not alone beside one that is {neighbour}");
        }
        assert_eq!(last(&bench).undisturbed, undisturbed, "{neighbour}");
    }
}

#[test]
fn beside_one_that_is_preempted_a_program_is_alone() {
    let mut bench = Bench::new(&[r#"{"class": "latency"}"#, r#"{"class": "best-effort"}"#]);
    bench.tick();
    let preempt = |bench: &Bench, off: u32, times| {
        bench.page(1).preempted.store(off, Ordering::Relaxed);
        bench.page(1).preemptions.store(times, Ordering::Relaxed);
    };
    for times in 1..5 {
        preempt(&bench, 1, times);
        assert_eq!(burst(&mut bench, 0, MS, u64::MAX).1, 0, "it ran between the ticks");
    }
    burst(&mut bench, 0, MS, u64::MAX);
    assert_eq!(burst(&mut bench, 0, MS, u64::MAX).1, MS);
    preempt(&bench, 0, 4);
    assert_eq!(burst(&mut bench, 0, 2 * MS, u64::MAX).1, MS);
}

#[test]
fn work_that_takes_turns_is_on_the_gpu_until_it_is_known_to_be_done() {
    for (share, channels, alone) in [
        (r#"{"class": "best-effort"}"#, 8, false),
        (r#"{"class": "best-effort"}"#, 0, true),
        (r#"{"class": "best-effort", "way": "space"}"#, 8, true),
    ] {
        let mut bench = Bench::new(&[r#"{"class": "latency"}"#, share]);
        bench.tick();
        let neighbour = bench.page(1);
        neighbour.channels.store(channels, Ordering::Relaxed);
        // It launched something and did not wait for it; by its own clock that is done.
        neighbour.burst_since_ns.store(bench.now_ns - MS, Ordering::Relaxed);
        let done_ns = bench.now_ns;
        for _ in 0..3 {
            burst(&mut bench, 0, MS, done_ns);
        }
        assert_eq!(last(&bench).undisturbed, alone, "{share}, {channels} channels");
        bench.page(1).burst_since_ns.store(0, Ordering::Relaxed);
        for _ in 0..3 {
            burst(&mut bench, 0, MS, done_ns);
        }
        assert!(last(&bench).undisturbed, "it waited for it");
    }
}

/// Bursts shorter than a tick begin in one and end in the next.
#[test]
fn what_a_burst_is_compared_with_is_its_own_work() {
    let mut bench = Bench::new(&[r#"{"class": "latency"}"#, r#"{"class": "best-effort"}"#]);
    bench.tick();
    for _ in 0..3 {
        burst(&mut bench, 0, MS, 0);
    }
    for round in 0..20 {
        // One ends in every tick; all launches of the next two happen in it, or none.
        let page = bench.page(0);
        page.charged_ns.fetch_add(if round % 2 == 0 { 2 * MS } else { 0 }, Ordering::Relaxed);
        page.bursts.fetch_add(1, Ordering::Relaxed);
        for total in [&page.burst_ns_total, &page.burst_wait_ns_total, &page.burst_work_ns_total] {
            total.fetch_add(MS, Ordering::Relaxed);
        }
        page.burst_ended(bench.now_ns - MS, MS, MS, MS);
        bench.page(1).busy_until_ns.store(u64::MAX, Ordering::Relaxed);
        bench.tick();
        let last = last(&bench);
        assert_eq!((last.took.nanos(), last.alone.nanos()), (MS, MS), "round {round}");
    }
}

/// Bursts of 850 us, one begun every 1.7 ms: half of the time, wherever ticks come.
#[test]
fn a_burst_across_two_ticks_is_counted_once() {
    // What is only counted is charged when it is done.
    for (waits, untracked) in [(true, false), (false, false), (true, true)] {
        let mut bench = Bench::new(&[r#"{"class": "latency"}"#]);
        bench.tick();
        let begun = bench.now_ns;
        let (burst, every) = (850_000, 1_700_000);
        for tick in 0..1_000 {
            let (from, to) = (begun + tick * 2 * MS, begun + (tick + 1) * 2 * MS);
            let page = bench.page(0);
            let launched = (from - begun).div_ceil(every)..(to - begun).div_ceil(every);
            for at in launched.map(|number| begun + number * every).filter(|_| !untracked) {
                page.charged_ns.fetch_add(burst, Ordering::Relaxed);
                page.busy_until_ns.store(at + burst, Ordering::Relaxed);
            }
            let last = begun + (to - begun - 1) / every * every;
            let ended = |until: u64| (until - begun + every - burst) / every;
            page.burst_since_ns.store(if last + burst > to && waits { last } else { 0 }, Ordering::Relaxed);
            if untracked {
                let goes_on = last + burst > to;
                page.charged_ns.store(ended(to) * burst, Ordering::Relaxed);
                page.busy_until_ns.store(last + if goes_on { 1_000 } else { burst }, Ordering::Relaxed);
                page.untracked_bursts.store(ended(to), Ordering::Relaxed);
                page.untracked_burst_ns_total.store(ended(to) * burst, Ordering::Relaxed);
            } else if waits {
                page.bursts.store(ended(to), Ordering::Relaxed);
                page.burst_ns_total.store(ended(to) * burst, Ordering::Relaxed);
            }
            bench.tick();
        }
        let part = bench.gpu_state.view.tenants[0].wanted.nanos() * 1_000 / (2_000 * MS);
        assert!((495..=505).contains(&part), "{part} thousandths, and it waits: {waits}, untracked: {untracked}");
        let bursts = bench.gpu_state.view.tenants[0].bursts;
        assert_eq!(bursts, if waits { 1_176 } else { 0 }, "they are a rate, whether or not they were tracked");
    }
}

#[test]
fn a_burst_that_nobody_waits_for_is_over_some_time() {
    let mut bench = Bench::new(&[r#"{"class": "latency"}"#, r#"{"class": "best-effort"}"#]);
    bench.tick();
    let page = bench.page(0);
    page.burst_since_ns.store(bench.now_ns, Ordering::Relaxed);
    page.busy_until_ns.store(bench.now_ns + MS, Ordering::Relaxed);
    let mut wanted_in = |milliseconds: u64| {
        let before = bench.gpu_state.view.tenants[0].wanted;
        (0..milliseconds / 2).for_each(|_| bench.tick());
        (bench.gpu_state.view.tenants[0].wanted - before).nanos() / MS
    };
    let first = wanted_in(100);
    assert!((98..=100).contains(&first), "others may keep it waiting: {first}");
    wanted_in(200);
    assert_eq!(wanted_in(100), 0, "it left without a word");
    bench.page(0).syncing_since_ns.store(1, Ordering::Relaxed);
    let waits = bench.gpu_state.view.tenants[0].wanted;
    (0..50).for_each(|_| bench.tick());
    assert!(bench.gpu_state.view.tenants[0].wanted > waits, "it does wait");
}

#[test]
fn programs_know_whether_others_are_beside_them() {
    let mut bench = Bench::new(&[r#"{"class": "latency", "way": "space"}"#, r#"{"way": "time", "sms": "50%"}"#]);
    bench.tick();
    let [space, time] = [0, 1].map(|slot| bench.control(slot));
    assert_eq!((space.mode, space.space_permille), (shm::SharingMode::Spatial, 0));
    assert_eq!((time.mode, time.space_permille), (shm::SharingMode::Temporal, 500));
}
