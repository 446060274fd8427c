//! The store in memory, for tests, simulations and calls without a data directory: the same answers as on disk, and
//! failures on demand.
//!
//! Owns the whole state under one lock. Must not be used where anything has to survive. Invariant: the conformance
//! suite cannot tell it from the store on disk.

mod faults;
mod journals;

use std::collections::{BTreeMap, HashSet};

use async_trait::async_trait;
use parking_lot::Mutex;

use self::faults::Faults;
use super::journal::{Beside, TaskRef};
use super::leases::Leases;
use super::{
    Change, ClaimedTasks, Creation, Error, Ledger, ListPosition, RowKind, RowState, RowStore, TaskStore, Usage, record,
    stored,
};
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_domain::task::{Lease, NodeId, Task, TaskId, TaskOutput};
use bulkhead_domain::{Json, UnixMs};

type Key = (Requestor, TaskId);

/// A stored task, as the bytes that a disk would hold.
struct Entry {
    record: Vec<u8>,
    arguments: Json,
    output: Option<Vec<u8>>,
    reserved_bytes: u64,
}

impl Entry {
    fn task(&self) -> Result<Task, Error> {
        record::decode_task(&self.record)
    }

    fn usage(&self) -> Usage {
        let output = self.output.as_ref().map_or(self.reserved_bytes, |output| output.len() as u64);
        let bytes = self.record.len() as u64 + self.arguments.as_str().len() as u64;
        Usage { tasks: 1, bytes: bytes.saturating_add(output) }
    }
}

#[derive(Default)]
struct State {
    tasks: BTreeMap<Key, Entry>,
    /// Inverted creation time inside, so that key order is newest first.
    list: BTreeMap<(Requestor, UnixMs, TaskId), ()>,
    expiry: BTreeMap<(UnixMs, Key), ()>,
    /// With the lease by which each is held.
    unfinished: BTreeMap<Key, Option<Lease>>,
    aliases: BTreeMap<(Requestor, String), TaskId>,
    rows: BTreeMap<(RowKind, Vec<u8>), Vec<u8>>,
    ledger: Ledger,
    leases: Leases,
    faults: Faults,
    blocked_tenants: HashSet<TenantId>,
    looks: Vec<(&'static str, Requestor)>,
    /// Counts up with each write, whatever it is of.
    generation: u64,
}

/// The store.
#[derive(Default)]
pub struct MemoryStore {
    state: Mutex<State>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// What was looked for under one requestor's name, in order, since this was asked last: a search that depends on
    /// what others have would show here.
    pub fn take_looks(&self) -> Vec<(&'static str, Requestor)> {
        std::mem::take(&mut self.state.lock().looks)
    }

    /// What a restart does: every lease given so far is dead, a closed store is open again.
    pub fn restart(&self) {
        let mut state = self.state.lock();
        state.leases = Leases::default();
        state.faults.closed = false;
    }

    /// What another process sees of a store that this one closed: leases go on.
    pub fn open_again(&self) {
        self.state.lock().faults.closed = false;
    }

    fn read<R>(&self, act: impl FnOnce(&State) -> Result<R, Error>) -> Result<R, Error> {
        let mut state = self.state.lock();
        if state.faults.closed {
            return Err(Error::Engine("the store is closed".to_owned()));
        }
        if state.faults.reads_failing > 0 {
            state.faults.reads_failing -= 1;
            return Err(state.faults.error("a read"));
        }
        act(&state)
    }

    /// What a claim finds, which is made to fail where its writes are.
    fn free(&self, now: UnixMs, after: Option<Key>, count_max: usize) -> Result<(ClaimedTasks, Vec<Key>), Error> {
        let state = self.state.lock();
        if state.faults.closed {
            return Err(Error::Engine("the store is closed".to_owned()));
        }
        state.free(now, after, count_max)
    }

    fn look<R>(
        &self,
        what: &'static str,
        requestor: &Requestor,
        act: impl FnOnce(&State) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.state.lock().looks.push((what, *requestor));
        self.read(act)
    }

