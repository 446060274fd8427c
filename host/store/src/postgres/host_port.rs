//! What the port of hosts asks for, in terms of the database.

use async_trait::async_trait;
use tokio_postgres::Row;

use super::super::hosts::{Changed, HeldChange, HeldOutcome, HostStore, MESSAGE_BYTES_MAX, StoredComponent};
use super::super::{Error, RowKind, Usage};
use super::PostgresStore;
use super::connection::Values;
use super::operation::{Answer, Claim, Operation, version_digest};
use super::overlay::OF_TENANT;
use super::port::{Claimable, bytes, holder, limit, unexpected};
use super::sql::Sql;
use super::writes::{Keys, task_ref, unreadable};
use crate::journal::TaskRef;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{Lease, NodeId, PluginVersion, Task};
use std::sync::atomic::Ordering;

/// Messages that may wait for one host.
const MESSAGES_WAITING_MAX: usize = 1_024;
/// Bytes of messages that may wait for one host.
const MESSAGE_BYTES_WAITING_MAX: usize = 64 << 20;
/// Messages of other hosts that are taken at once.
const MESSAGES_TAKEN_MAX: usize = 256;

fn number(row: &Row, index: usize) -> Result<i64, Error> {
    row.try_get(index).map_err(|error| unreadable(&error))
}

fn with_revision(row: &Row) -> Result<(TaskRef, u64), Error> {
    Ok((task_ref(row, 0)?, number(row, 3)?.cast_unsigned()))
}

#[async_trait]
impl HostStore for PostgresStore {
    fn is_shared(&self) -> bool {
        self.shared.membership.is_some()
    }

    fn node(&self) -> Option<NodeId> {
        self.shared.membership.as_ref().map(super::Membership::node)
    }

    async fn lost(&self) {
        self.shared.lost().await;
    }

    async fn rejoin(&self) -> Result<(), Error> {
        self.write(Operation::Rejoin).await
    }

    async fn news(&self) {
        match &self.shared.membership {
            Some(membership) => membership.others_changed.notified().await,
            None => std::future::pending().await,
        }
    }

    async fn changed_by_others(&self, count_max: usize) -> Result<Changed, Error> {
        let Some(membership) = &self.shared.membership else { return Ok(Changed::Tasks(Vec::new())) };
        let given = membership.letters_given.lock().clone();
        let node = membership.node();
        let rows = self.query(Sql::Letters, &[&node.0.as_slice(), &given, &limit(count_max)]).await?;
        let numbers = rows.iter().map(|row| number(row, 3)).collect::<Result<Vec<_>, _>>()?;
        *membership.letters_given.lock() = numbers;
        // A crash of the server empties the table of letters.
        let reconnects = self.shared.counts.reconnects.load(Ordering::Relaxed);
        let seen = membership.reconnects_seen.lock().replace(reconnects);
        if seen.is_some_and(|seen| seen != reconnects) {
            return Ok(Changed::Unknown);
        }
        rows.iter().map(|row| task_ref(row, 0)).collect::<Result<_, _>>().map(Changed::Tasks)
    }

    async fn claim_free(&self, lease: Lease, not_of: &[PluginVersion], count_max: usize) -> Result<Vec<Task>, Error> {
        let dead = self.query(Sql::Dead, &[]).await?;
        let dead = dead.iter().map(|row| bytes(row, 0)).collect::<Result<Vec<_>, _>>()?;
        let not_of: Vec<Vec<u8>> = not_of.iter().map(|version| version_digest(version).to_vec()).collect();
        let rows = self.query(Sql::Free, &[&dead, &not_of, &limit(count_max)]).await?;
        let mut claims = Vec::with_capacity(rows.len());
        for row in &rows {
            claims.push(self.free_task(row, lease).await?);
        }
        if claims.is_empty() {
            return Ok(Vec::new());
        }
        match self.ask(Operation::Claim { claims, now: 0, lease }).await? {
            Answer::Claimed(tasks) => Ok(tasks),
            Answer::Done | Answer::Appended(_) | Answer::Held(_) => Err(unexpected()),
        }
    }

    async fn hold(&self, changes: Vec<HeldChange>) -> Result<Vec<HeldOutcome>, Error> {
        match self.ask(Operation::Hold(changes)).await? {
            Answer::Held(outcomes) => Ok(outcomes),
            Answer::Done | Answer::Appended(_) | Answer::Claimed(_) => Err(unexpected()),
        }
    }

    async fn living(&self, but: usize) -> usize {
        let Some(membership) = &self.shared.membership else { return std::future::pending().await };
        let mut living = membership.living.subscribe();
        // Its sender lives as long as this.
        living.wait_for(|hosts| *hosts != but).await.map_or(but, |hosts| *hosts)
    }

    async fn rows_changed(&self, kind: RowKind, since: Option<u64>) -> Option<u64> {
        let Some(membership) = &self.shared.membership else { return std::future::pending().await };
        let mut looks = membership.rows_seen.subscribe();
        loop {
            let generation = self.shared.generation(kind);
            if generation.is_some() && generation != since {
                return generation;
            }
            // Its sender lives as long as this.
            let _ = looks.changed().await;
        }
    }

