//! The keys of one issuer.
//!
//! Owns fetching, keeping and dropping them. Invariant: however many tokens with unknown keys arrive, an issuer is
//! asked at most once every `keys_retry_ms`, by one request at a time; keys older than `keys_fresh_ms` are used only
//! after the issuer was asked in vain or has kept a request waiting, for `keys_stale_ms` more and not a moment longer;
//! keys that an issuer no longer names are gone with its next answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use http::{Method, StatusCode};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::timeout;
use url::Url;

use super::issuer_options::{DOCUMENT_BYTES_MAX, IssuerOptions};
use super::verifier::Denied;
use bulkhead_domain::UnixMs;
use bulkhead_domain::clock::SharedClock;
use bulkhead_net::client::{Client, ClientError, NotAUrl, Request, parse_server_url};

/// Keys of one issuer; the largest sets in the field have a dozen.
const KEYS_MAX: usize = 64;
/// Keys that are tried on a token which names none.
const CANDIDATES_MAX: usize = 4;
/// How long an answer is awaited while there are older keys that may still be used.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(1);

/// Why keys could not be fetched; for the log.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("{url}: {source}")]
    Request { url: String, source: ClientError },
    #[error("{url}: status {status}")]
    Status { url: String, status: StatusCode },
    #[error("{url}: {reason}")]
    Document { url: String, reason: String },
}

impl FetchError {
    /// Whether the issuer was asked and has nothing to give, instead of not being able to answer.
    fn says_that_there_are_none(&self) -> bool {
        match self {
            Self::Request { .. } => false,
            Self::Status { status, .. } => matches!(*status, StatusCode::NOT_FOUND | StatusCode::GONE),
            Self::Document { .. } => true,
        }
    }
}

/// A key with the one algorithm that it is for.
struct VerificationKey {
    kid: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

/// One answer of the issuer.
pub(super) struct KeySet {
    keys: Vec<VerificationKey>,
    fetched_at: UnixMs,
}

impl KeySet {
    /// The key of this name and kind; without a name, those of the kind: while keys are rotated there are several.
    pub(super) fn candidates(&self, kid: Option<&str>, algorithm: Algorithm) -> Vec<DecodingKey> {
        let fitting = self.keys.iter().filter(|known| known.algorithm == algorithm);
        let named = fitting.filter(|known| kid.is_none() || known.kid.as_deref() == kid);
        let most = if kid.is_some() { 1 } else { CANDIDATES_MAX };
        named.take(most).map(|known| known.key.clone()).collect()
    }

    /// Whether there is one of this name.
    pub(super) fn has(&self, kid: &str) -> bool {
        self.keys.iter().any(|known| known.kid.as_deref() == Some(kid))
    }
}

/// What an issuer says about itself; most of it is for others.
#[derive(Deserialize)]
pub(super) struct Metadata {
    issuer: String,
    pub(super) jwks_uri: Option<String>,
    pub(super) authorization_endpoint: Option<String>,
    pub(super) token_endpoint: Option<String>,
}

/// An address that an issuer gives.
pub(super) fn server_url(text: Option<&str>, name: &str) -> Result<Url, String> {
    let text = text.ok_or_else(|| format!("it names no {name}"))?;
    parse_server_url(text).map_err(|wrong| wrong.to_string())
}

/// The keys of one issuer.
pub(super) struct IssuerKeys {
    pub(super) options: Arc<IssuerOptions>,
    client: Client,
    pub(super) now: SharedClock,
    held: ArcSwapOption<KeySet>,
    /// When the issuer was asked last, or when it failed to answer that; 0: never.
    asked_at: AtomicU64,
    /// One request at a time.
    asking: Mutex<()>,
    /// Whether it has failed, or kept a request waiting, since it last returned keys.
    is_unreliable: AtomicBool,
    /// Whether the issuer has said lately that it has none.
    has_none: AtomicBool,
    /// What the log calls the last failure.
    incident: ArcSwapOption<String>,
}

impl IssuerKeys {
    pub(super) fn new(options: Arc<IssuerOptions>, client: Client, now: SharedClock) -> Arc<Self> {
        Arc::new(Self {
            options,
            client,
            now,
            held: ArcSwapOption::empty(),
            asked_at: AtomicU64::new(0),
            asking: Mutex::new(()),
            is_unreliable: AtomicBool::new(false),
            has_none: AtomicBool::new(false),
            incident: ArcSwapOption::empty(),
        })
    }

