//! How long batches take, looked up: a function's profile by batch and by hundredths of a GPU.

use policy::predict::{Predictor, Tenant};
use policy::surface::{Share, Surface};
use policy::{ModelId, Span};

/// Hundredths of a GPU.
const STEPS: usize = 100;
/// Next to as fast as on all of a GPU is a batch that takes at most so many times as long.
const NEXT_TO: f64 = 1.05;

/// Latencies of one model.
#[derive(Clone, Debug)]
pub(super) struct Latency {
    /// Seconds, by batch from 1 on and then by hundredths of a GPU from 1 on.
    seconds: Vec<[f64; STEPS]>,
    /// GPU seconds that a batch cannot do without.
    work: Vec<f64>,
}

impl Latency {
    /// Reads between the points of a profile.
    pub(super) fn new(surface: &Surface, batch_max: usize) -> Latency {
        let model = ModelId(0);
        let mut predictor = Predictor::default();
        predictor.learn(model, surface);
        let (batches, shares) = (surface.batches(), surface.shares());
        let (least, most) = (shares[0], shares[shares.len() - 1]);
        let largest = batch_max.min(batches[batches.len() - 1]);
        let mut seconds: Vec<[f64; STEPS]> = Vec::new();
        for batch in 1..=largest {
            let mut row = [0.0; STEPS];
            let tenant = Tenant { model, batch: batch.max(batches[0]) };
            let mut before = f64::INFINITY;
            for (index, cell) in row.iter_mut().enumerate() {
                let share = Share::from_permille((index as u32 + 1) * 10).expect("a hundredth or more");
                let known = share.clamp(least, most);
                // Where there are points on one side only, the nearest share below that has both is slower.
                let alone = predictor.predict(tenant, known, &[]).map(|estimate| estimate.latency.seconds());
                let alone = alone.unwrap_or_else(|_| nearest(surface, tenant.batch, known));
                let stretched = alone * f64::from(known.permille()) / f64::from(share.permille().min(known.permille()));
                // More of a GPU is not slower: dips are noise.
                *cell = stretched.min(before);
                before = *cell;
            }
            if let Some(smaller) = seconds.last() {
                row.iter_mut().zip(smaller).for_each(|(cell, smaller)| *cell = cell.max(*smaller));
            }
            seconds.push(row);
        }
        let least = f64::from(least.permille()) / 1e3;
        let first = ((least * STEPS as f64).ceil() as usize).max(1);
        let work = |row: &[f64; STEPS]| {
            let all = (first..=STEPS).map(|hundredths| row[hundredths - 1] * hundredths as f64 / STEPS as f64);
            all.fold(f64::INFINITY, f64::min)
        };
        let work = seconds.iter().map(work).collect();
        Latency { seconds, work }
    }

    /// The largest batch that is known.
    pub(super) fn batch_max(&self) -> usize {
        self.seconds.len()
    }

    /// Seconds that a batch takes on so many thousandths of a GPU.
    pub(super) fn seconds(&self, batch: usize, permille: f64) -> f64 {
        let row = &self.seconds[batch - 1];
        let at = (permille / 10.0).max(0.05);
        if at <= 1.0 {
            return row[0] / at;
        }
        let index = (at.floor() as usize).min(STEPS);
        let (below, above) = (row[index - 1], row[index.min(STEPS - 1)]);
        below + (above - below) * (at - index as f64).clamp(0.0, 1.0)
    }

    /// GPU seconds that are in a batch.
    pub(super) fn work(&self, batch: usize) -> f64 {
        self.work[batch - 1]
    }

    /// The least share between two that ends a batch within some seconds; the larger where none does.
    pub(super) fn share_for(&self, batch: usize, least: u32, most: u32, seconds: f64) -> u32 {
        let mut steps = (least..=most).step_by(10);
        steps.find(|share| self.seconds(batch, f64::from(*share)) <= seconds).unwrap_or(most)
    }

    /// The least share on which a batch is next to as fast as on all of a GPU.
    pub(super) fn enough(&self, batch: usize) -> u32 {
        let row = &self.seconds[batch - 1];
        let within = row[STEPS - 1] * NEXT_TO;
        (row.iter().position(|seconds| *seconds <= within).unwrap_or(STEPS - 1) + 1) as u32 * 10
    }

    /// Requests a second in batches that take at most so long.
    pub(super) fn throughput(&self, permille: u32, execution: Span) -> f64 {
        let share = f64::from(permille);
        let batches = 1..=self.batch_max();
        let within = batches.filter(|batch| self.seconds(*batch, share) <= execution.seconds());
        within.map(|batch| batch as f64 / self.seconds(batch, share)).fold(0.0, f64::max)
    }
}

/// The measurement nearest to a batch and share.
fn nearest(surface: &Surface, batch: usize, share: Share) -> f64 {
    let points = surface.points().iter();
    let far = |point: &&policy::surface::Point| {
        (point.batch.abs_diff(batch), point.share.permille().abs_diff(share.permille()))
    };
    points.min_by_key(far).expect("a surface has a point").latency.seconds()
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::surface::Point;

    #[test]
    fn batches_slow_down_as_shares_shrink() {
        let point = |batch: usize, percent: f64, millis: f64| Point {
            batch,
            share: Share::from_percent(percent).unwrap(),
            latency: Span::from_millis_f64(millis),
            throughput: batch as f64 / millis * 1e3,
        };
        let points = [point(1, 20.0, 20.0), point(1, 100.0, 10.0), point(4, 20.0, 40.0), point(4, 100.0, 12.0)];
        let latency = Latency::new(&Surface::new(&points).unwrap(), 32);
        let millis = |batch, permille| (latency.seconds(batch, permille) * 1e5).round() / 1e2;
        assert_eq!((latency.batch_max(), millis(1, 200.0), millis(1, 1000.0)), (4, 20.0, 10.0));
        assert_eq!((millis(1, 100.0), millis(4, 50.0), millis(1, 5.0)), (40.0, 160.0, 800.0));
        assert_eq!(latency.share_for(1, 100, 300, 0.020), 200);
        assert_eq!(latency.throughput(200, Span::from_millis(40)), 100.0);
        assert!((latency.work(4) - 0.008).abs() < 1e-9);
    }
}
