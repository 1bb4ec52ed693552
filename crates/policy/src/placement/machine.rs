//! Programs that come to one machine with several GPUs.
//!
//! What a program is promised and what it may reach are placed as any instance is: beside others that leave room, and on
//! an idle GPU where none does. A program that names no limit may take a whole GPU, so it is alone for as long as there
//! are idle ones. After that it goes where the least is asked for, because sharing is better than not running; only a
//! promise that cannot be kept is refused. Where memory is what is missing, programs that said they would leave are asked
//! to: none that matters more than it must, and of those as few as make room.

use super::explain::giga;
use super::policies::by_name;
use super::{Demand, Kind, Need, Piece, Plan, Reason, Refusal, Rules, State, WHOLE, explain};
use crate::{GpuId, InstanceId, NodeId};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// A program on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantState {
    /// What people call it.
    pub name: String,
    /// What it does.
    pub kind: Kind,
    /// What it takes, or may take.
    pub need: Need,
    /// Whether it leaves when it is asked to, and how soon: those with the highest number first.
    pub leaves: Option<u8>,
}

/// A GPU of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Its number.
    pub gpu: GpuId,
    /// Bytes.
    pub memory: u64,
    /// Who is on it, in the order they came. Together they may be promised more than there is.
    pub tenants: Vec<TenantState>,
}

/// Where a program goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Its GPUs.
    pub gpus: Vec<GpuId>,
    /// Why, a line for each.
    pub why: Vec<String>,
    /// Whether its memory, or that of others, may turn out not to be there.
    pub crowded: bool,
    /// Who has to leave before it comes, by name.
    pub leaving: Vec<String>,
}

/// Chooses among these GPUs of a machine.
pub fn choose(hosts: &[Host], demand: &Demand) -> Result<Choice, Refusal> {
    let state = state(hosts);
    let policy = by_name("weft").expect("it is one of the policies");
    match policy.place(&state, demand) {
        Ok(plan) => {
            let gpus = plan.pieces.iter().map(|piece| piece.gpu).collect();
            Ok(Choice { gpus, why: explain(&state, demand, &plan), crowded: false, leaving: Vec::new() })
        }
        Err(refusal) if hosts.len() < demand.gpus => Err(refusal),
        Err(_) => match crowd(hosts, &state, demand) {
            Ok(choice) if choice.crowded => Ok(make_room(hosts, &state, demand).unwrap_or(choice)),
            choice => choice,
        },
    }
}

/// GPUs whose memory suffices once some have left: those where the least important, the fewest and the smallest have to.
/// `None` where there are not enough.
fn make_room(hosts: &[Host], state: &State, demand: &Demand) -> Option<Choice> {
    let need = &demand.need;
    let mut able: Vec<(&Host, Vec<&TenantState>)> = Vec::new();
    for host in hosts.iter().filter(|host| state.rooms()[host.gpu.index()].request >= need.request) {
        let taken: u64 = host.tenants.iter().map(|tenant| tenant.need.memory).sum();
        let missing = (taken + need.memory).saturating_sub(host.memory);
        able.extend(fewest(&host.tenants, missing).map(|leaving| (host, leaving)));
    }
    able.sort_by_key(|(host, leaving)| {
        let memory: u64 = leaving.iter().map(|tenant| tenant.need.memory).sum();
        let foremost = leaving.iter().filter_map(|tenant| tenant.leaves).min();
        (Reverse(foremost.unwrap_or(u8::MAX)), leaving.len(), memory, host.gpu)
    });
    if able.len() < demand.gpus {
        return None;
    }
    able.truncate(demand.gpus);
    let name = |tenant: &&TenantState| tenant.name.clone();
    let line = |(host, leaving): &(&Host, Vec<&TenantState>)| match leaving.is_empty() {
        true => format!("gpu {}: its memory is free", host.gpu.0),
        false => {
            let names: Vec<String> = leaving.iter().map(name).collect();
            format!(
                "gpu {}: {} {} room",
                host.gpu.0,
                names.join(" and "),
                if names.len() > 1 { "make" } else { "makes" }
            )
        }
    };
    let mut leaving: Vec<String> = able.iter().flat_map(|(_, leaving)| leaving.iter().map(name)).collect();
    leaving.sort();
    leaving.dedup();
    let gpus = able.iter().map(|(host, _)| host.gpu).collect();
    Some(Choice { gpus, why: able.iter().map(line).collect(), crowded: false, leaving })
}