    /// Newer keys than these, if it is time to ask and the issuer has any.
    pub(super) async fn newer(self: &Arc<Self>, than: &KeySet) -> Option<Arc<KeySet>> {
        self.refresh(than.fetched_at).await;
        self.held.load_full().filter(|held| held.fetched_at > than.fetched_at)
    }

    /// Fetches the keys before a request needs them, so that a mistake is in the log from the start.
    pub(super) async fn warm(self: &Arc<Self>) {
        self.refresh(0).await;
    }

    /// Whether its tokens are not signed with keys that it gives out.
    pub(super) fn has_none(&self) -> bool {
        self.has_none.load(Ordering::Acquire)
    }

    /// The keys to judge tokens with.
    pub(super) async fn usable(self: &Arc<Self>) -> Result<Arc<KeySet>, Denied> {
        let age = |held: &KeySet| self.now.steady().saturating_sub(held.fetched_at);
        let fresh = self.options.keys_fresh_ms;
        let stale = self.options.keys_stale_ms;
        let held = self.held.load_full();
        if let Some(held) = held.as_ref().filter(|held| age(held) <= fresh) {
            return Ok(Arc::clone(held));
        }
        let is_usable = |held: &Arc<KeySet>| age(held) <= fresh.saturating_add(stale);
        let seen = held.as_ref().map_or(0, |held| held.fetched_at);
        if held.as_ref().is_some_and(is_usable) {
            self.renew(seen).await;
        } else {
            self.refresh(seen).await;
        }
        let held = self.held.load_full().filter(|held| is_usable(held));
        held.ok_or_else(|| {
            let incident = self.incident.load().as_ref().map_or_else(|| "unknown".to_owned(), |id| id.to_string());
            Denied::Unavailable { incident }
        })
    }

    /// Asks for newer keys while there are some. That is awaited, since one of them may have been withdrawn, but not
    /// for long, and not at all from an issuer that is slow or down already: all of its tenants would wait with it.
    async fn renew(self: &Arc<Self>, seen: UnixMs) {
        if self.is_unreliable.load(Ordering::Acquire) {
            if self.is_due() {
                let keys = Arc::clone(self);
                tokio::spawn(async move { keys.ask(seen).await });
            }
        } else if timeout(REFRESH_TIMEOUT, self.refresh(seen)).await.is_err() {
            self.is_unreliable.store(true, Ordering::Release);
        }
    }

    fn is_due(&self) -> bool {
        let asked_at = self.asked_at.load(Ordering::Acquire);
        asked_at == 0 || self.now.steady().saturating_sub(asked_at) >= self.options.keys_retry_ms
    }

    /// Brings newer keys than those of `seen`, if it is time to ask. In a task of its own: a client that goes away
    /// while it waits must not take the answer from the others.
    async fn refresh(self: &Arc<Self>, seen: UnixMs) {
        let somebody_asks = self.asking.try_lock().is_err();
        if somebody_asks || self.is_due() {
            let keys = Arc::clone(self);
            let _ = tokio::spawn(async move { keys.ask(seen).await }).await;
        }
    }

    async fn ask(&self, seen: UnixMs) {
        let _one = self.asking.lock().await;
        let known = self.held.load().as_ref().map_or(0, |held| held.fetched_at);
        if known > seen || !self.is_due() {
            return;
        }
        // Stamped before the question: what is fetched is at least as new.
        let now = self.now.steady().max(seen + 1);
        self.asked_at.store(now, Ordering::Release);
        match self.fetch().await {
            Ok(keys) => {
                tracing::info!(issuer = self.options.issuer, keys = keys.len(), "took over the keys of the issuer");
                self.held.store(Some(Arc::new(KeySet { keys, fetched_at: now })));
                self.is_unreliable.store(false, Ordering::Release);
                self.has_none.store(false, Ordering::Release);
            }
            Err(error) => {
                let incident = format!("{:08x}", getrandom::u32().unwrap_or_default());
                tracing::error!(issuer = self.options.issuer, incident, %error, "the keys of the issuer cannot be fetched");
                self.incident.store(Some(Arc::new(incident)));
                let is_told = self.options.jwks_url.is_none() && error.says_that_there_are_none();
                self.has_none.store(is_told, Ordering::Release);
                self.is_unreliable.store(true, Ordering::Release);
                // Counted from the end of a slow failure: whoever waited for it must not begin another one.
                self.asked_at.store(self.now.steady().max(now), Ordering::Release);
            }
        }
    }

