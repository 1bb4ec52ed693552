//! What must hold of any bytes that come in as an event trace: they are refused with one line of text, or replayed
//! under every policy. The replay checks its own rules.

use sim::placement::{Cluster, NAMES, parse, replay};

/// Longer traces and larger instances are read but not replayed.
const EVENTS_MAX: usize = 300;
const GPUS_MAX: usize = 64;

/// An event trace.
pub fn events(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let cluster = Cluster { node_gpus: 4, memory_gb: 40 };
    match parse("t.txt", &text, cluster) {
        Ok(trace) => {
            let large = |event: &sim::placement::Event| match &event.change {
                sim::placement::Change::Start(demand) => demand.gpus > GPUS_MAX,
                sim::placement::Change::Stop => false,
            };
            if trace.events.len() > EVENTS_MAX || trace.events.iter().any(large) {
                return;
            }
            for policy in NAMES {
                let report = replay(&trace, cluster, policy, |decide| decide()).expect("the policy has a name");
                assert!(
                    report.mean_gpus <= report.peak_gpus as f64 + 1e-6 && report.fragmentation <= 1.0,
                    "{report:?}"
                );
            }
        }
        Err(error) => {
            let message = error.to_string();
            assert!(!error.problem.is_empty() && !message.contains('\n') && message.len() < 3000, "{message}");
        }
    }
}
