//! Programs on a machine with several stand-in GPUs: where they go and why, and who waits for room.

#[allow(dead_code, reason = "other tests use the rest")]
mod served;
#[allow(dead_code, reason = "other tests use the rest")]
mod stand_in;
mod support;

use serde_json::Value;
use served::{BUSY, Server, prepare};
use stand_in::{Machine, Running, program};
use std::process::Output;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Starts a program that works without end, and waits until it does.
fn start(machine: &Machine, name: &str, share: &[&str]) -> Running {
    let program =
        machine.start(&[share, &["--name", name]].concat(), "closedloop", &["--seconds", "600", "--us", "500"]);
    machine.wait(name, |machine| gpu_of(machine, name));
    program
}

/// The number of the GPU on which a program works.
fn gpu_of(machine: &Machine, name: &str) -> Option<u64> {
    let status = machine.try_status()?;
    let has = |gpu: &&Value| gpu["tenants"].as_array().is_some_and(|all| all.iter().any(|one| one["name"] == name));
    status["gpus"].as_array()?.iter().find(has)?["index"].as_u64()
}

fn explained(machine: &Machine, name: &str) -> String {
    text(&machine.ask(&["explain", name]).stdout)
}

fn job(machine: &Machine, name: &str) -> Value {
    let asked = machine.ask(&["jobs", "--json", name]);
    serde_json::from_slice::<Value>(&asked.stdout).unwrap_or_default()["jobs"][0].clone()
}

