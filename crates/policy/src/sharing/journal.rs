//! The life of one GPU's sharing as lines of text: what was seen, and what was wanted done.
//!
//! A tick is a line for each tenant, one for each burst of it that ended, and the line `look` with the time in nanoseconds;
//! the actions that followed stand below it, each after `>`. Fed to the same code again, the same lines give the same
//! actions: trouble that was seen live is a file that shows it again.
//!
//! ```text
//! controller weft
//! parameter tick 2ms
//! tenant 0 latency 5 0 0 1000 840000 860000 850000 1 - space=0 slices=1 preemptible=1 0 -
//! burst 0 1 4150000 850000 840000 1
//! look 6000000 85899345920
//! > allow 0 18446744073709551615
//! ```

use super::{Action, Admission, Burst, Class, Controller, Gate, GpuView, Sharing, SharingConfig, TenantView};
use crate::{Span, TenantId, Time};
use std::fmt::Write;

/// Tenants that a journal of ours names at most in one look: as many as there are processes on a GPU.
const TENANTS: usize = 64;
/// Bursts of a tenant in one look: sixteen of each process.
const BURSTS: usize = 1024;

/// The sharing of one GPU, which keeps a journal where somebody wants one.
///
/// The daemon and the replay both drive this, so that nothing can be done live that a journal does not hold.
#[derive(Debug)]
pub struct Recorder {
    sharing: Sharing,
    journal: Option<String>,
}

impl Recorder {
    /// Nobody is here yet.
    pub fn new(controller: Controller, config: &SharingConfig, journal: bool) -> Recorder {
        let sharing = Sharing::new(controller, config.clone());
        let mut recorder = Recorder { sharing, journal: journal.then(String::new) };
        recorder.note(|out| writeln!(out, "controller {controller}"));
        for parameter in SharingConfig::PARAMETERS {
            recorder.note(|out| writeln!(out, "parameter {} {}", parameter.name, parameter.text(config)));
        }
        recorder
    }

    /// The sharing.
    pub fn sharing(&self) -> &Sharing {
        &self.sharing
    }

    /// Best-effort tenants are let in by this controller from now on.
    pub fn set_controller(&mut self, controller: Controller) {
        self.sharing.set_controller(controller);
        self.note(|out| writeln!(out, "controller {controller}"));
    }

    /// Looks at everybody and says what to do.
    pub fn update(&mut self, now: Time, view: &GpuView, out: &mut Vec<Action>) {
        let before = out.len();
        self.sharing.update(now, view, out);
        self.note(|text| write_tick(text, now, view).and_then(|()| write_actions(text, &out[before..])));
    }

    /// What has been written since the last time; `None` when nobody wants it.
    pub fn take_journal(&mut self) -> Option<String> {
        self.journal.as_mut().map(std::mem::take)
    }

    /// Nobody wants it any more.
    pub fn stop_journal(&mut self) {
        self.journal = None;
    }

    fn note(&mut self, write: impl FnOnce(&mut String) -> std::fmt::Result) {
        if let Some(journal) = &mut self.journal {
            write(journal).expect("a string takes all that is written to it");
        }
    }
}

fn write_tick(out: &mut String, now: Time, view: &GpuView) -> std::fmt::Result {
    let or_none = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
    for tenant in &view.tenants {
        let TenantView { id, class, priority, request, boost, limit, bursts, .. } = tenant;
        let [charged, wanted, burst] = [tenant.charged, tenant.wanted, tenant.burst].map(Span::nanos);
        let [space, slices, preemptible] = [tenant.spatial, tenant.slices, tenant.preemptible].map(u8::from);
        let (objective, memory) = (or_none(tenant.objective.map(Span::nanos)), or_none(tenant.memory_limit));
        write!(out, "tenant {} {} {priority} {request} {boost} {limit}", id.0, class_name(*class))?;
        write!(out, " {charged} {wanted} {burst} {bursts} {objective}")?;
        let preempts_within = tenant.preempts_within.nanos();
        writeln!(out, " space={space} slices={slices} preemptible={preemptible} {preempts_within} {memory}")?;
        for Burst { process, began, took, alone, undisturbed } in &tenant.ended {
            let (began, took, alone) = (began.nanos(), took.nanos(), alone.nanos());
            writeln!(out, "burst {} {process} {began} {took} {alone} {}", id.0, u8::from(*undisturbed))?;
        }
    }
    writeln!(out, "look {} {}", now.nanos(), view.memory_total)
}

