//! Opaque tokens: their issuer is asked what they are worth (RFC 7662).
//!
//! Owns the question, the host's own credentials for it, and the answers for a while. Must not keep a token: answers are found by
//! its hash. Invariant: a good answer is believed for at most `cache_ms` and never beyond the token's own end; answers in memory and
//! questions under way are bounded, and so is how long a request waits for one: an issuer that does not answer is left alone for
//! `keys_retry_ms`.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::StatusCode;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use super::claims::{Claims, Named, Proof};
use super::oauth::IntrospectionOptions;
use super::{Denied, IssuerOptions};
use crate::domain::UnixMs;
use crate::outward::request::{Reach, RequestError};
use crate::transport::Now;

/// Answers in memory. Stops a flood of tokens from growing the host.
const ANSWERS_MAX: usize = 10_000;
/// A bad answer is believed for at most this long: the token may be about to become good.
const REFUSAL_MS_MAX: u64 = 5_000;
/// Questions at a time. Stops a flood of tokens from being one at the issuer.
const QUESTIONS_MAX: usize = 16;

type Digest = [u8; 32];

struct Answer {
    /// `None`: not valid.
    proof: Option<Proof>,
    until: UnixMs,
}

impl Answer {
    fn given(&self) -> Result<(Proof, UnixMs), Denied> {
        self.proof.clone().map(|proof| (proof, self.until)).ok_or(Denied::Invalid)
    }
}

/// Why a question brought nothing; for the log.
#[derive(Debug, thiserror::Error)]
enum QuestionError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("status {0}")]
    Status(StatusCode),
    #[error("the answer does not say whether the token is active")]
    Answer,
    #[error("too many questions were waiting for an answer")]
    Busy,
    #[error("it has just failed to answer")]
    Resting,
}

impl QuestionError {
    /// Whether the next question would fare no better. An answer that displeases may be due to the token alone: whoever sends such
    /// tokens must not shut everybody else out.
    fn is_of_the_issuer(&self) -> bool {
        match self {
            Self::Request(_) => true,
            Self::Status(status) => matches!(
                *status,
                StatusCode::TOO_MANY_REQUESTS
                    | StatusCode::BAD_GATEWAY
                    | StatusCode::SERVICE_UNAVAILABLE
                    | StatusCode::GATEWAY_TIMEOUT
            ),
            Self::Answer | Self::Busy | Self::Resting => false,
        }
    }
}

pub(super) struct Introspection {
    how: IntrospectionOptions,
    /// Marked as sensitive.
    authorization: HeaderValue,
    options: Arc<IssuerOptions>,
    reach: Reach,
    now: Now,
    answers: Mutex<HashMap<Digest, Answer>>,
    questions: Semaphore,
    /// When the issuer failed last; 0: never.
    failed_at: AtomicU64,
}

impl Introspection {
    pub(super) fn new(
        how: IntrospectionOptions,
        client_secret: &str,
        options: Arc<IssuerOptions>,
        reach: Reach,
        now: Now,
    ) -> Self {
        let credentials = format!("{}:{}", form(&how.client_id), form(client_secret));
        let basic = format!("Basic {}", STANDARD.encode(credentials));
        // Base64 is always a header's value.
        let mut authorization = HeaderValue::from_str(&basic).unwrap_or(HeaderValue::from_static("Basic"));
        authorization.set_sensitive(true);
        let answers = Mutex::new(HashMap::new());
        let (questions, failed_at) = (Semaphore::new(QUESTIONS_MAX), AtomicU64::new(0));
        Self { how, authorization, options, reach, now, answers, questions, failed_at }
    }

    /// What a token proves, and until when that is believed.
    pub(super) async fn ask(&self, token: &str) -> Result<(Proof, UnixMs), Denied> {
        let digest: Digest = Sha256::digest(token).into();
        if let Some(known) = self.known(&digest) {
            return known;
        }
        self.check_rested()?;
        let patience = Duration::from_millis(self.options.fetch_ms_max);
        let turn = tokio::time::timeout(patience, self.questions.acquire()).await;
        let Ok(Ok(_turn)) = turn else { return Err(self.unavailable(&QuestionError::Busy)) };
        // Several requests of one client come at once: the first has asked for all of them.
        if let Some(known) = self.known(&digest) {
            return known;
        }
        self.check_rested()?;
        let proof = self.question(token).await.map_err(|error| {
            if error.is_of_the_issuer() {
                self.failed_at.store((self.now)(), Ordering::Release);
            }
            self.unavailable(&error)
        })?;
        self.remember(digest, proof)
    }

    /// Refuses at once for a while after the issuer failed.
    fn check_rested(&self) -> Result<(), Denied> {
        let failed_at = self.failed_at.load(Ordering::Acquire);
        if failed_at != 0 && (self.now)().saturating_sub(failed_at) < self.options.keys_retry_ms {
            return Err(self.unavailable(&QuestionError::Resting));
        }
        Ok(())
    }

    fn known(&self, digest: &Digest) -> Option<Result<(Proof, UnixMs), Denied>> {
        let now = (self.now)();
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.get(digest).filter(|answer| now < answer.until).map(Answer::given)
    }

    fn remember(&self, digest: Digest, proof: Option<Proof>) -> Result<(Proof, UnixMs), Denied> {
        let now = (self.now)();
        let until = match &proof {
            Some(proof) => now.saturating_add(self.how.cache_ms).min(proof.expires_at),
            None => now.saturating_add(self.how.cache_ms.min(REFUSAL_MS_MAX)),
        };
        let answer = Answer { proof, until };
        let given = answer.given();
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= ANSWERS_MAX {
            answers.retain(|_, answer| now < answer.until && answer.proof.is_some());
        }
        if answers.len() < ANSWERS_MAX {
            answers.insert(digest, answer);
        }
        given
    }

    /// Asks; `Ok(None)`: the issuer, or what it says of the token, refuses it.
    async fn question(&self, token: &str) -> Result<Option<Proof>, QuestionError> {
        let body = Bytes::from(format!("token={}&token_type_hint=access_token", form(token)));
        let headers = [
            (AUTHORIZATION, self.authorization.clone()),
            (CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded")),
        ];
        let (status, body) = self.reach.post(&self.how.url, &headers, body).await?;
        if status != StatusCode::OK {
            return Err(QuestionError::Status(status));
        }
        let Ok(active) = serde_json::from_slice::<Active>(&body) else {
            return Err(QuestionError::Answer);
        };
        if !active.active {
            return Ok(None);
        }
        let judged = serde_json::from_slice::<Claims>(&body)
            .map_err(|_| "the answer cannot be read")
            .and_then(|claims| claims.check(&self.options, Named::IfAtAll, (self.now)()));
        Ok(judged.map_err(|reason| tracing::debug!(issuer = self.options.issuer, reason, "refused a token")).ok())
    }

    fn unavailable(&self, error: &QuestionError) -> Denied {
        let incident = format!("{:08x}", getrandom::u32().unwrap_or_default());
        tracing::error!(
            issuer = self.options.issuer,
            incident,
            %error,
            "the issuer does not say what a token is worth"
        );
        Denied::Unavailable { incident }
    }
}

#[derive(Deserialize)]
struct Active {
    active: bool,
}

/// A text as a value of a form.
fn form(text: &str) -> String {
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
    fn a_value_of_a_form_cannot_be_two() {
        assert_eq!(super::form("a&b=c +/ü"), "a%26b%3Dc%20%2B%2F%C3%BC");
    }
}