    async fn fetch(&self) -> Result<Vec<VerificationKey>, FetchError> {
        let url = match &self.options.jwks_url {
            Some(url) => url.clone(),
            None => self.discover(|metadata| server_url(metadata.jwks_uri.as_deref(), "jwks_uri")).await?,
        };
        let body = self.document(&url).await?;
        let wrong = |reason: &str| FetchError::Document { url: url.to_string(), reason: reason.to_owned() };
        let keys = body.get("keys").and_then(Value::as_array).ok_or_else(|| wrong("it is no set of keys"))?;
        let known: Vec<_> = keys.iter().take(KEYS_MAX).filter_map(|key| self.known(key)).collect();
        if known.is_empty() { Err(wrong("it has no key that can be used here")) } else { Ok(known) }
    }

    /// Something that the issuer says about itself: RFC 8414, else OpenID Connect Discovery.
    pub(super) async fn discover<T>(
        &self,
        read: impl Fn(&Metadata) -> Result<T, String> + Send + Sync,
    ) -> Result<T, FetchError>
    where
        T: Send,
    {
        let issuer = &self.options.url;
        let origin = issuer.origin().ascii_serialization();
        let path = issuer.path().trim_end_matches('/');
        let addresses = [
            format!("{origin}/.well-known/oauth-authorization-server{path}"),
            format!("{origin}/.well-known/openid-configuration{path}"),
            format!("{origin}{path}/.well-known/openid-configuration"),
        ];
        let mut last = None;
        for address in addresses {
            match self.discover_at(address, &read).await {
                Ok(found) => return Ok(found),
                // They are all at the same server.
                Err(error @ FetchError::Request { .. }) => return Err(error),
                // The first says best what is wrong, unless it just is not there.
                Err(error) => match &last {
                    Some(FetchError::Status { .. }) | None => last = Some(error),
                    Some(_) => {}
                },
            }
        }
        Err(last.unwrap_or_else(|| FetchError::Document { url: origin, reason: "no metadata".to_owned() }))
    }

    async fn discover_at<T>(
        &self,
        address: String,
        read: impl Fn(&Metadata) -> Result<T, String>,
    ) -> Result<T, FetchError> {
        let wrong = |reason: String| FetchError::Document { url: address.clone(), reason };
        let url = parse_server_url(&address).map_err(|error: NotAUrl| wrong(error.to_string()))?;
        let body = self.document(&url).await?;
        let metadata: Metadata =
            serde_json::from_value(body).map_err(|_| wrong("it is no metadata of an issuer".to_owned()))?;
        if metadata.issuer != self.options.issuer {
            return Err(wrong("it is the metadata of another issuer".to_owned()));
        }
        read(&metadata).map_err(wrong)
    }

    /// A key that signs, with the algorithm that belongs to its kind; others are passed over.
    fn known(&self, key: &Value) -> Option<VerificationKey> {
        let jwk: Jwk = serde_json::from_value(key.clone()).ok()?;
        let algorithm = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => Algorithm::RS256,
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => Algorithm::ES256,
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => Algorithm::EdDSA,
            // Shared secrets have no place in public.
            _ => return None,
        };
        let signs = jwk.common.public_key_use.as_ref().is_none_or(|purpose| *purpose == PublicKeyUse::Signature)
            && jwk.common.key_operations.as_ref().is_none_or(|list| list.contains(&KeyOperations::Verify))
            && jwk.common.key_algorithm.is_none_or(|named| named == algorithm.into());
        if !signs || !self.options.algorithms.contains(&algorithm) {
            return None;
        }
        Some(VerificationKey { kid: jwk.common.key_id.clone(), algorithm, key: DecodingKey::from_jwk(&jwk).ok()? })
    }

    async fn document(&self, url: &Url) -> Result<Value, FetchError> {
        let request = Request::new(Method::GET, url.clone());
        let answer = self.client.fetch_document(request, self.options.fetch_ms_max, DOCUMENT_BYTES_MAX).await;
        let (status, body) = answer.map_err(|source| FetchError::Request { url: url.to_string(), source })?;
        if status != StatusCode::OK {
            return Err(FetchError::Status { url: url.to_string(), status });
        }
        serde_json::from_slice(&body)
            .map_err(|_| FetchError::Document { url: url.to_string(), reason: "it is not JSON".to_owned() })
    }
}
