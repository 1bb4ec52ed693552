//! Whether a program runs in spatial or in temporal mode, decided when it starts.
//!
//! In spatial mode programs compete for SMs, caches and memory bandwidth, and everything that they launch goes through MPS,
//! which costs a CUDA graph of a millisecond a tenth of it; in temporal mode they pay for each change of time slices. A
//! program whose host is busy between launches leaves room on the GPU all the time, and loses little in spatial mode. A
//! program that waits for the GPU fills it: in spatial mode others only slow it down, and in temporal mode they can
//! have all of the GPU between its requests. How long it waits after its last launch, when alone, shows which it is.
//!
//! 1. Standard programs were promised shares of time, and run in temporal mode.
//! 2. A latency program runs in spatial mode if it is known to leave room. One of which nothing is known runs in temporal
//!    mode, where it is as fast as without Weft.
//! 3. A best-effort program runs in spatial mode where a latency program does, and none is in temporal mode: only there can
//!    it be preempted, which serves latency programs in either mode.
//! 4. So a latency program that comes to a best-effort program in temporal mode runs there as well: in spatial mode there
//!    would be nobody to share the SMs with.

use super::{Class, WHOLE};

/// In which modes programs of the other kind are on the same GPU: latency programs for a best-effort program, best-effort
/// programs for a latency program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    /// Some are in spatial mode.
    pub spatial: bool,
    /// Some are in temporal mode.
    pub temporal: bool,
}

/// Whether a program is best off in spatial mode. `wait_permille`: how long its bursts wait for the GPU when alone, in
/// thousandths of their GPU time, if that is known: a program that waits for most of it fills the GPU.
pub fn suits_spatial(class: Class, wait_permille: Option<u64>, others: Modes) -> bool {
    match class {
        Class::Standard => false,
        Class::Latency => !others.temporal && wait_permille.is_some_and(|wait| 2 * wait < u64::from(WHOLE)),
        Class::BestEffort => others.spatial && !others.temporal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_are_known_to_leave_room_are_spatial_and_all_others_temporal() {
        let of = |spatial, temporal| Modes { spatial, temporal };
        let cases = [
            (Class::Latency, None, of(false, false), false),
            (Class::Latency, Some(80), of(false, false), true),
            (Class::Latency, Some(80), of(true, false), true),
            (Class::Latency, Some(80), of(true, true), false),
            (Class::Latency, Some(900), of(false, false), false),
            (Class::Standard, Some(0), of(true, false), false),
            (Class::BestEffort, Some(900), of(true, false), true),
            (Class::BestEffort, Some(0), of(true, true), false),
            (Class::BestEffort, Some(0), of(false, false), false),
        ];
        for (class, wait, others, expected) in cases {
            assert_eq!(suits_spatial(class, wait, others), expected, "{class:?} {wait:?} {others:?}");
        }
    }
}
