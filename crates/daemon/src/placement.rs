//! On which GPUs a program goes: on those that its share names, or on those that `policy::placement` chooses.
//!
//! A best-effort program's request does not count against programs of other classes, because it gives way first. Its
//! memory counts, unless it agreed to leave on request.

use crate::registry::TenantState;
use crate::reservation::Reservation;
use crate::state::DaemonState;
use config::{Bytes, Share};
use policy::GpuId;
use policy::placement::machine::{self, Choice, Host, choose};
use policy::placement::{Demand, Kind, Need};
use policy::sharing::{Class, WHOLE};
use share_client::Gpu;
use shm::now_ns;

/// The GPUs of a program.
pub(crate) struct Placement {
    /// UUIDs of its GPUs with commas between them, for the registry; `all` when the program chooses itself.
    pub(crate) gpu: Option<String>,
    /// UUIDs of the GPUs that the program sees; `None` when it sees all.
    pub(crate) visible: Option<String>,
    /// The reason, in words.
    pub(crate) why: String,
    /// Whether there was more than one choice.
    pub(crate) chosen: bool,
    /// Whether other tenants may use memory that it was promised.
    pub(crate) crowded: bool,
    /// Tenants that must leave first, by name.
    pub(crate) leaving: Vec<String>,
    /// Its GPUs, if the daemon knows them.
    pub(crate) on: Vec<GpuId>,
}

/// Why a program cannot be placed.
pub(crate) enum NoPlacement {
    /// This machine can never hold it.
    Never(String),
    /// Other programs have what it needs.
    Now(String),
}

impl DaemonState {
    /// Places a program of this name and share.
    pub(crate) fn find_placement(&self, name: &str, share: &Share) -> Result<Placement, NoPlacement> {
        if share.gpu.as_deref() == Some("all") {
            let (gpu, why) = (share.gpu.clone(), String::new());
            return Ok(Placement {
                gpu,
                visible: None,
                why,
                chosen: false,
                crowded: false,
                leaving: Vec::new(),
                on: Vec::new(),
            });
        }
        let machine = &self.config.gpus;
        let named = share.gpu.as_deref().map(|text| machine.listed(text)).transpose().map_err(NoPlacement::Never)?;
        let wanted = named.as_ref().map_or(share.gpus as usize, Vec::len);
        let confined = named.is_some() || machine.gpus.len() > 1;
        let gpus = named.unwrap_or_else(|| machine.gpus.iter().collect());
        if wanted > gpus.len() {
            return Err(NoPlacement::Never(format!("it asks for {wanted} GPUs and this machine has {}", gpus.len())));
        }
        memory_exists(share, &gpus).map_err(NoPlacement::Never)?;
        let demand = Demand::new(name, kind(share), wanted, need(share, 0));
        let hosts: Vec<Host> = gpus.iter().map(|gpu| self.host(gpu, name, share.class)).collect();
        let choice = choose(&hosts, &demand).map_err(|refusal| NoPlacement::Now(refusal.reason))?;
        let uuid = |gpu: &GpuId| machine.gpus.iter().find(|known| GpuId(known.index) == *gpu).map(|gpu| gpu.uuid);
        let uuids: Vec<String> = choice.gpus.iter().filter_map(uuid).map(|uuid| uuid.to_string()).collect();
        // UUIDs, because a GPU's number can change.
        let uuids = confined.then(|| uuids.join(","));
        let (why, chosen) = (choice.why.join("; "), gpus.len() > wanted);
        let Choice { gpus: on, crowded, leaving, .. } = choice;
        Ok(Placement { gpu: uuids.clone(), visible: uuids, why, chosen, crowded, leaving, on })
    }

