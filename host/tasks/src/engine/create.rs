//! How tasks come to be.
//!
//! Invariant: a record and its place among the stored tasks are one atomic write, and nobody hears of a task before
//! that write is durable.
//!
//! A task reserves its share of the stored bytes at admission, not the largest possible output: with the largest one,
//! the defaults for queued and stored tasks would contradict each other. An output beyond the reservation is stored and
//! blocks new tasks until there is room.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::engine::run::drive::RunStart;
use crate::engine::{EngineContext, Tasks};
use crate::error::{Error, host_failure};
use crate::parts::activity::RefusalCount;
use crate::parts::admission::{IdleSlot, IdleState, Permit, refused};
use crate::parts::call_identity::{DrawnIdentity, draw_identity, random};
use crate::parts::job::{Job, RequestedTtl, TaskRequest};
use crate::parts::journal::{Beginning, TaskJournal, Writer};
use crate::parts::news::TaskNews;
use crate::parts::outcome::{OUTCOME_RETRY, outcome};
use crate::parts::resting::NextRun;
use bulkhead_domain::UnixMs;
use bulkhead_domain::lifecycle::{self, Event};
use bulkhead_domain::limits::Limits;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{Active, Origin, Phase, PluginVersion, Retention, Task, TaskId, TaskOutput};
use bulkhead_domain::timeline::Timeline;
use bulkhead_store::{self as store, Creation, Store, StoredCaps};

/// Who waits for the end of a task reads its output after it has ended: a task that were gone with its end could never
/// be answered.
const KEEP_ALIVE_MS_MIN: u64 = 1_000;

/// What became of a request for a task that is to be made once.
#[derive(Clone, Debug)]
pub struct Once {
    pub task: Arc<Task>,
    /// It was there before.
    pub found: bool,
}

/// When a new task runs.
enum StartOrder {
    Now(Permit),
    Later(IdleSlot),
}

/// How a new task stands.
enum Begin<'a> {
    Queued,
    /// It starts at once.
    Started,
    /// Its call runs already, and has a journal, or none.
    Promoted(Option<&'a mut Writer>),
}

/// What a new record says beside its request.
struct NewRecord<'a> {
    begin: Begin<'a>,
    drawn: DrawnIdentity,
    alias: Option<String>,
    /// Of a task that is over from the start.
    output: Option<Arc<TaskOutput>>,
}

/// A creation that nobody has heard of yet. If its caller goes away in the middle, or the storage fails, it may have
/// been written all the same; nobody would ever run it, so it has to go.
struct UnacknowledgedCreate<'a> {
    store: &'a Arc<dyn Store>,
    requestor: Requestor,
    /// `None` once the caller knows about it, or it is certain that nothing was written.
    id: Option<TaskId>,
}

impl Drop for UnacknowledgedCreate<'_> {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id, tokio::runtime::Handle::try_current()) else { return };
        let store = self.store.clone();
        let requestor = self.requestor;
        runtime.spawn(async move {
            // The store does one thing after the other: this comes after the creation.
            while let Err(error) = store.remove(&requestor, id).await {
                // Another host has it, which it would be taken from.
                if let store::Error::Lost = error {
                    return;
                }
                tracing::debug!(task.id = %id, "a creation that nobody knows of cannot be removed yet: {error}");
                tokio::time::sleep(OUTCOME_RETRY).await;
            }
        });
    }
}

impl Tasks {
    /// Creates a task: durable when this returns, and running or queued.
    pub async fn create(&self, requestor: &Requestor, request: TaskRequest) -> Result<Arc<Task>, Error> {
        let audit = request.job.refusal_audit(&self.inner.audit.log, requestor);
        let count = RefusalCount::new(request.job.activity());
        let created = self.inner.create_new(requestor, request).await;
        created.inspect_err(|error| self.refused(requestor, audit, count, error))
    }

    /// Creates a task under a name of its requestor's, unless there is one already: then that one, whatever it was made
    /// of.
    pub async fn create_once(&self, requestor: &Requestor, request: TaskRequest, alias: &str) -> Result<Once, Error> {
        let audit = request.job.refusal_audit(&self.inner.audit.log, requestor);
        let count = RefusalCount::new(request.job.activity());
        self.once(requestor, request, alias).await.inspect_err(|error| self.refused(requestor, audit, count, error))
    }

    async fn once(&self, requestor: &Requestor, request: TaskRequest, alias: &str) -> Result<Once, Error> {
        let inner = &self.inner;
        // Twice at most: another request may be faster, or the one that was found be over its time.
        for _ in 0..3 {
            let found = inner.store.by_alias(requestor, alias).await.map_err(|error| inner.store_error(error))?;
            if let Some(id) = found {
                match self.get(requestor, id).await {
                    Ok(task) => return Ok(Once { task, found: true }),
                    Err(Error::NotFound) => {
                        inner.expire(requestor, id).await.map_err(|error| inner.store_error(error))?;
                    }
                    Err(error) => return Err(error),
                }
            }
            inner.admit_task(requestor, &request.job)?;
            if let Some(task) = inner.create(requestor, request.clone(), Some(alias.to_owned())).await? {
                return Ok(Once { task, found: false });
            }
        }
        Err(host_failure("creating a task", &"its name is taken and belongs to nothing"))
    }
}

