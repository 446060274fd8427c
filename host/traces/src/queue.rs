//! Spans that wait for the collector.
//!
//! Owns how many may wait, and what is counted of them. Spans are whole messages here, one after the other, in the
//! portions that are sent. Must not wait for anything. Invariant: each span is counted once, as exported or as dropped,
//! at the latest when the queue is closed and what was left is counted.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::otlp;

/// Spans that wait for the collector. Bounds the memory of one that is away.
const SPANS_QUEUED_MAX: usize = 2_048;
/// Spans of one request to the collector.
const SPANS_PER_BATCH: usize = 512;
/// The bytes that most batches reach, so that few are moved while they grow.
const BATCH_BYTES_USUAL: usize = 256 << 10;

/// Spans that are sent together.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) spans: usize,
    pub(super) bytes: Vec<u8>,
}

#[derive(Default)]
struct Waiting {
    batches: VecDeque<Batch>,
    is_closed: bool,
}

/// See the module.
#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    /// In all batches; it is changed with the lock held.
    spans: AtomicUsize,
    /// Taken out, and neither exported nor dropped so far.
    on_the_way: AtomicUsize,
    /// A batch is whole.
    filled: Notify,
    closing: Notify,
    dropped: AtomicU64,
    exported: AtomicU64,
}

impl Queue {
    /// Whether a span that begins now has a chance. One that has none is dropped here, before anything was made for it.
    pub(super) fn admit(&self) -> bool {
        let has_room = self.spans.load(Ordering::Relaxed) < SPANS_QUEUED_MAX;
        if !has_room {
            self.drop_spans(1);
        }
        has_room
    }

    /// Takes a span if there is room; never waits. Nobody is woken before a batch is whole.
    pub(super) fn put(&self, span: &[u8]) {
        let mut waiting = self.waiting.lock();
        let spans = self.spans.load(Ordering::Relaxed);
        if waiting.is_closed || spans >= SPANS_QUEUED_MAX {
            drop(waiting);
            return self.drop_spans(1);
        }
        let batch = match waiting.batches.back_mut().filter(|batch| batch.spans < SPANS_PER_BATCH) {
            Some(batch) => batch,
            None => waiting.batches.push_back_mut(Batch { spans: 0, bytes: Vec::with_capacity(BATCH_BYTES_USUAL) }),
        };
        otlp::add_span(&mut batch.bytes, span);
        batch.spans += 1;
        let is_whole = batch.spans == SPANS_PER_BATCH;
        self.spans.store(spans + 1, Ordering::Relaxed);
        drop(waiting);
        if is_whole {
            self.filled.notify_one();
        }
    }

    /// The first batch, if it is whole or need not be. It is to be [counted](Self::settle).
    pub(super) fn take(&self, whole_only: bool) -> Option<Batch> {
        let mut waiting = self.waiting.lock();
        let batch = waiting.batches.pop_front_if(|batch| !whole_only || batch.spans >= SPANS_PER_BATCH)?;
        self.spans.store(self.spans.load(Ordering::Relaxed) - batch.spans, Ordering::Relaxed);
        self.on_the_way.store(batch.spans, Ordering::Relaxed);
        Some(batch)
    }

    /// Counts what became of the batch that was taken: how many of it are dropped, the others are exported.
    pub(super) fn settle(&self, dropped: usize) {
        // None are left if the queue was closed meanwhile: they are counted already.
        let spans = self.on_the_way.swap(0, Ordering::Relaxed);
        let dropped = dropped.min(spans);
        self.drop_spans(dropped);
        self.exported.fetch_add((spans - dropped) as u64, Ordering::Relaxed);
    }

    fn drop_spans(&self, spans: usize) {
        self.dropped.fetch_add(spans as u64, Ordering::Relaxed);
    }

    /// Returns when a batch is whole.
    pub(super) async fn filled(&self) {
        self.filled.notified().await;
    }

    /// Returns once nothing more is taken.
    pub(super) async fn closed(&self) {
        while !self.is_closed() {
            self.closing.notified().await;
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.waiting.lock().is_closed
    }

    /// Takes nothing more from now on. Whether it did before.
    pub(super) fn close(&self) -> bool {
        let was_open = !std::mem::replace(&mut self.waiting.lock().is_closed, true);
        self.closing.notify_one();
        was_open
    }

    /// Drops what is left. How many were dropped in all.
    pub(super) fn clear(&self) -> u64 {
        let batches = std::mem::take(&mut self.waiting.lock().batches);
        self.spans.store(0, Ordering::Relaxed);
        let left: usize = batches.iter().map(|batch| batch.spans).sum();
        self.drop_spans(left + self.on_the_way.swap(0, Ordering::Relaxed));
        self.dropped()
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(super) fn exported(&self) -> u64 {
        self.exported.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_whole_unless_the_last_and_what_has_no_room_is_counted() {
        let queue = Queue::default();
        for _ in 0..SPANS_QUEUED_MAX + 100 {
            queue.put(b"span");
        }
        assert_eq!((queue.dropped(), queue.admit()), (100, false));
        assert_eq!(queue.dropped(), 101, "what begins while there is no room is dropped at once");
        let sizes = |queue: &Queue, whole_only| {
            let batch = queue.take(whole_only).map(|batch| (batch.spans, batch.bytes.len()));
            queue.settle(12);
            batch
        };
        assert_eq!(sizes(&queue, true), Some((SPANS_PER_BATCH, 6 * SPANS_PER_BATCH)));
        assert_eq!((queue.exported(), queue.dropped()), (SPANS_PER_BATCH as u64 - 12, 113));
        assert!(queue.admit());
        queue.put(b"span");
        for _ in 1..SPANS_QUEUED_MAX / SPANS_PER_BATCH {
            assert!(sizes(&queue, true).is_some());
        }
        assert_eq!((sizes(&queue, true), sizes(&queue, false), sizes(&queue, false)), (None, Some((1, 6)), None));
    }

    #[test]
    fn closed_queue_counts_what_is_left_and_on_its_way_once() {
        let queue = Queue::default();
        for _ in 0..SPANS_PER_BATCH + 1 {
            queue.put(b"span");
        }
        let _on_the_way = queue.take(true);
        assert!(queue.close() && !queue.close());
        queue.put(b"late");
        assert_eq!((queue.dropped(), queue.clear()), (1, SPANS_PER_BATCH as u64 + 2));
        queue.settle(0);
        assert_eq!((queue.exported(), queue.dropped()), (0, SPANS_PER_BATCH as u64 + 2));
    }
}
