//! Answers to commands, by family: tasks, plugins, secrets, the store, tenants, tokens, the audit log and the running
//! host. Types of other crates that answer as they are stand in the table of `commands`.
//!
//! Owns the members of answers and their order. Must not know how an answer comes to be or how it is shown.

mod activity;
mod audit;
mod health;
mod history;
mod tasks;

use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use bulkhead_domain::UnixMs;
use bulkhead_identity::principal::TokenInfo;
use bulkhead_plugins::{Changes, Digest, GrantRow, PluginView, Stage, Staged, SwitchResult, VersionView};
use bulkhead_store::sled::{Moved, Report};
use bulkhead_tasks::secrets::SecretInfo;

pub use activity::{ActivityCountsView, ActivityRowView, ActivityView};
pub use audit::{AuditChainView, AuditLineView, AuditPageView};
pub use health::{AuditHealth, ClockHealth, GuestsHealth, HealthView, PluginsHealth, StoreHealth};
pub use history::{HistoryPointView, HistoryView};
pub use tasks::{
    DivergenceView, DurableView, InputView, JournalEntryView, JournalView, LeftOutView, ReplayView, TaskDetailsView,
    TaskListView, TaskPageView, TaskPurgeView, TaskStatus, TaskView, TimelineEntryView, TimelineView, TransitionView,
};

/// All plugins.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PluginListView {
    pub plugins: Vec<PluginView>,
}

/// The versions of one plugin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PluginVersionsView {
    pub name: String,
    pub versions: Vec<VersionView>,
}

/// What a version needs and may reach.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PluginGrantsView {
    pub name: String,
    pub version: Digest,
    /// Interfaces that its component imports.
    pub imports: Vec<String>,
    pub everybody: Vec<GrantRow>,
    /// In calls of tenants that have a bound of their own.
    pub tenants: Vec<TenantGrantsView>,
}

/// What may be reached in calls of one tenant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TenantGrantsView {
    /// None: it has no name here.
    pub tenant: Option<String>,
    pub grants: Vec<GrantRow>,
}

/// What came of a command, unless the components themselves stand against it: that is an answer, not a failure.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PluginOutcome<T> {
    Refused(RefusedView),
    Result(T),
}

impl<T: PluginResult> PluginOutcome<T> {
    /// Whether anything has changed. Else the answer says why not.
    pub fn is_done(&self) -> bool {
        match self {
            Self::Refused(refused) => refused.done,
            Self::Result(result) => result.is_done(),
        }
    }
}

/// What a command about plugins did.
pub trait PluginResult {
    /// Whether it was done, or waits for the operator's word.
    fn is_done(&self) -> bool;
}

/// Components that cannot be plugins here.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RefusedView {
    pub done: bool,
    pub refused: Vec<RefusedPlugin>,
}

/// One of them, with everything that is wrong with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RefusedPlugin {
    pub plugin: String,
    pub problems: Vec<String>,
}

/// A version that can be switched to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StagedView {
    pub done: bool,
    pub name: String,
    pub version: Digest,
    pub state: Stage,
    pub tools: usize,
    /// Against the active version; none: there is none.
    pub changes: Option<Changes>,
    /// What of it needs the operator's word, one sentence each.
    pub held: Vec<String>,
}

impl From<Staged> for StagedView {
    fn from(staged: Staged) -> Self {
        let Staged { version, stage, tools, changes, held } = staged;
        Self { done: true, name: version.name, version: Digest(version.digest), state: stage, tools, changes, held }
    }
}

impl PluginResult for StagedView {
    fn is_done(&self) -> bool {
        self.done
    }
}

impl PluginResult for SwitchResult {
    fn is_done(&self) -> bool {
        self.done
    }
}

/// What was at a plugin's source, and whether it was switched to.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PluginUpdateView {
    Staged(StagedView),
    Switched(SwitchResult),
}

impl PluginResult for PluginUpdateView {
    fn is_done(&self) -> bool {
        match self {
            Self::Staged(staged) => staged.is_done(),
            Self::Switched(switched) => switched.is_done(),
        }
    }
}

/// A version that is gone, or a plugin that is out of service.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PluginRemoveView {
    Version(VersionRemovedView),
    Plugin(SwitchResult),
}

/// A version that is gone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VersionRemovedView {
    pub done: bool,
    pub name: String,
    pub removed: Digest,
}

impl PluginResult for PluginRemoveView {
    fn is_done(&self) -> bool {
        match self {
            Self::Version(removed) => removed.done,
            Self::Plugin(switched) => switched.is_done(),
        }
    }
}

/// All secrets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SecretListView {
    pub secrets: Vec<SecretInfo>,
}

/// A secret that is gone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SecretRemoveView {
    pub removed: String,
    pub plugin: String,
}

/// How many secrets were sealed with the first key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SecretRotateView {
    pub rotated: usize,
}

/// What a check found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoreCheckView {
    #[serde(flatten)]
    pub report: Report,
    /// Whether there is no problem.
    pub sound: bool,
}

impl From<Report> for StoreCheckView {
    fn from(report: Report) -> Self {
        Self { sound: report.problems.is_empty(), report }
    }
}

fn is_no_path(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

/// What a rebuild did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoreRebuildView {
    #[serde(flatten)]
    pub moved: Moved,
    /// Where the database before is kept; nothing where there was none.
    #[serde(default, skip_serializing_if = "is_no_path")]
    pub old_store: PathBuf,
}

