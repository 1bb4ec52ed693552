//! The calls of the inference service.

use super::door::administer;
use super::infer::{Call, Service, version};
use super::{describe, status, stream};
use crate::settings::LogValue;
use crate::{ServeError, config};
use rpc::catalog::UNLOADED;
use rpc::inference::grpc_inference_service_server::GrpcInferenceService;
use rpc::inference::*;
use rpc::{Entry, NotFound, Order, OrderError, Refusal, State};
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Response, Status, Streaming};

/// An empty name stands for all.
fn named(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

/// Answers as the client sent: compressed or not. Clients say that they understand compression without wishing for it,
/// and it costs more time than the network it saves.
fn mirrored<T>(metadata: &MetadataMap, message: T) -> Response<T> {
    let mut response = Response::new(message);
    if metadata.get("grpc-encoding").is_none_or(|encoding| encoding == "identity") {
        response.disable_compression();
    }
    response
}

fn plain<T>(message: T) -> Result<Response<T>, Status> {
    let mut response = Response::new(message);
    response.disable_compression();
    Ok(response)
}

fn one_repository(name: &str) -> Result<(), Status> {
    match name {
        "" => Ok(()),
        name => Err(status::new(
            Code::Unimplemented,
            format!("`repository_name` is `{name}`, and there is only one repository"),
        )),
    }
}

const NO_CUDA: &str = "memory of a GPU cannot be shared with this server; use system shared memory";

#[tonic::async_trait]
impl GrpcInferenceService for Service {
    async fn server_live(&self, _: Request<ServerLiveRequest>) -> Result<Response<ServerLiveResponse>, Status> {
        plain(ServerLiveResponse { live: true })
    }

    async fn server_ready(&self, _: Request<ServerReadyRequest>) -> Result<Response<ServerReadyResponse>, Status> {
        plain(ServerReadyResponse { ready: self.gateway.ready() && !*self.draining.borrow() })
    }

    async fn model_ready(&self, request: Request<ModelReadyRequest>) -> Result<Response<ModelReadyResponse>, Status> {
        let ModelReadyRequest { name, version: asked } = request.get_ref();
        let catalog = self.gateway.catalog();
        let ready = catalog.find(name, version(asked)).is_ok_and(Entry::is_ready);
        plain(ModelReadyResponse { ready })
    }

    async fn server_metadata(
        &self,
        _: Request<ServerMetadataRequest>,
    ) -> Result<Response<ServerMetadataResponse>, Status> {
        plain(ServerMetadataResponse {
            name: "weft".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            extensions: crate::config::EXTENSIONS.map(str::to_string).into(),
        })
    }

    async fn model_metadata(
        &self,
        request: Request<ModelMetadataRequest>,
    ) -> Result<Response<ModelMetadataResponse>, Status> {
        let ModelMetadataRequest { name, version: asked } = request.get_ref();
        let described = self.with(name, asked, |catalog, entry| {
            let info = entry.info.as_ref().ok_or_else(|| match &entry.state {
                State::Unavailable(reason) if reason == UNLOADED => NotFound::Unloaded(name.clone()).into(),
                _ => ServeError::Refused(Refusal::Unavailable(format!("model `{name}` is still being loaded"))),
            })?;
            let listed = |other: &&Entry| match version(asked) {
                Some(_) => other.spec.version == entry.spec.version,
                None => other.state == State::Ready || other.spec.version == entry.spec.version,
            };
            let versions = catalog.versions(name).iter().filter(listed).map(|entry| entry.spec.version.to_string());
            Ok(describe::metadata(entry, info, versions.collect()))
        })?;
        plain(described.map_err(|error| status::of(&error, false))?)
    }

    async fn model_infer(&self, request: Request<ModelInferRequest>) -> Result<Response<ModelInferResponse>, Status> {
        let call = Call::of(&request);
        let (metadata, _, message) = request.into_parts();
        Ok(mirrored(&metadata, self.infer(call, message).await?))
    }

    type ModelStreamInferStream = stream::Answers;

    async fn model_stream_infer(
        &self,
        request: Request<Streaming<ModelInferRequest>>,
    ) -> Result<Response<stream::Answers>, Status> {
        let call = Call::of(&request);
        let (metadata, _, requests) = request.into_parts();
        Ok(mirrored(&metadata, stream::run(self.clone(), call, requests)))
    }

    async fn model_config(
        &self,
        request: Request<ModelConfigRequest>,
    ) -> Result<Response<ModelConfigResponse>, Status> {
        let ModelConfigRequest { name, version } = request.get_ref();
        let config = self.with(name, version, |_, entry| config::config(entry))?;
        plain(ModelConfigResponse { config: Some(config) })
    }

    async fn model_statistics(
        &self,
        request: Request<ModelStatisticsRequest>,
    ) -> Result<Response<ModelStatisticsResponse>, Status> {
        let ModelStatisticsRequest { name, version: asked } = request.get_ref();
        let only = match (named(name), version(asked)) {
            (Some(_), Some(_)) => Some(self.with(name, asked, |_, entry| entry.spec.version)?),
            (Some(_), None) => self.with(name, asked, |_, _| None)?,
            (None, Some(_)) => return Err(status::invalid("a version is named, and no model")),
            (None, None) => None,
        };
        let catalog = self.gateway.catalog();
        let wanted = |entry: &&Entry| {
            named(name).is_none_or(|name| entry.spec.name == name) && only.is_none_or(|only| entry.spec.version == only)
        };
        let statistics = |entry: &Entry| {
            let counters = self.gateway.statistics(&entry.spec.name, entry.spec.version);
            describe::statistics(&entry.spec.name, entry.spec.version, &counters)
        };
        plain(ModelStatisticsResponse { model_stats: catalog.entries.iter().filter(wanted).map(statistics).collect() })
    }

    async fn repository_index(
        &self,
        request: Request<RepositoryIndexRequest>,
    ) -> Result<Response<RepositoryIndexResponse>, Status> {
        let RepositoryIndexRequest { repository_name, ready } = request.get_ref();
        one_repository(repository_name)?;
        let catalog = self.gateway.catalog();
        let listed = |entry: &&Entry| !ready || entry.is_ready();
        plain(RepositoryIndexResponse { models: catalog.entries.iter().filter(listed).map(describe::index).collect() })
    }

    async fn repository_model_load(
        &self,
        request: Request<RepositoryModelLoadRequest>,
    ) -> Result<Response<RepositoryModelLoadResponse>, Status> {
        administer("RepositoryModelLoad", &request)?;
        let RepositoryModelLoadRequest { repository_name, model_name, parameters } = request.into_inner();
        one_repository(&repository_name)?;
        if let Some(parameter) = parameters.keys().next() {
            let problem = format!("a model cannot be loaded with `{parameter}`; deploy a version of it instead");
            return Err(status::new(Code::Unimplemented, problem));
        }
        let order = Order::Load { name: model_name };
        self.gateway.order(order).await.map_err(|error| status::of_order(&error))?;
        plain(RepositoryModelLoadResponse {})
    }

    async fn repository_model_unload(
        &self,
        request: Request<RepositoryModelUnloadRequest>,
    ) -> Result<Response<RepositoryModelUnloadResponse>, Status> {
        administer("RepositoryModelUnload", &request)?;
        let RepositoryModelUnloadRequest { repository_name, model_name, .. } = request.into_inner();
        one_repository(&repository_name)?;
        match self.gateway.order(Order::Unload { name: model_name }).await {
            // What is not there is as good as unloaded, as in Triton.
            Ok(()) | Err(OrderError::NotFound(_)) => {}
            Err(error) => return Err(status::of_order(&error)),
        }
        plain(RepositoryModelUnloadResponse {})
    }

    async fn system_shared_memory_status(
        &self,
        request: Request<SystemSharedMemoryStatusRequest>,
    ) -> Result<Response<SystemSharedMemoryStatusResponse>, Status> {
        let found = self
            .gateway
            .regions
            .status(named(&request.get_ref().name))
            .map_err(|problem| status::new(Code::NotFound, problem))?;
        let status = |region: crate::shared_memory::Region| {
            let crate::shared_memory::Region { name, key, offset, bytes } = region;
            let name_again = name.clone();
            (name_again, system_shared_memory_status_response::RegionStatus { name, key, offset, byte_size: bytes })
        };
        plain(SystemSharedMemoryStatusResponse { regions: found.into_iter().map(status).collect() })
    }

    async fn system_shared_memory_register(
        &self,
        request: Request<SystemSharedMemoryRegisterRequest>,
    ) -> Result<Response<SystemSharedMemoryRegisterResponse>, Status> {
        administer("SystemSharedMemoryRegister", &request)?;
        let SystemSharedMemoryRegisterRequest { name, key, offset, byte_size } = request.get_ref();
        let regions = &self.gateway.regions;
        let known = regions.status(Some(name)).is_ok();
        regions.register(name, key, *offset, *byte_size).map_err(|problem| match known {
            true => status::new(Code::AlreadyExists, problem),
            false => status::invalid(problem),
        })?;
        plain(SystemSharedMemoryRegisterResponse {})
    }

    async fn system_shared_memory_unregister(
        &self,
        request: Request<SystemSharedMemoryUnregisterRequest>,
    ) -> Result<Response<SystemSharedMemoryUnregisterResponse>, Status> {
        administer("SystemSharedMemoryUnregister", &request)?;
        self.gateway.regions.unregister(named(&request.get_ref().name));
        plain(SystemSharedMemoryUnregisterResponse {})
    }

    async fn cuda_shared_memory_status(
        &self,
        request: Request<CudaSharedMemoryStatusRequest>,
    ) -> Result<Response<CudaSharedMemoryStatusResponse>, Status> {
        match named(&request.get_ref().name) {
            Some(name) => Err(status::new(Code::NotFound, format!("there is no CUDA shared memory region `{name}`"))),
            None => plain(CudaSharedMemoryStatusResponse::default()),
        }
    }

    async fn cuda_shared_memory_register(
        &self,
        request: Request<CudaSharedMemoryRegisterRequest>,
    ) -> Result<Response<CudaSharedMemoryRegisterResponse>, Status> {
        administer("CudaSharedMemoryRegister", &request)?;
        Err(Status::unimplemented(NO_CUDA))
    }

    async fn cuda_shared_memory_unregister(
        &self,
        request: Request<CudaSharedMemoryUnregisterRequest>,
    ) -> Result<Response<CudaSharedMemoryUnregisterResponse>, Status> {
        administer("CudaSharedMemoryUnregister", &request)?;
        plain(CudaSharedMemoryUnregisterResponse {})
    }

    async fn trace_setting(
        &self,
        request: Request<TraceSettingRequest>,
    ) -> Result<Response<TraceSettingResponse>, Status> {
        if !request.get_ref().settings.is_empty() {
            administer("TraceSetting", &request)?;
        }
        let TraceSettingRequest { settings, model_name } = request.into_inner();
        let model = named(&model_name);
        if let Some(model) = model {
            self.with(model, "", |_, _| ())?;
        }
        let change = |value: trace_setting_request::SettingValue| Some(value.value).filter(|value| !value.is_empty());
        let changes = settings.into_iter().map(|(name, value)| (name, change(value))).collect();
        self.gateway.settings.set_trace(model, changes).map_err(status::invalid)?;
        let value = |(name, value)| (name, trace_setting_response::SettingValue { value });
        plain(TraceSettingResponse { settings: self.gateway.settings.trace(model).into_iter().map(value).collect() })
    }

    async fn log_settings(
        &self,
        request: Request<LogSettingsRequest>,
    ) -> Result<Response<LogSettingsResponse>, Status> {
        use log_settings_request::setting_value::ParameterChoice as Asked;
        use log_settings_response::setting_value::ParameterChoice as Told;
        let change = |(name, value): (String, log_settings_request::SettingValue)| match value.parameter_choice {
            Some(Asked::BoolParam(flag)) => Ok((name, LogValue::Flag(flag))),
            Some(Asked::Uint32Param(number)) => Ok((name, LogValue::Number(number))),
            Some(Asked::StringParam(text)) => Ok((name, LogValue::Text(text))),
            None => Err(status::invalid(format!("`{name}` has no value"))),
        };
        if !request.get_ref().settings.is_empty() {
            administer("LogSettings", &request)?;
        }
        let changes = request.into_inner().settings.into_iter().map(change).collect::<Result<_, _>>()?;
        self.gateway.settings.set_log(changes).map_err(status::invalid)?;
        let told = |(name, value): (String, LogValue)| {
            let choice = match value {
                LogValue::Flag(flag) => Told::BoolParam(flag),
                LogValue::Number(number) => Told::Uint32Param(number),
                LogValue::Text(text) => Told::StringParam(text),
            };
            (name, log_settings_response::SettingValue { parameter_choice: Some(choice) })
        };
        plain(LogSettingsResponse { settings: self.gateway.settings.log().into_iter().map(told).collect() })
    }
}
