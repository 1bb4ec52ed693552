//! Models: what a deployment asks for.

use crate::{DataType, Share, Workers};
use policy::Span;
use policy::sharing::Class;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What to serve and how. One version of one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct ModelSpec {
    /// What clients call it.
    pub name: String,
    /// Which version it is.
    pub version: u32,
    /// How it is executed.
    pub kind: Kind,
    /// From arrival to answer.
    pub slo: Span,
    /// The most requests that may share a batch; 0 when the model takes one request at a time, as it is, without a
    /// batch dimension.
    pub max_batch: usize,
    /// How many worker processes execute it.
    pub workers: Workers,
    /// How long the last worker stays while nobody asks, where it may go; without, as past pauses suggest. It is kept
    /// and not used while `workers` begins with more than 0, so that changing `workers` needs no second change.
    pub keep_alive: Option<Span>,
    /// Threads a worker may compute with.
    pub threads: usize,
    /// The most requests of it that may wait.
    pub queue: usize,
    /// Environment of its workers.
    pub env: BTreeMap<String, String>,
    /// What each of its workers may have of a GPU; without, they are not held to anything.
    pub share: Option<Share>,
    /// What an ONNX model is to run on.
    pub device: Device,
    /// Inputs, where the model itself does not say.
    pub inputs: Vec<TensorSpec>,
    /// Outputs, where the model itself does not say.
    pub outputs: Vec<TensorSpec>,
    /// A file with a request that it takes, as clients would send it: what it is warmed up with instead of zeros.
    pub warmup: Option<PathBuf>,
}

/// The part of a model's objective that a batch may take on the GPU: the rest is for the batch before, for requests that
/// come together, and for the tail.
const OF_OBJECTIVE: u64 = 4;

impl ModelSpec {
    /// Whether this can be served and written down. Everybody who makes or changes a deployment asks this: what passes
    /// can be read again, from the store and by every gateway and node.
    pub fn check(&self) -> Result<(), String> {
        let name = &self.name;
        check_name(name)?;
        let refuse = |problem: String| Err(format!("model `{name}`: {problem}"));
        let within = |what: &str, value: usize, least: usize, most: usize| match value {
            value if (least..=most).contains(&value) => Ok(()),
            value => Err(format!("model `{name}`: `{what}` is {value}; {least} to {most} are allowed")),
        };
        within("version", self.version as usize, 1, u32::MAX as usize)?;
        within("max_batch", self.max_batch, 0, policy::MAX_BATCH)?;
        within("threads", self.threads, 1, 1_024)?;
        within("queue", self.queue, 1, 1_000_000)?;
        if self.slo < Span::from_micros(100) || self.slo > Span::from_secs(3_600) {
            return refuse(format!("`slo` is {}; 100us to 1h are allowed", self.slo));
        }
        match &self.kind {
            Kind::Onnx { path } | Kind::Python { path, .. } if path.as_os_str().is_empty() => {
                return refuse("`path` is empty: name the model's file".into());
            }
            Kind::Onnx { path } | Kind::Python { path, .. } if path.to_str().is_none() => {
                return refuse(format!("the path {} is not UTF-8: rename the file or its folder", path.display()));
            }
            Kind::Virtual { .. } if self.share.is_some() => {
                return refuse("kind `virtual` uses no GPU and takes no `share`".into());
            }
            Kind::Onnx { .. } | Kind::Python { .. } | Kind::Virtual { .. } => {}
        }
        crate::env::check(&self.env).map_err(|problem| format!("model `{name}`: {problem}"))?;
        if self.warmup.is_some() && matches!(self.kind, Kind::Virtual { .. }) {
            return refuse("kind `virtual` is not warmed up and takes no `warmup`".into());
        }
        if !self.device.is_auto() && !matches!(self.kind, Kind::Onnx { .. }) {
            return refuse(format!("kind `{}` takes no `device`: only ONNX models do", self.kind.name()));
        }
        if self.device == Device::Cpu && self.share.is_some() {
            return refuse("`device` is `cpu`, and a `share` is of a GPU: leave out one of them".into());
        }
        let line = match self.kind {
            Kind::Virtual { latency } => [Some(latency.alpha), Some(latency.beta)],
            Kind::Onnx { .. } | Kind::Python { .. } => [None, None],
        };
        let own = [Some(self.slo), self.keep_alive, self.share.as_ref().and_then(|share| share.slo)];
        // Times are written as decimals; one that is long and exact at once would come back as another.
        let changes = |span: &Span| span.to_string().parse() != Ok(*span);
        if let Some(span) = own.into_iter().chain(line).flatten().find(changes) {
            return refuse(format!("the time {span} is too long to be so exact: round it to milliseconds"));
        }
        if let Some(share) = &self.share {
            Share::default().with(&share.clone().into()).map_err(|problem| format!("model `{name}`: {problem}"))?;
        }
        Ok(())
    }

