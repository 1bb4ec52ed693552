//! `weft bench sharing` on a stand-in GPU: what it writes, what it says of programs and machines that do not do what they
//! should, and that nothing is left running.

#[allow(dead_code, reason = "other tests use the rest")]
mod stand_in;
mod support;

use serde_json::Value;
use stand_in::{Machine, Running, program};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Output, Stdio};

/// Short runs.
const QUICK: [&str; 6] = ["--seconds", "0.3", "--poisson-seconds", "0.5", "--warmup", "0.2"];

/// A stand-in for the program that starts MPS: it runs until it is told to quit, and notes what it is told.
const MPS: &str = "#!/bin/sh
if [ \"$1\" = -f ]; then
  while [ ! -e \"$CUDA_MPS_PIPE_DIRECTORY/quit\" ]; do sleep 0.02; done
else
  read line
  echo \"$line\" >> \"$NOTES\"
  case \"$line\" in quit*) touch \"$CUDA_MPS_PIPE_DIRECTORY/quit\";; esac
fi
";

const NO_MPS: &str = "#!/bin/sh\necho there is no MPS for this GPU >&2\nexit 1\n";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn script(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// `weft bench sharing` with these pairs.
fn bench(machine: &Machine, mps: &str, pairs: &str, arguments: &[&str]) -> Command {
    let folder = machine.folder.path();
    let (tools, temporary) = (folder.join("tools"), folder.join("temporary"));
    for made in [&tools, &temporary] {
        std::fs::create_dir_all(made).unwrap();
    }
    script(&tools.join("nvidia-cuda-mps-control"), mps);
    std::fs::write(folder.join("pairs.txt"), pairs).unwrap();
    let mut command = machine.weft(&["bench", "sharing", "--pairs", "pairs.txt"]);
    let own = arguments.contains(&"--seconds");
    command.args(if own { &[][..] } else { &QUICK }).args(arguments).stdin(Stdio::null());
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", tools.display())).env("TMPDIR", temporary);
    // What MPS is started with is found by its name, as anybody finds it.
    command.env("NOTES", folder.join("notes")).env_remove("WEFT_MPS_CONTROL");
    command
}

fn measure(machine: &Machine, mps: &str, pairs: &str, arguments: &[&str]) -> Output {
    let output = bench(machine, mps, pairs, arguments).args(["--rounds", "1"]).output().unwrap();
    nothing_is_left(machine);
    output
}

/// Processes that belong to a machine, by what they were started with.
fn processes(machine: &Machine) -> Vec<String> {
    let own = format!("FAKECUDA_STATE={}", machine.folder.path().join("state").display());
    let numbers = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let read = |number: &str, name: &str| text(&std::fs::read(format!("/proc/{number}/{name}")).unwrap_or_default());
    let owned = numbers.filter(|number| read(number, "environ").split('\0').any(|variable| variable == own));
    owned.map(|number| format!("{number} {}", read(&number, "cmdline").replace('\0', " "))).collect()
}

#[track_caller]
fn nothing_is_left(machine: &Machine) {
    let left = processes(machine);
    assert!(left.is_empty(), "still running: {left:#?}");
    let temporary: Vec<_> = std::fs::read_dir(machine.folder.path().join("temporary")).unwrap().collect();
    assert!(temporary.is_empty(), "{temporary:?}");
}

/// Ends it as a person does, and waits for that.
fn interrupt(machine: &Machine, running: &mut Running) -> ExitStatus {
    assert!(Command::new("kill").args(["-INT", &running.0.id().to_string()]).status().unwrap().success());
    machine.wait("it to end", |_| running.0.try_wait().unwrap())
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Whether two values are the same, but for the last digits of numbers, which reading them changes.
fn alike(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(_), Value::Number(_)) => (number(one) - number(other)).abs() <= 1e-9 * number(one).abs(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| alike(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, value)| other.get(key).is_some_and(|own| alike(value, own)))
        }
        _ => one == other,
    }
}

fn setting<'a>(pair: &'a Value, name: &str) -> &'a Value {
    let settings = pair["settings"].as_array().unwrap();
    settings.iter().find(|setting| setting["setting"] == name).unwrap_or_else(|| panic!("no {name} in {pair:#}"))
}