    fn write<R>(&self, act: impl FnOnce(&mut State) -> Result<R, Error>) -> Result<R, Error> {
        let mut state = self.state.lock();
        let faults = &mut state.faults;
        if faults.closed {
            return Err(Error::Engine("the store is closed".to_owned()));
        }
        if let Some(reason) = &faults.read_only {
            return Err(Error::ReadOnly(reason.clone()));
        }
        if faults.writes_failing > 0 {
            faults.writes_failing -= 1;
            return Err(faults.error("a write"));
        }
        let lost = faults.acknowledgements_lost > 0;
        state.generation += 1;
        let done = act(&mut state)?;
        if lost {
            state.faults.acknowledgements_lost -= 1;
            return Err(state.faults.error("an acknowledgement"));
        }
        Ok(done)
    }
}

impl State {
    fn admit(&self, kind: RowKind, key: &[u8]) -> Result<(), Error> {
        let is_blocked = kind.tenant_of(key).is_some_and(|tenant| self.blocked_tenants.contains(&tenant));
        if is_blocked { Err(super::blocked_tenant()) } else { Ok(()) }
    }

    fn alias_free(&self, task: &Task) -> Result<(), Error> {
        let Some(alias) = &task.alias else { return Ok(()) };
        match self.aliases.get(&(task.requestor, alias.clone())) {
            Some(holder) if *holder != task.id => Err(Error::Exists),
            _ => Ok(()),
        }
    }

    /// The lease by which the task is held.
    fn holder(&self, key: &Key) -> Option<Lease> {
        self.unfinished.get(key).copied().flatten()
    }

    fn index(&mut self, task: &Task, holder: Option<Lease>) {
        let key = (task.requestor, task.id);
        self.list.insert((task.requestor, UnixMs::MAX - task.created_at, task.id), ());
        if let Some(at) = task.expires_at() {
            self.expiry.insert((at, key), ());
        }
        if task.outcome().is_none() {
            self.unfinished.insert(key, holder);
        }
        if let Some(alias) = &task.alias {
            self.aliases.insert((task.requestor, alias.clone()), task.id);
        }
    }

    fn unindex(&mut self, task: &Task) {
        let key = (task.requestor, task.id);
        self.list.remove(&(task.requestor, UnixMs::MAX - task.created_at, task.id));
        if let Some(at) = task.expires_at() {
            self.expiry.remove(&(at, key));
        }
        self.unfinished.remove(&key);
        if let Some(alias) = &task.alias {
            self.aliases.remove(&(task.requestor, alias.clone()));
        }
    }

    fn task(&self, requestor: &Requestor, id: TaskId) -> Result<Option<Task>, Error> {
        self.tasks.get(&(*requestor, id)).map(Entry::task).transpose()
    }

    fn create(&mut self, creation: Creation) -> Result<Task, Error> {
        let Creation { mut task, arguments, output, reserved_bytes, caps, journal } = creation;
        task.revision = 1;
        let key = (task.requestor, task.id);
        if self.blocked_tenants.contains(&task.requestor.tenant) {
            return Err(super::blocked_tenant());
        }
        if self.tasks.contains_key(&key) {
            return Err(Error::Exists);
        }
        self.alias_free(&task)?;
        let reserved_bytes = if task.outcome().is_some() { 0 } else { reserved_bytes };
        let output = output.as_deref().map(record::encode_output).transpose()?;
        let entry = Entry { record: record::encode_task(&task)?, arguments, output, reserved_bytes };
        let growth = journal.map(|append| self.growth(&TaskRef::of(&task), append, Some(task.attempt))).transpose()?;
        let mut usage = entry.usage();
        usage.bytes = usage.bytes.saturating_add(growth.as_ref().map_or(0, |growth| growth.after.bytes));
        caps.admit(&mut self.ledger, &task.requestor, usage)?;
        if let Some(lease) = task.lease {
            self.leases.given(lease.node);
        }
        self.index(&task, task.lease);
        self.tasks.insert(key, entry);
        if let Some(growth) = growth {
            self.grow(growth)?;
        }
        Ok(task)
    }

