//! Taking over tasks whose host is gone.
//!
//! Owns which of the candidates are claimed, and their new records. Must not look for candidates: readers did.
//! Invariant: a damaged task keeps no other from being claimed.

use super::super::{Error, record};
use super::head::RecordHeader;
use super::keys::{Part, TaskKey};
use super::operation::{Payloads, Writer};
use super::place_record;
use bulkhead_domain::UnixMs;
use bulkhead_domain::task::{Lease, Task};

impl Writer<'_> {
    /// Gives tasks without a live lease this one.
    pub(super) fn claim(&mut self, candidates: &[TaskKey], now: UnixMs, lease: Lease) -> Result<Vec<Task>, Error> {
        let mut claimed = Vec::new();
        for key in candidates {
            let (old, mut task) = match self.claimable(key, now) {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                // One damaged task must not keep the others from being recovered.
                Err(Error::Corrupt(damage)) => {
                    tracing::error!(task.id = %key.id, damage, "a task cannot be recovered");
                    continue;
                }
                Err(error) => return Err(error),
            };
            task.revision = task.revision.saturating_add(1);
            task.lease = Some(lease);
            let bytes = match self.shared.sealing.of(key.requestor.tenant, &self.shared.view)? {
                None => record::encode_task(&task)?,
                Some(sealing) => record::seal_task(&task, &sealing)?,
            };
            let (location, chunked) = place_record(bytes);
            let mut head = RecordHeader::new(&task, location, old.arguments.clone(), old.reserved_bytes);
            head.output = old.output.clone();
            self.drop_place(key, Part::Record, Some(&old.record))?;
            self.replace(key, &old, &head)?;
            self.write_payloads(key, Payloads { chunks: chunked.into_iter().collect(), ..Payloads::default() })?;
            claimed.push(task);
        }
        if !claimed.is_empty() {
            self.shared.with_leases(|leases| leases.given(lease.node));
        }
        Ok(claimed)
    }

    /// Head and record of a task without a lease.
    fn claimable(&self, key: &TaskKey, now: UnixMs) -> Result<Option<(RecordHeader, Task)>, Error> {
        let Some(head) = self.head(key)? else { return Ok(None) };
        if head.ended || self.shared.with_leases(|leases| leases.alive(head.lease(), now)) {
            return Ok(None);
        }
        let task = self.shared.open_task(&self.record_bytes(key, &head.record)?)?;
        Ok(Some((head, task)))
    }
}