#[test]
fn pairs_are_measured_and_written_down() {
    let machine = Machine::bare();
    let workload = program("workload").display().to_string();
    let pairs = format!(
        "# two pairs with the same training\n\
         one = {workload} --kernels 10 --us 100 | {workload} --kernels 10 --us 500 --train\n\
         many = 3 x --slo 50ms {workload} --kernels 4 --us 50 --gap 100 | 2 x {workload} --kernels 10 --us 500 --train\n"
    );
    let files = ["--output", "out.json", "--plot", "out.html", "--markdown", "out.md"];
    let output = measure(&machine, MPS, &pairs, &[&["--settings", "default,mps,gate,weft"][..], &files].concat());
    let talk = text(&output.stderr);
    assert!(output.status.success(), "{talk}");
    let file = |name: &str| std::fs::read_to_string(machine.folder.path().join(name)).unwrap();
    let found: Value = serde_json::from_str(&file("out.json")).unwrap();
    assert!(found["machine"]["driver"].as_str().unwrap().contains("fakecuda"), "{}", found["machine"]);
    assert_eq!(found["options"]["closed_seconds"], 0.3);
    assert_eq!(found["settings"], serde_json::json!(["alone", "default", "mps", "gate", "weft"]));

    let [one, many] = [&found["figures"][0], &found["figures"][1]];
    assert_eq!(found["pairs"][1]["latency"]["slo"], "50ms");
    let runs = found["runs"].as_array().unwrap();
    // Of whatever Weft let best-effort programs have, it is known what it was, unless nobody came to look.
    let known: Vec<&Value> = runs.iter().filter(|run| !run["given"].is_null()).collect();
    assert!(!known.is_empty(), "{talk}");
    for run in known {
        assert!(["gate", "weft"].contains(&run["setting"].as_str().unwrap()) && run["apart"] == false, "{run:#}");
        assert!((0.0..=1.0).contains(&number(&run["given"]["held"])), "{run:#}");
        let pair = [one, many].into_iter().find(|pair| pair["pair"] == run["pair"]).unwrap();
        let own = &setting(pair, run["setting"].as_str().unwrap())[run["load"].as_str().unwrap()];
        assert!(alike(&own["given"], &run["given"]), "of one round: {own:#}");
    }
    let mut trained_beside = 0.0;
    for pair in [one, many] {
        let alone = &setting(pair, "alone")["closed"];
        assert!((number(&alone["throughput"]["median"]) - 1.0).abs() < 1e-9, "two runs over their mean: {alone:#}");
        assert!(alone["best_effort"].is_null() && alone["sum"].is_null());
        for name in ["default", "mps", "gate", "weft"] {
            let own = setting(pair, name);
            assert_eq!((&own["rounds"], &own["refused"]), (&Value::from(1), &Value::Null), "{talk}");
            for load in ["closed", "poisson"] {
                let figure = |name: &str| number(&own[load][name]["median"]);
                // Of two programs alone, and of two runs of training alone in each round.
                let mean = |values: Vec<f64>| {
                    assert_eq!(values.len(), 2, "{name} {load} {pair:#}");
                    (values[0] + values[1]) / 2.0
                };
                let only = |values: Vec<f64>| {
                    assert_eq!(values.len(), 1, "{name} {load} {pair:#}");
                    values[0]
                };
                // However long requests took: it is this run's over what the two alone came to.
                let p99 = |run: &Value| number(&run["latency"]["latencies"]["p99_us"]);
                let rate = |run: &Value| number(&run["latency"]["rate_rps"]);
                let trained = |run: &Value| number(&run["best_effort"]["rate_rps"]);
                let of = |setting: &str, load: &str, look: &dyn Fn(&Value) -> f64| -> Vec<f64> {
                    let own = runs.iter().filter(|run| run["pair"] == pair["pair"] && run["load"] == load);
                    own.filter(|run| run["setting"] == setting && run["apart"] == false).map(look).collect()
                };
                let rate_rps = only(of(name, load, &rate));
                let trained_rps = only(of(name, load, &trained));
                let trained_alone_rps = mean(of("best-effort-alone", "closed", &trained));
                let alike = |figure: f64, expected: f64| (figure - expected).abs() <= 1e-6 * expected;
                let expected = only(of(name, load, &p99)) / mean(of("alone", load, &p99));
                assert!(expected > 0.0 && alike(figure("p99"), expected), "{name} {load} {expected} {own:#}");
                let expected = rate_rps / mean(of("alone", load, &rate));
                assert!(expected > 0.0 && alike(figure("throughput"), expected), "{name} {load} {expected} {own:#}");
                // What Weft holds back may be all of it.
                let expected = trained_rps / trained_alone_rps;
                assert!(alike(figure("best_effort"), expected), "{name} {load} {expected} {own:#}");
                trained_beside += if matches!(name, "default" | "mps") { trained_rps } else { 0.0 };
                assert!(figure("p99_apart") > 0.0 && figure("goodput") >= 0.0, "{name} {load} {own:#}");
                assert!((0.0..=rate_rps * 1.000_001).contains(&figure("goodput_rps")), "{name} {load} {own:#}");
                if load == "closed" {
                    let both = figure("throughput") + figure("best_effort");
                    assert!(alike(figure("sum"), both), "{name} {own:#}");
                }
                if (name, load) == ("default", "closed") {
                    let idle = number(&own["idle"]["median"]);
                    let expected = only(of(name, "idle", &trained)) / trained_alone_rps;
                    assert!(expected > 0.0 && alike(idle, expected), "{name} {expected} {own:#}");
                }
            }
        }
        assert!(setting(pair, "mps")["idle"].is_null());
    }
    assert!(trained_beside > 0.0, "{talk}");

    let of = |pair: &str, setting: &str, load: &str| -> Vec<&Value> {
        let own = |run: &&Value| run["pair"] == pair && run["setting"] == setting && run["load"] == load;
        runs.iter().filter(own).collect()
    };
    assert_eq!([of("one", "alone", "closed").len(), of("one", "alone", "poisson").len()], [2, 2]);
    assert_eq!([of("one", "default", "idle").len(), of("one", "best-effort-alone", "closed").len()], [1, 2]);
    let (alone, poisson) = (of("many", "alone", "closed")[0], of("many", "default", "poisson")[0]);
    let half = number(&alone["latency"]["rate_rps"]) / 2.0;
    assert!((number(&poisson["offered_rps"]) - half).abs() < 1e-9 * half);
    for run in runs {
        for side in ["latency", "best_effort"].map(|side| &run[side]).into_iter().filter(|side| !side.is_null()) {
            let histogram = side["latencies"]["histogram"].as_str().unwrap_or_default();
            let counts = histogram.split_whitespace().map(|entry| entry.split_once(':').unwrap().1);
            assert_eq!(counts.map(|count| count.parse::<u64>().unwrap()).sum::<u64>(), side["done"], "{run:#}");
        }
    }

    // What each program of the pair of two does alone, and what the simulator makes of it.
    let [solos] = &found["solos"].as_array().unwrap()[..] else { panic!("{:#}\n{talk}", found["solos"]) };
    let of = |side: &str, what: &str| number(&solos[side][what]);
    assert_eq!(solos["pair"], "one");
    for side in ["latency", "best_effort"] {
        assert!(["launches", "gpu_ms", "takes_ms"].iter().all(|what| of(side, what) > 0.0), "{solos:#}");
    }

    let printed = text(&output.stdout);
    assert!(
        printed.contains("Expected from what each program does alone, before they met. Off on average by "),
        "{printed}"
    );
    assert!(file("out.md").contains("## Predicted by the simulator\n"));
    assert!(printed.contains("\nRequests at random\nsetting "), "{printed}");
    let page = file("out.md");
    assert!(page.contains("## many\n\n- Latency: `3 x ") && !page.contains(&*machine.folder.path().to_string_lossy()));
    assert!(file("out.html").contains("<svg"));
    assert!(file("notes").lines().any(|line| line.starts_with("quit")), "MPS was told to quit");

    let again = machine.ask(&["bench", "sharing", "--from", "out.json", "--markdown", "again.md", "--json"]);
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert_eq!(file("again.md"), page);
    let twice = machine.ask(&["bench", "sharing", "--from", "out.json,out.json"]);
    assert!(!twice.status.success() && text(&twice.stderr).contains("both have the pair "), "{}", text(&twice.stderr));
    let figures: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert!(alike(&figures, &found["figures"]), "{figures:#}\n{:#}", found["figures"]);
}

