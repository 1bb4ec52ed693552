//! One GPU: its slots, who is in them, and what the policy makes of it.
//!
//! A tick reads every page, adds them up by tenant, lets `policy::sharing` look, and writes every control page. What
//! processes say of themselves moves their own tenant's numbers only; who is more important than whom is taken from the
//! ledger.

use super::account::{Account, Company, Interval};
use super::gpus::Gpu;
use super::learned::{Knowledge, Learned};
use super::ledger::{Ledger, Token};
use super::pidfd::Watched;
use super::record::Record;
use super::slot::{Notes, Occupant, Seen, Slot};
use super::wire::{GpuStatus, TenantStatus};
use policy::sharing::journal::Recorder;
use policy::sharing::{Action, Admission, Class, Controller, GpuView, SharingConfig, WHOLE};
use policy::{TenantId, Time};
use rpc::Way;
use shm::{ControlPage, SLOTS};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A gap between ticks is never taken to be longer: the machine slept.
const INTERVAL_MOST_NS: u64 = 1_000_000_000;

/// One GPU.
pub(super) struct Board {
    pub(super) gpu: Gpu,
    /// Made when the first process comes.
    slots: Vec<Slot>,
    /// Slots in the order in which they were left, so that the one that was left last is taken last.
    order: VecDeque<usize>,
    accounts: BTreeMap<u32, Account>,
    learned: Learned,
    sharing: Recorder,
    record: Option<Record>,
    view: GpuView,
    actions: Vec<Action>,
    ticked_ns: u64,
}

/// A process that comes.
pub(super) struct Attaching {
    pub(super) tenant: u32,
    pub(super) token: Token,
    pub(super) process: Watched,
    pub(super) user: u32,
    /// A hash of what its tenant runs.
    pub(super) command: Option<u64>,
    /// What it was charged before, where it was attached before.
    pub(super) charged_ns: u64,
}

/// Where a process was put.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) slot: u32,
    pub(super) generation: u64,
}

impl Board {
    pub(super) fn new(gpu: Gpu, learned: Learned, sharing: &SharingConfig, record: Option<Record>) -> Board {
        let view = GpuView { memory_total: gpu.memory_bytes, ..GpuView::default() };
        Board {
            gpu,
            slots: Vec::new(),
            order: VecDeque::new(),
            accounts: BTreeMap::new(),
            learned,
            sharing: Recorder::new(Controller::default(), sharing, record.is_some()),
            record,
            view,
            actions: Vec::new(),
            ticked_ns: 0,
        }
    }

    /// Best-effort programs are let in by this controller from now on.
    pub(super) fn set_controller(&mut self, controller: Controller) {
        self.sharing.set_controller(controller);
    }

    /// Whether any process is here.
    pub(super) fn is_idle(&self) -> bool {
        self.slots.iter().all(|slot| slot.occupant.is_none())
    }

    /// Finds a slot for a process. One that is here already by another connection moves.
    pub(super) fn attach(&mut self, attaching: Attaching, now_ns: u64) -> Result<Place, String> {
        if self.slots.is_empty() {
            let slots = (0..SLOTS).map(|_| Slot::new()).collect::<std::io::Result<Vec<Slot>>>();
            self.slots = slots.map_err(|error| format!("no memory for pages could be had: {error}"))?;
            self.order = (0..SLOTS).collect();
        }
        let pid = attaching.process.pid;
        let is_here = |slot: &Slot| slot.occupant.as_ref().is_some_and(|occupant| occupant.process.pid == pid);
        if let Some(index) = self.slots.iter().position(is_here) {
            self.leave(index);
        }
        let free = |slot: &&usize| self.slots[**slot].is_free_for(pid);
        // One that nobody had is better than one whose last process must be looked at.
        let found = self.order.iter().find(|slot| self.slots[**slot].is_new()).or_else(|| self.order.iter().find(free));
        let index = *found.ok_or_else(|| format!("{SLOTS} processes use GPU {} already", self.gpu.index))?;
        let Attaching { tenant, token, process, user, command, charged_ns } = attaching;
        let notes = Notes::new().map_err(|error| format!("no memory for pages could be had: {error}"))?;
        let program = self.learned.program(process.pid, user, &self.gpu.name);
        let command = command.map(|command| self.learned.command(command, user, &self.gpu.name));
        if let Some(program) = &program {
            let known = self.learned.read(program);
            known.notes().for_each(|note| notes.page.put(note));
            self.accounts.entry(tenant).or_insert_with(Account::new).recall(known.wait_permille);
        }
        let seen = Seen { charged_ns, active_ns: now_ns, ..Seen::default() };
        let occupant = Occupant { tenant, token, process, program, command, notes, seen };
        let generation = self.slots[index].occupy(occupant, now_ns);
        Ok(Place { slot: index as u32, generation })
    }

