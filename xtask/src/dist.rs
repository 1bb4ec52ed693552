//! What users install: a wheel, an archive, what they are made of, and their checksums.
//!
//! Everything is made of three files that Cargo builds, of `python/weft` and of `packaging/`. A package says which C
//! library it needs, and what it says is looked up in its files.

mod files;
mod build;
mod bill;
mod wheel;
mod pack;
pub(crate) mod first_use;
pub(crate) mod image;

use crate::program::seconds;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use build::Profile;
use files::FOLDER;
use pack::Pack;
use std::time::Instant;

/// Make what users install: a wheel, an archive, a list of what is in them, and checksums, in target/packages.
///
/// Builds with the profile `dist` against the C library of 2018 (glibc 2.28), with cargo-zigbuild from PyPI. With
/// `--profile release` it packs the release build instead, which is quicker to make, larger, and needs the C library of
/// this machine; the wheel is named accordingly.
///
/// Example: cargo xtask dist
/// Example: cargo xtask dist --profile release
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The build to pack.
    #[arg(long, value_enum, default_value_t = Profile::Dist)]
    profile: Profile,
}

pub(crate) fn dist(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let start = Instant::now();
    let built = build::build(workspace, arguments.profile)?;
    let pack = Pack::begin(workspace, &built, FOLDER)?;
    let wheel = pack.wheel()?;
    let archives = pack.archives(&wheel)?;
    for path in std::iter::once(&wheel).chain(&archives) {
        let bytes = std::fs::metadata(path).with_context(|| format!("look at {}", path.display()))?.len();
        eprintln!("  made    {} ({:.1} MB)", workspace.relative(path), bytes as f64 / 1e6);
    }
    eprintln!("  {} in all", seconds(start.elapsed()));
    Ok(())
}