/// Whether best-effort programs of a bench are suspended, each, as its daemon says.
fn best_effort_suspended(machine: &Machine) -> Vec<bool> {
    let folders = std::fs::read_dir(machine.folder.path().join("temporary")).unwrap();
    let sockets = folders.filter_map(|folder| Some(folder.ok()?.path().join("time.sock")));
    let Some(socket) = sockets.into_iter().find(|socket| socket.exists()) else { return Vec::new() };
    let asked = machine.weft(&["top", "--once", "--json"]).env("WEFT_SOCKET", socket).output().unwrap();
    let Ok(status) = serde_json::from_slice::<Value>(&asked.stdout) else { return Vec::new() };
    let gpus = status["gpus"].as_array().into_iter().flatten();
    let tenants = gpus.flat_map(|gpu| gpu["tenants"].as_array().into_iter().flatten());
    let best_effort = tenants.filter(|tenant| tenant["share"]["class"] == "best-effort");
    best_effort.map(|tenant| tenant["share"]["suspended"] == true).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
}

#[test]
fn latency_programs_are_seen_with_and_without_others_in_one_run() {
    let machine = Machine::bare();
    let workload = program("workload").display().to_string();
    let pairs = format!("one = {workload} --kernels 10 --us 100 | 4 x {workload} --kernels 10 --us 500 --train\n");
    // Until it is interrupted: on a machine that does something else meanwhile, a round may have no time for turns.
    let times = ["--seconds", "1.5", "--poisson-seconds", "0.5", "--warmup", "0.2", "--rounds", "1000"];
    let alternate = ["--settings", "slices", "--alternate", "0.25", "--output", "out.json"];
    let mut command = bench(&machine, MPS, &pairs, &[&times[..], &alternate].concat());
    let talk = std::fs::File::create(machine.folder.path().join("talk.txt")).unwrap();
    let mut running = Running(command.stdout(Stdio::null()).stderr(talk).spawn().unwrap());
    let said = || std::fs::read_to_string(machine.folder.path().join("talk.txt")).unwrap();
    let kept = || -> Option<Value> {
        serde_json::from_slice(&std::fs::read(machine.folder.path().join("out.json")).ok()?).ok()
    };
    let in_turns = |found: &Value| -> Vec<Value> {
        found["runs"].as_array().unwrap().iter().filter(|run| run["setting"] == "slices").cloned().collect()
    };
    // Those beside are suspended and go on, as anybody can see who asks the daemon.
    let mut suspended = BTreeSet::new();
    machine.wait("runs, with those beside seen suspended and not", |machine| {
        assert!(running.0.try_wait().unwrap().is_none(), "{}", said());
        suspended.extend(best_effort_suspended(machine));
        let trained = |run: &Value| run["load"] == "poisson" && run["best_effort"]["done"].as_u64() > Some(0);
        (suspended.len() == 2 && in_turns(&kept()?).iter().any(trained)).then_some(())
    });
    interrupt(&machine, &mut running);
    nothing_is_left(&machine);

    let found = kept().unwrap();
    let runs = in_turns(&found);
    let mut rounds: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
    for run in &runs {
        rounds.entry(run["round"].as_u64().unwrap()).or_default().push(run);
    }
    let rate = |run: &Value| number(&run["latency"]["rate_rps"]);
    let mut ratios = Vec::new();
    for round in rounds.values() {
        // The one that was interrupted may be a part of a round.
        let kinds: Vec<_> = round.iter().map(|run| (run["load"].as_str().unwrap(), run["apart"] == true)).collect();
        let whole = [("closed", true), ("closed", false), ("poisson", true), ("poisson", false)];
        assert!(whole.starts_with(&kinds), "{kinds:?}");
        ratios.push(rate(round[1]) / rate(round[0]));
    }
    let expected = median(ratios);
    let own = setting(&found["figures"][0], "slices");
    let figure = number(&own["closed"]["throughput_apart"]["median"]);
    assert!((figure / expected - 1.0).abs() < 1e-6, "{expected}: {own:#}");
    assert!(number(&own["poisson"]["best_effort"]["most"]) > 0.0, "{own:#}");
    assert!(found["command"].as_str().unwrap().contains(" --alternate 0.25"), "{}", found["command"]);

    let silent = "#!/bin/sh\necho ready\nwhile read line; do sleep 1\n\
                  echo '{\"done\": 1, \"seconds\": 1, \"latencies_us\": [7]}'; done\n";
    let program = machine.folder.path().join("silent");
    script(&program, silent);
    let pairs = format!("one = {} | {workload} --train\n", program.display());
    let output = measure(&machine, MPS, &pairs, &["--settings", "slices", "--alternate", "0.1"]);
    let talk = text(&output.stderr);
    assert!(output.status.success() && talk.contains("it does not say when requests came, as `came_us`"), "{talk}");
}