    /// The files for the process in a slot.
    pub(super) fn files(&self, slot: u32) -> Vec<BorrowedFd<'_>> {
        let own = self.slots[slot as usize].own_files();
        own.chain(self.slots.iter().map(Slot::file)).collect()
    }

    /// A connection is gone, and its process with it.
    pub(super) fn release(&mut self, token: Token) {
        let of_it = |slot: &Slot| slot.occupant.as_ref().is_some_and(|occupant| occupant.token == token);
        while let Some(index) = self.slots.iter().position(of_it) {
            self.leave(index);
        }
    }

    /// Keeps what is known of every program that is here.
    pub(super) fn keep_learned(&self) {
        self.slots.iter().filter_map(|slot| slot.occupant.as_ref()).for_each(|occupant| self.keep(occupant));
    }

    fn keep(&self, occupant: &Occupant) {
        let wait = self.accounts.get(&occupant.tenant).and_then(Account::wait_permille);
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
        // A GPU that nobody is left on is not looked at again before somebody comes.
        let slots = &self.slots;
        let is_here =
            |tenant: u32| slots.iter().filter_map(|slot| slot.occupant.as_ref()).any(|its| its.tenant == tenant);
        self.accounts.retain(|tenant, _| is_here(*tenant));
    }

    /// Looks at everybody and says to everybody what goes.
    pub(super) fn tick(&mut self, now_ns: u64, ledger: &Ledger) {
        let from_ns = self.ticked_ns.max(now_ns.saturating_sub(INTERVAL_MOST_NS)).min(now_ns);
        self.ticked_ns = now_ns;
        self.read(Interval { from_ns, to_ns: now_ns }, ledger);
        self.view.tenants.clear();
        for (number, account) in &self.accounts {
            // Who is suspended wants nothing, and others have its share.
            let tenant = ledger.get(*number).filter(|tenant| !tenant.share.suspended);
            self.view.tenants.extend(tenant.map(|tenant| account.view(*number, tenant)));
        }
        self.sharing.look(Time::from_nanos(now_ns), &self.view, &mut self.actions);
        if let Some(record) = &mut self.record
            && let Some(noted) = self.sharing.take_journal()
            && !record.write(noted)
        {
            self.sharing.stop_journal();
            self.record = None;
        }
        for action in self.actions.drain(..) {
            if let Some(account) = self.accounts.get_mut(&tenant_of(action).0) {
                account.apply(action);
            }
        }
        self.write(now_ns, ledger);
    }

    fn read(&mut self, interval: Interval, ledger: &Ledger) {
        for account in self.accounts.values_mut() {
            account.begin();
        }
        let memory = self.gpu.memory_bytes;
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let page = slot.read();
            let Some(occupant) = &mut slot.occupant else { continue };
            let account = self.accounts.entry(occupant.tenant).or_insert_with(Account::new);
            let share = ledger.get(occupant.tenant).map(|tenant| &tenant.share);
            let in_turns = share.is_some_and(|share| share.class == Class::BestEffort && share.way != Way::Space);
            account.read(index as u32, page.as_ref(), &mut occupant.seen, interval, memory, in_turns);
        }
        self.accounts.retain(|_, account| account.processes > 0);
        let is_best_effort =
            |tenant: &u32| ledger.get(*tenant).is_some_and(|tenant| tenant.share.class == Class::BestEffort);
        let on_gpu = self.accounts.iter().filter(|(_, account)| account.was_on_gpu());
        let (all, best_effort) = on_gpu.fold((0, 0), |(all, best_effort), (tenant, _)| {
            (all + 1, best_effort + usize::from(is_best_effort(tenant)))
        });
        for (tenant, account) in &mut self.accounts {
            let own = usize::from(account.was_on_gpu());
            let own_best_effort = own * usize::from(is_best_effort(tenant));
            account.end(interval, Company { anybody: all > own, best_effort: best_effort > own_best_effort });
        }
    }

    fn write(&mut self, now_ns: u64, ledger: &Ledger) {
        let ranks: Vec<Option<(u32, (Class, u8))>> = self
            .slots
            .iter()
            .map(|slot| {
                let tenant = slot.occupant.as_ref()?.tenant;
                let share = &ledger.get(tenant)?.share;
                Some((tenant, (share.class, share.priority)))
            })
            .collect();
        for (index, slot) in self.slots.iter().enumerate() {
            let (Some(occupant), Some((tenant, rank))) = (&slot.occupant, ranks[index]) else { continue };
            let (Some(account), Some(known)) = (self.accounts.get(&tenant), ledger.get(tenant)) else { continue };
            let slots_where = |test: &dyn Fn(u32, (Class, u8)) -> bool| {
                let others = ranks.iter().enumerate().filter(|(other, _)| *other != index);
                others
                    .filter_map(|(other, rank)| Some((other, (*rank)?)))
                    .fold(0, |mask, (other, (tenant, rank))| if test(tenant, rank) { mask | 1 << other } else { mask })
            };
            let share = &known.share;
            // Only best-effort launches yield to others; everybody else is bound by its allowance alone.
            let yields = share.class == Class::BestEffort;
            let above = if yields { slots_where(&|other, its| other != tenant && its < rank) } else { 0 };
            let told = Told {
                class: class_word(share.class),
                priority: share.priority.into(),
                mode: if share.way == Way::Space { shm::Mode::Space } else { shm::Mode::Time },
                above,
                siblings: slots_where(&|other, _| other == tenant),
                others: slots_where(&|_, _| true),
                allowed_ns: if share.suspended {
                    occupant.seen.charged_ns
                } else {
                    account.allowed_for(&occupant.seen)
                },
                budget_ns: account.budget.nanos(),
                held: account.held,
                reserved: account.reserved,
                memory_limit: share.memory.map_or(shm::NO_LIMIT, |bytes| bytes.0.min(account.memory_limit)),
                memory_total: share.memory.map_or(0, |bytes| bytes.0),
                slice_us: account.slice.map_or(0, |slice| (slice.nanos() / 1_000) as u32),
                admission: match account.admission {
                    Admission::Concurrent => shm::Admission::Concurrent,
                    Admission::GapFill => shm::Admission::GapFill,
                    Admission::ShortOnly => shm::Admission::ShortOnly,
                    Admission::Exclusive => shm::Admission::Exclusive,
                },
                space_always: share.sms.permille() < WHOLE,
                space: match share.sms.permille().min(account.space) {
                    WHOLE => 0,
                    some => some,
                },
                request: share.request.permille(),
                limit: share.limit.permille(),
            };
            told.write(&slot.control, occupant.seen.waiting);
            slot.control.heartbeat_ns.store(now_ns, Ordering::Relaxed);
        }
    }

    /// How everybody here is.
    pub(super) fn status(&self, now_ns: u64, ledger: &Ledger) -> GpuStatus {
        let tenants = self.accounts.iter().filter_map(|(number, account)| {
            let (used_permille, waiting_permille, launches_per_second) = account.rates(now_ns);
            let occupants = self.slots.iter().filter_map(|slot| slot.occupant.as_ref());
            let processes =
                occupants.filter(|occupant| occupant.tenant == *number).map(|occupant| occupant.process.pid);
            let tenant = ledger.get(*number)?;
            Some(TenantStatus {
                name: tenant.name.clone(),
                user: tenant.user,
                processes: processes.collect(),
                share: tenant.share.clone(),
                placed: tenant.placed.clone(),
                stretched_permille: tenant.stretched,
                given_permille: self.sharing.sharing().share_of(TenantId(*number)).unwrap_or(0),
                used_permille,
                memory_bytes: account.used_bytes,
                refused: account.refused,
                launches_per_second,
                waiting_permille,
                charged_ns: account.charged_ns,
                launches: account.launches,
                hooks: account.hooks,
                channel_groups: account.channel_groups,
                slice_us: account.slice.map_or(0, |slice| (slice.nanos() / 1_000) as u32),
                space_permille: account.space,
                confined: account.confined,
                preemptions: account.preemptions,
                channels: account.channels,
                held: account.held,
                takes_permille: self
                    .sharing
                    .sharing()
                    .slowdown(TenantId(*number))
                    .map_or(0, |takes| takes.min(1_000_000) as u32),
                note: self.note(now_ns, *number, account, ledger),
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

    /// What is done about a tenant at the moment, and why, in a few words.
    fn note(&self, now_ns: u64, number: u32, account: &Account, ledger: &Ledger) -> String {
        if let Some(whom) = ledger.get(number).and_then(|tenant| tenant.wanted_by(now_ns)) {
            return format!("makes room for {whom}");
        }
        if ledger.get(number).is_some_and(|tenant| tenant.share.suspended) {
            return "suspended".to_owned();
        }
        let best_effort = ledger.get(number).is_some_and(|tenant| tenant.share.class == Class::BestEffort);
        let Some((beside, ratio)) = self.sharing.sharing().most_slowed().filter(|_| best_effort) else {
            return String::new();
        };
        let name = ledger.get(beside.0).map_or("a latency program", |tenant| &tenant.name);
        let what = match (account.held, account.space, account.slice) {
            (true, ..) => "held".to_owned(),
            (_, space, _) if space < WHOLE => format!("on {}% of the SMs", space / 10),
            _ if account.admission == Admission::Exclusive => "preempted in bursts".to_owned(),
            (.., Some(slice)) => format!("in slices of {slice}"),
            _ => "through the gate".to_owned(),
        };
        match ratio {
            // Alone its bursts were next to nothing, so by how much says nothing.
            100_000.. => format!("{what}: {name} takes more than 100 times what it takes alone"),
            _ => format!("{what}: {name} takes {}.{:02} of what it takes alone", ratio / 1_000, ratio % 1_000 / 10),
        }
    }

    /// How long bursts of such a command wait for the GPU alone: of one that runs here, or of earlier ones.
    pub(super) fn wait_permille(&self, command: u64, user: u32, running: &[u32]) -> Option<u64> {
        let here = running.iter().filter_map(|tenant| self.accounts.get(tenant)?.wait_permille()).next();
        here.or_else(|| self.learned.read(&self.learned.command(command, user, &self.gpu.name)).wait_permille)
    }

    /// Memory that a tenant's processes have here.
    pub(super) fn used_bytes(&self, tenant: u32) -> u64 {
        self.accounts.get(&tenant).map_or(0, |account| account.used_bytes)
    }

    /// Whether a tenant has a process here.
    pub(super) fn has(&self, tenant: u32) -> bool {
        self.slots.iter().any(|slot| slot.occupant.as_ref().is_some_and(|occupant| occupant.tenant == tenant))
    }

    #[cfg(test)]
    pub(super) fn slot(&self, index: u32) -> &Slot {
        &self.slots[index as usize]
    }
}

/// What a control page is to say.
struct Told {
    class: u32,
    priority: u32,
    mode: shm::Mode,
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

impl Told {
    /// Writes what differs, and wakes the process where it waits for what it was given.
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
        | Action::SetSpace { tenant, .. }
        | Action::Reserve { tenant, .. }
        | Action::SetMemoryLimit { tenant, .. } => tenant,
    }
}

#[cfg(test)]
mod tests;
