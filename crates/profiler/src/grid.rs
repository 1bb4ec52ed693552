//! A search over measurements that exist already, as if every point had to be measured.

use config::profile::Choice;
use policy::Span;
use policy::search::quota::Quota;
use policy::search::{Outcome, Search, Space};
use policy::surface::{Point, Share, Surface};

/// The outcome of a search.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// What the search chose.
    pub point: Point,
    /// The best of all points.
    pub best: Point,
    /// The share beyond which the chosen batch gains little.
    pub limit: Share,
    /// Points that were looked at.
    pub probes: usize,
}

impl Found {
    /// What a profile holds of it.
    pub fn choice(&self, objective: Span) -> Choice {
        let Found { point, limit, .. } = *self;
        Choice { objective: Some(objective), batch: point.batch, request: point.share, limit }
    }
}

/// Searches the surface as if every point of it had to be measured.
pub fn search_grid(surface: &Surface, objective: Span) -> Result<Found, String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: &str = "1,10,0.010,100\n1,14.3,0.008,125\n2,10,0.012,166.7\n2,14.3,0.01,200\n";

    fn found(millis: u64) -> Result<Found, String> {
        search_grid(&Surface::from_csv(GRID).unwrap(), Span::from_millis(millis))
    }

    #[test]
    fn an_objective_that_nothing_meets_is_refused_with_the_fastest_point() {
        let Err(problem) = found(7) else { panic!("nothing takes 7 ms") };
        assert!(problem.starts_with("the fastest, batch 1 at 14.3%, takes 8ms; give"), "{problem}");
    }
}
