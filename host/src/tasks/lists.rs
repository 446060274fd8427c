//! What plugins say about their lists and resources, for everybody who listens.
//!
//! Owns nothing that lasts: who was not there when it was said looks at the lists again. Invariant: a plugin speaks for its own
//! resources only; who is told decides by the plugin's name.

use tokio::sync::{broadcast, watch};

use crate::runtime::ListKind;

/// Updates that a slow listener may be behind; above this it misses the oldest.
const UPDATES_BEHIND_MAX: usize = 256;

/// How often each list changed since the host started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListGenerations {
    pub tools: u64,
    pub resources: u64,
    pub prompts: u64,
}

impl ListGenerations {
    /// That of one list.
    pub fn of(&self, kind: ListKind) -> u64 {
        match kind {
            ListKind::Tools => self.tools,
            ListKind::Resources => self.resources,
            ListKind::Prompts => self.prompts,
        }
    }
}

/// The contents of a resource are different now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceUpdate {
    /// The name of the plugin that says so.
    pub plugin: String,
    pub uri: String,
}

pub(super) struct Lists {
    generations: watch::Sender<ListGenerations>,
    updates: broadcast::Sender<ResourceUpdate>,
}

impl Default for Lists {
    fn default() -> Self {
        Self {
            generations: watch::channel(ListGenerations::default()).0,
            updates: broadcast::channel(UPDATES_BEHIND_MAX).0,
        }
    }
}

impl Lists {
    pub(super) fn changed(&self, kind: ListKind) {
        self.generations.send_modify(|generations| match kind {
            ListKind::Tools => generations.tools += 1,
            ListKind::Resources => generations.resources += 1,
            ListKind::Prompts => generations.prompts += 1,
        });
    }

    pub(super) fn updated(&self, plugin: &str, uri: String) {
        // Fails when nobody listens, which is fine.
        let _ = self.updates.send(ResourceUpdate { plugin: plugin.to_owned(), uri });
    }

    pub(super) fn watch(&self) -> watch::Receiver<ListGenerations> {
        self.generations.subscribe()
    }

    pub(super) fn updates(&self) -> broadcast::Receiver<ResourceUpdate> {
        self.updates.subscribe()
    }
}
