//! Talk on stderr: one line per thing that happened, as text for people or JSON for machines.

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

/// Starts logging. `WEFT_LOG` says how much (`debug`, `gateway=trace,info`), `WEFT_LOG_FORMAT=json` in which form.
pub(crate) fn start() {
    let asked = std::env::var("WEFT_LOG").ok().filter(|asked| !asked.is_empty());
    let filter = asked.and_then(|asked| asked.parse().ok());
    let filter = filter.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    // A line that cannot be written, because a disk is full, is lost. To complain of that on stderr would panic.
    let lines = lines.log_internal_errors(false);
    // A second start, in a test, changes nothing.
    let _ = match std::env::var("WEFT_LOG_FORMAT").as_deref() {
        Ok("json") => tracing_subscriber::registry().with(lines.json()).with(filter).try_init(),
        _ => {
            let lines = lines.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()));
            tracing_subscriber::registry().with(lines).with(filter).try_init()
        }
    };
}
