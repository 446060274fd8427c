//! What plugins say about their lists and resources, for everybody who listens.
//!
//! Owns nothing that lasts: who was not there when it was said looks at the lists again. Invariant: a plugin speaks for its own
//! resources only; who is told decides by the plugin's name. What a plugin says of its lists is told to nobody before whoever
//! publishes lists has looked.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use tokio::sync::{Notify, broadcast, watch};

use super::feed::lock;
use crate::domain::task::PluginVersion;

use crate::runtime::ListKind;

/// Updates that a slow listener may be behind; above this it misses the oldest.
const UPDATES_BEHIND_MAX: usize = 256;

/// The contents of a resource are different now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceUpdate {
    /// The name of the plugin that says so.
    pub plugin: String,
    pub uri: String,
}

pub(super) struct Lists {
    /// How often somebody's lists changed.
    changes: watch::Sender<u64>,
    updates: broadcast::Sender<ResourceUpdate>,
    /// What versions said since somebody took it: three lists of each at most.
    said: Mutex<HashMap<PluginVersion, HashSet<ListKind>>>,
    spoke: Notify,
}

impl Default for Lists {
    fn default() -> Self {
        Self {
            changes: watch::channel(0).0,
            updates: broadcast::channel(UPDATES_BEHIND_MAX).0,
            said: Mutex::default(),
            spoke: Notify::new(),
        }
    }
}

impl Lists {
    pub(super) fn changed(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// A version says that a list of its own is different now.
    pub(super) fn says(&self, version: &PluginVersion, kind: ListKind) {
        lock(&self.said).entry(version.clone()).or_default().insert(kind);
        self.spoke.notify_one();
    }

    /// Waits until versions say something, and takes it.
    pub(super) async fn said(&self) -> HashMap<PluginVersion, HashSet<ListKind>> {
        loop {
            let said = std::mem::take(&mut *lock(&self.said));
            if !said.is_empty() {
                return said;
            }
            self.spoke.notified().await;
        }
    }

    pub(super) fn updated(&self, plugin: &str, uri: String) {
        // Fails when nobody listens, which is fine.
        let _ = self.updates.send(ResourceUpdate { plugin: plugin.to_owned(), uri });
    }

    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(super) fn updates(&self) -> broadcast::Receiver<ResourceUpdate> {
        self.updates.subscribe()
    }
}
