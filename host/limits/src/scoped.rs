//! So many for a requestor, for its tenant and for the host: counts, or bytes.
//!
//! Owns who holds how much, and the one place where more is taken or refused, [`ScopedTable::try_add`]. Must not know
//! what is counted. Invariants: nothing is taken beyond a bound that is asked; a refusal names its limit and changes
//! nothing; a requestor or a tenant that holds nothing has no entry.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::LiveLimits;
use bulkhead_domain::limits::Limits;
use bulkhead_domain::requestor::{Requestor, TenantId};

/// A limit that has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{limit} is at its limit of {value}")]
pub struct Full {
    pub limit: &'static str,
    pub value: u64,
}

/// How much of a limit is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitUsage {
    pub limit: &'static str,
    pub in_use: u64,
    pub max: u64,
}

impl LimitUsage {
    /// What a refusal by this limit says.
    pub fn full(self) -> Full {
        Full { limit: self.limit, value: self.max }
    }
}

/// What a requestor holds of its limits, and its tenant of the tenant's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestorUsage {
    pub requestor: Vec<LimitUsage>,
    pub tenant: Vec<LimitUsage>,
}

/// Reports what is in use of the limits that a module enforces.
pub trait UsageReport: Send + Sync + 'static {
    /// Of the limits of a requestor and of its tenant.
    fn in_use(&self, requestor: &Requestor) -> RequestorUsage;

    /// Of the host's limits.
    fn in_use_of_all(&self) -> Vec<LimitUsage>;
}

/// Who holds units: the narrowest scope, which belongs to a tenant. It is drawn by the host, never chosen by a client:
/// the tables hash fast.
pub trait ScopeKey: Copy + Eq + Hash {
    fn tenant(&self) -> TenantId;
}

impl ScopeKey for Requestor {
    fn tenant(&self) -> TenantId {
        self.tenant
    }
}

/// For a module that learns the tenant of units, but not their requestor.
impl<P: Copy + Eq + Hash> ScopeKey for (TenantId, P) {
    fn tenant(&self) -> TenantId {
        self.0
    }
}

/// What one scope holds: one number, or several that change together.
pub trait Amount: Copy + Default + PartialEq {
    /// Combines each number with its counterpart.
    fn zip(self, other: Self, with: fn(u64, u64) -> u64) -> Self;
}

impl Amount for u64 {
    fn zip(self, other: Self, with: fn(u64, u64) -> u64) -> Self {
        with(self, other)
    }
}

/// Whose units a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Requestor,
    Tenant,
    Total,
}

/// A limit on one number of one scope, as it is at this moment.
#[derive(Clone, Copy, Debug)]
pub struct Bound<A = u64> {
    scope: Scope,
    limit: &'static str,
    max: u64,
    reserved: u64,
    number: fn(&A) -> u64,
}

impl Scope {
    pub fn bound(self, limit: &'static str, max: impl Into<u64>) -> Bound {
        self.bound_of(|amount| *amount, limit, max)
    }

    /// The same for one of several numbers.
    pub fn bound_of<A>(self, number: fn(&A) -> u64, limit: &'static str, max: impl Into<u64>) -> Bound<A> {
        Bound { scope: self, limit, max: max.into(), reserved: 0, number }
    }
}

impl<A> Bound<A> {
    /// Keeps one unit in `share` for tenants that hold none yet: a few tenants cannot keep another one from its first.
    pub fn reserving(self, share: u64) -> Self {
        Self { reserved: self.max.checked_div(share).unwrap_or(0), ..self }
    }

    fn usage(&self, held: Held<&A>) -> LimitUsage {
        let reserved = if (self.number)(held.tenant) > 0 { self.reserved } else { 0 };
        LimitUsage { limit: self.limit, in_use: (self.number)(held.of(self.scope)), max: self.max - reserved }
    }
}

/// Whether so much more fits into every bound. A bound on a number of which nothing more is wanted is not asked.
fn check<A>(held: Held<&A>, more: &A, bounds: impl IntoIterator<Item = Bound<A>>) -> Result<(), Full> {
    for bound in bounds {
        let wanted = (bound.number)(more);
        let usage = bound.usage(held);
        if wanted > 0 && usage.in_use.saturating_add(wanted) > usage.max {
            return Err(usage.full());
        }
    }
    Ok(())
}

