//! Work of guests that blocks a thread: opening and measuring files, looking up names.
//!
//! Owns how much of it there is at the same time, by tenant and in all. Must not know what is opened or looked up.
//! Invariants: a place is held until the work is over, not until nobody waits for it any more, so that no abandoned
//! thread goes uncounted; what hangs for one tenant takes no place of another one, and lookups take none of files.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bulkhead_domain::requestor::TenantId;
use bulkhead_limits::ScopedSemaphore;
use bulkhead_net::dial;

/// Threads that open or measure files for one tenant. Stops a tenant whose directory does not answer from taking the
/// files of others.
const FILE_THREADS_PER_TENANT_MAX: usize = 16;
/// Threads that open or measure files for all guests.
const FILE_THREADS_TOTAL_MAX: usize = 96;
/// Threads that look up names for one tenant. Stops a tenant whose names nobody answers for from taking the lookups of
/// others.
const LOOKUP_THREADS_PER_TENANT_MAX: usize = 16;
/// Threads that look up names for all guests.
const LOOKUP_THREADS_TOTAL_MAX: usize = 96;

/// Looks up a name; takes as long as it takes.
type LookUp = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// The places of the host.
pub(super) struct BlockingPools {
    files: Arc<ScopedSemaphore<TenantId>>,
    lookups: Arc<ScopedSemaphore<TenantId>>,
    look_up: LookUp,
}

impl Default for BlockingPools {
    fn default() -> Self {
        Self::looking_up_by(dial::look_up)
    }
}

impl BlockingPools {
    pub(super) fn looking_up_by(look_up: LookUp) -> Self {
        let files = ScopedSemaphore::new(FILE_THREADS_PER_TENANT_MAX, FILE_THREADS_TOTAL_MAX);
        let lookups = ScopedSemaphore::new(LOOKUP_THREADS_PER_TENANT_MAX, LOOKUP_THREADS_TOTAL_MAX);
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
        self.run(&self.places.files, work).await
    }

    /// The addresses of a name. Time is bounded by the caller: the thread goes on, and is counted, when that gives up.
    ///
    /// # Errors
    /// It cannot be resolved.
    pub(super) async fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let look_up = self.places.look_up;
        let host = host.to_owned();
        self.run(&self.places.lookups, move || look_up(&host, port)).await?
    }

    async fn run<T: Send + 'static>(
        &self,
        threads: &Arc<ScopedSemaphore<TenantId>>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let permit = threads.acquire(self.tenant, 1).await;
        let done = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(permit);
            done
        });
        done.await.map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use parking_lot::Mutex;
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
        let taken = |places: &BlockingPools| LOOKUP_THREADS_TOTAL_MAX - places.lookups.available();
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
            let work = own.on_files(move || gate.lock().recv().is_ok());
            // Whoever asked goes away.
            assert!(timeout(Duration::from_millis(5), work).await.is_err());
        }
        let left = |places: &BlockingPools| places.files.available();
        assert_eq!(left(&places), FILE_THREADS_TOTAL_MAX - FILE_THREADS_PER_TENANT_MAX);
        assert_eq!(blocking(&places, 2).on_files(|| 1).await.unwrap(), 1);
        drop(release);
        assert_eq!(own.on_files(|| 2).await.unwrap(), 2);
        // A thread gives its place back first, and is forgotten then.
        let all_is_free = async {
            while left(&places) < FILE_THREADS_TOTAL_MAX || places.files.keys() > 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(10), all_is_free).await.expect("who has no work is not remembered");
    }
}
