//! Answers to commands: tenants that register, shares that change, the status.

use crate::mps::Mps;
use crate::pidfd::Watched;
use crate::placement::{NoPlacement, Placement};
use crate::registry::{TenantState, Token};
use crate::reservation::Reservation;
use crate::state::DaemonState;
use config::{Percent, Share, SharingMode};
use policy::GpuId;
use policy::sharing::{Class, Controller, Modes};
use share_client::{
    Answer, Boost, Change, Gpu, MpsServer, Question, Register, Registered, Status, StatusAsked, TenantStatus,
};
use shm::{MAX_MESSAGE, Name, now_ns};

/// The part of a packet for GPUs. The rest is for tenants that use none.
const STATUS_BYTES: usize = MAX_MESSAGE / 2;
/// How long a request to leave stands, and how long a tenant counts as supervised. Both are renewed before that.
const WANTED_NS: u64 = 5_000_000_000;
/// The longest name that a number may be added to, in bytes.
const NAME_BYTES: usize = 56;

/// Answers a question in JSON. Every text gets an answer.
pub(crate) fn answer(daemon: &mut DaemonState, token: Token, text: &str) -> Answer {
    let answered = match serde_json::from_str(text) {
        Ok(Question::Register(register)) => daemon.register(token, register),
        Ok(Question::Set(change)) => daemon.set(token, change).map(Answer::Set),
        Ok(Question::Boost(boost)) => daemon.boost(token, &boost).map(Answer::Boosted),
        Ok(Question::Sharing(name)) => daemon.set_controller(token, &name).map(Answer::Sharing),
        Ok(Question::Wanted(name)) => daemon.wanted(token, &name).map(Answer::Wanted),
        Ok(Question::Status(asked)) => Ok(Answer::Status(daemon.status(&asked))),
        Err(error) => Err(format!("the question could not be read: {error}")),
    };
    answered.unwrap_or_else(Answer::Error)
}

/// An answer as text that fits a packet.
pub(crate) fn write(answer: &Answer) -> String {
    let text = serde_json::to_string(answer).unwrap_or_default();
    match text.len() {
        0 => r#"{"error":"the answer could not be written"}"#.into(),
        length if length > MAX_MESSAGE - 64 => r#"{"error":"the answer does not fit a packet"}"#.into(),
        _ => text,
    }
}

impl DaemonState {
    fn register(&mut self, token: Token, register: Register) -> Result<Answer, String> {
        let client = self.clients.get(&token).ok_or("the client is gone")?;
        let peer = client.peer;
        if client.registered {
            return Err("this connection registered a tenant already".into());
        }
        if self.config.gpus.gpus.is_empty() {
            let problem = self.config.gpus.problem.as_deref().unwrap_or("this machine has no GPU");
            return Err(format!("there is no GPU to share: {problem}"));
        }
        let share = Share::try_from(register.share)?;
        let name = if register.rename {
            let end = register.name.char_indices().map(|(at, _)| at).take_while(|at| *at <= NAME_BYTES).last();
            let short =
                if register.name.len() <= NAME_BYTES { &register.name } else { &register.name[..end.unwrap_or(0)] };
            self.registry.free_name(short)
        } else {
            register.name
        };
        if Name::new(&name).is_none() {
            return Err(format!(
                "`{}` is not a name: 1 to 64 bytes without control characters are",
                name.escape_debug()
            ));
        }
        let found = match self.find_placement(&name, &share) {
            Ok(found) if !found.leaving.is_empty() => return Ok(self.reserve(name, share, found)),
            Ok(found) if !(register.wait && found.crowded) => found,
            Ok(found) => return Ok(Answer::Later(format!("its memory is not free: {}", found.why))),
            Err(NoPlacement::Never(reason)) => return Err(reason),
            Err(NoPlacement::Now(reason)) if register.wait => return Ok(Answer::Later(reason)),
            Err(NoPlacement::Now(reason)) => return Err(reason),
        };
        let space = self.mps_server(&share, peer.uid, register.command, &found.on)?;
        let mode = if space.is_some() { SharingMode::Spatial } else { SharingMode::Temporal };
        let share = Share { gpu: found.gpu.clone(), gpus: 1, mode, ..share };
        let leader = register.process.then(|| Watched::new(peer.pid)).flatten();
        let (command, placed) = (register.command, if found.chosen { found.why } else { String::new() });
        let leaves = register.leaves && share.class == Class::BestEffort;
        let leaves_until_ns = leaves.then(|| now_ns() + WANTED_NS);
        let tenant =
            TenantState { leader, command, placed, leaves_until_ns, ..TenantState::new(name.clone(), peer.uid, share) };
        let number = self.registry.add(tenant)?;
        if let Some(tenant) = self.registry.get_mut(number) {
            tenant.registered.insert(token);
        }
        if let Some(client) = self.clients.get_mut(&token) {
            client.registered = true;
        }
        self.reservations.retain(|reserved| reserved.name != name);
        self.write_now = true;
        tracing::info!(tenant = name, user = peer.uid, pid = peer.pid, "registered");
        Ok(Answer::Registered(Registered { name, gpu: found.visible, space }))
    }

