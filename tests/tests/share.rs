//! Programs under shares on a stand-in GPU, as people run them: limits that hold, deaths that harm nobody, and commands
//! that say what is wrong.
//!
//! How closely and how fast is for `cargo xtask faults` to say, and what a limit lets through for the tests in virtual time.

mod stand_in;
mod support;

use serde_json::Value;
use stand_in::{Machine, Running};
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Output, Stdio};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn refused(output: &Output, code: i32, expected: &str) {
    let talk = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{talk}");
    assert!(talk.contains(expected), "{talk}");
}

#[test]
fn a_program_does_not_notice() {
    let machine = Machine::new();
    let shell = |script: &str| machine.ask(&["run", "--", "sh", "-c", script]);
    assert_eq!(shell("exit 7").status.code(), Some(7));
    assert_eq!(shell("kill -TERM $$").status.signal(), Some(15));
    assert_eq!(text(&shell("pwd").stdout).trim(), machine.folder.path().canonicalize().unwrap().to_str().unwrap());
    assert_eq!(text(&shell("echo $0 $WEFT_TENANT").stdout), "sh sh\n");
    let gpu = machine.ask(&["run", "--gpu", "0", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]);
    assert!(text(&gpu.stdout).starts_with("GPU-"), "{}", text(&gpu.stderr));

    let mut cat = machine.weft(&["run", "cat"]);
    let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    cat.stdin.take().unwrap().write_all(b"through").unwrap();
    assert_eq!(text(&cat.wait_with_output().unwrap().stdout), "through");

    // The program is the process that was started: its children are its own, and a signal reaches it at once.
    let mut sleeper = Running(machine.weft(&["run", "--name", "sleeper", "--", "sleep", "60"]).spawn().unwrap());
    let pid = sleeper.0.id();
    machine.wait("the program", |_| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        (name.trim() == "sleep").then_some(())
    });
    assert_eq!(std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap(), "");
    sleeper.0.kill().unwrap();
    assert_eq!(sleeper.0.wait().unwrap().signal(), Some(9));
    machine.wait("the tenant to go", |machine| machine.try_status()?["idle"].as_array()?.is_empty().then_some(()));
}

#[test]
fn what_cannot_be_is_said() {
    let machine = Machine::new();
    let run = |share: &[&str]| machine.run(share, "hello", &[]);
    refused(&run(&["--class", "fast"]), 2, "`fast` is not a class");
    refused(&run(&["--limit", "140%"]), 2, "more than a whole GPU");
    refused(&run(&["--limit", "40"]), 2, "write it like 30%");
    refused(&run(&["--priority", "10"]), 2, "10 is not in 0..=9");
    refused(&run(&["--request", "50%", "--limit", "40%"]), 2, "more than the limit");
    refused(&run(&["--gpu", "4"]), 2, "there is no GPU 4");
    refused(&run(&["--memory", "2GiB"]), 2, "more than the GPU has");
    refused(&run(&["--colour", "red"]), 2, "unexpected argument");
    refused(&machine.ask(&["run", "--", "no-such-program"]), 127, "no such program");
    refused(&machine.ask(&["run", "--", "/etc/passwd"]), 126, "not executable");
    refused(&machine.ask(&["run"]), 2, "required");
    refused(&machine.ask(&["set", "nobody", "--limit", "40%"]), 2, "no tenant `nobody`");
    refused(&machine.ask(&["set", "nobody"]), 2, "change nobody: say what to change");
    refused(&machine.ask(&["top"]), 2, "no terminal");
    let twice = machine.start(&["--name", "twice"], "closedloop", &["--seconds", "600"]);
    machine.wait("it", |machine| machine.tenant("twice"));
    refused(&run(&["--name", "twice"]), 2, "there is a tenant `twice` already");
    drop(twice);
    refused(&machine.ask(&["node"]), 1, "a daemon is there already");

    let bare = Machine::bare();
    refused(&bare.ask(&["top", "--once"]), 2, "no daemon shares GPUs here");
    let missing = bare.weft(&["run", "true"]).env("WEFT_LIBRARY", "/nothing").output().unwrap();
    refused(&missing, 2, "WEFT_LIBRARY names /nothing");
    let no_gpu = bare.weft(&["run", "true"]).env("WEFT_NVML", "/nothing.so").output().unwrap();
    refused(&no_gpu, 2, "there is no GPU to share: NVML (/nothing.so) is not installed");
}

