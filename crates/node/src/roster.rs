//! The workers that a node has, and what a scheduler is told of them.
//!
//! A node outlives its schedulers, and so do its workers: when it joins one, it says which it has, and serves on with
//! those that are wanted. What happens while there is no scheduler only changes what the next one is told.
//!
//! A pure machine, which `remote.rs` drives live and the simulated cluster in virtual time.
//!
//! Invariants:
//! 1. A worker is listed from the instruction to start it until it is said to have stopped.
//! 2. A scheduler that a node has joined has been told of every worker that is listed, and of everything that happened
//!    to it since.

use config::ModelSpec;
use policy::Span;
use rpc::{FromNode, ModelInfo, Running, ToNode, WorkerId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Workers, by number.
#[derive(Debug, Default)]
pub struct Roster {
    workers: BTreeMap<WorkerId, Member>,
    leaving: bool,
}

#[derive(Debug)]
struct Member {
    spec: Option<Arc<ModelSpec>>,
    ready: Option<(ModelInfo, Vec<(usize, Span)>)>,
}

impl Roster {
    /// An instruction came from the scheduler. What to say instead of carrying it out, where it cannot be.
    pub fn on_instruction(&mut self, instruction: &ToNode) -> Option<FromNode> {
        let spec = match instruction {
            ToNode::Start { worker, .. } if self.leaving || self.workers.contains_key(worker) => {
                return Some(FromNode::Stopped { worker: *worker });
            }
            ToNode::Start { worker, spec } => Some((*worker, Some(spec.clone()))),
            ToNode::Virtual { worker, .. } => Some((*worker, None)),
            // Whoever asks for the end of a worker that is not here wants to hear that it ended.
            ToNode::Stop { worker } if !self.workers.contains_key(worker) => {
                return Some(FromNode::Stopped { worker: *worker });
            }
            ToNode::Stop { .. } | ToNode::Stretch { .. } | ToNode::Heartbeat => None,
        };
        if let Some((worker, spec)) = spec {
            self.workers.entry(worker).or_insert(Member { spec, ready: None });
        }
        None
    }

    /// Something happened to a worker.
    pub fn on_news(&mut self, news: &FromNode) {
        match news {
            FromNode::Ready { worker, info, measured } => {
                if let Some(member) = self.workers.get_mut(worker) {
                    member.ready = Some((info.clone(), measured.clone()));
                }
            }
            FromNode::Lost { worker, .. } => {
                if let Some(member) = self.workers.get_mut(worker) {
                    member.ready = None;
                }
            }
            FromNode::Stopped { worker } => drop(self.workers.remove(worker)),
            FromNode::Leaving => self.leaving = true,
            FromNode::Done { .. } | FromNode::Heartbeat => {}
        }
    }

    /// What a scheduler is told when the node joins it.
    pub fn running(&self) -> Vec<Running> {
        let running = |(worker, member): (&WorkerId, &Member)| Running {
            worker: *worker,
            spec: member.spec.clone(),
            ready: member.ready.clone(),
        };
        self.workers.iter().map(running).collect()
    }

    /// Whether the node was told to end.
    pub fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// Whether it has no workers.
    pub fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(worker: u64) -> ToNode {
        let spec = serde_json::from_str(r#"{"name": "m", "kind": "onnx", "path": "m.onnx"}"#).unwrap();
        ToNode::Start { worker: WorkerId(worker), spec: Arc::new(spec) }
    }

    fn ready(worker: u64) -> FromNode {
        let info = ModelInfo { inputs: vec![], outputs: vec![], max_batch: 4, runs_on: None };
        FromNode::Ready { worker: WorkerId(worker), info, measured: vec![(1, Span::from_millis(3))] }
    }

    #[test]
    fn the_next_scheduler_is_told_of_what_happened_while_there_was_none() {
        let mut roster = Roster::default();
        for worker in 1..=3 {
            assert!(roster.on_instruction(&start(worker)).is_none());
            roster.on_news(&ready(worker));
        }
        let (reason, again_in) = ("killed".into(), Span::ZERO);
        roster.on_news(&FromNode::Lost { worker: WorkerId(2), reason, again_in });
        roster.on_news(&FromNode::Stopped { worker: WorkerId(3) });
        let told: Vec<_> = roster.running().iter().map(|one| (one.worker.0, one.ready.is_some())).collect();
        assert_eq!(told, [(1, true), (2, false)]);
    }

    #[test]
    fn what_cannot_be_done_is_answered() {
        let mut roster = Roster::default();
        assert!(roster.on_instruction(&start(1)).is_none());
        assert!(matches!(roster.on_instruction(&start(1)), Some(FromNode::Stopped { worker: WorkerId(1) })));
        let unknown = ToNode::Stop { worker: WorkerId(9) };
        assert!(matches!(roster.on_instruction(&unknown), Some(FromNode::Stopped { worker: WorkerId(9) })));
        roster.on_news(&FromNode::Leaving);
        assert!(roster.on_instruction(&start(2)).is_some(), "a node that ends takes no workers");
        assert!(roster.is_leaving() && !roster.is_empty());
    }
}