    /// A GPU as a program of this name and class sees it.
    fn host(&self, gpu: &Gpu, name: &str, class: Class) -> Host {
        let now = now_ns();
        let there = self.registry.iter().filter(|(number, tenant)| self.is_on(gpu, *number, &tenant.share));
        let gpu_state = self.gpu_states.iter().find(|gpu_state| gpu_state.gpu.uuid == gpu.uuid);
        let present = |(number, tenant): (u32, &TenantState)| {
            let used = gpu_state.map_or(0, |gpu_state| gpu_state.used_bytes(number));
            let mut need = need(&tenant.share, used);
            let gives_way = tenant.share.class == Class::BestEffort && class != Class::BestEffort;
            if gives_way {
                need.request = 0;
            }
            let leaves = (gives_way && tenant.leaves(now)).then_some(tenant.share.priority);
            machine::TenantState { name: tenant.name.clone(), kind: kind(&tenant.share), need, leaves }
        };
        let is_here = |reserved: &&Reservation| reserved.name != name && reserved.on.contains(&GpuId(gpu.index));
        let reserved = self.reservations.iter().filter(|reserved| reserved.until_ns > now).filter(is_here);
        let coming = |Reservation { name, share, .. }: &Reservation| machine::TenantState {
            name: name.clone(),
            kind: kind(share),
            need: need(share, 0),
            leaves: None,
        };
        let tenants = there.map(present).chain(reserved.map(coming)).collect();
        Host { gpu: GpuId(gpu.index), memory: gpu.memory_bytes, tenants }
    }

    /// Whether a tenant is on a GPU or will be: its share names the GPU, it runs there, or the machine has no other.
    pub(crate) fn is_on(&self, gpu: &Gpu, number: u32, share: &Share) -> bool {
        let gpu_state = self.gpu_states.iter().find(|gpu_state| gpu_state.gpu.uuid == gpu.uuid);
        match share.gpu.as_deref().filter(|text| *text != "all") {
            Some(list) => self.config.gpus.listed(list).is_ok_and(|gpus| gpus.iter().any(|one| one.uuid == gpu.uuid)),
            None => self.config.gpus.gpus.len() == 1 || gpu_state.is_some_and(|gpu_state| gpu_state.has(number)),
        }
    }

    /// Checks that the GPUs of a tenant have what its new share asks for.
    pub(crate) fn check(&self, number: u32, share: &Share) -> Result<(), String> {
        let gpus = &self.config.gpus.gpus;
        let own: Vec<&Gpu> = gpus.iter().filter(|gpu| self.is_on(gpu, number, share)).collect();
        memory_exists(share, if own.is_empty() { gpus.iter().collect() } else { own.clone() }.as_slice())?;
        for gpu in own.iter().filter(|_| share.request.permille() > 0) {
            let others = self.registry.iter().filter(|(other, tenant)| {
                let counts = share.class == Class::BestEffort || tenant.share.class != Class::BestEffort;
                *other != number && counts && self.is_on(gpu, *other, &tenant.share)
            });
            let taken: u32 = others.map(|(_, tenant)| tenant.share.request.permille()).sum();
            if taken + share.request.permille() > WHOLE {
                let left = f64::from(WHOLE.saturating_sub(taken)) / 10.0;
                let (request, gpu) = (share.request, gpu.index);
                let text = format!("a request of {request} cannot be kept: others were promised all but");
                return Err(format!("{text} {left}% of GPU {gpu}"));
            }
        }
        Ok(())
    }
}

fn kind(share: &Share) -> Kind {
    if share.class == Class::BestEffort { Kind::Training } else { Kind::Inference }
}

/// What a share takes of a GPU. Without a memory limit, a tenant takes what it uses.
fn need(share: &Share, used_bytes: u64) -> Need {
    let memory = share.memory.map_or(used_bytes, |memory| memory.0);
    match share.suspended {
        true => Need::new(0, 0, memory),
        false => Need::new(share.request.permille(), share.limit.permille(), memory),
    }
}

fn memory_exists(share: &Share, gpus: &[&Gpu]) -> Result<(), String> {
    let largest = gpus.iter().map(|gpu| gpu.memory_bytes).max();
    match (share.memory, largest) {
        (Some(wanted), Some(there)) if wanted.0 > there => {
            Err(format!("{wanted} of memory is more than the GPU has, which is {}", Bytes(there)))
        }
        _ => Ok(()),
    }
}
