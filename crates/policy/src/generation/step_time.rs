//! How long a step takes: a floor and three terms, and what prompts attend to, learned from steps that ran.
//!
//! A step reads all weights (the floor), computes on the tokens of prompts, does some work for each sequence, and reads their
//! caches; tokens of a prompt also attend to all before them, which is a sixth of the work in a prompt of 8,000 tokens. The factors start from what is told (or from the default) and follow what is measured: a Kalman filter on the four
//! factors, each in units of what was told. Its memory is bounded, so that a GPU that becomes slower is noticed; its
//! uncertainty is bounded too, so that a thousand equal steps do not let the other factors drift.

use crate::Span;

/// What a step is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Tokens of prompts.
    pub prefill: u64,
    /// Sequences.
    pub sequences: u64,
    /// Tokens in the caches that are read.
    pub cached: u64,
    /// Tokens of prompts, each times the tokens before it.
    pub pairs: u64,
}

/// How long a step takes by its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepTime {
    /// Any step.
    pub floor: Span,
    /// More for each token of a prompt.
    pub prefill_token: Span,
    /// More for each sequence.
    pub sequence: Span,
    /// More for each token in a cache that is read.
    pub cached_token: Span,
}

impl Default for StepTime {
    /// A 7B model on a GPU with 2 TB/s: a first guess that steps correct.
    fn default() -> StepTime {
        StepTime {
            floor: Span::from_millis(7),
            prefill_token: Span::from_micros(60),
            sequence: Span::from_micros(100),
            cached_token: Span::from_nanos(250),
        }
    }
}

/// The factors in use, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// Any step.
    pub floor: f64,
    /// A token of a prompt.
    pub prefill: f64,
    /// A sequence.
    pub sequence: f64,
    /// A token in a cache.
    pub cached: f64,
    /// A token of a prompt and one before it.
    pub attention: f64,
}

impl Terms {
    /// One sequence's part of a step, when it has so much in the cache.
    pub fn decode(&self, cached: u64) -> f64 {
        self.sequence + self.cached * cached as f64
    }

    /// A whole step.
    pub fn step(&self, load: Load) -> f64 {
        self.floor
            + self.prefill * load.prefill as f64
            + self.sequence * load.sequences as f64
            + self.cached * load.cached as f64
            + self.attention * load.pairs as f64
    }

    /// So many tokens of a prompt of which some are in the cache.
    pub fn chunk(&self, cached: u32, tokens: u32) -> f64 {
        (self.prefill + self.attention * (f64::from(cached) + f64::from(tokens) / 2.0)) * f64::from(tokens)
    }

    /// As many tokens of a prompt as take so long: the other way round.
    pub fn tokens(&self, cached: u32, nanos: f64) -> f64 {
        let each = self.prefill + self.attention * f64::from(cached);
        // Of both forms of the root the one that stays exact when attention is next to nothing.
        2.0 * nanos.max(0.0) / (each + (each * each + 2.0 * self.attention * nanos.max(0.0)).sqrt())
    }
}

const TERMS: usize = 5;
const PLACES: [usize; TERMS] = [0, 1, 2, 3, 4];
/// How unsure a factor is at first, and at most, as a part of what was told.
const UNSURE: f64 = 1.0;
/// By how much a factor may change from step to step, as a part of what was told: a tenth in a thousand steps.
const DRIFT: f64 = 0.003;
/// How exactly a single step is measured, as a part of it.
const NOISE: f64 = 0.05;
/// What a pair of tokens takes at first sight, as a part of a token of a prompt: two multiplications in each of 4,096 places and 32
/// layers, of the 6.7 billion of a 7B model.
const PAIR: f64 = 1.0 / 25_000.0;
/// A factor is never less than this part of what was told.
const LEAST: f64 = 0.01;
/// Steps over which the error of predictions is remembered.
const MEMORY: f64 = 64.0;
/// Steps over which the worst overrun is remembered, roughly: some minutes of deferred steps.
const OVERRUN_MEMORY: f64 = 4_096.0;
/// Steps until the factors have been found.
const FIRST: u32 = 64;
/// No prediction is widened by more than this part of itself.
const WIDEST: f64 = 0.5;

/// What was learned of one model on one type of GPU.
#[derive(Clone, Debug)]
pub struct Learned {
    told: [f64; TERMS],
    factors: [f64; TERMS],
    covariance: [[f64; TERMS]; TERMS],
    /// Mean error of predictions, as a part of them, without sign.
    error: f64,
    /// The most that a step took longer than predicted lately, as a part of the prediction.
    overrun: f64,
    /// Steps seen, up to [`FIRST`].
    seen: u32,
}

impl Learned {
    /// Starts from what was told.
    pub fn new(told: StepTime) -> Learned {
        let told = [told.floor, told.prefill_token, told.sequence, told.cached_token];
        let mut covariance = [[0.0; TERMS]; TERMS];
        for (place, row) in covariance.iter_mut().enumerate() {
            row[place] = UNSURE * UNSURE;
        }
        // Of nothing there is no part: a factor that was told to be zero counts as a nanosecond.
        let [floor, prefill, sequence, cached] = told.map(|span| (span.nanos() as f64).max(1.0));
        let told = [floor, prefill, sequence, cached, prefill * PAIR];
        Learned { told, factors: [1.0; TERMS], covariance, error: NOISE, overrun: 3.0 * NOISE, seen: 0 }
    }

