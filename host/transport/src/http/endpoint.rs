//! The MCP endpoint: who asks, in which session, for what.
//!
//! Owns the order of checks: source, credential, headers, session, and only then the body. Invariant: a refusal says
//! nothing about whether another requestor's session exists.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};

use crate::answer::counted;
use crate::refusal::{Refusal, RefusedBy};
use crate::session::{self, LiveSession};
use crate::sse::EventId;
use bulkhead_domain::requestor::Requestor;
use bulkhead_identity::auth::{Caller, Revalidation, Sender, Unauthorized};

use super::post::IncomingPost;
use super::stream::{self, Reader, Source};
use super::{Server, body, checks, refuse};
use bulkhead_net::server::WorkerPreference;

/// The methods of the endpoint.
pub(super) const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE, OPTIONS");
/// Those of a revision without sessions.
const MODERN_METHODS: HeaderValue = HeaderValue::from_static("POST, OPTIONS");

/// Standalone streams that one session may have open. One of them gets the messages, the others wait for it to go.
const STANDALONE_MAX: usize = 8;

/// Serves one request.
pub(super) async fn endpoint(
    server: &Arc<Server>,
    request: Request<Body>,
    peer: IpAddr,
    preference: &WorkerPreference,
) -> Response {
    let (parts, body) = request.into_parts();
    preference.set_large_body(body::is_large(&parts.headers)).await;
    if !server.proxies.may_ask(peer) {
        return refuse(&Refusal::new(
            StatusCode::FORBIDDEN,
            "Requests come in the clear here, so they are taken from the configured proxies only",
        ));
    }
    if let Err(refusal) = server.check_source(&parts) {
        return refuse(&refusal);
    }
    if server.is_draining() {
        return refuse(&Refusal::draining());
    }
    let mut response = if parts.method == Method::OPTIONS {
        server.preflight(&parts.headers)
    } else if checks::is_known_method(&parts.method) {
        let client = server.proxies.client(peer, &parts.headers);
        let sender = Sender { address: client, failures: &server.failures };
        match server.authenticator.caller(&parts.headers, sender).await {
            Ok(caller) => server.answer(caller, &parts, body, preference).await,
            Err(unauthorized) => {
                tracing::debug!(%client, ?unauthorized, "did not let a request in");
                server.audit.note_seldom("access.refused", unauthorized.reason());
                server.quota.metrics.credential_refused(unauthorized.reason());
                server.unauthorized(&unauthorized, client)
            }
        }
    } else {
        not_allowed("The endpoint answers POST, GET and DELETE", METHODS)
    };
    if let Some(&RefusedBy(limit)) = response.extensions().get() {
        server.quota.metrics.refused(limit);
    }
    server.add_cors(&parts.headers, &mut response);
    response
}

fn not_allowed(message: &'static str, methods: HeaderValue) -> Response {
    let mut response = refuse(&Refusal::new(StatusCode::METHOD_NOT_ALLOWED, message));
    response.headers_mut().insert(header::ALLOW, methods);
    response
}

impl Server {
    /// A client that keeps sending invalid credentials is told to wait; a valid one from the same address is accepted
    /// all the same, unless an issuer would have to be asked whether it is valid.
    fn unauthorized(&self, unauthorized: &Unauthorized, client: IpAddr) -> Response {
        let noted = if unauthorized.is_a_failed_try() { self.failures.note(client) } else { Ok(()) };
        match noted {
            Err(exceeded) => refuse(&Refusal::failures(exceeded.per_minute, exceeded.retry_after_ms)),
            Ok(()) => self.challenge(unauthorized),
        }
    }

