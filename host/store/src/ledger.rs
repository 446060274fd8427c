//! Who has stored how much, and the caps on it.

use super::Error;
use bulkhead_domain::requestor::Requestor;
use bulkhead_limits::scoped::{Amount, Full, Scope, ScopedTable};

/// Caps that a create is checked against, in the same atomic step as the write.
#[derive(Clone, Copy, Debug)]
pub struct StoredCaps {
    pub tasks_per_requestor: u32,
    pub bytes_per_requestor: u64,
    pub tasks_per_tenant: u32,
    pub bytes_per_tenant: u64,
}

impl StoredCaps {
    /// Counts a new task, or more of one, if there is room for it.
    pub(crate) fn admit(&self, ledger: &mut Ledger, requestor: &Requestor, more: Usage) -> Result<(), Error> {
        let tasks = |usage: &Usage| usage.tasks;
        let bytes = |usage: &Usage| usage.bytes;
        let bounds = [
            Scope::Requestor.bound_of(tasks, "tasks_stored_per_requestor", self.tasks_per_requestor),
            Scope::Requestor.bound_of(bytes, "tasks_stored_bytes_per_requestor", self.bytes_per_requestor),
            Scope::Tenant.bound_of(tasks, "tasks_stored_per_tenant", self.tasks_per_tenant),
            Scope::Tenant.bound_of(bytes, "tasks_stored_bytes_per_tenant", self.bytes_per_tenant),
        ];
        ledger.try_add(requestor, more, bounds).map_err(|Full { limit, value }| Error::Quota { limit, value })
    }
}

/// Who has stored how much: the sum over the tasks that were added and not yet removed, with their journals.
pub(crate) type Ledger = ScopedTable<Requestor, Usage>;

/// What a requestor and its tenant have stored.
pub(crate) fn stored(ledger: &Ledger, requestor: &Requestor) -> (Usage, Usage) {
    let held = ledger.held(requestor);
    (held.requestor, held.tenant)
}

/// What a requestor or tenant has stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub tasks: u64,
    /// Records, arguments, outputs, journals, and the bytes reserved for outputs that are not there yet.
    pub bytes: u64,
}

impl Amount for Usage {
    fn zip(self, other: Self, with: fn(u64, u64) -> u64) -> Self {
        Self { tasks: with(self.tasks, other.tasks), bytes: with(self.bytes, other.bytes) }
    }
}
