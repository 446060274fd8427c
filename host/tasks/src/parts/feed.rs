//! Notification channels: bounded broadcasts per task and per requestor, made when the first listener subscribes.
//!
//! Must not be asked for truth: a slow listener loses the oldest news and reads the record again.

use std::hash::Hash;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::broadcast;

use crate::parts::news::TaskNews;
use crate::parts::watchers::WatchedTasks;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::TaskId;
use bulkhead_store::journal::TaskRef;

/// News kept for a listener that lags; more is dropped, oldest first, so that a stalled client cannot hold memory.
const NEWS_KEPT_MAX: usize = 64;

/// Empty channels are looked for after this many new ones.
const PRUNE_EVERY: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Feeds {
    tasks: Mutex<Channels<(Requestor, TaskId)>>,
    requestors: Mutex<Channels<Requestor>>,
}

#[derive(Debug)]
struct Channels<K> {
    by_key: FxHashMap<K, broadcast::Sender<TaskNews>>,
    made: usize,
}

impl<K> Default for Channels<K> {
    fn default() -> Self {
        Self { by_key: FxHashMap::default(), made: 0 }
    }
}

impl<K: Eq + Hash> Channels<K> {
    fn subscribe(&mut self, key: K) -> broadcast::Receiver<TaskNews> {
        self.made += 1;
        if self.made.is_multiple_of(PRUNE_EVERY) {
            self.by_key.retain(|_, sender| sender.receiver_count() > 0);
        }
        self.by_key.entry(key).or_insert_with(|| broadcast::channel(NEWS_KEPT_MAX).0).subscribe()
    }

    fn listened_to(&self) -> Vec<K>
    where
        K: Copy,
    {
        let heard = self.by_key.iter().filter(|(_, sender)| sender.receiver_count() > 0);
        heard.map(|(key, _)| *key).collect()
    }

    fn publish(&mut self, key: &K, news: &TaskNews) {
        let Some(sender) = self.by_key.get(key) else { return };
        if sender.send(news.clone()).is_err() {
            self.by_key.remove(key);
        }
    }
}

impl Feeds {
    pub(crate) fn task(&self, requestor: &Requestor, id: TaskId) -> broadcast::Receiver<TaskNews> {
        self.tasks.lock().subscribe((*requestor, id))
    }

    pub(crate) fn requestor(&self, requestor: &Requestor) -> broadcast::Receiver<TaskNews> {
        self.requestors.lock().subscribe(*requestor)
    }

    /// Who is listened to at the moment.
    pub(crate) fn watched(&self) -> WatchedTasks {
        let tasks = self.tasks.lock().listened_to();
        WatchedTasks {
            tasks: tasks.into_iter().map(|(requestor, id)| TaskRef { requestor, id }).collect(),
            requestors: self.requestors.lock().listened_to(),
        }
    }

    pub(crate) fn publish(&self, requestor: &Requestor, id: TaskId, news: &TaskNews) {
        self.tasks.lock().publish(&(*requestor, id), news);
        self.requestors.lock().publish(requestor, news);
    }
}
