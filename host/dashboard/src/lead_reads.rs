//! Reads for pages of leads, and their orders. The cost of most grows with what others do: the audit log, the tasks and
//! the requestors of a tenant.
//!
//! Owns their turns. Must not know what is read. Invariants: one such read at a time runs for a tenant, and few for the
//! host; behind each there is a rest of several times what it took, so that a tenant's take at most a tenth of one
//! processor's time, and those of all together two tenths. A read that was begun counts to its end, also when nobody
//! waits for it any more.
//!
//! The rest stands in the place of a charge to the tenant's share of the guests' threads: reads run on the host's own
//! threads, and a share that is used up would not hold the next one back, but slow down the tenant's calls, whose
//! requestors cannot see a lead's pages.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

/// Reads for pages of leads at a time, whatever their tenants.
const READS_MAX: usize = 2;
/// Per cent of one processor's time that reads for the leads of one tenant take at most: their place rests after each
/// for the others.
const READ_PERCENT_PER_TENANT_MAX: u32 = 10;
/// Milliseconds that a page of a lead waits for its turn before it is refused.
const WAIT_MS_MAX: u64 = 5_000;

/// What follows work of this length, so that work takes so many per cent of the time.
pub(crate) fn rest_after(worked: Duration, percent: u32) -> Duration {
    worked * (100 - percent) / percent
}

/// All turns.
pub(crate) struct LeadReads {
    places: Arc<Semaphore>,
    /// Of the tenants that read, or rest.
    tenants: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// Its turn did not come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooBusy {
    pub(crate) retry_after_ms: u64,
}

impl LeadReads {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { places: Arc::new(Semaphore::new(READS_MAX)), tenants: Mutex::default() })
    }

    /// Reads when it is the tenant's turn.
    pub(crate) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        tenant: &str,
        read: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, TooBusy> {
        let too_busy = TooBusy { retry_after_ms: WAIT_MS_MAX };
        let turn =
            Arc::clone(self.tenants.lock().entry(tenant.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(1))));
        let wait =
            async { Some((turn.acquire_owned().await.ok()?, Arc::clone(&self.places).acquire_owned().await.ok()?)) };
        let places = tokio::time::timeout(Duration::from_millis(WAIT_MS_MAX), wait).await;
        let Ok(Some(places)) = places else {
            self.forget_idle(tenant);
            return Err(too_busy);
        };
        let (sender, done) = oneshot::channel();
        tokio::spawn(Arc::clone(self).carry_out(tenant.to_owned(), places, async move {
            // Nobody may wait for it any more.
            let _ = sender.send(read.await);
        }));
        done.await.map_err(|_| too_busy)
    }

    async fn carry_out(
        self: Arc<Self>,
        tenant: String,
        places: (OwnedSemaphorePermit, OwnedSemaphorePermit),
        read: impl Future<Output = ()>,
    ) {
        let begun = Instant::now();
        read.await;
        tokio::time::sleep(rest_after(begun.elapsed(), READ_PERCENT_PER_TENANT_MAX)).await;
        drop(places);
        self.forget_idle(&tenant);
    }

    /// Forgets the tenant if none of its leads reads, rests or waits.
    fn forget_idle(&self, tenant: &str) {
        let mut tenants = self.tenants.lock();
        if tenants.get(tenant).is_some_and(|turn| Arc::strong_count(turn) == 1) {
            tenants.remove(tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const READ_MS: u64 = 20;

    /// Looks at it all the time, over so many connections; counts what is read and what is refused.
    fn look(reads: &Arc<LeadReads>, tenant: &'static str, connections: usize, counts: &Arc<[AtomicUsize; 2]>) {
        for _ in 0..connections {
            let reads = Arc::clone(reads);
            let counts = Arc::clone(counts);
            tokio::spawn(async move {
                loop {
                    // Its time begins with its turn.
                    let work = async { tokio::time::sleep(Duration::from_millis(READ_MS)).await };
                    let read = reads.read(tenant, work).await;
                    counts[usize::from(read.is_err())].fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    }

    fn read_ms(counts: &[AtomicUsize; 2]) -> u64 {
        counts[0].load(Ordering::Relaxed) as u64 * READ_MS
    }

    #[tokio::test(start_paused = true)]
    async fn reads_of_a_tenant_take_a_tenth_of_the_time_and_the_rest_is_refused() {
        let reads = LeadReads::new();
        let counts = Arc::default();
        look(&reads, "acme", 100, &counts);
        tokio::time::sleep(Duration::from_secs(100)).await;
        let busy_ms = read_ms(&counts);
        assert!((9_000..=10_100).contains(&busy_ms), "{busy_ms} ms of 100 s");
        assert!(counts[1].load(Ordering::Relaxed) > 1_000, "{counts:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn one_tenants_lead_holds_up_no_other_and_all_together_have_a_bound() {
        let reads = LeadReads::new();
        let greedy = Arc::default();
        let other = Arc::default();
        look(&reads, "acme", 100, &greedy);
        look(&reads, "globex", 1, &other);
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert!(read_ms(&other) >= 9_000 && other[1].load(Ordering::Relaxed) == 0, "{other:?}");
        for tenant in ["initech", "umbrella", "hooli"] {
            look(&reads, tenant, 20, &greedy);
        }
        let before = read_ms(&greedy) + read_ms(&other);
        tokio::time::sleep(Duration::from_secs(100)).await;
        let busy_ms = read_ms(&greedy) + read_ms(&other) - before;
        assert!(busy_ms <= 20_200, "{busy_ms} ms of 100 s");
    }

    #[tokio::test(start_paused = true)]
    async fn read_whose_lead_has_gone_is_charged_and_its_tenant_is_forgotten_then() {
        let reads = LeadReads::new();
        let gone = reads.read("acme", tokio::time::sleep(Duration::from_secs(1)));
        assert!(tokio::time::timeout(Duration::from_millis(10), gone).await.is_err());
        let refused = reads.read("acme", std::future::ready(())).await;
        assert_eq!(refused, Err(TooBusy { retry_after_ms: WAIT_MS_MAX }));
        assert_eq!(reads.tenants.lock().len(), 1);
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert!(reads.tenants.lock().is_empty());
    }
}
