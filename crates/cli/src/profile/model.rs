//! `weft profile MODEL`: a model that a server runs; or one in a file, for which a server is started meanwhile.

use super::private::{self, Private};
use super::show::{note, tell};
use crate::admin::Server;
use crate::output::Misuse;
use anyhow::Result;
use load::{Inputs, Shape, Url};
use policy::Span;
use profiler::{ModelRequest, ModelServer, ProfileFile};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What was asked for.
pub(super) struct Asked<'a> {
    /// A name, or a file.
    pub(super) model: &'a str,
    pub(super) slo: Option<Span>,
    pub(super) gpu: Option<&'a str>,
    pub(super) output: Option<&'a Path>,
    pub(super) again: bool,
    pub(super) probe: Duration,
    pub(super) max_batch: Option<usize>,
    pub(super) shapes: &'a [Shape],
    pub(super) inputs: &'a Inputs,
    pub(super) server: &'a Server,
    pub(super) url: &'a Url,
    pub(super) api_key: Option<&'a str>,
    pub(super) json: bool,
}

impl ModelServer for Server {
    fn url(&self) -> &str {
        Server::url(self)
    }

    fn models(&self) -> Result<Value> {
        self.ask("GET", "models", None).map_err(|error| Misuse(format!("list the models: {error:#}")).into())
    }
}

pub(super) fn main(asked: &Asked<'_>) -> Result<()> {
    let model = file(asked.model);
    let name = match &model {
        Some(model) => name_of(model)?,
        None => asked.model.to_owned(),
    };
    let default = PathBuf::from(format!("{name}.profile.json"));
    let file = ProfileFile::open(asked.output.unwrap_or(&default), asked.again)?;
    let Some(model) = model else {
        return profile(asked, &name, (asked.server, asked.url), &file);
    };
    // Until the model is there Ctrl-C ends this process at once, and the server with it.
    let server = Private::start()?;
    server.deploy(&name, &model, &private::Asked { max_batch: asked.max_batch, gpu: asked.gpu })?;
    profile(asked, &name, (&server.admin, &server.http), &file)
}

fn profile(asked: &Asked<'_>, name: &str, (server, url): (&Server, &Url), file: &ProfileFile) -> Result<()> {
    let Asked { slo, gpu, probe, shapes, inputs, api_key, .. } = *asked;
    let request = ModelRequest { name, slo, gpu, probe, shapes, inputs, server, url, api_key };
    tell(&profiler::profile_model(&request, file, &note)?, asked.json)
}

/// The file that was named, if it was a file and no model's name.
fn file(model: &str) -> Option<PathBuf> {
    let path = Path::new(model);
    let known = path.extension().is_some_and(|extension| extension == "py" || extension == "onnx");
    (known || model.contains('/')).then(|| path.to_owned())
}

/// What a model in a file is called.
fn name_of(file: &Path) -> Result<String, Misuse> {
    let refused = |problem: &str| Misuse(format!("read model {}: {problem}", file.display()));
    if !file.is_file() {
        return Err(refused("no such file; a model is an .onnx or .py file, or the name of one that is served"));
    }
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    Ok(stem.chars().map(|letter| if allowed(letter) { letter } else { '-' }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_from_names() {
        assert_eq!(file("bert"), None);
        for name in ["bert.py", "models/bert", "bert.onnx"] {
            assert_eq!(file(name), Some(PathBuf::from(name)));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("my bert.v2.py");
        assert!(name_of(&path).unwrap_err().to_string().contains("no such file"));
        std::fs::write(&path, "").unwrap();
        assert_eq!(name_of(&path).unwrap(), "my-bert.v2");
    }
}
