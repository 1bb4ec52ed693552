//! The shares of a model's workers on a GPU, changed while it is measured and given back afterwards.
//!
//! The share of a worker is the limit of its time on the GPU. Whatever ends the measurements, errors and Ctrl-C
//! included, every worker has the share again that it had when it was first seen. Only a profiler that is killed outright
//! leaves shares as they are at that moment: `weft set` puts them right.

use anyhow::{Context, Result, bail};
use config::{Percent, Share, ShareAsked};
use harness::Misuse;
use policy::surface;
use share_client::{Answer, Change, Client, Question, Status, TenantStatus};
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

/// Shares are kept over a tenth of a second; after two of those a new one is all there is.
pub(super) const SETTLE: Duration = Duration::from_millis(250);

/// The GPU that workers are on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gpu {
    pub(super) name: String,
    pub(super) driver: String,
    /// Who else is on it.
    pub(super) others: Vec<String>,
}

/// Tenants whose shares are changed.
#[derive(Debug)]
pub(super) struct Shares {
    whose: Whose,
    before: BTreeMap<String, Share>,
    /// Whether there is anything to give back.
    changed: bool,
}

/// Which tenants are meant.
#[derive(Clone, Debug)]
pub(super) enum Whose {
    /// The workers of a model.
    Model(String),
    /// The one with this name.
    Tenant(String),
}

impl Whose {
    fn is(&self, tenant: &TenantStatus) -> bool {
        match self {
            Whose::Tenant(name) => tenant.name == *name,
            Whose::Model(model) => {
                // Where a name is taken, a number is added to it.
                let number = tenant.name.strip_prefix(model.as_str());
                let number = number.map(|rest| rest.strip_prefix('-').unwrap_or(rest));
                let named = number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
                named && tenant.processes.iter().all(|process| serves(*process, model) != Some(false))
            }
        }
    }
}

/// Whether a process is a worker of this model, as its environment says; `None` where that cannot be read.
fn serves(process: u32, model: &str) -> Option<bool> {
    let environment = std::fs::read(format!("/proc/{process}/environ")).ok()?;
    let wanted = format!("WEFT_MODEL={model}");
    Some(environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes()))
}

impl Shares {
    /// Finds tenants that use a GPU. `Err` inside: why there are none, in words that follow "only batches are measured".
    pub(super) fn find(whose: Whose, gpu: Option<&str>) -> Result<Result<(Shares, Gpu), String>> {
        let Some(client) = Client::find()? else { return Ok(Err("no GPU is shared here".into())) };
        let status = client.status()?;
        let mut found = Vec::new();
        for gpu in &status.gpus {
            let (own, others): (Vec<&TenantStatus>, Vec<_>) = gpu.tenants.iter().partition(|tenant| whose.is(tenant));
            if !own.is_empty() {
                found.push((gpu, own, others));
            }
        }
        let Some((first, ..)) = found.first() else { return Ok(Err(reason(&whose, &status))) };
        if let Some(wanted) = gpu {
            let is = |gpu: &share_client::GpuStatus| gpu.index.to_string() == wanted || gpu.uuid.starts_with(wanted);
            if let Some((other, ..)) = found.iter().find(|(gpu, ..)| !is(gpu)) {
                let text = format!("measure on GPU {wanted}: its workers are on GPU {}, {}", other.index, other.name);
                return Err(Misuse(format!("{text}; leave out --gpu, or deploy it there")).into());
            }
        }
        if let Some((other, ..)) = found.iter().find(|(gpu, ..)| gpu.name != first.name) {
            let text = format!("its workers are on GPUs of two kinds, {} and {}", first.name, other.name);
            return Err(Misuse(format!("measure on one GPU: {text}; leave one of them with `weft set`")).into());
        }
        let others = found.iter().flat_map(|(_, _, others)| others.iter().map(|tenant| tenant.name.clone())).collect();
        let driver = status.driver.clone().unwrap_or_else(|| "unknown".into());
        let gpu = Gpu { name: first.name.clone(), driver, others };
        let tenants = found.iter().flat_map(|(_, own, _)| own.iter());
        let before = tenants.map(|tenant| (tenant.name.clone(), tenant.share.clone())).collect();
        Ok(Ok((Shares { whose, before, changed: false }, gpu)))
    }

