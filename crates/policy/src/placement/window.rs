//! Shares over time: where a worker that runs for a part of the time fits beside others.
//!
//! A worker is a rectangle, its share by its quota. What is free on a GPU is a height for every moment of a period; the
//! *maximal free rectangles* are those that cannot be made longer without being made lower. They are derived from the
//! parts each time and so need no merging when one goes. Shares have no place of their own: two halves are a whole
//! wherever they lie, so only time is divided.

use super::{Need, Part, Rules, WHOLE};

/// A stretch of the period and what is free in all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// Where it starts, in thousandths of the period.
    pub(super) start: u32,
    /// How long it is.
    pub(super) length: u32,
    /// Free for requests, in thousandths.
    pub(super) request: u32,
    /// Free for limits, in thousandths.
    pub(super) limit: u32,
}

/// The most that is taken at any time: requests, limits.
pub(super) fn peak(parts: &[Part]) -> (u32, u32) {
    // What is taken only grows where a part starts.
    let at = |time: u32| {
        let running = parts.iter().filter(move |part| part.start <= time && time < part.start + part.need.quota);
        running.fold((0, 0), |sum: (u32, u32), part| (sum.0 + part.need.request, sum.1 + part.need.limit))
    };
    let most = |most: (u32, u32), own: (u32, u32)| (most.0.max(own.0), most.1.max(own.1));
    parts.iter().map(|part| at(part.start)).fold((0, 0), most)
}

/// The maximal free rectangles beside these parts, by start and then by length.
pub(super) fn free(parts: &[Part], rules: Rules) -> Vec<Window> {
    let mut times: Vec<u32> = parts.iter().flat_map(|part| [part.start, part.start + part.need.quota]).collect();
    times.extend([0, WHOLE]);
    times.sort_unstable();
    times.dedup();
    let mut windows: Vec<Window> = Vec::new();
    for (index, start) in times.iter().enumerate() {
        for end in &times[index + 1..] {
            let inside: Vec<Part> = parts.iter().filter_map(|part| cut(part, *start, *end)).collect();
            let (request, limit) = peak(&inside);
            let window = Window {
                start: *start,
                length: end - start,
                request: WHOLE.saturating_sub(request),
                limit: rules.limit.saturating_sub(limit),
            };
            windows.push(window);
        }
    }
    let all = windows.clone();
    windows.retain(|own| own.request > 0 && !all.iter().any(|other| other != own && other.covers(own)));
    windows
}

/// The part of a part between two times.
fn cut(part: &Part, start: u32, end: u32) -> Option<Part> {
    let (first, last) = (part.start.max(start), (part.start + part.need.quota).min(end));
    (first < last).then(|| Part { start: first, need: Need { quota: last - first, ..part.need }, ..*part })
}

impl Window {
    fn covers(&self, other: &Window) -> bool {
        let longer = self.start <= other.start && other.start + other.length <= self.start + self.length;
        longer && self.request >= other.request && self.limit >= other.limit
    }
}

/// When a worker should run: at the start of the free rectangle that it leaves least of. `None`: it fits nowhere.
pub(super) fn best_fit(parts: &[Part], need: &Need, rules: Rules) -> Option<u32> {
    let fits =
        |window: &Window| window.length >= need.quota && window.request >= need.request && window.limit >= need.limit;
    let area = |window: &Window| u64::from(window.length) * u64::from(window.request);
    let free = free(parts, rules);
    free.iter()
        .filter(|window| fits(window))
        .min_by_key(|window| (area(window), window.start))
        .map(|window| window.start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::InstanceId;
    use crate::placement::Kind;
    use proptest::prelude::*;

    const RULES: Rules = Rules::SHARED;

    fn part(start: u32, request: u32, quota: u32) -> Part {
        Part {
            instance: InstanceId(0),
            kind: Kind::Inference,
            start,
            need: Need { request, limit: request, quota, memory: 1 },
        }
    }

    #[test]
    fn the_free_rectangles_are_maximal() {
        let parts = [part(0, 600, 500), part(500, 200, 250)];
        let shown: Vec<_> = free(&parts, RULES).iter().map(|w| (w.start, w.length, w.request)).collect();
        assert_eq!(shown, [(0, 1000, 400), (500, 500, 800), (750, 250, 1000)]);
        assert_eq!(free(&[], RULES).len(), 1);
        assert_eq!(free(&[part(0, 1000, 1000)], RULES), []);
    }

    #[test]
    fn a_worker_takes_the_rectangle_that_it_leaves_least_of() {
        let parts = [part(0, 600, 500), part(500, 200, 250)];
        let fit = |request, quota| best_fit(&parts, &Need { request, limit: request, quota, memory: 1 }, RULES);
        assert_eq!(fit(900, 250), Some(750));
        assert_eq!(fit(800, 500), Some(500));
        assert_eq!(fit(400, 1000), Some(0));
        assert_eq!((fit(401, 1000), fit(900, 251)), (None, None));
    }

    proptest! {
        #[test]
        fn what_best_fit_says_fits_and_what_it_refuses_fits_nowhere(
            asked in prop::collection::vec((1..=10u32, 1..=10u32), 1..12),
            gone in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let mut parts: Vec<Part> = Vec::new();
            let mut gone = gone.into_iter();
            for (share, quota) in asked {
                let need = Need { request: share * 100, limit: share * 100, quota: quota * 100, memory: 1 };
                let placed = |start: u32| parts.iter().copied().chain([Part { start, need, ..part(0, 0, 0) }]).collect::<Vec<_>>();
                let found = best_fit(&parts, &need, RULES);
                let somewhere = (0..=WHOLE - need.quota).step_by(50).find(|start| peak(&placed(*start)).0 <= WHOLE);
                prop_assert_eq!(found.is_some(), somewhere.is_some());
                if let Some(start) = found {
                    parts = placed(start);
                    prop_assert!(start + need.quota <= WHOLE && peak(&parts).0 <= WHOLE);
                } else if let Some(index) = gone.next() {
                    // What a part leaves behind is free again as one piece.
                    let left = parts.remove(index.index(parts.len()));
                    prop_assert!(best_fit(&parts, &left.need, RULES).is_some());
                }
            }
        }
    }
}
