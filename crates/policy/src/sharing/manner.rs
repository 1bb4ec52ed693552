//! By what rule best-effort tenants are let in: Weft's, or one of the published ones to compare with on the same
//! machinery.

use super::adjust::{Adjustment, Beside, Need};
use super::depth::Depth;
use super::ladder::Ladder;
use super::tgs::Tgs;
use super::{Admission, Class, Gate, GpuView, TenantView, WHOLE};
use crate::{Span, TenantId, Time};
use std::fmt;
use std::str::FromStr;

/// A rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// Space, slices or the gate, whatever there is, adjusted to what latency tenants bear.
    #[default]
    Weft,
    /// Nobody interferes.
    Unmanaged,
    /// Best-effort slices of one length.
    Slices(Span),
    /// The gate alone.
    Gate,
    /// FIKIT: gaps are filled with what fits; nothing holds a launch when no task runs.
    Fikit,
    /// Orion: short kernels beside others, within a small part of how long their work takes.
    Orion,
    /// TGS: the rate of best-effort work follows the rate of the others, slowly.
    Tgs,
}

/// The slice when none is said.
const SLICE: Span = Span::from_micros(400);
/// Best-effort work that may be outstanding where it shares in space: enough that the GPU is never out of work, little
/// enough that a change is felt soon.
const SPACE_DEPTH: Span = Span::from_millis(4);
/// The same while no latency tenant needs the GPU: whoever comes back meets it once.
const IDLE_DEPTH: Span = Span::from_millis(12);
/// The part of the SMs for best-effort work, by rung, in thousandths; see [`NOTHING`] and [`GAPS`].
const SPACE: [u32; 8] = [250, 250, 250, 375, 500, 625, 750, 875];
const SPACE_START: usize = 6;
/// Best-effort slices, by rung; see [`NOTHING`] and [`GAPS`].
const SLICES: [Span; 8] = [
    Span::from_micros(150),
    Span::from_micros(150),
    Span::from_micros(150),
    Span::from_micros(250),
    Span::from_micros(400),
    Span::from_micros(700),
    Span::from_micros(1_200),
    Span::from_micros(2_000),
];
const SLICE_START: usize = 4;
/// The lowest rung of both: best-effort work is held, but for a moment now and then, so that no program looks as if it
/// hung for ever.
const NOTHING: usize = 0;
const NOTHING_FOR: Span = Span::from_secs(10);
const MOMENT: Span = Span::from_millis(20);
/// The one above it: best-effort work waits for gaps, or is off the GPU within bursts where that can be done. Where it is in
/// space and a latency tenant in turns, there are no others.
const GAPS: usize = 1;
const GATE_RUNGS: usize = 2;
/// The slice of a latency tenant that shares with best-effort ones alone: most bursts are over within one, and the GPU
/// does not change hands in them.
const LATENCY_SLICE: Span = Span::from_millis(16);
/// Orion lets in what takes this part of a burst, in thousandths.
const ORION: u64 = 25;

/// How best-effort tenants are held at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) gate: Gate,
    pub(super) budget: Span,
    pub(super) admission: Admission,
    /// `None`: the driver's own.
    pub(super) slice: Option<Span>,
    /// Of the SMs, in thousandths.
    pub(super) space: u32,
    /// Its rate, in thousandths, where the rule sets one.
    pub(super) rate: u32,
}

impl Hold {
    pub(super) const NOT: Hold = Hold {
        gate: Gate::Open,
        budget: Span::MAX,
        admission: Admission::Concurrent,
        slice: None,
        space: WHOLE,
        rate: WHOLE,
    };
}

/// A rule and what it remembers.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    manner: Manner,
    depth: Depth,
    adjustment: Adjustment,
    tgs: Tgs,
    need: Need,
    looked: Time,
}

impl Rule {
    pub(super) fn new(manner: Manner) -> Rule {
        let space = Ladder::new(SPACE.len(), SPACE_START);
        let slice = Ladder::new(SLICES.len(), SLICE_START);
        let adjustment = Adjustment::new(space, slice, Ladder::new(GATE_RUNGS, GAPS));
        Rule { manner, depth: Depth::new(), adjustment, tgs: Tgs::new(), need: Need::None, looked: Time::ZERO }
    }

    /// Looks at everybody.
    pub(super) fn look(&mut self, now: Time, view: &GpuView) {
        let latency = view.tenants.iter().filter(|tenant| tenant.class == Class::Latency);
        let beside = self.beside(view);
        self.looked = now;
        self.depth.look(latency.clone());
        if self.manner == Manner::Weft {
            self.need = self.adjustment.look(now, latency.clone(), beside);
        }
        if self.manner == Manner::Tgs {
            self.tgs.look(now, latency);
        }
    }

