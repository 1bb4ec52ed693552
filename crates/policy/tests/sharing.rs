//! Sharing a GPU: what the slow plane promises, over random tenants on a GPU that runs one kernel at a time.

use policy::sharing::{Action, Admission, Burst, Class, Controller, Gate, GpuView, Sharing, SharingConfig, TenantView};
use policy::{Span, TenantId, Time};
use proptest::prelude::*;

/// How often is looked, and what shares are kept over.
const TICK: Span = Span::from_millis(2);
const WINDOW: Span = Span::from_millis(100);

#[test]
fn these_are_the_parameters() {
    let config = SharingConfig::default();
    assert_eq!((TICK, WINDOW), (config.tick, config.window));
}

/// A tenant that launches kernels of one length as fast as it may, or with a gap after each.
#[derive(Clone, Copy, Debug)]
struct Program {
    request: u32,
    limit: u32,
    kernel: Span,
    gap: Span,
    from: Time,
    until: Time,
}

impl Program {
    fn new(request: u32, limit: u32, micros: u64) -> Program {
        let kernel = Span::from_micros(micros);
        Program { request, limit, kernel, gap: Span::ZERO, from: Time::ZERO, until: Time::NEVER }
    }

    fn lives(&self, now: Time) -> bool {
        self.from <= now && now < self.until
    }
}

/// Runs programs on one GPU, kernel after kernel in turn, and gives what each was charged at every look.
fn play(programs: &[Program], length: Span) -> Vec<(Time, Vec<Span>)> {
    let mut sharing = Sharing::default();
    let mut actions = Vec::new();
    let mut charged = vec![Span::ZERO; programs.len()];
    let mut wanted = vec![Span::ZERO; programs.len()];
    let mut allowed = vec![Span::ZERO; programs.len()];
    let mut ready = vec![Time::ZERO; programs.len()];
    let mut readings = Vec::new();
    let (mut now, mut looked, mut turn) = (Time::ZERO, Time::ZERO, 0);
    while now < Time::ZERO + length {
        while sharing.next_tick() <= now || readings.is_empty() {
            let at = if readings.is_empty() { Time::ZERO } else { sharing.next_tick() };
            for (index, program) in programs.iter().enumerate().filter(|(_, program)| program.lives(at)) {
                // Less the part of its gap that lies between the looks.
                let since = looked.max(program.from);
                let gone = at - since;
                wanted[index] += gone - (ready[index].min(at) - since).min(gone).min(program.gap);
            }
            looked = at;
            let view = |(index, program): (usize, &Program)| TenantView {
                request: program.request,
                limit: program.limit,
                charged: charged[index],
                wanted: wanted[index],
                ..TenantView::new(TenantId::new(index))
            };
            let tenants = programs.iter().enumerate().filter(|(_, program)| program.lives(at)).map(view).collect();
            sharing.update(at, &GpuView { tenants, memory_total: 0 }, &mut actions);
            for action in actions.drain(..) {
                if let Action::SetAllowance { tenant, allowed: bound } = action {
                    allowed[tenant.index()] = bound;
                }
            }
            readings.push((at, charged.clone()));
        }
        let may = |index: usize| programs[index].lives(now) && ready[index] <= now && charged[index] < allowed[index];
        let next = (0..programs.len()).map(|step| (turn + step) % programs.len()).find(|index| may(*index));
        match next {
            Some(index) => {
                charged[index] += programs[index].kernel;
                now += programs[index].kernel;
                ready[index] = now + programs[index].gap;
                turn = index + 1;
            }
            None => {
                now = sharing.next_tick().min(ready.iter().copied().filter(|at| *at > now).min().unwrap_or(Time::NEVER))
            }
        }
    }
    readings
}

/// What a program used between two times, in thousandths.
fn used(readings: &[(Time, Vec<Span>)], program: usize, from: Span, to: Span) -> f64 {
    let at = |span: Span| {
        let place = readings.partition_point(|(at, _)| *at < Time::ZERO + span).min(readings.len() - 1);
        (readings[place].0, readings[place].1[program])
    };
    let ((from, before), (to, after)) = (at(from), at(to));
    (after - before).seconds() / (to - from).seconds() * 1_000.0
}

