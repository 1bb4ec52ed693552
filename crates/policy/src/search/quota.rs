//! The smallest share that keeps a part of the throughput that a whole GPU gives.
//!
//! Measures the whole GPU, and then halves what is left: where a share keeps enough, the search goes on below it. Takes
//! throughput to grow with the share. Training takes two such parts, [`TRAINING`], for its request and its limit;
//! inference has its request from [`super::Search`] and takes its limit as [`INFERENCE_LIMIT`].
//!
//! Invariants: no share is probed twice, also not for another part; what is found was measured, and kept the part.

use crate::surface::Share;
use std::collections::BTreeMap;

/// Of the throughput of a whole GPU, what training's request keeps and what its limit keeps (Dilu, section 3.2).
pub const TRAINING: [f64; 2] = [0.8, 0.98];
/// What inference's limit keeps: beyond it, throughput gains less than a twentieth.
pub const INFERENCE_LIMIT: f64 = 1.0 / 1.05;

/// A search among shares, for one or more parts of the full throughput.
#[derive(Clone, Debug)]
pub struct Quota {
    shares: Vec<Share>,
    parts: Vec<f64>,
    /// Throughput by index of the share; `None`: cannot be run.
    seen: BTreeMap<usize, Option<f64>>,
}

/// The share to measure, where the search cannot go on without.
struct Missing(usize);

impl Quota {
    /// A search among these shares, the largest of which counts as a whole GPU. `None` when there is no share, or a part
    /// is not between nothing and all.
    pub fn new(mut shares: Vec<Share>, parts: &[f64]) -> Option<Quota> {
        shares.sort_unstable();
        shares.dedup();
        let sound = !shares.is_empty() && parts.iter().all(|part| *part > 0.0 && *part <= 1.0);
        sound.then(|| Quota { shares, parts: parts.to_vec(), seen: BTreeMap::new() })
    }

    /// Training's request and limit, in steps of 5%.
    pub fn training() -> Quota {
        let step = Share::from_permille(50).expect("a twentieth is something");
        Quota::new(Share::steps(step), &TRAINING).expect("there are shares, and the parts are parts")
    }

    /// Inference's limit, among its request and the shares above it.
    pub fn inference(shares: &[Share], request: Share) -> Quota {
        let mut shares: Vec<Share> = shares.iter().copied().filter(|share| *share > request).collect();
        shares.push(request);
        Quota::new(shares, &[INFERENCE_LIMIT]).expect("there is the request, and the part is a part")
    }

    /// The share to measure next; `None` when the search has ended.
    pub fn next(&self) -> Option<Share> {
        self.walk().err().map(|Missing(index)| self.shares[index])
    }

    /// Answers [`Self::next`]. Does nothing when nothing was asked.
    ///
    /// `throughput` is finite and not below zero.
    pub fn observe(&mut self, throughput: f64) {
        assert!(throughput.is_finite() && throughput >= 0.0, "a throughput of {throughput}");
        self.answer(Some(throughput));
    }

    /// Answers [`Self::next`] when the share is too small to run on.
    pub fn cannot_run(&mut self) {
        self.answer(None);
    }

    /// Shares that were measured.
    pub fn probes(&self) -> usize {
        self.seen.len()
    }

    /// For each part, the smallest share that keeps it; `None` while there is something to measure, and inside when it
    /// cannot be run at all.
    pub fn outcome(&self) -> Option<Vec<Option<Share>>> {
        self.walk().ok()
    }

    fn answer(&mut self, throughput: Option<f64>) {
        if let Err(Missing(index)) = self.walk() {
            self.seen.insert(index, throughput);
        }
    }

    fn walk(&self) -> Result<Vec<Option<Share>>, Missing> {
        let whole = self.shares.len() - 1;
        let Some(full) = self.look(whole)? else { return Ok(vec![None; self.parts.len()]) };
        let smallest = |part: &f64| {
            // Everything below `low` keeps too little, `high` keeps enough.
            let (mut low, mut high) = (0, whole);
            while low < high {
                let middle = low + (high - low) / 2;
                match self.look(middle)? {
                    Some(throughput) if throughput >= full * part => high = middle,
                    _ => low = middle + 1,
                }
            }
            Ok(Some(self.shares[high]))
        };
        self.parts.iter().map(smallest).collect()
    }

