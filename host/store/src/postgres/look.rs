//! What a group looks at before anything is decided.
//!
//! Owns the first round trip of a group, and how its rows are read. Must not decide or write anything but the fence.
//! Invariant: everything that is read is read behind the fence, in the transaction that the group is written in.

use super::super::{Error, RowKind, Usage};
use super::connection::Connection;
use super::errors::Failure;
use super::membership::Membership;
use super::operation::TaskHead;
use super::overlay::Overlay;
use super::sql::Sql;
use super::state::Shared;
use super::writes::{Keys, task_ref, unreadable};
use crate::journal::TaskRef;
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_domain::task::{Lease, NodeId};

/// What the round trip found.
pub(super) struct Looked {
    /// Fences that were advanced.
    advanced: u64,
    tasks: Vec<tokio_postgres::Row>,
    aliases: Vec<tokio_postgres::Row>,
    journals: Vec<tokio_postgres::Row>,
    rows: Vec<tokio_postgres::Row>,
    /// Nothing where this process counts what is stored.
    usage: Vec<tokio_postgres::Row>,
    held: Vec<tokio_postgres::Row>,
}

/// The fence is advanced from this number, and what the operations name is read.
pub(super) async fn look_at(
    connection: &Connection,
    shared: &Shared,
    number: i64,
    overlay: &Overlay,
) -> Result<Looked, Failure> {
    let membership = shared.membership.as_ref();
    let tasks = Keys::of(overlay.tasks.keys());
    let journals = Keys::of(overlay.journals.keys());
    let mut aliases = Keys::default();
    for (requestor, alias) in overlay.aliases.keys() {
        aliases.tenants.push(requestor.tenant.0.to_vec());
        aliases.requestors.push(requestor.id.0.to_vec());
        aliases.ids.push(alias.to_vec());
    }
    let kinds: Vec<i16> = overlay.rows.keys().map(|(kind, _)| *kind as i16).collect();
    let keys: Vec<&[u8]> = overlay.rows.keys().map(|(_, key)| key.as_slice()).collect();
    let of_keys = async |sql: Sql, keys: &Keys| match keys.ids.is_empty() {
        true => Ok(Vec::new()),
        false => connection.query(sql, &[&keys.tenants, &keys.requestors, &keys.ids]).await,
    };
    let of_rows = async || match kinds.is_empty() {
        true => Ok(Vec::new()),
        false => connection.query(Sql::LoadRows, &[&kinds, &keys]).await,
    };
    let stripes = membership.map(|_| overlay.stripes()).unwrap_or_default();
    let lock_stripes = async || match membership.filter(|_| !stripes.is_empty()) {
        None => Ok(0),
        Some(membership) => connection.execute(Sql::LockStripes, &[&membership.stripes_of, &stripes]).await,
    };
    let counted: Vec<Requestor> = membership.map(|_| overlay.counted().into_iter().collect()).unwrap_or_default();
    let tenants: Vec<&[u8]> = counted.iter().map(|requestor| requestor.tenant.0.as_slice()).collect();
    let requestors: Vec<&[u8]> = counted.iter().map(|requestor| requestor.id.0.as_slice()).collect();
    let of_usage = async || match counted.is_empty() {
        true => Ok(Vec::new()),
        false => connection.query(Sql::LoadUsage, &[&tenants, &requestors]).await,
    };
    let node = membership.map_or(shared.holder, |membership| membership.node().0);
    let advance = membership.map_or(Sql::FenceAdvance, |_| Sql::HostFenceAdvance);
    let holder = node.as_slice();
    let fence: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&holder, &number];
    let (begun, advanced, locked, tasks, aliases, journals, rows, usage, held) = tokio::join!(
        biased;
        connection.batch("begin isolation level read committed"),
        connection.execute(advance, &fence),
        lock_stripes(),
        of_keys(Sql::LoadTasks, &tasks),
        of_keys(Sql::LoadAliases, &aliases),
        of_keys(Sql::LoadJournals, &journals),
        of_rows(),
        of_usage(),
        overlay.held.load(connection, node),
    );
    begun?;
    let advanced = advanced?;
    locked?;
    Ok(Looked {
        advanced,
        tasks: tasks?,
        aliases: aliases?,
        journals: journals?,
        rows: rows?,
        usage: usage?,
        held: held?,
    })
}

