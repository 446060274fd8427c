//! `subscriptions/listen`: one stream of what a client wants to hear about.
//!
//! Invariant: the acknowledgement is first, and names what is honoured; every message carries the subscription's id; a
//! task is never shown older than it was shown before.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use super::request::{Request, respond};
use super::result::Complete;
use super::task::{Detailed, Face, TaskNotification};
use crate::error::RpcError;
use crate::exchange::{FrameSender, streaming};
use crate::jsonrpc::{self, RequestId, notification};
use crate::notifications::{LIST_CHANGED_AFTER, list_changed_method};
use crate::request_context::RequestContext;
use crate::{Exchange, Frame, ProtocolContext, rights, sep1686};
use bulkhead_calls::{ListGenerations, ListKind};
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::rights::{Need, Rights};
use bulkhead_domain::task::{Task, TaskId};
use bulkhead_tasks::{self as tasks, ResourceUpdate, TaskNews};

/// Resources that one stream may follow; more are left out of the acknowledgement.
const RESOURCES_MAX: usize = 256;
/// Between two tries to read a task that changed: it may have ended, and then nothing changes any more.
const MISSED_RETRY: Duration = Duration::from_secs(1);
/// Tasks that one stream may follow; more are left out of the acknowledgement.
const TASKS_MAX: usize = 1024;

#[derive(Deserialize)]
struct Params {
    notifications: Filter,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Filter {
    tools_list_changed: Option<bool>,
    task_ids: Option<Vec<String>>,
    prompts_list_changed: Option<bool>,
    resources_list_changed: Option<bool>,
    resource_subscriptions: Option<Vec<String>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Honoured {
    #[serde(skip_serializing_if = "Option::is_none")]
    tools_list_changed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompts_list_changed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resources_list_changed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_subscriptions: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_ids: Option<Vec<String>>,
}

#[derive(Serialize)]
struct Acknowledged<'a> {
    notifications: &'a Honoured,
    #[serde(rename = "_meta")]
    meta: Meta<'a>,
}

#[derive(Clone, Copy, Serialize)]
struct Meta<'a> {
    #[serde(rename = "io.modelcontextprotocol/subscriptionId")]
    subscription: &'a RequestId,
}

#[derive(Serialize)]
struct Changed<'a> {
    #[serde(rename = "_meta")]
    meta: Meta<'a>,
}

#[derive(Serialize)]
struct Updated<'a> {
    uri: &'a str,
    #[serde(rename = "_meta")]
    meta: Meta<'a>,
}

/// `subscriptions/listen`.
pub(super) fn listen(request: Request<'_>) -> Result<Exchange, RpcError> {
    let Params { notifications: filter } = jsonrpc::params(request.params)?;
    if filter.task_ids.is_some() {
        request.client.check_tasks()?;
        rights::check(&request.context.rights, &[Need::Tasks], || {
            RpcError::invalid_params("tasks cannot be followed")
        })?;
    }
    let face = Face::of(&request);
    let context = request.context;
    let shared = Arc::clone(&context.shared);
    let requestor = context.requestor;
    let id = request.id;
    // From here on nothing is missed, whenever the stream is read.
    let lists = Lists::new(&context, &filter);
    let news = filter.task_ids.as_ref().map(|_| shared.tasks.feed(&requestor));
    let offers_resources = context.catalog.has_resources();
    let subscriptions = filter.resource_subscriptions.filter(|_| offers_resources);
    let updates = subscriptions.as_ref().map(|_| shared.tasks.resource_updates());
    let wanted = Subscription { tasks: filter.task_ids, resources: subscriptions, context };
    let connection = request.connection.map(|one| one.closing());
    let closing = Closing { host: shared.modern.closing.subscribe(), connection, credential: request.ends.cloned() };
    Ok(streaming(|frames| async move {
        let listener = Listener { shared, requestor, id, frames, face, shown: HashMap::new(), retry_at: None };
        Some(listener.run(wanted, Sources { lists, news, updates }, closing).await)
    }))
}

