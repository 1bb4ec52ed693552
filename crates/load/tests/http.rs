//! Runs against servers with known behaviour. What depends on time is checked when the machine is calm.

mod server;

use load::{Config, Connections, Encoding, ModelShare, Report, SetupError};
use policy::Span;
use server::{Asked, Deed, Server, answer, config, fine, start};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use weft_tests::when_calm;

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

#[test]
fn a_delay_is_the_latency() {
    when_calm(|| {
        let server = start(|_| vec![Deed::Wait(Duration::from_millis(20)), fine()]);
        let report = run(&config(&server));
        assert_whole(&report);
        assert_eq!((report.offered, report.sent, report.good), (200, 200, 200));
        assert!((20.0..60.0).contains(&report.latency_ms.p50), "{report:?}");
        assert!((199.0..201.0).contains(&report.good_rps), "{report:?}");
        // 200 a second for 20 ms are 4 at a time, and connections are kept.
        assert!((4..100).contains(&server.connections.load(Ordering::Relaxed)));
        assert!(report.connections_max < 100);
    });
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
fn a_stall_is_charged_to_every_request_that_was_to_come_meanwhile() {
    when_calm(|| {
        // Everything that arrives while it stalls waits for its end, however it came to arrive.
        let (from, until) = (Duration::from_millis(400), Duration::from_millis(900));
        // With one connection the stall keeps the generator from sending, and must count all the same.
        for connections in [Connections::Auto, Connections::Most(1)] {
            let server = start(move |asked: &Asked| match asked.at {
                at if (from..until).contains(&at) => vec![Deed::Wait(until - at), fine()],
                _ => vec![fine()],
            });
            let report =
                run(&Config { connections, warmup: Span::ZERO, objective: Span::from_millis(100), ..config(&server) });
            assert_whole(&report);
            // 500 ms of 1 s stalled: 100 of 200 requests, and they wait for 250 ms on average. Those of the last 100 ms
            // of the stall are still good.
            assert!((70..=95).contains(&report.late), "{connections:?}: {report:?}");
            assert!((400.0..600.0).contains(&report.latency_ms.max), "{connections:?}: {report:?}");
            assert!((100.0..170.0).contains(&report.latency_ms.mean), "{connections:?}: {report:?}");
            // Only where it had to wait for its one connection was the generator itself late.
            match connections {
                Connections::Auto => assert!(report.send_lateness_ms.p99 < 50.0, "{report:?}"),
                Connections::Most(_) => assert!(report.send_lateness_ms.p99 > 300.0, "{report:?}"),
            }
        }
    });
}

#[test]
fn refusals_and_errors_of_the_server_are_told_apart_by_status() {
    when_calm(|| {
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
        let report = run(&Config { warmup: Span::ZERO, ..config(&server) });
        assert_whole(&report);
        assert_eq!((report.good, report.refused, report.errors), (40, 80, 80));
        let told: Vec<_> = report.refusals.iter().map(|told| (told.status, told.reason.as_str(), told.count)).collect();
        assert_eq!(told, [(429, "# requests wait already", 40), (503, "draining", 40)]);
        let told: Vec<_> = report.failures.iter().map(|told| (told.kind, told.status, told.reason.as_str())).collect();
        assert_eq!(told, [("status", Some(404), ""), ("status", Some(500), "model `echo`: ValueError: no")]);
        assert!(report.refusal_latency_ms.max > 0.0);
        // A refusal is no reason to close a connection.
        assert!(server.connections.load(Ordering::Relaxed) < 50);
    });
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
        // Closed a moment later, while it is idle.
        _ => vec![fine(), Deed::Close],
    });
    let report = run(&config(&server));
    assert_whole(&report);
    assert_eq!((report.good, report.errors), (200, 0), "{report:?}");
}

#[test]
fn an_answer_ends_with_its_last_byte() {
    when_calm(|| {
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
        let report = run(&config(&server));
        assert_whole(&report);
        assert_eq!(report.good, 200, "{report:?}");
        assert!(report.latency_ms.p50 >= 20.0, "{report:?}");
        assert!(server.connections.load(Ordering::Relaxed) < 100);
    });
}

#[test]
fn a_server_that_never_answers_does_not_hold_the_run_up() {
    let server = start(|_| vec![Deed::Wait(Duration::from_secs(3600))]);
    let report = run(&Config { patience: Span::from_millis(300), ..config(&server) });
    assert_whole(&report);
    assert_eq!((report.errors, report.sent), (200, 200));
    assert_eq!((report.failures[0].kind, report.failures[0].count), ("unanswered", 200));
    // With too few connections most are sent when there is no time left for an answer.
    let report =
        run(&Config { patience: Span::from_millis(300), connections: Connections::Most(2), ..config(&server) });
    assert_whole(&report);
    assert!(report.errors == 200 && report.send_lateness_ms.p50 > 200.0, "{report:?}");
    assert_eq!((report.connections_max, report.connections_limit), (2, Some(2)));
    assert!(report.generator_late);
}

#[test]
fn a_stop_ends_it_early_and_what_was_measured_is_reported() {
    when_calm(|| {
        let server = start(|asked: &Asked| match asked.number % 100 {
            50 => vec![Deed::Wait(Duration::from_secs(3600))],
            _ => vec![fine()],
        });
        let (tell, stop) = mpsc::unbounded_channel();
        let moments = Arc::new(Mutex::new(Vec::new()));
        let seen = moments.clone();
        let config = Config { duration: Span::from_secs(3600), patience: Span::from_secs(3600), ..config(&server) };
        let watch = move |moment: &load::Moment| {
            seen.lock().unwrap().push(*moment);
            tell.send(()).unwrap();
        };
        let report = load::run(&config, watch, stop).unwrap();
        assert_whole(&report);
        assert!(report.stopped_early && (0.8..2.0).contains(&report.duration_s), "{report:?}");
        assert!((150.0..250.0).contains(&report.good_rps), "{report:?}");
        assert_eq!(report.failures[0].reason, "still under way when the run was cut off");
        let moments = moments.lock().unwrap();
        assert!((150.0..250.0).contains(&moments[0].good_rps) && moments[0].measured, "{moments:?}");
    });
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
        r#"{{"inputs":[{{"data":[{data}],"datatype":"FP32","name":"x","shape":[2,16]}}],"parameters":{{"timeout":30000000}}}}"#
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
    let gone = Server { address: listener.local_addr().unwrap(), connections: Default::default() };
    drop(listener);
    let (_keep, stop) = mpsc::unbounded_channel();
    let error = load::run(&config(&gone), |_| {}, stop).unwrap_err();
    let expected = format!("reach http://{}: connection refused; start a server with `weft up`", gone.address);
    assert!(error.to_string().starts_with(&expected), "{error}");
    assert!(matches!(error, SetupError::Unreachable { .. }));
}
