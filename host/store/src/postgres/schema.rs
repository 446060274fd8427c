//! The tables, and how they come to be as this program needs them.
//!
//! Owns the numbered steps and who takes them: one host at a time. Must not read or write data. Invariant: a schema of
//! a newer program and tables of something else are refused before anything is changed.

use super::super::Error;
use super::connection::Connection;
use super::errors::{Failure, refuse};

/// Each step with the version that it leads to.
const STEPS: [(i32, &str); 4] = [
    (1, include_str!("schema/1.sql")),
    (2, include_str!("schema/2.sql")),
    (3, include_str!("schema/3.sql")),
    (4, include_str!("schema/4.sql")),
];
/// What this program works with.
const VERSION: i32 = 4;

/// Makes the tables, or brings them up to date. Several hosts may try at the same time.
///
/// # Errors
///
/// [`Error::Engine`], in a sentence: a newer program made them, or the schema belongs to something else.
pub(super) async fn migrate(connection: &Connection, schema: &str) -> Result<(), Error> {
    let undone = |failure: Failure| failure.undone();
    connection.batch("begin").await.map_err(undone)?;
    let lock = format!("select pg_advisory_xact_lock({})", lock_number("migration", schema));
    connection.batch(&lock).await.map_err(undone)?;
    migrate_alone(connection, schema).await?;
    connection.batch("commit").await.map_err(undone)
}

async fn migrate_alone(connection: &Connection, schema: &str) -> Result<(), Error> {
    let present = version(connection, schema).await?;
    if present == Some(VERSION) {
        return Ok(());
    }
    if let Some(newer) = present.filter(|present| *present > VERSION) {
        return Err(refuse(&format!(
            "the schema {schema} of the database has version {newer}, and this program knows up to {VERSION}: use the newer program"
        )));
    }
    if present.is_none() {
        make_schema(connection, schema).await?;
    }
    connection.batch(&format!("set local search_path = {schema}")).await.map_err(|failure| failure.undone())?;
    for (_, step) in STEPS.iter().filter(|(version, _)| present.is_none_or(|present| *version > present)) {
        connection.batch(step).await.map_err(|failure| failure.undone())?;
    }
    let program = env!("CARGO_PKG_VERSION");
    let note = format!(
        "insert into meta (version, program) values ({VERSION}, '{program}')
         on conflict (one) do update set version = excluded.version, program = excluded.program"
    );
    connection.batch(&note).await.map_err(|failure| failure.undone())
}

/// The version of the tables that are there; `None`: there are none.
async fn version(connection: &Connection, schema: &str) -> Result<Option<i32>, Error> {
    let undone = |failure: Failure| failure.undone();
    let tables = "select count(*), count(*) filter (where c.relname = 'meta')
        from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relkind in ('r', 'p', 'v', 'm')";
    let found = connection.query_text(tables, &[&schema]).await.map_err(undone)?;
    let counts = found.first().map(|row| (row.try_get::<_, i64>(0), row.try_get::<_, i64>(1)));
    let foreign = || {
        refuse(&format!(
            "the schema {schema} of the database holds tables of something else: name another one in [store] schema"
        ))
    };
    match counts {
        Some((Ok(0), _)) => return Ok(None),
        Some((Ok(_), Ok(1))) => {}
        _ => return Err(foreign()),
    }
    let columns = "select count(*) from information_schema.columns
        where table_schema = $1 and table_name = 'meta' and column_name in ('one', 'version', 'program')";
    let found = connection.query_text(columns, &[&schema]).await.map_err(undone)?;
    if found.first().is_none_or(|row| !matches!(row.try_get::<_, i64>(0), Ok(3))) {
        return Err(foreign());
    }
    let rows = connection.query_text(&format!("select version from {schema}.meta"), &[]).await.map_err(undone)?;
    match rows.first().map(|row| row.try_get::<_, i32>(0)) {
        Some(Ok(version)) => Ok(Some(version)),
        _ => Err(foreign()),
    }
}

async fn make_schema(connection: &Connection, schema: &str) -> Result<(), Error> {
    let there = connection.query_text("select 1 from pg_namespace where nspname = $1", &[&schema]).await;
    if !there.map_err(|failure| failure.undone())?.is_empty() {
        return Ok(());
    }
    connection.batch(&format!("create schema {schema}")).await.map_err(|failure| match failure {
        Failure::Refused { message, .. } => refuse(&format!(
            "the schema {schema} cannot be made ({message}): as the owner of the database, `create schema {schema} authorization ROLE`"
        )),
        failure @ Failure::Broken(_) => failure.undone(),
    })
}

/// The number of an advisory lock of one schema.
pub(super) fn lock_number(what: &str, schema: &str) -> i64 {
    use sha2::{Digest as _, Sha256};
    let digest = Sha256::new().chain_update(b"bulkhead ").chain_update(what).chain_update(b" ").chain_update(schema);
    digest.finalize().first_chunk().copied().map(i64::from_be_bytes).unwrap_or_default()
}
