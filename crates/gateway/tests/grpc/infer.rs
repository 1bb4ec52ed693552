//! One request, one answer.

use crate::{Client, floats, input, number, output, request, start, text, wait_for};
use bytes::Bytes;
use policy::Span;
use rpc::inference::{InferTensorContents, ModelInferRequest};
use std::time::Duration;
use tonic::{Code, Request, Status};

async fn refused(client: &mut Client, request: impl tonic::IntoRequest<ModelInferRequest>) -> Status {
    client.model_infer(request).await.unwrap_err()
}

#[tokio::test]
async fn an_answer_has_the_requests_id_and_raw_outputs() {
    let (_running, mut client) = start().await;
    let answer = client.model_infer(request("echo")).await.unwrap().into_inner();
    assert_eq!((answer.model_name.as_str(), answer.model_version.as_str(), answer.id.as_str()), ("echo", "2", "seven"));
    assert_eq!(answer.outputs[0].name, "OUTPUT0");
    assert_eq!((answer.outputs[0].datatype.as_str(), &answer.outputs[0].shape[..]), ("FP32", &[1, 16][..]));
    assert_eq!(answer.raw_output_contents, [floats()]);
    let first = ModelInferRequest { model_version: "1".into(), outputs: vec![output(&[])], ..request("echo") };
    assert_eq!(client.model_infer(first).await.unwrap().into_inner().model_version, "1");
}

#[tokio::test]
async fn elements_of_every_type_come_raw_and_one_by_one() {
    let (_running, mut client) = start().await;
    let none = InferTensorContents::default;
    let ints = || Some(InferTensorContents { int_contents: vec![1, -2], ..none() });
    let unsigned = || Some(InferTensorContents { uint_contents: vec![1, 2], ..none() });
    let cases: Vec<(&str, Option<InferTensorContents>, Vec<u8>)> = vec![
        ("BOOL", Some(InferTensorContents { bool_contents: vec![true, false], ..none() }), vec![1, 0]),
        ("INT8", ints(), vec![1, 254]),
        ("INT16", ints(), vec![1, 0, 254, 255]),
        ("INT32", ints(), [1i32, -2].iter().flat_map(|value| value.to_le_bytes()).collect()),
        (
            "INT64",
            Some(InferTensorContents { int64_contents: vec![1, i64::MIN], ..none() }),
            [1, i64::MIN].iter().flat_map(|value| value.to_le_bytes()).collect(),
        ),
        ("UINT8", unsigned(), vec![1, 2]),
        ("UINT16", unsigned(), vec![1, 0, 2, 0]),
        ("UINT32", unsigned(), vec![1, 0, 0, 0, 2, 0, 0, 0]),
        (
            "UINT64",
            Some(InferTensorContents { uint64_contents: vec![1, u64::MAX], ..none() }),
            [1, u64::MAX].iter().flat_map(|value| value.to_le_bytes()).collect(),
        ),
        (
            "FP32",
            Some(InferTensorContents { fp32_contents: vec![1.5, f32::INFINITY], ..none() }),
            [1.5, f32::INFINITY].iter().flat_map(|value| value.to_le_bytes()).collect(),
        ),
        (
            "FP64",
            Some(InferTensorContents { fp64_contents: vec![1.5, -0.0], ..none() }),
            [1.5, -0.0f64].iter().flat_map(|value| value.to_le_bytes()).collect(),
        ),
        (
            "BYTES",
            Some(InferTensorContents { bytes_contents: vec![Bytes::from_static(b"hi"), Bytes::new()], ..none() }),
            b"\x02\0\0\0hi\0\0\0\0".to_vec(),
        ),
        ("FP16", None, vec![0, 60, 0, 64]),
        ("BF16", None, vec![128, 63, 0, 64]),
    ];
    assert_eq!(cases.len(), config::DataType::ALL.len());
    for (datatype, contents, raw) in cases {
        let model_name = format!("echo_{}", datatype.to_lowercase());
        let ask = |contents, raw_input_contents| {
            let inputs =
                vec![rpc::inference::model_infer_request::InferInputTensor { contents, ..input(datatype, &[1, 2]) }];
            ModelInferRequest { model_name: model_name.clone(), inputs, raw_input_contents, ..Default::default() }
        };
        let raw = Bytes::from(raw);
        let answer = client.model_infer(ask(None, vec![raw.clone()])).await.unwrap().into_inner();
        assert_eq!(answer.raw_output_contents[..], [&raw[..]], "{datatype} raw");
        assert_eq!(answer.outputs[0].datatype, datatype);
        if let Some(contents) = contents {
            let answer = client.model_infer(ask(Some(contents), vec![])).await.unwrap().into_inner();
            assert_eq!(answer.raw_output_contents, [raw], "{datatype} typed");
        }
    }
}

