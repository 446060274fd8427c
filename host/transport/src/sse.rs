//! Event streams that can be resumed.
//!
//! Owns event ids and the bounded logs behind the streams of a session. Must not know HTTP. Invariant: each message is
//! in the log of exactly one stream, a log has at most one reader, and neither a slow reader nor an absent one makes
//! anybody wait.
//!
//! An event id is `EPOCH.STREAM.REQUEST.NUMBER`: which run of the host, which stream of the session, the id of the
//! request that the stream answers (base64url, empty for a standalone stream), which event. The request id is there so
//! that even after a restart the client's request can be ended with an error instead of waiting for ever.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;

use bulkhead_domain::UnixMs;

use super::answer::Chunks;
use super::refusal::{Refusal, usable_id};
use bulkhead_domain::requestor::Requestor;
use bulkhead_limits::{Full, ScopedCounter};
use bulkhead_protocol::EncodedMessage;

/// Events kept for one stream; at the rate limit of a call's events, five seconds of a reader that does not read.
const EVENTS_MAX: usize = 256;
/// Bytes kept for one stream; the newest event is kept for a present reader even if it is larger (a result may be).
const EVENT_BYTES_MAX: usize = 1 << 20;
/// Finished streams kept for one session.
const LOGS_MAX: usize = 64;
/// How long a finished stream can still be resumed.
const RETENTION_MS: u64 = 300_000;
/// How long a client should wait before it connects again.
const RETRY_MS: u64 = 1000;

/// A comment: keeps proxies and clients from taking silence for death.
pub(super) const KEEPALIVE: Bytes = Bytes::from_static(b": keep-alive\n\n");

/// The bytes that the logs of one requestor keep: a thousand sessions with abandoned streams must not fill the memory.
#[derive(Clone)]
pub(super) struct ReplayBytes {
    counter: Arc<ScopedCounter>,
    requestor: Requestor,
}

impl ReplayBytes {
    pub(super) fn new(counter: Arc<ScopedCounter>, requestor: Requestor) -> Self {
        Self { counter, requestor }
    }

    fn add(&self, bytes: usize) {
        self.counter.add(&self.requestor, bytes as u64);
    }

    fn give(&self, bytes: usize) {
        self.counter.release(&self.requestor, bytes as u64);
    }

    /// The limit that there is more than.
    fn over(&self) -> Option<Full> {
        self.counter.find_full(&self.requestor, |usage| usage.in_use > usage.max)
    }
}

/// Where a client says it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EventId {
    epoch: u32,
    stream: u64,
    /// The id of the request that the stream answers, as it is written in JSON.
    pub(super) request: Option<String>,
    pub(super) number: u64,
}

impl EventId {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let epoch = parts.next()?;
        let stream = parts.next()?;
        let request = parts.next()?;
        let number = parts.next()?;
        if parts.next().is_some() {
            return None;
        }
        let request = match request {
            "" => None,
            encoded => Some(usable_id(std::str::from_utf8(&URL_SAFE_NO_PAD.decode(encoded).ok()?).ok()?)?),
        };
        Some(Self {
            epoch: u32::from_str_radix(epoch, 16).ok()?,
            stream: stream.parse().ok()?,
            request,
            number: number.parse().ok()?,
        })
    }
}

/// What a reader gets.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Event {
        number: u64,
        text: Chunks,
    },
    /// Nothing yet.
    Wait,
    /// Everything was read, another reader took over, or this one is too slow.
    Over,
}

/// The last messages of one stream.
pub(super) struct EventLog {
    /// What its event ids begin with.
    prefix: String,
    /// The id of the request that the stream answers, as it is written in JSON.
    request: Option<String>,
    ring: Mutex<Ring>,
    changed: watch::Sender<()>,
    kept: ReplayBytes,
}

