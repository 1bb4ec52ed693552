//! Starts, stops, what is printed meanwhile, and who outlives whom.

use crate::harness::{Bench, Event, WORKER, alive, describe, eventually, floats, values};
use rpc::{Failure, FromNode, ToNode};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Answers with the number of its process.
const NUMBER: &str = "
def predict(self, inputs):
    return inputs['x'] * 0 + os.getpid()
";

fn one() -> Vec<rpc::Tensor> {
    vec![floats(&[1, 1], &[1.0])]
}

fn process(bench: &Bench) -> u32 {
    values(&bench.ask(one())[0])[0] as u32
}

#[test]
fn storms_of_prints_do_not_disturb() {
    let bench = Bench::new();
    bench.start(bench.python(
        "def predict(self, inputs):
             for number in range(5000):
                 print('line', number, 'x' * 100)
                 print('error', number, file=sys.stderr)
             os.write(1, b'\\x05\\x00\\xff no newline')
             return inputs['x']",
    ));
    for _ in 0..3 {
        assert_eq!(values(&bench.ask(one())[0]), [1.0]);
    }
    eventually("the last lines are there", || bench.printed().contains("error 4999"));
    assert_eq!(bench.node().logs(WORKER, usize::MAX).len(), 1_000);
    assert_eq!(bench.node().logs(WORKER, 3).len(), 3);
    assert!(bench.node().logs(rpc::WorkerId(99), 3).is_empty());
}

#[test]
fn a_model_that_reads_its_input_gets_nothing() {
    let bench = Bench::new();
    bench.start(bench.python("def predict(self, inputs):\n    return inputs['x'] + len(sys.stdin.read())"));
    assert_eq!(values(&bench.ask(one())[0]), [1.0]);
}

#[test]
fn a_slow_load_is_waited_for_and_can_be_stopped() {
    let bench = Bench::new();
    bench.start(
        bench.python("def load(self):\n    time.sleep(0.5)\ndef predict(self, inputs):\n    return inputs['x']"),
    );
    bench.ask(one());

    let bench = Bench::new();
    bench.order_start(bench.python("def load(self):\n    time.sleep(1000)\ndef predict(self, inputs):\n    pass"));
    bench.send(vec![one()], &[1]);
    assert!(matches!(bench.event(), Event::Answered(_, Err(Failure::NotRun(_)))), "nothing waits for a load");
    bench.node().order(ToNode::Stop { worker: WORKER });
    assert!(matches!(bench.event(), Event::Told(FromNode::Stopped { .. })));
}

#[test]
fn a_worker_told_to_stop_finishes_first() {
    let bench = Bench::new();
    bench.start(
        bench.python("def predict(self, inputs):\n    time.sleep(0.1)\n    return inputs['x'] * 0 + os.getpid()"),
    );
    let worker = process(&bench);
    let first = bench.send(vec![one()], &[1]);
    let second = bench.send(vec![one()], &[1]);
    bench.node().order(ToNode::Stop { worker: WORKER });
    assert!(bench.done(first, 1).1);
    assert!(bench.done(second, 1).1);
    assert!(matches!(bench.event(), Event::Told(FromNode::Stopped { .. })));
    assert!(!alive(worker));
    bench.send(vec![one()], &[1]);
    assert!(matches!(bench.event(), Event::Answered(_, Err(Failure::NotRun(_)))));
}

#[test]
fn stopping_the_node_lets_workers_finish_and_kills_those_that_hang() {
    let slow = "def predict(self, inputs):\n    time.sleep(float(inputs['x'][0, 0]))\n    return inputs['x']";
    let mut bench = Bench::with(|config| config.drain_timeout = Duration::from_secs(60));
    bench.start(bench.python(slow));
    let batch = bench.send(vec![vec![floats(&[1, 1], &[0.1])]], &[1]);
    bench.node.take().unwrap().stop();
    assert!(bench.done(batch, 1).1);
    assert!(matches!(bench.event(), Event::Told(FromNode::Stopped { .. })));

    let mut bench = Bench::with(|config| config.drain_timeout = Duration::from_millis(200));
    bench.start(bench.python(slow));
    bench.send(vec![vec![floats(&[1, 1], &[1000.0])]], &[1]);
    bench.node.take().unwrap().stop();
    let event = bench.event();
    assert!(matches!(event, Event::Answered(_, Err(Failure::WorkerDied))), "{}", describe(&event));
}

#[test]
fn a_node_that_is_dropped_takes_its_workers_along() {
    let mut bench = Bench::new();
    bench.start(bench.python(NUMBER));
    let worker = process(&bench);
    assert!(alive(worker));
    drop(bench.node.take());
    assert!(!alive(worker));
}

#[test]
fn what_a_worker_started_ends_with_it() {
    let bench = Bench::new();
    bench.start(
        bench.python(
            "def load(self):
             import subprocess
             self.child = subprocess.Popen(['sleep', '1000'])
         def predict(self, inputs):
             return inputs['x'] * 0 + self.child.pid"
                .replace("\n         def", "\ndef")
                .as_str(),
        ),
    );
    let child = process(&bench);
    assert!(alive(child));
    bench.node().order(ToNode::Stop { worker: WORKER });
    assert!(matches!(bench.event(), Event::Told(FromNode::Stopped { .. })));
    eventually("the worker's child is gone", || !alive(child));
}

/// Not a test by itself: a node with a worker, to be killed. See below.
#[test]
#[ignore = "started by a_killed_node_leaves_no_worker_behind"]
fn be_killed() {
    let Ok(file) = std::env::var("WEFT_TEST_FILE") else { return };
    let hangs = std::env::var("WEFT_TEST_HANGS").unwrap();
    let bench = Bench::new();
    bench.start(bench.python(&format!(
        "def predict(self, inputs):
             if inputs['x'].any():
                 open('{file}', 'w').write(f'{{os.getpid()}}.')
                 {hangs}
             return inputs['x']"
    )));
    bench.send(vec![one()], &[1]);
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn a_killed_node_leaves_no_worker_behind() {
    // Once while the worker waits for a batch, and once in the middle of one.
    for hangs in ["", "time.sleep(1000)"] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("process");
        let mut holder = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "lifecycle::be_killed", "--ignored", "--nocapture"])
            .env("WEFT_TEST_FILE", &file)
            .env("WEFT_TEST_HANGS", hangs)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        eventually("the worker is there", || std::fs::read_to_string(&file).is_ok_and(|text| text.ends_with('.')));
        let text = std::fs::read_to_string(&file).unwrap();
        let worker: u32 = text.trim_end_matches('.').parse().unwrap();
        assert!(alive(worker));
        holder.kill().unwrap();
        holder.wait().unwrap();
        eventually("the worker is gone", || !alive(worker));
    }
}
