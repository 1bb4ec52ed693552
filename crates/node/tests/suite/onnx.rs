//! ONNX models, from files written here.

use crate::harness::{Bench, Event, declared, floats, raw, spec, values};
use crate::onnx_file::{Value, model, types};
use config::{DataType, Kind, ModelSpec};
use rpc::FromNode;
use std::time::Duration;

fn file(bench: &Bench, bytes: &[u8]) -> ModelSpec {
    let path = bench.folder.path().join("model.onnx");
    std::fs::write(&path, bytes).unwrap();
    spec(Kind::Onnx { path })
}

fn identity(datatype: u64, dimensions: &[Option<u64>]) -> Vec<u8> {
    model("Identity", &[("x", datatype, dimensions)], ("y", datatype, dimensions))
}

#[test]
fn a_model_with_an_open_first_dimension_is_batched() {
    let bench = Bench::with(|config| config.warmup = Duration::from_secs(60));
    let inputs: [Value<'_>; 2] = [("a", types::FLOAT, &[None, Some(2)]), ("b", types::FLOAT, &[None, Some(2)])];
    let bytes = model("Add", &inputs, ("sum", types::FLOAT, &[None, Some(2)]));
    let (info, measured) = bench.start(file(&bench, &bytes));
    assert_eq!(info.inputs, [declared("a", DataType::Fp32, &[-1, 2]), declared("b", DataType::Fp32, &[-1, 2])]);
    assert_eq!(info.outputs, [declared("sum", DataType::Fp32, &[-1, 2])]);
    assert_eq!(info.max_batch, 8);
    assert_eq!(measured.iter().map(|(size, _)| *size).collect::<Vec<_>>(), [1, 2, 4, 8]);
    let tensor =
        |name, rows: usize, value: f32| raw(name, DataType::Fp32, &[rows, 2], floats(&[], &vec![value; 2 * rows]).data);
    let (answers, done) = bench
        .run(vec![vec![tensor("a", 1, 1.0), tensor("b", 1, 2.0)], vec![tensor("b", 2, 10.0), tensor("a", 2, 20.0)]]);
    assert!(done);
    assert_eq!(values(&answers[0].as_ref().unwrap().tensors[0]), [3.0; 2]);
    let second = &answers[1].as_ref().unwrap().tensors[0];
    assert_eq!((values(second), &second.shape[..]), (vec![30.0; 4], &[2, 2][..]));
}

#[test]
fn a_model_with_a_fixed_first_dimension_is_not() {
    let bench = Bench::new();
    let (info, measured) = bench.start(file(&bench, &identity(types::FLOAT, &[Some(1), Some(3)])));
    assert_eq!((info.max_batch, measured.len()), (0, 1));
    let (answers, done) = bench.run(vec![vec![floats(&[1, 3], &[1.0, 2.0, 3.0])], vec![floats(&[1, 3], &[4.0; 3])]]);
    assert!(done);
    assert_eq!(values(&answers[1].as_ref().unwrap().tensors[0]), [4.0; 3]);
    let message = bench.refused(vec![floats(&[2, 3], &[0.0; 6])]);
    assert!(message.contains("invalid dimensions"), "{message}");
    assert_eq!(values(&bench.ask(vec![floats(&[1, 3], &[5.0; 3])])[0]), [5.0; 3]);
}

#[test]
fn an_open_dimension_that_is_no_batch_is_found_out() {
    let open = &[None, None];
    for (operator, datatype) in [("Transpose", types::FLOAT), ("NonZero", types::INT64)] {
        let bench = Bench::with(|config| config.warmup = Duration::from_secs(60));
        // A shape that is not declared is not checked against what the operator's shape must be.
        let output = if operator == "NonZero" { &[][..] } else { &open[..] };
        let bytes = model(operator, &[("x", types::FLOAT, open)], ("y", datatype, output));
        let (info, measured) = bench.start(file(&bench, &bytes));
        assert_eq!((info.max_batch, measured.len()), (0, 1), "{operator}: {}", bench.printed());
        let outputs = bench.ask(vec![floats(&[2, 1], &[0.0, 1.0])]);
        match operator {
            "Transpose" => assert_eq!((&outputs[0].shape[..], values(&outputs[0])), (&[1, 2][..], vec![0.0, 1.0])),
            _ => assert_eq!(outputs[0].shape, [2, 1]),
        }
    }
}

#[test]
fn every_type_comes_back_as_it_went() {
    let numbers = [
        (types::BOOL, DataType::Bool),
        (types::UINT8, DataType::Uint8),
        (types::UINT16, DataType::Uint16),
        (types::UINT32, DataType::Uint32),
        (types::UINT64, DataType::Uint64),
        (types::INT8, DataType::Int8),
        (types::INT16, DataType::Int16),
        (types::INT32, DataType::Int32),
        (types::INT64, DataType::Int64),
        (types::FLOAT16, DataType::Fp16),
        (types::BFLOAT16, DataType::Bf16),
        (types::DOUBLE, DataType::Fp64),
    ];
    for (number, datatype) in numbers {
        let bench = Bench::new();
        let (info, _) = bench.start(file(&bench, &identity(number, &[None, Some(2)])));
        assert_eq!(info.inputs[0].datatype, datatype);
        let value = if datatype == DataType::Bool { 1u8 } else { 0x42 };
        let input = raw("x", datatype, &[1, 2], vec![value; 2 * datatype.size().unwrap()]);
        let output = bench.ask(vec![input.clone()]).remove(0);
        assert_eq!((output.datatype, output.shape, output.data), (datatype, input.shape, input.data));
        if datatype == DataType::Bool {
            let message = bench.refused(vec![raw("x", datatype, &[1, 2], vec![2, 0])]);
            assert!(message.contains("a BOOL is neither 0 nor 1"), "{message}");
        }
    }
}

#[test]
fn strings_are_text() {
    let bench = Bench::new();
    bench.start(file(&bench, &identity(types::STRING, &[None])));
    let words = raw("x", DataType::Bytes, &[2], "\x02\0\0\0hi\x03\0\0\0\u{20ac}".as_bytes());
    assert_eq!(bench.ask(vec![words.clone()])[0].data, words.data);
    let message = bench.refused(vec![raw("x", DataType::Bytes, &[1], &b"\x01\0\0\0\xff"[..])]);
    assert!(message.contains("not UTF-8"), "{message}");
}

#[test]
fn large_tensors_go_through() {
    let bench = Bench::new();
    bench.start(file(&bench, &identity(types::FLOAT, &[None, None])));
    for elements in [2_500_000, 10] {
        let input: Vec<f32> = (0..elements).map(|index| index as f32).collect();
        assert_eq!(values(&bench.ask(vec![floats(&[1, elements], &input)])[0]), input);
    }
}

#[test]
fn files_that_cannot_be_served_say_why() {
    let check = |spec: ModelSpec, bench: &Bench, expected: &str| {
        bench.order_start(spec);
        let (reason, _) = bench.lost();
        assert!(reason.contains(expected), "{reason}");
    };
    let good = identity(types::FLOAT, &[None]);
    let bench = Bench::new();
    check(file(&bench, &good[..good.len() / 2]), &bench, "failed to load the model: load ");
    let bench = Bench::new();
    check(file(&bench, b"not a model"), &bench, "Protobuf parsing failed");
    let bench = Bench::new();
    let unknown = model("Frobnicate", &[("x", types::FLOAT, &[None])], ("y", types::FLOAT, &[None]));
    check(file(&bench, &unknown), &bench, "Frobnicate");
    let bench = Bench::new();
    check(spec(Kind::Onnx { path: "no-such.onnx".into() }), &bench, "read no-such.onnx: there is no such file");
    let bench = Bench::with(|config| config.onnxruntime = Some("no-such-library.so".into()));
    check(file(&bench, &good), &bench, "Run `weft setup`, or set `onnxruntime`");
    let bench = Bench::with(|config| config.onnxruntime = None);
    check(file(&bench, &good), &bench, "run `weft setup`, or set `onnxruntime`");
}

#[test]
fn a_killed_worker_comes_back() {
    let bench = Bench::new();
    bench.start(file(&bench, &identity(types::FLOAT, &[None])));
    let children = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let command = std::fs::read_to_string(entry.path().join("cmdline")).ok()?;
        let model = bench.folder.path().join("model.onnx");
        command.contains(model.to_str().unwrap()).then(|| entry.file_name().to_string_lossy().into_owned())
    });
    for process in children.collect::<Vec<String>>() {
        assert!(std::process::Command::new("kill").args(["-9", &process]).status().unwrap().success());
    }
    assert!(matches!(bench.event(), Event::Told(FromNode::Lost { reason, .. }) if reason.contains("signal 9")));
    bench.ready();
    assert_eq!(values(&bench.ask(vec![floats(&[1], &[7.0])])[0]), [7.0]);
}
