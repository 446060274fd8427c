//! POST of several messages at once, in sessions of the one revision that has that.
//!
//! Owns their charge. Invariant: every message of a batch is charged before the first one is received, and a refusal of
//! the charge answers all of its requests.

use std::sync::Arc;

use axum::response::Response;
use futures::StreamExt as _;
use futures::future::join_all;
use http::{HeaderMap, StatusCode};

use super::{ReplyTarget, RequestGuard, RequestRef, RequestWork, Sender, accepted};
use crate::batch::{joined, short};
use crate::ending::answered_at_end;
use crate::refusal::{Refusal, retry_after};
use crate::session::LiveSession;
use bulkhead_identity::auth::Caller;
use bulkhead_protocol::{Batch, BatchReceived, INLINE_BYTES_MAX, Rejection};

use super::super::body::WholeBody;
use super::super::{Server, json_response};

impl Server {
    /// Takes a batch. A large body has a place already, and was admitted as one request.
    pub(super) async fn batch(
        self: &Arc<Self>,
        caller: &Caller,
        headers: &HeaderMap,
        live: Arc<LiveSession>,
        body: WholeBody,
        events: bool,
    ) -> Result<Response, Refusal> {
        self.check_version(headers)?;
        let requestor = caller.requestor;
        let WholeBody { bytes: message, permit } = body;
        let is_large = message.len() > INLINE_BYTES_MAX;
        let parse = move || Batch::parse(&message);
        let parsed = if is_large { self.offload(&requestor, parse).await? } else { parse() };
        let admitted = permit.map_or(0, |_| 1);
        let count = parsed.as_ref().map_or(1, Batch::count);
        let charged = self.quota.admit_batch(&requestor, count, admitted);
        let batch = match parsed {
            Ok(batch) => batch,
            Err(body) => {
                charged?;
                return Ok(json_response(StatusCode::BAD_REQUEST, body));
            }
        };
        let permit = match charged {
            Ok(permit) => permit,
            Err(mut refusal) => {
                // As to a single request of these revisions: a status would look like a broken connection.
                let Some(body) = refusal.batch_body(&batch) else { return Err(refusal) };
                let mut response = json_response(StatusCode::OK, body);
                retry_after(&mut response, refusal.retry_after_ms);
                return Ok(response);
            }
        };
        let held = RequestGuard::Session(live.begin_in(&self.now, permit));
        // The stream of a batch goes by the first of its requests.
        let first = RequestRef::Id(short(batch.ids().next()));
        let full = self.quota.full_of_answers(&requestor);
        let sender = Sender { requestor, rights: caller.rights.clone(), full, reads_events: events, ends: None };
        let mcp = Arc::clone(&self.mcp);
        let session = Some(live.session.clone());
        let received = if is_large {
            let headers = headers.clone();
            let receive = move || batch.receive(&*mcp, &sender.peer(session, &headers));
            self.offload(&requestor, receive).await?
        } else {
            batch.receive(&*mcp, &sender.peer(session, headers))
        };
        let target = ReplyTarget { caller, live: Some(live), request: first, end: None, events };
        self.answer_batch(received, target, held).await
    }

    async fn answer_batch(
        self: &Arc<Self>,
        received: BatchReceived,
        target: ReplyTarget<'_>,
        held: RequestGuard,
    ) -> Result<Response, Refusal> {
        let BatchReceived { mut exchanges, responses, settling } = received;
        let server = Arc::clone(self);
        let settled = {
            let live = target.live.clone();
            // The client may be gone before it is done.
            tokio::spawn(async move {
                join_all(settling).await;
                server.save(live).await;
            })
        };
        if exchanges.is_empty() && responses.is_empty() {
            // Should it fail, it is as if the answers had never come: the questions stay open.
            let _ = settled.await;
            return Ok(accepted());
        }
        for (id, exchange) in &mut exchanges {
            let server = Arc::clone(self);
            let requestor = target.caller.requestor;
            let inner = std::mem::replace(exchange, futures::stream::empty().boxed());
            let inner = answered_at_end(inner, short(id.as_deref()), &self.phase);
            *exchange = inner
                .inspect(move |frame| {
                    if let Some(Rejection::Forbidden { tool, .. }) = &frame.rejection {
                        server.note_forbidden(&requestor, tool.as_deref());
                    }
                })
                .boxed();
        }
        let recipient = self.recipient(&target.caller.requestor, &target.request);
        let exchange = joined(exchanges, responses, recipient);
        Ok(self.drive(RequestWork::new(exchange, held, self), target).await)
    }
}