impl Looked {
    /// Whether the fence was where this host left it.
    pub(super) fn has_fence(&self) -> bool {
        self.advanced == 1
    }

    /// Tells the group what was found.
    pub(super) fn fill(&self, membership: Option<&Membership>, overlay: &mut Overlay) -> Result<(), Failure> {
        let unreadable = |error: Error| Failure::Broken(error.to_string());
        if let Some(membership) = membership {
            overlay.found_usage(&self.usage.iter().map(usage_of).collect::<Result<_, _>>().map_err(unreadable)?);
            overlay.held.found(membership.node(), &self.held).map_err(unreadable)?;
        }
        for row in &self.tasks {
            overlay.found_task(task_ref(row, 0).map_err(unreadable)?, task_head(row).map_err(unreadable)?);
        }
        for row in &self.aliases {
            let digest: &[u8] = row.try_get(3).map_err(Failure::from)?;
            let TaskRef { requestor, id } = task_ref(row, 0).map_err(unreadable)?;
            if let Ok(digest) = digest.try_into() {
                overlay.aliases.insert((requestor, digest), Some(id));
            }
        }
        for row in &self.journals {
            let value: &[u8] = row.try_get(3).map_err(Failure::from)?;
            overlay.found_journal(task_ref(row, 0).map_err(unreadable)?, value);
        }
        for row in &self.rows {
            let kind: i16 = row.try_get(0).map_err(Failure::from)?;
            let key: Vec<u8> = row.try_get(1).map_err(Failure::from)?;
            let value: Vec<u8> = row.try_get(2).map_err(Failure::from)?;
            let kind = RowKind::ALL.into_iter().find(|known| *known as i16 == kind);
            if let Some(cell) = kind.and_then(|kind| overlay.rows.get_mut(&(kind, key))) {
                cell.value = Some(value);
            }
        }
        Ok(())
    }
}

/// Whose it is and how much, in the columns of [`Sql::LoadUsage`].
fn usage_of(row: &tokio_postgres::Row) -> Result<(Requestor, Usage), Error> {
    let part = |index: usize| -> Result<[u8; 16], Error> {
        let bytes: &[u8] = row.try_get(index).map_err(|error| unreadable(&error))?;
        bytes.try_into().map_err(|_| Error::Corrupt("what is counted in the database is nobody's".to_owned()))
    };
    let number = |index: usize| -> Result<u64, Error> {
        let number: i64 = row.try_get(index).map_err(|error| unreadable(&error))?;
        Ok(u64::try_from(number).unwrap_or_default())
    };
    let requestor = Requestor { tenant: TenantId(part(0)?), id: RequestorId(part(1)?) };
    Ok((requestor, Usage { tasks: number(2)?, bytes: number(3)? }))
}

/// The head of a task in the columns of [`Sql::LoadTasks`].
pub(super) fn task_head(row: &tokio_postgres::Row) -> Result<TaskHead, Error> {
    let number = |index: usize| -> Result<u64, Error> {
        let number: i64 = row.try_get(index).map_err(|error| unreadable(&error))?;
        Ok(number.cast_unsigned())
    };
    let maybe = |index: usize| -> Result<Option<u64>, Error> {
        let number: Option<i64> = row.try_get(index).map_err(|error| unreadable(&error))?;
        Ok(number.map(i64::cast_unsigned))
    };
    let bytes = |index: usize| row.try_get::<_, Option<&[u8]>>(index).map_err(|error| unreadable(&error));
    let node = bytes(6)?.and_then(|node| node.try_into().ok()).map(NodeId);
    Ok(TaskHead {
        revision: number(3)?,
        ended: row.try_get(4).map_err(|error| unreadable(&error))?,
        attempt: u32::try_from(number(5)?).unwrap_or(u32::MAX),
        lease: node.zip(maybe(7)?).map(|(node, until)| Lease { node, until }),
        created_at: number(8)?,
        expires_at: maybe(9)?,
        alias: bytes(10)?.and_then(|alias| alias.try_into().ok()),
        reserved_bytes: number(11)?,
        record_bytes: number(12)?,
        arguments_bytes: number(13)?,
        output_bytes: maybe(14)?,
        version: None,
    })
}
