//! The environment variables that make a program run under a share.

use crate::paths::DaemonPaths;
use crate::wire::Registered;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The variables of a program of this tenant. `preload` is the value of `LD_PRELOAD` without Weft.
pub fn environment(
    paths: &DaemonPaths,
    tenant: &Registered,
    library: &Path,
    preload: Option<OsString>,
) -> Vec<(&'static str, OsString)> {
    let mut variables = vec![
        ("LD_PRELOAD", with_library(library, preload.unwrap_or_default())),
        ("WEFT_SOCKET", paths.socket.clone().into()),
        ("WEFT_TENANT", tenant.name.clone().into()),
    ];
    // By UUID: CUDA and NVML number GPUs differently.
    variables.extend(tenant.gpu.as_ref().map(|gpu| ("CUDA_VISIBLE_DEVICES", gpu.into())));
    if let Some(space) = &tenant.space {
        variables.push(("CUDA_MPS_PIPE_DIRECTORY", space.pipe.clone().into()));
        variables.push(("CUDA_MPS_LOG_DIRECTORY", space.log.clone().into()));
        variables.push(("CUDA_MPS_CLIENT_PRIORITY", if space.last { "1" } else { "0" }.into()));
    }
    variables
}

/// The library before what was there, and only once.
fn with_library(library: &Path, before: OsString) -> OsString {
    let mut all = library.as_os_str().to_owned();
    let others = before.as_bytes().split(|byte| *byte == b':' || *byte == b' ');
    for other in others.filter(|other| !other.is_empty() && *other != library.as_os_str().as_bytes()) {
        all.push(":");
        all.push(OsStr::from_bytes(other));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::MpsServer;

    #[test]
    fn the_library_comes_first_and_once() {
        let library = Path::new("/opt/libweft.so");
        assert_eq!(with_library(library, OsString::new()), "/opt/libweft.so");
        let before = "/lib/a.so:/opt/libweft.so /lib/b.so".into();
        assert_eq!(with_library(library, before), "/opt/libweft.so:/lib/a.so:/lib/b.so");
    }

    #[test]
    fn a_gpu_is_named_for_good() {
        let space = MpsServer { pipe: "/p".into(), log: "/l".into(), last: true };
        let tenant = Registered { name: "train".into(), gpu: Some("GPU-01".into()), space: Some(space) };
        let variables = environment(&DaemonPaths::at("/run/x.sock"), &tenant, Path::new("/l.so"), None);
        assert!(variables.contains(&("CUDA_VISIBLE_DEVICES", "GPU-01".into())));
        assert!(variables.contains(&("WEFT_TENANT", "train".into())));
        assert!(variables.contains(&("CUDA_MPS_PIPE_DIRECTORY", "/p".into())));
        assert!(variables.contains(&("CUDA_MPS_CLIENT_PRIORITY", "1".into())));
    }
}
