//! What each command does.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;

use super::admin::RunningHost;
use super::commands::{
    ActivityShow, AuditCommand, AuditPage, ConfigReload, DashboardLogin, DrainBegin, DrainEnd, DrainShow, HealthShow,
    HistoryShow, HostCommand, HostShow, LimitsInUse, PluginCommand, PluginUsage, StoreBackup, StoreCheck, StoreCommand,
    StoreExport, StoreRebuild, StoreRekey, TasksCancel, TasksCommand, TasksFail, TasksHold, TasksJournal, TasksList,
    TasksPage, TasksPause, TasksPurge, TasksRelease, TasksReplay, TasksResume, TasksShow, TenantCommand, TenantList,
    TenantNames, TenantPurge, TenantUsage, TokenCommand, TokenCreate, TokenList, TokenRevoke,
};
use super::durability::{fail_message, hold_message, message_to_requestor};
use super::erase::EraseHooks;
use super::plugins::PluginAdmin;
use super::task_control::{TaskAction, TaskControl};
use super::views::{
    InputView, NamesView, StoreBackupView, StoreCheckView, StoreRebuildView, TaskDetailsView, TaskListView, TaskView,
    TokenCreateView, TokenListView,
};
use super::{Answer, Command, ControlError, Operator, ReadNotes, Request as _};
use bulkhead_audit::{Audit, Entry};
use bulkhead_calls::policy::DirGrant;
use bulkhead_domain::clock::Clock;
use bulkhead_domain::hex;
use bulkhead_domain::requestor::TenantId;
use bulkhead_domain::task::{Input, Outcome, Task, TaskId};
use bulkhead_identity::principal::{self, PrincipalNames, Principals, TokenSpec};
use bulkhead_store::sled::{Moved, Rekeyed};
use bulkhead_store::{self as store, Store};
use bulkhead_tasks as tasks;
use bulkhead_tasks::secrets::Secrets;

/// Tasks in one reply.
const TASKS_MAX: usize = 10_000;
const PAGE_TASKS: usize = 256;
/// What a task that an operator paused says, unless the operator has other words.
const PAUSED: &str = "paused by the operator";

/// What a backup leaves out, with how to get it.
const NOT_IN_BACKUPS: [&str; 3] = [
    "audit/, the audit log: copy the folder that [audit] names, then `bulkhead audit verify` the copy",
    "the configuration, and the keys, certificates and token files that it names: copy them; without its key nobody reads a sealed store",
    "cache/ and cache.key, compiled code: the next start compiles again",
];

/// What only the engine behind the store can do for itself.
#[async_trait]
pub trait StoreMaintenance: Send + Sync + 'static {
    /// Reads everything; what is there, or the first thing that is wrong.
    async fn check(&self) -> Result<StoreCheckView, store::Error>;
    /// Writes everything that can be read to a new file.
    async fn export(&self, file: &Path) -> Result<Moved, store::Error>;
    /// Puts a new database in the place of the old one, made of an export or of what can be read.
    async fn rebuild(&self, from: Option<&Path>) -> Result<StoreRebuildView, store::Error>;
    /// Writes what is there anew, so that nothing that was removed is left in the files.
    async fn forget_removed(&self) -> Result<StoreRebuildView, store::Error> {
        self.rebuild(None).await
    }
    /// Copies the store into a new data directory, and the components of plugins; returns the number of those.
    async fn backup(&self, directory: &Path) -> Result<u64, store::Error>;
    /// Seals the keys of tenants with the operator's first key.
    async fn rekey(&self) -> Result<Rekeyed, store::Error>;
    /// Removes the databases that rebuilds replaced; returns their number.
    async fn remove_old_stores(&self) -> Result<u64, store::Error>;
    /// Removes the stored sessions of a tenant; returns their number.
    async fn remove_sessions(&self, tenant: TenantId) -> Result<u64, store::Error>;
    /// Tenants whose erasure was begun and is not over.
    async fn erasing(&self) -> Result<Vec<TenantId>, store::Error>;
    /// Keeps that list, durable on return.
    async fn set_erasing(&self, tenants: &[TenantId]) -> Result<(), store::Error>;
}