#[test]
fn latency_programs_are_others_in_every_round_where_that_is_asked() {
    let machine = Machine::bare();
    let workload = program("workload").display().to_string();
    let counted = machine.folder.path().join("counted");
    let starts = machine.folder.path().join("starts");
    script(&counted, &format!("#!/bin/sh\necho started >> {}\nexec {workload} \"$@\"\n", starts.display()));
    let pairs = format!("one = {} --us 100 | {workload} --us 500 --train\n", counted.display());
    let started = |more: &[&str]| {
        let _ = std::fs::remove_file(&starts);
        let arguments = [&["--settings", "alone-weft-time", "--rounds", "2", "--output", "out.json"], more].concat();
        let output = bench(&machine, MPS, &pairs, &arguments).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        nothing_is_left(&machine);
        std::fs::read_to_string(&starts).unwrap().lines().count()
    };
    assert_eq!(started(&[]), 2, "one alone and one under Weft");
    assert_eq!(started(&["--restart-each-round"]), 4, "the same in each of two rounds");
    let found = std::fs::read_to_string(machine.folder.path().join("out.json")).unwrap();
    let found: Value = serde_json::from_str(&found).unwrap();
    assert!(
        found["command"].as_str().unwrap().ends_with(" --restart-each-round")
            && found["options"]["restart_each_round"] == true,
        "{found:#}"
    );
    assert_eq!(setting(&found["figures"][0], "alone-weft-time")["rounds"], 2);
}