#[tokio::test]
async fn what_makes_no_sense_is_named() {
    let (_running, mut client) = start().await;
    let contents = || Some(InferTensorContents { fp32_contents: vec![0.0; 16], ..Default::default() });
    let with = |change: &dyn Fn(&mut ModelInferRequest)| {
        let mut request = request("echo");
        change(&mut request);
        request
    };
    let cases: Vec<(ModelInferRequest, Code, &str)> = vec![
        (request("nobody"), Code::NotFound, "unknown model `nobody`"),
        (request(""), Code::NotFound, "unknown model ``"),
        (with(&|it| it.model_version = "3".into()), Code::NotFound, "has no version `3`; there is 1, 2"),
        (with(&|it| it.model_version = "one".into()), Code::NotFound, "has no version `one`"),
        (
            with(&|it| it.inputs[0].contents = contents()),
            Code::InvalidArgument,
            "input `INPUT0` has `contents`, and `raw_input_contents` are given as well",
        ),
        (with(&|it| it.raw_input_contents.clear()), Code::InvalidArgument, "holds 0 bytes; FP32[1, 16] takes 64"),
        (
            with(&|it| it.raw_input_contents.push(Bytes::new())),
            Code::InvalidArgument,
            "`raw_input_contents` hold 2 tensors, 1 more than there are inputs for",
        ),
        (
            with(&|it| it.inputs.push(input("FP32", &[1, 16]))),
            Code::InvalidArgument,
            "`raw_input_contents` hold 1 tensors, and none is left for input `INPUT0`",
        ),
        (with(&|it| it.raw_input_contents[0].truncate(63)), Code::InvalidArgument, "holds 63 bytes"),
        (
            with(&|it| it.inputs[0].datatype = "FP8".into()),
            Code::InvalidArgument,
            "has data type `FP8`; there are BOOL",
        ),
        (with(&|it| it.inputs[0].datatype = "INT32".into()), Code::InvalidArgument, "is INT32, and FP32 is expected"),
        (with(&|it| it.inputs[0].shape = vec![-1, 16]), Code::InvalidArgument, "no dimension can be negative"),
        (with(&|it| it.inputs[0].shape = vec![2, 8]), Code::InvalidArgument, "shape [2, 8], and [-1, 16] is expected"),
        (with(&|it| it.inputs[0].shape = vec![9, 16]), Code::InvalidArgument, "holds 9 rows; 1 to 8 are allowed"),
        (
            ModelInferRequest {
                inputs: vec![input("FP32", &[4, i64::MAX])],
                ..ModelInferRequest { model_name: "echo_fp32".into(), ..request("echo") }
            },
            Code::InvalidArgument,
            "more than can be counted",
        ),
        (with(&|it| it.inputs[0].name = "x".into()), Code::InvalidArgument, "unexpected input `x`"),
        (with(&|it| it.inputs.clear()), Code::InvalidArgument, "1 more than there are inputs for"),
        (
            with(&|it| (it.outputs.push(output(&[])), it.outputs[0].name = "x".into()).1),
            Code::InvalidArgument,
            "model `echo` has no output `x`",
        ),
        (
            with(&|it| it.outputs.extend([output(&[]), output(&[])])),
            Code::InvalidArgument,
            "output `OUTPUT0` is asked for twice",
        ),
        (
            with(&|it| drop(it.parameters.insert("priority".into(), number(10)))),
            Code::InvalidArgument,
            "parameter `priority` is 10; 0 to 9 are allowed",
        ),
        (
            with(&|it| drop(it.parameters.insert("timeout".into(), number(-1)))),
            Code::InvalidArgument,
            "parameter `timeout` is -1, and cannot be negative",
        ),
        (
            with(&|it| drop(it.parameters.insert("timeout".into(), text("soon")))),
            Code::InvalidArgument,
            "parameter `timeout` is not a whole number",
        ),
    ];
    for (request, code, expected) in cases {
        let status = refused(&mut client, request).await;
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(expected), "{}", status.message());
    }
}

