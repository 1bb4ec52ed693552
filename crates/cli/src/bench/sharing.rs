//! `weft bench sharing`: pairs of programs in every way to share a GPU, beside what each does alone.

use crate::output::{Misuse, WholeFile, print, reason};
use anyhow::{Context, Result};
use bench_sharing::{
    BUILT_IN, MANY, Options, Pair, Plan, Report, Results, all_settings, list_plan, read_pairs, select_settings,
};
use clap::Args;
use harness::Interrupt;
use policy::Span;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Measure pairs of programs on a GPU in every way to share it.
///
/// A pair is a latency program and a best-effort program. The benchmark measures each alone, and both together in every
/// setting: the driver's time slices, MPS, published controllers, Weft. Each round begins with another setting, and ratios
/// compare runs of one round, so that a machine that drifts changes nothing. For every pair the report has ratios to
/// alone: throughput and latency of the latency program, both with one request after the other and with requests at random
/// at --load; throughput of the best-effort program; and the sum of both. A setting that the machine refuses is reported
/// and skipped.
///
/// A program prints `ready` and then answers each order with its latencies, as a line of JSON; bench/workloads/workload.py
/// describes the lines.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// File with a pair per line, `name = LATENCY COMMAND | BEST-EFFORT COMMAND` [default: built in]. `8 x COMMAND` starts
    /// eight copies, `--slo 3ms LATENCY COMMAND` sets an objective under Weft, `--request 5% BEST-EFFORT COMMAND` a share
    /// there, and `{workloads}` stands for the folder of --workloads. Spaces separate words
    #[arg(long, value_name = "FILE")]
    pairs: Option<PathBuf>,
    /// Pairs to measure, separated by commas [default: all but `many`]
    #[arg(long = "pair", value_name = "NAME,...", value_delimiter = ',')]
    names: Vec<String>,
    /// Also measure the built-in pair `many`: eight latency programs and two trainings on one GPU
    #[arg(long, conflicts_with = "pairs")]
    many: bool,
    /// Folder of the programs in built-in pairs
    #[arg(long, value_name = "DIR", default_value = "bench/workloads")]
    workloads: PathBuf,
    /// Settings to measure besides `alone`, separated by commas [default: all]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    settings: Vec<String>,
    /// Percentages of the SMs for best-effort clients of MPS, one setting for each
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', default_value = "90,75")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=100))]
    sms: Vec<u8>,
    /// Number of rounds; where a machine drifts, many short rounds say more than few long ones
    #[arg(long, value_name = "N", default_value = "3", value_parser = rounds)]
    rounds: usize,
    /// Length of each run with one request after the other
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    seconds: f64,
    /// Length of each run with requests at random
    #[arg(long, value_name = "SECONDS", default_value = "4", value_parser = seconds)]
    poisson_seconds: f64,
    /// Length of each run in which the latency programs are idle; a training with long steps needs a long one [default: as
    /// --seconds]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    idle_seconds: Option<f64>,
    /// Period in which best-effort programs under Weft are suspended and resumed within a run. Compares latencies within
    /// one run, for a host that is faster in one second than in the next [default: compare with a run before or after]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    alternate: Option<f64>,
    /// New processes of the latency programs in each round: two processes of one program may differ by some percent
    #[arg(long, alias = "anew")]
    restart_each_round: bool,
    /// Rate of the requests at random, in percent of what the latency programs answer alone
    #[arg(long, value_name = "PERCENT", default_value = "50", value_parser = load)]
    load: f64,
    /// Longest latency that counts for goodput, such as 40ms; also for results of --from [default: twice the 99th
    /// percentile alone]
    #[arg(long, value_name = "TIME", value_parser = objective)]
    objective: Option<Span>,
    /// Time for which programs are busy before each measurement
    #[arg(long, alias = "lead", value_name = "SECONDS", default_value = "1.2", value_parser = seconds)]
    warmup: f64,
    /// Seed of the requests at random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Number of programs that start at the same time
    #[arg(long, value_name = "N", default_value = "4", value_parser = rounds)]
    at_once: usize,
    /// Longest time until a program is ready
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = seconds)]
    start_patience: f64,
    /// Longest time until a program answers after the end of a run
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    patience: f64,
    /// File for everything that was measured, as JSON
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// File for charts, as an HTML page
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// File for tables, as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Results to report instead of measuring: files that --output wrote, separated by commas. Pairs that were measured in
    /// the same settings and in the same way are combined
    #[arg(long, value_name = "FILE,...", value_delimiter = ',', conflicts_with_all = ["pairs", "names", "many", "settings", "list"])]
    from: Vec<PathBuf>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    /// List the pairs and settings, and measure nothing
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
        return print(&list_plan(&plan));
    }
    // The library would be in every program, native ones included.
    if std::env::var_os("WEFT_TENANT").is_some() {
        return Err(Misuse(
            "measure: this command runs under a share itself; start `weft bench` without `weft run`".into(),
        )
        .into());
    }
    let mut results = plan.results(command(arguments));
    let interrupt = Interrupt::listen()?;
    // What there is may be hours of work. Whether it can be written is said at the end.
    let keep = |results: &Results| drop(files.keep(results));
    let measured = bench_sharing::measure(&plan, &interrupt, &mut results, &keep);
    let written = if measured.is_ok() || !results.is_empty() { files.write(&results, arguments.json) } else { Ok(()) };
    measured.and(written)
}

