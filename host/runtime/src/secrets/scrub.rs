//! An answer on its way in: values become placeholders again.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{HeaderMap, HeaderValue};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use wasmtime_wasi_http::{Error, WasiBody};

use super::spelling::{Letters, Match, Spelling};
use bulkhead_calls::secrets::Secret;

/// Replaces values in a stream of bytes, wherever its pieces begin and end.
pub(super) struct Scrubber {
    /// Spellings of values, with what takes their place.
    needles: Vec<(Spelling, Bytes)>,
    starts: Starts,
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
        let starts = Starts::new(needles.iter().flat_map(|(spelling, _)| spelling.first_bytes()));
        Self { needles, starts, held: Vec::new() }
    }

    /// What can be passed on of what has come so far.
    fn push(&mut self, data: &[u8]) -> Vec<u8> {
        let mut text = std::mem::take(&mut self.held);
        text.extend(data);
        let (out, rest) = self.scan(&text, false);
        self.held = rest.to_vec();
        out
    }

    /// What was held back.
    fn finish(&mut self) -> Vec<u8> {
        let text = std::mem::take(&mut self.held);
        self.scan(&text, true).0
    }

    /// The text without values, and its end that may be the beginning of one.
    fn scan<'a>(&self, text: &'a [u8], is_last: bool) -> (Vec<u8>, &'a [u8]) {
        let mut out = Vec::with_capacity(text.len());
        let mut rest = text;
        while let Some((first, after)) = rest.split_first() {
            match self.find(rest, Letters::AsWritten) {
                (Match::Beginning, _) if !is_last => return (out, rest),
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
        (out, rest)
    }

    /// Whether a value may begin here that is not there as a whole, and the longest that is.
    fn find(&self, text: &[u8], letters: Letters) -> (Match, Option<(usize, &Bytes)>) {
        let mut undecided = Match::Nothing;
        let mut longest = None::<(usize, &Bytes)>;
        if !self.starts.may_begin(text) {
            return (undecided, longest);
        }
        for (spelling, with) in &self.needles {
            match spelling.find(text, letters) {
                Match::Whole(bytes) if longest.is_none_or(|(most, _)| bytes > most) => longest = Some((bytes, with)),
                Match::Beginning => undecided = Match::Beginning,
                Match::Whole(_) | Match::Nothing => {}
            }
        }
        (undecided, longest)
    }

    /// A text that is there as a whole; `None` when there was no value in it.
    fn whole(&self, text: &[u8]) -> Option<Vec<u8>> {
        let (scrubbed, _) = self.scan(text, true);
        (scrubbed != text).then_some(scrubbed)
    }

    /// Whether a value stands in the name of a header.
    fn is_in_name(&self, name: &[u8]) -> bool {
        (0..name.len()).any(|at| self.find(name.get(at..).unwrap_or_default(), Letters::AnyCase).1.is_some())
    }
}

/// With which two bytes a needle begins, in any case of letters: looking for needles at every byte of an answer would
/// cost a hundred times as much as this.
struct Starts {
    first: [bool; 256],
    /// A bit for each pair.
    pairs: Vec<u64>,
}

impl Starts {
    fn new(begins: impl Iterator<Item = (u8, Option<u8>)>) -> Self {
        let mut starts = Self { first: [false; 256], pairs: vec![0; (1 << 16) / 64] };
        for (first, second) in begins {
            let seconds = second.map_or(0..=u8::MAX, |second| second..=second);
            for second in seconds {
                for first in [first.to_ascii_lowercase(), first.to_ascii_uppercase()] {
                    for second in [second.to_ascii_lowercase(), second.to_ascii_uppercase()] {
                        starts.add(first, second);
                    }
                }
            }
        }
        starts
    }

    fn add(&mut self, first: u8, second: u8) {
        if let Some(begins) = self.first.get_mut(usize::from(first)) {
            *begins = true;
        }
        let (word, bit) = place(first, second);
        if let Some(word) = self.pairs.get_mut(word) {
            *word |= 1 << bit;
        }
    }

    fn may_begin(&self, text: &[u8]) -> bool {
        match *text {
            [] => false,
            [first] => self.first.get(usize::from(first)).copied().unwrap_or_default(),
            [first, second, ..] => {
                let (word, bit) = place(first, second);
                self.pairs.get(word).is_some_and(|word| word >> bit & 1 == 1)
            }
        }
    }
}

/// Where the bit of a pair is.
fn place(first: u8, second: u8) -> (usize, u32) {
    let pair = usize::from(first) << 8 | usize::from(second);
    (pair / 64, (pair % 64) as u32)
}

/// Replaces values in headers or trailers. A header with a value in its name is left out: a name cannot hold a
/// placeholder.
pub(super) fn scrub_headers(scrubber: &Scrubber, headers: &mut HeaderMap) {
    let named: Vec<_> = headers.keys().filter(|name| scrubber.is_in_name(name.as_ref())).cloned().collect();
    for name in named {
        headers.remove(name);
    }
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
