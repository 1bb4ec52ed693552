//! Weft's controller: as much best-effort work as the tails of latency programs bear.
//!
//! For each latency program there is an estimate of whether its requests are answered as if it were alone
//! ([`Estimate`]); for the GPU there is one throttle level ([`ThrottleLevel`]), which means a part of the SMs where programs
//! run side by side, preemption and time slices where they take turns, and work in flight where nothing but the launch gate
//! holds it.
//!
//! 1. As soon as one program is known to be worse off, the level is halved; once all that work are known to be fine, it is
//!    raised by one.
//! 2. Nobody is blamed who did nothing: busy periods count while best-effort work wants the GPU, and once what was launched
//!    before the last change has had time to end.
//! 3. What programs take without best-effort work is seen in the *isolated* part of the time, which is spread at random and
//!    no more than [`SharingConfig::isolation`], but for once when a program comes of which nothing is known.
//! 4. Where no latency program has worked for a while, the GPU is best-effort work's until one does.
//! 5. Who works at regular times finds the GPU free: what can be preempted is preempted before.
//! 6. Held work is let go for a moment now and then. Work that was promised a share and had less of it is let go until it
//!    had that, in one time slice where it has any; what that costs latency programs moves no level.

use super::control::{Control, Throttle};
use crate::sharing::config::{GAPS, HELD};
use crate::sharing::promise::Promise;
use crate::sharing::slowdown::{Counts, Estimate, Slowdown};
use crate::sharing::throttle::ThrottleLevel;
use crate::sharing::{Admission, Class, Gate, GpuView, SharingConfig, TenantView};
use crate::{Span, TenantId, Time};
use share_core::Patience;
use std::collections::BTreeMap;

/// The controller of one GPU.
#[derive(Debug)]
pub(super) struct Weft {
    config: SharingConfig,
    level: ThrottleLevel,
    latency: BTreeMap<TenantId, Latency>,
    /// Best-effort tenants that were promised a share.
    promises: BTreeMap<TenantId, Promise>,
    isolation: Isolation,
    /// What best-effort tenants wanted so far, all together, and when that last grew.
    wanted: Span,
    wanted_at: Option<Time>,
    /// Busy periods that began before say nothing about the level.
    settled: Time,
    /// A latency program works, and so does best-effort work.
    is_needed: bool,
    updated: Time,
}

/// What is known of a latency tenant.
#[derive(Debug)]
struct Latency {
    estimate: Estimate,
    wanted: Span,
    /// When it last had work.
    active: Time,
}

/// When best-effort work is held to see the others without it.
#[derive(Debug, Default)]
struct Isolation {
    /// Since when it is.
    since: Option<Time>,
    /// When it is next.
    next: Time,
    /// How often it was.
    count: u64,
}

impl Weft {
    pub(super) fn new(config: &SharingConfig) -> Weft {
        Weft {
            level: ThrottleLevel::new(config),
            config: config.clone(),
            latency: BTreeMap::new(),
            promises: BTreeMap::new(),
            isolation: Isolation::default(),
            wanted: Span::ZERO,
            wanted_at: None,
            settled: Time::ZERO,
            is_needed: false,
            updated: Time::ZERO,
        }
    }

    fn is_active(&self, tenant: TenantId) -> bool {
        self.latency.get(&tenant).is_some_and(|known| known.is_active(self.updated, &self.config))
    }

    /// Whether best-effort work wanted the GPU lately.
    fn may_interfere(&self, now: Time) -> bool {
        self.wanted_at.is_some_and(|at| now < at + self.config.window)
    }

    /// Since when best-effort work has been off the GPU for good.
    fn alone_since(&self, now: Time) -> Option<Time> {
        let held = (self.level.get() == HELD).then_some(self.settled);
        let gone = (!self.may_interfere(now)).then(|| self.wanted_at.map_or(Time::ZERO, |at| at + self.config.window));
        self.isolation.since.or(held).or(gone)
    }

