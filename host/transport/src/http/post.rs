//! POST: one message in, and what it leads to.
//!
//! Owns the choice between one JSON body and a stream, and what happens to a request whose client goes away. Invariant:
//! a request of a session is driven to its end with or without a reader; one without a session ends with its
//! connection.

mod batch;
mod incoming;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use futures::{FutureExt as _, StreamExt as _};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use tokio::sync::{oneshot, watch};

use crate::answer::{AnswerBody, Recipient};
use crate::refusal::{Refusal, request_id, retry_after};
use crate::session::{LiveSession, SessionRequest};
use crate::sse::EventLog;
use bulkhead_audit::Entry;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::rights::Rights;
use bulkhead_identity::auth::{Caller, Revalidation};
use bulkhead_limits::{Full, Permit};
use bulkhead_protocol::{EncodedMessage, Envelope, Exchange, Frame, Peer, Rejection, Session};

use super::endpoint::refused;
use super::stream::{self, Direct, Reader};
use super::{Server, checks, json_response};

pub(super) use incoming::IncomingPost;

/// Who is answered, and how.
struct ReplyTarget<'a> {
    caller: &'a Caller,
    live: Option<Arc<LiveSession>>,
    request: RequestRef,
    /// Asks a subscription for its result when the credential ends.
    end: Option<watch::Sender<bool>>,
    /// Whether the client reads events.
    events: bool,
}

impl Server {
    /// Does work on a large message in its tenant's turn.
    async fn offload<T: Send + 'static>(
        &self,
        requestor: &Requestor,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let (sender, mut receiver) = oneshot::channel();
        let done = self.mcp.offload(requestor, Box::new(move || drop(sender.send(work())))).await;
        done.ok().and_then(|()| receiver.try_recv().ok()).ok_or_else(unread)
    }

    async fn save(&self, live: Option<Arc<LiveSession>>) {
        if let Some(live) = live {
            self.sessions.save(&live).await;
        }
    }

    async fn opened(
        &self,
        requestor: Requestor,
        session: Arc<Session>,
        reply: String,
        request: RequestRef,
    ) -> Result<Response, Refusal> {
        if let Err(error) = self.sessions.insert(requestor, session.clone()).await {
            return Ok(refused(&error).to(request.id()).at(StatusCode::OK).response());
        }
        let mut response = json_response(StatusCode::OK, reply);
        match HeaderValue::from_str(session.id()) {
            Ok(id) => response.headers_mut().insert(checks::SESSION_ID, id),
            Err(_) => return Err(Refusal::host_failure("session id")),
        };
        Ok(response)
    }

    /// Waits for the first frame, and makes a body of it or a stream.
    async fn drive(self: &Arc<Self>, mut work: RequestWork, target: ReplyTarget<'_>) -> Response {
        let ReplyTarget { caller, live, request, end, events } = target;
        let tells = end.is_some();
        let mut revalidation = None;
        let mut streams = events;
        let (first, permit) = loop {
            let sse_after = Duration::from_millis(self.options.sse_after_ms);
            // Most answers are there at once, and need no timer.
            let frame = match work.frame().now_or_never() {
                Some(frame) => Some(frame),
                None => {
                    let revalidation = revalidation
                        .get_or_insert_with(|| Revalidation::new(&self.authenticator, caller, tells, &self.now));
                    tokio::select! {
                        biased;
                        frame = work.frame() => Some(frame),
                        // What is under way goes on as if the client had gone.
                        unauthorized = revalidation.ended() => return self.challenge(&unauthorized),
                        () = tokio::time::sleep(sse_after), if streams => None,
                    }
                }
            };
            let first = match frame {
                Some(Some(frame)) if frame.last => {
                    work.exchange = None;
                    if let Some(live) = &live {
                        self.sessions.save(live).await;
                    }
                    return match frame.rejection {
                        Some(rejection) => self.rejected(&caller.requestor, rejection, frame.message.into_text()),
                        None => self.answered(&caller.requestor, &request, frame.message, work.take().1),
                    };
                }
                Some(None) => {
                    work.exchange = None;
                    return unanswered(events);
                }
                // Somebody who reads no events gets the answer and nothing before it.
                Some(Some(_)) if !streams => continue,
                Some(first) => first,
                None => None,
            };
            // The call and whoever reads its stream come to their ends apart, so the latter has a place of its own. The
            // call has begun and is not refused any more: without room for a stream, its answer comes alone.
            match live.as_ref().map(|live| live.begin(&self.now, &self.quota)).transpose() {
                Ok(permit) => break (first, permit),
                Err(_) => streams = false,
            }
        };
        let revalidation =
            revalidation.unwrap_or_else(|| Revalidation::new(&self.authenticator, caller, tells, &self.now));
        let Some((live, open)) = live.zip(permit) else {
            let (exchange, held) = work.take();
            let recipient = self.recipient(&caller.requestor, &request);
            let frames = futures::stream::iter(first).chain(exchange).boxed();
            let direct = Direct::new(frames, held, revalidation, end, self.keepalive(), recipient);
            return stream::response(direct.into_body());
        };
        let log = live.streams.open(self.sessions.epoch, request.id().as_deref(), live.kept());
        let opening = stream::opening(&log, live.session.protocol_version());
        if let Some(Frame { message, last, .. }) = first {
            log.push(message, last);
        }
        let body = Reader::new(log.clone(), 0, Some(opening), open, revalidation, self.keepalive()).into_body();
        work.log = Some(log);
        // Dropping it starts the pump, as it would if the client had gone.
        drop(work);
        stream::response(body)
    }
}