/// Everything that commands work on.
pub struct HostOperator {
    pub(super) store: Arc<dyn Store>,
    pub(super) maintenance: Arc<dyn StoreMaintenance>,
    pub(super) task_control: Arc<dyn TaskControl>,
    pub(super) clock: Arc<dyn Clock>,
    /// Those of a host that runs know what was removed from it.
    pub principals: Principals,
    pub plugin_admin: Option<PluginAdmin>,
    pub running_host: Option<RunningHost>,
    pub secrets: Option<Arc<Secrets>>,
    /// Of what was ordered.
    pub audit: Audit,
    /// Which looks it has already.
    pub read_notes: Arc<ReadNotes>,
    /// Others who must let a tenant go that is erased.
    pub erase_hooks: Arc<EraseHooks>,
    /// Granted to plugins, where no host runs that would know.
    pub directories: Vec<DirGrant>,
    /// Held while a tenant is erased.
    pub(super) purging: tokio::sync::Mutex<()>,
}

impl HostOperator {
    /// On a store alone; what else there is to work on is set from outside.
    pub fn new(
        store: Arc<dyn Store>,
        maintenance: Arc<dyn StoreMaintenance>,
        task_control: Arc<dyn TaskControl>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let principals = Principals::new(Arc::clone(&store));
        let audit = Audit::off();
        let erase_hooks = Arc::default();
        let purging = tokio::sync::Mutex::default();
        Self {
            store,
            maintenance,
            task_control,
            clock,
            principals,
            plugin_admin: None,
            secrets: None,
            running_host: None,
            audit,
            read_notes: Arc::default(),
            erase_hooks,
            directories: Vec::new(),
            purging,
        }
    }

    async fn create_token(&self, request: &TokenCreate) -> Result<TokenCreateView, ControlError> {
        let TokenCreate { requestor, tenant, expires_at, name, scopes } = request;
        let expires_at = *expires_at;
        let now = self.clock.now();
        let label = name.as_deref();
        let scopes = scopes.as_deref();
        let spec = TokenSpec { requestor, tenant, expires_at, label, scopes };
        if spec.expires_at.is_some_and(|at| at <= self.clock.system()) {
            return Err(ControlError::Invalid("the token would have expired already".to_owned()));
        }
        let new = self.principals.create(spec, now).await?;
        tracing::info!(token.id = new.info.id, "a token was made");
        Ok(TokenCreateView { info: new.info, token: new.token })
    }

    async fn list_tasks(
        &self,
        requestor: Option<&str>,
        tenant: Option<&str>,
        count_max: usize,
    ) -> Result<TaskListView, ControlError> {
        let count_max = count_max.min(TASKS_MAX);
        let names = self.principals.names().await?;
        let wanted = |named: &PrincipalNames| {
            requestor.is_none_or(|name| named.name == name) && tenant.is_none_or(|name| named.tenant == name)
        };
        let mut tasks = Vec::new();
        if requestor.is_none() && tenant.is_none() {
            // Also finds tasks whose requestor has no name here.
            tasks = self.scan(count_max + 1).await?;
        } else {
            for named in names.iter().filter(|named| wanted(named)) {
                let left = (count_max + 1).saturating_sub(tasks.len());
                tasks.extend(self.store.list(&named.requestor, None, left).await?);
            }
        }
        let more = tasks.len() > count_max;
        tasks.truncate(count_max);
        let now = self.clock.now();
        let tasks = tasks.iter().filter(|task| !is_expired(task, now)).map(|task| summary(task, &names)).collect();
        Ok(TaskListView { tasks, more })
    }

    async fn scan(&self, count_max: usize) -> Result<Vec<Task>, ControlError> {
        let mut tasks: Vec<Task> = Vec::new();
        while tasks.len() < count_max {
            let after = tasks.last().map(|task| (task.requestor, task.id));
            let page = self.store.scan(after, PAGE_TASKS.min(count_max - tasks.len())).await?;
            if page.is_empty() {
                break;
            }
            tasks.extend(page);
        }
        Ok(tasks)
    }

    /// A task by its id alone, which is an operator's privilege.
    pub(super) async fn find(&self, id: &str) -> Result<Task, ControlError> {
        let absent = || ControlError::NotFound(format!("there is no task {id:?}; `bulkhead tasks list` shows the ids"));
        let task_id = TaskId::parse(id).ok_or_else(absent)?;
        let found = self.store.find(task_id).await?;
        found.filter(|task| !is_expired(task, self.clock.now())).ok_or_else(absent)
    }

