//! The rules that differ between one way of serving and another. Each is a setting of the same policy.

use super::budget::ONE;

/// One way of serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) name: &'static str,
    pub(super) wait: Wait,
    pub(super) goal: Goal,
    /// Whether batches that will be late are seen ahead, and those refused whom it costs least.
    pub(super) ahead: bool,
    /// Whether GPUs that the load does not need are left idle until somebody would be late without one.
    pub(super) reserve: bool,
}

/// How long a batch waits for company.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// While that gains more than an idle GPU costs; a full cluster's GPU-second costs this much, in GPU-seconds (of
    /// [`ONE`]).
    Priced(u64),
    /// As long as it may.
    Due,
    /// Not at all.
    Never,
}

/// The batch for which heads are refused that stand in its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// The size of the lane's usual batch.
    Usual,
    /// The size that the rate and the objective allow.
    Target,
    /// Nobody is refused for it.
    One,
}

const PRICES: Wait = Wait::Priced(2 * ONE as u64);

/// All settings, the one to begin with first.
pub(super) const SETTINGS: [Setting; 5] = [
    Setting { name: "prices", wait: PRICES, goal: Goal::Usual, ahead: true, reserve: true },
    Setting { name: "patient", wait: Wait::Due, goal: Goal::Usual, ahead: true, reserve: false },
    Setting { name: "deferral", wait: Wait::Due, goal: Goal::Target, ahead: false, reserve: false },
    Setting { name: "eager", wait: Wait::Never, goal: Goal::Target, ahead: false, reserve: false },
    Setting { name: "timeout", wait: Wait::Never, goal: Goal::One, ahead: false, reserve: false },
];