fn write_actions(out: &mut String, actions: &[Action]) -> std::fmt::Result {
    for action in actions {
        match action {
            Action::SetAllowance { tenant, allowed } => writeln!(out, "> allow {} {}", tenant.0, allowed.nanos())?,
            Action::SetGate { tenant, gate } => {
                let gate = if *gate == Gate::Held { "held" } else { "open" };
                writeln!(out, "> gate {} {gate}", tenant.0)?;
            }
            Action::SetBudget { tenant, budget } => writeln!(out, "> budget {} {}", tenant.0, budget.nanos())?,
            Action::SetAdmission { tenant, admission } => {
                writeln!(out, "> admission {} {}", tenant.0, admission_name(*admission))?;
            }
            Action::SetSlice { tenant, slice } => {
                writeln!(out, "> slice {} {}", tenant.0, slice.map_or(0, Span::nanos))?;
            }
            Action::SetSmCap { tenant, permille } => writeln!(out, "> space {} {permille}", tenant.0)?,
            Action::Reserve { tenant, from, until } => {
                writeln!(out, "> reserve {} {} {}", tenant.0, from.nanos(), until.nanos())?;
            }
            Action::SetMemoryLimit { tenant, bytes } => writeln!(out, "> memory {} {bytes}", tenant.0)?,
        }
    }
    Ok(())
}

fn class_name(class: Class) -> &'static str {
    match class {
        Class::Latency => "latency",
        Class::Standard => "standard",
        Class::BestEffort => "best-effort",
    }
}

fn admission_name(admission: Admission) -> &'static str {
    match admission {
        Admission::GapFill => "gap-fill",
        Admission::ShortOnly => "short-only",
        Admission::Concurrent => "concurrent",
        Admission::Exclusive => "exclusive",
    }
}

/// What a replay found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Looks.
    pub ticks: usize,
    /// Actions that followed, all as written.
    pub actions: usize,
}

/// Whether a text may be a journal of sharing, and not another.
pub fn is_journal(text: &str) -> bool {
    text.starts_with("controller ")
}

/// Feeds a journal to the same code and compares the actions with those written down. An error names the line: one that
/// cannot be read, or the first at which the two part. Who wrote it may have been killed: its end may be missing.
pub fn replay(text: &str) -> Result<Replayed, String> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut lines = whole.lines().enumerate().peekable();
    let mut recorder: Option<Recorder> = None;
    let mut replayed = Replayed { ticks: 0, actions: 0 };
    let (mut view, mut last) = (GpuView::default(), Time::ZERO);
    let (mut config, mut first) = (SharingConfig::default(), Controller::default());
    while let Some((number, line)) = lines.next() {
        let place = |problem: String| format!("line {}: {problem}", number + 1);
        let mut words = line.split_ascii_whitespace();
        let verb = words.next().unwrap_or_default();
        match (verb, &mut recorder) {
            ("controller", recorder) => {
                let controller = words.next().unwrap_or_default().parse().map_err(place)?;
                match recorder {
                    Some(recorder) => recorder.set_controller(controller),
                    none => {
                        first = controller;
                        *none = Some(Recorder::new(first, &config, false));
                    }
                }
            }
            ("parameter", Some(recorder)) if replayed.ticks == 0 => {
                let name = words.next().unwrap_or_default();
                config.set(name, words.next().unwrap_or_default()).map_err(place)?;
                *recorder = Recorder::new(first, &config, false);
            }
            (_, None) => return Err(place("a journal of sharing begins with `controller`".into())),
            ("tenant", _) => view.tenants.push(read_tenant(&mut words, &view).map_err(place)?),
            ("burst", _) => read_burst(&mut words, &mut view).map_err(place)?,
            ("look", Some(recorder)) => {
                let now = Time::from_nanos(number_of(&mut words).map_err(place)?);
                view.memory_total = number_of(&mut words).map_err(place)?;
                if now < last {
                    return Err(place("time goes back".into()));
                }
                last = now;
                let (mut actions, mut got) = (Vec::new(), String::new());
                recorder.update(now, &view, &mut actions);
                write_actions(&mut got, &actions).expect("a string takes all that is written to it");
                view.tenants.clear();
                replayed.ticks += 1;
                for got in got.lines() {
                    if lines.peek().is_none() {
                        break;
                    }
                    let expected = lines.next_if(|(_, line)| line.starts_with('>')).map_or("nothing", |(_, line)| line);
                    if got != expected {
                        return Err(place(format!("written down was `{expected}`, and the replay gives `{got}`")));
                    }
                    replayed.actions += 1;
                }
                if let Some((_, expected)) = lines.next_if(|(_, line)| line.starts_with('>')) {
                    return Err(place(format!("written down was `{expected}`, and the replay gives nothing")));
                }
            }
            (other, Some(_)) => return Err(place(format!("`{other}` is not something that sharing is told"))),
        }
        if let Some(extra) = words.next() {
            return Err(place(format!("`{extra}` after the end of `{verb}`")));
        }
    }
    if recorder.is_none() {
        return Err("the journal is empty".into());
    }
    Ok(replayed)
}

