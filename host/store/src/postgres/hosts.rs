//! Several hosts on one schema: who they are, and whether each one lives.
//!
//! Owns the rows of hosts, the lease of this one, and the burial of others. Must not write data. Invariants: whether a
//! host lives is decided by the server's clock; and a host that was buried has no fence, so no group of it is done
//! after that.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::Error;
use super::connection::{Connection, Values};
use super::errors::{Failure, unavailable};
use super::membership::{Membership, draw_node};
use super::overlay::OF_TENANT;
use super::schema::lock_number;
use super::sql::Sql;
use super::state::{Shared, Trouble};
use super::usage::count;
use super::writes;
use bulkhead_domain::requestor::Requestor;

/// Beats within a lease.
const BEATS_IN_LEASE: u32 = 6;
/// Between two looks for names of hosts that nobody needs any more.
const FORGET_EVERY: Duration = Duration::from_secs(600);

/// What is left of a host that goes by itself.
const LEAVE: [&str; 3] = [
    "update host set is_dead = true where id = $1",
    "delete from host_fence where host = $1",
    "delete from held_tasks where host = $1",
];

/// Becomes one of the hosts of a schema, in place of what this process was before.
pub(super) async fn join(connection: &Connection, schema: &str, membership: &Membership) -> Result<(), Error> {
    let before = membership.node();
    let node = draw_node()?;
    let requested_at = Instant::now();
    let undone = |failure: Failure| failure.undone();
    connection.batch("begin; set local statement_timeout = 0").await.map_err(undone)?;
    let number = lock_number("hosts", schema);
    connection.query_text("select pg_advisory_xact_lock($1)", &[&number]).await.map_err(undone)?;
    let counted = connection.query_text("select is_counted from meta", &[]).await.map_err(undone)?;
    if !counted.first().is_some_and(|row| row.try_get(0).unwrap_or(false)) {
        begin_sharing(connection).await?;
    }
    for text in LEAVE {
        connection.query_text(text, &[&before.0.as_slice()]).await.map_err(undone)?;
    }
    let text = "insert into host (id, name, program, alive_until)
        values ($1, $2, $3, clock_timestamp() + $4::bigint * interval '1 millisecond')";
    let id = node.0.as_slice();
    let program = env!("CARGO_PKG_VERSION");
    let lease_ms = membership.lease_ms();
    let values: Values<'_> = &[&id, &membership.options.name, &program, &lease_ms];
    connection.query_text(text, values).await.map_err(undone)?;
    connection.query_text("insert into host_fence (host, number) values ($1, 1)", &[&id]).await.map_err(undone)?;
    let living = connection.query_text("select count(*) from host where not is_dead", &[]).await.map_err(undone)?;
    connection.batch("commit").await.map_err(undone)?;
    membership.lives_with(living.first().and_then(|row| row.try_get(0).ok()).unwrap_or(1));
    membership.become_node(node);
    membership.renewed(requested_at);
    Ok(())
}

/// Makes a schema that one host had for itself one of several hosts: what each process counted for itself is counted in
/// the tables.
async fn begin_sharing(connection: &Connection) -> Result<(), Error> {
    let undone = |failure: Failure| failure.undone();
    // The host before, if it lost its connection and has not noticed yet, writes nothing more. Whatever holds a task by
    // now is gone.
    let text =
        "delete from write_fence; delete from host; delete from host_fence; delete from letter; delete from message;
        delete from stored_usage; delete from held_tasks;
        insert into host (id, name, program, is_dead, alive_until)
            select distinct holder, '', '', true, clock_timestamp() from task where not ended and holder is not null;
        create index if not exists task_holder on task (holder) where not ended";
    connection.batch(text).await.map_err(undone)?;
    let ledger = count(connection).await?;
    let tenants = ledger.tenants().iter().map(|(tenant, usage)| (Requestor { tenant: *tenant, id: OF_TENANT }, *usage));
    let stored = ledger.holders().iter().map(|(requestor, usage)| (*requestor, *usage)).chain(tenants);
    let sums = stored.map(|(key, usage)| (key, [writes::signed(usage.tasks), writes::signed(usage.bytes)]));
    if let Some(added) = writes::add_usage(sums) {
        connection.execute(added.sql, &added.values()).await.map_err(undone)?;
    }
    connection.batch("update meta set is_counted = true").await.map_err(undone)
}

