//! What a verifier of tokens is told, and what it answers.
//!
//! Owns why a credential gives no requestor. Must not know a kind of token. Invariant: unknown, expired, revoked and
//! foreign tokens are all [`Denied::Invalid`].

use std::net::IpAddr;

use async_trait::async_trait;

use super::stored::StoredCredential;
use bulkhead_domain::UnixMs;
use bulkhead_domain::clock::SharedClock;
use bulkhead_domain::requestor::Requestor;
use bulkhead_limits::failures::{self, Failures};
use bulkhead_limits::{Full, rate};

/// How long nobody notices that a token was revoked, or that requests need one by now.
pub const NOTICED_MS_MAX: u64 = 2_000;
/// How long nobody notices that an issuer took back the key of a signed token.
pub(super) const SIGNED_MS_MAX: u64 = 60_000;

/// Why a credential gives no requestor.
#[derive(Debug, thiserror::Error)]
pub enum Denied {
    /// Unknown, expired, revoked or issued for another audience.
    #[error("the token is not valid")]
    Invalid,
    /// It could not be checked; the reason was logged under this id.
    #[error("the token cannot be checked at the moment (incident {incident})")]
    Unavailable { incident: String },
    /// The store that knows it cannot be reached.
    #[error("the token cannot be checked at the moment, the store cannot be reached")]
    StoreUnavailable { retry_after_ms: u64 },
    /// Perhaps it is, but not now.
    #[error(transparent)]
    Limited(#[from] Limited),
}

/// A limit that keeps a credential from being judged, or a requestor from coming into being.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Limited {
    /// That address sent too many invalid credentials: no issuer is asked about another one.
    #[error("too many credentials from that address were not valid")]
    Failures(failures::Exceeded),
    /// Too many requestors of the tenant are new.
    #[error("{} is exceeded", .0.limit)]
    Rate(rate::Exceeded),
    /// There are as many as there may be.
    #[error("{} is at its limit", .0.limit)]
    Full(Full),
}

/// What is known about the sender of a credential before it is verified.
#[derive(Clone, Copy)]
pub struct Sender<'a> {
    pub address: IpAddr,
    /// How many bad credentials came from where.
    pub failures: &'a Failures,
}

/// What a token was given for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scopes {
    /// Everything that its requestor may do.
    All,
    /// These, by name. Its client can ask the issuer for a token with more.
    Granted(Vec<String>),
    /// These, by name, and nobody can be asked for more.
    Fixed(Vec<String>),
}

/// Whose token it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    pub requestor: Requestor,
    /// What operators call it and its tenant, in rules about scopes.
    pub name: String,
    pub tenant: String,
    pub scopes: Scopes,
    /// Until when nothing can happen to the token that matters to a stream which goes on, by the steady clock: see
    /// [`look_at`].
    pub look_at: UnixMs,
    /// When it ends by itself, by the system's clock.
    pub ends_at: UnixMs,
}

/// Knows one kind of token.
#[async_trait]
pub trait Verifier: Send + Sync + 'static {
    /// Whose token this is.
    async fn verify(&self, token: &str, sender: Sender<'_>) -> Result<Verified, Denied>;

    /// The same for a token that was good when its request began.
    async fn verify_again(&self, token: &str) -> Result<Verified, Denied>;

    /// What may be kept of a good token of this kind.
    async fn storable(&self, _token: &str) -> Option<StoredCredential> {
        None
    }

    /// Whose it was that this was kept of, if the token would still be good.
    async fn verify_stored(&self, _kept: &StoredCredential) -> Result<Verified, Denied> {
        Err(Denied::Invalid)
    }

    /// Who a request without a credential comes from, if there may be such requests at all. Asked only when the host
    /// lets nobody but this machine's users in.
    async fn anonymous(&self) -> Result<Option<Requestor>, Denied> {
        Ok(None)
    }

    /// The same whatever tokens there are: who this machine's users are without one. Asked only when the operator lets
    /// them in beside those who have tokens.
    async fn anonymous_beside_tokens(&self) -> Result<Option<Requestor>, Denied> {
        Ok(None)
    }
}

/// When to look again at a credential that ends then by the system's clock: in so many milliseconds, or at its end.
/// What is given goes by the steady clock, which nobody can set back.
pub fn look_at(now: &SharedClock, ms: u64, ends_at: UnixMs) -> UnixMs {
    now.steady().saturating_add(ms.min(ends_at.saturating_sub(now.system())))
}