impl EngineContext {
    async fn create_new(self: &Arc<Self>, requestor: &Requestor, request: TaskRequest) -> Result<Arc<Task>, Error> {
        self.admit_task(requestor, &request.job)?;
        let created = self.create(requestor, request, None).await?;
        created.ok_or_else(|| host_failure("creating a task", &"an id was drawn twice"))
    }

    /// Whether a task may be made now.
    fn admit_task(&self, requestor: &Requestor, job: &Job) -> Result<(), Error> {
        self.availability.admit(requestor)?;
        if let Some((plugin, _)) = job.first() {
            self.health.admit(requestor, plugin)?;
        }
        self.availability.take_creation(requestor)
    }

    /// Creates a task and starts or queues its run. `None`: the alias belongs to another task.
    pub(crate) async fn create(
        self: &Arc<Self>,
        requestor: &Requestor,
        request: TaskRequest,
        alias: Option<String>,
    ) -> Result<Option<Arc<Task>>, Error> {
        if let Some(output) = request.job.output() {
            let output = Some(Arc::new(output));
            let record = NewRecord { begin: Begin::Queued, drawn: draw_identity()?, alias, output };
            return self.record(requestor, &request, record).await;
        }
        let permit = self.admission.try_task_permit(requestor).await.map_err(|error| self.store_error(error))?;
        let order = match permit {
            Some(permit) => StartOrder::Now(permit),
            None => {
                let slot = self.admission.hold_over_all(requestor, IdleState::Queued).await;
                let slot = slot.map_err(|error| self.store_error(error))?;
                StartOrder::Later(slot.map_err(|full| refused(full, Some(1_000)))?)
            }
        };
        let begin = if let StartOrder::Now(_) = order { Begin::Started } else { Begin::Queued };
        let record = NewRecord { begin, drawn: draw_identity()?, alias, output: None };
        let missed_notifications = self.watchers.mark();
        let Some(task) = self.record(requestor, &request, record).await? else {
            return Ok(None);
        };
        let (begin, job) = match order {
            StartOrder::Now(permit) => (RunStart::Running(Box::new(permit)), Some(Box::new(request.job))),
            // It may wait for long: then the store alone keeps what it is to do.
            StartOrder::Later(slot) => (RunStart::queued(slot, NextRun::Start), None),
        };
        self.start_run(task.clone(), begin, job, missed_notifications).await;
        self.may_expire(&task);
        Ok(Some(task))
    }

    /// Writes the record of a call that runs already.
    pub(crate) async fn record_running(
        &self,
        requestor: &Requestor,
        request: TaskRequest,
        drawn: DrawnIdentity,
        journal: Option<&Arc<TaskJournal>>,
    ) -> Result<Arc<Task>, Error> {
        if self.availability.is_draining() {
            return Err(Error::draining());
        }
        self.availability.take_creation(requestor)?;
        // Until the record is there, nothing that the guest does goes beside its journal.
        let mut writer = match journal {
            Some(journal) => Some(journal.writer().await),
            None => None,
        };
        let begin = Begin::Promoted(writer.as_mut());
        let record = NewRecord { begin, drawn, alias: None, output: None };
        let task = self.record(requestor, &request, record).await?;
        let task = task.ok_or_else(|| host_failure("promoting a call", &"an id was drawn twice"))?;
        self.may_expire(&task);
        Ok(task)
    }

