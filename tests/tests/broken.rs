//! A hundred models that do not work, each in its own way: none is ever ready, each says why in one line, and nothing of
//! them is left.

mod support;

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use support::{root, weft};
use weft_tests::Server;

/// Deployments under way at a time: each is a Python that starts.
const AT_ONCE: usize = 4;

/// What is wrong with a model, and a part of what must be said about it.
struct Case {
    file: File,
    more: Vec<String>,
    expected: &'static str,
}

enum File {
    Text(&'static str, String),
    Bytes(&'static str, Vec<u8>),
    Folder(&'static str),
    Missing(&'static str),
    None,
}

fn case(file: File, expected: &'static str) -> Case {
    Case { file, more: Vec::new(), expected }
}

impl Case {
    fn with(mut self, words: &[&str]) -> Case {
        self.more = words.iter().map(ToString::to_string).collect();
        self
    }
}

/// A model that works, but for what is put into it.
struct Parts {
    top: String,
    inputs: String,
    outputs: String,
    class: String,
    load: String,
    predict: String,
}

impl Parts {
    fn good() -> Parts {
        Parts {
            top: String::new(),
            inputs: "[('x', 'FP32', [-1, 4])]".into(),
            outputs: "[('y', 'FP32', [-1, 4])]".into(),
            class: "pass".into(),
            load: "pass".into(),
            predict: "return {'y': x}".into(),
        }
    }

    fn write(&self) -> String {
        let Parts { top, inputs, outputs, class, load, predict } = self;
        format!(
            "import os, signal, socket, sys, time\nimport numpy as np\n{top}\n\nclass Broken:\n    inputs = {inputs}\n    \
             outputs = {outputs}\n    {class}\n\n    def load(self):\n        {load}\n\n    def predict(self, inputs):\n        \
             x = inputs['x']\n        {predict}\n"
        )
    }

    fn case(&self, expected: &'static str) -> Case {
        case(File::Text("py", self.write()), expected)
    }
}

fn predicts(predict: &str, expected: &'static str) -> Case {
    Parts { predict: predict.into(), ..Parts::good() }.case(expected)
}

/// Each error in each place where a model can raise it.
fn raising(cases: &mut Vec<Case>) {
    let errors = [
        ("ValueError('bad weights')", "ValueError: bad weights"),
        ("KeyError('k')", "KeyError: 'k'"),
        ("RuntimeError('two\\nlines')", "RuntimeError: two lines"),
        ("MemoryError()", "MemoryError"),
        ("NotImplementedError('later')", "NotImplementedError: later"),
        ("ConnectionResetError('gone')", "ConnectionResetError: gone"),
        ("OSError(28, 'No space left on device')", "No space left on device"),
        ("Exception()", "Exception"),
        ("AssertionError", "AssertionError"),
    ];
    for (error, expected) in errors {
        let line = format!("raise {error}");
        cases.push(Parts { top: line.clone(), ..Parts::good() }.case(expected));
        cases.push(Parts { class: line.clone(), ..Parts::good() }.case(expected));
        cases.push(Parts { class: format!("def __init__(self): {line}"), ..Parts::good() }.case(expected));
        cases.push(Parts { load: line.clone(), ..Parts::good() }.case(expected));
        cases.push(predicts(&line, expected));
    }
}

/// Each way for a process to end, in each place.
fn ending(cases: &mut Vec<Case>) {
    let ends = [
        ("sys.exit(3)", "exited with status 3"),
        ("os._exit(4)", "exited with status 4"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by signal 9"),
        ("os.abort()", "was killed by signal 6"),
        ("raise KeyboardInterrupt", "it said: KeyboardInterrupt"),
    ];
    for (end, expected) in ends {
        cases.push(Parts { top: end.into(), ..Parts::good() }.case(expected));
        cases.push(Parts { load: end.into(), ..Parts::good() }.case(expected));
        cases.push(predicts(end, expected));
    }
}

/// Answers that are none.
fn answering(cases: &mut Vec<Case>) {
    let answers = [
        ("return", "None: return a dictionary from output names to arrays"),
        ("return {}", "predict returned []; the outputs are ['y']"),
        ("return {'z': x}", "predict returned ['z']; the outputs are ['y']"),
        ("return {1: x}", "predict returned [1]; the outputs are ['y']"),
        ("return {'y': x, 'z': x}", "predict returned ['y', 'z']; the outputs are ['y']"),
        ("return {'y': None}", "predict returned None"),
        ("return {'y': {'y': x}}", "a dict where an array is expected"),
        ("return []", "predict returned 0 arrays"),
        ("return [x, x]", "predict returned 2 arrays"),
        ("return {'y': [[1], [2, 3]]}", "no array"),
        ("yield x", "a generator: return arrays instead of yielding them"),
        ("return (row for row in x)", "a generator: return arrays instead of yielding them"),
        ("return iter([x])", "a list_iterator where an array is expected"),
        ("return lambda: x", "a function where an array is expected"),
        ("return {4}", "a set where an array is expected"),
        ("return object()", "not bytes or str"),
        ("return np.array([[object()] * 4] * len(x))", "not bytes or str"),
        ("return 'text'", "output `y` has type BYTES; the model declares FP32"),
        ("return 5", "the model declares FP32"),
        ("return x.astype(np.float64)", "output `y` has type FP64; the model declares FP32"),
        ("return x.astype(np.float16)", "output `y` has type FP16"),
        ("return x.astype(np.int32)", "output `y` has type INT32"),
        ("return x > 0", "output `y` has type BOOL"),
        ("return x.astype(np.complex64)", "an array of complex64, which cannot be sent"),
        ("return x.astype('datetime64[s]')", "which cannot be sent"),
        ("return x[:, :3]", "output `y` has shape [1, 3]; the model declares [-1, 4]"),
        ("return x[:, :, None]", "output `y` has shape [1, 4, 1]"),
        ("return x[0]", "output `y` has shape [4]"),
        ("return x.sum()", "output `y` has shape []"),
        ("return x[:0]", "has shape [0, 4] for a batch of 1"),
        ("return np.concatenate([x, x])", "has shape [2, 4] for a batch of 1"),
        ("return x[:1]", "a batch of 2 failed though a single request did not"),
        ("return np.zeros((1, 4), np.float32)", "`--max-batch 1`"),
        ("return {'y': x} if len(x) == 1 else 1 / 0", "ZeroDivisionError"),
        ("return x if x.any() else {}['zero']", "let `--warmup FILE` name a request that it takes"),
        ("return self.predict(inputs)", "RecursionError"),
        ("return x.nothing", "AttributeError"),
        ("return inputs['X']", "KeyError: 'X'"),
        ("x += 1; return x", "read-only"),
        ("time.sleep(1000)", "did not answer within 10s"),
        ("return {'y': x} if len(x) == 1 else time.sleep(1000)", "did not answer within 10s"),
    ];
    cases.extend(answers.map(|(predict, expected)| predicts(predict, expected)));
    let asynchronous = |text: &str| Parts::good().write().replace("    def predict", "    async def predict") + text;
    cases.push(case(File::Text("py", asynchronous("")), "a coroutine: remove `async`, or return the awaited value"));
    cases.push(case(
        File::Text("py", asynchronous("        yield x\n").replace("return {'y': x}", "pass")),
        "a generator",
    ));
    // What goes to the node's socket that is not from the protocol, or not in its turn.
    let sockets = "[socket.socket(fileno=os.dup(n)) for n in range(3, 64) \
                   if os.path.islink(f'/proc/self/fd/{n}') and 'socket' in os.readlink(f'/proc/self/fd/{n}')]";
    for (deed, expected) in [
        ("s.send(b'\\xffgarbage')", "makes no sense"),
        ("s.send(bytes([5]) + b'half an answer')", "makes no sense"),
        ("s.send(bytes([3]) + b'{}')", "it answered with Hello"),
        ("s.shutdown(socket.SHUT_RDWR)", "warm-up"),
    ] {
        cases.push(predicts(&format!("[{deed} for s in {sockets}]; return x"), expected));
    }
    let hangs = Parts { load: "time.sleep(1000)".into(), ..Parts::good() };
    cases.push(hangs.case("did not load its model within 60s"));
}

/// Classes that declare nonsense, or are none.
fn declaring(cases: &mut Vec<Case>) {
    let inputs = |inputs: &str, expected| Parts { inputs: inputs.into(), ..Parts::good() }.case(expected);
    let class = |class: &str, expected| Parts { class: class.into(), ..Parts::good() }.case(expected);
    let outputs = |outputs: &str, expected| Parts { outputs: outputs.into(), ..Parts::good() }.case(expected);
    let text = |text: &str, expected| case(File::Text("py", text.into()), expected);
    cases.extend([
        inputs("[]", "it does not say what its inputs are"),
        inputs("5", "TypeError"),
        inputs("'x'", "a list of tensors is expected"),
        inputs("[('x', 'FP32')]", "(name, datatype, shape) is expected"),
        inputs("[{'name': 'x', 'shape': [-1]}]", "(name, datatype, shape) is expected"),
        inputs("[('x', 'FP31', [-1, 4])]", "'FP31' is no data type"),
        inputs("[('x', 'FP32', [4])]", "must be -1"),
        inputs("[('x', 'FP32', [-1, -2])]", "dimensions are 1 or more"),
        inputs("[('x', 'FP32', [-1, 0])]", "dimensions are 1 or more"),
        inputs("[('x', 'FP32', [-1, 1 << 40])]", "which no request can bring"),
        inputs("[('x', 'FP32', [-1, 4]), ('x', 'FP32', [-1, 4])]", "more than once"),
        inputs("[('', 'FP32', [-1, 4])]", "without a name"),
        inputs("[('X', 'FP32', [-1, 4])]", "KeyError: 'x'"),
        outputs("[('y', 'FP32', [-1, 5])]", "the model declares [-1, 5]"),
        outputs("[('y', 'FP32', [-1, 4]), ('z', 'FP32', [-1, 4])]", "predict returned ['y']"),
        outputs("[('y', 'FP32', [])]", "must be -1"),
        outputs("[('y', 'BYTES', [-1, 4])]", "the model declares BYTES"),
        class("max_batch = -1", "it must be a number from 0"),
        class("max_batch = 'many'", "it must be a number from 0"),
        class("def __init__(self, weights): pass", "TypeError"),
        class("class: pass", "SyntaxError"),
        text("", "must have one class with a predict"),
        text("x = 1\n", "must have one class with a predict"),
        text("class Model:\n    pass\n", "must have one class with a predict"),
        text("class Model:\n    predict = 5\n", "must have one class with a predict"),
        text("class A:\n    def predict(self, x): pass\nclass B(A): pass\n", "found: A, B"),
        text("import weft\nclass M(weft.Model):\n    inputs = [('x', 'FP32', [-1])]\n", "NotImplementedError"),
        text("import no_such_module\n", "ModuleNotFoundError"),
        text("def broken(:\n", "SyntaxError"),
        text("class M:\n  def predict(self, x):\n pass\n", "IndentationError"),
        text("raise SystemError('\u{e9}\u{20ac}')\n", "SystemError"),
        Parts::good().case("has no class `Nobody`").with(&["--class", "Nobody"]),
        Parts { top: "helper = 5".into(), ..Parts::good() }.case("has no class `helper`").with(&["--class", "helper"]),
        Parts { top: "class Helper: pass".into(), ..Parts::good() }
            .case("has no method `predict`")
            .with(&["--class", "Helper"]),
        case(File::Bytes("py", b"class M:\n    x = '\xff\xfe'\n".into()), "SyntaxError"),
        case(File::Bytes("py", b"\0\0\0\0".into()), "Error"),
        case(File::Folder("py"), "Error"),
        case(File::Missing("py"), "FileNotFoundError"),
        case(File::Missing("onnx"), "there is no such file"),
        case(File::Folder("onnx"), "load"),
        case(File::Bytes("onnx", Vec::new()), "load"),
        case(File::Bytes("onnx", b"not a model".into()), "load"),
        case(File::Bytes("onnx", vec![0; 4096]), "load"),
        case(File::Bytes("onnx", vec![0x08, 0x08, 0x3a, 0x7f]), "load"),
        case(File::Text("onnx", Parts::good().write()), "load"),
        case(File::Text("bin", Parts::good().write()), "its name ends neither in .onnx nor in .py"),
        case(File::None, "find the model: give a file, or --virtual"),
    ]);
}

/// Models that are too slow for their objective, and examples that are none.
fn slow(cases: &mut Vec<Case>, folder: &Path) {
    let sleeps = |seconds: f32| predicts(&format!("time.sleep({seconds}); return x"), "deploy it with `--slo ");
    cases.push(sleeps(0.3));
    cases.push(sleeps(0.06).with(&["--slo", "50ms"]));
    cases.push(sleeps(0.2).with(&["--slo", "150ms", "--workers", "2"]));
    cases.push(sleeps(0.2).with(&["--slo", "100ms", "--workers", "0..2"]));
    cases.push(case(File::None, "deploy it with `--slo 250ms` or more").with(&["--virtual", "20ms,160ms"]));
    let examples = [
        ("{", "it is no request"),
        (r#"{"inputs": []}"#, "input `x` is missing"),
        (r#"{"inputs": [{"name": "z", "datatype": "FP32", "shape": [1, 4], "data": [1, 1, 1, 1]}]}"#, "an input `z`"),
        (
            r#"{"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 4], "data": [1, 1, 1, 1]}]}"#,
            "FP32 is expected",
        ),
        (r#"{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 1, 1]}]}"#, "has shape [1, 3]"),
        (r#"{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 1]}]}"#, "has 2 elements"),
    ];
    for (number, (text, expected)) in examples.into_iter().enumerate() {
        let path = folder.join(format!("example-{number}.json"));
        fs::write(&path, text).unwrap();
        cases.push(Parts::good().case(expected).with(&["--warmup", path.to_str().unwrap()]));
    }
    cases.push(Parts::good().case("it cannot be read").with(&["--warmup", "/nowhere/request.json"]));
    let taken = example(folder);
    cases.push(
        predicts("1 / 0", "the request of its `warmup` file failed: ZeroDivisionError").with(&["--warmup", &taken]),
    );
}

/// A file with a request that a model may take.
fn example(folder: &Path) -> String {
    let path = folder.join("example.json");
    let text = r#"{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}"#;
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn start(folder: &Path) -> Server {
    let state = root().join("target/tmp/serve-state");
    let setup = Command::new(weft()).arg("setup").arg("--state").arg(&state).output().expect("weft runs");
    assert!(setup.status.success(), "{}", String::from_utf8_lossy(&setup.stderr));
    let printed = String::from_utf8(setup.stdout).unwrap();
    let path = |name: &str| printed.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_string();
    let node = format!("[node]\npython = {:?}\nonnxruntime = {:?}\n", path("Python"), path("ONNX Runtime"));
    let node = node + "virtual_gpus = 1\nload_timeout = \"60s\"\nbatch_timeout = \"10s\"\n";
    let server = Server::start(weft(), folder, &node);
    server.wait("the server to be ready", || server.status("/v2/health/ready") == Some(200));
    server
}

fn deploy(server: &Server, name: &str, file: Option<&Path>, more: &[String]) -> Output {
    let file = file.map(|file| file.to_str().unwrap());
    let words = ["deploy", name].into_iter().chain(file).chain(more.iter().map(String::as_str));
    server.run(&words.collect::<Vec<_>>())
}

fn models(server: &Server) -> Vec<Value> {
    let listed: Value = serde_json::from_slice(&server.run(&["models", "--json"]).stdout).unwrap();
    listed["models"].as_array().unwrap().clone()
}

/// Worker processes with a model of this test's.
fn workers(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().unwrap();
    let commands = fs::read_dir("/proc").unwrap().flatten();
    let commands = commands.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    commands.filter(|command| command.contains("--model") && command.contains(folder)).collect()
}

/// Puts a model's file where its case wants it.
fn place(folder: &Path, name: &str, file: &File) -> Option<PathBuf> {
    let path = |extension: &str| folder.join(format!("{name}.{extension}"));
    match file {
        File::Text(extension, text) => {
            fs::write(path(extension), text).unwrap();
            Some(path(extension))
        }
        File::Bytes(extension, bytes) => {
            fs::write(path(extension), bytes).unwrap();
            Some(path(extension))
        }
        File::Folder(extension) => {
            fs::create_dir(path(extension)).unwrap();
            Some(path(extension))
        }
        File::Missing(extension) => Some(path(extension)),
        File::None => None,
    }
}

/// What is wrong with how a broken model was refused.
fn judge(server: &Server, name: &str, case: &Case) -> Result<(), String> {
    let path = place(server.folder(), name, &case.file);
    let refused = deploy(server, name, path.as_deref(), &case.more);
    let said = String::from_utf8_lossy(&refused.stderr).trim_end().to_owned();
    let wrong = |what: &str| Err(format!("{name}: {what}; it said: {said:?}, expected: {:?}", case.expected));
    if refused.status.code() != Some(2) {
        return wrong(&format!("it ended with {}", refused.status));
    }
    if !refused.stdout.is_empty() {
        return wrong("it said something good");
    }
    if said.is_empty() || said.contains('\n') || !said.contains(name) || said.chars().count() > 700 {
        return wrong("it did not say why in one line that names the model");
    }
    if !said.contains(case.expected) {
        return wrong("it said something else");
    }
    if server.status(&format!("/v2/models/{name}/ready")) == Some(200) {
        return wrong("it is ready");
    }
    Ok(())
}

#[test]
fn a_hundred_broken_models_are_refused_in_one_line_each() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    let mut cases = Vec::new();
    raising(&mut cases);
    ending(&mut cases);
    answering(&mut cases);
    declaring(&mut cases);
    slow(&mut cases, server.folder());
    assert!(cases.len() >= 100, "{}", cases.len());

    let next = AtomicUsize::new(0);
    let try_all = || {
        let mut wrong = Vec::new();
        while let Some((number, case)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, cases.get(at)?)))
        {
            wrong.extend(judge(&server, &format!("broken-{number}"), case).err());
        }
        wrong
    };
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(try_all)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));

    server.wait("all of them to be gone", || models(&server).is_empty());
    server.wait("their workers to end", || workers(server.folder()).is_empty());
    assert_eq!(server.status("/v2/health/ready"), Some(200));
    // What is broken is the models: the same one, whole, is ready, and says how long it takes.
    let path = place(server.folder(), "whole", &File::Text("py", Parts::good().write()));
    let whole = deploy(&server, "whole", path.as_deref(), &["--slo".into(), "10s".into()]);
    let said = String::from_utf8_lossy(&whole.stdout).into_owned();
    assert!(
        said.starts_with("whole version 1 is ready: 1 request takes ") && said.ends_with(" (objective 10000 ms)\n"),
        "{said}"
    );
    // One that takes no zeros is ready with a request that it takes.
    let text = Parts { predict: "return x if x.all() else {}['zero']".into(), ..Parts::good() }.write();
    let path = place(server.folder(), "choosy", &File::Text("py", text));
    let more = ["--slo", "10s", "--json", "--warmup", &example(server.folder())].map(String::from);
    let choosy = deploy(&server, "choosy", path.as_deref(), &more);
    let told: Value = serde_json::from_slice(&choosy.stdout).unwrap_or_default();
    assert_eq!((&told["name"], &told["state"]), (&"choosy".into(), &"ready".into()), "{choosy:?}");
    assert_eq!((told["measured"][0]["batch"].as_u64(), told["measured"][1]["batch"].as_u64()), (Some(1), Some(2)));
    assert_eq!(server.status("/v2/models/choosy/ready"), Some(200));
}
