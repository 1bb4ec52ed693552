//! What must survive the daemon: which tenants there are and what they may have, in a file beside the socket.
//!
//! The file is replaced as a whole, so that a daemon that is killed leaves the old one or the new one. It says nothing
//! of memory and time used: processes know that themselves and say it when they attach again. What was written before
//! the machine was started again is worth nothing, as all processes in it are gone.

use super::ledger::{Ledger, Tenant};
use super::pidfd::Watched;
use anyhow::{Context, Result};
use rpc::Share;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// How long processes have to come back before a tenant that nothing else keeps is forgotten.
const KEPT_NS: u64 = 10_000_000_000;

/// The file.
#[derive(Debug)]
pub(super) struct Store {
    path: PathBuf,
    boot: String,
}

#[derive(Serialize, Deserialize)]
struct Written {
    boot: String,
    tenants: Vec<WrittenTenant>,
}

#[derive(Serialize, Deserialize)]
struct WrittenTenant {
    name: String,
    user: u32,
    share: Share,
    #[serde(default)]
    stretched: u32,
    #[serde(default)]
    command: Option<u64>,
    #[serde(default)]
    placed: String,
    #[serde(default)]
    leaves: bool,
    /// The process that it lives as long as, and when that started.
    process: Option<(u32, u64)>,
}

impl Store {
    pub(super) fn new(path: &Path) -> Store {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Store { path: path.to_owned(), boot: boot.trim().to_owned() }
    }

    /// Writes down who there is.
    pub(super) fn write(&self, ledger: &Ledger) -> Result<()> {
        let tenants = ledger.iter().map(|(_, tenant)| WrittenTenant {
            name: tenant.name.clone(),
            user: tenant.user,
            share: tenant.share.clone(),
            stretched: tenant.stretched,
            command: tenant.command,
            placed: tenant.placed.clone(),
            leaves: tenant.leaves_until_ns.is_some(),
            process: tenant.leader.as_ref().map(|leader| (leader.pid, leader.started)),
        });
        let written = Written { boot: self.boot.clone(), tenants: tenants.collect() };
        let beside = self.path.with_extension("json.new");
        let write = || std::fs::write(&beside, serde_json::to_vec_pretty(&written)?).map_err(anyhow::Error::from);
        write().with_context(|| format!("write {}", beside.display()))?;
        std::fs::rename(&beside, &self.path).with_context(|| format!("replace {}", self.path.display()))
    }

    /// Who there was. Nothing is there the first time; a file that makes no sense is said and left behind.
    pub(super) fn read(&self, now_ns: u64) -> Ledger {
        let mut ledger = Ledger::default();
        let Ok(text) = std::fs::read(&self.path) else { return ledger };
        let written: Written = match serde_json::from_slice(&text) {
            Ok(written) => written,
            Err(error) => {
                tracing::warn!(file = %self.path.display(), %error, "tenants of before could not be read");
                return ledger;
            }
        };
        if written.boot != self.boot {
            return ledger;
        }
        for WrittenTenant { name, user, share, stretched, command, placed, leaves, process } in written.tenants {
            let leader = process.and_then(|(pid, started)| Watched::again(pid, started));
            let kept_until_ns = now_ns + KEPT_NS;
            // Names in it are unless somebody edited it, and then the first one counts.
            let _ = ledger.add(Tenant {
                stretched,
                command,
                placed,
                leaves_until_ns: leaves.then_some(kept_until_ns),
                leader,
                kept_until_ns,
                ..Tenant::new(name, user, share)
            });
        }
        ledger
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_are_read_back_with_their_shares_and_their_processes() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(&folder.path().join("node.json"));
        assert!(store.read(1).is_empty());
        let mut ledger = Ledger::default();
        let share: Share = serde_json::from_str(r#"{"class": "latency", "limit": "40%", "memory": "1GiB"}"#).unwrap();
        let number = ledger.add(Tenant::new("train".into(), 7, share.clone())).unwrap();
        let tenant = ledger.get_mut(number).unwrap();
        (tenant.leader, tenant.command, tenant.stretched) = (Watched::new(std::process::id()), Some(3), 300);
        tenant.leaves_until_ns = Some(1);
        store.write(&ledger).unwrap();
        let mut again = store.read(1);
        let tenant = again.get(again.named("train").unwrap()).unwrap();
        assert_eq!((tenant.user, &tenant.share, tenant.command, tenant.stretched), (7, &share, Some(3), 300));
        assert!(tenant.leader.is_some() && tenant.leaves(KEPT_NS) && !tenant.leaves(1 + KEPT_NS));
        assert!(again.sweep(1 + KEPT_NS).is_empty(), "this process lives");
    }

    #[test]
    fn those_that_ended_are_kept_for_a_moment_and_rubbish_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(&folder.path().join("node.json"));
        let mut ledger = Ledger::default();
        ledger.add(Tenant::new("train".into(), 7, Share::default())).unwrap();
        store.write(&ledger).unwrap();
        let mut again = store.read(1);
        assert!(again.sweep(KEPT_NS).is_empty());
        assert_eq!(again.sweep(1 + KEPT_NS).len(), 1);
        for rubbish in ["", "{", "[]", r#"{"boot": "another", "tenants": []}"#] {
            std::fs::write(&store.path, rubbish).unwrap();
            assert!(store.read(1).is_empty(), "{rubbish}");
        }
    }
}
