//! What a configuration names has to be there: `--check`.

use super::settings::Settings;
use crate::output::{Misuse, print};
use anyhow::Result;
use config::Kind;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Who reads the files of models: `weft up` does, and a scheduler leaves it to its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Models {
    Here,
    OnNodes,
}

/// Says whether all that is named can be used.
pub(crate) fn report(settings: &Settings, models: Models) -> Result<()> {
    let problems = problems(settings, models);
    if problems.is_empty() {
        return print(&format!("the configuration makes sense: {} models\n", settings.models.len()));
    }
    let file = settings.file.as_ref().map_or_else(|| "the defaults".to_owned(), |path| path.display().to_string());
    Err(Misuse(format!("use {file}:\n  {}", problems.join("\n  "))).into())
}

/// What is named and cannot be used, each with its place.
fn problems(settings: &Settings, models: Models) -> Vec<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_has_to_be_there() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("there.py", "");
        let model =
            |name: &str, path: &str| format!("[[model]]\nname = \"{name}\"\nkind = \"python\"\npath = \"{path}\"\n");
        let node = "[node]\npython = \"bin/python\"\n\n";
        write("weft.toml", &format!("{node}{}{}{}", model("a", "there.py"), model("b", "gone.py"), model("c", ".")));
        let settings = Settings::read(&folder.path().join("weft.toml")).unwrap();
        let found = problems(&settings, Models::Here);
        let [gone, folder_named, python] = &found[..] else { panic!("{found:?}") };
        assert!(gone.starts_with("line 8, model `b` version 1: cannot read "), "{gone}");
        assert!(gone.ends_with("gone.py: no such file or folder"), "{gone}");
        assert!(folder_named.starts_with("line 12, model `c`") && folder_named.ends_with("it is a folder, not a file"));
        assert!(python.contains("`python` under [node]: cannot read "), "{python}");
        assert_eq!(problems(&settings, Models::OnNodes), [""; 0], "they are on the nodes");
        write("there.onnx", "");
        write(
            "weft.toml",
            "[node]\npython = \"there.py\"\n[[model]]\nname = \"o\"\nkind = \"onnx\"\npath = \"there.onnx\"\n",
        );
        let settings = Settings::read(&folder.path().join("weft.toml")).unwrap();
        let found = problems(&settings, Models::Here);
        assert!(found.len() == 1 && found[0].ends_with("there.py is not executable"), "{found:?}");
    }
}
