//! `weft bench sharing`: pairs of programs in every way to share a GPU, beside what each does alone.

mod pairs;
mod prediction;
mod settings;
mod plan;
mod measure;
mod daemons;
mod latencies;
mod results;
mod figures;
mod glances;
mod alternation;
mod columns;
mod text;
mod markdown;
mod plot;

use crate::output::{Misuse, WholeFile, print, print_json, reason};
use crate::table::{align, row};
use crate::workload::interrupt::Interrupt;
use anyhow::{Context, Result};
use clap::Args;
use figures::{PairFigures, figures};
use pairs::Pair;
use plan::Plan;
use policy::Span;
use results::{Machine, Options, Results};
use serde::Serialize;
use settings::Setting;
use share_client::Gpus;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Measure pairs of programs on a GPU in every way to share it.
///
/// A pair is a latency program and a best-effort program. Each is measured alone, and together in every setting: the
/// driver's time slices, MPS, published controllers, Weft. Rounds begin with another setting each, and ratios are taken
/// within a round, so that a machine that drifts changes nothing. For every pair prints the ratios to alone: throughput
/// and latency of the latency side, one request after the other and at random at --load of its capacity; throughput of
/// the best-effort side; and the sum of both. What the machine refuses is said and skipped.
///
/// A program says `ready` and answers orders with latencies, a line of JSON each; bench/workloads/workload.py says how.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Read pairs from a file with lines `name = LATENCY COMMAND | BEST-EFFORT COMMAND`; `8 x COMMAND` is eight of them,
    /// `--slo 3ms COMMAND` one with an objective under Weft, `{workloads}` stands for the folder of --workloads, and words
    /// are separated by spaces [default: built in]
    #[arg(long, value_name = "FILE")]
    pairs: Option<PathBuf>,
    /// Pairs to measure, separated by commas [default: all of them, but for `many`]
    #[arg(long = "pair", value_name = "NAME,...", value_delimiter = ',')]
    names: Vec<String>,
    /// Measure the built-in pair `many`, too: eight latency programs and two trainings on one GPU
    #[arg(long, conflicts_with = "pairs")]
    many: bool,
    /// The folder of the programs in built-in pairs
    #[arg(long, value_name = "DIR", default_value = "bench/workloads")]
    workloads: PathBuf,
    /// Settings to measure, separated by commas; `alone` always is [default: all of them]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    settings: Vec<String>,
    /// Percentages of SMs for best-effort clients of MPS, a setting each
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', default_value = "90,75")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=100))]
    sms: Vec<u8>,
    /// How often everything is measured; many short rounds say more than few long ones where a machine drifts
    #[arg(long, value_name = "N", default_value = "3", value_parser = rounds)]
    rounds: usize,
    /// Seconds of each run with one request after the other
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    seconds: f64,
    /// Seconds of each run with requests at random
    #[arg(long, value_name = "SECONDS", default_value = "4", value_parser = seconds)]
    poisson_seconds: f64,
    /// Seconds of each run in which the latency programs have nothing to do; a training with long steps needs many
    /// [default: as --seconds]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    idle_seconds: Option<f64>,
    /// Suspend best-effort programs under Weft and let them go on every so many seconds within a run, instead of comparing
    /// with a run before or after it, where a host is faster in one second than in the next
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    alternate: Option<f64>,
    /// Start latency programs anew in every round: two processes of one program may differ by some percent, which rounds
    /// with the same two do not show
    #[arg(long)]
    anew: bool,
    /// Requests at random, in percent of what latency programs do alone one after the other
    #[arg(long, value_name = "PERCENT", default_value = "50", value_parser = load)]
    load: f64,
    /// How long a request may take to count for goodput, as 40ms, of what --from reads, too [default: twice the 99th
    /// percentile alone]
    #[arg(long, value_name = "TIME", value_parser = objective)]
    objective: Option<Span>,
    /// Seconds for which programs are busy before they are measured
    #[arg(long, value_name = "SECONDS", default_value = "1.2", value_parser = seconds)]
    lead: f64,
    /// Seed of the requests at random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Programs that start at the same time
    #[arg(long, value_name = "N", default_value = "4", value_parser = rounds)]
    at_once: usize,
    /// Seconds that a program may take until it is ready
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = seconds)]
    start_patience: f64,
    /// Seconds that a program may take to answer when the time of a run is over
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    patience: f64,
    /// Write everything that was measured to this file, as JSON
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write charts to this file, as an HTML page
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Write tables to this file, as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Measure nothing and use what --output wrote to these files, separated by commas; pairs that were measured in the
    /// same settings and in the same way may be put together
    #[arg(long, value_name = "FILE,...", value_delimiter = ',', conflicts_with_all = ["pairs", "names", "many", "settings", "list"])]
    from: Vec<PathBuf>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    /// Print the pairs and settings that would be measured, and measure nothing
    #[arg(long)]
    list: bool,
}

