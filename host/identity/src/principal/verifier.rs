//! Who a request with a token of the host comes from, and who one without any.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use async_trait::async_trait;

use super::token_cache::Generation;
use super::tokens::digest;
use super::{LastUsed, Principals, Resolved, TOKEN_PREFIX, unavailable};
use crate::auth::{Denied, NOTICED_MS_MAX, Scopes, Sender, StoredCredential, Verified, Verifier, look_at};
use bulkhead_domain::UnixMs;
use bulkhead_domain::clock::SharedClock;
use bulkhead_domain::requestor::Requestor;

/// Bearer tokens of this host.
pub struct TokenVerifier {
    principals: Principals,
    now: SharedClock,
    /// What [`anonymous`](Verifier::anonymous) found, for as long as the store says that nothing changed: every request
    /// without a token asks for it.
    anonymous: ArcSwapOption<Anonymous>,
    /// The same for [`anonymous_beside_tokens`](Verifier::anonymous_beside_tokens).
    beside_tokens: ArcSwapOption<Anonymous>,
    /// Whether there ever was a token. A store that lost its rows must not open the door of a running host.
    closed: AtomicBool,
    used: Arc<LastUsed>,
}

#[derive(Clone, Copy)]
struct Anonymous {
    generation: Generation,
    requestor: Option<Requestor>,
}

impl TokenVerifier {
    pub fn new(principals: Principals, now: SharedClock) -> Self {
        let used = LastUsed::new(principals.clone());
        let anonymous = ArcSwapOption::empty();
        let beside_tokens = ArcSwapOption::empty();
        Self { principals, now, anonymous, beside_tokens, closed: AtomicBool::new(false), used }
    }

    /// The uses of tokens; the host has to run their maintenance.
    pub fn used(&self) -> Arc<LastUsed> {
        Arc::clone(&self.used)
    }

    async fn resolve(&self, token: &str) -> Result<Resolved, Denied> {
        self.principals.resolve_token(token, self.now.system()).await.map_err(unavailable)?.ok_or(Denied::Invalid)
    }

    fn verified(&self, resolved: Resolved) -> Verified {
        let Resolved { requestor, name, tenant, scopes, expires_at, .. } = resolved;
        let ends_at = expires_at.unwrap_or(UnixMs::MAX);
        let look_at = look_at(&self.now, NOTICED_MS_MAX, ends_at);
        Verified { requestor, name, tenant, scopes: scopes.map_or(Scopes::All, Scopes::Fixed), look_at, ends_at }
    }

    async fn look_up_local(&self) -> Result<Option<Requestor>, Denied> {
        self.principals.local_requestor().await.map(Some).map_err(unavailable)
    }

    /// What is known, as long as the store says that nothing changed.
    async fn remembered<F>(
        &self,
        known: &ArcSwapOption<Anonymous>,
        look_up: impl FnOnce() -> F + Send,
    ) -> Result<Option<Requestor>, Denied>
    where
        F: Future<Output = Result<Option<Requestor>, Denied>> + Send,
    {
        // Taken before the look: what changes in between makes the next request look again.
        let generation = self.principals.generation();
        if let Some(known) = known.load().as_ref()
            && Some(known.generation) == generation
        {
            return Ok(known.requestor);
        }
        // Rare, and large.
        let requestor = Box::pin(look_up()).await?;
        known.store(generation.map(|generation| Arc::new(Anonymous { generation, requestor })));
        Ok(requestor)
    }

    async fn look_up_anonymous(&self) -> Result<Option<Requestor>, Denied> {
        if self.closed.load(Ordering::Acquire) || self.principals.any_token().await.map_err(unavailable)? {
            self.closed.store(true, Ordering::Release);
            return Ok(None);
        }
        self.look_up_local().await
    }
}

#[async_trait]
impl Verifier for TokenVerifier {
    async fn verify(&self, token: &str, _: Sender<'_>) -> Result<Verified, Denied> {
        let resolved = self.resolve(token).await?;
        self.used.note(&resolved, digest(token), self.now.now());
        Ok(self.verified(resolved))
    }

    /// A stream that goes on is no new use.
    async fn verify_again(&self, token: &str) -> Result<Verified, Denied> {
        Ok(self.verified(self.resolve(token).await?))
    }

    async fn storable(&self, token: &str) -> Option<StoredCredential> {
        token.starts_with(TOKEN_PREFIX).then(|| StoredCredential::Token(digest(token)))
    }

    async fn verify_stored(&self, kept: &StoredCredential) -> Result<Verified, Denied> {
        let StoredCredential::Token(digest) = kept else { return Err(Denied::Invalid) };
        let resolved = self.principals.resolve_digest(digest, self.now.system()).await.map_err(unavailable)?;
        resolved.map(|resolved| self.verified(resolved)).ok_or(Denied::Invalid)
    }

    /// Everyone is the local requestor until the first token is made. Tokens that ended count: otherwise the door would
    /// open by itself when the last one expires.
    async fn anonymous(&self) -> Result<Option<Requestor>, Denied> {
        self.remembered(&self.anonymous, || self.look_up_anonymous()).await
    }

    async fn anonymous_beside_tokens(&self) -> Result<Option<Requestor>, Denied> {
        self.remembered(&self.beside_tokens, || self.look_up_local()).await
    }
}
