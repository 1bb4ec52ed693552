//! `weft profile --from-grid`: a search over measurements that are there already.

use super::file::{text, wrong};
use crate::output::{Misuse, WholeFile, print, print_json};
use crate::page::text::{decimal, rate};
use crate::table::{align, row};
use anyhow::Result;
use policy::Span;
use policy::search::quota::Quota;
use policy::search::{Outcome, Search, Space};
use policy::surface::{Point, Share, Surface};
use rpc::profile::{Choice, Profile, Subject, Work};
use serde::Serialize;
use serde_json::Number;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[group(id = "grid")]
pub(super) struct Arguments {
    /// Measurements of the model: a CSV file with rows of batch, SM percent, latency in seconds, requests a second
    #[arg(long, value_name = "FILE")]
    from_grid: Option<PathBuf>,

    /// Write a profile here: the measurements and the choice, for the model, GPU and driver that are named
    #[arg(long, value_name = "FILE", requires_all = ["from_grid", "model", "gpu", "driver"])]
    save: Option<PathBuf>,

    /// Digest of the model's files, for --save
    #[arg(long, value_name = "DIGEST", requires = "save")]
    model: Option<String>,

    /// Version of the driver, for --save
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

/// What a search came to.
struct Found {
    point: Point,
    best: Point,
    limit: Share,
    probes: usize,
}

pub(super) fn main(arguments: &Arguments, asked: &Asked<'_>) -> Result<()> {
    let Some(path) = &arguments.from_grid else {
        return Err(Misuse("find a grid: name one with --from-grid".to_owned()).into());
    };
    let objective = asked.slo;
    let surface = Surface::from_csv(&text("grid", path)?).map_err(|error| wrong("grid", path, error))?;
    let found = find(&surface, objective)
        .map_err(|problem| Misuse(format!("find a point of {} within {objective}: {problem}", path.display())))?;
    if let (Some(file), Some(model), Some(gpu), Some(driver)) =
        (&arguments.save, &arguments.model, asked.gpu, &arguments.driver)
    {
        let subject = Subject { model: model.clone(), gpu: gpu.to_owned(), driver: driver.clone() };
        let Found { point, limit, .. } = found;
        let choice = Choice { objective: Some(objective), batch: point.batch, request: point.share, limit };
        let (surface, choice) = (surface.clone(), Some(choice));
        let profile = Profile { subject, measured: None, work: Work::Requests, surface, choice };
        let refused = |problem: String| Misuse(format!("write profile {}: {problem}", file.display()));
        WholeFile::new(file).and_then(|whole| whole.write(&profile.write())).map_err(refused)?;
    }
    match asked.json {
        true => print_json(&report(&found)),
        false => print(&told(&surface, &found)),
    }
}

/// Searches the surface as if every point of it had to be measured.
fn find(surface: &Surface, objective: Span) -> Result<Found, String> {
    let space = Space::new(surface.batches(), surface.shares()).expect("a surface has a point");
    let mut search = Search::new(space, objective);
    while let Some(probe) = search.next() {
        match surface.at(probe.batch, probe.share) {
            Some(point) => search.observe(point.latency, point.throughput),
            None => search.cannot_run(),
        }
    }
    let (point, best) = match (search.outcome(), surface.best(objective)) {
        (Some(Outcome::Found(point)), Some(best)) => (point, *best),
        (_, Some(best)) => {
            return Err(format!(
                "no share meets it with the smallest batch, though batch {} at {} does; measure small batches too",
                best.batch, best.share
            ));
        }
        (_, None) => {
            let fastest = surface.fastest();
            return Err(format!(
                "the fastest, batch {} at {}, takes {}; give an objective of at least that, or measure the model on a \
                 faster GPU",
                fastest.batch, fastest.share, fastest.latency
            ));
        }
    };
    Ok(Found { point, best, limit: limit(surface, &point), probes: search.probes() })
}

/// The share beyond which the chosen batch gains little.
fn limit(surface: &Surface, chosen: &Point) -> Share {
    let row = surface.points().iter().filter(|point| point.batch == chosen.batch);
    let shares: Vec<Share> = row.map(|point| point.share).collect();
    let mut quota = Quota::inference(&shares, chosen.share);
    while let Some(share) = quota.next() {
        match surface.at(chosen.batch, share) {
            Some(point) => quota.observe(point.throughput),
            None => quota.cannot_run(),
        }
    }
    quota.outcome().and_then(|found| *found.first()?).unwrap_or(chosen.share)
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
        find(&Surface::from_csv(GRID).unwrap(), Span::from_millis(millis))
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

    #[test]
    fn an_objective_that_nothing_meets_is_refused_with_the_fastest_point() {
        let Err(problem) = found(7) else { panic!("nothing takes 7 ms") };
        assert!(problem.starts_with("the fastest, batch 1 at 14.3%, takes 8ms; give"), "{problem}");
    }
}