const EXAMPLES: &str = "\
Examples:
  weft bench sharing --list
  weft bench sharing --pair resnet50-gpt2 --settings default,mps,weft --output sharing.json
  weft bench sharing --pairs my-pairs.txt --plot sharing.html
  weft bench sharing --from sharing.json --markdown docs/benchmarks/sharing.md";

pub(super) fn main(arguments: &Arguments) -> Result<()> {
    let files = Files::new(arguments)?;
    if let Some(results) = measured_before(arguments)? {
        return files.write(&results, arguments.json);
    }
    let plan = plan(arguments)?;
    if arguments.list {
        return print(&list(&plan));
    }
    // The library would be in every program, native ones included.
    if std::env::var_os("WEFT_TENANT").is_some() {
        return Err(Misuse("measure under a share: start `weft bench` without `weft run`".into()).into());
    }
    let mut results = Results {
        command: command(arguments),
        weft: env!("CARGO_PKG_VERSION").into(),
        machine: machine(),
        options: plan.options.clone(),
        pairs: plan.pairs.clone(),
        settings: plan.settings.iter().map(|setting| setting.name.clone()).collect(),
        refusals: Vec::new(),
        solos: Vec::new(),
        runs: Vec::new(),
    };
    let interrupt = Interrupt::listen()?;
    // What there is may be hours of work. Whether it can be written is said at the end.
    let keep = |results: &Results| drop(files.keep(results));
    let measured = measure::measure(&plan, &interrupt, &mut results, &keep);
    let written =
        if measured.is_ok() || !results.runs.is_empty() { files.write(&results, arguments.json) } else { Ok(()) };
    measured.and(written)
}

/// The files to be written.
#[derive(Debug)]
struct Files {
    output: Option<WholeFile>,
    plot: Option<WholeFile>,
    markdown: Option<WholeFile>,
}

/// What `--output` writes: what was measured and, for whoever reads the file, what comes of it.
#[derive(Debug, Serialize)]
struct Written<'a> {
    #[serde(flatten)]
    results: &'a Results,
    figures: &'a [PairFigures],
}

impl Files {
    /// Finds out whether they can be written, before anything is measured.
    fn new(arguments: &Arguments) -> Result<Files, Misuse> {
        let file = |path: &Option<PathBuf>| {
            let file = |path: &PathBuf| {
                WholeFile::new(path).map_err(|reason| Misuse(format!("write {}: {reason}", path.display())))
            };
            path.as_ref().map(file).transpose()
        };
        Ok(Files {
            output: file(&arguments.output)?,
            plot: file(&arguments.plot)?,
            markdown: file(&arguments.markdown)?,
        })
    }

    /// Writes what was measured so far.
    fn keep(&self, results: &Results) -> Result<()> {
        let Some(file) = &self.output else { return Ok(()) };
        let written = Written { results, figures: &figures(results) };
        let text = serde_json::to_string_pretty(&written).context("write JSON")? + "\n";
        file.write(&text).map_err(|reason| anyhow::anyhow!("write the results: {reason}"))
    }

