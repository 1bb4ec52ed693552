//! What the tests share: the `weft` command, built from this workspace.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The top of the repository, where examples are run as their texts say.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests lie below the root")
}

/// The `weft` command. A test crate cannot depend on another crate's binary, so it is built on first use, with
/// the profile and into the folder that `cargo test` uses: what the tests compiled is not compiled again.
/// `WEFT_TEST_BINARY` names another one, to see which tests an older version fails.
pub(crate) fn weft() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        if let Some(other) = std::env::var_os("WEFT_TEST_BINARY") {
            return other.into();
        }
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it is a folder in the target folder");
        let mut build = cargo();
        build.args(["build", "--quiet", "--locked", "--package=weft", "--profile=test"]);
        build.args(["--message-format=json-render-diagnostics", "--target-dir"]).arg(target);
        let built = build.current_dir(root()).output().expect("cargo runs");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let messages = String::from_utf8(built.stdout).expect("cargo writes text");
        let executable = |line: &str| {
            let message: serde_json::Value = serde_json::from_str(line).ok()?;
            message["executable"].as_str().map(PathBuf::from)
        };
        messages.lines().find_map(executable).expect("cargo built an executable")
    })
}

/// Cargo, as if typed by a person. What it says to tests about themselves would reach build scripts that look at it, and
/// they would run again.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    for (name, _) in std::env::vars_os() {
        let own = |prefix: &str| name.to_str().is_some_and(|name| name.starts_with(prefix));
        if own("CARGO_PKG_") || own("CARGO_MANIFEST_") {
            cargo.env_remove(&name);
        }
    }
    cargo
}