/// Makes a schema that hosts shared one of a single host, which has its lock.
///
/// # Errors
///
/// [`Error::Locked`] when one of the others lives.
pub(super) async fn end_sharing(connection: &Connection, schema: &str) -> Result<(), Error> {
    let text = "select count(*) from host where not is_dead and alive_until > clock_timestamp()";
    let living = connection.query_text(text, &[]).await.map_err(|failure| failure.undone())?;
    if living.first().is_none_or(|row| !matches!(row.try_get::<_, i64>(0), Ok(0))) {
        return Err(Error::Locked(format!(
            "hosts that have [cluster] in their configuration share the schema {schema} of the database: end them, or give this one the section \
             as well"
        )));
    }
    let text = "update meta set is_counted = false where is_counted; update host set is_dead = true where not is_dead;
        delete from host_fence; delete from held_tasks";
    connection.batch(text).await.map_err(|failure| failure.undone())
}

/// Leaves what this host holds to the others at once.
pub(super) async fn leave(connection: &Connection, membership: &Membership) -> Result<(), Failure> {
    let node = membership.node();
    for text in LEAVE {
        connection.query_text(text, &[&node.0.as_slice()]).await?;
    }
    Ok(())
}

/// Renews the lease and buries others, until it is dropped. On a session of its own: nothing else may keep it waiting.
pub(super) async fn keep_alive(shared: Arc<Shared>) {
    let Some(membership) = &shared.membership else { return };
    let beat_every = membership.options.lease / BEATS_IN_LEASE;
    let mut connection = None;
    let mut connected_since = Instant::now();
    let mut forgot_at = Instant::now();
    loop {
        tokio::time::sleep(beat_every).await;
        if shared.trouble() == Some(Trouble::Lost) {
            // It is another host once it has joined again.
            connected_since = Instant::now();
            continue;
        }
        // Before anything is sent: a process that stood still must not take its old lease for a live one.
        if membership.is_late() {
            tracing::error!("the lease of this host could not be renewed in time: what it held is left to the others");
            shared.set_trouble(Some(Trouble::Lost));
            continue;
        }
        // Others are buried by a host that has itself been connected for a lease: while the server is away, nobody
        // dies.
        let buries = connected_since.elapsed() >= membership.options.lease;
        match tokio::time::timeout(beat_every * 2, beat(&shared, membership, &mut connection, buries)).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => {
                tracing::error!("this host was declared dead by another one: what it held is left to the others");
                shared.set_trouble(Some(Trouble::Lost));
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "the lease was not renewed");
                connection = None;
                connected_since = Instant::now();
            }
            Err(_) => {
                tracing::debug!("the lease was not renewed: the server does not answer");
                connection = None;
                connected_since = Instant::now();
            }
        }
        if forgot_at.elapsed() >= FORGET_EVERY
            && let Some(connection) = &connection
        {
            forgot_at = Instant::now();
            // It is tried again.
            let _ = connection.execute(Sql::ForgetDead, &[]).await;
        }
    }
}

/// Whether this host still is one of those that share the schema.
async fn beat(
    shared: &Shared,
    membership: &Membership,
    connection: &mut Option<Connection>,
    buries: bool,
) -> Result<bool, Error> {
    let session = match connection.take().filter(|connection| !connection.is_closed()) {
        Some(session) => session,
        None => shared.connect().await?,
    };
    let requested_at = Instant::now();
    let node = membership.node();
    let id = node.0.as_slice();
    let undone = |failure: Failure| failure.undone();
    let renewed = session.execute(Sql::Beat, &[&id, &membership.lease_ms()]).await.map_err(undone)?;
    if renewed == 0 {
        // It may have joined under another name meanwhile.
        return Ok(membership.node() != node);
    }
    membership.renewed(requested_at);
    if buries {
        // Where a group of a host that stands still keeps it waiting, it is done at the next beat.
        let buried = session.query(Sql::Bury, &[&id]).await.map_err(undone)?;
        for row in &buried {
            let name: &str = row.try_get(0).unwrap_or_default();
            tracing::warn!(host.name = name, "a host did not renew its lease: what it held goes on elsewhere");
        }
        if !buried.is_empty() {
            membership.others_changed.notify_one();
        }
    }
    let living = session.query(Sql::Living, &[]).await.map_err(undone)?;
    membership.lives_with(living.first().ok_or_else(unavailable)?.try_get(0).unwrap_or(1));
    *connection = Some(session);
    Ok(true)
}
