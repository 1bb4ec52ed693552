//! How long a batch takes from the node's door and back, for models that do nothing.
//!
//! ```sh
//! cargo test --release --package weft-node --test suite measure -- --ignored --nocapture --test-threads 1
//! ```

use crate::harness::{Bench, Event, floats, spec};
use crate::onnx_file::{model, types};
use config::{Kind, ModelSpec};
use rpc::FromNode;
use std::io::Write;
use std::time::{Duration, Instant};

const ROUNDS: usize = 5_000;

fn measure(what: &str, write: impl Fn(&Bench) -> ModelSpec) {
    let bench = Bench::with(|config| config.warmup = Duration::from_millis(300));
    let spec = write(&bench);
    let start = Instant::now();
    let (_, measured) = bench.start(spec);
    let started = start.elapsed();
    let mut report = format!("{what}: ready after {started:.0?}, measured {measured:?}\n");
    for size in [1, 8] {
        let mut took: Vec<Duration> = Vec::with_capacity(ROUNDS);
        let mut computed: Vec<u64> = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let requests = vec![vec![floats(&[1, 16], &[1.0; 16])]; size];
            let start = Instant::now();
            bench.send(requests, &[size]);
            loop {
                match bench.event() {
                    Event::Answered(_, answer) => computed.push(answer.unwrap().compute.total().nanos()),
                    Event::Told(FromNode::Done { .. }) => break,
                    Event::Told(other) => panic!("{other:?}"),
                }
            }
            took.push(start.elapsed());
        }
        took.sort();
        computed.sort();
        let at = |part: usize| took[ROUNDS * part / 100];
        let exchange = Duration::from_nanos(computed[computed.len() / 2]);
        report += &format!(
            "  batch of {size}: median {:.1?}, 99 % {:.1?}, fastest {:.1?}; of that with the worker {exchange:.1?}\n",
            at(50),
            at(99),
            took[0]
        );
    }
    std::io::stdout().write_all(report.as_bytes()).unwrap();
}

#[test]
#[ignore = "a measurement"]
fn python_round_trip() {
    measure("Python echo of 16 floats", |bench| {
        bench.python("def predict(self, inputs):\n    return {'y': inputs['x']}")
    });
}

#[test]
#[ignore = "a measurement"]
fn onnx_round_trip() {
    measure("ONNX echo of 16 floats", |bench| {
        let shape = &[None, Some(16)];
        let bytes = model("Identity", &[("x", types::FLOAT, shape)], ("y", types::FLOAT, shape));
        let path = bench.folder.path().join("model.onnx");
        std::fs::write(&path, bytes).unwrap();
        spec(Kind::Onnx { path })
    });
}

/// Starts the ONNX model that `WEFT_MEASURE` names and says what its warm-up found.
#[test]
#[ignore = "a measurement"]
fn a_model_of_yours() {
    let Some(path) = std::env::var_os("WEFT_MEASURE") else { return };
    let bench = Bench::with(|config| config.warmup = Duration::from_millis(300));
    let start = Instant::now();
    let (info, measured) = bench.start(spec(Kind::Onnx { path: path.into() }));
    let report = format!("ready after {:.0?}: {info:?}, measured {measured:?}\n", start.elapsed());
    std::io::stdout().write_all(report.as_bytes()).unwrap();
}