fn visible(machine: &Machine, share: &[&str]) -> Output {
    machine.ask(&[&["run"], share, &["--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]].concat())
}

#[test]
fn programs_go_where_there_is_room_and_tell_why() {
    let machine = Machine::with_gpus(2);
    let _train = start(&machine, "train", &["--class", "best-effort", "--limit", "80%", "--memory", "600MiB"]);
    let _whole = start(&machine, "whole", &[]);
    let _serve =
        start(&machine, "serve", &["--class", "latency", "--request", "30%", "--limit", "60%", "--memory", "200MiB"]);
    assert_eq!(["train", "whole", "serve"].map(|name| gpu_of(&machine, name)), [Some(0), Some(1), Some(0)]);
    let serve = explained(&machine, "serve");
    assert!(serve.starts_with("serve on GPU 0 (Weft stand-in GPU): latency, request 30%, limit 60%;"), "{serve}");
    assert!(serve.contains("gpu 0: request 0.30 of 1.00 taken, complements train; memory 0.8 of 1 GB"), "{serve}");
    let whole = explained(&machine, "whole");
    assert!(whole.contains("no GPU in use has room"), "{whole}");
    let crowd = machine.run(&["--name", "crowd"], "hello", &[]);
    assert!(crowd.status.success(), "{}", text(&crowd.stderr));
    // What best-effort programs were promised is not kept against others.
    let _eager = start(&machine, "eager", &["--class", "best-effort", "--request", "60%", "--gpu", "1"]);
    let _firm = start(&machine, "firm", &["--request", "70%", "--gpu", "1"]);
    assert!(
        !explained(&machine, "firm").contains("gpu 1:"),
        "there was nothing to choose: {}",
        explained(&machine, "firm")
    );
    let greedy = machine.run(&["--class", "best-effort", "--request", "10%", "--gpu", "1"], "hello", &[]);
    assert_eq!(greedy.status.code(), Some(2));
    let told = text(&greedy.stderr);
    assert!(told.contains("a request of 10% cannot be kept: others were promised all but 0% of GPU 1"), "{told}");
}

#[test]
fn programs_see_the_gpus_they_asked_for() {
    let machine = Machine::with_gpus(3);
    let seen = |share: &[&str]| {
        let output = visible(&machine, share);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).trim().split(',').filter(|word| !word.is_empty()).count()
    };
    assert_eq!(seen(&[]), 1);
    assert_eq!(seen(&["--gpus", "2"]), 2);
    assert_eq!(seen(&["--gpu", "2,0"]), 2);
    assert_eq!(seen(&["--gpu", "all"]), 0);
    // Who chose before keeps what was chosen.
    let mut chosen = machine.weft(&["run", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]);
    assert_eq!(text(&chosen.env("CUDA_VISIBLE_DEVICES", "1,2").output().unwrap().stdout), "1,2\n");
    let refused = |share: &[&str], expected: &str| {
        let output = visible(&machine, share);
        assert_eq!(output.status.code(), Some(2), "{share:?}");
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    };
    refused(&["--gpus", "4"], "it asks for 4 GPUs and this machine has 3");
    refused(&["--gpus", "0"], "0 is not in 1..");
    refused(&["--gpu", "0,0"], "GPU 0 is named twice");
    refused(&["--gpu", "0", "--gpus", "2"], "cannot be used with");
    refused(&["--memory", "2GiB"], "more than the GPU has");
}

#[test]
fn a_job_waits_until_there_is_room_for_it() {
    let machine = Machine::with_gpus(2);
    let first = start(&machine, "first", &["--request", "80%"]);
    let _second = start(&machine, "second", &["--request", "70%"]);
    let refused = machine.run(&["--request", "50%"], "hello", &[]);
    assert_eq!(refused.status.code(), Some(2));
    let told = text(&refused.stderr);
    assert!(told.contains("a request of 50% cannot be kept: others were promised all but 30% of every GPU"), "{told}");

    let start_job = |name: &str| {
        let share = ["--detach", "--name", name, "--request", "50%"];
        let output = machine.run(&share, "closedloop", &["--seconds", "600", "--us", "500"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let state = |name: &str| job(&machine, name);
    let told = start_job("later");
    assert!(told.starts_with("later waits: a request of 50% cannot be kept"), "{told}");
    assert_eq!(state("later")["state"], "waits for room");
    assert!(
        explained(&machine, "later").starts_with("waits for room: a request of 50%"),
        "{}",
        explained(&machine, "later")
    );
    // One that waits can be ended like any other.
    assert!(start_job("never").starts_with("never waits"));
    assert_eq!(text(&machine.ask(&["stop", "never"]).stdout), "never ended\n");

    drop(first);
    machine.wait("the job to run", |machine| gpu_of(machine, "later"));
    assert_eq!(gpu_of(&machine, "later"), Some(0));
    assert_eq!((&state("later")["state"], &state("later")["waiting"]), (&Value::from("runs"), &Value::Null));
    assert!(machine.ask(&["stop", "later"]).status.success());
}

/// Starts a job that works without end and makes room when it is asked to; a program that is asked to end runs `on_term`.
fn start_requeued(machine: &Machine, requeue: &str, on_term: &str) {
    let script = format!(
        "trap '{on_term}' TERM; {} --seconds 600 --us 500 --memory 300 & wait; wait",
        program("closedloop").display()
    );
    let share = ["run", "--detach", requeue, "--class", "best-effort", "--memory", "700MiB", "--name", "train"];
    let asked = machine.ask(&[&share[..], &["--", "sh", "-c", &script]].concat());
    assert!(asked.status.success(), "{}", text(&asked.stderr));
    machine.wait("the job to run", |machine| gpu_of(machine, "train"));
}

#[test]
fn a_job_makes_room_for_who_is_more_important_and_comes_back() {
    let machine = Machine::new();
    start_requeued(&machine, "--requeue", "kill %1; exit 0");
    // Nobody makes room for another best-effort program, nor for who needs none.
    let small = machine.run(&["--class", "latency", "--memory", "100MiB"], "hello", &[]);
    assert!(small.status.success() && !text(&small.stderr).contains("room"), "{}", text(&small.stderr));
    let other = machine.run(&["--class", "best-effort", "--memory", "600MiB"], "hello", &[]);
    assert!(!text(&other.stderr).contains("room"), "{}", text(&other.stderr));
    assert_eq!((&job(&machine, "train")["state"], &job(&machine, "train")["requeued"]), (&"runs".into(), &0.into()));

    let serve = start(&machine, "serve", &["--class", "latency", "--memory", "600MiB"]);
    assert_eq!(gpu_of(&machine, "train"), None, "never two owners of the same memory");
    machine.wait("the job to wait", |machine| (job(machine, "train")["state"] == "waits for room").then_some(()));
    assert_eq!(job(&machine, "train")["requeued"], 1);
    let log = text(&machine.ask(&["jobs", "train", "--log"]).stdout);
    assert!(log.contains("weft: it makes room for serve, and is started again when there is room"), "{log}");
    drop(serve);
    machine.wait("the job to run again", |machine| gpu_of(machine, "train"));
    assert_eq!(job(&machine, "train")["state"], "runs");
    assert_eq!(text(&machine.ask(&["stop", "train"]).stdout), "train ended\n");
    assert!(job(&machine, "train")["ended"].is_object(), "who was stopped is not started again");
}

#[test]
fn a_job_makes_room_for_the_worker_of_a_served_model() {
    let machine = Machine::new();
    start_requeued(&machine, "--requeue", "kill %1; exit 0");
    let share = "slo = \"60s\"\nshare = { class = \"latency\", memory = \"600MiB\" }";
    prepare(machine.folder.path(), "busy", BUSY, share);
    let server = Server::start(machine.weft(&[]), machine.folder.path());
    machine.wait("the worker", |machine| gpu_of(machine, "busy"));
    assert_eq!(gpu_of(&machine, "train"), None);
    machine.wait("the job to wait", |machine| (job(machine, "train")["state"] == "waits for room").then_some(()));
    drop(server);
    machine.wait("the job to run again", |machine| gpu_of(machine, "train"));
    assert!(machine.ask(&["stop", "train"]).status.success());
}

#[test]
fn a_job_that_does_not_make_room_is_killed() {
    let machine = Machine::new();
    start_requeued(&machine, "--requeue=1", "");
    let serve = start(&machine, "serve", &["--class", "latency", "--memory", "600MiB"]);
    let log = text(&machine.ask(&["jobs", "train", "--log"]).stdout);
    assert!(log.contains("weft: it has not ended within 1 s and is killed"), "{log}");
    // Somebody who made room and waits can be ended as well.
    machine.wait("the job to wait", |machine| {
        let now = job(machine, "train");
        let log = text(&machine.ask(&["jobs", "train", "--log"]).stdout);
        assert!(now["ended"].is_null(), "{now:#}\n{log}");
        (now["state"] == "waits for room").then_some(())
    });
    assert_eq!(text(&machine.ask(&["stop", "train"]).stdout), "train ended\n");
    drop(serve);
}

#[test]
fn only_jobs_that_can_come_back_make_room() {
    let machine = Machine::new();
    let refused = |share: &[&str], expected: &str| {
        let output = machine.run(&[share, &["--requeue"]].concat(), "hello", &[]);
        assert_eq!(output.status.code(), Some(2), "{share:?}");
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    };
    refused(&["--class", "best-effort", "--memory", "100MiB"], "nobody would start it again; add --detach");
    refused(&["--detach", "--memory", "100MiB"], "only best-effort jobs make room; add --class best-effort");
    refused(&["--detach", "--class", "best-effort"], "it has to be known how much room it needs; add --memory");
}
