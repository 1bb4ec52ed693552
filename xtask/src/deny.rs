//! What others' code may come in, and under which terms: `deny.toml`, in the words of cargo-deny.
//!
//! cargo-deny itself is used where it is installed. It is not installed for a check: building its 211 crates takes longer
//! than all that is added here may, and the only ready-made binary (PyPI's, 0.14.2) is from before `Unicode-3.0` was a
//! licence and cannot read our list. So the three checks that need nothing but `cargo metadata` are here too. They ask
//! about every platform, as cargo-deny does. What they do not know of cargo-deny's options is refused, so that nobody
//! takes a rule for checked that is not.
//!
//! Advisories need RustSec's database, which is a Git repository: where it cannot be had, that is said and not passed
//! over.

use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Check licences, sources, bans and, where the database can be had, advisories of everything that Weft depends on.
///
/// deny.toml says what is allowed. With cargo-deny installed (`cargo install cargo-deny --locked`) it does all of it;
/// without, licences, sources and bans are checked here, and advisories are not, which is said.
///
/// Example: cargo xtask deny
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {}

pub(crate) fn deny(workspace: &Workspace, _: &Arguments) -> Result<()> {
    check(workspace)
}

/// Checks everything that can be checked here.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let path = workspace.root.join("deny.toml");
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let rules: Rules = toml::from_str(&text).with_context(|| format!("read {}", path.display()))?;
    let metadata = workspace.cargo(["metadata", "--locked", "--format-version", "1"]).read()?;
    let metadata: Metadata = serde_json::from_str(&metadata).context("read what `cargo metadata` says")?;
    let found = rules.check(&metadata);
    for warning in &found.warnings {
        eprintln!("  warning: {warning}");
    }
    if !found.errors.is_empty() {
        bail!("allow all dependencies:\n  {}", found.errors.join("\n  "));
    }
    eprintln!("  {} packages: licences, sources and bans are as deny.toml has them", metadata.packages.len());
    if workspace.cargo(["deny", "--version"]).works() {
        workspace.cargo(["deny", "check", "licenses", "bans", "sources"]).run()?;
        if workspace.cargo(["deny", "fetch"]).works() {
            return workspace.cargo(["deny", "check", "--disable-fetch", "advisories"]).run().map(drop);
        }
        eprintln!("\n  **** ADVISORIES NOT CHECKED: RUSTSEC'S DATABASE CANNOT BE FETCHED FROM HERE ****\n");
    } else {
        eprintln!(
            "\n  **** ADVISORIES NOT CHECKED: cargo-deny IS NOT INSTALLED (`cargo install cargo-deny --locked`) ****\n"
        );
    }
    Ok(())
}

