//! ONNX models on a machine with a stand-in GPU: which provider a worker asks ONNX Runtime for, and what is said when it
//! cannot be had. What a real GPU does with them, `tests/gpu/onnx.py` shows.

#[path = "../../crates/node/tests/suite/onnx_file.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod onnx_file;
#[allow(dead_code, reason = "other tests use the rest")]
mod served;
#[allow(dead_code, reason = "other tests use the rest")]
mod stand_in;
mod support;

use onnx_file::{model, types};
use serde_json::Value;
use served::{Server, environment};
use stand_in::Machine;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::root;

/// ONNX Runtime as a build for GPUs, whose CUDA writes down what it is asked for and can or cannot be used.
fn for_gpus(folder: &Path, works: bool) -> PathBuf {
    let library = folder.join("libonnxruntime.so");
    let mut compile = Command::new("gcc");
    compile.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library);
    compile.arg(format!("-DREAL={:?}", environment()[1]));
    compile.arg(format!("-DASKED={:?}", folder.join("asked.txt")));
    compile.arg(format!("-DCUDA_WORKS={}", u8::from(works)));
    let compiled = compile.arg(root().join("tests/programs/onnxruntime.c")).arg("-ldl").output().expect("gcc runs");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    library
}

/// Serves the model `adder`, with these lines about it.
fn serve(machine: &Machine, onnxruntime: &Path, more: &str) -> Server {
    let folder = machine.folder.path();
    let dimensions = &[None, Some(2)];
    let inputs = [("a", types::FLOAT, &dimensions[..]), ("b", types::FLOAT, &dimensions[..])];
    fs::write(folder.join("adder.onnx"), model("Add", &inputs, ("sum", types::FLOAT, dimensions))).unwrap();
    let node = format!("[node]\npython = {:?}\nonnxruntime = {:?}\n", environment()[0], onnxruntime);
    let model = format!("[[model]]\nname = \"adder\"\nkind = \"onnx\"\npath = \"adder.onnx\"\nslo = \"60s\"\n{more}\n");
    fs::write(folder.join("weft.toml"), node + &model).unwrap();
    Server::start(machine.weft(&[]), folder)
}

/// What `weft models` says about the model, as JSON and for people.
fn told(machine: &Machine, server: &Server, name: &str) -> (Value, String) {
    let ask = |more: &[&str]| {
        let words = [&["models", "--server", &server.url[1]], more].concat();
        String::from_utf8(machine.ask(&words).stdout).unwrap()
    };
    let models: Value = serde_json::from_str(&ask(&["--json"])).unwrap();
    let model = models["models"].as_array().unwrap().iter().find(|model| model["name"] == name).unwrap().clone();
    let table = ask(&[]);
    let line = table.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(table.lines().next().unwrap().contains("device"), "{table}");
    (model, line)
}

fn logs(machine: &Machine, server: &Server) -> String {
    String::from_utf8(machine.ask(&["logs", "adder", "--server", &server.url[1]]).stdout).unwrap()
}

