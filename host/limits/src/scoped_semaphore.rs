//! So many at a time for each tenant, address or other key, and in all, for what waits rather than be refused.
//!
//! Owns the queues. Must not know what waits. Invariants: units are granted in the order in which they were asked for;
//! what waits for its own key takes no unit of another one; a key without units and without a waiter is not remembered.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// See the module.
pub struct ScopedSemaphore<K: Copy + Eq + Hash> {
    per_key: usize,
    total: Arc<Semaphore>,
    /// Clients choose addresses, so their hashes must not be foreseeable.
    keys: Mutex<HashMap<K, Arc<Semaphore>>>,
}

/// Units of a [`ScopedSemaphore`], released when dropped.
pub struct SemaphorePermit<K: Copy + Eq + Hash> {
    semaphore: Arc<ScopedSemaphore<K>>,
    key: K,
    own: Option<OwnedSemaphorePermit>,
    shared: Option<OwnedSemaphorePermit>,
}

impl<K: Copy + Eq + Hash> ScopedSemaphore<K> {
    pub fn new(per_key: usize, total: usize) -> Arc<Self> {
        Arc::new(Self { per_key, total: Arc::new(Semaphore::new(total)), keys: Mutex::default() })
    }

    /// Waits for so many units, of which there must not be more than one key may have.
    pub async fn acquire(self: &Arc<Self>, key: K, count: u32) -> SemaphorePermit<K> {
        let new = || Arc::new(Semaphore::new(self.per_key));
        let own = Arc::clone(self.keys.lock().entry(key).or_insert_with(new));
        // There before it waits: a caller that gives up leaves nothing behind.
        let mut permit = SemaphorePermit { semaphore: Arc::clone(self), key, own: None, shared: None };
        // The key's own first: what waits for it takes nothing from others. Neither is ever closed.
        permit.own = own.acquire_many_owned(count).await.ok();
        permit.shared = Arc::clone(&self.total).acquire_many_owned(count).await.ok();
        permit
    }

    /// Free units.
    pub fn available(&self) -> usize {
        self.total.available_permits()
    }

    /// Keys that have units or wait for some.
    pub fn keys(&self) -> usize {
        self.keys.lock().len()
    }
}

impl<K: Copy + Eq + Hash> Drop for SemaphorePermit<K> {
    fn drop(&mut self) {
        (self.own, self.shared) = (None, None);
        let mut keys = self.semaphore.keys.lock();
        // Others are counted under the same lock.
        if keys.get(&self.key).is_some_and(|own| Arc::strong_count(own) == 1) {
            keys.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// The permit, if there is one at once.
    fn taken(semaphore: &Arc<ScopedSemaphore<u8>>, key: u8, count: u32) -> Option<SemaphorePermit<u8>> {
        match pin!(semaphore.acquire(key, count)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => Some(permit),
            Poll::Pending => None,
        }
    }

    #[test]
    fn full_key_waits_and_takes_nothing_of_others() {
        let semaphore = ScopedSemaphore::new(2, 3);
        let held = taken(&semaphore, 1, 2).unwrap();
        assert!(taken(&semaphore, 1, 1).is_none());
        assert_eq!(semaphore.available(), 1, "the one that waited took none of the others");
        let other = taken(&semaphore, 2, 1).unwrap();
        assert!(taken(&semaphore, 3, 1).is_none(), "all are taken");
        drop(held);
        assert!(taken(&semaphore, 3, 2).is_some());
        drop(other);
        assert_eq!((semaphore.available(), semaphore.keys()), (3, 0));
    }

    #[test]
    fn waiters_are_served_in_order_and_abandoned_ones_are_forgotten() {
        let semaphore = ScopedSemaphore::new(1, 1);
        let mut context = Context::from_waker(Waker::noop());
        let held = taken(&semaphore, 1, 1).unwrap();
        let mut first = Box::pin(semaphore.acquire(2, 1));
        let mut second = Box::pin(semaphore.acquire(3, 1));
        assert!(first.as_mut().poll(&mut context).is_pending() && second.as_mut().poll(&mut context).is_pending());
        assert_eq!(semaphore.keys(), 3);
        drop(held);
        assert!(second.as_mut().poll(&mut context).is_pending(), "it does not overtake");
        drop(first);
        assert!(second.as_mut().poll(&mut context).is_ready());
        drop(second);
        assert_eq!((semaphore.available(), semaphore.keys()), (1, 0));
    }
}
