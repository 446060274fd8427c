//! Tasks that hosts count in states which are limited over all of them: what a group has looked at, and what it makes
//! of it.
//!
//! Owns the rule that says when one more is granted. Must not talk to the server but to look. Invariant: what is
//! granted is within the limits over all hosts, since a group that changes counts of a tenant has that tenant's lock;
//! and each host writes its own counts only.

use std::collections::HashMap;

use tokio_postgres::Row;

use super::super::Error;
use super::super::hosts::{HeldChange, HeldOutcome, HeldRequest, HeldState, HeldTasks};
use super::connection::Connection;
use super::errors::Failure;
use super::sql::Sql;
use super::writes::{Value, Write, unreadable};
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_domain::task::NodeId;

/// What is counted of one requestor.
#[derive(Default)]
struct OfRequestor {
    own: HeldTasks,
    others: HeldTasks,
    is_awaited_elsewhere: bool,
    is_awaited_here: bool,
    makes_room: bool,
    is_changed: bool,
}

/// See the module.
#[derive(Default)]
pub(super) struct HeldCounts {
    host: Option<NodeId>,
    requestors: HashMap<Requestor, OfRequestor>,
    /// Of all hosts together.
    tenants: HashMap<TenantId, HeldTasks>,
}

impl HeldCounts {
    pub(super) fn name(&mut self, requestor: Requestor) {
        self.requestors.entry(requestor).or_default();
    }

    pub(super) fn named(&self) -> impl Iterator<Item = Requestor> {
        self.requestors.keys().copied()
    }

    fn keys<'a>(requestors: impl Iterator<Item = &'a Requestor>) -> (Vec<&'a [u8]>, Vec<&'a [u8]>) {
        requestors.map(|requestor| (requestor.tenant.0.as_slice(), requestor.id.0.as_slice())).unzip()
    }

    pub(super) async fn load(&self, connection: &Connection, host: [u8; 16]) -> Result<Vec<Row>, Failure> {
        if self.requestors.is_empty() {
            return Ok(Vec::new());
        }
        let (tenants, requestors) = Self::keys(self.requestors.keys());
        connection.query(Sql::LoadHeld, &[&host.as_slice(), &tenants, &requestors]).await
    }

    /// What the database counts, in the columns of [`Sql::LoadHeld`].
    pub(super) fn found(&mut self, host: NodeId, rows: &[Row]) -> Result<(), Error> {
        self.host = Some(host);
        for row in rows {
            let part = |bytes: &[u8]| -> Result<[u8; 16], Error> {
                let unreadable = |_| Error::Corrupt("what is counted in the database is nobody's".to_owned());
                bytes.try_into().map_err(unreadable)
            };
            let number = |index: usize| -> Result<u32, Error> {
                let number: i64 = row.try_get(index).map_err(|error| unreadable(&error))?;
                Ok(u32::try_from(number).unwrap_or(u32::MAX))
            };
            let is = |index: usize| row.try_get::<_, bool>(index).map_err(|error| unreadable(&error));
            let held = HeldTasks { queued: number(3)?, running: number(4)?, paused: number(5)? };
            let tenant = TenantId(part(row.try_get(0).map_err(|error| unreadable(&error))?)?);
            let requestor: Option<&[u8]> = row.try_get(1).map_err(|error| unreadable(&error))?;
            let Some(requestor) = requestor else {
                let sum = self.tenants.entry(tenant).or_default();
                *sum = sum.zip(held, u32::saturating_add);
                continue;
            };
            let id = RequestorId(part(requestor)?);
            let Some(found) = self.requestors.get_mut(&Requestor { tenant, id }) else { continue };
            match is(2)? {
                true => (found.own, found.is_awaited_here) = (held, is(6)?),
                false => (found.others, found.is_awaited_elsewhere) = (held, is(6)?),
            }
        }
        Ok(())
    }

    /// Counts what is held in any case, and one more after the other where there is room.
    pub(super) fn change(&mut self, changes: &[HeldChange]) -> Vec<HeldOutcome> {
        changes.iter().map(|change| self.change_one(change)).collect()
    }

    fn change_one(&mut self, change: &HeldChange) -> HeldOutcome {
        let of_tenant = self.tenants.entry(change.requestor.tenant).or_default();
        let found = self.requestors.entry(change.requestor).or_default();
        let before = found.own;
        *of_tenant = of_tenant.zip(before, u32::saturating_sub).zip(change.held, u32::saturating_add);
        found.own = change.held;
        let mut is_awaited_here = false;
        let mut more = Vec::with_capacity(change.more.len());
        for request in &change.more {
            let granted = found.admit(of_tenant, request);
            is_awaited_here |= granted.is_err() && request.state == HeldState::Running;
            more.push(granted);
        }
        found.makes_room |= found.is_awaited_elsewhere && found.own.running < before.running;
        found.is_changed |= found.own != before || found.is_awaited_here != is_awaited_here;
        found.is_awaited_here = is_awaited_here;
        HeldOutcome { more, is_awaited_elsewhere: found.is_awaited_elsewhere }
    }

    /// Whether a host that waits is to look at once.
    pub(super) fn makes_room(&self) -> bool {
        self.requestors.values().any(|found| found.makes_room)
    }

    pub(super) fn writes(&self) -> Vec<Write> {
        let Some(host) = self.host else { return Vec::new() };
        let changed = || self.requestors.iter().filter(|(_, found)| found.is_changed);
        let is_none = |found: &OfRequestor| found.own == HeldTasks::default() && !found.is_awaited_here;
        let mut writes = Vec::new();
        for (sql, is_gone) in [(Sql::DeleteHeld, true), (Sql::PutHeld, false)] {
            let entries: Vec<_> = changed().filter(|(_, found)| is_none(found) == is_gone).collect();
            if entries.is_empty() {
                continue;
            }
            let tenants: Vec<Vec<u8>> = entries.iter().map(|(key, _)| key.tenant.0.to_vec()).collect();
            let requestors: Vec<Vec<u8>> = entries.iter().map(|(key, _)| key.id.0.to_vec()).collect();
            let mut values: Vec<Value> = vec![Box::new(host.0.to_vec()), Box::new(tenants), Box::new(requestors)];
            if !is_gone {
                for state in [HeldState::Queued, HeldState::Running, HeldState::Paused] {
                    let number = |found: &OfRequestor| i32::try_from(found.own.of(state)).unwrap_or(i32::MAX);
                    values.push(Box::new(entries.iter().map(|(_, found)| number(found)).collect::<Vec<i32>>()));
                }
                let awaited = entries.iter().map(|(_, found)| found.is_awaited_here);
                values.push(Box::new(awaited.collect::<Vec<bool>>()));
            }
            writes.push(Write { sql, values });
        }
        writes
    }
}

impl OfRequestor {
    /// One more, if both limits have room.
    fn admit(&mut self, of_tenant: &mut HeldTasks, request: &HeldRequest) -> Result<(), Error> {
        let HeldRequest { state, of_tenant: tenant_bound, of_requestor: bound } = *request;
        let full = |limit: &'static str, max: u32| Error::Quota { limit, value: u64::from(max) };
        if of_tenant.of(state) >= tenant_bound.max {
            return Err(full(tenant_bound.limit, tenant_bound.max));
        }
        if self.own.of(state).saturating_add(self.others.of(state)) >= bound.max {
            return Err(full(bound.limit, bound.max));
        }
        *self.own.of_mut(state) += 1;
        *of_tenant.of_mut(state) += 1;
        Ok(())
    }
}
