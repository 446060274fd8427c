//! POST: one message in, and what it leads to.
//!
//! Owns the choice between one JSON body and a stream, and what happens to a request whose client goes away. Invariant: a request of a
//! session is driven to its end with or without a reader; one without a session ends with its connection.

mod batch;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use tokio::sync::{oneshot, watch};

use crate::answer::{AnswerBody, Recipient};
use crate::ending::answered_at_end;
use crate::refusal::{Refusal, request_id, retry_after};
use crate::session::{LiveSession, SessionRequest};
use crate::sse::EventLog;
use bulkhead_audit::Entry;
use bulkhead_domain::byte_order_mark;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::rights::Rights;
use bulkhead_domain::task::Era;
use bulkhead_identity::auth::{Caller, Revalidation};
use bulkhead_limits::tenant_usage::UsageCounts;
use bulkhead_limits::{Full, Permit};
use bulkhead_protocol::{
    Batch, EncodedMessage, Envelope, Exchange, Frame, INLINE_BYTES_MAX, Peer, Received, Rejection, Session,
};

use super::body::{self, Arrived, WholeBody};
use super::endpoint::refused;
use super::stream::{self, Direct, Reader};
use super::{Server, checks, json_response, refuse};
use bulkhead_net::server::WorkerPreference;

/// A POST of a caller that was let in.
pub(super) struct IncomingPost<'a> {
    pub(super) server: &'a Arc<Server>,
    pub(super) caller: &'a Caller,
    pub(super) headers: &'a HeaderMap,
    pub(super) preference: &'a WorkerPreference,
}

/// A POST goes no further, and this answers it.
struct Ended(Box<Response>);

impl From<Refusal> for Ended {
    fn from(refusal: Refusal) -> Self {
        Self(Box::new(refuse(&refusal)))
    }
}

impl From<Response> for Ended {
    fn from(response: Response) -> Self {
        Self(Box::new(response))
    }
}

/// A message that was parsed.
struct ParsedMessage {
    envelope: Envelope,
    is_large: bool,
    /// By its headers and by itself.
    is_legacy: bool,
}

