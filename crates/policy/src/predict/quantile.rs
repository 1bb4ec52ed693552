//! How far off predictions were, most of the time.

/// With fewer, what was is no guide to what will be.
const SCORES_MIN: usize = 10;

/// The score that this part of all scores does not exceed; `None` when they are too few to say.
pub(super) fn quantile(scores: impl Iterator<Item = f64>, part: f64) -> Option<f64> {
    let mut scores: Vec<f64> = scores.collect();
    scores.sort_by(f64::total_cmp);
    let rank = ((scores.len() + 1) as f64 * part).ceil() as usize;
    if scores.len() < SCORES_MIN { None } else { Some(scores[rank.min(scores.len()) - 1]) }
}
