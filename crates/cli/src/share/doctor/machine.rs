//! What can be seen without running anything.

use super::super::library;
use super::finding::{Finding, Health};
use share_client::{Client, DaemonPaths, Gpus};
use std::fs::OpenOptions;
use std::path::Path;

/// Everything, and whether a program could be run under a share.
pub(super) fn look() -> (Vec<Finding>, bool) {
    let gpus = Gpus::find();
    let mut findings = vec![driver(&gpus)];
    findings.extend(gpus.gpus.iter().map(|gpu| {
        let memory = gpu.memory_bytes as f64 / f64::from(1 << 30);
        Finding::good("gpu", format!("{} {} ({memory:.1} GiB, {})", gpu.index, gpu.name, gpu.uuid))
    }));
    if let (Some(problem), false) = (&gpus.problem, gpus.gpus.is_empty()) {
        findings.push(Finding::other("gpu", Health::Limited, problem.clone(), "see what `nvidia-smi` says"));
    }
    if !gpus.gpus.is_empty() {
        findings.push(devices());
        findings.push(mps());
    }
    findings.push(match library::find() {
        Ok(path) => Finding::good("library", path.display().to_string()),
        Err(problem) => {
            let advice = "put libweft.so beside weft, or set WEFT_LIBRARY to it";
            Finding::other("library", Health::Broken, problem.0, advice)
        }
    });
    findings.push(daemon());
    let broken = findings.iter().any(|finding| finding.health == Health::Broken);
    (findings, !broken)
}

fn driver(gpus: &Gpus) -> Finding {
    match (&gpus.driver, &gpus.problem) {
        (Some(driver), _) if !gpus.gpus.is_empty() => Finding::good("driver", driver.clone()),
        (Some(driver), problem) => {
            let problem = problem.clone().unwrap_or_else(|| "no GPU".into());
            let advice = "see whether `nvidia-smi` lists a GPU, and whether this container was given one";
            Finding::other("driver", Health::Broken, format!("{driver}: {problem}"), advice)
        }
        (None, problem) => {
            let problem = problem.clone().unwrap_or_else(|| "NVML did not answer".into());
            let advice = "install NVIDIA's driver, or run where libnvidia-ml.so.1 is found; WEFT_NVML names another";
            Finding::other("driver", Health::Broken, problem, advice)
        }
    }
}

/// Whether this user may open the driver's devices.
fn devices() -> Finding {
    let paths = ["/dev/nvidiactl", "/dev/nvidia-uvm"];
    let there = paths.into_iter().filter(|path| Path::new(path).exists());
    let closed = |path: &&str| OpenOptions::new().read(true).write(true).open(path).is_err();
    match (there.clone().count(), there.clone().find(closed)) {
        (0, _) => {
            let advice = "nothing to do where GPUs are emulated; else load the kernel modules";
            Finding::other("devices", Health::Limited, "there are no /dev/nvidia* devices", advice)
        }
        (_, Some(path)) => {
            let advice = "add this user to the group that owns it, or change its mode";
            Finding::other("devices", Health::Broken, format!("{path} cannot be opened by this user"), advice)
        }
        (_, None) => Finding::good("devices", "may be opened by this user"),
    }
}

fn mps() -> Finding {
    let folder = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").unwrap_or_else(|| "/tmp/nvidia-mps".into());
    match Path::new(&folder).join("control").exists() {
        true => {
            let advice = "`echo quit | nvidia-cuda-mps-control` ends it; time slices cannot tell its clients apart";
            Finding::other("mps", Health::Limited, "a control daemon is running", advice)
        }
        false => match control_program() {
            Some(name) => {
                Finding::good("mps", format!("`{name}` is there: latency and best-effort programs share in space"))
            }
            None => {
                let advice = "install NVIDIA's MPS control program, or set WEFT_MPS_CONTROL to it";
                Finding::other("mps", Health::Limited, "not installed; programs take turns", advice)
            }
        },
    }
}

/// What the daemon would start MPS with, where there is such a program.
fn control_program() -> Option<String> {
    let program = std::env::var_os("WEFT_MPS_CONTROL").unwrap_or_else(|| "nvidia-cuda-mps-control".into());
    let found = !program.is_empty() && super::super::program::find(&program, std::env::var_os("PATH")).is_ok();
    found.then(|| program.to_string_lossy().into_owned())
}

fn daemon() -> Finding {
    match Client::find() {
        Ok(Some(client)) => Finding::good("daemon", format!("answers at {}", client.paths.socket.display())),
        Ok(None) => {
            let place = DaemonPaths::own();
            match place.prepare() {
                Ok(()) => {
                    Finding::good("daemon", format!("none yet; `weft run` starts one at {}", place.socket.display()))
                }
                Err(error) => {
                    let advice = "set WEFT_SOCKET to a path in a folder of yours";
                    Finding::other("daemon", Health::Broken, format!("none, and none can start: {error:#}"), advice)
                }
            }
        }
        Err(error) => {
            let advice = "set WEFT_SOCKET to another path, or ask whoever runs the daemon there";
            Finding::other("daemon", Health::Broken, format!("{error:#}"), advice)
        }
    }
}