#[tokio::test]
async fn what_is_not_served_says_why_and_when_to_try_again() {
    let (_running, mut client) = start().await;
    let cases = [
        ("late", Code::Unavailable, "the deadline of 100s cannot be met: too many requests wait before it", Some("12")),
        ("full", Code::ResourceExhausted, "64 requests wait for this model already", Some("12")),
        ("overloaded", Code::ResourceExhausted, "the model is overloaded", Some("12")),
        ("gone", Code::Unavailable, "all workers are gone", None),
        ("fails", Code::Internal, "model `fails`: ValueError: no", None),
    ];
    for (model, code, expected, retry) in cases {
        let status = refused(&mut client, request(model)).await;
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(expected), "{}", status.message());
        for name in ["retry-after-ms", "grpc-retry-pushback-ms"] {
            assert_eq!(status.metadata().get(name).map(|value| value.to_str().unwrap()), retry, "{model}");
        }
    }
}

#[tokio::test]
async fn the_shortest_limit_is_the_deadline() {
    let (running, mut client) = start().await;
    let within = |arrivals: &Vec<rpc::Arrival>| arrivals.last().unwrap().within;
    let ask = |timeout: Option<i64>, own: Option<Duration>, model: &str| {
        let mut message = request(model);
        message.parameters.extend(timeout.map(|micros| ("timeout".to_string(), number(micros))));
        message.parameters.insert("priority".into(), number(4));
        let mut request = Request::new(message);
        own.into_iter().for_each(|own| request.set_timeout(own));
        request
    };
    let hour = Some(Duration::from_secs(3600));
    let half = Some(Duration::from_secs(50));
    let cases = [
        (None, None, Span::from_secs(100)),
        (Some(0), None, Span::from_secs(100)),
        (Some(25_000_000), None, Span::from_secs(25)),
        (Some(i64::MAX), None, Span::MAX),
        (None, hour, Span::from_secs(100)),
        (None, half, Span::from_secs(50)),
        (Some(25_000_000), half, Span::from_secs(25)),
        (Some(200_000_000), half, Span::from_secs(50)),
    ];
    for (timeout, own, expected) in cases {
        client.model_infer(ask(timeout, own, "echo")).await.unwrap();
        assert_eq!(within(&running.heard.arrivals.lock().unwrap()), expected, "{timeout:?} {own:?}");
        assert_eq!(running.heard.arrivals.lock().unwrap().last().unwrap().priority, 4);
    }
    assert_eq!(refused(&mut client, ask(None, half, "late")).await.code(), Code::DeadlineExceeded);
    assert_eq!(refused(&mut client, ask(None, hour, "late")).await.code(), Code::Unavailable);
}

#[tokio::test]
async fn the_request_of_a_client_that_goes_away_is_taken_back_and_does_not_count_as_waiting() {
    let (running, mut client) = start().await;
    let statistics = running.gateway.statistics("never", 1);
    let pending = || statistics.pending.load(std::sync::atomic::Ordering::Relaxed);
    let asking = tokio::spawn(async move { client.model_infer(request("never")).await });
    running.arrived(1).await;
    assert_eq!(pending(), 1);
    asking.abort();
    wait_for("nobody to wait", async || pending() == 0).await;
    let announced = running.heard.arrivals.lock().unwrap()[0].request;
    assert_eq!(*running.heard.withdrawn.lock().unwrap(), [announced]);
}

/// Lateness is certain: the model never answers.
#[tokio::test]
async fn a_client_that_gives_up_is_told_so() {
    let (_running, mut client) = start().await;
    let mut request = Request::new(request("never"));
    request.set_timeout(Duration::from_millis(50));
    let status = refused(&mut client, request).await;
    assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status}");
}

#[tokio::test]
async fn classes_replace_scores() {
    let (_running, mut client) = start().await;
    let asking =
        |model: &str| ModelInferRequest { outputs: vec![output(&[("classification", number(2))])], ..request(model) };
    let strings = b"\x0c\0\0\x0015.000000:15\x0c\0\0\x0014.000000:14".as_slice();
    let answer = client.model_infer(asking("echo")).await.unwrap().into_inner();
    assert_eq!((answer.outputs[0].datatype.as_str(), &answer.outputs[0].shape[..]), ("BYTES", &[1, 2][..]));
    assert_eq!(answer.raw_output_contents, [strings]);
    let answer = client.model_infer(asking("whole")).await.unwrap().into_inner();
    assert_eq!((&answer.outputs[0].shape[..], &answer.raw_output_contents[0][..]), (&[2][..], strings));
}
