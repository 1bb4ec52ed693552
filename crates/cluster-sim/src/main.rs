//! Runs seeds of the simulated cluster; one seed with everything that happens in it.

use clap::Parser;
use cluster_sim::{Plan, Takeover};
use std::io::Write;

/// Run a cluster in virtual time, with faults drawn from seeds.
#[derive(Parser)]
#[command(after_help = "Examples:\n  cluster-sim --seeds 10000\n  cluster-sim --seed 17 --trace")]
struct Arguments {
    /// Run this seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Run the seeds from 0 up to this one.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// Print all that happens.
    #[arg(long)]
    trace: bool,
    /// With --seed: nothing is wrong but that the lead passes on to a standby after so many events under load
    #[arg(long, requires = "seed")]
    takeover_after: Option<u64>,
    /// With --takeover-after: the first scheduler is killed (0), told to end (1), hangs (2), or goes on deciding (3)
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..4))]
    takeover: u8,
    /// Do something wrong: the number of a bug.
    #[arg(long)]
    bug: Option<usize>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let mut out = std::io::stdout().lock();
    let bug = arguments.bug.and_then(|bug| cluster_sim::Bug::ALL.get(bug).copied());
    let seeds = match arguments.seed {
        Some(seed) => seed..seed + 1,
        None => 0..arguments.seeds,
    };
    let (mut failed, mut total) = (0, cluster_sim::Report::default());
    for seed in seeds {
        let how = Takeover::ALL[usize::from(arguments.takeover)];
        let plan =
            arguments.takeover_after.map_or_else(|| Plan::new(seed), |after| Plan::with_takeover(seed, after, how));
        if arguments.trace {
            writeln!(out, "{plan:#?}")?;
        }
        let mut lines = Vec::new();
        let mut keep = |at: policy::Time, what: String| lines.push(format!("{:10.6} {what}", at.nanos() as f64 / 1e9));
        let trace: Option<&mut dyn FnMut(policy::Time, String)> = if arguments.trace { Some(&mut keep) } else { None };
        let outcome = cluster_sim::run_plan(plan, seed, bug, trace);
        for line in lines {
            writeln!(out, "{line}")?;
        }
        match outcome {
            Ok(report) => {
                total.events += report.events;
                total.asked += report.asked;
                total.served += report.served;
                total.refused += report.refused;
                total.expired += report.expired;
                total.withdrawn += report.withdrawn;
                total.excused += report.excused;
            }
            Err(violation) => {
                failed += 1;
                writeln!(out, "seed {seed}: {violation}")?;
                if failed >= 20 {
                    break;
                }
            }
        }
    }
    writeln!(out, "{failed} failed; {total:?}")?;
    anyhow::ensure!(failed == 0, "keep what must hold");
    Ok(())
}
