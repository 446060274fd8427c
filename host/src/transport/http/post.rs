//! POST: one message in, and what it leads to.
//!
//! Owns the choice between one JSON body and a stream, and what happens to a request whose client goes away. Invariant: a request of a
//! session is driven to its end whoever is still there to read it; one without a session ends with its connection.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures::{FutureExt as _, StreamExt as _};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::BodyExt as _;
use tokio::sync::watch;

use crate::audit::Entry;
use crate::domain::requestor::Requestor;
use crate::protocol::{self, Exchange, Frame, Line, Rejection};
use crate::transport::allowance::Place;
use crate::transport::answer::{Answer, Recipient};
use crate::transport::auth::{Caller, Lasting};
use crate::transport::mcp::{Mcp, Peer, Received, Session as _};
use crate::transport::refusal::{Refusal, request_id, retry_after};
use crate::transport::session::{Live, Open};
use crate::transport::sse::Log;

use super::endpoint::refused;
use super::stream::{self, Direct, Reader};
use super::{Server, checks, json_response, refuse};

/// How long a body may take: enough for the largest one at a tenth of a megabyte per second and for the usual one at much less.
const BODY_MS_MAX: u64 = 60_000;
/// What is read and thrown away of a body that is too large: a client that is still writing would see a reset, not the answer.
const DISCARD_BYTES_MAX: usize = 64 << 20;
/// How long that may take, in milliseconds.
const DISCARD_MS_MAX: u64 = 2_000;