    /// How much best-effort work there was so far.
    fn beside(&self, view: &GpuView) -> Beside {
        let mut beside = Beside::default();
        for tenant in view.tenants.iter().filter(|tenant| tenant.class == Class::BestEffort) {
            beside.all += tenant.wanted;
            if self.is_beside(tenant, view) {
                beside.in_space += tenant.wanted;
            } else if tenant.slices {
                beside.in_time += tenant.wanted;
            } else if tenant.space {
                beside.gated += tenant.wanted;
            }
        }
        beside
    }

    /// How a best-effort tenant is to be held.
    pub(super) fn hold(&self, tenant: &TenantView, view: &GpuView) -> Hold {
        let gated =
            Hold { gate: self.depth.gate(), budget: self.depth.depth(), admission: Admission::GapFill, ..Hold::NOT };
        let mut latency = view.tenants.iter().filter(|tenant| tenant.class == Class::Latency);
        match self.manner {
            Manner::Unmanaged => Hold::NOT,
            Manner::Slices(slice) => Hold { slice: Some(slice), ..Hold::NOT },
            Manner::Gate => gated,
            Manner::Fikit => Hold { admission: Admission::GapFill, ..Hold::NOT },
            Manner::Orion => {
                let burst = latency.map(|tenant| tenant.burst).filter(|burst| *burst > Span::ZERO).min();
                let depth = burst.map_or(Span::MAX, |burst| burst.scale(ORION, 1_000));
                Hold { budget: depth, admission: Admission::ShortOnly, ..Hold::NOT }
            }
            Manner::Tgs => Hold { rate: self.tgs.rate(), ..Hold::NOT },
            Manner::Weft if view.tenants.iter().all(|other| other.class == Class::BestEffort) => Hold::NOT,
            Manner::Weft if latency.next().is_none() => gated,
            Manner::Weft if self.is_beside(tenant, view) => {
                let rung = self.adjustment.space.rung();
                let (space, admission, depth) = match self.need {
                    Need::None => (WHOLE, Admission::Concurrent, IDLE_DEPTH),
                    _ if rung <= GAPS => (SPACE[rung], Admission::GapFill, SPACE_DEPTH),
                    _ => (SPACE[rung], Admission::Concurrent, SPACE_DEPTH),
                };
                Hold { gate: self.gate(rung), budget: depth, space, admission, ..Hold::NOT }
            }
            Manner::Weft if tenant.slices => {
                let rung = self.adjustment.slice.rung();
                // Beside one that pauses, the pauses are enough, and no turn changes hands within a burst.
                let pauses = rung <= GAPS || self.need == Need::All || self.adjustment.leave_time();
                let (admission, depth) = match self.need {
                    Need::None => (Admission::Concurrent, Span::MAX),
                    _ if pauses && tenant.preemptible => (Admission::Exclusive, SPACE_DEPTH),
                    _ if pauses => (Admission::GapFill, SPACE_DEPTH),
                    _ => (Admission::Concurrent, Span::MAX),
                };
                // What is off within bursts is in the way at their beginning, for what is left of its slice: as little as
                // can be beside those who are to be as alone, and as much as they bear beside those with an objective.
                let as_alone = admission == Admission::Exclusive && !self.adjustment.all_promised(self.looked);
                let slice = if as_alone { SLICES[GAPS] } else { SLICES[rung] };
                Hold { gate: self.gate(rung), slice: Some(slice), admission, budget: depth, ..Hold::NOT }
            }
            // It is beside others, and in turns with a latency tenant: only the gate can hold it.
            Manner::Weft if tenant.space && gated.gate == Gate::Open => {
                Hold { gate: self.gate(self.adjustment.gate.rung()), ..gated }
            }
            Manner::Weft => gated,
        }
    }

    /// Whether best-effort tenants have a share of what others leave. By the published rules, and where one thing alone is
    /// to be seen, they have whatever they get.
    pub(super) fn divides(&self) -> bool {
        self.manner == Manner::Weft
    }

    /// Whether best-effort work may be launched at all on a rung.
    fn gate(&self, rung: usize) -> Gate {
        let held = match self.need {
            Need::None => false,
            Need::Some => rung == NOTHING && self.looked.nanos() % NOTHING_FOR.nanos() >= MOMENT.nanos(),
            Need::All => true,
        };
        if held { Gate::Held } else { Gate::Open }
    }

    /// Whether a best-effort tenant runs beside the latency tenants, and not in turns with them.
    pub(super) fn is_beside(&self, tenant: &TenantView, view: &GpuView) -> bool {
        let mut latency = view.tenants.iter().filter(|tenant| tenant.class == Class::Latency);
        // Those that do nothing may be wherever they are.
        let beside = |other: &TenantView| other.space || !self.adjustment.is_active(other.id, self.looked);
        self.manner == Manner::Weft && tenant.space && latency.all(beside)
    }

