//! Inference over HTTP: every form of a request, and everything that can be wrong with one.

mod support;

use config::DataType;
use gateway::http::{Encoding, HttpConfig, Limits, pack, unpack};
use serde_json::{Value, json};
use std::io::Write;
use std::net::SocketAddr;
use support::{Answer, ask, echo_body, start};

async fn infer(address: SocketAddr, model: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Answer {
    ask(address, "POST", &format!("/v2/models/{model}/infer"), headers, body.as_ref()).await
}

fn one(datatype: &str, shape: &[i64], data: Value) -> Value {
    json!({"inputs": [{"name": "x", "datatype": datatype, "shape": shape, "data": data}]})
}

/// A request whose JSON is followed by binary tensors, with the header that says so.
fn with_binary(json: &Value, binary: &[u8]) -> (String, Vec<u8>) {
    let text = json.to_string();
    (text.len().to_string(), [text.as_bytes(), binary].concat())
}

#[tokio::test]
async fn json_comes_back_as_json() {
    let served = start(Default::default()).await;
    let answer = infer(served.address, "echo", &[], echo_body()).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    let answer = answer.json();
    assert_eq!(
        (&answer["model_name"], &answer["model_version"], &answer["id"]),
        (&json!("echo"), &json!("3"), &Value::Null)
    );
    let sent: Value = serde_json::from_str(&echo_body()).unwrap();
    let floats = |value: &Value| -> Vec<f32> {
        value["data"].as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect()
    };
    assert_eq!(floats(&answer["outputs"][0]), floats(&sent["inputs"][0]));
    assert_eq!(answer["outputs"][0]["shape"], json!([1, 16]));

    let mut named = sent.clone();
    named["id"] = json!("a \"b\" é");
    let answer =
        ask(served.address, "POST", "/v2/models/echo/versions/1/infer", &[], named.to_string().as_bytes()).await;
    assert_eq!((&answer.json()["id"], &answer.json()["model_version"]), (&named["id"], &json!("1")));
}

#[tokio::test]
async fn every_type_survives_both_forms() {
    let served = start(Default::default()).await;
    let cases: [(DataType, Value); 14] = [
        (DataType::Bool, json!([true, false])),
        (DataType::Uint8, json!([0, 255])),
        (DataType::Uint16, json!([0, 65535])),
        (DataType::Uint32, json!([0, u32::MAX])),
        (DataType::Uint64, json!([0, u64::MAX])),
        (DataType::Int8, json!([-128, 127])),
        (DataType::Int16, json!([-32768, 32767])),
        (DataType::Int32, json!([i32::MIN, i32::MAX])),
        (DataType::Int64, json!([i64::MIN, i64::MAX])),
        (DataType::Fp16, json!([-1.5, 65504.0])),
        (DataType::Bf16, json!([-1.5, 0.25])),
        (DataType::Fp32, json!([-0.1, 16777216.0])),
        (DataType::Fp64, json!([-0.1, 1e300])),
        (DataType::Bytes, json!(["é\n\"", ""])),
    ];
    for (datatype, data) in cases {
        let model = format!("any-{}", datatype.name());
        let request = one(datatype.name(), &[2], data.clone());
        let answer = infer(served.address, &model, &[], request.to_string()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.json()["outputs"][0]["data"], data);
        // The same as bytes, and these bytes back and forth.
        let mut request = request;
        request["outputs"] = json!([{"name": "y", "parameters": {"binary_data": true}}]);
        let answer = infer(served.address, &model, &[], request.to_string()).await;
        let split: usize = answer.header("inference-header-content-length").unwrap().parse().unwrap();
        assert_eq!(answer.header("content-type"), Some("application/octet-stream"));
        let binary = answer.body[split..].to_vec();
        let said: Value = serde_json::from_slice(&answer.body[..split]).unwrap();
        assert_eq!(said["outputs"][0]["parameters"]["binary_data_size"], json!(binary.len()));
        let request = json!({"inputs": [{"name": "x", "datatype": datatype.name(), "shape": [2],
            "parameters": {"binary_data_size": binary.len()}}], "parameters": {"binary_data_output": true}});
        let (length, body) = with_binary(&request, &binary);
        let again = infer(served.address, &model, &[("Inference-Header-Content-Length", &length)], &body).await;
        assert_eq!(again.body, answer.body, "{datatype:?}");
        // And bytes as JSON.
        let mut request = request;
        request["outputs"] = json!([{"name": "y", "parameters": {"binary_data": false}}]);
        let (length, body) = with_binary(&request, &binary);
        let again = infer(served.address, &model, &[("Inference-Header-Content-Length", &length)], &body).await;
        assert_eq!(again.json()["outputs"][0]["data"], data);
    }
}

#[tokio::test]
async fn what_is_no_number_and_what_is_no_text() {
    let served = start(Default::default()).await;
    let binary = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.0].map(f32::to_le_bytes).concat();
    let request =
        json!({"inputs": [{"name": "x", "datatype": "FP32", "shape": [4], "parameters": {"binary_data_size": 16}}]});
    let (length, body) = with_binary(&request, &binary);
    let answer = infer(served.address, "plain", &[("Inference-Header-Content-Length", &length)], &body).await;
    assert!(answer.text().contains("[NaN,Infinity,-Infinity,1.0]"), "{answer:?}");
    let request =
        json!({"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 5}}]});
    let (length, body) = with_binary(&request, b"\x01\0\0\0\xff");
    let answer = infer(served.address, "any-BYTES", &[("Inference-Header-Content-Length", &length)], &body).await;
    assert_eq!(answer.status, 400);
    assert!(answer.error().contains("no UTF-8 text; ask for it with `binary_data`"));
}

#[tokio::test]
async fn packed_requests_and_answers() {
    let served = start(Default::default()).await;
    for (encoding, name) in [(Encoding::Gzip, "gzip"), (Encoding::Deflate, "deflate")] {
        let floats: Vec<usize> = (0..4000).collect();
        let request = one("FP32", &[4000], json!(floats)).to_string();
        let plain = infer(served.address, "plain", &[], &request).await;
        let packed = pack(encoding, &[request.into()]);
        let headers = [("Content-Encoding", name), ("Accept-Encoding", name)];
        let answer = infer(served.address, "plain", &headers, &packed).await;
        assert_eq!((answer.status, answer.header("content-encoding")), (200, Some(name)));
        assert!(answer.body.len() < plain.body.len());
        assert_eq!(unpack(encoding, &answer.body, 1 << 20, |_| true).unwrap(), plain.body);
        // Binary tensors are packed along with the JSON.
        let request =
            json!({"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}}]});
        let (length, body) = with_binary(&request, &[0; 8]);
        let headers = [("Content-Encoding", name), ("Inference-Header-Content-Length", &length)];
        let answer = infer(served.address, "plain", &headers, pack(encoding, &[body.into()])).await;
        assert_eq!(answer.json()["outputs"][0]["data"], json!([0.0, 0.0]));
        let broken = infer(served.address, "plain", &[("Content-Encoding", name)], b"\x08nonsense").await;
        assert_eq!(broken.status, 400);
        assert!(broken.error().contains(&format!("the body is not {name}")), "{broken:?}");
    }
    let unknown = infer(served.address, "plain", &[("Content-Encoding", "br")], b"").await;
    assert_eq!(
        (unknown.status, unknown.error().as_str()),
        (415, "Content-Encoding `br` is not known; gzip and deflate are")
    );
    let identity = infer(served.address, "echo", &[("Content-Encoding", "identity")], echo_body()).await;
    assert_eq!(identity.status, 200);
}

#[tokio::test]
async fn a_bomb_is_refused() {
    let limits = Limits { body_bytes: 1 << 20, memory_bytes: 4 << 20, ..Limits::default() };
    let served = start(HttpConfig { limits, ..HttpConfig::default() }).await;
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    (0..100).for_each(|_| bomb.write_all(&[b' '; 1 << 20]).unwrap());
    let bomb = bomb.finish().unwrap();
    assert!(bomb.len() < 1 << 20);
    let answer = infer(served.address, "plain", &[("Content-Encoding", "gzip")], bomb).await;
    assert_eq!(answer.status, 413);
    assert!(answer.error().contains("once it is unpacked"));
    assert_eq!(infer(served.address, "echo", &[], echo_body()).await.status, 200);
}

#[tokio::test]
async fn classification() {
    let served = start(Default::default()).await;
    let mut request: Value = serde_json::from_str(&echo_body()).unwrap();
    request["outputs"] = json!([{"name": "y", "parameters": {"classification": 2}}]);
    let answer = infer(served.address, "echo", &[], request.to_string()).await.json();
    let output = &answer["outputs"][0];
    assert_eq!((&output["datatype"], &output["shape"]), (&json!("BYTES"), &json!([1, 2])));
    assert_eq!(output["data"], json!(["15.925500:15", "14.863800:14"]));
}

#[tokio::test]
async fn deadlines_and_priorities_reach_the_scheduler() {
    let served = start(Default::default()).await;
    let body = |parameters: Value| {
        let mut request = one("FP32", &[1], json!([1]));
        request["parameters"] = parameters;
        request.to_string()
    };
    let late = |headers: &'static [(&str, &str)], parameters: Value| {
        let body = body(parameters);
        async move { infer(served.address, "late", headers, body).await.error() }
    };
    assert!(late(&[], json!({})).await.contains("the deadline of 3600s cannot be met"));
    assert!(late(&[], json!({"timeout": 0})).await.contains("of 3600s"));
    assert!(late(&[], json!({"timeout": 2500})).await.contains("of 2.5ms"));
    assert!(late(&[("x-slo-ms", "30")], json!({})).await.contains("of 30ms"));
    assert!(late(&[("x-weft-timeout-ms", "1.5")], json!({"timeout": 2500})).await.contains("of 1.5ms"));
    for value in ["soon", "-1", "0", "inf", ""] {
        let answer = infer(served.address, "late", &[("x-slo-ms", value)], body(json!({}))).await;
        assert_eq!(answer.status, 400, "{value}");
    }
    let overloaded = infer(served.address, "overload", &[], body(json!({"priority": 7}))).await;
    assert!(overloaded.error().contains("requests of priority 7"));
}

#[tokio::test]
async fn refusals_say_when_to_come_again() {
    let served = start(Default::default()).await;
    let body = one("FP32", &[1], json!([1])).to_string();
    for (model, status, seconds, millis) in [
        ("full", 429, Some("2"), Some("1500")),
        ("overload", 429, Some("2"), Some("2000")),
        ("late", 503, Some("1"), Some("20")),
        ("loading", 503, Some("1"), Some("1000")),
        ("broken", 503, Some("1"), Some("1000")),
        ("fail", 500, None, None),
        ("nobody", 404, None, None),
    ] {
        let answer = infer(served.address, model, &[], &body).await;
        assert_eq!((answer.status, answer.header("retry-after")), (status, seconds), "{model}: {answer:?}");
        assert_eq!(answer.header("retry-after-ms"), millis);
        assert!(!answer.error().is_empty());
    }
}

#[tokio::test]
async fn bad_input_is_named() {
    let served = start(Default::default()).await;
    let good = one("FP32", &[1, 16], json!(vec![0; 16]));
    let change = |path: &str, value: Value| {
        let mut request = good.clone();
        *request.pointer_mut(path).unwrap() = value;
        request.to_string().into_bytes()
    };
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (b"".to_vec(), "JSON"),
        (b"{".to_vec(), "JSON"),
        (b"{\"inputs\": [{\"name\": \"\xff\"}]}".to_vec(), "not UTF-8"),
        (b"{}".to_vec(), "`inputs` is missing"),
        (b"{\"inputs\": []}".to_vec(), "input `x` is missing"),
        (change("/inputs/0/name", json!("z")), "unexpected input `z`; it takes `x`"),
        (change("/inputs/0/name", json!(3)), "a string is expected"),
        (change("/inputs/0/datatype", json!("FP64")), "input `x` is FP64, and FP32 is expected"),
        (change("/inputs/0/datatype", json!("FLOAT")), "there is no datatype `FLOAT`"),
        (change("/inputs/0/shape", json!([16])), "input `x` has shape [16], and [-1, 16] is expected"),
        (change("/inputs/0/shape", json!([1, 15])), "do not match its shape [1, 15]"),
        (change("/inputs/0/shape", json!([-1, 16])), "a dimension is -1"),
        (change("/inputs/0/shape", json!([1e30])), "a dimension is 1e+30"),
        (change("/inputs/0/shape", json!([1u64 << 40, 1u64 << 40])), "more than can be counted"),
        (change("/inputs/0/shape", json!([0, 16])), "do not match its shape"),
        (change("/inputs/0/data", json!([[0, 1]])), "do not match its shape"),
        (change("/inputs/0/data", json!(vec![1e39; 16])), "FP32 cannot hold 1e+39"),
        (change("/inputs/0/data", json!(vec!["a"; 16])), "a number is expected"),
        (change("/inputs/0/data", json!("zero")), "an array is expected"),
        (good.to_string().replace("[0,", "[NaN,").into_bytes(), "`NaN` found"),
        (good.to_string().replace("[0,", "[Infinity,").into_bytes(), "`Infinity` found"),
    ];
    for (body, error) in cases {
        let answer = infer(served.address, "echo", &[], &body).await;
        assert_eq!(answer.status, 400, "{}: {answer:?}", String::from_utf8_lossy(&body));
        assert!(answer.error().contains(error), "{error}: {}", answer.error());
    }
    let nine = one("FP32", &[9, 16], json!(vec![0; 144])).to_string();
    assert!(infer(served.address, "echo", &[], nine).await.error().contains("9 rows; 1 to 8 are allowed"));
    let mut output = good.clone();
    output["outputs"] = json!([{"name": "z"}]);
    assert!(infer(served.address, "echo", &[], output.to_string()).await.error().contains("has no output `z`"));
    let unknown = ask(served.address, "POST", "/v2/models/echo/versions/9/infer", &[], echo_body().as_bytes()).await;
    assert_eq!((unknown.status, unknown.error().as_str()), (404, "model `echo` has no version `9`; there is 1, 3"));

    let sized = |size: u64| json!({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 16], "parameters": {"binary_data_size": size}}]});
    let header = "Inference-Header-Content-Length";
    for (request, binary, error) in [
        (sized(64), 63, "input `x` has 64 bytes of binary data, and 63 follow the JSON"),
        (sized(60), 60, "input `x` holds 60 bytes; FP32[1, 16] takes 64"),
        (sized(64), 65, "1 bytes follow the JSON"),
        (sized(u64::MAX), 64, "and 64 follow the JSON"),
    ] {
        let (length, body) = with_binary(&request, &vec![0; binary]);
        let answer = infer(served.address, "echo", &[(header, &length)], &body).await;
        assert!(answer.status == 400 && answer.error().contains(error), "{answer:?}");
    }
    for (length, error) in [("99999999", "and the body holds"), ("-1", "not a whole number"), ("x", "not a whole")] {
        let answer = infer(served.address, "echo", &[(header, length)], echo_body()).await;
        assert!(answer.status == 400 && answer.error().contains(error), "{answer:?}");
    }
    let strings =
        json!({"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 6}}]});
    let (length, body) = with_binary(&strings, b"\xff\xff\xff\xffab");
    let answer = infer(served.address, "any-BYTES", &[(header, &length)], &body).await;
    assert!(answer.status == 400 && answer.error().contains("is cut off"), "{answer:?}");
    let nobody = infer(served.address, "nobody", &[], b"{").await;
    assert_eq!((nobody.status, nobody.error().as_str()), (404, "unknown model `nobody`"));
    // Nothing else is disturbed.
    assert_eq!(infer(served.address, "echo", &[("content-type", "text/plain")], echo_body()).await.status, 200);
}

#[tokio::test]
async fn large_tensors_come_and_go_in_pieces() {
    let served = start(Default::default()).await;
    let floats: Vec<u8> = (0..500_000).flat_map(|number| (number as f32).to_le_bytes()).collect();
    let request = json!({"inputs": [{"name": "x", "datatype": "FP32", "shape": [500_000], "parameters": {"binary_data_size": floats.len()}}],
        "parameters": {"binary_data_output": true}});
    let (length, body) = with_binary(&request, &floats);
    let answer = infer(served.address, "plain", &[("Inference-Header-Content-Length", &length)], &body).await;
    let split: usize = answer.header("inference-header-content-length").unwrap().parse().unwrap();
    assert!(answer.body[split..] == floats);
    let text = one("FP32", &[500_000], json!((0..500_000).collect::<Vec<_>>())).to_string();
    let answer = infer(served.address, "plain", &[], &text).await;
    assert_eq!(answer.json()["outputs"][0]["data"][499_999], json!(499_999.0));
}
