//! A model that a server runs, measured as its clients would see it.

use crate::campaign::Campaign;
use crate::served::{Served, stopped};
use crate::shares::{Gpu, Shares, Whose};
use crate::store::{Note, ProfileFile};
use crate::subject;
use anyhow::{Context, Result};
use config::ModelSpec;
use config::profile::{Choice, Profile, Subject, Work};
use harness::{Interrupt, Misuse};
use load::{Config, Connections, Encoding, Inputs, ModelShare, Protocol, Shape, Spacing, Url};
use policy::Span;
use policy::search::{Space, known};
use policy::surface::{Share, Surface};
use serde_json::Value;
use std::time::Duration;

/// How long a batch may take before it counts as one that cannot be run.
const PATIENCE: Span = Span::from_secs(60);

/// The server that runs the model.
pub trait ModelServer {
    /// Where its administration answers.
    fn url(&self) -> &str;

    /// What it says of its models: the answer to `GET models`.
    fn models(&self) -> Result<Value>;
}

/// What to measure, and how.
pub struct ModelRequest<'a> {
    /// What the server calls the model.
    pub name: &'a str,
    /// The latency that a batch may take; else the deployment's.
    pub slo: Option<Span>,
    /// The GPU that the workers must be on: its number, or how its UUID begins.
    pub gpu: Option<&'a str>,
    /// About how long each point is measured.
    pub probe: Duration,
    /// Of inputs that leave dimensions open.
    pub shapes: &'a [Shape],
    /// What is in the tensors.
    pub inputs: &'a Inputs,
    /// The server's administration.
    pub server: &'a dyn ModelServer,
    /// Where it listens for HTTP.
    pub url: &'a Url,
    /// Sent with each request, as a bearer token.
    pub api_key: Option<&'a str>,
}

/// Profiles a model, or returns the profile in the file where it still holds. `note` gets what a person should know
/// meanwhile.
pub fn profile_model(request: &ModelRequest<'_>, file: &ProfileFile, note: Note<'_>) -> Result<Profile> {
    let name = request.name;
    let interrupt = Interrupt::listen()?;
    let (spec, max_batch) = loaded(request.server, name, &interrupt, note)?;
    let objective = request.slo.unwrap_or(spec.slo);
    let digest = subject::model_digest(&spec)?;
    let mut served = Served {
        name: name.to_owned(),
        config: load_of(request),
        batches: max_batch > 0,
        shares: None,
        probe: request.probe,
        interrupt,
        failure: None,
    };
    // Workers that start on demand, and those that look for a GPU when they are first asked, are there after this.
    served.wake()?;
    let found = match is_here(request.server.url()) {
        true => Shares::find(Whose::Model(name.to_owned()), request.gpu)?,
        false => Err("the server is on another machine, whose shares cannot be changed from here".into()),
    };
    let (subject, shares) = match found {
        Ok((shares, Gpu { name, driver, others })) => {
            if !others.is_empty() {
                note(&format!("{} use the GPU too: what they leave is measured", others.join(", ")));
            }
            (Subject { model: digest, gpu: name, driver }, Some(shares))
        }
        Err(why) if request.gpu.is_some() => return Err(Misuse(format!("measure on a GPU: {why}")).into()),
        Err(why) => {
            note(&format!("only batches are measured: {why}"));
            let machine =
                if is_here(request.server.url()) { subject::machine() } else { format!("at {}", request.server.url()) };
            (Subject::on_processor(digest, &machine), None)
        }
    };
    let before = file.about(&subject)?.filter(|before| before.work == Work::Requests);
    let same = |choice: &Choice| choice.objective == Some(objective) && choice.batch <= max_batch.max(1);
    if let Some(before) = before.filter(|before| before.choice.as_ref().is_some_and(same)) {
        file.note_measured_already(before, note);
        return Ok(before.clone());
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
        file.write(&profile)?;
    }
    let (points, path) = (space.points(), file.path().display());
    let written = if keep { format!("{path} is as it was") } else { format!("written to {path}") };
    note(&format!("{measured} measurements, {points} points possible; {written}"));
    if profile.choice.is_none() {
        return Err(unmet(name, objective, &profile).into());
    }
    Ok(profile)
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
fn loaded(server: &dyn ModelServer, name: &str, interrupt: &Interrupt, note: Note<'_>) -> Result<(ModelSpec, usize)> {
    let mut model = describe(server, name)?;
    if model["state"] == "loading" {
        note(&format!("waiting for `{name}` to be loaded"));
    }
    while model["state"] == "loading" {
        std::thread::sleep(Duration::from_millis(50));
        if interrupt.is_set() {
            return Err(stopped(name));
        }
        model = describe(server, name)?;
    }
    let spec: ModelSpec = serde_json::from_value(model["spec"].clone()).context("read what was deployed")?;
    let max_batch = model["max_batch"].as_u64().map_or(spec.max_batch, |batch| batch as usize);
    Ok((spec, max_batch))
}

/// What the server says of a model.
fn describe(server: &dyn ModelServer, name: &str) -> Result<Value> {
    let answer = server.models()?;
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

fn load_of(request: &ModelRequest<'_>) -> Config {
    let key = request.api_key.map(|key| ("Authorization".to_owned(), format!("Bearer {key}")));
    Config {
        protocol: Protocol::Http(request.url.clone()),
        models: vec![ModelShare { name: request.name.to_owned(), share: 1.0 }],
        rate: 1.0,
        spacing: Spacing::Constant,
        warmup: Span::ZERO,
        duration: PATIENCE,
        // A batch that is late is a measurement, too: nothing is refused for it.
        objective: PATIENCE,
        timeout_parameter: true,
        patience: PATIENCE,
        connections: Connections::Most(1),
        batch: 1,
        inputs: request.inputs.clone(),
        shapes: request.shapes.to_vec(),
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
