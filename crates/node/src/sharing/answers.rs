//! What commands ask, answered: tenants that come, shares that change, how everybody is.

use super::daemon::Running;
use super::gpus::Gpu;
use super::ledger::{Tenant, Token};
use super::mps::Mps;
use super::pidfd::Watched;
use super::reserved::Reserved;
use super::room::{Found, NoRoom};
use super::wire::{Answer, Change, Question, Register, Registered, Space, Status, StatusAsked, Stretch, TenantStatus};
use policy::GpuId;
use policy::sharing::{Class, Controller};
use rpc::{Percent, Share, Way};
use shm::{MAX_MESSAGE, Name, now_ns};

/// What is left of a packet for GPUs in one answer: the rest is for tenants that use none.
const STATUS_BYTES: usize = MAX_MESSAGE / 2;
/// How long it counts that somebody was asked to leave, and that somebody looks after it who would end it: both are said
/// again before that.
const WANTED_NS: u64 = 5_000_000_000;
/// Bytes of a name that a number may be added to.
const NAME_BYTES: usize = 56;

/// Answers a question in JSON, whatever it is.
pub(super) fn answer(daemon: &mut Running, token: Token, text: &str) -> Answer {
    let answered = match serde_json::from_str(text) {
        Ok(Question::Register(register)) => daemon.register(token, register),
        Ok(Question::Set(change)) => daemon.set(token, change).map(Answer::Set),
        Ok(Question::Stretch(stretch)) => daemon.stretch(token, &stretch).map(Answer::Stretched),
        Ok(Question::Sharing(rule)) => daemon.set_rule(token, &rule).map(Answer::Sharing),
        Ok(Question::Wanted(name)) => daemon.wanted(token, &name).map(Answer::Wanted),
        Ok(Question::Status(asked)) => Ok(Answer::Status(daemon.status(&asked))),
        Err(error) => Err(format!("the question makes no sense: {error}")),
    };
    answered.unwrap_or_else(Answer::Error)
}

/// An answer as text that fits a packet.
pub(super) fn write(answer: &Answer) -> String {
    let text = serde_json::to_string(answer).unwrap_or_default();
    match text.len() {
        0 => r#"{"error":"the answer could not be written"}"#.into(),
        length if length > MAX_MESSAGE - 64 => r#"{"error":"the answer does not fit a packet"}"#.into(),
        _ => text,
    }
}

impl Running {
    fn register(&mut self, token: Token, register: Register) -> Result<Answer, String> {
        let visitor = self.visitors.get(&token).ok_or("nobody is there")?;
        let peer = visitor.peer;
        if visitor.registered {
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
            self.ledger.free_name(short)
        } else {
            register.name
        };
        if Name::new(&name).is_none() {
            return Err(format!(
                "`{}` is not a name: 1 to 64 bytes without control characters are",
                name.escape_debug()
            ));
        }
        let found = match self.find_room(&name, &share) {
            Ok(found) if !found.leaving.is_empty() => return Ok(self.make_room(name, share, found)),
            Ok(found) if !(register.wait && found.crowded) => found,
            Ok(found) => return Ok(Answer::Later(format!("its memory is not free: {}", found.why))),
            Err(NoRoom::Never(reason)) => return Err(reason),
            Err(NoRoom::Now(reason)) if register.wait => return Ok(Answer::Later(reason)),
            Err(NoRoom::Now(reason)) => return Err(reason),
        };
        let space = self.space(&share, peer.uid, register.command, &found.on)?;
        let way = if space.is_some() { Way::Space } else { Way::Time };
        let share = Share { gpu: found.gpu.clone(), gpus: 1, way, ..share };
        let leader = register.process.then(|| Watched::new(peer.pid)).flatten();
        let (command, placed) = (register.command, if found.chosen { found.why } else { String::new() });
        let leaves = register.leaves && share.class == Class::BestEffort;
        let leaves_until_ns = leaves.then(|| now_ns() + WANTED_NS);
        let tenant = Tenant { leader, command, placed, leaves_until_ns, ..Tenant::new(name.clone(), peer.uid, share) };
        let number = self.ledger.add(tenant)?;
        if let Some(tenant) = self.ledger.get_mut(number) {
            tenant.registered.insert(token);
        }
        if let Some(visitor) = self.visitors.get_mut(&token) {
            visitor.registered = true;
        }
        self.reserved.retain(|reserved| reserved.name != name);
        self.write_now = true;
        tracing::info!(tenant = name, user = peer.uid, pid = peer.pid, "registered");
        Ok(Answer::Registered(Registered { name, gpu: found.visible, space }))
    }

    /// Some are to make room for somebody, who comes again. Whoever looks after them will ask.
    fn make_room(&mut self, name: String, share: Share, found: Found) -> Answer {
        let until_ns = now_ns() + WANTED_NS;
        for leaving in &found.leaving {
            if let Some(tenant) = self.ledger.named(leaving).and_then(|number| self.ledger.get_mut(number)) {
                if tenant.wanted_by(now_ns()).is_none() {
                    tracing::info!(tenant = leaving, by = name, "is to make room");
                }
                tenant.wanted = Some((name.clone(), until_ns));
            }
        }
        self.reserved.retain(|reserved| reserved.name != name && reserved.until_ns > now_ns());
        self.reserved.push(Reserved { name, share, on: found.on, until_ns });
        Answer::Later(found.why)
    }

    /// Who a tenant is to make room for. Whoever asks would end it.
    fn wanted(&mut self, token: Token, name: &str) -> Result<Option<String>, String> {
        let user = self.visitors.get(&token).ok_or("nobody is there")?.peer.uid;
        let number = self.ledger.named_for(name, user)?;
        let tenant = self.ledger.get_mut(number).ok_or("it is gone")?;
        let now = now_ns();
        if let Some(until_ns) = &mut tenant.leaves_until_ns {
            *until_ns = now + WANTED_NS;
        }
        Ok(tenant.wanted_by(now).map(str::to_owned))
    }

