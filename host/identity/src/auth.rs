//! Who is calling.
//!
//! Owns credentials: the only room that sees a token. Must not log one, keep one longer than the request or the dashboard's session that brought it, pass one on (save to the issuer that is configured to
//! judge it), or accept one from anywhere but the `Authorization` header, where the dashboard puts that of its form, and the token endpoint of an issuer. Invariant: unknown, expired, revoked and foreign tokens
//! get the same answer.

mod claims;
mod introspection;
mod introspection_limiter;
mod jwt;
mod keys;
mod login;
mod oauth;
mod provider;
mod resource;
mod revalidation;
mod stored;
mod token_audit;

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use http::{HeaderMap, HeaderValue, header};
use tokio::sync::watch;

use bulkhead_domain::UnixMs;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::rights::{Rights, ScopeBook};
use bulkhead_limits::rate;

use bulkhead_limits::Full;
use bulkhead_limits::failures::{self, Failures};

pub use login::{LoggedIn, LoginAnswer, LoginAttempt, LoginClient, OperatorClaim};
pub use oauth::{IntrospectionOptions, Issuer, IssuerOptions, OauthVerifier, TenantRule, Trusted};
pub use resource::Resource;
pub use resource::ResourceOptions;
pub use revalidation::{NOTICED_MS_MAX, Revalidation, look_at};
pub use stored::{SignedProof, StoredCredential};

/// More than any issuer's tokens need; a longer one is refused before it is hashed.
const TOKEN_BYTES_MAX: usize = 8192;

/// Why a credential gives no requestor.
#[derive(Debug, thiserror::Error)]
pub enum Denied {
    /// Unknown, expired, revoked or issued for another audience.
    #[error("the token is not valid")]
    Invalid,
    /// It could not be checked; the reason was logged under this id.
    #[error("the token cannot be checked at the moment (incident {incident})")]
    Unavailable { incident: String },
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
    /// Until when nothing can happen to the token that matters to a stream which goes on, by the steady clock: see [`look_at`].
    pub look_at: UnixMs,
    /// When it ends by itself, by the system's clock.
    pub ends_at: UnixMs,
}

/// Who sent a request, and what its credential is good for.
pub struct Caller {
    pub requestor: Requestor,
    pub rights: Rights,
    presented: Presented,
    /// See [`Verified::look_at`]; `None` without a token.
    look_at: Option<UnixMs>,
    /// See [`Verified::ends_at`].
    ends_at: UnixMs,
}

/// How a requestor shows who it is.
#[derive(Clone)]
enum Presented {
    Nothing,
    Header(HeaderValue),
    /// It did so before, with a credential that is not here any more.
    Stored(StoredCredential),
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

    /// Who a request without a credential comes from, if there may be such requests at all. Asked only when the host lets
    /// nobody but this machine's users in.
    async fn anonymous(&self) -> Result<Option<Requestor>, Denied> {
        Ok(None)
    }

    /// The same whatever tokens there are: who this machine's users are without one. Asked only when the operator lets them in beside
    /// those who have tokens.
    async fn anonymous_beside_tokens(&self) -> Result<Option<Requestor>, Denied> {
        Ok(None)
    }
}

/// Checks the credential of each request.
pub struct Authenticator {
    rules: ArcSwap<Rules>,
    /// Moves with the rules.
    changed: watch::Sender<()>,
}

/// Whom to let in, and for what.
#[derive(Clone)]
struct Rules {
    verifiers: Vec<Arc<dyn Verifier>>,
    /// Where people log in with a browser.
    oauth: Option<Arc<OauthVerifier>>,
    anonymous_allowed: bool,
    /// Whether clients on this machine are let in without a token although there are tokens.
    loopback_anonymous: bool,
    resource: Option<Arc<Resource>>,
    scopes: ScopeBook,
}