impl<M: Mcp> Server<M> {
    pub(super) async fn post(
        self: &Arc<Self>,
        caller: Caller,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Response, Refusal> {
        let requestor = caller.requestor;
        checks::check_content_type(headers)?;
        if let Err(refusal) = checks::check_coding(headers) {
            let mut response = refuse(&refusal);
            response.headers_mut().insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            return Ok(response);
        }
        let accepts = checks::accepts(headers);
        if !accepts.json {
            return Err(Refusal::new(
                StatusCode::NOT_ACCEPTABLE,
                "Answers come as JSON or events: send Accept: application/json, text/event-stream",
            ));
        }
        let message = read(body, headers, self.options.body_bytes_max).await?;
        // What is modern, by its headers or by its body alone, knows no sessions; the latter is refused by the protocol.
        let legacy = checks::is_legacy(headers) && !protocol::is_modern(&message);
        let live = if legacy { self.session(&requestor, headers).await? } else { None };
        if legacy {
            self.check_version(headers)?;
        }
        let admitted = self.allowance.admit(&requestor).and_then(|()| match &live {
            Some(live) => live.begin(&self.now, &self.allowance).map(Held::Session).map_err(Refusal::quota),
            None => self.allowance.open(&requestor).map(Held::Connection).map_err(Refusal::quota),
        });
        let held = match admitted {
            Ok(held) => held,
            Err(refusal) => {
                // Clients of the older revisions take a status for a broken connection.
                let id = request_id(&message);
                let status = if legacy && id.is_some() { StatusCode::OK } else { refusal.status };
                return Ok(refusal.to(id).at(status).response());
            }
        };
        let session = live.as_ref().map(|live| live.session.clone());
        let (rights, declared) = (caller.rights.clone(), Some(checks::declared(headers)));
        let full = self.allowance.full_of_answers(&requestor);
        // Only a subscription ends with a result of its own when its credential does.
        let (end, ends) = checks::listens(headers).then(|| watch::channel(false)).unzip();
        let reads_events = accepts.events;
        let peer = Peer { requestor, rights, session, declared, connection: None, full, reads_events, ends };
        match self.mcp.receive(peer, message.clone()) {
            Received::Exchange(exchange) => {
                let work = Work { exchange: Some(exchange), held: Some(held), log: None, server: self.clone() };
                Ok(self.drive(work, live, &message, (&caller, end), accepts.events).await)
            }
            Received::Opened { session, reply } => self.opened(requestor, session, reply, &message).await,
            Received::Accepted => {
                self.save(live).await;
                Ok(nothing())
            }
            Received::Settling(work) => {
                let server = self.clone();
                // Whoever sent it may be gone before it is done.
                let settled = tokio::spawn(async move {
                    work.await;
                    server.save(live).await;
                    drop(held);
                });
                // Should it fail, it is as if the answer had never come: the question stays open.
                let _ = settled.await;
                Ok(nothing())
            }
            Received::Rejected { rejection, body } => Ok(self.rejected(&requestor, rejection, body)),
        }
    }

    async fn save(&self, live: Option<Arc<Live<M::Session>>>) {
        if let Some(live) = live {
            self.sessions.save(&live).await;
        }
    }

    async fn opened(
        &self,
        requestor: Requestor,
        session: Arc<M::Session>,
        reply: String,
        message: &[u8],
    ) -> Result<Response, Refusal> {
        if let Err(error) = self.sessions.insert(requestor, session.clone()).await {
            return Ok(refused(&error).to(request_id(message)).at(StatusCode::OK).response());
        }
        let mut response = json_response(StatusCode::OK, reply);
        match HeaderValue::from_str(session.id()) {
            Ok(id) => response.headers_mut().insert(checks::SESSION_ID, id),
            Err(_) => return Err(Refusal::host_failure("session id")),
        };
        Ok(response)
    }

    /// Waits for the first frame, and makes a body of it or a stream.
    async fn drive(
        self: &Arc<Self>,
        mut work: Work<M>,
        live: Option<Arc<Live<M::Session>>>,
        message: &[u8],
        (caller, end): (&Caller, Option<watch::Sender<bool>>),
        events: bool,
    ) -> Response {
        let tells = end.is_some();
        let mut lasting = None;
        let mut streams = events;
        let (first, place) = loop {
            let patience = Duration::from_millis(self.options.sse_after_ms);
            // Most answers are there at once, and need no timer.
            let frame = match work.frame().now_or_never() {
                Some(frame) => Some(frame),
                None => {
                    let lasting =
                        lasting.get_or_insert_with(|| Lasting::new(&self.authenticator, caller, tells, &self.now));
                    tokio::select! {
                        biased;
                        frame = work.frame() => Some(frame),
                        // What is under way goes on as if the client had gone.
                        unauthorized = lasting.ended() => return self.challenge(&unauthorized),
                        () = tokio::time::sleep(patience), if streams => None,
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
                        None => self.answered(&caller.requestor, message, frame.message, work.take().1),
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
            match live.as_ref().map(|live| live.begin(&self.now, &self.allowance)).transpose() {
                Ok(place) => break (first, place),
                Err(_) => streams = false,
            }
        };
        let lasting = lasting.unwrap_or_else(|| Lasting::new(&self.authenticator, caller, tells, &self.now));
        let Some((live, open)) = live.zip(place) else {
            let (exchange, held) = work.take();
            let recipient = self.recipient(&caller.requestor, message);
            let direct = Direct::new(first, exchange, held, (lasting, end), self.keepalive(), recipient);
            return stream::response(direct.into_body());
        };
        let log = live.streams.open(self.sessions.epoch, request_id(message).as_deref(), live.kept());
        let opening = stream::opening(&log, live.session.version());
        if let Some(Frame { message, last, .. }) = first {
            log.push(message, last);
        }
        let body = Reader::new(log.clone(), 0, Some(opening), open, lasting, self.keepalive()).into_body();
        work.log = Some(log);
        // Dropping it starts the pump, as it would if the client had gone.
        drop(work);
        stream::response(body)
    }
}

impl<M: Mcp> Server<M> {
    fn recipient(&self, requestor: &Requestor, message: &[u8]) -> Recipient {
        Recipient { allowance: Arc::clone(&self.allowance), requestor: *requestor, id: request_id(message) }
    }

    /// A response alone. The request keeps its place until it was taken.
    fn answered(&self, requestor: &Requestor, message: &[u8], line: Line, held: Option<Held<M::Session>>) -> Response {
        let (line, place) = match line.is_small() {
            true => (line, None),
            false => self.recipient(requestor, message).response(line),
        };
        let mut response = Response::new(Body::new(Answer::new(line, (held, place))));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }

    fn rejected(&self, requestor: &Requestor, rejection: Rejection, body: String) -> Response {
        let (mut challenge, mut retry_after_ms) = (None, None);
        let status = match rejection {
            Rejection::Malformed | Rejection::Unserved | Rejection::SessionRequired => StatusCode::BAD_REQUEST,
            Rejection::UnknownMethod => StatusCode::NOT_FOUND,
            Rejection::TooMany { retry_after_ms: ms } => {
                retry_after_ms = ms;
                StatusCode::TOO_MANY_REQUESTS
            }
            Rejection::Forbidden { scopes, tool } => {
                self.audit.note(|| {
                    let entry = Entry::new("access.refused").by(requestor).because("insufficient scope");
                    tool.iter().fold(entry, |entry, tool| entry.tool(tool))
                });
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

/// The client cancelled its request: nothing answers it, and a stream without messages says just that.
fn unanswered(events: bool) -> Response {
    if events { stream::response(Body::empty()) } else { nothing() }
}

/// It came, and there is nothing to say.
fn nothing() -> Response {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

/// The place of a message among the open requests, given back when it is dropped.
pub(super) enum Held<S> {
    /// It goes on without its client.
    Session(Open<S>),
    /// It ends with its connection.
    Connection(#[expect(dead_code, reason = "held for its drop")] Place),
}

/// A message on its way. If it belongs to a session and is dropped before its end, a task of its own takes over; so nothing has to be
/// spawned for the many requests whose client just waits for the answer.
struct Work<M: Mcp> {
    /// `None` once it is over, or somebody else has it.
    exchange: Option<Exchange>,
    /// `None` once somebody else has it.
    held: Option<Held<M::Session>>,
    /// Where frames go when the request is no longer driven by its connection; nowhere if the client never saw an event id.
    log: Option<Arc<Log>>,
    server: Arc<Server<M>>,
}

impl<M: Mcp> Work<M> {
    async fn frame(&mut self) -> Option<Frame> {
        self.exchange.as_mut()?.next().await
    }

    /// What is left to do, and the place that it takes up.
    fn take(&mut self) -> (Exchange, Option<Held<M::Session>>) {
        (self.exchange.take().unwrap_or_else(|| futures::stream::empty().boxed()), self.held.take())
    }
}

impl<M: Mcp> Drop for Work<M> {
    fn drop(&mut self) {
        let Some((Held::Session(open), exchange)) = self.held.take().zip(self.exchange.take()) else { return };
        // When the runtime is going down, nothing can be driven any more.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(pump(self.server.clone(), exchange, open, self.log.take()));
        }
    }
}

/// Drives a request of a session to its end, whether anybody reads it or not. Ends early with the session.
async fn pump<M: Mcp>(server: Arc<Server<M>>, exchange: Exchange, open: Open<M::Session>, log: Option<Arc<Log>>) {
    tokio::select! {
        _ = open.live.ended.wait() => {}
        () = run_out(exchange, log.as_deref()) => {}
    }
    if let Some(log) = log {
        log.finish(server.now.steady());
    }
    server.sessions.save(&open.live).await;
}

async fn run_out(mut exchange: Exchange, log: Option<&Log>) {
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

/// Reads a body of at most so many bytes.
async fn read(mut body: Body, headers: &HeaderMap, bytes_max: usize) -> Result<Bytes, Refusal> {
    let too_large = || {
        let message = format!("The body is larger than {bytes_max} bytes, which is the limit body_bytes_max");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > bytes_max as u64) {
        // A client that waits to be told to go on has not sent anything yet.
        if !headers.contains_key(header::EXPECT) {
            discard(body).await;
        }
        return Err(too_large());
    }
    let broken = |_| Refusal::new(StatusCode::BAD_REQUEST, "The body ended early or is not encoded properly");
    let reading = async {
        let mut bytes = BytesMut::new();
        let mut first: Option<Bytes> = None;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
            let so_far = bytes.len() + first.as_ref().map_or(0, Bytes::len);
            if so_far + data.len() > bytes_max {
                return Ok(None);
            }
            // Most bodies come in one piece, which then need not be copied.
            match first.take() {
                None if bytes.is_empty() => first = Some(data),
                former => {
                    bytes.extend_from_slice(&former.unwrap_or_default());
                    bytes.extend_from_slice(&data);
                }
            }
        }
        Ok(Some(first.unwrap_or_else(|| bytes.freeze())))
    };
    // Most bodies are there with their headers, and need no timer.
    let read = {
        let mut reading = pin!(reading);
        match futures::poll!(&mut reading) {
            Poll::Ready(read) => Ok(read),
            Poll::Pending => tokio::time::timeout(Duration::from_millis(BODY_MS_MAX), reading).await,
        }
    };
    match read {
        Ok(Ok(Some(bytes))) => Ok(bytes),
        Ok(Ok(None)) => {
            discard(body).await;
            Err(too_large())
        }
        Ok(Err(refusal)) => Err(refusal),
        Err(_) => Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "The body took too long to arrive")),
    }
}

async fn discard(mut body: Body) {
    let discarding = async {
        let mut left = DISCARD_BYTES_MAX;
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(Duration::from_millis(DISCARD_MS_MAX), discarding).await;
}
