//! A dispatcher's life as lines of text: what it was told, and what it wanted done.
//!
//! A line is the time in nanoseconds and what happened; the actions that followed stand below it, each after `>`. Fed
//! to a fresh dispatcher, the same lines give the same actions: a bug seen live is a file that shows it again.
//!
//! ```text
//! 0 network 100000 0 200000 500000
//! 0 model 100000000 18446744073709551615 0=1000000,1500000
//! 0 join 0 0
//! 1000000 arrive 7 0 1000000 101000000
//! > run 0 0 0 2000000 7
//! 2000000 done 0 0
//! ```

use crate::{
    Action, Actions, Dispatcher, Event, GpuId, GpuType, LatencyTable, Model, ModelId, Network, Policy, Reason, Request,
    RequestId, Span, Time,
};
use std::fmt::Write;

/// Something a dispatcher was told.
#[derive(Clone, Debug)]
pub enum Input {
    /// What lies between a decision and its effect. Comes first, once.
    Network(Network),
    /// A further model.
    Model(Model),
    /// How long batches of a model take on a type of GPU.
    Table(ModelId, GpuType, LatencyTable),
    /// News.
    Event(Event),
    /// The time of its timer came.
    Timer,
}

/// Writes a line about what a dispatcher was told.
pub fn write_input(out: &mut String, now: Time, input: &Input) {
    let mut line = |words: std::fmt::Arguments| {
        writeln!(out, "{} {words}", now.nanos()).expect("a string takes all that is written to it");
    };
    match input {
        Input::Network(network) => {
            let Network { control, data_per_request, response, jitter } = network;
            let [control, data, response, jitter] =
                [control, data_per_request, response, jitter].map(|span| span.nanos());
            line(format_args!("network {control} {data} {response} {jitter}"));
        }
        Input::Model(model) => {
            let tables: String = model.tables.iter().enumerate().map(|(kind, table)| words(kind, table)).collect();
            line(format_args!("model {} {}{tables}", model.objective.nanos(), model.expected_gap.nanos()));
        }
        Input::Table(model, kind, table) => line(format_args!("table {}{}", model.0, words(kind.index(), table))),
        Input::Event(Event::Arrived(request)) => {
            let Request { id, model, arrival, deadline } = request;
            line(format_args!("arrive {} {} {} {}", id.0, model.0, arrival.nanos(), deadline.nanos()));
        }
        Input::Event(Event::Withdrawn { request, model }) => line(format_args!("withdraw {} {}", request.0, model.0)),
        Input::Event(Event::BatchDone { gpu, batch }) => line(format_args!("done {} {batch}", gpu.0)),
        Input::Event(Event::Preempted(gpu)) => line(format_args!("preempted {}", gpu.0)),
        Input::Event(Event::GpuJoined { gpu, kind }) => line(format_args!("join {} {}", gpu.0, kind.0)),
        Input::Event(Event::GpuLeaving(gpu)) => line(format_args!("leave {}", gpu.0)),
        Input::Event(Event::GpuLost(gpu)) => line(format_args!("lost {}", gpu.0)),
        Input::Timer => line(format_args!("timer")),
    }
}

fn words(kind: usize, table: &LatencyTable) -> String {
    let sizes = (1..=table.max_batch()).map(|size| table.latency(size).nanos().to_string());
    format!(" {kind}={}", sizes.collect::<Vec<_>>().join(","))
}

/// Writes lines about what a dispatcher wanted done.
pub fn write_actions(out: &mut String, actions: &Actions) {
    for action in &actions.list {
        match action {
            Action::Run { gpu, model, batch, requests, finish } => {
                let _ = write!(out, "> run {} {} {batch} {}", gpu.0, model.0, finish.nanos());
                for request in &actions.requests[requests.clone()] {
                    let _ = write!(out, " {}", request.0);
                }
                out.push('\n');
            }
            Action::Reject { request, reason, .. } => {
                let _ = writeln!(out, "> reject {} {}", request.0, reason.name());
            }
            Action::Preempt { gpu } => {
                let _ = writeln!(out, "> preempt {}", gpu.0);
            }
        }
    }
}