    /// Puts a changed record in the place of the old one.
    fn replace(
        &mut self,
        old: &Task,
        task: &Task,
        output: Option<Vec<u8>>,
        holder: Option<Lease>,
    ) -> Result<(), Error> {
        let record = record::encode_task(task)?;
        self.unindex(old);
        self.index(task, holder);
        let Some(entry) = self.tasks.get_mut(&(task.requestor, task.id)) else { return Err(Error::Conflict) };
        self.ledger.release(&task.requestor, entry.usage());
        entry.record = record;
        if task.outcome().is_some() {
            entry.reserved_bytes = 0;
        }
        if output.is_some() {
            entry.output = output;
        }
        self.ledger.add(&task.requestor, entry.usage());
        Ok(())
    }

    fn commit(&mut self, change: Change) -> Result<Task, Error> {
        let Change { mut task, output, journal, held_by, then } = change;
        let old = self.task(&task.requestor, task.id)?.ok_or(Error::Conflict)?;
        let held = self.holder(&(task.requestor, task.id));
        if old.outcome().is_none() {
            self.leases.check_holder(held, held_by)?;
        }
        if old.revision != task.revision {
            return Err(Error::Conflict);
        }
        self.alias_free(&task)?;
        if journal.is_some() && old.outcome().is_some() {
            return Err(Error::Fenced);
        }
        let growth = journal.map(|append| self.growth(&TaskRef::of(&task), append, Some(task.attempt))).transpose()?;
        task.revision += 1;
        if let Some(lease) = task.lease.filter(|lease| old.lease.is_none_or(|was| was.node != lease.node)) {
            self.leases.given(lease.node);
        }
        let output = output.as_deref().map(record::encode_output).transpose()?;
        if let Some(growth) = &growth {
            self.admit_growth(growth)?;
        }
        self.replace(&old, &task, output, Leases::holder_after(held, task.lease, then))?;
        match growth {
            Some(growth) => self.grow(growth)?,
            None if task.outcome().is_none() => self.remove_journal_of_other_run(&task),
            None if old.outcome().is_none() => self.remove_journal(&TaskRef::of(&task)),
            None => {}
        }
        Ok(task)
    }

    /// Tasks that no living host holds: what is given as it is, and those that get a lease first.
    fn free(&self, now: UnixMs, after: Option<Key>, count_max: usize) -> Result<(ClaimedTasks, Vec<Key>), Error> {
        use std::ops::Bound::{Excluded, Unbounded};
        let unfinished = self.unfinished.range((after.map_or(Unbounded, Excluded), Unbounded));
        let free = unfinished.filter(|(_, held)| !self.leases.alive(**held, now)).take(count_max);
        let mut claimed = ClaimedTasks::default();
        let mut to_lease = Vec::new();
        let mut count = 0;
        for (key, held) in free {
            count += 1;
            claimed.next = (count == count_max).then_some(*key);
            match self.task(&key.0, key.1)? {
                Some(task) if task.dormant_since().is_some() && self.leases.is_gone(*held) => claimed.tasks.push(task),
                _ => to_lease.push(*key),
            }
        }
        Ok((claimed, to_lease))
    }

    /// Gives tasks without a living holder this lease.
    fn claim(&mut self, keys: Vec<Key>, now: UnixMs, lease: Lease) -> Result<Vec<Task>, Error> {
        let mut claimed = Vec::with_capacity(keys.len());
        for (requestor, id) in keys {
            let Some(held) = self.unfinished.get(&(requestor, id)).copied() else { continue };
            if self.leases.alive(held, now) {
                continue;
            }
            let Some(old) = self.task(&requestor, id)? else { continue };
            let task = Task { revision: old.revision + 1, lease: Some(lease), ..old.clone() };
            self.replace(&old, &task, None, Some(lease))?;
            claimed.push(task);
        }
        if !claimed.is_empty() {
            self.leases.given(lease.node);
        }
        Ok(claimed)
    }

