//! One GPU: its slots, the processes in them, and what the policy decides about them.
//!
//! A tick reads every page, adds them up by tenant, updates `policy::sharing`, and writes every control page. A process's
//! page moves its own tenant's numbers only; classes and priorities come from the registry.

use crate::journal::JournalWriter;
use crate::learned::{Knowledge, Learned};
use crate::pidfd::Watched;
use crate::registry::{TenantRegistry, Token};
use crate::slot::{Notes, Occupant, Seen, Slot};
use crate::tenant_usage::{Colocated, Interval, TenantUsage};
use config::SharingMode;
use policy::sharing::journal::Recorder;
use policy::sharing::{Action, Admission, Class, Controller, GpuView, SharingConfig, WHOLE};
use policy::{TenantId, Time};
use share_client::{Gpu, GpuStatus, TenantStatus};
use shm::{ControlPage, SLOTS};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The longest time that counts as one tick: after a longer gap, the machine slept.
const INTERVAL_MAX_NS: u64 = 1_000_000_000;

/// One GPU.
pub(crate) struct GpuState {
    pub(crate) gpu: Gpu,
    /// Made when the first process comes.
    slots: Vec<Slot>,
    /// Slots in the order in which processes left them: the one left last is taken last.
    order: VecDeque<usize>,
    usages: BTreeMap<u32, TenantUsage>,
    learned: Learned,
    sharing: Recorder,
    record: Option<JournalWriter>,
    view: GpuView,
    actions: Vec<Action>,
    ticked_ns: u64,
    window_ns: u64,
}

/// A process that attaches.
pub(crate) struct Attaching {
    pub(crate) tenant: u32,
    pub(crate) token: Token,
    pub(crate) process: Watched,
    pub(crate) user: u32,
    /// A hash of its tenant's command.
    pub(crate) command: Option<u64>,
    /// What it was charged so far, if it was attached before.
    pub(crate) charged_ns: u64,
}

/// The slot of a process.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AttachedSlot {
    pub(crate) slot: u32,
    pub(crate) generation: u64,
}

impl GpuState {
    pub(crate) fn new(gpu: Gpu, learned: Learned, sharing: &SharingConfig, record: Option<JournalWriter>) -> GpuState {
        let view = GpuView { memory_total: gpu.memory_bytes, ..GpuView::default() };
        GpuState {
            gpu,
            slots: Vec::new(),
            order: VecDeque::new(),
            usages: BTreeMap::new(),
            learned,
            sharing: Recorder::new(Controller::default(), sharing, record.is_some()),
            record,
            view,
            actions: Vec::new(),
            ticked_ns: 0,
            window_ns: sharing.window.nanos(),
        }
    }

    /// Throttles best-effort programs with this controller from now on.
    pub(crate) fn set_controller(&mut self, controller: Controller) {
        self.sharing.set_controller(controller);
    }

    /// Whether any process is here.
    pub(crate) fn is_idle(&self) -> bool {
        self.slots.iter().all(|slot| slot.occupant.is_none())
    }

