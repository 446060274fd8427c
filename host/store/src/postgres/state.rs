//! What readers, writers and the committer of one store share.
//!
//! Must not talk to the server. Invariant: what is counted here is what the database holds and the group that is under
//! way.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::super::leases::Leases;
use super::super::tenant_keys::TenantKeys;
use super::super::{Error, Ledger, RowKind};
use super::address::Address;
use super::connection::{Connection, Dial};
use super::errors::unavailable;
use super::membership::Membership;
use bulkhead_domain::requestor::TenantId;
use bulkhead_metrics::StoreMetrics;

/// Why nothing is written at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// There is no connection; it is tried again.
    Unreachable,
    /// The server refuses writes, for this reason; it is tried again.
    Refused(String),
    /// Another host has taken the database over, or has declared this one dead: nothing is written or read any more,
    /// unless hosts share the schema and this one joins them again.
    Lost,
}

impl Trouble {
    /// What a caller is told.
    pub(super) fn error(&self) -> Error {
        match self {
            Self::Unreachable => unavailable(),
            Self::Refused(reason) => Error::ReadOnly(reason.clone()),
            Self::Lost => Error::Lost,
        }
    }

    /// Whether nothing can be read either.
    fn is_away(&self) -> bool {
        matches!(self, Self::Unreachable | Self::Lost)
    }

    pub(super) fn describe(&self) -> String {
        match self {
            Self::Unreachable => "the database cannot be reached, or does not answer; it is tried again".to_owned(),
            Self::Refused(reason) => reason.clone(),
            Self::Lost => "another host has taken over this schema of the database, or what this one held: one that has [cluster] joins \
                           again by itself, any other is to be ended"
                .to_owned(),
        }
    }
}

/// What is counted of the connection, from the opening on.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) statements: Arc<AtomicU64>,
    pub(super) reconnects: AtomicU64,
    pub(super) in_doubt: AtomicU64,
    pub(super) lost_groups: AtomicU64,
}

/// See the module.
pub(super) struct Shared {
    pub(super) address: Address,
    pub(super) dialer: Option<Arc<dyn Dial>>,
    pub(super) schema: String,
    /// Names this store in the fence; drawn anew with each opening.
    pub(super) holder: [u8; 16],
    /// None of a host that has the schema for itself.
    pub(super) membership: Option<Membership>,
    pub(super) ledger: Mutex<Ledger>,
    pub(super) leases: Mutex<Leases>,
    /// Tenants for which nothing new is written.
    pub(super) blocked_tenants: Mutex<HashSet<TenantId>>,
    pub(super) tenant_keys: TenantKeys,
    pub(super) metrics: OnceLock<StoreMetrics>,
    /// By the position of the kind in [`RowKind::ALL`].
    pub(super) generations: [AtomicU64; RowKind::ALL.len()],
    pub(super) counts: Counts,
    trouble: watch::Sender<Option<Trouble>>,
    /// A reader has found its connection broken, or waits for an answer for too long: the committer looks whether its
    /// own one works.
    pub(super) look: Notify,
}

impl Shared {
    pub(super) fn new(
        address: Address,
        dialer: Option<Arc<dyn Dial>>,
        schema: String,
        tenant_keys: TenantKeys,
        membership: Option<Membership>,
    ) -> Result<Self, Error> {
        let mut holder = [0; 16];
        getrandom::fill(&mut holder).map_err(|error| Error::Engine(format!("no random bytes: {error}")))?;
        Ok(Self {
            address,
            dialer,
            schema,
            holder,
            membership,
            ledger: Mutex::default(),
            leases: Mutex::default(),
            blocked_tenants: Mutex::default(),
            tenant_keys,
            metrics: OnceLock::new(),
            generations: std::array::from_fn(|_| AtomicU64::new(0)),
            counts: Counts::default(),
            trouble: watch::Sender::new(None),
            look: Notify::new(),
        })
    }

    /// A new session.
    pub(super) async fn connect(&self) -> Result<Connection, Error> {
        let connection = Connection::open(&self.address, self.dialer.as_ref(), &self.schema).await?;
        Ok(self.counted(connection))
    }

    /// What is sent over the connection from now on is counted here.
    pub(super) fn counted(&self, mut connection: Connection) -> Connection {
        connection.sent = Arc::clone(&self.counts.statements);
        connection
    }

    pub(super) fn trouble(&self) -> Option<Trouble> {
        self.trouble.borrow().clone()
    }

    /// Refuses at once what the server would have to answer, while it does not.
    pub(super) fn refuse_if_away(&self) -> Result<(), Error> {
        match &*self.trouble.borrow() {
            Some(trouble) if trouble.is_away() => Err(trouble.error()),
            _ => Ok(()),
        }
    }

    /// The refusal for what waits for an answer, as soon as the server turns out to be away.
    pub(super) async fn away(&self) -> Error {
        let is_away = |trouble: &Option<Trouble>| trouble.as_ref().is_some_and(Trouble::is_away);
        let mut watched = self.trouble.subscribe();
        // Its sender lives as long as this.
        watched
            .wait_for(is_away)
            .await
            .ok()
            .and_then(|trouble| trouble.as_ref().map(Trouble::error))
            .unwrap_or_else(unavailable)
    }

    /// Says it in the log when it changes.
    pub(super) fn set_trouble(&self, trouble: Option<Trouble>) {
        self.trouble.send_if_modified(|present| {
            // There is no way back: the counts of this process are of the past.
            if *present == trouble || *present == Some(Trouble::Lost) {
                return false;
            }
            match &trouble {
                Some(trouble) => tracing::error!(reason = trouble.describe(), "the store takes no writes"),
                None => tracing::info!("the store takes writes again"),
            }
            *present = trouble;
            true
        });
    }

    /// Writes go on under another name.
    pub(super) fn rejoined(&self) {
        self.trouble.send_replace(None);
        tracing::info!("this host has joined the others again");
    }

    /// Returns once nothing is written any more.
    pub(super) async fn lost(&self) {
        let mut watched = self.trouble.subscribe();
        // Its sender lives as long as this.
        let _ = watched.wait_for(|trouble| *trouble == Some(Trouble::Lost)).await;
    }

    /// Rows of these kinds have changed.
    pub(super) fn advance(&self, kinds: &HashSet<RowKind>) {
        for (kind, generation) in RowKind::ALL.iter().zip(&self.generations) {
            if kinds.contains(kind) {
                generation.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    /// See [`RowStore::generation`](crate::RowStore::generation).
    pub(super) fn generation(&self, kind: RowKind) -> Option<u64> {
        if self.trouble() == Some(Trouble::Lost) {
            return None;
        }
        let index = RowKind::ALL.iter().position(|known| *known == kind)?;
        let own = self.generations.get(index)?.load(Ordering::SeqCst);
        match &self.membership {
            None => Some(own),
            // Other hosts change rows as well. Each of the two numbers only grows.
            Some(membership) => Some((membership.rows_seen.borrow().number(kind)? << 32) | (own & u64::from(u32::MAX))),
        }
    }
}
