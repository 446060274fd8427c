//! Work of guests that blocks a thread: opening and measuring files, looking up names.
//!
//! Owns how much of it there is at the same time, by tenant and in all. Must not know what is opened or looked up. Invariants: a place is
//! held until the work is over, not until nobody waits for it any more, so that no abandoned thread goes uncounted; what hangs for one
//! tenant takes no place of another one, and lookups take none of files.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use bulkhead_domain::requestor::TenantId;
use bulkhead_net::dial;

/// Threads that open or measure files for one tenant. Stops a tenant whose directory does not answer from taking the files of others.
const FILE_THREADS_PER_TENANT_MAX: usize = 16;
/// Threads that open or measure files for all guests.
const FILE_THREADS_TOTAL_MAX: usize = 96;
/// Threads that look up names for one tenant. Stops a tenant whose names nobody answers for from taking the lookups of others.
const LOOKUP_THREADS_PER_TENANT_MAX: usize = 16;
/// Threads that look up names for all guests.
const LOOKUP_THREADS_TOTAL_MAX: usize = 96;

/// Looks up a name; takes as long as it takes.
type LookUp = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// The places of the host.
pub(super) struct BlockingPools {
    files: Arc<BlockingPool>,
    lookups: Arc<BlockingPool>,
    look_up: LookUp,
}

impl Default for BlockingPools {
    fn default() -> Self {
        Self::looking_up_by(dial::look_up)
    }
}

impl BlockingPools {
    pub(super) fn looking_up_by(look_up: LookUp) -> Self {
        let files = BlockingPool::new(FILE_THREADS_PER_TENANT_MAX, FILE_THREADS_TOTAL_MAX);
        let lookups = BlockingPool::new(LOOKUP_THREADS_PER_TENANT_MAX, LOOKUP_THREADS_TOTAL_MAX);
        Self { files, lookups, look_up }
    }
}

impl fmt::Debug for BlockingPools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places").finish_non_exhaustive()
    }
}

/// The blocking work of one call.
#[derive(Clone, Debug)]
pub(super) struct Blocking {
    places: Arc<BlockingPools>,
    tenant: TenantId,
}

impl Blocking {
    pub(super) fn of(places: &Arc<BlockingPools>, tenant: TenantId) -> Self {
        Self { places: Arc::clone(places), tenant }
    }

    /// Does something with files.
    ///
    /// # Errors
    /// It panicked, or the host ends.
    pub(super) async fn on_files<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        self.places.files.run(self.tenant, work).await
    }

    /// The addresses of a name. Time is bounded by the caller: the thread goes on, and is counted, when that gives up.
    ///
    /// # Errors
    /// It cannot be resolved.
    pub(super) async fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let (look_up, host) = (self.places.look_up, host.to_owned());
        self.places.lookups.run(self.tenant, move || look_up(&host, port)).await?
    }
}

/// Places for one kind of work.
struct BlockingPool {
    per_tenant: usize,
    total: Arc<Semaphore>,
    /// Those who have some, or wait for one.
    tenants: Mutex<HashMap<TenantId, Arc<Semaphore>>>,
}

impl BlockingPool {
    fn new(per_tenant: usize, total: usize) -> Arc<Self> {
        Arc::new(Self { per_tenant, total: Arc::new(Semaphore::new(total)), tenants: Mutex::default() })
    }

    fn tenants(&self) -> MutexGuard<'_, HashMap<TenantId, Arc<Semaphore>>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        tenant: TenantId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let place = self.take(tenant).await;
        let done = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(place);
            done
        });
        done.await.map_err(io::Error::other)
    }

    async fn take(self: &Arc<Self>, tenant: TenantId) -> BlockingPermit {
        let new = || Arc::new(Semaphore::new(self.per_tenant));
        let own = Arc::clone(self.tenants().entry(tenant).or_insert_with(new));
        // There before it waits: whoever gives up leaves nothing behind.
        let mut place = BlockingPermit { kind: Arc::clone(self), tenant, own: None, shared: None };
        // Nobody closes them.
        place.own = own.acquire_owned().await.ok();
        place.shared = Arc::clone(&self.total).acquire_owned().await.ok();
        place
    }
}

/// The right to use one blocking thread, released when dropped.
struct BlockingPermit {
    kind: Arc<BlockingPool>,
    tenant: TenantId,
    own: Option<OwnedSemaphorePermit>,
    shared: Option<OwnedSemaphorePermit>,
}

impl Drop for BlockingPermit {
    fn drop(&mut self) {
        (self.own, self.shared) = (None, None);
        let mut tenants = self.kind.tenants();
        // Others are counted under the same lock.
        if tenants.get(&self.tenant).is_some_and(|own| Arc::strong_count(own) == 1) {
            tenants.remove(&self.tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    fn blocking(places: &Arc<BlockingPools>, tenant: u8) -> Blocking {
        Blocking::of(places, TenantId([tenant; 16]))
    }

    /// A resolver that answers for no name.
    fn hangs(_: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
        std::thread::sleep(Duration::from_secs(2));
        Err(io::ErrorKind::TimedOut.into())
    }

    #[tokio::test]
    async fn hanging_dns_lookups_leave_threads_for_other_tenants() {
        let places = Arc::new(BlockingPools::looking_up_by(hangs));
        let taken = |places: &BlockingPools| LOOKUP_THREADS_TOTAL_MAX - places.lookups.total.available_permits();
        for tenant in 1..=3 {
            for _ in 0..256 {
                let blocking = blocking(&places, tenant);
                tokio::spawn(async move { blocking.look_up("nobody.example", 443).await });
            }
        }
        while taken(&places) < 3 * LOOKUP_THREADS_PER_TENANT_MAX {
            tokio::task::yield_now().await;
        }
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(taken(&places), 3 * LOOKUP_THREADS_PER_TENANT_MAX, "three tenants have their threads, and no more");
        let other = blocking(&places, 4);
        assert_eq!(other.on_files(|| 7).await.unwrap(), 7);
        let waited = timeout(Duration::from_millis(20), other.look_up("nobody.example", 443)).await;
        assert!(waited.is_err());
        assert_eq!(taken(&places), 3 * LOOKUP_THREADS_PER_TENANT_MAX + 1, "it began, and its thread is counted on");
    }

    #[tokio::test]
    async fn hanging_file_work_is_limited_per_tenant() {
        let places = Arc::new(BlockingPools::default());
        let (release, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let own = blocking(&places, 1);
        for _ in 0..3 * FILE_THREADS_PER_TENANT_MAX {
            let gate = Arc::clone(&gate);
            let work = own.on_files(move || gate.lock().map(|gate| gate.recv().is_ok()).unwrap_or_default());
            // Whoever asked goes away.
            assert!(timeout(Duration::from_millis(5), work).await.is_err());
        }
        let left = |places: &BlockingPools| places.files.total.available_permits();
        assert_eq!(left(&places), FILE_THREADS_TOTAL_MAX - FILE_THREADS_PER_TENANT_MAX);
        assert_eq!(blocking(&places, 2).on_files(|| 1).await.unwrap(), 1);
        drop(release);
        assert_eq!(own.on_files(|| 2).await.unwrap(), 2);
        while left(&places) < FILE_THREADS_TOTAL_MAX {
            tokio::task::yield_now().await;
        }
        assert!(places.files.tenants().is_empty(), "who has no work is not remembered");
    }
}
