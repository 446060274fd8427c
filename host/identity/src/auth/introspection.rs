//! Opaque tokens: their issuer is asked what they are worth (RFC 7662).
//!
//! Owns the question, the host's own credentials for it, and the answers for a while. Must not keep a token: answers
//! are found by its hash. Invariant: a good answer is believed for at most `cache_ms` and never beyond the token's own
//! end; answers in memory, questions under way (`line`) and lines in the log are bounded, and so is how long a request
//! waits: an issuer that does not answer is left alone for `keys_retry_ms`.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, StatusCode};
use parking_lot::Mutex;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::claims::{Claims, IssuerClaim, Proof, tell_refused};
use super::introspection_limiter::{IntrospectionLimiter, TokenReputation};
use super::issuer_options::{DOCUMENT_BYTES_MAX, IntrospectionOptions, IssuerOptions};
use super::verifier::{Denied, Limited, Sender, look_at};
use bulkhead_domain::UnixMs;
use bulkhead_domain::clock::SharedClock;
use bulkhead_net::client::{Client, ClientError, Request};

/// Answers in memory. Stops a flood of tokens from growing the host.
const ANSWERS_MAX: usize = 10_000;
/// A bad answer is believed for at most this long: the token may be about to become good.
const REFUSAL_MS_MAX: u64 = 5_000;

type Digest = [u8; 32];

struct CachedVerdict {
    /// `None`: not valid.
    proof: Option<Proof>,
    until: UnixMs,
}

impl CachedVerdict {
    fn given(&self) -> Result<(Proof, UnixMs), Denied> {
        self.proof.clone().map(|proof| (proof, self.until)).ok_or(Denied::Invalid)
    }

    fn is_of_a_token_that_lasts(&self, now: UnixMs) -> bool {
        self.proof.as_ref().is_some_and(|proof| now < proof.expires_at)
    }
}

/// Why a question brought nothing; for the log.
#[derive(Debug, thiserror::Error)]
enum IntrospectionError {
    #[error(transparent)]
    Request(#[from] ClientError),
    #[error("status {0}")]
    Status(StatusCode),
    #[error("the answer does not say whether the token is active")]
    Answer,
    #[error("too many questions were waiting for an answer")]
    Busy,
}

pub(super) struct Introspection {
    how: IntrospectionOptions,
    /// Marked as sensitive.
    authorization: HeaderValue,
    options: Arc<IssuerOptions>,
    client: Client,
    now: SharedClock,
    answers: Mutex<HashMap<Digest, CachedVerdict>>,
    line: IntrospectionLimiter,
    incident: Mutex<Incident>,
}

/// What the log calls the last failure.
#[derive(Default)]
struct Incident {
    id: String,
    at: UnixMs,
}

impl Introspection {
    pub(super) fn new(
        how: IntrospectionOptions,
        client_secret: &str,
        options: Arc<IssuerOptions>,
        client: Client,
        now: SharedClock,
    ) -> Self {
        let authorization = basic(&how.client_id, client_secret);
        let answers = Mutex::default();
        let incident = Mutex::default();
        Self { how, authorization, options, client, now, answers, line: IntrospectionLimiter::new(), incident }
    }

    /// What a token proves, and until when that is believed. Without a sender: of one that was good when its request
    /// began.
    pub(super) async fn ask(&self, token: &str, sender: Option<Sender<'_>>) -> Result<(Proof, UnixMs), Denied> {
        let digest: Digest = Sha256::digest(token).into();
        if let Some(known) = self.known(&digest) {
            return known;
        }
        let unknown = sender.filter(|_| !self.was_good(&digest));
        let reputation = unknown.map_or(TokenReputation::Known, |sender| TokenReputation::Unknown(sender.address));
        self.check_open(reputation, unknown)?;
        let timeout = Duration::from_millis(self.options.fetch_ms_max);
        let turn = tokio::time::timeout(timeout, self.line.turn(reputation)).await;
        let Ok(_turn) = turn else { return Err(self.unavailable(&IntrospectionError::Busy)) };
        // Several requests of one client come at once: the first has asked for all of them.
        if let Some(known) = self.known(&digest) {
            return known;
        }
        self.check_open(reputation, unknown)?;
        match self.introspect(token).await {
            Ok(proof) => self.remember(digest, proof),
            Err(error) => {
                self.rest(reputation, &error);
                Err(self.unavailable(&error))
            }
        }
    }

    /// Refuses at once for a while after the issuer failed, and on behalf of an address that has sent too many bad
    /// tokens.
    fn check_open(&self, reputation: TokenReputation, unknown: Option<Sender<'_>>) -> Result<(), Denied> {
        if let Some(exceeded) = unknown.and_then(|sender| sender.failures.exceeded(sender.address)) {
            return Err(Limited::Failures(exceeded).into());
        }
        let failed_at = self.line.failed_at(reputation);
        if failed_at != 0 && self.now.steady().saturating_sub(failed_at) < self.options.keys_retry_ms {
            return Err(Denied::Unavailable { incident: self.incident.lock().id.clone() });
        }
        Ok(())
    }

