//! The messages to a session outside of any request: the GET stream, or stdout.
//!
//! It watches the session's tasks while it has a reader and keeps nothing without one: on opening it reads what is
//! outstanding. Invariant: of several open ones only the newest speaks.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use super::server_requests::SentInputRequests;
use crate::exchange::{FrameSender, at, streaming};
use crate::notifications::{self, ProgressReports};
use crate::session::{Listener, Session};
use crate::wire::{RelatedTask, TaskView};
use crate::{Exchange, ProtocolContext};
use bulkhead_calls::ListKind;
use bulkhead_domain::rights::Rights;
use bulkhead_domain::task::{Design, Task, TaskId};
use bulkhead_tasks::{ResourceUpdate, TaskNews};

/// Tasks that are looked at on opening, newest first.
const LOOKED_AT_MAX: usize = 500;
/// Tasks of other sessions that are remembered as such.
const KNOWN_MAX: usize = 2048;

/// The standalone stream of a session. It never ends by itself, except with the host.
pub(crate) fn standalone(shared: &Arc<ProtocolContext>, session: &Arc<Session>, rights: Rights) -> Exchange {
    let shared = Arc::clone(shared);
    let session = Arc::clone(session);
    // Counts as listening from the moment it exists, not from the first look at it.
    let listener = session.listen(shared.stream_router.stream_id());
    streaming(|frames| async move {
        session.ready().await;
        let offers = SentInputRequests::new(&shared, &session, frames.clone());
        GetStream { shared, session, rights, frames, listener, offers, known: HashMap::new() }.run().await;
        None::<String>
    })
}

struct GetStream {
    shared: Arc<ProtocolContext>,
    session: Arc<Session>,
    /// The reader's rights.
    rights: Rights,
    frames: FrameSender,
    listener: Listener,
    offers: SentInputRequests,
    /// The tasks seen so far; `None`: of another session.
    known: HashMap<TaskId, Option<FollowedTask>>,
}

struct FollowedTask {
    task: Arc<Task>,
    progress: ProgressReports,
    /// Status and message that the client was told last.
    last_status: Option<(&'static str, Option<String>)>,
}

enum Next {
    News(Result<TaskNews, RecvError>),
    Updated(ResourceUpdate),
    Settled,
    /// What a request has to say here.
    Said(String),
    ListChanged,
    ListDue,
    Closing,
}

impl GetStream {
    async fn run(&mut self) {
        let mut feed = self.shared.tasks.feed(self.session.requestor());
        let mut lists = self.shared.tasks.catalog_changes();
        let mut updates = self.shared.tasks.resource_updates();
        let mut closings = self.shared.stream_router.closings();
        lists.mark_unchanged();
        self.tell_changed();
        self.look(true).await;
        let mut list_due: Option<Instant> = None;
        loop {
            let next = tokio::select! {
                // News first: the rest must not act on a record that is older than what was said.
                biased;
                news = feed.recv() => Next::News(news),
                () = self.offers.settle() => Next::Settled,
                Some(message) = self.listener.to_say.recv() => Next::Said(message),
                // What was missed by being slow is missed; the channel ends with the host.
                Ok(update) = updates.recv() => Next::Updated(update),
                Ok(()) = lists.changed() => Next::ListChanged,
                () = at(list_due) => Next::ListDue,
                Ok(()) = closings.changed() => Next::Closing,
            };
            match next {
                Next::News(Ok(news)) => self.take(news).await,
                Next::News(Err(RecvError::Lagged(_))) => self.look(false).await,
                Next::News(Err(RecvError::Closed)) => return,
                Next::Settled => {}
                Next::Said(message) => self.frames.send(message),
                Next::Updated(update) => self.tell_updated(&update),
                Next::ListChanged => list_due = list_due.or(Some(Instant::now() + notifications::LIST_CHANGED_AFTER)),
                Next::ListDue => {
                    list_due = None;
                    lists.mark_unchanged();
                    self.tell_changed();
                }
                Next::Closing => self.offer_again(),
            }
        }
    }

    /// Tells of each list that is another one than the session has seen.
    fn tell_changed(&self) {
        if !self.listener.speaks() {
            return;
        }
        let lists = self.shared.offered(self.session.requestor(), &self.rights).catalog.lists();
        for kind in ListKind::ALL {
            if self.session.is_offered(kind) && self.session.saw(kind, lists) {
                self.frames.send(notifications::list_changed(kind));
            }
        }
    }

    fn tell_updated(&self, update: &ResourceUpdate) {
        let concerns = update.concerns(self.session.requestor()) && self.session.follows(&update.uri, &update.plugin);
        if self.listener.speaks() && concerns {
            // The subscription may have been made with other rights.
            let catalog = self.shared.offered(self.session.requestor(), &self.rights).catalog;
            if catalog.libraries().iter().any(|library| library.plugin.name == update.plugin) {
                self.frames.send(notifications::resource_updated(&update.uri));
            }
        }
    }

