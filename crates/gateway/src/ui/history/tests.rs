//! What is kept, for how long, and what is given out of it.

use super::*;
use crate::fixture::{catalog, overview, worker};
use crate::statistics::Served;

/// A history and what it looks at.
struct Stage {
    began: Instant,
    history: History,
    catalog: Catalog,
    overview: Overview,
    looked: Instant,
    gpus: Vec<GpuView>,
    statistics: BTreeMap<String, Arc<Statistics>>,
}

impl Stage {
    fn new(names: &[&str]) -> Stage {
        let began = Instant::now();
        Stage {
            began,
            history: History::new(began),
            catalog: catalog(names),
            overview: overview(vec![], &[]),
            looked: began,
            gpus: vec![],
            statistics: ["a", "b"].into_iter().map(|name| (name.to_string(), Arc::default())).collect(),
        }
    }

    /// Samples so many milliseconds after the beginning.
    fn at(&mut self, millis: u64) -> bool {
        let Stage { catalog, overview, looked, gpus, statistics, .. } = self;
        let statistics = |name: &str, _: u32| statistics[name].clone();
        let scene = Scene { catalog, overview, looked: *looked, gpus, statistics: &statistics };
        self.history.sample(self.began + Duration::from_millis(millis), &scene)
    }

    fn serve(&self, name: &str, count: usize, millis: u64) {
        let total = Span::from_millis(millis);
        let served = Served { total, compute: total.into(), good: true, rows: 1, batch_size: 1, leads: true };
        (0..count).for_each(|_| self.statistics[name].served(served));
    }

    /// `seq` and `offered` of the samples of a model after a number.
    fn offered(&self, name: &str, after: u64) -> Vec<(u64, f32)> {
        let model = self.history.model(name, 1).expect("the model is known");
        model.samples(after).map(|(seq, sample)| (*seq, sample.0[0])).collect()
    }
}

#[test]
fn seconds_are_counted_by_the_clock() {
    let mut stage = Stage::new(&["a"]);
    assert!(!stage.at(0) && !stage.at(300));
    assert!(stage.at(998) && stage.history.seq == 1);
    assert!(!stage.at(1_400), "the second second is not over");
    stage.serve("a", 6, 5);
    assert!(stage.at(4_100) && stage.history.seq == 4, "three are over");
    assert_eq!(stage.offered("a", 0), [(2, 2.0), (3, 2.0), (4, 2.0)]);
}

#[test]
fn what_happened_before_anybody_looked_is_not_of_this_second() {
    let mut stage = Stage::new(&["a"]);
    stage.serve("a", 1_000, 5);
    stage.at(1_000);
    assert_eq!(stage.offered("a", 0), []);
}

#[test]
fn six_hundred_seconds_are_kept_and_quiet_ones_take_nothing() {
    let mut stage = Stage::new(&["a"]);
    for second in 1..=1_500 {
        if second % 3 == 0 {
            stage.serve("a", 1, 5);
        }
        stage.overview = overview(vec![worker(1, "a:1", Span::from_millis(500 * second))], &[]);
        stage.looked = stage.began + Duration::from_secs(second);
        stage.at(second * 1_000);
    }
    let samples = stage.offered("a", 0);
    assert_eq!((samples.len(), samples[0].0, samples[199].0), (200, 903, 1_500));
    assert_eq!(stage.history.worker(WorkerId(1), 900).count(), 600);
    assert_eq!(stage.history.worker(WorkerId(1), 1_497).collect::<Vec<_>>(), [50, 50, 50]);
    let model = stage.history.model("a", 1).unwrap();
    assert_eq!((model.samples.len(), model.answers.len()), (200, 4));
}

#[test]
fn a_long_silence_leaves_as_much_as_is_kept() {
    let mut stage = Stage::new(&["a"]);
    stage.at(1_000);
    stage.serve("a", 5_000, 5);
    stage.overview = overview(vec![worker(1, "a:1", Span::ZERO)], &[]);
    stage.at(5_001_000);
    let samples = stage.offered("a", 0);
    assert_eq!((samples.len(), samples[0], stage.history.seq), (600, (4_402, 1.0), 5_001));
    assert_eq!(stage.history.worker(WorkerId(1), 0).count(), 600);
}

#[test]
fn since_is_a_number_that_was_given_out_or_as_good_as_none() {
    for (seq, since, expected) in [
        (0, 0, 0),
        (0, 5, 0),
        (100, 0, 0),
        (100, 99, 99),
        (100, 100, 100),
        (100, 101, 0),
        (2_000, 0, 1_400),
        (2_000, 1_399, 1_400),
        (2_000, 1_400, 1_400),
        (2_000, 1_401, 1_401),
        (2_000, 2_001, 1_400),
        (2_000, u64::MAX, 1_400),
    ] {
        assert_eq!(after(seq, since), expected, "{since} at {seq}");
    }
    let mut stage = Stage::new(&["a"]);
    for second in 1..=5 {
        stage.serve("a", 1, 5);
        stage.at(second * 1_000);
    }
    assert_eq!(stage.offered("a", 3), [(4, 1.0), (5, 1.0)]);
    assert_eq!(stage.offered("a", 5), []);
}

