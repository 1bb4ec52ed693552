//! What neighbours cost: a slowdown from everybody's demand, learned pair by pair.
//!
//! Tenants of a share keep parts of it busy. While the parts make less than the whole, they hardly notice each other;
//! beyond that all slow down by what is too much: `soft(own + others) / soft(own)`, with `soft(x)` close to
//! `max(1, x)`. Demands read off a profile are not quite right: kernels leave holes that others fill, and contend for
//! memory. So a pair has two corrections, of the tenant's own demand and of its neighbour's pressure.
//!
//! A belief is a weight for each of many pairs of corrections. What is seen multiplies the weights, with long tails, so
//! that one odd measurement does not decide. A pair that was never seen starts from what is believed of pairs like it:
//! the same models with other batches and shares. Nothing here diverges, whatever is observed.

use super::Tenant;
use super::quantile::quantile;
use crate::surface::Share;
use std::collections::{BTreeMap, VecDeque};

/// How sharply sharing begins to cost where demands reach the whole.
const SHARPNESS: f64 = 8.0;
/// Corrections that are thought of: logarithms, from the first on, so far apart.
const CORRECTIONS: usize = 23;
const FIRST: f64 = -2.0;
const STEP: f64 = 0.15;
/// How far corrections are off to begin with.
const PRIOR: f64 = 0.5;
/// What part of that doubt stays, however much was seen of pairs alike.
const DOUBT: f64 = 0.7;
/// How far batches (doublings) and shares (doublings) lie apart that have little to say of each other.
const ALIKE_BATCH: f64 = 0.7;
const ALIKE_SHARE: f64 = 1.0;
/// How far a measured slowdown is off, as a logarithm, and what is added to every prediction.
const NOISE: f64 = 0.03;
const FLOOR: f64 = 0.02;
/// The tails of the likelihood are those of Student's distribution with so many degrees of freedom.
const TAILS: f64 = 4.0;
/// The part of predictions that was covered by the spreads that are told.
const COVERED: f64 = 0.92;
/// The scale before enough was seen.
const SCALE: f64 = 3.0;
/// Scores that are remembered.
const SCORES: usize = 400;

/// A tenant and a kind of neighbour on a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pair {
    pub(super) tenant: Tenant,
    pub(super) neighbour: Tenant,
    pub(super) share: Share,
}

/// Neighbours of a kind, and what they demand together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) pair: Pair,
    pub(super) demand: f64,
}

/// What is believed of all pairs.
#[derive(Clone, Debug, Default)]
pub(super) struct Company {
    beliefs: BTreeMap<Pair, Belief>,
    /// How far predictions were off, for their own idea of it; the latest last.
    scores: VecDeque<f64>,
}

/// Corrections of a pair: how likely what was seen is under each, and those that are likely now.
#[derive(Clone, Debug)]
struct Belief {
    /// Logarithms; own correction by rows, neighbour's by columns.
    likelihood: Vec<f64>,
    own: f64,
    pressure: f64,
}

impl Company {
    /// The logarithm of the slowdown that these neighbours cause, and the spread that covers it.
    pub(super) fn slowdown(&self, demand: f64, groups: &[Group]) -> (f64, f64) {
        let (mean, spread) = self.expect(demand, groups);
        let scale = quantile(self.scores.iter().copied(), COVERED).unwrap_or(SCALE);
        (mean, spread * scale)
    }

    /// Learns from a slowdown, a logarithm, that was seen.
    pub(super) fn observe(&mut self, demand: f64, groups: &[Group], slowdown: f64) {
        if groups.is_empty() {
            return;
        }
        let (mean, spread) = self.expect(demand, groups);
        if self.scores.len() == SCORES {
            self.scores.pop_front();
        }
        self.scores.push_back((slowdown - mean).abs() / spread);
        let seen: Vec<(Pair, Belief)> =
            groups.iter().map(|group| (group.pair, self.updated(demand, groups, group, slowdown))).collect();
        self.beliefs.extend(seen);
    }

    fn updated(&self, demand: f64, groups: &[Group], group: &Group, slowdown: f64) -> Belief {
        let mut likelihood = match self.beliefs.get(&group.pair) {
            Some(belief) => belief.likelihood.clone(),
            None => vec![0.0; CORRECTIONS * CORRECTIONS],
        };
        let slowdowns = slowdowns(demand, group.demand, self.pressure_of_others(groups, group));
        for (likelihood, predicted) in likelihood.iter_mut().zip(&slowdowns) {
            let off = (slowdown - predicted) / NOISE;
            *likelihood -= (TAILS + 1.0) / 2.0 * (off * off / TAILS).ln_1p();
        }
        let weights = self.weights(&group.pair, Some(&likelihood));
        let mean = |at: fn(usize) -> usize| {
            weights.iter().enumerate().map(|(index, weight)| weight * correction(at(index))).sum::<f64>()
        };
        Belief { own: mean(|index| index / CORRECTIONS), pressure: mean(|index| index % CORRECTIONS), likelihood }
    }

