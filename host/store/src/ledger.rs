//! Who has stored how much.
//!
//! Owns the counters that quotas are checked against. Must not know where anything is stored. Invariant: each counter is the sum
//! over the tasks that were added and not yet taken away; nothing is ever counted below zero.

use std::hash::Hash;

use rustc_hash::FxHashMap;

use super::{Error, StoredCaps, Usage};
use bulkhead_domain::requestor::{Requestor, TenantId};

/// Counters of a requestor and its tenant.
#[derive(Default)]
pub(super) struct Ledger {
    requestors: FxHashMap<Requestor, Usage>,
    tenants: FxHashMap<TenantId, Usage>,
}

impl Ledger {
    /// Counts a new task of `bytes`, if all four caps allow it; changes nothing otherwise.
    pub(super) fn admit(&mut self, requestor: &Requestor, bytes: u64, caps: &StoredCaps) -> Result<(), Error> {
        let (own, tenant) = self.of(requestor);
        let checks = [
            ("tasks_stored_per_requestor", own.tasks, 1, u64::from(caps.tasks_per_requestor)),
            ("tasks_stored_bytes_per_requestor", own.bytes, bytes, caps.bytes_per_requestor),
            ("tasks_stored_per_tenant", tenant.tasks, 1, u64::from(caps.tasks_per_tenant)),
            ("tasks_stored_bytes_per_tenant", tenant.bytes, bytes, caps.bytes_per_tenant),
        ];
        for (limit, used, more, value) in checks {
            if used.saturating_add(more) > value {
                return Err(Error::Quota { limit, value });
            }
        }
        self.add(requestor, Usage { tasks: 1, bytes });
        Ok(())
    }

    /// Counts more, without a check.
    pub(super) fn add(&mut self, requestor: &Requestor, more: Usage) {
        for usage in [self.requestors.entry(*requestor).or_default(), self.tenants.entry(requestor.tenant).or_default()]
        {
            usage.tasks = usage.tasks.saturating_add(more.tasks);
            usage.bytes = usage.bytes.saturating_add(more.bytes);
        }
    }

    /// Counts less. Who has nothing left is forgotten, so that the counters do not outgrow the tasks.
    pub(super) fn take(&mut self, requestor: &Requestor, less: Usage) {
        take_from(&mut self.requestors, requestor, less);
        take_from(&mut self.tenants, &requestor.tenant, less);
    }

    /// Every requestor that has something, with what it has.
    pub(super) fn requestors(&self) -> impl Iterator<Item = (&Requestor, &Usage)> {
        self.requestors.iter()
    }

    /// What the requestor and its tenant have.
    pub(super) fn of(&self, requestor: &Requestor) -> (Usage, Usage) {
        let own = self.requestors.get(requestor).copied().unwrap_or_default();
        let tenant = self.tenants.get(&requestor.tenant).copied().unwrap_or_default();
        (own, tenant)
    }
}

fn take_from<K: Eq + Hash>(usages: &mut FxHashMap<K, Usage>, key: &K, less: Usage) {
    if let Some(usage) = usages.get_mut(key) {
        usage.tasks = usage.tasks.saturating_sub(less.tasks);
        usage.bytes = usage.bytes.saturating_sub(less.bytes);
        if *usage == Usage::default() {
            usages.remove(key);
        }
    }
}
