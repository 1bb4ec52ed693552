//! What the page is told, as JSON.

use super::*;
use crate::fixture::{HOSTILE, catalog, gateway, overview, use_it, worker};
use policy::Span;
use rpc::State;
use serde_json::Value;

fn dashboard(gateway: &Arc<Gateway>) -> Dashboard {
    Dashboard::new(gateway.clone(), "lab".into(), None).unwrap()
}

/// Samples so many seconds after the beginning.
fn sample(dashboard: &Dashboard, second: u64) {
    let began = Instant::now();
    dashboard.sample(began + Duration::from_secs(second));
}

fn told(dashboard: &Dashboard, since: u64) -> Value {
    serde_json::from_str(&dashboard.tell(since)).expect("it is JSON")
}

#[test]
fn the_contract_is_kept() {
    let gateway = gateway();
    let mut models = catalog(&["busy", "idle"]);
    models.entries[1].state = State::Unavailable("no worker".into());
    gateway.publish(models);
    gateway.look(overview(vec![worker(7, "busy:1", Span::ZERO), worker(8, "virtual GPU", Span::ZERO)], &[(0, 3)]));
    let dashboard = dashboard(&gateway);
    sample(&dashboard, 1);
    use_it(&gateway.statistics("busy", 1), 90);
    sample(&dashboard, 2);
    let told = told(&dashboard, 0);
    assert_eq!((&told["schema"], &told["seq"]), (&1.into(), &2.into()));
    assert_eq!(told["cluster"]["name"], "lab");
    assert_eq!(told["cluster"]["nodes"], 1);
    let [busy, idle] = told["models"].as_array().unwrap().as_slice() else { panic!("two models: {told}") };
    let known: Vec<&str> = busy.as_object().unwrap().keys().map(String::as_str).collect();
    let fields = [
        "kind",
        "latency_ms",
        "max_batch",
        "name",
        "queue_limit",
        "reason",
        "samples",
        "slo_ms",
        "state",
        "version",
        "workers_ready",
        "workers_wanted",
    ];
    assert_eq!(known, fields);
    let samples = busy["samples"].as_array().unwrap();
    // The queue was there in the first second already.
    assert_eq!(samples[0].as_array().unwrap().len(), 15);
    let row: Vec<f64> = samples[1].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect();
    assert_eq!(row[..11], [2.0, 99.0, 81.0, 9.0, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 2.0]);
    assert!(row[11] < row[12] && row[12] < row[13], "{row:?}");
    assert_eq!((row[14], row[15], row[16], row.len()), (3.0, 0.0, 90.0, 25));
    assert_eq!(row[17..].iter().sum::<f64>(), 30.0);
    assert_eq!(busy["latency_ms"].as_array().unwrap().len(), 3);
    assert_eq!((&idle["state"], &idle["reason"]), (&"unavailable".into(), &"no worker".into()));
    assert_eq!((&idle["latency_ms"], &idle["samples"]), (&Value::Null, &Value::Array(vec![])));
    let [one, emulated] = told["workers"].as_array().unwrap().as_slice() else { panic!("two workers: {told}") };
    assert_eq!((&one["id"], &one["model"], &one["version"]), (&7.into(), &"busy".into(), &1.into()));
    assert_eq!(one["busy"], Value::Array(vec![0.into(), 0.into()]));
    assert_eq!((&emulated["model"], &emulated["version"]), (&"virtual GPU".into(), &Value::Null));
    assert_eq!(told["gpus"], Value::Array(vec![]));
}

