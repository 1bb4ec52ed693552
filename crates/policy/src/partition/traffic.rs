//! How fast requests of each model come, and how much burstier than at random: measured over an epoch.
//!
//! From counts that the dispatchers keep anyway, read once in a while; an arrival costs nothing.

use crate::Span;
use crate::staffing::ONE;

/// Counts by model over windows of equal length.
#[derive(Clone, Debug)]
pub struct Traffic {
    window: Span,
    windows: u64,
    models: Vec<Counts>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// All that ever came, when last looked at.
    before: u64,
    /// Came in this epoch's windows,
    sum: u64,
    /// and the squares of what came in each.
    squares: u64,
}

impl Traffic {
    /// Nothing was counted yet; windows are this long.
    pub fn new(window: Span) -> Traffic {
        Traffic { window, windows: 0, models: Vec::new() }
    }

    /// How long a window is.
    pub fn window(&self) -> Span {
        self.window
    }

    /// A window is over: how many requests ever came, by model.
    pub fn sample(&mut self, offered: impl Iterator<Item = u64>) {
        self.windows += 1;
        for (index, offered) in offered.enumerate() {
            if index == self.models.len() {
                self.models.push(Counts::default());
            }
            let counts = &mut self.models[index];
            let came = offered - std::mem::replace(&mut counts.before, offered);
            counts.sum += came;
            counts.squares += came * came;
        }
    }

    /// The mean gap between a model's requests and their dispersion (of [`ONE`]). Streams that are steadier than at random
    /// count as random: whether they stay so nobody promised.
    pub fn of(&self, model: usize) -> (Span, u64) {
        let Counts { sum, squares, .. } = self.models.get(model).copied().unwrap_or_default();
        if sum == 0 {
            return (Span::MAX, ONE);
        }
        let (sum, squares, windows) = (u128::from(sum), u128::from(squares), u128::from(self.windows));
        let dispersion = (squares * windows).saturating_sub(sum * sum) * u128::from(ONE) / (windows * sum);
        (self.window.scale(self.windows, sum as u64), (dispersion as u64).max(ONE))
    }

    /// A new epoch begins.
    pub fn restart(&mut self) {
        self.windows = 0;
        for counts in &mut self.models {
            (counts.sum, counts.squares) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(counts: &[u64]) -> (f64, f64) {
        let mut traffic = Traffic::new(Span::from_millis(100));
        let mut offered = 0;
        for count in counts {
            offered += count;
            traffic.sample([offered].into_iter());
        }
        let (gap, dispersion) = traffic.of(0);
        (gap.millis(), dispersion as f64 / ONE as f64)
    }

    #[test]
    fn a_steady_stream_counts_as_random_and_bursts_as_what_they_are() {
        assert_eq!(measured(&[10, 10, 10, 10]), (10.0, 1.0));
        // Mean 10, variance 300.
        assert_eq!(measured(&[0, 40, 0, 0]), (10.0, 30.0));
    }

    #[test]
    fn what_never_came_never_comes_and_an_epoch_forgets_the_last() {
        let mut traffic = Traffic::new(Span::from_millis(100));
        traffic.sample([7, 0].into_iter());
        assert_eq!((traffic.of(1).0, traffic.of(5).0), (Span::MAX, Span::MAX));
        traffic.restart();
        traffic.sample([9, 0].into_iter());
        assert_eq!(traffic.of(0).0, Span::from_millis(50));
    }
}
