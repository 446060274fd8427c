//! What plugins need to know of the calls that run on them.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;

use super::DrainThen;
use crate::domain::task::PluginVersion;
use crate::runtime::ListKind;
use crate::store;
use crate::tasks::{CanaryStats, PluginHealth, Tally, Tasks, Verdict, Withdrawal};

/// The task engine of a running host, or the store of one that does not run.
#[async_trait]
pub trait Calls: Send + Sync + 'static {
    /// How many tasks that are not over belong to each version.
    async fn tasks(&self) -> Result<HashMap<PluginVersion, usize>, store::Error>;

    /// Waits until versions say that lists of theirs are different now. Where nobody calls, none ever does.
    async fn note_lists_changed(&self) -> HashMap<PluginVersion, HashSet<ListKind>> {
        std::future::pending().await
    }

    /// Tells clients that these lists are different now for some of them. Nothing is said when there are none.
    fn lists_changed(&self, kinds: &[ListKind]);

    /// Ends the tasks of a version.
    async fn end(&self, version: &PluginVersion, how: DrainThen);

    /// Which of its calls broke lately, and who is kept from it.
    fn health(&self, version: &PluginVersion) -> PluginHealth;

    /// Lets everybody at it again.
    fn forgive(&self, version: &PluginVersion);

    /// Watches these versions from now on, and no others.
    fn watch(&self, trials: Vec<CanaryStats>) {
        let _ = trials;
    }

    /// Waits until watched versions pass a bound, and gives all that did. Where nobody calls, none ever does.
    async fn versions_failed(&self) -> Vec<Verdict> {
        std::future::pending().await
    }

    /// What was seen of a watched version.
    fn tally(&self, version: &PluginVersion) -> Option<Tally> {
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

    async fn note_lists_changed(&self) -> HashMap<PluginVersion, HashSet<ListKind>> {
        Tasks::note_lists_changed(self).await
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

    fn forgive(&self, version: &PluginVersion) {
        self.reset_breaker(version);
    }

    fn watch(&self, trials: Vec<CanaryStats>) {
        self.watch_versions(trials);
    }

    async fn versions_failed(&self) -> Vec<Verdict> {
        Tasks::versions_failed(self).await
    }

    fn tally(&self, version: &PluginVersion) -> Option<Tally> {
        Tasks::tally(self, version)
    }

    fn quarantine_after(&self, plugin: &str, faults: u32) {
        Tasks::quarantine_after(self, plugin, faults);
    }
}
