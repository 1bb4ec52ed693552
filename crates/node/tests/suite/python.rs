//! Models in Python that do what they should.

use crate::harness::{Bench, declared, floats, raw, values};
use config::DataType;

const DOUBLE: &str = "
def predict(self, inputs):
    return {'y': inputs['x'] * np.float32(2)}
";

#[test]
fn one_request_is_answered_and_batch_sizes_are_measured() {
    let bench = Bench::with(|config| config.warmup = std::time::Duration::from_secs(60));
    let (info, measured) = bench.start(bench.python(DOUBLE));
    assert_eq!((info.max_batch, info.inputs[0].name.as_str(), info.outputs[0].name.as_str()), (8, "x", "y"));
    let sizes: Vec<usize> = measured.iter().map(|(size, _)| *size).collect();
    assert_eq!(sizes, [1, 2, 4, 8]);
    assert!(measured.iter().all(|(_, took)| took.nanos() > 1_000));
    let outputs = bench.ask(vec![floats(&[1, 3], &[1.0, 2.0, 3.0])]);
    assert_eq!((&*outputs[0].name, &outputs[0].shape[..]), ("y", &[1, 3][..]));
    assert_eq!(values(&outputs[0]), [2.0, 4.0, 6.0]);
}

#[test]
fn parts_of_different_gateways_and_rows_make_one_batch() {
    let bench = Bench::new();
    // The whole batch is seen as one tensor.
    bench.start(bench.python("def predict(self, inputs):\n    return inputs['x'] * 0 + len(inputs['x'])"));
    let requests =
        vec![vec![floats(&[1, 1], &[1.0])], vec![floats(&[3, 1], &[1.0; 3])], vec![floats(&[2, 1], &[1.0; 2])]];
    let batch = bench.send(requests, &[1, 2]);
    let (answers, done) = bench.done(batch, 3);
    assert!(done);
    let answers: Vec<rpc::Outputs> = answers.into_iter().map(Result::unwrap).collect();
    for (answer, rows) in answers.iter().zip([1, 3, 2]) {
        assert_eq!(answer.tensors[0].shape, [rows, 1]);
        assert_eq!(values(&answer.tensors[0]), vec![6.0; rows]);
        assert_eq!(answer.batch_size, 3);
    }
    assert_eq!(answers.iter().map(|answer| answer.leads).collect::<Vec<_>>(), [true, false, false]);
}

#[test]
fn requests_of_different_shapes_run_one_shape_after_the_other() {
    let bench = Bench::new();
    bench.start(bench.python("def predict(self, inputs):\n    return inputs['x'] + len(inputs['x'])"));
    let (answers, done) = bench.run(vec![
        vec![floats(&[1, 2], &[0.0, 10.0])],
        vec![floats(&[1, 1], &[20.0])],
        vec![floats(&[1, 2], &[30.0, 40.0])],
    ]);
    assert!(done);
    let answers: Vec<Vec<f32>> = answers.iter().map(|answer| values(&answer.as_ref().unwrap().tensors[0])).collect();
    assert_eq!(answers, [vec![2.0, 12.0], vec![21.0], vec![32.0, 42.0]]);
}

#[test]
fn without_a_batch_dimension_a_request_passes_as_it_is() {
    let bench = Bench::new();
    let mut spec = bench.python("def predict(self, inputs):\n    return inputs['x'].sum(keepdims=False)");
    spec.max_batch = 0;
    spec.inputs = vec![declared("x", DataType::Fp32, &[4])];
    spec.outputs = vec![declared("y", DataType::Fp32, &[])];
    let (info, measured) = bench.start(spec);
    assert_eq!((info.max_batch, measured.len()), (0, 1));
    let outputs = bench.ask(vec![floats(&[4], &[1.0, 2.0, 3.0, 4.0])]);
    assert_eq!((&outputs[0].shape[..], values(&outputs[0])), (&[][..], vec![10.0]));
}

#[test]
fn memory_grows_with_large_tensors_and_keeps_serving_small_ones() {
    let bench = Bench::new();
    bench.start(bench.python(DOUBLE));
    for elements in [1, 2_500_000, 3, 10_000_000, 5] {
        let input: Vec<f32> = (0..elements).map(|index| index as f32).collect();
        let outputs = bench.ask(vec![floats(&[1, elements], &input)]);
        assert!(values(&outputs[0]).iter().zip(&input).all(|(output, input)| *output == 2.0 * input));
    }
}

#[test]
fn strings_of_any_length_are_objects_in_python() {
    let bench = Bench::new();
    let mut spec = bench.python(
        "def predict(self, inputs):
             assert inputs['x'].dtype == object
             return np.array([[element * 2] for element in inputs['x'][:, 0]], dtype=object)",
    );
    spec.inputs = vec![declared("x", DataType::Bytes, &[-1, 1])];
    spec.outputs = vec![declared("y", DataType::Bytes, &[-1, 1])];
    bench.start(spec);
    let (answers, _) = bench.run(vec![
        vec![raw("x", DataType::Bytes, &[1, 1], &b"\x02\0\0\0ab"[..])],
        vec![raw("x", DataType::Bytes, &[2, 1], &b"\0\0\0\0\x01\0\0\0\xff"[..])],
    ]);
    let data = |index: usize| answers[index].as_ref().unwrap().tensors[0].data.clone();
    assert_eq!(&data(0)[..], b"\x04\0\0\0abab");
    assert_eq!(&data(1)[..], b"\0\0\0\0\x02\0\0\0\xff\xff");
}

