//! The one writer of a store.
//!
//! Owns the order of a group: take what waits, advance the fence and look at what the operations name in one round
//! trip, decide, write and commit in a second one, then acknowledge. Must not be called by anybody but through its
//! channel. Invariants: an operation is acknowledged after the server has made it durable, or refused without a trace;
//! nothing is written past a fence that another host took.
//!
//! The fence is one row with a number. A group counts it up by one, and only from the number that this committer knows;
//! so a group that is still on its way when a connection breaks can be told from one that was done, and made
//! impossible, by moving the number on (by two, so that an odd distance always means that the group was done, however
//! often the answer to that was lost). To read it would not be enough: the server may have the group in its socket,
//! unread.

mod reconnect;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::mpsc;
use tokio::time::Instant;

pub(super) use self::reconnect::wait_for_lock;
use self::reconnect::was_done;
use super::super::{Error, RowKind};
use super::connection::{Connection, LATE_AFTER};
use super::errors::{Failure, unavailable};
use super::hosts;
use super::look::look_at;
use super::membership::Membership;
use super::operation::{Answer, Envelope, Operation, Reply};
use super::overlay::Overlay;
use super::planner::{Counted, Planner};
use super::sql::Sql;
use super::state::{Shared, Trouble};
use super::writes::{self, Write, unreadable};
use bulkhead_domain::crash_points;

/// Operations in a group. More would make the first ones wait for the last ones.
const GROUP_OPERATIONS_MAX: usize = 512;
/// Bytes in a group, roughly.
const GROUP_BYTES_MAX: usize = 8 << 20;
/// How often the committer looks after its connection.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long the writers of a group wait to hear whether it was done, while the server stays away.
const DOUBT_MAX: Duration = Duration::from_secs(5);
/// How long opening waits for another host to leave the schema.
const TAKE_OVER_MAX: Duration = if cfg!(test) { Duration::from_secs(1) } else { Duration::from_secs(10) };
const TAKE_OVER_LOOK: Duration = Duration::from_millis(50);
/// What the fence of a host among several begins with.
const FIRST_NUMBER: i64 = 1;

/// What was decided of a group, until the server has it.
struct Planned {
    answers: Vec<(Reply, Result<Answer, Error>)>,
    counted: Vec<Counted>,
    growths: Vec<u64>,
    demotions: Vec<String>,
}

/// How the attempt to write a group ended.
enum Written {
    Durable,
    /// Certainly not done.
    Undone(Failure),
    InDoubt(Failure),
}

/// See the module.
pub(super) struct Committer {
    shared: Arc<Shared>,
    connection: Option<Connection>,
    /// What the fence is at.
    number: i64,
    /// What was counted for a group of which nobody knows yet whether it was done.
    doubtful: Option<Vec<Counted>>,
    /// Whether the present session has the lock that keeps other hosts waiting.
    has_lock: bool,
}

impl Committer {
    /// Takes the schema over, once no other host works with it.
    pub(super) async fn open(shared: Arc<Shared>, connection: Connection) -> Result<Self, Error> {
        wait_for_lock(&connection, &shared.schema, shared.membership.is_some()).await?;
        let number = match &shared.membership {
            Some(membership) => {
                hosts::join(&connection, &shared.schema, membership).await?;
                FIRST_NUMBER
            }
            None => take_over(&connection, &shared).await?,
        };
        let connection = shared.counted(connection);
        Ok(Self { shared, connection: Some(connection), number, doubtful: None, has_lock: true })
    }

    /// The session that took the fence, for what is read before the first group.
    pub(super) fn connection(&self) -> Result<&Connection, Error> {
        self.connection.as_ref().ok_or_else(unavailable)
    }