    fn remove(&mut self, requestor: &Requestor, id: TaskId) -> Result<(), Error> {
        let Some(task) = self.task(requestor, id)? else { return Ok(()) };
        self.unindex(&task);
        if let Some(entry) = self.tasks.remove(&(*requestor, id)) {
            self.ledger.release(requestor, entry.usage());
        }
        self.remove_journal(&TaskRef { requestor: *requestor, id });
        Ok(())
    }
}

impl super::HostStore for MemoryStore {}

#[async_trait]
impl TaskStore for MemoryStore {
    async fn create(&self, creation: Creation) -> Result<Task, Error> {
        self.write(|state| state.create(creation))
    }

    async fn commit(&self, change: Change) -> Result<Task, Error> {
        self.write(|state| state.commit(change))
    }

    async fn get(&self, requestor: &Requestor, id: TaskId) -> Result<Option<Task>, Error> {
        self.look("task", requestor, |state| state.task(requestor, id))
    }

    async fn find(&self, id: TaskId) -> Result<Option<Task>, Error> {
        self.read(|state| {
            let found = state.tasks.iter().find(|((_, other), _)| *other == id);
            found.map(|(_, entry)| entry.task()).transpose()
        })
    }

    async fn arguments(&self, requestor: &Requestor, id: TaskId) -> Result<Option<Json>, Error> {
        self.look("arguments", requestor, |state| {
            Ok(state.tasks.get(&(*requestor, id)).map(|entry| entry.arguments.clone()))
        })
    }

    async fn output(&self, requestor: &Requestor, id: TaskId) -> Result<Option<TaskOutput>, Error> {
        self.look("output", requestor, |state| {
            let bytes = state.tasks.get(&(*requestor, id)).and_then(|entry| entry.output.as_deref());
            bytes.map(record::decode_output).transpose()
        })
    }

    async fn by_alias(&self, requestor: &Requestor, alias: &str) -> Result<Option<TaskId>, Error> {
        self.look("alias", requestor, |state| Ok(state.aliases.get(&(*requestor, alias.to_owned())).copied()))
    }

    async fn list(
        &self,
        requestor: &Requestor,
        after: Option<ListPosition>,
        count_max: usize,
    ) -> Result<Vec<Task>, Error> {
        use std::ops::Bound::{Excluded, Included};
        self.look("list", requestor, |state| {
            let first = Included((*requestor, UnixMs::MIN, TaskId([0; 16])));
            let from = after.map_or(first, |at| Excluded((*requestor, UnixMs::MAX - at.created_at, at.id)));
            let last = Included((*requestor, UnixMs::MAX, TaskId([u8::MAX; 16])));
            let ids = state.list.range((from, last)).map(|((_, _, id), ())| *id).take(count_max);
            ids.filter_map(|id| state.task(requestor, id).transpose()).collect()
        })
    }

    async fn claim(
        &self,
        now: UnixMs,
        lease: Lease,
        after: Option<(Requestor, TaskId)>,
        count_max: usize,
    ) -> Result<ClaimedTasks, Error> {
        let (mut claimed, to_lease) = self.free(now, after, count_max)?;
        if !to_lease.is_empty() {
            claimed.tasks.extend(self.write(|state| state.claim(to_lease, now, lease))?);
            claimed.tasks.sort_by_key(|task| (task.requestor, task.id));
        }
        Ok(claimed)
    }

    async fn heartbeat(&self, node: NodeId, until: UnixMs) -> Result<(), Error> {
        self.state.lock().leases.heartbeat(node, until);
        Ok(())
    }

    async fn expired(&self, now: UnixMs, count_max: usize) -> Result<Vec<(Requestor, TaskId)>, Error> {
        self.read(|state| {
            let due = state.expiry.keys().take_while(|(at, _)| *at <= now);
            Ok(due.map(|(_, key)| *key).take(count_max).collect())
        })
    }

    async fn next_expiry(&self) -> Result<Option<UnixMs>, Error> {
        self.read(|state| Ok(state.expiry.keys().next().map(|(at, _)| *at)))
    }