#[test]
fn what_is_known_already_is_not_sent_again() {
    let gateway = gateway();
    gateway.publish(catalog(&["a"]));
    gateway.look(overview(vec![worker(1, "a:1", Span::ZERO)], &[]));
    let dashboard = dashboard(&gateway);
    sample(&dashboard, 1);
    for second in 2..=5 {
        use_it(&gateway.statistics("a", 1), 1);
        sample(&dashboard, second);
    }
    for (since, samples, busy) in [(0, 4, 5), (4, 1, 1), (5, 0, 0), (6, 4, 5), (9_999, 4, 5)] {
        let told = told(&dashboard, since);
        let lengths = (&told["models"][0]["samples"], &told["workers"][0]["busy"]);
        let lengths = (lengths.0.as_array().unwrap().len(), lengths.1.as_array().unwrap().len());
        assert_eq!(lengths, (samples, busy), "since {since}");
    }
}

#[test]
fn names_are_told_as_they_are() {
    let gateway = gateway();
    let mut models = catalog(&[HOSTILE]);
    models.entries[0].state = State::Unavailable(HOSTILE.into());
    gateway.publish(models);
    let mut bad = worker(1, &format!("{HOSTILE}:3"), Span::ZERO);
    (bad.node, bad.last_error) = (HOSTILE.into(), Some(HOSTILE.into()));
    gateway.look(overview(vec![bad], &[]));
    let dashboard = Dashboard::new(gateway, HOSTILE.into(), None).unwrap();
    sample(&dashboard, 1);
    let told = told(&dashboard, 0);
    let (model, worker) = (&told["models"][0], &told["workers"][0]);
    for text in [&told["cluster"]["name"], &model["name"], &model["reason"], &worker["node"], &worker["error"]] {
        assert_eq!(text, HOSTILE);
    }
    assert_eq!((&worker["model"], &worker["version"]), (&HOSTILE.into(), &3.into()));
}

#[test]
fn since_must_be_a_number() {
    let cases = [
        ("", Some(0)),
        ("other=1", Some(0)),
        ("since=12", Some(12)),
        ("x=1&since=12&y", Some(12)),
        ("since=-3", Some(0)),
        ("since=99999999999999999999999", Some(0)),
        ("since=", None),
        ("since=-", None),
        ("since=1.5", None),
        ("since=%31", None),
        ("since=+1", None),
        ("since=NaN", None),
    ];
    for (query, expected) in cases {
        assert_eq!(since_of(query), expected, "{query}");
    }
}

/// What a busy cluster costs: `cargo test -p weft-gateway --release -- --ignored --nocapture what_it_costs`.
#[test]
#[ignore = "a measurement"]
#[allow(clippy::print_stdout, reason = "the figures are the result")]
fn what_it_costs() {
    let gateway = gateway();
    let names: Vec<String> = (0..200).map(|number| format!("model-{number:03}")).collect();
    gateway.publish(catalog(&names.iter().map(String::as_str).collect::<Vec<_>>()));
    let look = |second: u64| {
        let busy = |id: u64| Span::from_millis(second * (300 + id));
        let workers = (0..500).map(|id| worker(id, &format!("{}:1", names[id as usize % 200]), busy(id))).collect();
        gateway.look(overview(workers, &(0..200).map(|model| (model, 5)).collect::<Vec<_>>()));
    };
    let dashboard = dashboard(&gateway);
    let statistics: Vec<_> = names.iter().map(|name| gateway.statistics(name, 1)).collect();
    let mut spent: Vec<Duration> = (1..=700)
        .map(|second| {
            look(second);
            statistics.iter().for_each(|statistics| use_it(statistics, 100));
            let now = Instant::now();
            sample(&dashboard, second);
            now.elapsed()
        })
        .collect();
    spent.sort();
    println!("a sample of 200 models and 500 workers: least {:?}, median {:?}", spent[0], spent[350]);
    for since in [699, 690, 0] {
        let now = Instant::now();
        let told = dashboard.tell(since);
        let wrote = now.elapsed();
        let length = told.len();
        let packed = pack(told.into_bytes(), true);
        let body = http_body_util::BodyExt::collect(packed.answer("application/json", |body| body).into_body());
        let packed = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(body).unwrap();
        let packed = packed.to_bytes().len();
        println!("since {since}: {length} bytes in {wrote:?}, {packed} compressed in {:?}", now.elapsed() - wrote);
    }
}
