//! Which file is meant by a program's name, as a shell finds it.

use crate::output::Exit;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What shells answer when there is no such program, and when it cannot be executed.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// The file to execute.
pub(crate) fn find(name: &OsStr, path: Option<OsString>) -> Result<PathBuf, Exit> {
    let shown = Path::new(name).display();
    if name.as_encoded_bytes().contains(&b'/') {
        let file = PathBuf::from(name);
        return match look(&file) {
            Look::Executable => Ok(file),
            Look::Not(why) => Err(Exit { code: NOT_EXECUTABLE, text: format!("run {shown}: {why}") }),
            Look::Absent => Err(Exit { code: NOT_FOUND, text: format!("run {shown}: no such file") }),
        };
    }
    // What a shell searches where nothing is set.
    let path = path.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let mut other = None;
    // A name of nothing is in no folder, though every folder can be looked up by it.
    for folder in std::env::split_paths(&path).filter(|_| !name.is_empty()) {
        let file = if folder.as_os_str().is_empty() { Path::new(".").join(name) } else { folder.join(name) };
        match look(&file) {
            Look::Executable => return Ok(file),
            Look::Not(why) => other = other.or(Some(format!("run {}: {why}", file.display()))),
            Look::Absent => {}
        }
    }
    Err(match other {
        Some(text) => Exit { code: NOT_EXECUTABLE, text },
        None => Exit { code: NOT_FOUND, text: format!("run {shown}: there is no such program in PATH") },
    })
}

enum Look {
    Executable,
    Not(&'static str),
    Absent,
}

fn look(file: &Path) -> Look {
    match fs::metadata(file) {
        Ok(found) if found.is_dir() => Look::Not("it is a folder"),
        Ok(found) if found.permissions().mode() & 0o111 == 0 => Look::Not("it is not executable"),
        Ok(_) => Look::Executable,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Look::Not("permission denied"),
        Err(_) => Look::Absent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_shells_find_them() {
        let folder = tempfile::tempdir().unwrap();
        let [plain, tool] = ["plain", "tool"].map(|name| folder.path().join(name));
        fs::write(&plain, "text").unwrap();
        fs::write(&tool, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
        let path = Some(folder.path().as_os_str().to_owned());
        assert_eq!(find(OsStr::new("tool"), path.clone()).unwrap(), tool);
        assert_eq!(find(tool.as_os_str(), None).unwrap(), tool);
        let code = |name: &OsStr| find(name, path.clone()).unwrap_err().code;
        assert_eq!(code(OsStr::new("plain")), 126);
        assert_eq!(code(plain.as_os_str()), 126);
        assert_eq!(code(folder.path().as_os_str()), 126);
        assert_eq!(code(OsStr::new("nothing-of-this-name")), 127);
        assert_eq!(code(OsStr::new("/nothing/of/this/name")), 127);
        assert_eq!(code(OsStr::new("")), 127);
    }
}
