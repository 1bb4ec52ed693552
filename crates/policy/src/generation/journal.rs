//! A machine's life as lines of text: what it was told, and what it wanted done.
//!
//! A line is the time in nanoseconds and what happened; the actions that followed stand below it, each after `>`. Fed to a
//! fresh machine, the same lines give the same actions: a bug seen live is a file that shows it again.
//!
//! ```text
//! 0 generation weft 0
//! 0 model 4096 524288 3100000 27000 239000 119
//! 0 join 0 0 68719476736 0
//! 1000000 arrive 7 0 1000000 374 2048 500000000 50000000
//! > step 0 0 0 1000000 13437000 7:374 |
//! 14437000 done 0 0 13437000
//! > step 0 1 0 14437000 3383506 | 7
//! ```

use super::Policy;
use super::event::{Action, Event, Reason};
use super::machine::{Generation, Model};
use super::policies;
use super::sequence::Request;
use super::step_time::StepTime;
use crate::{GpuId, GpuType, ModelId, RequestId, Span, Time};
use std::fmt::Write;

/// Something a machine was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A further model.
    Model(Model),
    /// News.
    Event(Event),
    /// The time of its timer came.
    Timer,
}

/// A machine that keeps a journal, where somebody wants one.
///
/// Live, in the simulator and in the replay the same is driven, so that nothing can be done that a journal does not hold.
pub struct Recorder {
    machine: Generation,
    actions: Vec<Action>,
    journal: Option<String>,
}

impl Recorder {
    /// A machine with no models and no workers, under the policy of this name.
    pub fn new(now: Time, name: &str, policy: Box<dyn Policy>, lead: Span, journal: bool) -> Recorder {
        let head = format!("{} generation {name} {}\n", now.nanos(), lead.nanos());
        Recorder { machine: Generation::new(lead, policy), actions: Vec::new(), journal: journal.then_some(head) }
    }

    /// The machine.
    pub fn machine(&self) -> &Generation {
        &self.machine
    }

    /// When [`Input::Timer`] is next due.
    pub fn next_timer(&self) -> Option<Time> {
        self.machine.next_timer()
    }

    /// What has been written since the last time; `None` when nobody wants it.
    pub fn take_journal(&mut self) -> Option<String> {
        self.journal.as_mut().map(std::mem::take)
    }

    /// Tells the machine something. What it wants done is there until the next call.
    pub fn tell(&mut self, now: Time, input: Input) -> &[Action] {
        self.actions.clear();
        if let Some(journal) = &mut self.journal {
            write_input(journal, now, &input);
        }
        match input {
            Input::Model(model) => {
                self.machine.add_model(model);
            }
            Input::Event(event) => self.machine.on_event(now, event, &mut self.actions),
            Input::Timer => self.machine.on_timer(now, &mut self.actions),
        }
        if let Some(journal) = &mut self.journal {
            self.actions.iter().for_each(|action| write_action(journal, action));
        }
        &self.actions
    }
}

/// How much was replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Lines of news.
    pub inputs: usize,
    /// Actions, all as written down.
    pub actions: usize,
}

/// Whether a text is the journal of such a machine.
pub fn is_journal(text: &str) -> bool {
    text.split_ascii_whitespace().nth(1) == Some("generation")
}