    /// Stops asking the issuer for a while where the next question would fail too. A refusal may be due to the token
    /// alone, and a rate limit to unknown tokens: a client that sends such tokens must not shut out the others.
    fn rest(&self, reputation: TokenReputation, error: &IntrospectionError) {
        let now = self.now.steady();
        match error {
            IntrospectionError::Status(StatusCode::TOO_MANY_REQUESTS) => self.line.too_many(reputation, now),
            IntrospectionError::Request(_)
            | IntrospectionError::Status(
                StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT,
            ) => self.line.failed(now),
            IntrospectionError::Status(_) | IntrospectionError::Answer | IntrospectionError::Busy => {}
        }
    }

    fn known(&self, digest: &Digest) -> Option<Result<(Proof, UnixMs), Denied>> {
        let now = self.now.steady();
        self.answers.lock().get(digest).filter(|answer| now < answer.until).map(CachedVerdict::given)
    }

    /// Whether the last answer was a good one. It may have grown old.
    fn was_good(&self, digest: &Digest) -> bool {
        let now = self.now.system();
        self.answers.lock().get(digest).is_some_and(|answer| answer.is_of_a_token_that_lasts(now))
    }

    fn remember(&self, digest: Digest, proof: Option<Proof>) -> Result<(Proof, UnixMs), Denied> {
        let now = self.now.steady();
        let until = match &proof {
            Some(proof) => look_at(&self.now, self.how.cache_ms, proof.expires_at),
            None => now.saturating_add(self.how.cache_ms.min(REFUSAL_MS_MAX)),
        };
        let answer = CachedVerdict { proof, until };
        let given = answer.given();
        let mut answers = self.answers.lock();
        if answers.len() >= ANSWERS_MAX {
            answers.retain(|_, answer| answer.is_of_a_token_that_lasts(self.now.system()));
        }
        if answers.len() >= ANSWERS_MAX {
            answers.retain(|_, answer| now < answer.until);
        }
        // A refusal takes the place of an answer about the same token, which must not let it in any more.
        if answers.len() < ANSWERS_MAX || answers.contains_key(&digest) {
            answers.insert(digest, answer);
        }
        given
    }

    /// Asks; `Ok(None)`: the issuer, or what it says of the token, refuses it.
    async fn introspect(&self, token: &str) -> Result<Option<Proof>, IntrospectionError> {
        let body = Bytes::from(format!("token={}&token_type_hint=access_token", form(token)));
        let request = Request {
            headers: vec![(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"))],
            authorization: Some(self.authorization.clone()),
            body,
            ..Request::new(Method::POST, self.how.url.clone())
        };
        let (status, body) = self.client.fetch_document(request, self.options.fetch_ms_max, DOCUMENT_BYTES_MAX).await?;
        if status != StatusCode::OK {
            return Err(IntrospectionError::Status(status));
        }
        // serde reads an array as a struct, too.
        let is_object = body.trim_ascii_start().starts_with(b"{");
        let Some(active) = is_object.then(|| serde_json::from_slice::<Active>(&body).ok()).flatten() else {
            return Err(IntrospectionError::Answer);
        };
        if !active.active {
            return Ok(None);
        }
        let judged = serde_json::from_slice::<Claims>(&body)
            .map_err(|_| "the answer cannot be read")
            .and_then(|claims| claims.check(&self.options, IssuerClaim::IfAtAll, self.now.system()));
        Ok(judged.map_err(|reason| tell_refused(&self.options.issuer, reason)).ok())
    }

    /// A client that sends tokens can cause this as often as it likes: there is one line for all of it in
    /// `keys_retry_ms`.
    fn unavailable(&self, error: &IntrospectionError) -> Denied {
        let now = self.now.steady();
        let mut incident = self.incident.lock();
        if incident.id.is_empty() || now.saturating_sub(incident.at) >= self.options.keys_retry_ms {
            let id = format!("{:08x}", getrandom::u32().unwrap_or_default());
            tracing::error!(
                issuer = self.options.issuer,
                incident = id,
                %error,
                "the issuer does not say what a token is worth"
            );
            *incident = Incident { id, at: now };
        }
        Denied::Unavailable { incident: incident.id.clone() }
    }
}

#[derive(Deserialize)]
struct Active {
    active: bool,
}

/// The credentials of a client at its issuer (RFC 6749, 2.3.1), marked as sensitive.
pub(super) fn basic(client_id: &str, client_secret: &str) -> HeaderValue {
    let credentials = format!("{}:{}", form(client_id), form(client_secret));
    let basic = format!("Basic {}", STANDARD.encode(credentials));
    // Base64 is always a header's value.
    let mut authorization = HeaderValue::from_str(&basic).unwrap_or(HeaderValue::from_static("Basic"));
    authorization.set_sensitive(true);
    authorization
}

/// A text as a value of a form.
pub(super) fn form(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    #[test]
    fn introspection_form_values_are_escaped() {
        assert_eq!(super::form("a&b=c +/ü"), "a%26b%3Dc%20%2B%2F%C3%BC");
    }
}