    /// Mean and spread of the logarithm of the slowdown. With neighbours of several kinds, each kind's belief is asked
    /// with the others at their means, and where they disagree the spread grows.
    fn expect(&self, demand: f64, groups: &[Group]) -> (f64, f64) {
        let asked = groups.iter().map(|group| {
            let belief = self.beliefs.get(&group.pair).map(|belief| &belief.likelihood[..]);
            let weights = self.weights(&group.pair, belief);
            let slowdowns = slowdowns(demand, group.demand, self.pressure_of_others(groups, group));
            let mean: f64 = weights.iter().zip(&slowdowns).map(|(weight, slowdown)| weight * slowdown).sum();
            let square = |(weight, slowdown): (&f64, &f64)| weight * (slowdown - mean) * (slowdown - mean);
            (mean, weights.iter().zip(&slowdowns).map(square).sum::<f64>())
        });
        let asked: Vec<(f64, f64)> = asked.collect();
        let count = asked.len() as f64;
        let mean = asked.iter().map(|(mean, _)| mean).sum::<f64>() / count;
        let within = asked.iter().map(|(_, variance)| variance).sum::<f64>() / count;
        let among = asked.iter().map(|(other, _)| (other - mean) * (other - mean)).sum::<f64>() / count;
        (mean, (within + among + FLOOR * FLOOR).sqrt())
    }

    fn pressure_of_others(&self, groups: &[Group], but: &Group) -> f64 {
        let others = groups.iter().filter(|group| group.pair != but.pair);
        others.map(|group| group.demand * self.pressure(&group.pair).exp()).sum()
    }

    /// The correction of a neighbour's pressure, as it is believed now.
    fn pressure(&self, pair: &Pair) -> f64 {
        self.beliefs.get(pair).map_or_else(|| self.prior(pair).pressure, |belief| belief.pressure)
    }

    /// Weights of all corrections, which make one together.
    fn weights(&self, pair: &Pair, likelihood: Option<&[f64]>) -> Vec<f64> {
        let prior = self.prior(pair);
        let off = |index: usize, mean: f64| (correction(index) - mean) * (correction(index) - mean);
        let mut weights: Vec<f64> = (0..CORRECTIONS * CORRECTIONS)
            .map(|index| {
                let far = off(index / CORRECTIONS, prior.own) + off(index % CORRECTIONS, prior.pressure);
                likelihood.map_or(0.0, |likelihood| likelihood[index]) - far / (2.0 * prior.variance)
            })
            .collect();
        let most = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        weights.iter_mut().for_each(|weight| *weight = (*weight - most).exp());
        let sum: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|weight| *weight /= sum);
        weights
    }

    /// What pairs alike say of a pair.
    fn prior(&self, pair: &Pair) -> Prior {
        let (mut own, mut pressure, mut weight) = (0.0, 0.0, 1.0);
        for (other, belief) in &self.beliefs {
            if let Some(alike) = alike(pair, other) {
                own += alike * belief.own;
                pressure += alike * belief.pressure;
                weight += alike;
            }
        }
        let doubt = DOUBT.max(1.0 / weight);
        Prior { own: own / weight, pressure: pressure / weight, variance: PRIOR * PRIOR * doubt }
    }
}

/// Corrections to begin with.
struct Prior {
    own: f64,
    pressure: f64,
    variance: f64,
}

/// What neighbours are expected to cost of whom nothing was seen together with a tenant: how many times as long it takes.
/// Demands are parts of what they share.
///
/// Doubt about them counts: where demands just fill the whole, some fit and others do not.
pub fn slowdown(demand: f64, neighbours: f64) -> f64 {
    let weight = |index: usize| (-correction(index) * correction(index) / (2.0 * PRIOR * PRIOR)).exp();
    let weights: Vec<f64> = (0..CORRECTIONS).map(weight).collect();
    let sum: f64 = weights.iter().sum();
    let of = |(index, slowdown): (usize, f64)| {
        slowdown * weights[index / CORRECTIONS] * weights[index % CORRECTIONS] / (sum * sum)
    };
    slowdowns(demand, neighbours, 0.0).into_iter().enumerate().map(of).sum::<f64>().exp()
}

fn correction(index: usize) -> f64 {
    FIRST + STEP * index as f64
}

/// What one pair has to say of another, up to 1; `None` for itself and other models.
fn alike(pair: &Pair, other: &Pair) -> Option<f64> {
    let models = |pair: &Pair| (pair.tenant.model, pair.neighbour.model);
    if pair == other || models(pair) != models(other) {
        return None;
    }
    let doublings = |left: f64, right: f64| (left / right).log2();
    let batch = |left: Tenant, right: Tenant| doublings(left.batch as f64, right.batch as f64) / ALIKE_BATCH;
    let share = doublings(pair.share.percent(), other.share.percent()) / ALIKE_SHARE;
    let (own, neighbour) = (batch(pair.tenant, other.tenant), batch(pair.neighbour, other.neighbour));
    let apart = (own * own + neighbour * neighbour) / 2.0 + share * share;
    Some((-apart / 2.0).exp())
}

/// The logarithm of the slowdown under every pair of corrections.
fn slowdowns(demand: f64, neighbours: f64, others: f64) -> Vec<f64> {
    let factors: Vec<f64> = (0..CORRECTIONS).map(|index| correction(index).exp()).collect();
    let mut slowdowns = Vec::with_capacity(CORRECTIONS * CORRECTIONS);
    for own in &factors {
        let alone = log_soft(demand * own);
        for pressure in &factors {
            slowdowns.push(log_soft(demand * own + neighbours * pressure + others) - alone);
        }
    }
    slowdowns
}

/// The logarithm of a smooth `max(1, x)`.
fn log_soft(x: f64) -> f64 {
    if x > 1.0 { x.ln() + x.powf(-SHARPNESS).ln_1p() / SHARPNESS } else { x.powf(SHARPNESS).ln_1p() / SHARPNESS }
}
