//! What plugins report about their lists and resources, for every subscriber.
//!
//! Owns nothing that lasts: a subscriber that missed a report reads the lists again. Invariant: a plugin speaks for its
//! own resources only; subscribers are selected by the plugin's name, and none learns what another requestor's call did
//! to a resource that may be that requestor's alone. A report about lists reaches no subscriber before the publisher of
//! lists has read them.
//!
//! An update of a resource goes to all subscribers only if its plugin lists the resource at load, which the host does
//! for no requestor in particular. Any other resource may be different for each requestor, and the news itself would
//! tell what others do: it goes to the requestor alone whose call made it.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use tokio::sync::{Notify, broadcast, watch};

use crate::parts::host_messages::{self, HostMessage, Outbox};
use bulkhead_calls::{Catalog, ListKind};
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::PluginVersion;

/// Updates that a slow listener may be behind; above this it misses the oldest.
const UPDATES_BEHIND_MAX: usize = 256;

/// The contents of a resource are different now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceUpdate {
    /// The name of the plugin that says so.
    pub plugin: String,
    pub uri: String,
    /// The requestor that it concerns; none: all.
    only: Option<Requestor>,
}

impl ResourceUpdate {
    /// Whether this requestor may be notified.
    pub fn concerns(&self, requestor: &Requestor) -> bool {
        self.only.is_none_or(|only| only == *requestor)
    }
}

pub(crate) struct CatalogEvents {
    /// Counts the changes of any requestor's lists.
    changes: watch::Sender<u64>,
    updates: broadcast::Sender<ResourceUpdate>,
    /// What versions reported since it was last taken: three lists of each at most.
    changed_lists: Mutex<HashMap<PluginVersion, HashSet<ListKind>>>,
    list_changed: Notify,
    /// For other hosts, where there may be some.
    outbox: Option<Outbox>,
}

impl CatalogEvents {
    /// `is_shared`: what plugins of this host report is told other hosts, too.
    pub(crate) fn new(is_shared: bool) -> Self {
        Self {
            changes: watch::channel(0).0,
            updates: broadcast::channel(UPDATES_BEHIND_MAX).0,
            changed_lists: Mutex::default(),
            list_changed: Notify::new(),
            outbox: is_shared.then(Outbox::default),
        }
    }

    /// What is to be told other hosts.
    pub(crate) fn outbox(&self) -> Option<&Outbox> {
        self.outbox.as_ref()
    }

    /// Another host's plugin reports something: as if one of this host had.
    pub(crate) fn hear(&self, message: HostMessage) {
        match message {
            HostMessage::ListChanged { plugin, digest, kind } => {
                if let Some(kind) = host_messages::list_kind(kind) {
                    self.note(&PluginVersion { name: plugin, digest }, kind);
                }
            }
            HostMessage::ResourceUpdated { plugin, uri, only } => {
                // Fails when nobody listens, which is fine.
                let _ = self.updates.send(ResourceUpdate { plugin, uri, only: only.map(host_messages::requestor) });
            }
            HostMessage::Client(_) => {}
        }
    }

    pub(crate) fn changed(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// A version says that a list of its own is different now.
    pub(crate) fn note_changed_list(&self, version: &PluginVersion, kind: ListKind) {
        if let Some(outbox) = &self.outbox {
            outbox.put(HostMessage::list_changed(version, kind));
        }
        self.note(version, kind);
    }

    fn note(&self, version: &PluginVersion, kind: ListKind) {
        self.changed_lists.lock().entry(version.clone()).or_default().insert(kind);
        self.list_changed.notify_one();
    }

    /// Waits until versions say something, and takes it.
    pub(crate) async fn changed_lists(&self) -> HashMap<PluginVersion, HashSet<ListKind>> {
        loop {
            let changed_lists = std::mem::take(&mut *self.changed_lists.lock());
            if !changed_lists.is_empty() {
                return changed_lists;
            }
            self.list_changed.notified().await;
        }
    }

    /// A plugin says in a call of this requestor's that a resource is different now. One that the plugin lists for
    /// nobody in particular is everybody's. Any other one may be different for each requestor, and that there is news
    /// would tell of what others do.
    pub(crate) fn updated(&self, catalog: &Catalog, requestor: &Requestor, plugin: &str, uri: String) {
        let is_everybodys = catalog.owner(&uri).is_some_and(|owner| owner.plugin.name == plugin);
        let only = (!is_everybodys).then_some(*requestor);
        if let Some(outbox) = &self.outbox {
            outbox.put(Some(HostMessage::resource_updated(plugin.to_owned(), uri.clone(), only.as_ref())));
        }
        // Fails when nobody listens, which is fine.
        let _ = self.updates.send(ResourceUpdate { plugin: plugin.to_owned(), uri, only });
    }

    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(crate) fn updates(&self) -> broadcast::Receiver<ResourceUpdate> {
        self.updates.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::host_messages::next_of;

    #[tokio::test]
    async fn reports_of_plugins_are_told_other_hosts_and_theirs_are_not_told_again() {
        let version = PluginVersion { name: "p".to_owned(), digest: [3; 32] };
        let here = CatalogEvents::new(true);
        let there = CatalogEvents::new(true);
        let mut updates = there.updates();
        here.note_changed_list(&version, ListKind::Prompts);
        here.outbox().unwrap().put(Some(HostMessage::resource_updated("p".to_owned(), "a://b".to_owned(), None)));
        let mut waiting = here.outbox().unwrap().take_waiting().unwrap();
        for message in next_of(&mut waiting).await {
            there.hear(message);
        }
        assert_eq!(there.changed_lists().await, HashMap::from([(version, HashSet::from([ListKind::Prompts]))]));
        let update = updates.try_recv().unwrap();
        assert_eq!((update.plugin.as_str(), update.uri.as_str(), update.only), ("p", "a://b", None));
        assert_eq!(there.outbox().unwrap().take_waiting().unwrap().len(), 0, "or it would go round for ever");
        assert!(CatalogEvents::new(false).outbox().is_none());
    }
}