    fn judge(&mut self, now: Time) {
        let config = &self.config;
        // Of whom nothing can be told by now, as who never waits for its work or is late by itself, keeps nobody.
        let is_silent =
            |known: &Latency| !known.estimate.has_evidence(config) && now >= self.settled + config.retry_first;
        let judges = self.latency.values().filter(|known| known.is_active(now, config) && !is_silent(known));
        let verdicts: Vec<Slowdown> = judges.map(|known| known.estimate.verdict(config)).collect();
        let changed = if verdicts.contains(&Slowdown::Worse) {
            self.level.back_off(now, config) || self.level.get() == HELD
        } else {
            let fine = verdicts.iter().all(|verdict| *verdict == Slowdown::Fine);
            // Where nobody can tell, it is as at the start.
            let is_open = !verdicts.is_empty() || self.level.get() < ThrottleLevel::new(config).get();
            fine && is_open && self.level.step_up(now, config)
        };
        if changed {
            self.settle(now);
        }
    }

    /// From here on everything is another.
    fn settle(&mut self, now: Time) {
        self.settled = now + self.config.settle;
        self.latency.values_mut().for_each(|known| known.estimate.restart());
    }

    /// Begins or ends to hold best-effort work to see the others without it.
    fn isolate(&mut self, now: Time) {
        let mut active = self.latency.values().filter(|known| known.is_active(now, &self.config));
        match self.isolation.since {
            Some(since) => {
                // As many bursts as can decide the test are enough, and as long as earlier work is in the way.
                let longest = self.config.settle.max(self.config.tick);
                let took = (now - since).min(longest);
                if took == longest || active.all(|known| known.estimate.seen >= self.config.decisive()) {
                    self.isolation.end(now, took, &self.config);
                }
            }
            // Held anyway, and what it does then is isolation enough.
            None if now >= self.isolation.next && self.level.get() != HELD => {
                self.isolation.since = Some(now);
                self.latency.values_mut().for_each(|known| known.estimate.seen = 0);
            }
            None => {}
        }
    }

    /// When a latency program that works regularly is expected to need the GPU next.
    fn reserved(&self, tenant: &TenantView) -> Option<(Time, Time)> {
        let (lead, updated) = (self.config.lead(tenant.preempts_within), self.updated);
        let expected = self.latency.values().flat_map(|known| known.estimate.next(updated, &self.config));
        let windows = expected.map(|(at, off)| (at - off - lead, at + off));
        // One that is longer would be taken for rubbish, and hide the next.
        windows.filter(|(from, until)| (*until - *from).nanos() <= Patience::USUAL.yield_ns).min()
    }

    /// Whether best-effort work is held at this moment.
    fn gate(&self) -> Gate {
        let moment = self.config.moment().nanos();
        let is_moment = self.updated.nanos() % self.config.moment_every().nanos().max(1) < moment;
        let held = self.isolation.since.is_some() || self.level.get() == HELD && !is_moment;
        if self.is_needed && held { Gate::Held } else { Gate::Open }
    }

    /// Takes what best-effort tenants had of what they were promised. Whoever has a request has an account from the first
    /// look on at which somebody is in its way.
    fn keep_promises(&mut self, now: Time, view: &GpuView) {
        let promised = |tenant: &&TenantView| tenant.class == Class::BestEffort && tenant.request > 0;
        let before = std::mem::take(&mut self.promises);
        if self.is_needed {
            self.promises = view
                .tenants
                .iter()
                .filter(promised)
                .map(|tenant| {
                    let new = Promise::new(now, tenant.charged, tenant.wanted);
                    let mut promise = before.get(&tenant.id).copied().unwrap_or(new);
                    promise.update(now, tenant.charged, tenant.wanted, tenant.request, &self.config);
                    (tenant.id, promise)
                })
                .collect();
        }
        // What is late for a promise is not late for the level.
        if self.promises.values().any(Promise::is_due) {
            self.settled = self.settled.max(now + self.config.settle);
        }
    }
}

impl Latency {
    fn is_active(&self, now: Time, config: &SharingConfig) -> bool {
        now < self.active + config.idle_after
    }
}

impl Isolation {
    /// The next is so far away that the part of the time stays what it is on average: a half to one and a half times as far,
    /// by a number that is in step with nothing.
    fn end(&mut self, now: Time, took: Span, config: &SharingConfig) {
        self.count += 1;
        let apart = took.max(config.tick).scale(1_000, u64::from(config.isolation.clamp(1, 1_000)));
        let random = self.count.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
        (self.since, self.next) = (None, now + apart.scale(512 + random, 1_024));
    }
}

