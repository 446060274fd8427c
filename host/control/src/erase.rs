//! Erasing a tenant: everything that is stored of it, and the bytes on the disk.
//!
//! Owns the order of the steps. Must not know how any of them is done. Invariant: whenever the process ends, doing it
//! again ends with nothing of the tenant left; until then a mark in the data directory says that it is not over.

use futures::future::try_join_all;
use parking_lot::Mutex;

use super::ControlError;
use super::operator::HostOperator;
use super::views::{StoreRebuildView, TenantListView, TenantPurgeView, TenantView};
use bulkhead_audit::Entry;
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_plugins as plugins;
use bulkhead_runtime as runtime;
use bulkhead_store::{self as store, RowKind};

/// Removals that wait for the disk together.
const PAGE: usize = 256;
/// How many passes a removal makes while a host still writes.
const ROUNDS_MAX: u32 = 5;

/// Losses that a message names.
const LOST_SHOWN: usize = 5;

/// Who must let a tenant go that is being erased, because they keep something of it in memory that they would write
/// again.
#[derive(Default)]
pub struct EraseHooks(Mutex<Vec<Leave>>);

type Leave = Box<dyn Fn(TenantId) + Send + Sync>;

impl EraseHooks {
    pub fn add(&self, leave: impl Fn(TenantId) + Send + Sync + 'static) {
        self.0.lock().push(Box::new(leave));
    }
}

/// What was removed.
#[derive(Debug, Default)]
struct Removed {
    tasks: u64,
    tokens: u64,
    principals: u64,
    sessions: u64,
    rows: u64,
    /// That the tenant was in.
    canaries: u64,
}

impl Removed {
    fn total(&self) -> u64 {
        self.tasks + self.tokens + self.principals + self.sessions + self.rows + self.canaries
    }
}

/// What could not be read may belong to another tenant, and is in the old store alone: only the operator can let that
/// go.
fn refuse_losses(StoreRebuildView { moved, old_store }: &StoreRebuildView) -> Result<(), ControlError> {
    let lost = &moved.lost;
    if lost.is_empty() {
        return Ok(());
    }
    let count = lost.len();
    let shown = lost.get(..LOST_SHOWN).unwrap_or(lost).join("; ");
    Err(ControlError::Failed(format!(
        "the tenant is not erased: the database was made anew, but not all of the old one could be read ({count}: {shown}). It is left \
         in {}, with what it holds of everybody: copy that away if you need it, then do this once more, which removes it",
        old_store.display()
    )))
}

impl HostOperator {
    pub(super) async fn list_tenants(&self) -> Result<TenantListView, ControlError> {
        let names = self.principals.names().await?;
        let tokens = self.principals.tokens().await?;
        let now = self.clock.now();
        let mut tenants = Vec::new();
        for (name, id) in self.principals.tenants().await? {
            // What a tenant has is the same whichever of its requestors is asked about.
            let (_, usage) = self.store.usage(&Requestor { tenant: id, id: RequestorId([0; 16]) }).await?;
            tenants.push(TenantView {
                id: id.to_string(),
                requestors: names.iter().filter(|named| named.requestor.tenant == id).count(),
                tokens: tokens.iter().filter(|token| token.tenant == name && token.is_active(now)).count(),
                tasks: usage.tasks,
                bytes: usage.bytes,
                name,
            });
        }
        Ok(TenantListView { tenants })
    }

