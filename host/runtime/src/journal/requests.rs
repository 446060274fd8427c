//! The outgoing requests of a journaled call, and what came of them.
//!
//! Owns what is held of a request and of its response. A response that cannot be kept streams on. Invariant: what is
//! held is charged to the guest's memory.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::FutureExt as _;
use http::header::{CONTENT_TYPE, HeaderValue};
use http_body_util::{BodyExt as _, Full};
use tokio::sync::mpsc::{self, Receiver, Sender};
use wasmtime_wasi::runtime::AbortOnDropJoinHandle;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody};

use super::header::{Digest, digest};
use super::outcome::{BodyEnd, Failure, Response};
use super::streams::{Charged, Prefixed};
use crate::egress::Exchange;
use crate::limits::{HOST_RESOURCES_MAX, HeldBytes, MemoryUse};
use bulkhead_calls::Fenced;
use bulkhead_calls::journal::Reason;

/// The number of a request, and what arrived of it.
type Arrived = (u32, Arrival);

/// The requests whose outcome the guest has not seen.
pub(super) struct Requests {
    pub(super) open: BTreeMap<u32, Request>,
    /// From the first request on that is sent.
    arrivals: Option<(Sender<Arrived>, Receiver<Arrived>)>,
    /// Taken from there already.
    pub(super) waiting: VecDeque<Arrived>,
    /// The bodies of requests and responses are charged to it.
    pub(super) memory: Arc<MemoryUse>,
    /// Of a response that is kept. A longer one demotes the call.
    pub(super) response_bytes_max: u64,
}

pub(super) struct Request {
    /// The number of the response in the guest's table.
    pub(super) response: u32,
    pub(super) head: http::request::Parts,
    pub(super) options: Option<RequestOptions>,
    pub(super) body: WasiBody,
    pub(super) written: BytesMut,
    pub(super) end: Option<BodyEnd>,
    /// Whether it leads to an outcome already; the handle is that of its way.
    pub(super) is_sent: bool,
    pub(super) way: Option<AbortOnDropJoinHandle<()>>,
    /// Whether it changes nothing.
    pub(super) is_safe: bool,
    /// Whether it may be sent again although it was sent before.
    pub(super) sends_again: bool,
    /// Whether an earlier run of the call may have sent it.
    pub(super) may_have_been_sent: bool,
}

/// What came of a request.
pub(super) enum Arrival {
    /// It was not sent: another run of the call has taken over.
    Fenced(Fenced),
    Whole(Result<Response, Failure>, HeldBytes),
    /// Too long to be kept, or without an end.
    Streamed(http::Response<WasiBody>, AbortOnDropJoinHandle<()>, Reason),
}

impl Requests {
    pub(super) fn new(memory: Arc<MemoryUse>, response_bytes_max: u64) -> Self {
        Self { open: BTreeMap::new(), arrivals: None, waiting: VecDeque::new(), memory, response_bytes_max }
    }

    /// Whether there never was one.
    pub(super) fn are_none(&self) -> bool {
        self.open.is_empty() && self.waiting.is_empty() && self.arrivals.is_none()
    }

    /// Whether none is under way.
    pub(super) fn are_none_open(&self) -> bool {
        self.open.is_empty() && self.waiting.is_empty()
    }

    pub(super) fn sender(&mut self) -> Sender<Arrived> {
        self.arrivals.get_or_insert_with(|| mpsc::channel(HOST_RESOURCES_MAX)).0.clone()
    }

    /// Comes back when something has arrived.
    pub(super) async fn arrival(&mut self) {
        if !self.waiting.is_empty() {
            return;
        }
        match &mut self.arrivals {
            Some((_, arrived)) => self.waiting.extend(arrived.recv().await),
            None => std::future::pending().await,
        }
    }

    pub(super) fn next_arrival(&mut self) -> Option<Arrived> {
        self.waiting.pop_front().or_else(|| self.arrivals.as_mut()?.1.try_recv().ok())
    }

    /// What an earlier run may have sent is not sent again, unless it only reads. How many requests are in doubt.
    pub(super) fn settle(&mut self) -> u64 {
        let mut in_doubt = 0;
        for (number, request) in &mut self.open {
            request.collect();
            // One that the guest still writes has not left: for that, the journal would have been given up first.
            request.may_have_been_sent &= matches!(request.end, Some(BodyEnd::Whole(_)));
            if request.may_have_been_sent && !request.sends_again {
                request.is_sent = true;
                self.waiting.push_back((*number, failed(Failure::IN_DOUBT, &self.memory)));
                in_doubt += 1;
            }
        }
        in_doubt
    }

