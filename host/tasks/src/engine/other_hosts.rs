//! Hosts that share the store: what they change of this host's tasks, what they leave, and what becomes of this one
//! when it was late.
//!
//! Owns the loops that look. Must not take what another host tells for the truth: it reads the record. Invariants: a
//! host that was declared dead goes on with nothing of before; and what runs elsewhere is told here within a second of
//! its commit.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::{EngineContext, Tasks};
use crate::parts::admission::IdleState;
use crate::parts::host_messages::{self, ClientMessageReader, HostMessage};
use crate::parts::news::TaskNews;
use crate::parts::other_hosts::SeenTasks;
use crate::parts::run_state::is_paused;
use bulkhead_domain::task::{Active, NodeId, Phase, Task};
use bulkhead_store::hosts::Changed;
use bulkhead_store::journal::TaskRef;
use bulkhead_store::{self as store, Change, Ownership};

/// How late anything is that no host tells at once.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Between two looks, however much the others tell.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// Letters that are read in one look.
const LETTERS_MAX: usize = 1_024;
/// Tasks, of requestors that a client listens to, that are compared in one look.
const UNFINISHED_MAX: usize = 10_000;

impl Tasks {
    /// What a host does that shares its store, until dropped.
    pub(crate) async fn work_with_others(&self) {
        if self.inner.store.is_shared() {
            tokio::join!(
                self.rejoin_when_lost(),
                self.follow_others(),
                self.claim_from_others(),
                self.count_with_others(),
                self.tell_others()
            );
        }
    }

    /// Writes down what tasks of this host count within limits over all hosts.
    async fn count_with_others(&self) {
        let inner = &self.inner;
        if let Some(shared) = &inner.admission.shared {
            shared.write(|changes| inner.store.hold(changes), || inner.admission.dispatch_waiting()).await;
        }
    }

    /// Tells another host something of a client, or all others. It arrives soon or never.
    ///
    /// # Errors
    ///
    /// It is too long, or the store cannot be reached.
    pub async fn send_to_hosts(&self, to: Option<NodeId>, message: Vec<u8>) -> Result<(), store::Error> {
        match HostMessage::encode(&[HostMessage::Client(message)]) {
            Some(message) => self.inner.store.send_message(to, message).await,
            None => Ok(()),
        }
    }

    /// Has this read what other hosts tell of clients, once for ever.
    pub fn hear_of_clients(&self, read: ClientMessageReader) {
        self.inner.others.client_messages.get_or_init(|| read);
    }