#[test]
fn a_daemon_is_started_on_demand_once() {
    let machine = Machine::bare();
    std::fs::write(machine.folder.path().join("stale"), "").unwrap();
    let first: Vec<Running> =
        (0..4).map(|_| machine.start(&[], "closedloop", &["--seconds", "600", "--us", "100"])).collect();
    let status = machine.wait("four tenants", |machine| {
        let status = machine.try_status()?;
        (status["gpus"][0]["tenants"].as_array()?.len() == 4).then_some(status)
    });
    let names: Vec<&str> =
        status["gpus"][0]["tenants"].as_array().unwrap().iter().filter_map(|tenant| tenant["name"].as_str()).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, ["closedloop", "closedloop-2", "closedloop-3", "closedloop-4"]);
    drop(first);
}

#[test]
fn memory_stays_under_its_cap_and_comes_back() {
    let machine = Machine::new();
    let output = machine.run(&["--memory", "100MiB"], "allocations", &["60", "200"]);
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{printed}{}", text(&output.stderr));
    assert!(printed.contains("alloc 60 MiB: 0") && printed.contains("alloc 200 MiB: 2"), "{printed}");

    let mut holder =
        machine.start(&["--memory", "300MiB", "--name", "holder"], "allocations", &["--hold", "60", "200"]);
    machine.wait("its memory", |machine| machine.tenant("holder").filter(|tenant| tenant["memory_bytes"] == 200 << 20));
    assert_eq!(machine.truth(holder.0.id())["used_bytes"], 200 << 20);
    holder.0.kill().unwrap();
    holder.0.wait().unwrap();
    machine.wait("it to be gone", |machine| machine.tenant("holder").is_none().then_some(()));
}

/// Waits until a program has launched so much more.
fn goes_on(machine: &Machine, name: &str, more: u64) {
    let launches = |machine: &Machine| machine.tenant(name)?["launches"].as_u64();
    let from = machine.wait(name, launches);
    machine.wait("more launches", |machine| launches(machine).filter(|now| *now >= from + more));
}

/// Waits until a program that is alone on its GPU waits for its share, or does not.
fn waits(machine: &Machine, name: &str, expected: bool) {
    machine.wait("its share to hold it or let it go", |machine| {
        let waits = machine.tenant(name)?["waiting_permille"].as_u64()? > 0;
        (waits == expected).then_some(())
    });
}

#[test]
fn a_quota_holds_a_program_that_wants_more_and_it_goes_on() {
    let machine = Machine::new();
    let _limited =
        machine.start(&["--name", "limited", "--limit", "10%"], "closedloop", &["--seconds", "600", "--us", "200"]);
    machine.wait("it", |machine| machine.tenant("limited"));
    for limit in ["10%", "50%", "100%"] {
        let set = machine.ask(&["set", "limited", "--limit", limit]);
        assert!(set.status.success(), "{}", text(&set.stderr));
        waits(&machine, "limited", limit != "100%");
        goes_on(&machine, "limited", 50);
    }
}

#[test]
fn deaths_harm_nobody() {
    let machine = Machine::new();
    let survivor = machine.start(&["--class", "latency", "--name", "survivor"], "closedloop", &["--seconds", "600"]);
    let start = || machine.start(&["--class", "best-effort"], "closedloop", &["--seconds", "600", "--memory", "20"]);
    let mut victims: Vec<Running> = (0..4).map(|_| start()).collect();
    machine.wait("the survivor", |machine| machine.tenant("survivor"));
    for round in 0..8 {
        victims[round % 4].0.kill().unwrap();
        let launches = || machine.truth(survivor.0.id()).get("launches").copied().unwrap_or(0);
        let before = launches();
        machine.wait("the survivor to go on", |_| (launches() > before).then_some(()));
        victims[round % 4] = start();
    }
    drop(victims);
    machine.wait("the others to be gone", |machine| {
        let status = machine.try_status()?;
        (status["gpus"][0]["tenants"].as_array()?.len() == 1).then_some(())
    });
    assert!(machine.tenant("survivor").is_some());
}

