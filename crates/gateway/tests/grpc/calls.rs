//! Everything that is not inference.

use crate::{fake, number, output, request, start, text};
use rpc::inference::model_config::SchedulingChoice;
use rpc::inference::*;
use rpc::{Entry, State};
use std::sync::Arc;
use tonic::Code;

#[tokio::test]
async fn server_and_models_say_whether_they_can_be_asked() {
    let (running, mut client) = start().await;
    assert!(client.server_live(ServerLiveRequest {}).await.unwrap().into_inner().live);
    assert!(client.server_ready(ServerReadyRequest {}).await.unwrap().into_inner().ready);
    let mut ready = async |name: &str, version: &str| {
        let request = ModelReadyRequest { name: name.into(), version: version.into() };
        client.model_ready(request).await.unwrap().into_inner().ready
    };
    assert!(ready("echo", "").await && ready("echo", "1").await);
    assert!(!ready("echo", "3").await && !ready("nobody", "").await);
    let mut catalog = fake::catalog();
    let spec = Arc::new(fake::spec("zebra", 1));
    catalog.entries.push(Entry {
        model: 99,
        spec,
        info: None,
        state: State::Loading,
        workers_ready: 0,
        workers_wanted: 0,
        source: Default::default(),
        health: Default::default(),
    });
    running.gateway.publish(catalog);
    assert!(!ready("zebra", "").await);
    assert!(!client.server_ready(ServerReadyRequest {}).await.unwrap().into_inner().ready);
    let asked = ModelMetadataRequest { name: "zebra".into(), version: String::new() };
    assert_eq!(client.model_metadata(asked).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(client.model_infer(request("zebra")).await.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn metadata_names_versions_and_tensors() {
    let (_running, mut client) = start().await;
    let server = client.server_metadata(ServerMetadataRequest {}).await.unwrap().into_inner();
    assert_eq!(server.name, "weft");
    assert!(server.extensions.contains(&"system_shared_memory".to_string()));
    let mut ask = async |name: &str, version: &str| {
        let request = ModelMetadataRequest { name: name.into(), version: version.into() };
        client.model_metadata(request).await.map(tonic::Response::into_inner)
    };
    let model = ask("echo", "").await.unwrap();
    assert_eq!((model.name.as_str(), &model.versions[..]), ("echo", &["1".to_string(), "2".to_string()][..]));
    assert_eq!((model.inputs[0].name.as_str(), &model.inputs[0].shape[..]), ("INPUT0", &[-1, 16][..]));
    assert_eq!((model.outputs[0].name.as_str(), model.outputs[0].datatype.as_str()), ("OUTPUT0", "FP32"));
    assert_eq!(ask("echo", "1").await.unwrap().versions, ["1"]);
    assert_eq!(ask("echo", "7").await.unwrap_err().code(), Code::NotFound);
    assert_eq!(ask("nobody", "").await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn a_configuration_says_what_triton_would() {
    let (_running, mut client) = start().await;
    let request = |name: &str| ModelConfigRequest { name: name.into(), version: String::new() };
    let config = client.model_config(request("echo")).await.unwrap().into_inner().config.unwrap();
    assert_eq!((config.name.as_str(), config.max_batch_size, config.backend.as_str()), ("echo", 8, "virtual"));
    assert_eq!((config.input[0].data_type(), &config.input[0].dims[..]), (DataType::TypeFp32, &[16][..]));
    assert_eq!(config.output[0].dims, [16]);
    let Some(SchedulingChoice::DynamicBatching(batching)) = config.scheduling_choice else { panic!("no batching") };
    assert_eq!(batching.default_queue_policy.unwrap().default_timeout_microseconds, 100_000_000);
    let whole = client.model_config(request("whole")).await.unwrap().into_inner().config.unwrap();
    assert_eq!((whole.max_batch_size, &whole.input[0].dims[..]), (0, &[-1, 16][..]));
    assert!(whole.scheduling_choice.is_none());
    assert_eq!(client.model_config(request("nobody")).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn statistics_count_what_became_of_requests() {
    let (_running, mut client) = start().await;
    for model in ["echo", "echo", "fails", "full"] {
        let _ = client.model_infer(request(model)).await;
    }
    let mut ask = async |name: &str, version: &str| {
        let request = ModelStatisticsRequest { name: name.into(), version: version.into() };
        client.model_statistics(request).await.map(|answer| answer.into_inner().model_stats)
    };
    let echo = ask("echo", "").await.unwrap();
    assert_eq!(echo.iter().map(|model| model.version.as_str()).collect::<Vec<_>>(), ["1", "2"]);
    let counts = echo[1].inference_stats.unwrap();
    assert_eq!((echo[1].inference_count, echo[1].execution_count), (2, 2));
    assert_eq!((counts.success.unwrap().count, counts.compute_infer.unwrap().ns), (2, 100_000));
    assert!(echo[1].last_inference > 0);
    for model in ["fails", "full"] {
        let counts = ask(model, "1").await.unwrap().remove(0).inference_stats.unwrap();
        assert_eq!((counts.success.unwrap().count, counts.fail.unwrap().count), (0, 1), "{model}");
    }
    assert!(ask("", "").await.unwrap().len() > 15);
    assert_eq!(ask("nobody", "").await.unwrap_err().code(), Code::NotFound);
    assert_eq!(ask("echo", "9").await.unwrap_err().code(), Code::NotFound);
    assert_eq!(ask("", "9").await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn the_repository_lists_loads_and_unloads() {
    let (running, mut client) = start().await;
    let mut catalog = fake::catalog();
    let spec = Arc::new(fake::spec("zebra", 1));
    let state = State::Unavailable("the file is corrupt".into());
    catalog.entries.push(Entry {
        model: 99,
        spec,
        info: None,
        state,
        workers_ready: 0,
        workers_wanted: 0,
        source: Default::default(),
        health: Default::default(),
    });
    let total = catalog.entries.len();
    running.gateway.publish(catalog);
    let all = client.repository_index(RepositoryIndexRequest::default()).await.unwrap().into_inner().models;
    let last = all.last().unwrap();
    assert_eq!((all.len(), last.state.as_str(), last.reason.as_str()), (total, "UNAVAILABLE", "the file is corrupt"));
    let ready = RepositoryIndexRequest { ready: true, ..Default::default() };
    assert_eq!(client.repository_index(ready).await.unwrap().into_inner().models.len(), total - 1);
    let other = RepositoryIndexRequest { repository_name: "other".into(), ..Default::default() };
    assert_eq!(client.repository_index(other).await.unwrap_err().code(), Code::Unimplemented);

    let load = |name: &str| RepositoryModelLoadRequest { model_name: name.into(), ..Default::default() };
    client.repository_model_load(load("echo")).await.unwrap();
    assert_eq!(client.repository_model_load(load("missing")).await.unwrap_err().code(), Code::NotFound);
    let status = client.repository_model_load(load("fails")).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, "the file is corrupt"));
    let mut with = load("echo");
    with.parameters.insert("config".into(), ModelRepositoryParameter::default());
    assert_eq!(client.repository_model_load(with).await.unwrap_err().code(), Code::Unimplemented);
    let unload = |name: &str| RepositoryModelUnloadRequest { model_name: name.into(), ..Default::default() };
    client.repository_model_unload(unload("echo")).await.unwrap();
    client.repository_model_unload(unload("missing")).await.unwrap();
}

#[tokio::test]
async fn tensors_travel_through_shared_memory() {
    let (_running, mut client) = start().await;
    let file = tempfile::Builder::new().prefix("weft-test-").tempfile_in("/dev/shm").unwrap();
    std::fs::write(file.path(), [[7; 64].as_slice(), &[0; 128]].concat()).unwrap();
    let key = format!("/{}", file.path().file_name().unwrap().to_str().unwrap());
    let register = |name: &str, byte_size: u64| SystemSharedMemoryRegisterRequest {
        name: name.into(),
        key: key.clone(),
        offset: 0,
        byte_size,
    };
    client.system_shared_memory_register(register("region", 192)).await.unwrap();
    let again = client.system_shared_memory_register(register("region", 192)).await.unwrap_err();
    assert_eq!(again.code(), Code::AlreadyExists);
    let long = client.system_shared_memory_register(register("other", 193)).await.unwrap_err();
    assert_eq!(long.code(), Code::InvalidArgument);
    let status = |name: &str| SystemSharedMemoryStatusRequest { name: name.into() };
    let found = client.system_shared_memory_status(status("")).await.unwrap().into_inner().regions;
    assert_eq!((found["region"].key.as_str(), found["region"].byte_size), (key.as_str(), 192));
    assert_eq!(client.system_shared_memory_status(status("no")).await.unwrap_err().code(), Code::NotFound);

    let place = |region: &str, offset: i64, bytes: i64| {
        [
            ("shared_memory_region", text(region)),
            ("shared_memory_offset", number(offset)),
            ("shared_memory_byte_size", number(bytes)),
        ]
    };
    let ask = |from: [(&str, InferParameter); 3], to: [(&str, InferParameter); 3]| {
        let mut request = ModelInferRequest { outputs: vec![output(&to)], ..request("echo") };
        request.raw_input_contents.clear();
        request.inputs[0].parameters = from.map(|(name, value)| (name.to_string(), value)).into();
        request
    };
    let good = ask(place("region", 0, 64), place("region", 64, 100));
    let answer = client.model_infer(good).await.unwrap().into_inner();
    assert_eq!(answer.raw_output_contents, [""]);
    assert_eq!((answer.outputs[0].datatype.as_str(), &answer.outputs[0].shape[..]), ("FP32", &[1, 16][..]));
    assert_eq!(std::fs::read(file.path()).unwrap(), [[7; 128].as_slice(), &[0; 64]].concat());

    let bad = [
        (ask(place("no", 0, 64), place("region", 64, 64)), "there is no shared memory region `no`"),
        (ask(place("region", 0, 60), place("region", 64, 64)), "60 bytes of shared memory"),
        (ask(place("region", 150, 64), place("region", 64, 64)), "64 from 150 on do not fit"),
        (ask(place("region", -1, 64), place("region", 64, 64)), "`shared_memory_offset` is -1"),
        (ask(place("region", 0, 64), place("region", 64, 63)), "64 bytes do not fit in the 63 set aside"),
        (ask(place("region", 0, 64), place("no", 64, 64)), "output `OUTPUT0`: there is no shared memory region `no`"),
    ];
    for (request, expected) in bad {
        let status = client.model_infer(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(expected), "{}", status.message());
    }
    let mut incomplete = ask(place("region", 0, 64), place("region", 64, 64));
    incomplete.inputs[0].parameters.remove("shared_memory_byte_size");
    let refusal = client.model_infer(incomplete).await.unwrap_err();
    assert!(refusal.message().contains("`shared_memory_byte_size` is missing"), "{}", refusal.message());

    let unregister = SystemSharedMemoryUnregisterRequest { name: "region".into() };
    client.system_shared_memory_unregister(unregister).await.unwrap();
    client.system_shared_memory_unregister(SystemSharedMemoryUnregisterRequest::default()).await.unwrap();
    assert!(client.system_shared_memory_status(status("")).await.unwrap().into_inner().regions.is_empty());
}

#[tokio::test]
async fn memory_of_a_gpu_is_refused_clearly() {
    let (_running, mut client) = start().await;
    let all = client.cuda_shared_memory_status(CudaSharedMemoryStatusRequest::default()).await.unwrap();
    assert!(all.into_inner().regions.is_empty());
    let one = CudaSharedMemoryStatusRequest { name: "x".into() };
    assert_eq!(client.cuda_shared_memory_status(one).await.unwrap_err().code(), Code::NotFound);
    let register = client.cuda_shared_memory_register(CudaSharedMemoryRegisterRequest::default()).await;
    assert_eq!(register.unwrap_err().code(), Code::Unimplemented);
    client.cuda_shared_memory_unregister(CudaSharedMemoryUnregisterRequest::default()).await.unwrap();
}

#[tokio::test]
async fn settings_of_tracing_and_logging_can_be_read_and_changed() {
    let (_running, mut client) = start().await;
    let mut trace = async |model: &str, changes: &[(&str, &[&str])]| {
        let value = |values: &[&str]| trace_setting_request::SettingValue {
            value: values.iter().map(|value| value.to_string()).collect(),
        };
        let settings = changes.iter().map(|(name, values)| (name.to_string(), value(values))).collect();
        let request = TraceSettingRequest { settings, model_name: model.into() };
        client.trace_setting(request).await.map(|answer| answer.into_inner().settings)
    };
    assert_eq!(trace("", &[]).await.unwrap()["trace_level"].value, ["OFF"]);
    let changed = trace("echo", &[("trace_level", &["TIMESTAMPS"]), ("trace_rate", &["1"])]).await.unwrap();
    assert_eq!(changed["trace_level"].value, ["TIMESTAMPS"]);
    assert_eq!(trace("", &[]).await.unwrap()["trace_level"].value, ["OFF"]);
    assert_eq!(trace("echo", &[("trace_level", &[])]).await.unwrap()["trace_level"].value, ["OFF"]);
    assert_eq!(trace("nobody", &[]).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(trace("", &[("trace_rate", &["fast"])]).await.unwrap_err().code(), Code::InvalidArgument);

    use log_settings_request::setting_value::ParameterChoice as Choice;
    use log_settings_response::setting_value::ParameterChoice as Told;
    let mut log = async |changes: &[(&str, Option<Choice>)]| {
        let value = |choice: &Option<Choice>| log_settings_request::SettingValue { parameter_choice: choice.clone() };
        let settings = changes.iter().map(|(name, choice)| (name.to_string(), value(choice))).collect();
        client.log_settings(LogSettingsRequest { settings }).await.map(|answer| answer.into_inner().settings)
    };
    assert_eq!(log(&[]).await.unwrap()["log_info"].parameter_choice, Some(Told::BoolParam(true)));
    let changed = log(&[("log_verbose_level", Some(Choice::Uint32Param(1)))]).await.unwrap();
    assert_eq!(changed["log_verbose_level"].parameter_choice, Some(Told::Uint32Param(1)));
    assert_eq!(changed["log_format"].parameter_choice, Some(Told::StringParam("default".into())));
    let bad = log(&[("log_info", Some(Choice::StringParam("yes".into())))]).await.unwrap_err();
    assert_eq!((bad.code(), bad.message()), (Code::InvalidArgument, "`log_info` is true or false"));
    assert_eq!(log(&[("log_info", None)]).await.unwrap_err().code(), Code::InvalidArgument);
}