/// What the scopes of one key hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held<A> {
    pub requestor: A,
    pub tenant: A,
    pub total: A,
}

impl<A> Held<A> {
    fn of(self, scope: Scope) -> A {
        match scope {
            Scope::Requestor => self.requestor,
            Scope::Tenant => self.tenant,
            Scope::Total => self.total,
        }
    }

    fn as_ref(&self) -> Held<&A> {
        Held { requestor: &self.requestor, tenant: &self.tenant, total: &self.total }
    }
}

/// Who holds how much, for a module that changes it under a lock of its own.
#[derive(Clone, Debug)]
pub struct ScopedTable<K, A> {
    total: A,
    tenants: FxHashMap<TenantId, A>,
    holders: FxHashMap<K, A>,
}

impl<K, A: Default> Default for ScopedTable<K, A> {
    fn default() -> Self {
        Self { total: A::default(), tenants: FxHashMap::default(), holders: FxHashMap::default() }
    }
}

impl<K: ScopeKey, A: Amount> ScopedTable<K, A> {
    /// Takes so much more, if every bound has room for it.
    ///
    /// # Errors
    /// The first of the bounds that has none; nothing was taken then.
    pub fn try_add(&mut self, key: &K, more: A, bounds: impl IntoIterator<Item = Bound<A>>) -> Result<(), Full> {
        let Self { total, tenants, holders } = self;
        let tenant = tenants.entry(key.tenant()).or_default();
        let requestor = holders.entry(*key).or_default();
        let checked = check(Held { requestor: &*requestor, tenant: &*tenant, total: &*total }, &more, bounds);
        match checked {
            Ok(()) => {
                for held in [total, tenant, requestor] {
                    *held = held.zip(more, u64::saturating_add);
                }
            }
            // What was refused leaves no entry.
            Err(_) => self.release(key, A::default()),
        }
        checked
    }

    /// Whether so much more could be taken. A bound on a number of which nothing more is wanted is not asked.
    ///
    /// # Errors
    /// The first of the bounds that has no room.
    pub fn check(&self, key: &K, more: A, bounds: impl IntoIterator<Item = Bound<A>>) -> Result<(), Full> {
        check(self.held(key).as_ref(), &more, bounds)
    }

    /// Takes so much more, room or not.
    pub fn add(&mut self, key: &K, more: A) {
        self.total = self.total.zip(more, u64::saturating_add);
        for held in [self.tenants.entry(key.tenant()).or_default(), self.holders.entry(*key).or_default()] {
            *held = held.zip(more, u64::saturating_add);
        }
    }

    /// Holds so much less.
    pub fn release(&mut self, key: &K, less: A) {
        self.total = self.total.zip(less, u64::saturating_sub);
        release(&mut self.tenants, &key.tenant(), less);
        release(&mut self.holders, key, less);
    }

    pub fn held(&self, key: &K) -> Held<A> {
        let requestor = self.holders.get(key).copied().unwrap_or_default();
        let tenant = self.tenants.get(&key.tenant()).copied().unwrap_or_default();
        Held { requestor, tenant, total: self.total }
    }

    pub fn total(&self) -> A {
        self.total
    }

    /// Every tenant that holds something.
    pub fn tenants(&self) -> &FxHashMap<TenantId, A> {
        &self.tenants
    }

    /// Every key that holds something.
    pub fn holders(&self) -> &FxHashMap<K, A> {
        &self.holders
    }
}

fn release<K: Eq + Hash, A: Amount>(all: &mut FxHashMap<K, A>, key: &K, less: A) {
    if let Some(held) = all.get_mut(key) {
        *held = held.zip(less, u64::saturating_sub);
        if *held == A::default() {
            all.remove(key);
        }
    }
}

type Bounds<K> = dyn Fn(Option<&K>) -> [Bound; 3] + Send + Sync;

/// Units of one kind, with a lock and limits of their own.
pub struct ScopedCounter<K = Requestor> {
    /// Asked again for each unit, so that a limit may change at any time; without a key, for what is in use of the
    /// host's.
    bounds: Box<Bounds<K>>,
    table: Mutex<ScopedTable<K, u64>>,
    /// Whether a unit is held: a counter that is empty most of the time is looked at without its lock.
    is_used: AtomicBool,
}

