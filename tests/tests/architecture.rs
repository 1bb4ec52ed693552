//! The crates depend on each other as ARCHITECTURE.md says, and in no other way; their files never in a circle.

mod constants;
mod imports;

use imports::{Imports, circles, imports};
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

/// Sources below `folder`, as paths from it on and texts.
fn sources(folder: &Path) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                files.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    files
}

/// Circles, a line for each tie.
fn told(folder: &str, circles: Vec<Imports>) -> String {
    let mut text = String::new();
    for circle in circles {
        text += &format!("in {folder}:\n");
        for ((from, to), names) in circle {
            text += &format!("  {from} -> {to}: {}\n", names.into_iter().collect::<Vec<_>>().join(", "));
        }
    }
    text
}

#[test]
fn no_files_of_a_crate_import_each_other_in_a_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut crates: Vec<_> = std::fs::read_dir(root.join("crates")).unwrap().map(|one| one.unwrap().path()).collect();
    crates.push(root.join("fakecuda"));
    crates.sort();
    let (mut seen, mut found) = (0, String::new());
    for folder in crates {
        let imports = imports(&sources(&folder.join("src")));
        let folder = folder.strip_prefix(root).unwrap().to_str().unwrap();
        seen += imports.len();
        found += &told(folder, circles(&imports));
    }
    assert!(seen > 500, "{seen} imports seen");
    assert!(found.is_empty(), "files that import each other in a circle, and the names that tie them:\n{found}");
}

/// Circles of a made-up crate.
fn made_up(files: &[(&str, &str)]) -> String {
    let files: Vec<_> = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    told("it", circles(&imports(&files)))
}

#[test]
fn a_circle_is_found_through_whatever_ties_it() {
    let found = made_up(&[
        ("lib.rs", "mod a; mod b; mod c; mod d;\npub use c::{Deep, Other as Renamed};"),
        // A group within a group, a name of the parent's that is from elsewhere, all names, and a path in the code.
        ("a.rs", "use crate::{b::{self, one}, d};\nfn two() { one(); }"),
        ("b.rs", "mod inner;\npub(crate) use inner::Hidden;\npub(crate) fn one() { crate::Renamed::new(); }"),
        ("b/inner.rs", "pub(crate) struct Hidden;"),
        ("c.rs", "use super::d::*;\npub struct Deep;\npub struct Other(Three);"),
        ("d/mod.rs", "pub(crate) struct Three;\nimpl Three { fn four() -> u8 { crate::a::two() } }"),
    ]);
    let ties =
        ["a.rs -> b.rs: one", "b.rs -> c.rs: Renamed::new", "c.rs -> d/mod.rs: Three", "d/mod.rs -> a.rs: a::two"];
    assert_eq!(found, format!("in it:\n  {}\n", ties.join("\n  ")));
    let found = made_up(&[
        ("main.rs", "mod up;"),
        ("up.rs", "mod down;\nstruct Up;\nfn go() { down::go(); }"),
        ("up/down.rs", "use super::Up;\npub(super) fn go() {}"),
    ]);
    assert_eq!(found, "in it:\n  up.rs -> up/down.rs: go\n  up/down.rs -> up.rs: Up\n");
}

#[test]
fn what_ties_nothing_is_no_circle() {
    let found = made_up(&[
        ("lib.rs", "mod a;\nmod b;\n#[cfg(test)]\nmod fixture;\npub use a::One;\npub use b::Two;"),
        // Its own child by way of a re-export; a sibling through the parent; names in texts, in remarks and in tests.
        ("a.rs", "mod child;\npub use child::Said;\npub struct One;\n#[cfg(test)]\nmod tests { use crate::b::Two; }"),
        (
            "a/child.rs",
            "use super::One;\nuse std::fmt;\npub struct Said(One);\nfn f() -> &'static str { \"crate::b::Two\" }",
        ),
        (
            "b.rs",
            "use crate::{One, a::Said};\n// use crate::fixture;\npub struct Two(One, Said, char);\nconst C: char = '\"';",
        ),
        ("b/tests.rs", "use crate::fixture::all;"),
        ("fixture.rs", "use crate::b::Two;"),
        ("bin/tool.rs", "use weft::Two;"),
    ]);
    assert_eq!(found, "");
}
