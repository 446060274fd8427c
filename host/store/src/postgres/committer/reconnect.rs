//! A new session where the present one broke, and what became of the group that was on its way.
//!
//! Owns the fence's way on: it is moved, never read, so that what the server still has unread cannot be done later.
//! Must not write anything else. Invariant: after a new session, of each group it is known whether it was done, and no
//! other host has the schema.

use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::super::connection::Connection;
use super::super::errors::Failure;
use super::super::hosts;
use super::super::overlay::Overlay;
use super::super::schema::lock_number;
use super::super::server;
use super::super::sql::Sql;
use super::super::state::Trouble;
use super::{Committer, FIRST_NUMBER, TAKE_OVER_LOOK, TAKE_OVER_MAX, Written};
use crate::Error;

impl Committer {
    /// Looks after the connection, also where nothing is written.
    pub(super) async fn look(&mut self) {
        match self.shared.trouble() {
            Some(Trouble::Lost) => {}
            Some(Trouble::Refused(_)) => self.try_empty_group().await,
            Some(Trouble::Unreachable) => _ = self.reconnect().await,
            None if self.connection.as_ref().is_none_or(Connection::is_closed) => _ = self.reconnect().await,
            None if !self.has_lock => self.lock_again().await,
            None => {}
        }
    }

    /// Looks whether the server answers, on the connection that is there: a reader doubts it.
    pub(super) async fn probe(&mut self) {
        if self.shared.trouble().is_none()
            && let Some(connection) = &self.connection
            && !connection.is_closed()
            && !connection.answers().await
        {
            self.shared.set_trouble(Some(Trouble::Unreachable));
        }
        self.look().await;
    }

    /// The server may notice the end of the connection before later than the host does.
    async fn lock_again(&mut self) {
        if let Some(connection) = &self.connection {
            self.has_lock = take_lock(connection, &self.shared.schema, self.is_shared()).await.unwrap_or(false);
        }
    }

    /// Whether the server takes writes again.
    async fn try_empty_group(&mut self) {
        if !self.reconnect_if_closed().await {
            return;
        }
        if let Ok(overlay) = self.begin(Overlay::default()).await
            && let Written::Durable = self.write(Vec::new()).await
        {
            drop(overlay);
            self.shared.set_trouble(None);
        }
    }

    pub(super) async fn reconnect_if_closed(&mut self) -> bool {
        match &self.connection {
            Some(connection) if !connection.is_closed() => true,
            _ => self.reconnect().await,
        }
    }

    /// Makes a new session and finds out where the fence is. Whether that succeeded; what is wrong is noted.
    pub(super) async fn reconnect(&mut self) -> bool {
        self.connection = None;
        match self.resume().await {
            Ok(connection) => {
                self.connection = Some(connection);
                self.shared.counts.reconnects.fetch_add(1, Ordering::Relaxed);
                self.shared.set_trouble(None);
                true
            }
            Err(trouble) => {
                self.shared.set_trouble(Some(trouble));
                false
            }
        }
    }

    async fn resume(&mut self) -> Result<Connection, Trouble> {
        let connection = self.shared.connect().await.map_err(|error| match error {
            Error::Unavailable { .. } => Trouble::Unreachable,
            error => Trouble::Refused(error.to_string()),
        })?;
        let facts = server::facts(&connection).await.map_err(|_| Trouble::Unreachable)?;
        facts.check().map_err(|error| Trouble::Refused(error.to_string()))?;
        let membership = self.shared.membership.as_ref();
        let holder = membership.map_or(self.shared.holder, |membership| membership.node().0);
        let resolve = membership.map_or(Sql::FenceResolve, |_| Sql::HostFenceResolve);
        let moved = connection.query(resolve, &[&holder.as_slice()]).await;
        let moved = moved.map_err(|_| Trouble::Unreachable)?;
        let before: i64 = match moved.first().map(|row| row.try_get(0)) {
            Some(Ok(before)) => before,
            Some(Err(_)) => return Err(Trouble::Unreachable),
            None => return Err(Trouble::Lost),
        };
        self.resolve(before);
        self.number = before + 2;
        // Without it another host could take over while this one lives; the fence would tell.
        self.has_lock = take_lock(&connection, &self.shared.schema, self.is_shared()).await.unwrap_or(false);
        Ok(connection)
    }

    fn is_shared(&self) -> bool {
        self.shared.membership.is_some()
    }

    /// Becomes one of the hosts of the schema again, under another name and with a fence of its own.
    pub(super) async fn rejoin(&mut self) -> Result<(), Error> {
        let Some(membership) = &self.shared.membership else { return Ok(()) };
        if self.shared.trouble() != Some(Trouble::Lost) {
            return Ok(());
        }
        self.connection = None;
        let connection = self.shared.connect().await?;
        server::facts(&connection).await.map_err(|failure| failure.undone())?.check()?;
        wait_for_lock(&connection, &self.shared.schema, true).await?;
        hosts::join(&connection, &self.shared.schema, membership).await?;
        self.connection = Some(connection);
        self.number = FIRST_NUMBER;
        self.doubtful = None;
        self.has_lock = true;
        self.shared.counts.reconnects.fetch_add(1, Ordering::Relaxed);
        self.shared.rejoined();
        Ok(())
    }

    /// Learns what became of the group before.
    fn resolve(&mut self, before: i64) {
        let distance = before - self.number;
        if distance < 0 {
            self.shared.counts.lost_groups.fetch_add(distance.unsigned_abs(), Ordering::Relaxed);
            tracing::error!(
                groups = -distance,
                "the database has lost writes that it had acknowledged: a standby took over that did not have them"
            );
        }
        if let Some(counted) = self.doubtful.take()
            && !was_done(distance)
        {
            self.uncount(counted);
        }
    }
}

/// Whether a group was done, by how far the fence has moved since.
pub(super) fn was_done(distance: i64) -> bool {
    distance > 0 && distance % 2 == 1
}

/// Takes the lock of a schema, once no other host works with it, or none that does not share it.
pub(in super::super) async fn wait_for_lock(
    connection: &Connection,
    schema: &str,
    is_shared: bool,
) -> Result<(), Error> {
    let began = Instant::now();
    while !take_lock(connection, schema, is_shared).await.map_err(|failure| failure.undone())? {
        if began.elapsed() >= TAKE_OVER_MAX {
            return Err(Error::Locked(format!(
                "another host works with the schema {schema} of the database: end it, or name another schema in [store]"
            )));
        }
        tokio::time::sleep(TAKE_OVER_LOOK).await;
    }
    Ok(())
}

/// The lock of the only host that works with a schema, or of each of several. It goes with the connection; what it
/// protects is the fence.
async fn take_lock(connection: &Connection, schema: &str, is_shared: bool) -> Result<bool, Failure> {
    let number = lock_number("host", schema);
    let text = match is_shared {
        true => "select pg_try_advisory_lock_shared($1)",
        false => "select pg_try_advisory_lock($1)",
    };
    let rows = connection.query_text(text, &[&number]).await?;
    Ok(rows.first().is_some_and(|row| row.try_get(0).unwrap_or(false)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubtful_group_was_done_where_the_fence_moved_by_an_odd_number() {
        // Done, then looked at once, twice, and never successfully.
        assert!([1, 3, 5].into_iter().all(was_done));
        // Not done; and a fence that went back lost it.
        assert!(![0, 2, 4, -1, -2].into_iter().any(was_done));
    }
}
