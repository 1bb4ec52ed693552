//! When requests come: one stream of arrivals per model, each with a random stream of its own, all from one
//! seed. A model's arrivals do not change because another model was added behind it.

use policy::{Span, Time};
use rand::SeedableRng;
use rand_distr::{Distribution, Exp1, Gamma};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The generator behind every random choice.
pub(crate) type Rng = Xoshiro256PlusPlus;

/// What a random stream is for. Streams of different purposes never share a draw.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    Arrivals = 1,
    Execution = 2,
    Network = 3,
    Kernels = 4,
    Gaps = 5,
    Demands = 6,
}

/// The random stream for a purpose and the thing it is about.
pub(crate) fn stream(seed: u64, purpose: Purpose, index: usize) -> Rng {
    // Odd multipliers keep (purpose, index) pairs apart; seeding then mixes every bit.
    let key = seed
        ^ (purpose as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ (index as u64 + 1).wrapping_mul(0xd1b5_4a32_d192_ed03);
    Rng::seed_from_u64(key)
}

/// How arrivals are spaced.
#[derive(Clone, Debug, PartialEq)]
pub enum Spacing {
    /// Memoryless.
    Poisson,
    /// Gaps drawn from a Gamma distribution; a shape below 1 is burstier than Poisson, above 1 steadier.
    Gamma {
        /// The shape; the squared coefficient of variation is its inverse.
        shape: f64,
    },
    /// Equal gaps.
    Constant,
    /// Memoryless at a rate that changes slot by slot.
    Trace {
        /// How long each slot lasts.
        slot: Span,
        /// Weight of each slot, by row; a model takes the row `model % rows`. Rows average 1.
        rows: Vec<Vec<f64>>,
    },
}

/// One model's arrivals, in the simulator and in `weft load` alike.
#[derive(Debug)]
pub struct Arrivals {
    rng: Rng,
    gaps: Gaps,
}

#[derive(Debug)]
enum Gaps {
    None,
    Exponential { mean: f64 },
    Gamma { next: Gamma<f64> },
    Constant { gap: f64 },
    Slots { slot: f64, rates: Vec<f64>, per_round: f64 },
}

impl Arrivals {
    /// Arrivals at `rate` a second on average, of the model with this number. For a trace, `rate` scales the
    /// model's row. A shape is above zero, and a trace has a row with a weight above zero.
    pub fn new(spacing: &Spacing, model: usize, rate: f64, seed: u64) -> Arrivals {
        let gaps = match spacing {
            // Rarer than once in all the time there is.
            _ if rate * (u64::MAX as f64 / 1e9) < 1.0 => Gaps::None,
            Spacing::Poisson => Gaps::Exponential { mean: 1e9 / rate },
            Spacing::Gamma { shape } => {
                let next = Gamma::new(*shape, 1e9 / rate / shape).expect("shape and rate were checked");
                Gaps::Gamma { next }
            }
            Spacing::Constant => Gaps::Constant { gap: 1e9 / rate },
            Spacing::Trace { slot, rows } => {
                let slot = slot.nanos() as f64;
                let rates: Vec<f64> = rows[model % rows.len()].iter().map(|weight| weight * rate / 1e9).collect();
                let per_round = rates.iter().sum::<f64>() * slot;
                Gaps::Slots { slot, rates, per_round }
            }
        };
        Arrivals { rng: stream(seed, Purpose::Arrivals, model), gaps }
    }

    /// The first arrival. Equal gaps start at a random point, so that models do not march in step.
    pub fn first(&mut self) -> Time {
        match self.gaps {
            Gaps::Constant { gap } => Time::from_nanos((gap * rand::RngExt::random::<f64>(&mut self.rng)) as u64),
            _ => self.after(Time::ZERO),
        }
    }

    /// The next arrival after one at `now`.
    pub fn after(&mut self, now: Time) -> Time {
        let gap = match &self.gaps {
            Gaps::None => return Time::NEVER,
            Gaps::Exponential { mean } => mean * <Exp1 as Distribution<f64>>::sample(&Exp1, &mut self.rng),
            Gaps::Gamma { next } => next.sample(&mut self.rng),
            Gaps::Constant { gap } => *gap,
            Gaps::Slots { slot, rates, per_round } => {
                return next_in_slots(now, *slot, rates, *per_round, Exp1.sample(&mut self.rng));
            }
        };
        now + Span::from_nanos(gap as u64)
    }
}

/// Walks slots of changing rate until `patience` expected arrivals have gone by. The trace starts anew when
/// it ends, and holds `per_round` arrivals until then.
fn next_in_slots(now: Time, slot: f64, rates: &[f64], per_round: f64, mut patience: f64) -> Time {
    // Whole rounds are skipped at once: a rare model may wait through millions of slots.
    let rounds = (patience / per_round).floor();
    patience = (patience - rounds * per_round).max(0.0);
    let mut at = now.nanos() as f64 + rounds * rates.len() as f64 * slot;
    if at.is_nan() || at >= Time::NEVER.nanos() as f64 {
        return Time::NEVER;
    }
    let mut index = (at / slot) as usize;
    loop {
        let ends = (index + 1) as f64 * slot;
        let rate = rates[index % rates.len()];
        let holds = rate * (ends - at);
        if holds > patience {
            return Time::from_nanos((at + patience / rate) as u64);
        }
        patience -= holds;
        at = ends;
        index += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(spacing: &Spacing, rate: f64, seconds: u64) -> (usize, f64) {
        let mut arrivals = Arrivals::new(spacing, 0, rate, 7);
        let mut at = arrivals.first();
        let (mut count, mut gaps) = (0, Vec::new());
        while at < Time::ZERO + Span::from_secs(seconds) {
            let next = arrivals.after(at);
            gaps.push((next - at).seconds());
            at = next;
            count += 1;
        }
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        (count, variance / (mean * mean))
    }

    #[test]
    fn rates_and_burstiness_are_as_asked() {
        for (spacing, expected_variation) in
            [(Spacing::Poisson, 1.0), (Spacing::Gamma { shape: 0.2 }, 5.0), (Spacing::Constant, 0.0)]
        {
            let (count, variation) = count(&spacing, 1_000.0, 200);
            assert!((count as f64 / 200_000.0 - 1.0).abs() < 0.02, "{spacing:?}: {count}");
            assert!(
                (variation - expected_variation).abs() < 0.05 * expected_variation + 1e-9,
                "{spacing:?}: {variation}"
            );
        }
    }

    #[test]
    fn a_trace_has_its_rate_slot_by_slot_and_starts_anew() {
        let spacing = Spacing::Trace { slot: Span::from_secs(1), rows: vec![vec![0.0, 2.0]] };
        let mut arrivals = Arrivals::new(&spacing, 0, 500.0, 7);
        let mut slots = [0usize; 4];
        let mut at = arrivals.first();
        while at < Time::ZERO + Span::from_secs(4) {
            slots[at.seconds() as usize] += 1;
            at = arrivals.after(at);
        }
        assert_eq!((slots[0], slots[2]), (0, 0));
        assert!((900..1100).contains(&slots[1]) && (900..1100).contains(&slots[3]), "{slots:?}");
    }

    #[test]
    fn a_rare_model_has_its_rate_however_short_the_slots() {
        let spacing = Spacing::Trace { slot: Span::from_micros(1), rows: vec![vec![0.0, 2.0]] };
        let (count, variation) = count(&spacing, 1e-6, 4_000_000_000);
        assert!((3_800..4_200).contains(&count) && (0.85..1.15).contains(&variation), "{count} {variation}");
        assert_eq!(Arrivals::new(&spacing, 0, 1e-20, 7).first(), Time::NEVER);
    }

    #[test]
    fn a_model_without_traffic_never_comes() {
        assert_eq!(Arrivals::new(&Spacing::Poisson, 0, 0.0, 1).first(), Time::NEVER);
    }
}
