//! What a file must not hold: paths of the machine it was written on, and hosts that packages come from there.

use crate::program::Program;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use std::path::Path;

/// The one registry that a lock file may name.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Folders that exist on a machine and not in a repository. Written in parts, so that this file passes.
const FOLDERS: [&str; 6] = [
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
    concat!("/wo", "rk/"),
    concat!("/mn", "t/"),
    concat!("\\Us", "ers\\"),
];

/// Ends of host names that only resolve inside somebody's network.
const PRIVATE_HOSTS: [&str; 5] = [".internal", ".local", ".lan", ".corp", ".intranet"];

/// Settings that name a package registry.
const SETTINGS: [&str; 6] = ["replace-with", "index-url", "extra-index-url", "[registries", "[source.", "find-links"];

/// Looks through every file that is or could be committed. `Err` names the places.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let root = workspace.root.to_string_lossy().into_owned();
    let files = files(workspace)?;
    let mut found = Vec::new();
    for file in &files {
        // What is not text, or gone, has no paths to find.
        let Ok(text) = std::fs::read_to_string(workspace.root.join(file)) else { continue };
        for (index, line) in text.lines().enumerate() {
            if let Some(problem) = problem(file, line, &root) {
                found.push(format!("{file}:{}: {problem}: {}", index + 1, shortened(line)));
            }
        }
    }
    if !found.is_empty() {
        bail!("keep this machine out of {} places:\n  {}", found.len(), found.join("\n  "));
    }
    eprintln!("  looked through {} files", files.len());
    Ok(())
}

fn files(workspace: &Workspace) -> Result<Vec<String>> {
    let listing = ["ls-files", "--cached", "--others", "--exclude-standard", "-z"];
    let listing = Program::new("git").arguments(listing).folder(&workspace.root).try_quietly();
    if let Ok((Some(0), names)) = listing {
        return Ok(names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect());
    }
    // A source archive has no git; then everything but build folders counts.
    let mut found = Vec::new();
    walk(&workspace.root, &workspace.root, &mut found)?;
    found.sort();
    Ok(found)
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<String>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        let path = entry.with_context(|| format!("list {}", folder.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !path.is_symlink() {
            if name != "target" && name != ".git" {
                walk(root, &path, found)?;
            }
        } else {
            found.push(path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned());
        }
    }
    Ok(())
}

/// What is wrong with a line of a file.
fn problem(file: &str, line: &str, root: &str) -> Option<&'static str> {
    if line.contains(root) || FOLDERS.iter().any(|folder| starts_a_path(line, folder)) {
        return Some("a path of a machine");
    }
    if urls(line).any(|host| PRIVATE_HOSTS.iter().any(|end| host.ends_with(end)) || is_address(host)) {
        return Some("a private host");
    }
    let name = Path::new(file).file_name().unwrap_or_default().to_string_lossy();
    if name == "Cargo.lock" && line.starts_with("source = ") && !line.contains(REGISTRY) {
        return Some("a package from elsewhere than crates.io");
    }
    let configuration = file.ends_with(".cargo/config.toml") || name.starts_with("requirements") || name == "pip.conf";
    if configuration && SETTINGS.iter().any(|setting| line.contains(setting)) {
        return Some("a registry of one machine");
    }
    None
}

/// Whether a path begins with this folder: `x/work/` in the middle of a path does not.
fn starts_a_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| !(c.is_alphanumeric() || "._-/}*)>".contains(c)))
    })
}

/// Hosts of the addresses in a line.
fn urls(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("://").map(|(at, separator)| {
        let rest = &line[at + separator.len()..];
        let end = rest.find(|c: char| !(c.is_alphanumeric() || ".-_@".contains(c))).unwrap_or(rest.len());
        let authority = &rest[..end];
        authority.rsplit('@').next().unwrap_or(authority)
    })
}

/// A numeric address other than this very machine's.
fn is_address(host: &str) -> bool {
    host.parse::<std::net::Ipv4Addr>().is_ok_and(|address| !address.is_loopback() && !address.is_unspecified())
}

fn shortened(line: &str) -> String {
    line.trim().chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(file: &str, line: &str) -> Option<&'static str> {
        problem(file, line, "/somewhere/weft")
    }

    #[test]
    fn paths_of_machines_are_found_and_other_slashes_are_not() {
        assert_eq!(check("a.md", &format!("see {}me/x", FOLDERS[0])), Some("a path of a machine"));
        assert_eq!(check("a.md", "built in /somewhere/weft/target"), Some("a path of a machine"));
        assert_eq!(check("a.md", &format!("the net{}er", FOLDERS[3])), None);
        assert_eq!(check("a.md", &format!("crates{}file", FOLDERS[3])), None);
    }

    #[test]
    fn registries_and_private_hosts_are_found() {
        let lock = |source: &str| check("Cargo.lock", &format!("source = \"{source}\""));
        assert_eq!(lock(REGISTRY), None);
        assert_eq!(lock("registry+https://mirror.example.com/index"), Some("a package from elsewhere than crates.io"));
        assert_eq!(check(".cargo/config.toml", "replace-with = \"mirror\""), Some("a registry of one machine"));
        let host = format!("http{}packages{}/simple", "://", PRIVATE_HOSTS[0]);
        assert_eq!(check("a.md", &host), Some("a private host"));
        assert_eq!(check("a.md", &format!("http{}10.1.2.3/x", "://")), Some("a private host"));
        assert_eq!(check("a.md", "http://127.0.0.1:8000 and https://docs.rs/toml"), None);
    }
}