    async fn keep_component(&self, digest: &[u8; 32], component: &StoredComponent) -> Result<(), Error> {
        match self.is_shared() {
            true => self.put_component(digest, component).await,
            false => Ok(()),
        }
    }

    async fn has_component(&self, digest: &[u8; 32]) -> Result<bool, Error> {
        if self.is_shared() { self.has_stored_component(digest).await } else { Ok(true) }
    }

    async fn component(&self, digest: &[u8; 32]) -> Result<Option<StoredComponent>, Error> {
        if self.is_shared() { self.stored_component(digest).await } else { Ok(None) }
    }

    async fn remove_component(&self, digest: &[u8; 32]) -> Result<(), Error> {
        if self.is_shared() { self.delete_component(digest).await } else { Ok(()) }
    }

    async fn send_message(&self, to: Option<NodeId>, message: Vec<u8>) -> Result<(), Error> {
        let Some(membership) = &self.shared.membership else { return Ok(()) };
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(Error::Quota { limit: "message_bytes", value: MESSAGE_BYTES_MAX as u64 });
        }
        let node = membership.node();
        let to = to.as_ref().map(|to| to.0.as_slice());
        let waiting = limit(MESSAGES_WAITING_MAX);
        let bytes_waiting = limit(MESSAGE_BYTES_WAITING_MAX);
        self.query(Sql::SendMessage, &[&node.0.as_slice(), &to, &message, &waiting, &bytes_waiting]).await?;
        membership.has_changed.notify_one();
        Ok(())
    }

    async fn take_messages(&self) -> Result<Vec<Vec<u8>>, Error> {
        let Some(membership) = &self.shared.membership else { return Ok(Vec::new()) };
        let node = membership.node();
        let values: Values<'_> = &[&node.0.as_slice(), &limit(MESSAGES_TAKEN_MAX), &limit(MESSAGE_BYTES_MAX)];
        let rows = self.query(Sql::TakeMessages, values).await?;
        let taken = rows.iter().map(|row| Ok((number(row, 0)?, bytes(row, 1)?.to_vec())));
        let mut taken = taken.collect::<Result<Vec<_>, Error>>()?;
        taken.sort_unstable_by_key(|(number, _)| *number);
        Ok(taken.into_iter().map(|(_, body)| body).collect())
    }

    async fn revisions(&self, tasks: &[TaskRef]) -> Result<Vec<(TaskRef, u64)>, Error> {
        let Keys { tenants, requestors, ids } = Keys::of(tasks);
        let rows = self.query(Sql::Revisions, &[&tenants, &requestors, &ids]).await?;
        rows.iter().map(with_revision).collect()
    }

    async fn unfinished_of(&self, requestors: &[Requestor], count_max: usize) -> Result<Vec<(TaskRef, u64)>, Error> {
        let tenants: Vec<&[u8]> = requestors.iter().map(|requestor| requestor.tenant.0.as_slice()).collect();
        let ids: Vec<&[u8]> = requestors.iter().map(|requestor| requestor.id.0.as_slice()).collect();
        let rows = self.query(Sql::UnfinishedOf, &[&tenants, &ids, &limit(count_max)]).await?;
        rows.iter().map(with_revision).collect()
    }
}

impl PostgresStore {
    /// A task of [`Sql::Free`], as it is to be claimed.
    async fn free_task(&self, row: &Row, lease: Lease) -> Result<Claim, Error> {
        let key = task_ref(row, 0)?;
        let holder = holder(row, 3)?;
        let record = bytes(row, 5)?;
        let revision = number(row, 6)?.cast_unsigned();
        let as_it_is = |task| {
            let held_by = holder.map(|lease| lease.node);
            Claim { key, revision, held_by, revision_after: revision, record: record.to_vec(), task }
        };
        match self.claim_of(key, record, holder, lease).await {
            Ok(Claimable::WithLease(claim)) => Ok(claim),
            Ok(Claimable::AsItIs(task)) => Ok(as_it_is(Some(task))),
            // One damaged task must not keep the others from being claimed.
            Err(Error::Corrupt(damage)) => {
                tracing::error!(task.id = %key.id, damage, "a task cannot be claimed");
                Ok(as_it_is(None))
            }
            Err(error) => Err(error),
        }
    }

    /// What the requestor and its tenant have stored, as the tables count it.
    pub(super) async fn shared_usage(&self, requestor: &Requestor) -> Result<(Usage, Usage), Error> {
        let tenant = requestor.tenant.0.as_slice();
        let ids = [requestor.id.0.as_slice(), OF_TENANT.0.as_slice()];
        let rows = self.query(Sql::UsageOf, &[&tenant, &ids.as_slice()]).await?;
        let mut usage = (Usage::default(), Usage::default());
        for row in &rows {
            let unsigned = |index| number(row, index).map(|number| u64::try_from(number).unwrap_or_default());
            let found = Usage { tasks: unsigned(1)?, bytes: unsigned(2)? };
            match bytes(row, 0)? == OF_TENANT.0.as_slice() {
                true => usage.1 = found,
                false => usage.0 = found,
            }
        }
        Ok(usage)
    }
}
