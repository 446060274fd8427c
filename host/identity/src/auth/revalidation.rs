//! Whether the credential of a stream is still valid while the stream goes on.
//!
//! Owns when to look again. Must not keep a token longer than the request, or the session of the dashboard, that
//! brought it. Invariant: a credential that has ended ends what it let in, and so does one that gives another requestor
//! than before; while it cannot be verified, the stream goes on for [`UNJUDGED_MS_MAX`], and never beyond the
//! credential's own end. A stream that carries notifications also ends when the rights change: its client opens it
//! again. A call that was let in goes on with the rights that it began with. When to look goes by the steady clock: a
//! wall clock that is set back keeps no revoked credential's stream open.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::unauthorized::Unauthorized;
use super::verifier::NOTICED_MS_MAX;
use super::{Authenticator, Caller, Presented};
use bulkhead_domain::UnixMs;
use bulkhead_domain::clock::SharedClock;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::rights::Rights;

/// How long, in milliseconds, calls and streams go on while nobody can say whether their credential is still good.
const UNJUDGED_MS_MAX: u64 = 30_000;
/// How soon it is tried again to find out.
const ASK_AGAIN_MS: u64 = 1_000;

/// The credential of an open request.
pub struct Revalidation {
    authenticator: Arc<Authenticator>,
    changed: watch::Receiver<()>,
    now: SharedClock,
    presented: Presented,
    requestor: Requestor,
    /// Set where other rights than these end it.
    rights: Option<Rights>,
    /// By the steady clock.
    look_at: UnixMs,
    /// By the system's clock.
    ends_at: UnixMs,
    /// Since when, by the steady clock, nobody can say whether it is good.
    unjudged_since: Option<UnixMs>,
}

impl Revalidation {
    /// `tells`: whether it is about a stream that goes on telling things, instead of the answer to a call.
    pub fn new(authenticator: &Arc<Authenticator>, caller: &Caller, tells: bool, now: &SharedClock) -> Self {
        Self {
            authenticator: Arc::clone(authenticator),
            changed: authenticator.changed.subscribe(),
            now: Arc::clone(now),
            presented: caller.presented.clone(),
            requestor: caller.requestor,
            rights: tells.then(|| caller.rights.clone()),
            look_at: next_look(caller, now),
            ends_at: caller.ends_at,
            unjudged_since: None,
        }
    }

    /// Done when the credential has ended; says why. May be dropped and called again.
    pub async fn ended(&mut self) -> Unauthorized {
        loop {
            let left = Duration::from_millis(self.look_at.saturating_sub(self.now.steady()));
            tokio::select! {
                () = sleep(left) => {}
                // The authenticator lives as long as this does.
                _ = self.changed.changed() => self.look_at = 0,
            }
            if let Err(unauthorized) = self.check().await {
                return unauthorized;
            }
        }
    }

    /// Whether it is good at this moment; costs nothing until it is time to look again.
    pub async fn check(&mut self) -> Result<(), Unauthorized> {
        if self.changed.has_changed().unwrap_or(true) {
            self.changed.mark_unchanged();
            self.look_at = 0;
        }
        if self.now.steady() < self.look_at {
            return Ok(());
        }
        let is_same = |caller: &Caller| {
            caller.requestor == self.requestor && self.rights.as_ref().is_none_or(|rights| *rights == caller.rights)
        };
        let ended = match self.authenticator.caller_again(&self.presented).await {
            Ok(caller) if is_same(&caller) => {
                (self.look_at, self.ends_at) = (next_look(&caller, &self.now), caller.ends_at);
                self.unjudged_since = None;
                return Ok(());
            }
            Ok(_) => Unauthorized::Invalid,
            Err(unjudged) if unjudged.is_no_judgement() && self.goes_on_unjudged() => return Ok(()),
            Err(unauthorized) => unauthorized,
        };
        tracing::debug!(?ended, "a credential has ended while a stream was open");
        Err(ended)
    }

    /// Whether there is time left to find out.
    fn goes_on_unjudged(&mut self) -> bool {
        let now = self.now.steady();
        let since = *self.unjudged_since.get_or_insert(now);
        let left = since.saturating_add(UNJUDGED_MS_MAX).saturating_sub(now);
        let left = left.min(self.ends_at.saturating_sub(self.now.system()));
        self.look_at = now.saturating_add(left.min(ASK_AGAIN_MS));
        left > 0
    }
}

fn next_look(caller: &Caller, now: &SharedClock) -> UnixMs {
    caller.look_at.unwrap_or_else(|| now.steady().saturating_add(NOTICED_MS_MAX))
}

#[cfg(test)]
mod tests {

    use async_trait::async_trait;
    use http::HeaderMap;
    use http::HeaderValue;
    use parking_lot::Mutex;

    use super::super::{Denied, Scopes, Sender, Verified, Verifier};
    use super::*;
    use crate::principal::{Principals, TokenVerifier};
    use bulkhead_domain::clock::{Clock as _, ManualClock};
    use bulkhead_domain::requestor::{RequestorId, TenantId};
    use bulkhead_domain::testing::SetClock;
    use bulkhead_limits::failures::Failures;
    use bulkhead_store::memory::MemoryStore;

    const ENDS_AT: UnixMs = 100_000;

    /// Says of every token what it is told to.
    struct Scripted {
        clock: Arc<ManualClock>,
        denied: Mutex<Option<fn() -> Denied>>,
    }

    #[async_trait]
    impl Verifier for Scripted {
        async fn verify(&self, token: &str, _: Sender<'_>) -> Result<Verified, Denied> {
            self.verify_again(token).await
        }

