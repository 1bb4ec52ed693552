//! What is seen while a run goes on: one line on stderr if that is a terminal, and nothing otherwise. And the way to
//! end it early.

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use load::Moment;
use policy::Span;
use report::numbers::{decimal, rate};
use std::io::IsTerminal;
use std::thread;
use tokio::sync::mpsc::UnboundedSender;

/// A line that changes every second.
#[derive(Clone, Debug)]
pub(super) struct Line {
    bar: ProgressBar,
}

impl Line {
    /// Nothing is shown before something has happened. `length`: of the whole run.
    pub(super) fn new(length: Span) -> Line {
        let target = match std::io::stderr().is_terminal() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(length.nanos() / 1_000_000_000), target);
        let style = ProgressStyle::with_template("{pos} of {len} s  {msg}");
        bar.set_style(style.expect("the template is well formed"));
        Line { bar }
    }

    pub(super) fn show(&self, moment: &Moment) {
        self.bar.set_position(moment.elapsed.nanos() / 1_000_000_000);
        self.bar.set_message(message(moment));
    }

    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

fn message(moment: &Moment) -> String {
    let warming = if moment.measured { "" } else { "warming up  " };
    let errors = match moment.error_rps {
        0.0 => String::new(),
        errors => format!("  errors {}", rate(errors)),
    };
    format!(
        "{warming}{} requests/s  good {}  late {}  refused {}{errors}  p99 {} ms",
        rate(moment.done_rps),
        rate(moment.good_rps),
        rate(moment.late_rps),
        rate(moment.refused_rps),
        decimal(moment.latency_ms_p99, 1)
    )
}

/// Sends word at each Ctrl-C. It ends with the process.
pub(super) fn tell_on_interrupt(tell: UnboundedSender<()>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start")?;
    let watch = async move { while tokio::signal::ctrl_c().await.is_ok() && tell.send(()).is_ok() {} };
    thread::Builder::new().name("interrupt".into()).spawn(move || runtime.block_on(watch)).context("start")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_one_line() {
        let moment = Moment {
            elapsed: Span::from_secs(3),
            measured: true,
            done_rps: 1234.0,
            good_rps: 1200.0,
            late_rps: 30.0,
            refused_rps: 4.0,
            error_rps: 0.0,
            latency_ms_p99: 98.76,
        };
        assert_eq!(message(&moment), "1,234 requests/s  good 1,200  late 30.0  refused 4.00  p99 98.8 ms");
        let warming = message(&Moment { measured: false, error_rps: 2.0, ..moment });
        assert!(warming.starts_with("warming up  1,234") && warming.contains("  errors 2.00  p99"), "{warming}");
    }
}