    fn look(&self, index: usize) -> Result<Option<f64>, Missing> {
        self.seen.get(&index).copied().ok_or(Missing(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(percent: u32) -> Share {
        Share::from_permille(percent * 10).unwrap()
    }

    /// Drives a search with this throughput by percent; shares found in percent, and how many were measured.
    fn check(throughput: impl Fn(f64) -> Option<f64>) -> (Vec<Option<f64>>, usize) {
        let mut quota = Quota::training();
        let mut asked = Vec::new();
        while let Some(share) = quota.next() {
            assert!(!asked.contains(&share), "{share} was probed twice");
            asked.push(share);
            match throughput(share.percent()) {
                Some(throughput) => quota.observe(throughput),
                None => quota.cannot_run(),
            }
        }
        let found = quota.outcome().expect("nothing is left to measure");
        (found.iter().map(|share| share.map(Share::percent)).collect(), quota.probes())
    }

    #[test]
    fn request_and_limit_of_training_that_stops_gaining() {
        // As fast as with everything from 60% on.
        let (found, probes) = check(|percent| Some(percent.min(60.0)));
        assert_eq!(found, [Some(50.0), Some(60.0)]);
        assert!(probes <= 9, "{probes}");
        let (found, _) = check(|percent| Some(percent.powf(0.3)));
        assert_eq!(found, [Some(50.0), Some(95.0)]);
    }

    #[test]
    fn a_model_that_hardly_needs_a_gpu_gets_the_smallest_share() {
        assert_eq!(check(|_| Some(7.0)).0, [Some(5.0), Some(5.0)]);
    }

    #[test]
    fn shares_that_are_too_small_are_passed_over() {
        assert_eq!(check(|percent| (percent >= 35.0).then_some(7.0)).0, [Some(35.0), Some(35.0)]);
        assert_eq!(check(|_| None), (vec![None, None], 1));
    }

    #[test]
    fn the_limit_of_inference_is_where_more_gains_less_than_a_twentieth() {
        let limit = |request, throughput: fn(f64) -> f64| {
            let mut quota = Quota::inference(&Share::steps(percent(10)), percent(request));
            while let Some(share) = quota.next() {
                assert!(share >= percent(request), "{share} lies below the request");
                quota.observe(throughput(share.percent()));
            }
            quota.outcome().unwrap()[0].unwrap().percent()
        };
        assert_eq!(limit(20, |percent| percent), 100.0);
        assert_eq!(limit(20, |percent| percent.min(50.0)), 50.0);
        assert_eq!(limit(20, |_| 7.0), 20.0);
        assert_eq!(limit(100, |percent| percent), 100.0);
    }

    #[test]
    fn parts_that_are_none_are_refused() {
        assert!(Quota::new(vec![], &[0.5]).is_none());
        assert!(Quota::new(vec![percent(10)], &[0.0]).is_none());
        assert!(Quota::new(vec![percent(10)], &[1.1]).is_none());
    }

    proptest::proptest! {
        #[test]
        fn the_smallest_share_is_found_wherever_throughput_grows(
            gains in proptest::collection::vec(0.0..3.0f64, 20),
            part in 0.01..1.0f64,
        ) {
            let curve: Vec<f64> = gains.iter().scan(0.1, |sum, gain| { *sum += gain; Some(*sum) }).collect();
            let mut quota = Quota::new(Share::steps(percent(5)), &[part]).unwrap();
            while let Some(share) = quota.next() {
                quota.observe(curve[share.permille() as usize / 50 - 1]);
            }
            let expected = curve.iter().position(|throughput| *throughput >= curve[19] * part).unwrap();
            proptest::prop_assert_eq!(quota.outcome(), Some(vec![Some(Share::steps(percent(5))[expected])]));
            proptest::prop_assert!(quota.probes() <= 6, "{}", quota.probes());
        }
    }
}
