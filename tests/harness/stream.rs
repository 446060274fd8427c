//! What comes back for one HTTP request: one JSON message, or a stream of events.

use std::collections::VecDeque;

use futures::StreamExt;
use futures::stream::BoxStream;
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, HeaderValue};
use serde_json::Value;

use crate::schema::{self, Check, Expected};
use crate::wait::soon;

/// A Server-Sent Event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    pub id: Option<String>,
    pub name: Option<String>,
    pub retry: Option<String>,
    pub data: String,
    /// There was a `data` field, even if it was empty.
    pub has_data: bool,
}

enum Body {
    Whole(Option<Value>),
    Events { bytes: BoxStream<'static, Result<Vec<u8>, String>>, buffer: Vec<u8>, ready: VecDeque<Event> },
}

/// A reply in progress.
pub struct Incoming {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// The body as text when it is not an event stream.
    pub text: String,
    body: Body,
    expected: Option<Expected>,
    /// Of the revision that the request was of.
    check: Check,
    /// The id of the last event seen, for resuming.
    pub last_event_id: Option<String>,
    /// Comment lines seen so far.
    pub comments: u32,
    /// Events without a message (priming, retry).
    pub silent_events: Vec<Event>,
}

impl Incoming {
    pub(crate) async fn of(response: reqwest::Response, expected: Option<Expected>) -> Self {
        let status = response.status();
        let headers = response.headers().clone();
        let kind = headers.get("content-type").map_or("", |value: &HeaderValue| value.to_str().unwrap_or_default());
        let (text, body) = if kind.starts_with("text/event-stream") {
            let bytes = response.bytes_stream().map(|chunk| match chunk {
                Ok(chunk) => Ok(chunk.to_vec()),
                Err(error) => Err(error.to_string()),
            });
            (String::new(), Body::Events { bytes: bytes.boxed(), buffer: Vec::new(), ready: VecDeque::new() })
        } else {
            let text = soon("a body", response.text()).await.expect("the body arrives");
            let whole = kind.starts_with("application/json").then(|| {
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("the body is not JSON ({error}): {text}"))
            });
            (text, Body::Whole(whole))
        };
        let check: Check = schema::check;
        Self {
            status,
            headers,
            text,
            body,
            expected,
            check,
            last_event_id: None,
            comments: 0,
            silent_events: Vec::new(),
        }
    }

    /// What comes back is of revision 2026-07-28.
    pub(crate) fn modern(self) -> Self {
        Self { check: schema::check_modern, ..self }
    }

    /// What comes back is of a session of this revision.
    pub(crate) fn of_session(self, version: &str) -> Self {
        Self { check: schema::check_of(version), ..self }
    }

    /// Whether it came as an event stream.
    pub fn is_stream(&self) -> bool {
        matches!(self.body, Body::Events { .. })
    }

    /// The next message, checked; `None` at the end.
    pub async fn next(&mut self) -> Option<Value> {
        let message = match &mut self.body {
            Body::Whole(message) => message.take()?,
            Body::Events { .. } => loop {
                let event = self.next_event().await?;
                if event.data.is_empty() {
                    self.silent_events.push(event);
                    continue;
                }
                break serde_json::from_str(&event.data)
                    .unwrap_or_else(|error| panic!("an event that is not JSON ({error}): {}", event.data));
            },
        };
        (self.check)(&message, self.expected.as_ref());
        Some(message)
    }

    /// The response; what came before it goes to `others`.
    pub async fn response_after(&mut self, others: &mut Vec<Value>) -> Value {
        loop {
            let next = soon("a response", self.next()).await;
            let message = next.unwrap_or_else(|| {
                panic!("the reply ended without a response: {} {} after {others:?}", self.status, self.text)
            });
            if message.get("method").is_none() {
                return message;
            }
            others.push(message);
        }
    }

    /// The next event of a stream; `None` at its end.
    pub async fn next_event(&mut self) -> Option<Event> {
        loop {
            let Body::Events { bytes, buffer, ready } = &mut self.body else { panic!("this is no event stream") };
            if let Some(event) = ready.pop_front() {
                if let Some(id) = &event.id {
                    self.last_event_id = Some(id.clone());
                }
                return Some(event);
            }
            // A connection that breaks off ends the stream like one that is closed.
            buffer.extend(bytes.next().await?.ok()?);
            while let Some(at) = buffer.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = buffer.drain(..at + 2).collect();
                let (event, comments) = parse(std::str::from_utf8(&block).expect("events are UTF-8"));
                self.comments += comments;
                ready.extend(event);
            }
        }
    }
}

/// One block up to its empty line; a block of comments alone is no event.
fn parse(block: &str) -> (Option<Event>, u32) {
    let mut event = Event::default();
    let mut comments = 0;
    let mut fields = 0;
    for line in block.lines().filter(|line| !line.is_empty()) {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "" => {
                comments += 1;
                continue;
            }
            "data" => {
                if event.has_data {
                    event.data.push('\n');
                }
                event.data.push_str(value);
                event.has_data = true;
            }
            "id" => event.id = Some(value.to_owned()),
            "event" => event.name = Some(value.to_owned()),
            "retry" => event.retry = Some(value.to_owned()),
            other => panic!("a field that no event stream has: {other}"),
        }
        fields += 1;
    }
    ((fields > 0).then_some(event), comments)
}