#[derive(Default)]
struct Ring {
    events: VecDeque<Event>,
    bytes: usize,
    /// The number of the newest event; the priming event is 0.
    newest: u64,
    /// The present or last reader.
    reader: u64,
    reading: bool,
    /// The final response is in.
    complete: bool,
    /// Since when nothing can be added.
    quiet_since: Option<UnixMs>,
}

struct Event {
    number: u64,
    text: Chunks,
}

impl EventLog {
    fn new(prefix: String, request: Option<String>, kept: ReplayBytes) -> Self {
        Self { prefix, request, ring: Mutex::default(), changed: watch::Sender::new(()), kept }
    }

    /// What a new stream begins with: an id to resume from before anything was said.
    pub(super) fn priming(&self) -> Bytes {
        Bytes::from(format!("id: {}.0\nretry: {RETRY_MS}\ndata:\n\n", self.prefix))
    }

    /// Adds a message and drops what there is no room for. A large message stays only if there is room for it, with or
    /// without a reader; otherwise an error takes a response's place.
    pub(super) fn push(&self, message: EncodedMessage, last: bool) {
        let mut ring = self.ring.lock();
        ring.newest += 1;
        ring.complete |= last;
        let is_small = message.is_small();
        self.keep(&mut ring, message);
        self.trim(&mut ring);
        if let Some(full) = self.kept.over().filter(|_| !is_small && !ring.events.is_empty()) {
            self.forget(ring.events.pop_back(), &mut ring.bytes);
            if last {
                self.keep(&mut ring, Refusal::unread(full).to(self.request.clone()).body().into());
            }
        }
        drop(ring);
        self.changed.send_replace(());
    }

    /// Keeps the newest message.
    fn keep(&self, ring: &mut Ring, message: EncodedMessage) {
        let number = ring.newest;
        let text = Chunks::event(&format!("id: {}.{number}\n", self.prefix), message);
        ring.bytes += text.held();
        self.kept.add(text.held());
        ring.events.push_back(Event { number, text });
    }

    fn forget(&self, event: Option<Event>, bytes: &mut usize) {
        let held = event.map_or(0, |event| event.text.held());
        *bytes -= held;
        self.kept.give(held);
    }

    fn trim(&self, ring: &mut Ring) {
        loop {
            let full = self.kept.over().is_some();
            let large = ring.events.len() > EVENTS_MAX || ring.bytes > EVENT_BYTES_MAX;
            // The newest event goes only when there is nobody to read it and the requestor's share is used up.
            let drop_one = if ring.events.len() > 1 { full || large } else { full && !ring.reading };
            if !drop_one {
                return;
            }
            let oldest = ring.events.pop_front();
            if oldest.is_none() {
                return;
            }
            self.forget(oldest, &mut ring.bytes);
        }
    }

    /// Nothing will be added.
    pub(super) fn finish(&self, now: UnixMs) {
        self.ring.lock().quiet_since = Some(now);
        self.changed.send_replace(());
    }

    /// Makes the caller the reader; the former one is told to stop.
    pub(super) fn read(&self) -> (u64, watch::Receiver<()>) {
        let mut ring = self.ring.lock();
        ring.reader += 1;
        ring.reading = true;
        let number = ring.reader;
        drop(ring);
        self.changed.send_replace(());
        (number, self.changed.subscribe())
    }

    /// A standalone stream can be continued after it was quiet.
    pub(super) fn reopen(&self) {
        self.ring.lock().quiet_since = None;
    }

    /// The reader is gone.
    pub(super) fn leave(&self, reader: u64) {
        let mut ring = self.ring.lock();
        if ring.reader == reader {
            ring.reading = false;
            self.trim(&mut ring);
        }
    }

    /// Where a reader that saw the event `after` can go on; `None` if what it missed is gone. When the final response
    /// is still there, missing what came before it does no harm.
    pub(super) fn resume(&self, after: u64) -> Option<u64> {
        let ring = self.ring.lock();
        let after = after.min(ring.newest);
        match ring.events.front() {
            _ if after == ring.newest => Some(after),
            Some(first) if first.number <= after + 1 => Some(after),
            Some(first) if ring.complete => Some(first.number - 1),
            _ => None,
        }
    }