/// deny.toml.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    licenses: Licences,
    bans: Bans,
    sources: Sources,
    /// For cargo-deny alone.
    #[serde(default)]
    #[allow(dead_code, reason = "cargo-deny reads it")]
    advisories: toml::Table,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Licences {
    allow: BTreeSet<String>,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Deny,
    Warn,
    Allow,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Bans {
    multiple_versions: Level,
    wildcards: Level,
    allow_wildcard_paths: bool,
    #[serde(default)]
    deny: Vec<Banned>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Banned {
    #[serde(rename = "crate")]
    name: String,
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Sources {
    unknown_registry: Level,
    unknown_git: Level,
    allow_registry: BTreeSet<String>,
    #[serde(default)]
    allow_git: BTreeSet<String>,
}

/// What `cargo metadata` says, as far as it is asked about.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// None for a package of the workspace, or beside it.
    source: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    req: String,
    path: Option<String>,
}

/// What was found wrong.
#[derive(Debug, Default)]
struct Found {
    errors: Vec<String>,
    warnings: Vec<String>,
}

impl Found {
    fn add(&mut self, level: Level, text: String) {
        match level {
            Level::Deny => self.errors.push(text),
            Level::Warn => self.warnings.push(text),
            Level::Allow => {}
        }
    }
}

impl Rules {
    fn check(&self, metadata: &Metadata) -> Found {
        let mut found = Found::default();
        let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for package in &metadata.packages {
            let Package { name, version, license, source, dependencies } = package;
            let what = format!("{name} {version}");
            versions.entry(name).or_default().insert(version);
            match license.as_deref().map(|licence| self.allows(licence)) {
                None => found.errors.push(format!("{what} says nothing about its licence")),
                Some(Ok(true)) => {}
                Some(Ok(false)) => {
                    let licence = license.as_deref().unwrap_or_default();
                    found.errors.push(format!("{what} has the licence `{licence}`, which deny.toml does not allow"));
                }
                Some(Err(error)) => found.errors.push(format!("{what}: {error}")),
            }
            if let Some(source) = source {
                self.check_source(&what, source, &mut found);
            }
            if let Some(banned) = self.bans.deny.iter().find(|banned| banned.name == *name) {
                found.errors.push(format!("{what} is banned: {}", banned.reason));
            }
            for Dependency { name, req, path } in dependencies.iter().filter(|dependency| dependency.req == "*") {
                if !(self.bans.allow_wildcard_paths && path.is_some()) {
                    found.add(self.bans.wildcards, format!("{what} takes any version (`{req}`) of {name}"));
                }
            }
        }
        for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
            let versions = versions.iter().fold(String::new(), |mut text, version| {
                let _ = write!(text, "{}{version}", if text.is_empty() { "" } else { ", " });
                text
            });
            found.add(self.bans.multiple_versions, format!("{name} is there more than once: {versions}"));
        }
        found
    }

    fn check_source(&self, what: &str, source: &str, found: &mut Found) {
        let Sources { unknown_registry, unknown_git, allow_registry, allow_git } = &self.sources;
        let (allowed, level, url) = match source.split_once('+') {
            Some(("registry" | "sparse", url)) => (allow_registry.contains(url), *unknown_registry, url),
            // Without the branch and the commit.
            Some(("git", url)) => {
                let url = url.split(['?', '#']).next().unwrap_or_default();
                (allow_git.contains(url), *unknown_git, url)
            }
            _ => (false, Level::Deny, source),
        };
        if !allowed {
            found.add(level, format!("{what} comes from {url}, which deny.toml does not allow"));
        }
    }

    /// Whether what a package says about its licences can be satisfied with those that are allowed.
    fn allows(&self, expression: &str) -> Result<bool, String> {
        // Before SPDX there was a slash for `OR`.
        let text = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
        let words: Vec<&str> = text.split_whitespace().collect();
        let mut rest = words.as_slice();
        let allowed = self.any(&mut rest).filter(|_| rest.is_empty());
        allowed.ok_or_else(|| format!("`{expression}` is not a licence expression"))
    }

    /// One or more with `OR` between them, which binds less than `AND`.
    fn any(&self, words: &mut &[&str]) -> Option<bool> {
        let mut allowed = self.all(words)?;
        while let Some((&"OR", rest)) = words.split_first() {
            *words = rest;
            allowed |= self.all(words)?;
        }
        Some(allowed)
    }

    fn all(&self, words: &mut &[&str]) -> Option<bool> {
        let mut allowed = self.one(words)?;
        while let Some((&"AND", rest)) = words.split_first() {
            *words = rest;
            allowed &= self.one(words)?;
        }
        Some(allowed)
    }

    fn one(&self, words: &mut &[&str]) -> Option<bool> {
        let (word, rest) = words.split_first()?;
        *words = rest;
        match *word {
            "(" => {
                let allowed = self.any(words)?;
                let (&")", rest) = words.split_first()? else { return None };
                *words = rest;
                Some(allowed)
            }
            ")" | "AND" | "OR" | "WITH" => None,
            // A licence with an exception is another licence.
            licence => match **words {
                ["WITH", exception, ref rest @ ..] => {
                    *words = rest;
                    Some(self.licenses.allow.contains(&format!("{licence} WITH {exception}")))
                }
                _ => Some(self.licenses.allow.contains(licence)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        let text = r#"
            [licenses]
            allow = ["MIT", "Apache-2.0", "ISC"]
            [bans]
            multiple-versions = "warn"
            wildcards = "deny"
            allow-wildcard-paths = true
            deny = [{ crate = "openssl", reason = "rustls is used" }]
            [sources]
            unknown-registry = "deny"
            unknown-git = "deny"
            allow-registry = ["https://github.com/rust-lang/crates.io-index"]
        "#;
        toml::from_str(text).unwrap()
    }

    #[test]
    fn licence_expressions_mean_what_spdx_says() {
        let rules = rules();
        for (expression, allowed) in [
            ("MIT", true),
            ("GPL-3.0-only", false),
            ("MIT/GPL-3.0", true),
            ("GPL-3.0-only OR MIT", true),
            ("GPL-3.0-only AND MIT", false),
            ("(MIT OR GPL-3.0-only) AND ISC", true),
            ("MIT OR GPL-3.0-only AND ISC", true),
            ("GPL-3.0-only OR ISC AND BSD-3-Clause", false),
            ("Apache-2.0 WITH LLVM-exception", false),
            ("Apache-2.0 WITH LLVM-exception OR Apache-2.0", true),
        ] {
            assert_eq!(rules.allows(expression), Ok(allowed), "{expression}");
        }
        for nonsense in ["", "MIT OR", "(MIT", "MIT)", "MIT ISC", "AND MIT", "MIT WITH"] {
            assert!(rules.allows(nonsense).is_err(), "{nonsense}");
        }
    }

    fn found(packages: &str) -> Found {
        rules().check(&serde_json::from_str(&format!("{{\"packages\": [{packages}]}}")).unwrap())
    }

    fn package(name: &str, version: &str, licence: &str, source: &str, dependencies: &str) -> String {
        format!(
            r#"{{"name": "{name}", "version": "{version}", "license": {licence}, "source": {source},
               "dependencies": [{dependencies}]}}"#
        )
    }

    #[test]
    fn each_rule_finds_what_breaks_it() {
        const INDEX: &str = r#""registry+https://github.com/rust-lang/crates.io-index""#;
        let check = |package: String, expected: Option<&str>| {
            let found = found(&package);
            match expected {
                None => assert!(found.errors.is_empty(), "{found:?}"),
                Some(words) => assert!(found.errors.iter().any(|error| error.contains(words)), "{found:?}"),
            }
        };
        check(package("a", "1.0.0", r#""MIT""#, INDEX, ""), None);
        check(package("a", "1.0.0", r#""GPL-3.0""#, INDEX, ""), Some("a 1.0.0 has the licence `GPL-3.0`"));
        check(package("a", "1.0.0", "null", INDEX, ""), Some("says nothing about its licence"));
        let git = r#""git+https://example.com/a?branch=x#123""#;
        check(package("a", "1.0.0", r#""MIT""#, git, ""), Some("comes from https://example.com/a,"));
        let other = r#""registry+https://example.com/index""#;
        check(package("a", "1.0.0", r#""MIT""#, other, ""), Some("comes from https://example.com/index"));
        check(package("openssl", "1.0.0", r#""MIT""#, INDEX, ""), Some("is banned: rustls is used"));
        let any = r#"{"name": "b", "req": "*", "path": null}"#;
        check(package("a", "1.0.0", r#""MIT""#, "null", any), Some("takes any version (`*`) of b"));
        check(package("a", "1.0.0", r#""MIT""#, "null", &any.replace("null", "\"b\"")), None);
        let twice = ["1.0.0", "2.0.0"].map(|version| package("a", version, r#""MIT""#, INDEX, "")).join(",");
        let twice = found(&twice);
        assert_eq!(
            (twice.errors.len(), twice.warnings.as_slice()),
            (0, &["a is there more than once: 1.0.0, 2.0.0".to_owned()][..])
        );
    }

    #[test]
    fn a_rule_that_is_not_checked_is_refused() {
        let text = "[licenses]\nallow = []\nexceptions = []\n";
        let error = toml::from_str::<Rules>(text).err().unwrap().to_string();
        assert!(error.contains("exceptions"), "{error}");
    }
}
