//! Which leases are alive, for stores that belong to one process.
//!
//! Owns what nodes said about themselves since the store was opened. Must not write anything: a process that can open such a store
//! knows that every earlier holder is gone, so a lease of an unheard-of node is dead and recovery need not wait for it.
//! Invariant: a lease that was given since opening is alive until its own time or its node's last heartbeat, whichever is later.

use std::collections::HashMap;

use bulkhead_domain::UnixMs;
use bulkhead_domain::task::{Lease, NodeId};

/// The nodes heard of, with how far each one's last heartbeat reaches.
#[derive(Default)]
pub(super) struct Leases {
    nodes: HashMap<NodeId, UnixMs>,
}

impl Leases {
    /// A node took a lease on a task.
    pub(super) fn given(&mut self, node: NodeId) {
        self.nodes.entry(node).or_insert(0);
    }

    /// A node extended all that it holds.
    pub(super) fn heartbeat(&mut self, node: NodeId, until: UnixMs) {
        let reach = self.nodes.entry(node).or_insert(0);
        *reach = until.max(*reach);
    }

    /// Whether a node may still be working under this lease.
    pub(super) fn alive(&self, lease: Option<Lease>, now: UnixMs) -> bool {
        lease.is_some_and(|lease| self.nodes.get(&lease.node).is_some_and(|reach| lease.until.max(*reach) > now))
    }
}