    /// Searches the stored tasks for input requests that were not sent to any client.
    async fn look(&mut self, opening: bool) {
        let Ok(tasks) = self.shared.tasks.list(self.session.requestor(), None, LOOKED_AT_MAX).await else { return };
        for task in tasks.into_iter().filter(|task| task.outcome().is_none()) {
            self.changed(Arc::new(task), opening, false);
        }
    }

    async fn take(&mut self, news: TaskNews) {
        match news {
            TaskNews::Changed(task) => self.changed(task, false, true),
            // Its session has the answer to its call.
            TaskNews::Created(_) => {}
            TaskNews::Gone(id) => self.forget(id),
            TaskNews::Progress { id, progress, total, message } => {
                let line =
                    self.know(id).await.and_then(|known| known.progress.report(progress, total, message.as_deref()));
                self.say_of(id, line);
            }
            TaskNews::Log { id, level, logger, data } => {
                let related = match level >= self.session.log_level() {
                    true => self.know(id).await.map(|known| RelatedTask::from(&*known.task)),
                    false => None,
                };
                if let Some(related) = related {
                    self.say_of(id, notifications::log(level, logger.as_deref(), &data, Some(&related)));
                }
            }
        }
    }

    /// Says a report of a task, unless a `tasks/result` of this session carries those.
    fn say_of(&self, id: TaskId, line: Option<String>) {
        if self.listener.speaks() && !self.shared.stream_router.has_waiter(id, self.session.digest()) {
            self.frames.send(line);
        }
    }

    /// The task, if it is this session's and not over.
    async fn know(&mut self, id: TaskId) -> Option<&mut FollowedTask> {
        if !self.known.contains_key(&id) {
            let task = self.shared.tasks.get(self.session.requestor(), id).await.ok()?;
            self.note(task);
        }
        self.known.get_mut(&id)?.as_mut()
    }

    fn note(&mut self, task: Arc<Task>) {
        if self.known.len() >= KNOWN_MAX {
            self.known.retain(|_, known| known.is_some());
        }
        let ours = task.origin.session == Some(self.session.digest()) && task.outcome().is_none();
        let known = self.known.entry(task.id).or_default();
        match known {
            Some(known) => known.task = task,
            None if ours => {
                let progress =
                    ProgressReports::new(task.origin.progress_token.clone(), Some(RelatedTask::from(&*task)));
                *known = Some(FollowedTask { task, progress, last_status: None });
            }
            None => {}
        }
    }

    fn changed(&mut self, task: Arc<Task>, opening: bool, tell: bool) {
        if task.origin.session != Some(self.session.digest()) {
            return;
        }
        self.note(Arc::clone(&task));
        if self.listener.speaks() {
            if tell {
                self.tell_status(&task);
            }
            if task.outcome().is_none() {
                self.offer(&task, opening);
            }
        }
        if task.outcome().is_some() {
            self.forget(task.id);
        }
    }

    /// SEP-1686 has no notification of a status: its clients ask.
    fn tell_status(&mut self, task: &Task) {
        if task.design() == Design::Sep1686 {
            return;
        }
        let view = TaskView::from(task);
        let now = Some((view.status, view.status_message));
        match self.known.get_mut(&task.id) {
            Some(Some(known)) if known.last_status == now => return,
            Some(Some(known)) => known.last_status = now,
            _ => {}
        }
        self.frames.send(notifications::status(task));
    }

    fn offer(&mut self, task: &Task, opening: bool) {
        let stream_router = &self.shared.stream_router;
        let stream = self.listener.stream;
        self.offers.update(task, |key, kind| stream_router.claim_standalone(stream, task.id, key, kind, opening));
    }

    /// What was left to a `tasks/result` that closed without sending it.
    fn offer_again(&mut self) {
        if !self.listener.speaks() {
            return;
        }
        let tasks: Vec<_> = self.known.values().flatten().map(|known| Arc::clone(&known.task)).collect();
        for task in tasks.iter().filter(|task| task.outstanding().next().is_some()) {
            self.offer(task, false);
        }
    }

    fn forget(&mut self, id: TaskId) {
        self.offers.close(id);
        if self.known.remove(&id).is_some_and(|known| known.is_some()) {
            self.shared.stream_router.over(id);
        }
    }
}

impl Drop for GetStream {
    fn drop(&mut self) {
        if !self.frames.is_empty() {
            // What was said last may never have left; hearing of a changed list once too often does no harm.
            self.session.unsee();
        }
        self.shared.stream_router.closed_standalone(self.listener.stream);
    }
}
