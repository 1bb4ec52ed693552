//! `weft doctor`: what this machine can do, and what to do about what it cannot.

mod finding;
mod exports;
mod machine;
mod probe;

use crate::output::{print, print_json};
use anyhow::Result;
use clap::Args;
use finding::{Finding, Health};

/// Check whether this machine can share GPUs, and say how to fix each problem.
///
/// Checks the driver, the GPUs, permissions, MPS, the library and the daemon, and runs a small program under a share to
/// see which driver functions the library intercepts. The exit code is 1 if a check finds something broken.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  weft doctor\n  weft doctor --json")]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn main(arguments: Arguments) -> Result<()> {
    let (mut findings, can_probe) = machine::look();
    if can_probe {
        findings.extend(probe::look());
    } else {
        let advice = "put right what is broken above, and run this again";
        findings.push(Finding::other("functions", Health::Skipped, "no program was run", advice));
    }
    let broken = findings.iter().filter(|finding| finding.health == Health::Broken).count();
    if arguments.json {
        print_json(&serde_json::json!({ "findings": findings, "broken": broken }))?;
    } else {
        print(&text(&findings))?;
    }
    anyhow::ensure!(broken == 0, "pass every check: {broken} found broken, see above");
    Ok(())
}

fn text(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.what.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Finding { what, health, found, advice } in findings {
        let word = match health {
            Health::Good => "ok     ",
            Health::Limited => "limited",
            Health::Broken => "BROKEN ",
            Health::Skipped => "skipped",
        };
        text.push_str(&format!("{word}  {what:width$}  {found}\n"));
        if let Some(advice) = advice {
            text.push_str(&format!("{:9}{:width$}  -> {advice}\n", "", ""));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_line_up_and_say_what_to_do() {
        let findings =
            [Finding::good("driver", "580.1"), Finding::other("mps", Health::Limited, "it is on", "stop it")];
        let expected = "ok       driver  580.1\nlimited  mps     it is on\n                 -> stop it\n";
        assert_eq!(text(&findings), expected);
    }
}