/// Who leaves so that this much memory is free: of those that matter least and suffice, the fewest. Of one, the smallest
/// that suffices, of several, the largest.
fn fewest(tenants: &[TenantState], missing: u64) -> Option<Vec<&TenantState>> {
    let mut willing: Vec<&TenantState> = Vec::new();
    for rank in (0..=u8::MAX).rev() {
        if willing.iter().map(|tenant| tenant.need.memory).sum::<u64>() >= missing {
            break;
        }
        willing.extend(tenants.iter().filter(|tenant| tenant.leaves == Some(rank)));
    }
    willing.sort_by_key(|tenant| tenant.need.memory);
    let mut leaving = Vec::new();
    let mut left = missing;
    while left > 0 {
        let enough = willing.iter().position(|tenant| tenant.need.memory >= left);
        let next = willing.remove(enough.or_else(|| willing.len().checked_sub(1))?);
        left = left.saturating_sub(next.need.memory);
        leaving.push(next);
    }
    Some(leaving)
}

/// The machine as a plan sees it. Who was promised more than is left has what is left.
pub(super) fn state(hosts: &[Host]) -> State {
    let mut state = State::new(Rules::SHARED);
    let mut next = 0;
    for Host { gpu, memory, tenants } in hosts {
        let gpu = *gpu;
        state.join(gpu, NodeId::new(0), *memory, BTreeSet::new());
        for tenant in tenants {
            let room = state.rooms()[gpu.index()];
            let need = Need {
                request: tenant.need.request.min(room.request),
                limit: tenant.need.limit.min(room.limit),
                quota: WHOLE,
                memory: tenant.need.memory.min(room.memory),
            };
            let piece = Piece { gpu, need, start: 0, reason: Reason::Fits };
            let plan = Plan { moves: Vec::new(), pieces: vec![piece] };
            let placed = state.apply(InstanceId(next), Demand::new(&*tenant.name, tenant.kind, 1, need), &plan);
            placed.expect("it takes no more than there is");
            next += 1;
        }
    }
    state
}

/// What is asked of a GPU already; the less the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Asked {
    /// Whether the memory that is needed is not free.
    pub(super) lacks_memory: bool,
    /// The sum of limits, in thousandths.
    limits: u32,
    tenants: usize,
    pub(super) gpu: GpuId,
}

/// GPUs that can keep a promise: those where memory is free first, then those that the least is asked of. `None` where
/// there are not so many.
pub(super) fn least_asked(hosts: &[Host], state: &State, need: &Need, gpus: usize) -> Option<Vec<Asked>> {
    let room = |host: &Host| state.rooms()[host.gpu.index()];
    let asked = |host: &Host| Asked {
        lacks_memory: room(host).memory < need.memory,
        limits: host.tenants.iter().map(|tenant| tenant.need.limit).sum(),
        tenants: host.tenants.len(),
        gpu: host.gpu,
    };
    let keeps = |host: &&Host| room(host).request >= need.request && host.memory >= need.memory;
    let mut able: Vec<Asked> = hosts.iter().filter(keeps).map(asked).collect();
    able.sort_unstable();
    able.truncate(gpus);
    (able.len() == gpus).then_some(able)
}

/// The GPUs that the least is asked of, in words.
fn crowd(hosts: &[Host], state: &State, demand: &Demand) -> Result<Choice, Refusal> {
    let Some(able) = least_asked(hosts, state, &demand.need, demand.gpus) else {
        return Err(refusal(state, demand));
    };
    let line = |asked: &Asked| {
        let memory = hosts.iter().find(|host| host.gpu == asked.gpu).map_or(0, |host| host.memory);
        format!(
            "gpu {}: no GPU has room for its limit, and the least is asked of this one: {}% in all, by {}; {} of {} GB \
             of memory are spoken for",
            asked.gpu.0,
            asked.limits / 10,
            asked.tenants,
            giga(memory - state.rooms()[asked.gpu.index()].memory),
            giga(memory)
        )
    };
    let why = able.iter().map(line).collect();
    let crowded = able.iter().any(|asked| asked.lacks_memory);
    Ok(Choice { gpus: able.iter().map(|asked| asked.gpu).collect(), why, crowded, leaving: Vec::new() })
}

