//! What hosts tell one another at once: that something has changed.
//!
//! Owns the session that listens. Must not say what has changed: who hears of it reads. Invariant: nothing depends on
//! it, since whatever is told here is found by looking, too, a little later.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::connection::Connection;
use super::errors::unavailable;
use super::membership::{FOLLOWED, RowsSeen};
use super::schema::lock_number;
use super::sql::Sql;
use super::state::Shared;
use super::writes::unreadable;
use crate::Error;

/// What is told within this time is told once.
const GATHERED_FOR: Duration = Duration::from_millis(10);
const RECONNECT_EVERY: Duration = Duration::from_secs(1);
/// How often the server is asked what others wrote, where they do not tell.
const LOOK_EVERY: Duration = Duration::from_millis(750);
/// Between two looks, however much they tell.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// Tells the others and listens to them, until it is dropped.
pub(super) async fn exchange(shared: Arc<Shared>) {
    let Some(membership) = &shared.membership else { return };
    let channel = format!("bulkhead_{:016x}", lock_number("news", &shared.schema).cast_unsigned());
    loop {
        let listening = Arc::clone(&shared);
        let hear = move |payload: &str| {
            if let Some(membership) = &listening.membership
                && payload != membership.node().to_string()
            {
                membership.others_changed.notify_one();
                membership.others_wrote.notify_one();
            }
        };
        let connection = Connection::listening(&shared.address, shared.dialer.as_ref(), Box::new(hear)).await;
        if let Ok(connection) = connection
            && connection.batch(&format!("listen {channel}")).await.is_ok()
        {
            let connection = shared.counted(connection);
            // What was told before it listened.
            membership.others_changed.notify_one();
            while !connection.is_closed() {
                let changed = tokio::time::timeout(RECONNECT_EVERY, membership.has_changed.notified()).await;
                if changed.is_err() || !membership.has_others() {
                    continue;
                }
                let notified = connection.batch(&format!("notify {channel}, '{}'", membership.node())).await;
                if notified.is_err() {
                    break;
                }
                tokio::time::sleep(GATHERED_FOR).await;
            }
        }
        tokio::time::sleep(RECONNECT_EVERY).await;
    }
}

/// Finds out which rows were changed that this host keeps in memory, until it is dropped. Where the server does not
/// answer, what is kept is soon too old.
pub(super) async fn follow_rows(shared: Arc<Shared>) {
    let Some(membership) = &shared.membership else { return };
    let mut connection = None;
    loop {
        let at = Instant::now();
        match look(&shared, &mut connection).await {
            Ok(numbers) => _ = membership.rows_seen.send_replace(RowsSeen { at: Some(at), numbers }),
            Err(error) => {
                connection = None;
                tracing::debug!(%error, "what other hosts wrote is looked at later");
            }
        }
        tokio::time::sleep(LOOK_PAUSE).await;
        let _ = tokio::time::timeout(LOOK_EVERY, membership.others_wrote.notified()).await;
    }
}

async fn look(shared: &Shared, connection: &mut Option<Connection>) -> Result<[u64; FOLLOWED.len()], Error> {
    let session = match connection.take().filter(|connection| !connection.is_closed()) {
        Some(session) => session,
        None => shared.connect().await?,
    };
    let looked = tokio::time::timeout(RECONNECT_EVERY, session.query(Sql::RowChanges, &[])).await;
    let rows = looked.map_err(|_| unavailable())?.map_err(|failure| failure.undone())?;
    let mut numbers = [0; FOLLOWED.len()];
    for row in &rows {
        let kind: i16 = row.try_get(0).map_err(|error| unreadable(&error))?;
        let number: i64 = row.try_get(1).map_err(|error| unreadable(&error))?;
        let followed = FOLLOWED.iter().zip(&mut numbers).find(|(followed, _)| **followed as i16 == kind);
        if let Some((_, found)) = followed {
            *found = number.cast_unsigned();
        }
    }
    *connection = Some(session);
    Ok(numbers)
}