impl Control for Weft {
    fn update(&mut self, now: Time, view: &GpuView) {
        self.updated = now;
        let of = |class: Class| view.tenants.iter().filter(move |tenant| tenant.class == class);
        let wanted = of(Class::BestEffort).fold(Span::ZERO, |sum, tenant| sum + tenant.wanted);
        if wanted > self.wanted {
            self.wanted_at = Some(now);
        }
        self.wanted = wanted;
        self.latency.retain(|id, _| of(Class::Latency).any(|tenant| tenant.id == *id));
        if self.latency.is_empty() {
            // What others bear is not what those bore.
            self.level = ThrottleLevel::new(&self.config);
        }
        for tenant in of(Class::Latency) {
            let known = self.latency.entry(tenant.id).or_insert_with(|| {
                // Nothing is known of it.
                self.isolation.next = now;
                Latency { estimate: Estimate::new(), wanted: tenant.wanted, active: now }
            });
            if tenant.wanted != known.wanted {
                (known.wanted, known.active) = (tenant.wanted, now);
            }
        }
        let works = self.latency.values().any(|known| known.is_active(now, &self.config));
        self.is_needed = works && wanted > Span::ZERO;
        self.keep_promises(now, view);
        let counts = self.is_needed && self.isolation.since.is_none() && self.may_interfere(now);
        let counts = Counts { from: counts.then_some(self.settled), alone: self.alone_since(now) };
        for tenant in of(Class::Latency) {
            if let Some(known) = self.latency.get_mut(&tenant.id) {
                known.estimate.update(&tenant.ended, tenant.objective, counts, &self.config);
            }
        }
        if !self.is_needed {
            self.isolation.since = None;
            return;
        }
        if self.isolation.since.is_none() {
            self.judge(now);
        }
        self.isolate(now);
    }

    fn throttle(&self, tenant: &TenantView, view: &GpuView) -> Throttle {
        let (config, level) = (&self.config, self.level.get());
        if view.tenants.iter().all(|other| other.class == Class::BestEffort) {
            return Throttle::NONE;
        }
        if !view.tenants.iter().any(|other| other.class == Class::Latency) {
            return Throttle { budget: config.budget_most, admission: Admission::GapFill, ..Throttle::NONE };
        }
        let throttle = Throttle { gate: self.gate(), ..Throttle::NONE };
        if self.is_paid(tenant.id) {
            // Between two requests the GPU changes hands and back for half a millisecond and next to nothing: one long slice.
            let slice = (tenant.slices && !self.is_colocated(tenant, view)).then(|| config.moment());
            let budget = slice.unwrap_or(Span::ZERO) + config.feed();
            return Throttle { gate: Gate::Open, budget, slice, ..Throttle::NONE };
        }
        if self.is_colocated(tenant, view) {
            if !self.is_needed {
                return Throttle { budget: config.free_budget(), ..throttle };
            }
            let admission = if level <= GAPS { Admission::GapFill } else { Admission::Concurrent };
            return Throttle { sm_cap: config.sm_cap(level), admission, budget: config.feed(), ..throttle };
        }
        if tenant.slices {
            // Held and still on the GPU would isolate nobody.
            let level = if self.isolation.since.is_some() { HELD } else { level };
            let admission = match level {
                // Whoever comes back finds it off the GPU at its first launch.
                ..=GAPS if tenant.preemptible => Admission::Exclusive,
                ..=GAPS if self.is_needed => Admission::GapFill,
                _ => Admission::Concurrent,
            };
            let budget = if self.is_needed && level <= GAPS { config.feed() } else { Span::MAX };
            let reserved = self.reserved(tenant).filter(|_| admission == Admission::Exclusive);
            return Throttle { slice: Some(config.slice(self.level.get())), admission, budget, reserved, ..throttle };
        }
        // Nothing but the gate can hold it.
        Throttle { budget: config.budget(level), admission: Admission::GapFill, ..throttle }
    }