    fn write(&self, results: &Results, json: bool) -> Result<()> {
        let figures = figures(results);
        self.keep(results)?;
        let write = |file: &Option<WholeFile>, what: &str, text: &dyn Fn() -> Result<String>| match file {
            Some(file) => file.write(&text()?).map_err(|reason| anyhow::anyhow!("write {what}: {reason}")),
            None => Ok(()),
        };
        write(&self.plot, "the charts", &|| Ok(plot::page(results, &figures)))?;
        write(&self.markdown, "the tables", &|| Ok(markdown::page(results, &figures, meaning)))?;
        match json {
            true => print_json(&figures),
            false => print(&text::text(results, &figures)),
        }
    }
}

fn read(path: &Path) -> Result<Results> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| Misuse(format!("read {shown}: {}", reason(&error))))?;
    let results = serde_json::from_str(&text);
    results.map_err(|error| Misuse(format!("read {shown}: it is not what --output writes: {error}")).into())
}

/// What --from names, put together. What is good can be said anew: every latency is there.
fn measured_before(arguments: &Arguments) -> Result<Option<Results>> {
    let Some((first, others)) = arguments.from.split_first() else { return Ok(None) };
    let mut results = read(first)?;
    for path in others {
        let problem = |problem| Misuse(format!("put {} to {}: {problem}", path.display(), first.display()));
        results.add(read(path)?).map_err(problem)?;
    }
    results.options.objective_ms = arguments.objective.map(millis).or(results.options.objective_ms);
    Ok(Some(results))
}

fn millis(span: Span) -> f64 {
    span.seconds() * 1e3
}

/// What was typed becomes what it means.
fn plan(arguments: &Arguments) -> Result<Plan, Misuse> {
    let settings = settings::select(settings::all(&arguments.sms), &arguments.settings);
    let plan = Plan {
        pairs: chosen(arguments)?,
        settings: settings.map_err(|problem| Misuse(format!("choose settings: {problem}")))?,
        options: Options {
            rounds: arguments.rounds,
            closed_seconds: arguments.seconds,
            poisson_seconds: arguments.poisson_seconds,
            idle_seconds: arguments.idle_seconds,
            alternate_seconds: arguments.alternate,
            anew: arguments.anew,
            poisson_load: arguments.load / 100.0,
            objective_ms: arguments.objective.map(millis),
            lead_seconds: arguments.lead,
            seed: arguments.seed,
        },
        workloads: arguments.workloads.display().to_string(),
        at_once: arguments.at_once,
        start_patience: Duration::from_secs_f64(arguments.start_patience),
        answer_patience: Duration::from_secs_f64(arguments.patience),
    };
    plan.check_alternation().map_err(|problem| Misuse(format!("alternate: {problem}")))?;
    let built_in = arguments.pairs.is_none() && !arguments.list;
    let program = arguments.workloads.join("workload.py");
    if built_in && !program.is_file() {
        let shown = program.display();
        return Err(Misuse(format!("find {shown}: it is not there; say where bench/workloads is with --workloads")));
    }
    Ok(plan)
}

/// The pairs to measure, in the order of the file.
fn chosen(arguments: &Arguments) -> Result<Vec<Pair>, Misuse> {
    let (text, shown) = match &arguments.pairs {
        None => (pairs::BUILT_IN.to_owned(), "the built-in pairs".to_owned()),
        Some(path) => {
            let shown = path.display().to_string();
            let text = std::fs::read_to_string(path);
            (text.map_err(|error| Misuse(format!("read {shown}: {}", reason(&error))))?, shown)
        }
    };
    let all = pairs::read(&text).map_err(|problem| Misuse(format!("read {shown}: {problem}")))?;
    let names = &arguments.names;
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|pair| pair.name != **name)) {
        let known: Vec<&str> = all.iter().map(|pair| pair.name.as_str()).collect();
        return Err(Misuse(format!("choose pairs: there is no pair `{unknown}`; there are {}", known.join(", "))));
    }
    let built_in = arguments.pairs.is_none();
    let wanted = |pair: &Pair| match names.is_empty() {
        _ if built_in && pair.name == pairs::MANY && arguments.many => true,
        true => !(built_in && pair.name == pairs::MANY),
        false => names.contains(&pair.name),
    };
    Ok(all.into_iter().filter(wanted).collect())
}

