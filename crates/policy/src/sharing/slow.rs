//! The slow plane: all tenants of one GPU in, actions out.
//!
//! There is one verb. A tenant that is new in the view has come; one that is missing has gone; a share, class or limit that
//! differs was changed. So the caller passes on whatever it learns by calling [`Sharing::update`] with the view as it is, at
//! the next tick or at once.
//!
//! 1. By the end of the first update with a tenant in it, the tenant has an allowance, a memory limit and a throttle.
//! 2. Apart from allowances, which grow, an action is only given when it changes something.
//! 3. What one tenant's counters say moves another's allowance only through the division of shares; garbage in them
//!    is worth no more than wanting everything.

use super::allowance::Allowance;
use super::controllers::control::{Control, Throttle};
use super::{Action, Claim, Class, Controller, GpuView, SharingConfig, TenantView, WHOLE, divide};
use crate::{Span, TenantId, Time};
use std::collections::BTreeMap;

/// What a tenant was last sent.
#[derive(Clone, Debug)]
struct Tenant {
    allowance: Allowance,
    /// What it lacked of its request on average, in thousandths of thousandths.
    lacked: u32,
    rate: u32,
    allowed: Option<Span>,
    throttle: Option<Throttle>,
    memory: Option<u64>,
}

/// The state of one GPU's sharing.
#[derive(Debug)]
pub struct Sharing {
    config: SharingConfig,
    tenants: BTreeMap<TenantId, Tenant>,
    controller: Box<dyn Control>,
    /// What tenants can use in all, in thousandths: switching between them costs some.
    capacity: u32,
    patience: u32,
    updated: Time,
}

impl Default for Sharing {
    fn default() -> Sharing {
        Sharing::new(Controller::default(), SharingConfig::default())
    }
}

impl Sharing {
    /// Nobody is here yet.
    pub fn new(controller: Controller, config: SharingConfig) -> Sharing {
        Sharing {
            tenants: BTreeMap::new(),
            controller: controller.start(&config),
            config,
            capacity: WHOLE,
            patience: 0,
            updated: Time::ZERO,
        }
    }

    /// Throttles best-effort tenants with this controller from now on.
    pub fn set_controller(&mut self, controller: Controller) {
        self.controller = controller.start(&self.config);
    }

    /// How long a latency tenant's bursts take at present, in thousandths of what they take alone; `None` while that is not
    /// known.
    pub fn slowdown(&self, tenant: TenantId) -> Option<u64> {
        self.controller.slowdown(tenant)
    }

    /// The latency tenant that is slowed down most at present, and by how much in thousandths, while best-effort work is
    /// throttled for it.
    pub fn most_slowed(&self) -> Option<(TenantId, u64)> {
        self.controller.most_slowed()
    }

    /// Takes the view as it is at this moment, and answers with what changes.
    pub fn update(&mut self, now: Time, view: &GpuView, out: &mut Vec<Action>) {
        let passed = now - self.updated;
        self.updated = now;
        self.tenants.retain(|id, _| view.tenants.iter().any(|tenant| tenant.id == *id));
        for tenant in &view.tenants {
            match self.tenants.get_mut(&tenant.id) {
                Some(known) if known.allowance.goes_on(tenant.charged, tenant.wanted) => {
                    known.allowance.read(now, tenant.charged, tenant.wanted, &self.config);
                }
                // Another tenant with the same number: it was sent nothing yet.
                _ => drop(self.tenants.insert(tenant.id, Tenant::new(now, tenant))),
            }
        }
        self.controller.update(now, view);
        self.share(passed, view, out);
        self.throttle(view, out);
        self.memory(view, out);
    }

    /// When the next update is due, if nothing happens before.
    pub fn next_tick(&self) -> Time {
        self.updated + self.config.tick
    }

    /// The share that a tenant may use at present, in thousandths.
    pub fn share_of(&self, tenant: TenantId) -> Option<u32> {
        self.tenants.get(&tenant).map(|tenant| tenant.rate)
    }

    fn share(&mut self, passed: Span, view: &GpuView, out: &mut Vec<Action>) {
        let claim = |tenant: &TenantView| {
            let known = &self.tenants[&tenant.id].allowance;
            let (request, limit) = (tenant.request.min(WHOLE), tenant.limit.min(WHOLE));
            let (demand, used) = (known.demand(&self.config), known.used(&self.config));
            let (class, rank, request) = (tenant.class, tenant.rank(), request.min(limit));
            Claim { class, rank, request, boost: tenant.boost.min(limit), limit, demand, used }
        };
        let claims: Vec<Claim> = view.tenants.iter().map(claim).collect();
        self.learn_capacity(view, &claims);
        let rates = divide(self.capacity, self.config.share_least, &self.to_divide(view, &claims));
        // Kernels beside each other take more time together than passes: there is none to divide.
        let beside = view.tenants.iter().zip(&claims).all(|(tenant, claim)| tenant.spatial || claim.demand == 0);
        for ((tenant, claim), rate) in view.tenants.iter().zip(&claims).zip(rates) {
            let let_in = claim.class == Class::BestEffort && !self.controller.divides();
            // What pays a debt is not bounded by the rate at which the debt grew: it would never be paid.
            let rate = if beside || let_in || self.controller.is_paid(tenant.id) { claim.limit } else { rate };
            let known = self.tenants.get_mut(&tenant.id).expect("it was entered above");
            // The guarantee stands whether or not it was wanted lately.
            known.rate = rate.max(claim.request).min(most(&*self.controller, tenant, view));
            let alone = view.tenants.len() == 1 && claim.limit == WHOLE;
            let allowed =
                known.allowance.grant(passed, if alone { WHOLE } else { known.rate }, claim.limit, &self.config);
            if known.allowed != Some(allowed) {
                known.allowed = Some(allowed);
                out.push(Action::SetAllowance { tenant: tenant.id, allowed });
            }
        }
    }

