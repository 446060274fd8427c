//! One issuer: its keys, and what it is asked.
//!
//! Owns whether the issuer vouches for a token. Must not know whose requestor a token is. Invariant: a token is judged
//! by keys of this issuer, or by its answer about that token.

use std::sync::Arc;
use std::time::Duration;

use super::claims::{Claims, IssuerClaim, Proof, tell_refused};
use super::introspection::Introspection;
use super::issuer_options::IssuerOptions;
use super::jwt::Purpose;
use super::keys::IssuerKeys;
use super::login_endpoints::LoginEndpoints;
use super::stored::SignedProof;
use super::verifier::Denied;
use super::{jwt, provider};
use bulkhead_domain::clock::SharedClock;
use bulkhead_net::address::{Network, normal_host};
use bulkhead_net::client::Client;

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
    pub(super) introspection: Option<Introspection>,
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

    pub(super) async fn signed(&self, token: &str, now: &SharedClock) -> Result<(Proof, Option<String>), Denied> {
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

    /// Whether what was proven still holds: the token has not ended, the issuer has not taken the key back, and may say
    /// that tenant.
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
