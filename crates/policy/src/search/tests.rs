//! Searches over tables: small ones by hand, random ones, and the published grids.

use super::*;
use crate::surface::Surface;
use proptest::prelude::*;

/// Drives a search from a table; also holds that nothing is probed twice. The search, and what it ended with.
fn drive(surface: &Surface, objective: Span) -> (Search, Outcome) {
    let space = Space::new(surface.batches(), surface.shares()).unwrap();
    let points = space.points();
    let mut search = Search::new(space, objective);
    let mut asked = Vec::new();
    while let Some(probe) = search.next() {
        assert!(!asked.contains(&probe), "{probe:?} was probed twice");
        asked.push(probe);
        match surface.at(probe.batch, probe.share) {
            Some(point) => search.observe(point.latency, point.throughput),
            None => search.cannot_run(),
        }
    }
    assert!(asked.len() <= points && asked.len() == search.probes());
    let outcome = search.outcome().expect("nothing is left to measure");
    (search, outcome)
}

fn point(batch: usize, permille: u32, millis: f64) -> Point {
    let share = Share::from_permille(permille).unwrap();
    Point { batch, share, latency: Span::from_millis_f64(millis), throughput: batch as f64 / millis * 1e3 }
}

fn found(outcome: Outcome) -> Option<(usize, u32)> {
    match outcome {
        Outcome::Found(point) => Some((point.batch, point.share.permille())),
        Outcome::Unmet(_) => None,
    }
}

/// Every batch takes this long on these shares, in milliseconds.
fn table(rows: &[(usize, &[(u32, f64)])]) -> Surface {
    let points = rows.iter().flat_map(|(batch, row)| row.iter().map(|(share, millis)| point(*batch, *share, *millis)));
    Surface::new(&points.collect::<Vec<_>>()).unwrap()
}

#[test]
fn batches_grow_while_the_objective_holds() {
    let surface = table(&[
        (1, &[(100, 10.0), (200, 8.0)]),
        (2, &[(100, 12.0), (200, 9.0)]),
        (4, &[(100, 19.0), (200, 12.0)]),
        (8, &[(100, 35.0), (200, 20.0)]),
    ]);
    let (search, outcome) = drive(&surface, Span::from_millis(20));
    assert_eq!(found(outcome), Some((4, 100)));
    // Four batches on a tenth, the last on a fifth too, where it is less efficient; and what lies beside the best.
    assert_eq!(search.probes(), 6);
}

#[test]
fn a_larger_share_is_looked_at_though_the_objective_holds() {
    // Twice the share is more than twice as fast, which growth alone would never see.
    let surface = table(&[(1, &[(100, 10.0), (200, 4.0), (300, 3.9)])]);
    assert_eq!(found(drive(&surface, Span::from_millis(20)).1), Some((1, 200)));
}

#[test]
fn an_objective_that_no_share_meets_is_said_with_the_fastest_measurement() {
    let surface = table(&[(1, &[(100, 10.0), (200, 8.0)]), (2, &[(100, 12.0), (200, 9.0)])]);
    let (search, outcome) = drive(&surface, Span::from_millis(5));
    assert_eq!(outcome, Outcome::Unmet(Some(point(1, 200, 8.0))));
    assert_eq!(search.probes(), 2);
}

#[test]
fn what_cannot_be_run_is_passed_over() {
    let space = Space::new(vec![1, 2], Share::steps(Share::from_permille(500).unwrap())).unwrap();
    let mut search = Search::new(space, Span::from_millis(20));
    while search.next().is_some() {
        search.cannot_run();
    }
    assert_eq!(search.outcome(), Some(Outcome::Unmet(None)));
    // Nobody asked: nothing changes.
    search.observe(Span::from_millis(1), 1.0);
    assert_eq!((search.probes(), search.outcome()), (2, Some(Outcome::Unmet(None))));
}

#[test]
fn a_space_has_something_in_it() {
    assert_eq!(Space::new(vec![], vec![Share::ALL]), None);
    assert_eq!(Space::new(vec![1], vec![]), None);
    assert_eq!(Space::new(vec![0, 1], vec![Share::ALL]), None);
    assert_eq!(Space::doubling(20).points(), 5 * 10);
    assert_eq!(Space::doubling(0).points(), 10);
}