    /// A request whose outcome the guest sees now. Its body is not held any more.
    pub(super) fn close(&mut self, number: u32) -> Option<Request> {
        let request = self.open.remove(&number)?;
        self.memory.release(request.written.len() as u64);
        Some(request)
    }

    /// The guest has let go of a response.
    pub(super) fn forget(&mut self, response: u32) {
        let closed = self.open.iter().find(|(_, request)| request.response == response).map(|(number, _)| *number);
        closed.and_then(|number| self.close(number));
    }
}

impl Request {
    /// Takes what the guest has written of the body.
    pub(super) fn collect(&mut self) {
        while self.end.is_none() {
            let Some(frame) = tokio::task::unconstrained(self.body.frame()).now_or_never() else { return };
            match frame.map(|frame| frame.map(http_body::Frame::into_data)) {
                Some(Ok(Ok(data))) => self.written.extend_from_slice(&data),
                Some(Ok(Err(frame))) => self.end = Some(BodyEnd::Whole(frame.into_trailers().ok())),
                Some(Err(error)) => self.end = Some(BodyEnd::Broken(Failure::of(&error))),
                None => self.end = Some(BodyEnd::Whole(None)),
            }
        }
    }

    pub(super) fn digest(&self) -> Digest {
        digest([&*self.written])
    }

    /// Whether it may have taken effect already when it was sent again: without a response to the second sending,
    /// nobody knows.
    pub(super) fn may_have_taken_effect(&self) -> bool {
        self.may_have_been_sent && self.sends_again && !self.is_safe
    }

    /// The request for its way out. It is complete.
    pub(super) fn whole(&mut self) -> Result<http::Request<WasiBody>, Failure> {
        let trailers = match self.end.take() {
            Some(BodyEnd::Broken(failure)) => {
                self.end = Some(BodyEnd::Broken(failure));
                return Err(failure);
            }
            Some(BodyEnd::Whole(trailers)) => trailers,
            None => None,
        };
        self.end = Some(BodyEnd::Whole(trailers.clone()));
        let body = Full::new(Bytes::copy_from_slice(&self.written)).map_err(|never| match never {});
        let body = match trailers {
            Some(trailers) => body.with_trailers(std::future::ready(Some(Ok(trailers)))).boxed_unsync(),
            None => body.boxed_unsync(),
        };
        Ok(http::Request::from_parts(self.head.clone(), body))
    }
}

/// Moves bytes between a connection and its body.
pub(super) fn driven(driver: Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>) -> AbortOnDropJoinHandle<()> {
    wasmtime_wasi::runtime::spawn(async move {
        if let Err(error) = driver.await {
            tracing::debug!(%error, "a connection ended early");
        }
    })
}

pub(super) fn failed(failure: Failure, memory: &Arc<MemoryUse>) -> Arrival {
    Arrival::Whole(Err(failure), HeldBytes::none(memory))
}

/// The response as a whole, as far as it can be kept. What it takes is charged to the guest before it is read on.
pub(super) async fn taken(sent: Exchange, memory: &Arc<MemoryUse>, bytes_max: u64) -> Arrival {
    let (response, driver) = match sent {
        Ok(sent) => sent,
        Err(error) => return failed(Failure::of(&error), memory),
    };
    let way = driven(driver);
    let kind = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).and_then(|kind| kind.get(..17));
    if kind.is_some_and(|kind| kind.eq_ignore_ascii_case(b"text/event-stream")) {
        return Arrival::Streamed(response, way, Reason::EventStream);
    }
    let (head, mut body) = response.into_parts();
    let mut bytes = BytesMut::new();
    let mut held = HeldBytes::none(memory);
    let end = loop {
        let data = match body.frame().await.map(|frame| frame.map(http_body::Frame::into_data)) {
            Some(Ok(Ok(data))) => data,
            Some(Ok(Err(frame))) => break BodyEnd::Whole(frame.into_trailers().ok()),
            Some(Err(error)) => break BodyEnd::Broken(Failure::of(&error)),
            None => break BodyEnd::Whole(None),
        };
        bytes.extend_from_slice(&data);
        let too_long = bytes.len() as u64 > bytes_max;
        if too_long || held.add(data.len() as u64).is_err() {
            let reason = if too_long { Reason::Response { bytes_max } } else { Reason::Memory };
            let body = Charged::new(Prefixed::new(bytes.freeze(), body).boxed_unsync(), held).boxed_unsync();
            return Arrival::Streamed(http::Response::from_parts(head, body), way, reason);
        }
    };
    Arrival::Whole(Ok(Response::new(&head, bytes.into(), end)), held)
}
