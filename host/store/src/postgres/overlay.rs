//! What a group has looked at, with its own changes on top.
//!
//! Owns the state of everything that the operations of a group name: as the database has it, and as it will be. Must
//! not decide what may be done, and must not talk to the server. Invariant: whatever an operation asks for was looked
//! at before, within the group's own transaction; what was not there is known to be absent.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::super::{Error, Ledger, RowKind, Usage};
use super::held::HeldCounts;
use super::operation::{Operation, Record, TaskHead};
use crate::journal::layout::{self, HEAD};
use crate::journal::{JournalHead, TaskRef};
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_domain::task::{NodeId, TaskId};

/// A task as it will be.
pub(super) struct TaskEntry {
    pub(super) head: TaskHead,
    /// Its record, where that changes.
    pub(super) record: Option<Vec<u8>>,
    /// Set where it is new.
    pub(super) arguments: Option<Vec<u8>>,
    /// Where that changes.
    pub(super) output: Option<Vec<u8>>,
}

#[derive(Default)]
pub(super) struct TaskCell {
    /// Whether the database has a task of this name.
    pub(super) is_stored: bool,
    pub(super) entry: Option<TaskEntry>,
    pub(super) is_changed: bool,
}

#[derive(Default)]
pub(super) struct JournalCell {
    pub(super) head: Option<JournalHead>,
    /// Why the head cannot be read.
    pub(super) damage: Option<String>,
    /// Whether all rows that the database has go first.
    pub(super) is_cleared: bool,
    pub(super) pieces: Vec<(u32, Vec<u8>)>,
    /// Rows that go one by one.
    pub(super) removed: Vec<u32>,
    pub(super) is_head_changed: bool,
}

impl JournalCell {
    /// Nothing of it is there any more.
    pub(super) fn clear(&mut self) {
        *self = Self { is_cleared: true, ..Self::default() };
    }
}

#[derive(Default)]
pub(super) struct RowCell {
    pub(super) value: Option<Vec<u8>>,
    pub(super) is_changed: bool,
}

pub(super) type RowKey = (RowKind, Vec<u8>);
pub(super) type AliasKey = (Requestor, [u8; 32]);

/// The requestor under which a tenant's sum stands among what is stored.
pub(super) const OF_TENANT: RequestorId = RequestorId([0; 16]);
/// Locks that groups of several hosts share: so many at most has one group.
const STRIPES_MAX: u16 = 256;

/// See the module.
#[derive(Default)]
pub(super) struct Overlay {
    pub(super) tasks: HashMap<TaskRef, TaskCell>,
    pub(super) aliases: HashMap<AliasKey, Option<TaskId>>,
    pub(super) journals: HashMap<TaskRef, JournalCell>,
    pub(super) rows: HashMap<RowKey, RowCell>,
    /// What those have stored whose tasks are named; none where this process counts it.
    pub(super) ledger: Option<Ledger>,
    /// Hosts that hold tasks which the group changes for others.
    pub(super) letters: Vec<(NodeId, TaskRef)>,
    /// What hosts count of tasks in states that are limited over all of them.
    pub(super) held: HeldCounts,
}

