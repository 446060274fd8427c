//! What operators can order, by family, and which view answers each order.
//!
//! Owns the names and members that go over the wire. Must not do anything. Invariant: a command is one JSON object
//! whose member `command` names it; the JSON of a command or of its answer changes only together with
//! [`super::wire::PROTOCOL`].

use std::path::PathBuf;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::views::*;
use super::{Answer, ControlError, SecretText};
use bulkhead_domain::UnixMs;
use bulkhead_identity::principal::TokenInfo;
use bulkhead_plugins::sources::Source;
use bulkhead_plugins::{CanaryThresholdOverrides, SwitchResult, Verified, VersionChanges, VersionDurability};
use bulkhead_store::sled::{Moved, Rekeyed};
use bulkhead_tasks::ActivityGroup;
use bulkhead_tasks::secrets::SecretInfo;

/// A command with the view that answers it.
pub trait Request: Into<Command> + Send + 'static {
    type Answer: Serialize + DeserializeOwned + Send;

    /// The answer as it goes to the operator.
    ///
    /// # Errors
    ///
    /// The view cannot be written as JSON: it has a path that is no text.
    fn answer(view: &Self::Answer) -> Result<Answer, ControlError> {
        Answer::of(view)
    }
}

/// Makes of the table below the commands by family, and says of each one what answers it.
macro_rules! commands {
    ($(
        $(#[$about:meta])*
        $family:ident($commands:ident) { $(
            $(#[$purpose:meta])*
            $name:literal $variant:ident($request:ident { $($(#[$attribute:meta])* $member:ident: $type:ty,)* }) -> $answer:ty,
        )+ }
    )+) => {
        /// One thing to do.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
        #[serde(untagged)]
        pub enum Command {
            $($(#[$about])* $family($commands),)+
        }

        impl<'de> Deserialize<'de> for Command {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let members = Value::deserialize(deserializer)?;
                let name = members.get("command").and_then(Value::as_str);
                let name = name.ok_or_else(|| D::Error::missing_field("command"))?;
                $(if [$($name),+].contains(&name) {
                    return $commands::deserialize(members).map(Self::$family).map_err(D::Error::custom);
                })+
                Err(D::Error::custom(format!("there is no command {name:?}")))
            }
        }

        $(
            $(#[$about])*
            #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
            #[serde(tag = "command")]
            pub enum $commands {
                $(#[serde(rename = $name)] $variant($request),)+
            }

            $(
                $(#[$purpose])*
                #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
                pub struct $request {
                    $($(#[$attribute])* pub $member: $type,)*
                }

                impl From<$request> for Command {
                    fn from(request: $request) -> Self {
                        Self::$family($commands::$variant(request))
                    }
                }

                impl Request for $request {
                    type Answer = $answer;
                }
            )+
        )+
    };
}

commands! {
    /// Bearer tokens.
    Token(TokenCommand) {
        /// Makes a bearer token; the answer is the only place where it ever shows.
        "token_create" Create(TokenCreate {
            requestor: String,
            tenant: String,
            expires_at: Option<UnixMs>,
            /// What the operator calls the token.
            #[serde(default)]
            name: Option<String>,
            /// What it is good for; everything without them.
            #[serde(default)]
            scopes: Option<Vec<String>>,
        }) -> TokenCreateView,
        /// All tokens, without the tokens themselves.
        "token_list" List(TokenList {}) -> TokenListView,
        /// Ends a token at once.
        "token_revoke" Revoke(TokenRevoke {
            id: String,
        }) -> TokenInfo,
    }
    /// What plugins use without seeing it.
    Secret(SecretCommand) {
        /// Keeps a secret for a plugin to use without seeing it.
        "secret_set" Set(SecretSet {
            name: String,
            plugin: String,
            /// None: for all tenants.
            tenant: Option<String>,
            destinations: Vec<String>,
            /// Of header, query and body.
            places: Vec<String>,
            value: SecretText,
        }) -> SecretInfo,
        /// All secrets, without their values.
        "secret_list" List(SecretList {}) -> SecretListView,
        /// Removes a secret.
        "secret_remove" Remove(SecretRemove {
            name: String,
            plugin: String,
            tenant: Option<String>,
        }) -> SecretRemoveView,
        /// Seals with the first key what another one sealed.
        "secret_rotate" Rotate(SecretRotate {}) -> SecretRotateView,
    }
    /// The store as a whole.
    Store(StoreCommand) {
        /// Reads everything and says what is wrong.
        "store_check" Check(StoreCheck {}) -> StoreCheckView,
        /// Writes every task and row as JSON lines to a new file.
        "store_export" Export(StoreExport {
            file: PathBuf,
        }) -> Moved,
        /// Makes a new database of an export, or of what can be read of the present one.
        "store_rebuild" Rebuild(StoreRebuild {
            from: Option<PathBuf>,
        }) -> StoreRebuildView,
        /// Copies the store into a new data directory.
        "store_backup" Backup(StoreBackup {
            directory: PathBuf,
        }) -> StoreBackupView,
        /// Seals the keys of tenants with the operator's first key.
        "store_rekey" Rekey(StoreRekey {}) -> Rekeyed,
    }
    /// Tenants.
    Tenant(TenantCommand) {
        /// All tenants, with what they have.
        "tenant_list" List(TenantList {}) -> TenantListView,
        /// Stops and removes everything of a tenant.
        "tenant_purge" Purge(TenantPurge {
            tenant: String,
        }) -> TenantPurgeView,
        /// The names behind the ids of tenants and requestors, as the audit log has them.
        "tenant_names" Names(TenantNames {
            ids: Vec<String>,
        }) -> NamesView,
        /// What tenants used, by day (UTC), the newest day last.
        "tenant_usage" Usage(TenantUsage {
            /// Only that of this one.
            #[serde(default)]
            tenant: Option<String>,
            /// Today and days before it.
            days: u32,
        }) -> TenantUsageView,
    }
    /// All tasks.
    Tasks(TasksCommand) {
        /// The first tasks of everybody, or of some.
        "tasks_list" List(TasksList {
            /// Only tasks of the requestor of this name.
            requestor: Option<String>,
            tenant: Option<String>,
            count_max: usize,
        }) -> TaskListView,
        /// One task.
        "tasks_show" Show(TasksShow {
            id: String,
        }) -> TaskDetailsView,
        /// Cancels a task.
        "tasks_cancel" Cancel(TasksCancel {
            id: String,
        }) -> TaskDetailsView,
        /// Stops a task for a while, wherever it is.
        "tasks_pause" Pause(TasksPause {
            id: String,
            /// What its requestor reads as its status.
            message: Option<String>,
        }) -> TaskDetailsView,
        /// Lets a paused task go on, whether its client or an operator paused it; not one that is held.
        "tasks_resume" Resume(TasksResume {
            id: String,
        }) -> TaskDetailsView,
        /// Stops a task until an operator releases it.
        "tasks_hold" Hold(TasksHold {
            id: String,
            /// Why, for its requestor.
            #[serde(default)]
            message: Option<String>,
        }) -> TaskDetailsView,
        /// Lets a task go on that the host or an operator holds.
        "tasks_release" Release(TasksRelease {
            id: String,
        }) -> TaskDetailsView,
        /// Ends a task as failed.
        "tasks_fail" Fail(TasksFail {
            id: String,
            /// What its requestor reads.
            #[serde(default)]
            message: Option<String>,
        }) -> TaskDetailsView,
        /// The journal of a task's call, without what its entries say.
        "tasks_journal" Journal(TasksJournal {
            id: String,
            /// None: no entries are listed.
            #[serde(default)]
            entries_max: Option<usize>,
            /// Only entries from this number on.
            #[serde(default)]
            from: u32,
        }) -> JournalView,
        /// Replays that journal without any effect.
        "tasks_replay" Replay(TasksReplay { id: String, }) -> ReplayView,
        /// Removes a task with everything that belongs to it, and stops it.
        "tasks_purge" Purge(TasksPurge {
            id: String,
        }) -> TaskPurgeView,
        /// A page of everybody's tasks.
        "tasks_page" Page(TasksPage {
            #[serde(default)]
            filter: TaskFilter,
            /// Where the page before ended.
            #[serde(default)]
            after: Option<String>,
            count_max: usize,
        }) -> TaskPageView,
    }
    /// What there is only of a host that runs.
    Host(HostCommand) {
        /// What is in use of the limits, and how much there may be.
        "limits_in_use" Limits(LimitsInUse {
            /// Only tenant and requestor matter.
            #[serde(default)]
            filter: TaskFilter,
            /// Requestors in the answer.
            count_max: usize,
        }) -> LimitsView,
        /// Takes nothing new from now on; what runs goes on to its end.
        "drain_begin" DrainBegin(DrainBegin {}) -> DrainView,
        /// Takes new work again.
        "drain_end" DrainEnd(DrainEnd {}) -> DrainView,
        /// What is left to end.
        "drain_show" DrainShow(DrainShow {}) -> DrainView,
        /// Which program answers, since when and where, and what is left to end.
        "host_show" Show(HostShow {}) -> HostStatusView,
        /// What calls cost, counted from the first look on until ten minutes after the last.
        "activity_show" Activity(ActivityShow {
            by: ActivityGroup,
        }) -> ActivityView,
        /// What the host did in the last hour, where a dashboard is served.
        "history_show" History(HistoryShow {
            /// Points in the answer; each sums up as much time as it must.
            points_max: usize,
        }) -> HistoryView,
        /// Whether the host is healthy and ready, and what that is read from.
        "health_show" Health(HealthShow {}) -> HealthView,
        /// Makes a link that logs in at the dashboard, once.
        "dashboard_login" DashboardLogin(DashboardLogin {}) -> DashboardLoginView,
        /// Reads the configuration again and takes it over, all of it or nothing.
        "reload" Reload(ConfigReload {
            /// Only says what would come of it.
            #[serde(default)]
            check: bool,
        }) -> ReloadView,
        /// From here on the connection carries MCP over stdio.
        "stdio_attach" Attach(StdioAttach {}) -> (),
    }
    /// The audit log.
    Audit(AuditCommand) {
        /// The newest lines that fit, or those before the place where a page ended, and how their chain stands.
        "audit_page" Page(AuditPage {
            /// Any of these; one that ends with a dot is how an event begins. None: all.
            #[serde(default)]
            events: Vec<String>,
            /// Only what is of the tenant of this name.
            #[serde(default)]
            tenant: Option<String>,
            /// Where the page before ended.
            #[serde(default)]
            after: Option<String>,
            count_max: usize,
            /// The lines alone: nothing is said of their chain, which costs less.
            #[serde(default, skip_serializing_if = "std::ops::Not::not")]
            lines_only: bool,
            /// Without lines of operators who only looked, and were not refused.
            #[serde(default, skip_serializing_if = "std::ops::Not::not")]
            changes_only: bool,
        }) -> AuditPageView,
    }
    /// Plugins and their versions.
    Plugin(PluginCommand) {
        /// All plugins.
        "plugin_list" List(PluginList {}) -> PluginListView,
        /// The versions of one plugin.
        "plugin_versions" Versions(PluginVersions {
            name: String,
        }) -> PluginVersionsView,
        /// How often its tools were called and failed, by day (UTC), the newest day last.
        "plugin_usage" Usage(PluginUsage {
            name: String,
            /// Today and days before it.
            days: u32,
        }) -> PluginUsageView,
        /// What a switch to a version would change, in full.
        "plugin_changes" Changes(PluginChanges {
            name: String,
            /// A digest, or how it begins; none: the canary, else what was staged last, else the active one.
            #[serde(default)]
            version: Option<String>,
            /// Only this tool, but all of it.
            #[serde(default)]
            tool: Option<String>,
        }) -> VersionChanges,
        /// What a version needs, asks for, is granted and may reach.
        "plugin_grants" Grants(PluginGrants {
            name: String,
            /// None: the active one.
            #[serde(default)]
            version: Option<String>,
        }) -> PluginGrantsView,
        /// Takes a component in as a version, and checks it.
        "plugin_stage" Stage(PluginStage {
            /// A file with its whole path, or an address.
            source: String,
            /// What its SHA-256 must be, in hexadecimal digits.
            sha256: Option<String>,
            name: Option<String>,
        }) -> PluginOutcome<StagedView>,
        /// Stages components and switches to all of them at once.
        "plugin_add" Add(PluginAdd {
            sources: Vec<String>,
            /// For a single source.
            sha256: Option<String>,
            /// For a single source.
            name: Option<String>,
            accept: bool,
        }) -> PluginOutcome<SwitchResult>,
        /// Looks at a plugin's source again, and stages what is there.
        "plugin_update" Update(PluginUpdate {
            name: String,
            /// Whether to switch to it, too.
            activate: bool,
            accept: bool,
        }) -> PluginOutcome<PluginUpdateView>,
        /// Switches to versions, all at once.
        "plugin_activate" Activate(PluginActivate {
            targets: Vec<PluginTarget>,
            accept: bool,
        }) -> PluginOutcome<SwitchResult>,
        /// Gives a version to a part of the requestors, or the canary to another part.
        "plugin_canary" Canary(PluginCanary {
            /// One of them.
            targets: Vec<PluginTarget>,
            /// In hundredths of a percent.
            share: Option<u16>,
            /// By name; none: as they are.
            tenants: Vec<String>,
            bounds: CanaryThresholdOverrides,
            accept: bool,
        }) -> PluginOutcome<SwitchResult>,
        /// Makes canaries the active versions.
        "plugin_promote" Promote(PluginPromote {
            names: Vec<String>,
        }) -> PluginOutcome<SwitchResult>,
        /// Takes canaries back, or switches back to the versions before.
        "plugin_rollback" Rollback(PluginRollback {
            names: Vec<String>,
        }) -> PluginOutcome<SwitchResult>,
        /// Says whether new calls of a version keep journals.
        "plugin_durable" Durable(PluginDurable {
            name: String,
            /// A digest, or how it begins; none: the active one.
            #[serde(default)]
            version: Option<String>,
            durable: bool,
        }) -> VersionDurability,
        /// Takes a plugin out of service, or removes a version that nothing runs on.
        "plugin_remove" Remove(PluginRemove {
            name: String,
            version: Option<String>,
        }) -> PluginOutcome<PluginRemoveView>,
        /// Reads every kept component again.
        "plugin_verify" Verify(PluginVerify {
            name: Option<String>,
        }) -> Verified,
    }
}

/// Which tasks are meant: those to which all of this applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskFilter {
    pub tenant: Option<String>,
    pub requestor: Option<String>,
    pub plugin: Option<String>,
    pub status: Option<String>,
    /// By its name in the catalog.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Created then or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<UnixMs>,
    /// Created before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<UnixMs>,
}

/// A version of a plugin, as an operator names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginTarget {
    pub name: String,
    /// A digest, or how it begins; none: the version that was staged last.
    pub version: Option<String>,
}

impl Command {
    /// Its name and what it is about, on one line. None of it is secret: tokens are in answers only, and values are
    /// left out.
    pub fn summary(&self) -> String {
        let mut shown = self.clone();
        match &mut shown {
            // Its name is erased as well; the log knows it by its id.
            Self::Tenant(TenantCommand::Purge(_)) => return r#"{"command":"tenant_purge"}"#.to_owned(),
            Self::Secret(SecretCommand::Set(SecretSet { value, .. })) => *value = SecretText::default(),
            _ => {}
        }
        serde_json::to_string(&shown).unwrap_or_default()
    }

    /// Whether it only shows how the host stands: it may be repeated for viewers without a further line of the audit
    /// log.
    pub fn is_read(&self) -> bool {
        match self {
            Self::Token(command) => matches!(command, TokenCommand::List(_)),
            Self::Tasks(command) => matches!(command, TasksCommand::Show(_) | TasksCommand::Page(_)),
            Self::Host(command) => {
                matches!(
                    command,
                    HostCommand::Limits(_)
                        | HostCommand::Health(_)
                        | HostCommand::DrainShow(_)
                        | HostCommand::Show(_)
                        | HostCommand::History(_)
                        | HostCommand::Activity(_)
                )
            }
            Self::Tenant(command) => matches!(command, TenantCommand::List(_)),
            Self::Plugin(command) => {
                matches!(command, PluginCommand::List(_) | PluginCommand::Versions(_) | PluginCommand::Usage(_))
            }
            Self::Secret(_) | Self::Store(_) | Self::Audit(_) => false,
        }
    }

    /// Whether it changes nothing, however much it reads.
    pub fn only_looks(&self) -> bool {
        self.is_read()
            || match self {
                Self::Token(_) => false,
                Self::Secret(command) => matches!(command, SecretCommand::List(_)),
                Self::Store(command) => matches!(command, StoreCommand::Check(_)),
                Self::Tenant(command) => matches!(command, TenantCommand::Names(_) | TenantCommand::Usage(_)),
                Self::Tasks(command) => {
                    matches!(command, TasksCommand::List(_) | TasksCommand::Journal(_) | TasksCommand::Replay(_))
                }
                Self::Host(command) => matches!(command, HostCommand::Reload(ConfigReload { check: true })),
                Self::Audit(AuditCommand::Page(_)) => true,
                Self::Plugin(command) => {
                    matches!(command, PluginCommand::Changes(_) | PluginCommand::Grants(_) | PluginCommand::Verify(_))
                }
            }
    }

    /// Whether it changes nothing and is about no single tenant, requestor or task: lines of the audit log that say the
    /// same within a minute are one.
    pub(super) fn looks_at_host_alone(&self) -> bool {
        let is_of_all = |filter: &TaskFilter| filter.tenant.is_none() && filter.requestor.is_none();
        self.only_looks()
            && match self {
                Self::Secret(_) => false,
                Self::Tenant(TenantCommand::Usage(TenantUsage { tenant, .. })) => tenant.is_none(),
                Self::Tenant(command) => matches!(command, TenantCommand::List(_)),
                Self::Tasks(TasksCommand::Page(TasksPage { filter, .. })) => is_of_all(filter),
                Self::Tasks(TasksCommand::List(TasksList { requestor, tenant, .. })) => {
                    requestor.is_none() && tenant.is_none()
                }
                Self::Tasks(_) => false,
                Self::Host(HostCommand::Limits(LimitsInUse { filter, .. })) => is_of_all(filter),
                Self::Audit(AuditCommand::Page(AuditPage { tenant, .. })) => tenant.is_none(),
                Self::Token(_) | Self::Store(_) | Self::Host(_) | Self::Plugin(_) => true,
            }
    }

    /// Whether it may come over the network: it is about what the host does, names no path of its machine, and puts no
    /// other code into service.
    pub fn is_for_administrators(&self) -> bool {
        match self {
            Self::Token(command) => matches!(command, TokenCommand::List(_) | TokenCommand::Revoke(_)),
            Self::Tasks(command) => match command {
                TasksCommand::List(_) => false,
                TasksCommand::Show(_) | TasksCommand::Page(_) => true,
                TasksCommand::Journal(_) | TasksCommand::Replay(_) => true,
                TasksCommand::Pause(_) | TasksCommand::Resume(_) => true,
                TasksCommand::Hold(_) | TasksCommand::Release(_) | TasksCommand::Fail(_) => true,
                TasksCommand::Cancel(_) | TasksCommand::Purge(_) => true,
            },
            Self::Host(command) => match command {
                HostCommand::Limits(_) | HostCommand::Activity(_) | HostCommand::Health(_) | HostCommand::Reload(_) => {
                    true
                }
                HostCommand::History(_) | HostCommand::Show(_) => true,
                HostCommand::DrainBegin(_) | HostCommand::DrainEnd(_) | HostCommand::DrainShow(_) => true,
                // A link makes an operator of its user: it is for the user of the machine only.
                HostCommand::Attach(_) | HostCommand::DashboardLogin(_) => false,
            },
            Self::Tenant(command) => matches!(command, TenantCommand::List(_) | TenantCommand::Usage(_)),
            Self::Plugin(command) => {
                matches!(command, PluginCommand::List(_) | PluginCommand::Versions(_) | PluginCommand::Usage(_))
            }
            Self::Audit(AuditCommand::Page(_)) => true,
            Self::Secret(_) | Self::Store(_) => false,
        }
    }

    /// Whether an operator may give it in a browser: what may come over the network, the making of a token, and what
    /// puts versions of plugins into service one by one, as long as it names no path of the host's machine. Definitions
    /// that change are accepted for a version that was staged before, so that they can be read first.
    pub fn is_for_dashboard(&self) -> bool {
        self.is_for_administrators()
            || match self {
                Self::Plugin(command) => match command {
                    // No file of this machine.
                    PluginCommand::Stage(PluginStage { source, .. }) => {
                        source.parse::<Source>().is_ok_and(|source| source.path().is_none())
                    }
                    PluginCommand::Update(PluginUpdate { activate, .. }) => !activate,
                    PluginCommand::Activate(PluginActivate { targets, .. })
                    | PluginCommand::Canary(PluginCanary { targets, .. }) => {
                        matches!(targets[..], [PluginTarget { version: Some(_), .. }])
                    }
                    PluginCommand::List(_) | PluginCommand::Versions(_) | PluginCommand::Usage(_) => true,
                    PluginCommand::Changes(_) | PluginCommand::Grants(_) => true,
                    PluginCommand::Promote(_) | PluginCommand::Rollback(_) | PluginCommand::Remove(_) => true,
                    PluginCommand::Add(_) | PluginCommand::Durable(_) | PluginCommand::Verify(_) => false,
                },
                Self::Token(command) => matches!(command, TokenCommand::Create(_)),
                Self::Tasks(_) | Self::Host(_) | Self::Tenant(_) | Self::Audit(_) => false,
                Self::Secret(_) | Self::Store(_) => false,
            }
    }
}