    /// Works until every sender is gone or the store is closed.
    pub(super) async fn run(mut self, mut operations: mpsc::Receiver<Envelope>) {
        let mut next_look = Instant::now() + LOOK_EVERY;
        let shared = Arc::clone(&self.shared);
        loop {
            let closed = tokio::select! {
                biased;
                () = tokio::time::sleep_until(next_look) => {
                    let closed = refusing_when_late(&shared, self.look(), &mut operations).await;
                    next_look = Instant::now() + LOOK_EVERY;
                    closed
                }
                () = shared.look.notified() => refusing_when_late(&shared, self.probe(), &mut operations).await,
                first = operations.recv() => {
                    let Some(first) = first else { return };
                    self.turn(first, &mut operations).await
                }
            };
            if let Some(reply) = closed {
                self.leave().await;
                // The caller may have gone away.
                let _ = reply.send(Ok(Answer::Done));
                return;
            }
        }
    }

    /// Lets another host have the schema at once, or what this one held.
    async fn leave(&mut self) {
        if let Some(connection) = self.connection.take() {
            if let Some(membership) = &self.shared.membership {
                // Where that fails, the lease ends a little later.
                let _ = tokio::time::timeout(LATE_AFTER, hosts::leave(&connection, membership)).await;
            }
            // Where that fails, the end of the connection does the same a little later.
            let _ = tokio::time::timeout(LATE_AFTER, connection.batch("select pg_advisory_unlock_all()")).await;
        }
    }

    fn uncount(&self, counted: Vec<Counted>) {
        if self.shared.membership.is_some() {
            // What the tables count is undone with the group.
            return;
        }
        let mut ledger = self.shared.ledger.lock();
        for Counted { requestor, more, less } in counted {
            ledger.release(&requestor, more);
            ledger.add(&requestor, less);
        }
    }

    /// One group: what waits, from the first operation on. Gives the reply of a close.
    async fn turn(&mut self, first: Envelope, operations: &mut mpsc::Receiver<Envelope>) -> Option<Reply> {
        let mut group = Vec::new();
        let mut bytes = 0;
        let mut close = None;
        let mut next = Some(first);
        while let Some(Envelope { operation, reply }) = next.take() {
            if let Operation::Close = operation {
                close = Some(reply);
                break;
            }
            if let Operation::Rejoin = operation {
                // The caller may have gone away.
                let _ = reply.send(self.rejoin().await.map(|()| Answer::Done));
                next = operations.try_recv().ok();
                continue;
            }
            bytes += operation.bytes();
            group.push((operation, reply));
            if group.len() >= GROUP_OPERATIONS_MAX || bytes >= GROUP_BYTES_MAX {
                break;
            }
            next = operations.try_recv().ok();
        }
        if let Some(metrics) = self.shared.metrics.get() {
            metrics.group(group.len());
        }
        if !group.is_empty() {
            let shared = Arc::clone(&self.shared);
            let closed = refusing_when_late(&shared, self.commit(group), operations).await;
            close = close.or(closed);
        }
        close
    }

    async fn commit(&mut self, group: Vec<(Operation, Reply)>) {
        let since = Instant::now();
        let mut overlay = match self.begin_group(&group).await {
            Ok(overlay) => overlay,
            Err(refusal) => {
                for (_, reply) in group {
                    // The caller may have gone away.
                    let _ = reply.send(Err(refusal()));
                }
                return;
            }
        };
        let mut planner = Planner::new(&self.shared, &mut overlay);
        let mut answers = Vec::with_capacity(group.len());
        for (operation, reply) in group {
            answers.push((reply, planner.plan(operation)));
        }
        let Planner { counted, growths, demotions, .. } = planner;
        let planned = Planned { answers, counted, growths, demotions };
        let mut tells_others = overlay.tasks.values().any(|cell| cell.is_changed) || overlay.held.makes_room();
        let (statements, kinds) = match writes::of_group(&mut overlay) {
            Ok((mut statements, kinds)) => {
                if self.shared.membership.is_some() {
                    statements.extend(writes::usage(&planned.counted));
                    let changes = writes::row_changes(&kinds);
                    tells_others |= changes.is_some();
                    statements.extend(changes);
                }
                (statements, kinds)
            }
            Err(error) => {
                self.connection = None;
                return self.give_up(planned, || Error::Engine(error.to_string()));
            }
        };
        match self.write(statements).await {
            Written::Durable => {
                self.shared.advance(&kinds);
                self.shared.set_trouble(None);
                if let Some(membership) = &self.shared.membership
                    && tells_others
                {
                    membership.has_changed.notify_one();
                }
                if let Some(metrics) = self.shared.metrics.get() {
                    metrics.synced(since.elapsed());
                    planned.growths.iter().for_each(|bytes| metrics.appended(*bytes));
                    planned.demotions.iter().for_each(|reason| metrics.demoted(reason));
                }
                answer(planned.answers);
            }
            Written::Undone(failure) => {
                tracing::error!(reason = failure.describe(), "a group was not written");
                if let Error::ReadOnly(reason) = failure.undone() {
                    self.shared.set_trouble(Some(Trouble::Refused(reason)));
                }
                self.give_up(planned, || failure.undone());
            }
            Written::InDoubt(failure) => {
                self.shared.counts.in_doubt.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(reason = failure.describe(), "the connection broke while a group was written");
                self.settle_doubt(planned, &kinds).await;
            }
        }
    }

