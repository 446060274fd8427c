//! Reads of the operator API that are repeated while an operator looks, once for all who look at the same.
//!
//! Owns the pollers, one for each distinct command. Must not draw anything. Invariants: a poller lives as long as it
//! has a viewer; however many viewers and pollers there are, one read runs at a time, and all of them together run for
//! at most a tenth of the time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bulkhead_control::{Answer, Command, ControlError, Operator};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::lead_reads::rest_after;

/// How often a read is repeated that takes next to no time.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// Per cent of one processor's time that reads for the live pages of operators take at most, all together.
const READ_PERCENT_TOTAL_MAX: u32 = 10;
/// Distinct reads that one live page of the dashboard follows.
const READS_PER_PAGE_MAX: usize = 8;

/// All pollers, by the text of their command.
pub(crate) struct SharedReads {
    operator: Arc<dyn Operator>,
    /// When the next read may begin; held by the one that runs.
    rested_at: tokio::sync::Mutex<Instant>,
    pollers: Mutex<HashMap<String, Arc<Poller>>>,
}

struct Poller {
    command: Command,
    readings: watch::Sender<Reading>,
    /// A new viewer does not wait for the next turn: what it has seen before may be newer than the last reading.
    wanted: Notify,
}

/// How it stands.
#[derive(Clone, Debug, Default)]
struct Reading {
    begun: Option<Instant>,
    /// Another one where the answer is another one.
    version: u64,
    answer: Option<Result<Answer, ControlError>>,
}

impl Reading {
    /// Takes over what was read; every viewer is told, so that a new one knows that its reading has begun after it
    /// came.
    fn renew(&mut self, begun: Instant, answer: Result<Answer, ControlError>) {
        self.begun = Some(begun);
        let is_same = match (&self.answer, &answer) {
            (Some(Ok(before)), Ok(now)) => before.is_same(now),
            (Some(Err(before)), Err(now)) => before == now,
            _ => false,
        };
        if !is_same {
            self.version += 1;
            self.answer = Some(answer);
        }
    }
}

impl SharedReads {
    pub(crate) fn new(operator: Arc<dyn Operator>) -> Arc<Self> {
        Arc::new(Self { operator, rested_at: tokio::sync::Mutex::new(Instant::now()), pollers: Mutex::default() })
    }

    /// What a command reads from now on.
    fn subscribe(self: &Arc<Self>, key: &str, command: Command) -> watch::Receiver<Reading> {
        let mut pollers = self.pollers.lock();
        let poller = pollers.entry(key.to_owned()).or_insert_with(|| {
            let readings = watch::Sender::default();
            let wanted = Notify::new();
            let poller = Arc::new(Poller { command, readings, wanted });
            tokio::spawn(Arc::clone(self).poll(key.to_owned(), Arc::clone(&poller)));
            poller
        });
        poller.wanted.notify_one();
        poller.readings.subscribe()
    }

    async fn poll(self: Arc<Self>, key: String, poller: Arc<Poller>) {
        loop {
            let (begun, answer) = self.read(poller.command.clone()).await;
            poller.readings.send_modify(|reading| reading.renew(begun, answer));
            tokio::select! {
                () = tokio::time::sleep(POLL_EVERY) => {}
                () = poller.wanted.notified() => {}
                () = poller.readings.closed() => {
                    let mut pollers = self.pollers.lock();
                    if poller.readings.receiver_count() == 0 {
                        pollers.remove(&key);
                        return;
                    }
                }
            }
        }
    }

    /// Reads when it is its turn.
    async fn read(&self, command: Command) -> (Instant, Result<Answer, ControlError>) {
        let mut rested_at = self.rested_at.lock().await;
        tokio::time::sleep_until(*rested_at).await;
        let begun = Instant::now();
        let answer = self.operator.read_unnoted(command).await;
        *rested_at = Instant::now() + rest_after(begun.elapsed(), READ_PERCENT_TOTAL_MAX);
        (begun, answer)
    }
}

/// The operator API for one live page: what it reads once, it goes on reading, together with all others.
pub(crate) struct FollowedReads {
    shared: Arc<SharedReads>,
    followed: Mutex<Vec<Followed>>,
}

struct Followed {
    key: String,
    readings: watch::Receiver<Reading>,
    /// The version that the page shows.
    shown: u64,
}

impl FollowedReads {
    pub(crate) fn new(shared: Arc<SharedReads>) -> Self {
        Self { shared, followed: Mutex::default() }
    }

    /// Done when something reads differently from what the page shows. May be dropped and called again.
    pub(crate) async fn changed(&self) {
        let waits: Vec<_> = self
            .followed
            .lock()
            .iter()
            .map(|followed| {
                let mut readings = followed.readings.clone();
                let shown = followed.shown;
                Box::pin(async move {
                    if readings.wait_for(|reading| reading.version != shown).await.is_err() {
                        std::future::pending::<()>().await;
                    }
                })
            })
            .collect();
        if waits.is_empty() {
            return std::future::pending().await;
        }
        futures::future::select_all(waits).await;
    }

    fn find(&self, key: &str) -> Option<watch::Receiver<Reading>> {
        self.followed.lock().iter().find(|followed| followed.key == key).map(|followed| followed.readings.clone())
    }
}

