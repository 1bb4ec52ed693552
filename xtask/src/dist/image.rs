//! The container image, of the wheel and Debian.
//!
//! Packages are fetched by this machine's `pip`, with its settings, so that nothing of them gets into the image. Building
//! needs no container runtime: steps run in a changed root.

use super::files::{FOLDER, file_name};
use crate::peers::debian;
use crate::program::Program;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use std::path::PathBuf;

/// Build the container image of what `cargo xtask dist` made, as an archive that podman and docker load.
///
/// Needs buildah, from Debian, and a base image with Debian 12: by name where a registry can be reached, else made here with
/// mmdebstrap from Debian's packages (`--base debian`, as root). Writes target/packages/weft-image.tar.
///
/// Example: cargo xtask image
/// Example: cargo xtask image --base debian
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Image to start from; `debian` makes one from Debian's packages.
    #[arg(long, default_value = "docker.io/library/debian:12-slim")]
    base: String,
}

const OWN_BASE: &str = "localhost/weft-base";
/// Debian 12's Python, and the platforms that it takes wheels of.
const PYTHON: &str = "--python-version=3.11";
const PLATFORMS: [&str; 3] = ["manylinux_2_28", "manylinux_2_17", "manylinux2014"];

pub(crate) fn image(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let folder = workspace.output(FOLDER)?;
    let wheels = std::fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))?;
    let mut wheels = wheels.flatten().map(|entry| entry.path()).filter(|path| file_name(path).ends_with(".whl"));
    let wheel: PathBuf = wheels.next().context("find a wheel in target/packages: run `cargo xtask dist` first")?;
    ensure!(wheels.next().is_none(), "choose a wheel: there is more than one in target/packages");
    let works = |program: &'static str| move || Program::new(program).arguments(["--version"]).works();
    debian("buildah", works("buildah"))?;

    let context = workspace.output("image")?;
    std::fs::remove_dir_all(&context).with_context(|| format!("empty {}", context.display()))?;
    let [wheels, root] = ["wheels", "base.tar"].map(|name| context.join(name).to_string_lossy().into_owned());
    let platforms = PLATFORMS.map(|platform| format!("--platform={platform}_{}", std::env::consts::ARCH));
    let download = ["-m", "pip", "download", "--quiet", "--only-binary=:all:", PYTHON, "--dest", &wheels];
    let wheel_path = wheel.to_string_lossy();
    let words = download.into_iter().chain(platforms.iter().map(String::as_str)).chain([&*wheel_path]);
    Program::new("python3").arguments(words).run()?;

    let buildah = |words: &[&str]| Program::new("buildah").arguments(words.iter().copied()).run().map(drop);
    let base = if arguments.base == "debian" {
        debian("mmdebstrap", works("mmdebstrap"))?;
        let include = "--include=python3,python3-venv,ca-certificates";
        Program::new("mmdebstrap").arguments(["--variant=minbase", include, "bookworm", &root]).run()?;
        let container = Program::new("buildah").arguments(["from", "scratch"]).read()?;
        buildah(&["add", "--quiet", container.trim(), &root, "/"])?;
        buildah(&["commit", "--quiet", "--rm", container.trim(), OWN_BASE])?;
        OWN_BASE
    } else {
        &arguments.base
    };
    let recipe = workspace.root.join("packaging/Containerfile").to_string_lossy().into_owned();
    let (base, context_path) = (format!("BASE={base}"), context.to_string_lossy().into_owned());
    let build =
        ["build", "--isolation", "chroot", "--build-arg", &base, "--file", &recipe, "--tag", "weft", &context_path];
    buildah(&build)?;
    let archive = folder.join("weft-image.tar");
    // An archive that is there is not written over.
    let _ = std::fs::remove_file(&archive);
    buildah(&["push", "--quiet", "localhost/weft", &format!("oci-archive:{}:weft", archive.display())])?;
    std::fs::remove_dir_all(&context).with_context(|| format!("remove {}", context.display()))?;
    let bytes = std::fs::metadata(&archive).context("look at the image")?.len();
    eprintln!("  made    {} ({:.0} MB) of {}", workspace.relative(&archive), bytes as f64 / 1e6, file_name(&wheel));
    Ok(())
}