impl Authenticator {
    /// The verifiers are asked in this order. Without `anonymous_allowed`, nobody gets in without a token.
    pub fn new(verifiers: Vec<Arc<dyn Verifier>>, anonymous_allowed: bool) -> Self {
        let resource = None;
        let scopes = ScopeBook::default();
        Self::of(Rules { verifiers, oauth: None, anonymous_allowed, loopback_anonymous: false, resource, scopes })
    }

    fn of(rules: Rules) -> Self {
        Self { rules: ArcSwap::from_pointee(rules), changed: watch::Sender::new(()) }
    }

    /// Tells clients where they get tokens.
    #[must_use]
    pub fn with_resource(self, options: &ResourceOptions, endpoint: &str) -> Self {
        let resource = Some(Arc::new(Resource::new(options, endpoint)));
        Self::of(Rules { resource, ..Rules::clone(&self.rules.load()) })
    }

    /// Lets people log in at issuers with a browser.
    #[must_use]
    pub fn with_logins(self, oauth: Arc<OauthVerifier>) -> Self {
        Self::of(Rules { oauth: Some(oauth), ..Rules::clone(&self.rules.load()) })
    }

    /// Says what scopes are good for.
    #[must_use]
    pub fn with_scopes(self, scopes: ScopeBook) -> Self {
        Self::of(Rules { scopes, ..Rules::clone(&self.rules.load()) })
    }

    /// Lets clients from loopback addresses in without a token, also when there are tokens. A token that they send is checked all the
    /// same: with a wrong one they are refused.
    #[must_use]
    pub fn with_loopback_anonymous(self, loopback_anonymous: bool) -> Self {
        Self::of(Rules { loopback_anonymous, ..Rules::clone(&self.rules.load()) })
    }

    /// From now on, lets in whom the other one would. Streams of those who are out by that, or have other rights, end.
    pub fn replace(&self, with: &Self) {
        self.rules.store(with.rules.load_full());
        self.changed.send_replace(());
    }

    /// How the host presents itself to clients without a token.
    pub fn resource(&self) -> Option<Arc<Resource>> {
        self.rules.load().resource.clone()
    }

    /// The requestor behind a request, or what to answer instead.
    pub async fn caller(&self, headers: &HeaderMap, sender: Sender<'_>) -> Result<Caller, Unauthorized> {
        self.rules.load_full().caller(header_of(headers)?, Some(sender)).await
    }

    /// The same for a request that is still open.
    async fn caller_again(&self, presented: &Presented) -> Result<Caller, Unauthorized> {
        let rules = self.rules.load_full();
        match presented {
            Presented::Nothing => rules.caller(None, None).await,
            Presented::Header(header) => rules.caller(Some(header), None).await,
            Presented::Stored(kept) => rules.stored_caller(kept).await,
        }
    }

    /// The value of `WWW-Authenticate`, where one belongs into the answer.
    pub fn challenge(&self, unauthorized: &Unauthorized) -> Option<HeaderValue> {
        match &self.rules.load().resource {
            Some(resource) => resource.challenge(unauthorized),
            None => unauthorized.challenge().map(HeaderValue::from_static),
        }
    }
}

impl Rules {
    /// Without a sender: again, for a request that was let in.
    async fn caller(&self, header: Option<&HeaderValue>, sender: Option<Sender<'_>>) -> Result<Caller, Unauthorized> {
        let Some(token) = header.map(bearer).transpose()? else {
            let requestor = self.anonymous(sender).await?;
            return Ok(Caller {
                requestor,
                rights: Rights::default(),
                presented: Presented::Nothing,
                look_at: None,
                ends_at: UnixMs::MAX,
            });
        };
        let verified = self.verified(token, sender).await?;
        let presented = header.cloned().map_or(Presented::Nothing, Presented::Header);
        Ok(self.admitted(verified, presented))
    }

