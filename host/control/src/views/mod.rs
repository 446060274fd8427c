//! What is answered to commands, by family. Types of other crates that answer as they are stand in the table of `commands`.
//!
//! Owns the members of answers and their order. Must not know how an answer comes to be or how it is shown.

mod host;
mod plugins;
mod secrets;
mod store;
mod tasks;
mod tenants;
mod tokens;

pub use host::{DrainView, LimitCount, LimitCounts, LimitsView, ReloadView, RequestorLimitsView, TenantLimitsView};
pub use plugins::{
    PluginListView, PluginOutcome, PluginRemoveView, PluginResult, PluginUpdateView, PluginVersionsView, RefusedPlugin,
    RefusedView, StagedView, VersionRemovedView,
};
pub use secrets::{SecretListView, SecretRemoveView, SecretRotateView};
pub use store::{StoreBackupView, StoreCheckView, StoreRebuildView};
pub use tasks::{InputView, TaskDetailsView, TaskListView, TaskPageView, TaskPurgeView, TaskStatus, TaskView};
pub use tenants::{TenantListView, TenantPurgeView, TenantView};
pub use tokens::{TokenCreateView, TokenListView};
