//! What an ONNX worker needs to know of GPUs before it starts: whether it sees one, how much memory it may take there,
//! and where NVIDIA's libraries lie.
//!
//! Which of ONNX Runtime's execution providers it then uses is for the worker to find out: `worker/providers.rs`.

use crate::Config;
use crate::environment::CUDA_PROVIDER;
use crate::protocol::Grant;
use config::{Device, Kind, ModelSpec};
use share_client::Gpus;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// TensorRT's library.
const TENSORRT: &str = "libnvinfer.so";
/// Where packages of distributions and of NVIDIA put libraries.
const SYSTEM_FOLDERS: [&str; 4] =
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/cuda/lib64"];

/// What a worker of this model has of a GPU. `tenant` says whether it runs under a share of one.
pub(crate) fn grant(config: &Config, spec: &ModelSpec, tenant: bool) -> Option<Grant> {
    if !matches!(spec.kind, Kind::Onnx { .. }) || spec.device == Device::Cpu {
        return None;
    }
    if tenant {
        let memory = spec.worker_share().and_then(|share| share.memory);
        return Some(Grant { memory_bytes: memory.map(|bytes| bytes.0), tensorrt: has_tensorrt(config, spec) });
    }
    let visible = spec.env.get("CUDA_VISIBLE_DEVICES").map(OsString::from);
    let visible = visible.or_else(|| std::env::var_os("CUDA_VISIBLE_DEVICES"));
    if visible.is_some_and(|devices| hides_all(&devices.to_string_lossy())) {
        return None;
    }
    (!Gpus::find().gpus.is_empty()).then(|| Grant { memory_bytes: None, tensorrt: has_tensorrt(config, spec) })
}

/// Whether TensorRT lies where a worker of this model looks for libraries.
fn has_tensorrt(config: &Config, spec: &ModelSpec) -> bool {
    let own = libraries(config, spec).map(|(_, path)| path).or_else(|| own_path(spec));
    let own = own.iter().flat_map(std::env::split_paths);
    own.chain(SYSTEM_FOLDERS.map(PathBuf::from)).any(|folder| {
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
        files.into_iter().any(|file| file.file_name().to_string_lossy().starts_with(TENSORRT))
    })
}

/// Where a worker of this model looks for libraries, without those that are found here.
fn own_path(spec: &ModelSpec) -> Option<OsString> {
    spec.env.get("LD_LIBRARY_PATH").map(OsString::from).or_else(|| std::env::var_os("LD_LIBRARY_PATH"))
}

/// Whether a value of `CUDA_VISIBLE_DEVICES` leaves no GPU: CUDA stops at the first that there is not.
fn hides_all(devices: &str) -> bool {
    let first = devices.split(',').next().unwrap_or_default().trim();
    first.is_empty() || first.starts_with("-") || first.eq_ignore_ascii_case("none") || first == "NoDevFiles"
}

/// The variable with which the dynamic linker finds the libraries of NVIDIA's wheels, where ONNX Runtime was installed
/// with them.
pub(crate) fn libraries(config: &Config, spec: &ModelSpec) -> Option<(&'static str, OsString)> {
    let folders = library_folders(config.onnxruntime.as_deref()?);
    if folders.is_empty() {
        return None;
    }
    let others = own_path(spec);
    let others = others.as_ref().into_iter().flat_map(std::env::split_paths);
    // Those that ONNX Runtime was built for go before whatever else is on the machine.
    let path = std::env::join_paths(folders.into_iter().chain(others)).ok()?;
    Some(("LD_LIBRARY_PATH", path))
}

/// Where the wheels that lie beside ONNX Runtime's have their libraries: `nvidia/*/lib`, and that of TensorRT.
fn library_folders(onnxruntime: &Path) -> Vec<PathBuf> {
    let Some(capi) = onnxruntime.parent().filter(|capi| capi.join(CUDA_PROVIDER).exists()) else { return Vec::new() };
    let Some(packages) = capi.parent().and_then(Path::parent) else { return Vec::new() };
    let nvidia = std::fs::read_dir(packages.join("nvidia")).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = nvidia.map(|entry| entry.path().join("lib")).collect();
    folders.push(packages.join("tensorrt_libs"));
    folders.retain(|folder| folder.is_dir());
    folders.sort();
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> ModelSpec {
        serde_json::from_str(&format!(r#"{{"name": "a", "kind": "onnx", "path": "x"{text}}}"#)).unwrap()
    }

    #[test]
    fn a_share_is_a_gpu_with_its_memory() {
        let config = Config::new("python3".into(), "weft".into(), "/nowhere".into());
        let memory = |text: &str| grant(&config, &spec(text), true).map(|grant| grant.memory_bytes);
        assert_eq!(memory(r#", "share": {"memory": "2GiB"}"#), Some(Some(2 << 30)));
        assert_eq!(memory(r#", "share": {"limit": "40%"}"#), Some(None));
        assert_eq!(memory(r#", "device": "cpu""#), None);
        assert_eq!(grant(&config, &spec(r#", "env": {"CUDA_VISIBLE_DEVICES": ""}"#), false), None);
    }

    #[test]
    fn gpus_can_be_hidden() {
        for (devices, hidden) in
            [("", true), ("-1", true), ("-1,0", true), ("none", true), ("0", false), ("1,-1", false), ("GPU-12", false)]
        {
            assert_eq!(hides_all(devices), hidden, "{devices}");
        }
    }

    #[test]
    fn libraries_of_wheels_come_before_others() {
        let folder = tempfile::tempdir().unwrap();
        let packages = folder.path().join("site-packages");
        let capi = packages.join("onnxruntime/capi");
        for made in ["onnxruntime/capi", "nvidia/cublas/lib", "nvidia/cudnn/lib", "nvidia/cudnn/include"] {
            std::fs::create_dir_all(packages.join(made)).unwrap();
        }
        let mut config = Config::new("python3".into(), "weft".into(), folder.path().into());
        config.onnxruntime = Some(capi.join("libonnxruntime.so.1.26.0"));
        let mut spec = spec("");
        // What a deployment may not say; the server's own is taken in the same way.
        spec.env.insert("LD_LIBRARY_PATH".into(), "/opt/cuda/lib".into());
        assert_eq!(libraries(&config, &spec), None, "a build without CUDA needs none of them");

        std::fs::write(capi.join(CUDA_PROVIDER), "").unwrap();
        let (name, path) = libraries(&config, &spec).unwrap();
        let found: Vec<PathBuf> = std::env::split_paths(&path).collect();
        let expected = [packages.join("nvidia/cublas/lib"), packages.join("nvidia/cudnn/lib"), "/opt/cuda/lib".into()];
        assert_eq!((name, found.as_slice()), ("LD_LIBRARY_PATH", &expected[..]));

        std::fs::create_dir(packages.join("tensorrt_libs")).unwrap();
        std::fs::write(packages.join("tensorrt_libs/libnvinfer.so.10"), "").unwrap();
        assert!(has_tensorrt(&config, &spec));
    }
}
