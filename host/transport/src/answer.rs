//! Answers on their way to their clients.
//!
//! Owns what of an answer is not written yet, and the count of it. Must not know what it says. Invariant: a large
//! answer is counted from when it was made until its last piece was taken or its client is gone; a piece is made when
//! there is room for it, never before. Small answers are not counted: a connection has one at a time, and the request
//! keeps its place among the open ones until it was taken.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use axum::body::Body as AnyBody;
use axum::response::Response;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::quota::EdgeQuota;
use super::refusal::Refusal;
use bulkhead_domain::requestor::Requestor;
use bulkhead_limits::tenant_usage::UsageCounts;
use bulkhead_limits::{Full, Permit};
use bulkhead_protocol::{EncodedMessage, Pieces};

/// What a connection buffers of an answer beside what is left of it.
const BUFFERED_BYTES: u64 = 192 * 1024;

/// Whose answers are counted, and the request that they answer.
pub(super) struct Recipient {
    pub(super) quota: Arc<EdgeQuota>,
    pub(super) requestor: Requestor,
    /// As it is written in JSON; `None` where it could not be read.
    pub(super) id: Option<String>,
}

impl Recipient {
    /// Room for a message until it is written; `None` for a small one, which needs none.
    pub(super) fn room(&self, line: &EncodedMessage) -> Result<Option<Permit>, Full> {
        if line.is_small() {
            return Ok(None);
        }
        self.quota.hold(&self.requestor, line.held() as u64 + BUFFERED_BYTES).map(Some)
    }

    /// The response with room for it. One that has none is dropped, and an error that says so takes its place.
    pub(super) fn response(&self, line: EncodedMessage) -> (EncodedMessage, Option<Permit>) {
        match self.room(&line) {
            Ok(permit) => (line, permit),
            Err(full) => {
                drop(line);
                (Refusal::unread(full).to(self.id.clone()).body().into(), None)
            }
        }
    }
}

/// What is left of a message and of what stands around it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chunks {
    head: Bytes,
    pieces: Pieces,
    tail: Bytes,
}

impl Chunks {
    /// A message alone.
    pub(super) fn of(line: EncodedMessage) -> Self {
        Self { pieces: line.into_pieces(), ..Self::default() }
    }

    /// A message as a line.
    pub(super) fn line(message: EncodedMessage) -> Self {
        let message = message.on_one_line();
        if message.is_small() {
            return Self::text(message.into_text() + "\n");
        }
        Self { pieces: message.into_pieces(), tail: Bytes::from_static(b"\n"), ..Self::default() }
    }

    /// A text that is written as it is.
    pub(super) fn text(head: impl Into<Bytes>) -> Self {
        Self { head: head.into(), ..Self::default() }
    }

    /// A message as an event, with the other fields of the event in front.
    pub(super) fn event(fields: &str, line: EncodedMessage) -> Self {
        let line = line.on_one_line();
        if line.is_small() {
            return Self::text(format!("{fields}data: {}\n\n", line.text()));
        }
        let head = format!("{fields}data: ").into();
        let tail = Bytes::from_static(b"\n\n");
        Self { head, pieces: line.into_pieces(), tail }
    }

    /// Bytes in memory.
    pub(super) fn held(&self) -> usize {
        self.head.len() + self.pieces.held() + self.tail.len()
    }

    /// Bytes on the wire.
    pub(super) fn left(&self) -> usize {
        self.head.len() + self.pieces.left() + self.tail.len()
    }
}

impl Iterator for Chunks {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let Self { head, pieces, tail } = self;
        let part = |part: &mut Bytes| Some(std::mem::take(part)).filter(|part| !part.is_empty());
        part(head).or_else(|| pieces.next()).or_else(|| part(tail))
    }
}

/// A response body that holds something until it was taken or dropped.
pub(super) struct AnswerBody<H> {
    chunks: Chunks,
    _held: H,
}

impl<H> AnswerBody<H> {
    pub(super) fn new(line: EncodedMessage, held: H) -> Self {
        Self { chunks: Chunks::of(line), _held: held }
    }
}

impl<H: Unpin> Body for AnswerBody<H> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.chunks.next().map(|chunk| Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.chunks.left() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.chunks.left() as u64)
    }
}

/// Counts the bytes of a response for its tenant: at once where the body says how many there are, else as they are
/// taken. What does not say it is a stream of events, which counts as open until it is dropped.
pub(super) fn counted(
    response: Response<AnyBody>,
    counts: Arc<UsageCounts>,
    streams: &Arc<OpenStreams>,
) -> Response<AnyBody> {
    match response.body().size_hint().exact() {
        Some(bytes) => {
            counts.add_bytes_out(bytes);
            response
        }
        None => response.map(|body| AnyBody::new(CountedBody { body, counts, _open: OpenStream::begin(streams) })),
    }
}

