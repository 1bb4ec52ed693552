//! What a gateway's metrics say of the cluster.

use crate::connection::Connection;
use std::time::Duration;

/// A gateway that takes longer is not asked further: it is stopped, or gone.
const PATIENCE: Duration = Duration::from_millis(400);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gauges {
    /// Requests that were not answered yet.
    pub(super) in_flight: u64,
    pub(super) nodes: u64,
    /// Workers of the model that has processes, as `weft models` counts them.
    pub(super) workers: u64,
}

impl Gauges {
    /// Asks the gateway whose metrics are on this port; `None` when it does not answer.
    pub(super) fn of(port: u16) -> Option<Gauges> {
        let answer = Connection::open(port, PATIENCE).ok()?.get("/metrics").ok()?;
        read(&String::from_utf8(answer.body).ok()?)
    }
}

fn read(page: &str) -> Option<Gauges> {
    let value = |name: &str, label: &str| {
        let of_it = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']));
        let line = page.lines().find(|line| of_it(line) && line.contains(label))?;
        Some(line.rsplit_once(' ')?.1.parse::<f64>().ok()? as u64)
    };
    // A gateway that has not heard of the models yet counts none of their workers.
    let workers = value("weft_model_workers", "\"echo\"").unwrap_or(0);
    Some(Gauges { in_flight: value("weft_requests_in_flight", "")?, nodes: value("weft_nodes", "")?, workers })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gauges_are_found_by_name_and_model() {
        let page = "# TYPE weft_nodes gauge\nweft_nodes 3\nweft_requests_in_flight 7\n\
                    weft_model_workers_wanted{model=\"echo\"} 9\nweft_model_workers{model=\"virtual\"} 8\n\
                    weft_model_workers{model=\"echo\",version=\"1\"} 6\n";
        assert_eq!(read(page), Some(Gauges { in_flight: 7, nodes: 3, workers: 6 }));
        assert_eq!(read("weft_nodes 0\nweft_requests_in_flight 0\n").map(|gauges| gauges.workers), Some(0));
        assert_eq!(read(""), None);
    }
}