/// The end of the host, of the connection where several requests share one, and of the credential that the request came
/// with.
struct Closing {
    host: watch::Receiver<bool>,
    connection: Option<watch::Receiver<bool>>,
    credential: Option<watch::Receiver<bool>>,
}

impl Closing {
    async fn begins(&mut self) {
        async fn of(one: Option<&mut watch::Receiver<bool>>) {
            match one {
                Some(one) => drop(one.wait_for(|closing| *closing).await),
                None => std::future::pending().await,
            }
        }
        tokio::select! {
            () = of(Some(&mut self.host)) => {}
            () = of(self.connection.as_mut()) => {}
            () = of(self.credential.as_mut()) => {}
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Cancelled<'a> {
    request_id: &'a RequestId,
    reason: &'static str,
}

struct Listener {
    shared: Arc<ProtocolContext>,
    requestor: Requestor,
    id: RequestId,
    frames: FrameSender,
    face: Face,
    /// The tasks that are followed, with what was said of each last.
    shown: HashMap<TaskId, LastNotification>,
    /// When to look again at those that were missed.
    retry_at: Option<Instant>,
}

#[derive(Default)]
struct LastNotification {
    revision: u64,
    /// Of the line that was said last: the line itself may be as large as a result.
    digest: [u8; 32],
    /// It changed, and could not be read.
    missed: bool,
}

/// The lists that the stream is about.
struct Lists {
    shared: Arc<ProtocolContext>,
    requestor: Requestor,
    rights: Rights,
    changes: watch::Receiver<u64>,
    known: ListGenerations,
    kinds: Vec<ListKind>,
    /// When to tell of changes that were seen.
    due: Option<Instant>,
}

impl Lists {
    /// `None` when no plugin offers a wanted list.
    fn new(context: &RequestContext, filter: &Filter) -> Option<Self> {
        let catalog = &context.catalog;
        let kinds: Vec<_> = [
            (ListKind::Tools, filter.tools_list_changed.unwrap_or_default()),
            (ListKind::Prompts, filter.prompts_list_changed.unwrap_or_default() && catalog.has_prompts()),
            (ListKind::Resources, filter.resources_list_changed.unwrap_or_default() && catalog.has_resources()),
        ]
        .into_iter()
        .filter_map(|(kind, wanted)| wanted.then_some(kind))
        .collect();
        let mut changes = context.shared.tasks.catalog_changes();
        let shared = Arc::clone(&context.shared);
        let rights = context.rights.clone();
        // The catalog is older than this.
        changes.mark_changed();
        let known = catalog.lists();
        (!kinds.is_empty()).then_some(Self {
            shared,
            requestor: context.requestor,
            rights,
            changes,
            known,
            kinds,
            due: None,
        })
    }

    fn has(&self, kind: ListKind) -> Option<bool> {
        self.kinds.contains(&kind).then_some(true)
    }

    /// Those that changed since the last look; `None`: nothing will change any more. Cancel-safe.
    async fn changed(&mut self) -> Option<Vec<ListKind>> {
        let due = match self.due {
            Some(due) => due,
            None => {
                self.changes.changed().await.ok()?;
                *self.due.insert(Instant::now() + LIST_CHANGED_AFTER)
            }
        };
        tokio::time::sleep_until(due).await;
        self.due = None;
        self.changes.mark_unchanged();
        let now = self.shared.offered(&self.requestor, &self.rights).catalog.lists();
        let before = std::mem::replace(&mut self.known, now);
        Some(self.kinds.iter().copied().filter(|kind| now.of(*kind) != before.of(*kind)).collect())
    }
}

/// What the client names.
struct Subscription {
    tasks: Option<Vec<String>>,
    resources: Option<Vec<String>>,
    /// As it was when the stream began.
    context: RequestContext,
}

/// Where the stream's messages come from.
struct Sources {
    lists: Option<Lists>,
    news: Option<broadcast::Receiver<TaskNews>>,
    updates: Option<broadcast::Receiver<ResourceUpdate>>,
}

enum Next {
    Updated(ResourceUpdate),
    Changed(Vec<ListKind>),
    News(TaskNews),
    /// News were lost: look at everything again.
    Lost,
    /// Look again at what could not be read.
    Retry,
    /// The host has nothing more to say.
    Over,
}

impl Listener {
    async fn run(mut self, wanted: Subscription, mut sources: Sources, mut closing: Closing) -> Frame {
        let tasks = match self.find_tasks(wanted.tasks.as_deref().unwrap_or_default()).await {
            Ok(tasks) => tasks,
            Err(error) => return super::refused(&self.id, &error),
        };
        let followed = match self.follow(wanted.context, wanted.resources.unwrap_or_default()).await {
            Ok(followed) => followed,
            Err(error) => return super::refused(&self.id, &error),
        };
        self.acknowledge(&sources, wanted.tasks.is_some().then_some(tasks.as_slice()), &followed);
        for task in tasks {
            self.show(task).await;
        }
        if self.shown.is_empty() {
            sources.news = None;
        }
        if followed.is_empty() {
            sources.updates = None;
        }
        while sources.lists.is_some() || sources.news.is_some() || sources.updates.is_some() {
            let next = tokio::select! {
                biased;
                () = closing.begins() => Next::Over,
                next = sources.next() => next,
                () = tokio::time::sleep_until(self.retry_at.unwrap_or_else(Instant::now)), if self.retry_at.is_some() => Next::Retry,
            };
            if matches!(next, Next::Over) {
                // One text of the specification wants a notification where there is no stream to close, another a
                // result.
                if closing.connection.is_some() {
                    let cancelled = Cancelled { request_id: &self.id, reason: "the host stops" };
                    self.frames.send(notification("notifications/cancelled", Some(&cancelled)));
                }
                break;
            }
            self.notify(next, &followed).await;
        }
        respond(&self.id, Ok(Complete::of_subscription(&self.shared.modern, &self.id)))
    }

    /// The wanted tasks that are there, each once, which are followed from now on.
    async fn find_tasks(&mut self, wire_ids: &[String]) -> Result<Vec<Arc<Task>>, RpcError> {
        let mut found = Vec::new();
        for wire_id in wire_ids {
            if self.shown.len() >= TASKS_MAX {
                break;
            }
            match sep1686::find_call(&self.shared.tasks, &self.requestor, wire_id).await {
                Ok(task) => {
                    if let Entry::Vacant(vacant) = self.shown.entry(task.id) {
                        vacant.insert(LastNotification::default());
                        found.push(task);
                    }
                }
                Err(tasks::Error::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(found)
    }

    /// Says which of the wanted things the stream is about; of tasks only if some were wanted.
    fn acknowledge(&self, sources: &Sources, tasks: Option<&[Arc<Task>]>, followed: &[(String, String)]) {
        let changes = |kind| sources.lists.as_ref().and_then(|lists| lists.has(kind));
        let uris = || followed.iter().map(|(uri, _)| uri.clone()).collect();
        let honoured = Honoured {
            tools_list_changed: changes(ListKind::Tools),
            prompts_list_changed: changes(ListKind::Prompts),
            resources_list_changed: changes(ListKind::Resources),
            resource_subscriptions: sources.updates.is_some().then(uris),
            task_ids: tasks.map(|tasks| tasks.iter().map(|task| sep1686::wire_id(task).into_owned()).collect()),
        };
        let acknowledged = Acknowledged { notifications: &honoured, meta: self.meta() };
        self.frames.send(notification("notifications/subscriptions/acknowledged", Some(&acknowledged)));
    }

    /// Sends what the client has to hear of the next thing that happened.
    async fn notify(&mut self, next: Next, followed: &[(String, String)]) {
        match next {
            Next::Changed(kinds) => {
                for kind in kinds {
                    let changed = Changed { meta: self.meta() };
                    self.frames.send(notification(list_changed_method(kind), Some(&changed)));
                }
            }
            Next::Updated(update) => {
                let is_followed = |(uri, owner): &(String, String)| *uri == update.uri && *owner == update.plugin;
                if update.concerns(&self.requestor) && followed.iter().any(is_followed) {
                    let updated = Updated { uri: &update.uri, meta: self.meta() };
                    self.frames.send(notification("notifications/resources/updated", Some(&updated)));
                }
            }
            Next::News(TaskNews::Changed(task)) => {
                if self.shown.get(&task.id).is_some_and(|shown| shown.revision <= task.revision) {
                    self.show(task).await;
                }
            }
            Next::News(TaskNews::Gone(id)) => {
                self.shown.remove(&id);
            }
            // Tasks of this era report none of these on any stream.
            Next::News(TaskNews::Created(_) | TaskNews::Progress { .. } | TaskNews::Log { .. }) | Next::Over => {}
            Next::Lost => self.look_again(|_| true).await,
            Next::Retry => {
                self.retry_at = None;
                self.look_again(|shown| shown.missed).await;
            }
        }
    }

    /// The resources that are there, each with the name of the plugin that has it. The others are left out, as unknown
    /// tasks are.
    async fn follow(&self, context: RequestContext, uris: Vec<String>) -> Result<Vec<(String, String)>, RpcError> {
        let mut followed: Vec<(String, String)> = Vec::new();
        for uri in uris.into_iter().take(RESOURCES_MAX) {
            if followed.iter().any(|(other, _)| *other == uri) {
                continue;
            }
            if let Some(owner) = context.owner(&uri).await? {
                followed.push((uri, owner.plugin.name.clone()));
            }
        }
        Ok(followed)
    }

    fn meta(&self) -> Meta<'_> {
        Meta { subscription: &self.id }
    }

    async fn look_again(&mut self, at: impl Fn(&LastNotification) -> bool) {
        let ids: Vec<_> = self.shown.iter().filter(|(_, shown)| at(shown)).map(|(id, _)| *id).collect();
        for id in ids {
            match self.shared.tasks.get(&self.requestor, id).await {
                Ok(task) => self.show(task).await,
                Err(error) => self.miss(id, &error),
            }
        }
    }

    /// A task cannot be read: it is gone, or will be looked at again. The reason was logged where it arose.
    fn miss(&mut self, id: TaskId, error: &tasks::Error) {
        match error {
            tasks::Error::NotFound => drop(self.shown.remove(&id)),
            _ => {
                if let Some(shown) = self.shown.get_mut(&id) {
                    shown.missed = true;
                    self.retry_at.get_or_insert_with(|| Instant::now() + MISSED_RETRY);
                }
            }
        }
    }

    /// Says how a task stands, unless that is what was said last.
    async fn show(&mut self, task: Arc<Task>) {
        // One result waits to be taken, and no more.
        self.frames.taken().await;
        let id = task.id;
        let revision = task.revision;
        let detailed = match Detailed::read(&self.shared, &self.requestor, task, self.face).await {
            Ok(detailed) => detailed,
            Err(error) => return self.miss(id, &error),
        };
        let notice = TaskNotification { detailed: &detailed, meta: Meta { subscription: &self.id } };
        let Some(line) = jsonrpc::large_notification("notifications/tasks", &notice) else { return };
        let Some(shown) = self.shown.get_mut(&id) else { return };
        shown.missed = false;
        let digest = line.digest();
        if shown.digest != digest {
            *shown = LastNotification { revision, digest, missed: false };
            self.frames.send_line(line);
        }
    }
}

impl Sources {
    async fn next(&mut self) -> Next {
        let Self { lists, news, updates } = self;
        let changed = async {
            match lists {
                Some(lists) => lists.changed().await.map_or(Next::Over, Next::Changed),
                None => std::future::pending().await,
            }
        };
        let news = async {
            match news {
                Some(news) => match news.recv().await {
                    Ok(news) => Next::News(news),
                    Err(RecvError::Lagged(_)) => Next::Lost,
                    Err(RecvError::Closed) => Next::Over,
                },
                None => std::future::pending().await,
            }
        };
        let updated = async {
            match updates {
                Some(updates) => loop {
                    match updates.recv().await {
                        Ok(update) => break Next::Updated(update),
                        // What was missed by being slow is missed.
                        Err(RecvError::Lagged(_)) => {}
                        Err(RecvError::Closed) => break Next::Over,
                    }
                },
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            next = changed => next,
            next = news => next,
            next = updated => next,
        }
    }
}
