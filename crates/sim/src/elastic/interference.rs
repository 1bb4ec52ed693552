//! What neighbours on a GPU cost a batch.

use policy::predict::slowdown;

/// By what rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Interference {
    /// What [`slowdown`] says of tenants of whom nothing was seen together.
    Predicted,
    /// In proportion to what neighbours compute on, up to this where they compute on all of it, as a part.
    Flat(f64),
}

/// Parts of a GPU are looked up in steps of this.
const STEPS: usize = 50;

/// A rule, ready to be asked often.
#[derive(Debug)]
pub(super) enum Slowdown {
    Flat(f64),
    /// By the part that a batch computes on and then by what its neighbours do.
    Predicted(Vec<[f64; STEPS + 1]>),
}

impl Slowdown {
    pub(super) fn new(interference: Interference) -> Slowdown {
        let part = |step: usize| step as f64 / STEPS as f64;
        match interference {
            Interference::Flat(most) => Slowdown::Flat(most),
            Interference::Predicted => {
                let row = |own: usize| std::array::from_fn(|others| slowdown(part(own), part(others)));
                Slowdown::Predicted((0..=STEPS).map(row).collect())
            }
        }
    }

    /// How many times as long a batch takes that computes on `own` of the GPU, while neighbours do on `others`.
    pub(super) fn of(&self, own: f64, others: f64) -> f64 {
        let others = others.clamp(0.0, 1.0);
        match self {
            Slowdown::Flat(most) => 1.0 + most * others,
            Slowdown::Predicted(table) => {
                let step = |part: f64| (part.clamp(0.0, 1.0) * STEPS as f64).round() as usize;
                table[step(own)][step(others)]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_alone_is_as_fast_as_alone_and_company_costs_more_the_more_it_does() {
        for rule in [Interference::Predicted, Interference::Flat(0.05)] {
            let slowdown = Slowdown::new(rule);
            for own in [0.0, 0.1, 0.5, 1.0] {
                assert!((slowdown.of(own, 0.0) - 1.0).abs() < 1e-9, "{rule:?}");
                let others: Vec<f64> = (0..=20).map(|step| slowdown.of(own, f64::from(step) / 20.0)).collect();
                assert!(others.is_sorted(), "{rule:?} {own}: {others:?}");
            }
        }
        let predicted = Slowdown::new(Interference::Predicted);
        assert!(predicted.of(0.2, 0.2) < 1.02 && (1.1..1.3).contains(&predicted.of(0.5, 0.5)));
    }
}
