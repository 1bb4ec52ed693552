//! Who there is: tenants, what they may have, and what keeps them.
//!
//! Invariants:
//! 1. A tenant's name is its own among all that live; its number is never used again.
//! 2. A tenant belongs to the user that registered it. Nobody but that user and root attaches to it or changes it.
//! 3. A tenant is there as long as something keeps it: a connection that registered it, the process that did, a process
//!    that attached, or, after a restart of the daemon, a moment in which its processes may come back.

use super::pidfd::Watched;
use rpc::Share;
use std::collections::{BTreeMap, BTreeSet};

/// A connection's number.
pub(super) type Token = u64;
/// The most tenants at a time.
pub(super) const TENANTS_MAX: usize = 256;

/// One tenant.
#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) name: String,
    pub(super) user: u32,
    pub(super) share: Share,
    /// What its load asks for at present, in thousandths of a GPU; 0 where nobody says.
    pub(super) stretched: u32,
    /// A hash of what is run, where that was said.
    pub(super) command: Option<u64>,
    /// Why it is on the GPUs it is on, where that was decided here.
    pub(super) placed: String,
    /// Connections that registered it.
    pub(super) registered: BTreeSet<Token>,
    /// Connections of its processes.
    pub(super) processes: BTreeSet<Token>,
    /// The process that it lives as long as.
    pub(super) leader: Option<Watched>,
    /// Kept until then, whatever else goes.
    pub(super) kept_until_ns: u64,
    /// Until when it leaves if it is asked to: whoever looks after it says again and again that it is there. `None` for one
    /// that stays.
    pub(super) leaves_until_ns: Option<u64>,
    /// Who it was asked to leave for, and until when that counts.
    pub(super) wanted: Option<(String, u64)>,
}