    /// With what the scopes are good for.
    fn admitted(&self, verified: Verified, presented: Presented) -> Caller {
        let Verified { requestor, name, tenant, scopes, look_at, ends_at } = verified;
        let rights = match scopes {
            Scopes::All => Rights::default(),
            Scopes::Granted(scopes) => self.scopes.rights(&scopes, &tenant, &name, true),
            Scopes::Fixed(scopes) => self.scopes.rights(&scopes, &tenant, &name, false),
        };
        let rights = rights.named(tenant, name);
        Caller { requestor, rights, presented, look_at: Some(look_at), ends_at }
    }

    async fn verified(&self, token: &str, sender: Option<Sender<'_>>) -> Result<Verified, Unauthorized> {
        for verifier in &self.verifiers {
            let verified = match sender {
                Some(sender) => verifier.verify(token, sender).await,
                None => verifier.verify_again(token).await,
            };
            match verified {
                Ok(verified) => return Ok(verified),
                Err(Denied::Invalid) => {}
                Err(denied) => return Err(denied.into()),
            }
        }
        Err(Unauthorized::Invalid)
    }

    async fn anonymous(&self, sender: Option<Sender<'_>>) -> Result<Requestor, Unauthorized> {
        // A request that goes on was let in from there.
        let is_here = sender.is_none_or(|sender| sender.address.to_canonical().is_loopback());
        let beside_tokens = self.loopback_anonymous && is_here;
        if beside_tokens || self.anonymous_allowed {
            for verifier in &self.verifiers {
                let anonymous =
                    if beside_tokens { verifier.anonymous_beside_tokens().await } else { verifier.anonymous().await };
                match anonymous {
                    Ok(Some(requestor)) => return Ok(requestor),
                    Ok(None) | Err(Denied::Invalid) => {}
                    Err(denied) => return Err(denied.into()),
                }
            }
        }
        Err(Unauthorized::Missing)
    }
}

/// Why a request is not let in.
#[derive(Debug, PartialEq, Eq)]
pub enum Unauthorized {
    Missing,
    Malformed,
    Invalid,
    Unavailable { incident: String },
    Limited(Limited),
}

impl From<Denied> for Unauthorized {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Invalid => Self::Invalid,
            Denied::Unavailable { incident } => Self::Unavailable { incident },
            Denied::Limited(limited) => Self::Limited(limited),
        }
    }
}

impl Unauthorized {
    /// The challenge of a host that makes its tokens itself.
    fn challenge(&self) -> Option<&'static str> {
        match self {
            Self::Missing => Some(r#"Bearer realm="bulkhead""#),
            Self::Malformed => Some(r#"Bearer realm="bulkhead", error="invalid_request""#),
            Self::Invalid => Some(r#"Bearer realm="bulkhead", error="invalid_token""#),
            Self::Unavailable { .. } | Self::Limited(_) => None,
        }
    }

    /// Whether it says nothing about the credential.
    pub fn is_no_judgement(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Limited(_))
    }

    /// Whether the credential was invalid, as a guessed one is.
    pub fn is_a_failed_try(&self) -> bool {
        matches!(self, Self::Malformed | Self::Invalid)
    }

    /// For the audit log.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Missing => "no credential",
            Self::Malformed => "a malformed credential",
            Self::Invalid => "an invalid credential",
            Self::Unavailable { .. } => "the credential could not be checked",
            Self::Limited(Limited::Failures(_)) => "too many invalid credentials from one address",
            Self::Limited(Limited::Rate(_)) => "too many new requestors of one tenant",
            Self::Limited(Limited::Full(full)) => full.limit,
        }
    }
}

/// The header with the token of a request.
fn header_of(headers: &HeaderMap) -> Result<Option<&HeaderValue>, Unauthorized> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next();
    if values.next().is_some() { Err(Unauthorized::Malformed) } else { Ok(value) }
}