impl<K> fmt::Debug for ScopedCounter<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedCounter").finish_non_exhaustive()
    }
}

impl ScopedCounter<Requestor> {
    /// Of limits that hold for a requestor and of those that hold for the host, which are not a tenant's to change.
    pub fn live(
        limits: LiveLimits,
        bounds: impl Fn(&Limits, &Limits) -> [Bound; 3] + Send + Sync + 'static,
    ) -> Arc<Self> {
        Self::new(move |requestor| {
            let all = limits.read();
            bounds(requestor.map_or(&all.base, |requestor| all.of(requestor)), &all.base)
        })
    }
}

impl<K: ScopeKey> ScopedCounter<K> {
    pub fn new(bounds: impl Fn(Option<&K>) -> [Bound; 3] + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { bounds: Box::new(bounds), table: Mutex::default(), is_used: AtomicBool::new(false) })
    }

    /// Takes so many units until the permit is dropped.
    ///
    /// # Errors
    /// See [`try_add`](Self::try_add).
    pub fn acquire(self: &Arc<Self>, key: &K, amount: u64) -> Result<Permit<K>, Full> {
        self.try_add(key, amount).map(|()| Permit { counter: Arc::clone(self), key: *key, amount })
    }

    /// Takes so many units until they are [released](Self::release).
    ///
    /// # Errors
    /// The first of the bounds that has no room.
    pub fn try_add(&self, key: &K, amount: u64) -> Result<(), Full> {
        let bounds = (self.bounds)(Some(key));
        let mut table = self.table.lock();
        table.try_add(key, amount, bounds)?;
        self.is_used.store(table.total > 0, Ordering::Relaxed);
        Ok(())
    }

    /// The same, room or not.
    pub fn add(&self, key: &K, amount: u64) {
        let mut table = self.table.lock();
        table.add(key, amount);
        self.is_used.store(table.total > 0, Ordering::Relaxed);
    }

    pub fn release(&self, key: &K, amount: u64) {
        let mut table = self.table.lock();
        table.release(key, amount);
        self.is_used.store(table.total > 0, Ordering::Relaxed);
    }

    /// Whether no unit is held, without the lock.
    pub fn is_empty(&self) -> bool {
        !self.is_used.load(Ordering::Relaxed)
    }

    pub fn total(&self) -> u64 {
        self.table.lock().total
    }

    pub fn held_by_tenant(&self, tenant: &TenantId) -> u64 {
        self.table.lock().tenants.get(tenant).copied().unwrap_or(0)
    }

    /// The first limit of which so much is in use.
    pub fn find_full(&self, key: &K, is_full: impl Fn(&LimitUsage) -> bool) -> Option<Full> {
        let usages = self.usage(Some(key)).into_iter();
        usages.map(|(_, usage)| usage).find(is_full).map(LimitUsage::full)
    }

    /// What is in use of each bound, in their order. Without a key, only what is said of the host means something.
    pub fn usage(&self, key: Option<&K>) -> [(Scope, LimitUsage); 3] {
        let bounds = (self.bounds)(key);
        let table = self.table.lock();
        let held = key.map_or(Held { total: table.total, ..Held::default() }, |key| table.held(key));
        bounds.map(|bound| (bound.scope, bound.usage(held.as_ref())))
    }
}

/// Units of a [`ScopedCounter`], released when dropped.
#[derive(Debug)]
pub struct Permit<K: ScopeKey = Requestor> {
    counter: Arc<ScopedCounter<K>>,
    key: K,
    amount: u64,
}

