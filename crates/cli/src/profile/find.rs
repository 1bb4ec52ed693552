//! `weft profile --from-grid`: a search over measurements that are there already.

use super::file::{text, wrong};
use crate::output::{Misuse, WholeFile, print, print_json};
use anyhow::Result;
use config::profile::{Profile, Subject, Work};
use policy::Span;
use policy::surface::{Point, Share, Surface};
use profiler::{Found, search_grid};
use report::columns::{align, row};
use report::numbers::{decimal, rate};
use serde::Serialize;
use serde_json::Number;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[group(id = "grid")]
pub(super) struct Arguments {
    /// CSV file of measurements, with rows of batch, SM percent, latency in seconds, requests a second
    #[arg(long, value_name = "FILE")]
    from_grid: Option<PathBuf>,

    /// File for a profile made of the grid; needs --model, --gpu and --driver
    #[arg(long, value_name = "FILE", requires_all = ["from_grid", "model", "gpu", "driver"])]
    save: Option<PathBuf>,

    /// Digest of the model's files, for --save
    #[arg(long, value_name = "DIGEST", requires = "save")]
    model: Option<String>,

    /// Driver version, for --save
    #[arg(long, value_name = "VERSION", requires = "save")]
    driver: Option<String>,
}

/// What else was asked for.
pub(super) struct Asked<'a> {
    pub(super) slo: Span,
    pub(super) gpu: Option<&'a str>,
    pub(super) json: bool,
}

/// What `--json` prints; shares in percent, efficiencies in requests a second for each percent.
#[derive(Debug, Serialize)]
struct Report {
    batch: usize,
    share: Number,
    probes: usize,
    efficiency: f64,
    best_batch: usize,
    best_share: Number,
    best_efficiency: f64,
}

pub(super) fn main(arguments: &Arguments, asked: &Asked<'_>) -> Result<()> {
    let Some(path) = &arguments.from_grid else {
        return Err(Misuse("find a grid: name one with --from-grid".to_owned()).into());
    };
    let objective = asked.slo;
    let surface = Surface::from_csv(&text("grid", path)?).map_err(|error| wrong("grid", path, error))?;
    let found = search_grid(&surface, objective)
        .map_err(|problem| Misuse(format!("find a point of {} within {objective}: {problem}", path.display())))?;
    if let (Some(file), Some(model), Some(gpu), Some(driver)) =
        (&arguments.save, &arguments.model, asked.gpu, &arguments.driver)
    {
        let subject = Subject { model: model.clone(), gpu: gpu.to_owned(), driver: driver.clone() };
        let (surface, choice) = (surface.clone(), Some(found.choice(objective)));
        let profile = Profile { subject, measured: None, work: Work::Requests, surface, choice };
        let refused = |problem: String| Misuse(format!("write profile {}: {problem}", file.display()));
        WholeFile::new(file).and_then(|whole| whole.write(&profile.write())).map_err(refused)?;
    }
    match asked.json {
        true => print_json(&report(&found)),
        false => print(&told(&surface, &found)),
    }
}

fn report(found: &Found) -> Report {
    Report {
        batch: found.point.batch,
        share: number(found.point.share),
        probes: found.probes,
        efficiency: found.point.efficiency(),
        best_batch: found.best.batch,
        best_share: number(found.best.share),
        best_efficiency: found.best.efficiency(),
    }
}

/// A share in percent, without a fraction where there is none.
fn number(share: Share) -> Number {
    let whole = share.permille().is_multiple_of(10).then(|| Number::from(share.permille() / 10));
    whole.or_else(|| Number::from_f64(share.percent())).expect("a share is finite")
}

fn told(surface: &Surface, found: &Found) -> String {
    let cells = |name: &str, point: &Point| {
        vec![
            name.to_owned(),
            point.batch.to_string(),
            point.share.to_string(),
            decimal(point.latency.millis(), 1),
            rate(point.throughput),
            rate(point.efficiency()),
        ]
    };
    let rows = [
        row(["", "batch", "share", "latency ms", "requests/s", "requests/s for 1%"]),
        cells("found", &found.point),
        cells("best", &found.best),
    ];
    format!(
        "{}\n{} of {} points looked at; request {}, limit {}\n",
        align(&rows),
        found.probes,
        surface.points().len(),
        found.point.share,
        found.limit
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: &str = "1,10,0.010,100\n1,14.3,0.008,125\n2,10,0.012,166.7\n2,14.3,0.01,200\n";

    fn found(millis: u64) -> Result<Found, String> {
        search_grid(&Surface::from_csv(GRID).unwrap(), Span::from_millis(millis))
    }

    #[test]
    fn json_has_shares_in_percent() {
        let json = |millis| serde_json::to_string(&report(&found(millis).unwrap())).unwrap();
        assert_eq!(
            json(20),
            "{\"batch\":2,\"share\":10,\"probes\":3,\"efficiency\":16.669999999999998,\"best_batch\":2,\
             \"best_share\":10,\"best_efficiency\":16.669999999999998}"
        );
        assert!(json(8).starts_with("{\"batch\":1,\"share\":14.3,"), "{}", json(8));
    }
}
