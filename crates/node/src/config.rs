//! What a node must be told before it starts.

use std::path::PathBuf;
use std::time::Duration;

/// How a node runs its workers.
#[derive(Clone, Debug)]
pub struct Config {
    /// The Python that runs models written in Python; it must have `numpy`.
    pub python: PathBuf,
    /// ONNX Runtime's library, `libonnxruntime.so`. Without it ONNX models cannot be served.
    pub onnxruntime: Option<PathBuf>,
    /// `libweft.so`, which workers with a share of a GPU are started with.
    pub library: Option<PathBuf>,
    /// The `weft` binary, which is started as `weft worker onnx`.
    pub program: PathBuf,
    /// Where files of the run go, such as the Python package that workers import.
    pub directory: PathBuf,
    /// How long a worker may take from its start until its model is loaded.
    pub load_timeout: Duration,
    /// How long a batch may take. A worker that takes longer is killed and started again.
    pub batch_timeout: Duration,
    /// How long a batch waits for its last part after its first came; then it runs with what came.
    pub parts_timeout: Duration,
    /// How much time goes into measuring a model before it is ready. A slow model takes more: it runs twice at least.
    pub warmup: Duration,
    /// How long workers that must end may take to finish what they have.
    pub drain_timeout: Duration,
    /// How long after its death a worker is started again the first time. The wait doubles with each death.
    pub restart_first: Duration,
    /// The longest wait before a worker is started again.
    pub restart_most: Duration,
    /// After so long without a death the wait starts from the first again.
    pub healthy_after: Duration,
}

impl Config {
    /// A configuration with the defaults of everything that has one.
    pub fn new(python: PathBuf, program: PathBuf, directory: PathBuf) -> Config {
        Config {
            python,
            onnxruntime: None,
            library: None,
            program,
            directory,
            load_timeout: Duration::from_secs(120),
            batch_timeout: Duration::from_secs(60),
            parts_timeout: Duration::from_nanos(rpc::timing::PARTS.nanos()),
            warmup: Duration::from_millis(300),
            drain_timeout: Duration::from_nanos(rpc::timing::DRAIN.nanos()),
            restart_first: Duration::from_millis(100),
            restart_most: Duration::from_secs(10),
            healthy_after: Duration::from_secs(30),
        }
    }
}