    /// What is to be divided: time, unless all best-effort tenants run beside the others. Then what those use is not lost
    /// to them. Nobody is bound for a promise that the controller keeps.
    fn to_divide(&self, view: &GpuView, claims: &[Claim]) -> Vec<Claim> {
        let mut yielding = view.tenants.iter().filter(|tenant| tenant.class == Class::BestEffort);
        let beside = yielding.all(|tenant| self.controller.is_colocated(tenant, view));
        let used = |claim: &Claim| if beside && claim.class != Class::BestEffort { 0 } else { claim.used };
        let request = |tenant: &TenantView, claim: &Claim| match self.controller.keeps_promise(tenant.id) {
            true => 0,
            false => claim.request,
        };
        let each = view.tenants.iter().zip(claims);
        each.map(|(tenant, claim)| Claim { used: used(claim), request: request(tenant, claim), ..*claim }).collect()
    }

    /// Somebody who always wants more, lacks a part of its request and yet has an allowance left over lacks GPU: there
    /// is less of it than was given out. What it lacks because it wanted nothing for a moment is its own.
    fn learn_capacity(&mut self, view: &GpuView, claims: &[Claim]) {
        let ticks = |time: Span| (time.nanos() / self.config.tick.nanos().max(1)) as u32;
        // Less than the least share is nothing to lack, and what a kernel of another tenant takes is no lack either.
        let (least, over) = (self.config.share_least, ticks(self.config.moment()).max(1));
        // A tenant that wants a little less than all of the time may just wait for its next time slice.
        let always = WHOLE.saturating_sub(self.config.error);
        let mut short = false;
        for (tenant, claim) in view.tenants.iter().zip(claims) {
            let known = self.tenants.get_mut(&tenant.id).expect("it was entered above");
            let own = claim.used + (WHOLE - claim.demand.min(WHOLE));
            // What the controller holds lacks no GPU.
            let is_held = self.controller.keeps_promise(tenant.id);
            let waits = claim.demand >= always && known.allowance.left_over && !is_held;
            let lacks = if waits { claim.request.saturating_sub(own) } else { 0 };
            known.lacked = known.lacked - known.lacked / over + lacks * WHOLE / over;
            short |= lacks > least && known.lacked > least * WHOLE;
        }
        // More is tried once what was in flight has run.
        let patience = ticks(self.config.feed());
        let used: u32 = claims.iter().map(|claim| claim.used).sum();
        if short && claims.len() > 1 {
            let over = self.capacity.saturating_sub(used);
            self.capacity = (self.capacity - over.div_ceil(32).min(self.capacity)).max(self.config.capacity_least);
            self.patience = patience;
        } else if self.patience == 0 {
            self.capacity = (self.capacity + 1).min(WHOLE);
            self.patience = patience;
        } else {
            self.patience -= 1;
        }
    }

    fn throttle(&mut self, view: &GpuView, out: &mut Vec<Action>) {
        for tenant in &view.tenants {
            let now = match tenant.class {
                Class::BestEffort => self.controller.throttle(tenant, view),
                _ => self.controller.others(tenant, view),
            };
            let known = self.tenants.get_mut(&tenant.id).expect("it was entered above");
            let before = known.throttle.replace(now);
            let tenant = tenant.id;
            let mut send = |changed: &dyn Fn(&Throttle) -> bool, action: Action| {
                if before.as_ref().is_none_or(changed) {
                    out.push(action);
                }
            };
            let Throttle { gate, budget, admission, slice, sm_cap, .. } = now;
            send(&|before| before.gate != gate, Action::SetGate { tenant, gate });
            send(&|before| before.budget != budget, Action::SetBudget { tenant, budget });
            send(&|before| before.admission != admission, Action::SetAdmission { tenant, admission });
            send(&|before| before.slice != slice, Action::SetSlice { tenant, slice });
            send(&|before| before.sm_cap != sm_cap, Action::SetSmCap { tenant, permille: sm_cap });
            let (from, until) = now.reserved.unwrap_or((Time::ZERO, Time::ZERO));
            send(&|before| before.reserved != now.reserved, Action::Reserve { tenant, from, until });
        }
    }

    fn memory(&mut self, view: &GpuView, out: &mut Vec<Action>) {
        for tenant in &view.tenants {
            let bytes = tenant.memory_limit.unwrap_or(u64::MAX).min(view.memory_total);
            let known = self.tenants.get_mut(&tenant.id).expect("it was entered above");
            if known.memory.replace(bytes) != Some(bytes) {
                out.push(Action::SetMemoryLimit { tenant: tenant.id, bytes });
            }
        }
    }
}

impl Tenant {
    fn new(now: Time, tenant: &TenantView) -> Tenant {
        let allowance = Allowance::new(now, tenant.charged, tenant.wanted);
        Tenant { allowance, lacked: 0, rate: 0, allowed: None, throttle: None, memory: None }
    }
}

/// What the controller lets a tenant have at most, in thousandths.
fn most(controller: &dyn Control, tenant: &TenantView, view: &GpuView) -> u32 {
    if tenant.class == Class::BestEffort { controller.throttle(tenant, view).rate } else { WHOLE }
}
