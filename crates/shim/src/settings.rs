//! The environment, read once: `WEFT_SOCKET`, `WEFT_TENANT`, `WEFT_QUIET`, `WEFT_DISABLE`.

use shm::Name;
use std::io::Write;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The settings of a process.
pub(crate) struct Settings {
    /// Where the daemon listens.
    pub(crate) socket: PathBuf,
    /// Which tenant this process belongs to.
    pub(crate) tenant: Option<Name>,
    /// Write no warnings.
    quiet: bool,
    /// Let everything pass, as if the library were not there.
    pub(crate) disabled: bool,
}

/// The settings of this process.
#[inline]
pub(crate) fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
        let tenant = std::env::var("WEFT_TENANT").ok();
        Settings {
            socket: shm::socket_path(),
            tenant: tenant.as_deref().and_then(Name::new),
            quiet: set("WEFT_QUIET"),
            disabled: set("WEFT_DISABLE"),
        }
    })
}

/// Writes a warning to stderr, once in the life of a process.
pub(crate) fn warn_once(text: &str) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if !settings().quiet && !WARNED.swap(true, Ordering::Relaxed) {
        // One write, so that lines of several processes do not mix. Nobody can be told that it failed.
        let _ = std::io::stderr().write_all(format!("weft: {text}\n").as_bytes());
    }
}
