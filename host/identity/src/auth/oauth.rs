//! Access tokens of authorization servers (OAuth 2.1).
//!
//! Owns which issuer answers for a token, and the identity that the issuer states. Must not pass a token on to anybody
//! but the issuer that is configured to judge it. Invariant: whatever is wrong with a token, the answer is
//! [`Denied::Invalid`]; only an issuer that cannot be asked, and a limit that is reached, are something else.

use std::sync::Arc;

use async_trait::async_trait;

use super::claims::Proof;
use super::issuer::Issuer;
use super::issuer_options::TenantRule;
use super::jwt;
use super::stored::{SignedProof, StoredCredential};
use super::token_audit::Noted;
use super::verifier::{Denied, SIGNED_MS_MAX, Scopes, Sender, Verified, Verifier, look_at};
use crate::principal::{Identity, InTenant, Principals, TOKEN_PREFIX};
use bulkhead_audit::{Audit, Entry};
use bulkhead_domain::UnixMs;
use bulkhead_domain::clock::SharedClock;
use bulkhead_domain::requestor::Requestor;
use bulkhead_limits::LiveLimits;

/// How often, at most, a stream asks what an opaque token is worth.
const ASK_EVERY_MS: u64 = 1_000;

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
        let claimed = jwt::looks_signed(token).then(|| jwt::claimed_issuer(token)).flatten()?;
        let issuer = self.issuer(&claimed)?;
        let (proof, kid) = issuer.signed(token, &self.now).await.ok()?;
        Some(StoredCredential::Signed(SignedProof::new(claimed, proof, kid)))
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