/// Reads a line that [`write_input`] wrote; what is wrong with it, if it did not.
pub fn read_input(line: &str) -> Result<(Time, Input), String> {
    let mut words = line.split_ascii_whitespace();
    let now = Time::from_nanos(number(words.next())?);
    let verb = words.next().unwrap_or_default();
    let input = match verb {
        "network" => {
            let mut span = || number(words.next()).map(Span::from_nanos);
            let (control, data_per_request, response, jitter) = (span()?, span()?, span()?, span()?);
            Input::Network(Network { control, data_per_request, response, jitter })
        }
        "model" => {
            let (objective, gap) = (number(words.next())?, number(words.next())?);
            let mut tables = Vec::new();
            for word in words.by_ref() {
                tables.push(table(Some(word))?.1);
            }
            if tables.is_empty() {
                return Err("a model has at least one table".into());
            }
            Input::Model(Model { objective: Span::from_nanos(objective), tables, expected_gap: Span::from_nanos(gap) })
        }
        "table" => {
            let model = ModelId(small(words.next())?);
            let (kind, table) = table(words.next())?;
            Input::Table(model, kind, table)
        }
        "arrive" => {
            let (id, model) = (RequestId(number(words.next())?), ModelId(small(words.next())?));
            let (arrival, deadline) =
                (Time::from_nanos(number(words.next())?), Time::from_nanos(number(words.next())?));
            Input::Event(Event::Arrived(Request { id, model, arrival, deadline }))
        }
        "withdraw" => {
            let (request, model) = (RequestId(number(words.next())?), ModelId(small(words.next())?));
            Input::Event(Event::Withdrawn { request, model })
        }
        "done" => {
            let (gpu, batch) = (GpuId(small(words.next())?), number(words.next())?);
            Input::Event(Event::BatchDone { gpu, batch })
        }
        "preempted" => Input::Event(Event::Preempted(GpuId(small(words.next())?))),
        "join" => {
            let (gpu, kind) = (GpuId(small(words.next())?), GpuType(small(words.next())?));
            Input::Event(Event::GpuJoined { gpu, kind })
        }
        "leave" => Input::Event(Event::GpuLeaving(GpuId(small(words.next())?))),
        "lost" => Input::Event(Event::GpuLost(GpuId(small(words.next())?))),
        "timer" => Input::Timer,
        other => return Err(format!("`{other}` is not something a dispatcher is told")),
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

fn small(word: Option<&str>) -> Result<u32, String> {
    let number = number(word)?;
    // Ids are places in tables: a journal that names the billionth GPU is not one of ours.
    if number < 1 << 20 { Ok(number as u32) } else { Err(format!("{number} is too large for an id")) }
}

fn table(word: Option<&str>) -> Result<(GpuType, LatencyTable), String> {
    let word = word.ok_or("a table is missing")?;
    let (kind, sizes) = word.split_once('=').ok_or_else(|| format!("`{word}` is not a table"))?;
    let sizes = sizes.split(',').filter(|size| !size.is_empty()).map(|size| number(Some(size)).map(Span::from_nanos));
    let sizes = sizes.collect::<Result<Vec<_>, _>>()?;
    if sizes.len() > crate::MAX_BATCH {
        return Err(format!("a table of {} sizes; {} are allowed", sizes.len(), crate::MAX_BATCH));
    }
    Ok((GpuType(small(Some(kind))?), LatencyTable::from_sizes(sizes)))
}

/// A dispatcher that keeps a journal, where somebody wants one.
///
/// The live scheduler and the replay both drive this, so that nothing can be done live that a journal does not hold.
pub struct Recorder {
    dispatcher: Dispatcher,
    actions: Actions,
    journal: Option<String>,
}

impl Recorder {
    /// A dispatcher with no models and no GPUs.
    pub fn new(now: Time, network: Network, policy: Box<dyn Policy>, journal: bool) -> Recorder {
        let mut text = String::new();
        write_input(&mut text, now, &Input::Network(network));
        Recorder {
            dispatcher: Dispatcher::new(Vec::new(), &[], network, policy),
            actions: Actions::default(),
            journal: journal.then_some(text),
        }
    }

    /// The dispatcher.
    pub fn dispatcher(&self) -> &Dispatcher {
        &self.dispatcher
    }

    /// What has been written since the last time; `None` when nobody wants it.
    pub fn take_journal(&mut self) -> Option<String> {
        self.journal.as_mut().map(std::mem::take)
    }

    /// Tells the dispatcher something. What it wants done is there until the next call.
    pub fn tell(&mut self, now: Time, input: Input) -> &Actions {
        self.actions.clear();
        if let Some(journal) = &mut self.journal {
            write_input(journal, now, &input);
        }
        match input {
            Input::Network(_) => {}
            Input::Model(model) => {
                self.dispatcher.add_model(model);
            }
            Input::Table(model, kind, table) => self.dispatcher.set_table(now, model, kind, table, &mut self.actions),
            Input::Event(event) => self.dispatcher.on_event(now, event, &mut self.actions),
            Input::Timer => self.dispatcher.on_timer(now, &mut self.actions),
        }
        if let Some(journal) = &mut self.journal {
            write_actions(journal, &self.actions);
        }
        &self.actions
    }
}

/// What a replay found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Lines the dispatcher was told.
    pub inputs: usize,
    /// Actions that followed, all as written.
    pub actions: usize,
}

/// Feeds a journal to a fresh dispatcher and compares its actions with those written down. An error names the line:
/// one that cannot be read, or the first at which the two part.
pub fn replay(text: &str, policy: Box<dyn Policy>) -> Result<Replayed, String> {
    let mut lines = text.lines().enumerate().peekable();
    let (_, first) = lines.next().ok_or("the journal is empty")?;
    let (now, Input::Network(network)) = read_input(first).map_err(|problem| format!("line 1: {problem}"))? else {
        return Err("line 1: a journal begins with `network`".into());
    };
    let mut recorder = Recorder::new(now, network, policy, false);
    let mut replayed = Replayed { inputs: 1, actions: 0 };
    let mut last = now;
    let mut got = String::new();
    while let Some((number, line)) = lines.next() {
        let place = |problem: String| format!("line {}: {problem}", number + 1);
        let (now, input) = read_input(line).map_err(place)?;
        if now < last {
            return Err(place("time goes back".into()));
        }
        last = now;
        check_ids(&recorder, &input).map_err(place)?;
        got.clear();
        write_actions(&mut got, recorder.tell(now, input));
        replayed.inputs += 1;
        for got in got.lines() {
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

/// A journal of ours names only what it introduced.
fn check_ids(recorder: &Recorder, input: &Input) -> Result<(), String> {
    let cluster = recorder.dispatcher.cluster();
    let model = |model: ModelId| match cluster.models.get(model.index()) {
        Some(_) => Ok(()),
        None => Err(format!("there is no model {}", model.0)),
    };
    let gpu = |gpu: GpuId| match cluster.gpus.get(gpu.index()) {
        Some(_) => Ok(()),
        None => Err(format!("there is no GPU {}", gpu.0)),
    };
    match input {
        Input::Network(_) => Err("`network` comes once".into()),
        Input::Model(_) | Input::Timer => Ok(()),
        Input::Table(id, ..) => model(*id),
        Input::Event(Event::Arrived(request)) => model(request.model),
        Input::Event(Event::Withdrawn { model: id, .. }) => model(*id),
        Input::Event(Event::GpuJoined { gpu, .. }) => match cluster.gpus.get(gpu.index()) {
            Some(there) if there.alive => Err(format!("GPU {} joined twice", gpu.0)),
            _ => Ok(()),
        },
        Input::Event(Event::BatchDone { gpu: id, .. }) => gpu(*id),
        Input::Event(Event::Preempted(id) | Event::GpuLeaving(id) | Event::GpuLost(id)) => gpu(*id),
    }
}

impl Reason {
    /// The reason a word stands for.
    pub fn parse(name: &str) -> Option<Reason> {
        Reason::ALL.into_iter().find(|reason| reason.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies;
    use proptest::prelude::*;

    fn record(steps: &[(u64, u8, u32)]) -> String {
        let network = Network { control: Span::from_micros(100), ..Network::default() };
        let mut recorder = Recorder::new(Time::ZERO, network, policies::by_name("weft").unwrap(), true);
        let line = LatencyTable::line(Span::from_millis(1), Span::from_millis(5), 16);
        let model = Model { objective: Span::from_millis(50), tables: vec![line.clone()], expected_gap: Span::MAX };
        recorder.tell(Time::ZERO, Input::Model(model.clone()));
        for gpu in 0..2 {
            let joined = Event::GpuJoined { gpu: GpuId(gpu), kind: GpuType(0) };
            recorder.tell(Time::ZERO, Input::Event(joined));
        }
        let (mut now, mut next, mut running) = (Time::ZERO, 0, Vec::new());
        for (gap, what, number) in steps {
            now += Span::from_micros(*gap);
            let models = recorder.dispatcher().cluster().models.len() as u32;
            let input = match what % 8 {
                0 => Input::Model(model.clone()),
                1 if !running.is_empty() => {
                    let (gpu, batch) = running.remove(*number as usize % running.len());
                    Input::Event(Event::BatchDone { gpu, batch })
                }
                2 => Input::Table(ModelId(number % models), GpuType(0), line.clone()),
                3 => Input::Timer,
                4 if next > 0 => {
                    // Any of the last few, of any model: it may wait, be in a batch or have been answered.
                    let request = RequestId(next - u64::from(*number % 8).min(next - 1));
                    Input::Event(Event::Withdrawn { request, model: ModelId(number % models) })
                }
                _ => {
                    next += 1;
                    let deadline = now + Span::from_millis(u64::from(*number % 50));
                    let request =
                        Request { id: RequestId(next), model: ModelId(number % models), arrival: now, deadline };
                    Input::Event(Event::Arrived(request))
                }
            };
            for action in &recorder.tell(now, input).list {
                if let Action::Run { gpu, batch, .. } = action {
                    running.push((*gpu, *batch));
                }
            }
        }
        recorder.take_journal().unwrap()
    }

    proptest! {
        #[test]
        fn what_was_written_replays_to_the_same_actions(
            steps in prop::collection::vec((0..20_000u64, any::<u8>(), any::<u32>()), 0..200)
        ) {
            let journal = record(&steps);
            let actions = journal.lines().filter(|line| line.starts_with('>')).count();
            let replayed = replay(&journal, policies::by_name("weft").unwrap());
            prop_assert_eq!(replayed.map(|replayed| replayed.actions), Ok(actions));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[a-z0-9 =,>\n]{0,200}") {
            let _ = replay(&format!("0 network 0 0 0 0\n{text}"), policies::by_name("weft").unwrap());
        }
    }

    #[test]
    fn a_changed_decision_is_found_and_named() {
        let journal = record(&[(1_000, 7, 49), (1_000, 7, 49), (90_000, 3, 0)]);
        assert!(replay(&journal, policies::by_name("weft").unwrap()).is_ok(), "{journal}");
        let changed = journal.replacen("> run 0", "> run 1", 1);
        let problem = replay(&changed, policies::by_name("weft").unwrap()).unwrap_err();
        assert!(problem.contains("written down was `> run 1"), "{problem}");
    }
}