impl Server {
    fn recipient(&self, requestor: &Requestor, request: &RequestRef) -> Recipient {
        Recipient { quota: Arc::clone(&self.quota), requestor: *requestor, id: request.id() }
    }

    /// A response alone. The request keeps its place until it was taken.
    fn answered(
        &self,
        requestor: &Requestor,
        request: &RequestRef,
        line: EncodedMessage,
        held: Option<RequestGuard>,
    ) -> Response {
        let (line, permit) = match line.is_small() {
            true => (line, None),
            false => self.recipient(requestor, request).response(line),
        };
        let mut response = Response::new(Body::new(AnswerBody::new(line, (held, permit))));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }

    fn note_forbidden(&self, requestor: &Requestor, tool: Option<&str>) {
        self.audit.note(|| {
            let entry = Entry::new("access.refused").by(requestor).because("insufficient scope");
            tool.iter().fold(entry, |entry, tool| entry.tool(tool))
        });
    }

    fn rejected(&self, requestor: &Requestor, rejection: Rejection, body: String) -> Response {
        let mut challenge = None;
        let mut retry_after_ms = None;
        let status = match rejection {
            Rejection::Malformed | Rejection::Unserved | Rejection::SessionRequired => StatusCode::BAD_REQUEST,
            Rejection::UnknownMethod => StatusCode::NOT_FOUND,
            Rejection::TooMany { retry_after_ms: ms } => {
                retry_after_ms = ms;
                StatusCode::TOO_MANY_REQUESTS
            }
            Rejection::Unavailable { retry_after_ms: ms } => {
                retry_after_ms = ms;
                StatusCode::SERVICE_UNAVAILABLE
            }
            Rejection::Forbidden { scopes, tool } => {
                self.note_forbidden(requestor, tool.as_deref());
                let resource = self.authenticator.resource();
                challenge = resource.and_then(|resource| resource.step_up(&scopes));
                StatusCode::FORBIDDEN
            }
        };
        let mut response = json_response(status, body);
        retry_after(&mut response, retry_after_ms);
        if let Some(challenge) = challenge {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

/// Which request is to be answered.
enum RequestRef {
    /// Small: it is kept, and seldom used.
    Envelope(Envelope),
    /// Large: it is not kept for that.
    Id(Option<String>),
}

impl RequestRef {
    fn id(&self) -> Option<String> {
        match self {
            Self::Envelope(envelope) => request_id(envelope),
            Self::Id(id) => id.clone(),
        }
    }
}

/// Who sent a message, and what is known of them beside it.
struct Sender {
    requestor: Requestor,
    rights: Rights,
    full: Option<Full>,
    reads_events: bool,
    ends: Option<watch::Receiver<bool>>,
}

impl Sender {
    fn peer(self, session: Option<Arc<Session>>, headers: &HeaderMap) -> Peer<'_> {
        let Self { requestor, rights, full, reads_events, ends } = self;
        let declared = Some(checks::declared(headers));
        let traceparent = headers.get("traceparent").and_then(|value| value.to_str().ok());
        Peer { requestor, rights, session, declared, traceparent, connection: None, full, reads_events, ends }
    }
}

/// The threads that read large messages are gone, or one broke on it.
fn unread() -> Refusal {
    let incident = format!("{:08x}", getrandom::u32().unwrap_or_default());
    tracing::error!(incident, "a large message could not be read");
    Refusal::host_failure(&incident)
}

/// The client cancelled its request: nothing answers it, and a stream without messages says just that.
fn unanswered(events: bool) -> Response {
    if events { stream::response(Body::empty()) } else { accepted() }
}

/// 202 Accepted with an empty body.
fn accepted() -> Response {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

/// The place of a message among the open requests, released when it is dropped.
pub(super) enum RequestGuard {
    /// It goes on without its client.
    Session(SessionRequest),
    /// It ends with its connection.
    Connection(#[expect(dead_code, reason = "held for its drop")] Permit),
}

/// A message on its way. If it belongs to a session and is dropped before its end, a task of its own takes over; so
/// nothing has to be spawned for the many requests whose client just waits for the answer.
struct RequestWork {
    /// `None` once it is over, or handed on.
    exchange: Option<Exchange>,
    /// `None` once it was handed on.
    held: Option<RequestGuard>,
    /// Where frames go when the request is no longer driven by its connection; nowhere if the client never saw an event
    /// id.
    log: Option<Arc<EventLog>>,
    server: Arc<Server>,
}

impl RequestWork {
    fn new(exchange: Exchange, held: RequestGuard, server: &Arc<Server>) -> Self {
        Self { exchange: Some(exchange), held: Some(held), log: None, server: Arc::clone(server) }
    }

    async fn frame(&mut self) -> Option<Frame> {
        self.exchange.as_mut()?.next().await
    }

    /// What is left to do, and the place that it takes up.
    fn take(&mut self) -> (Exchange, Option<RequestGuard>) {
        (self.exchange.take().unwrap_or_else(|| futures::stream::empty().boxed()), self.held.take())
    }
}

impl Drop for RequestWork {
    fn drop(&mut self) {
        let Some((RequestGuard::Session(open), exchange)) = self.held.take().zip(self.exchange.take()) else { return };
        // When the runtime is going down, nothing can be driven any more.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(pump(self.server.clone(), exchange, open, self.log.take()));
        }
    }
}

/// Drives a request of a session to its end, with or without a reader. Ends early with the session.
async fn pump(server: Arc<Server>, exchange: Exchange, open: SessionRequest, log: Option<Arc<EventLog>>) {
    tokio::select! {
        _ = open.live.ended.wait() => {}
        () = run_out(exchange, log.as_deref()) => {}
    }
    if let Some(log) = log {
        log.finish(server.now.steady());
    }
    server.sessions.save(&open.live).await;
}

async fn run_out(mut exchange: Exchange, log: Option<&EventLog>) {
    while let Some(frame) = exchange.next().await {
        let last = frame.last;
        if let Some(log) = log {
            log.push(frame.message, frame.last);
        }
        if last {
            return;
        }
    }
}
