//! Outgoing HTTP of a journaled call: requests and responses as a whole.
//!
//! A request leaves when the guest has written all of it and its command is in the journal; a response is an entry
//! before the guest sees it. Owns what is between `wasi:http` and `egress`, which decides what may leave. A call that
//! reads what cannot be kept is demoted first, and streams from there on. Invariant: no request is sent while a journal
//! is replayed, and none that changes something is sent again by itself.

use std::sync::Arc;

use bytes::BytesMut;
use http::Method;
use http::header::HeaderValue;
use http_body_util::BodyExt as _;
use sha2::{Digest as _, Sha256};
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource, ResourceType};
use wasmtime_wasi::WasiView as _;
use wasmtime_wasi_http::p2::bindings::http::outgoing_handler::Host as _;
use wasmtime_wasi_http::p2::bindings::http::types::{ErrorCode, HostOutgoingBody as _, RequestOptions as GuestOptions};
use wasmtime_wasi_http::p2::body::HostOutgoingBody;
use wasmtime_wasi_http::p2::types::{HostFutureIncomingResponse, HostOutgoingRequest};
use wasmtime_wasi_http::p2::{HttpError, HttpResult};
use wasmtime_wasi_http::{RequestOptions, WasiBody, WasiHttpView as _};
use wasmtime_wasi_io::streams::DynOutputStream;

use super::codec::{decode, encode};
use super::entry::CommandKind;
use super::header::{Digest, digest};
use super::outcome::{Failure, Outcome, Response};
use super::requests::{Arrival, Request, driven, failed, taken};
use super::streams::{Charged, HeldBody, Prefixed};
use crate::call::Call;
use crate::limits::HeldBytes;
use crate::trap_causes::HostFailure;
use bulkhead_calls::journal::{Reason, names};
use bulkhead_domain::{crash_points, hex};

const HANDLER: &str = "wasi:http/outgoing-handler@0.2.12";
const TYPES: &str = "wasi:http/types@0.2.12";

