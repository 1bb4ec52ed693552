//! The shares that a training program is worth running with.
//!
//! The program runs once, under a share that is changed while it runs. What it gets done is what it says itself where it
//! speaks as the programs of `bench/workloads` do, and otherwise the kernels and graphs that it launches in a second, as
//! the daemon counts them: training launches the same for each step, whatever a step is.

use crate::campaign::{Campaign, Figures, Meter, median};
use crate::served::stopped;
use crate::shares::{Gpu, SETTLE, Shares, Whose};
use crate::store::{Note, ProfileFile};
use crate::subject;
use anyhow::{Context, Result};
use config::profile::{Choice, Profile, Subject, Work};
use harness::{Interrupt, Misuse, Order, Program, now_ns};
use policy::Span;
use policy::search::{Probe, known};
use policy::surface::{Share, Surface};
use std::ffi::OsString;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a program may take until it uses the GPU.
const START_PATIENCE: Duration = Duration::from_secs(300);
/// How long it may take until it goes on evenly.
const WARM_PATIENCE: Duration = Duration::from_secs(60);
/// Two looks that differ by no more than this part are even.
const EVEN: f64 = 0.1;
/// A look counts at least so many launches, or lasts so many times as long.
const LAUNCHES_MIN: u64 = 20;
const LONGER: u32 = 8;
/// Looks at each share, of which the one in the middle counts.
const LOOKS: u32 = 3;
/// How long a program may take to end.
const END_PATIENCE: Duration = Duration::from_secs(5);
const GLANCE: Duration = Duration::from_millis(20);
/// How far ahead a program is told when to begin.
const LEAD: Duration = Duration::from_millis(300);

/// What to measure, and how.
pub struct TrainingRequest<'a> {
    /// What the program is called in messages.
    pub name: &'a str,
    /// The program and its arguments.
    pub words: &'a [OsString],
    /// The GPU that it runs on, as `weft run --gpu` takes it.
    pub gpu: Option<&'a str>,
    /// About how long each share is measured.
    pub probe: Duration,
}

/// Profiles a training program, or returns the profile in the file where it still holds. `note` gets what a person should
/// know meanwhile.
pub fn profile_training(request: &TrainingRequest<'_>, file: &ProfileFile, note: Note<'_>) -> Result<Profile> {
    let interrupt = Interrupt::listen()?;
    let digest = subject::program_digest(request.words);
    let mut running = Running::start(request, &interrupt)?;
    let outcome = measure(&mut running, digest, request, file, note);
    running.end();
    let (profile, measured) = outcome?;
    match measured {
        0 => file.note_measured_already(&profile, note),
        measured => note(&format!("{measured} measurements; written to {}", file.path().display())),
    }
    Ok(profile)
}

fn measure(
    running: &mut Running,
    model: String,
    request: &TrainingRequest<'_>,
    file: &ProfileFile,
    note: Note<'_>,
) -> Result<(Profile, usize)> {
    let Gpu { name, driver, others } = running.gpu.clone();
    let subject = Subject { model, gpu: name, driver };
    let before = file.about(&subject)?.filter(|before| before.work == running.work);
    if let Some(before) = before.filter(|before| before.choice.is_some()) {
        return Ok((before.clone(), 0));
    }
    if !others.is_empty() {
        note(&format!("{} use the GPU too: what they leave is measured", others.join(", ")));
    }
    running.probe = request.probe;
    let before = before.map_or(Vec::new(), |before| before.surface.points().to_vec());
    let (program, work) = (running.name.clone(), running.work);
    let mut campaign = Campaign::new(&before, running);
    let found = campaign.drive(known::training)?;
    let (points, measured) = (campaign.known.points(), campaign.measured);
    drop(campaign);
    let Some([request, limit]) = found else {
        let text = "it gets nothing done even with the whole GPU; see what it prints";
        return Err(Misuse(format!("profile {program}: {text}")).into());
    };
    let surface = Surface::new(&points).map_err(|error| Misuse(error.problem))?;
    let choice = Some(Choice { objective: None, batch: 1, request, limit });
    let profile = Profile { subject, measured: Some(subject::today()), work, surface, choice };
    file.write(&profile)?;
    Ok((profile, measured))
}

/// The program.
struct Running {
    name: String,
    /// `None` once it was ended.
    program: Option<Program>,
    shares: Shares,
    gpu: Gpu,
    work: Work,
    probe: Duration,
    interrupt: Interrupt,
    /// Shares that were measured.
    done: usize,
}