        async fn verify_again(&self, _: &str) -> Result<Verified, Denied> {
            if let Some(denied) = *self.denied.lock() {
                return Err(denied());
            }
            let requestor = Requestor { tenant: TenantId([1; 16]), id: RequestorId([1; 16]) };
            let look_at = self.clock.now() + 500;
            let name = "anna".to_owned();
            let tenant = "acme".to_owned();
            Ok(Verified { requestor, name, tenant, scopes: Scopes::All, look_at, ends_at: ENDS_AT })
        }
    }

    fn unavailable() -> Denied {
        Denied::Unavailable { incident: "1".to_owned() }
    }

    async fn begun() -> (Arc<Scripted>, Revalidation) {
        let clock = Arc::new(ManualClock::at(1_000));
        let verifier = Arc::new(Scripted { clock: Arc::clone(&clock), denied: Mutex::default() });
        let verifiers: Vec<Arc<dyn Verifier>> = vec![verifier.clone()];
        let authenticator = Arc::new(Authenticator::new(verifiers, false));
        let headers: HeaderMap =
            [(http::header::AUTHORIZATION, HeaderValue::from_static("Bearer a"))].into_iter().collect();
        let failures = Failures::new(1);
        let sender = Sender { address: [127, 0, 0, 1].into(), failures: &failures };
        let caller = authenticator.caller(&headers, sender).await.unwrap_or_else(|_| panic!("it is good"));
        let now: SharedClock = clock;
        (verifier, Revalidation::new(&authenticator, &caller, true, &now))
    }

    /// The first time, in steps of a second from `from`, at which it has ended.
    async fn end(verifier: &Scripted, revalidation: &mut Revalidation, from: UnixMs) -> (UnixMs, Unauthorized) {
        let mut at = from;
        loop {
            verifier.clock.set(at);
            if let Err(unauthorized) = revalidation.check().await {
                return (at, unauthorized);
            }
            assert!(at < 10 * ENDS_AT, "it has to end");
            at += 1_000;
        }
    }

    #[tokio::test]
    async fn unjudged_token_is_accepted_for_a_bounded_time() {
        let (verifier, mut revalidation) = begun().await;
        *verifier.denied.lock() = Some(unavailable);
        let (at, unauthorized) = end(&verifier, &mut revalidation, 2_000).await;
        assert_eq!((at, unauthorized), (2_000 + UNJUDGED_MS_MAX, unavailable().into()));
    }

    /// The wall clock is set ahead by a day and corrected, as a bad time server does it.
    #[tokio::test]
    async fn revoked_token_is_noticed_after_clock_set_back() {
        const DAY: u64 = 86_400_000;
        let hands = Arc::new(SetClock::at(10 * DAY));
        let clock: SharedClock = hands.clone();
        let principals = Principals::new(Arc::new(MemoryStore::new()));
        let until = Some(10 * DAY + 3_600_000);
        let token = principals.create_token("anna", "acme", until, clock.now()).await.unwrap();
        let now: SharedClock = clock.clone();
        let verifiers: Vec<Arc<dyn Verifier>> = vec![Arc::new(TokenVerifier::new(principals.clone(), now.clone()))];
        let authenticator = Arc::new(Authenticator::new(verifiers, false));
        let bearer = HeaderValue::from_str(&format!("Bearer {}", token.token)).unwrap();
        let headers: HeaderMap = [(http::header::AUTHORIZATION, bearer)].into_iter().collect();
        let failures = Failures::new(1);
        let sender = Sender { address: [127, 0, 0, 1].into(), failures: &failures };
        hands.set(11 * DAY);
        assert_eq!(clock.now(), 11 * DAY);
        assert!(authenticator.caller(&headers, sender).await.is_err(), "it has ended, for all that the machine says");
        hands.set(10 * DAY);
        assert!(clock.now() >= 11 * DAY, "what was written down stays before what comes");
        let caller = authenticator.caller(&headers, sender).await.unwrap_or_else(|_| panic!("it is good again"));
        let mut revalidation = Revalidation::new(&authenticator, &caller, true, &now);
        principals.revoke_token(&token.info.id, clock.now()).await.unwrap();
        hands.pass(NOTICED_MS_MAX - 1);
        assert!(revalidation.check().await.is_ok(), "nobody looks all the time");
        hands.pass(1);
        assert_eq!(revalidation.check().await.unwrap_err(), Unauthorized::Invalid);
    }

    #[tokio::test]
    async fn token_revalidation_resumes_when_issuer_returns() {
        let (verifier, mut revalidation) = begun().await;
        *verifier.denied.lock() = Some(unavailable);
        for at in [2_000, 20_000] {
            verifier.clock.set(at);
            revalidation.check().await.unwrap();
        }
        *verifier.denied.lock() = None;
        verifier.clock.set(25_000);
        revalidation.check().await.unwrap();
        // What was before does not count the next time.
        *verifier.denied.lock() = Some(unavailable);
        assert_eq!(end(&verifier, &mut revalidation, 26_000).await.0, 26_000 + UNJUDGED_MS_MAX);
        let (verifier, mut revalidation) = begun().await;
        *verifier.denied.lock() = Some(|| Denied::Invalid);
        assert_eq!(end(&verifier, &mut revalidation, 2_000).await, (2_000, Unauthorized::Invalid));
    }

    #[tokio::test]
    async fn stream_ends_with_its_expired_token() {
        let (verifier, mut revalidation) = begun().await;
        verifier.clock.set(ENDS_AT - 5_000);
        *verifier.denied.lock() = Some(unavailable);
        assert_eq!(end(&verifier, &mut revalidation, ENDS_AT - 5_000).await.0, ENDS_AT);
    }
}
