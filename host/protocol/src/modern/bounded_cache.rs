//! A bounded cache of values that may be wanted again and can be done without.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::time::Instant;

use bulkhead_domain::requestor::{Requestor, TenantId};
use bulkhead_limits::scoped::ScopedTable;

/// The random name of one state of one call.
pub(super) type StateId = [u8; 16];

/// Bounds of the sum of the weights.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheLimits {
    pub(super) weight_max_per_requestor: u64,
    pub(super) weight_max_per_tenant: u64,
    pub(super) weight_max: u64,
}

/// Entries by state id. An entry beyond its requestor's share evicts the requestor's own oldest; beyond the tenant's
/// share, the oldest of the requestor that has most in the tenant; beyond the whole, the same in the tenant that has
/// most.
pub(super) struct BoundedCache<V> {
    bounds: CacheLimits,
    slots: Mutex<Slots<V>>,
}

struct Slots<V> {
    by_id: HashMap<StateId, CacheSlot<V>>,
    /// Sums of the weights.
    held: ScopedTable<Requestor, u64>,
    /// Number of values ever stored: an entry with a smaller number is older.
    number: u64,
    /// Nothing expires before.
    next_end: Option<Instant>,
}

impl<V> Default for Slots<V> {
    fn default() -> Self {
        Self { by_id: HashMap::new(), held: ScopedTable::default(), number: 0, next_end: None }
    }
}

struct CacheSlot<V> {
    requestor: Requestor,
    weight: u64,
    until: Instant,
    number: u64,
    value: V,
}

/// A value to be put into the cache.
pub(super) struct CacheEntry<V> {
    pub(super) id: StateId,
    pub(super) requestor: Requestor,
    pub(super) weight: u64,
    pub(super) until: Instant,
    pub(super) value: V,
}

impl<V> BoundedCache<V> {
    pub(super) fn new(bounds: CacheLimits) -> Self {
        Self { bounds, slots: Mutex::default() }
    }

    /// Stores a value, replaces the one of the same id and drops what is evicted.
    pub(super) fn put(&self, item: CacheEntry<V>) {
        let mut slots = self.slots.lock();
        let gone = slots.put(item, self.bounds);
        drop(slots);
        drop(gone);
    }

    /// The value of an id, if there is one.
    pub(super) fn get(&self, id: &StateId) -> Option<V>
    where
        V: Clone,
    {
        self.slots.lock().get(id).cloned()
    }

    /// Stores a value if `may` allows it for the value that the id has now; otherwise returns that value.
    pub(super) fn put_if(&self, item: CacheEntry<V>, may: impl FnOnce(Option<&V>) -> bool) -> Result<(), Option<V>>
    where
        V: Clone,
    {
        let mut slots = self.slots.lock();
        let found = slots.get(&item.id);
        if !may(found) {
            return Err(found.cloned());
        }
        let gone = slots.put(item, self.bounds);
        drop(slots);
        drop(gone);
        Ok(())
    }

    /// Removes a value and returns it.
    pub(super) fn take(&self, id: &StateId) -> Option<V> {
        let slot = self.slots.lock().remove(id)?;
        (slot.until > Instant::now()).then_some(slot.value)
    }

    /// Drops expired values.
    pub(super) fn expire(&self) {
        let gone = self.slots.lock().expire();
        drop(gone);
    }
}

impl<V> Slots<V> {
    fn get(&self, id: &StateId) -> Option<&V> {
        self.by_id.get(id).filter(|slot| slot.until > Instant::now()).map(|slot| &slot.value)
    }

    fn remove(&mut self, id: &StateId) -> Option<CacheSlot<V>> {
        let slot = self.by_id.remove(id)?;
        self.held.release(&slot.requestor, slot.weight);
        Some(slot)
    }

    fn expire(&mut self) -> Vec<CacheSlot<V>> {
        let now = Instant::now();
        if self.next_end.is_none_or(|end| end > now) {
            return Vec::new();
        }
        let over = self.by_id.iter().filter(|(_, slot)| slot.until <= now).map(|(id, _)| *id);
        let over: Vec<_> = over.collect();
        let gone = over.iter().filter_map(|id| self.remove(id)).collect();
        self.next_end = self.by_id.values().map(|slot| slot.until).min();
        gone
    }