impl Call {
    /// Takes what the guest has written, and sends what is complete.
    pub(super) fn collect_requests(&mut self) -> wasmtime::Result<()> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let is_replaying = journal.is_replaying();
        journal.requests.open.values_mut().for_each(Request::collect);
        if is_replaying {
            return Ok(());
        }
        let is_complete = |(_, request): &(&u32, &Request)| !request.is_sent && request.end.is_some();
        let complete: Vec<_> = journal.requests.open.iter().filter(is_complete).map(|(number, _)| *number).collect();
        complete.into_iter().try_for_each(|number| self.send_request(number))
    }

    /// Sends a request that is complete. What the guest saw before one that changes something is kept before it leaves.
    ///
    /// Never inlined: its future is large, and an import that had it in its frame would touch pages of the guest's
    /// stack that the kernel then hands out and takes back for each call.
    #[inline(never)]
    fn send_request(&mut self, number: u32) -> wasmtime::Result<()> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        journal.state.live()?;
        let sender = journal.requests.sender();
        let memory = Arc::clone(&journal.requests.memory);
        let bytes_max = journal.requests.response_bytes_max;
        let Some(request) = journal.requests.open.get_mut(&number) else { return Ok(()) };
        request.is_sent = true;
        let is_safe = request.is_safe;
        let options = request.options;
        let whole = request.whole();
        let kept = if is_safe { None } else { journal.recording_sink().zip(journal.tail()) };
        self.egress.give_up_first(journal.to_give_up());
        let way = match whole {
            Ok(whole) => {
                let exchange = self.egress.exchange(whole, options);
                wasmtime_wasi::runtime::spawn(async move {
                    let arrival = match kept {
                        Some((sink, tail)) => match sink.append(tail).await {
                            Ok(()) => {
                                crash_points::reach("http.kept");
                                let arrival = taken(exchange.await, &memory, bytes_max).await;
                                crash_points::reach("http.answered");
                                arrival
                            }
                            Err(fenced) => Arrival::Fenced(fenced),
                        },
                        None => taken(exchange.await, &memory, bytes_max).await,
                    };
                    // Whoever waited may be gone.
                    let _ = sender.send((number, arrival)).await;
                })
            }
            Err(failure) => {
                journal.requests.waiting.push_back((number, failed(failure, &memory)));
                return Ok(());
            }
        };
        if let Some(request) = journal.requests.open.get_mut(&number) {
            request.way = Some(way);
        }
        Ok(())
    }

    /// Whether the guest still writes a request.
    pub(super) fn has_open_request(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.requests.open.values().any(|request| request.end.is_none()))
    }

    /// Gives the journal up, and sends requests while the guest writes them. Never inlined, like
    /// [`Self::send_request`].
    #[inline(never)]
    pub(super) fn stream_requests(&mut self, reason: Reason) -> wasmtime::Result<()> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        journal.state.demote(reason);
        let is_open = |_: &u32, request: &mut Request| request.end.is_none();
        let open: Vec<_> = journal.requests.open.extract_if(.., is_open).collect();
        self.egress.give_up_first(journal.to_give_up());
        for (_, request) in open {
            let Request { response, head, options, body, written, .. } = request;
            let body = Prefixed::new(written.freeze(), body).boxed_unsync();
            let exchange = self.egress.exchange(http::Request::from_parts(head, body), options);
            let way = wasmtime_wasi::runtime::spawn(async move {
                let (response, driver) = exchange.await?;
                Ok((response, driven(driver)))
            });
            self.place(response, HostFutureIncomingResponse::Pending(way))?;
        }
        Ok(())
    }

    fn place(&mut self, response: u32, what: HostFutureIncomingResponse) -> wasmtime::Result<()> {
        let response = Resource::<HostFutureIncomingResponse>::new_borrow(response);
        *self.table.get_mut(&response)? = what;
        Ok(())
    }

    fn deliver(&mut self, response: u32, outcome: Result<Response, Failure>, held: HeldBytes) -> wasmtime::Result<()> {
        let ready = match outcome {
            Ok(response) => {
                let response =
                    response.into_http().ok_or_else(|| HostFailure("a response cannot be shown".to_owned()))?;
                let response = response.map(|body| Charged::new(body, held).boxed_unsync());
                // The library wants to be told that there is nothing left to do for it.
                Ok((response, wasmtime_wasi::runtime::spawn(async {})))
            }
            Err(failure) => Err(failure.into_error()),
        };
        self.place(response, HostFutureIncomingResponse::Ready(ready))
    }

    /// Shows the guest what an earlier run saw.
    pub(super) fn deliver_recorded(&mut self, number: u32, outcome: &[u8]) -> wasmtime::Result<()> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let Some(request) = journal.requests.close(number) else {
            return Err(journal.state.diverge_after("the guest has no such request").into());
        };
        let Some(outcome) = decode::<Outcome>(outcome) else {
            return Err(journal.state.diverge_after("the outcome cannot be read").into());
        };
        if request.end.is_none() || request.digest() != outcome.request {
            return Err(journal.state.diverge_after("the body of the request is another one").into());
        }
        let mut held = HeldBytes::none(&journal.requests.memory);
        held.add(outcome.response.as_ref().map_or(0, Response::len))?;
        outcome.lacking.into_iter().for_each(|denial| self.denials.note(denial));
        self.deliver(request.response, outcome.response, held)
    }

    /// Writes down what has arrived, and shows it to the guest.
    pub(super) fn deliver_arrived(&mut self) -> wasmtime::Result<()> {
        loop {
            let Some(journal) = self.journal.as_mut().filter(|journal| !journal.is_replaying()) else { return Ok(()) };
            let Some((number, arrival)) = journal.requests.next_arrival() else { return Ok(()) };
            let Some(request) = journal.requests.close(number) else { continue };
            match arrival {
                Arrival::Fenced(fenced) => return Err(fenced.into()),
                Arrival::Whole(response, held) => {
                    let is_denial = response.as_ref().is_err_and(|failure| failure.is_denial());
                    let lacking = if is_denial { self.denials.found() } else { Vec::new() };
                    let response = match response {
                        Err(failure) if request.may_have_taken_effect() => {
                            self.egress.count_in_doubt(1);
                            Err(failure.of_second_sending())
                        }
                        response => response,
                    };
                    let outcome = Outcome { request: request.digest(), lacking, response };
                    journal.state.put_delivery(number, encode(&outcome));
                    if !request.is_safe {
                        // Until it is kept, the request is in doubt.
                        journal.keep_soon();
                        crash_points::reach("http.outcome");
                    }
                    self.deliver(request.response, outcome.response, held)?;
                }
                Arrival::Streamed(response, way, reason) => {
                    journal.state.demote(reason);
                    self.egress.give_up_first(journal.to_give_up());
                    self.place(request.response, HostFutureIncomingResponse::Ready(Ok((response, way))))?;
                }
            }
        }
    }

    fn handle(
        &mut self,
        request: Resource<HostOutgoingRequest>,
        options: Option<Resource<GuestOptions>>,
    ) -> HttpResult<Resource<HostFutureIncomingResponse>> {
        if self.journal.as_ref().is_none_or(|journal| journal.state.is_demoted()) {
            self.settle().map_err(HttpError::trap)?;
            return self.http().handle(request, options);
        }
        self.step(names::HTTP_HANDLE).map_err(HttpError::trap)?;
        self.egress.hold(true);
        let response = self.http().handle(request, options);
        let held = self.egress.hold(false);
        let response = response?;
        let (request, options) =
            held.ok_or_else(|| HttpError::trap(HostFailure("a request went astray".to_owned())))?;
        self.open_request(response.rep(), request, options).map_err(HttpError::trap)?;
        self.collect_requests().map_err(HttpError::trap)?;
        Ok(response)
    }

    fn open_request(
        &mut self,
        response: u32,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
    ) -> wasmtime::Result<()> {
        let seed = self.facts.seed;
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let number = journal.next_command();
        let (mut head, body) = request.into_parts();
        let is_safe = head.method.is_safe();
        if let Some(name) = &journal.idempotency_header
            && matches!(head.method, Method::POST | Method::PATCH)
        {
            head.headers.entry(name).or_insert_with(|| key(&seed, number));
        }
        let digest = digest_of_head(&head);
        let is_recorded = journal.state.must_command(CommandKind::Request, number, digest)?;
        if !is_recorded {
            journal.state.put_command(CommandKind::Request, number, digest);
            if !is_safe {
                journal.state.put_mark();
            }
        }
        let sends_again = journal.in_doubt.sends_again(&head.method);
        let request = Request {
            response,
            head,
            options,
            body,
            written: BytesMut::new(),
            end: None,
            is_sent: false,
            way: None,
            is_safe,
            sends_again,
            may_have_been_sent: is_recorded,
        };
        journal.requests.open.insert(number, request);
        self.settle()
    }
}

