//! What plugins need to know of the calls that run on them.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;

use super::DrainThen;
use bulkhead_domain::task::PluginVersion;
use bulkhead_runtime::ListKind;
use bulkhead_store as store;
use bulkhead_tasks::{CallCounts, CanaryStats, PluginHealth, Tasks, Verdict, Withdrawal};

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

    /// Which of its calls broke lately, and who is kept from it.
    fn health(&self, version: &PluginVersion) -> PluginHealth;

    /// Lets everybody at it again.
    fn close_breaker(&self, version: &PluginVersion);

    /// Watches these versions from now on, and no others.
    fn watch(&self, trials: Vec<CanaryStats>) {
        let _ = trials;
    }

    /// Waits until watched versions pass a bound, and gives all that did. Where nobody calls, none ever does.
    async fn versions_failed(&self) -> Vec<Verdict> {
        std::future::pending().await
    }

    /// What was seen of a watched version.
    fn call_counts(&self, version: &PluginVersion) -> Option<CallCounts> {
        let _ = version;
        None
    }

    /// After how many faults in a row a requestor is kept from a plugin.
    fn quarantine_after(&self, plugin: &str, faults: u32);
}

#[async_trait]
impl Calls for Tasks {
    async fn tasks(&self) -> Result<HashMap<PluginVersion, usize>, store::Error> {
        Ok(self.by_version())
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

    fn health(&self, version: &PluginVersion) -> PluginHealth {
        self.plugin_health(version)
    }

    fn close_breaker(&self, version: &PluginVersion) {
        self.reset_breaker(version);
    }

    fn watch(&self, trials: Vec<CanaryStats>) {
        self.watch_versions(trials);
    }

    async fn versions_failed(&self) -> Vec<Verdict> {
        Tasks::versions_failed(self).await
    }

    fn call_counts(&self, version: &PluginVersion) -> Option<CallCounts> {
        Tasks::call_counts(self, version)
    }

    fn quarantine_after(&self, plugin: &str, faults: u32) {
        Tasks::quarantine_after(self, plugin, faults);
    }
}
