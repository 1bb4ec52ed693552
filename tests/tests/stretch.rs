//! A served model whose share of a stand-in GPU follows its load.

#[allow(dead_code, reason = "other tests use the rest")]
mod served;
#[allow(dead_code, reason = "other tests use the rest")]
mod stand_in;
mod support;

use served::{BUSY, Server, prepare};
use stand_in::{Machine, Running};
use std::process::Stdio;

#[test]
fn a_worker_has_more_of_its_gpu_while_more_is_asked_of_it() {
    let machine = Machine::bare();
    let folder = machine.folder.path();
    let share = "share = { class = \"latency\", request = \"20%\", limit = \"80%\" }";
    prepare(folder, "busy", BUSY, &format!("slo = \"20s\"\nmax_batch = 1\n{share}"));
    let server = Server::start(machine.weft(&[]), folder);
    let stretched = || machine.tenant("busy").and_then(|tenant| tenant["stretched_permille"].as_u64());
    machine.wait("the worker", |_| stretched());
    assert_eq!(machine.tenant("busy").unwrap()["share"]["slo"], "5s", "a quarter of the model's objective");
    // A batch of one takes 6 ms of the GPU: these are more than its request lets it do.
    let load = ["load", "--model", "busy", "--url", &server.url[0], "--rate", "100", "--duration", "600s"];
    let mut load = machine.weft(&load);
    let load = Running(load.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null()).spawn().unwrap());
    machine.wait("more of the GPU", |_| stretched().filter(|permille| *permille > 200));
    let explained = machine.ask(&["explain", "busy", "--server", &server.url[1]]);
    let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(explained.contains("its load needs"), "{explained}");
    drop(load);
    machine.wait("what it was promised", |_| stretched().filter(|permille| *permille == 200));
}
