//! What the binaries are made of: every crate that is linked into one, its licence, and where it came from.
//!
//! As CycloneDX 1.5, for programs, and as the texts of all licences, which whoever passes the binaries on must pass on
//! too. Both are from what `cargo metadata` says; crates that only build or test are not in the binaries and not here, but
//! for those of macros.

use crate::workspace::Workspace;
use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The packages that the three files are built from.
const ROOTS: [&str; 3] = ["weft", "weft-shim", "fakecuda"];
/// How crates call the files with their terms.
const LICENCE_FILES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT", "UNLICENSE"];

/// The list, in two forms.
pub(super) struct Bill {
    pub(super) cyclonedx: String,
    pub(super) licences: String,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
    manifest_path: PathBuf,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
}

#[derive(Deserialize)]
struct Edge {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    /// None for what is linked, else `build` or `dev`.
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
}

impl Bill {
    pub(super) fn of(workspace: &Workspace) -> Result<Bill> {
        let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let words = ["metadata", "--locked", "--format-version=1", "--filter-platform", &platform];
        let metadata: Metadata =
            serde_json::from_str(&workspace.cargo(words).read()?).context("read what `cargo metadata` says")?;
        let lock = std::fs::read_to_string(workspace.root.join("Cargo.lock")).context("read Cargo.lock")?;
        let lock: Lock = toml::from_str(&lock).context("read Cargo.lock")?;
        let linked = linked(&metadata);
        Ok(Bill { cyclonedx: cyclonedx(&metadata, &lock, &linked), licences: licences(&metadata, &linked)? })
    }
}

/// The packages that are in the binaries, by id, each with those that it needs itself.
fn linked(metadata: &Metadata) -> BTreeMap<&str, Vec<&str>> {
    let needs = |id: &str| -> Vec<&str> {
        let node = metadata.resolve.nodes.iter().find(|node| node.id == id);
        let edges = node.into_iter().flat_map(|node| &node.deps);
        edges
            .filter(|edge| edge.dep_kinds.iter().any(|kind| kind.kind.is_none()))
            .map(|edge| edge.pkg.as_str())
            .collect()
    };
    let roots = metadata.packages.iter().filter(|package| ROOTS.contains(&package.name.as_str()));
    let mut next: Vec<&str> = roots.map(|package| package.id.as_str()).collect();
    let mut found = BTreeMap::new();
    while let Some(id) = next.pop() {
        if !found.contains_key(id) {
            let needed = needs(id);
            next.extend(&needed);
            found.insert(id, needed);
        }
    }
    found
}

fn cyclonedx(metadata: &Metadata, lock: &Lock, linked: &BTreeMap<&str, Vec<&str>>) -> String {
    let packages: BTreeMap<&str, &Package> =
        metadata.packages.iter().map(|package| (package.id.as_str(), package)).collect();
    let reference =
        |id: &str| packages.get(id).map(|package| format!("pkg:cargo/{}@{}", package.name, package.version));
    let component = |id: &&str| -> Option<Value> {
        let package = packages.get(*id)?;
        let kind = if package.name == "weft" { "application" } else { "library" };
        let mut value = json!({
            "type": kind,
            "bom-ref": reference(id),
            "name": package.name,
            "version": package.version,
            "purl": reference(id),
        });
        if let Some(licence) = &package.license {
            // Before SPDX there was a slash for `OR`.
            value["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
        }
        let same = |locked: &&Locked| locked.name == package.name && locked.version == package.version;
        if let Some(checksum) = lock.package.iter().find(same).and_then(|locked| locked.checksum.as_ref()) {
            value["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
        }
        Some(value)
    };
    let needs = |(id, needed): (&&str, &Vec<&str>)| {
        let needed: BTreeSet<String> = needed.iter().filter_map(|id| reference(id)).collect();
        json!({ "ref": reference(id), "dependsOn": needed })
    };
    let own = packages.values().find(|package| package.name == "weft");
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": own.and_then(|own| component(&own.id.as_str())) },
        "components": linked.keys().filter(|id| own.is_none_or(|own| own.id != **id)).filter_map(component).collect::<Vec<_>>(),
        "dependencies": linked.iter().map(needs).collect::<Vec<_>>(),
    });
    format!("{bill:#}\n")
}

/// The terms of all crates of others, each text once with those that it is for.
fn licences(metadata: &Metadata, linked: &BTreeMap<&str, Vec<&str>>) -> Result<String> {
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut without = BTreeSet::new();
    let others =
        metadata.packages.iter().filter(|package| package.source.is_some() && linked.contains_key(&*package.id));
    for package in others {
        let name =
            format!("{} {} ({})", package.name, package.version, package.license.as_deref().unwrap_or("see below"));
        let found = licence_texts(package.manifest_path.parent().unwrap_or(Path::new("/")))?;
        if found.is_empty() {
            without.insert(name.clone());
        }
        for text in found {
            texts.entry(text).or_default().insert(name.clone());
        }
    }
    let rule = "=".repeat(100);
    let list = |names: &BTreeSet<String>| names.iter().map(|name| format!("  {name}\n")).collect::<String>();
    let mut all =
        "Weft contains these works of others. Each list is followed by the terms of what it names.\n".to_owned();
    for (text, names) in &texts {
        all += &format!("\n{rule}\n{}\n{}\n", list(names), text.trim_end());
    }
    if !without.is_empty() {
        all +=
            &format!("\n{rule}\nThe terms of these are named and not included by their authors:\n\n{}", list(&without));
    }
    Ok(all)
}

fn licence_texts(folder: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    let is_licence = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        path.is_file() && LICENCE_FILES.iter().any(|start| name.starts_with(start))
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_licence).collect();
    paths.sort();
    let read = |path: &PathBuf| std::fs::read(path).with_context(|| format!("read {}", path.display()));
    let texts = paths.iter().map(|path| Ok(String::from_utf8_lossy(&read(path)?).replace("\r\n", "\n")));
    texts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_builds_or_tests_is_not_in_the_binaries() {
        let package = |name: &str| {
            json!({"id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0",
            "source": null, "manifest_path": "/Cargo.toml"})
        };
        let edge = |to: &str, kind: Option<&str>| json!({"pkg": to, "dep_kinds": [{"kind": kind}]});
        let metadata: Metadata = serde_json::from_value(json!({
            "packages": (["weft", "linked", "below", "builds", "tests"].map(package)),
            "resolve": {"nodes": [
                {"id": "weft", "deps": [edge("linked", None), edge("builds", Some("build")), edge("tests", Some("dev"))]},
                {"id": "linked", "deps": [edge("below", None)]},
                {"id": "below", "deps": []}, {"id": "builds", "deps": []}, {"id": "tests", "deps": []},
            ]},
        }))
        .unwrap();
        let linked = linked(&metadata);
        assert_eq!(linked.keys().copied().collect::<Vec<_>>(), ["below", "linked", "weft"]);

        let lock = Lock {
            package: vec![Locked { name: "below".into(), version: "1.0.0".into(), checksum: Some("abc".into()) }],
        };
        let bill: Value = serde_json::from_str(&cyclonedx(&metadata, &lock, &linked)).unwrap();
        assert_eq!(bill["metadata"]["component"]["name"], "weft");
        assert_eq!(bill["components"].as_array().unwrap().len(), 2);
        assert_eq!(bill["components"][0]["hashes"][0]["content"], "abc");
        assert_eq!(bill["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(bill["dependencies"][1]["dependsOn"], json!(["pkg:cargo/below@1.0.0"]));
    }
}