    fn put(&mut self, item: CacheEntry<V>, bounds: CacheLimits) -> Vec<CacheSlot<V>> {
        let CacheEntry { id, requestor, weight, until, value } = item;
        let mut gone = self.expire();
        gone.extend(self.remove(&id));
        self.number += 1;
        self.next_end = Some(self.next_end.map_or(until, |end| end.min(until)));
        self.held.add(&requestor, weight);
        self.by_id.insert(id, CacheSlot { requestor, weight, until, number: self.number, value });
        while self.held.held(&requestor).requestor > bounds.weight_max_per_requestor {
            let Some(slot) = self.push_out(&requestor) else { break };
            gone.push(slot);
        }
        while self.held.held(&requestor).tenant > bounds.weight_max_per_tenant {
            let Some(slot) = self.push_out_of(&requestor.tenant) else { break };
            gone.push(slot);
        }
        while self.held.total() > bounds.weight_max {
            let heaviest = self.held.tenants().iter().max_by_key(|(_, held)| **held).map(|(tenant, _)| *tenant);
            let Some(slot) = heaviest.and_then(|tenant| self.push_out_of(&tenant)) else { break };
            gone.push(slot);
        }
        gone
    }

    /// Evicts the oldest entry of the requestor that has most in a tenant.
    fn push_out_of(&mut self, tenant: &TenantId) -> Option<CacheSlot<V>> {
        let requestors = self.held.holders().iter().filter(|(requestor, _)| requestor.tenant == *tenant);
        let heaviest = *requestors.max_by_key(|(_, held)| **held)?.0;
        self.push_out(&heaviest)
    }

    fn push_out(&mut self, requestor: &Requestor) -> Option<CacheSlot<V>> {
        let oldest = self.by_id.iter().filter(|(_, slot)| slot.requestor == *requestor);
        let id = *oldest.min_by_key(|(_, slot)| slot.number)?.0;
        self.remove(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_domain::requestor::RequestorId;
    use std::time::Duration;

    fn item(id: u8, requestor: u8, weight: u64, ms: u64) -> CacheEntry<u8> {
        CacheEntry {
            id: [id; 16],
            requestor: Requestor { tenant: TenantId([0; 16]), id: RequestorId([requestor; 16]) },
            weight,
            until: Instant::now() + Duration::from_millis(ms),
            value: id,
        }
    }

    fn held(cache: &BoundedCache<u8>) -> Vec<u8> {
        let mut held: Vec<_> = cache.slots.lock().by_id.values().map(|slot| slot.value).collect();
        held.sort_unstable();
        held
    }

    #[tokio::test(start_paused = true)]
    async fn full_cache_evicts_oldest_of_largest_requestor() {
        let cache =
            BoundedCache::new(CacheLimits { weight_max_per_requestor: 3, weight_max_per_tenant: 5, weight_max: 5 });
        for id in 1..=4 {
            cache.put(item(id, 1, 1, 1000));
        }
        assert_eq!(held(&cache), [2, 3, 4]);
        cache.put(item(9, 2, 2, 1000));
        assert_eq!(held(&cache), [2, 3, 4, 9]);
        cache.put(item(8, 3, 1, 1000));
        assert_eq!(held(&cache), [3, 4, 8, 9], "the oldest of the heaviest requestor went");
        cache.put(item(7, 2, 4, 1000));
        assert!(!held(&cache).contains(&7), "nobody gets more than its share");
    }

    #[tokio::test(start_paused = true)]
    async fn full_cache_evicts_within_the_tenant() {
        let cache =
            BoundedCache::new(CacheLimits { weight_max_per_requestor: 2, weight_max_per_tenant: 3, weight_max: 5 });
        let of = |tenant: u8, item: CacheEntry<u8>| CacheEntry {
            requestor: Requestor { tenant: TenantId([tenant; 16]), ..item.requestor },
            ..item
        };
        cache.put(of(1, item(1, 1, 1, 1000)));
        cache.put(of(1, item(2, 1, 1, 1000)));
        for id in 10..40 {
            cache.put(of(2, item(id, id, 1, 1000)));
        }
        let held = held(&cache);
        assert_eq!((held.len(), &held[..2]), (5, &[1, 2][..]), "another tenant's things stay: {held:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn expired_cache_items_are_gone() {
        let cache =
            BoundedCache::new(CacheLimits { weight_max_per_requestor: 9, weight_max_per_tenant: 9, weight_max: 9 });
        cache.put(item(1, 1, 1, 10));
        cache.put(item(2, 1, 1, 100));
        tokio::time::advance(Duration::from_millis(50)).await;
        assert_eq!(cache.take(&[1; 16]), None);
        cache.expire();
        assert_eq!(held(&cache), [2]);
        assert_eq!(cache.put_if(item(2, 1, 1, 1), |found| found.is_none()), Err(Some(2)));
        assert_eq!(cache.put_if(item(4, 1, 1, 9), |found| found.is_some()), Err(None));
        assert_eq!(cache.put_if(item(4, 1, 1, 9), |found| found.is_none()), Ok(()));
        assert_eq!((cache.get(&[4; 16]), cache.take(&[4; 16]), cache.get(&[4; 16])), (Some(4), Some(4), None));
    }
}