/// Feeds a journal to a fresh machine and compares every action. An error names the line.
pub fn replay(journal: &str) -> Result<Replayed, String> {
    let mut lines = journal.lines().enumerate().peekable();
    let (_, head) = lines.next().ok_or("the journal is empty")?;
    let (now, name, lead) = read_head(head).map_err(|problem| format!("line 1: {problem}"))?;
    let policy = policies::by_name(name).ok_or_else(|| format!("line 1: there is no policy `{name}`"))?;
    let mut recorder = Recorder::new(now, name, policy, lead, false);
    let (mut replayed, mut clock) = (Replayed::default(), now);
    while let Some((number, line)) = lines.next() {
        let place = |problem: String| format!("line {}: {problem}", number + 1);
        let (now, input) = read_input(line).map_err(place)?;
        if now < clock {
            return Err(place("time goes back".into()));
        }
        clock = now;
        check(&recorder, &input).map_err(place)?;
        replayed.inputs += 1;
        for action in recorder.tell(now, input) {
            let mut got = String::new();
            write_action(&mut got, action);
            let got = got.trim_end();
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
    Ok(replayed)
}

fn write_input(out: &mut String, now: Time, input: &Input) {
    let _ = write!(out, "{}", now.nanos());
    let _ = match input {
        Input::Model(Model { context, token_bytes, told }) => {
            let terms = [told.floor, told.prefill_token, told.sequence, told.cached_token].map(Span::nanos);
            let [floor, prefill, sequence, cached] = terms;
            write!(out, " model {context} {token_bytes} {floor} {prefill} {sequence} {cached}")
        }
        Input::Event(Event::Arrived(request)) => {
            let Request { id, model, arrival, prompt, max_tokens, ttft, tpot } = request;
            let (arrival, ttft, tpot) = (arrival.nanos(), ttft.nanos(), tpot.nanos());
            write!(out, " arrive {} {} {arrival} {prompt} {max_tokens} {ttft} {tpot}", id.0, model.0)
        }
        Input::Event(Event::StepDone { worker, step, took, ended }) => {
            let ended: String = ended.iter().map(|id| format!(" {}", id.0)).collect();
            write!(out, " done {} {step} {}{ended}", worker.0, took.nanos())
        }
        Input::Event(Event::ClientGone(id)) => write!(out, " gone {}", id.0),
        Input::Event(Event::WorkerJoined { worker, kind, cache, models }) => {
            let models: String = models.iter().map(|model| format!(" {}", model.0)).collect();
            write!(out, " join {} {} {cache}{models}", worker.0, kind.0)
        }
        Input::Event(Event::WorkerGone(worker)) => write!(out, " lost {}", worker.0),
        Input::Timer => write!(out, " timer"),
    };
    out.push('\n');
}

fn write_action(out: &mut String, action: &Action) {
    let _ = match action {
        Action::Step { worker, step, model, prefill, decode, not_before, expected } => {
            let (not_before, expected) = (not_before.nanos(), expected.nanos());
            let prefill: String = prefill.iter().map(|(id, tokens)| format!(" {}:{tokens}", id.0)).collect();
            let decode: String = decode.iter().map(|id| format!(" {}", id.0)).collect();
            write!(out, "> step {} {step} {} {not_before} {expected}{prefill} |{decode}", worker.0, model.0)
        }
        Action::Reject { request, reason, come_back } => {
            let come_back = come_back.map_or("never".into(), |span| span.nanos().to_string());
            write!(out, "> reject {} {} {come_back}", request.0, reason.name())
        }
        Action::Evict { request } => write!(out, "> evict {}", request.0),
        Action::End { request } => write!(out, "> end {}", request.0),
    };
    out.push('\n');
}

fn read_head(line: &str) -> Result<(Time, &str, Span), String> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    match words[..] {
        [now, "generation", name, lead] => {
            Ok((Time::from_nanos(number(Some(now))?), name, Span::from_nanos(number(Some(lead))?)))
        }
        _ => Err(format!("`{line}` does not begin a journal of generation")),
    }
}

fn read_input(line: &str) -> Result<(Time, Input), String> {
    let mut words = line.split_ascii_whitespace();
    let now = Time::from_nanos(number(words.next())?);
    let verb = words.next().unwrap_or_default();
    let span = |word| number(word).map(Span::from_nanos);
    let input = match verb {
        "model" => {
            let (context, token_bytes) = (count(words.next())?, number(words.next())?);
            let (floor, prefill_token) = (span(words.next())?, span(words.next())?);
            let (sequence, cached_token) = (span(words.next())?, span(words.next())?);
            Input::Model(Model {
                context,
                token_bytes,
                told: StepTime { floor, prefill_token, sequence, cached_token },
            })
        }
        "arrive" => {
            let (id, model) = (RequestId(number(words.next())?), ModelId(small(words.next())?));
            let arrival = Time::from_nanos(number(words.next())?);
            let (prompt, max_tokens) = (count(words.next())?, count(words.next())?);
            let (ttft, tpot) = (span(words.next())?, span(words.next())?);
            Input::Event(Event::Arrived(Request { id, model, arrival, prompt, max_tokens, ttft, tpot }))
        }
        "done" => {
            let (worker, step, took) = (GpuId(small(words.next())?), number(words.next())?, span(words.next())?);
            let ended = words.by_ref().map(|word| number(Some(word)).map(RequestId)).collect::<Result<_, _>>()?;
            Input::Event(Event::StepDone { worker, step, took, ended })
        }
        "gone" => Input::Event(Event::ClientGone(RequestId(number(words.next())?))),
        "join" => {
            let (worker, kind) = (GpuId(small(words.next())?), GpuType(small(words.next())?));
            let cache = number(words.next())?;
            let models = words.by_ref().map(|word| small(Some(word)).map(ModelId)).collect::<Result<_, _>>()?;
            Input::Event(Event::WorkerJoined { worker, kind, cache, models })
        }
        "lost" => Input::Event(Event::WorkerGone(GpuId(small(words.next())?))),
        "timer" => Input::Timer,
        other => return Err(format!("`{other}` is not something a machine is told")),
    };
    match words.next() {
        Some(extra) => Err(format!("`{extra}` after the end of `{verb}`")),
        None => Ok((now, input)),
    }
}

fn number(word: Option<&str>) -> Result<u64, String> {
    let word = word.ok_or("a number is missing")?;
    word.parse().map_err(|_| format!("`{word}` is not a number"))
}

fn count(word: Option<&str>) -> Result<u32, String> {
    u32::try_from(number(word)?).map_err(|_| "a count of tokens is too large".into())
}

fn small(word: Option<&str>) -> Result<u32, String> {
    let number = number(word)?;
    // Ids are places in tables: a journal that names the billionth GPU is not one of ours.
    if number < 1 << 12 { Ok(number as u32) } else { Err(format!("{number} is too large for an id")) }
}

/// A journal of ours names only what it introduced.
fn check(recorder: &Recorder, input: &Input) -> Result<(), String> {
    let books = recorder.machine.books();
    let model = |model: &ModelId| match books.models.get(model.index()) {
        Some(_) => Ok(()),
        None => Err(format!("there is no model {}", model.0)),
    };
    match input {
        Input::Event(Event::Arrived(request)) => {
            if books.sequences.contains_key(&request.id) {
                return Err(format!("request {} came twice", request.id.0));
            }
            model(&request.model)
        }
        Input::Event(Event::WorkerJoined { models, .. }) => models.iter().try_for_each(model),
        _ => Ok(()),
    }
}

impl Reason {
    /// Whether it says something about the request, not about the load.
    pub const fn is_final(self) -> bool {
        matches!(self, Reason::Empty | Reason::TooLong)
    }
}
