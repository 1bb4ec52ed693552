//! The fast plane: may this kernel be launched now? A pure function of a few plain values, small enough to be
//! copied into the shim.
//!
//! 1. A daemon that fell silent bounds nobody's time: only best-effort tenants keep a bound, half their depth. What
//!    the others' pages say is not believed then, because nobody clears the page of one that died.
//! 2. A tenant past its allowance waits, whatever its class.
//! 3. Only best-effort tenants wait for anything else: a gate that is held, their own depth, and everyone more
//!    important. While one of those has work on the GPU they wait. When it has none they fill its predicted gap with
//!    what fits: inside a burst to the letter, between bursts with the depth to spare, which the slow plane takes away
//!    when bursts suffer. When it is late by a good part of the gap, its owner is gone until further notice, and the depth
//!    bounds what stands in its way when it comes back. Who can be taken off the GPU again waits for bursts alone.
//!
//! Not covered: a tenant that is inside a burst and far behind its predicted gap looks idle. It loses one depth, or
//! one kernel where that is longer.

use super::view::rank;
use super::{Class, Filling, Gate};
use crate::{Span, Time};

/// Longer than this without a word of it, and the daemon is dead.
pub const DAEMON_SILENT: Span = Span::from_nanos(share_core::Patience::USUAL.heartbeat_ns);
/// Nobody waits longer than this before looking again.
pub const LOOK_AGAIN: Span = Span::from_millis(1);
/// Nor shorter than this: looking costs something, and what it looks at changes no faster.
const LOOK_LEAST: Span = Span::from_micros(5);
/// How late the owner of a gap may be before it counts as gone; in the middle of a burst, beyond twice the gap.
const LATE: Span = Span::from_millis(1);

/// What the daemon told this tenant: its control page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// The daemon's last tick.
    pub heartbeat: Time,
    /// This tenant's class.
    pub class: Class,
    /// This tenant's priority.
    pub priority: u8,
    /// Held or open.
    pub gate: Gate,
    /// What the charge may grow to.
    pub allowed: Span,
    /// Bound on outstanding GPU time.
    pub depth: Span,
    /// What may be launched in the middle of somebody's burst.
    pub filling: Filling,
}

/// What this tenant knows of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// Charged so far.
    pub charged: Span,
    /// GPU time launched and not done.
    pub outstanding: Span,
}

/// What another tenant's page says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its class.
    pub class: Class,
    /// Its priority.
    pub priority: u8,
    /// It has launched since its last sync.
    pub in_burst: bool,
    /// When what it launched will be done, as far as it knows.
    pub busy_until: Time,
    /// How long after that its next kernel comes, as learned; zero when that is not known.
    pub gap: Span,
}

/// Launch, or wait and ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Launch.
    Go,
    /// Ask again then, or earlier when the gate changed.
    Wait {
        /// Never more than [`LOOK_AGAIN`] from now.
        until: Time,
    },
}

/// Whether there is a reason to preempt a tenant: somebody more important is busy. How long that holds is the lease's to
/// say.
pub fn is_off(now: Time, control: &Control, others: &[Neighbour]) -> bool {
    let alive = now - control.heartbeat <= DAEMON_SILENT;
    let told = alive && control.class == Class::BestEffort && control.filling == Filling::Nothing;
    let mine = rank(control.class, control.priority);
    let in_burst = |other: &Neighbour| other.in_burst && rank(other.class, other.priority) < mine;
    told && (control.gate == Gate::Held || others.iter().any(in_burst))
}

/// Whether a kernel that is predicted to take `predicted` may be launched.
pub fn may_launch(now: Time, own: Own, control: &Control, others: &[Neighbour], predicted: Span) -> Verdict {
    let wait = |until: Time| Verdict::Wait { until: until.min(now + LOOK_AGAIN).max(now + LOOK_LEAST) };
    let alive = now - control.heartbeat <= DAEMON_SILENT;
    if alive && own.charged >= control.allowed {
        return wait(Time::NEVER);
    }
    if control.class != Class::BestEffort {
        return Verdict::Go;
    }
    if alive && control.gate == Gate::Held {
        return wait(Time::NEVER);
    }
    let depth = if alive { control.depth } else { control.depth.scale(1, 2) };
    // A kernel longer than the depth may run, alone.
    if own.outstanding > Span::ZERO && own.outstanding + predicted > depth {
        return wait(now + (own.outstanding + predicted - depth));
    }
    if control.filling == Filling::Anything || control.filling == Filling::Short && predicted <= depth {
        return Verdict::Go;
    }
    let mine = rank(control.class, control.priority);
    let ahead = others.iter().filter(|other| alive && rank(other.class, other.priority) < mine);
    for other in ahead {
        if control.filling == Filling::Nothing {
            // However long it takes, it is off the GPU when somebody needs that.
            if other.in_burst {
                return wait(Time::NEVER);
            }
            continue;
        }
        if other.busy_until > now {
            return wait(other.busy_until);
        }
        let back = other.busy_until + other.gap;
        // Gaps vary: the owner of one is given up only when it is late by a good part of it.
        let gone = back + if other.in_burst { other.gap + LATE } else { other.gap.scale(1, 2).min(LATE) };
        // Between bursts as much may reach over the gap's end as may stand in the way of whoever comes unexpected.
        let over = if other.in_burst { Span::ZERO } else { depth };
        if now + own.outstanding + predicted > back + over && now < gone {
            return wait(gone);
        }
    }
    Verdict::Go
}