#[test]
fn what_the_machine_refuses_is_said_and_skipped() {
    let machine = Machine::bare();
    let workload = program("workload").display().to_string();
    let shy = machine.folder.path().join("shy");
    script(&shy, &format!("#!/bin/sh\n[ -d \"$CUDA_MPS_PIPE_DIRECTORY\" ] && exit 5\nexec {workload}\n"));
    let pairs = format!("one = {} | {workload} --train\n", shy.display());
    let check = |mps: &str, expected: &str| {
        let output = measure(&machine, mps, &pairs, &["--settings", "default,mps", "--json"]);
        let talk = text(&output.stderr);
        assert!(output.status.success(), "{talk}");
        let figures: Value = serde_json::from_slice(&output.stdout).unwrap();
        let refused = setting(&figures[0], "mps")["refused"].as_str().unwrap().to_owned();
        assert!(refused.contains(expected) && talk.contains(expected), "{refused}\n{talk}");
        assert!(setting(&figures[0], "default")["refused"].is_null());
        assert!(number(&setting(&figures[0], "default")["closed"]["throughput"]["median"]) > 0.0);
    };
    check(NO_MPS, "the daemon of MPS ended (exit status: 1); it said last: there is no MPS for this GPU");
    check(MPS, "(mps) ended (exit status: 5)");
}