    /// Refuses what was planned, and takes back what it counted.
    fn give_up(&self, planned: Planned, error: impl Fn() -> Error) {
        self.uncount(planned.counted);
        for (reply, _) in planned.answers {
            // The caller may have gone away.
            let _ = reply.send(Err(error()));
        }
    }

    /// Waits for the server to say whether a group was done; not for ever.
    async fn settle_doubt(&mut self, planned: Planned, kinds: &std::collections::HashSet<RowKind>) {
        let number = self.number;
        self.doubtful = Some(planned.counted);
        let began = Instant::now();
        while !self.reconnect().await {
            if began.elapsed() >= DOUBT_MAX || self.shared.trouble() == Some(Trouble::Lost) {
                break;
            }
            tokio::time::sleep(TAKE_OVER_LOOK).await;
        }
        // It may have been done, whatever is known of it.
        self.shared.advance(kinds);
        if self.doubtful.is_some() {
            let is_lost = self.shared.trouble() == Some(Trouble::Lost);
            for (reply, _) in planned.answers {
                // The caller may have gone away.
                let _ = reply.send(Err(if is_lost { Error::Lost } else { Error::InDoubt }));
            }
        } else if was_done(self.number - 2 - number) {
            answer(planned.answers);
        } else {
            for (reply, _) in planned.answers {
                // The caller may have gone away.
                let _ = reply.send(Err(unavailable()));
            }
        }
    }

    /// Begins the transaction of a group, on a new connection if the present one turns out to be broken.
    async fn begin_group(&mut self, group: &[(Operation, Reply)]) -> Result<Overlay, Box<dyn Fn() -> Error + Send>> {
        if let Some(trouble @ (Trouble::Unreachable | Trouble::Lost)) = self.shared.trouble() {
            return Err(Box::new(move || trouble.error()));
        }
        if self.shared.membership.as_ref().is_some_and(Membership::is_late) {
            // The others may have buried this host.
            self.shared.set_trouble(Some(Trouble::Lost));
            return Err(Box::new(|| Error::Lost));
        }
        let named = || {
            let mut overlay = Overlay::default();
            group.iter().for_each(|(operation, _)| overlay.name(operation));
            overlay
        };
        for _ in 0..2 {
            if !self.reconnect_if_closed().await {
                let trouble = self.shared.trouble().unwrap_or(Trouble::Unreachable);
                return Err(Box::new(move || trouble.error()));
            }
            match self.begin(named()).await {
                Ok(overlay) => return Ok(overlay),
                Err(BeginError::Lost) => {
                    self.shared.set_trouble(Some(Trouble::Lost));
                    return Err(Box::new(|| Error::Lost));
                }
                Err(BeginError::Late) => {
                    // What the server may have unread of it has no commit: it is never done.
                    self.connection = None;
                    self.shared.set_trouble(Some(Trouble::Unreachable));
                    return Err(Box::new(unavailable));
                }
                Err(BeginError::Failed(failure)) => {
                    tracing::warn!(reason = failure.describe(), "a group was not begun");
                    self.connection = None;
                    if !failure.is_final() {
                        return Err(Box::new(move || failure.undone()));
                    }
                }
            }
        }
        Err(Box::new(unavailable))
    }

