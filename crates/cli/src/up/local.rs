//! Gateway, scheduler and node in one process: how each reaches the others by calls.

use gateway::admin::LogSource;
use gateway::flights::Session;
use gateway::{Gateway, Links, OrderOutcome};
use node::{Node, SchedulerLink};
use rpc::{Arrival, Catalog, FromNode, Order, Overview, Part, ToGateway, ToNode, WorkerId};
use scheduler::{GatewayLink, NodeLink, Scheduler};
use std::sync::{Arc, Weak};
use tokio::sync::oneshot;

/// The number of the only node.
pub(super) const NODE: u32 = 0;

/// The gateway's way to the scheduler and to the node.
pub(super) struct LocalLinks {
    pub(super) scheduler: Scheduler,
    pub(super) node: Arc<Node>,
}

impl Links for LocalLinks {
    fn announce(&self, _: Session, arrival: Arrival) -> bool {
        self.scheduler.arrival(arrival);
        true
    }

    fn send_part(&self, part: Part) {
        self.node.run(part);
    }

    fn withdraw(&self, request: u64, model: u32) {
        self.scheduler.withdrawn(request, model);
    }

    fn undelivered(&self, worker: WorkerId, batch: u64, nobody: bool) {
        self.scheduler.undelivered(worker, batch, nobody);
    }

    fn order(&self, order: Order) -> OrderOutcome {
        let (send, outcome) = oneshot::channel();
        self.scheduler.order(order, move |outcome| drop(send.send(outcome)));
        outcome
    }
}

/// The scheduler's way to the gateway.
pub(super) struct LocalGateway(pub(super) Arc<Gateway>);

impl GatewayLink for LocalGateway {
    fn send(&self, message: ToGateway) {
        self.0.tell(message);
    }

    fn publish_catalog(&self, catalog: Catalog) {
        self.0.publish(catalog);
    }

    fn publish_overview(&self, overview: Overview) {
        self.0.look(overview);
    }

    fn close(&self, _: &str) {}

    fn is_leased(&self) -> bool {
        false
    }
}

/// The scheduler's way to the node.
pub(super) struct LocalNode(pub(super) Arc<Node>);

impl NodeLink for LocalNode {
    fn send(&self, instruction: ToNode) {
        self.0.order(instruction);
    }

    fn close(&self, _: &str) {}

    fn is_leased(&self) -> bool {
        false
    }
}

/// The node's way to the scheduler.
pub(super) struct LocalScheduler(pub(super) Scheduler);

impl SchedulerLink for LocalScheduler {
    fn report(&self, news: FromNode) {
        self.0.news(NODE, news);
    }
}

/// What the workers of a model printed, each line with its worker's number.
pub(super) struct NodeLogs(pub(super) Weak<Node>);

impl LogSource for NodeLogs {
    fn last_lines(&self, model: &str, lines: usize) -> Vec<String> {
        let Some(node) = self.0.upgrade() else { return Vec::new() };
        // The node knows its workers; what the scheduler last said of them may be a second old.
        let lines_of = |worker: WorkerId| {
            node.logs(worker, lines).into_iter().map(move |line| format!("{}: {line}", worker.number()))
        };
        node.workers_of(model).into_iter().flat_map(lines_of).collect()
    }
}