/// What a person would type to measure the same, without where files are on this machine.
fn command(arguments: &Arguments) -> String {
    let mut words = vec!["weft bench sharing".to_owned()];
    let mut add = |flag: &str, value: String, default: &str| {
        if value != default {
            words.push(format!("{flag} {value}"));
        }
    };
    // As it was typed, unless it says where things are on this machine.
    let shown =
        |path: &PathBuf| if path.is_absolute() { path.file_name().map(PathBuf::from) } else { Some(path.clone()) };
    if let Some(file) = arguments.pairs.as_ref().and_then(shown) {
        add("--pairs", file.display().to_string(), "");
    }
    add("--pair", arguments.names.join(","), "");
    add("--settings", arguments.settings.join(","), "");
    add("--sms", arguments.sms.iter().map(u8::to_string).collect::<Vec<_>>().join(","), "90,75");
    add("--rounds", arguments.rounds.to_string(), "");
    add("--seconds", arguments.seconds.to_string(), "2");
    add("--poisson-seconds", arguments.poisson_seconds.to_string(), "4");
    add("--alternate", arguments.alternate.map(|seconds| seconds.to_string()).unwrap_or_default(), "");
    add("--idle-seconds", arguments.idle_seconds.map(|seconds| seconds.to_string()).unwrap_or_default(), "");
    add("--load", arguments.load.to_string(), "50");
    add("--objective", arguments.objective.map(|objective| objective.to_string()).unwrap_or_default(), "");
    add("--lead", arguments.lead.to_string(), "1.2");
    add("--seed", arguments.seed.to_string(), "1");
    let switches = [("--anew", arguments.anew), ("--many", arguments.many)];
    words.extend(switches.iter().filter(|(_, set)| *set).map(|(flag, _)| (*flag).to_owned()));
    words.join(" ")
}

fn machine() -> Machine {
    let gpus = Gpus::find();
    let names: Vec<String> = gpus.gpus.iter().map(|gpu| gpu.name.clone()).collect();
    let information = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = information.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    Machine {
        gpu: if names.is_empty() { "no GPU that NVML knows".into() } else { names.join(", ") },
        driver: gpus.driver.unwrap_or_else(|| "unknown".into()),
        cpu: model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, model)| model.trim().to_owned()),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
    }
}

fn list(plan: &Plan) -> String {
    let mut pairs = vec![row(["pair", ""])];
    pairs.extend(
        plan.pairs.iter().map(|pair| vec![pair.name.clone(), format!("{} | {}", pair.latency, pair.best_effort)]),
    );
    let world = |setting: &Setting| setting.best_effort.map_or("nobody".to_owned(), |world| world.to_string());
    let mut settings = vec![row(["setting", "latency", "best-effort", "sharing", ""])];
    settings.extend(plan.settings.iter().map(|setting| {
        let sharing = setting.sharing.unwrap_or("–").to_owned();
        vec![setting.name.clone(), setting.latency.to_string(), world(setting), sharing, setting.meaning.to_owned()]
    }));
    format!("{}\n{}", left(&pairs), left(&settings))
}

/// Columns of words, which begin where the column does.
fn left(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let pad =
        |row: &Vec<String>| row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect::<Vec<_>>();
    align(&rows.iter().map(pad).collect::<Vec<_>>())
}

/// What a setting is, in a few words.
fn meaning(name: &str) -> Option<&'static str> {
    let sms: Vec<u8> = name.strip_prefix("mps-sms-").and_then(|percent| percent.parse().ok()).into_iter().collect();
    settings::all(&sms).iter().find(|setting| setting.name == name).map(|setting| setting.meaning)
}

fn rounds(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=1000).contains(number));
    number.ok_or_else(|| "expected a whole number from 1 to 1000".into())
}

