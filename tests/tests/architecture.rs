//! The crates depend on each other as ARCHITECTURE.md says, and in no other way.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

type Edges = BTreeSet<(String, String)>;

/// Edges as the page has them: lines of `a, b -> c, d (a remark)`, several on a line with wide gaps between them.
fn written(page: &str) -> Edges {
    let block = page.split("Allowed edges, and no others:").nth(1).expect("the page lists edges");
    let block = block.split("```").nth(1).expect("they are in a block");
    let mut edges = Edges::new();
    let names = |text: &str| text.split(',').map(|name| name.trim().to_owned()).collect::<Vec<_>>();
    for part in block.lines().flat_map(|line| line.split("  ")).map(str::trim).filter(|part| !part.is_empty()) {
        let part = part.split(" (").next().unwrap_or(part);
        let mut add = |from: &str, to: &str| {
            for from in names(from) {
                edges.extend(names(to).into_iter().map(|to| (from.clone(), to)));
            }
        };
        if let Some((from, rest)) = part.split_once(" -> ") {
            match rest.split_once(" <- ") {
                Some((to, other)) => {
                    add(from, to);
                    add(other, to);
                }
                None => add(from, rest),
            }
        }
    }
    edges
}

/// Edges as Cargo has them, of what is shipped: tests and build scripts may use what they like.
fn real(root: &Path) -> Edges {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--format-version=1", "--no-deps", "--offline"]).current_dir(root);
    let output = cargo.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut folders = BTreeMap::new();
    for package in metadata["packages"].as_array().unwrap() {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let folder = manifest.parent().unwrap();
        if folder.parent() == Some(&root.join("crates")) {
            let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
            folders.insert(package["name"].as_str().unwrap().to_owned(), (name, package));
        }
    }
    let mut edges = Edges::new();
    for (name, package) in folders.values() {
        for dependency in package["dependencies"].as_array().unwrap().iter().filter(|one| one["kind"].is_null()) {
            if let Some((other, _)) = folders.get(dependency["name"].as_str().unwrap()) {
                edges.insert((name.clone(), other.clone()));
            }
        }
    }
    edges
}

#[test]
fn crates_depend_on_each_other_as_the_page_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let (written, real) = (written(&page), real(root));
    let only =
        |one: &Edges, other: &Edges| one.difference(other).map(|(a, b)| format!("{a} -> {b}")).collect::<Vec<_>>();
    assert!(real.len() > 10, "{real:?}");
    assert_eq!(only(&real, &written), Vec::<String>::new(), "edges that ARCHITECTURE.md does not allow");
    assert_eq!(only(&written, &real), Vec::<String>::new(), "edges that ARCHITECTURE.md allows and nobody needs");
}

#[test]
fn a_page_is_read_as_people_read_it() {
    let page = "Allowed edges, and no others:\n\n```\na -> b, c\nd, e -> b      c -> b\nf -> g <- h        i -> j (a remark)\n```\n";
    let edges = written(page);
    let has = |from: &str, to: &str| edges.contains(&(from.to_owned(), to.to_owned()));
    assert!(has("a", "b") && has("a", "c") && has("d", "b") && has("e", "b") && has("c", "b"));
    assert!(has("f", "g") && has("h", "g") && has("i", "j") && edges.len() == 8, "{edges:?}");
}