    /// Lets every tenant have this much from now on.
    pub(super) fn set(&mut self, share: surface::Share) -> Result<()> {
        let client = Client::find()?.context("change a share: the daemon that shares GPUs is gone")?;
        let limit: Percent = share.to_string().parse().map_err(anyhow::Error::msg)?;
        let mut changed = false;
        // A worker that was started again is a new tenant.
        for tenant in tenants(&client.status()?).filter(|tenant| self.whose.is(tenant)) {
            let before = self.before.entry(tenant.name.clone()).or_insert_with(|| tenant.share.clone());
            let asked =
                ShareAsked { request: Some(before.request.min(limit)), limit: Some(limit), ..Default::default() };
            self.changed = true;
            change(&client, &tenant.name, asked)?;
            changed = true;
        }
        anyhow::ensure!(changed, "change a share: nobody whose share it is uses the GPU any more");
        Ok(())
    }

    /// Launches so far, of all of them together.
    pub(super) fn launches(&self) -> Result<u64> {
        let client = Client::find()?.context("count launches: the daemon that shares GPUs is gone")?;
        let status = client.status()?;
        Ok(tenants(&status).filter(|tenant| self.whose.is(tenant)).map(|tenant| tenant.launches).sum())
    }

    fn restore(&self) -> Result<()> {
        let client = Client::find()?.context("the daemon is gone")?;
        let status = client.status()?;
        for (name, share) in &self.before {
            if tenants(&status).any(|tenant| tenant.name == *name) {
                let asked =
                    ShareAsked { request: Some(share.request), limit: Some(share.limit), ..ShareAsked::default() };
                change(&client, name, asked)?;
            }
        }
        Ok(())
    }
}

impl Drop for Shares {
    fn drop(&mut self) {
        if let Err(error) = if self.changed { self.restore() } else { Ok(()) } {
            let names: Vec<&str> = self.before.keys().map(String::as_str).collect();
            // Nobody is left to be told if this fails too.
            let _ = writeln!(
                std::io::stderr(),
                "weft: the shares of {} were not given back: {error:#}; see `weft top` and use `weft set`",
                names.join(", ")
            );
        }
    }
}

fn tenants(status: &Status) -> impl Iterator<Item = &TenantStatus> {
    status.gpus.iter().flat_map(|gpu| &gpu.tenants)
}

fn change(client: &Client, name: &str, share: ShareAsked) -> Result<()> {
    match client.ask(&Question::Set(Change { name: name.to_owned(), share }))? {
        Answer::Set(_) => Ok(()),
        Answer::Error(error) => Err(Misuse(format!("change the share of {name}: {error}")).into()),
        _ => bail!("change the share of {name}: the daemon answered something else"),
    }
}

/// Why there is nobody whose share could be changed.
fn reason(whose: &Whose, status: &Status) -> String {
    if status.idle.iter().any(|tenant| whose.is(tenant)) {
        return "its workers use no GPU".into();
    }
    match &status.problem {
        Some(problem) if status.gpus.is_empty() => problem.clone(),
        _ => "its workers are no tenants of a GPU; for that, a served model needs a `share` in weft.toml, and `weft` needs \
              libweft.so beside it"
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_known_by_name_and_by_what_they_serve() {
        let tenant = |name: &str, processes: &[u32]| TenantStatus {
            name: name.into(),
            processes: processes.to_vec(),
            ..TenantStatus::default()
        };
        let model = Whose::Model("bert".into());
        assert!(model.is(&tenant("bert", &[])) && model.is(&tenant("bert-12", &[])));
        assert!(!model.is(&tenant("bert-large", &[])) && !model.is(&tenant("robert", &[])));
        // This process has the name of nobody's model.
        assert!(!model.is(&tenant("bert", &[std::process::id()])));
        assert!(Whose::Tenant("bert".into()).is(&tenant("bert", &[std::process::id()])));
    }
}