impl<K: ScopeKey> Drop for Permit<K> {
    fn drop(&mut self) {
        self.counter.release(&self.key, self.amount);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use bulkhead_domain::limits::LimitsTable;
    use bulkhead_domain::requestor::RequestorId;

    fn requestor(tenant: u8, id: u8) -> Requestor {
        Requestor { tenant: TenantId([tenant; 16]), id: RequestorId([id; 16]) }
    }

    /// Two for a requestor, three for a tenant and five in all.
    fn counter() -> Arc<ScopedCounter> {
        ScopedCounter::new(|_| {
            [
                Scope::Requestor.bound("requestor", 2_u64),
                Scope::Tenant.bound("tenant", 3_u64),
                Scope::Total.bound("total", 5_u64),
            ]
        })
    }

    #[test]
    fn full_scope_refuses_and_names_its_limit() {
        let counter = counter();
        let take = |tenant, id| counter.acquire(&requestor(tenant, id), 1);
        let mut held = vec![take(1, 1).unwrap(), take(1, 1).unwrap()];
        assert_eq!(take(1, 1).unwrap_err(), Full { limit: "requestor", value: 2 });
        held.push(take(1, 2).unwrap());
        assert_eq!(take(1, 3).unwrap_err(), Full { limit: "tenant", value: 3 });
        held.extend([take(2, 4).unwrap(), take(3, 5).unwrap()]);
        let refused = take(4, 6).unwrap_err();
        assert_eq!(refused, Full { limit: "total", value: 5 });
        assert_eq!(refused.to_string(), "total is at its limit of 5");
        assert_eq!(counter.total(), 5, "what was refused is not counted");
    }

    #[test]
    fn narrow_limit_is_named_before_wide_ones_that_are_full_too() {
        let one = |scopes: [Scope; 3]| ScopedCounter::new(move |_| scopes.map(|scope| scope.bound(name(scope), 1_u64)));
        fn name(scope: Scope) -> &'static str {
            match scope {
                Scope::Requestor => "requestor",
                Scope::Tenant => "tenant",
                Scope::Total => "total",
            }
        }
        let refused = |scopes, who| {
            let counter = one(scopes);
            let _held = counter.acquire(&requestor(1, 1), 1).unwrap();
            counter.acquire(&who, 1).unwrap_err().limit
        };
        let narrow_first = [Scope::Requestor, Scope::Tenant, Scope::Total];
        let named = [requestor(1, 1), requestor(1, 2), requestor(2, 3)].map(|who| refused(narrow_first, who));
        assert_eq!(named, ["requestor", "tenant", "total"]);
        let tenant_first = [Scope::Tenant, Scope::Requestor, Scope::Total];
        assert_eq!(refused(tenant_first, requestor(1, 1)), "tenant", "a module may ask in another order");
    }

    #[test]
    fn dropped_permit_releases_its_units_and_leaves_no_entry() {
        let counter = counter();
        let one = counter.acquire(&requestor(1, 1), 2);
        let two = counter.acquire(&requestor(1, 2), 1);
        assert!(!counter.is_empty());
        assert_eq!(counter.held_by_tenant(&requestor(1, 1).tenant), 3);
        drop(one);
        assert_eq!((counter.total(), counter.held_by_tenant(&requestor(1, 1).tenant)), (1, 1));
        assert_eq!(counter.table.lock().holders().len(), 1);
        assert!(counter.acquire(&requestor(1, 1), 2).is_ok());
        drop(two);
        assert_eq!(counter.acquire(&requestor(1, 1), 3).unwrap_err().limit, "requestor");
        let table = counter.table.lock();
        assert_eq!((table.total(), table.holders().len(), table.tenants().len()), (0, 0, 0));
        drop(table);
        assert!(counter.is_empty());
    }

    #[test]
    fn changed_limits_hold_for_the_next_acquire() {
        let base = Limits { requests_open_per_requestor: 1, requests_open_total: 9, ..Limits::generous() };
        let own = Limits { requests_open_per_requestor: 3, requests_open_total: 1, ..base.clone() };
        let table = |base: &Limits| LimitsTable {
            base: Arc::new(base.clone()),
            tenants: [(TenantId([2; 16]), Arc::new(own.clone()))].into(),
        };
        let limits = LiveLimits::from(table(&base));
        let counter = ScopedCounter::live(limits.clone(), |own, host| {
            [
                Scope::Requestor.bound("requestor", own.requests_open_per_requestor),
                Scope::Tenant.bound("tenant", own.requests_open_per_tenant),
                Scope::Total.bound("total", host.requests_open_total),
            ]
        });
        let take = |tenant| counter.acquire(&requestor(tenant, 1), 1);
        let mut held = vec![take(1).unwrap(), take(2).unwrap(), take(2).unwrap(), take(2).unwrap()];
        assert_eq!(take(1).unwrap_err(), Full { limit: "requestor", value: 1 });
        assert_eq!(take(2).unwrap_err(), Full { limit: "requestor", value: 3 }, "a tenant's own, but not for the host");
        limits.set(table(&Limits { requests_open_per_requestor: 2, ..base.clone() }));
        held.push(take(1).unwrap());
        limits.set(table(&Limits { requests_open_total: 4, ..base }));
        assert_eq!(take(3).unwrap_err(), Full { limit: "total", value: 4 });
        let usage = counter.usage(Some(&requestor(1, 1))).map(|(_, usage)| (usage.in_use, usage.max));
        assert_eq!(usage, [(2, 1), (2, Limits::generous().requests_open_per_tenant.into()), (5, 4)]);
        assert_eq!(counter.usage(None)[2].1, LimitUsage { limit: "total", in_use: 5, max: 4 });
        let over = counter.find_full(&requestor(1, 1), |usage| usage.in_use > usage.max);
        assert_eq!(over, Some(Full { limit: "requestor", value: 1 }));
    }

