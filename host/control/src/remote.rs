//! Administration over the network: the administrators' commands on a listener of their own.
//!
//! Owns that listener and its one credential, which has nothing to do with those of requestors. Must not serve MCP, nor
//! any command that names a path of this machine. Invariant: a connection costs a permit and bounded time and bytes
//! before its credential is checked; the credential is compared in constant time and is in no log.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;

use super::listener::{ConnectionBounds, FAILURES_PER_MINUTE_MAX, OperatorListener, Responder, refuse_pages};
use super::{Answer, ControlError, Operator, REQUEST_BYTES_MAX, wire};
use bulkhead_audit::Audit;
use bulkhead_limits::failures::Failures;
use bulkhead_net::server::{Certificate, RequestBody};

/// Where commands are taken.
pub const PATH: &str = "/admin";

/// Connections at a time; more wait in the kernel.
const CONNECTIONS_MAX: u32 = 32;
/// Connections of administrators from one address: one address without a credential must not keep administrators out.
const CONNECTIONS_PER_ADDRESS_MAX: u32 = 4;
/// For a body.
const ARRIVAL: Duration = Duration::from_secs(10);
/// A whole connection. Stops those who keep the few that there are.
const CONNECTION: Duration = Duration::from_secs(300);
/// SHA-256 of the token that administrators show.
#[derive(Clone, Copy)]
pub struct AdminTokenDigest([u8; 32]);

impl AdminTokenDigest {
    /// As it was made of a token elsewhere.
    pub fn of_digest(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    pub fn of_token(token: &str) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// The digest itself, for who keeps something that must end with the token.
    pub fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    /// Looks at every byte, whatever the first ones say.
    pub fn fits(&self, token: &str) -> bool {
        let Self(given) = Self::of_token(token);
        let difference = self.0.iter().zip(given).fold(0_u8, |difference, (ours, theirs)| difference | (ours ^ theirs));
        std::hint::black_box(difference) == 0
    }
}

/// What the listener works with.
pub struct RemoteParts {
    pub listener: TcpListener,
    pub secret: AdminTokenDigest,
    /// Without one, commands come in the clear: on this machine only.
    pub certificate: Option<Arc<Certificate>>,
    pub operator: Arc<dyn Operator>,
    pub audit: Audit,
}

/// The listener. Dropping it ends it with its connections.
pub struct Remote {
    _listener: OperatorListener,
}

impl Remote {
    /// # Errors
    /// The certificate cannot be served with.
    pub fn spawn(parts: RemoteParts) -> Result<Self, rustls::Error> {
        let RemoteParts { listener, secret, certificate, operator, audit } = parts;
        let failures = Failures::new(FAILURES_PER_MINUTE_MAX);
        let bounds = ConnectionBounds {
            total: CONNECTIONS_MAX,
            per_address: CONNECTIONS_PER_ADDRESS_MAX,
            lifetime: Some(CONNECTION),
        };
        let responder = AdminListener { secret, is_in_the_clear: certificate.is_none(), operator, audit, failures };
        Ok(Self { _listener: OperatorListener::spawn(listener, certificate, bounds, responder)? })
    }
}

/// Who is let in, and what is done for them.
struct AdminListener {
    secret: AdminTokenDigest,
    /// Then it listens on this machine only.
    is_in_the_clear: bool,
    operator: Arc<dyn Operator>,
    audit: Audit,
    failures: Failures,
}

impl Responder for AdminListener {
    type Body = Full<Bytes>;

    async fn respond(&self, request: Request<RequestBody>, peer: IpAddr) -> Response<Full<Bytes>> {
        if request.uri().path() != PATH {
            return refusal(StatusCode::NOT_FOUND, "there is nothing at this path");
        }
        if request.method() != Method::POST {
            return refusal(StatusCode::METHOD_NOT_ALLOWED, "commands are sent with POST");
        }
        if let Err(why) = refuse_pages(&request, self.is_in_the_clear) {
            return refusal(StatusCode::FORBIDDEN, why);
        }
        if !bearer(request.headers()).is_some_and(|token| self.secret.fits(token)) {
            self.audit.note_seldom("admin.refused", "an invalid credential");
            tracing::warn!(%peer, "somebody without the credential of administrators was refused");
            return match self.failures.note(peer) {
                Ok(()) => refusal(StatusCode::UNAUTHORIZED, "the credential of an administrator is needed"),
                Err(exceeded) => {
                    let mut response = refusal(StatusCode::TOO_MANY_REQUESTS, "too many invalid credentials");
                    let seconds = HeaderValue::from(exceeded.retry_after_ms.div_ceil(1_000));
                    response.headers_mut().insert(header::RETRY_AFTER, seconds);
                    response
                }
            };
        }
        let bytes_max = usize::try_from(REQUEST_BYTES_MAX).unwrap_or(usize::MAX);
        let body = tokio::time::timeout(ARRIVAL, Limited::new(request.into_body(), bytes_max).collect());
        let Ok(Ok(body)) = body.await else {
            return refusal(StatusCode::BAD_REQUEST, "a command is one JSON object of bounded size");
        };
        let command = match wire::read_request(&body.to_bytes()) {
            Ok(command) => command,
            Err(refused) => return refusal(StatusCode::BAD_REQUEST, &refused.to_string()),
        };
        if !command.is_for_administrators() {
            return refusal(StatusCode::FORBIDDEN, "this command is for the machine of the host only");
        }
        let operator = Arc::clone(&self.operator);
        // Its peer may go before it is done, and what was begun must get to its line in the audit log.
        let done = tokio::spawn(async move {
            let who = format!("administrator at {peer}");
            operator.execute_for(&who, command).await
        });
        let done =
            done.await.unwrap_or_else(|_| Err(ControlError::Failed("the host failed at this command".to_owned())));
        respond(StatusCode::OK, done)
    }

    fn forget_idle(&self) {
        self.failures.forget_idle();
    }
}

pub(crate) fn bearer(headers: &http::HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// Ends the connection, too: a refused client must not keep it.
fn refusal(status: StatusCode, message: &str) -> Response<Full<Bytes>> {
    let mut response = respond(status, Err(ControlError::Invalid(message.to_owned())));
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

fn respond(status: StatusCode, done: Result<Answer, ControlError>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(wire::write_reply(done).unwrap_or_default()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admin_token_must_match_exactly() {
        let secret = AdminTokenDigest::of_token("correct horse battery staple");
        assert!(secret.fits("correct horse battery staple"));
        for wrong in ["", "correct horse battery stapl", "correct horse battery staple ", "x"] {
            assert!(!secret.fits(wrong), "{wrong}");
        }
        assert!(AdminTokenDigest::of_digest(Sha256::digest("a").into()).fits("a"));
    }
}