    /// Whether a program shares in space, and where; an error where it must and cannot.
    ///
    /// Where it is not said, the policy decides, by what is known of the program and of those `on` the same GPUs. The
    /// server serves one user at a time.
    fn space(&self, share: &Share, user: u32, command: Option<u64>, on: &[GpuId]) -> Result<Option<Space>, String> {
        if share.way == Way::Time || share.way == Way::Auto && !self.suits_space(share.class, user, command, on) {
            return Ok(None);
        }
        let others = self.ledger.iter().filter(|(_, tenant)| tenant.share.way == Way::Space);
        let strangers = others.map(|(_, tenant)| tenant.user).any(|other| other != user);
        let ready = match self.mps.as_ref().map(Mps::ready) {
            Some(Ok(_)) if strangers => Err("programs of another user share in space".into()),
            Some(Ok(folders)) => Ok(folders),
            Some(Err(problem)) => Err(problem),
            None => Err("this daemon has no MPS server".into()),
        };
        match ready {
            Ok(folders) => {
                let [pipe, log] = [&folders.pipe, &folders.log].map(|path| path.display().to_string());
                Ok(Some(Space { pipe, log, last: share.class == Class::BestEffort }))
            }
            Err(problem) if share.way == Way::Space => Err(format!("it cannot share in space: {problem}")),
            Err(_) => Ok(None),
        }
    }

    fn suits_space(&self, class: Class, user: u32, command: Option<u64>, on: &[GpuId]) -> bool {
        let same = |tenant: &Tenant| tenant.user == user && tenant.command.is_some() && tenant.command == command;
        let running: Vec<u32> =
            self.ledger.iter().filter(|(_, tenant)| same(tenant)).map(|(number, _)| number).collect();
        let wait = command
            .and_then(|command| self.boards.iter().find_map(|board| board.wait_permille(command, user, &running)));
        // It may be on any where it chooses itself.
        let gpus = self.config.gpus.gpus.iter().filter(|gpu| on.is_empty() || on.contains(&GpuId(gpu.index)));
        let gpus: Vec<&Gpu> = gpus.collect();
        let meets = |number: u32, share: &Share| gpus.iter().any(|gpu| self.is_on(gpu, number, share));
        let in_turns = self.ledger.iter().any(|(number, Tenant { share, .. })| {
            share.class == Class::Latency && share.way != Way::Space && meets(number, share)
        });
        policy::sharing::suits_space(class, wait, in_turns)
    }

    fn set_rule(&mut self, token: Token, rule: &str) -> Result<String, String> {
        let user = self.visitors.get(&token).ok_or("nobody is there")?.peer.uid;
        if user != 0 && user != rustix::process::getuid().as_raw() {
            return Err("only whom the daemon belongs to, and root, may change its rule".into());
        }
        let controller: Controller = rule.parse()?;
        for board in &mut self.boards {
            board.set_controller(controller);
        }
        self.controller = controller;
        tracing::info!(%controller, user, "best-effort programs are let in by another controller");
        self.tick_now = true;
        Ok(controller.to_string())
    }

    /// Lets a tenant have what its load asks for, once everybody has what it was promised.
    fn stretch(&mut self, token: Token, stretch: &Stretch) -> Result<Percent, String> {
        let user = self.visitors.get(&token).ok_or("nobody is there")?.peer.uid;
        let number = self.ledger.named_for(&stretch.name, user)?;
        let tenant = self.ledger.get_mut(number).ok_or("it is gone")?;
        let to = stretch.to.clamp(tenant.share.request, tenant.share.limit);
        tenant.stretched = to.permille();
        (self.write_now, self.tick_now) = (true, true);
        Ok(to)
    }

    fn set(&mut self, token: Token, change: Change) -> Result<Share, String> {
        let user = self.visitors.get(&token).ok_or("nobody is there")?.peer.uid;
        let number = self.ledger.named_for(&change.name, user)?;
        if change.share.gpu.is_some() || change.share.gpus.is_some() {
            return Err("a program that runs cannot be moved to another GPU".into());
        }
        if change.share.way.is_some() {
            return Err("whether a program shares in time or in space is decided when it starts".into());
        }
        let tenant = self.ledger.get(number).ok_or("it is gone")?;
        let share = tenant.share.with(&change.share)?;
        self.check(number, &share)?;
        if let Some(tenant) = self.ledger.get_mut(number) {
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
        for (index, board) in self.boards.iter().enumerate().skip(asked.from) {
            let gpu = board.status(now, &self.ledger);
            bytes += serde_json::to_string(&gpu).map_or(0, |text| text.len());
            if bytes > STATUS_BYTES && !status.gpus.is_empty() {
                status.next = Some(index);
                break;
            }
            status.gpus.push(gpu);
        }
        let idle = self.ledger.iter().filter(|(number, _)| !self.boards.iter().any(|board| board.has(*number)));
        let idle = idle.map(|(_, tenant)| TenantStatus {
            name: tenant.name.clone(),
            user: tenant.user,
            share: tenant.share.clone(),
            placed: tenant.placed.clone(),
            stretched_permille: tenant.stretched,
            ..TenantStatus::default()
        });
        // Those that do nothing are named as far as there is room.
        let mut room = MAX_MESSAGE.saturating_sub(bytes + 4_096);
        status.idle = idle
            .take_while(|tenant| {
                let length = serde_json::to_string(tenant).map_or(0, |text| text.len() + 1);
                let fits = length <= room;
                room = room.saturating_sub(length);
                fits
            })
            .collect();
        status
    }
}