    /// What comes after the event `after`.
    pub(super) fn next(&self, reader: u64, after: u64) -> Next {
        let ring = self.ring.lock();
        if ring.reader != reader {
            return Next::Over;
        }
        let Some(first) = ring.events.front() else {
            return if ring.newest > after || ring.quiet_since.is_some() { Next::Over } else { Next::Wait };
        };
        let event =
            (after + 1).checked_sub(first.number).and_then(|index| ring.events.get(usize::try_from(index).ok()?));
        match event {
            Some(event) => Next::Event { number: event.number, text: event.text.clone() },
            None if after < ring.newest || ring.quiet_since.is_some() => Next::Over,
            None => Next::Wait,
        }
    }
}

impl Drop for EventLog {
    fn drop(&mut self) {
        let bytes = self.ring.lock().bytes;
        self.kept.give(bytes);
    }
}

/// The streams of one session.
#[derive(Default)]
pub(super) struct Streams(Mutex<Opened>);

#[derive(Default)]
struct Opened {
    count: u64,
    logs: BTreeMap<u64, Arc<EventLog>>,
}

impl Streams {
    /// A new stream; `request` is the id of the request that it answers.
    pub(super) fn open(&self, epoch: u32, request: Option<&str>, kept: &ReplayBytes) -> Arc<EventLog> {
        let mut opened = self.0.lock();
        opened.count += 1;
        let count = opened.count;
        let encoded = request.map(|id| URL_SAFE_NO_PAD.encode(id)).unwrap_or_default();
        let prefix = format!("{epoch:x}.{count}.{encoded}");
        let log = Arc::new(EventLog::new(prefix, request.map(ToOwned::to_owned), kept.clone()));
        if opened.logs.len() >= LOGS_MAX {
            let finished =
                opened.logs.iter().find(|(_, log)| log.ring.lock().quiet_since.is_some()).map(|(number, _)| *number);
            if let Some(number) = finished {
                opened.logs.remove(&number);
            }
        }
        opened.logs.insert(count, log.clone());
        log
    }

    /// The stream that an event id speaks of.
    pub(super) fn find(&self, epoch: u32, id: &EventId) -> Option<Arc<EventLog>> {
        if id.epoch != epoch {
            return None;
        }
        self.0.lock().logs.get(&id.stream).cloned()
    }

    /// Forgets streams that have been finished for long enough.
    pub(super) fn sweep(&self, now: UnixMs) {
        self.0.lock().logs.retain(|_, log| {
            let ring = log.ring.lock();
            ring.reading || ring.quiet_since.is_none_or(|since| now < since.saturating_add(RETENTION_MS))
        });
    }
}

#[cfg(test)]
mod unit {
    use super::*;
    use crate::quota::EdgeQuota;
    use bulkhead_domain::limits::Limits;
    use bulkhead_domain::requestor::{RequestorId, TenantId};

    fn kept() -> ReplayBytes {
        let requestor = Requestor { tenant: TenantId([1; 16]), id: RequestorId([1; 16]) };
        ReplayBytes::new(EdgeQuota::new(Limits::generous().into()).kept, requestor)
    }

    fn log() -> EventLog {
        EventLog::new("1.1.".into(), None, kept())
    }

    fn line(text: &str) -> EncodedMessage {
        text.to_owned().into()
    }

    fn numbers(log: &EventLog, reader: u64, mut after: u64) -> Vec<u64> {
        let mut seen = Vec::new();
        while let Next::Event { number, .. } = log.next(reader, after) {
            seen.push(number);
            after = number;
        }
        seen
    }

