//! Fixtures for the tests of every crate: a task, a tool, limits, clocks that a test sets, and the replay of a fuzz
//! corpus.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::call::ClientFeatures;
use crate::clock::Clock;
use crate::limits::{CallLimits, Limits};
use crate::requestor::Requestor;
use crate::task::{Active, CallId, Design, Era, Origin, Phase, PluginVersion, Retention, Task, TaskId, Work};
use crate::timeline::Timeline;
use crate::tool::{TaskSupport, Tool};
use crate::{Json, UnixMs};

impl Task {
    /// A queued task as `tools/call` of revision 2025-11-25 makes it, created at 0, which is kept for a minute.
    pub fn sample(requestor: Requestor, id: TaskId) -> Self {
        Self {
            id,
            requestor,
            revision: 0,
            work: Work::Tool("count_primes".to_owned()),
            plugin: PluginVersion { name: "primes".to_owned(), digest: [7; 32] },
            engine_hash: 7,
            origin: Origin {
                era: Era::Legacy,
                design: Design::Core2025,
                session: None,
                features: ClientFeatures::default(),
                log_level: None,
                progress_token: None,
                trace: None,
            },
            arguments_digest: [7; 32],
            created_at: 0,
            updated_at: 0,
            retention: Retention::FromCreation { ttl_ms: 60_000 },
            poll_interval_ms: 500,
            phase: Phase::Active(Active::Queued),
            status_message: None,
            inputs: Vec::new(),
            steering: Vec::new(),
            steering_delivered: 0,
            alias: None,
            seed: [7; 32],
            call_id: CallId([7; 16]),
            lease: None,
            attempt: 0,
            related: Vec::new(),
            timeline: Timeline::default(),
            holder: None,
            durable: None,
        }
    }
}

impl Limits {
    /// So large that no test meets them unless it wants to.
    pub fn generous() -> Self {
        Self {
            calls_running_per_requestor: 16,
            calls_running_per_tenant: 64,
            calls_running_total: 256,
            call_queue_ms_max: 100,
            calls_queued_per_requestor: 64,
            calls_queued_per_tenant: 256,
            calls_queued_total: 1_024,
            tasks_running_per_requestor: 16,
            tasks_running_per_tenant: 64,
            tasks_queued_per_requestor: 256,
            tasks_queued_per_tenant: 1_024,
            tasks_queued_total: 4_096,
            tasks_waiting_per_requestor: 256,
            tasks_waiting_per_tenant: 384,
            tasks_paused_per_requestor: 64,
            tasks_paused_per_tenant: 128,
            calls_resting_per_tenant: 384,
            calls_resting_total: 768,
            tasks_resident_total: 64,
            task_evict_after_ms: 10_000,
            task_evict_cpu_ms: 2_000,
            tasks_stored_per_requestor: 10_000,
            tasks_stored_bytes_per_requestor: 1 << 30,
            tasks_stored_per_tenant: 100_000,
            tasks_stored_bytes_per_tenant: 1 << 32,
            requests_per_second: 1_000_000,
            requests_per_second_per_tenant: 1_000_000,
            request_bytes_per_second: 1 << 31,
            request_bytes_per_second_per_tenant: 1 << 31,
            task_creations_per_second: 1_000_000,
            task_creations_per_second_per_tenant: 1_000_000,
            requests_open_per_requestor: 1_024,
            requests_open_per_tenant: 4_096,
            requests_open_total: 16_384,
            request_bytes_open_per_requestor: 1 << 30,
            request_bytes_open_per_tenant: 1 << 31,
            request_bytes_open_total: 1 << 32,
            sessions_per_tenant: 10_000,
            sessions_total: 100_000,
            requestors_per_tenant: 1_000_000,
            requestor_creations_per_second_per_tenant: 1_000_000,
            tenants_total: 1_000_000,
            event_bytes_per_requestor: 64 << 20,
            event_bytes_per_tenant: 256 << 20,
            event_bytes_total: 1 << 30,
            answer_bytes_per_requestor: 64 << 20,
            answer_bytes_per_tenant: 96 << 20,
            answer_bytes_total: 160 << 20,
            ttl_ms_default: 60_000,
            ttl_ms_max: 120_000,
            ttl_unlimited: false,
            steer_queue: 16,
            steer_bytes_max: 16_384,
            failed_lookups_per_minute: 1_000_000,
            failed_lookups_block_ms: 60_000,
            early_polls_per_minute: 1_000_000,
        }
    }
}

