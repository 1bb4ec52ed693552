//! `weft store`: the deployments that a stopped server keeps, looked at and put right.

use crate::output::{Exit, print, print_json};
use crate::up::settings::Settings;
use anyhow::Result;
use clap::{Args, Subcommand};
use report::columns::{align, row};
use scheduler::Record;
use scheduler::store::{Repaired, Report, inspect, repair};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Check and repair the stored deployments of a stopped server.
///
/// `weft deploy` stores deployments in `deployments.txt` in the state folder of the server. An unreadable record makes one
/// model unavailable; a truncated file keeps the server from starting.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  weft store check
  weft store check --state /var/lib/weft --json
  weft store repair";

#[derive(Debug, Subcommand)]
enum Command {
    /// Check each record; exit code 1 if one is unreadable.
    ///
    /// Changes nothing. The server must be stopped.
    #[command(after_help = "Examples:\n  weft store check\n  weft store check --state /var/lib/weft --json")]
    Check(Place),
    /// Keep every readable record, and move the rest into a file beside it.
    ///
    /// The server must be stopped.
    #[command(after_help = "Examples:\n  weft store repair\n  weft store repair --state /var/lib/weft")]
    Repair(Place),
}

#[derive(Debug, Args)]
struct Place {
    /// State folder [default: that of weft.toml in this folder, else .weft]
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Place {
    fn folder(&self) -> Result<PathBuf> {
        match &self.state {
            Some(state) => Ok(std::path::absolute(state)?),
            None => Ok(Settings::find(None)?.state),
        }
    }
}

pub(crate) fn main(arguments: Arguments) -> Result<()> {
    match arguments.command {
        Command::Check(place) => {
            let report = inspect(&place.folder()?)?;
            match place.json {
                true => print_json(&json(&report))?,
                false => print(&words(&report))?,
            }
            match trouble(&report) {
                None => Ok(()),
                Some(text) => Err(Exit { code: 1, text }.into()),
            }
        }
        Command::Repair(place) => {
            let repaired = repair(&place.folder()?)?;
            match place.json {
                true => print_json(&repaired_json(&repaired)),
                false => print(&repaired_words(&repaired)),
            }
        }
    }
}

fn bad(report: &Report) -> impl Iterator<Item = (&Record, &String)> {
    report.records.iter().filter_map(|record| Some((record, record.content.as_ref().err()?)))
}

/// What is wrong, and what to do about it.
fn trouble(report: &Report) -> Option<String> {
    let count = bad(report).count();
    match &report.damage {
        Some(damage) => Some(format!("find a whole store: {damage}; `weft store repair` keeps what can be read")),
        None if count > 0 => Some(format!(
            "read {count} of {} records; deploy or undeploy those models, or run `weft store repair`",
            report.records.len()
        )),
        None => None,
    }
}

fn words(report: &Report) -> String {
    let Some(file) = &report.file else { return "nothing was deployed yet\n".into() };
    let mut rows = vec![row(["model", "version", "record", "why"])];
    for record in &report.records {
        let (state, why) = match &record.content {
            Ok(_) => ("ok", ""),
            Err(why) => ("bad", why.as_str()),
        };
        rows.push(row([&record.name, &record.version.to_string(), state, why]));
    }
    let damage = report.damage.as_ref().map_or_else(String::new, |damage| format!("the file is not whole: {damage}\n"));
    format!("{}\n{}{damage}", file.display(), if rows.len() > 1 { align(&rows) } else { "no deployments\n".into() })
}

fn json(report: &Report) -> Value {
    let record = |record: &Record| {
        json!({
            "name": record.name,
            "version": record.version,
            "ok": record.content.is_ok(),
            "reason": record.content.as_ref().err(),
        })
    };
    json!({
        "file": report.file,
        "ok": report.is_well(),
        "damage": report.damage,
        "records": report.records.iter().map(record).collect::<Vec<_>>(),
    })
}

fn repaired_words(repaired: &Repaired) -> String {
    let report = &repaired.before;
    if report.is_well() {
        return "nothing to repair: every record can be read\n".into();
    }
    let (all, lost) = (report.records.len(), bad(report).count());
    let mut told = format!("kept {} of {all} records\n", all - lost);
    for (record, why) in bad(report) {
        told += &format!("moved aside {} version {}: {why}\n", record.name, record.version);
    }
    match &repaired.aside {
        Some(aside) => told + &format!("what could not be kept is in {}\n", aside.display()),
        None => told,
    }
}

fn repaired_json(repaired: &Repaired) -> Value {
    let report = &repaired.before;
    let key = |record: &Record| json!({ "name": record.name, "version": record.version });
    let kept: Vec<Value> = report.records.iter().filter(|record| record.content.is_ok()).map(key).collect();
    let moved: Vec<Value> = bad(report)
        .map(|(record, why)| json!({ "name": record.name, "version": record.version, "reason": why }))
        .collect();
    json!({ "repaired": !report.is_well(), "kept": kept, "moved": moved, "aside": repaired.aside })
}
