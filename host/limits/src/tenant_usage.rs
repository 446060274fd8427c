//! What tenants used since the counts were last taken: calls and bytes.
//!
//! Owns the counts in memory, one set a tenant. Must not know days or the store. Invariant: what is counted is taken
//! exactly once, and those who used nothing since have no entry unless something of theirs is open: there are at most
//! as many entries as tenants that did something meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

use bulkhead_domain::requestor::TenantId;

/// Tenants are spread over so many tables, so that no lock is shared by all.
const TABLES: usize = 64;

/// Counts of one tenant. They only grow.
#[derive(Debug, Default)]
pub struct UsageCounts {
    calls: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    refusals: AtomicU64,
    /// What of them was taken.
    taken: Mutex<TakenUsage>,
}

impl UsageCounts {
    /// A call has ended.
    pub fn add_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes of a request came.
    pub fn add_bytes_in(&self, bytes: u64) {
        self.bytes_in.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes of an answer went out.
    pub fn add_bytes_out(&self, bytes: u64) {
        self.bytes_out.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A quota or rate refused a request.
    pub fn add_refusal(&self) {
        self.refusals.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls that ended since there is an entry for the tenant.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Requests that were refused since there is an entry for the tenant.
    pub fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    fn take(&self) -> TakenUsage {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let now =
            TakenUsage { calls: read(&self.calls), bytes_in: read(&self.bytes_in), bytes_out: read(&self.bytes_out) };
        let before = std::mem::replace(&mut *self.taken.lock(), now);
        TakenUsage {
            calls: now.calls.wrapping_sub(before.calls),
            bytes_in: now.bytes_in.wrapping_sub(before.bytes_in),
            bytes_out: now.bytes_out.wrapping_sub(before.bytes_out),
        }
    }

    fn put_back(&self, usage: TakenUsage) {
        let mut taken = self.taken.lock();
        // An entry that was forgotten meanwhile begins anew, with more to take than it counted.
        taken.calls = taken.calls.wrapping_sub(usage.calls);
        taken.bytes_in = taken.bytes_in.wrapping_sub(usage.bytes_in);
        taken.bytes_out = taken.bytes_out.wrapping_sub(usage.bytes_out);
    }
}

/// What a tenant used between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakenUsage {
    pub calls: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
}

type Table = RwLock<FxHashMap<TenantId, Arc<UsageCounts>>>;

/// The counts of all tenants.
#[derive(Debug)]
pub struct TenantUsage {
    tables: [Table; TABLES],
}

impl Default for TenantUsage {
    fn default() -> Self {
        Self { tables: std::array::from_fn(|_| Table::default()) }
    }
}

impl TenantUsage {
    fn table(&self, tenant: TenantId) -> Option<&Table> {
        // The ids are random.
        let [first, ..] = tenant.0;
        self.tables.get(usize::from(first) % TABLES)
    }

    /// The counts of a tenant. They stay in the table for as long as a holder has them.
    pub fn of(&self, tenant: TenantId) -> Arc<UsageCounts> {
        let Some(table) = self.table(tenant) else { return Arc::default() };
        if let Some(known) = table.read().get(&tenant) {
            return Arc::clone(known);
        }
        Arc::clone(table.write().entry(tenant).or_default())
    }

    /// Puts back what could not be written.
    pub fn put_back(&self, tenant: TenantId, taken: TakenUsage) {
        self.of(tenant).put_back(taken);
    }

    /// What was used since the last time, by tenant. Forgets those who used nothing.
    pub fn take(&self) -> Vec<(TenantId, TakenUsage)> {
        let mut all = Vec::new();
        for table in &self.tables {
            table.write().retain(|tenant, counts| {
                // Before the counts are read: who holds them now may add to them after that.
                let is_held = Arc::strong_count(counts) > 1;
                let taken = counts.take();
                let is_used = taken != TakenUsage::default();
                if is_used {
                    all.push((*tenant, taken));
                }
                is_used || is_held
            });
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_taken_once_and_forgotten_when_there_is_none() {
        let usage = TenantUsage::default();
        let acme = TenantId([1; 16]);
        let open = usage.of(acme);
        open.add_call();
        open.add_bytes_in(7);
        usage.of(TenantId([2; 16])).add_bytes_out(9);
        let mut taken = usage.take();
        taken.sort_by_key(|(tenant, _)| tenant.0);
        let expected = TakenUsage { calls: 1, bytes_in: 7, bytes_out: 0 };
        assert_eq!(taken[0], (acme, expected));
        assert_eq!(taken[1].1, TakenUsage { bytes_out: 9, ..TakenUsage::default() });
        // Somebody still counts for one of them: that one is not lost.
        assert_eq!(usage.take(), []);
        open.add_bytes_out(3);
        usage.put_back(acme, expected);
        assert_eq!(usage.take(), [(acme, TakenUsage { bytes_out: 3, ..expected })]);
        drop(open);
        assert_eq!(usage.take(), []);
        assert!(usage.tables.iter().all(|table| table.read().is_empty()));
    }
}
