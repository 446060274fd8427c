//! The events of a running guest: merged, bounded, in order.
//!
//! Owns the channel from a guest to its driver. Progress and status are worth their last value only, logs are worth as
//! many as fit; nothing that a guest says can fill the host's memory. Invariant: what was reported before an input
//! request or before the end is delivered before it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::app_views;
use super::limits::{RESOURCE_UPDATES_MAX, STATUS_BYTES_MAX};
use bulkhead_calls::policy::Denial;
use bulkhead_calls::{CallEvent, ListKind, URI_BYTES_MAX};
use bulkhead_domain::Json;
use bulkhead_domain::call::LogLevel;
use bulkhead_domain::text::beginning;

/// How soon to look again when the receiver has not read yet.
const RETRY: Duration = Duration::from_millis(20);

/// The receiver of this call's events is gone.
#[derive(Debug)]
pub(super) struct ReceiverGone;

/// The guest's end of the event stream; its imports and its supervisor share it.
#[derive(Clone, Debug)]
pub(super) struct Outbox(Arc<Outgoing>);

#[derive(Debug)]
struct Outgoing {
    sender: mpsc::Sender<CallEvent>,
    pending: Mutex<Pending>,
}

/// What waits for its turn.
#[derive(Debug)]
struct Pending {
    bucket: Bucket,
    highest_progress: Option<f64>,
    progress: Option<(f64, Option<f64>, Option<String>)>,
    status: Option<String>,
    denied: Option<Denial>,
    lists: Vec<ListKind>,
    /// What stands in front of URIs of views, as clients see them.
    view_prefix: String,
    resources: Vec<String>,
    log_bytes_left: u64,
    logs_dropped: u64,
    /// Nobody hears anything: everything was said before, by an earlier run of the call.
    is_silent: bool,
}

impl Outbox {
    pub(super) fn new(sender: mpsc::Sender<CallEvent>, events_per_second: u32, log_bytes: u64) -> Self {
        let pending = Pending {
            bucket: Bucket::new(events_per_second),
            highest_progress: None,
            progress: None,
            status: None,
            denied: None,
            lists: Vec::new(),
            view_prefix: String::new(),
            resources: Vec::new(),
            log_bytes_left: log_bytes,
            logs_dropped: 0,
            is_silent: false,
        };
        Self(Arc::new(Outgoing { sender, pending: Mutex::new(pending) }))
    }

    /// While it is silent, what is said is counted and not sent. Afterwards the last of it is.
    pub(super) fn set_silent(&self, is_silent: bool) {
        let mut pending = self.0.pending.lock();
        pending.is_silent = is_silent;
        self.pass_on(&mut pending);
    }

    pub(super) fn is_silent(&self) -> bool {
        self.0.pending.lock().is_silent
    }

    /// Keeps what grows, drops the rest.
    pub(super) fn progress(&self, progress: f64, total: Option<f64>, message: Option<String>) {
        let mut pending = self.0.pending.lock();
        if !progress.is_finite() || pending.highest_progress.is_some_and(|highest| progress <= highest) {
            return;
        }
        pending.highest_progress = Some(progress);
        pending.progress = Some((progress, total.filter(|total| total.is_finite()), message.map(cut)));
        self.pass_on(&mut pending);
    }

    pub(super) fn status(&self, message: String) {
        let mut pending = self.0.pending.lock();
        pending.status = Some(cut(message));
        self.pass_on(&mut pending);
    }

    /// Sends a record, or counts it as dropped.
    pub(super) fn log(&self, level: LogLevel, logger: Option<String>, data: Json) {
        let mut pending = self.0.pending.lock();
        let bytes = (data.as_str().len() + logger.as_ref().map_or(0, String::len)) as u64;
        if pending.is_silent {
            pending.log_bytes_left = pending.log_bytes_left.saturating_sub(bytes);
            return;
        }
        if bytes > pending.log_bytes_left || !pending.bucket.take(Instant::now()) {
            pending.logs_dropped += 1;
            return;
        }
        match self.0.sender.try_send(CallEvent::Log { level, logger, data }) {
            Ok(()) => pending.log_bytes_left -= bytes,
            Err(_) => pending.logs_dropped += 1,
        }
    }