    /// What stands for a model whose deployment cannot be read: it passes `check`, and nobody can run it.
    pub fn unknown(name: String, version: u32) -> ModelSpec {
        ModelSpec {
            name,
            version,
            kind: Kind::Onnx { path: "unreadable".into() },
            slo: default_slo(),
            max_batch: 0,
            workers: Workers::ONE,
            keep_alive: None,
            threads: 1,
            queue: default_queue(),
            env: BTreeMap::new(),
            share: None,
            device: Device::default(),
            warmup: None,
            inputs: Vec::new(),
            outputs: Vec::new(),
        }
    }

    /// The same with another number of workers, where that makes sense. `keep_alive` stays: it counts while `workers`
    /// may go down to 0.
    pub fn with_workers(&self, workers: Workers) -> Result<ModelSpec, String> {
        if matches!(self.kind, Kind::Virtual { .. }) {
            return Err(format!("model `{}` is virtual and has no workers of its own", self.name));
        }
        let changed = ModelSpec { workers, ..self.clone() };
        changed.check()?;
        Ok(changed)
    }

    /// What each of its workers is to have of a GPU: one that keeps its latency keeps its objective, unless its share
    /// says another.
    pub fn worker_share(&self) -> Option<Share> {
        let share = self.share.clone()?;
        let own = share.slo.or((share.class == Class::Latency).then(|| self.slo.scale(1, OF_OBJECTIVE)));
        Some(Share { slo: own, ..share })
    }
}

/// Whether clients could call a model this.
pub fn check_name(name: &str) -> Result<(), String> {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || name.len() > 128 || !name.bytes().all(letter) {
        return Err(format!("model name `{name}`: 1 to 128 letters, digits, `-`, `_` and `.` are allowed"));
    }
    Ok(())
}

/// A model as it is written down: in `weft.toml`, in requests to deploy it, in the database.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    #[serde(default = "one")]
    version: u32,
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<Line>,
    #[serde(default = "default_slo", with = "span")]
    slo: Span,
    #[serde(default = "default_max_batch")]
    max_batch: usize,
    #[serde(default = "one_worker")]
    workers: Workers,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "span::optional")]
    keep_alive: Option<Span>,
    #[serde(default = "one_thread")]
    threads: usize,
    #[serde(default = "default_queue")]
    queue: usize,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    share: Option<Share>,
    #[serde(default, skip_serializing_if = "Device::is_auto")]
    device: Device,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    inputs: Vec<TensorSpec>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    outputs: Vec<TensorSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    warmup: Option<PathBuf>,
}

impl TryFrom<Written> for ModelSpec {
    type Error = String;

    fn try_from(written: Written) -> Result<ModelSpec, String> {
        let Written { name, kind, path, class, latency, .. } = written;
        let refuse = |problem: String| Err(format!("model `{name}`: {problem}"));
        let kind = match (kind.as_str(), path, class, latency) {
            ("onnx", Some(path), None, None) => Kind::Onnx { path },
            ("python", Some(path), class, None) => Kind::Python { path, class },
            ("virtual", None, None, Some(latency)) => Kind::Virtual { latency },
            ("onnx", ..) => return refuse("kind `onnx` needs `path` and takes neither `class` nor `latency`".into()),
            ("python", ..) => {
                return refuse("kind `python` needs `path`, may have `class` and takes no `latency`".into());
            }
            ("virtual", ..) => {
                return refuse("kind `virtual` needs `latency` and takes neither `path` nor `class`".into());
            }
            (other, ..) => return refuse(format!("kind `{other}` is not one of onnx, python, virtual")),
        };
        let spec = ModelSpec {
            version: written.version,
            kind,
            slo: written.slo,
            max_batch: written.max_batch,
            workers: written.workers,
            keep_alive: written.keep_alive,
            threads: written.threads,
            queue: written.queue,
            env: written.env,
            share: written.share,
            device: written.device,
            inputs: written.inputs,
            outputs: written.outputs,
            warmup: written.warmup,
            name,
        };
        spec.check()?;
        Ok(spec)
    }
}