    /// Beside best-effort work alone a latency tenant has longer time slices; latency tenants that do nothing are not in its
    /// way.
    fn others(&self, tenant: &TenantView, view: &GpuView) -> Throttle {
        let idle = |other: &&TenantView| other.class == Class::Latency && !self.is_active(other.id);
        let others = view.tenants.iter().filter(|other| other.id != tenant.id);
        let mut others = others.filter(|other| !idle(other)).peekable();
        let alone_with_best_effort =
            others.peek().is_some() && others.all(|other| other.class == Class::BestEffort && other.slices);
        let longer = alone_with_best_effort && tenant.class == Class::Latency && tenant.slices;
        Throttle { slice: longer.then(|| self.config.latency_slice()), ..Throttle::NONE }
    }

    fn divides(&self) -> bool {
        true
    }

    fn keeps_promise(&self, tenant: TenantId) -> bool {
        self.promises.contains_key(&tenant)
    }

    fn is_paid(&self, tenant: TenantId) -> bool {
        self.is_needed && self.isolation.since.is_none() && self.promises.get(&tenant).is_some_and(Promise::is_due)
    }

    fn is_colocated(&self, tenant: &TenantView, view: &GpuView) -> bool {
        let mut latency = view.tenants.iter().filter(|tenant| tenant.class == Class::Latency);
        // Those that do nothing may be wherever they are.
        tenant.spatial && latency.all(|other| other.spatial || !self.is_active(other.id))
    }

    fn slowdown(&self, tenant: TenantId) -> Option<u64> {
        self.latency.get(&tenant)?.estimate.ratio()
    }