fn read_tenant<'a>(words: &mut impl Iterator<Item = &'a str>, view: &GpuView) -> Result<TenantView, String> {
    let id = TenantId(small(words)?);
    if view.tenants.last().is_some_and(|last| last.id >= id) || view.tenants.len() == TENANTS {
        return Err(format!("tenants come in the order of their numbers, {TENANTS} at most"));
    }
    let class = match words.next() {
        Some("latency") => Class::Latency,
        Some("standard") => Class::Standard,
        Some("best-effort") => Class::BestEffort,
        other => return Err(format!("`{}` is no class", other.unwrap_or_default())),
    };
    let priority = small(words)?.min(u8::MAX.into()) as u8;
    let (request, boost, limit) = (small(words)?, small(words)?, small(words)?);
    let mut span = || number_of(words).map(Span::from_nanos);
    let (charged, wanted, burst) = (span()?, span()?, span()?);
    let bursts = number_of(words)?;
    let objective = optional(words)?.map(Span::from_nanos);
    let mut flag = |name: &str| match words.next().and_then(|word| word.strip_prefix(name)) {
        Some("=0") => Ok(false),
        Some("=1") => Ok(true),
        _ => Err(format!("`{name}=0` or `{name}=1` is missing")),
    };
    let (space, slices, preemptible) = (flag("space")?, flag("slices")?, flag("preemptible")?);
    let preempts_within = Span::from_nanos(number_of(words)?);
    let memory_limit = optional(words)?;
    Ok(TenantView {
        id,
        class,
        priority,
        request,
        boost,
        limit,
        charged,
        wanted,
        burst,
        bursts,
        ended: Vec::new(),
        objective,
        spatial: space,
        slices,
        preemptible,
        preempts_within,
        memory_limit,
    })
}

fn read_burst<'a>(words: &mut impl Iterator<Item = &'a str>, view: &mut GpuView) -> Result<(), String> {
    let id = TenantId(small(words)?);
    let process = small(words)?;
    let began = Time::from_nanos(number_of(words)?);
    let (took, alone) = (Span::from_nanos(number_of(words)?), Span::from_nanos(number_of(words)?));
    let undisturbed = number_of(words)? != 0;
    let tenant = view.tenants.last_mut().filter(|tenant| tenant.id == id && tenant.ended.len() < BURSTS);
    let tenant = tenant.ok_or_else(|| format!("a burst of {} does not stand below its tenant", id.0))?;
    tenant.ended.push(Burst { process, began, took, alone, undisturbed });
    Ok(())
}

fn number_of<'a>(words: &mut impl Iterator<Item = &'a str>) -> Result<u64, String> {
    let word = words.next().ok_or("a number is missing")?;
    word.parse().map_err(|_| format!("`{word}` is no number"))
}

fn small<'a>(words: &mut impl Iterator<Item = &'a str>) -> Result<u32, String> {
    let number = number_of(words)?;
    u32::try_from(number).map_err(|_| format!("{number} is too large"))
}

