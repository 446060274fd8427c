//! An answer on its way in: values become placeholders again.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{HeaderMap, HeaderValue};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use wasmtime_wasi_http::{Error, WasiBody};

use super::Secret;
use super::spelling::{Found, Spelling};

/// Replaces values in a stream of bytes, wherever its pieces begin and end.
#[derive(Clone)]
pub(super) struct Scrubber {
    /// Spellings of values, with what takes their place.
    needles: Arc<[(Spelling, Bytes)]>,
    /// Whether a needle begins with a byte.
    begins: [bool; 256],
    /// The end of what came, if it may be the beginning of a needle.
    held: Vec<u8>,
}

/// Never a value.
impl fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrubber").field("needles", &self.needles.len()).finish_non_exhaustive()
    }
}

impl Scrubber {
    /// For values in the spellings in which servers like to repeat them.
    pub(super) fn new(secrets: &[&Secret]) -> Self {
        let mut needles = Vec::new();
        for secret in secrets {
            let with = Bytes::from(secret.placeholder());
            needles.extend(Spelling::of(&secret.value).into_iter().map(|spelling| (spelling, with.clone())));
        }
        let mut begins = [false; 256];
        for first in needles.iter().flat_map(|(spelling, _)| spelling.first_bytes()) {
            for first in [first.to_ascii_lowercase(), first.to_ascii_uppercase()] {
                if let Some(begin) = begins.get_mut(usize::from(first)) {
                    *begin = true;
                }
            }
        }
        Self { needles: needles.into(), begins, held: Vec::new() }
    }

    /// What can be passed on of what has come so far.
    fn push(&mut self, data: &[u8]) -> Vec<u8> {
        let mut text = std::mem::take(&mut self.held);
        text.extend(data);
        self.scan(&text, false)
    }

    /// What was held back.
    fn finish(&mut self) -> Vec<u8> {
        let text = std::mem::take(&mut self.held);
        self.scan(&text, true)
    }

    fn scan(&mut self, text: &[u8], is_last: bool) -> Vec<u8> {
        let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
        while let Some((first, after)) = rest.split_first() {
            let is_begin = self.begins.get(usize::from(*first)).copied().unwrap_or_default();
            match if is_begin { self.find(rest) } else { (Found::Nothing, None) } {
                (Found::Beginning, _) if !is_last => {
                    self.held = rest.to_vec();
                    return out;
                }
                (_, Some((bytes, with))) => {
                    out.extend_from_slice(with);
                    rest = rest.get(bytes..).unwrap_or_default();
                }
                _ => {
                    out.push(*first);
                    rest = after;
                }
            }
        }
        out
    }

    /// Whether a value may begin here that is not there as a whole, and the longest that is.
    fn find(&self, text: &[u8]) -> (Found, Option<(usize, &Bytes)>) {
        let (mut undecided, mut longest) = (Found::Nothing, None::<(usize, &Bytes)>);
        for (spelling, with) in self.needles.iter() {
            match spelling.find(text) {
                Found::Whole(bytes) if longest.is_none_or(|(most, _)| bytes > most) => longest = Some((bytes, with)),
                Found::Beginning => undecided = Found::Beginning,
                Found::Whole(_) | Found::Nothing => {}
            }
        }
        (undecided, longest)
    }

    /// A text that is there as a whole; `None` when there was no value in it.
    fn whole(&self, text: &[u8]) -> Option<Vec<u8>> {
        let scrubbed = self.clone().scan(text, true);
        (scrubbed != text).then_some(scrubbed)
    }
}

/// Replaces values in headers or trailers.
pub(super) fn scrub_headers(scrubber: &Scrubber, headers: &mut HeaderMap) {
    for value in headers.values_mut() {
        if let Some(scrubbed) = scrubber.whole(value.as_bytes()) {
            *value = HeaderValue::from_bytes(&scrubbed).unwrap_or_else(|_| HeaderValue::from_static(""));
        }
    }
}

/// The body without values.
pub(super) fn scrubbed(scrubber: Scrubber, body: WasiBody) -> WasiBody {
    Scrubbed { scrubber, body, ready: VecDeque::new(), is_over: false }.boxed_unsync()
}

struct Scrubbed {
    scrubber: Scrubber,
    body: WasiBody,
    /// What comes before anything else is read.
    ready: VecDeque<Frame<Bytes>>,
    is_over: bool,
}

impl Scrubbed {
    fn take_in(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(data) => self.queue(|scrubber| scrubber.push(&data)),
            Err(frame) => {
                self.queue(Scrubber::finish);
                if let Ok(mut trailers) = frame.into_trailers() {
                    scrub_headers(&self.scrubber, &mut trailers);
                    self.ready.push_back(Frame::trailers(trailers));
                }
            }
        }
    }

    fn queue(&mut self, scrub: impl FnOnce(&mut Scrubber) -> Vec<u8>) {
        let bytes = scrub(&mut self.scrubber);
        if !bytes.is_empty() {
            self.ready.push_back(Frame::data(bytes.into()));
        }
    }
}

impl Body for Scrubbed {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        loop {
            if let Some(frame) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(frame)));
            }
            if this.is_over {
                return Poll::Ready(None);
            }
            match Pin::new(&mut this.body).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(frame))) => this.take_in(frame),
                Poll::Ready(Some(Err(error))) => {
                    this.is_over = true;
                    return Poll::Ready(Some(Err(error)));
                }
                Poll::Ready(None) => {
                    this.is_over = true;
                    this.queue(Scrubber::finish);
                }
            }
        }
    }
}