/// The token in it. Another scheme than Bearer counts as no token at all.
fn bearer(value: &HeaderValue) -> Result<&str, Unauthorized> {
    let value = value.to_str().map_err(|_| Unauthorized::Malformed)?;
    let (scheme, token) = value.split_once(' ').unwrap_or((value, ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(Unauthorized::Missing);
    }
    let token = token.trim();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    if token.is_empty() || token.len() > TOKEN_BYTES_MAX || !token.bytes().all(plain) {
        return Err(Unauthorized::Malformed);
    }
    Ok(token)
}

#[cfg(test)]
mod unit {
    use std::net::Ipv4Addr;

    use bulkhead_domain::requestor::{RequestorId, TenantId};

    use super::*;

    const LOCAL: Requestor = Requestor { tenant: TenantId([1; 16]), id: RequestorId([1; 16]) };

    /// A host on which there are tokens, none of which is known here.
    struct WithTokens;

    #[async_trait]
    impl Verifier for WithTokens {
        async fn verify(&self, _: &str, _: Sender<'_>) -> Result<Verified, Denied> {
            Err(Denied::Invalid)
        }

        async fn verify_again(&self, _: &str) -> Result<Verified, Denied> {
            Err(Denied::Invalid)
        }

        async fn anonymous_beside_tokens(&self) -> Result<Option<Requestor>, Denied> {
            Ok(Some(LOCAL))
        }
    }

    #[tokio::test]
    async fn loopback_clients_without_a_token_are_let_in_beside_tokens_and_others_are_not() {
        let failures = Failures::new(10);
        let closed = Authenticator::new(vec![Arc::new(WithTokens)], true);
        let open = Authenticator::new(vec![Arc::new(WithTokens)], true).with_loopback_anonymous(true);
        let caller = async |authenticator: &Authenticator, values: &[&str], address: IpAddr| {
            let sender = Sender { address, failures: &failures };
            authenticator.caller(&headers(values), sender).await.map(|caller| caller.requestor)
        };
        let here: IpAddr = Ipv4Addr::LOCALHOST.into();
        let mapped: IpAddr = Ipv4Addr::LOCALHOST.to_ipv6_mapped().into();
        assert_eq!(caller(&closed, &[], here).await, Err(Unauthorized::Missing));
        assert_eq!(caller(&open, &[], here).await, Ok(LOCAL));
        assert_eq!(caller(&open, &[], mapped).await, Ok(LOCAL));
        assert_eq!(caller(&open, &[], Ipv4Addr::new(10, 0, 0, 1).into()).await, Err(Unauthorized::Missing));
        // A credential that is no good never counts as none.
        assert_eq!(caller(&open, &["Bearer wrong"], here).await, Err(Unauthorized::Invalid));
        assert_eq!(caller(&open, &["Bearer"], here).await, Err(Unauthorized::Malformed));
        assert_eq!(caller(&open, &["Basic YTpi"], here).await, Err(Unauthorized::Missing));
    }

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (header::AUTHORIZATION, value.parse().unwrap())).collect()
    }

    fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Unauthorized> {
        header_of(headers)?.map(super::bearer).transpose()
    }

    #[test]
    fn only_one_well_formed_bearer_header_is_a_token() {
        assert_eq!(bearer(&headers(&[])), Ok(None));
        assert_eq!(bearer(&headers(&["Bearer abc"])), Ok(Some("abc")));
        assert_eq!(bearer(&headers(&["bearer  a-b._~+/="])), Ok(Some("a-b._~+/=")));
        assert_eq!(bearer(&headers(&["Basic abc"])), Err(Unauthorized::Missing));
        for bad in [&["Bearer"][..], &["Bearer a b"], &["Bearer a,b"], &["Bearer a", "Bearer b"]] {
            assert_eq!(bearer(&headers(bad)), Err(Unauthorized::Malformed), "{bad:?}");
        }
        assert_eq!(bearer(&headers(&[&format!("Bearer {}", "a".repeat(9000))])), Err(Unauthorized::Malformed));
    }
}
