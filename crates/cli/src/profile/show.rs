//! `weft profile show`: a profile as a table of shares and batches.

use super::{text, wrong};
use crate::output::{print, print_json};
use crate::page::text::rate;
use crate::table::align;
use anyhow::Result;
use policy::surface::Point;
use rpc::profile::{Choice, Profile};
use std::path::PathBuf;

/// Show what a profile holds: requests a second for each percent of the GPU, by share and batch.
///
/// The choice is marked with a star. Points in parentheses take longer than the objective; a dash was not measured.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// The profile, a file that `weft profile --save` wrote
    #[arg(value_name = "FILE")]
    path: PathBuf,

    /// Print the profile as it is written, once it is known to make sense
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

fn told(profile: &Profile) -> String {
    let rpc::profile::Subject { model, gpu, driver } = &profile.subject;
    format!(
        "model   {model}\nGPU     {gpu}\ndriver  {driver}\n\nrequests a second for each percent of the GPU\n\n{}\n{}",
        surface(profile),
        chosen(profile)
    )
}

fn surface(profile: &Profile) -> String {
    let (batches, shares) = (profile.surface.batches(), profile.surface.shares());
    let mut rows = vec![vec!["share".to_owned()]];
    rows[0].extend(batches.iter().map(|batch| format!("batch {batch} ")));
    for share in shares {
        let mut row = vec![share.to_string()];
        for batch in &batches {
            row.push(profile.surface.at(*batch, share).map_or("– ".to_owned(), |point| cell(point, profile.choice)));
        }
        rows.push(row);
    }
    align(&rows)
}

/// A number, and a star, a parenthesis or nothing, so that numbers stand below each other.
fn cell(point: &Point, choice: Option<Choice>) -> String {
    let number = rate(point.efficiency());
    match choice {
        Some(choice) if (choice.batch, choice.request) == (point.batch, point.share) => format!("{number}*"),
        Some(choice) if point.latency > choice.objective => format!("({number})"),
        _ => format!("{number} "),
    }
}

fn chosen(profile: &Profile) -> String {
    let Some(choice) = profile.choice else {
        return "nothing is chosen: no point that was measured meets the objective\n".to_owned();
    };
    let point = profile.surface.at(choice.batch, choice.request).expect("a choice was measured");
    format!(
        "* batch {} at {}: {}, {} requests/s; request {}, limit {}\n() takes longer than {}\n",
        choice.batch,
        choice.request,
        point.latency,
        rate(point.throughput),
        choice.request,
        choice.limit,
        choice.objective
    )
}
