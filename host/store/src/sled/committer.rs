//! The one thread that writes.
//!
//! Owns the order of a group commit: drain what waits, check each operation against the tree and the group so far,
//! apply one batch, flush, sync the database file, then acknowledge. Must not be called by anybody but through its
//! channel. Invariant: an operation is acknowledged after it is on disk, or refused without a trace.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::super::Error;
use super::database::{self, Database, GroupRow};
use super::errors::{closed, engine_error, refuse};
use super::files::{Files, NewFile};
use super::group::{Group, Totals};
use super::keys::TaskKey;
use super::layout::Layout;
use super::open::DirectoryLock;
use super::operation::{Envelope, Operation};
use super::plan::{CommitReply, Plan};
use super::space::{DiskSpace, FreeRoom};
use super::state::StateFile;
use super::store_inner::StoreInner;
use super::{keys, log_sync, mark};
use bulkhead_domain::crash_points;

/// Operations in a group. More would make the first ones wait for the last ones.
const GROUP_OPERATIONS_MAX: usize = 512;
/// Bytes in a group, roughly: bounds what a group may need of the free space that was just looked at.
const GROUP_BYTES_MAX: u64 = 8 << 20;
/// How far the state file may be behind.
const STATE_EVERY: Duration = Duration::from_millis(900);

/// Why nothing is written at the moment.
pub(super) enum Trouble {
    /// Too little room; the engine is sound.
    DiskSpace,
    /// A write failed; the engine has to be opened again.
    Failed(Failed),
}

/// A group that may or may not be on the disk. Its writers were told that it is not.
#[derive(Clone)]
pub(super) struct Failed {
    /// The number of the last group that is certainly there.
    acknowledged: u64,
    group: Arc<Group>,
}

pub(super) struct Committer {
    pub(super) shared: Arc<StoreInner>,
    pub(super) layout: Layout,
    pub(super) cache_bytes: u64,
    pub(super) retry_every: Duration,
    pub(super) files: Files,
    pub(super) space: DiskSpace,
    /// `None` between a failed write and the next opening.
    pub(super) database: Option<Database>,
    pub(super) state: StateFile,
    pub(super) last: GroupRow,
    /// Journals of which rows are left that nobody needs.
    pub(super) left_journals: BTreeSet<TaskKey>,
    /// `None` when everything is well.
    pub(super) trouble: Option<Trouble>,
    pub(super) state_written_at: Instant,
    pub(super) retried_at: Instant,
    /// Held until the thread ends.
    pub(super) _lock: DirectoryLock,
}

