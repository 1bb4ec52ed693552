//! Python environments, one for each peer, with the versions that were tried.

use super::folder;
use crate::program::Program;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::path::PathBuf;

/// A Python environment by what is in it.
#[derive(Debug)]
pub(super) struct Environment {
    pub(super) name: &'static str,
    packages: &'static [&'static str],
}

pub(super) const TRITON: Environment =
    Environment { name: "triton", packages: &["nvidia-pytriton==0.7.0", "onnxruntime==1.23.2"] };
pub(super) const CLIENT: Environment = Environment { name: "client", packages: &["tritonclient[all]==2.73.0"] };
/// Its worker asks for an event loop in a way that later versions of uvloop refuse.
pub(super) const MLSERVER: Environment =
    Environment { name: "mlserver", packages: &["mlserver==1.7.1", "uvloop==0.21.0"] };
pub(super) const KSERVE: Environment = Environment { name: "kserve", packages: &["kserve==0.21.0"] };
pub(super) const RAY: Environment = Environment { name: "ray", packages: &["ray[serve]==2.60.0", "numpy"] };
pub(super) const BENTOML: Environment = Environment { name: "bentoml", packages: &["bentoml==1.4.39", "numpy"] };
pub(super) const LITSERVE: Environment = Environment { name: "litserve", packages: &["litserve==0.2.19"] };
pub(super) const SCHEMATHESIS: Environment = Environment { name: "schemathesis", packages: &["schemathesis==4.32.5"] };

/// Builds against an older C library than this machine's.
pub(super) const ZIGBUILD: Environment =
    Environment { name: "zigbuild", packages: &["cargo-zigbuild==0.24.0", "ziglang==0.13.0"] };

/// Says that an environment is complete and what is in it.
const MARK: &str = "weft-installed.txt";

impl Environment {
    /// Installs what is in it, unless it is there.
    pub(super) fn set_up(&self, workspace: &Workspace) -> Result<()> {
        let folder = folder(workspace, self.name)?;
        let mark = folder.join(MARK);
        let content = self.packages.join("\n") + "\n";
        if std::fs::read_to_string(&mark).is_ok_and(|found| found == content) && self.python_works(workspace) {
            return Ok(());
        }
        let path = folder.to_string_lossy().into_owned();
        Program::new("python3")
            .arguments(["-m", "venv", "--clear", &path])
            .run()
            .context("make a Python environment (Python 3.8 to 3.13 with its venv module is needed)")?;
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        let install = install.into_iter().chain(self.packages.iter().copied());
        self.program(workspace, "python")?.arguments(install).run()?;
        std::fs::write(&mark, content).with_context(|| format!("write {}", mark.display()))
    }

    fn python_works(&self, workspace: &Workspace) -> bool {
        self.program(workspace, "python").is_ok_and(|python| python.arguments(["--version"]).works())
    }

    /// One of its programs.
    pub(super) fn program(&self, workspace: &Workspace, name: &str) -> Result<Program> {
        Ok(Program::new(self.path(workspace)?.join("bin").join(name)))
    }

    /// What an expression gives in it, as text.
    pub(super) fn evaluate(&self, workspace: &Workspace, imports: &str, expression: &str) -> Result<String> {
        let code = format!("import {imports}; print({expression})");
        Ok(self.program(workspace, "python")?.arguments(["-c", &code]).read()?.trim().to_owned())
    }

    pub(super) fn path(&self, workspace: &Workspace) -> Result<PathBuf> {
        folder(workspace, self.name)
    }
}