#[test]
fn programs_outlive_daemons_and_shares_hold_again() {
    let mut machine = Machine::new();
    let mut program = machine.start(&["--limit", "30%", "--name", "kept"], "closedloop", &["--seconds", "600"]);
    waits(&machine, "kept", true);
    for _ in 0..2 {
        machine.kill_daemon();
        machine.start_daemon();
        let kept = machine.wait("it to come back", |machine| machine.tenant("kept"));
        assert_eq!(kept["share"]["limit"], "30%");
        assert!(program.0.try_wait().unwrap().is_none(), "it runs");
        waits(&machine, "kept", true);
        goes_on(&machine, "kept", 50);
    }
    program.0.kill().unwrap();
    let mut talk = String::new();
    program.0.stderr.take().unwrap().read_to_string(&mut talk).unwrap();
    assert!(!talk.contains("panicked"), "{talk}");
}

#[test]
fn a_change_is_seen_at_once_and_top_shows_it() {
    let machine = Machine::new();
    let _program = machine.start(&["--name", "train"], "closedloop", &["--seconds", "600", "--memory", "64"]);
    machine.wait("it", |machine| machine.tenant("train"));
    let set = machine.ask(&["set", "train", "--limit", "40%", "--memory", "512MiB", "--priority", "2", "--json"]);
    let share: Value = serde_json::from_slice(&set.stdout).unwrap();
    assert_eq!((&share["limit"], &share["priority"]), (&Value::from("40%"), &Value::from(2)));
    assert_eq!(machine.tenant("train").unwrap()["share"], share);
    let table = machine.wait("a table with numbers", |machine| {
        let table = text(&machine.ask(&["top", "--once"]).stdout);
        let line = table.lines().find(|line| line.starts_with("train"))?.to_owned();
        (!line.contains(" 0.0%  ") || line.contains("0.06GiB")).then_some(table)
    });
    assert!(table.starts_with("TENANT  GPU"), "{table}");
    assert!(table.contains("0.50GiB"), "{table}");
}