    async fn remove(&self, requestor: &Requestor, id: TaskId) -> Result<(), Error> {
        if self.state.lock().faults.removals_hang {
            std::future::pending::<()>().await;
        }
        self.write(|state| match state.faults.broken.contains(&id) {
            true => Err(Error::Engine("a task was made to stay".to_owned())),
            false => state.remove(requestor, id),
        })
    }

    async fn block_tenant(&self, tenant: TenantId) -> Result<(), Error> {
        self.state.lock().blocked_tenants.insert(tenant);
        Ok(())
    }

    async fn tasks_of(&self, tenant: TenantId, count_max: usize) -> Result<Vec<(Requestor, TaskId)>, Error> {
        let first = (Requestor { tenant, id: RequestorId([0; 16]) }, TaskId([0; 16]));
        self.read(|state| {
            let own = state.tasks.range(first..).map(|(key, _)| *key);
            Ok(own.take_while(|(requestor, _)| requestor.tenant == tenant).take(count_max).collect())
        })
    }

    async fn usage(&self, requestor: &Requestor) -> Result<(Usage, Usage), Error> {
        self.read(|state| Ok(stored(&state.ledger, requestor)))
    }

    async fn scan(&self, after: Option<(Requestor, TaskId)>, count_max: usize) -> Result<Vec<Task>, Error> {
        self.read(|state| {
            let past = |key: &Key| after.is_none_or(|after| *key > after);
            let entries = state.tasks.iter().filter(|(key, _)| past(key)).take(count_max);
            entries.map(|(_, entry)| entry.task()).collect()
        })
    }

    fn read_only(&self) -> Option<String> {
        self.state.lock().faults.read_only.clone()
    }

    async fn close(&self) -> Result<(), Error> {
        self.state.lock().faults.closed = true;
        Ok(())
    }
}

#[async_trait]
impl RowStore for MemoryStore {
    async fn row(&self, kind: RowKind, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.read(|state| Ok(state.rows.get(&(kind, key.to_vec())).cloned()))
    }

    async fn put_row(&self, kind: RowKind, key: &[u8], value: Vec<u8>, absent_only: bool) -> Result<(), Error> {
        super::check_row(kind, key, &value)?;
        self.write(|state| {
            state.admit(kind, key)?;
            let key = (kind, key.to_vec());
            if absent_only && state.rows.contains_key(&key) {
                return Err(Error::Exists);
            }
            state.rows.insert(key, value);
            Ok(())
        })
    }

    async fn change_rows(
        &self,
        kind: RowKind,
        expected: Vec<RowState>,
        changes: Vec<RowState>,
        beside: Option<Beside>,
    ) -> Result<(), Error> {
        for (key, value) in &changes {
            super::check_row(kind, key, value.as_deref().unwrap_or_default())?;
        }
        self.write(|state| {
            for (key, value) in expected {
                if state.rows.get(&(kind, key)) != value.as_ref() {
                    return Err(Error::Conflict);
                }
            }
            for (key, value) in &changes {
                value.as_ref().map_or(Ok(()), |_| state.admit(kind, key))?;
            }
            if let Some((task, append)) = beside {
                state.append(&task, append)?;
            }
            for (key, value) in changes {
                match value {
                    Some(value) => state.rows.insert((kind, key), value),
                    None => state.rows.remove(&(kind, key)),
                };
            }
            Ok(())
        })
    }

    fn generation(&self, _: RowKind) -> Option<u64> {
        Some(self.state.lock().generation)
    }

    async fn remove_row(&self, kind: RowKind, key: &[u8]) -> Result<(), Error> {
        self.write(|state| {
            state.remove_row(kind, key);
            Ok(())
        })
    }

    async fn rows(
        &self,
        kind: RowKind,
        after: Option<&[u8]>,
        count_max: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Error> {
        self.read(|state| {
            let of_kind = state.rows.iter().filter(|((other, _), _)| *other == kind);
            let past = of_kind.filter(|((_, key), _)| after.is_none_or(|after| key.as_slice() > after));
            Ok(past.take(count_max).map(|((_, key), value)| (key.clone(), value.clone())).collect())
        })
    }
}
