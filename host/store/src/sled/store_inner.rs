//! What readers, writers and the committer of one store share.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::super::leases::Leases;
use super::super::record::{self, Owner};
use super::super::{Error, Ledger};
use super::change_capture::ChangeCapture;
use super::sealing::Sealing;
use super::view::View;
use crate::vault::SealingKey;
use bulkhead_domain::requestor::{Requestor, TenantId};
use bulkhead_domain::task::{Task, TaskId, TaskOutput};
use bulkhead_metrics::StoreMetrics;

/// See the module.
#[derive(Default)]
pub(super) struct StoreInner {
    pub(super) view: Arc<View>,
    pub(super) sealing: Sealing,
    pub(super) change_capture: Arc<ChangeCapture>,
    pub(super) ledger: Mutex<Ledger>,
    pub(super) leases: Mutex<Leases>,
    pub(super) read_only: Mutex<Option<String>>,
    /// Tenants for which nothing new is written.
    pub(super) blocked_tenants: Mutex<HashSet<TenantId>>,
    pub(super) metrics: OnceLock<StoreMetrics>,
}

impl StoreInner {
    pub(super) fn with_ledger<R>(&self, act: impl FnOnce(&mut Ledger) -> R) -> R {
        act(&mut self.ledger.lock())
    }

    pub(super) fn with_leases<R>(&self, act: impl FnOnce(&mut Leases) -> R) -> R {
        act(&mut self.leases.lock())
    }

    pub(super) fn with_blocked_tenants<R>(&self, act: impl FnOnce(&mut HashSet<TenantId>) -> R) -> R {
        act(&mut self.blocked_tenants.lock())
    }

    /// The key of a requestor whose data is sealed.
    pub(super) fn key_of(&self, requestor: &Requestor) -> Result<SealingKey, Error> {
        self.sealing.needed(requestor.tenant, &self.view)
    }

    pub(super) fn open_task(&self, bytes: &[u8]) -> Result<Task, Error> {
        record::open_task(bytes, |requestor| self.key_of(requestor))
    }

    pub(super) fn open_output(&self, bytes: &[u8], requestor: &Requestor, id: TaskId) -> Result<TaskOutput, Error> {
        record::open_output(bytes, Owner { requestor, id }, || self.key_of(requestor))
    }

    pub(super) fn read_only(&self) -> Option<String> {
        self.read_only.lock().clone()
    }

    pub(super) fn set_read_only(&self, reason: Option<String>) {
        *self.read_only.lock() = reason;
    }
}
