//! `weft profile --training`: the shares that a training program is worth running with.

use super::show::{note, tell};
use anyhow::{Context, Result};
use profiler::{ProfileFile, TrainingRequest};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What was asked for.
pub(super) struct Asked<'a> {
    pub(super) words: &'a [OsString],
    pub(super) gpu: Option<&'a str>,
    pub(super) output: Option<&'a Path>,
    pub(super) again: bool,
    pub(super) probe: Duration,
    pub(super) json: bool,
}

pub(super) fn main(asked: &Asked<'_>) -> Result<()> {
    let words = asked.words;
    let first = words.first().context("profile a program: name one after --")?;
    let name = Path::new(first).file_name().unwrap_or(first).to_string_lossy().into_owned();
    // A script says more than what runs it.
    let script = words.iter().skip(1).map(Path::new).find(|word| word.is_file() && word.extension().is_some());
    let stem = script.and_then(Path::file_stem).map_or(name.clone(), |stem| stem.to_string_lossy().into_owned());
    let default = PathBuf::from(format!("{stem}.profile.json"));
    let file = ProfileFile::open(asked.output.unwrap_or(&default), asked.again)?;
    let request = TrainingRequest { name: &name, words, gpu: asked.gpu, probe: asked.probe };
    tell(&profiler::profile_training(&request, &file, &note)?, asked.json)
}