#[async_trait]
impl Operator for FollowedReads {
    /// Who looks was noted when the page was opened.
    async fn execute_for(&self, _: &str, command: Command) -> Result<Answer, ControlError> {
        let key = command.summary();
        let (mut readings, since) = match self.find(&key) {
            Some(readings) => (readings, None),
            None => {
                if self.followed.lock().len() >= READS_PER_PAGE_MAX {
                    return Err(ControlError::Invalid(format!("a page follows {READS_PER_PAGE_MAX} reads at most")));
                }
                let since = Instant::now();
                (self.shared.subscribe(&key, command), Some(since))
            }
        };
        let is_new = |reading: &Reading| since.is_none_or(|since| reading.begun.is_some_and(|begun| begun >= since));
        let reading = readings.wait_for(is_new).await.map(|reading| reading.clone());
        let Ok(Reading { version, answer: Some(answer), .. }) = reading else {
            return Err(ControlError::Failed("the host could not be read".to_owned()));
        };
        let mut followed = self.followed.lock();
        match followed.iter_mut().find(|followed| followed.key == key) {
            Some(followed) => followed.shown = version,
            None => followed.push(Followed { key, readings, shown: version }),
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use bulkhead_control::Request as _;
    use bulkhead_control::commands::DrainShow;
    use bulkhead_control::views::DrainView;

    use super::*;

    /// Counts its reads, each of which takes a while, and has so many plain calls.
    #[derive(Default)]
    struct Host {
        reads: AtomicU64,
        plain_calls: AtomicUsize,
        read_ms: u64,
    }

    #[async_trait]
    impl Operator for Host {
        async fn execute_for(&self, _: &str, _: Command) -> Result<Answer, ControlError> {
            panic!("a live page orders nothing, and is noted once");
        }

        async fn read_unnoted(&self, _: Command) -> Result<Answer, ControlError> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(self.read_ms)).await;
            let plain_calls = self.plain_calls.load(Ordering::Relaxed);
            DrainShow::answer(&DrainView {
                draining: false,
                still: false,
                plain_calls,
                tasks_running: 0,
                tasks_queued: 0,
                tasks_waiting: 0,
                tasks_paused: 0,
                tasks_held: 0,
            })
        }
    }

    async fn plain_calls(viewer: &FollowedReads) -> usize {
        let answer = viewer.execute_for("", DrainShow {}.into()).await.unwrap();
        answer.read::<DrainShow>().unwrap().plain_calls
    }

    async fn sleep(seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn fifty_viewers_share_one_poller_that_ends_with_the_last_of_them() {
        let host = Arc::new(Host::default());
        let shared = SharedReads::new(host.clone());
        let mut viewers: Vec<_> = (0..50).map(|_| FollowedReads::new(Arc::clone(&shared))).collect();
        for viewer in &viewers {
            assert_eq!(plain_calls(viewer).await, 0);
        }
        assert_eq!(shared.pollers.lock().len(), 1);
        let before = host.reads.load(Ordering::Relaxed);
        sleep(10).await;
        let polls = host.reads.load(Ordering::Relaxed) - before;
        assert!((9..=11).contains(&polls), "{polls} reads in ten seconds");

        viewers.truncate(1);
        sleep(5).await;
        assert_eq!(shared.pollers.lock().len(), 1, "one still looks");
        viewers.clear();
        sleep(5).await;
        assert!(shared.pollers.lock().is_empty());
        let before = host.reads.load(Ordering::Relaxed);
        sleep(60).await;
        assert_eq!(host.reads.load(Ordering::Relaxed), before, "nobody looks");
    }

    #[tokio::test(start_paused = true)]
    async fn viewers_hear_of_another_answer_and_not_of_the_same() {
        let host = Arc::new(Host::default());
        let shared = SharedReads::new(host.clone());
        let viewer = FollowedReads::new(Arc::clone(&shared));
        assert_eq!(plain_calls(&viewer).await, 0);
        assert!(tokio::time::timeout(Duration::from_secs(30), viewer.changed()).await.is_err());
        host.plain_calls.store(7, Ordering::Relaxed);
        let since = Instant::now();
        viewer.changed().await;
        assert!(since.elapsed() <= Duration::from_millis(1_500), "{:?}", since.elapsed());
        assert_eq!(plain_calls(&viewer).await, 7);
        // One that comes now sees what is now, not what was read before it came.
        host.plain_calls.store(8, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(plain_calls(&FollowedReads::new(Arc::clone(&shared))).await, 8);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_reads_take_a_tenth_of_the_time_together() {
        let host = Arc::new(Host { read_ms: 500, ..Host::default() });
        let shared = SharedReads::new(host.clone());
        let viewers: Vec<_> = (0..8).map(|_| FollowedReads::new(Arc::clone(&shared))).collect();
        let read = async |viewer: &FollowedReads, name: usize| {
            let command = bulkhead_control::commands::PluginVersions { name: name.to_string() };
            viewer.execute_for("", command.into()).await.unwrap();
        };
        for (name, viewer) in viewers.iter().enumerate() {
            read(viewer, name).await;
        }
        assert_eq!(shared.pollers.lock().len(), viewers.len());
        let before = host.reads.load(Ordering::Relaxed);
        sleep(200).await;
        let busy_ms = (host.reads.load(Ordering::Relaxed) - before) * 500;
        assert!((15_000..=20_500).contains(&busy_ms), "{busy_ms} ms of 200 s");
    }

    #[tokio::test(start_paused = true)]
    async fn page_follows_a_bounded_number_of_reads() {
        let viewer = FollowedReads::new(SharedReads::new(Arc::new(Host::default())));
        for name in 0..READS_PER_PAGE_MAX {
            let command = bulkhead_control::commands::PluginVersions { name: name.to_string() };
            assert!(viewer.execute_for("", command.into()).await.is_ok());
        }
        let refused = viewer.execute_for("", DrainShow {}.into()).await;
        assert!(matches!(refused, Err(ControlError::Invalid(_))), "{refused:?}");
    }
}
