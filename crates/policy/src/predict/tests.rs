//! Predictions of made-up models, and of the published measurements.

use super::accuracy::{Accuracy, Half, Slices, company, solo};
use super::*;
use crate::surface::Point;
use proptest::prelude::*;
use std::path::{Path, PathBuf};

const MODEL: ModelId = ModelId(3);

fn percent(percent: f64) -> Share {
    Share::from_percent(percent).unwrap()
}

/// A model that fills a share of this many percent for each request of its batch, and takes at least 4 ms.
fn surface(full: f64) -> Surface {
    let points = [1usize, 2, 4, 8, 16].into_iter().flat_map(|batch| (1..=10).map(move |tenth| (batch, tenth)));
    let point = |(batch, tenth): (usize, u32)| {
        let millis = 4.0 * (full * batch as f64 / f64::from(tenth * 10)).max(1.0);
        let share = percent(f64::from(tenth * 10));
        Point { batch, share, latency: Span::from_millis_f64(millis), throughput: batch as f64 / millis * 1e3 }
    };
    Surface::new(&points.map(point).collect::<Vec<_>>()).unwrap()
}

fn predictor(full: f64) -> Predictor {
    let mut predictor = Predictor::default();
    predictor.learn(MODEL, &surface(full));
    predictor
}

fn tenant(batch: usize) -> Tenant {
    Tenant { model: MODEL, batch }
}

fn millis(estimate: Estimate) -> f64 {
    estimate.latency.millis()
}

#[test]
fn what_was_measured_is_what_is_predicted() {
    let predictor = predictor(40.0);
    for point in surface(40.0).points() {
        let estimate = predictor.predict(tenant(point.batch), point.share, &[]).unwrap();
        assert_eq!(estimate.latency, point.latency);
        assert!((estimate.throughput / point.throughput - 1.0).abs() < 1e-6);
    }
}

#[test]
fn between_points_lines_are_followed() {
    let predictor = predictor(40.0);
    // Full at 240%: latency goes as one over the share, and as the batch.
    let estimate = predictor.predict(tenant(6), percent(45.0), &[]).unwrap();
    let exact = 4.0 * 240.0 / 45.0;
    assert!((millis(estimate) / exact - 1.0).abs() < 0.01, "{estimate:?} for {exact}");
    assert!(estimate.uncertainty < 0.5, "{estimate:?}");
}

#[test]
fn it_says_when_it_does_not_know() {
    let predictor = predictor(40.0);
    let ask = |batch, share| predictor.predict(tenant(batch), percent(share), &[]).unwrap_err();
    assert_eq!(ask(17, 50.0), Unknown::Batch(17));
    assert_eq!(ask(4, 5.0), Unknown::Share(percent(5.0)));
    let stranger = Tenant { model: ModelId(9), batch: 1 };
    assert_eq!(predictor.predict(stranger, Share::ALL, &[]), Err(Unknown::Model(ModelId(9))));
    assert_eq!(predictor.predict(tenant(1), Share::ALL, &[stranger]), Err(Unknown::Model(ModelId(9))));
    assert_eq!(predictor.predict(tenant(1), Share::ALL, &[tenant(17)]), Err(Unknown::Batch(17)));
    assert!(ask(4, 5.0).to_string().ends_with("profile it"));

    // Two corners of a square: the others lie between in either direction, and not between points.
    let corner = |batch, share| Point {
        batch,
        share: percent(share),
        latency: Span::from_millis(4),
        throughput: batch as f64 * 250.0,
    };
    let mut predictor = Predictor::default();
    predictor.learn(MODEL, &Surface::new(&[corner(1, 10.0), corner(2, 20.0)]).unwrap());
    assert_eq!(predictor.predict(tenant(1), percent(20.0), &[]), Err(Unknown::Edge(1, percent(20.0))));
}

#[test]
fn neighbours_cost_nothing_while_there_is_room_and_what_is_too_much_beyond() {
    let predictor = predictor(25.0);
    let slowdown = |batch, neighbours: usize| {
        let beside = vec![tenant(batch); neighbours];
        millis(predictor.predict(tenant(batch), Share::ALL, &beside).unwrap())
            / millis(predictor.predict(tenant(batch), Share::ALL, &[]).unwrap())
    };
    assert!(slowdown(1, 1) < 1.1, "{}", slowdown(1, 1));
    assert!((1.7..2.3).contains(&slowdown(16, 1)), "{}", slowdown(16, 1));
    assert!((3.0..4.4).contains(&slowdown(16, 3)), "{}", slowdown(16, 3));
}

#[test]
fn what_is_seen_of_a_pair_is_believed_and_spreads_to_pairs_alike() {
    let mut predictor = predictor(25.0);
    let half = percent(50.0);
    let slowdown = |predictor: &Predictor, batch: usize| {
        let estimate = predictor.predict(tenant(batch), half, &[tenant(batch)]).unwrap();
        millis(estimate) / millis(predictor.predict(tenant(batch), half, &[]).unwrap())
    };
    let before = [slowdown(&predictor, 8), slowdown(&predictor, 4), slowdown(&predictor, 1)];
    let alone = predictor.predict(tenant(8), half, &[]).unwrap().latency;
    for _ in 0..5 {
        predictor.observe(tenant(8), half, &[tenant(8)], alone.scale(13, 10)).unwrap();
    }
    let after = [slowdown(&predictor, 8), slowdown(&predictor, 4), slowdown(&predictor, 1)];
    assert!(before[0] > 1.7 && (after[0] - 1.3).abs() < 0.05, "{before:?} {after:?}");
    assert!(after[1] < before[1], "{before:?} {after:?}");
    // The further apart, the less it says.
    assert!((before[2] - after[2]).abs() < (before[1] - after[1]).abs(), "{before:?} {after:?}");
}

