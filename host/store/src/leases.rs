//! Which leases are alive, for stores that belong to one process.
//!
//! Owns what nodes said about themselves since the store was opened. Must not write anything: a process that can open
//! such a store knows that every earlier holder is gone, so a lease of an unheard-of node is dead and recovery need not
//! wait for it. Invariant: a lease that was given since opening is alive until its own time or its node's last
//! heartbeat, whichever is later.

use std::collections::HashMap;

use super::{Error, Ownership};
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

    /// Whether another host holds a task than the one that a write names. One that was released, or whose holder is
    /// gone, may be written to until it is claimed: its run keeps what it has seen, and a host may go on with it.
    pub(super) fn check_holder(&self, holder: Option<Lease>, named: Option<NodeId>) -> Result<(), Error> {
        match named {
            Some(node) if holder.is_some_and(|lease| lease.node != node) && !self.is_gone(holder) => Err(Error::Lost),
            _ => Ok(()),
        }
    }

    /// Whether nobody holds a task for certain, whatever the time: its holder has not been heard of since the store was
    /// opened.
    pub(super) fn is_gone(&self, holder: Option<Lease>) -> bool {
        holder.is_none_or(|lease| !self.nodes.contains_key(&lease.node))
    }

    /// The lease by which a task is held that is not over, once its record says `task`.
    pub(super) fn holder_after(before: Option<Lease>, task: Option<Lease>, then: Ownership) -> Option<Lease> {
        match then {
            Ownership::Stays => task.or(before),
            Ownership::Released => None,
        }
    }

    /// Whether a node may still be working under this lease.
    pub(super) fn alive(&self, lease: Option<Lease>, now: UnixMs) -> bool {
        lease.is_some_and(|lease| self.nodes.get(&lease.node).is_some_and(|reach| lease.until.max(*reach) > now))
    }
}