impl From<ModelSpec> for Written {
    fn from(spec: ModelSpec) -> Written {
        let name = spec.kind.name().to_string();
        let (path, class, latency) = match spec.kind {
            Kind::Onnx { path } => (Some(path), None, None),
            Kind::Python { path, class } => (Some(path), class, None),
            Kind::Virtual { latency } => (None, None, Some(latency)),
        };
        Written {
            name: spec.name,
            version: spec.version,
            kind: name,
            path,
            class,
            latency,
            slo: spec.slo,
            max_batch: spec.max_batch,
            workers: spec.workers,
            keep_alive: spec.keep_alive,
            threads: spec.threads,
            queue: spec.queue,
            env: spec.env,
            share: spec.share,
            device: spec.device,
            inputs: spec.inputs,
            outputs: spec.outputs,
            warmup: spec.warmup,
        }
    }
}

/// How long a batch takes: `alpha` for each request and `beta` once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// For each request.
    #[serde(with = "span")]
    pub alpha: Span,
    /// Once.
    #[serde(with = "span")]
    pub beta: Span,
}

/// How a model is executed.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// By ONNX Runtime, in a worker process.
    Onnx {
        /// The model file.
        path: PathBuf,
    },
    /// By a Python class, in a worker process.
    Python {
        /// The file that holds it.
        path: PathBuf,
        /// Its name; the only class with a `predict` where this is not said.
        class: Option<String>,
    },
    /// By nobody: it takes the time its profile says, on an emulated GPU, and answers with its inputs.
    Virtual {
        /// The profile.
        latency: Line,
    },
}

impl Kind {
    /// The word for it.
    pub const fn name(&self) -> &'static str {
        match self {
            Kind::Onnx { .. } => "onnx",
            Kind::Python { .. } => "python",
            Kind::Virtual { .. } => "virtual",
        }
    }
}

/// What an ONNX model is to run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// On a GPU where there is one that ONNX Runtime can use, else on the CPU.
    #[default]
    Auto,
    /// On a GPU, or not at all.
    Gpu,
    /// On the CPU.
    Cpu,
}

impl Device {
    fn is_auto(&self) -> bool {
        *self == Device::Auto
    }
}

/// A tensor as a model declares it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorSpec {
    /// What the model calls it.
    pub name: String,
    /// What its elements are.
    pub datatype: DataType,
    /// Its dimensions, -1 where any will do. The batch comes first, as -1, where the model has one.
    pub shape: Vec<i64>,
}

fn one() -> u32 {
    1
}
fn one_worker() -> Workers {
    Workers::ONE
}
fn one_thread() -> usize {
    1
}
fn default_slo() -> Span {
    Span::from_millis(100)
}
fn default_max_batch() -> usize {
    32
}
fn default_queue() -> usize {
    4096
}

/// Spans as people write them: `"100ms"`.
pub mod span {
    use super::*;

    /// Writes a span.
    pub fn serialize<S: Serializer>(span: &Span, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(span)
    }

    /// Reads a span.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }

    /// The same where there may be none.
    pub mod optional {
        use super::*;

        /// Writes a span, if there is one.
        pub fn serialize<S: Serializer>(span: &Option<Span>, serializer: S) -> Result<S::Ok, S::Error> {
            match span {
                Some(span) => serializer.collect_str(span),
                None => serializer.serialize_none(),
            }
        }

