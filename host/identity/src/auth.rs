//! Who is calling.
//!
//! Owns credentials: the only room that sees a token. Must not log one, keep one longer than the request or the
//! dashboard's session that brought it, pass one on (save to the issuer that is configured to judge it), or accept one
//! from anywhere but the `Authorization` header, where the dashboard puts that of its form, and the token endpoint of
//! an issuer. Invariant: unknown, expired, revoked and foreign tokens get the same answer.

mod claims;
mod introspection;
mod introspection_limiter;
mod issuer;
mod issuer_options;
mod jwt;
mod keys;
mod login;
mod login_endpoints;
mod oauth;
mod provider;
mod resource;
mod revalidation;
mod stored;
mod token_audit;
mod unauthorized;
mod verifier;

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderValue, header};
use tokio::sync::watch;

use bulkhead_domain::UnixMs;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::rights::{Rights, ScopeBook};

pub use issuer::{Issuer, Trusted};
pub use issuer_options::{IntrospectionOptions, IssuerOptions, TenantRule};
pub use login::{LoggedIn, LoginAnswer, LoginAttempt, LoginClient, OperatorClaim};
pub use oauth::OauthVerifier;
pub use resource::Resource;
pub use resource::ResourceOptions;
pub use revalidation::Revalidation;
pub use stored::{SignedProof, StoredCredential};
pub use unauthorized::Unauthorized;
pub use verifier::{Denied, Limited, NOTICED_MS_MAX, Scopes, Sender, Verified, Verifier, look_at};

/// More than any issuer's tokens need; a longer one is refused before it is hashed.
const TOKEN_BYTES_MAX: usize = 8192;

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

    /// Lets clients from loopback addresses in without a token, also when there are tokens. A token that they send is
    /// checked all the same: with a wrong one they are refused.
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

    /// What may be kept of the credential of a request that was let in; `None`: nothing that it could be judged by.
    pub async fn storable(&self, caller: &Caller) -> Option<StoredCredential> {
        let Presented::Header(header) = &caller.presented else { return None };
        let token = bearer(header).ok()?;
        for verifier in &self.rules.load_full().verifiers {
            if let Some(kept) = verifier.storable(token).await {
                return Some(kept);
            }
        }
        None
    }

    /// Whether what an issuer has said of an operator still holds.
    ///
    /// # Errors
    /// It does not, or cannot be judged.
    pub async fn still_holds(&self, proof: &SignedProof) -> Result<(), Unauthorized> {
        let rules = self.rules.load_full();
        let oauth = rules.oauth.as_ref().ok_or(Unauthorized::Invalid)?;
        let issuer = oauth.issuer(&proof.issuer).ok_or(Unauthorized::Invalid)?;
        Ok(issuer.holds(proof, &oauth.now).await?)
    }

    /// The requestor behind what was kept, if the credential would still be good.
    ///
    /// # Errors
    /// It is not good any more, or cannot be judged.
    pub async fn stored_caller(&self, kept: &StoredCredential) -> Result<Caller, Unauthorized> {
        self.rules.load_full().stored_caller(kept).await
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

    async fn stored_caller(&self, kept: &StoredCredential) -> Result<Caller, Unauthorized> {
        for verifier in &self.verifiers {
            match verifier.verify_stored(kept).await {
                Ok(verified) => return Ok(self.admitted(verified, Presented::Stored(kept.clone()))),
                Err(Denied::Invalid) => {}
                Err(denied) => return Err(denied.into()),
            }
        }
        Err(Unauthorized::Invalid)
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
    use std::net::{IpAddr, Ipv4Addr};

    use async_trait::async_trait;

    use bulkhead_domain::requestor::{RequestorId, TenantId};
    use bulkhead_limits::failures::Failures;

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
