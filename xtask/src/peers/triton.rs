//! Triton, out of the `nvidia-pytriton` wheel: the server, its Python backend, and model repositories made from
//! `bench/peers/triton`.

use super::environment::TRITON;
use super::{magika, tools};
use crate::program::Program;
use crate::server::Ports;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// What it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Repository {
    /// The echo model alone.
    Echo,
    /// Everything that the clients' conformance needs, loaded and unloaded by request.
    Conformance,
    /// `magika` with a queue.
    Magika(Queue),
}

/// How requests wait for their turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    pub(crate) name: &'static str,
    batch: u32,
    delay_us: u32,
    /// A request that waited for so long is refused.
    timeout_ms: Option<u32>,
    /// A request that finds so many before it is refused.
    length: Option<u32>,
}

/// Triton's defaults, and then what does well when the objective is 100 ms and a batch of one takes 8 to 25 ms. The
/// comparison is with whichever of them does best at each rate.
///
/// Short queues are missing: in single runs on a busy machine they did far worse than a time-out alone. Why was not
/// found out, and a quiet machine should have the last word.
pub(crate) const QUEUES: [Queue; 6] = [
    Queue { name: "default", batch: 8, delay_us: 0, timeout_ms: None, length: None },
    Queue { name: "timeout 40 ms", batch: 1, delay_us: 0, timeout_ms: Some(40), length: None },
    Queue { name: "timeout 60 ms", batch: 1, delay_us: 0, timeout_ms: Some(60), length: None },
    Queue { name: "timeout 80 ms", batch: 1, delay_us: 0, timeout_ms: Some(80), length: None },
    Queue { name: "timeout 60 ms, batches of 2", batch: 2, delay_us: 1000, timeout_ms: Some(60), length: None },
    Queue { name: "timeout 60 ms, queue of 16", batch: 1, delay_us: 0, timeout_ms: Some(60), length: Some(16) },
];

impl Repository {
    fn name(&self) -> String {
        match self {
            Repository::Echo => "echo".to_owned(),
            Repository::Conformance => "conformance".to_owned(),
            Repository::Magika(queue) => format!("magika, {}", queue.name).replace([' ', ','], "-"),
        }
    }

    fn models(&self) -> &'static [&'static str] {
        match self {
            Repository::Echo => &["echo"],
            Repository::Conformance => &["echo", "types"],
            Repository::Magika(_) => &["magika"],
        }
    }
}

impl Queue {
    /// The model's configuration.
    fn config(&self) -> String {
        let mut policy = Vec::new();
        if let Some(timeout) = self.timeout_ms {
            let timeout = timeout * 1000;
            policy.push(format!(
                "timeout_action: REJECT, default_timeout_microseconds: {timeout}, allow_timeout_override: true"
            ));
        }
        policy.extend(self.length.map(|length| format!("max_queue_size: {length}")));
        let policy = match policy.as_slice() {
            [] => String::new(),
            parts => format!(", default_queue_policy {{ {} }}", parts.join(", ")),
        };
        format!(
            "name: \"magika\"\nbackend: \"python\"\nmax_batch_size: {}\n\
             input [ {{ name: \"bytes\", data_type: TYPE_INT32, dims: [ 2048 ] }} ]\n\
             output [ {{ name: \"target_label\", data_type: TYPE_FP32, dims: [ 214 ] }} ]\n\
             dynamic_batching {{ max_queue_delay_microseconds: {}{policy} }}\n\
             instance_group [ {{ kind: KIND_CPU, count: 1 }} ]\n",
            self.batch, self.delay_us
        )
    }
}

/// The server with these models.
pub(super) fn serve(workspace: &Workspace, repository: &Repository, ports: &Ports) -> Result<Program> {
    let backends = backend(workspace)?;
    let packages = packages(workspace)?;
    let models = write(workspace, repository)?;
    let libraries = [libpython(workspace)?, packages.join("nvidia_pytriton.libs")];
    let libraries = std::env::join_paths(libraries).context("name Triton's libraries")?;
    let [http, grpc, metrics] = [ports.http, ports.grpc, ports.metrics].map(|port| port.to_string());
    let mut arguments = vec![
        format!("--model-repository={}", models.display()),
        format!("--backend-directory={}", backends.display()),
        format!("--http-port={http}"),
        format!("--grpc-port={grpc}"),
        format!("--metrics-port={metrics}"),
    ];
    arguments.extend(["http", "grpc", "metrics"].map(|port| format!("--{port}-address=127.0.0.1")));
    if *repository == Repository::Conformance {
        arguments.extend(["--model-control-mode=explicit", "--load-model=*"].map(str::to_owned));
    }
    let program = Program::new(packages.join("pytriton/tritonserver/bin/tritonserver"))
        .arguments(arguments.iter().map(String::as_str))
        .variable("LD_LIBRARY_PATH", libraries)
        // The stub finds its Python, and so its packages, by the first on the path.
        .search_first(&TRITON.path(workspace)?.join("bin"))?;
    match repository {
        Repository::Magika(_) => Ok(program.variable("MAGIKA_ONNX", magika(workspace)?)),
        _ => Ok(program),
    }
}

