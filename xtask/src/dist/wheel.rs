//! The wheel: what `pip install weft` brings. It carries the command, as those of uv and ruff do, the libraries beside it,
//! and the Python package. What it says of itself is from `python/pyproject.toml`.

use super::bill::Bill;
use super::build::{Glibc, Stripped};
use super::files::{place, write};
use crate::program::Program;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// What a package says of itself.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Project {
    name: String,
    pub(super) version: String,
    description: String,
    requires_python: String,
    dependencies: Vec<String>,
    classifiers: Vec<String>,
    urls: BTreeMap<String, String>,
    optional_dependencies: BTreeMap<String, Vec<String>>,
}

impl Project {
    /// Reads it; its version is that of the workspace.
    pub(super) fn read(workspace: &Workspace) -> Result<Project> {
        #[derive(Deserialize)]
        struct File {
            project: Project,
        }
        let read = |name: &str| -> Result<String> {
            let path = workspace.root.join(name);
            std::fs::read_to_string(&path).with_context(|| format!("read {name}"))
        };
        let File { project } = toml::from_str(&read("python/pyproject.toml")?).context("read python/pyproject.toml")?;
        let manifest: toml::Value = toml::from_str(&read("Cargo.toml")?).context("read Cargo.toml")?;
        let version = manifest["workspace"]["package"]["version"].as_str();
        ensure!(
            version == Some(&project.version),
            "agree on the version: Cargo.toml has {version:?}, python {project:?}"
        );
        Ok(project)
    }

    /// The METADATA of a wheel, with the README below it.
    fn metadata(&self, readme: &str) -> String {
        let mut text = format!(
            "Metadata-Version: 2.4\nName: {}\nVersion: {}\nSummary: {}\nLicense-Expression: Apache-2.0\n\
             License-File: LICENSE\nLicense-File: LICENSES-OF-OTHERS.txt\nRequires-Python: {}\n",
            self.name, self.version, self.description, self.requires_python
        );
        // Writing to a text cannot fail.
        let mut line = |name: &str, value: &str| {
            let _ = writeln!(text, "{name}: {value}");
        };
        self.classifiers.iter().for_each(|classifier| line("Classifier", classifier));
        self.urls.iter().for_each(|(name, url)| line("Project-URL", &format!("{name}, {url}")));
        self.dependencies.iter().for_each(|needed| line("Requires-Dist", needed));
        for (extra, needed) in &self.optional_dependencies {
            line("Provides-Extra", extra);
            needed.iter().for_each(|needed| line("Requires-Dist", &format!("{needed}; extra == \"{extra}\"")));
        }
        line("Description-Content-Type", "text/markdown");
        text + "\n" + readme
    }
}

/// Makes the wheel in `to`, by way of the empty folder `stage`.
pub(super) fn make(
    workspace: &Workspace,
    project: &Project,
    files: &Stripped,
    bill: &Bill,
    stage: &Path,
    to: &Path,
) -> Result<PathBuf> {
    let stem = format!("{}-{}", project.name, project.version);
    let tag = format!("py3-none-{}", platform(files.glibc));
    for path in python_files(workspace)? {
        place(&path, &stage.join("weft").join(path.file_name().unwrap_or_default()))?;
    }
    // `pip` puts these into the environment's `bin` and `lib`, where the command looks for its libraries.
    let data = stage.join(format!("{stem}.data"));
    place(&files.weft, &data.join("scripts/weft"))?;
    place(&files.library, &data.join("data/lib/weft/libweft.so"))?;
    place(&files.stand_in, &data.join("data/lib/weft/libfakecuda.so"))?;

    let information = stage.join(format!("{stem}.dist-info"));
    let readme = std::fs::read_to_string(workspace.root.join("README.md")).context("read README.md")?;
    write(&information.join("METADATA"), &project.metadata(&readme))?;
    let wheel = format!("Wheel-Version: 1.0\nGenerator: cargo xtask dist\nRoot-Is-Purelib: false\nTag: {tag}\n");
    write(&information.join("WHEEL"), &wheel)?;
    place(&workspace.root.join("LICENSE"), &information.join("licenses/LICENSE"))?;
    write(&information.join("licenses/LICENSES-OF-OTHERS.txt"), &bill.licences)?;
    write(&information.join("sboms/weft.cdx.json"), &bill.cyclonedx)?;

    let wheel = to.join(format!("{stem}-{tag}.whl"));
    let script = workspace.root.join("packaging/wheel.py");
    let paths = [&script, stage, &wheel].map(|path| path.to_string_lossy().into_owned());
    Program::new("python3").arguments(paths.iter().map(String::as_str)).read()?;
    Ok(wheel)
}

/// What `pip` compares with the C library of a machine.
fn platform(Glibc(major, minor): Glibc) -> String {
    format!("manylinux_{major}_{minor}_{}", std::env::consts::ARCH)
}

/// The Python package.
pub(super) fn python_files(workspace: &Workspace) -> Result<Vec<PathBuf>> {
    let folder = workspace.root.join("python/weft");
    let entries = std::fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))?;
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "py"));
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_says_what_it_needs() {
        let workspace = Workspace::find().unwrap();
        let project = Project::read(&workspace).unwrap();
        let text = project.metadata("# Weft\n");
        let (head, body) = text.split_once("\n\n").unwrap();
        for line in [
            "Name: weft",
            "Requires-Dist: numpy>=1.26",
            "Provides-Extra: onnx",
            "Requires-Dist: onnxruntime>=1.19; extra == \"onnx\"",
            "License-Expression: Apache-2.0",
        ] {
            assert!(head.lines().any(|other| other == line), "{line} in\n{head}");
        }
        assert_eq!(body, "# Weft\n");
        assert_eq!(platform(Glibc(2, 28)), format!("manylinux_2_28_{}", std::env::consts::ARCH));
    }
}