impl Overlay {
    /// The locks of all that is named, in the order in which every group takes them. A tenant's tasks, with all that
    /// belongs to them, have one; each row has its own.
    pub(super) fn stripes(&self) -> Vec<i32> {
        use sha2::{Digest as _, Sha256};
        let stripe = |kind: u8, key: &[u8]| {
            let digest = Sha256::new().chain_update([kind]).chain_update(key).finalize();
            let number = digest.first_chunk().copied().map_or(0, u16::from_be_bytes);
            i32::from(number % STRIPES_MAX)
        };
        let of_tasks = self.tasks.keys().map(|key| key.requestor);
        let tenants: HashSet<TenantId> = of_tasks.chain(self.held.named()).map(|requestor| requestor.tenant).collect();
        let of_tenants = tenants.iter().map(|tenant| stripe(0, &tenant.0));
        let of_rows = self.rows.keys().map(|(kind, key)| stripe(*kind as u8, key));
        of_tenants.chain(of_rows).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Whose stored tasks the operations may change: requestors, and their tenants.
    pub(super) fn counted(&self) -> HashSet<Requestor> {
        let requestors = self.tasks.keys().map(|key| key.requestor);
        requestors.flat_map(|requestor| [requestor, Requestor { id: OF_TENANT, ..requestor }]).collect()
    }

    /// What is counted for them. What a tenant has beside the requestors that are named stands under its own name.
    pub(super) fn found_usage(&mut self, found: &HashMap<Requestor, Usage>) {
        let mut ledger = Ledger::default();
        for (requestor, usage) in found.iter().filter(|(requestor, _)| requestor.id != OF_TENANT) {
            ledger.add(requestor, *usage);
        }
        for (tenant, sum) in found.iter().filter(|(requestor, _)| requestor.id == OF_TENANT) {
            let named = ledger.held(tenant).tenant;
            let tasks = sum.tasks.saturating_sub(named.tasks);
            let bytes = sum.bytes.saturating_sub(named.bytes);
            ledger.add(tenant, Usage { tasks, bytes });
        }
        self.ledger = Some(ledger);
    }

    /// The names of all that an operation has to know of.
    pub(super) fn name(&mut self, operation: &Operation) {
        match operation {
            Operation::Create { record, .. } | Operation::Commit { record, .. } => self.name_record(record),
            Operation::Claim { claims, .. } => {
                for claim in claims {
                    self.tasks.entry(claim.key).or_default();
                }
            }
            Operation::Append { key, tail } => self.name_tail(*key, tail.is_sealed),
            Operation::RemoveTask(key) | Operation::RemoveJournal(key) => self.name_task(*key),
            Operation::PutRow { kind, key, .. } => self.name_row(*kind, key),
            Operation::ChangeRows { kind, expected, changes, beside } => {
                expected.iter().chain(changes).for_each(|(key, _)| self.name_row(*kind, key));
                if let Some((key, tail)) = beside {
                    self.name_tail(*key, tail.is_sealed);
                }
            }
            Operation::RemoveRow { kind: RowKind::Journal, key } => {
                if let Some((task, _)) = layout::parse_key(key) {
                    self.name_task(task);
                }
            }
            Operation::RemoveRow { kind, key } => self.name_row(*kind, key),
            Operation::Hold(changes) => changes.iter().for_each(|change| self.held.name(change.requestor)),
            Operation::BlockTenant(_) | Operation::Rejoin | Operation::Close => {}
        }
    }

    fn name_record(&mut self, record: &Record) {
        self.name_tail(record.key, record.is_sealed);
        if let Some(alias) = record.head.alias {
            self.aliases.entry((record.key.requestor, alias)).or_default();
        }
    }

    fn name_tail(&mut self, key: TaskRef, is_sealed: bool) {
        self.name_task(key);
        if is_sealed {
            self.name_row(RowKind::TenantKey, &key.requestor.tenant.0);
        }
    }

    fn name_task(&mut self, key: TaskRef) {
        self.tasks.entry(key).or_default();
        self.journals.entry(key).or_default();
    }

    fn name_row(&mut self, kind: RowKind, key: &[u8]) {
        self.rows.entry((kind, key.to_vec())).or_default();
    }

    /// What the database has under a name.
    pub(super) fn found_task(&mut self, key: TaskRef, head: TaskHead) {
        let entry = TaskEntry { head, record: None, arguments: None, output: None };
        self.tasks.insert(key, TaskCell { is_stored: true, entry: Some(entry), is_changed: false });
    }

    pub(super) fn found_journal(&mut self, key: TaskRef, row: &[u8]) {
        let cell = match JournalHead::decode(row) {
            Ok(head) => JournalCell { head: Some(head), ..JournalCell::default() },
            Err(error) => JournalCell { damage: Some(error.to_string()), ..JournalCell::default() },
        };
        self.journals.insert(key, cell);
    }

    pub(super) fn head(&self, key: &TaskRef) -> Option<&TaskHead> {
        self.tasks.get(key).and_then(|cell| cell.entry.as_ref()).map(|entry| &entry.head)
    }

    /// The head of a journal; `None`: there is none.
    pub(super) fn journal(&self, key: &TaskRef) -> Result<Option<&JournalHead>, Error> {
        let cell = self.journals.get(key);
        match cell.and_then(|cell| cell.damage.as_ref()) {
            Some(damage) => Err(Error::Corrupt(damage.clone())),
            None => Ok(cell.and_then(|cell| cell.head.as_ref())),
        }
    }

    pub(super) fn row(&self, kind: RowKind, key: &[u8]) -> Option<&Vec<u8>> {
        self.rows.get(&(kind, key.to_vec())).and_then(|cell| cell.value.as_ref())
    }

    pub(super) fn set_row(&mut self, kind: RowKind, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.rows.insert((kind, key), RowCell { value, is_changed: true });
    }

    /// Whether what is sealed for a tenant can be read again: the tenant may have been erased since.
    pub(super) fn has_key(&self, tenant: TenantId) -> bool {
        self.row(RowKind::TenantKey, &tenant.0).is_some()
    }

    /// Writes a task over what was there, and moves its alias.
    pub(super) fn put_task(&mut self, key: TaskRef, entry: TaskEntry) {
        let cell = self.tasks.entry(key).or_default();
        if let Some(before) = cell.entry.as_ref().and_then(|before| before.head.alias) {
            self.aliases.insert((key.requestor, before), None);
        }
        if let Some(alias) = entry.head.alias {
            self.aliases.insert((key.requestor, alias), Some(key.id));
        }
        // What the group itself wrote before and this change leaves alone is still to be written.
        let before = cell.entry.take();
        let (record, arguments, output) =
            before.map_or((None, None, None), |before| (before.record, before.arguments, before.output));
        cell.entry = Some(TaskEntry {
            record: entry.record.or(record),
            arguments: entry.arguments.or(arguments),
            output: entry.output.or(output),
            head: entry.head,
        });
        cell.is_changed = true;
    }

    pub(super) fn remove_task(&mut self, key: &TaskRef) {
        let cell = self.tasks.entry(*key).or_default();
        if let Some(alias) = cell.entry.take().and_then(|entry| entry.head.alias) {
            self.aliases.insert((key.requestor, alias), None);
        }
        cell.is_changed = true;
    }

    pub(super) fn journal_cell(&mut self, key: &TaskRef) -> &mut JournalCell {
        self.journals.entry(*key).or_default()
    }

    /// Removes one row of a journal, whatever it is.
    pub(super) fn remove_journal_row(&mut self, key: &TaskRef, number: u32) {
        let cell = self.journal_cell(key);
        if number == HEAD {
            cell.head = None;
            cell.damage = None;
            cell.is_head_changed = false;
        }
        cell.pieces.retain(|(other, _)| *other != number);
        cell.removed.push(number);
    }
}