/// The folder of backends: the wheel keeps the Python backend's stub for each Python apart from it.
pub(super) fn backend(workspace: &Workspace) -> Result<PathBuf> {
    let folder = TRITON.path(workspace)?.join("backends");
    let python = folder.join("python");
    if python.join("triton_python_backend_stub").is_file() {
        return Ok(folder);
    }
    let server = packages(workspace)?.join("pytriton/tritonserver");
    let version = TRITON.evaluate(workspace, "sys", "'%d.%d' % sys.version_info[:2]")?;
    let stubs = server.join("python_backend_stubs").join(&version);
    if !stubs.is_dir() {
        bail!("find the stub of Triton's Python backend for Python {version}: the wheel has none");
    }
    std::fs::create_dir_all(&python).with_context(|| format!("create {}", python.display()))?;
    copy(&server.join("backends/python"), &python)?;
    copy(&stubs, &python)?;
    libpython(workspace)?;
    Ok(folder)
}

/// Where the environment's packages lie.
fn packages(workspace: &Workspace) -> Result<PathBuf> {
    Ok(PathBuf::from(TRITON.evaluate(workspace, "sysconfig", "sysconfig.get_paths()['purelib']")?))
}

/// The folder with the shared library of the environment's Python, which the stub is linked with.
fn libpython(workspace: &Workspace) -> Result<PathBuf> {
    let setting = |name: &str| TRITON.evaluate(workspace, "sysconfig", &format!("sysconfig.get_config_var('{name}')"));
    let (folder, version) = (PathBuf::from(setting("LIBDIR")?), setting("py_version_short")?);
    // As the stub asks for it. Debian keeps it in a folder for the machine's kind and in a package of its own.
    let library = format!("libpython{version}.so.1.0");
    let folders = [folder.clone(), folder.join(setting("MULTIARCH")?)];
    let found = || folders.iter().find(|folder| folder.join(&library).is_file());
    tools::debian(&format!("libpython{version}"), || found().is_some())
        .with_context(|| format!("find {library}, which Triton's Python backend is linked with"))?;
    found().cloned().with_context(|| format!("find {library}"))
}

/// Writes a model repository under `target/peers` and gives its folder.
fn write(workspace: &Workspace, repository: &Repository) -> Result<PathBuf> {
    let folder = workspace.output("peers")?.join("triton-models").join(repository.name());
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("empty {}", folder.display()))?;
    }
    for model in repository.models() {
        let from = workspace.root.join("bench/peers/triton").join(model);
        let to = folder.join(model);
        std::fs::create_dir_all(to.join("1")).with_context(|| format!("create {}", to.display()))?;
        copy(&from.join("1"), &to.join("1"))?;
        let config = to.join("config.pbtxt");
        let text = match repository {
            Repository::Magika(queue) => queue.config(),
            _ => std::fs::read_to_string(from.join("config.pbtxt"))
                .with_context(|| format!("read the configuration of {model}"))?,
        };
        std::fs::write(&config, text).with_context(|| format!("write {}", config.display()))?;
    }
    Ok(folder)
}

/// Copies the files of one folder into another, not its folders.
fn copy(from: &Path, to: &Path) -> Result<()> {
    for entry in std::fs::read_dir(from).with_context(|| format!("list {}", from.display()))? {
        let path = entry.with_context(|| format!("list {}", from.display()))?.path();
        if let (true, Some(name)) = (path.is_file(), path.file_name()) {
            std::fs::copy(&path, to.join(name)).with_context(|| format!("copy {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_without_limits_has_no_policy() {
        assert!(QUEUES[0].config().contains("dynamic_batching { max_queue_delay_microseconds: 0 }"));
        let config = QUEUES[5].config();
        assert!(config.contains("default_timeout_microseconds: 60000"), "{config}");
        assert!(config.contains("max_queue_size: 16 } }"), "{config}");
    }
}