    async fn show(&self, id: &str) -> Result<TaskDetailsView, ControlError> {
        let task = self.find(id).await?;
        let timeline = (!task.timeline.is_empty()).then(|| (&task.timeline).into());
        let durable = self.durable(&task).await?;
        Ok(TaskDetailsView { timeline, durable, ..details(&task, &self.principals.names().await?) })
    }

    async fn order(&self, id: &str, order: TaskAction) -> Result<TaskDetailsView, ControlError> {
        let task = self.find(id).await?;
        let changed =
            self.task_control.apply(&task.requestor, task.id, order.clone()).await.map_err(|error| match error {
                tasks::Error::NotFound => ControlError::NotFound(format!("there is no task {id:?}")),
                tasks::Error::Ended => ControlError::Invalid(format!("task {id} is over already")),
                tasks::Error::Illegal(why) => ControlError::Invalid(format!("task {id}: {why}")),
                other => ControlError::Failed(other.to_string()),
            })?;
        let done = match order {
            TaskAction::Cancel => "cancelled",
            TaskAction::Pause { .. } => "paused",
            TaskAction::Resume => "resumed",
            TaskAction::Hold { .. } => "held",
            TaskAction::Release => "released",
            TaskAction::Fail { .. } => "failed",
        };
        tracing::info!(task.id = %changed.id, "an operator {done} a task");
        Ok(details(&changed, &self.principals.names().await?))
    }
}

/// What a paused task says to its requestor.
fn pause_message(message: Option<String>) -> Result<String, ControlError> {
    let message = message.unwrap_or_else(|| PAUSED.to_owned());
    message_to_requestor(&message)?;
    Ok(message)
}

#[async_trait]
impl Operator for HostOperator {
    async fn execute_for(&self, who: &str, command: Command) -> Result<Answer, ControlError> {
        let what = self.audit.is_on().then(|| command.summary());
        let is_merged = command.looks_at_host_alone();
        let done = self.dispatch(who, command).await;
        let is_noted = |what: &String| match &done {
            Ok(answer) if is_merged && !answer.is_refusal => self.read_notes.is_due(who, what, self.clock.now()),
            _ => true,
        };
        if let Some(what) = what.filter(is_noted) {
            self.audit.note(|| {
                let entry = Entry::new("operator.command").named(&what).operator(who);
                match &done {
                    Ok(answer) if answer.is_refusal => entry.outcome("refused"),
                    Ok(_) => entry.outcome("succeeded"),
                    Err(error) => entry.outcome("failed").because(&error.to_string()),
                }
            });
        }
        done
    }

    async fn read_unnoted(&self, command: Command) -> Result<Answer, ControlError> {
        if !command.is_read() {
            return Err(ControlError::Invalid("this command changes something: it is noted each time".to_owned()));
        }
        self.dispatch(WITHOUT_NOTE, command).await
    }
}

/// Who reads without a note: what changes nothing needs no name.
const WITHOUT_NOTE: &str = "viewers";

impl HostOperator {
    async fn dispatch(&self, who: &str, command: Command) -> Result<Answer, ControlError> {
        match command {
            Command::Token(command) => self.token(command).await,
            Command::Secret(command) => match &self.secrets {
                Some(secrets) => super::secrets::execute(secrets, &self.principals, command, self.clock.now()).await,
                None => Err(ControlError::Invalid("there are no secrets here".to_owned())),
            },
            Command::Store(command) => self.store(command).await,
            Command::Tenant(command) => self.tenant(command).await,
            Command::Tasks(command) => self.tasks(command).await,
            Command::Host(command) => self.host(who, command).await,
            Command::Audit(AuditCommand::Page(request)) => AuditPage::answer(&self.audit_page(request).await?),
            Command::Plugin(PluginCommand::Usage(PluginUsage { name, days })) => {
                PluginUsage::answer(&self.tool_usage(&name, days).await?)
            }
            Command::Plugin(command) => match &self.plugin_admin {
                Some(plugin_admin) => super::plugins::execute(plugin_admin, &self.principals, command).await,
                None => Err(ControlError::Invalid("there are no plugins here".to_owned())),
            },
        }
    }