    /// Writes a new record, durable and counted when this returns. `None`: the alias belongs to another task.
    async fn record(
        &self,
        requestor: &Requestor,
        request: &TaskRequest,
        record: NewRecord<'_>,
    ) -> Result<Option<Arc<Task>>, Error> {
        let NewRecord { begin, drawn, alias, output } = record;
        let limits = self.admission.limits(requestor);
        let now = self.clock.now();
        let work = request.job.work();
        let arguments = request.job.stored();
        let (plugin, result_bytes) = match request.job.first() {
            Some((plugin, result_bytes)) => (plugin.clone(), result_bytes),
            None => (PluginVersion { name: String::new(), digest: [0; 32] }, 0),
        };
        let poll_interval_ms = self.poll_intervals.poll_interval_ms(requestor, work.label());
        let starts = !matches!(begin, Begin::Queued);
        let active = if starts { Active::Running } else { Active::Queued };
        let mut task = Task {
            id: TaskId(random()?),
            requestor: *requestor,
            revision: 0,
            work,
            plugin,
            engine_hash: self.executor.engine_hash(),
            // Of a request that is recorded: a run after a restart goes on with its trace.
            origin: Origin { trace: bulkhead_traces::current().map(|span| span.context()), ..request.origin.clone() },
            arguments_digest: Sha256::digest(arguments.as_str()).into(),
            created_at: now,
            updated_at: now,
            retention: retention(request.ttl, &limits),
            poll_interval_ms,
            phase: Phase::Active(active),
            status_message: (!starts).then(|| "queued".to_owned()),
            inputs: Vec::new(),
            steering: Vec::new(),
            steering_delivered: 0,
            alias,
            seed: drawn.seed,
            call_id: drawn.call_id,
            lease: Some(self.lease()),
            attempt: u32::from(starts),
            related: request.job.related().to_vec(),
            timeline: Timeline::default(),
            holder: None,
            durable: None,
        };
        let mut promoted = None;
        let mut journal = None;
        match begin {
            Begin::Started if request.job.tool().is_some_and(|tool| self.health.may_keep_journal(tool)) => {
                task.durable = Beginning::of(&task, task.attempt).marker(task.attempt, task.engine_hash);
            }
            Begin::Promoted(Some(writer)) => {
                (task.durable, journal) = writer.promoted(task.attempt, task.engine_hash).unzip();
                promoted = journal.clone().map(|append| (writer, append));
            }
            Begin::Queued | Begin::Started | Begin::Promoted(None) => {}
        }
        let caps = self.stored_caps(requestor);
        if let Some(output) = &output {
            task = over_at_once(&task, output, now)?;
        }
        let creation = Creation {
            task,
            arguments: arguments.clone(),
            output: output.clone(),
            reserved_bytes: self.reserved_bytes(requestor, result_bytes),
            caps,
            journal,
        };
        let mut unacknowledged =
            UnacknowledgedCreate { store: &self.store, requestor: *requestor, id: Some(creation.task.id) };
        let created = self.store.create(creation).await;
        // All others say that nothing was written: nothing is to be taken back of what was refused while the store was
        // away.
        if !matches!(created, Err(store::Error::Engine(_) | store::Error::InDoubt)) {
            unacknowledged.id = None;
        }
        match created {
            Ok(task) => {
                if let Some((writer, append)) = promoted {
                    writer.moved(&task, &append, caps);
                }
                self.audit.note_created(&task, arguments.as_str());
                self.watchers.publish(requestor, task.id, &TaskNews::Created(task.id));
                if task.outcome().is_some() {
                    self.audit.note_completed(&task, output.as_deref());
                }
                Ok(Some(Arc::new(task)))
            }
            Err(store::Error::Exists) => Ok(None),
            Err(error) => Err(self.store_error(error)),
        }
    }

    /// What a task reserves for its output: never more than its share when every place for an unfinished task is taken,
    /// so that the numbers of the configuration can all be reached. A larger output (up to `result_bytes`) is stored
    /// all the same and blocks new tasks until there is room.
    fn reserved_bytes(&self, requestor: &Requestor, result_bytes: u64) -> u64 {
        let limits = self.admission.limits(requestor);
        let tasks = u64::from(limits.tasks_running_per_requestor)
            + u64::from(limits.tasks_queued_per_requestor)
            + u64::from(limits.tasks_waiting_per_requestor)
            + u64::from(limits.tasks_paused_per_requestor);
        result_bytes.min(limits.tasks_stored_bytes_per_requestor / 2 / tasks.max(1))
    }

    pub(crate) fn stored_caps(&self, requestor: &Requestor) -> StoredCaps {
        let limits = self.admission.limits(requestor);
        StoredCaps {
            tasks_per_requestor: limits.tasks_stored_per_requestor,
            bytes_per_requestor: limits.tasks_stored_bytes_per_requestor,
            tasks_per_tenant: limits.tasks_stored_per_tenant,
            bytes_per_tenant: limits.tasks_stored_bytes_per_tenant,
        }
    }
}

/// The task as it ends before its first run.
fn over_at_once(task: &Task, output: &TaskOutput, now: UnixMs) -> Result<Task, Error> {
    let (outcome, message) = outcome(output);
    let finish = Event::Finish { attempt: task.attempt, outcome, message };
    lifecycle::step(task, finish, now).map_err(|refusal| host_failure("ending a task at once", &format!("{refusal:?}")))
}

fn retention(ttl: RequestedTtl, limits: &Limits) -> Retention {
    match ttl {
        RequestedTtl::Default => Retention::FromCreation { ttl_ms: limits.ttl_ms_default.min(limits.ttl_ms_max) },
        RequestedTtl::Ms(ttl_ms) => Retention::FromCreation { ttl_ms: ttl_ms.min(limits.ttl_ms_max) },
        RequestedTtl::Unlimited if limits.ttl_unlimited => Retention::Unlimited,
        RequestedTtl::Unlimited => Retention::FromCreation { ttl_ms: limits.ttl_ms_max },
        RequestedTtl::AfterEnd(keep_alive_ms) => {
            let wanted = keep_alive_ms.unwrap_or(limits.ttl_ms_default).max(KEEP_ALIVE_MS_MIN);
            Retention::FromCompletion { keep_alive_ms: wanted.min(limits.ttl_ms_max) }
        }
    }
}