        /// Reads a span.
        pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Span>, D::Error> {
            super::deserialize(deserializer).map(Some)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ModelSpec, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_said_has_a_default_and_reads_back_the_same() {
        let spec = read(r#"{"name": "magika", "kind": "onnx", "path": "magika.onnx"}"#).unwrap();
        assert_eq!((spec.version, spec.max_batch, spec.workers, spec.threads), (1, 32, Workers::ONE, 1));
        assert_eq!(spec.slo, Span::from_millis(100));
        let again = read(&serde_json::to_string(&spec).unwrap()).unwrap();
        assert_eq!(spec, again);
    }

    #[test]
    fn a_share_is_read_and_written() {
        let text = r#"{"name": "a", "kind": "onnx", "path": "x", "share": {"class": "latency", "memory": "2GiB"}}"#;
        let spec = read(text).unwrap();
        assert_eq!(spec.share.as_ref().unwrap().memory, Some(crate::Bytes(2 << 30)));
        assert_eq!(read(&serde_json::to_string(&spec).unwrap()), Ok(spec));
    }

    #[test]
    fn a_device_is_read_and_written_and_older_peers_read_what_does_not_use_it() {
        let spec = read(r#"{"name": "a", "kind": "onnx", "path": "x", "device": "gpu"}"#).unwrap();
        assert_eq!(spec.device, Device::Gpu);
        assert_eq!(read(&serde_json::to_string(&spec).unwrap()), Ok(spec));
        let spec = read(r#"{"name": "a", "kind": "onnx", "path": "x", "device": "auto"}"#).unwrap();
        assert!(!serde_json::to_string(&spec).unwrap().contains("device"));
    }

    #[test]
    fn workers_have_their_part_of_the_objective() {
        let slo = |share: &str| {
            let text = format!(r#"{{"name": "a", "kind": "onnx", "path": "x", "slo": "40ms", "share": {share}}}"#);
            read(&text).unwrap().worker_share().unwrap().slo
        };
        assert_eq!(slo(r#"{"class": "latency"}"#), Some(Span::from_millis(10)));
        assert_eq!(slo(r#"{"class": "latency", "slo": "3ms"}"#), Some(Span::from_millis(3)));
        assert_eq!(slo(r#"{"class": "standard"}"#), None);
        assert_eq!(read(r#"{"name": "a", "kind": "onnx", "path": "x"}"#).unwrap().worker_share(), None);
    }

    #[test]
    fn nonsense_is_refused_with_the_name_of_the_thing() {
        let check = |text: &str, expected: &str| {
            let message = read(text).unwrap_err();
            assert!(message.contains(expected), "{message}");
        };
        check(r#"{"name": "a", "kind": "onnx"}"#, "kind `onnx` needs `path`");
        check(r#"{"name": "a", "kind": "torch", "path": "x"}"#, "`torch` is not one of onnx, python, virtual");
        check(r#"{"name": "a/b", "kind": "onnx", "path": "x"}"#, "model name `a/b`");
        check(r#"{"name": "a", "kind": "onnx", "path": "x", "batch": 3}"#, "unknown field `batch`");
        check(r#"{"name": "a", "kind": "onnx", "path": "x", "slo": "1ns"}"#, "`slo` is 1ns");
        check(r#"{"name": "a", "kind": "onnx", "path": "x", "workers": 0}"#, "`workers` is 0");
        check(r#"{"name": "a", "kind": "virtual", "path": "x"}"#, "kind `virtual` needs `latency`");
        check(r#"{"name": "a", "kind": "onnx", "path": ""}"#, "`path` is empty");
        check(
            r#"{"name": "a", "kind": "onnx", "path": "x", "env": {"A=B": "c"}}"#,
            "`env` has a variable `A=B`, which is not a name",
        );
        check(r#"{"name": "a", "kind": "onnx", "path": "x", "workers": "4..2"}"#, "at least 4 and at most 2");
        check(r#"{"name": "a", "kind": "onnx", "path": "x", "device": "tpu"}"#, "unknown variant `tpu`");
        check(r#"{"name": "a", "kind": "python", "path": "x", "device": "gpu"}"#, "kind `python` takes no `device`");
        let both = r#"{"name": "a", "kind": "onnx", "path": "x", "device": "cpu", "share": {"limit": "40%"}}"#;
        check(both, "leave out one of them");
        let share = r#"{"name": "a", "kind": "onnx", "path": "x", "share": {"limit": "140%"}}"#;
        check(share, "`140%` is more than a whole GPU");
    }
}
