//! The store on PostgreSQL: one host on one schema of a database, or several that share it.
//!
//! Owns the tables, the sessions and the one writer of this host. Only this module and its children import
//! `tokio_postgres`. Must not write past a host that has taken the schema over, and must not let a password or an
//! address into a log. Invariant: an acknowledged write is durable at the server (which is refused if it would lose one
//! in a crash), and a reader sees nothing that is not.
//!
//! Who has stored how much, which leases live and which tenants are blocked is counted in this process, as with sled:
//! the fence sees to it that no other one writes. Where hosts share a schema, each has a fence of its own, and what has
//! to be known of the others is in the tables: see [`hosts`].

mod address;
mod check;
mod committer;
mod components;
mod connection;
mod errors;
mod export;
mod held;
mod host_port;
mod hosts;
mod import;
mod look;
mod membership;
mod news;
mod operation;
mod overlay;
mod planner;
mod port;
mod readers;
mod schema;
mod server;
mod snapshot;
mod sql;
mod state;
#[cfg(test)]
mod tests;
mod usage;
mod writes;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use tokio::sync::mpsc::Sender;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

pub use self::address::Address;
pub use self::check::check;
pub use self::connection::{Dial, DialFailure, Secured, Stream};
pub use self::export::export;
pub use self::import::rebuild;
pub use self::membership::HostOptions;
pub use self::server::ServerFacts;

use self::committer::Committer;
use self::connection::{Connection, Values};
use self::membership::Membership;
use self::operation::{Answer, Envelope, Operation};
use self::readers::Readers;
use self::sql::Sql;
use self::state::{Shared, Trouble};
use self::usage::count;
use self::writes::unreadable;
use super::tenant_keys::{self, TenantKeys, lost};
use super::{Error, RowKind, RowStore as _};
use crate::sled::Rekeyed;
use crate::vault::{SealingKey, VaultKeys};
use bulkhead_domain::requestor::TenantId;
use bulkhead_metrics::{Metrics, StoreMetrics};

/// Operations that wait for the committer; more wait outside.
const OPERATIONS_WAITING_MAX: usize = 1_024;

/// How to open a store.
#[derive(Clone)]
pub struct PostgresOptions {
    pub address: Address,
    /// The schema that is this host's alone.
    pub schema: String,
    /// What is private of tasks is sealed with these, by way of a key for each tenant; nothing without them.
    pub keys: Option<VaultKeys>,
    /// For a server that is reached over a network.
    pub dialer: Option<Arc<dyn Dial>>,
    /// Of a host that shares the schema with others; none: it is this host's alone.
    pub host: Option<HostOptions>,
}

/// What happened to the connection of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatabaseCounts {
    /// Statements that were sent.
    pub statements: u64,
    /// Times that the session which writes was made again.
    pub reconnects: u64,
    /// Groups of writes of which the server did not say whether they were done, before the connection broke.
    pub in_doubt: u64,
    /// Groups of writes that the server had acknowledged and lost.
    pub lost_groups: u64,
}

/// The store. Dropping it ends it; what was acknowledged is durable anyway.
pub struct PostgresStore {
    shared: Arc<Shared>,
    readers: Readers,
    operations: Sender<Envelope>,
    committer: Mutex<Option<JoinHandle<()>>>,
    /// What a host does that shares its schema. It ends with the store.
    beside: Mutex<JoinSet<()>>,
}

/// What a server says about itself, for looking at it before it is used.
///
/// # Errors
///
/// It cannot be reached, or refuses the host.
pub async fn examine(options: &PostgresOptions) -> Result<ServerFacts, Error> {
    address::check_schema(&options.schema)?;
    let connection = Connection::bare(&options.address, options.dialer.as_ref()).await?;
    server::facts(&connection).await.map_err(|failure| failure.undone())
}

/// A session in the schema, with the tables that this program needs, of a server that keeps what it acknowledges.
async fn prepare(options: &PostgresOptions) -> Result<(Connection, ServerFacts), Error> {
    let PostgresOptions { address, schema, dialer, .. } = options;
    address::check_schema(schema)?;
    let mut connection = Connection::bare(address, dialer.as_ref()).await?;
    let facts = server::facts(&connection).await.map_err(|failure| failure.undone())?;
    facts.check()?;
    if facts.asynchronous_standbys > 0 {
        tracing::warn!(
            standbys = facts.asynchronous_standbys,
            "standbys of the database are not synchronous: one that takes over may lack acknowledged writes"
        );
    }
    schema::migrate(&connection, schema).await?;
    connection.enter(schema).await.map_err(|failure| failure.undone())?;
    Ok((connection, facts))
}

impl PostgresStore {
    /// Opens the store of a schema, making both if need be.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] when the server cannot be reached, [`Error::Locked`] when another host has the schema,
    /// [`Error::Sealed`] when a key is missing; else a sentence that says what to change.
    pub async fn open(options: PostgresOptions) -> Result<Arc<Self>, Error> {
        let (connection, facts) = prepare(&options).await?;
        let PostgresOptions { address, schema, keys, dialer, host } = options;
        let membership = host.map(|host| Membership::new(host, &schema)).transpose()?;
        let is_shared = membership.is_some();
        let shared = Arc::new(Shared::new(address, dialer, schema, TenantKeys::new(keys), membership)?);
        let committer = Committer::open(Arc::clone(&shared), connection).await?;
        if !is_shared {
            *shared.ledger.lock() = count(committer.connection()?).await?;
        }
        check_keys(committer.connection()?, &shared.tenant_keys).await?;
        tracing::info!(version = facts.version, schema = shared.schema, "the store is in PostgreSQL");
        let (operations, waiting) = mpsc::channel(OPERATIONS_WAITING_MAX);
        let committer = tokio::spawn(committer.run(waiting));
        let mut beside = JoinSet::new();
        if is_shared {
            beside.spawn(hosts::keep_alive(Arc::clone(&shared)));
            beside.spawn(news::exchange(Arc::clone(&shared)));
            beside.spawn(news::follow_rows(Arc::clone(&shared)));
        }
        let readers = Readers::default();
        let committer = Mutex::new(Some(committer));
        Ok(Arc::new(Self { shared, readers, operations, committer, beside: Mutex::new(beside) }))
    }