    /// Stops and removes everything of a tenant, then makes the database anew, so that no byte of it is left in the
    /// files.
    pub(super) async fn purge_tenant(&self, name: &str) -> Result<TenantPurgeView, ControlError> {
        let _one_at_a_time = self.purging.lock().await;
        if self.store.is_shared() {
            let why = "hosts share the database: end all of them, and give this with a configuration without [cluster]";
            return Err(ControlError::Failed(why.to_owned()));
        }
        let found = self.principals.find_tenant(name).await?;
        let mut tenants = self.maintenance.erasing().await?;
        if found.is_none() && tenants.is_empty() {
            let advice = "`bulkhead tenant list` shows the names";
            return Err(ControlError::NotFound(format!("there is no tenant {name:?}; {advice}")));
        }
        tenants.extend(found.filter(|id| !tenants.contains(id)));
        self.maintenance.set_erasing(&tenants).await?;
        for tenant in &tenants {
            self.task_control.block_tenant(*tenant);
            self.store.block_tenant(*tenant).await?;
            self.erase_hooks.0.lock().iter().for_each(|leave| leave(*tenant));
        }
        let mut removed = Removed::default();
        let mut old_stores = 0;
        for round in 0.. {
            let before = removed.total();
            for tenant in &tenants {
                self.remove_everything(*tenant, &mut removed).await?;
            }
            if round > 0 && removed.total() == before {
                break;
            }
            if round == ROUNDS_MAX {
                let why = "something of the tenant is written again and again: do it once more, with the host stopped";
                return Err(ControlError::Failed(why.to_owned()));
            }
            // What an engine removes it only forgets.
            let rebuilt = self.maintenance.forget_removed().await?;
            refuse_losses(&rebuilt)?;
            old_stores += self.maintenance.remove_old_stores().await?;
        }
        self.maintenance.set_erasing(&[]).await?;
        for tenant in &tenants {
            tracing::info!(%tenant, "a tenant was erased");
            self.audit.note(|| Entry::new("tenant.purged").of_tenant(*tenant).count(removed.total()));
        }
        Ok(TenantPurgeView {
            tenants: tenants.iter().map(ToString::to_string).collect(),
            tasks: removed.tasks,
            tokens: removed.tokens,
            principals: removed.principals,
            sessions: removed.sessions,
            rows: removed.rows,
            canaries: removed.canaries,
            old_stores,
            directories: self.directories_of(name).await,
        })
    }

    /// What the host made by the tenant's name where plugins may write: it is the operator's.
    async fn directories_of(&self, name: &str) -> Vec<String> {
        let granted = match &self.running_host {
            Some(running_host) => running_host.reload.directories().await,
            None => self.directories.clone(),
        };
        runtime::directories_of(&granted, name).iter().map(|path| path.display().to_string()).collect()
    }

    async fn remove_everything(&self, tenant: TenantId, removed: &mut Removed) -> Result<(), ControlError> {
        removed.tokens += self.principals.remove_tokens(tenant).await?;
        removed.sessions += self.maintenance.remove_sessions(tenant).await?;
        loop {
            let tasks = self.store.tasks_of(tenant, PAGE).await?;
            try_join_all(tasks.iter().map(|(requestor, id)| self.store.remove(requestor, *id))).await?;
            removed.tasks += tasks.len() as u64;
            if tasks.len() < PAGE {
                break;
            }
        }
        for kind in RowKind::ALL {
            removed.rows += self.remove_rows(kind, tenant).await?;
        }
        removed.canaries += match &self.plugin_admin {
            Some(plugin_admin) => plugin_admin.plugins.forget_tenant(tenant).await.map_err(super::plugins::failed)?,
            None => plugins::forget_tenant(&*self.store, tenant, self.clock.now()).await?,
        };
        // The names go last: with them, the tenant cannot be found any more.
        removed.principals += self.principals.remove_tenant(tenant).await?;
        Ok(())
    }

    /// The rows whose keys say that they are the tenant's.
    async fn remove_rows(&self, kind: RowKind, tenant: TenantId) -> Result<u64, store::Error> {
        let mut count = 0;
        let mut after = None::<Vec<u8>>;
        loop {
            let page = self.store.rows(kind, after.as_deref(), PAGE).await?;
            let Some((last, _)) = page.last() else { return Ok(count) };
            after = Some(last.clone());
            let own: Vec<_> = page.iter().filter(|(key, _)| kind.tenant_of(key) == Some(tenant)).collect();
            try_join_all(own.iter().map(|(key, _)| self.store.remove_row(kind, key))).await?;
            count += own.len() as u64;
        }
    }
}
