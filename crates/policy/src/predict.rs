//! How fast a model will be on a part of a GPU, alone or beside others, and how sure that is.
//!
//! `solo` reads between the points of a model's [`Surface`]. `company` learns what neighbours cost. Each says how far
//! off it may be from how far off it has been: a point that was measured is predicted from the others, a slowdown before
//! it is learned from. The promise is that nine answers in ten lie within their uncertainty.
//!
//! What it does not do: guess. A batch or share beyond what was measured is [`Unknown`].

mod estimate;
mod quantile;
mod solo;
mod company;
pub mod accuracy;

use crate::surface::{Share, Surface};
use crate::{ModelId, Span};
pub use company::slowdown;
use company::{Company, Group, Pair};
pub use estimate::{Estimate, Tenant, Unknown};
use solo::Solo;
use std::collections::BTreeMap;

/// Everything that is known of models and their company.
#[derive(Clone, Debug, Default)]
pub struct Predictor {
    models: BTreeMap<ModelId, Solo>,
    company: Company,
}

impl Predictor {
    /// Takes a model's measurements, instead of those it had.
    pub fn learn(&mut self, model: ModelId, surface: &Surface) {
        self.models.insert(model, Solo::new(surface.points()));
    }

    /// What to expect of a tenant on a share of a GPU, which it has together with `neighbours` and with nobody else: a
    /// slice, or all of it.
    pub fn predict(&self, tenant: Tenant, share: Share, neighbours: &[Tenant]) -> Result<Estimate, Unknown> {
        let solo = self.models.get(&tenant.model).ok_or(Unknown::Model(tenant.model))?;
        let alone = solo.latency(tenant.batch, share)?;
        let (slowdown, spread) = match self.groups(tenant, share, neighbours)? {
            groups if groups.is_empty() => (0.0, 0.0),
            groups => self.company.slowdown(solo.demand(tenant.batch, share)?, &groups),
        };
        let seconds = (alone.log_seconds + slowdown).exp();
        Ok(Estimate {
            latency: Span::from_secs_f64(seconds),
            throughput: solo.requests() * tenant.batch as f64 / seconds,
            uncertainty: alone.spread.hypot(spread).exp_m1(),
        })
    }

    /// Learns from what was seen: how long batches of `tenant` took beside `neighbours`.
    pub fn observe(&mut self, tenant: Tenant, share: Share, neighbours: &[Tenant], took: Span) -> Result<(), Unknown> {
        let solo = self.models.get(&tenant.model).ok_or(Unknown::Model(tenant.model))?;
        let slowdown = took.seconds().max(1e-9).ln() - solo.latency(tenant.batch, share)?.log_seconds;
        let demand = solo.demand(tenant.batch, share)?;
        let groups = self.groups(tenant, share, neighbours)?;
        self.company.observe(demand, &groups, slowdown);
        Ok(())
    }

    /// Neighbours of a kind together, in order.
    fn groups(&self, tenant: Tenant, share: Share, neighbours: &[Tenant]) -> Result<Vec<Group>, Unknown> {
        let mut kinds: BTreeMap<Tenant, usize> = BTreeMap::new();
        for neighbour in neighbours {
            *kinds.entry(*neighbour).or_default() += 1;
        }
        let group = |(neighbour, count): (Tenant, usize)| {
            let solo = self.models.get(&neighbour.model).ok_or(Unknown::Model(neighbour.model))?;
            let demand = solo.demand(neighbour.batch, share)? * count as f64;
            Ok(Group { pair: Pair { tenant, neighbour, share }, demand })
        };
        kinds.into_iter().map(group).collect()
    }
}

#[cfg(test)]
mod tests;
