//! What a store counts: who has stored how much, and which payload files no task names.
//!
//! Owns the counting over the heads of tasks, and the bytes in which the counts travel from the probe to the host and
//! from one run to the next. Must not open a database. Invariant: counts are bound to the group that they were taken
//! at, so counts of another state of the database are never used.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::super::record::{decode_checked, encode_checked};
use super::super::{Error, Ledger, Usage};
use super::errors::{engine_error, refuse};
use super::files::FileName;
use super::head::{PayloadLocation, RecordHeader};
use super::journal;
use super::keys::{self, TaskKey, kind};
use crate::journal::JournalHead;
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};

/// What is counted while rows are read.
#[derive(Default)]
pub(super) struct CountBuilder {
    pub(super) ledger: Ledger,
    /// The payload files that tasks name.
    pub(super) named: HashSet<FileName>,
}

impl CountBuilder {
    /// Counts one task.
    pub(super) fn task(&mut self, key: &[u8], head: &RecordHeader) -> Result<(), Error> {
        let key = keys::parse_task(key).ok_or_else(|| refuse("a task has an unreadable key"))?;
        self.ledger.add(&key.requestor, head.usage());
        for (_, location) in head.payloads() {
            if let PayloadLocation::File { name, .. } = location {
                self.named.insert(*name);
            }
        }
        Ok(())
    }

    /// Counts one journal.
    pub(super) fn journal(&mut self, key: &TaskKey, head: &JournalHead) {
        self.ledger.add(&key.requestor, journal::usage(Some(head)));
    }

    /// Takes what was counted elsewhere.
    pub(super) fn join(&mut self, other: Self) {
        for (requestor, usage) in other.ledger.holders() {
            self.ledger.add(requestor, *usage);
        }
        self.named.extend(other.named);
    }

    /// Counts every task and journal of an open database.
    pub(super) fn of(tree: &::sled::Tree) -> Result<Self, Error> {
        let mut count = Self::default();
        for row in tree.scan_prefix([kind::TASK]) {
            let (key, value) = row.map_err(engine_error)?;
            count.task(&key, &RecordHeader::decode(&value)?)?;
        }
        journal::each_head(tree, |key, head| count.journal(key, head))?;
        Ok(count)
    }
}

/// What the opening of a store must know about it.
#[derive(Default)]
pub(super) struct StoreCounts {
    /// The group that it was taken at.
    pub(super) group: u64,
    pub(super) ledger: Ledger,
    /// Names in the folder of payload files that no task has.
    pub(super) orphans: Vec<String>,
}

/// The same as bytes.
#[derive(Serialize, Deserialize)]
struct Written {
    group: u64,
    /// Tenant, requestor, tasks, bytes.
    usages: Vec<([u8; 16], [u8; 16], u64, u64)>,
    orphans: Vec<String>,
}

impl StoreCounts {
    pub(super) fn encode(&self) -> Result<Vec<u8>, Error> {
        encode(self.group, &self.ledger, self.orphans.clone())
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let Written { group, usages, orphans } = decode_checked(bytes, "count")?;
        let mut ledger = Ledger::default();
        for (tenant, id, tasks, bytes) in usages {
            ledger.add(&Requestor { tenant: TenantId(tenant), id: RequestorId(id) }, Usage { tasks, bytes });
        }
        Ok(Self { group, ledger, orphans })
    }
}

/// The bytes of a stock.
pub(super) fn encode(group: u64, ledger: &Ledger, orphans: Vec<String>) -> Result<Vec<u8>, Error> {
    let usages = ledger
        .holders()
        .iter()
        .map(|(requestor, usage)| (requestor.tenant.0, requestor.id.0, usage.tasks, usage.bytes));
    encode_checked(&Written { group, usages: usages.collect(), orphans })
}
