//! What the demo runs on: a GPU or its stand-in, and ports.

use crate::share::library;
use anyhow::{Context, Result};
use share_client::{Client, DaemonPaths, Gpus, Status};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The stand-in's library, and the names under which programs look for NVIDIA's.
const STAND_IN: &str = "libfakecuda.so";
const NAMES: [&str; 4] = ["libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-ml.so"];

/// A variable of a program's environment.
type Variable = (&'static str, OsString);

/// Where a training and a model run.
pub(super) enum Gpu {
    /// On the machine's first.
    Real(String),
    /// On a stand-in whose files are in this folder.
    StandIn(PathBuf),
    /// Nowhere: there is no GPU, and the stand-in is not installed.
    None,
}

impl Gpu {
    /// A GPU of this machine, or a stand-in in a folder below this one.
    pub(super) fn find(folder: &Path) -> Result<Gpu> {
        if let Some(gpu) = Gpus::find().gpus.first() {
            // Without the library that shares it, it is none to us.
            return Ok(library::find().map_or(Gpu::None, |_| Gpu::Real(gpu.name.clone())));
        }
        let (Ok(library), Ok(_)) = (library::find_beside(STAND_IN), library::find()) else { return Ok(Gpu::None) };
        let folder = folder.join("gpu");
        std::fs::create_dir(&folder).with_context(|| format!("create {}", folder.display()))?;
        for name in NAMES {
            symlink(&library, folder.join(name)).with_context(|| format!("link {name} into {}", folder.display()))?;
        }
        Ok(Gpu::StandIn(folder))
    }

    pub(super) fn is_there(&self) -> bool {
        !matches!(self, Gpu::None)
    }

    pub(super) fn what(&self) -> String {
        match self {
            Gpu::Real(name) => name.clone(),
            Gpu::StandIn(_) => {
                "a stand-in, which keeps time as a GPU and computes nothing: this machine has none".into()
            }
            Gpu::None => "none, so there is no training: libweft.so or its stand-in for a GPU is not installed".into(),
        }
    }

    /// What programs must have in their environment to find it.
    pub(super) fn variables(&self) -> Vec<Variable> {
        let Gpu::StandIn(folder) = self else { return Vec::new() };
        let before = std::env::var_os("LD_LIBRARY_PATH").filter(|path| !path.is_empty());
        let mut libraries = folder.clone().into_os_string();
        if let Some(before) = before {
            libraries.push(":");
            libraries.push(before);
        }
        vec![
            ("LD_LIBRARY_PATH", libraries),
            ("FAKECUDA_STATE", folder.join("state").into()),
            ("FAKECUDA_MEMORY", "24GiB".into()),
            ("WEFT_SOCKET", self.socket().into()),
            ("WEFT_NVML", folder.join("libnvidia-ml.so.1").into()),
            // A stand-in has no MPS, and that of a real GPU must not be asked about it.
            ("WEFT_MPS_CONTROL", OsString::new()),
        ]
    }

    fn socket(&self) -> PathBuf {
        match self {
            Gpu::StandIn(folder) => folder.join("node.sock"),
            Gpu::Real(_) | Gpu::None => DaemonPaths::own().socket,
        }
    }

    /// What the daemon that shares it says, where there is one.
    pub(super) fn status(&self) -> Result<Option<Status>> {
        let client = match self {
            Gpu::None => None,
            // There may be a daemon of the machine's, which the server then uses.
            Gpu::Real(_) => Client::find()?,
            Gpu::StandIn(_) => Client::connect(&DaemonPaths::at(self.socket()))?,
        };
        client.map(|client| client.status()).transpose()
    }
}

/// Where the server listens.
pub(super) struct Ports {
    pub(super) http: SocketAddr,
    pub(super) grpc: SocketAddr,
    pub(super) metrics: SocketAddr,
}

impl Ports {
    /// The ports that people know, where all of them are free, else any three.
    pub(super) fn find() -> Result<Ports> {
        let bind = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let bind_all = |ports: [u16; 3]| ports.into_iter().map(bind).collect::<std::io::Result<Vec<_>>>();
        let bound = bind_all([8000, 8001, 8002]).or_else(|_| bind_all([0; 3])).context("find free ports")?;
        let address = |index: usize| bound[index].local_addr().context("find free ports");
        Ok(Ports { http: address(0)?, grpc: address(1)?, metrics: address(2)? })
    }
}

/// Whether the server at this address says that its models are ready.
pub(super) fn is_ready(address: SocketAddr) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(stream, "GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        std::io::Result::Ok(answer)
    };
    ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}
