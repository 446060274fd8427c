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

use super::claims::{Claims, IssuerClaim, Proof, tell_refused};
use super::introspection::Introspection;
use super::jwt::Purpose;
use super::keys::IssuerKeys;
use super::login::LoginEndpoints;
use super::revalidation::{SIGNED_MS_MAX, look_at};
use super::stored::{SignedProof, StoredCredential};
use super::token_audit::Noted;
use super::{Denied, Scopes, Sender, Verified, Verifier, jwt, provider};
use crate::principal::{Identity, InTenant, Principals, TOKEN_PREFIX};
use bulkhead_audit::{Audit, Entry};
use bulkhead_domain::UnixMs;
use bulkhead_domain::clock::SharedClock;
use bulkhead_domain::requestor::Requestor;
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
    /// Whether the issuer may still say it of a person of whom it did.
    fn allows(&self, tenant: &str) -> bool {
        match self {
            Self::Fixed(name) => name == tenant,
            Self::Claim { allowed, .. } => allowed.iter().any(|name| name == "*" || name == tenant),
        }
    }

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
    pub(super) options: Arc<IssuerOptions>,
    keys: Arc<IssuerKeys>,
    introspection: Option<Introspection>,
    /// Where people log in, and where their codes are exchanged.
    pub(super) endpoints: Arc<LoginEndpoints>,
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
        let endpoints = LoginEndpoints::new(Arc::clone(&keys), client.clone());
        let introspection = options
            .introspection
            .as_ref()
            .map(|how| Introspection::new(how.clone(), &client_secret, Arc::clone(&options), client, Arc::clone(now)));
        // Where only opaque tokens are used there may be no keys to fetch.
        if introspection.is_none() {
            let keys = Arc::clone(&keys);
            tokio::spawn(async move { keys.warm().await });
        }
        Arc::new(Self { options, keys, introspection, endpoints })
    }

    async fn signed(&self, token: &str, now: &SharedClock) -> Result<(Proof, Option<String>), Denied> {
        let (claims, kid) = self.claims(token, Purpose::Access).await?;
        let proof = claims.check(&self.options, IssuerClaim::Always, now.system());
        let proof = proof.map_err(|reason| {
            tell_refused(&self.options.issuer, reason);
            Denied::Invalid
        })?;
        Ok((proof, kid))
    }

    /// The claims of a token that it has signed, and the name of the key.
    pub(super) async fn claims(&self, token: &str, purpose: Purpose) -> Result<(Claims, Option<String>), Denied> {
        let head = self.judged(jwt::head(token, &self.options, purpose))?;
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
        Ok((self.judged(claims)?, head.kid))
    }

    /// Whether what was proven still holds: the token has not ended, the issuer has not taken the key back, and may say that tenant.
    pub(super) async fn holds(&self, proof: &SignedProof, now: &SharedClock) -> Result<(), Denied> {
        let held = self.keys.usable().await?;
        let is_there = proof.kid.as_deref().is_none_or(|kid| held.has(kid));
        // Of an operator it said none.
        let is_in = proof.tenant.is_empty() || self.options.tenant.allows(&proof.tenant);
        self.judged(if !is_there {
            Err("its key is not one of the issuer's any more")
        } else if now.system() >= proof.expires_at {
            Err("it has expired")
        } else if !is_in {
            Err("its tenant is not one that this issuer may name")
        } else {
            Ok(())
        })
    }

    /// The reason is for the operator; the client learns that it is refused.
    pub(super) fn judged<T>(&self, judgement: Result<T, &'static str>) -> Result<T, Denied> {
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
    pub(super) now: SharedClock,
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
            let issuer = self.issuer(&claimed).ok_or(Denied::Invalid)?;
            let (proof, _) = issuer.signed(token, &self.now).await?;
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
    /// The issuer of this name, if it is configured.
    pub(super) fn issuer(&self, name: &str) -> Option<&Issuer> {
        self.issuers.iter().map(AsRef::as_ref).find(|issuer| issuer.options.issuer == name)
    }

    /// Whose token this is. Without a sender: again, which is no new use of it.
    async fn verified(&self, token: &str, sender: Option<Sender<'_>>) -> Result<Verified, Denied> {
        // The host's own tokens are nobody else's business.
        if token.starts_with(TOKEN_PREFIX) {
            return Err(Denied::Invalid);
        }
        let (issuer, proof, look_at) = self.proof(token, sender).await?;
        let Proof { subject, client, tenant, scopes, expires_at } = proof;
        let client = if issuer.options.client_id_in_principal { client.as_str() } else { "" };
        let (requestor, tenant) = self.identified(issuer, &subject, client, &tenant).await?;
        if sender.is_some() {
            self.noted.note(&requestor, self.now.steady(), || {
                Entry::new("token.used").by(&requestor).identity(&issuer.options.issuer, &subject, client)
            });
        }
        let scopes = Scopes::Granted(scopes);
        Ok(Verified { requestor, name: subject, tenant, scopes, look_at, ends_at: expires_at })
    }

    /// Who that is here, and in which tenant.
    async fn identified(
        &self,
        issuer: &Issuer,
        subject: &str,
        client: &str,
        tenant: &str,
    ) -> Result<(Requestor, String), Denied> {
        let options = &issuer.options;
        // A person in two organisations is two requestors: the tenant is part of who they are where the token says it.
        let in_tenant = format!("{tenant}/{subject}");
        let (verifier, subject) = match &options.tenant {
            TenantRule::Fixed(_) => ("oauth", subject),
            TenantRule::Claim { .. } => ("oauth:tenant", in_tenant.as_str()),
        };
        let identity = Identity { verifier, issuer: &options.issuer, subject, client };
        let tenant = InTenant { name: tenant, is_configured: options.tenant.names(tenant) };
        // Whatever the configuration says by now, rules about tenants go by the one that the requestor's tasks are in.
        self.principals.identified(identity, tenant, &self.limits).await
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
    async fn storable(&self, token: &str) -> Option<StoredCredential> {
        // What an opaque token is worth, its issuer says of the token alone.
        let issuer = jwt::looks_signed(token).then(|| self.issuer(&jwt::claimed_issuer(token)?)).flatten()?;
        let (proof, kid) = issuer.signed(token, &self.now).await.ok()?;
        Some(StoredCredential::Signed(SignedProof::new(issuer, proof, kid)))
    }

    async fn verify_stored(&self, kept: &StoredCredential) -> Result<Verified, Denied> {
        let StoredCredential::Signed(proof) = kept else { return Err(Denied::Invalid) };
        let issuer = self.issuer(&proof.issuer).filter(|_| !proof.tenant.is_empty()).ok_or(Denied::Invalid)?;
        issuer.holds(proof, &self.now).await?;
        let client = if issuer.options.client_id_in_principal { proof.client.as_str() } else { "" };
        let (requestor, tenant) = self.identified(issuer, &proof.subject, client, &proof.tenant).await?;
        let SignedProof { subject: name, scopes, expires_at: ends_at, .. } = proof.clone();
        let look_at = look_at(&self.now, SIGNED_MS_MAX, ends_at);
        Ok(Verified { requestor, name, tenant, scopes: Scopes::Granted(scopes), look_at, ends_at })
    }
}