    #[test]
    fn reserved_units_are_for_tenants_that_hold_none() {
        let counter = ScopedCounter::new(|_| {
            [
                Scope::Requestor.bound("requestor", 9_u64),
                Scope::Tenant.bound("tenant", 9_u64),
                Scope::Total.bound("total", 8_u64).reserving(4),
            ]
        });
        let held: Vec<_> = std::iter::from_fn(|| counter.acquire(&requestor(1, 1), 1).ok()).collect();
        assert_eq!(held.len(), 6);
        assert_eq!(counter.acquire(&requestor(1, 2), 1).unwrap_err(), Full { limit: "total", value: 6 });
        let other = counter.acquire(&requestor(2, 1), 2).unwrap();
        assert_eq!(counter.acquire(&requestor(3, 1), 1).unwrap_err(), Full { limit: "total", value: 8 });
        drop((held, other));
        assert!(counter.is_empty());
    }

    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    struct Stored {
        files: u64,
        bytes: u64,
    }

    impl Amount for Stored {
        fn zip(self, other: Self, with: fn(u64, u64) -> u64) -> Self {
            Self { files: with(self.files, other.files), bytes: with(self.bytes, other.bytes) }
        }
    }

    #[test]
    fn several_numbers_are_taken_together_or_not_at_all() {
        let bounds = || {
            [
                Scope::Requestor.bound_of(|stored: &Stored| stored.files, "files", 2_u64),
                Scope::Requestor.bound_of(|stored: &Stored| stored.bytes, "bytes", 100_u64),
            ]
        };
        let mut table = ScopedTable::<Requestor, Stored>::default();
        let who = requestor(1, 1);
        let stored = |files, bytes| Stored { files, bytes };
        table.try_add(&who, stored(1, 60), bounds()).unwrap();
        assert_eq!(table.try_add(&who, stored(1, 50), bounds()).unwrap_err().limit, "bytes");
        assert_eq!(table.held(&who).requestor, stored(1, 60));
        table.add(&who, stored(0, 60));
        assert_eq!(table.check(&who, stored(1, 0), bounds()), Ok(()), "bytes are full, but no more are wanted");
        assert_eq!(table.try_add(&who, stored(2, 0), bounds()).unwrap_err().limit, "files");
        table.release(&who, stored(1, 0));
        assert_eq!(table.holders().len(), 1, "its bytes are still held");
        table.release(&who, stored(7, 120));
        assert_eq!((table.total(), table.holders().len(), table.tenants().len()), (stored(0, 0), 0, 0));
    }

    #[test]
    fn concurrent_acquires_never_exceed_a_limit() {
        let counter = counter();
        let granted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4_u32 {
                let counter = &counter;
                let granted = &granted;
                scope.spawn(move || {
                    let mut held = Vec::new();
                    for round in 0..5_000_u32 {
                        let who = requestor((round % 2) as u8, ((round + thread) % 3) as u8);
                        if let Ok(permit) = counter.acquire(&who, 1) {
                            granted.fetch_add(1, Ordering::Relaxed);
                            held.push(permit);
                        }
                        let usage = counter.usage(Some(&who)).map(|(_, usage)| usage);
                        assert!(usage.iter().all(|usage| usage.in_use <= usage.max), "{usage:?}");
                        if round % 3 == 0 {
                            held.clear();
                        }
                    }
                });
            }
        });
        assert!(granted.load(Ordering::Relaxed) >= 5, "some were granted");
        let table = counter.table.lock();
        assert_eq!((table.total(), table.holders().len(), table.tenants().len()), (0, 0, 0));
    }
}