/// Where a backup is, and what belongs to the host and is not in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoreBackupView {
    pub directory: PathBuf,
    /// Components of plugins that were copied.
    #[serde(default)]
    pub components: u64,
    /// One sentence for each thing, with how to get it.
    #[serde(default)]
    pub left_out: Vec<String>,
}

/// All tenants.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TenantListView {
    pub tenants: Vec<TenantView>,
}

/// A tenant with what it has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TenantView {
    pub name: String,
    pub id: String,
    pub requestors: usize,
    /// Those that open the door at this moment.
    pub tokens: usize,
    pub tasks: u64,
    pub bytes: u64,
}

/// What tenants used, by tenant and day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantUsageView {
    pub usage: Vec<TenantDayView>,
    /// Whether there is more than was shown.
    pub more: bool,
}

/// What a tenant used in a day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantDayView {
    /// None: the tenant has no name here.
    pub tenant: Option<String>,
    pub id: String,
    /// In UTC, as `2026-11-25`.
    pub day: String,
    pub calls: u64,
    pub cpu_ms: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// The most of the day.
    pub stored_bytes: u64,
}

/// How the tools of a plugin were called, by day and tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginUsageView {
    pub name: String,
    pub usage: Vec<ToolDayView>,
    /// Whether there is more than was shown.
    pub more: bool,
}

/// How a tool was called in a day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolDayView {
    /// In UTC, as `2026-11-25`.
    pub day: String,
    /// None: what else the plugin was called for.
    pub tool: Option<String>,
    /// Calls that ended.
    pub calls: u64,
    /// Those of them that were errors; a call that was stopped is none.
    pub errors: u64,
}

/// The names behind ids, as far as they are known.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NamesView {
    pub names: IndexMap<String, String>,
}

/// What was removed of a tenant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TenantPurgeView {
    /// The ids of those that were erased: with one whose erasure was interrupted, it can be more than one.
    pub tenants: Vec<String>,
    pub tasks: u64,
    pub tokens: u64,
    pub principals: u64,
    pub sessions: u64,
    pub rows: u64,
    /// That the tenant was in.
    pub canaries: u64,
    pub old_stores: u64,
    /// What is left for the operator to remove.
    pub directories: Vec<String>,
}

/// A token that was just made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TokenCreateView {
    #[serde(flatten)]
    pub info: TokenInfo,
    /// There is no second look at it.
    pub token: String,
}

/// All tokens.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TokenListView {
    pub tokens: Vec<TokenInfo>,
}

/// What is in use of each limit that counts something, by its name, in the order in which they are shown.
pub type LimitCounts = IndexMap<String, LimitCount>;

/// How much of a limit is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitCount {
    pub in_use: u64,
    pub max: u64,
}

/// What is in use, of the host, of tenants and of requestors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LimitsView {
    pub host: LimitCounts,
    pub tenants: Vec<TenantLimitsView>,
    pub requestors: Vec<RequestorLimitsView>,
    /// Whether there are more requestors.
    pub more: bool,
}

/// What a tenant has in use.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TenantLimitsView {
    pub tenant: String,
    pub limits: LimitCounts,
}

/// What a requestor has in use.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RequestorLimitsView {
    pub requestor: String,
    pub tenant: String,
    pub limits: LimitCounts,
}

/// What is left to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainView {
    /// Whether nothing new is taken.
    pub draining: bool,
    /// Whether nothing goes on any more that ends by itself.
    pub still: bool,
    pub plain_calls: usize,
    pub tasks_running: usize,
    pub tasks_queued: usize,
    pub tasks_waiting: usize,
    pub tasks_paused: usize,
    /// Those of the paused ones that go on when an operator releases them.
    #[serde(default)]
    pub tasks_held: usize,
}

/// What a host says of itself at its start: which program it is, where it serves, and what it keeps its data in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostIdentity {
    pub version: String,
    /// The file that it was started from; it ends with ` (deleted)` once an upgrade has replaced it.
    pub program: Option<String>,
    pub pid: u32,
    pub started_at: UnixMs,
    /// Where clients are served; absent over stdio, as are the three that may not be configured.
    pub address: Option<String>,
    pub admin_address: Option<String>,
    pub metrics_address: Option<String>,
    pub dashboard_address: Option<String>,
    pub data: String,
    /// The engine of the store.
    pub store: String,
    /// Whether what is private in the store is sealed with keys of the operator's.
    pub sealed: bool,
    pub wasmtime: String,
}

/// The configuration that a host runs on, which another one may have taken the place of since its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigIdentity {
    pub config: Option<String>,
    /// Of the file as it was read; a host without a file has the digest of nothing.
    pub config_sha256: String,
}

/// Which host answers, and what is left to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatusView {
    #[serde(flatten)]
    pub host: HostIdentity,
    #[serde(flatten)]
    pub config: ConfigIdentity,
    #[serde(flatten)]
    pub drain: DrainView,
}

/// A link that logs an operator in at the dashboard. The first browser that uses it is an operator's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DashboardLoginView {
    pub link: String,
    pub expires_at: UnixMs,
}

/// What another configuration changes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReloadView {
    /// Whether it was taken over.
    pub done: bool,
    pub changed: Vec<String>,
    pub configuration_sha256: String,
    pub configuration_sha256_before: String,
}
