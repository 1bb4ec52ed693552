//! Emulated GPUs.

use crate::harness::{Bench, Event, WORKER, declared, floats, spec};
use config::{DataType, Kind, Line};
use policy::Span;
use rpc::{Failure, FromNode, Part, ToNode};
use std::time::Instant;

fn line(alpha: u64, beta: u64) -> Line {
    Line { alpha: Span::from_micros(alpha), beta: Span::from_micros(beta) }
}

fn send(bench: &Bench, model: u32, batch: u64, size: usize) {
    let payloads = (0..size).map(|_| bench.payload(vec![floats(&[1], &[batch as f32])])).collect();
    let (node, address) = (rpc::Incarnation::default(), "".into());
    let term = rpc::Term::default();
    bench.node().run(Part { term, worker: WORKER, node, address, model, batch, size, payloads, absent: 0 });
}

/// Skips answers to the next batch that is done.
fn done(bench: &Bench) -> (u64, Option<Span>) {
    loop {
        match bench.event() {
            Event::Told(FromNode::Done { batch, took, .. }) => return (batch, took),
            Event::Answered(..) => {}
            Event::Told(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn batches_of_several_models_take_their_time_one_after_the_other() {
    let bench = Bench::new();
    bench.node().order(ToNode::Virtual { worker: WORKER, tables: vec![(1, line(1_000, 5_000)), (2, line(0, 20_000))] });
    let (_, measured) = bench.ready();
    assert!(measured.is_empty());
    let start = Instant::now();
    send(&bench, 1, 10, 4);
    send(&bench, 2, 11, 1);
    assert_eq!(done(&bench).0, 10);
    let (batch, took) = done(&bench);
    assert_eq!(batch, 11);
    assert!(took.unwrap() >= Span::from_millis(20), "{took:?}");
    assert!(start.elapsed() >= std::time::Duration::from_millis(29));
    send(&bench, 3, 12, 1);
    let Event::Answered(_, Err(Failure::Model(message))) = bench.event() else { panic!() };
    assert_eq!(message, "model 3 is not on this emulated GPU");
    assert_eq!(done(&bench), (12, None));

    bench.node().order(ToNode::Virtual { worker: WORKER, tables: vec![(3, line(0, 0))] });
    send(&bench, 3, 13, 1);
    assert_eq!(done(&bench).0, 13);
}

#[test]
fn no_batch_is_done_before_its_time() {
    let bench = Bench::new();
    bench.node().order(ToNode::Virtual { worker: WORKER, tables: vec![(1, line(0, 2_000))] });
    bench.ready();
    for batch in 0..50 {
        send(&bench, 1, batch, 1);
        let (_, took) = done(&bench);
        assert!(took.unwrap() >= Span::from_millis(2), "{took:?}");
    }
}

#[test]
fn one_virtual_model_answers_with_its_inputs_under_its_outputs_names_and_stops() {
    let bench = Bench::new();
    let mut virtual_model = spec(Kind::Virtual { latency: line(1_000, 0) });
    virtual_model.outputs = vec![declared("echo", DataType::Fp32, &[-1])];
    let (info, _) = bench.start(virtual_model);
    assert_eq!(info.outputs[0].name, "echo");
    let outputs = bench.ask(vec![floats(&[1], &[3.0])]);
    assert_eq!((&*outputs[0].name, &outputs[0].data[..]), ("echo", &3.0f32.to_le_bytes()[..]));
    send(&bench, 0, 50, 1);
    bench.node().order(ToNode::Stop { worker: WORKER });
    assert_eq!(done(&bench).0, 50);
    assert!(matches!(bench.event(), Event::Told(FromNode::Stopped { .. })));
    send(&bench, 0, 51, 1);
    assert!(matches!(bench.event(), Event::Answered(_, Err(Failure::NotRun(_)))));
}

#[test]
fn dropping_the_node_answers_what_waits() {
    let mut bench = Bench::new();
    bench.node().order(ToNode::Virtual { worker: WORKER, tables: vec![(1, line(0, 60_000_000))] });
    bench.ready();
    send(&bench, 1, 1, 1);
    send(&bench, 1, 2, 1);
    drop(bench.node.take());
    for _ in 0..2 {
        assert!(matches!(bench.event(), Event::Answered(_, Err(Failure::WorkerDied))));
    }
}