    /// Finds a slot for a process. A process that is here already, over another connection, moves.
    pub(crate) fn attach(&mut self, attaching: Attaching, now_ns: u64) -> Result<AttachedSlot, String> {
        if self.slots.is_empty() {
            let slots = (0..SLOTS).map(|_| Slot::new()).collect::<std::io::Result<Vec<Slot>>>();
            self.slots = slots.map_err(|error| format!("pages could not be made: {error}"))?;
            self.order = (0..SLOTS).collect();
        }
        let pid = attaching.process.pid;
        let is_here = |slot: &Slot| slot.occupant.as_ref().is_some_and(|occupant| occupant.process.pid == pid);
        if let Some(index) = self.slots.iter().position(is_here) {
            self.leave(index);
        }
        let free = |slot: &&usize| self.slots[**slot].is_free_for(pid);
        // Prefer a slot that was never used: the last process of another must be checked.
        let found = self.order.iter().find(|slot| self.slots[**slot].is_new()).or_else(|| self.order.iter().find(free));
        let index = *found.ok_or_else(|| format!("{SLOTS} processes use GPU {} already", self.gpu.index))?;
        let Attaching { tenant, token, process, user, command, charged_ns } = attaching;
        let notes = Notes::new().map_err(|error| format!("pages could not be made: {error}"))?;
        let program = self.learned.program(process.pid, user, &self.gpu.name);
        let command = command.map(|command| self.learned.command(command, user, &self.gpu.name));
        if let Some(program) = &program {
            let known = self.learned.read(program);
            known.notes().for_each(|note| notes.page.put(note));
            self.usages.entry(tenant).or_insert_with(TenantUsage::new).recall(known.wait_permille);
        }
        let seen = Seen { charged_ns, active_ns: now_ns, ..Seen::default() };
        let occupant = Occupant { tenant, token, process, program, command, notes, seen };
        let generation = self.slots[index].occupy(occupant, now_ns);
        Ok(AttachedSlot { slot: index as u32, generation })
    }