/// The files to be written.
#[derive(Debug)]
struct Files {
    output: Option<WholeFile>,
    plot: Option<WholeFile>,
    markdown: Option<WholeFile>,
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
        write(&self.output, "the results", || Report::new(results).file().context("write JSON"))
    }

    fn write(&self, results: &Results, json: bool) -> Result<()> {
        self.keep(results)?;
        let report = Report::new(results);
        write(&self.plot, "the charts", || Ok(report.page()))?;
        write(&self.markdown, "the tables", || Ok(report.markdown()))?;
        match json {
            true => print(&report.json().context("write JSON")?),
            false => print(&report.text()),
        }
    }
}

fn write(file: &Option<WholeFile>, what: &str, text: impl Fn() -> Result<String>) -> Result<()> {
    match file {
        Some(file) => file.write(&text()?).map_err(|reason| anyhow::anyhow!("write {what}: {reason}")),
        None => Ok(()),
    }
}

fn read(path: &Path) -> Result<Results> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| Misuse(format!("read {shown}: {}", reason(&error))))?;
    Results::read(&text)
        .map_err(|error| Misuse(format!("read {shown}: it is not what --output writes: {error}")).into())
}

/// What --from names, put together. What is good can be said anew: every latency is there.
fn measured_before(arguments: &Arguments) -> Result<Option<Results>> {
    let Some((first, others)) = arguments.from.split_first() else { return Ok(None) };
    let mut results = read(first)?;
    for path in others {
        let problem = |problem| Misuse(format!("put {} to {}: {problem}", path.display(), first.display()));
        results.add(read(path)?).map_err(problem)?;
    }
    results.set_objective(arguments.objective);
    Ok(Some(results))
}

/// What was typed becomes what it means.
fn plan(arguments: &Arguments) -> Result<Plan, Misuse> {
    let settings = select_settings(all_settings(&arguments.sms), &arguments.settings);
    let plan = Plan {
        pairs: chosen(arguments)?,
        settings: settings.map_err(|problem| Misuse(format!("choose settings: {problem}")))?,
        options: Options {
            rounds: arguments.rounds,
            closed_seconds: arguments.seconds,
            poisson_seconds: arguments.poisson_seconds,
            idle_seconds: arguments.idle_seconds,
            alternate_seconds: arguments.alternate,
            restart_each_round: arguments.restart_each_round,
            poisson_load: arguments.load / 100.0,
            objective_ms: arguments.objective.map(Span::millis),
            warmup_seconds: arguments.warmup,
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
        None => (BUILT_IN.to_owned(), "the built-in pairs".to_owned()),
        Some(path) => {
            let shown = path.display().to_string();
            let text = std::fs::read_to_string(path);
            (text.map_err(|error| Misuse(format!("read {shown}: {}", reason(&error))))?, shown)
        }
    };
    let all = read_pairs(&text).map_err(|problem| Misuse(format!("read {shown}: {problem}")))?;
    let names = &arguments.names;
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|pair| pair.name != **name)) {
        let known: Vec<&str> = all.iter().map(|pair| pair.name.as_str()).collect();
        return Err(Misuse(format!("choose pairs: there is no pair `{unknown}`; there are {}", known.join(", "))));
    }
    let built_in = arguments.pairs.is_none();
    let wanted = |pair: &Pair| match names.is_empty() {
        _ if built_in && pair.name == MANY && arguments.many => true,
        true => !(built_in && pair.name == MANY),
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
    add("--warmup", arguments.warmup.to_string(), "1.2");
    add("--seed", arguments.seed.to_string(), "1");
    let switches = [("--restart-each-round", arguments.restart_each_round), ("--many", arguments.many)];
    words.extend(switches.iter().filter(|(_, set)| *set).map(|(flag, _)| (*flag).to_owned()));
    words.join(" ")
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
    fn flags_of_the_last_version_still_work() {
        let arguments = typed(&["--anew", "--lead", "0.5"]);
        assert!(arguments.restart_each_round && arguments.warmup == 0.5);
        assert_eq!(command(&arguments), "weft bench sharing --rounds 3 --warmup 0.5 --restart-each-round");
    }

    #[test]
    fn a_file_of_something_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sharing.json");
        std::fs::write(&path, "{}").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("it is not what --output writes"));
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
