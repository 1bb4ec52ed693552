//! Every path with what it answers, through real sockets.

mod support;

use serde_json::json;
use support::{Client, ask, echo_body, start, start_open};

#[tokio::test]
async fn the_server_and_its_health() {
    let served = start(Default::default()).await;
    let server = ask(served.address, "GET", "/v2", &[], b"").await;
    assert_eq!((server.status, server.json()["name"].as_str()), (200, Some("weft")));
    let extensions = server.json()["extensions"].clone();
    assert!(extensions.as_array().unwrap().contains(&json!("binary_tensor_data")));
    assert_eq!(ask(served.address, "GET", "/v2/health/live", &[], b"").await.status, 200);
    let described = (*served.gateway.catalog()).clone();
    let ready = async |without: &[&str]| {
        let mut catalog = described.clone();
        catalog.entries.retain(|entry| !without.contains(&entry.spec.name.as_str()));
        served.gateway.publish(catalog);
        let answer = ask(served.address, "GET", "/v2/health/ready", &[], b"").await;
        let said = (answer.status != 200).then(|| answer.json()["error"].as_str().unwrap_or_default().to_owned());
        (answer.status, said.unwrap_or_default())
    };
    // One that is broken is enough, and so is one that is on its way; one that was unloaded is not.
    assert_eq!(ready(&["broken", "loading"]).await, (200, String::new()));
    let broken = "the server is not ready: model `broken` is not available: its file is gone";
    assert_eq!(ready(&["loading"]).await, (503, broken.into()));
    let loading = "the server is not ready: model `loading` is still being loaded";
    assert_eq!(ready(&["broken"]).await, (503, loading.into()));
    served.gateway.set_strict_readiness(false);
    assert_eq!(ready(&["loading"]).await, (200, String::new()));
    assert_eq!(ready(&[]).await, (503, loading.into()));
    let description = ask(served.address, "GET", "/v2/openapi.json", &[], b"").await;
    assert!(description.json()["openapi"].as_str().unwrap().starts_with('3'));
}