impl CallLimits {
    /// The defaults of the configuration.
    pub fn generous() -> Self {
        Self {
            cpu_ms: 30_000,
            wall_ms: 600_000,
            memory_bytes: 64 << 20,
            arguments_bytes: 1 << 20,
            result_bytes: 4 << 20,
            log_bytes: 256 << 10,
            events_per_second: 50,
            promote_after_ms: 1_000,
            cancel_grace_ms: 200,
            epoch_tick_ms: 10,
            journal_bytes: 4 << 20,
            journal_entries: 100_000,
            journal_response_bytes: 1 << 20,
        }
    }
}

impl Tool {
    /// A tool that takes anything and may become a task.
    pub fn sample(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            title: None,
            description: String::new(),
            input_schema: Json::new("{}"),
            output_schema: None,
            annotations: None,
            task_support: TaskSupport::Optional,
            icons: Vec::new(),
            meta: Vec::new(),
        }
    }
}

/// A clock that moves when told to.
#[derive(Debug, Default)]
pub struct ManualClock {
    now: AtomicU64,
}

impl ManualClock {
    /// Starts at `now`.
    pub fn at(now: UnixMs) -> Self {
        Self { now: AtomicU64::new(now) }
    }

    /// Moves on.
    pub fn advance(&self, ms: u64) {
        self.now.fetch_add(ms, Ordering::AcqRel);
    }

    /// Moves there.
    pub fn set(&self, now: UnixMs) {
        self.now.store(now, Ordering::Release);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> UnixMs {
        self.now.load(Ordering::Acquire)
    }

    fn steady(&self) -> UnixMs {
        self.now()
    }

    fn system(&self) -> UnixMs {
        self.now()
    }
}

/// A machine whose wall clock a test sets, while its steady clock goes on.
#[derive(Debug)]
pub struct SetClock {
    begun_at: UnixMs,
    wall: AtomicU64,
    elapsed: AtomicU64,
    latest: AtomicU64,
}

impl SetClock {
    /// Starts at `wall`.
    pub fn at(wall: UnixMs) -> Self {
        Self { begun_at: wall, wall: AtomicU64::new(wall), elapsed: AtomicU64::new(0), latest: AtomicU64::new(wall) }
    }

    /// Lets time pass.
    pub fn pass(&self, ms: u64) {
        self.wall.fetch_add(ms, Ordering::Relaxed);
        self.elapsed.fetch_add(ms, Ordering::Relaxed);
    }

    /// Sets the wall clock.
    pub fn set(&self, wall: UnixMs) {
        self.wall.store(wall, Ordering::Relaxed);
    }
}

impl Clock for SetClock {
    fn now(&self) -> UnixMs {
        let real = self.system();
        self.latest.fetch_max(real, Ordering::Relaxed).max(real)
    }

    fn steady(&self) -> UnixMs {
        self.begun_at + self.elapsed.load(Ordering::Relaxed)
    }

    fn system(&self) -> UnixMs {
        self.wall.load(Ordering::Relaxed)
    }
}

/// Feeds every file of one target's corpus (`tests/fuzz/corpus/TARGET`), whole and cut in half, so that what the fuzzer
/// found once is never found again. `feed` says whether it took the bytes for what they claim to be.
///
/// # Panics
///
/// If the target has no program, its corpus has fewer than four files, or fewer than three of them get past the first
/// refusal.
pub fn replay_corpus(fuzz: &Path, target: &str, feed: impl Fn(&[u8]) -> bool) {
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).expect("the fuzzer's manifest");
    assert!(manifest.contains(&format!("path = \"fuzz_targets/{target}.rs\"")), "{target} has no program");
    let mut fed = 0;
    let mut taken = 0;
    for entry in fs::read_dir(fuzz.join("corpus").join(target)).expect("a corpus") {
        let bytes = fs::read(entry.expect("an entry").path()).expect("a file");
        taken += u32::from(feed(&bytes));
        feed(&bytes[..bytes.len() / 2]);
        fed += 1;
    }
    feed(b"");
    assert!(fed >= 4, "{target} begins with too little");
    assert!(taken >= 3, "{target}: {taken} of {fed} files were taken");
}
