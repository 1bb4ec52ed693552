//! A trace that nobody has looked at, made of one that everybody has: by it skill is told from luck.

use super::trace::{Change, Trace};
use crate::workload::{Purpose, stream};
use policy::placement::{Demand, Kind};
use rand::seq::SliceRandom;

impl Trace {
    /// The same starts and ends, with what instances ask for dealt out anew among those of a kind.
    pub fn shuffled(&self, seed: u64) -> Trace {
        let mut trace = self.clone();
        let mut random = stream(seed, Purpose::Demands, 0);
        for kind in [Kind::Inference, Kind::Training, Kind::Llm] {
            let mut asked: Vec<_> = demands(&mut trace, kind).map(|demand| (demand.gpus, demand.need)).collect();
            asked.shuffle(&mut random);
            for (demand, (gpus, need)) in demands(&mut trace, kind).zip(asked) {
                (demand.gpus, demand.need) = (gpus, need);
            }
        }
        trace
    }
}

/// What instances of a kind ask for, in the order they start.
fn demands(trace: &mut Trace, kind: Kind) -> impl Iterator<Item = &mut Demand> {
    trace.events.iter_mut().filter_map(move |event| match &mut event.change {
        Change::Start(demand) if demand.kind == kind => Some(demand),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Cluster, parse};
    use super::*;

    const EVENTS: &str = include_str!("../../../../examples/12-place-instances/events.txt");

    #[test]
    fn the_same_is_asked_for_by_others() {
        let trace = parse("t.txt", EVENTS, Cluster::default()).unwrap();
        let told = |trace: &Trace, kind: Kind| -> Vec<String> {
            let mut trace = trace.clone();
            demands(&mut trace, kind).map(|demand| format!("{} x {:?}", demand.gpus, demand.need)).collect()
        };
        let shuffled = trace.shuffled(1);
        assert_eq!(shuffled, trace.shuffled(1));
        assert_ne!(shuffled, trace.shuffled(2));
        for kind in [Kind::Inference, Kind::Training, Kind::Llm] {
            let (mut before, mut after) = (told(&trace, kind), told(&shuffled, kind));
            assert_ne!(before, after, "{kind:?}");
            before.sort();
            after.sort();
            assert_eq!(before, after, "{kind:?}");
        }
        for (before, after) in trace.events.iter().zip(&shuffled.events) {
            assert_eq!((before.seconds, before.instance), (after.seconds, after.instance));
        }
    }
}
