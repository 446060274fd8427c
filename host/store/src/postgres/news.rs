//! What hosts tell one another at once: that something has changed.
//!
//! Owns the session that listens. Must not say what has changed: who hears of it reads. Invariant: nothing depends on it, since whatever is
//! told here is found by looking, too, a little later.

use std::sync::Arc;
use std::time::Duration;

use super::connection::Connection;
use super::schema::lock_number;
use super::state::Shared;

/// What is told within this time is told once.
const GATHERED_FOR: Duration = Duration::from_millis(10);
const RECONNECT_EVERY: Duration = Duration::from_secs(1);

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
