//! Access tokens of authorization servers (OAuth 2.1).
//!
//! Owns which issuer answers for a token, and the identity that the issuer states. Must not pass a token on to anybody but the
//! issuer that is configured to judge it. Invariant: whatever is wrong with a token, the answer is [`Denied::Invalid`]; only an issuer
//! that cannot be asked, and a limit that is reached, are something else.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jsonwebtoken::Algorithm;
use url::Url;

use super::claims::{IssuerClaim, Proof};
use super::introspection::Introspection;
use super::keys::IssuerKeys;
use super::revalidation::{SIGNED_MS_MAX, look_at};
use super::token_audit::Noted;
use super::{Denied, Scopes, Sender, Verified, Verifier, jwt, provider};
use crate::principal::{Identity, InTenant, Principals, TOKEN_PREFIX};
use bulkhead_audit::{Audit, Entry};
use bulkhead_domain::UnixMs;
use bulkhead_domain::clock::SharedClock;
use bulkhead_limits::LiveLimits;
use bulkhead_net::address::{Network, normal_host};
use bulkhead_net::client::Client;

/// A document of an issuer: metadata, keys, an answer about a token.
pub(super) const DOCUMENT_BYTES_MAX: u64 = 256 << 10;

/// How often, at most, a stream asks what an opaque token is worth.
const ASK_EVERY_MS: u64 = 1_000;

/// `[[auth.issuer]]`, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerOptions {
    /// Exactly as it stands in tokens.
    pub issuer: String,
    pub url: Url,
    /// What tokens may call this host; at least one.
    pub audiences: Vec<String>,
    /// Where the keys are; discovered otherwise.
    pub jwks_url: Option<Url>,
    /// Of RS256, ES256 and EdDSA.
    pub algorithms: Vec<Algorithm>,
    pub tenant: TenantRule,
    /// Whether each client of a subject is a requestor of its own.
    pub client_id_in_principal: bool,
    /// Whether `typ` must be `at+jwt` (RFC 9068); otherwise `JWT` and none at all will do.
    pub require_at_jwt: bool,
    pub clock_skew_ms: u64,
    /// How long keys are used before they are asked for again.
    pub keys_fresh_ms: u64,
    /// How much longer they may be used while the issuer does not answer.
    pub keys_stale_ms: u64,
    /// The issuer is not asked more often than this.
    pub keys_retry_ms: u64,
    /// One question to the issuer.
    pub fetch_ms_max: u64,
    /// Addresses that are not public at which the issuer may be.
    pub private_addresses: Vec<Network>,
    pub introspection: Option<IntrospectionOptions>,
}

/// Where a requestor's tenant comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TenantRule {
    /// All identities of the issuer are in this tenant.
    Fixed(String),
    /// The token says it, within what is allowed (`*`: anything).
    Claim { claim: String, allowed: Vec<String> },
}

impl TenantRule {
    /// Whether it has this name in it, instead of letting tokens name any.
    fn names(&self, tenant: &str) -> bool {
        match self {
            Self::Fixed(_) => true,
            Self::Claim { allowed, .. } => allowed.iter().any(|name| name == tenant),
        }
    }
}

/// How opaque tokens are judged (RFC 7662).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntrospectionOptions {
    pub url: Url,
    pub client_id: String,
    /// An answer is believed for at most this long.
    pub cache_ms: u64,
}

/// What an issuer needs beside its options; the configuration reads it from files and the environment.
pub struct Trusted {
    pub options: IssuerOptions,
    /// Has the issuer's own root certificate, if there is one.
    pub tls: Arc<rustls::ClientConfig>,
    /// The password of the host at the introspection endpoint; empty without one.
    pub client_secret: String,
}

/// One issuer, with its keys and what it said of tokens.
pub struct Issuer {
    options: Arc<IssuerOptions>,
    keys: Arc<IssuerKeys>,
    introspection: Option<Introspection>,
}

impl Issuer {
    /// Begins to fetch its keys at once, in the background.
    pub fn new(trusted: Trusted, now: &SharedClock) -> Arc<Self> {
        provider::install();
        let Trusted { options, tls, client_secret } = trusted;
        let mut networks = options.private_addresses.clone();
        // An address that stands in the configuration was named there.
        let introspected = options.introspection.as_ref().map(|introspection| &introspection.url);
        for url in [Some(&options.url), options.jwks_url.as_ref(), introspected].into_iter().flatten() {
            networks.extend(Network::written(&normal_host(url.host_str().unwrap_or_default())));
        }
        // Each exchange has a deadline of its own.
        let client = Client { networks, plain: true, connect_max: Duration::MAX, ..Client::new(tls) };
        let options = Arc::new(options);
        let keys = IssuerKeys::new(Arc::clone(&options), client.clone(), Arc::clone(now));
        let introspection = options
            .introspection
            .as_ref()
            .map(|how| Introspection::new(how.clone(), &client_secret, Arc::clone(&options), client, Arc::clone(now)));
        // Where only opaque tokens are used there may be no keys to fetch.
        if introspection.is_none() {
            let keys = Arc::clone(&keys);
            tokio::spawn(async move { keys.warm().await });
        }
        Arc::new(Self { options, keys, introspection })
    }