#[test]
fn a_doctor_knows_the_machine() {
    let machine = Machine::new();
    let output = machine.ask(&["doctor", "--json"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let finding = |what: &str| {
        let all = found["findings"].as_array().unwrap();
        all.iter().find(|finding| finding["what"] == what).unwrap_or_else(|| panic!("no {what} in {found:#}"))
    };
    for what in ["driver", "gpu", "library", "daemon", "resolver", "probe"] {
        assert_eq!(finding(what)["health"], "good", "{found:#}");
    }
    let broken = machine.weft(&["doctor"]).env("WEFT_NVML", "/nothing.so").output().unwrap();
    assert_eq!(broken.status.code(), Some(1));
    assert!(text(&broken.stdout).contains("BROKEN   driver"), "{}", text(&broken.stdout));
}

/// A latency program that works most of the time, and one beside it that never stops.
fn beside(machine: &Machine) -> [Running; 2] {
    let latency = ["--class", "latency", "--name", "serve"];
    let latency = machine.start(&latency, "closedloop", &["--seconds", "600", "--us", "50", "--every", "40"]);
    let train = ["--class", "best-effort", "--name", "train"];
    let train = machine.start(&train, "closedloop", &["--seconds", "600", "--us", "3000", "--every", "4"]);
    [latency, train]
}

#[test]
fn best_effort_work_is_sliced_beside_a_latency_program_and_top_says_so() {
    // Where it can be preempted, how long it has slices and when it does that is a matter of how busy the host is.
    let mut machine = Machine::bare();
    machine.refuses = "preempt".into();
    machine.start_daemon();
    let [serve, _train] = beside(&machine);
    let note = machine.wait("slices", |machine| {
        let train = machine.tenant("train").filter(|train| train["slice_us"].as_u64() > Some(0))?;
        train["note"].as_str().filter(|note| note.contains("in time slices of")).map(str::to_owned)
    });
    assert!(note.contains("serve takes"), "{note}");
    let shown = machine.ask(&["top", "--once"]);
    assert!(text(&shown.stdout).contains("in time slices of"), "{}", text(&shown.stdout));
    drop(serve);
    machine.wait("its own slices", |machine| {
        let train = machine.tenant("train")?;
        (train["slice_us"] == 0 && train["note"] == "").then_some(())
    });
}

#[test]
fn best_effort_work_is_preempted_for_a_latency_program_that_pauses_and_top_says_so() {
    let machine = Machine::new();
    let _programs = with_pauses(&machine, &[]);
    machine.wait("work that is taken off", |machine| {
        let train = machine.tenant("train").filter(|train| train["preemptions"].as_u64() > Some(0))?;
        train["note"].as_str().filter(|note| note.contains("preempted in busy periods: serve takes")).map(str::to_owned)
    });
}

#[test]
fn beside_an_objective_best_effort_work_has_its_turn_for_longer() {
    let machine = Machine::new();
    let _programs = with_pauses(&machine, &["--slo", "200ms"]);
    machine
        .wait("longer turns", |machine| machine.tenant("train")?["slice_us"].as_u64().filter(|slice| *slice > 1_000));
}

/// A latency program that pauses between its bursts, and a best-effort program.
fn with_pauses(machine: &Machine, objective: &[&str]) -> [Running; 2] {
    let serve = [&["--class", "latency", "--name", "serve"], objective].concat();
    let bursts = ["--seconds", "600", "--us", "50", "--every", "40", "--pause", "8000"];
    let train = ["--class", "best-effort", "--name", "train"];
    [
        machine.start(&serve, "closedloop", &bursts),
        machine.start(&train, "closedloop", &["--seconds", "600", "--us", "3000", "--every", "4"]),
    ]
}

#[test]
fn what_was_recorded_replays_to_the_same_actions() {
    let mut machine = Machine::bare();
    let folder = machine.folder.path().join("journals").display().to_string();
    machine.start_daemon_with(&["--record", &folder]);
    let programs = with_pauses(&machine, &[]);
    machine.wait("best-effort work to be throttled", |machine| {
        machine.tenant("train")?["preemptions"].as_u64().filter(|times| *times > 20)
    });
    assert!(machine.ask(&["set", "--sharing", "tgs"]).status.success());
    drop(programs);
    machine.wait("their end", |machine| machine.tenant("train").is_none().then_some(()));
    machine.kill_daemon();
    let replayed = machine.ask(&["sim", "replay", &format!("{folder}/gpu-0.journal"), "--json"]);
    assert!(replayed.status.success(), "{}", text(&replayed.stderr));
    let found: Value = serde_json::from_slice(&replayed.stdout).unwrap();
    assert!(found["looks"].as_u64() > Some(50) && found["actions"].as_u64() > Some(50), "{found}");
}

#[test]
fn a_driver_that_refuses_slices_leaves_the_gate() {
    let mut machine = Machine::bare();
    machine.refuses = "slices".into();
    machine.start_daemon();
    let _programs = beside(&machine);
    let note = machine.wait("the gate", |machine| {
        let note = machine.tenant("train")?["note"].as_str()?.to_owned();
        note.contains("admitted launch by launch").then_some(note)
    });
    assert!(note.contains("serve takes"), "{note}");
    let waited = |machine: &Machine| machine.tenant("train")?["waiting_permille"].as_u64();
    machine.wait("launches to be held", |machine| waited(machine).filter(|permille| *permille > 0));
}

#[test]
fn the_controller_can_be_changed_and_nonsense_cannot() {
    let machine = Machine::new();
    let _programs = beside(&machine);
    machine.wait("slices", |machine| machine.tenant("train").filter(|train| train["slice_us"].as_u64() > Some(0)));
    assert_eq!(text(&machine.ask(&["set", "--sharing", "gate"]).stdout), "controller for best-effort programs: gate\n");
    machine.wait("the gate", |machine| machine.tenant("train").filter(|train| train["slice_us"] == 0));
    assert_eq!(machine.try_status().unwrap()["sharing"], "gate");
    let set = machine.ask(&["set", "--sharing", "slices=700us", "--json"]);
    assert_eq!(serde_json::from_slice::<Value>(&set.stdout).unwrap()["sharing"], "slices=700us");
    machine.wait("the slice", |machine| machine.tenant("train").filter(|train| train["slice_us"] == 700));
    refused(&machine.ask(&["set", "--sharing", "fair"]), 2, "`fair` is no controller");
    refused(&machine.ask(&["set", "--sharing", "slices=1us"]), 2, "makes no sense");
    refused(&machine.ask(&["set", "train", "--sharing", "gate"]), 2, "cannot be used with");
}

#[test]
fn programs_find_the_mps_server_or_are_told_why_not() {
    let none = Machine::new();
    refused(
        &none.run(&["--class", "latency", "--share", "space"], "hello", &[]),
        2,
        "spatial mode is not available: `no",
    );
    refused(&none.run(&["--share", "sideways"], "hello", &[]), 2, "`sideways` is no sharing mode");
    assert!(none.run(&["--class", "latency"], "hello", &[]).status.success());
    assert!(none.try_status().unwrap()["no_space"].as_str().unwrap().contains("not installed"));

    let mut machine = Machine::bare();
    machine.install_mps();
    machine.start_daemon();
    let pipe = |share: &[&str]| {
        let mut command = machine.weft(&["run"]);
        command.args(share).args(["--", "sh", "-c", "echo $CUDA_MPS_PIPE_DIRECTORY $CUDA_MPS_CLIENT_PRIORITY"]);
        text(&command.env_remove("CUDA_MPS_PIPE_DIRECTORY").output().unwrap().stdout)
    };
    assert_eq!(pipe(&["--class", "latency"]), "\n", "nothing is known of it");
    assert_eq!(pipe(&["--class", "best-effort"]), "\n", "nobody shares the SMs with it");
    assert!(pipe(&["--class", "latency", "--share", "space"]).ends_with("node.mps/pipe 0\n"));
    assert!(pipe(&["--class", "best-effort", "--share", "spatial"]).ends_with("node.mps/pipe 1\n"));
    assert_eq!(pipe(&["--class", "best-effort", "--share", "temporal"]), "\n");
    assert_eq!(pipe(&[]), "\n", "standard programs have shares of time");
    assert!(pipe(&["--share", "space"]).ends_with("node.mps/pipe 0\n"));
    machine.start(&["--name", "here", "--class", "latency"], "closedloop", &["--seconds", "600"]);
    let moved = machine.ask(&["set", "here", "--share", "temporal"]);
    refused(&moved, 2, "unexpected argument");
}

/// A best-effort program with one kernel that never ends, and a latency program that never waits for the GPU.
#[test]
fn who_never_ends_and_who_never_waits_stop_nobody() {
    let machine = Machine::new();
    let endless = ["--class", "best-effort", "--name", "endless"];
    let _endless = machine.start(&endless, "closedloop", &["--seconds", "1", "--us", "600000000", "--every", "1"]);
    machine.wait("its kernel", |machine| machine.tenant("endless").filter(|tenant| tenant["launches"] == 1));
    let output = machine.run(&["--class", "latency"], "closedloop", &["--seconds", "1", "--us", "100"]);
    assert!(output.status.success(), "{}", text(&output.stderr));

    let restless = ["--class", "latency", "--name", "restless"];
    let _restless = machine.start(&restless, "launches", &["--count", "10000000", "--us", "50"]);
    let other = ["--class", "best-effort", "--name", "other"];
    let _other = machine.start(&other, "closedloop", &["--seconds", "600", "--us", "100"]);
    for name in ["restless", "other"] {
        goes_on(&machine, name, 100);
    }
}

#[test]
fn what_was_learned_of_a_program_is_kept_for_its_next_run() {
    let machine = Machine::new();
    let learned = || {
        let files = std::fs::read_dir(machine.socket().with_extension("learned")).into_iter().flatten();
        let read = |path: &std::path::Path| serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let all = files.map(|file| read(&file.unwrap().path()));
        // There is another for what was asked to be run, which may start many programs.
        all.filter(|file: &serde_json::Value| file["program"]["executable"] != "").collect::<Vec<_>>()
    };
    let run = |us: &str| {
        let ran = machine.run(&["--name", "train"], "launches", &["--count", "200", "--us", us]);
        assert!(ran.status.success(), "{}", text(&ran.stderr));
        machine.wait("the tenant to be gone", |machine| machine.tenant("train").is_none().then_some(()));
        learned()
    };
    let first = run("2000");
    assert_eq!(first.len(), 1, "{first:?}");
    let kernels = first[0]["kernels"].as_array().unwrap();
    // No kernel is done before its time.
    assert!(kernels.iter().any(|kernel| kernel[1].as_u64().unwrap() >= 1_990_000), "{kernels:?}");
    assert!(!first[0]["program"].to_string().contains("--count"), "what people say on command lines is not kept");
    assert_eq!(run("2000").len(), 1, "the same program");
    assert_eq!(run("3000").len(), 2, "another command line");
}

/// A program that waits for the GPU fills it, and takes turns from its second run on; one that leaves room on it is
/// beside others. Best-effort programs follow.
#[test]
fn what_a_program_is_like_decides_how_it_shares() {
    let mut machine = Machine::bare();
    machine.install_mps();
    machine.start_daemon();
    const FILLS: [&str; 6] = ["--seconds", "600", "--us", "100", "--every", "20"];
    let leaves_room = [&FILLS[..], &["--between", "400"]].concat();
    let way = |class: &str, words: &[&str]| {
        let _running = machine.start(&["--class", class, "--name", "seen"], "closedloop", words);
        // A latency program is to be known for the next time; a best-effort one beside it may have to wait for long.
        let known = if class == "latency" { Some(400) } else { None };
        let working = |machine: &Machine| machine.tenant("seen").filter(|tenant| tenant["launches"].as_u64() > known);
        let tenant = machine.wait("a program", working);
        tenant["share"]["way"].as_str().unwrap().to_owned()
    };
    let gone = || machine.wait("it to be gone", |machine| machine.tenant("seen").is_none().then_some(()));
    for (words, expected) in [(&FILLS[..], ["time", "time"]), (&leaves_room[..], ["time", "space"])] {
        for expected in expected {
            assert_eq!(way("latency", words), expected, "{words:?}");
            gone();
        }
    }
    assert_eq!(way("best-effort", &FILLS), "time", "nobody shares the SMs with it");
    gone();
    {
        let _room = machine.start(&["--class", "latency", "--name", "room"], "closedloop", &leaves_room);
        machine.wait("a program", |machine| machine.tenant("room"));
        assert_eq!(way("best-effort", &FILLS), "space", "where the latency program is");
        gone();
    }
    machine.wait("it to be gone", |machine| machine.tenant("room").is_none().then_some(()));
    let _fills = machine.start(&["--class", "latency", "--name", "fills"], "closedloop", &FILLS);
    machine.wait("a program", |machine| machine.tenant("fills"));
    assert_eq!(way("best-effort", &FILLS), "time", "where the latency program is");
}

#[test]
fn who_is_suspended_launches_nothing_and_goes_on_where_it_was() {
    let machine = Machine::new();
    let words = ["--seconds", "600", "--us", "1000", "--every", "1"];
    let _other = machine.start(&["--name", "other"], "closedloop", &words);
    for class in ["latency", "standard", "best-effort"] {
        let running = machine.start(&["--class", class, "--name", class], "closedloop", &words);
        let launches = |machine: &Machine| machine.tenant(class)?["launches"].as_u64();
        goes_on(&machine, class, 10);
        assert!(machine.ask(&["suspend", class]).status.success());
        // What it had launched before it heard of it is seen a moment later. It is held for as long as the daemon is there to
        // hold it, so on a machine that keeps the daemon from running it takes a while.
        machine.wait("launches of others and none of its own", |machine| {
            let before = launches(machine)?;
            goes_on(machine, "other", 200);
            (launches(machine)? == before).then_some(())
        });
        assert_eq!(machine.tenant(class).unwrap()["note"], "suspended");
        assert!(machine.ask(&["resume", class]).status.success());
        goes_on(&machine, class, 50);
        drop(running);
    }
    refused(&machine.ask(&["suspend", "nobody"]), 2, "there is no tenant `nobody`");
}

#[test]
fn a_job_has_a_name_a_log_a_state_and_an_end() {
    let machine = Machine::new();
    let job = |name: &str, words: &[&str]| {
        let share = ["--detach", "--class", "best-effort", "--name", name];
        machine.run(&share, "closedloop", words)
    };
    let jobs = |words: &[&str]| {
        let asked = machine.ask(&[&["jobs", "--json"], words].concat());
        serde_json::from_slice::<serde_json::Value>(&asked.stdout).unwrap_or_default()
    };
    let state = |name: &str| jobs(&[name])["jobs"][0]["state"].as_str().unwrap_or_default().to_owned();
    let started = job("train", &["--seconds", "600", "--us", "1000"]);
    assert!(started.status.success(), "{}", text(&started.stderr));
    assert!(text(&started.stdout).starts_with("train runs; what it prints is in "), "{}", text(&started.stdout));
    machine.wait("the job to work", |machine| machine.tenant("train"));
    refused(&job("train", &["--seconds", "1"]), 2, "there is one of this name already");
    assert!(machine.ask(&["suspend", "train"]).status.success());
    machine.wait("it to be suspended", |_| (state("train") == "suspended").then_some(()));
    assert!(machine.ask(&["resume", "train"]).status.success());
    machine.wait("it to run", |_| (state("train") == "runs").then_some(()));
    refused(&machine.ask(&["jobs", "train", "--forget"]), 2, "it still runs; end it with `weft stop` first");
    assert!(text(&machine.ask(&["jobs", "train", "--log"]).stdout).contains("ready"));
    let told = text(&machine.ask(&["jobs"]).stdout);
    assert!(told.contains("train") && told.contains("runs"), "{told}");
    // Suspended or not, it ends when it is asked to.
    assert!(machine.ask(&["suspend", "train"]).status.success());
    assert_eq!(text(&machine.ask(&["stop", "train"]).stdout), "train ended\n");
    assert_eq!(state("train"), "ended by signal 15");
    machine.wait("the tenant to be gone", |machine| machine.tenant("train").is_none().then_some(()));
    refused(&machine.ask(&["stop", "train"]), 2, "stop `train`: no job of this name runs");
    // What is said of a job is said of its tenant, so they have one name.
    let _other = machine.start(&[], "closedloop", &["--seconds", "600"]);
    machine.wait("another program", |machine| machine.tenant("closedloop"));
    refused(
        &machine.run(&["--detach"], "closedloop", &["--seconds", "1"]),
        2,
        "there is a tenant `closedloop` already",
    );

    assert!(job("short", &["--seconds", "1"]).status.success());
    machine.wait("it to end", |_| (state("short") == "done").then_some(()));
    assert!(machine.ask(&["jobs", "short", "--forget"]).status.success());
    refused(&machine.ask(&["jobs", "short"]), 2, "find job `short`: there is none of this name");
    refused(&job("a/b", &[]), 2, "letters, digits");
    let wrong = machine.ask(&["run", "--detach", "--name", "wrong", "--", "/nowhere/program"]);
    assert!(!wrong.status.success() && text(&wrong.stderr).contains("/nowhere/program"), "{}", text(&wrong.stderr));
}

#[test]
fn a_job_that_does_not_want_to_end_is_killed() {
    let machine = Machine::new();
    let stubborn = [
        "run",
        "--detach",
        "--name",
        "stubborn",
        "--",
        "sh",
        "-c",
        "trap '' TERM; echo deaf; while :; do sleep 1; done",
    ];
    let started = machine.ask(&stubborn);
    assert!(started.status.success(), "{}", text(&started.stderr));
    machine.wait("it to be deaf", |machine| {
        text(&machine.ask(&["jobs", "stubborn", "--log"]).stdout).contains("deaf").then_some(())
    });
    let stopped = machine.ask(&["stop", "stubborn", "--patience", "1"]);
    assert_eq!(text(&stopped.stdout), "stubborn did not end within 1 s and was killed\n", "{}", text(&stopped.stderr));
    let told = text(&machine.ask(&["jobs"]).stdout);
    assert!(told.contains("ended by signal 9"), "{told}");
}