impl Committer {
    /// Works until every sender is gone or the store is closed.
    pub(super) fn run(mut self, operations: &Receiver<Envelope>) {
        // A panic in the engine ends this thread: then the store says so instead of waiting for ever.
        let stopped = Stopped(Arc::clone(&self.shared));
        let mut close = None;
        while close.is_none() {
            let delay = match self.trouble {
                Some(_) => self.retry_every,
                None if !self.left_journals.is_empty() => Duration::ZERO,
                None => STATE_EVERY,
            };
            match operations.recv_timeout(delay) {
                Ok(first) => close = self.turn(first, operations),
                // Nobody writes: who asks whether the host is ready must hear of a full disk all the same.
                Err(RecvTimeoutError::Timeout) => _ = self.room(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.housekeeping();
        }
        let closed = self.close();
        drop(self);
        drop(stopped);
        if let Some(reply) = close {
            // The caller may have gone away.
            let _ = reply.send(closed);
        }
    }

    /// One group: what waits, from the first operation on. Gives the reply of a close.
    fn turn(
        &mut self,
        first: Envelope,
        operations: &Receiver<Envelope>,
    ) -> Option<tokio::sync::oneshot::Sender<Result<(), Error>>> {
        let free_room = self.room();
        let mut plan = Plan::default();
        let mut permits = Vec::new();
        let mut next = Some(first);
        let mut close = None;
        let mut rebuild = None;
        let mut failure = None;
        while let Some(Envelope { operation, permit }) = next.take() {
            permits.push(permit);
            match operation {
                Operation::Close { reply } => close = Some(reply),
                Operation::Rebuild { guard, reply } => rebuild = Some((guard, reply)),
                operation => failure = self.plan(operation, free_room, &mut plan).err(),
            }
            if close.is_some() || rebuild.is_some() {
                break;
            }
            if failure.is_some() || permits.len() >= GROUP_OPERATIONS_MAX || plan.group.bytes() >= GROUP_BYTES_MAX {
                break;
            }
            next = operations.try_recv().ok();
        }
        if let Some(metrics) = self.shared.metrics.get() {
            metrics.group(permits.len());
        }
        match failure {
            None => _ = self.settle(plan),
            Some(error) => {
                tracing::error!(%error, "the store could not be read");
                self.give_up(plan, || Error::Engine(error.to_string()));
            }
        }
        if let Some((guard, reply)) = rebuild {
            let done = self.rebuild();
            drop(guard);
            // The caller may have gone away.
            let _ = reply.send(done);
        }
        close
    }

    /// Adds one operation to the plan. An error here is the engine's and ends the group.
    fn plan(&mut self, operation: Operation, free_room: FreeRoom, plan: &mut Plan) -> Result<(), Error> {
        let allowed = match free_room {
            FreeRoom::Enough => true,
            FreeRoom::Removals => operation.gives_room(),
            FreeRoom::None => false,
        };
        match &self.database {
            Some(database) if allowed => operation.plan(&database.tree, &self.shared, plan),
            _ => {
                operation.refuse(Error::ReadOnly(self.shared.read_only().unwrap_or_default()));
                Ok(())
            }
        }
    }

    /// Makes a plan durable and answers; whether it is.
    pub(super) fn settle(&mut self, mut plan: Plan) -> bool {
        if plan.group.is_empty() {
            answer(plan.answers, || Ok(()));
            return true;
        }
        let group = Arc::new(std::mem::take(&mut plan.group));
        match self.commit(&group) {
            Ok(()) => {
                plan.files_new.into_iter().for_each(NewFile::keep);
                let gone = plan.files_gone.iter().filter(|name| !self.shared.change_capture.keeps_file(**name));
                gone.for_each(|name| self.files.remove(name));
                self.left_journals.extend(plan.left_journals);
                if let Some(metrics) = self.shared.metrics.get() {
                    plan.growths.into_iter().for_each(|bytes| metrics.appended(bytes));
                    plan.demotions.iter().for_each(|reason| metrics.demoted(reason));
                }
                answer(plan.answers, || Ok(()));
                true
            }
            Err(error) => {
                tracing::error!(%error, "a write failed: the store is read-only until it could be opened again");
                self.trouble = Some(Trouble::Failed(Failed { acknowledged: self.last.group, group }));
                self.retried_at = Instant::now();
                let reason = format!("a write failed ({error}); it is tried again");
                self.shared.set_read_only(Some(reason.clone()));
                self.space.drop_ballast();
                self.give_up(plan, || Error::ReadOnly(reason.clone()));
                false
            }
        }
    }

    /// Applies a group and returns when it is on disk. Afterwards it is visible; after an error it stays hidden.
    fn commit(&mut self, group: &Arc<Group>) -> Result<(), Error> {
        let Some(database) = &self.database else { return Err(closed()) };
        let Totals { rows, sum } = group.recount(self.last.census());
        let last = GroupRow { group: self.last.group + 1, rows, sum, ..self.last };
        let mut batch = group.batch();
        batch.insert(keys::GROUP, last.encode()?);
        self.shared.view.hide(Some(Arc::clone(group)));
        crash_points::reach("flush.before");
        database.tree.apply_batch(batch).map_err(engine_error)?;
        crash_points::reach("flush.applied");
        let since = Instant::now();
        database.tree.flush().map_err(engine_error)?;
        // sled syncs too, but a failure may be told to another of its threads: this handle hears of each.
        database.file.sync_data().map_err(|error| Error::Engine(format!("the database cannot be synced: {error}")))?;
        crash_points::reach("flush.synced");
        if let Some(metrics) = self.shared.metrics.get() {
            metrics.synced(since.elapsed());
        }
        self.shared.view.hide(None);
        self.shared.change_capture.note(group);
        self.last = last;
        Ok(())
    }

    /// Takes back what a plan counted and tells everybody that nothing was written.
    pub(super) fn give_up(&self, plan: Plan, error: impl Fn() -> Error) {
        self.shared.with_ledger(|ledger| {
            for (requestor, more, less) in plan.counted {
                ledger.release(&requestor, more);
                ledger.add(&requestor, less);
            }
        });
        // Whether the disk holds the group is not known yet, so neither file may go; the next opening sorts them out.
        plan.files_new.into_iter().for_each(NewFile::keep);
        answer(plan.answers, || Err(error()));
    }

    /// Whether there is room for a group; says so when that changes.
    pub(super) fn room(&mut self) -> FreeRoom {
        if let Some(Trouble::Failed(_)) = self.trouble {
            return FreeRoom::None;
        }
        let free_room = self.space.room();
        match (free_room, &self.trouble) {
            (FreeRoom::Enough, Some(_)) => {
                self.trouble = None;
                self.space.put_ballast();
                self.shared.set_read_only(None);
                tracing::info!("there is room on the disk again: the store accepts writes");
            }
            (FreeRoom::Removals | FreeRoom::None, None) => {
                self.trouble = Some(Trouble::DiskSpace);
                let reason = self.space.reason();
                tracing::error!(reason, "the store is read-only");
                self.shared.set_read_only(Some(reason));
            }
            _ => {}
        }
        free_room
    }

    /// Periodic work, with or without writes.
    fn housekeeping(&mut self) {
        self.sweep_journals();
        if self.trouble.is_some() && self.retried_at.elapsed() >= self.retry_every {
            self.retried_at = Instant::now();
            self.recover();
        }
        let behind = self.state.group() < self.last.group && self.database.is_some();
        if behind && self.state_written_at.elapsed() >= STATE_EVERY {
            self.state_written_at = Instant::now();
            if let Err(error) = self.state.write(self.last.group, false) {
                tracing::error!(%error, "the state file could not be written");
            }
        }
    }

    fn recover(&mut self) {
        let Some(Trouble::Failed(failed)) = &self.trouble else {
            self.room();
            return;
        };
        let failed = failed.clone();
        if self.space.room() != FreeRoom::Enough {
            return;
        }
        match self.reopen(&failed) {
            Ok(()) => {
                self.trouble = None;
                self.space.put_ballast();
                self.shared.set_read_only(None);
                tracing::info!("the store was opened again and accepts writes");
            }
            Err(error) => tracing::error!(%error, "the store could not be opened again"),
        }
    }

    /// Opens the engine again after a failed write, and takes back the group of that write if the disk does hold it:
    /// its writers were told that it does not.
    fn reopen(&mut self, failed: &Failed) -> Result<(), Error> {
        // Readers get the tree back at the end: sled does not open what is still open.
        self.shared.view.take_away();
        let reopened = self.reopen_unseen(failed);
        match &reopened {
            Ok(tree) => self.shared.view.give(tree.clone()),
            Err(_) => self.shared.view.close(),
        }
        reopened.map(drop)
    }

    fn reopen_unseen(&mut self, failed: &Failed) -> Result<::sled::Tree, Error> {
        self.database = None;
        log_sync::sync_remains(&self.layout)?;
        let database = database::unchecked(&self.layout, self.cache_bytes)?;
        let landed = database.last.group.checked_sub(failed.acknowledged);
        // 0: the group is not there. 1: it is. 2: it was taken back, by an attempt that failed after that.
        if database.last.id != self.last.id || landed.is_none_or(|groups| groups > 2) {
            return Err(refuse("the database is not the one that was open before the failed write"));
        }
        self.last = database.last;
        let tree = database.tree.clone();
        self.database = Some(database);
        if landed == Some(1) {
            self.commit(&Arc::new(failed.group.undo()))?;
        }
        self.shared.view.hide(None);
        Ok(tree)
    }

    /// Opens the database that is in place now, which is at `last`, after it was closed by [`Committer::leave`]. If it
    /// does not open, it is tried again as after a failed write.
    pub(super) fn resume(&mut self, last: GroupRow) -> Result<(), Error> {
        self.last = last;
        let nothing = Failed { acknowledged: last.group, group: Arc::default() };
        self.reopen(&nothing).inspect_err(|error| {
            self.trouble = Some(Trouble::Failed(nothing));
            self.retried_at = Instant::now();
            self.shared.set_read_only(Some(format!("the database cannot be opened ({error}); it is tried again")));
        })
    }

    /// Leaves everything exact on disk, with the mark that spares the next start the examination.
    fn close(&mut self) -> Result<(), Error> {
        while self.sweep_journals() {}
        self.shared.view.close();
        self.leave()?;
        let marked = self.shared.with_ledger(|ledger| mark::write(&self.layout, &self.state, ledger));
        if let Err(error) = marked {
            tracing::warn!(%error, "the next start will examine the database, which takes longer");
        }
        Ok(())
    }

    /// Closes the database, which the readers do not have any more, and leaves everything exact on disk.
    pub(super) fn leave(&mut self) -> Result<(), Error> {
        match self.database.take() {
            Some(database) if self.trouble.as_ref().is_none_or(|trouble| matches!(trouble, Trouble::DiskSpace)) => {
                database.tree.flush().map_err(engine_error)?;
                let synced = database.file.sync_data();
                synced.map_err(|error| Error::Engine(format!("the database cannot be synced: {error}")))?;
                drop(database);
                self.state.write(self.last.group, true)
            }
            _ => Err(Error::ReadOnly("a write had failed before the store was closed".to_owned())),
        }
    }
}

fn answer(answers: Vec<CommitReply>, result: impl Fn() -> Result<(), Error>) {
    for answer in answers {
        answer(result());
    }
}

/// Marks the store as no longer written, however the thread ends.
struct Stopped(Arc<StoreInner>);

impl Drop for Stopped {
    fn drop(&mut self) {
        // After a panic the tree may be away: nobody will bring it back.
        self.0.view.close();
        self.0.set_read_only(Some("the store is closed".to_owned()));
    }
}
