//! The tenants of the machine: what each may have, and what keeps it alive.
//!
//! Invariants:
//! 1. A tenant's name is its own among all that live; its number is never used again.
//! 2. A tenant belongs to the user that registered it. Nobody but that user and root attaches to it or changes it.
//! 3. A tenant is there as long as something keeps it: a connection that registered it, the process that did, a process
//!    that attached, or, after a restart of the daemon, a moment in which its processes may come back.

use crate::pidfd::Watched;
use config::Share;
use std::collections::{BTreeMap, BTreeSet};

/// A connection's number.
pub(crate) type Token = u64;
/// The most tenants at a time.
pub(crate) const TENANTS_MAX: usize = 256;

/// One tenant.
#[derive(Debug)]
pub(crate) struct TenantState {
    pub(crate) name: String,
    pub(crate) user: u32,
    pub(crate) share: Share,
    /// The share that its load asks for at present, in thousandths of a GPU; 0 when unknown.
    pub(crate) boost: u32,
    /// A hash of its command line, if it is known.
    pub(crate) command: Option<u64>,
    /// Why it is on these GPUs, if the daemon chose them.
    pub(crate) placed: String,
    /// Connections that registered it.
    pub(crate) registered: BTreeSet<Token>,
    /// Connections of its processes.
    pub(crate) processes: BTreeSet<Token>,
    /// The tenant lives as long as this process.
    pub(crate) leader: Option<Watched>,
    /// Kept at least until then.
    pub(crate) kept_until_ns: u64,
    /// Until when it counts as willing to leave; its supervisor renews this. `None` for a tenant that stays.
    pub(crate) leaves_until_ns: Option<u64>,
    /// The program that it was asked to leave for, and until when the request stands.
    pub(crate) wanted: Option<(String, u64)>,
}

impl TenantState {
    pub(crate) fn new(name: String, user: u32, share: Share) -> TenantState {
        TenantState {
            name,
            user,
            share,
            boost: 0,
            command: None,
            placed: String::new(),
            registered: BTreeSet::new(),
            processes: BTreeSet::new(),
            leader: None,
            kept_until_ns: 0,
            leaves_until_ns: None,
            wanted: None,
        }
    }

    /// Whether its supervisor would end it and start it again later.
    pub(crate) fn leaves(&self, now_ns: u64) -> bool {
        self.leaves_until_ns.is_some_and(|until_ns| now_ns < until_ns)
    }

    /// The program that it must leave for.
    pub(crate) fn wanted_by(&self, now_ns: u64) -> Option<&str> {
        self.wanted.as_ref().filter(|(_, until_ns)| now_ns < *until_ns).map(|(whom, _)| whom.as_str())
    }

    /// Whether a connection or a process keeps it.
    fn lives(&self) -> bool {
        !self.registered.is_empty() || !self.processes.is_empty() || self.leader.is_some()
    }

    fn is_kept(&self, now_ns: u64) -> bool {
        self.lives() || self.kept_until_ns > now_ns
    }
}

/// All tenants, by number.
#[derive(Debug, Default)]
pub(crate) struct TenantRegistry {
    tenants: BTreeMap<u32, TenantState>,
    last: u32,
}

impl TenantRegistry {
    /// Adds a tenant. Its name must be free.
    pub(crate) fn add(&mut self, tenant: TenantState) -> Result<u32, String> {
        if let Some((number, other)) = self.tenants.iter().find(|(_, other)| other.name == tenant.name) {
            if other.user != tenant.user {
                return Err(format!("another user has a tenant `{}`; choose another --name", tenant.name));
            }
            if other.lives() {
                return Err(format!("there is a tenant `{}` already; choose another --name", tenant.name));
            }
            // The old one was kept only in case its program came back, which it does here.
            let number = *number;
            self.tenants.remove(&number);
        }
        if self.tenants.len() >= TENANTS_MAX {
            return Err(format!("there are {TENANTS_MAX} tenants already, and no more fit"));
        }
        self.last += 1;
        self.tenants.insert(self.last, tenant);
        Ok(self.last)
    }

    /// The name, or the name with the first number that makes it free.
    pub(crate) fn free_name(&self, name: &str) -> String {
        let candidates = (2..).map(|number| format!("{name}-{number}"));
        let mut candidates = std::iter::once(name.to_owned()).chain(candidates);
        candidates.find(|candidate| self.named(candidate).is_none()).unwrap_or_default()
    }

