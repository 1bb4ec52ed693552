//! A file beside the socket with what must survive the daemon: the tenants and their shares.
//!
//! The daemon replaces the file as a whole, so a daemon that is killed leaves the old file or the new one. Memory and GPU
//! time used are not in it: each process knows its own and reports it when it attaches again. A file from before the
//! machine's last boot is ignored, because its processes are gone.

use crate::pidfd::Watched;
use crate::registry::{TenantRegistry, TenantState};
use anyhow::{Context, Result};
use config::Share;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// How long processes have to come back before a tenant that nothing else keeps is forgotten.
const KEPT_NS: u64 = 10_000_000_000;

/// The file.
#[derive(Debug)]
pub(crate) struct Store {
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
    #[serde(default, rename = "stretched")]
    boost: u32,
    #[serde(default)]
    command: Option<u64>,
    #[serde(default)]
    placed: String,
    #[serde(default)]
    leaves: bool,
    /// The process that the tenant lives as long as, and when that started.
    process: Option<(u32, u64)>,
}

impl Store {
    pub(crate) fn new(path: &Path) -> Store {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Store { path: path.to_owned(), boot: boot.trim().to_owned() }
    }

    /// Writes the tenants down.
    pub(crate) fn write(&self, registry: &TenantRegistry) -> Result<()> {
        let tenants = registry.iter().map(|(_, tenant)| WrittenTenant {
            name: tenant.name.clone(),
            user: tenant.user,
            share: tenant.share.clone(),
            boost: tenant.boost,
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

    /// The tenants of the daemon before. A missing file means none; an unreadable one is logged and ignored.
    pub(crate) fn read(&self, now_ns: u64) -> TenantRegistry {
        let mut registry = TenantRegistry::default();
        let Ok(text) = std::fs::read(&self.path) else { return registry };
        let written: Written = match serde_json::from_slice(&text) {
            Ok(written) => written,
            Err(error) => {
                tracing::warn!(file = %self.path.display(), %error, "the tenants of the last daemon could not be read");
                return registry;
            }
        };
        if written.boot != self.boot {
            return registry;
        }
        for WrittenTenant { name, user, share, boost, command, placed, leaves, process } in written.tenants {
            let leader = process.and_then(|(pid, started)| Watched::again(pid, started));
            let kept_until_ns = now_ns + KEPT_NS;
            // Names in the file are unique unless somebody edited it; then the first one counts.
            let _ = registry.add(TenantState {
                boost,
                command,
                placed,
                leaves_until_ns: leaves.then_some(kept_until_ns),
                leader,
                kept_until_ns,
                ..TenantState::new(name, user, share)
            });
        }
        registry
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
        let mut registry = TenantRegistry::default();
        let share: Share = serde_json::from_str(r#"{"class": "latency", "limit": "40%", "memory": "1GiB"}"#).unwrap();
        let number = registry.add(TenantState::new("train".into(), 7, share.clone())).unwrap();
        let tenant = registry.get_mut(number).unwrap();
        (tenant.leader, tenant.command, tenant.boost) = (Watched::new(std::process::id()), Some(3), 300);
        tenant.leaves_until_ns = Some(1);
        store.write(&registry).unwrap();
        let mut again = store.read(1);
        let tenant = again.get(again.named("train").unwrap()).unwrap();
        assert_eq!((tenant.user, &tenant.share, tenant.command, tenant.boost), (7, &share, Some(3), 300));
        assert!(tenant.leader.is_some() && tenant.leaves(KEPT_NS) && !tenant.leaves(1 + KEPT_NS));
        assert!(again.sweep(1 + KEPT_NS).is_empty(), "this process lives");
    }

    #[test]
    fn those_that_ended_are_kept_for_a_moment_and_rubbish_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(&folder.path().join("node.json"));
        let mut registry = TenantRegistry::default();
        registry.add(TenantState::new("train".into(), 7, Share::default())).unwrap();
        store.write(&registry).unwrap();
        let mut again = store.read(1);
        assert!(again.sweep(KEPT_NS).is_empty());
        assert_eq!(again.sweep(1 + KEPT_NS).len(), 1);
        for rubbish in ["", "{", "[]", r#"{"boot": "another", "tenants": []}"#] {
            std::fs::write(&store.path, rubbish).unwrap();
            assert!(store.read(1).is_empty(), "{rubbish}");
        }
    }
}