    /// The first round trip: the fence, and what the operations name.
    async fn begin(&mut self, mut overlay: Overlay) -> Result<Overlay, BeginError> {
        let broken = || BeginError::Failed(Failure::Broken("there is no connection".to_owned()));
        let connection = self.connection.as_ref().ok_or_else(broken)?;
        // It is large.
        let looking = Box::pin(look_at(connection, &self.shared, self.number, &overlay));
        let looked = tokio::time::timeout(LATE_AFTER, looking).await.map_err(|_| BeginError::Late)?;
        let looked = looked.map_err(BeginError::Failed)?;
        if !looked.has_fence() {
            self.connection = None;
            return Err(BeginError::Lost);
        }
        looked.fill(self.shared.membership.as_ref(), &mut overlay).map_err(BeginError::Failed)?;
        Ok(overlay)
    }

    /// The second round trip.
    async fn write(&mut self, statements: Vec<Write>) -> Written {
        let Some(connection) = &self.connection else {
            return Written::Undone(Failure::Broken("there is no connection".to_owned()));
        };
        let values: Vec<_> = statements.iter().map(Write::values).collect();
        let written = statements.iter().zip(&values).map(|(write, values)| connection.execute(write.sql, values));
        crash_points::reach("commit.before");
        let results = tokio::join!(biased; join_all(written), connection.batch("commit"));
        crash_points::reach("commit.after");
        // The library takes an answer of ROLLBACK to `commit` for a success: only all the results together say what was
        // done.
        let (written, committed) = results;
        let failure = written.into_iter().find_map(Result::err);
        let outcome = match (failure, committed) {
            (None, Ok(())) => {
                self.number += 1;
                return Written::Durable;
            }
            (Some(failure @ Failure::Refused { .. }), _) => Written::Undone(failure),
            (Some(failure), _) | (None, Err(failure)) => Written::InDoubt(failure),
        };
        // What it still has in store is not waited for.
        self.connection = None;
        outcome
    }
}

/// Waits for what the committer does. Once the server is late with it, the server counts as away, and the operations
/// that wait for their turn are refused: none of them was begun. Gives the reply of a close among them.
fn refusing_when_late(
    shared: &Shared,
    work: impl Future<Output = ()>,
    operations: &mut mpsc::Receiver<Envelope>,
) -> impl Future<Output = Option<Reply>> {
    // It is large.
    let mut work = Box::pin(work);
    async move {
        if tokio::time::timeout(LATE_AFTER, &mut work).await.is_ok() {
            return None;
        }
        shared.set_trouble(Some(Trouble::Unreachable));
        loop {
            let waiting = tokio::select! {
                biased;
                () = &mut work => return None,
                waiting = operations.recv() => waiting,
            };
            match waiting {
                Some(Envelope { operation: Operation::Close, reply }) => {
                    work.await;
                    return Some(reply);
                }
                // The caller may have gone away.
                Some(Envelope { reply, .. }) => _ = reply.send(Err(unavailable())),
                None => {
                    work.await;
                    return None;
                }
            }
        }
    }
}

fn answer(answers: Vec<(Reply, Result<Answer, Error>)>) {
    for (reply, answer) in answers {
        // The caller may have gone away.
        let _ = reply.send(answer);
    }
}

enum BeginError {
    /// Another host has the fence.
    Lost,
    /// The server does not answer in time.
    Late,
    Failed(Failure),
}

/// Takes a schema for this host alone, and says where its fence is.
async fn take_over(connection: &Connection, shared: &Shared) -> Result<i64, Error> {
    hosts::end_sharing(connection, &shared.schema).await?;
    let taken = connection.query(Sql::FenceTake, &[&shared.holder.as_slice()]).await;
    let taken = taken.map_err(|failure| failure.undone())?;
    taken.first().ok_or_else(unavailable)?.try_get(0).map_err(|error| unreadable(&error))
}