impl Running {
    /// Starts it under a share and waits until it works evenly, or says that it is ready.
    fn start(request: &TrainingRequest<'_>, interrupt: &Interrupt) -> Result<Running> {
        let name = request.name;
        let tenant = format!("{name}-profile-{}", std::process::id());
        let mut command = Command::new(std::env::current_exe().context("find this program")?);
        command.args(["run", "--name", &tenant]);
        command.args(request.gpu.iter().flat_map(|gpu| ["--gpu", gpu])).arg("--").args(request.words);
        let failed = |problem: String| Misuse(format!("profile {name}: {problem}"));
        let mut program = Program::start(name.to_owned(), command).map_err(failed)?;
        let whose = Whose::Tenant(tenant);
        let until = Instant::now() + START_PATIENCE;
        let mut work = Work::Launches;
        let (shares, gpu) = loop {
            if program.says_ready().map_err(failed)? {
                work = Work::Steps;
            }
            if interrupt.is_set() {
                return Err(stopped(name));
            }
            if let Ok(found) = Shares::find(whose.clone(), None)?
                && found.0.launches()? > 0
            {
                break found;
            }
            if Instant::now() > until {
                let text = format!("it used no GPU within {} s; is it a program for one?", START_PATIENCE.as_secs());
                return Err(failed(text).into());
            }
            std::thread::sleep(GLANCE);
        };
        let (name, interrupt, probe) = (name.to_owned(), interrupt.clone(), Duration::from_millis(500));
        let mut running = Running { name, program: Some(program), shares, gpu, work, probe, interrupt, done: 0 };
        running.warm()?;
        Ok(running)
    }

    /// Waits until two looks are alike, or until it says that it is ready.
    fn warm(&mut self) -> Result<()> {
        let until = Instant::now() + WARM_PATIENCE;
        let mut before = 0.0;
        while self.work == Work::Launches {
            let rate = self.launches(self.probe)?.unwrap_or(0.0);
            if (rate > 0.0 && (rate - before).abs() <= EVEN * rate) || Instant::now() > until {
                break;
            }
            before = rate;
        }
        Ok(())
    }

    /// Lets time pass while the program runs.
    fn pause(&mut self, length: Duration) -> Result<()> {
        let until = Instant::now() + length;
        loop {
            if self.interrupt.is_set() {
                return Err(stopped(&self.name));
            }
            let program = self.program.as_mut().context("it was ended")?;
            match program.says_ready() {
                Ok(true) if self.done == 0 => self.work = Work::Steps,
                Ok(_) => {}
                Err(problem) => return Err(self.ended(&problem)),
            }
            match until.saturating_duration_since(Instant::now()) {
                Duration::ZERO => return Ok(()),
                left => std::thread::sleep(left.min(GLANCE)),
            }
        }
    }

    fn ended(&self, problem: &str) -> anyhow::Error {
        let (name, done) =
            (&self.name, if self.done == 1 { "1 share".into() } else { format!("{} shares", self.done) });
        let text = "give it more to do, or less time for each share with --probe; nothing was written";
        Misuse(format!("profile {name}: {problem}; {done} of about 9 measured; {text}")).into()
    }

    /// Launches a second. `None`: there were none.
    fn launches(&mut self, length: Duration) -> Result<Option<f64>> {
        let (begun, before) = (Instant::now(), self.count()?);
        let mut looks = 0;
        loop {
            self.pause(length)?;
            looks += 1;
            let launched = self.count()?.saturating_sub(before);
            if launched >= LAUNCHES_MIN || looks == LONGER {
                let rate = launched as f64 / begun.elapsed().as_secs_f64();
                return Ok((launched > 0).then_some(rate));
            }
        }
    }

    fn count(&mut self) -> Result<u64> {
        let counted = self.shares.launches();
        // A program that has ended is no tenant any more: that it has is what matters.
        self.pause(Duration::ZERO)?;
        counted
    }

    /// Steps a second, by what the program says.
    fn steps(&mut self, length: Duration) -> Result<Option<f64>> {
        let order =
            Order { at_ns: now_ns() + LEAD.as_nanos() as u64, seconds: length.as_secs_f64(), rate: 0.0, seed: 1 };
        let until = Instant::now() + LEAD + length * LONGER + START_PATIENCE;
        let program = self.program.as_mut().context("it was ended")?;
        let answered = program.order(&order).and_then(|()| program.answer(until, &self.interrupt));
        let answer = match answered {
            _ if self.interrupt.is_set() => return Err(stopped(&self.name)),
            Ok(answer) => answer,
            Err(problem) => return Err(self.ended(&problem)),
        };
        let rate = answer.per_second.unwrap_or(answer.done as f64 / answer.seconds.max(f64::MIN_POSITIVE));
        Ok((rate > 0.0).then_some(rate))
    }

    fn end(&mut self) {
        if let Some(program) = self.program.take() {
            program.end(END_PATIENCE);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

impl Meter for Running {
    fn measure(&mut self, Probe { share, .. }: Probe) -> Result<Option<Figures>> {
        self.set(share)?;
        self.pause(SETTLE)?;
        let mut rates = Vec::new();
        for _ in 0..LOOKS {
            let look = self.probe / LOOKS;
            let rate = if self.work == Work::Steps { self.steps(look)? } else { self.launches(look)? };
            rates.push(rate.unwrap_or(0.0));
        }
        self.done += 1;
        let rate = median(&rates).filter(|rate| *rate > 0.0);
        Ok(rate.map(|throughput| Figures { latency: Span::from_secs_f64(1.0 / throughput), throughput }))
    }
}

impl Running {
    fn set(&mut self, share: Share) -> Result<()> {
        let set = self.shares.set(share);
        // A program that has ended has no share: that it has is what matters.
        self.pause(Duration::ZERO)?;
        set
    }
}
