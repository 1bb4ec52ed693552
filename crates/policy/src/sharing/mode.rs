//! Whether a program runs in spatial or in temporal mode, decided when it starts.
//!
//! In spatial mode programs compete for SMs, caches and memory bandwidth; in temporal mode they pay for each change of time
//! slices. A program whose host is busy between launches leaves room on the GPU all the time, and loses little in spatial
//! mode. A program that waits for the GPU fills it: in spatial mode others only slow it down, and in temporal mode they can
//! have all of the GPU between its requests. How long it waits after its last launch, when alone, shows which it is.
//!
//! 1. Standard programs were promised shares of time, and run in temporal mode.
//! 2. A best-effort program runs in spatial mode with latency programs that do. Where one of them is in temporal mode it
//!    runs in temporal mode too: only there can it be preempted, and that serves latency programs in either mode.
//! 3. A latency program about which nothing is known is assumed to leave room.

use super::{Class, WHOLE};

/// Whether a program is best off in spatial mode. `wait_permille`: how long its bursts wait for the GPU when alone, in
/// thousandths of their GPU time, if that is known: a program that waits for most of it fills the GPU. `temporal`: whether a
/// latency program on its GPU is in temporal mode.
pub fn suits_spatial(class: Class, wait_permille: Option<u64>, temporal: bool) -> bool {
    match class {
        Class::Standard => false,
        Class::Latency => wait_permille.is_none_or(|wait| 2 * wait < u64::from(WHOLE)),
        Class::BestEffort => !temporal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_leave_room_are_spatial_and_programs_that_fill_the_gpu_are_temporal() {
        assert!(suits_spatial(Class::Latency, None, false));
        assert!(suits_spatial(Class::Latency, Some(80), true));
        assert!(!suits_spatial(Class::Latency, Some(900), false));
        assert!(!suits_spatial(Class::Standard, Some(0), false));
        assert!(suits_spatial(Class::BestEffort, Some(900), false));
        assert!(!suits_spatial(Class::BestEffort, Some(0), true));
    }
}