    #[test]
    fn sse_event_ids_round_trip() {
        let streams = Streams::default();
        let log = streams.open(0xbeef, Some(r#""a.b""#), &kept());
        let priming = String::from_utf8(log.priming().to_vec()).unwrap();
        let id = priming.lines().next().unwrap().strip_prefix("id: ").unwrap();
        let parsed = EventId::parse(id).unwrap();
        assert_eq!(parsed, EventId { epoch: 0xbeef, stream: 1, request: Some(r#""a.b""#.into()), number: 0 });
        assert!(streams.find(0xbeef, &parsed).is_some());
        assert!(streams.find(1, &parsed).is_none());
        for bad in ["", "1.1.1", "1.1.e30.1", "x.1..1", "1.1..1.1", "1.1..-1"] {
            assert_eq!(EventId::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn lagging_stream_reader_is_cut_off() {
        let log = log();
        let (reader, _) = log.read();
        log.push(line("{}"), false);
        assert_eq!(numbers(&log, reader, 0), [1]);
        for _ in 0..EVENTS_MAX + 5 {
            log.push(line("{}"), false);
        }
        assert_eq!(log.next(reader, 1), Next::Over);
        assert_eq!(log.resume(1), None);
        log.push(line("{}"), true);
        log.finish(1);
        let after = log.resume(1).unwrap();
        let (reader, _) = log.read();
        assert_eq!(numbers(&log, reader, after).len(), EVENTS_MAX);
        let newest = log.ring.lock().newest;
        assert_eq!(log.next(reader, newest), Next::Over);
    }

    #[test]
    fn second_stream_reader_takes_over() {
        let log = log();
        let (first, _) = log.read();
        let (second, _) = log.read();
        log.push(line("{}"), false);
        assert_eq!(log.next(first, 0), Next::Over);
        assert_eq!(numbers(&log, second, 0), [1]);
        assert_eq!(log.next(second, 1), Next::Wait);
    }

    #[test]
    fn kept_stream_event_bytes_are_bounded_and_released() {
        let kept = kept();
        let streams = Streams::default();
        let large = "x".repeat(4 << 20);
        for _ in 0..40 {
            let log = streams.open(1, None, &kept);
            let (reader, _) = log.read();
            log.push(line(&large), true);
            log.finish(1);
            log.leave(reader);
        }
        assert!(kept.counter.total() <= Limits::generous().event_bytes_per_requestor);
        streams.sweep(1 + RETENTION_MS);
        assert_eq!(kept.counter.total(), 0);
    }

    #[test]
    fn large_stream_response_over_quota_is_an_error() {
        let kept = kept();
        let streams = Streams::default();
        let large = line(&format!("{:?}", "x".repeat(4 << 20)));
        let mut refused = 0;
        let logs: Vec<_> = (0..40).map(|_| streams.open(1, Some("7"), &kept)).collect();
        for log in &logs {
            let (reader, _) = log.read();
            log.push(large.clone(), true);
            let Next::Event { text, .. } = log.next(reader, 0) else { panic!("there is an event") };
            let text = String::from_utf8(text.collect::<Vec<_>>().concat()).unwrap();
            assert!(text.starts_with("id: 1.") && text.ends_with("\n\n"));
            if text.contains("event_bytes_per_requestor") {
                assert!(text.contains(r#"data: {"jsonrpc":"2.0","id":7,"error":{"code":1010"#), "{text}");
                refused += 1;
            }
        }
        let room = Limits::generous().event_bytes_per_requestor;
        assert_eq!(refused, 40 - room / (4 << 20) + 1, "one more would have been over the limit");
        assert!(kept.counter.total() <= room);
    }

    #[test]
    fn session_keeps_bounded_finished_streams() {
        let streams = Streams::default();
        for _ in 0..LOGS_MAX * 2 {
            streams.open(1, None, &kept()).finish(1);
        }
        assert_eq!(streams.0.lock().logs.len(), LOGS_MAX);
    }
}
