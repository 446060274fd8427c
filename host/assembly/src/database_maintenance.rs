//! What operators can have done to a store in PostgreSQL.
//!
//! Owns what there is beside the ports; what the database's own tools do better, it names. Must not touch the data
//! directory. Invariant: a command that this engine does not have is refused with what takes its place, and does
//! nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bulkhead_control::operator::StoreMaintenance;
use bulkhead_control::views::{StoreCheckView, StoreRebuildView};
use bulkhead_domain::requestor::TenantId;
use bulkhead_store::postgres::{self, PostgresStore};
use bulkhead_store::sled::{Moved, Rekeyed};
use bulkhead_store::{Error, RowKind, RowStore as _};
use bulkhead_transport::session;
use tokio::runtime::Handle;

use super::store_maintenance::{blocking, export_to};

/// Begins the keys of rows that name tenants whose erasure is not over.
const ERASING: &[u8] = b"erasing ";
const PAGE_ROWS: usize = 256;

/// See the module.
pub(crate) struct DatabaseMaintenance {
    pub(crate) store: Arc<PostgresStore>,
}

/// Why a command is not carried out, and what does the same.
pub(crate) fn refusal(command: &str) -> Error {
    let instead = match command {
        "backup" => {
            "`pg_dump --schema`, or a base backup with the write-ahead log, copies the database; copy components/ of the data directory after it"
        }
        _ => {
            "`store rebuild --from FILE` fills an empty schema from an export; a damaged database is restored from its backups, to a point in time"
        }
    };
    Error::Engine(format!("the store is in PostgreSQL, where `store {command}` does nothing: {instead}"))
}

#[async_trait]
impl StoreMaintenance for DatabaseMaintenance {
    async fn check(&self) -> Result<StoreCheckView, Error> {
        Ok(postgres::check(&self.store).await?.into())
    }

    async fn export(&self, file: &Path) -> Result<Moved, Error> {
        if !self.erasing().await?.is_empty() {
            // What is noted of an erasure is not in the lines of an export.
            let why = "a tenant is not erased completely: repeat `bulkhead tenant purge`, then export";
            return Err(Error::Engine(why.to_owned()));
        }
        let store = Arc::clone(&self.store);
        let file = file.to_owned();
        let runtime = Handle::current();
        blocking(move || export_to(&file, |out| runtime.block_on(postgres::export(&store, out)))).await
    }

    async fn rebuild(&self, from: Option<&Path>) -> Result<StoreRebuildView, Error> {
        if from.is_some() {
            let why = "an export goes into an empty schema: stop this host, and name another schema in [store]";
            return Err(Error::Locked(why.to_owned()));
        }
        Err(refusal("rebuild"))
    }

    async fn forget_removed(&self) -> Result<StoreRebuildView, Error> {
        self.store.rewrite().await?;
        Ok(StoreRebuildView { moved: Moved::default(), old_store: PathBuf::new() })
    }

    async fn backup(&self, _: &Path) -> Result<u64, Error> {
        Err(refusal("backup"))
    }

    async fn rekey(&self) -> Result<Rekeyed, Error> {
        postgres::rekey(&self.store).await
    }

    /// There are none: nothing is ever put in the place of a database.
    async fn remove_old_stores(&self) -> Result<u64, Error> {
        Ok(0)
    }

    async fn remove_sessions(&self, tenant: TenantId) -> Result<u64, Error> {
        session::remove_rows(&*self.store, tenant).await
    }

    async fn erasing(&self) -> Result<Vec<TenantId>, Error> {
        let mut tenants = Vec::new();
        let mut after = ERASING.to_vec();
        loop {
            let page = self.store.rows(RowKind::Secret, Some(&after), PAGE_ROWS).await?;
            let Some((last, _)) = page.last() else { return Ok(tenants) };
            after = last.clone();
            for (key, _) in &page {
                let Some(tenant) = key.strip_prefix(ERASING) else { return Ok(tenants) };
                tenants.extend(tenant.try_into().ok().map(TenantId));
            }
        }
    }

    async fn set_erasing(&self, tenants: &[TenantId]) -> Result<(), Error> {
        let key = |tenant: &TenantId| [ERASING, &tenant.0].concat();
        let over: Vec<_> = self.erasing().await?.into_iter().filter(|tenant| !tenants.contains(tenant)).collect();
        let gone = over.iter().map(|tenant| (key(tenant), None));
        let changes = gone.chain(tenants.iter().map(|tenant| (key(tenant), Some(Vec::new())))).collect();
        self.store.change_rows(RowKind::Secret, Vec::new(), changes, None).await
    }
}
