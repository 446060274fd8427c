//! What plugins need to know of the calls that run on them.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;

use super::DrainThen;
use bulkhead_calls::ListKind;
use bulkhead_domain::task::PluginVersion;
use bulkhead_store as store;
use bulkhead_tasks::{Tasks, Withdrawal};

/// The task engine of a running host, or the store of one that does not run.
#[async_trait]
pub trait Calls: Send + Sync + 'static {
    /// How many tasks that are not over belong to each version.
    async fn tasks(&self) -> Result<HashMap<PluginVersion, usize>, store::Error>;

    /// Waits until versions say that lists of theirs are different now. Where nobody calls, none ever does.
    async fn next_list_changes(&self) -> HashMap<PluginVersion, HashSet<ListKind>> {
        std::future::pending().await
    }

    /// Tells clients that these lists are different now for some of them. Nothing is said when there are none.
    fn lists_changed(&self, kinds: &[ListKind]);

    /// Ends the tasks of a version.
    async fn end(&self, version: &PluginVersion, how: DrainThen);
}

#[async_trait]
impl Calls for Tasks {
    async fn tasks(&self) -> Result<HashMap<PluginVersion, usize>, store::Error> {
        self.by_version().await
    }

    async fn next_list_changes(&self) -> HashMap<PluginVersion, HashSet<ListKind>> {
        Tasks::next_list_changes(self).await
    }

    fn lists_changed(&self, kinds: &[ListKind]) {
        if !kinds.is_empty() {
            Tasks::lists_changed(self);
        }
    }

    async fn end(&self, version: &PluginVersion, how: DrainThen) {
        match how {
            DrainThen::Wait => {}
            DrainThen::Cancel => self.withdraw(version, Withdrawal::Cancel).await,
            DrainThen::Fail => self.withdraw(version, Withdrawal::Fail).await,
        }
    }
}