    fn most_slowed(&self) -> Option<(TenantId, u64)> {
        let known = self.latency.iter().filter_map(|(id, known)| Some((*id, known.estimate.ratio()?)));
        known.max_by_key(|(_, ratio)| *ratio).filter(|_| self.is_needed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sharing::{Burst, WHOLE};

    fn tenant(id: u32, class: Class, spatial: bool, slices: bool) -> TenantView {
        let wanted = Span::from_millis(1);
        TenantView { class, spatial, slices, wanted, ..TenantView::new(TenantId(id)) }
    }

    /// A latency tenant whose bursts of 1 ms, 5 ms apart, are late by what `late` says for how a best-effort tenant is
    /// throttled, for so many seconds. How that is at each burst.
    fn play(best_effort: TenantView, seconds: u64, late: impl Fn(&Throttle) -> Span) -> Vec<Throttle> {
        let (every, alone) = (Span::from_millis(5), Span::from_millis(1));
        let mut tenants = vec![tenant(0, Class::Latency, best_effort.spatial, true), best_effort];
        let mut weft = Weft::new(&SharingConfig::default());
        let mut throttles: Vec<Throttle> = Vec::new();
        for step in 1..seconds * 200 {
            let now = Time::ZERO + every.scale(step, 1);
            for tenant in &mut tenants {
                tenant.wanted += Span::from_millis(2);
            }
            let held = throttles.last().is_some_and(|last| last.gate == Gate::Held);
            let is_let_go = throttles.last().is_some_and(|last| last.admission == Admission::Concurrent && !held);
            if is_let_go {
                tenants[1].charged += every.scale(1, 2);
            }
            let more = throttles.last().filter(|_| !held).map_or(Span::ZERO, &late);
            let took = alone + more;
            tenants[0].ended = vec![Burst { process: 1, began: now - took, took, alone, undisturbed: held }];
            let view = GpuView { tenants: tenants.clone(), memory_total: 0 };
            weft.update(now, &view);
            throttles.push(weft.throttle(&tenants[1], &view));
        }
        throttles
    }

    fn part(throttles: &[Throttle], test: impl Fn(&Throttle) -> bool) -> f64 {
        throttles.iter().filter(|throttle| test(throttle)).count() as f64 / throttles.len() as f64
    }

    #[test]
    fn it_finds_the_most_that_is_borne_and_stays_there() {
        // Up to half of the SMs hurts nobody.
        let hurts = |throttle: &Throttle| if throttle.sm_cap > 500 { Span::from_micros(500) } else { Span::ZERO };
        let throttles = play(tenant(1, Class::BestEffort, true, false), 300, hurts);
        let late = &throttles[throttles.len() / 2..];
        let (too_much, much) =
            (part(late, |one| one.sm_cap > 500 && one.gate == Gate::Open), part(late, |one| one.sm_cap > 300));
        assert!(too_much < 0.01 && much > 0.9, "{too_much} {much}");
    }

    #[test]
    fn where_nothing_helps_best_effort_work_waits_and_not_for_ever() {
        for (space, slices) in [(true, false), (false, true), (false, false)] {
            let throttles = play(tenant(1, Class::BestEffort, space, slices), 600, |_| Span::from_millis(1));
            let held = part(&throttles[throttles.len() / 2..], |one| one.gate == Gate::Held);
            assert!((0.98..1.0).contains(&held), "{held}");
            let step_up = play(tenant(1, Class::BestEffort, space, slices), 60, |_| Span::ZERO);
            let held = part(&step_up, |one| one.gate == Gate::Held);
            assert!((0.001..0.03).contains(&held), "isolated for a part of the time: {held}");
        }
    }

    #[test]
    fn who_is_isolated_is_off_the_gpu() {
        let preemptible = TenantView { preemptible: true, ..tenant(1, Class::BestEffort, false, true) };
        let throttles = play(preemptible, 30, |_| Span::ZERO);
        let held: Vec<&Throttle> = throttles.iter().filter(|one| one.gate == Gate::Held).collect();
        assert!(held.len() > 10 && held.iter().all(|one| one.admission == Admission::Exclusive), "{held:?}");
        assert!(part(&throttles, |one| one.admission == Admission::Concurrent) > 0.9);
    }

    /// Requests seconds apart, each late by more than it bears: the first launch finds the GPU free soon.
    #[test]
    fn who_comes_seldom_is_judged_as_well() {
        let mut weft = Weft::new(&SharingConfig::default());
        let best_effort = TenantView { preemptible: true, ..tenant(1, Class::BestEffort, false, true) };
        let mut tenants = vec![tenant(0, Class::Latency, false, true), best_effort];
        let (alone, took) = (Span::from_millis(5), Span::from_millis(8));
        let mut admissions = Vec::new();
        for look in 1..10_000u64 {
            let now = Time::ZERO + Span::from_millis(2 * look);
            tenants[1].wanted += Span::from_millis(2);
            tenants[0].ended.clear();
            if look.is_multiple_of(1_000) {
                tenants[0].wanted += took;
                tenants[0].ended.push(Burst { process: 1, began: now - took, took, alone, undisturbed: false });
            }
            let view = GpuView { tenants: tenants.clone(), memory_total: 0 };
            weft.update(now, &view);
            admissions.push(weft.throttle(&tenants[1], &view).admission);
        }
        assert_eq!(admissions.last(), Some(&Admission::Exclusive));
    }

    #[test]
    fn who_is_always_late_by_itself_keeps_nobody_held() {
        let mut weft = Weft::new(&SharingConfig::default());
        let mut tenants = vec![tenant(0, Class::Latency, false, true), tenant(1, Class::BestEffort, false, true)];
        let (alone, took) = (Span::from_millis(1), Span::from_millis(2));
        for look in 1..100_000u64 {
            let now = Time::ZERO + Span::from_millis(2 * look);
            tenants.iter_mut().for_each(|tenant| tenant.wanted += Span::from_millis(1));
            tenants[0].ended.clear();
            if look.is_multiple_of(3) {
                let undisturbed = weft.level.get() == HELD || weft.isolation.since.is_some();
                tenants[0].ended.push(Burst { process: 1, began: now - took, took, alone, undisturbed });
            }
            weft.update(now, &GpuView { tenants: tenants.clone(), memory_total: 0 });
        }
        assert_eq!(weft.level.get(), 4, "as at the start");
    }

    #[test]
    fn who_never_waits_for_its_work_keeps_nobody_held() {
        let mut weft = Weft::new(&SharingConfig::default());
        let mut tenants = vec![
            tenant(0, Class::Latency, false, true),
            tenant(1, Class::Latency, false, true),
            tenant(2, Class::BestEffort, false, true),
        ];
        let alone = Span::from_millis(1);
        for look in 1..20_000u64 {
            let now = Time::ZERO + Span::from_millis(2 * look);
            tenants.iter_mut().for_each(|tenant| tenant.wanted += Span::from_millis(1));
            let began = now - alone;
            tenants[0].ended = vec![Burst { process: 1, began, took: alone, alone, undisturbed: false }];
            weft.update(now, &GpuView { tenants: tenants.clone(), memory_total: 0 });
        }
        assert!(weft.level.get() > 4, "{:?}", weft.level);
    }

    #[test]
    fn what_was_promised_is_let_go_even_where_it_hurts() {
        // In `play`, a best-effort tenant that is let go uses the GPU for half of the time.
        for (space, slices) in [(true, false), (false, true), (false, false)] {
            let promised =
                TenantView { request: 50, preemptible: slices, ..tenant(1, Class::BestEffort, space, slices) };
            let throttles = play(promised, 600, |_| Span::from_millis(1));
            let is_let_go = |one: &Throttle| one.gate == Gate::Open && one.admission == Admission::Concurrent;
            let late = &throttles[throttles.len() / 2..];
            let open = part(late, is_let_go);
            assert!((0.095..0.12).contains(&open), "{open}");
            let moment = SharingConfig::default().moment();
            assert!(late.iter().filter(|one| is_let_go(one)).all(|one| one.slice == slices.then_some(moment)));
            assert!(late.iter().filter(|one| is_let_go(one)).all(|one| !slices || one.budget > moment));
        }
    }

    #[test]
    fn what_there_is_is_used() {
        let none = |_: &Throttle| Span::ZERO;
        let most = |best_effort| *play(best_effort, 30, none).iter().rfind(|one| one.gate == Gate::Open).unwrap();
        let space = most(tenant(1, Class::BestEffort, true, false));
        assert!(space.sm_cap > 850 && space.slice.is_none() && space.admission == Admission::Concurrent, "{space:?}");
        let slices = most(tenant(1, Class::BestEffort, false, true));
        assert_eq!((slices.sm_cap, slices.slice), (WHOLE, Some(SharingConfig::default().slice_most)));
        let gate = most(tenant(1, Class::BestEffort, false, false));
        assert_eq!((gate.sm_cap, gate.slice, gate.admission), (WHOLE, None, Admission::GapFill));
        let hurt = |throttle: &Throttle| {
            if throttle.admission == Admission::Concurrent { Span::from_millis(1) } else { Span::ZERO }
        };
        let preemptible = TenantView { preemptible: true, ..tenant(1, Class::BestEffort, false, true) };
        let throttles = play(preemptible, 60, hurt);
        let exclusive = part(&throttles[throttles.len() / 2..], |one| one.admission == Admission::Exclusive);
        assert!(exclusive > 0.98, "{exclusive}");
    }

    #[test]
    fn who_is_alone_with_best_effort_work_has_longer_slices() {
        let slice = |others: &[TenantView]| {
            let latency = tenant(0, Class::Latency, false, true);
            let tenants = std::iter::once(&latency).chain(others).cloned().collect();
            let (mut weft, view) = (Weft::new(&SharingConfig::default()), GpuView { tenants, memory_total: 0 });
            weft.update(Time::ZERO, &view);
            let at_once = weft.others(&latency, &view).slice;
            weft.update(Time::ZERO + Span::from_secs(2), &view);
            (at_once, weft.others(&latency, &view).slice)
        };
        let best_effort = tenant(1, Class::BestEffort, false, true);
        let longer = Some(SharingConfig::default().latency_slice());
        assert_eq!(slice(&[]), (None, None), "there is nobody to take turns with");
        assert_eq!(slice(std::slice::from_ref(&best_effort)), (longer, longer));
        let with_another = [best_effort.clone(), tenant(2, Class::Latency, false, true)];
        assert_eq!(slice(&with_another), (None, longer), "who does nothing for a second is not in the way");
        assert_eq!(slice(&[best_effort, tenant(2, Class::Standard, false, true)]), (None, None));
        assert_eq!(slice(&[tenant(1, Class::BestEffort, true, false)]), (None, None), "it is not in turns");
    }
}