    /// The files for the process in a slot.
    pub(crate) fn files(&self, slot: u32) -> Vec<BorrowedFd<'_>> {
        let own = self.slots[slot as usize].own_files();
        own.chain(self.slots.iter().map(Slot::file)).collect()
    }

    /// A connection has ended, and its process with it.
    pub(crate) fn release(&mut self, token: Token) {
        let of_it = |slot: &Slot| slot.occupant.as_ref().is_some_and(|occupant| occupant.token == token);
        while let Some(index) = self.slots.iter().position(of_it) {
            self.leave(index);
        }
    }

    /// Keeps what was learned about every program that is here.
    pub(crate) fn keep_learned(&self) {
        self.slots.iter().filter_map(|slot| slot.occupant.as_ref()).for_each(|occupant| self.keep(occupant));
    }

    fn keep(&self, occupant: &Occupant) {
        let wait = self.usages.get(&occupant.tenant).and_then(TenantUsage::wait_permille);
        if let Some(program) = &occupant.program {
            self.learned.write(program, Knowledge::new(wait, occupant.notes.page.read()));
        }
        if let Some(command) = &occupant.command {
            self.learned.write(command, Knowledge::new(wait, Vec::new()));
        }
    }

    fn leave(&mut self, index: usize) {
        if let Some(occupant) = &self.slots[index].occupant {
            self.keep(occupant);
        }
        self.slots[index].release();
        self.order.retain(|slot| *slot != index);
        self.order.push_back(index);
        // An idle GPU does not tick, so the usages of tenants that left are removed here.
        let slots = &self.slots;
        let is_here =
            |tenant: u32| slots.iter().filter_map(|slot| slot.occupant.as_ref()).any(|its| its.tenant == tenant);
        self.usages.retain(|tenant, _| is_here(*tenant));
    }

    /// Reads every page, decides, and writes every control page.
    pub(crate) fn tick(&mut self, now_ns: u64, registry: &TenantRegistry) {
        let from_ns = self.ticked_ns.max(now_ns.saturating_sub(INTERVAL_MAX_NS)).min(now_ns);
        self.ticked_ns = now_ns;
        self.read(Interval { from_ns, to_ns: now_ns, window_ns: self.window_ns }, registry);
        self.view.tenants.clear();
        for (number, usage) in &self.usages {
            // A suspended tenant wants nothing, and others get its share.
            let tenant = registry.get(*number).filter(|tenant| !tenant.share.suspended);
            self.view.tenants.extend(tenant.map(|tenant| usage.view(*number, tenant)));
        }
        self.sharing.update(Time::from_nanos(now_ns), &self.view, &mut self.actions);
        if let Some(record) = &mut self.record
            && let Some(noted) = self.sharing.take_journal()
            && !record.write(noted)
        {
            self.sharing.stop_journal();
            self.record = None;
        }
        for action in self.actions.drain(..) {
            if let Some(usage) = self.usages.get_mut(&tenant_of(action).0) {
                usage.apply(action);
            }
        }
        self.write(now_ns, registry);
    }

    fn read(&mut self, interval: Interval, registry: &TenantRegistry) {
        for usage in self.usages.values_mut() {
            usage.begin();
        }
        let memory = self.gpu.memory_bytes;
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let page = slot.read();
            let Some(occupant) = &mut slot.occupant else { continue };
            let usage = self.usages.entry(occupant.tenant).or_insert_with(TenantUsage::new);
            let share = registry.get(occupant.tenant).map(|tenant| &tenant.share);
            let temporal =
                share.is_some_and(|share| share.class == Class::BestEffort && share.mode != SharingMode::Spatial);
            usage.read(index as u32, page.as_ref(), &mut occupant.seen, interval, memory, temporal);
        }
        self.usages.retain(|_, usage| usage.processes > 0);
        let is_best_effort =
            |tenant: &u32| registry.get(*tenant).is_some_and(|tenant| tenant.share.class == Class::BestEffort);
        let on_gpu = self.usages.iter().filter(|(_, usage)| usage.was_on_gpu());
        let (all, best_effort) = on_gpu.fold((0, 0), |(all, best_effort), (tenant, _)| {
            (all + 1, best_effort + usize::from(is_best_effort(tenant)))
        });
        for (tenant, usage) in &mut self.usages {
            let own = usize::from(usage.was_on_gpu());
            let own_best_effort = own * usize::from(is_best_effort(tenant));
            usage.end(interval, Colocated { anybody: all > own, best_effort: best_effort > own_best_effort });
        }
    }

    fn write(&mut self, now_ns: u64, registry: &TenantRegistry) {
        let ranks: Vec<Option<(u32, (Class, u8))>> = self
            .slots
            .iter()
            .map(|slot| {
                let tenant = slot.occupant.as_ref()?.tenant;
                let share = &registry.get(tenant)?.share;
                Some((tenant, (share.class, share.priority)))
            })
            .collect();
        for (index, slot) in self.slots.iter().enumerate() {
            let (Some(occupant), Some((tenant, rank))) = (&slot.occupant, ranks[index]) else { continue };
            let (Some(usage), Some(known)) = (self.usages.get(&tenant), registry.get(tenant)) else { continue };
            let slots_where = |test: &dyn Fn(u32, (Class, u8)) -> bool| {
                let others = ranks.iter().enumerate().filter(|(other, _)| *other != index);
                others
                    .filter_map(|(other, rank)| Some((other, (*rank)?)))
                    .fold(0, |mask, (other, (tenant, rank))| if test(tenant, rank) { mask | 1 << other } else { mask })
            };
            let share = &known.share;
            // Only best-effort launches yield. Other classes are bound by their allowance alone.
            let yields = share.class == Class::BestEffort;
            let above = if yields { slots_where(&|other, its| other != tenant && its < rank) } else { 0 };
            let words = ControlWords {
                class: class_word(share.class),
                priority: share.priority.into(),
                mode: if share.mode == SharingMode::Spatial {
                    shm::SharingMode::Spatial
                } else {
                    shm::SharingMode::Temporal
                },
                above,
                siblings: slots_where(&|other, _| other == tenant),
                others: slots_where(&|_, _| true),
                allowed_ns: if share.suspended { occupant.seen.charged_ns } else { usage.allowed_for(&occupant.seen) },
                budget_ns: usage.budget.nanos(),
                held: usage.held,
                reserved: usage.reserved,
                memory_limit: share.memory.map_or(shm::NO_LIMIT, |bytes| bytes.0.min(usage.memory_limit)),
                memory_total: share.memory.map_or(0, |bytes| bytes.0),
                slice_us: usage.slice.map_or(0, |slice| (slice.nanos() / 1_000) as u32),
                admission: match usage.admission {
                    Admission::Concurrent => shm::Admission::Concurrent,
                    Admission::GapFill => shm::Admission::GapFill,
                    Admission::ShortOnly => shm::Admission::ShortOnly,
                    Admission::Exclusive => shm::Admission::Exclusive,
                },
                space_always: share.sms.permille() < WHOLE,
                space: match share.sms.permille().min(usage.sm_cap) {
                    WHOLE => 0,
                    some => some,
                },
                request: share.request.permille(),
                limit: share.limit.permille(),
            };
            words.write(&slot.control, occupant.seen.waiting);
            slot.control.heartbeat_ns.store(now_ns, Ordering::Relaxed);
        }
    }

    /// The status of the GPU and of every tenant on it.
    pub(crate) fn status(&self, now_ns: u64, registry: &TenantRegistry) -> GpuStatus {
        let tenants = self.usages.iter().filter_map(|(number, usage)| {
            let (used_permille, waiting_permille, launches_per_second) = usage.rates(now_ns);
            let occupants = self.slots.iter().filter_map(|slot| slot.occupant.as_ref());
            let processes =
                occupants.filter(|occupant| occupant.tenant == *number).map(|occupant| occupant.process.pid);
            let tenant = registry.get(*number)?;
            Some(TenantStatus {
                name: tenant.name.clone(),
                user: tenant.user,
                processes: processes.collect(),
                share: tenant.share.clone(),
                placed: tenant.placed.clone(),
                boost_permille: tenant.boost,
                given_permille: self.sharing.sharing().share_of(TenantId(*number)).unwrap_or(0),
                used_permille,
                memory_bytes: usage.used_bytes,
                refused: usage.refused,
                launches_per_second,
                waiting_permille,
                charged_ns: usage.charged_ns,
                launches: usage.launches,
                hooks: usage.hooks,
                channel_groups: usage.channel_groups,
                slice_us: usage.slice.map_or(0, |slice| (slice.nanos() / 1_000) as u32),
                space_permille: usage.sm_cap,
                confined: usage.confined,
                preemptions: usage.preemptions,
                channels: usage.channels,
                held: usage.held,
                takes_permille: self
                    .sharing
                    .sharing()
                    .slowdown(TenantId(*number))
                    .map_or(0, |takes| takes.min(1_000_000) as u32),
                note: self.note(now_ns, *number, usage, registry),
            })
        });
        GpuStatus {
            index: self.gpu.index,
            uuid: self.gpu.uuid.to_string(),
            name: self.gpu.name.clone(),
            memory_bytes: self.gpu.memory_bytes,
            tenants: tenants.collect(),
        }
    }

    /// How a tenant is throttled at the moment and why, in a few words.
    fn note(&self, now_ns: u64, number: u32, usage: &TenantUsage, registry: &TenantRegistry) -> String {
        if let Some(whom) = registry.get(number).and_then(|tenant| tenant.wanted_by(now_ns)) {
            return format!("must leave for {whom}");
        }
        if registry.get(number).is_some_and(|tenant| tenant.share.suspended) {
            return "suspended".to_owned();
        }
        let best_effort = registry.get(number).is_some_and(|tenant| tenant.share.class == Class::BestEffort);
        let Some((slowed, ratio)) = self.sharing.sharing().most_slowed().filter(|_| best_effort) else {
            return String::new();
        };
        let name = registry.get(slowed.0).map_or("a latency program", |tenant| &tenant.name);
        let what = match (usage.held, usage.sm_cap, usage.slice) {
            (true, ..) => "throttled".to_owned(),
            (_, space, _) if space < WHOLE => format!("on {}% of the SMs", space / 10),
            _ if usage.admission == Admission::Exclusive => "preempted in busy periods".to_owned(),
            (.., Some(slice)) => format!("in time slices of {slice}"),
            _ => "admitted launch by launch".to_owned(),
        };
        match ratio {
            // Alone its bursts took next to no time, so the exact ratio means nothing.
            100_000.. => format!("{what}: {name} takes more than 100 times as long as alone"),
            _ => format!("{what}: {name} takes {}.{:02} times as long as alone", ratio / 1_000, ratio % 1_000 / 10),
        }
    }

    /// How long bursts of such a command wait for the GPU when alone: of one that runs here, or of earlier runs.
    pub(crate) fn wait_permille(&self, command: u64, user: u32, running: &[u32]) -> Option<u64> {
        let here = running.iter().filter_map(|tenant| self.usages.get(tenant)?.wait_permille()).next();
        here.or_else(|| self.learned.read(&self.learned.command(command, user, &self.gpu.name)).wait_permille)
    }

    /// Memory that a tenant's processes use here.
    pub(crate) fn used_bytes(&self, tenant: u32) -> u64 {
        self.usages.get(&tenant).map_or(0, |usage| usage.used_bytes)
    }

    /// Whether a tenant has a process here.
    pub(crate) fn has(&self, tenant: u32) -> bool {
        self.slots.iter().any(|slot| slot.occupant.as_ref().is_some_and(|occupant| occupant.tenant == tenant))
    }

    #[cfg(test)]
    pub(crate) fn slot(&self, index: u32) -> &Slot {
        &self.slots[index as usize]
    }
}