    async fn token(&self, command: TokenCommand) -> Result<Answer, ControlError> {
        match command {
            TokenCommand::Create(request) => TokenCreate::answer(&self.create_token(&request).await?),
            TokenCommand::List(_) => TokenList::answer(&TokenListView { tokens: self.principals.tokens().await? }),
            TokenCommand::Revoke(TokenRevoke { id }) => {
                let revoked = self.principals.revoke_token(&id, self.clock.now()).await?;
                tracing::info!(token.id = revoked.id, "a token was revoked");
                TokenRevoke::answer(&revoked)
            }
        }
    }

    async fn store(&self, command: StoreCommand) -> Result<Answer, ControlError> {
        match command {
            StoreCommand::Check(_) => StoreCheck::answer(&self.maintenance.check().await?),
            StoreCommand::Export(StoreExport { file }) => StoreExport::answer(&self.maintenance.export(&file).await?),
            StoreCommand::Rebuild(StoreRebuild { from }) => {
                StoreRebuild::answer(&self.maintenance.rebuild(from.as_deref()).await?)
            }
            StoreCommand::Backup(StoreBackup { directory }) => {
                let components = self.maintenance.backup(&directory).await?;
                let left_out = NOT_IN_BACKUPS.map(str::to_owned).into();
                StoreBackup::answer(&StoreBackupView { directory, components, left_out })
            }
            StoreCommand::Rekey(_) => StoreRekey::answer(&self.maintenance.rekey().await?),
        }
    }

    async fn tenant(&self, command: TenantCommand) -> Result<Answer, ControlError> {
        match command {
            TenantCommand::List(_) => TenantList::answer(&self.list_tenants().await?),
            TenantCommand::Purge(TenantPurge { tenant }) => TenantPurge::answer(&self.purge_tenant(&tenant).await?),
            TenantCommand::Usage(TenantUsage { tenant, days }) => {
                TenantUsage::answer(&self.usage(tenant.as_deref(), days).await?)
            }
            TenantCommand::Names(TenantNames { ids }) => TenantNames::answer(&self.names(&ids).await?),
        }
    }

    pub(super) async fn names(&self, ids: &[String]) -> Result<NamesView, ControlError> {
        let wanted: HashSet<&str> = ids.iter().map(String::as_str).collect();
        let tenants = self.principals.tenants().await?.into_iter().map(|(name, id)| (id.to_string(), name));
        let requestors = self.principals.names().await?.into_iter();
        let requestors = requestors.map(|named| (named.requestor.id.to_string(), named.name));
        let names = tenants.chain(requestors).filter(|(id, _)| wanted.contains(id.as_str()));
        Ok(NamesView { names: names.collect() })
    }

    async fn tasks(&self, command: TasksCommand) -> Result<Answer, ControlError> {
        match command {
            TasksCommand::List(TasksList { requestor, tenant, count_max }) => {
                TasksList::answer(&self.list_tasks(requestor.as_deref(), tenant.as_deref(), count_max).await?)
            }
            TasksCommand::Show(TasksShow { id }) => TasksShow::answer(&self.show(&id).await?),
            TasksCommand::Cancel(TasksCancel { id }) => {
                TasksCancel::answer(&self.order(&id, TaskAction::Cancel).await?)
            }
            TasksCommand::Pause(TasksPause { id, message }) => {
                let pause = TaskAction::Pause { message: pause_message(message)? };
                TasksPause::answer(&self.order(&id, pause).await?)
            }
            TasksCommand::Resume(TasksResume { id }) => {
                TasksResume::answer(&self.order(&id, TaskAction::Resume).await?)
            }
            TasksCommand::Hold(TasksHold { id, message }) => {
                let hold = TaskAction::Hold { message: hold_message(message.as_deref())? };
                TasksHold::answer(&self.order(&id, hold).await?)
            }
            TasksCommand::Release(TasksRelease { id }) => {
                self.must_be_held(&id).await?;
                TasksRelease::answer(&self.order(&id, TaskAction::Release).await?)
            }
            TasksCommand::Fail(TasksFail { id, message }) => {
                let fail = TaskAction::Fail { message: fail_message(message)? };
                TasksFail::answer(&self.order(&id, fail).await?)
            }
            TasksCommand::Journal(TasksJournal { id, entries_max, from }) => {
                TasksJournal::answer(&self.journal(&id, entries_max, from).await?)
            }
            TasksCommand::Replay(TasksReplay { id }) => TasksReplay::answer(&self.replay(&id).await?),
            TasksCommand::Purge(TasksPurge { id }) => TasksPurge::answer(&self.purge(&id).await?),
            TasksCommand::Page(TasksPage { filter, after, count_max }) => {
                TasksPage::answer(&self.task_page(&filter, after.as_deref(), count_max).await?)
            }
        }
    }