    pub(super) fn challenge(&self, unauthorized: &Unauthorized) -> Response {
        let mut response = refuse(&Refusal::from(unauthorized));
        if let Some(challenge) = self.authenticator.challenge(unauthorized) {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }

    async fn answer(
        self: &Arc<Self>,
        caller: Caller,
        parts: &Parts,
        body: Body,
        preference: &WorkerPreference,
    ) -> Response {
        let requestor = caller.requestor;
        let headers = &parts.headers;
        let counts = self.quota.counts(&requestor);
        let answer = match parts.method {
            Method::POST => {
                let post = IncomingPost { server: self, caller: &caller, headers, preference };
                Ok(post.answer(body, counts.as_deref()).await)
            }
            // What streams and sessions are for came with the older revisions and went with them.
            _ if !checks::is_legacy(headers) => {
                return not_allowed("This revision knows POST only", MODERN_METHODS);
            }
            Method::DELETE => self.delete(&requestor, headers).await,
            _ => self.get(&caller, headers).await,
        };
        let response = answer.unwrap_or_else(|refusal| refuse(&refusal));
        let Some(counts) = counts else { return response };
        if response.extensions().get::<RefusedBy>().is_some() {
            counts.add_refusal();
        }
        counted(response, counts, &self.quota.streams)
    }

    /// The session that a request names; `None` if it names none.
    pub(super) async fn session(
        &self,
        requestor: &Requestor,
        headers: &HeaderMap,
    ) -> Result<Option<Arc<LiveSession>>, Refusal> {
        let Some(id) = checks::session_id(headers)? else { return Ok(None) };
        match self.sessions.find(requestor, id).await {
            Ok(Some(live)) => checks::check_agreed(headers, &live.session).map(|()| Some(live)),
            Ok(None) => Err(Refusal::session_unknown()),
            Err(error) => Err(failure(&error)),
        }
    }

    async fn required_session(&self, requestor: &Requestor, headers: &HeaderMap) -> Result<Arc<LiveSession>, Refusal> {
        let missing = || {
            Refusal::new(
                StatusCode::BAD_REQUEST,
                "The Mcp-Session-Id header is missing: initialize gives a session its id",
            )
        };
        self.session(requestor, headers).await?.ok_or_else(missing)
    }

    async fn delete(&self, requestor: &Requestor, headers: &HeaderMap) -> Result<Response, Refusal> {
        self.check_version(headers)?;
        let live = self.required_session(requestor, headers).await?;
        self.sessions.end(&live).await;
        let mut response = Response::default();
        *response.status_mut() = StatusCode::NO_CONTENT;
        Ok(response)
    }

    async fn get(self: &Arc<Self>, caller: &Caller, headers: &HeaderMap) -> Result<Response, Refusal> {
        let requestor = &caller.requestor;
        if !checks::accepts(headers).events {
            return Err(Refusal::new(
                StatusCode::NOT_ACCEPTABLE,
                "GET answers with events: send Accept: text/event-stream",
            ));
        }
        self.check_version(headers)?;
        let live = self.required_session(requestor, headers).await?;
        self.quota.admit(requestor)?;
        let last = match checks::last_event_id(headers)? {
            None => None,
            Some(text) => Some(EventId::parse(text).ok_or_else(|| {
                Refusal::new(
                    StatusCode::BAD_REQUEST,
                    "The Last-Event-ID header is not the id of an event from this host",
                )
            })?),
        };
        // Answers that are resumed are those of calls that were let in.
        let tells = last.as_ref().is_none_or(|last| last.request.is_none());
        let revalidation = Revalidation::new(&self.authenticator, caller, tells, &self.now);
        match last {
            None => self.standalone(&live, caller, revalidation, None),
            Some(last) => self.resume(&live, caller, revalidation, &last),
        }
    }

    /// Goes on with the stream that the event belongs to, and with no other.
    fn resume(
        self: &Arc<Self>,
        live: &Arc<LiveSession>,
        caller: &Caller,
        revalidation: Revalidation,
        last: &EventId,
    ) -> Result<Response, Refusal> {
        let log = live.streams.find(self.sessions.epoch, last);
        if last.request.is_none() {
            // What was missed of a standalone stream that is gone is gone; the stream itself goes on as a new one.
            return self.standalone(live, caller, revalidation, log.map(|log| (log, last.number)));
        }
        let found = log.and_then(|log| Some((log.resume(last.number)?, log)));
        let Some((after, log)) = found else {
            let lost = Refusal::stream_lost().to(last.request.clone()).body();
            return Ok(stream::response(Body::from(format!("data: {lost}\n\n"))));
        };
        let open = live.begin(&self.now, &self.quota).map_err(Refusal::quota)?;
        Ok(stream::response(Reader::new(log, after, None, open, revalidation, self.keepalive()).into_body()))
    }

    /// Opens a stream for what belongs to no request, or goes on with one. The newest of them gets the messages.
    fn standalone(
        self: &Arc<Self>,
        live: &Arc<LiveSession>,
        caller: &Caller,
        revalidation: Revalidation,
        resumed: Option<(Arc<crate::sse::EventLog>, u64)>,
    ) -> Result<Response, Refusal> {
        if live.standalone().borrow().len() >= STANDALONE_MAX {
            return Err(Refusal::new(
                StatusCode::CONFLICT,
                format!("The session has {STANDALONE_MAX} standalone streams open already: close one first"),
            ));
        }
        let open = live.begin(&self.now, &self.quota).map_err(Refusal::quota)?;
        let resumed = resumed.and_then(|(log, number)| Some((log.resume(number)?, log)));
        let (after, log, opening) = match resumed {
            Some((after, log)) => {
                log.reopen();
                (after, log, None)
            }
            None => {
                let log = live.streams.open(self.sessions.epoch, None, live.kept());
                let opening = stream::opening(&log, live.session.protocol_version());
                (0, log, Some(opening))
            }
        };
        let source = Source::new(Arc::clone(&self.mcp), live.clone(), caller.rights.clone(), self.phase.subscribe());
        let reader = Reader::new(log, after, opening, open, revalidation, self.keepalive());
        let reader = reader.with_source(source, self.now.clone());
        Ok(stream::response(reader.into_body()))
    }

    pub(super) fn keepalive(&self) -> Duration {
        Duration::from_millis(self.options.sse_keepalive_ms)
    }
}

/// A quota or a failure of the session table, as the requestor may see it.
pub(super) fn refused(error: &session::Error) -> Refusal {
    match error {
        session::Error::Full(full) => Refusal::quota(*full),
        session::Error::Store(bulkhead_store::Error::Unavailable { retry_after_ms }) => {
            Refusal::store_unavailable(*retry_after_ms)
        }
        session::Error::Store(error) => failure(error),
    }
}

/// Logs what broke and gives the requestor an id to ask the operator about.
fn failure(error: &bulkhead_store::Error) -> Refusal {
    let incident = format!("{:08x}", getrandom::u32().unwrap_or_default());
    tracing::error!(incident, %error, "a session could not be read");
    Refusal::host_failure(&incident)
}
