//! Fixtures for the tests of every crate: a task, clocks that a test sets, and the replay of a fuzz corpus.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::UnixMs;
use crate::call::ClientFeatures;
use crate::clock::Clock;
use crate::requestor::Requestor;
use crate::task::{Active, CallId, Design, Era, Origin, Phase, PluginVersion, Retention, Task, TaskId, Work};

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
        }
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

/// Feeds every file of one target's corpus (`tests/fuzz/corpus/TARGET`), whole and cut in half, so that what the fuzzer found once is never
/// found again. `feed` says whether it took the bytes for what they claim to be.
///
/// # Panics
///
/// If the target has no program, its corpus has fewer than four files, or fewer than three of them get past the first refusal.
pub fn replay_corpus(fuzz: &Path, target: &str, feed: impl Fn(&[u8]) -> bool) {
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).expect("the fuzzer's manifest");
    assert!(manifest.contains(&format!("path = \"fuzz_targets/{target}.rs\"")), "{target} has no program");
    let (mut fed, mut taken) = (0, 0);
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
