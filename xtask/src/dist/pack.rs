//! A build becomes packages.

use super::bill::Bill;
use super::build::{Built, Stripped};
use super::files::{file_name, place, write};
use super::wheel::{self, Project};
use crate::program::Program;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// What a build is packed into and what goes into it.
pub(super) struct Pack<'a> {
    workspace: &'a Workspace,
    folder: PathBuf,
    stage: PathBuf,
    files: Stripped,
    bill: Bill,
    project: Project,
}

impl Pack<'_> {
    /// Empties the folder `name` of the build folder and gets ready what is packed.
    pub(super) fn begin<'a>(workspace: &'a Workspace, built: &Built, name: &str) -> Result<Pack<'a>> {
        let folder = workspace.output(name)?;
        // Nothing old is taken for new.
        std::fs::remove_dir_all(&folder).with_context(|| format!("empty {}", folder.display()))?;
        let stage = folder.join("stage");
        std::fs::create_dir_all(&stage).with_context(|| format!("create {}", stage.display()))?;
        let files = built.strip_into(&stage)?;
        let megabytes = files.size(&files.weft)? as f64 / 1e6;
        eprintln!("  weft has {megabytes:.1} MB without symbols and needs glibc {}", files.glibc);
        let (bill, project) = (Bill::of(workspace)?, Project::read(workspace)?);
        Ok(Pack { workspace, folder, stage, files, bill, project })
    }

    /// Makes the wheel.
    pub(super) fn wheel(&self) -> Result<PathBuf> {
        let Pack { workspace, folder, stage, files, bill, project } = self;
        wheel::make(workspace, project, files, bill, &stage.join("wheel"), folder)
    }

    /// Makes everything else, and the checksums of all of it.
    pub(super) fn archives(&self, wheel: &Path) -> Result<Vec<PathBuf>> {
        let Pack { workspace, folder, stage, files, bill, project } = self;
        let name = format!("weft-{}-{}-linux", project.version, std::env::consts::ARCH);
        let root = stage.join(&name);
        let put = |from: &Path, to: &str| place(from, &root.join(to));
        put(&files.weft, "bin/weft")?;
        put(&files.library, "lib/weft/libweft.so")?;
        put(&files.stand_in, "lib/weft/libfakecuda.so")?;
        for path in wheel::python_files(workspace)? {
            put(&path, &format!("share/weft/python/weft/{}", file_name(&path)))?;
        }
        put(&workspace.root.join("packaging/weft.service"), "lib/systemd/system/weft.service")?;
        for document in ["README.md", "CHANGELOG.md", "LICENSE"] {
            put(&workspace.root.join(document), &format!("share/doc/weft/{document}"))?;
        }
        write(&root.join("share/doc/weft/LICENSES-OF-OTHERS.txt"), &bill.licences)?;
        let archive = tar(stage, &name, folder)?;
        let symbols = format!("{name}-symbols");
        for file in [&files.weft_symbols, &files.library_symbols] {
            place(file, &stage.join(&symbols).join(file_name(file)))?;
        }
        let symbols = tar(stage, &symbols, folder)?;
        let list = folder.join(format!("weft-{}.cdx.json", project.version));
        write(&list, &bill.cyclonedx)?;

        let archives = vec![archive, symbols, list];
        let names: Vec<String> =
            std::iter::once(wheel).chain(archives.iter().map(PathBuf::as_path)).map(file_name).collect();
        let sums = Program::new("sha256sum").arguments(names.iter().map(String::as_str)).folder(folder).read()?;
        write(&folder.join("SHA256SUMS"), &sums)?;
        Ok(archives)
    }
}

impl Drop for Pack<'_> {
    fn drop(&mut self) {
        // What is left of it harms nobody.
        let _ = std::fs::remove_dir_all(&self.stage);
    }
}

/// A folder as an archive. The same files give the same bytes.
fn tar(stage: &Path, name: &str, to: &Path) -> Result<PathBuf> {
    let archive = to.join(format!("{name}.tar.gz"));
    let file = archive.to_str().context("name the archive: its path is not text")?;
    let fixed = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=1980-01-01 00:00:00Z"];
    let words = fixed.into_iter().chain(["--gzip", "--create", "--file", file, name]);
    Program::new("tar").arguments(words).folder(stage).read()?;
    Ok(archive)
}