    /// Asks tenants to leave and keeps their GPUs for this program, which will ask again. Their supervisors poll.
    fn reserve(&mut self, name: String, share: Share, found: Placement) -> Answer {
        let until_ns = now_ns() + WANTED_NS;
        for leaving in &found.leaving {
            if let Some(tenant) = self.registry.named(leaving).and_then(|number| self.registry.get_mut(number)) {
                if tenant.wanted_by(now_ns()).is_none() {
                    tracing::info!(tenant = leaving, by = name, "must leave for another program");
                }
                tenant.wanted = Some((name.clone(), until_ns));
            }
        }
        self.reservations.retain(|reserved| reserved.name != name && reserved.until_ns > now_ns());
        self.reservations.push(Reservation { name, share, on: found.on, until_ns });
        Answer::Later(found.why)
    }

    /// The program that a tenant must leave for. Only its supervisor asks, so asking proves that there is one.
    fn wanted(&mut self, token: Token, name: &str) -> Result<Option<String>, String> {
        let user = self.clients.get(&token).ok_or("the client is gone")?.peer.uid;
        let number = self.registry.named_for(name, user)?;
        let tenant = self.registry.get_mut(number).ok_or("it is gone")?;
        let now = now_ns();
        if let Some(until_ns) = &mut tenant.leaves_until_ns {
            *until_ns = now + WANTED_NS;
        }
        Ok(tenant.wanted_by(now).map(str::to_owned))
    }

    /// The MPS server of a program in spatial mode, `None` in temporal mode; an error when it asked for spatial mode and
    /// cannot have it.
    ///
    /// In mode `auto` the policy decides, from what is known of the program and of those `on` the same GPUs. An MPS
    /// server serves one user at a time.
    fn mps_server(
        &self,
        share: &Share,
        user: u32,
        command: Option<u64>,
        on: &[GpuId],
    ) -> Result<Option<MpsServer>, String> {
        if share.mode == SharingMode::Temporal
            || share.mode == SharingMode::Auto && !self.suits_spatial(share.class, user, command, on)
        {
            return Ok(None);
        }
        let others = self.registry.iter().filter(|(_, tenant)| tenant.share.mode == SharingMode::Spatial);
        let strangers = others.map(|(_, tenant)| tenant.user).any(|other| other != user);
        let ready = match self.mps.as_ref().map(Mps::ready) {
            Some(Ok(_)) if strangers => Err("programs of another user are in spatial mode".into()),
            Some(Ok(folders)) => Ok(folders),
            Some(Err(problem)) => Err(problem),
            None => Err("this daemon has no MPS server".into()),
        };
        match ready {
            Ok(folders) => {
                let [pipe, log] = [&folders.pipe, &folders.log].map(|path| path.display().to_string());
                Ok(Some(MpsServer { pipe, log, last: share.class == Class::BestEffort }))
            }
            Err(problem) if share.mode == SharingMode::Spatial => {
                Err(format!("spatial mode is not available: {problem}"))
            }
            Err(_) => Ok(None),
        }
    }