    async fn signed(&self, token: &str, now: &SharedClock) -> Result<Proof, Denied> {
        let head = self.judged(jwt::head(token, &self.options))?;
        // Who names an issuer of opaque tokens alone has made the token up; that is no failure of the issuer.
        let is_opaque = || self.introspection.is_some() && self.keys.has_none();
        let held = self.keys.usable().await.map_err(|denied| if is_opaque() { Denied::Invalid } else { denied })?;
        let candidates = held.candidates(head.kid.as_deref(), head.algorithm);
        // A key that is named and there is the only one that can be meant; any other may be newer than what we hold.
        let is_there = head.kid.is_some() && !candidates.is_empty();
        let mut claims = jwt::claims(token, &candidates, head.algorithm);
        if claims.is_err()
            && !is_there
            && let Some(newer) = self.keys.newer(&held).await
        {
            claims = jwt::claims(token, &newer.candidates(head.kid.as_deref(), head.algorithm), head.algorithm);
        }
        let claims = self.judged(claims)?;
        self.judged(claims.check(&self.options, IssuerClaim::Always, now.system()))
    }

    /// The reason is for the operator; the client learns that it is refused.
    fn judged<T>(&self, judgement: Result<T, &'static str>) -> Result<T, Denied> {
        judgement.map_err(|reason| {
            tracing::debug!(issuer = self.options.issuer, reason, "refused a token");
            Denied::Invalid
        })
    }
}

/// Verifies tokens of several issuers.
pub struct OauthVerifier {
    issuers: Vec<Arc<Issuer>>,
    principals: Principals,
    limits: LiveLimits,
    noted: Noted,
    now: SharedClock,
}

impl OauthVerifier {
    /// The limits are those of requestors that nobody has seen before.
    pub fn new(
        issuers: Vec<Arc<Issuer>>,
        principals: Principals,
        limits: LiveLimits,
        audit: Audit,
        now: SharedClock,
    ) -> Self {
        Self { issuers, principals, limits, noted: Noted::new(audit), now }
    }

    /// The proof of a token, its issuer, and how long it is valid without another check.
    async fn proof(&self, token: &str, sender: Option<Sender<'_>>) -> Result<(&Issuer, Proof, UnixMs), Denied> {
        if jwt::looks_signed(token) {
            let claimed = jwt::claimed_issuer(token).ok_or(Denied::Invalid)?;
            let issuer = self.issuers.iter().find(|issuer| issuer.options.issuer == claimed).ok_or(Denied::Invalid)?;
            let proof = issuer.signed(token, &self.now).await?;
            let look_at = look_at(&self.now, SIGNED_MS_MAX, proof.expires_at);
            return Ok((issuer, proof, look_at));
        }
        // At most one: a token must not be shown to somebody else's issuer.
        for issuer in &self.issuers {
            if let Some(introspection) = &issuer.introspection {
                let (proof, believed_until) = introspection.ask(token, sender).await?;
                // Where nothing is kept, a stream must not ask all the time.
                let look_at = believed_until.max(look_at(&self.now, ASK_EVERY_MS, proof.expires_at));
                return Ok((issuer, proof, look_at));
            }
        }
        Err(Denied::Invalid)
    }
}

impl OauthVerifier {
    /// Whose token this is. Without a sender: again, which is no new use of it.
    async fn verified(&self, token: &str, sender: Option<Sender<'_>>) -> Result<Verified, Denied> {
        // The host's own tokens are nobody else's business.
        if token.starts_with(TOKEN_PREFIX) {
            return Err(Denied::Invalid);
        }
        let (issuer, proof, look_at) = self.proof(token, sender).await?;
        let options = &issuer.options;
        // A person in two organisations is two requestors: the tenant is part of who they are where the token says it.
        let in_tenant = format!("{}/{}", proof.tenant, proof.subject);
        let (verifier, subject) = match &options.tenant {
            TenantRule::Fixed(_) => ("oauth", proof.subject.as_str()),
            TenantRule::Claim { .. } => ("oauth:tenant", in_tenant.as_str()),
        };
        let client = if options.client_id_in_principal { proof.client.as_str() } else { "" };
        let identity = Identity { verifier, issuer: &options.issuer, subject, client };
        let tenant = InTenant { name: &proof.tenant, is_configured: options.tenant.names(&proof.tenant) };
        // Whatever the configuration says by now, rules about tenants go by the one that the requestor's tasks are in.
        let (requestor, tenant) = self.principals.identified(identity, tenant, &self.limits).await?;
        if sender.is_some() {
            self.noted.note(&requestor, self.now.steady(), || {
                Entry::new("token.used").by(&requestor).identity(&options.issuer, &proof.subject, client)
            });
        }
        let Proof { subject: name, scopes, expires_at: ends_at, .. } = proof;
        Ok(Verified { requestor, name, tenant, scopes: Scopes::Granted(scopes), look_at, ends_at })
    }
}

#[async_trait]
impl Verifier for OauthVerifier {
    async fn verify(&self, token: &str, sender: Sender<'_>) -> Result<Verified, Denied> {
        self.verified(token, Some(sender)).await
    }

    async fn verify_again(&self, token: &str) -> Result<Verified, Denied> {
        self.verified(token, None).await
    }
}
