//! One request to one instance, and its answer.
//!
//! Invariant: reading ends with the answer, and the instance goes then: a server may hold its response open for as long
//! as it likes.

use futures::future::{Either, select};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt as _, Full};
use tokio::sync::oneshot;
use wasmtime::component::Instance;
use wasmtime_wasi::I32Exit;
use wasmtime_wasi::p2::bindings::CommandIndices;
use wasmtime_wasi_http::WasiHttpView as _;
use wasmtime_wasi_http::p2::bindings::ProxyIndices;
use wasmtime_wasi_http::p2::bindings::http::types::{ErrorCode, Scheme};
use wasmtime_wasi_http::p2::body::HyperOutgoingBody;

use super::Request;
use super::listener::{Heard, Listener};
use super::messages::Reply;
use super::reader::{Framing, MessageReader};
use crate::call::Call;
use crate::trap_causes::{BrokenAnswer, HostFailure};

/// By which export an instance answers.
#[derive(Clone, Copy)]
pub(crate) enum EntryPoint<'a> {
    Service(&'a ProxyIndices),
    Command(&'a CommandIndices),
}

/// What came back. Over standard output there are neither a status nor headers, and it looks like a success without
/// any.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// `None`: the body is over and holds no answer of the protocol.
    pub(super) reply: Option<Reply>,
}

/// Has an instance answer a request. It must not be used again.
pub(crate) async fn exchange(
    entry_point: EntryPoint<'_>,
    store: &mut wasmtime::Store<Call>,
    instance: &Instance,
    request: Request,
) -> wasmtime::Result<Answer> {
    match entry_point {
        EntryPoint::Service(service) => over_http(service, store, instance, request).await,
        EntryPoint::Command(command) => over_stdio(command, store, instance, request).await,
    }
}

async fn over_stdio(
    command: &CommandIndices,
    store: &mut wasmtime::Store<Call>,
    instance: &Instance,
    request: Request,
) -> wasmtime::Result<Answer> {
    let command = command.load(&mut *store, instance)?;
    let call = store.data_mut();
    let conversation = call.conversation.clone();
    let conversation = conversation.ok_or_else(|| HostFailure("a server was run without its streams".to_owned()))?;
    let audience = call.shared.audience(&call.facts);
    let listener = Listener::new(call.denials.plugin(), call.outbox.clone(), audience);
    let listener = listener.in_conversation(request.is_greeted());
    conversation.begin(request.era, request.into_lines(), listener, call.result_bytes);
    let guest = Box::pin(async { command.wasi_cli_run().call_run(&mut *store).await });
    let reply = match select(Box::pin(conversation.answered()), guest).await {
        Either::Left((reply, _)) => Some(reply),
        // Whatever it came to after its answer.
        Either::Right((ended, _)) => match (conversation.finish()?, ended) {
            (None, Err(error)) if error.downcast_ref::<I32Exit>().is_none() => return Err(error),
            (reply, _) => reply,
        },
    };
    Ok(Answer { status: StatusCode::OK, headers: HeaderMap::new(), reply })
}

async fn over_http(
    service: &ProxyIndices,
    store: &mut wasmtime::Store<Call>,
    instance: &Instance,
    request: Request,
) -> wasmtime::Result<Answer> {
    let request = request.into_http().ok_or(BrokenAnswer("the path of the server is none".into()))?;
    let service = service.load(&mut *store, instance)?;
    let call = store.data_mut();
    let bytes_max = call.result_bytes;
    let audience = call.shared.audience(&call.facts);
    let mut listener = Listener::new(call.denials.plugin(), call.outbox.clone(), audience);
    let (sender, receiver) = oneshot::channel();
    let mut http = call.http();
    let request = http.new_incoming_request(Scheme::Http, request.map(Full::new))?;
    let outparam = http.new_response_outparam(sender)?;
    let guest = Box::pin(async {
        service.wasi_http_incoming_handler().call_handle(&mut *store, request, outparam).await?;
        // What the guest still holds would keep the body open although nobody writes any more.
        store.data_mut().drop_resources();
        Ok::<_, wasmtime::Error>(())
    });
    let answer = Box::pin(answered(receiver, bytes_max, &mut listener));
    // The answer first: what the server does after it is nobody's business.
    match select(answer, guest).await {
        Either::Left((answer, _)) => answer,
        Either::Right((ended, answer)) => {
            ended?;
            answer.await
        }
    }
}

async fn answered(
    receiver: oneshot::Receiver<Result<http::Response<HyperOutgoingBody>, ErrorCode>>,
    bytes_max: u64,
    listener: &mut Listener,
) -> wasmtime::Result<Answer> {
    match receiver.await {
        Ok(Ok(response)) => read(response, bytes_max, listener).await,
        Ok(Err(code)) => Err(BrokenAnswer(format!("the server did not answer: {code:?}").into()).into()),
        Err(_) => Err(BrokenAnswer("the server ended without a response".into()).into()),
    }
}

/// Reads a body as it is written, until it holds the answer.
async fn read(
    response: http::Response<HyperOutgoingBody>,
    bytes_max: u64,
    listener: &mut Listener,
) -> wasmtime::Result<Answer> {
    let (head, mut body) = response.into_parts();
    let answer = |reply| Answer { status: head.status, headers: head.headers.clone(), reply };
    let kind = head.headers.get(CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    let framing = if kind.starts_with(b"text/event-stream") { Framing::Events } else { Framing::Whole };
    let mut reader = MessageReader::new(framing, bytes_max);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| BrokenAnswer("the server broke off the body of its response".into()))?;
        let Some(data) = frame.data_ref() else { continue };
        for message in reader.take(data)? {
            if let Some(Heard::Reply(reply)) = listener.hear(&message)? {
                return Ok(answer(Some(reply)));
            }
        }
    }
    let rest = reader.finish();
    Ok(answer(match rest.map(|message| listener.hear(&message)).transpose()?.flatten() {
        Some(Heard::Reply(reply)) => Some(reply),
        Some(Heard::Request(_)) | None => None,
    }))
}