    fn suits_spatial(&self, class: Class, user: u32, command: Option<u64>, on: &[GpuId]) -> bool {
        let same = |tenant: &TenantState| tenant.user == user && tenant.command.is_some() && tenant.command == command;
        let running: Vec<u32> =
            self.registry.iter().filter(|(_, tenant)| same(tenant)).map(|(number, _)| number).collect();
        let wait = command.and_then(|command| {
            self.gpu_states.iter().find_map(|gpu_state| gpu_state.wait_permille(command, user, &running))
        });
        // A program that chooses its GPU itself may use any.
        let gpus = self.config.gpus.gpus.iter().filter(|gpu| on.is_empty() || on.contains(&GpuId(gpu.index)));
        let gpus: Vec<&Gpu> = gpus.collect();
        let meets = |number: u32, share: &Share| gpus.iter().any(|gpu| self.is_on(gpu, number, share));
        let other = if class == Class::Latency { Class::BestEffort } else { Class::Latency };
        let is_other =
            |(number, tenant): &(u32, &TenantState)| tenant.share.class == other && meets(*number, &tenant.share);
        let (spatial, temporal): (Vec<_>, Vec<_>) =
            self.registry.iter().filter(is_other).partition(|(_, tenant)| tenant.share.mode == SharingMode::Spatial);
        let others = Modes { spatial: !spatial.is_empty(), temporal: !temporal.is_empty() };
        policy::sharing::suits_spatial(class, wait, others)
    }

    fn set_controller(&mut self, token: Token, name: &str) -> Result<String, String> {
        let user = self.clients.get(&token).ok_or("the client is gone")?.peer.uid;
        if user != 0 && user != rustix::process::getuid().as_raw() {
            return Err("only root and the user who started the daemon may change its controller".into());
        }
        let controller: Controller = name.parse()?;
        for gpu_state in &mut self.gpu_states {
            gpu_state.set_controller(controller);
        }
        self.controller = controller;
        tracing::info!(%controller, user, "another controller throttles best-effort programs");
        self.tick_now = true;
        Ok(controller.to_string())
    }

    /// Gives a tenant what its load asks for, after every tenant has what it was promised.
    fn boost(&mut self, token: Token, boost: &Boost) -> Result<Percent, String> {
        let user = self.clients.get(&token).ok_or("the client is gone")?.peer.uid;
        let number = self.registry.named_for(&boost.name, user)?;
        let tenant = self.registry.get_mut(number).ok_or("it is gone")?;
        let to = boost.to.clamp(tenant.share.request, tenant.share.limit);
        tenant.boost = to.permille();
        (self.write_now, self.tick_now) = (true, true);
        Ok(to)
    }

    fn set(&mut self, token: Token, change: Change) -> Result<Share, String> {
        let user = self.clients.get(&token).ok_or("the client is gone")?.peer.uid;
        let number = self.registry.named_for(&change.name, user)?;
        if change.share.gpu.is_some() || change.share.gpus.is_some() {
            return Err("a running program cannot move to another GPU".into());
        }
        if change.share.mode.is_some() {
            return Err("the sharing mode cannot change while a program runs".into());
        }
        let tenant = self.registry.get(number).ok_or("it is gone")?;
        let share = tenant.share.with(&change.share)?;
        self.check(number, &share)?;
        if let Some(tenant) = self.registry.get_mut(number) {
            tenant.share = share.clone();
        }
        (self.write_now, self.tick_now) = (true, true);
        tracing::info!(tenant = change.name, user, "changed");
        Ok(share)
    }

    fn status(&self, asked: &StatusAsked) -> Status {
        let now = now_ns();
        let mut status = Status {
            pid: std::process::id(),
            driver: self.config.gpus.driver.clone(),
            problem: self.config.gpus.problem.clone(),
            no_space: self.mps.as_ref().and_then(|mps| mps.ready().err()),
            sharing: self.controller.to_string(),
            ..Status::default()
        };
        let mut bytes = 0;
        for (index, gpu_state) in self.gpu_states.iter().enumerate().skip(asked.from) {
            let gpu = gpu_state.status(now, &self.registry);
            bytes += serde_json::to_string(&gpu).map_or(0, |text| text.len());
            if bytes > STATUS_BYTES && !status.gpus.is_empty() {
                status.next = Some(index);
                break;
            }
            status.gpus.push(gpu);
        }
        let idle =
            self.registry.iter().filter(|(number, _)| !self.gpu_states.iter().any(|gpu_state| gpu_state.has(*number)));
        let idle = idle.map(|(_, tenant)| TenantStatus {
            name: tenant.name.clone(),
            user: tenant.user,
            share: tenant.share.clone(),
            placed: tenant.placed.clone(),
            boost_permille: tenant.boost,
            ..TenantStatus::default()
        });
        // Idle tenants are listed as far as they fit.
        let mut left = MAX_MESSAGE.saturating_sub(bytes + 4_096);
        status.idle = idle
            .take_while(|tenant| {
                let length = serde_json::to_string(tenant).map_or(0, |text| text.len() + 1);
                let fits = length <= left;
                left = left.saturating_sub(length);
                fits
            })
            .collect();
        status
    }
}
