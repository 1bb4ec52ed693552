//! `weft profile MODEL`: a model that a server runs, or one in a file, measured as its clients would see it.

use super::campaign::Campaign;
use super::kept::Kept;
use super::private::{self, Private};
use super::served::{Served, stopped};
use super::shares::{Gpu, Shares, Whose};
use super::show::{measured_already, note, tell};
use super::subject;
use crate::admin::Server;
use crate::output::Misuse;
use crate::workload::interrupt::Interrupt;
use anyhow::{Context, Result};
use load::{Config, Connections, Encoding, Inputs, ModelShare, Protocol, Shape, Url};
use policy::Span;
use policy::search::{Space, known};
use policy::surface::{Share, Surface};
use rpc::ModelSpec;
use rpc::profile::{Choice, Profile, Subject, Work};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a batch may take before it counts as one that cannot be run.
const PATIENCE: Span = Span::from_secs(60);

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

pub(super) fn main(asked: &Asked<'_>) -> Result<()> {
    let file = file(asked.model);
    let name = match &file {
        Some(file) => name_of(file)?,
        None => asked.model.to_owned(),
    };
    let default = PathBuf::from(format!("{name}.profile.json"));
    let kept = Kept::open(asked.output.unwrap_or(&default), asked.again)?;
    let Some(file) = file else {
        return profile(asked, &name, (asked.server, asked.url), &kept);
    };
    // Until the model is there Ctrl-C ends this process at once, and the server with it.
    let server = Private::start()?;
    server.deploy(&name, &file, &private::Asked { max_batch: asked.max_batch, gpu: asked.gpu })?;
    profile(asked, &name, (&server.admin, &server.http), &kept)
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

fn profile(asked: &Asked<'_>, name: &str, (admin, url): (&Server, &Url), kept: &Kept) -> Result<()> {
    let interrupt = Interrupt::listen()?;
    let (spec, max_batch) = loaded(admin, name, &interrupt)?;
    let objective = asked.slo.unwrap_or(spec.slo);
    let digest = subject::model_digest(&spec)?;
    let mut served = Served {
        name: name.to_owned(),
        config: requests(asked, name, url),
        batches: max_batch > 0,
        shares: None,
        probe: asked.probe,
        interrupt,
        failure: None,
    };
    // Workers that start on demand, and those that look for a GPU when they are first asked, are there after this.
    served.wake()?;
    let found = match is_here(admin.url()) {
        true => Shares::find(Whose::Model(name.to_owned()), asked.gpu)?,
        false => Err("the server is on another machine, whose shares cannot be changed from here".into()),
    };
    let (subject, shares) = match found {
        Ok((shares, Gpu { name, driver, others })) => {
            if !others.is_empty() {
                note(&format!("{} use the GPU too: what they leave is measured", others.join(", ")))?;
            }
            (Subject { model: digest, gpu: name, driver }, Some(shares))
        }
        Err(why) if asked.gpu.is_some() => return Err(Misuse(format!("measure on a GPU: {why}")).into()),
        Err(why) => {
            note(&format!("only batches are measured: {why}"))?;
            let machine = if is_here(admin.url()) { subject::machine() } else { format!("at {}", admin.url()) };
            (Subject::on_processor(digest, &machine), None)
        }
    };
    let before = kept.about(&subject)?.filter(|before| before.work == Work::Requests);
    let same = |choice: &Choice| choice.objective == Some(objective) && choice.batch <= max_batch.max(1);
    if let Some(before) = before.filter(|before| before.choice.as_ref().is_some_and(same)) {
        measured_already(before, kept.path())?;
        return tell(before, asked.json);
    }
    let space = space(max_batch, shares.is_some());
    served.shares = shares;
    let chosen_before = before.is_some_and(|before| before.choice.is_some());
    let before = before.map_or(Vec::new(), |before| before.surface.points().to_vec());
    let mut campaign = Campaign::new(&before, &mut served);
    let found = campaign.drive(|known| known::inference(known, &space, objective))?;
    let (points, measured) = (campaign.known.points(), campaign.measured);
    drop(campaign);
    // Given back before anything is said.
    served.shares = None;
    if points.is_empty() {
        let why = served.failure.unwrap_or_default();
        return Err(Misuse(format!("measure `{name}`: no batch could be run: {why}; see `weft logs {name}`")).into());
    }
    let surface = Surface::new(&points).map_err(|error| Misuse(error.problem))?;
    let choice = found.map(|found| Choice {
        objective: Some(objective),
        batch: found.point.batch,
        request: found.point.share,
        limit: found.limit,
    });
    let profile = Profile { subject, measured: Some(subject::today()), work: Work::Requests, surface, choice };
    // What was found for another objective is worth more than knowing again that this one cannot be met.
    let keep = profile.choice.is_none() && chosen_before;
    if !keep {
        kept.write(&profile)?;
    }
    let (points, path) = (space.points(), kept.path().display());
    let written = if keep { format!("{path} is as it was") } else { format!("written to {path}") };
    note(&format!("{measured} measurements, {points} points possible; {written}"))?;
    if profile.choice.is_none() {
        return Err(unmet(name, objective, &profile).into());
    }
    tell(&profile, asked.json)
}

/// Nothing meets the objective.
fn unmet(name: &str, objective: Span, profile: &Profile) -> Misuse {
    let fastest = profile.surface.fastest();
    let at = if profile.subject.has_gpu() { format!(" at {}", fastest.share) } else { String::new() };
    let text = format!("the fastest, batch {}{at}, takes {}", fastest.batch, fastest.latency);
    let advice = "give an objective of at least that, or measure the model on a faster machine";
    Misuse(format!("find a point of `{name}` within {objective}: {text}; {advice}"))
}

/// What was deployed, and its largest batch, which is known once it is loaded.
fn loaded(admin: &Server, name: &str, interrupt: &Interrupt) -> Result<(ModelSpec, usize)> {
    let mut model = describe(admin, name)?;
    if model["state"] == "loading" {
        note(&format!("waiting for `{name}` to be loaded"))?;
    }
    while model["state"] == "loading" {
        std::thread::sleep(Duration::from_millis(50));
        if interrupt.is_set() {
            return Err(stopped(name));
        }
        model = describe(admin, name)?;
    }
    let spec: ModelSpec = serde_json::from_value(model["spec"].clone()).context("read what was deployed")?;
    let max_batch = model["max_batch"].as_u64().map_or(spec.max_batch, |batch| batch as usize);
    Ok((spec, max_batch))
}

/// What the server says of a model.
fn describe(admin: &Server, name: &str) -> Result<Value> {
    let answer = admin.ask("GET", "models", None)?;
    let models = answer["models"].as_array().map_or(&[][..], Vec::as_slice);
    // Versions are in order, and clients get the highest that is ready.
    let versions = || models.iter().rev().filter(|model| model["name"] == name);
    let Some(model) = versions().find(|model| model["state"] == "ready").or_else(|| versions().next()) else {
        let mut known: Vec<&str> = models.iter().filter_map(|model| model["name"].as_str()).collect();
        known.dedup();
        let known = if known.is_empty() { "no model".to_owned() } else { known.join(", ") };
        let text = format!("the server has {known}; `weft deploy` adds one, and `weft profile FILE` needs no server");
        return Err(Misuse(format!("find model `{name}`: {text}")).into());
    };
    Ok(model.clone())
}

/// Batches of 1, 2, 4 and so on, and the largest; tenths of a GPU where there is one.
fn space(max_batch: usize, shares: bool) -> Space {
    let largest = max_batch.max(1);
    let mut batches: Vec<usize> = std::iter::successors(Some(1usize), |batch| batch.checked_mul(2))
        .take_while(|batch| *batch < largest)
        .collect();
    batches.push(largest);
    let tenth = Share::from_permille(100).expect("a tenth is something");
    let shares = if shares { Share::steps(tenth) } else { vec![Share::ALL] };
    Space::new(batches, shares).expect("there is a batch and a share")
}

fn requests(asked: &Asked<'_>, name: &str, url: &Url) -> Config {
    let key = asked.api_key.map(|key| ("Authorization".to_owned(), format!("Bearer {key}")));
    Config {
        protocol: Protocol::Http(url.clone()),
        models: vec![ModelShare { name: name.to_owned(), share: 1.0 }],
        rate: 1.0,
        spacing: sim::Spacing::Constant,
        warmup: Span::ZERO,
        duration: PATIENCE,
        // A batch that is late is a measurement, too: nothing is refused for it.
        objective: PATIENCE,
        timeout_parameter: true,
        patience: PATIENCE,
        connections: Connections::Most(1),
        batch: 1,
        inputs: asked.inputs.clone(),
        shapes: asked.shapes.to_vec(),
        encoding: Encoding::Binary,
        headers: key.into_iter().collect(),
        seed: 1,
    }
}

/// Whether a server is on this machine, as far as its address tells.
fn is_here(url: &str) -> bool {
    let host = url.parse::<Url>().map(|url| url.host).unwrap_or_default();
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
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

    #[test]
    fn the_largest_batch_is_a_point_whatever_it_is() {
        assert_eq!(space(0, false).points(), 1);
        assert_eq!(space(1, true).points(), 10);
        assert_eq!(space(8, false).points(), 4);
        assert_eq!(space(12, false).points(), 5);
    }

    #[test]
    fn only_this_machines_shares_are_changed() {
        for here in ["http://127.0.0.1:8002", "http://localhost:8002", "http://[::1]:8002"] {
            assert!(is_here(here), "{here}");
        }
        assert!(!is_here("http://gpu.example:8002") && !is_here("gpu-box"));
    }
}