fn load(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (1.0..=1000.0).contains(number));
    number.ok_or_else(|| "expected a percentage, from 1 to 1000".into())
}

fn objective(text: &str) -> Result<Span, String> {
    let span = text.parse().ok().filter(|span| (Span::from_micros(10)..=Span::from_secs(60)).contains(span));
    span.ok_or_else(|| "expected a time from 10us to 60s, as 40ms".into())
}

fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.01..=3600.0).contains(number));
    number.ok_or_else(|| "expected seconds, from 0.01 to 3600".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn typed(words: &[&str]) -> Arguments {
        Typed::try_parse_from(std::iter::once(&"sharing").chain(words)).unwrap().arguments
    }

    #[test]
    fn many_programs_are_measured_when_asked_for() {
        let names = |words: &[&str]| -> Vec<String> {
            chosen(&typed(words)).unwrap().into_iter().map(|pair| pair.name).collect()
        };
        assert_eq!(names(&[]), ["resnet50-gpt2", "resnet50-graph-resnet50", "bert8-graph-gpt2", "gpt2-bert"]);
        assert_eq!(names(&["--many"]).last().unwrap(), "many");
        assert_eq!(names(&["--pair", "many"]), ["many"]);
        assert_eq!(names(&["--pair", "gpt2-bert,resnet50-gpt2"]), ["resnet50-gpt2", "gpt2-bert"]);
        let unknown = chosen(&typed(&["--pair", "none"])).unwrap_err().0;
        assert!(unknown.starts_with("choose pairs: there is no pair `none`; there are resnet50-gpt2, "), "{unknown}");
    }

    #[test]
    fn the_command_names_no_folder_of_this_machine() {
        assert_eq!(command(&typed(&[])), "weft bench sharing --rounds 3");
        let words = ["--pairs", "/some/where/pairs.txt", "--workloads", "/else", "--sms", "50", "--seconds", "0.5"];
        assert_eq!(command(&typed(&words)), "weft bench sharing --pairs pairs.txt --sms 50 --rounds 3 --seconds 0.5");
        assert_eq!(
            command(&typed(&["--many", "--settings", "weft", "--load", "120", "--objective", "40ms"])),
            "weft bench sharing --settings weft --rounds 3 --load 120 --objective 40ms --many"
        );
    }

    #[test]
    fn what_was_written_can_be_read_again() {
        let results = figures::tests::sample();
        let written = Written { results: &results, figures: &figures(&results) };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sharing.json");
        std::fs::write(&path, serde_json::to_string_pretty(&written).unwrap()).unwrap();
        let again = read(&path).unwrap();
        let page = |results: &Results| markdown::page(results, &figures(results), meaning);
        assert_eq!(page(&again), page(&results));
        let from = path.to_str().unwrap();
        let objective = |words: &[&str]| measured_before(&typed(words)).unwrap().unwrap().options.objective_ms;
        assert_eq!(objective(&["--from", from]), None);
        assert_eq!(objective(&["--from", from, "--objective", "40ms"]), Some(40.0));
        std::fs::write(&path, "{}").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("it is not what --output writes"));
    }

    #[test]
    fn every_setting_has_a_meaning() {
        assert_eq!(meaning("mps"), Some("MPS"));
        assert!(meaning("mps-sms-33").is_some());
        assert_eq!(meaning("none"), None);
        let list = list(&plan(&typed(&["--list", "--settings", "default,weft"])).unwrap());
        assert!(list.contains("default  native   native       –"), "{list}");
    }

    #[test]
    fn times_and_counts_are_checked() {
        assert_eq!((seconds("0.3"), rounds("3")), (Ok(0.3), Ok(3)));
        for text in ["", "0", "-1", "nan", "inf", "3601", "x"] {
            assert!(seconds(text).is_err() && rounds(text).is_err(), "{text}");
            assert!(load(text).is_err() && objective(text).is_err(), "{text}");
        }
        assert_eq!((load("120"), objective("40ms")), (Ok(120.0), Ok(Span::from_millis(40))));
    }
}