    /// How a tenant that is not best-effort is held: not at all. Beside best-effort ones alone it has longer slices;
    /// latency tenants that do nothing are not in its way.
    pub(super) fn hold_latency(&self, tenant: &TenantView, view: &GpuView) -> Hold {
        let idle =
            |other: &&TenantView| other.class == Class::Latency && !self.adjustment.is_active(other.id, self.looked);
        let others = view.tenants.iter().filter(|other| other.id != tenant.id);
        let mut others = others.filter(|other| !idle(other)).peekable();
        let alone_with_best_effort =
            others.peek().is_some() && others.all(|other| other.class == Class::BestEffort && other.slices);
        let longer = self.manner == Manner::Weft && tenant.class == Class::Latency && tenant.slices;
        Hold { slice: (longer && alone_with_best_effort).then_some(LATENCY_SLICE), ..Hold::NOT }
    }

    /// What a latency tenant's bursts take at present of what they may, in thousandths.
    pub(super) fn takes(&self, tenant: TenantId) -> Option<u64> {
        self.adjustment.takes(tenant)
    }

    /// The latency tenant that suffers most at present, and by how much in thousandths of what it may take.
    pub(super) fn worst(&self) -> Option<(TenantId, u64)> {
        (self.need != Need::None).then(|| self.adjustment.worst()).flatten()
    }
}

impl FromStr for Manner {
    type Err = String;

    fn from_str(text: &str) -> Result<Manner, String> {
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let manner = match name {
            "weft" => Manner::Weft,
            "unmanaged" => Manner::Unmanaged,
            "slices" => {
                let slice =
                    value.map_or(Ok(SLICE), |value| value.parse().map_err(|_| format!("`{value}` is no time")))?;
                if slice < Span::from_micros(100) || slice > Span::from_secs(1) {
                    return Err(format!("a slice of {slice} makes no sense; 100us to 1s do"));
                }
                return Ok(Manner::Slices(slice));
            }
            "gate" => Manner::Gate,
            "fikit" => Manner::Fikit,
            "orion" => Manner::Orion,
            "tgs" => Manner::Tgs,
            _ => {
                let known = "weft, unmanaged, slices=400us, gate, fikit, orion and tgs";
                return Err(format!("`{text}` is no rule to share by; {known} are"));
            }
        };
        if value.is_some() { Err(format!("`{name}` takes no value")) } else { Ok(manner) }
    }
}

