//! Runs against servers with known behaviour. What is asserted of times are bounds that a busy machine cannot break:
//! nothing is answered before the server lets it be.

mod server;

use load::{Config, Connections, Encoding, ModelShare, Report, SetupError};
use policy::Span;
use server::{Asked, Deed, Server, answer, config, fine, start};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

fn run(config: &Config) -> Report {
    let (_keep, stop) = mpsc::unbounded_channel();
    load::run(config, |_| {}, stop).unwrap()
}

fn refused(config: &Config) -> String {
    let (_keep, stop) = mpsc::unbounded_channel();
    load::run(config, |_| {}, stop).unwrap_err().to_string()
}

/// Every request has exactly one outcome.
fn assert_whole(report: &Report) {
    assert_eq!(report.good + report.late + report.refused + report.errors, report.offered, "{report:?}");
    let sum: f64 = report.models.iter().map(|model| model.offered_rps).sum();
    assert!((sum - report.offered_rps).abs() < 1e-6);
}

/// With so few connections they are used again and again.
const FEW: Connections = Connections::Most(8);

#[track_caller]
fn assert_few(report: &Report, server: &Server) {
    assert_eq!(report.connections_limit, Some(8));
    assert!((1..=8).contains(&report.connections_max), "{report:?}");
    // One more saw whether the server was there.
    let connections = server.connections.load(Ordering::Relaxed);
    assert!(connections <= 9, "{connections} connections");
}

#[test]
fn a_delay_is_the_latency() {
    let server = start(|_| vec![Deed::Wait(Duration::from_millis(20)), fine()]);
    let report = run(&Config { connections: FEW, ..config(&server) });
    assert_whole(&report);
    assert_eq!((report.offered, report.sent, report.good), (200, 200, 200));
    assert!(report.latency_ms.p50 >= 20.0, "{report:?}");
    assert_eq!((report.duration_s, report.good_rps), (1.0, 200.0));
    assert_few(&report, &server);
}

#[test]
fn answers_past_the_objective_are_late() {
    let server = start(|_| vec![Deed::Wait(Duration::from_millis(20)), fine()]);
    let report = run(&Config { objective: Span::from_millis(10), ..config(&server) });
    assert_whole(&report);
    assert_eq!((report.good, report.late), (0, 200));
    assert_eq!(report.good_latency_ms.max, 0.0);
}

#[test]
fn requests_are_sent_whatever_became_of_those_before() {
    // None is answered before a hundred of them have come.
    let server = start(|_| vec![Deed::Until(100), fine()]);
    let report = run(&Config { warmup: Span::ZERO, ..config(&server) });
    assert_whole(&report);
    assert_eq!((report.good, report.sent), (200, 200), "{report:?}");
    assert!(report.connections_max >= 100, "{report:?}");
}

/// Half a second of one in which 200 requests are to come, equally spaced, and the server answers nothing: that is 100 of
/// them, which wait for 250 ms on average, and 80 wait for longer than the objective. They may be more on a busy machine.
#[test]
fn a_stall_is_charged_to_every_request_that_was_to_come_meanwhile() {
    const STALL: Duration = Duration::from_millis(500);
    // With one connection the stall keeps the generator from sending, and must count all the same.
    for connections in [Connections::Auto, Connections::Most(1)] {
        let until = OnceLock::new();
        let server = start(move |asked: &Asked| match asked.number {
            ..40 => vec![fine()],
            // Those that come first have come when the 41st was to be sent, or later.
            _ => {
                let until: &Instant = until.get_or_init(|| Instant::now() + STALL);
                vec![Deed::Wait(until.saturating_duration_since(Instant::now())), fine()]
            }
        });
        let objective = Span::from_millis(100);
        let report = run(&Config { connections, warmup: Span::ZERO, objective, ..config(&server) });
        assert_whole(&report);
        assert!(report.late >= 80, "{connections:?}: {report:?}");
        assert!(report.latency_ms.max >= 499.0, "{connections:?}: {report:?}");
        assert!(report.latency_ms.mean >= 125.0, "{connections:?}: {report:?}");
        // Where it had to wait for its one connection the generator itself was late, and says so.
        if connections == Connections::Most(1) {
            assert!(report.send_lateness_ms.p99 >= 480.0 && report.generator_late, "{report:?}");
        }
    }
}