fn optional<'a>(words: &mut impl Iterator<Item = &'a str>) -> Result<Option<u64>, String> {
    let word = words.next().ok_or("a number or `-` is missing")?;
    if word == "-" { Ok(None) } else { word.parse().map(Some).map_err(|_| format!("`{word}` is no number")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A latency tenant whose bursts are late at times, and one or two others, for so many ticks.
    fn record(steps: &[(u8, u16, bool)]) -> String {
        let mut recorder = Recorder::new(Controller::Weft, &SharingConfig::default(), true);
        let (mut text, mut actions) = (String::new(), Vec::new());
        let mut now = Time::ZERO;
        let mut latency = TenantView { class: Class::Latency, slices: true, ..TenantView::new(TenantId(1)) };
        let mut train =
            TenantView { class: Class::BestEffort, slices: true, preemptible: true, ..TenantView::new(TenantId(4)) };
        for (what, micros, undisturbed) in steps {
            now += Span::from_millis(2);
            let took = Span::from_micros(500 + u64::from(*micros) % 1_500);
            let alone = Span::from_micros(if what % 5 == 0 { 0 } else { 500 });
            let burst = Burst { process: 3, began: now - took, took, alone, undisturbed: *undisturbed };
            latency.ended = vec![burst; usize::from(what % 3)];
            latency.bursts += u64::from(what % 3);
            latency.objective = (what % 7 == 0).then_some(Span::from_millis(9));
            for tenant in [&mut latency, &mut train] {
                tenant.wanted += Span::from_millis(1);
                tenant.charged += Span::from_micros(u64::from(*micros) % 1_900);
            }
            if what % 50 == 0 {
                recorder.set_controller(if *undisturbed { Controller::Weft } else { Controller::Tgs });
            }
            let tenants = if what % 11 == 0 { vec![latency.clone()] } else { vec![latency.clone(), train.clone()] };
            recorder.update(now, &GpuView { tenants, memory_total: 80 << 30 }, &mut actions);
            actions.clear();
        }
        text.push_str(&recorder.take_journal().expect("it keeps one"));
        text
    }

    #[test]
    fn what_was_written_is_what_comes_again_and_what_was_changed_is_named() {
        let steps: Vec<(u8, u16, bool)> =
            (0..2_000u32).map(|step| ((step * 7) as u8, (step * 131) as u16, step % 3 == 0)).collect();
        let text = record(&steps);
        let replayed = replay(&text).expect("it replays");
        assert!(replayed.ticks == 2_000 && replayed.actions > 2_000, "{replayed:?}");
        for cut in [1, 10, 40, 100] {
            let cut = &text[..text.len() - cut];
            assert!(replay(cut).is_ok(), "it was killed while it wrote");
        }
        let (line, changed) = text.lines().enumerate().filter(|(_, line)| line.starts_with("> allow")).nth(5).unwrap();
        let broken = text.replacen(changed, "> allow 1 7", 1);
        let problem = replay(&broken).unwrap_err();
        assert!(problem.contains("written down was `> allow 1 7`"), "{problem} for line {line}");
    }

    #[test]
    fn what_is_no_journal_is_told_with_its_line() {
        let check = |text: &str, expected: &str| assert_eq!(replay(text).unwrap_err(), expected);
        check("", "the journal is empty");
        check("look 0 0\n", "line 1: a journal of sharing begins with `controller`");
        check("controller fair\n", &format!("line 1: {}", "fair".parse::<Controller>().unwrap_err()));
        check("controller weft\nlook 5 0\nlook 4 0\n", "line 3: time goes back");
        check("controller weft\nlook 5 0 1\n", "line 2: `1` after the end of `look`");
        check("controller weft\nburst 0 1 2 3 4 5\n", "line 2: a burst of 0 does not stand below its tenant");
        check("controller weft\njump\n", "line 2: `jump` is not something that sharing is told");
        assert!(!is_journal("0 network 1 2 3 4\n") && is_journal("controller weft\n"));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_life_replays(steps in prop::collection::vec(any::<(u8, u16, bool)>(), 1..300)) {
            prop_assert!(replay(&record(&steps)).is_ok());
        }

        #[test]
        fn nonsense_is_refused_and_harms_nobody(lines in prop::collection::vec("(controller|tenant|burst|look|>) [a-z0-9=\\- ]{0,60}", 0..30)) {
            let _ = replay(&format!("controller weft\n{}", lines.join("\n")));
        }
    }
}
