//! The body of a POST: how it is read, and what has to be asked before.
//!
//! Owns where small bodies end and large ones begin. Invariant: of a large body no byte beyond the first
//! [`INLINE_BYTES_MAX`] is read before its request has a place and its bytes have their turn and their room; what is
//! refused is not looked into.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;

use crate::refusal::Refusal;
use bulkhead_domain::requestor::Requestor;
use bulkhead_limits::Permit;
use bulkhead_protocol::INLINE_BYTES_MAX;

use super::Server;

/// How long a body may take: enough for the largest one at a tenth of a megabyte per second and for the usual one at
/// much less.
const BODY_MS_MAX: u64 = 60_000;
/// What is read and thrown away of a body that is refused: a client that is still writing would see a reset, not the
/// answer.
const DISCARD_BYTES_MAX: usize = 64 << 20;
/// How long that may take, in milliseconds.
const DISCARD_MS_MAX: u64 = 2_000;

/// What arrived at once, or the beginning of more.
pub(super) enum Arrived {
    Small(Bytes),
    Large(Large),
}

/// A body that is not read yet, except for its beginning.
pub(super) struct Large {
    body: Body,
    beginning: BytesMut,
    announced: Option<usize>,
    /// The client waits to be told to go on, and has not sent anything yet.
    waits: bool,
}

/// A body that was read.
pub(super) struct WholeBody {
    pub(super) bytes: Bytes,
    /// That of its request among the open ones, which a large body has before it is read.
    pub(super) permit: Option<Permit>,
}

/// The length that is announced.
fn announced(headers: &HeaderMap) -> Option<usize> {
    let length = headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse::<u64>().ok()?;
    Some(usize::try_from(length).unwrap_or(usize::MAX))
}

/// Whether the headers say that the body is a large one.
pub(super) fn is_large(headers: &HeaderMap) -> bool {
    announced(headers).is_some_and(|length| length > INLINE_BYTES_MAX)
}

/// Reads a body as far as it costs next to nothing.
pub(super) async fn begin(mut body: Body, headers: &HeaderMap, bytes_max: usize) -> Result<Arrived, Refusal> {
    let announced = announced(headers);
    let waits = headers.contains_key(header::EXPECT);
    let small = bytes_max.min(INLINE_BYTES_MAX);
    if announced.is_some_and(|length| length > small) {
        return Ok(Arrived::Large(Large { body, beginning: BytesMut::new(), announced, waits }));
    }
    let reading = async {
        let mut bytes = BytesMut::new();
        let mut first: Option<Bytes> = None;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
            let so_far = bytes.len() + first.as_ref().map_or(0, Bytes::len);
            let is_large = so_far + data.len() > small;
            // Most bodies come in one piece, which then need not be copied.
            match first.take() {
                None if bytes.is_empty() && !is_large => first = Some(data),
                former => {
                    bytes.extend_from_slice(&former.unwrap_or_default());
                    bytes.extend_from_slice(&data);
                }
            }
            if is_large {
                return Ok(Err(bytes));
            }
        }
        Ok::<_, Refusal>(Ok(first.unwrap_or_else(|| bytes.freeze())))
    };
    // Most bodies are there with their headers, and need no timer.
    let read = {
        let mut reading = pin!(reading);
        match futures::poll!(&mut reading) {
            Poll::Ready(read) => read,
            Poll::Pending => in_time(reading).await?,
        }
    };
    Ok(match read? {
        Ok(bytes) => Arrived::Small(bytes),
        Err(beginning) => Arrived::Large(Large { body, beginning, announced, waits: false }),
    })
}

async fn in_time<T>(reading: impl Future<Output = T>) -> Result<T, Refusal> {
    let read = tokio::time::timeout(Duration::from_millis(BODY_MS_MAX), reading).await;
    read.map_err(|_| Refusal::new(StatusCode::REQUEST_TIMEOUT, "The body took too long to arrive"))
}

fn broken(_: axum::Error) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "The body ended early or is not encoded properly")
}

fn too_large(limit: &'static str, value: usize) -> Refusal {
    let message = format!("The body is larger than {value} bytes, which is the limit {limit}");
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message)
}

impl Server {
    /// Reads a large body once its request has a place, and its bytes their turn and their room. They count for as long
    /// as anybody holds what is returned.
    pub(super) async fn take_in(&self, requestor: &Requestor, mut large: Large) -> Result<WholeBody, Refusal> {
        let taken = self.try_take_in(requestor, &mut large).await;
        if let Err(refusal) = &taken
            && matches!(refusal.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::PAYLOAD_TOO_LARGE)
        {
            self.discard(requestor, large).await;
        }
        taken
    }

    async fn try_take_in(&self, requestor: &Requestor, large: &mut Large) -> Result<WholeBody, Refusal> {
        let permit = self.quota.admit_and_open(requestor)?;
        let bodies = &self.quota.bodies;
        let (limit, largest) = bodies.largest(requestor, self.options.body_bytes_max);
        // Without a length it may become as large as any.
        let bytes_max = large.announced.unwrap_or(largest);
        if bytes_max > largest || large.beginning.len() > largest {
            return Err(too_large(limit, largest));
        }
        let intake = bodies.admit(requestor, bytes_max).await?;
        match in_time(large.read(bytes_max)).await?? {
            Some(bytes) => Ok(WholeBody { bytes: intake.keep(bytes), permit: Some(permit) }),
            None => Err(too_large(limit, largest)),
        }
    }

    /// Reads what is refused, so that its client hears why, unless that is too much.
    async fn discard(&self, requestor: &Requestor, large: Large) {
        let Large { mut body, announced, waits, .. } = large;
        let mut left = announced.unwrap_or(DISCARD_BYTES_MAX).min(DISCARD_BYTES_MAX);
        if waits || !self.quota.bodies.may_discard(requestor, left).await {
            return;
        }
        let discarding = async {
            while let Some(Ok(frame)) = body.frame().await {
                left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
                if left == 0 && announced.is_none_or(|length| length > DISCARD_BYTES_MAX) {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_millis(DISCARD_MS_MAX), discarding).await;
    }
}

impl Large {
    /// The whole of it; `None` when it is larger than this.
    async fn read(&mut self, bytes_max: usize) -> Result<Option<BytesMut>, Refusal> {
        let mut bytes = std::mem::take(&mut self.beginning);
        bytes.reserve(self.announced.unwrap_or_default().saturating_sub(bytes.len()));
        while let Some(frame) = self.body.frame().await {
            let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
            if bytes.len() + data.len() > bytes_max {
                return Ok(None);
            }
            bytes.extend_from_slice(&data);
            // Other connections of the thread get their turn between two pieces.
            tokio::task::yield_now().await;
        }
        Ok(Some(bytes))
    }
}