/// Latency falls with the share and rises with the batch; some points cannot be run.
fn monotone() -> impl Strategy<Value = Surface> {
    let factors = (1usize..=7, 1usize..=10).prop_flat_map(|(batches, shares)| {
        let cell = (1.0..2.2f64, 1.0..1.9f64, 0..20u8);
        (Just((batches, shares)), proptest::collection::vec(cell, batches * shares))
    });
    factors.prop_map(|((batches, shares), cells)| {
        let mut latency = vec![vec![0.0f64; shares]; batches];
        let mut points = Vec::new();
        for batch in 0..batches {
            for share in (0..shares).rev() {
                let (by_batch, by_share, hole) = cells[batch * shares + share];
                let below = if batch == 0 { 2.0 } else { latency[batch - 1][share] * by_batch };
                let beside = if share + 1 == shares { 0.0 } else { latency[batch][share + 1] * by_share };
                latency[batch][share] = below.max(beside);
                // The first point stays, so that there is one.
                if hole != 0 || points.is_empty() {
                    points.push(point(1 << batch, (share as u32 + 1) * 100, latency[batch][share]));
                }
            }
        }
        Surface::new(&points).expect("latency never rises with the share")
    })
}

proptest! {
    #[test]
    fn a_search_ends_and_what_it_finds_meets_the_objective(surface in monotone(), millis in 1.0..200.0f64) {
        let objective = Span::from_millis_f64(millis);
        let (search, outcome) = drive(&surface, objective);
        let good = search.points().filter(|point| point.latency <= objective);
        let best = good.map(Point::efficiency).max_by(f64::total_cmp);
        match outcome {
            Outcome::Found(point) => {
                prop_assert!(point.latency <= objective);
                prop_assert_eq!(Some(point.efficiency()), best);
                prop_assert_eq!(surface.at(point.batch, point.share), Some(&point));
            }
            Outcome::Unmet(_) => prop_assert_eq!(best, None),
        }
    }

    #[test]
    fn a_whole_table_is_searched_well(floor in 1.0..20.0f64, slope in 0.2..10.0f64, base in 0.2..10.0f64,
                                      full in 200..1000u32, room in 1.1..10.0f64) {
        // Saturates at a share of its own, and is never faster than a floor.
        let millis = |batch: usize, share: u32| {
            ((slope * batch as f64 + base) * 1000.0 / f64::from(share.min(full))).max(floor)
        };
        let points = (0..6).flat_map(|power| (1..=10).map(move |tenth| (1usize << power, tenth * 100)));
        let points: Vec<Point> = points.map(|(batch, share)| point(batch, share, millis(batch, share))).collect();
        let surface = Surface::new(&points).unwrap();
        let objective = Span::from_millis_f64(millis(1, 1000) * room);
        let best = surface.best(objective).expect("room is above one").efficiency();
        let (search, outcome) = drive(&surface, objective);
        let Outcome::Found(point) = outcome else { panic!("room is above one") };
        prop_assert!(point.efficiency() >= 0.75 * best, "{} of {best}", point.efficiency());
        prop_assert!(search.probes() <= 25, "{} probes", search.probes());
    }
}

/// Objectives of the published grids, in milliseconds.
const PUBLISHED: [(&str, u64); 5] =
    [("bert_base", 50), ("gpt2_large", 60), ("llama2", 42), ("resnet152", 40), ("roberta_large", 60)];

#[test]
#[allow(clippy::print_stderr)]
fn the_best_point_of_every_published_grid_is_found_with_ten_probes() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/profiles/dilu_a100_40gb");
    if !folder.is_dir() {
        eprintln!("SKIPPED: no published data at {}", folder.display());
        return;
    }
    let mut probes = 0;
    for (name, millis) in PUBLISHED {
        let text = std::fs::read_to_string(folder.join(name).with_extension("csv")).unwrap();
        let surface = Surface::from_csv(&text).unwrap();
        let objective = Span::from_millis(millis);
        let (search, outcome) = drive(&surface, objective);
        assert_eq!(outcome, Outcome::Found(*surface.best(objective).unwrap()), "{name}");
        probes += search.probes();
    }
    assert!(probes <= 10 * PUBLISHED.len(), "{probes} probes");
}
