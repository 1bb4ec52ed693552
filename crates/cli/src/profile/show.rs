//! `weft profile show`: a profile as a table of shares and batches.

use super::file::{text, wrong};
use crate::output::{print, print_json};
use anyhow::Result;
use config::profile::{Choice, Profile, Subject, Work};
use policy::surface::Point;
use report::columns::{align, row};
use report::numbers::{decimal, rate, share};
use std::io::Write;
use std::path::PathBuf;

/// Show a profile: requests a second for each percent of the GPU, by share and batch.
///
/// A star marks the choice. Points in parentheses take longer than the objective; a dash was not measured. For a model
/// without a GPU the table has requests a second by batch; for a training program, its speed by share.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// File that `weft profile` wrote
    #[arg(value_name = "FILE")]
    path: PathBuf,

    /// Print the profile as JSON, after checking it
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  weft profile show examples/11-profile/profile.json
  weft profile show examples/11-profile/profile.json --json | jq .choice";

pub(super) fn main(arguments: &Arguments) -> Result<()> {
    let path = &arguments.path;
    let profile = Profile::read(&text("profile", path)?).map_err(|error| wrong("profile", path, error))?;
    match arguments.json {
        true => print_json(&serde_json::from_str::<serde_json::Value>(&profile.write())?),
        false => print(&told(&profile)),
    }
}

/// A profile, for people.
pub(super) fn told(profile: &Profile) -> String {
    let Subject { model, gpu, driver } = &profile.subject;
    let what = if profile.work == Work::Requests { "model   " } else { "program " };
    let measured = profile.measured.map_or(String::new(), |date| format!("date    {date}\n"));
    let head = format!("{what}{model}\nGPU     {gpu}\ndriver  {driver}\n{measured}");
    match (profile.work, profile.subject.has_gpu()) {
        (Work::Requests, true) => format!(
            "{head}\nrequests a second for each percent of the GPU\n\n{}\n{}",
            surface(profile),
            chosen(profile)
        ),
        (Work::Requests, false) => format!("{head}\n{}\n{}", batches(profile), chosen(profile)),
        (Work::Launches | Work::Steps, _) => format!("{head}\n{}\n{}", shares(profile), worth(profile)),
    }
}

/// Of a model that uses no GPU.
fn batches(profile: &Profile) -> String {
    let mut rows = vec![row(["batch", "latency ms", "requests/s "])];
    for point in profile.surface.points() {
        let number = rate(point.throughput);
        let cells =
            [point.batch.to_string(), decimal(point.latency.millis(), 2), marked(number, point, profile.choice)];
        rows.push(cells.into());
    }
    align(&rows)
}

/// Of a training program.
fn shares(profile: &Profile) -> String {
    let points = profile.surface.points();
    let all = points.last().map_or(f64::NAN, |point| point.throughput);
    let mut rows = vec![vec!["share".to_owned(), format!("{}/s", profile.work.name()), "of all".to_owned()]];
    for point in points {
        rows.push(vec![point.share.to_string(), rate(point.throughput), share(point.throughput / all)]);
    }
    align(&rows)
}

fn worth(profile: &Profile) -> String {
    match profile.choice {
        Some(Choice { request, limit, .. }) => {
            format!("request {request} keeps 80% of what the whole GPU gives, limit {limit} keeps 98%\n")
        }
        None => "nothing is chosen: it gets nothing done\n".to_owned(),
    }
}

fn surface(profile: &Profile) -> String {
    let (batches, shares) = (profile.surface.batches(), profile.surface.shares());
    let mut rows = vec![vec!["share".to_owned()]];
    rows[0].extend(batches.iter().map(|batch| format!("batch {batch} ")));
    for share in shares {
        let mut row = vec![share.to_string()];
        for batch in &batches {
            let cell = |point: &Point| marked(rate(point.efficiency()), point, profile.choice);
            row.push(profile.surface.at(*batch, share).map_or("– ".to_owned(), cell));
        }
        rows.push(row);
    }
    align(&rows)
}

/// A number, and a star, a parenthesis or nothing, so that numbers stand below each other.
fn marked(number: String, point: &Point, choice: Option<Choice>) -> String {
    match choice {
        Some(choice) if (choice.batch, choice.request) == (point.batch, point.share) => format!("{number}*"),
        Some(choice) if choice.objective.is_some_and(|objective| point.latency > objective) => format!("({number})"),
        _ => format!("{number} "),
    }
}

fn chosen(profile: &Profile) -> String {
    let Some(choice) = profile.choice else {
        return "nothing is chosen: no point that was measured meets the objective\n".to_owned();
    };
    let Choice { batch, request, limit, objective } = choice;
    let point = profile.surface.at(batch, request).expect("a choice was measured");
    let (latency, rate) = (point.latency, rate(point.throughput));
    let late = objective.map_or(String::new(), |objective| format!("() takes longer than {objective}\n"));
    match profile.subject.has_gpu() {
        true => {
            format!(
                "* batch {batch} at {request}: {latency}, {rate} requests/s; request {request}, limit {limit}\n{late}"
            )
        }
        false => format!("* batch {batch}: {latency}, {rate} requests/s\n{late}"),
    }
}

/// Says something that is not the result.
pub(super) fn note(text: &str) {
    // Nobody is left to be told if this fails.
    let _ = writeln!(std::io::stderr(), "weft: {text}");
}

/// The result.
pub(super) fn tell(profile: &Profile, json: bool) -> Result<()> {
    match json {
        true => print_json(&serde_json::from_str::<serde_json::Value>(&profile.write())?),
        false => print(&told(profile)),
    }
}