    /// The factors in use.
    pub fn terms(&self) -> Terms {
        let [floor, prefill, sequence, cached, attention] =
            PLACES.map(|place: usize| self.told[place] * self.factors[place]);
        Terms { floor, prefill, sequence, cached, attention }
    }

    /// How long a step takes.
    pub fn predict(&self, load: Load) -> Span {
        Span::from_nanos(self.terms().step(load) as u64)
    }

    /// By how much a step of this length is to be expected late: three mean errors.
    pub fn margin(&self, step: Span) -> Span {
        Span::from_nanos((step.nanos() as f64 * (3.0 * self.error).min(WIDEST)) as u64)
    }

    /// What a step that must not be late is taken to last longer than predicted, as a part of the prediction. Text of two
    /// hundred tokens is in time only if two hundred steps are, so the worst step seen lately counts, and at least six mean errors:
    /// of normal ones, one in a million is larger.
    /// Steps that start earlier by this cost nothing: there are not more of them.
    pub fn guard(&self) -> f64 {
        if self.seen < FIRST {
            return WIDEST;
        }
        (1.25 * self.overrun).max(6.0 * self.error).min(WIDEST)
    }

    /// A step took so long.
    pub fn learn(&mut self, load: Load, took: Span) {
        let inputs = [1.0, load.prefill as f64, load.sequences as f64, load.cached as f64, load.pairs as f64];
        let inputs: [f64; TERMS] = PLACES.map(|place: usize| inputs[place] * self.told[place]);
        let predicted: f64 = inputs.iter().zip(&self.factors).map(|(input, factor)| input * factor).sum();
        let took = took.nanos() as f64;
        let error = ((took - predicted) / predicted).abs().min(1.0);
        self.error += (error - self.error) / MEMORY;
        let overrun = ((took - predicted) / predicted).min(1.0);
        // The first steps say how wrong the first guess was, not how much steps vary.
        self.seen = (self.seen + 1).min(FIRST);
        if self.seen == FIRST {
            self.overrun = (self.overrun * (1.0 - 1.0 / OVERRUN_MEMORY)).max(overrun);
        }
        let gain: [f64; TERMS] =
            PLACES.map(|row: usize| self.covariance[row].iter().zip(&inputs).map(|(a, b)| a * b).sum());
        let spread: f64 = inputs.iter().zip(&gain).map(|(a, b)| a * b).sum();
        let noise = NOISE * predicted.max(took.min(2.0 * predicted));
        let scale = spread + noise * noise;
        for place in PLACES {
            self.factors[place] = (self.factors[place] + gain[place] / scale * (took - predicted)).max(LEAST);
        }
        for row in PLACES {
            for column in PLACES {
                self.covariance[row][column] -= gain[row] * gain[column] / scale;
            }
        }
        for place in PLACES {
            let own = &mut self.covariance[place][place];
            *own = (*own + DRIFT * DRIFT).clamp(DRIFT * DRIFT, UNSURE * UNSURE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Teaches steps of a GPU with these factors in nanoseconds, and returns the worst error on other steps.
    fn check(told: StepTime, truth: [f64; TERMS], varied: bool) -> f64 {
        let mut learned = Learned::new(told);
        let took = |load: Load| {
            let terms =
                Terms { floor: truth[0], prefill: truth[1], sequence: truth[2], cached: truth[3], attention: truth[4] };
            Span::from_nanos(terms.step(load) as u64)
        };
        let load = |step: u64| {
            let sequences = 1 + step * 7 % 40;
            let prefill = if step.is_multiple_of(3) { step * 37 % 900 } else { 0 };
            let pairs = prefill * (step * 331 % 5_000);
            Load { prefill, sequences, cached: sequences * (200 + step % 800), pairs }
        };
        for step in 0..400 {
            let load = if varied { load(step) } else { Load { prefill: 0, sequences: 8, cached: 4_096, pairs: 0 } };
            learned.learn(load, took(load));
        }
        let tried = (1_000..1_050).map(load).map(|load| {
            let (guess, truth) = (learned.predict(load).nanos() as f64, took(load).nanos() as f64);
            (guess / truth - 1.0).abs()
        });
        tried.fold(0.0, f64::max)
    }

    #[test]
    fn factors_are_found_from_a_wrong_guess() {
        let truth = [3.1e6, 27e3, 239e3, 119.0, 1.0];
        assert!(check(StepTime::default(), truth, true) < 0.02);
        assert!(check(StepTime::default(), truth.map(|factor| factor * 4.0), true) < 0.02);
    }

    #[test]
    fn equal_steps_do_not_spoil_what_is_known_of_others() {
        let told = StepTime {
            floor: Span::from_millis(3),
            prefill_token: Span::from_micros(27),
            sequence: Span::from_micros(200),
            cached_token: Span::from_nanos(120),
        };
        // Twice as slow, but only ever seen with one load: others are off by less than the guess was.
        assert!(check(told, [6e6, 54e3, 400e3, 240.0, 2.0], false) < 0.5);
    }
}