/// Why no GPU keeps the promise, or not enough of them.
fn refusal(state: &State, demand: &Demand) -> Refusal {
    let (need, gpus) = (&demand.need, demand.gpus);
    let able = state.gpus().iter().enumerate().filter(|(_, gpu)| gpu.alive && gpu.memory >= need.memory);
    let mut left: Vec<(u32, usize)> = able.map(|(index, _)| (state.rooms()[index].request, index)).collect();
    left.sort_unstable_by(|one, other| other.cmp(one));
    let reason = match left.get(gpus - 1) {
        None => format!("{} GB of memory is more than {gpus} of the GPUs have", giga(need.memory)),
        Some((most, last)) => format!(
            "a request of {}% cannot be kept: others were promised all but {}% of {}",
            f64::from(need.request) / 10.0,
            f64::from(*most) / 10.0,
            match (gpus - 1, left.len()) {
                (0, 1) => format!("GPU {last}"),
                (0, _) => "every GPU".to_owned(),
                (better, _) => format!("every GPU but {better}"),
            }
        ),
    };
    Refusal { reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1 << 30;

    fn tenant(name: &str, kind: Kind, request: u32, limit: u32, memory_gb: u64) -> TenantState {
        TenantState { name: name.into(), kind, need: Need::new(request, limit, memory_gb * GB), leaves: None }
    }

    fn machine(gpus: usize) -> Vec<Host> {
        (0..gpus).map(|gpu| Host { gpu: GpuId::new(gpu), memory: 40 * GB, tenants: Vec::new() }).collect()
    }

    /// Lets programs come one after the other, and says where each went.
    #[track_caller]
    fn check(gpus: usize, programs: &[(TenantState, usize)], expected: &str) {
        let mut hosts = machine(gpus);
        let mut told = String::new();
        for (tenant, wanted) in programs {
            let demand = Demand::new(&*tenant.name, tenant.kind, *wanted, tenant.need);
            match choose(&hosts, &demand) {
                Ok(choice) => {
                    choice.gpus.iter().for_each(|gpu| hosts[gpu.index()].tenants.push(tenant.clone()));
                    let crowded = if choice.crowded { " (crowded)" } else { "" };
                    told += &format!("{}{crowded}: {}\n", tenant.name, choice.why.join(" | "));
                }
                Err(refusal) => told += &format!("{}: {refusal}\n", tenant.name),
            }
        }
        let expected: Vec<&str> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        assert_eq!(told.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn programs_that_name_no_limit_are_alone_while_there_are_idle_gpus() {
        let program = |name| (tenant(name, Kind::Training, 0, 1000, 0), 1);
        check(
            2,
            &[program("a"), program("b"), program("c"), program("d")],
            "a: gpu 0: request 0.00 of 1.00 taken, no GPU in use has room; memory 0 of 40 GB
             b: gpu 1: request 0.00 of 1.00 taken, no GPU in use has room; memory 0 of 40 GB
             c: gpu 0: no GPU has room for its limit, and the least is asked of this one: 100% in all, by 1; \
             0 of 40 GB of memory are spoken for
             d: gpu 1: no GPU has room for its limit, and the least is asked of this one: 100% in all, by 1; \
             0 of 40 GB of memory are spoken for",
        );
    }

    #[test]
    fn programs_that_say_what_they_take_complement_each_other() {
        check(
            2,
            &[
                (tenant("train", Kind::Training, 400, 800, 25), 1),
                (tenant("serve", Kind::Inference, 300, 600, 10), 1),
                (tenant("more", Kind::Inference, 400, 600, 10), 1),
            ],
            "train: gpu 0: request 0.40 of 1.00 taken, no GPU in use has room; memory 25 of 40 GB
             serve: gpu 0: request 0.70 of 1.00 taken, complements train; memory 35 of 40 GB
             more: gpu 1: request 0.40 of 1.00 taken, no GPU in use has room; memory 10 of 40 GB",
        );
    }

    #[test]
    fn a_job_on_several_gpus_has_different_ones() {
        check(
            3,
            &[
                (tenant("one", Kind::Inference, 500, 1000, 10), 1),
                (tenant("two", Kind::Training, 600, 1000, 10), 2),
                (tenant("three", Kind::Training, 500, 1000, 10), 2),
                (tenant("four", Kind::Training, 0, 1000, 0), 4),
            ],
            "one: gpu 0: request 0.50 of 1.00 taken, no GPU in use has room; memory 10 of 40 GB
             two: gpu 1: request 0.60 of 1.00 taken, no GPU in use has room; memory 10 of 40 GB | \
             gpu 2: request 0.60 of 1.00 taken, no GPU in use has room; memory 10 of 40 GB
             three: a request of 50% cannot be kept: others were promised all but 40% of every GPU but 1
             four: four needs 4 GPUs with 0 GB and a share of 0.00 free, and there is room on 0: stop something, or add GPUs",
        );
    }

    #[test]
    fn memory_that_may_not_be_there_is_told() {
        check(
            2,
            &[
                (tenant("a", Kind::Training, 0, 1000, 30), 1),
                (tenant("b", Kind::Training, 0, 1000, 20), 1),
                (tenant("c", Kind::Training, 0, 1000, 30), 1),
                (tenant("d", Kind::Training, 0, 1000, 50), 1),
            ],
            "a: gpu 0: request 0.00 of 1.00 taken, no GPU in use has room; memory 30 of 40 GB
             b: gpu 1: request 0.00 of 1.00 taken, no GPU in use has room; memory 20 of 40 GB
             c (crowded): gpu 0: no GPU has room for its limit, and the least is asked of this one: 100% in all, by 1; \
             30 of 40 GB of memory are spoken for
             d: 50 GB of memory is more than 1 of the GPUs have",
        );
    }

    #[test]
    fn as_few_as_make_room_are_asked_to_leave() {
        let job =
            |name: &str, memory_gb| TenantState { leaves: Some(5), ..tenant(name, Kind::Training, 0, 1000, memory_gb) };
        let mut hosts = machine(2);
        hosts[0].tenants = vec![job("ten", 10), job("five", 5), job("twenty", 20)];
        hosts[1].tenants = vec![tenant("stays", Kind::Inference, 500, 1000, 30), job("nine", 9)];
        let asked = |hosts: &[Host], gpus: usize, request: u32, memory_gb: u64| {
            let need = Need::new(request, 1000, memory_gb * GB);
            let choice = choose(hosts, &Demand::new("new", Kind::Inference, gpus, need));
            let tell = |choice: Choice| format!("{} {}", choice.why.join("; "), choice.leaving.join(","));
            choice.map_or_else(|refusal| refusal.reason, tell)
        };
        assert_eq!(asked(&hosts, 1, 0, 10), "gpu 0: five makes room five");
        assert_eq!(asked(&hosts, 1, 0, 15), "gpu 0: ten makes room ten");
        assert_eq!(asked(&hosts, 1, 0, 31), "gpu 0: twenty and ten make room ten,twenty");
        assert_eq!(asked(&hosts, 1, 0, 40), "gpu 0: twenty and ten and five make room five,ten,twenty");
        assert_eq!(asked(&hosts, 2, 0, 10), "gpu 0: five makes room; gpu 1: nine makes room five,nine");
        assert_eq!(asked(&hosts, 1, 600, 15), "gpu 0: ten makes room ten", "the other one's promise cannot be kept");
        assert_eq!(asked(&hosts, 1, 0, 4), asked(&hosts, 1, 0, 5), "nobody leaves who need not");
        // Who matters more stays while others suffice, however many they are.
        hosts[0].tenants[1].leaves = Some(4);
        assert_eq!(asked(&hosts, 1, 0, 9), "gpu 1: nine makes room nine");
        hosts[1].tenants[1].leaves = Some(4);
        assert_eq!(asked(&hosts, 1, 0, 9), "gpu 0: ten makes room ten");
        assert_eq!(asked(&hosts, 1, 0, 40), "gpu 0: twenty and ten and five make room five,ten,twenty");
        // Nobody leaves where that would not be enough.
        hosts[0].tenants.push(tenant("stays", Kind::Inference, 0, 1000, 2));
        let crowded = asked(&hosts, 1, 0, 39);
        assert!(crowded.contains("no GPU has room for its limit"), "{crowded}");
        // Nor where there is room without.
        hosts[1].tenants.clear();
        assert_eq!(
            asked(&hosts, 1, 0, 39),
            "gpu 1: request 0.00 of 1.00 taken, no GPU in use has room; memory 39 of 40 GB "
        );
    }

    #[test]
    fn more_than_there_is_on_a_gpu_is_a_full_gpu() {
        let mut hosts = machine(2);
        let all = tenant("all", Kind::Inference, 800, 1000, 30);
        hosts[0].tenants = vec![all.clone(), all.clone(), all.clone()];
        let demand = Demand::new("small", Kind::Inference, 1, Need::new(100, 200, GB));
        assert_eq!(choose(&hosts, &demand).map(|choice| choice.gpus), Ok(vec![GpuId(1)]));
        hosts[1].tenants = vec![all.clone(), all];
        assert!(choose(&hosts, &demand).unwrap_err().reason.contains("cannot be kept"), "{demand:?}");
    }
}
