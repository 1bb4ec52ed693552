//! Models that say no, and workers that die.

use crate::harness::{Bench, Event, describe, eventually, floats, values};
use policy::Span;
use rpc::{Failure, FromNode};
use std::time::{Duration, Instant};

/// A model that does what its input says, and waits for a file before, where it has the name of one.
const MOODY: &str = "
def predict(self, inputs):
    mood = int(inputs['x'][0, 0])
    while mood and not os.path.exists(os.environ.get('GO', '/')):
        time.sleep(0.01)
    if mood == 1:
        raise ValueError('not this one')
    if mood == 2:
        sys.exit(3)
    if mood == 3:
        os.kill(os.getpid(), 9)
    if mood == 4:
        return {'y': inputs['x'][:0]}
    if mood == 5:
        return {'y': inputs['x'].astype(np.float64)}
    if mood == 6:
        time.sleep(1000)
    if mood == 7:
        os.abort()
    if mood == 8:
        return {'z': inputs['x']}
    if mood == 9:
        return None
    return {'y': inputs['x']}
";

/// A model that ends while nobody asks it, when there is a file.
const ENDS: &str = "
def load(self):
    import threading
    def end():
        while not os.path.exists(os.environ['GO']):
            time.sleep(0.01)
        os.remove(os.environ['GO'])
        os._exit(7)
    threading.Thread(target=end, daemon=True).start()

def predict(self, inputs):
    return inputs['x']
";

fn mood(number: u8) -> Vec<rpc::Tensor> {
    vec![floats(&[1, 1], &[number.into()])]
}

#[test]
fn a_model_that_says_no_is_quoted_and_goes_on() {
    let bench = Bench::new();
    bench.start(bench.python(MOODY));
    let check = |number, expected: &str| {
        let message = bench.refused(mood(number));
        assert!(message.contains(expected), "{message}");
        assert_eq!(values(&bench.ask(mood(0))[0]), [0.0]);
    };
    check(1, "ValueError: not this one");
    check(4, "output `y` has shape [0, 1] for a batch of 1");
    check(5, "output `y` has type FP64; the model declares FP32");
    check(8, "predict returned ['z']; the outputs are ['y']");
    check(9, "predict returned None: return a dictionary");
    eventually("the log has the traceback", || bench.printed().contains("Traceback"));
}

#[test]
fn a_batch_with_one_bad_request_fails_that_one_alone() {
    let bench = Bench::new();
    bench.start(bench.python(MOODY));
    let bad = rpc::Tensor { shape: vec![2, 2], ..floats(&[1, 1], &[0.0]) };
    let (answers, done) = bench.run(vec![mood(0), vec![bad], mood(0)]);
    assert!(!done);
    assert!(answers[0].is_ok() && answers[2].is_ok());
    assert!(answers[1].as_ref().unwrap_err().to_string().contains("cannot have 4 bytes"));
}

/// A worker that dies with a batch is lost first, then its requests hear of it, then it comes back.
fn dies(number: u8, expected: &str) {
    let bench = Bench::with(|config| config.batch_timeout = Duration::from_secs(5));
    let go = bench.folder.path().join("go");
    let mut spec = bench.python(MOODY);
    spec.env.insert("GO".into(), go.to_str().unwrap().into());
    bench.start(spec);
    // Another batch waits behind it.
    bench.send(vec![mood(number)], &[1]);
    bench.send(vec![mood(0), mood(0)], &[2]);
    std::fs::write(&go, "").unwrap();
    let (reason, again_in) = bench.lost();
    assert!(reason.contains(expected), "{reason}");
    assert_eq!(again_in, Span::from_millis(100));
    for _ in 0..3 {
        match bench.event() {
            Event::Answered(_, Err(Failure::WorkerDied)) => {}
            other => panic!("{}", describe(&other)),
        }
    }
    bench.ready();
    assert_eq!(values(&bench.ask(mood(0))[0]), [0.0]);
}

