//! Where there is room for a share: on the GPUs that it names, or on those that a plan finds.
//!
//! What best-effort programs were promised is not kept against others: they are the first to give way. Their memory is
//! theirs, but for jobs that said they would leave.

use super::daemon::Running;
use super::gpus::Gpu;
use super::ledger::Tenant;
use super::reserved::Reserved;
use policy::GpuId;
use policy::placement::machine::{Choice, Guest, Host, choose};
use policy::placement::{Demand, Kind, Need};
use policy::sharing::{Class, WHOLE};
use rpc::{Bytes, Share};
use shm::now_ns;

/// Where a program goes.
pub(super) struct Found {
    /// UUIDs of its GPUs, with commas between them, as they are written down; `all` where it was left to the program.
    pub(super) gpu: Option<String>,
    /// UUIDs of the GPUs that the program is to see, where it is not to see all.
    pub(super) visible: Option<String>,
    /// Why there, in words.
    pub(super) why: String,
    /// Whether there was a choice.
    pub(super) chosen: bool,
    /// Whether memory that it was promised may turn out not to be there.
    pub(super) crowded: bool,
    /// Who has to leave before, by name.
    pub(super) leaving: Vec<String>,
    /// Its GPUs, where they are known here.
    pub(super) on: Vec<GpuId>,
}

/// Why there is no room.
pub(super) enum NoRoom {
    /// And never will be.
    Never(String),
    /// While others have what they have.
    Now(String),
}

impl Running {
    /// Where a program of this name and share goes.
    pub(super) fn find_room(&self, name: &str, share: &Share) -> Result<Found, NoRoom> {
        if share.gpu.as_deref() == Some("all") {
            let (gpu, why) = (share.gpu.clone(), String::new());
            return Ok(Found {
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
        let named = share.gpu.as_deref().map(|text| machine.listed(text)).transpose().map_err(NoRoom::Never)?;
        let wanted = named.as_ref().map_or(share.gpus as usize, Vec::len);
        let confined = named.is_some() || machine.gpus.len() > 1;
        let gpus = named.unwrap_or_else(|| machine.gpus.iter().collect());
        if wanted > gpus.len() {
            return Err(NoRoom::Never(format!("it asks for {wanted} GPUs and this machine has {}", gpus.len())));
        }
        memory_exists(share, &gpus).map_err(NoRoom::Never)?;
        let demand = Demand::new(name, kind(share), wanted, need(share, 0));
        let hosts: Vec<Host> = gpus.iter().map(|gpu| self.host(gpu, name, share.class)).collect();
        let choice = choose(&hosts, &demand).map_err(|refusal| NoRoom::Now(refusal.reason))?;
        let uuid = |gpu: &GpuId| machine.gpus.iter().find(|known| GpuId(known.index) == *gpu).map(|gpu| gpu.uuid);
        let uuids: Vec<String> = choice.gpus.iter().filter_map(uuid).map(|uuid| uuid.to_string()).collect();
        // A number may mean another GPU tomorrow.
        let uuids = confined.then(|| uuids.join(","));
        let (why, chosen) = (choice.why.join("; "), gpus.len() > wanted);
        let Choice { gpus: on, crowded, leaving, .. } = choice;
        Ok(Found { gpu: uuids.clone(), visible: uuids, why, chosen, crowded, leaving, on })
    }

    /// A GPU as somebody of this name and class sees it.
    fn host(&self, gpu: &Gpu, name: &str, class: Class) -> Host {
        let now = now_ns();
        let there = self.ledger.iter().filter(|(number, tenant)| self.is_on(gpu, *number, &tenant.share));
        let board = self.boards.iter().find(|board| board.gpu.uuid == gpu.uuid);
        let guest = |(number, tenant): (u32, &Tenant)| {
            let used = board.map_or(0, |board| board.used_bytes(number));
            let mut need = need(&tenant.share, used);
            let gives_way = tenant.share.class == Class::BestEffort && class != Class::BestEffort;
            if gives_way {
                need.request = 0;
            }
            let leaves = (gives_way && tenant.leaves(now)).then_some(tenant.share.priority);
            Guest { name: tenant.name.clone(), kind: kind(&tenant.share), need, leaves }
        };
        let is_here = |reserved: &&Reserved| reserved.name != name && reserved.on.contains(&GpuId(gpu.index));
        let reserved = self.reserved.iter().filter(|reserved| reserved.until_ns > now).filter(is_here);
        let coming = |Reserved { name, share, .. }: &Reserved| Guest {
            name: name.clone(),
            kind: kind(share),
            need: need(share, 0),
            leaves: None,
        };
        let guests = there.map(guest).chain(reserved.map(coming)).collect();
        Host { gpu: GpuId(gpu.index), memory: gpu.memory_bytes, guests }
    }

    /// Whether a tenant is on a GPU, or will be: when it was said, when it runs, or when there is only one place.
    pub(super) fn is_on(&self, gpu: &Gpu, number: u32, share: &Share) -> bool {
        let board = self.boards.iter().find(|board| board.gpu.uuid == gpu.uuid);
        match share.gpu.as_deref().filter(|text| *text != "all") {
            Some(list) => self.config.gpus.listed(list).is_ok_and(|gpus| gpus.iter().any(|one| one.uuid == gpu.uuid)),
            None => self.config.gpus.gpus.len() == 1 || board.is_some_and(|board| board.has(number)),
        }
    }

    /// Whether the GPUs of a tenant have what its new share asks for.
    pub(super) fn check(&self, number: u32, share: &Share) -> Result<(), String> {
        let gpus = &self.config.gpus.gpus;
        let own: Vec<&Gpu> = gpus.iter().filter(|gpu| self.is_on(gpu, number, share)).collect();
        memory_exists(share, if own.is_empty() { gpus.iter().collect() } else { own.clone() }.as_slice())?;
        for gpu in own.iter().filter(|_| share.request.permille() > 0) {
            let others = self.ledger.iter().filter(|(other, tenant)| {
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

/// What a share takes of a GPU. Who named no bound for its memory takes what it has.
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