    /// Says once that something was not granted.
    pub(super) fn denied(&self, denial: Denial) {
        let mut pending = self.0.pending.lock();
        if pending.is_silent {
            return;
        }
        pending.denied = Some(denial);
        self.pass_on(&mut pending);
    }

    pub(super) fn lists_changed(&self, kind: ListKind) {
        let mut pending = self.0.pending.lock();
        if !pending.is_silent && !pending.lists.contains(&kind) {
            pending.lists.push(kind);
        }
        self.pass_on(&mut pending);
    }

    /// Has the URIs of its plugin's views be as clients see them.
    pub(super) fn set_view_prefix(&self, prefix: &str) {
        prefix.clone_into(&mut self.0.pending.lock().view_prefix);
    }

    pub(super) fn resource_updated(&self, uri: String) {
        let mut pending = self.0.pending.lock();
        let uri = app_views::shown(&pending.view_prefix, &uri).unwrap_or(uri);
        if !pending.is_silent
            && uri.len() <= URI_BYTES_MAX
            && pending.resources.len() < RESOURCE_UPDATES_MAX
            && !pending.resources.contains(&uri)
        {
            pending.resources.push(uri);
        }
        self.pass_on(&mut pending);
    }

    /// Delivers what the rate allows by now, and says when to come back for the rest.
    pub(super) fn deliver(&self) -> Option<Instant> {
        self.pass_on(&mut self.0.pending.lock())
    }

    /// Delivers everything that waits, then this event. Waits for the receiver.
    pub(super) async fn say(&self, event: CallEvent) -> Result<(), ReceiverGone> {
        loop {
            let Some(next) = self.0.pending.lock().next() else { break };
            self.0.sender.send(next).await.map_err(|_| ReceiverGone)?;
        }
        self.0.sender.send(event).await.map_err(|_| ReceiverGone)
    }

    /// The same at the end of a call: also says how many logs were dropped.
    pub(super) async fn finish(&self, event: CallEvent) {
        let dropped = std::mem::take(&mut self.0.pending.lock().logs_dropped);
        if dropped > 0 {
            let data = Json::new(format!("{{\"dropped\":{dropped}}}"));
            let logger = Some("bulkhead".to_owned());
            // The receiver is gone: so is everybody who could miss it.
            let _ = self.say(CallEvent::Log { level: LogLevel::Warning, logger, data }).await;
        }
        let _ = self.say(event).await;
    }

    fn pass_on(&self, pending: &mut Pending) -> Option<Instant> {
        let now = Instant::now();
        while !pending.is_empty() {
            if !pending.bucket.ready(now) {
                return Some(pending.bucket.next(now));
            }
            let Ok(permit) = self.0.sender.try_reserve() else { return Some(now + RETRY) };
            let Some(event) = pending.next() else { break };
            pending.bucket.take(now);
            permit.send(event);
        }
        None
    }
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.is_silent
            || self.progress.is_none()
                && self.status.is_none()
                && self.denied.is_none()
                && self.lists.is_empty()
                && self.resources.is_empty()
    }

    fn next(&mut self) -> Option<CallEvent> {
        if self.is_silent {
            return None;
        }
        if let Some(status) = self.status.take() {
            return Some(CallEvent::Status(status));
        }
        if let Some((progress, total, message)) = self.progress.take() {
            return Some(CallEvent::Progress { progress, total, message });
        }
        if let Some(denial) = self.denied.take() {
            return Some(CallEvent::GrantDenied(denial));
        }
        if let Some(kind) = self.lists.pop() {
            return Some(CallEvent::ListsChanged(kind));
        }
        self.resources.pop().map(CallEvent::ResourceUpdated)
    }
}

fn cut(text: String) -> String {
    if text.len() <= STATUS_BYTES_MAX { text } else { beginning(&text, STATUS_BYTES_MAX).to_owned() }
}

/// So many events per second, with a burst of one second's worth.
#[derive(Debug)]
struct Bucket {
    per_second: f64,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    fn new(per_second: u32) -> Self {
        let per_second = f64::from(per_second.max(1));
        Self { per_second, tokens: per_second, filled: Instant::now() }
    }

