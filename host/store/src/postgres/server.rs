//! What a server has to be like, so that what it acknowledges is kept.
//!
//! Owns the questions and the refusals. Must not change a setting of the server. Invariant: a server that would lose an
//! acknowledged write by a crash is never written to.

use super::super::Error;
use super::connection::Connection;
use super::errors::{Failure, refuse};

/// The oldest version that the statements were run on.
const VERSION_MIN: i32 = 150_000;

/// What was found out about a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFacts {
    /// As PostgreSQL writes it: `15.18`.
    pub version: String,
    pub version_number: i32,
    pub fsync: String,
    pub full_page_writes: String,
    pub synchronous_commit: String,
    /// Whether it is a standby.
    pub in_recovery: bool,
    /// Standbys that are attached, and take part in no commit.
    pub asynchronous_standbys: i64,
    /// Milliseconds since 1970 by its clock.
    pub clock_ms: i64,
}

const QUESTION: &str = "select current_setting('server_version'), current_setting('server_version_num')::integer, \
    current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'), pg_is_in_recovery(), \
    (select count(*) from pg_stat_replication where sync_state = 'async'), \
    (extract(epoch from clock_timestamp()) * 1000)::bigint";

/// Asks a server.
pub(super) async fn facts(connection: &Connection) -> Result<ServerFacts, Failure> {
    let rows = connection.query_text(QUESTION, &[]).await?;
    let row = rows.first().ok_or_else(|| Failure::Broken("the server says nothing about itself".to_owned()))?;
    let version: String = row.try_get(0)?;
    Ok(ServerFacts {
        version: version.split(' ').next().unwrap_or_default().to_owned(),
        version_number: row.try_get(1)?,
        fsync: row.try_get(2)?,
        full_page_writes: row.try_get(3)?,
        synchronous_commit: row.try_get(4)?,
        in_recovery: row.try_get(5)?,
        asynchronous_standbys: row.try_get(6)?,
        clock_ms: row.try_get(7)?,
    })
}

impl ServerFacts {
    /// Refuses a server that would lose what it acknowledged.
    ///
    /// # Errors
    ///
    /// [`Error::Engine`], in one sentence that says what to do.
    pub fn check(&self) -> Result<(), Error> {
        let version = &self.version;
        if self.version_number < VERSION_MIN {
            return Err(refuse(&format!("the database's server is PostgreSQL {version}: use 15 or newer")));
        }
        if self.in_recovery {
            return Err(refuse(
                "the database's server is a standby or still recovering: name the server that takes writes in the address",
            ));
        }
        for (setting, value) in [("fsync", &self.fsync), ("full_page_writes", &self.full_page_writes)] {
            if value != "on" {
                return Err(refuse(&format!(
                    "the database's server would lose acknowledged writes in a crash: set {setting} = on in postgresql.conf (it is {value})"
                )));
            }
        }
        if self.synchronous_commit == "off" {
            return Err(refuse(
                "the database's server would lose acknowledged writes in a crash: set synchronous_commit = on for the server, the \
                 database and the role (it is off)",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> ServerFacts {
        let on = || "on".to_owned();
        ServerFacts {
            version: "15.18".to_owned(),
            version_number: 150_018,
            fsync: on(),
            full_page_writes: on(),
            synchronous_commit: on(),
            in_recovery: false,
            asynchronous_standbys: 0,
            clock_ms: 0,
        }
    }

    #[test]
    fn server_that_would_lose_writes_is_refused_by_the_setting() {
        sound().check().unwrap();
        let off = || "off".to_owned();
        for (facts, word) in [
            (ServerFacts { version_number: 140_011, version: "14.11".to_owned(), ..sound() }, "use 15 or newer"),
            (ServerFacts { in_recovery: true, ..sound() }, "standby"),
            (ServerFacts { fsync: off(), ..sound() }, "set fsync = on"),
            (ServerFacts { full_page_writes: off(), ..sound() }, "set full_page_writes = on"),
            (ServerFacts { synchronous_commit: off(), ..sound() }, "set synchronous_commit = on"),
        ] {
            let error = facts.check().unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        ServerFacts { synchronous_commit: "remote_apply".to_owned(), ..sound() }.check().unwrap();
    }
}