#[test]
fn a_model_that_comes_back_has_its_past() {
    let mut stage = Stage::new(&["a", "b"]);
    stage.at(1_000);
    stage.serve("a", 3, 5);
    stage.at(2_000);
    stage.catalog = catalog(&["b"]);
    // The last requests are answered after it left.
    stage.serve("a", 1, 5);
    stage.at(3_000);
    stage.catalog = catalog(&["a", "b"]);
    stage.at(4_000);
    assert_eq!(stage.offered("a", 0), [(2, 3.0), (3, 1.0)]);
}

#[test]
fn a_model_is_forgotten_ten_minutes_after_it_left() {
    let mut stage = Stage::new(&["a", "b"]);
    stage.at(1_000);
    stage.serve("a", 3, 5);
    stage.catalog = catalog(&["b"]);
    for second in 2..=600 {
        stage.at(second * 1_000);
    }
    assert!(stage.history.model("a", 1).is_some());
    stage.at(601_000);
    assert!(stage.history.model("a", 1).is_none());
    assert_eq!(stage.history.models.len(), 1);
    // Its counters went on, and none of that is of the second in which it is back.
    stage.serve("a", 50, 5);
    stage.catalog = catalog(&["a", "b"]);
    stage.at(602_000);
    stage.serve("a", 2, 5);
    stage.at(603_000);
    assert_eq!(stage.offered("a", 0), [(603, 2.0)]);
}

#[test]
fn latencies_are_of_the_last_ten_seconds() {
    let mut stage = Stage::new(&["a"]);
    stage.at(1_000);
    stage.serve("a", 10, 1_000);
    stage.at(2_000);
    for second in 3..=11 {
        stage.serve("a", 100, 10);
        stage.at(second * 1_000);
    }
    let p99 = |stage: &Stage| stage.history.model("a", 1).unwrap().latency_ms().map(|latencies| latencies[2]);
    assert!(p99(&stage).unwrap() > 800.0, "the slow ones are ten seconds old");
    stage.at(12_000);
    assert!(p99(&stage).unwrap() < 15.0);
    stage.at(30_000);
    assert_eq!(p99(&stage), None);
}

#[test]
fn waiting_and_running_are_levels() {
    let mut stage = Stage::new(&["a"]);
    stage.statistics["a"].pending.store(9, Relaxed);
    stage.overview = overview(vec![], &[(0, 7)]);
    stage.at(1_000);
    let model = stage.history.model("a", 1).unwrap();
    let levels: Vec<_> = model.samples(0).map(|(_, sample)| (sample.0[0], sample.0[13], sample.0[14])).collect();
    assert_eq!(levels, [(0.0, 7.0, 2.0)]);
}

#[test]
fn news_of_workers_come_when_they_like() {
    let mut stage = Stage::new(&["a"]);
    let look = |stage: &mut Stage, millis: u64, busy_millis: u64| {
        stage.overview = overview(vec![worker(1, "a:1", Span::from_millis(busy_millis))], &[]);
        stage.looked = stage.began + Duration::from_millis(millis);
    };
    look(&mut stage, 900, 10_000);
    stage.at(1_000);
    look(&mut stage, 1_990, 10_000 + 545);
    stage.at(2_000);
    // Nothing was heard in this second, and what is heard after it is of one second nevertheless.
    stage.at(3_000);
    look(&mut stage, 3_010, 10_545 + 510);
    stage.at(4_000);
    // A batch that ends counts all its time at once.
    look(&mut stage, 4_010, 20_000);
    stage.at(5_000);
    assert_eq!(stage.history.worker(WorkerId(1), 0).collect::<Vec<_>>(), [0, 50, 50, 50, 100]);
    stage.at(8_000);
    assert_eq!(stage.history.worker(WorkerId(1), 5).collect::<Vec<_>>(), [0, 0, 0]);
    stage.overview = overview(vec![], &[]);
    stage.at(9_000);
    assert_eq!(stage.history.worker(WorkerId(1), 0).count(), 0);
}

#[test]
fn gpus_are_busy_too() {
    let mut stage = Stage::new(&[]);
    let gpu = GpuView {
        node: "node-1".into(),
        gpu: 0,
        uuid: "GPU-1".into(),
        name: "H200".into(),
        utilization: 0.256,
        memory_bytes: 1,
        memory_total_bytes: 2,
    };
    stage.gpus = vec![gpu.clone()];
    stage.at(1_000);
    stage.at(2_000);
    assert_eq!(stage.history.gpu(&gpu, 0).collect::<Vec<_>>(), [26, 26]);
    stage.gpus.clear();
    stage.at(3_000);
    assert_eq!(stage.history.gpu(&gpu, 0).count(), 0);
}