    fn ready(&mut self, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + elapsed * self.per_second).min(self.per_second);
        self.filled = now;
        self.tokens >= 1.0
    }

    fn take(&mut self, now: Instant) -> bool {
        let ready = self.ready(now);
        if ready {
            self.tokens -= 1.0;
        }
        ready
    }

    fn next(&self, now: Instant) -> Instant {
        now + Duration::from_secs_f64(((1.0 - self.tokens) / self.per_second).max(0.001))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(receiver: &mut mpsc::Receiver<CallEvent>) -> Vec<CallEvent> {
        std::iter::from_fn(|| receiver.try_recv().ok()).collect()
    }

    #[test]
    fn non_growing_progress_event_is_dropped() {
        let (sender, mut receiver) = mpsc::channel(32);
        let outbox = Outbox::new(sender, 100, 0);
        for progress in [1.0, 1.0, 0.5, f64::NAN, 2.0] {
            outbox.progress(progress, Some(f64::INFINITY), None);
        }
        let seen: Vec<f64> = drain(&mut receiver)
            .into_iter()
            .map(|event| match event {
                CallEvent::Progress { progress, total: None, .. } => progress,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(seen, [1.0, 2.0]);
    }

    #[tokio::test]
    async fn guest_event_flood_is_merged_and_last_value_arrives() {
        let (sender, mut receiver) = mpsc::channel(32);
        let outbox = Outbox::new(sender, 5, 100);
        for turn in 0..10_000 {
            outbox.progress(f64::from(turn), None, None);
            outbox.status(format!("turn {turn}"));
            outbox.log(LogLevel::Info, None, Json::new("1"));
        }
        outbox.finish(CallEvent::Detach { reply: tokio::sync::oneshot::channel().0 }).await;
        let events = drain(&mut receiver);
        assert!(events.len() < 12, "{}", events.len());
        assert!(events.iter().any(|event| matches!(event, CallEvent::Status(text) if text == "turn 9999")));
        assert!(
            events.iter().any(|event| matches!(event, CallEvent::Progress { progress, .. } if *progress == 9999.0))
        );
        assert!(
            events
                .iter()
                .any(|event| matches!(event, CallEvent::Log { data, .. } if data.as_str().contains("dropped")))
        );
        assert!(matches!(events.last(), Some(CallEvent::Detach { .. })));
    }

    #[test]
    fn guest_logs_stop_at_their_byte_limit() {
        let (sender, mut receiver) = mpsc::channel(32);
        let outbox = Outbox::new(sender, 100, 10);
        for _ in 0..5 {
            outbox.log(LogLevel::Info, None, Json::new("\"aa\""));
        }
        assert_eq!(drain(&mut receiver).len(), 2);
    }

    #[test]
    fn silent_outbox_says_the_last_of_it_afterwards() {
        let (sender, mut receiver) = mpsc::channel(32);
        let outbox = Outbox::new(sender, 100, 1000);
        outbox.set_silent(true);
        outbox.status("first".to_owned());
        outbox.progress(1.0, None, None);
        outbox.log(LogLevel::Info, None, Json::new("1"));
        outbox.lists_changed(ListKind::Tools);
        outbox.status("last".to_owned());
        assert!(outbox.deliver().is_none() && drain(&mut receiver).is_empty());
        outbox.set_silent(false);
        let said = drain(&mut receiver);
        assert!(
            matches!(&said[..], [CallEvent::Status(text), CallEvent::Progress { .. }] if text == "last"),
            "{said:?}"
        );
        outbox.progress(1.0, None, None);
        assert!(drain(&mut receiver).is_empty(), "it was said before");
    }

    #[test]
    fn rate_limited_guest_events_are_due_later() {
        let (sender, mut receiver) = mpsc::channel(32);
        let outbox = Outbox::new(sender, 1, 0);
        outbox.status("first".to_owned());
        outbox.status("second".to_owned());
        let due = outbox.deliver().unwrap();
        assert!(due > Instant::now());
        assert_eq!(drain(&mut receiver).len(), 1);
    }
}