#[test]
fn programs_that_misbehave_are_named_and_nothing_goes_on() {
    let machine = Machine::bare();
    let workload = program("workload").display().to_string();
    let check = |latency: &str, best_effort: &str, arguments: &[&str], expected: &str| {
        let pairs = format!("one = {workload} {latency} | {workload} --train {best_effort}\n");
        let output = measure(&machine, NO_MPS, &pairs, &[&["--settings", "default"][..], arguments].concat());
        let talk = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{talk}");
        assert!(talk.contains(expected), "{expected} is not in\n{talk}");
    };
    check("--die-after 0", "", &[], "weft: failed to measure one alone: `");
    check("--die-after 1", "", &[], "ended (exit status: 9); it said last: out of luck");
    check("", "--die-after 0", &[], "failed to measure the best-effort side of one alone: `");
    check("--silent 1", "", &["--start-patience", "0.5"], "did not say `ready` within 0.5 s; it said nothing");
    check("--garbage-after 0", "", &[], "answered `{\"done\": many}`: that is no answer");
    let mute = machine.folder.path().join("mute");
    script(&mute, "#!/bin/sh\necho ready\ncat > /dev/null\n");
    let pairs = format!("one = {workload} | {}\n", mute.display());
    let never = measure(&machine, NO_MPS, &pairs, &["--settings", "default", "--patience", "0.5"]);
    assert!(text(&never.stderr).contains("did not answer in time"), "{}", text(&never.stderr));

    let missing = measure(&machine, NO_MPS, "one = /nothing/here | true\n", &["--settings", "default"]);
    assert!(text(&missing.stderr).contains("/nothing/here: no such file or folder"), "{}", text(&missing.stderr));
    let wrong = measure(&machine, NO_MPS, "one = a\n", &[]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("read pairs.txt: line 1: expected `name = "), "{}", text(&wrong.stderr));
    for (settings, seconds, expected) in
        [("default", "0.1", "nobody is suspended"), ("weft", "0.2", "--poisson-seconds 0.4 or")]
    {
        let wrong = measure(&machine, NO_MPS, "one = a | b\n", &["--settings", settings, "--alternate", seconds]);
        assert_eq!(wrong.status.code(), Some(2));
        assert!(text(&wrong.stderr).contains(expected), "{}", text(&wrong.stderr));
    }
    let wrong = measure(&machine, NO_MPS, "one = a | b\n", &["--settings", "defualt"]);
    assert!(
        text(&wrong.stderr).contains("there is no setting `defualt`; there are alone, "),
        "{}",
        text(&wrong.stderr)
    );
}

#[test]
fn an_interrupt_stops_everything_and_keeps_what_there_is() {
    let machine = Machine::bare();
    let workload = program("workload").display().to_string();
    let pairs = format!("one = {workload} | {workload} --train\n");
    let arguments = ["--settings", "default,mps,weft", "--rounds", "1000", "--output", "part.json"];
    let mut command = bench(&machine, MPS, &pairs, &arguments);
    let mut running = Running(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    // Itself, two programs in each of three worlds, and two daemons.
    machine.wait("all programs", |machine| (processes(machine).len() >= 9).then_some(()));
    let kept = || -> Option<Value> {
        serde_json::from_slice(&std::fs::read(machine.folder.path().join("part.json")).ok()?).ok()
    };
    machine.wait("a run", |_| kept().filter(|kept| !kept["runs"].as_array().unwrap().is_empty()));
    let status = interrupt(&machine, &mut running);
    let mut talk = String::new();
    std::io::Read::read_to_string(&mut running.0.stderr.take().unwrap(), &mut talk).unwrap();
    assert_eq!(status.code(), Some(1), "{talk}");
    assert!(talk.contains("failed to measure: interrupted"), "{talk}");
    nothing_is_left(&machine);
    assert!(!kept().unwrap()["runs"].as_array().unwrap().is_empty());
}