/// The words of a control page.
struct ControlWords {
    class: u32,
    priority: u32,
    mode: shm::SharingMode,
    above: u64,
    siblings: u64,
    others: u64,
    allowed_ns: u64,
    budget_ns: u64,
    held: bool,
    reserved: (u64, u64),
    memory_limit: u64,
    memory_total: u64,
    slice_us: u32,
    admission: shm::Admission,
    space: u32,
    space_always: bool,
    request: u32,
    limit: u32,
}

impl ControlWords {
    /// Writes the words that changed, and wakes a process that waits for one of them.
    fn write(&self, page: &ControlPage, waiting: bool) {
        let word = |field: &AtomicU64, value: u64| {
            let before = field.load(Ordering::Relaxed);
            if before != value {
                field.store(value, Ordering::Relaxed);
            }
            before
        };
        let half = |field: &AtomicU32, value: u32| {
            if field.load(Ordering::Relaxed) != value {
                field.store(value, Ordering::Relaxed);
            }
        };
        half(&page.class, self.class);
        half(&page.priority, self.priority);
        half(&page.mode, self.mode as u32);
        half(&page.request_permille, self.request);
        half(&page.limit_permille, self.limit);
        half(&page.space_permille, self.space);
        half(&page.admission, self.admission as u32);
        half(&page.space_always, self.space_always.into());
        let slice = page.slice_us.swap(self.slice_us, Ordering::Relaxed);
        let above = word(&page.above, self.above);
        word(&page.siblings, self.siblings);
        word(&page.others, self.others);
        word(&page.budget_ns, self.budget_ns);
        word(&page.reserved_from_ns, self.reserved.0);
        word(&page.reserved_until_ns, self.reserved.1);
        let total = word(&page.memory_total, self.memory_total);
        let limit = word(&page.memory_limit, self.memory_limit);
        if limit != self.memory_limit || total != self.memory_total || slice != self.slice_us {
            page.revision.fetch_add(1, Ordering::Release);
        }
        let allowed = word(&page.allowed_ns, self.allowed_ns);
        let held = page.gate.load(Ordering::Relaxed) & shm::GATE_HELD != 0;
        let given = self.allowed_ns > allowed || above & !self.above != 0;
        if held != self.held || waiting && given {
            page.set_gate(self.held);
        }
    }
}

fn class_word(class: Class) -> u32 {
    match class {
        Class::Latency => shm::Class::Latency as u32,
        Class::Standard => shm::Class::Standard as u32,
        Class::BestEffort => shm::Class::BestEffort as u32,
    }
}

fn tenant_of(action: Action) -> TenantId {
    match action {
        Action::SetAllowance { tenant, .. }
        | Action::SetGate { tenant, .. }
        | Action::SetBudget { tenant, .. }
        | Action::SetAdmission { tenant, .. }
        | Action::SetSlice { tenant, .. }
        | Action::SetSmCap { tenant, .. }
        | Action::Reserve { tenant, .. }
        | Action::SetMemoryLimit { tenant, .. } => tenant,
    }
}

#[cfg(test)]
mod tests;
