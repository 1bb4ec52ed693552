//! Where things are: the repository, what Cargo builds, and the data beside the repository.

use crate::program::Program;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};

/// The repository and its build folder.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    /// The repository's root.
    pub(crate) root: PathBuf,
    /// Where Cargo puts what it builds.
    pub(crate) target: PathBuf,
}

impl Workspace {
    /// Finds the repository this program was built from and the folder it was built into.
    pub(crate) fn find() -> Result<Workspace> {
        let root =
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("find the repository: xtask has no parent")?;
        let root = root.to_owned();
        ensure!(root.join("Cargo.toml").is_file(), "find the repository: no Cargo.toml in {}", root.display());
        // This program is TARGET/PROFILE/xtask, wherever TARGET was set to lie.
        let program = std::env::current_exe().context("find this program")?;
        let target = program.ancestors().nth(2).map_or_else(|| root.join("target"), Path::to_owned);
        Ok(Workspace { root, target })
    }

    /// Cargo in this workspace, with this build folder.
    pub(crate) fn cargo<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Program {
        // Cargo names itself to the programs it runs; a toolchain named on the command line stays in force.
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let program = Program::new(cargo).arguments(arguments).folder(&self.root);
        // What it says about this program would reach build scripts that look at it, and they would run again.
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let own = names.filter(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"));
        own.fold(program, |program, name| program.without(&name)).variable("CARGO_TARGET_DIR", &self.target)
    }

    /// The `weft` binary; it must have been built.
    pub(crate) fn weft<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Program {
        Program::new(self.weft_path()).arguments(arguments).folder(&self.root)
    }

    /// Where the release build of `weft` lies.
    pub(crate) fn weft_path(&self) -> PathBuf {
        self.target.join("release").join(format!("weft{}", std::env::consts::EXE_SUFFIX))
    }

    /// A folder for files that commands make; always in the repository, and ignored by git.
    pub(crate) fn output(&self, name: &str) -> Result<PathBuf> {
        let folder = self.root.join("target").join(name);
        std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        Ok(folder)
    }

    /// The published profiles, traces and workloads, which lie beside the repository and not in it.
    pub(crate) fn data(&self) -> Result<PathBuf> {
        let data = self.root.join("../shared/data");
        if data.join("workloads").is_dir() {
            return Ok(data);
        }
        bail!(
            "find the published data: no folder ../shared/data/workloads beside the repository ({}). Benchmarks are \
             made from it and cannot be made without it.",
            self.root.display()
        )
    }

    /// A path as a person at the root would type it.
    pub(crate) fn relative<'a>(&self, path: &'a Path) -> std::path::Display<'a> {
        path.strip_prefix(&self.root).unwrap_or(path).display()
    }
}
