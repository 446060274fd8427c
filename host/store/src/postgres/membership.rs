//! This host among those that share a schema: its name, and until when it counts as one that lives.
//!
//! Must not talk to the server. Invariant: a host that could not renew its lease in time counts itself as lost before
//! the others may bury it.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::super::{Error, RowKind};
use super::schema::lock_number;
use bulkhead_domain::task::NodeId;

/// A host that shares its schema with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostOptions {
    /// As operators know it.
    pub name: String,
    /// How long it lives after it was heard of last.
    pub lease: Duration,
}

/// Kinds of rows whose changes hosts count, because they keep them in memory.
pub(super) const FOLLOWED: [RowKind; 3] = [RowKind::Token, RowKind::Principal, RowKind::Plugin];
/// How long what is kept in memory is used without asking.
const SEEN_FOR: Duration = Duration::from_millis(1_500);

/// What the server counted of changes of rows of [`FOLLOWED`] kinds.
#[derive(Default)]
pub(super) struct RowsSeen {
    /// When it was asked; `None`: it has to be asked again.
    pub(super) at: Option<Instant>,
    pub(super) numbers: [u64; FOLLOWED.len()],
}

impl RowsSeen {
    /// The number of a kind, while it is fresh enough.
    pub(super) fn number(&self, kind: RowKind) -> Option<u64> {
        let index = FOLLOWED.iter().position(|followed| *followed == kind)?;
        self.at.filter(|at| at.elapsed() < SEEN_FOR)?;
        self.numbers.get(index).copied()
    }
}

/// This host among those that share the schema.
pub(super) struct Membership {
    pub(super) options: HostOptions,
    node: Mutex<NodeId>,
    /// Until when no other host can have buried this one.
    lives_until: Mutex<Instant>,
    /// Hosts that live, this one included.
    pub(super) living: watch::Sender<usize>,
    /// Keeps the locks of groups of one schema from those of others.
    pub(super) stripes_of: i32,
    /// This host has changed tasks.
    pub(super) has_changed: Notify,
    /// Another host has.
    pub(super) others_changed: Notify,
    /// Letters that were given last: they go once letters are taken again.
    pub(super) letters_given: Mutex<Vec<i64>>,
    /// Another host has changed something, which may be rows that this one keeps in memory.
    pub(super) others_wrote: Notify,
    /// What the server counts of changes of rows, and when it was asked last.
    pub(super) rows_seen: watch::Sender<RowsSeen>,
    /// How often the connection was new when letters were taken last.
    pub(super) reconnects_seen: Mutex<Option<u64>>,
}

impl Membership {
    pub(super) fn new(options: HostOptions, schema: &str) -> Result<Self, Error> {
        Ok(Self {
            options,
            node: Mutex::new(draw_node()?),
            lives_until: Mutex::new(Instant::now()),
            living: watch::Sender::new(1),
            stripes_of: i32::try_from(lock_number("stripes", schema) >> 32).unwrap_or_default(),
            has_changed: Notify::new(),
            others_changed: Notify::new(),
            others_wrote: Notify::new(),
            rows_seen: watch::Sender::default(),
            letters_given: Mutex::default(),
            reconnects_seen: Mutex::default(),
        })
    }

    pub(super) fn node(&self) -> NodeId {
        *self.node.lock()
    }

    /// This host has joined under another name.
    pub(super) fn become_node(&self, node: NodeId) {
        *self.node.lock() = node;
    }

    /// Whether another host may have buried this one.
    pub(super) fn is_late(&self) -> bool {
        Instant::now() >= *self.lives_until.lock()
    }

    pub(super) fn has_others(&self) -> bool {
        *self.living.borrow() > 1
    }

    /// So many hosts live, as the server counts them; this one does.
    pub(super) fn lives_with(&self, hosts: i64) {
        let hosts = usize::try_from(hosts).unwrap_or(1).max(1);
        self.living.send_if_modified(|living| std::mem::replace(living, hosts) != hosts);
    }

    /// A lease that was requested at this moment was given. A third of it is left for what is under way when it ends.
    pub(super) fn renewed(&self, requested_at: Instant) {
        *self.lives_until.lock() = requested_at + self.options.lease * 2 / 3;
    }

    pub(super) fn lease_ms(&self) -> i64 {
        i64::try_from(self.options.lease.as_millis()).unwrap_or(i64::MAX)
    }
}

/// A name for a host that nobody had before.
pub(super) fn draw_node() -> Result<NodeId, Error> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| Error::Engine(format!("no random bytes: {error}")))?;
    Ok(NodeId(id))
}