    /// Counts what is written there from now on, once for ever.
    pub fn count(&self, metrics: &Metrics) {
        if let Some(metrics) = StoreMetrics::of(metrics, "postgres") {
            self.shared.metrics.get_or_init(|| metrics);
        }
    }

    /// What happened to the connection since the store was opened.
    pub fn counts(&self) -> DatabaseCounts {
        let counts = &self.shared.counts;
        DatabaseCounts {
            statements: counts.statements.load(Ordering::Relaxed),
            reconnects: counts.reconnects.load(Ordering::Relaxed),
            in_doubt: counts.in_doubt.load(Ordering::Relaxed),
            lost_groups: counts.lost_groups.load(Ordering::Relaxed),
        }
    }

    /// Operations that wait to be made durable, at most [`OPERATIONS_WAITING_MAX`].
    pub fn operations_waiting(&self) -> usize {
        OPERATIONS_WAITING_MAX.saturating_sub(self.operations.capacity())
    }

    /// Writes the tables anew, so that no byte of what was removed is left in them. Others wait meanwhile, for as long
    /// as that takes.
    ///
    /// # Errors
    ///
    /// The server refuses, or cannot be reached.
    pub async fn rewrite(&self) -> Result<(), Error> {
        let connection = self.shared.connect().await?;
        connection.rewrite(&["task", "journal", "stored_row"]).await.map_err(|failure| failure.undone())
    }

    /// Gives the committer an operation and waits for its answer.
    async fn ask(&self, operation: Operation) -> Result<Answer, Error> {
        // The committer may be busy with finding the server again.
        if !matches!(operation, Operation::Close | Operation::Rejoin) {
            self.shared.refuse_if_away()?;
        }
        let (reply, answer) = oneshot::channel();
        self.operations.send(Envelope { operation, reply }).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    async fn write(&self, operation: Operation) -> Result<(), Error> {
        self.ask(operation).await.map(drop)
    }

    async fn query(&self, sql: Sql, values: Values<'_>) -> Result<Vec<tokio_postgres::Row>, Error> {
        self.readers.query(&self.shared, sql, values).await
    }

    /// What a tenant's data is to be sealed with; `None` where nothing is. A first key is durable when this returns.
    async fn key_for_sealing(&self, tenant: TenantId) -> Result<Option<SealingKey>, Error> {
        let tenant_keys = &self.shared.tenant_keys;
        if !tenant_keys.is_sealing() {
            return Ok(None);
        }
        if let Some(key) = self.load_key(tenant).await? {
            return Ok(Some(key));
        }
        let wrapped = tenant_keys.draw(tenant)?;
        match self.put_row(RowKind::TenantKey, &tenant.0, wrapped, true).await {
            // Another writer was faster.
            Ok(()) | Err(Error::Exists) => self.load_key(tenant).await?.ok_or_else(lost).map(Some),
            Err(error) => Err(error),
        }
    }

    /// The key of a tenant that has one.
    async fn load_key(&self, tenant: TenantId) -> Result<Option<SealingKey>, Error> {
        if let Some(known) = self.shared.tenant_keys.known(tenant) {
            return Ok(Some(known));
        }
        let row = self.row(RowKind::TenantKey, &tenant.0).await?;
        row.map(|row| self.shared.tenant_keys.learn(tenant, &row)).transpose()
    }

    /// Opens what may be sealed. A key that was not needed so far is read first.
    async fn unseal<T>(
        &self,
        open: impl Fn(&dyn Fn(TenantId) -> Result<SealingKey, Error>) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let known = |tenant| self.shared.tenant_keys.known(tenant).ok_or_else(lost);
        let missing = {
            let missing = std::cell::Cell::new(None);
            let opened = open(&|tenant| known(tenant).inspect_err(|_| missing.set(Some(tenant))));
            let Some(tenant) = missing.get() else { return opened };
            tenant
        };
        self.load_key(missing).await?.ok_or_else(lost)?;
        open(&known)
    }
}

/// Seals the key of each tenant with the operator's first key, where an older one did.
///
/// # Errors
///
/// [`Error::Sealed`] when no key was given.
pub async fn rekey(store: &PostgresStore) -> Result<Rekeyed, Error> {
    tenant_keys::rekey(store, store.shared.tenant_keys.operator()?).await
}

fn closed() -> Error {
    Error::Engine("the store is closed".to_owned())
}

/// Refuses keys that do not open what is there.
async fn check_keys(connection: &Connection, tenant_keys: &TenantKeys) -> Result<(), Error> {
    let kind = RowKind::TenantKey as i16;
    let rows = connection.query(Sql::RowsFirst, &[&kind, &i64::MAX]).await.map_err(|failure| failure.undone())?;
    for row in &rows {
        let key: &[u8] = row.try_get(0).map_err(|error| unreadable(&error))?;
        let wrapped: &[u8] = row.try_get(1).map_err(|error| unreadable(&error))?;
        tenant_keys.check(key, wrapped)?;
    }
    Ok(())
}