/// A stream whose bytes are counted.
struct CountedBody {
    body: AnyBody,
    counts: Arc<UsageCounts>,
    _open: OpenStream,
}

/// Event streams that are open.
#[derive(Debug, Default)]
pub(super) struct OpenStreams(AtomicU64);

impl OpenStreams {
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One of them, until it is dropped.
struct OpenStream(Arc<OpenStreams>);

impl OpenStream {
    fn begin(streams: &Arc<OpenStreams>) -> Self {
        streams.0.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(streams))
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Body for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(bytes) = frame.data_ref()
        {
            self.counts.add_bytes_out(bytes.len() as u64);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

#[cfg(test)]
mod unit {
    use super::*;
    use bulkhead_domain::limits::Limits;
    use bulkhead_domain::requestor::{RequestorId, TenantId};
    use bulkhead_limits::UsageReport as _;
    use bulkhead_protocol::SMALL_BYTES;

    fn joined(chunks: Chunks) -> Vec<u8> {
        chunks.collect::<Vec<_>>().concat()
    }

    #[test]
    fn sse_event_is_equal_in_one_or_many_chunks() {
        let small = Chunks::event("id: 1\n", "{\"a\":\n1}".to_owned().into());
        assert_eq!((small.left(), joined(small)), (22, b"id: 1\ndata: {\"a\": 1}\n\n".to_vec()));
        let text = format!("{:?}", "x".repeat(3 * SMALL_BYTES));
        let large = Chunks::event("", text.clone().into());
        assert_eq!((large.clone().count(), large.left()), (6, text.len() + 8));
        assert!(joined(large) == format!("data: {text}\n\n").into_bytes());
    }

    #[tokio::test]
    async fn bytes_of_a_response_are_counted_at_once_or_as_they_are_taken() {
        use bulkhead_limits::tenant_usage::TenantUsage;
        use http_body_util::BodyExt as _;

        let usage = TenantUsage::default();
        let tenant = TenantId([1; 16]);
        let bytes_out = || usage.take().first().map_or(0, |(_, taken)| taken.bytes_out);
        let streams = Arc::default();
        let whole = counted(Response::new(AnyBody::from("12345")), usage.of(tenant), &streams);
        assert_eq!(bytes_out(), 5);
        assert_eq!(whole.into_body().collect().await.unwrap().to_bytes(), "12345");
        assert_eq!(bytes_out(), 0, "only once");
        let pieces = futures::stream::iter(["123", "4567"].map(Ok::<_, Infallible>));
        let mut stream = counted(Response::new(AnyBody::from_stream(pieces)), usage.of(tenant), &streams).into_body();
        assert_eq!(streams.count(), 1);
        assert_eq!(bytes_out(), 0, "nothing was taken");
        assert!(stream.frame().await.is_some());
        assert_eq!(bytes_out(), 3);
        assert_eq!(stream.collect().await.unwrap().to_bytes(), "4567");
        assert_eq!(bytes_out(), 4);
    }

    #[test]
    fn large_answer_counts_to_answer_bytes_quota_until_dropped() {
        let limits = Limits { answer_bytes_per_requestor: 1 << 20, ..Limits::generous() };
        let requestor = Requestor { tenant: TenantId([1; 16]), id: RequestorId([1; 16]) };
        let quota = Arc::new(EdgeQuota::new(limits.into()));
        let recipient = Recipient { quota: Arc::clone(&quota), requestor, id: Some("7".to_owned()) };
        let in_use = || {
            let in_use = quota.in_use_of_all();
            in_use.iter().find(|taken| taken.limit == "answer_bytes_total").map(|taken| taken.in_use)
        };
        let large = || EncodedMessage::from(format!("{:?}", "x".repeat(700_000)));
        assert_eq!(
            recipient.response(EncodedMessage::from("{}".to_owned())).1.map(drop),
            None,
            "small ones need no room"
        );
        let (line, permit) = recipient.response(large());
        assert_eq!((line, in_use()), (large(), Some(700_002 + BUFFERED_BYTES)));
        assert_eq!(quota.full_of_answers(&requestor).map(|full| full.limit), Some("answer_bytes_per_requestor"));
        let (error, none) = recipient.response(large());
        assert!(none.is_none() && error.text().contains(r#""id":7,"error":{"code":1010"#), "{}", error.text());
        assert!(error.text().contains("answer_bytes_per_requestor"));
        drop(AnswerBody::new(large(), permit));
        assert_eq!((in_use(), quota.full_of_answers(&requestor)), (Some(0), None));
    }
}
