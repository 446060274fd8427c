//! How fast a store acknowledges, without anything around it.
//!
//! Owns one measurement, for `cargo xtask bench`: the yardstick that durable task creation is compared with. Must not be used by
//! the host. Invariant: what is counted was acknowledged, that is, is on disk where the store has one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Creation, Error, Store, StoredCaps};
use bulkhead_domain::Json;
use bulkhead_domain::call::ClientFeatures;
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_domain::task::{Active, CallId, Design, Era, Origin, Phase, PluginVersion, Retention, Task, TaskId, Work};

/// What a measurement found.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    pub per_second: f64,
    /// From asking to the acknowledgement.
    pub p50: Duration,
    pub p99: Duration,
}

/// Creates tasks (record, list, expiry and unfinished rows each; arguments of 100 bytes) from so many writers at once, each of
/// which waits for its acknowledgement, for `duration`. Use an empty store: the tasks stay there.
pub async fn creations(store: Arc<dyn Store>, writers: u16, duration: Duration) -> Result<Rate, Error> {
    let next = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let writing = (0..writers).map(|writer| {
        let (store, next) = (Arc::clone(&store), Arc::clone(&next));
        tokio::spawn(async move {
            let mut waits = Vec::new();
            while started.elapsed() < duration {
                let creation = creation(writer, next.fetch_add(1, Ordering::Relaxed));
                let asked = Instant::now();
                store.create(creation).await?;
                waits.push(asked.elapsed());
            }
            Ok::<_, Error>(waits)
        })
    });
    let mut waits = Vec::new();
    for joined in futures::future::join_all(writing).await {
        waits.extend(joined.map_err(|error| Error::Engine(format!("a writer broke: {error}")))??);
    }
    let elapsed = started.elapsed();
    waits.sort_unstable();
    let part = |percent: usize| waits.get(waits.len() * percent / 100).copied().unwrap_or_default();
    Ok(Rate { per_second: waits.len() as f64 / elapsed.as_secs_f64(), p50: part(50), p99: part(99) })
}

fn creation(writer: u16, number: u64) -> Creation {
    let own = u128::from(writer).to_be_bytes();
    // Spread like random ids, so that the tree is used as in earnest.
    let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let id = (u128::from(spread) << 64 | u128::from(number)).to_be_bytes();
    let task = Task {
        id: TaskId(id),
        requestor: Requestor { tenant: TenantId([1; 16]), id: RequestorId(own) },
        revision: 0,
        work: Work::Tool("echo".to_owned()),
        plugin: PluginVersion { name: "echo".to_owned(), digest: [1; 32] },
        engine_hash: 1,
        origin: Origin {
            era: Era::Legacy,
            design: Design::Core2025,
            session: Some([1; 16]),
            features: ClientFeatures::default(),
            log_level: None,
            progress_token: None,
        },
        arguments_digest: [1; 32],
        created_at: number,
        updated_at: number,
        retention: Retention::FromCreation { ttl_ms: 3_600_000 },
        poll_interval_ms: 1_000,
        phase: Phase::Active(Active::Queued),
        status_message: None,
        inputs: Vec::new(),
        steering: Vec::new(),
        steering_delivered: 0,
        alias: None,
        seed: [1; 32],
        call_id: CallId(id),
        lease: None,
        attempt: 0,
        related: Vec::new(),
    };
    let caps = StoredCaps {
        tasks_per_requestor: u32::MAX,
        bytes_per_requestor: u64::MAX,
        tasks_per_tenant: u32::MAX,
        bytes_per_tenant: u64::MAX,
    };
    Creation { task, arguments: Json::new(format!("{:>100}", number)), output: None, reserved_bytes: 0, caps }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn store_measurement_counts_every_writer() {
        let store = Arc::new(MemoryStore::new());
        let rate = creations(store.clone(), 4, Duration::from_millis(50)).await.unwrap();
        let tasks = crate::TaskStore::scan(&*store, None, usize::MAX).await.unwrap();
        assert!(tasks.len() > 4 && rate.per_second > 80.0);
        assert!(rate.p50 <= rate.p99 && rate.p50 > Duration::ZERO);
    }
}
