//! One POST on its way in: its headers, its body, its message, its place among the open requests, and what became of
//! it.
//!
//! Owns the order of these steps. Must not drive a request. Invariant: no step begins before the one before it let the
//! POST through.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use tokio::sync::watch;

use super::super::body::{self, Arrived, WholeBody};
use super::super::{Server, checks, refuse};
use super::{ReplyTarget, RequestGuard, RequestRef, RequestWork, Sender, accepted};
use crate::ending::answered_at_end;
use crate::refusal::{Refusal, request_id};
use crate::session::LiveSession;
use bulkhead_domain::byte_order_mark;
use bulkhead_domain::task::Era;
use bulkhead_identity::auth::{Caller, Revalidation};
use bulkhead_limits::Permit;
use bulkhead_limits::tenant_usage::UsageCounts;
use bulkhead_net::server::WorkerPreference;
use bulkhead_protocol::{Batch, Envelope, INLINE_BYTES_MAX, Received, Session};

/// A POST of a caller that was let in.
pub(in super::super) struct IncomingPost<'a> {
    pub(in super::super) server: &'a Arc<Server>,
    pub(in super::super) caller: &'a Caller,
    pub(in super::super) headers: &'a HeaderMap,
    pub(in super::super) preference: &'a WorkerPreference,
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
    pub(in super::super) async fn answer(self, body: Body, counts: Option<&UsageCounts>) -> Response {
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
        let held = self.admit(body.permit, &message, live.as_ref())?;
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
            Arrived::Small(bytes) => return Ok(WholeBody { bytes, permit: None }),
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
        // What is modern, by its headers or by its body alone, knows no sessions; the latter is refused by the
        // protocol.
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
        permit: Option<Permit>,
        message: &ParsedMessage,
        live: Option<&Arc<LiveSession>>,
    ) -> Result<RequestGuard, Ended> {
        let admitted = permit.map_or_else(|| self.server.quota.admit_and_open(&self.caller.requestor), Ok);
        match (admitted, live) {
            (Ok(permit), Some(live)) => Ok(RequestGuard::Session(live.begin_in(&self.server.now, permit))),
            (Ok(permit), None) => Ok(RequestGuard::Connection(permit)),
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
