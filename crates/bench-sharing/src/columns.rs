//! Which figures are shown, in tables and on pages: one list for all of them.

use crate::figures::{LoadFigures, PairFigures, SettingFigures, Spread};

/// A figure of a setting.
pub(super) struct Column {
    pub(super) head: &'static str,
    pub(super) of: fn(&SettingFigures) -> Option<Spread>,
}

/// The figures under one load.
pub(super) struct Part {
    pub(super) heading: &'static str,
    pub(super) columns: Vec<Column>,
}

/// All of them that there are of a pair.
pub(super) fn parts(pair: &PairFigures) -> [Part; 2] {
    all().map(|mut part| {
        part.columns.retain(|column| pair.settings.iter().any(|own| (column.of)(own).is_some()));
        part
    })
}

fn all() -> [Part; 2] {
    let column = |head, of| Column { head, of };
    [
        Part {
            heading: "One request after the other",
            columns: vec![
                column("throughput", |own| own.closed.throughput),
                column("vs suspended", |own| own.closed.throughput_apart),
                column("over weft", |own| own.closed.over_weft),
                column("p50", |own| own.closed.p50),
                column("p99", |own| own.closed.p99),
                column("p99.9", |own| own.closed.p999),
                column("best-effort", |own| own.closed.best_effort),
                column("sum", |own| own.closed.sum),
                column("idle", |own| own.idle),
            ],
        },
        Part {
            heading: "Requests at random",
            columns: vec![
                column("over weft", |own| own.poisson.over_weft),
                column("p50", |own| own.poisson.p50),
                column("p99", |own| own.poisson.p99),
                column("p99 vs suspended", |own| own.poisson.p99_apart),
                column("p99.9", |own| own.poisson.p999),
                column("best-effort", |own| own.poisson.best_effort),
                column("goodput", |own| own.poisson.goodput),
                column("sum", |own| own.poisson.sum),
            ],
        },
    ]
}

/// What stands for a figure that there is not.
const NONE: &str = "–";

/// A figure as text.
pub(super) fn cell(spread: Option<Spread>) -> String {
    spread.map_or(NONE.into(), |spread| spread.to_string())
}

/// Whether anything was measured under this load.
pub(super) fn measured(load: &LoadFigures) -> bool {
    load.throughput.is_some()
}