#[test]
fn sys_exit_is_the_end_of_the_worker() {
    dies(2, "exited with status 3");
}

#[test]
fn so_is_a_kill() {
    dies(3, "was killed by signal 9");
}

#[test]
fn so_is_a_native_crash() {
    dies(7, "was killed by signal 6 (SIGABRT)");
}

#[test]
fn so_is_a_hang() {
    dies(6, "did not answer within 5s and was killed");
}

#[test]
fn a_worker_that_dies_idle_is_noticed() {
    let bench = Bench::new();
    let go = bench.folder.path().join("go");
    let mut spec = bench.python(ENDS);
    spec.env.insert("GO".into(), go.to_str().unwrap().into());
    bench.start(spec);
    std::fs::write(&go, "").unwrap();
    assert!(matches!(bench.event(), Event::Told(FromNode::Lost { reason, .. }) if reason == "exited with status 7"));
    bench.ready();
}

#[test]
fn a_model_that_fails_to_load_says_why_and_the_waits_grow() {
    let bench = Bench::with(|config| {
        config.restart_first = Duration::from_millis(20);
        config.restart_most = Duration::from_millis(50);
    });
    let start = Instant::now();
    bench.order_start(
        bench.python("def load(self):\n    raise RuntimeError('no weights')\ndef predict(self, inputs):\n    pass"),
    );
    for expected in [20, 40, 50, 50] {
        let (reason, again_in) = bench.lost();
        assert_eq!(reason, "failed to load the model: RuntimeError: no weights");
        assert_eq!(again_in, Span::from_millis(expected));
    }
    assert!(start.elapsed() >= Duration::from_millis(110));
    eventually("the log has the traceback", || bench.printed().contains("Traceback"));
}

#[test]
fn whatever_stops_a_load_is_named() {
    let check_with = |bench: Bench, class: &str, expected: &str| {
        bench.order_start(bench.python(class));
        let (reason, _) = bench.lost();
        assert!(reason.contains(expected), "{reason}");
    };
    let check = |class: &str, expected: &str| check_with(Bench::new(), class, expected);
    check("def predict(self, inputs):\n    return 1 +", "SyntaxError");
    check("x = 1", "must have one class with a predict");
    check(
        "def predict(self, inputs):\n    pass\ndef load(self):\n    print('bye'); sys.exit(4)",
        "exited with status 4",
    );
    check("def predict(self, inputs):\n    pass\ndef load(self):\n    print('bye'); sys.exit(4)", "it said: bye");
    check_with(
        Bench::with(|config| config.load_timeout = Duration::from_millis(1500)),
        "def predict(self, inputs):\n    pass\ndef load(self):\n    time.sleep(1000)",
        "did not load its model within 1.5s",
    );
    check("inputs = [('x', 'FP32', [16])]\ndef predict(self, inputs):\n    pass", "must be -1");
    check("inputs = [('x', 'FP8', [-1])]\ndef predict(self, inputs):\n    pass", "'FP8' is no data type");
    let bench = Bench::with(|config| config.python = "no-such-python".into());
    bench.order_start(bench.python(MOODY));
    assert!(bench.lost().0.contains("failed to start no-such-python"));
}

#[test]
fn a_batch_that_misses_a_part_runs_without_it() {
    let bench = Bench::with(|config| config.parts_timeout = Duration::from_millis(100));
    bench.start(bench.python(MOODY));
    let part = |request| rpc::Part {
        term: rpc::Term::default(),
        worker: crate::harness::WORKER,
        node: rpc::Incarnation::default(),
        address: "".into(),
        model: 0,
        batch: 77,
        size: 2,
        payloads: vec![bench.payload(request)],
        absent: 0,
    };
    bench.node().run(part(mood(0)));
    assert!(matches!(bench.event(), Event::Answered(_, Ok(_))));
    assert!(matches!(bench.event(), Event::Told(FromNode::Done { batch: 77, size: 1, took: Some(_), .. })));
    bench.node().run(part(mood(0)));
    let Event::Answered(_, Err(Failure::NotRun(message))) = bench.event() else { panic!() };
    assert_eq!(message, "its batch has begun without it");
    assert_eq!(values(&bench.ask(mood(0))[0]), [0.0]);
}