    pub(crate) fn named(&self, name: &str) -> Option<u32> {
        self.tenants.iter().find(|(_, tenant)| tenant.name == name).map(|(number, _)| *number)
    }

    /// The tenant with this name, if this user may use it.
    pub(crate) fn named_for(&self, name: &str, user: u32) -> Result<u32, String> {
        let number = self.named(name).ok_or_else(|| format!("there is no tenant `{name}`; `weft top` lists them"))?;
        match &self.tenants[&number] {
            tenant if tenant.user == user || user == 0 => Ok(number),
            _ => Err(format!("tenant `{name}` belongs to another user")),
        }
    }

    pub(crate) fn get(&self, number: u32) -> Option<&TenantState> {
        self.tenants.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut TenantState> {
        self.tenants.get_mut(&number)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &TenantState)> {
        self.tenants.iter().map(|(number, tenant)| (*number, tenant))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    /// A connection has ended and keeps nothing any more.
    pub(crate) fn connection_gone(&mut self, token: Token) {
        for tenant in self.tenants.values_mut() {
            tenant.registered.remove(&token);
            tenant.processes.remove(&token);
        }
    }

    /// Removes the tenants that nothing keeps, and returns them.
    pub(crate) fn sweep(&mut self, now_ns: u64) -> Vec<(u32, TenantState)> {
        self.tenants.extract_if(.., |_, tenant| !tenant.is_kept(now_ns)).collect()
    }

    /// When the next tenant is to be removed if nothing happens.
    pub(crate) fn next_sweep_ns(&self, now_ns: u64) -> Option<u64> {
        self.tenants.values().map(|tenant| tenant.kept_until_ns).filter(|until| *until > now_ns).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str, user: u32) -> TenantState {
        TenantState::new(name.into(), user, Share::default())
    }

    #[test]
    fn names_are_taken_once_and_numbers_never_again() {
        let mut registry = TenantRegistry::default();
        let first = registry.add(tenant("train", 7)).unwrap();
        registry.get_mut(first).unwrap().registered.insert(1);
        assert!(registry.add(tenant("train", 7)).unwrap_err().contains("already"));
        assert!(registry.add(tenant("train", 8)).unwrap_err().contains("another user"));
        assert_eq!(registry.free_name("train"), "train-2");
        registry.connection_gone(1);
        assert_eq!(registry.sweep(1).len(), 1, "nothing keeps it");
        assert_ne!(registry.add(tenant("train", 8)).unwrap(), first);
    }

    #[test]
    fn a_tenant_that_is_only_waited_for_gives_its_name_to_its_own_user() {
        let mut registry = TenantRegistry::default();
        let first = registry.add(TenantState { kept_until_ns: 10, ..tenant("train", 7) }).unwrap();
        assert!(registry.add(tenant("train", 8)).unwrap_err().contains("another user"));
        assert_ne!(registry.add(tenant("train", 7)).unwrap(), first);
        assert!(registry.get(first).is_none());
    }

    #[test]
    fn users_reach_their_own_tenants_and_root_reaches_all() {
        let mut registry = TenantRegistry::default();
        let number = registry.add(tenant("train", 7)).unwrap();
        assert_eq!(registry.named_for("train", 7), Ok(number));
        assert_eq!(registry.named_for("train", 0), Ok(number));
        assert!(registry.named_for("train", 8).unwrap_err().contains("another user"));
        assert!(registry.named_for("infer", 0).unwrap_err().contains("no tenant `infer`"));
    }

    #[test]
    fn a_tenant_stays_as_long_as_anything_keeps_it() {
        let mut registry = TenantRegistry::default();
        let number = registry.add(tenant("train", 7)).unwrap();
        let kept = registry.get_mut(number).unwrap();
        kept.registered.insert(1);
        kept.processes.insert(2);
        kept.kept_until_ns = 10;
        registry.connection_gone(1);
        assert!(registry.sweep(20).is_empty());
        registry.connection_gone(2);
        assert!(registry.sweep(9).is_empty());
        assert_eq!(registry.next_sweep_ns(9), Some(10));
        assert_eq!(registry.sweep(10).len(), 1);
        assert!(registry.is_empty());
    }

    #[test]
    fn the_number_of_tenants_is_limited() {
        let mut registry = TenantRegistry::default();
        for number in 0..TENANTS_MAX {
            registry.add(tenant(&number.to_string(), 7)).unwrap();
        }
        assert!(registry.add(tenant("one more", 7)).unwrap_err().contains("no more fit"));
    }
}