impl IncomingPost<'_> {
    /// Reads the message, and answers it.
    pub(super) async fn answer(self, body: Body, counts: Option<&UsageCounts>) -> Response {
        self.try_answer(body, counts).await.unwrap_or_else(|Ended(response)| *response)
    }

    async fn try_answer(&self, body: Body, counts: Option<&UsageCounts>) -> Result<Response, Ended> {
        let Self { server, caller, headers, .. } = *self;
        checks::check_content_type(headers)?;
        self.check_coding()?;
        let accepts = checks::accepts_answers(headers)?;
        let mut body = self.read(body).await?;
        if let Some(counts) = counts {
            counts.add_bytes_in(body.bytes.len() as u64);
        }
        body.bytes = body.bytes.slice(byte_order_mark(&body.bytes)..);
        if checks::is_legacy(headers)
            && Batch::begins(&body.bytes)
            && let Some(live) = self.session().await?.filter(|live| live.session.takes_batches())
        {
            return Ok(server.batch(caller, headers, live, body, accepts.events).await?);
        }
        let message = self.parse(body.bytes).await?;
        let live = if message.is_legacy { self.session().await? } else { None };
        if message.is_legacy {
            server.check_version(headers)?;
        }
        let held = self.admit(body.place, &message, live.as_ref())?;
        // Only a subscription ends with a result of its own when its credential does.
        let (end, ends) = checks::listens(headers).then(|| watch::channel(false)).unzip();
        let full = server.quota.full_of_answers(&caller.requestor);
        let sender = Sender {
            requestor: caller.requestor,
            rights: caller.rights.clone(),
            full,
            reads_events: accepts.events,
            ends,
        };
        let session = live.as_ref().map(|live| live.session.clone());
        let ReceivedMessage { received, request } = self.receive(message, sender, session).await?;
        match received {
            Received::Exchange(exchange) => {
                let exchange = answered_at_end(exchange, request.id(), &server.phase);
                let work = RequestWork::new(exchange, held, server);
                let target = ReplyTarget { caller, live, request, end, events: accepts.events };
                Ok(server.drive(work, target).await)
            }
            Received::Opened { session, reply } => Ok(server.opened(caller.requestor, session, reply, request).await?),
            Received::Accepted => {
                server.save(live).await;
                Ok(accepted())
            }
            Received::Settling(work) => {
                let server = Arc::clone(server);
                // The client may be gone before it is done.
                let settled = tokio::spawn(async move {
                    work.await;
                    server.save(live).await;
                    drop(held);
                });
                // Should it fail, it is as if the answer had never come: the question stays open.
                let _ = settled.await;
                Ok(accepted())
            }
            Received::Rejected { rejection, body } => Ok(server.rejected(&caller.requestor, rejection, body)),
        }
    }

    fn check_coding(&self) -> Result<(), Ended> {
        checks::check_coding(self.headers).map_err(|refusal| {
            let mut response = refuse(&refusal);
            response.headers_mut().insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            response.into()
        })
    }

    async fn session(&self) -> Result<Option<Arc<LiveSession>>, Refusal> {
        self.server.session(&self.caller.requestor, self.headers).await
    }

    async fn read(&self, body: Body) -> Result<WholeBody, Ended> {
        let Self { server, caller, headers, preference } = *self;
        let large = match body::begin(body, headers, server.options.body_bytes_max).await? {
            Arrived::Small(bytes) => return Ok(WholeBody { bytes, place: None }),
            Arrived::Large(large) => large,
        };
        preference.set_large_body(true).await;
        // What is rare is boxed, so that the usual request is not as large.
        let revalidation = Revalidation::new(&server.authenticator, caller, checks::listens(headers), &server.now);
        let mut revalidation = Box::new(revalidation);
        tokio::select! {
            biased;
            taken = Box::pin(server.take_in(&caller.requestor, large)) => Ok(taken?),
            // A body may take longer than its credential is good for.
            unauthorized = revalidation.ended() => Err(server.challenge(&unauthorized).into()),
        }
    }

    async fn parse(&self, bytes: Bytes) -> Result<ParsedMessage, Refusal> {
        // What is modern, by its headers or by its body alone, knows no sessions; the latter is refused by the protocol.
        let is_legacy = checks::is_legacy(self.headers);
        let is_large = bytes.len() > INLINE_BYTES_MAX;
        let envelope = if is_large {
            let parse = move || {
                let envelope = Envelope::parse(bytes);
                // It is kept with the envelope, and takes a look at all of the message.
                let _ = is_legacy.then(|| envelope.era());
                envelope
            };
            self.server.offload(&self.caller.requestor, parse).await?
        } else {
            Envelope::parse(bytes)
        };
        let is_legacy = is_legacy && envelope.era() == Era::Legacy;
        Ok(ParsedMessage { envelope, is_large, is_legacy })
    }

    /// Takes a place among the open requests, unless the body has one already.
    fn admit(
        &self,
        place: Option<Permit>,
        message: &ParsedMessage,
        live: Option<&Arc<LiveSession>>,
    ) -> Result<RequestGuard, Ended> {
        let admitted = place.map_or_else(|| self.server.quota.admit_and_open(&self.caller.requestor), Ok);
        match (admitted, live) {
            (Ok(place), Some(live)) => Ok(RequestGuard::Session(live.begin_in(&self.server.now, place))),
            (Ok(place), None) => Ok(RequestGuard::Connection(place)),
            (Err(refusal), _) => {
                // Clients of the older revisions take a status for a broken connection.
                let id = request_id(&message.envelope);
                let status = if message.is_legacy && id.is_some() { StatusCode::OK } else { refusal.status };
                Err(refusal.to(id).at(status).response().into())
            }
        }
    }

    async fn receive(
        &self,
        message: ParsedMessage,
        sender: Sender,
        session: Option<Arc<Session>>,
    ) -> Result<ReceivedMessage, Refusal> {
        let Self { server, caller, headers, .. } = *self;
        let ParsedMessage { envelope, is_large, .. } = message;
        if !is_large {
            let received = server.mcp.receive(sender.peer(session, headers), &envelope);
            return Ok(ReceivedMessage { received, request: RequestRef::Envelope(envelope) });
        }
        let mcp = Arc::clone(&server.mcp);
        let headers = headers.clone();
        let receive = move || {
            let received = mcp.receive(sender.peer(session, &headers), &envelope);
            ReceivedMessage { received, request: RequestRef::Id(request_id(&envelope)) }
        };
        server.offload(&caller.requestor, receive).await
    }
}

/// What became of a message, and how its request is named.
struct ReceivedMessage {
    received: Received,
    request: RequestRef,
}

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
        let (first, place) = loop {
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
            // The call and whoever reads its stream come to their ends apart, so the latter has a place of its own. The call has begun
            // and is not refused any more: without room for a stream, its answer comes alone.
            match live.as_ref().map(|live| live.begin(&self.now, &self.quota)).transpose() {
                Ok(place) => break (first, place),
                Err(_) => streams = false,
            }
        };
        let revalidation =
            revalidation.unwrap_or_else(|| Revalidation::new(&self.authenticator, caller, tells, &self.now));
        let Some((live, open)) = live.zip(place) else {
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
        let (line, place) = match line.is_small() {
            true => (line, None),
            false => self.recipient(requestor, request).response(line),
        };
        let mut response = Response::new(Body::new(AnswerBody::new(line, (held, place))));
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

/// A message on its way. If it belongs to a session and is dropped before its end, a task of its own takes over; so nothing has to be
/// spawned for the many requests whose client just waits for the answer.
struct RequestWork {
    /// `None` once it is over, or handed on.
    exchange: Option<Exchange>,
    /// `None` once it was handed on.
    held: Option<RequestGuard>,
    /// Where frames go when the request is no longer driven by its connection; nowhere if the client never saw an event id.
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