#[test]
fn one_odd_measurement_does_not_decide() {
    let mut predictor = predictor(25.0);
    let expected = |predictor: &Predictor| millis(predictor.predict(tenant(8), Share::ALL, &[tenant(8)]).unwrap());
    let alone = predictor.predict(tenant(8), Share::ALL, &[]).unwrap().latency;
    for _ in 0..10 {
        predictor.observe(tenant(8), Share::ALL, &[tenant(8)], alone.scale(18, 10)).unwrap();
    }
    let before = expected(&predictor);
    predictor.observe(tenant(8), Share::ALL, &[tenant(8)], alone * 10).unwrap();
    assert!((expected(&predictor) / before - 1.0).abs() < 0.02, "{before} {}", expected(&predictor));
}

proptest! {
    #[test]
    fn whatever_is_observed_predictions_stay_numbers(
        seen in proptest::collection::vec((0usize..5, 0usize..5, 1u32..=10, 0usize..4, 0u64..10_000_000_000), 0..60),
    ) {
        let mut predictor = predictor(25.0);
        for (own, other, tenth, count, nanos) in seen {
            let beside = vec![tenant(1 << other); count];
            let share = percent(f64::from(tenth * 10));
            predictor.observe(tenant(1 << own), share, &beside, Span::from_nanos(nanos)).unwrap();
        }
        for batch in [1, 3, 16] {
            let alone = predictor.predict(tenant(batch), percent(30.0), &[]).unwrap();
            let beside = predictor.predict(tenant(batch), percent(30.0), &[tenant(2), tenant(4), tenant(2)]).unwrap();
            prop_assert!(beside.latency >= alone.latency.scale(99, 100), "{beside:?} {alone:?}");
            prop_assert!(beside.uncertainty.is_finite() && beside.throughput.is_finite());
        }
    }
}

/// The published profiles of a kind; `None`, said loudly, where they are not at hand.
#[allow(clippy::print_stderr)]
fn published(folder: &str) -> Option<Vec<(PathBuf, String)>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/profiles").join(folder);
    if !folder.is_dir() {
        eprintln!("SKIPPED: no published data at {}", folder.display());
        return None;
    }
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "csv"));
    paths.sort();
    Some(paths.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect())
}

fn told(accuracy: &Accuracy) -> String {
    let [mean, worst, covered] = [accuracy.mean(), accuracy.worst(), accuracy.covered()].map(Option::unwrap);
    format!("mean {mean:.4}, worst {worst:.3}, covered {covered:.3} of {}", accuracy.trials.len())
}

#[test]
fn the_other_half_of_every_published_grid_is_predicted() {
    let Some(grids) = published("dilu_a100_40gb") else { return };
    assert_eq!(grids.len(), 5);
    let mut chessboards = Accuracy::default();
    for (path, text) in grids {
        let surface = Surface::from_csv(&text).unwrap();
        let check = |halves: &[Half]| {
            let mut all = Accuracy::default();
            halves.iter().for_each(|half| all.add(solo(&surface, *half)));
            let told = format!("{} {halves:?}: {}, unknown {}", path.display(), told(&all), all.unknown);
            assert!(all.mean() < Some(0.1) && all.worst() < Some(0.3), "{told}");
            assert!(all.unknown * 4 < all.trials.len() + all.unknown, "{told}");
            all
        };
        let drawn: Vec<Half> = (1..=20).map(Half::Drawn).collect();
        assert!(check(&drawn).covered() >= Some(0.9), "{}", path.display());
        chessboards.add(check(&[true, false].map(Half::EveryOther)));
    }
    // These are too few for each grid to tell.
    assert!(chessboards.covered() >= Some(0.9), "{}", told(&chessboards));
}

#[test]
fn the_cost_of_company_is_predicted() {
    let Some(models) = published("parvagpu_a100_80gb") else { return };
    let models: Vec<Slices> = models.iter().map(|(_, text)| Slices::from_csv(text).unwrap()).collect();
    assert_eq!(models.len(), 11);
    for half in [Half::EveryOther(true), Half::EveryOther(false)] {
        let mut all = Accuracy::default();
        company(&models, half, false).into_iter().for_each(|accuracy| all.add(accuracy));
        let told = format!("{half:?}: {}, unknown {}", told(&all), all.unknown);
        assert!(all.mean() < Some(0.1) && all.worst() < Some(0.3), "{told}");
        assert!(all.covered() >= Some(0.9) && all.unknown == 0, "{told}");
    }
    // Some slices and batches are never seen in company here, and some of those are far off.
    let mut all = Accuracy::default();
    for seed in 1..=5 {
        company(&models, Half::Drawn(seed), false).into_iter().for_each(|accuracy| all.add(accuracy));
    }
    assert!(all.mean() < Some(0.1) && all.covered() >= Some(0.9), "{}", told(&all));
    assert!(all.beyond(0.3) * 50 < all.trials.len(), "{} of {}", all.beyond(0.3), all.trials.len());
}
