//! The answers to a batch, as one message.
//!
//! Owns what waits for the slowest request of a batch, and the count of it. Invariant: a large answer is counted while
//! it waits, and every request that is answered has its response in the one array, if only to say that there was no
//! room for it.

use futures::StreamExt as _;
use futures::stream::{self, SelectAll};

use super::answer::Recipient;
use super::refusal::{ID_BYTES_MAX, Refusal};
use bulkhead_limits::Permit;
use bulkhead_protocol::{EncodedMessage, Exchange, Frame};

/// A response with the id that it answers, and the room for it.
struct Waiting {
    id: Option<String>,
    message: EncodedMessage,
    permit: Option<Permit>,
}

struct Joining {
    frames: SelectAll<stream::BoxStream<'static, (Option<String>, Frame)>>,
    waiting: Vec<Waiting>,
    recipient: Recipient,
}

/// The requests of a batch as one: what they say on their way as it comes, then all responses in one array. Without any
/// response, for example because the client cancelled what it asked, nothing ends it.
pub(super) fn joined(
    exchanges: Vec<(Option<String>, Exchange)>,
    responses: Vec<String>,
    recipient: Recipient,
) -> Exchange {
    let frames = exchanges.into_iter().map(|(id, exchange)| {
        let id = short(id.as_deref());
        exchange.map(move |frame| (id.clone(), frame)).boxed()
    });
    let waiting = responses.into_iter().map(|body| Waiting { id: None, message: body.into(), permit: None }).collect();
    let joining = Joining { frames: stream::select_all(frames), waiting, recipient };
    stream::unfold(joining, |mut joining| async move {
        let frame = joining.next().await?;
        Some((frame, joining))
    })
    .boxed()
}

/// An id that is echoed.
pub(super) fn short(id: Option<&str>) -> Option<String> {
    id.filter(|id| id.len() <= ID_BYTES_MAX).map(str::to_owned)
}

impl Joining {
    async fn next(&mut self) -> Option<Frame> {
        while let Some((id, frame)) = self.frames.next().await {
            if !frame.last {
                return Some(frame);
            }
            self.recipient.id = id;
            let (message, permit) = self.recipient.response(frame.message);
            let id = self.recipient.id.take();
            self.waiting.push(Waiting { id, message, permit });
        }
        let waiting = std::mem::take(&mut self.waiting);
        if waiting.is_empty() {
            return None;
        }
        Some(Frame { message: self.array(waiting), last: true, rejection: None })
    }

    /// The room of the single responses is released, and is there for all of them together.
    fn array(&self, waiting: Vec<Waiting>) -> EncodedMessage {
        let mut ids = Vec::with_capacity(waiting.len());
        let mut messages = Vec::with_capacity(waiting.len());
        for Waiting { id, message, permit } in waiting {
            drop(permit);
            ids.push(id);
            messages.push(message);
        }
        let array = in_brackets(messages.into_iter().map(EncodedMessage::into_text));
        match self.recipient.room(&array) {
            Ok(_) => array,
            Err(full) => in_brackets(ids.into_iter().map(|id| Refusal::unread(full).to(id).body())),
        }
    }
}

fn in_brackets(messages: impl Iterator<Item = String>) -> EncodedMessage {
    let mut text = String::from("[");
    for (at, message) in messages.enumerate() {
        if at > 0 {
            text.push(',');
        }
        text.push_str(&message);
    }
    text.push(']');
    text.into()
}
