//! Talk on stderr: one line per thing that happened, as text for people or JSON for machines.

use tracing_subscriber::EnvFilter;

/// Starts logging. `WEFT_LOG` says how much (`debug`, `gateway=trace,info`), `WEFT_LOG_FORMAT=json` in which form.
pub(crate) fn start() {
    let filter = EnvFilter::try_from_env("WEFT_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    // A line that cannot be written, because a disk is full, is lost. To complain of that on stderr would panic.
    let builder = builder.log_internal_errors(false);
    // A second start, in a test, changes nothing.
    let _ = match std::env::var("WEFT_LOG_FORMAT").as_deref() {
        Ok("json") => builder.json().try_init(),
        _ => builder.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).try_init(),
    };
}