    /// Tells other hosts what plugins of this one report.
    async fn tell_others(&self) {
        let inner = &self.inner;
        let Some(mut waiting) = inner.lists.outbox().and_then(|outbox| outbox.take_waiting()) else { return };
        loop {
            let messages = host_messages::next_of(&mut waiting).await;
            let Some(messages) = HostMessage::encode(&messages) else { continue };
            if let Err(error) = inner.store.send_message(None, messages).await {
                tracing::debug!(%error, "other hosts are not told what plugins report");
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }

    async fn hear_others(&self) -> Result<(), store::Error> {
        let inner = &self.inner;
        loop {
            let messages = inner.store.take_messages().await?;
            if messages.is_empty() {
                return Ok(());
            }
            for message in messages.iter().flat_map(|messages| HostMessage::decode(messages)) {
                match message {
                    HostMessage::Client(message) => {
                        if let Some(read) = inner.others.client_messages.get() {
                            read(&message);
                        }
                    }
                    message @ (HostMessage::ListChanged { .. } | HostMessage::ResourceUpdated { .. }) => {
                        inner.lists.hear(message);
                    }
                }
            }
        }
    }

    /// Ends everything that this host held, once it is none of those that share the store, and begins anew under
    /// another name.
    async fn rejoin_when_lost(&self) {
        let inner = &self.inner;
        loop {
            inner.store.lost().await;
            let mut runs = inner.watchers.stop_all();
            tracing::error!(
                tasks = runs,
                "this host ends its runs: what it held goes on under other hosts, or here once it has joined again"
            );
            while runs > 0 {
                tokio::time::sleep(LOOK_PAUSE).await;
                runs = inner.watchers.stop_all();
            }
            while let Err(error) = inner.store.rejoin().await {
                tracing::debug!(%error, "this host cannot join the others yet");
                tokio::time::sleep(LOOK_EVERY).await;
            }
            if let Some(shared) = &inner.admission.shared {
                shared.write_again();
            }
            inner.others.claim.notify_one();
        }
    }

    async fn follow_others(&self) {
        let inner = &self.inner;
        let mut seen = SeenTasks::default();
        loop {
            tokio::select! {
                () = inner.store.news() => {
                    inner.others.claim.notify_one();
                    if let Some(shared) = &inner.admission.shared {
                        shared.look();
                    }
                }
                () = inner.others.look.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            let looked = async {
                self.hear_others().await?;
                self.hear_of_own().await?;
                self.tell_of_others(&mut seen).await
            };
            if let Err(error) = looked.await {
                tracing::debug!(%error, "what other hosts did is looked at later");
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }

    /// Takes tasks that nobody holds any more, a bounded number at a time, so that all hosts get some.
    async fn claim_from_others(&self) {
        let inner = &self.inner;
        loop {
            let _ = tokio::time::timeout(LOOK_EVERY, inner.others.claim.notified()).await;
            if self.is_taking_over() || self.is_draining() || inner.store.read_only().is_some() {
                continue;
            }
            match Box::pin(self.recover()).await {
                Ok(recovered) => recovered.log(),
                Err(error) => tracing::debug!(%error, "tasks of other hosts cannot be claimed yet"),
            }
        }
    }

    /// Shows runs of this host what others have made of their records.
    async fn hear_of_own(&self) -> Result<(), store::Error> {
        let inner = &self.inner;
        let tasks = match inner.store.changed_by_others(LETTERS_MAX).await? {
            Changed::Tasks(tasks) => tasks,
            Changed::Unknown => inner.watchers.tasks().iter().map(|summary| summary.task).collect(),
        };
        for TaskRef { requestor, id } in tasks {
            let Some(task) = inner.store.get(&requestor, id).await?.map(Arc::new) else {
                inner.watchers.stop(id);
                inner.watchers.publish(&requestor, id, &TaskNews::Gone(id));
                continue;
            };
            inner.watchers.tell(&task);
            if let Some(run) = inner.watchers.run(id).filter(|_| is_paused(&task)) {
                run.keep_paused(inner.admission.keep(&requestor, IdleState::Paused));
            }
        }
        Ok(())
    }

    /// Tells those who listen here of what runs elsewhere.
    async fn tell_of_others(&self, seen: &mut SeenTasks) -> Result<(), store::Error> {
        let inner = &self.inner;
        let mut watched = inner.watchers.watched();
        watched.tasks.retain(|task| inner.watchers.run(task.id).is_none());
        let revisions = match watched.tasks.is_empty() {
            true => Vec::new(),
            false => inner.store.revisions(&watched.tasks).await?,
        };
        let unfinished = match watched.requestors.is_empty() {
            true => Vec::new(),
            false => inner.store.unfinished_of(&watched.requestors, UNFINISHED_MAX).await?,
        };
        let is_here = |id| inner.watchers.run(id).is_some();
        let revisions = revisions.into_iter().collect();
        let changes = seen.compare(&watched, &revisions, &unfinished.into_iter().collect(), is_here);
        for TaskRef { requestor, id } in &changes.created {
            inner.watchers.publish(requestor, *id, &TaskNews::Created(*id));
        }
        for TaskRef { requestor, id } in changes.created.union(&changes.changed) {
            let news = match inner.store.get(requestor, *id).await? {
                Some(task) => TaskNews::Changed(Arc::new(task)),
                None => TaskNews::Gone(*id),
            };
            inner.watchers.publish(requestor, *id, &news);
        }
        Ok(())
    }
}

impl EngineContext {
    /// Whether a task that this host has claimed can run here. Where hosts share a store, another one may have the
    /// component.
    pub(crate) async fn runs_here(&self, task: &Task) -> bool {
        match task.work.tool() {
            Some(name) => self.executor.tool(&task.plugin, name).await.is_some(),
            None => self.executor.library(&task.plugin).await.is_some(),
        }
    }

    /// Leaves a task to a host that can run it.
    pub(crate) async fn leave_to_others(&self, task: &Task) -> Result<(), store::Error> {
        self.others.lacks(&task.plugin);
        let version = &task.plugin.name;
        tracing::warn!(task.id = %task.id, plugin.name = version, "a task waits for a host that has the component of its plugin");
        let mut left = Task { lease: None, ..task.clone() };
        // The start of its run takes that back. What a journal brings back, or is paused, goes on with the words that
        // it has.
        if left.phase == Phase::Active(Active::Queued) {
            left.status_message = Some(format!("queued; waits for a host that has the component of {version}"));
        }
        let change = Change { held_by: Some(self.node()), then: Ownership::Released, ..Change::of(left) };
        match self.store.commit(change).await {
            Ok(_) | Err(store::Error::Conflict | store::Error::Lost) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
