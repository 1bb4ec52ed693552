//! Scenarios from files. Everything that can be wrong with one is misuse, and one line says what.

use super::options::File;
use crate::output::{Misuse, reason};
use harness::{read_text, read_text_from};
use sim::{Scenario, ScenarioError};
use std::io;
use std::path::{Path, PathBuf};

impl File {
    /// Reads the scenario.
    pub(super) fn read(&self) -> Result<Scenario, Misuse> {
        let name = self.name();
        let folder = self.folder();
        let text = self.text()?;
        let named = |path: &str| read_text(&folder.join(path)).map_err(|error| reason(&error));
        sim::parse(&name, &text, &named).map_err(|error| self.misuse(error))
    }

    /// Reads the scenario of an elastic cluster.
    pub(super) fn read_elastic(&self) -> Result<sim::elastic::Scenario, Misuse> {
        let folder = self.folder();
        let named = |path: &str| read_text(&folder.join(path)).map_err(|error| reason(&error));
        sim::elastic::parse(&self.name(), &self.text()?, &named).map_err(|error| self.misuse(error))
    }

    /// Reads the scenario of language models.
    pub(super) fn read_generate(&self) -> Result<sim::generate::Scenario, Misuse> {
        let folder = self.folder();
        let named = |path: &str| read_text(&folder.join(path)).map_err(|error| reason(&error));
        sim::generate::parse(&self.name(), &self.text()?, &named).map_err(|error| self.misuse(error))
    }

    /// What is wrong, in the scenario or in a file that it names.
    fn misuse(&self, error: ScenarioError) -> Misuse {
        let name = self.name();
        if error.file == name {
            return Misuse(format!("read scenario {error}"));
        }
        // The way to the other file from here, not from the scenario's folder, so that it can be copied.
        let file = self.folder().join(&error.file).display().to_string();
        Misuse(format!("read scenario {name}: {}", ScenarioError { file, ..error }))
    }

    /// Reads the scenario of a shared GPU.
    pub(super) fn read_sharing(&self) -> Result<sim::sharing::Scenario, Misuse> {
        let text = self.text()?;
        sim::sharing::parse(&self.name(), &text).map_err(|error| Misuse(format!("read scenario {error}")))
    }

    fn text(&self) -> Result<String, Misuse> {
        let text = match self.is_stdin() {
            true => read_text_from(io::stdin().lock()),
            false => read_text(&self.path),
        };
        text.map_err(|error| Misuse(format!("read scenario {}: {}", self.name(), reason(&error))))
    }

    /// What it is called in messages and titles.
    pub(super) fn name(&self) -> String {
        if self.is_stdin() { "<stdin>".into() } else { self.path.display().to_string() }
    }

    /// Where files that it names are looked for.
    fn folder(&self) -> PathBuf {
        match self.path.parent() {
            Some(folder) if !self.is_stdin() => folder.to_owned(),
            _ => PathBuf::new(),
        }
    }

    fn is_stdin(&self) -> bool {
        self.path == Path::new("-")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Reads a scenario of this text from a folder that also has a broken trace.
    fn check(text: &[u8], expected: &str) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.toml");
        fs::write(folder.path().join("cut.txt"), "10\n2x").unwrap();
        fs::write(&path, text).unwrap();
        let told = File { path }.read().unwrap_err().0;
        assert_eq!(told.replace(&format!("{}/", folder.path().display()), ""), expected);
    }

    #[test]
    fn messages_name_the_file_that_is_wrong() {
        const MODEL: &str = "[[model]]\nname = \"m\"\nslo = \"9ms\"\nlatency = { alpha = \"1ms\", beta = \"1ms\" }";
        check(b"rate = 0", "read scenario s.toml: missing [cluster]: expected gpus = 8 or [[cluster.gpu]] entries");
        check(b"\nrat = 0", &told_of("rat"));
        check(b"rate = \"\xff\"", "read scenario s.toml: it is not UTF-8 text");
        let trace = |path: &str| {
            format!(
                "[cluster]\ngpus = 1\n[arrivals]\nkind = \"trace\"\nformat = \"per-second\"\npath = \"{path}\"\n{MODEL}"
            )
        };
        check(trace("cut.txt").as_bytes(), "read scenario s.toml: cut.txt:2: expected a number for rate, found \"2x\"");
        check(trace("none.txt").as_bytes(), "read scenario s.toml:6: cannot read \"none.txt\": no such file or folder");
        check(trace(".").as_bytes(), "read scenario s.toml:6: cannot read \".\": it is a folder, not a file");
    }

    fn told_of(key: &str) -> String {
        format!(
            "read scenario s.toml:2: unknown key `{key}`, did you mean `rate`? expected one of: seed, warmup, \
             duration, policy, rate, noise, popularity, models, cluster, network, arrivals, model"
        )
    }
}