/// Deploys the model again under another name; what was said when that failed.
fn deploy(machine: &Machine, server: &Server, name: &str, device: &str) -> Result<(), String> {
    let words = ["deploy", name, "adder.onnx", "--slo", "60s", "--device", device, "--server", &server.url[1]];
    let output = machine.ask(&words);
    output.status.success().then_some(()).ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_worker_under_a_share_asks_for_cuda_with_what_its_share_allows() {
    let machine = Machine::bare();
    let library = for_gpus(machine.folder.path(), false);
    let server = serve(&machine, &library, "share = { class = \"latency\", memory = \"256MiB\" }");
    let asked = fs::read_to_string(machine.folder.path().join("asked.txt")).unwrap();
    let expected = ["device_id=0", "arena_extend_strategy=kSameAsRequested", "gpu_mem_limit=268435456"];
    assert!(expected.iter().all(|line| asked.lines().any(|said| said == *line)), "{asked}");
    assert_eq!(asked.lines().last(), Some("provider=CUDA"), "{asked}");

    // It cannot be had, and that is said wherever somebody looks.
    let (model, line) = told(&machine, &server, "adder");
    assert_eq!(
        (&model["state"], &model["device"], &model["provider"]),
        (&"ready".into(), &"cpu".into(), &"CPU".into())
    );
    let reason = model["device_reason"].as_str().unwrap();
    assert!(reason.contains("CUDA: libcublasLt.so.12: cannot open"), "{reason}");
    assert!(reason.contains("weft setup --gpu"), "{reason}");
    assert!(line.contains("cpu") && line.contains("not on the GPU: CUDA: libcublasLt.so.12"), "{line}");
    // Gateways hear of new workers once a second.
    machine.wait("the worker's log", |machine| {
        logs(machine, &server).contains("runs on the CPU, though there is a GPU: CUDA: libcublasLt.so.12").then_some(())
    });

    // The worker is a tenant as any program is, with the library that holds it to its share.
    let maps = maps_of_worker(&machine, "adder");
    assert!(maps.contains("libweft.so"), "{maps}");

    let refused = deploy(&machine, &server, "insists-on-cuda", "gpu").unwrap_err();
    assert!(refused.contains("run it on a GPU: CUDA: libcublasLt.so.12") && refused.contains("--gpu"), "{refused}");
    let own = ["WEFT_MODEL=insists-on-cuda".to_owned()];
    machine.wait("its worker to be gone", |_| process_with(&own).is_none().then_some(()));
    fs::remove_file(machine.folder.path().join("asked.txt")).unwrap();
    deploy(&machine, &server, "content", "cpu").unwrap();
    assert!(!machine.folder.path().join("asked.txt").exists(), "CUDA was asked for");
    let (model, _) = told(&machine, &server, "content");
    assert_eq!((&model["device"], &model["device_reason"]), (&"cpu".into(), &Value::Null));
}

#[test]
fn a_model_is_where_its_operators_are_and_not_where_they_were_wanted() {
    let machine = Machine::bare();
    let library = for_gpus(machine.folder.path(), true);
    let server = serve(&machine, &library, "");
    let (model, line) = told(&machine, &server, "adder");
    assert_eq!((&model["device"], &model["provider"]), (&"cpu".into(), &"CPU".into()));
    assert_eq!(model["device_reason"], "none of its operators can run on the GPU");
    assert!(line.contains("not on the GPU: none of its operators"), "{line}");
    let refused = deploy(&machine, &server, "insists", "gpu").unwrap_err();
    assert!(refused.contains("deploy it with `device = \"cpu\"`"), "{refused}");
}

#[test]
fn a_build_for_the_cpu_says_what_would_change_that() {
    let machine = Machine::bare();
    let server = serve(&machine, Path::new(&environment()[1]), "");
    let (model, _) = told(&machine, &server, "adder");
    assert_eq!(model["device"], "cpu");
    let reason = model["device_reason"].as_str().unwrap();
    assert!(reason.contains("has no provider for GPUs") && reason.contains("weft setup --gpu"), "{reason}");
    let refused = deploy(&machine, &server, "insists", "gpu").unwrap_err();
    assert!(refused.contains("weft setup --gpu"), "{refused}");

    // The set-up says so before that, on a machine with a GPU.
    let state = root().join("target/tmp/serve-state").display().to_string();
    let setup = machine.ask(&["setup", "--state", &state]);
    let (printed, talk) = (String::from_utf8_lossy(&setup.stdout), String::from_utf8_lossy(&setup.stderr));
    assert!(printed.contains("ONNX models   run on the CPU"), "{printed}");
    assert!(talk.contains("weft setup --gpu"), "{talk}");
}

/// What is mapped into the process that is this model's worker and a tenant of this machine's daemon.
fn maps_of_worker(machine: &Machine, name: &str) -> String {
    let socket = format!("WEFT_SOCKET={}", machine.socket().display());
    let own = [format!("WEFT_MODEL={name}"), format!("WEFT_TENANT={name}"), socket];
    let worker = process_with(&own).unwrap_or_else(|| panic!("there is no worker of {name}"));
    String::from_utf8_lossy(&fs::read(worker.join("maps")).unwrap_or_default()).into_owned()
}

/// The folder of a process that has these variables.
fn process_with(variables: &[String]) -> Option<PathBuf> {
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    processes.into_iter().find(|process| {
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        let environment = String::from_utf8_lossy(&environment);
        variables.iter().all(|one| environment.split('\0').any(|variable| variable == one))
    })
}