fn programs() -> impl Strategy<Value = Vec<Program>> {
    let program = (0..400u32, 0..1_000u32, 20..3_000u64);
    prop::collection::vec(program, 2..5).prop_map(|parts| {
        let total: u32 = parts.iter().map(|(request, ..)| *request).sum();
        let fits = |request: u32| if total > 1_000 { request * 1_000 / total } else { request };
        parts
            .iter()
            .map(|(request, more, micros)| {
                let request = fits(*request);
                Program::new(request, (request + more).clamp(20, 1_000), *micros)
            })
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_request_is_met_a_limit_is_kept_and_nothing_is_wasted(programs in programs()) {
        let length = Span::from_secs(3);
        let readings = play(&programs, length);
        let given = |index| used(&readings, index, Span::from_secs(1), length);
        for (index, program) in programs.iter().enumerate() {
            let (share, kernel) = (given(index), program.kernel.seconds());
            let ripple = kernel / 2.0 * 1_000.0;
            prop_assert!(share + 20.0 + ripple >= f64::from(program.request), "{index} was given {share}: {programs:?}");
            prop_assert!(share <= f64::from(program.limit) + 10.0 + ripple, "{index} was given {share}: {programs:?}");
            // Over every window, by no more than one kernel.
            let most = WINDOW.scale(u64::from(program.limit), 1_000) + program.kernel;
            for (at, charged) in &readings {
                let start = readings.partition_point(|(then, _)| *then + WINDOW < *at);
                let spent = charged[index] - readings[start].1[index];
                prop_assert!(program.limit == 1_000 || spent <= most, "{index} spent {spent} in a window: {programs:?}");
            }
        }
        let total: f64 = (0..programs.len()).map(given).sum();
        let wanted: f64 = programs.iter().map(|program| f64::from(program.limit)).sum::<f64>().min(1_000.0);
        prop_assert!(total <= 1_010.0 && total >= wanted - 60.0, "{total} of {wanted}: {programs:?}");
    }

    #[test]
    fn constant_demand_is_served_without_oscillation(programs in programs()) {
        let readings = play(&programs, Span::from_secs(4));
        for (index, program) in programs.iter().enumerate() {
            // Twice the window, so that a kernel more or less is little.
            let windows = (10..20).map(|step| used(&readings, index, Span::from_millis(step * 200), Span::from_millis(step * 200 + 200)));
            let windows: Vec<f64> = windows.collect();
            let (least, most) = windows.iter().fold((f64::MAX, 0.0_f64), |(least, most), share| (least.min(*share), most.max(*share)));
            let kernels = 2.0 * program.kernel.seconds() / 0.2 * 1_000.0;
            prop_assert!(most - least <= 40.0 + kernels, "{index} had {windows:?}: {programs:?}");
        }
    }

    #[test]
    fn garbage_on_one_page_leaves_the_others_their_request(charges in prop::collection::vec(any::<u64>(), 1..200), kernel in 20u64..500) {
        let mut sharing = Sharing::default();
        let mut actions = Vec::new();
        let (mut spent, mut now) = (Span::ZERO, Time::ZERO);
        for garbage in charges {
            let own = TenantView { request: 500, charged: spent, wanted: now - Time::ZERO, ..TenantView::new(TenantId(0)) };
            let noise = Span::from_nanos(garbage);
            let burst = Burst { process: garbage as u32 % 64, began: now, took: noise, alone: Span::from_nanos(garbage >> 7), undisturbed: garbage % 2 == 0 };
            let other = TenantView { charged: noise, wanted: noise, burst: noise, ended: vec![burst; 3], bursts: garbage, class: Class::Latency, ..TenantView::new(TenantId(1)) };
            sharing.update(now, &GpuView { tenants: vec![own, other], memory_total: garbage }, &mut actions);
            prop_assert!(sharing.share_of(TenantId(0)) >= Some(500));
            actions.clear();
            spent += Span::from_micros(kernel);
            now = sharing.next_tick();
        }
    }
}

#[test]
fn who_comes_and_who_goes_changes_things_at_once() {
    let busy = Program::new(0, 1_000, 100);
    let guest = Program {
        from: Time::ZERO + Span::from_secs(1),
        until: Time::ZERO + Span::from_secs(2),
        ..Program::new(700, 700, 100)
    };
    let readings = play(&[busy, guest], Span::from_secs(3));
    let given = |program, from, to| used(&readings, program, Span::from_millis(from), Span::from_millis(to));
    assert!(given(0, 0, 1_000) > 980.0);
    assert!(given(1, 1_010, 1_110) > 650.0, "{}", given(1, 1_010, 1_110));
    assert!((given(1, 1_000, 2_000) - 700.0).abs() < 30.0, "{}", given(1, 1_000, 2_000));
    assert!(given(0, 2_010, 2_110) > 950.0, "{}", given(0, 2_010, 2_110));
}

#[test]
fn a_debt_is_paid_off_whatever_its_size() {
    // A kernel of 50 ms at 10%: half a second each, no more and no less.
    let readings = play(&[Program::new(100, 100, 50_000), Program::new(0, 1_000, 100)], Span::from_secs(10));
    let share = used(&readings, 0, Span::from_secs(2), Span::from_secs(10));
    assert!((share - 100.0).abs() < 20.0, "{share}");
}

fn actions_of(view: &GpuView) -> Vec<Action> {
    let mut actions = Vec::new();
    Sharing::default().update(Time::ZERO, view, &mut actions);
    actions
}

#[test]
fn memory_is_capped() {
    let important = TenantView { class: Class::Latency, ..TenantView::new(TenantId(0)) };
    let capped = TenantView { class: Class::BestEffort, memory_limit: Some(60), ..TenantView::new(TenantId(2)) };
    let actions = actions_of(&GpuView { tenants: vec![important, capped], memory_total: 80 });
    assert!(actions.contains(&Action::SetMemoryLimit { tenant: TenantId(0), bytes: 80 }));
    assert!(actions.contains(&Action::SetMemoryLimit { tenant: TenantId(2), bytes: 60 }));
}

/// In how many of the looks somebody had to wait: eight latency tenants, each of which uses a quarter of the time.
fn waits_of_eight(spatial: bool) -> usize {
    let (mut sharing, mut actions) = (Sharing::default(), Vec::new());
    let mut tenants: Vec<TenantView> = (0..8)
        .map(|index| TenantView { class: Class::Latency, spatial, ..TenantView::new(TenantId::new(index)) })
        .collect();
    let (mut allowed, mut waits) = ([Span::MAX; 8], 0);
    for _ in 0..1_000 {
        sharing.update(sharing.next_tick(), &GpuView { tenants: tenants.clone(), memory_total: 0 }, &mut actions);
        for action in actions.drain(..) {
            if let Action::SetAllowance { tenant, allowed: bound } = action {
                allowed[tenant.index()] = bound;
            }
        }
        for (tenant, allowed) in tenants.iter_mut().zip(allowed) {
            tenant.wanted += Span::from_micros(1_500);
            if tenant.charged < allowed {
                tenant.charged += Span::from_micros(500);
            } else {
                waits += 1;
            }
        }
    }
    waits
}

#[test]
fn those_beside_each_other_do_not_wait_for_each_other() {
    assert_eq!(waits_of_eight(true), 0);
    assert!(waits_of_eight(false) > 3_000, "in turns there is one GPU's time");
}

/// What a best-effort tenant may use that comes half a second after a latency tenant who uses all of the time, and wants
/// to launch something for as long again.
fn allowed_to_a_latecomer(controller: Controller) -> Span {
    const LOOKS: u64 = 250;
    let (mut sharing, mut actions, mut bound) =
        (Sharing::new(controller, SharingConfig::default()), Vec::new(), Span::ZERO);
    for look in 0..2 * LOOKS {
        let all = TICK.scale(look, 1);
        let busy = TenantView { class: Class::Latency, charged: all, wanted: all, ..TenantView::new(TenantId(0)) };
        let wanted = TICK.scale(look.saturating_sub(LOOKS), 1);
        let late = TenantView { class: Class::BestEffort, wanted, ..TenantView::new(TenantId(1)) };
        let tenants = if look < LOOKS { vec![busy] } else { vec![busy, late] };
        sharing.update(Time::ZERO + all, &GpuView { tenants, memory_total: 0 }, &mut actions);
        for action in actions.drain(..) {
            if let Action::SetAllowance { tenant: TenantId(1), allowed } = action {
                bound = allowed;
            }
        }
    }
    bound
}

#[test]
fn rules_of_others_have_no_share_of_ours() {
    let ours = allowed_to_a_latecomer(Controller::Weft);
    assert!(ours > Span::ZERO && ours < Span::from_millis(50), "a hundredth of the time: {ours:?}");
    let slices = Controller::FixedSlice(Span::from_micros(400));
    for other in [Controller::Unmanaged, slices, Controller::Gate, Controller::Fikit, Controller::OrionLike] {
        assert_eq!(allowed_to_a_latecomer(other), Span::MAX, "{other}");
    }
}

/// A best-effort program that was promised 5% beside requests one after the other, and has half of the GPU whenever it may
/// run. It is let go for as long as its share takes, not for ever at the rate of its share: every change of hands costs
/// the requests.
#[test]
fn a_promised_share_is_paid_in_few_long_stretches() {
    let alone = Span::from_millis(1);
    let (mut sharing, mut actions) = (Sharing::default(), Vec::new());
    let mut latency = TenantView { class: Class::Latency, slices: true, ..TenantView::new(TenantId::new(0)) };
    let mut training = TenantView {
        class: Class::BestEffort,
        slices: true,
        preemptible: true,
        request: 50,
        ..TenantView::new(TenantId::new(1))
    };
    let (mut gate, mut admission, mut allowed) = (Gate::Open, Admission::Concurrent, Span::MAX);
    let (mut ticks, mut stretches, mut ran, mut ran_before) = (0u64, 0u64, 0u64, false);
    let (half, from) = (30_000, Span::ZERO + TICK.scale(30_000, 1));
    let mut had_before = Span::ZERO;
    while ticks < 2 * half {
        let now = Time::ZERO + TICK.scale(ticks, 1);
        let runs = gate == Gate::Open && admission == Admission::Concurrent && training.charged < allowed;
        latency.wanted += TICK;
        training.wanted += TICK;
        let took = if runs { alone.scale(2, 1) } else { alone };
        latency.charged += if runs { TICK.scale(1, 2) } else { TICK };
        latency.ended = vec![Burst { process: 1, began: now - took, took, alone, undisturbed: !runs }];
        if runs {
            training.charged += TICK.scale(1, 2);
        }
        if ticks == half {
            had_before = training.charged;
        } else if ticks > half {
            ran += u64::from(runs);
            stretches += u64::from(runs && !ran_before);
        }
        ran_before = runs;
        let tenants = vec![latency.clone(), training.clone()];
        sharing.update(now, &GpuView { tenants, memory_total: 0 }, &mut actions);
        for action in actions.drain(..) {
            match action {
                Action::SetAllowance { tenant, allowed: bound } if tenant == training.id => allowed = bound,
                Action::SetGate { tenant, gate: set } if tenant == training.id => gate = set,
                Action::SetAdmission { tenant, admission: set } if tenant == training.id => admission = set,
                _ => {}
            }
        }
        ticks += 1;
    }
    let had = (training.charged - had_before).seconds() / from.seconds();
    assert!((0.045..0.06).contains(&had), "{had}");
    // Half of the time while it runs: twice its share, and what it is let go for now and then.
    let part = ran as f64 / half as f64;
    assert!(part < 0.13, "{part}");
    // 20 ms of GPU time take 40 ms each time.
    let length = TICK.seconds() * ran as f64 / stretches as f64;
    assert!(length > 0.015, "{length}");
}
