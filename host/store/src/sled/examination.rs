//! Looking at every row of a database, wherever the rows come from.
//!
//! Owns what is compared with what was counted while writing. Must not read a file of the engine. Invariant: a row that
//! vanished, came back or changed is noticed by the sum over all of them.

use super::super::Error;
use super::super::record::{self, decode_checked};
use super::database::GroupRow;
use super::errors::refuse;
use super::files;
use super::group::Totals;
use super::head::{PayloadLocation, RecordHeader};
use super::journal;
use super::keys::{self, kind};
use super::layout::Layout;
use super::store_counts::{CountBuilder, StoreCounts};
use crate::journal::layout::HEAD;

/// What was found so far.
#[derive(Default)]
pub(super) struct Examination {
    totals: Totals,
    count: CountBuilder,
    group: Option<GroupRow>,
}

impl Examination {
    pub(super) fn row(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if key == keys::GROUP {
            self.group = Some(decode_checked(value, "database")?);
            return Ok(());
        }
        self.totals.count(key, value);
        if key.first() == Some(&kind::TASK) {
            let head = RecordHeader::decode(value).map_err(|error| refuse(&error.to_string()))?;
            self.count.task(key, &head)?;
            if let PayloadLocation::Inline(bytes) = &head.record {
                record::decode_task(bytes).map_err(|error| refuse(&error.to_string()))?;
            }
        }
        if let Some((key, HEAD)) = keys::parse_journal(key)
            && let Ok(head) = journal::decode_head(value)
        {
            self.count.journal(&key, &head);
        }
        Ok(())
    }

    /// Takes what was found in other rows.
    pub(super) fn join(&mut self, other: Self) {
        self.totals.join(other.totals);
        self.count.join(other.count);
        self.group = self.group.or(other.group);
    }

    /// The row that was written with the last group, if it was among the rows.
    pub(super) fn group(&self) -> Option<GroupRow> {
        self.group
    }

    #[cfg(test)]
    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    /// Compares what was found with what was counted.
    pub(super) fn conclude(self, layout: &Layout, last: &GroupRow) -> Result<StoreCounts, Error> {
        let expected = last.census();
        if self.totals.rows != expected.rows {
            return Err(refuse(&format!("the database holds {} rows of {}", self.totals.rows, expected.rows)));
        }
        if self.totals != expected {
            return Err(refuse("the sum over all rows is wrong"));
        }
        let orphans = files::orphans(&layout.files, &self.count.named)?;
        Ok(StoreCounts { group: last.group, ledger: self.count.ledger, orphans })
    }
}
