//! Sessions of those who joined.

use crate::link::{GatewayLink, NodeLink};
use policy::Span;
use rpc::{Incarnation, NodeView};
use std::sync::Arc;

/// A gateway's session.
pub(crate) struct Gateway {
    pub(crate) link: Box<dyn GatewayLink>,
    /// How long it has not been heard of.
    pub(crate) unheard: Span,
    pub(crate) silent: bool,
}

/// A node's session.
pub(crate) struct Node {
    pub(crate) link: Box<dyn NodeLink>,
    pub(crate) name: String,
    pub(crate) incarnation: Incarnation,
    pub(crate) address: Arc<str>,
    /// How long it has not been heard of.
    pub(crate) unheard: Span,
    pub(crate) silent: bool,
    /// Whether some of its workers are given nothing until it is heard of.
    pub(crate) has_silent_workers: bool,
    /// Whether it takes no more workers and gets rid of those it has.
    pub(crate) leaving: bool,
}

impl Node {
    /// How people and gateways see it.
    pub(crate) fn view(&self, node: u32) -> NodeView {
        NodeView { node, name: self.name.clone(), address: self.address.to_string() }
    }
}