#[test]
fn a_model_that_takes_no_zeros_is_ready_with_a_request_that_it_takes() {
    let bench = Bench::new();
    let class = "def predict(self, inputs):\n    return 1 / inputs['x'] if inputs['x'].all() else {}['zero']";
    let mut spec = bench.python(class);
    bench.order_start(spec.clone());
    let (reason, _) = bench.lost();
    let expected = "failed its warm-up: a request of zeros failed: KeyError: 'zero'; mend the model, or let `--warmup \
                    FILE` name a request that it takes";
    assert_eq!(reason, expected);
    bench.node().order(rpc::ToNode::Stop { worker: crate::harness::WORKER });
    while !matches!(bench.event(), Event::Told(FromNode::Stopped { .. })) {}

    let file = bench.folder.path().join("request.json");
    let text = r#"{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [[2, 4]]}]}"#;
    std::fs::write(&file, text).unwrap();
    spec.warmup = Some(file);
    let (_, measured) = bench.start(spec);
    assert_eq!((measured[0].0, measured[1].0), (1, 2));
    assert_eq!(values(&bench.ask(mood(4))[0]), [0.25]);
}

/// However little time there is, a batch of two is answered before anybody else asks for one.
#[test]
fn a_slow_model_that_cannot_do_batches_is_found_out() {
    let bench = Bench::with(|config| config.warmup = Duration::ZERO);
    let class = "def predict(self, inputs):\n    time.sleep(0.05)\n    return inputs['x'][:1]";
    bench.order_start(bench.python(class));
    let (reason, _) = bench.lost();
    assert!(
        reason.contains("a batch of 2 failed though a single request did not: output `y` has shape [1, 1]"),
        "{reason}"
    );
    assert!(reason.ends_with("or deploy the model with `--max-batch 1`"), "{reason}");
}

#[test]
fn a_warm_up_that_hangs_ends_when_it_is_told_to() {
    let bench = Bench::with(|config| config.batch_timeout = Duration::from_secs(3600));
    bench.order_start(bench.python("def predict(self, inputs):\n    print('asked')\n    time.sleep(1000)"));
    eventually("the warm-up has begun", || bench.printed().contains("asked"));
    bench.node().order(rpc::ToNode::Stop { worker: crate::harness::WORKER });
    assert!(matches!(bench.event(), Event::Told(FromNode::Stopped { .. })));
}

#[test]
fn every_request_is_answered_once_whatever_dies() {
    let bench = Bench::with(|config| config.restart_first = Duration::from_millis(1));
    bench.start(bench.python(MOODY));
    let mut sent = 0;
    for number in 0..1_000 {
        // Parts of a batch may fall on both sides of a death.
        let mood = mood(if number % 250 == 100 { 3 } else { 0 });
        let size = 1 + number % 3;
        bench.send(vec![mood; size], &vec![1; size]);
        sent += size;
        std::thread::sleep(Duration::from_millis(1));
    }
    bench.node().order(rpc::ToNode::Stop { worker: crate::harness::WORKER });
    let mut answered = std::collections::BTreeMap::new();
    loop {
        match bench.event() {
            Event::Answered(request, answer) => {
                assert!(answered.insert(request, answer.is_ok()).is_none(), "{request} was answered twice");
            }
            Event::Told(FromNode::Stopped { .. }) => break,
            Event::Told(_) => {}
        }
    }
    assert_eq!(answered.len(), sent);
    let died = answered.values().filter(|did| !**did).count();
    assert!(died >= 1 && died < sent, "{died} of {sent} died");
}
