//! Whether what somebody was let in with is still good, while a stream goes on.
//!
//! Owns when to look again. Must not keep a token longer than the request that brought it. Invariant: a credential that can be looked at
//! no more counts as ended; one that gives another requestor or other rights than before has ended, too: whoever has it asks again.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use tokio::sync::watch;
use tokio::time::sleep;

use super::{Authenticator, Caller};
use crate::domain::UnixMs;
use crate::domain::requestor::Requestor;
use crate::domain::rights::Rights;
use crate::transport::Now;

/// How long nobody notices that a token was revoked, or that requests need one by now.
pub(in crate::transport) const NOTICED_MS_MAX: u64 = 2_000;
/// How long nobody notices that an issuer took back the key of a signed token.
pub(super) const SIGNED_MS_MAX: u64 = 60_000;

/// The credential of an open request.
pub(in crate::transport) struct Lasting {
    authenticator: Arc<Authenticator>,
    changed: watch::Receiver<()>,
    now: Now,
    header: Option<HeaderValue>,
    requestor: Requestor,
    rights: Rights,
    look_at: UnixMs,
}

impl Lasting {
    pub(in crate::transport) fn new(authenticator: &Arc<Authenticator>, caller: &Caller, now: &Now) -> Self {
        Self {
            authenticator: Arc::clone(authenticator),
            changed: authenticator.changed.subscribe(),
            now: Arc::clone(now),
            header: caller.header.clone(),
            requestor: caller.requestor,
            rights: caller.rights.clone(),
            look_at: look_at(caller, now),
        }
    }

    /// Done when the credential has ended. May be dropped and called again.
    pub(in crate::transport) async fn ended(&mut self) {
        loop {
            let left = Duration::from_millis(self.look_at.saturating_sub((self.now)()));
            tokio::select! {
                () = sleep(left) => {}
                // The authenticator lives as long as this does.
                _ = self.changed.changed() => self.look_at = 0,
            }
            if !self.is_good().await {
                return;
            }
        }
    }

    /// Whether it is good at this moment; costs nothing until it is time to look again.
    pub(in crate::transport) async fn is_good(&mut self) -> bool {
        if self.changed.has_changed().unwrap_or(true) {
            self.changed.mark_unchanged();
            self.look_at = 0;
        }
        if (self.now)() < self.look_at {
            return true;
        }
        match self.authenticator.caller_again(self.header.as_ref()).await {
            Ok(caller) if caller.requestor == self.requestor && caller.rights == self.rights => {
                self.look_at = look_at(&caller, &self.now);
                true
            }
            _ => {
                tracing::debug!("a credential has ended while a stream was open");
                false
            }
        }
    }
}

fn look_at(caller: &Caller, now: &Now) -> UnixMs {
    caller.look_at.unwrap_or_else(|| now().saturating_add(NOTICED_MS_MAX))
}