impl fmt::Display for Manner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Manner::Weft => formatter.write_str("weft"),
            Manner::Unmanaged => formatter.write_str("unmanaged"),
            Manner::Slices(slice) => write!(formatter, "slices={slice}"),
            Manner::Gate => formatter.write_str("gate"),
            Manner::Fikit => formatter.write_str("fikit"),
            Manner::Orion => formatter.write_str("orion"),
            Manner::Tgs => formatter.write_str("tgs"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_they_are_written() {
        for text in ["weft", "unmanaged", "slices=400us", "slices=2ms", "gate", "fikit", "orion", "tgs"] {
            assert_eq!(text.parse::<Manner>().unwrap().to_string(), text);
        }
        assert_eq!("slices".parse(), Ok(Manner::Slices(SLICE)));
        for wrong in ["", "fair", "slices=1us", "slices=", "gate=3", "slices=2s"] {
            assert!(wrong.parse::<Manner>().is_err(), "{wrong}");
        }
    }

    fn tenant(id: u32, class: Class, space: bool, slices: bool) -> TenantView {
        let wanted = Span::from_millis(1);
        TenantView { class, space, slices, wanted, ..TenantView::new(TenantId(id)) }
    }

    /// How a best-effort tenant is held beside a latency tenant that works.
    fn held(manner: Manner, latency_in_space: bool, space: bool, slices: bool) -> Hold {
        let mut tenants =
            vec![tenant(0, Class::Latency, latency_in_space, true), tenant(1, Class::BestEffort, space, slices)];
        let mut rule = Rule::new(manner);
        for step in 0..3 {
            tenants[0].wanted += Span::from_millis(1);
            let view = GpuView { tenants: tenants.clone(), memory_total: 0 };
            rule.look(Time::ZERO + Span::from_millis(2 * step), &view);
        }
        rule.hold(&tenants[1], &GpuView { tenants: tenants.clone(), memory_total: 0 })
    }

    /// Bursts in turns of 5 ms alone that take `ratio` of that, in thousandths, for so many seconds: in which part of the
    /// looks best-effort work is held in the second half, in thousandths. It takes turns in slices, or is in space.
    fn held_beside(ratio: u64, seconds: u64, slices: bool) -> u64 {
        let mut tenants = vec![tenant(0, Class::Latency, false, true), tenant(1, Class::BestEffort, !slices, slices)];
        let mut rule = Rule::new(Manner::Weft);
        let (mut looks, mut held, mut waits) = (0, 0, false);
        for step in 0..seconds * 200 {
            tenants[0].bursts += 1;
            for tenant in &mut tenants {
                tenant.wanted += Span::from_millis(5);
            }
            tenants[0].burst_alone = Span::from_millis(5);
            // What it waits for is best-effort work.
            tenants[0].burst = Span::from_millis(5).scale(if waits { 1_000 } else { ratio }, 1_000);
            let view = GpuView { tenants: tenants.clone(), memory_total: 0 };
            rule.look(Time::ZERO + Span::from_millis(5 * step), &view);
            waits = rule.hold(&tenants[1], &view).gate == Gate::Held;
            if step > seconds * 100 {
                looks += 1;
                held += u64::from(waits);
            }
        }
        held * 1_000 / looks
    }

    #[test]
    fn where_nothing_helps_best_effort_work_waits_and_not_for_ever() {
        for slices in [true, false] {
            let held = held_beside(1_500, 120, slices);
            assert!((950..1_000).contains(&held), "{held}, slices: {slices}");
            assert!(held_beside(1_000, 120, slices) < 10, "and nobody waits for what is borne; slices: {slices}");
        }
    }

    #[test]
    fn who_is_alone_with_best_effort_work_has_longer_slices() {
        let slice = |others: &[TenantView]| {
            let latency = tenant(0, Class::Latency, false, true);
            let tenants = std::iter::once(&latency).chain(others).cloned().collect();
            let (mut rule, view) = (Rule::new(Manner::Weft), GpuView { tenants, memory_total: 0 });
            rule.look(Time::ZERO, &view);
            let at_once = rule.hold_latency(&latency, &view).slice;
            rule.look(Time::ZERO + Span::from_secs(2), &view);
            (at_once, rule.hold_latency(&latency, &view).slice)
        };
        let best_effort = tenant(1, Class::BestEffort, false, true);
        let longer = Some(LATENCY_SLICE);
        assert_eq!(slice(&[]), (None, None), "there is nobody to take turns with");
        assert_eq!(slice(std::slice::from_ref(&best_effort)), (longer, longer));
        let with_another = [best_effort.clone(), tenant(2, Class::Latency, false, true)];
        assert_eq!(slice(&with_another), (None, longer), "who does nothing for a second is not in the way");
        assert_eq!(slice(&[best_effort, tenant(2, Class::Standard, false, true)]), (None, None));
        assert_eq!(slice(&[tenant(1, Class::BestEffort, true, false)]), (None, None), "it is not in turns");
    }

    #[test]
    fn what_there_is_is_used() {
        let space = held(Manner::Weft, true, true, false);
        assert_eq!((space.space, space.slice, space.admission), (750, None, Admission::Concurrent));
        let slices = held(Manner::Weft, false, false, true);
        assert_eq!((slices.space, slices.slice, slices.admission), (WHOLE, Some(SLICE), Admission::GapFill));
        for mixed in [held(Manner::Weft, false, true, false), held(Manner::Weft, false, false, false)] {
            assert_eq!((mixed.space, mixed.slice, mixed.admission), (WHOLE, None, Admission::GapFill));
        }
        assert_eq!(held(Manner::Unmanaged, true, true, true), Hold::NOT);
    }

    #[test]
    fn what_is_taken_off_has_the_turn_for_longer_beside_objectives_alone() {
        let slice = |objectives: &[Option<Span>]| {
            let latency = |(id, objective): (usize, &Option<Span>)| TenantView {
                objective: *objective,
                ..tenant(id as u32, Class::Latency, false, true)
            };
            let mut tenants: Vec<TenantView> = objectives.iter().enumerate().map(latency).collect();
            tenants.push(TenantView { preemptible: true, ..tenant(9, Class::BestEffort, false, true) });
            let view = GpuView { tenants, memory_total: 0 };
            let mut rule = Rule::new(Manner::Weft);
            rule.look(Time::ZERO + Span::from_millis(2), &view);
            let hold = rule.hold(view.tenants.last().unwrap(), &view);
            assert_eq!(hold.admission, Admission::Exclusive);
            hold.slice
        };
        let objective = Some(Span::from_millis(10));
        assert_eq!(slice(&[None]), Some(SLICES[GAPS]));
        assert_eq!(slice(&[objective]), Some(SLICES[SLICE_START]));
        assert_eq!(slice(&[objective, None]), Some(SLICES[GAPS]), "one of them is to be as alone");
    }
}