/// The key that goes out with a request: the same each time that the call runs.
fn key(seed: &[u8; 32], number: u32) -> HeaderValue {
    let hash = Sha256::new().chain_update("bulkhead request key").chain_update(seed).chain_update(number.to_le_bytes());
    let hash: [u8; 32] = hash.finalize().into();
    let text = hex(hash.get(..16).unwrap_or_default());
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

fn digest_of_head(head: &http::request::Parts) -> Digest {
    let uri = head.uri.to_string();
    let headers = head.headers.iter().flat_map(|(name, value)| [name.as_str().as_bytes(), value.as_bytes()]);
    digest([head.method.as_str().as_bytes(), uri.as_bytes()].into_iter().chain(headers))
}

type Stream = wasmtime::Result<(Result<Resource<DynOutputStream>, ()>,)>;

/// The stream of an outgoing body.
fn stream_of_body(call: &mut Call, body: Resource<HostOutgoingBody>) -> Stream {
    let same = Resource::<HostOutgoingBody>::new_borrow(body.rep());
    let Ok(stream) = call.http().write(body)? else { return Ok((Err(()),)) };
    let journal = call.journal.as_ref().filter(|journal| !journal.state.is_demoted());
    let Some(journal) = journal else { return Ok((Ok(stream),)) };
    let memory = journal.memory();
    let table = call.ctx().table;
    let held: DynOutputStream = Box::new(HeldBody { inner: table.delete(stream)?, memory });
    Ok((Ok(table.push_child(held, &same)?),))
}

type Handled = wasmtime::Result<(Result<Resource<HostFutureIncomingResponse>, ErrorCode>,)>;

pub(super) fn add_to_linker(linker: &mut Linker<Call>) -> wasmtime::Result<()> {
    linker.instance(HANDLER)?.func_wrap(
        "handle",
        |mut store: StoreContextMut<'_, Call>, (request, options)| -> Handled {
            match store.data_mut().handle(request, options) {
                Ok(response) => Ok((Ok(response),)),
                Err(error) => Ok((Err(error.downcast()?),)),
            }
        },
    )?;
    let mut types = linker.instance(TYPES)?;
    types.resource(
        "future-incoming-response",
        ResourceType::host::<HostFutureIncomingResponse>(),
        |mut store: StoreContextMut<'_, Call>, response| {
            let call = store.data_mut();
            if let Some(journal) = &mut call.journal {
                journal.requests.forget(response);
            }
            call.http().table.delete(Resource::<HostFutureIncomingResponse>::new_own(response))?;
            Ok(())
        },
    )?;
    types.func_wrap("[method]outgoing-body.write", |mut store, (body,)| stream_of_body(store.data_mut(), body))
}
