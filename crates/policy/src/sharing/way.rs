//! Whether a program shares a GPU side by side with others or in turns, decided when it starts.
//!
//! Side by side costs both what each takes of the SMs, of the caches and of the memory's bandwidth; in turns it costs the
//! changes of turns. A program that keeps the GPU waiting, because its host is busy between launches, leaves room on it
//! all the time and loses little beside others. A program that waits for the GPU fills it: beside it others only slow
//! it down, and between its requests they can have all of it. Which it is shows in how long it waits, alone, after its
//! last launch.
//!
//! 1. Standard programs were promised shares of time, and take turns.
//! 2. A best-effort program is beside latency programs, unless one of them takes turns: from beside others it cannot be
//!    taken off the GPU, and in turns it can be, for those that are side by side as well.
//! 3. A latency program of which nothing is known is thought to leave room.

use super::Class;

/// A latency program that waits so long for the GPU, in thousandths of the GPU time of its bursts, fills it.
const FILLS: u64 = 500;

/// Whether a program is best off side by side with others. `wait_permille`: how long its bursts wait for the GPU alone, in
/// thousandths of their GPU time, if that is known; `in_turns`: whether a latency program on its GPU takes turns.
pub fn suits_space(class: Class, wait_permille: Option<u64>, in_turns: bool) -> bool {
    match class {
        Class::Standard => false,
        Class::Latency => wait_permille.is_none_or(|wait| wait < FILLS),
        Class::BestEffort => !in_turns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leaves_room_is_beside_others_and_who_fills_the_gpu_takes_turns() {
        assert!(suits_space(Class::Latency, None, false));
        assert!(suits_space(Class::Latency, Some(80), true));
        assert!(!suits_space(Class::Latency, Some(900), false));
        assert!(!suits_space(Class::Standard, Some(0), false));
        assert!(suits_space(Class::BestEffort, Some(900), false));
        assert!(!suits_space(Class::BestEffort, Some(0), true));
    }
}
