//! What a configuration names has to be there: `--check`.

use super::settings::Settings;
use rpc::Kind;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Who reads the files of models: `weft up` does, and a scheduler leaves it to its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Models {
    Here,
    OnNodes,
}

/// What is named and cannot be used, each with its place.
pub(crate) fn problems(settings: &Settings, models: Models) -> Vec<String> {
    let mut found = Vec::new();
    let mut look = |place: String, problem: Option<String>| found.extend(problem.map(|why| format!("{place}: {why}")));
    if models == Models::Here {
        for (index, spec) in settings.models.iter().enumerate() {
            if let Kind::Onnx { path } | Kind::Python { path, .. } = &spec.kind {
                let line = settings.lines.get(index).map_or_else(String::new, |line| format!("line {line}, "));
                look(format!("{line}model `{}` version {}", spec.name, spec.version), unreadable(path));
            }
        }
        if let Some(path) = &settings.node.python {
            look("`python` under [node]".into(), not_a_program(path));
        }
        if let Some(path) = &settings.node.onnxruntime {
            look("`onnxruntime` under [node]".into(), unreadable(path));
        }
    }
    if let Some(tls) = &settings.tls {
        look("`certificate` under [tls]".into(), unreadable(&tls.certificate));
        look("`key` under [tls]".into(), unreadable(&tls.key));
    }
    if let Some(path) = &settings.cluster.authority {
        look("`authority` under [cluster]".into(), unreadable(path));
    }
    if settings.state.exists() && !settings.state.is_dir() {
        look("`state`".into(), Some(format!("{} is not a folder", settings.state.display())));
    }
    found
}

/// Why a file cannot be read.
fn unreadable(path: &Path) -> Option<String> {
    let opened = File::open(path).and_then(|file| file.metadata());
    match opened {
        Err(error) => Some(format!("cannot read {}: {}", path.display(), crate::output::reason(&error))),
        Ok(found) if found.is_dir() => Some(format!("cannot read {}: it is a folder, not a file", path.display())),
        Ok(_) => None,
    }
}

/// Why a program cannot be run.
fn not_a_program(path: &Path) -> Option<String> {
    unreadable(path).or_else(|| {
        let mode = path.metadata().map_or(0, |found| found.permissions().mode());
        (mode & 0o111 == 0).then(|| format!("{} is not executable", path.display()))
    })
}