#[test]
fn every_type_comes_back_as_it_went() {
    let bench = Bench::new();
    let types: Vec<DataType> = DataType::ALL.into_iter().filter(|datatype| *datatype != DataType::Bytes).collect();
    let mut spec = bench.python(
        "def predict(self, inputs):
             assert inputs['BF16'].dtype == np.uint16 and inputs['FP16'].dtype == np.float16
             return [inputs[name] for name in self.names]",
    );
    let names: Vec<String> = types.iter().map(|datatype| format!("'{}'", datatype.name())).collect();
    let path = bench.folder.path().join("model.py");
    let text = std::fs::read_to_string(&path).unwrap() + &format!("    names = [{}]\n", names.join(", "));
    std::fs::write(&path, text).unwrap();
    spec.inputs = types.iter().map(|datatype| declared(datatype.name(), *datatype, &[-1, 2])).collect();
    spec.outputs = spec.inputs.clone();
    bench.start(spec);
    let inputs: Vec<_> = types
        .iter()
        .map(|datatype| {
            let value = if *datatype == DataType::Bool { 1u8 } else { 0x42 };
            raw(datatype.name(), *datatype, &[1, 2], vec![value; 2 * datatype.size().unwrap()])
        })
        .collect();
    assert_eq!(bench.ask(inputs.clone()), inputs);
}

#[test]
fn the_class_says_what_it_takes_and_gives() {
    let bench = Bench::new();
    let path = bench.folder.path().join("model.py");
    let text = "
import numpy as np
import weft

class Helper(weft.Model):
    pass

class Sum(weft.Model):
    inputs = [weft.Tensor('a', 'FP32', [-1, 2]), ('b', np.float32, (-1, 2))]
    max_batch = 3

    def load(self):
        self.factor = np.float32(10)

    def predict(self, inputs):
        return {'sum': (inputs['a'] + inputs['b']) * self.factor}
";
    std::fs::write(&path, text).unwrap();
    let mut spec = crate::harness::spec(config::Kind::Python { path, class: Some("Sum".into()) });
    (spec.inputs, spec.outputs) = (Vec::new(), Vec::new());
    let (info, measured) = bench.start(spec);
    assert_eq!(info.max_batch, 3);
    assert_eq!(info.inputs, [declared("a", DataType::Fp32, &[-1, 2]), declared("b", DataType::Fp32, &[-1, 2])]);
    assert_eq!(info.outputs, [declared("sum", DataType::Fp32, &[-1, 2])], "as the first run answered");
    assert!(!measured.is_empty());
    let ones = |name| raw(name, DataType::Fp32, &[1, 2], floats(&[1, 2], &[1.0, 2.0]).data);
    assert_eq!(values(&bench.ask(vec![ones("b"), ones("a")])[0]), [20.0, 40.0]);
}

#[test]
fn the_deployments_environment_reaches_the_model() {
    let bench = Bench::new();
    std::fs::write(bench.folder.path().join("beside.py"), "value = 7").unwrap();
    let mut spec = bench.python(
        "def predict(self, inputs):
             import beside
             sum = int(os.environ['FACTOR']) + int(os.environ['OMP_NUM_THREADS'])
             return inputs['x'] * 0 + sum + beside.value",
    );
    spec.threads = 3;
    spec.env.insert("FACTOR".into(), "100".into());
    bench.start(spec);
    assert_eq!(values(&bench.ask(vec![floats(&[1, 1], &[1.0])])[0]), [110.0]);
}

#[test]
fn an_interpreter_runs_no_code_that_its_environment_names() {
    let bench = Bench::new();
    let elsewhere = bench.folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    // Python imports this by itself, from wherever PYTHONPATH leads.
    std::fs::write(elsewhere.join("sitecustomize.py"), "import os; os.environ['TAKEN'] = '1'").unwrap();
    let mut spec = bench.python(
        "def predict(self, inputs):
             import sys
             isolated = sys.flags.isolated and sys.flags.ignore_environment and sys.flags.no_user_site
             secrets = [name for name in os.environ if name in ('WEFT_TOKEN', 'WEFT_ADMIN_KEY')]
             clean = not secrets and 'TAKEN' not in os.environ and '' not in sys.path
             return inputs['x'] * 0 + (10 if isolated else 0) + (1 if clean else 0)",
    );
    // A deployment like this is not let in; even if it were, nothing would come of it.
    spec.env.insert("PYTHONPATH".into(), elsewhere.to_str().unwrap().into());
    spec.env.insert("PYTHONSTARTUP".into(), elsewhere.join("sitecustomize.py").to_str().unwrap().into());
    assert!(config::env::check(&spec.env).is_err());
    bench.start(spec);
    assert_eq!(values(&bench.ask(vec![floats(&[1, 1], &[1.0])])[0]), [11.0]);
}

#[test]
fn a_node_may_be_used_from_many_threads() {
    fn check<T: Send + Sync>() {}
    check::<node::Node>();
}

#[test]
#[allow(clippy::print_stderr)]
fn the_package_passes_its_own_tests() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let config = crate::harness::config(&root);
    let output = std::process::Command::new(&config.python)
        .args(["-B", "-W", "error", "-m", "unittest", "discover", "-s", "tests"])
        .current_dir(&root)
        .env("PYTHONPATH", ".")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    said.lines().filter(|line| line.starts_with("SKIPPED")).for_each(|line| eprintln!("{line}"));
}