    async fn host(&self, who: &str, command: HostCommand) -> Result<Answer, ControlError> {
        match command {
            HostCommand::Limits(LimitsInUse { filter, count_max }) => {
                LimitsInUse::answer(&self.limits_in_use(&filter, count_max).await?)
            }
            HostCommand::DrainBegin(_) => DrainBegin::answer(&self.drain(true)?),
            HostCommand::DrainEnd(_) => DrainEnd::answer(&self.drain(false)?),
            HostCommand::DrainShow(_) => DrainShow::answer(&self.unfinished()?),
            HostCommand::Show(_) => HostShow::answer(&self.status().await?),
            HostCommand::Activity(ActivityShow { by }) => ActivityShow::answer(&self.activity(by).await?),
            HostCommand::History(HistoryShow { points_max }) => HistoryShow::answer(&self.history(points_max)?),
            HostCommand::DashboardLogin(_) => DashboardLogin::answer(&self.login_link()?),
            HostCommand::Health(_) => HealthShow::answer(&self.health().await?),
            HostCommand::Reload(ConfigReload { check }) => {
                let view = self.reload(who, check).await?;
                Ok(Answer { is_refusal: !view.done, ..ConfigReload::answer(&view)? })
            }
            HostCommand::Attach(_) => Err(ControlError::Invalid("only a running host can be attached to".to_owned())),
        }
    }
}

pub(super) fn is_expired(task: &Task, now: u64) -> bool {
    task.expires_at().is_some_and(|at| at <= now)
}

/// One line of a list.
pub(super) fn summary(task: &Task, names: &[PrincipalNames]) -> TaskView {
    let named = names.iter().find(|named| named.requestor == task.requestor);
    TaskView {
        id: task.id.to_string(),
        status: (&task.phase).into(),
        tool: task.work.label().to_owned(),
        requestor: named.map(|named| named.name.clone()),
        tenant: named.map(|named| named.tenant.clone()),
        created_at: task.created_at,
        updated_at: task.updated_at,
        expires_at: task.expires_at(),
        status_message: task.status_message.clone(),
    }
}

/// Everything but what belongs to the requestor alone: arguments, answers and results.
fn details(task: &Task, names: &[PrincipalNames]) -> TaskDetailsView {
    let input = |input: &Input| InputView { key: input.issued_key.clone(), answered: input.answer.is_some() };
    TaskDetailsView {
        task: summary(task, names),
        plugin: task.plugin.name.clone(),
        plugin_sha256: hex(&task.plugin.digest),
        call_id: task.call_id.to_string(),
        attempt: task.attempt,
        revision: task.revision,
        inputs: task.inputs.iter().map(input).collect(),
        steering_waiting: task.steering.len(),
        error: match task.outcome() {
            Some(Outcome::Error(error)) => Some(format!("{error:?}")),
            _ => None,
        },
        held: task.is_held(),
        dormant_since: task.dormant_since(),
        durable: None,
        timeline: None,
        trace_id: task.origin.trace.as_ref().map(|trace| hex(&trace.trace_id)),
    }
}

impl From<store::Error> for ControlError {
    fn from(error: store::Error) -> Self {
        match error {
            store::Error::Exists => Self::Invalid("there is something in its place already".to_owned()),
            other => Self::Failed(other.to_string()),
        }
    }
}

impl From<principal::Error> for ControlError {
    fn from(error: principal::Error) -> Self {
        match error {
            principal::Error::Name { .. } | principal::Error::Removed(_) | principal::Error::Scope(_) => {
                Self::Invalid(error.to_string())
            }
            principal::Error::UnknownToken(_) => Self::NotFound(error.to_string()),
            other => Self::Failed(other.to_string()),
        }
    }
}