#[test]
fn refusals_and_errors_of_the_server_are_told_apart_by_status() {
    let server = start(|asked: &Asked| {
        let (status, body) = match asked.number % 5 {
            0 => (429, format!(r#"{{"error": "{} requests wait already"}}"#, asked.number)),
            1 => (503, "draining".to_owned()),
            2 => (500, r#"{"error": "model `echo`: ValueError: no"}"#.to_owned()),
            3 => (404, String::new()),
            _ => (200, "{}".to_owned()),
        };
        vec![Deed::Say(answer(status, &body))]
    });
    let report = run(&Config { warmup: Span::ZERO, connections: FEW, ..config(&server) });
    assert_whole(&report);
    assert_eq!((report.good, report.refused, report.errors), (40, 80, 80));
    let told: Vec<_> = report.refusals.iter().map(|told| (told.status, told.reason.as_str(), told.count)).collect();
    assert_eq!(told, [(429, "# requests wait already", 40), (503, "draining", 40)]);
    let told: Vec<_> = report.failures.iter().map(|told| (told.kind, told.status, told.reason.as_str())).collect();
    assert_eq!(told, [("status", Some(404), ""), ("status", Some(500), "model `echo`: ValueError: no")]);
    assert!(report.refusal_latency_ms.max > 0.0);
    // A refusal is no reason to close a connection.
    assert_few(&report, &server);
}

#[test]
fn connections_closed_in_the_middle_are_errors_and_the_run_goes_on() {
    let server = start(|asked: &Asked| match asked.number % 4 {
        0 => vec![Deed::Close],
        1 => vec![Deed::Say(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf".to_vec()), Deed::Close],
        2 => vec![Deed::Say(b"nonsense\r\n\r\n".to_vec())],
        _ => vec![fine()],
    });
    let report = run(&Config { warmup: Span::ZERO, ..config(&server) });
    assert_whole(&report);
    assert_eq!((report.good, report.errors), (50, 150), "{report:?}");
    let mut told: Vec<_> = report.failures.iter().map(|told| (told.kind, told.reason.as_str(), told.count)).collect();
    told.sort();
    assert_eq!(
        told,
        [
            ("connection", "closed before an answer", 50),
            ("connection", "closed in the middle of an answer", 50),
            ("protocol", "not an HTTP/1.1 answer", 50),
        ]
    );
}

#[test]
fn a_server_that_closes_each_connection_properly_is_no_error() {
    let server = start(|asked: &Asked| match asked.number % 3 {
        0 => vec![
            Deed::Say(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}".to_vec()),
            Deed::Close,
        ],
        1 => vec![Deed::Say(b"HTTP/1.1 200 OK\r\n\r\n{}".to_vec()), Deed::Close],
        // Closed without a word of it.
        _ => vec![Deed::SayAndClose(answer(200, "{}"))],
    });
    let report = run(&config(&server));
    assert_whole(&report);
    assert_eq!((report.good, report.errors), (200, 0), "{report:?}");
}

#[test]
fn an_answer_ends_with_its_last_byte() {
    let server = start(|asked: &Asked| {
        let pause = || Deed::Wait(Duration::from_millis(10));
        match asked.number % 2 {
            0 => vec![
                Deed::Say(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n".to_vec()),
                pause(),
                Deed::Say(b"abc".to_vec()),
                pause(),
                Deed::Say(b"def".to_vec()),
            ],
            _ => vec![
                Deed::Say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r".to_vec()),
                pause(),
                Deed::Say(b"\nhello\r\n3\r\nyou".to_vec()),
                pause(),
                Deed::Say(b"\r\n0\r\n\r\n".to_vec()),
            ],
        }
    });
    let report = run(&Config { connections: FEW, ..config(&server) });
    assert_whole(&report);
    assert_eq!(report.good, 200, "{report:?}");
    assert!(report.latency_ms.p50 >= 20.0, "{report:?}");
    assert_few(&report, &server);
}

#[test]
fn a_server_that_never_answers_does_not_hold_the_run_up() {
    let server = start(|_| vec![Deed::Wait(Duration::from_secs(3600))]);
    let patience = Span::from_millis(300);
    let count = |report: &Report, reason: &str| {
        let told = report.failures.iter().filter(|told| told.kind == "unanswered" && told.reason == reason);
        told.map(|told| told.count).sum::<u64>()
    };
    let check = |report: &Report| {
        assert_whole(report);
        // On a machine that does something else meanwhile, some are too late to be sent.
        let unsent = count(report, "no connection was free for too long");
        assert_eq!((report.errors, report.sent), (200, 200 - unsent), "{report:?}");
        assert_eq!(count(report, "no answer for too long"), report.sent, "{report:?}");
    };
    let report = run(&Config { patience, ..config(&server) });
    check(&report);
    // With too few connections most are sent when there is no time left for an answer.
    let report = run(&Config { patience, connections: Connections::Most(2), ..config(&server) });
    check(&report);
    // The first two have them for as long as they are waited for, and all others come after that.
    assert!(report.send_lateness_ms.max >= 150.0, "{report:?}");
    assert!(report.connections_max <= 2 && report.connections_limit == Some(2), "{report:?}");
    assert!(report.generator_late);
}

#[test]
fn a_stop_ends_it_early_and_what_was_measured_is_reported() {
    let server = start(|asked: &Asked| match asked.number % 100 {
        50 => vec![Deed::Wait(Duration::from_secs(3600))],
        _ => vec![fine()],
    });
    let (tell, stop) = mpsc::unbounded_channel();
    let moments = Arc::new(Mutex::new(Vec::new()));
    let (seen, asked) = (moments.clone(), server.asked.clone());
    let config = Config {
        warmup: Span::ZERO,
        duration: Span::from_secs(3600),
        patience: Span::from_secs(3600),
        ..config(&server)
    };
    let watch = move |moment: &load::Moment| {
        seen.lock().unwrap().push(*moment);
        // By then one is under way that is never answered. The second time it is not waited for.
        if asked.load(Ordering::Relaxed) > 50 {
            let _ = tell.send(());
        }
    };
    let report = load::run(&config, watch, stop).unwrap();
    assert_whole(&report);
    assert!(report.stopped_early && report.offered > 50, "{report:?}");
    let good = report.good_rps * report.duration_s;
    assert!((good - report.good as f64).abs() < 1e-6 * good, "{report:?}");
    assert_eq!(report.failures[0].reason, "still under way when the run was cut off");
    let moments = moments.lock().unwrap();
    assert!(moments.iter().all(|moment| moment.measured && moment.elapsed >= Span::from_secs(1)), "{moments:?}");
    // What was told meanwhile is part of what was reported in the end.
    let mut before = Span::ZERO;
    let told = moments.iter().map(|moment| {
        let since = moment.elapsed - std::mem::replace(&mut before, moment.elapsed);
        moment.good_rps * since.seconds()
    });
    let told = told.sum::<f64>();
    assert!(told > 0.0 && told <= report.good as f64 + 0.001, "{told}: {report:?}");
}

/// One request of a run, as text with what is not text left out.
fn sent(change: impl FnOnce(Config) -> Config) -> String {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let server = start({
        let seen = seen.clone();
        move |asked: &Asked| {
            *seen.lock().unwrap() = asked.bytes.clone();
            vec![fine()]
        }
    });
    let config = change(Config { duration: Span::from_millis(100), rate: 20.0, ..config(&server) });
    assert_eq!(run(&config).errors, 0);
    let text = String::from_utf8_lossy(&seen.lock().unwrap()).replace(&server.address.to_string(), "HOST");
    text.replace('\0', "0").replace('\r', "")
}

#[test]
fn requests_are_those_of_the_protocol() {
    let json = r#"{"inputs":[{"datatype":"FP32","name":"x","parameters":{"binary_data_size":64},"shape":[1,16]}],"parameters":{"binary_data_output":true}}"#;
    let expected = format!(
        "POST /v2/models/echo/infer HTTP/1.1\nHost: HOST\nContent-Type: application/octet-stream\n\
         Inference-Header-Content-Length: {}\nContent-Length: {}\n\n{json}{}",
        json.len(),
        json.len() + 64,
        "0".repeat(64)
    );
    assert_eq!(sent(|config| config), expected);
    let data = ["0.0"; 32].join(",");
    let json = format!(
        r#"{{"inputs":[{{"data":[{data}],"datatype":"FP32","name":"x","shape":[2,16]}}],"parameters":{{"timeout":3600000000}}}}"#
    );
    let expected = format!(
        "POST /v2/models/echo/infer HTTP/1.1\nHost: HOST\nX-Tenant: red\nContent-Type: application/json\n\
         Content-Length: {}\n\n{json}",
        json.len()
    );
    let asked = |config| Config {
        encoding: Encoding::Json,
        timeout_parameter: true,
        batch: 2,
        headers: vec![("X-Tenant".into(), "red".into())],
        ..config
    };
    assert_eq!(sent(asked), expected);
}

#[test]
fn models_get_their_weights() {
    let server = start(|_| vec![fine()]);
    let model = |name: &str, share| ModelShare { name: name.into(), share };
    let models = vec![model("echo", 0.25), model("other", 0.75)];
    let report = run(&Config { models, rate: 400.0, ..config(&server) });
    assert_whole(&report);
    let rates: Vec<f64> = report.models.iter().map(|model| model.good_rps.round()).collect();
    assert_eq!(rates, [100.0, 300.0]);
}

#[test]
fn what_cannot_begin_says_what_to_do() {
    let server = start(|_| vec![fine()]);
    let models = vec![ModelShare { name: "resnet".into(), share: 1.0 }];
    assert_eq!(
        refused(&Config { models, ..config(&server) }),
        "find model `resnet`: the server does not have it; it has: echo, other"
    );
    let shapes = vec!["x:1x3".parse().unwrap()];
    assert_eq!(
        refused(&Config { shapes, ..config(&server) }),
        "write requests for model `echo`: --shape gives `x` [1, 3], which is not of the declared shape [-1, 16]"
    );
    // A port that was free a moment ago.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let gone =
        Server { address: listener.local_addr().unwrap(), connections: Default::default(), asked: Default::default() };
    drop(listener);
    let (_keep, stop) = mpsc::unbounded_channel();
    let error = load::run(&config(&gone), |_| {}, stop).unwrap_err();
    let expected = format!("reach http://{}: connection refused; start a server with `weft up`", gone.address);
    assert!(error.to_string().starts_with(&expected), "{error}");
    assert!(matches!(error, SetupError::Unreachable { .. }));
}