#[tokio::test]
async fn models() {
    let served = start(Default::default()).await;
    let get = |path: &'static str| ask(served.address, "GET", path, &[], b"");
    let metadata = get("/v2/models/echo").await;
    let tensor = |name: &str| json!({"name": name, "datatype": "FP32", "shape": [-1, 16]});
    assert_eq!(
        metadata.json(),
        json!({"name": "echo", "versions": ["1", "3"], "platform": "virtual", "inputs": [tensor("x")], "outputs": [tensor("y")]})
    );
    assert_eq!(get("/v2/models/echo/versions/1").await.json()["versions"], json!(["1"]));
    assert_eq!(get("/v2/models/echo/ready").await.status, 200);
    assert_eq!(get("/v2/models/echo/versions/3/ready").await.status, 200);
    let config = get("/v2/models/echo/config").await.json();
    assert_eq!((config["max_batch_size"].as_u64(), config["name"].as_str()), (Some(8), Some("echo")));
    assert_eq!((&config["input"][0]["data_type"], &config["input"][0]["dims"]), (&json!("TYPE_FP32"), &json!([16])));
    let plain = get("/v2/models/plain/config").await.json();
    assert_eq!((&plain["max_batch_size"], &plain["input"][0]["dims"]), (&json!(0), &json!([-1])));

    let body = echo_body();
    let answer = ask(served.address, "POST", "/v2/models/echo/infer", &[], body.as_bytes()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let statistics = get("/v2/models/echo/stats").await.json()["model_stats"].clone();
    let versions: Vec<_> = statistics.as_array().unwrap().iter().map(|one| one["version"].clone()).collect();
    assert_eq!(versions, ["1", "3"]);
    assert_eq!((&statistics[1]["inference_count"], &statistics[1]["execution_count"]), (&json!(1), &json!(1)));
    assert_eq!(statistics[1]["inference_stats"]["success"]["count"], json!(1));
    assert_eq!(get("/v2/models/echo/versions/3/stats").await.json()["model_stats"][0]["inference_count"], json!(1));
    let all = get("/v2/models/stats").await.json()["model_stats"].as_array().unwrap().len();
    assert_eq!(all, served.gateway.catalog().entries.len());

    for (path, status, error) in [
        ("/v2/models/nobody", 404, "unknown model `nobody`"),
        ("/v2/models/nobody/ready", 404, "unknown model `nobody`"),
        ("/v2/models/nobody/config", 404, "unknown model `nobody`"),
        ("/v2/models/nobody/stats", 404, "unknown model `nobody`"),
        ("/v2/models/echo/versions/2", 404, "model `echo` has no version `2`; there is 1, 3"),
        ("/v2/models/echo/versions/x/config", 404, "model `echo` has no version `x`; there is 1, 3"),
        ("/v2/models/loading", 503, "model `loading` is still being loaded"),
        ("/v2/models/broken/ready", 503, "model `broken` is not available: its file is gone"),
        ("/v2/models/unloaded", 404, "model `unloaded` is not loaded"),
        ("/v2/models/unloaded/ready", 404, "model `unloaded` is not loaded"),
        ("/v2/models/unloaded/config", 404, "model `unloaded` is not loaded"),
        ("/v2/models", 404, "there is no path /v2/models"),
        ("/nothing", 404, "there is no path /nothing"),
    ] {
        let answer = get(path).await;
        assert_eq!((answer.status, answer.error().as_str()), (status, error));
    }
}

#[tokio::test]
async fn the_repository() {
    let served = start_open().await;
    let post = |path: &'static str, body: &'static str| ask(served.address, "POST", path, &[], body.as_bytes());
    let all = post("/v2/repository/index", "").await.json();
    assert_eq!(all.as_array().unwrap().len(), served.gateway.catalog().entries.len());
    let line = |name: &str| all.as_array().unwrap().iter().find(|line| line["name"] == name).unwrap().clone();
    assert_eq!(line("plain"), json!({"name": "plain", "version": "1", "state": "READY"}));
    assert_eq!(line("loading")["state"], "LOADING");
    assert_eq!(
        (&line("broken")["state"], &line("broken")["reason"]),
        (&json!("UNAVAILABLE"), &json!("its file is gone"))
    );
    let ready = post("/v2/repository/index", r#"{"ready": true}"#).await.json();
    assert_eq!(ready.as_array().unwrap().len(), all.as_array().unwrap().len() - 3);

    assert_eq!(post("/v2/repository/models/echo/load", "{}").await.status, 200);
    assert_eq!(
        post("/v2/repository/models/echo/unload", r#"{"parameters":{"unload_dependents":false}}"#).await.status,
        200
    );
    for (path, body, status, error) in [
        ("/v2/repository/models/nobody/load", "", 404, "unknown model `nobody`"),
        ("/v2/repository/models/broken/load", "", 400, "its file is gone"),
        ("/v2/repository/models/echo/load", r#"{"parameters":{"config":"{}"}}"#, 400, "`config` cannot be given"),
        ("/v2/repository/models/echo/load", "{", 400, "JSON"),
        ("/v2/repository/models/echo/unload", r#"{"parameters":[1]}"#, 400, "JSON"),
        ("/v2/repository/index", "[]", 400, "JSON"),
    ] {
        let answer = post(path, body).await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(answer.error().contains(error), "{answer:?}");
    }
}

#[tokio::test]
async fn shared_memory() {
    let served = start_open().await;
    let get = |path: &'static str| ask(served.address, "GET", path, &[], b"");
    let post =
        |path: &'static str, body: String| async move { ask(served.address, "POST", path, &[], body.as_bytes()).await };
    let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    let key = format!("/{}", file.path().file_name().unwrap().to_str().unwrap());
    std::fs::write(file.path(), [[1f32, 2.0].map(f32::to_le_bytes).concat(), vec![0; 8]].concat()).unwrap();
    assert_eq!(get("/v2/systemsharedmemory/status").await.json(), json!([]));
    let register = json!({"key": key, "offset": 0, "byte_size": 16}).to_string();
    let answer = post("/v2/systemsharedmemory/region/r%201/register", register.clone()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let region = json!([{"name": "r 1", "key": key, "offset": 0, "byte_size": 16}]);
    assert_eq!(get("/v2/systemsharedmemory/status").await.json(), region);
    assert_eq!(get("/v2/systemsharedmemory/region/r%201/status").await.json(), region);

    let infer = |offset: u64, size: u64, out: u64| {
        json!({"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "parameters": {
                "shared_memory_region": "r 1", "shared_memory_offset": offset, "shared_memory_byte_size": size}}],
            "outputs": [{"name": "y", "parameters": {
                "shared_memory_region": "r 1", "shared_memory_offset": 8, "shared_memory_byte_size": out}}]})
        .to_string()
    };
    let answer = post("/v2/models/plain/infer", infer(0, 8, 8)).await;
    let output = json!({"name": "y", "datatype": "FP32", "shape": [2]});
    assert_eq!(answer.json()["outputs"], json!([output]));
    assert_eq!(std::fs::read(file.path()).unwrap()[8..], [1f32, 2.0].map(f32::to_le_bytes).concat());
    for (body, error) in [
        (infer(12, 8, 8), "input `x`: shared memory region `r 1` holds 16 bytes"),
        (infer(u64::MAX, 8, 8), "input `x`: shared memory region `r 1`"),
        (infer(0, 4, 8), "input `x` holds 4 bytes"),
        (infer(0, 8, 4), "output `y`"),
        (infer(0, 8, 9), "output `y`"),
    ] {
        let answer = post("/v2/models/plain/infer", body).await;
        assert_eq!(answer.status, 400);
        assert!(answer.error().contains(error), "{answer:?}");
    }

    let unknown = post("/v2/models/plain/infer", infer(0, 8, 8).replace("r 1", "r 2")).await;
    assert_eq!(unknown.status, 404, "{unknown:?}");
    assert_eq!(post("/v2/systemsharedmemory/region/r%201/register", register).await.status, 400);
    assert_eq!(post("/v2/systemsharedmemory/region/x/register", "{}".into()).await.status, 400);
    let escape = json!({"key": "../etc/passwd", "byte_size": 1}).to_string();
    assert_eq!(post("/v2/systemsharedmemory/region/x/register", escape).await.status, 400);
    assert_eq!(get("/v2/systemsharedmemory/region/x/status").await.status, 404);
    assert_eq!(post("/v2/systemsharedmemory/region/r%201/unregister", "".into()).await.status, 200);
    assert_eq!(post("/v2/systemsharedmemory/unregister", "".into()).await.status, 200);
    assert_eq!(get("/v2/systemsharedmemory/status").await.json(), json!([]));
    assert_eq!(get("/v2/cudasharedmemory/status").await.json(), json!([]));
    let cuda = post("/v2/cudasharedmemory/region/x/register", "{}".into()).await;
    assert!(cuda.status == 400 && cuda.error().contains("CUDA shared memory is not supported"));
}

#[tokio::test]
async fn settings() {
    let served = start_open().await;
    let get = |path: &'static str| ask(served.address, "GET", path, &[], b"");
    let post = |path: &'static str, body: &'static str| ask(served.address, "POST", path, &[], body.as_bytes());
    let trace = get("/v2/trace/setting").await.json();
    assert_eq!((&trace["trace_level"], &trace["trace_rate"]), (&json!(["OFF"]), &json!("1000")));
    let changed = post("/v2/models/echo/trace/setting", r#"{"trace_level": ["TIMESTAMPS"], "trace_rate": 5}"#).await;
    assert_eq!((&changed.json()["trace_level"], &changed.json()["trace_rate"]), (&json!(["TIMESTAMPS"]), &json!("5")));
    assert_eq!(get("/v2/trace/setting").await.json(), trace);
    assert_eq!(
        post("/v2/models/echo/trace/setting", r#"{"trace_level": null}"#).await.json()["trace_level"],
        json!(["OFF"])
    );
    assert_eq!(get("/v2/models/nobody/trace/setting").await.status, 404);
    assert_eq!(post("/v2/trace/setting", r#"{"what": "1"}"#).await.status, 400);
    for body in
        [r#"{"trace_rate": {}}"#, r#"{"trace_rate": ["1"]}"#, r#"{"trace_level": [1]}"#, r#"{"trace_level": 1}"#, "[]"]
    {
        assert_eq!(post("/v2/trace/setting", body).await.status, 400, "{body}");
    }
    assert_eq!(get("/v2/logging").await.json()["log_info"], json!(true));
    let changed = post("/v2/logging", r#"{"log_info": false, "log_verbose_level": 1}"#).await.json();
    assert_eq!((&changed["log_info"], &changed["log_verbose_level"]), (&json!(false), &json!(1)));
    for body in [r#"{"log_info": 3}"#, r#"{"what": true}"#, r#"{"log_info": null}"#, "3"] {
        assert_eq!(post("/v2/logging", body).await.status, 400, "{body}");
    }
}

#[tokio::test]
async fn methods() {
    let served = start(Default::default()).await;
    let mut client = Client::connect(served.address).await;
    client.request("HEAD", "/v2/models/echo", &[], b"").await;
    let head = client.answer_to("HEAD").await.unwrap();
    assert_eq!(head.status, 200);
    assert!(head.header("content-length").unwrap().parse::<usize>().unwrap() > 50);
    for (method, path, allow) in [
        ("POST", "/v2", "GET, HEAD"),
        ("DELETE", "/v2/models/echo", "GET, HEAD"),
        ("GET", "/v2/models/echo/infer", "POST"),
        ("GET", "/v2/repository/index", "POST"),
        ("PUT", "/v2/logging", "GET, HEAD, POST"),
        ("OPTIONS", "/v2/systemsharedmemory/region/r/register", "POST"),
    ] {
        client.request(method, path, &[], b"").await;
        let answer = client.answer().await.unwrap();
        assert_eq!((answer.status, answer.header("allow")), (405, Some(allow)), "{method} {path}");
        assert!(answer.error().contains(allow));
    }
}