impl Tenant {
    pub(super) fn new(name: String, user: u32, share: Share) -> Tenant {
        Tenant {
            name,
            user,
            share,
            stretched: 0,
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

    /// Whether somebody would end it and start it again.
    pub(super) fn leaves(&self, now_ns: u64) -> bool {
        self.leaves_until_ns.is_some_and(|until_ns| now_ns < until_ns)
    }

    /// Who it is to make room for.
    pub(super) fn wanted_by(&self, now_ns: u64) -> Option<&str> {
        self.wanted.as_ref().filter(|(_, until_ns)| now_ns < *until_ns).map(|(whom, _)| whom.as_str())
    }

    /// Whether a process is known to be there.
    fn lives(&self) -> bool {
        !self.registered.is_empty() || !self.processes.is_empty() || self.leader.is_some()
    }

    fn is_kept(&self, now_ns: u64) -> bool {
        self.lives() || self.kept_until_ns > now_ns
    }
}

/// All tenants, by number.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    tenants: BTreeMap<u32, Tenant>,
    last: u32,
}

impl Ledger {
    /// A tenant comes. Its name must be free.
    pub(super) fn add(&mut self, tenant: Tenant) -> Result<u32, String> {
        if let Some((number, other)) = self.tenants.iter().find(|(_, other)| other.name == tenant.name) {
            if other.user != tenant.user {
                return Err(format!("another user has a tenant `{}`; choose another --name", tenant.name));
            }
            if other.lives() {
                return Err(format!("there is a tenant `{}` already; choose another --name", tenant.name));
            }
            // Kept only in case it comes back, and here it is: a program that was started again.
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
    pub(super) fn free_name(&self, name: &str) -> String {
        let candidates = (2..).map(|number| format!("{name}-{number}"));
        let mut candidates = std::iter::once(name.to_owned()).chain(candidates);
        candidates.find(|candidate| self.named(candidate).is_none()).unwrap_or_default()
    }

    pub(super) fn named(&self, name: &str) -> Option<u32> {
        self.tenants.iter().find(|(_, tenant)| tenant.name == name).map(|(number, _)| *number)
    }

    /// The tenant with this name, if this user may have to do with it.
    pub(super) fn named_for(&self, name: &str, user: u32) -> Result<u32, String> {
        let number = self.named(name).ok_or_else(|| format!("there is no tenant `{name}`; `weft top` lists them"))?;
        match &self.tenants[&number] {
            tenant if tenant.user == user || user == 0 => Ok(number),
            _ => Err(format!("tenant `{name}` belongs to another user")),
        }
    }

    pub(super) fn get(&self, number: u32) -> Option<&Tenant> {
        self.tenants.get(&number)
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Tenant> {
        self.tenants.get_mut(&number)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Tenant)> {
        self.tenants.iter().map(|(number, tenant)| (*number, tenant))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    /// A connection is gone, and what it kept with it.
    pub(super) fn connection_gone(&mut self, token: Token) {
        for tenant in self.tenants.values_mut() {
            tenant.registered.remove(&token);
            tenant.processes.remove(&token);
        }
    }

    /// Lets go of those that nothing keeps; says who they were.
    pub(super) fn sweep(&mut self, now_ns: u64) -> Vec<(u32, Tenant)> {
        self.tenants.extract_if(.., |_, tenant| !tenant.is_kept(now_ns)).collect()
    }

    /// When somebody next has to be let go of, if nothing happens.
    pub(super) fn next_sweep_ns(&self, now_ns: u64) -> Option<u64> {
        self.tenants.values().map(|tenant| tenant.kept_until_ns).filter(|until| *until > now_ns).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str, user: u32) -> Tenant {
        Tenant::new(name.into(), user, Share::default())
    }

    #[test]
    fn names_are_taken_once_and_numbers_never_again() {
        let mut ledger = Ledger::default();
        let first = ledger.add(tenant("train", 7)).unwrap();
        ledger.get_mut(first).unwrap().registered.insert(1);
        assert!(ledger.add(tenant("train", 7)).unwrap_err().contains("already"));
        assert!(ledger.add(tenant("train", 8)).unwrap_err().contains("another user"));
        assert_eq!(ledger.free_name("train"), "train-2");
        ledger.connection_gone(1);
        assert_eq!(ledger.sweep(1).len(), 1, "nothing keeps it");
        assert_ne!(ledger.add(tenant("train", 8)).unwrap(), first);
    }

    #[test]
    fn who_is_only_waited_for_leaves_its_name_to_whom_it_belongs() {
        let mut ledger = Ledger::default();
        let first = ledger.add(Tenant { kept_until_ns: 10, ..tenant("train", 7) }).unwrap();
        assert!(ledger.add(tenant("train", 8)).unwrap_err().contains("another user"));
        assert_ne!(ledger.add(tenant("train", 7)).unwrap(), first);
        assert!(ledger.get(first).is_none());
    }

    #[test]
    fn users_have_to_do_with_their_own_and_root_with_all() {
        let mut ledger = Ledger::default();
        let number = ledger.add(tenant("train", 7)).unwrap();
        assert_eq!(ledger.named_for("train", 7), Ok(number));
        assert_eq!(ledger.named_for("train", 0), Ok(number));
        assert!(ledger.named_for("train", 8).unwrap_err().contains("another user"));
        assert!(ledger.named_for("infer", 0).unwrap_err().contains("no tenant `infer`"));
    }

    #[test]
    fn a_tenant_stays_as_long_as_anything_keeps_it() {
        let mut ledger = Ledger::default();
        let number = ledger.add(tenant("train", 7)).unwrap();
        let kept = ledger.get_mut(number).unwrap();
        kept.registered.insert(1);
        kept.processes.insert(2);
        kept.kept_until_ns = 10;
        ledger.connection_gone(1);
        assert!(ledger.sweep(20).is_empty());
        ledger.connection_gone(2);
        assert!(ledger.sweep(9).is_empty());
        assert_eq!(ledger.next_sweep_ns(9), Some(10));
        assert_eq!(ledger.sweep(10).len(), 1);
        assert!(ledger.is_empty());
    }

    #[test]
    fn there_is_an_end_to_tenants() {
        let mut ledger = Ledger::default();
        for number in 0..TENANTS_MAX {
            ledger.add(tenant(&number.to_string(), 7)).unwrap();
        }
        assert!(ledger.add(tenant("one more", 7)).unwrap_err().contains("no more fit"));
    }
}
