//! What of a running call's journal is kept outside, and when.
//!
//! Owns the tails that are handed over. Invariants: every tail ends with a mark; what a call does outside happens after
//! what it saw before is kept, or in the same step; and that a journal was given up is kept before anything is done
//! that it does not tell of.

use std::sync::Arc;

use super::call_journal::CallJournal;
use super::codec::{Recorded, encode};
use crate::call_state::CallState;
use bulkhead_calls::{JournalSink, OpenTail, Spent, Tail};

/// Bytes that may wait to be kept.
const WAITING_BYTES_MAX: u64 = 64 << 10;

/// Where a journal is kept, and what was handed over.
#[derive(Debug)]
pub(super) struct Keeping {
    sink: Arc<dyn JournalSink>,
    /// Up to which place the journal was handed over to be kept soon.
    submitted: u64,
    shared: Arc<CallState>,
}

impl Keeping {
    /// Of a journal that begins, or goes on.
    pub(super) fn new(sink: Arc<dyn JournalSink>, shared: &Arc<CallState>) -> Self {
        Self { sink, submitted: 0, shared: Arc::clone(shared) }
    }

    fn spent(&self) -> Spent {
        Spent { cpu: self.shared.cpu(), wall: self.shared.wall_elapsed().0 }
    }
}

impl CallJournal {
    /// Of a journal that is recorded and kept.
    fn recording(&self) -> Option<&Keeping> {
        self.keeping.as_ref().filter(|_| self.state.is_recording())
    }

    /// Whether the call is no task, and has a journal in case it becomes one.
    pub(super) fn is_of_plain_call(&self) -> bool {
        self.keeping.as_ref().is_some_and(|keeping| keeping.sink.is_eager())
    }

    /// Whether nothing is under way outside that only this run can bring to its end: a request whose outcome the guest
    /// has not seen, or a journal that was given up.
    pub(super) fn can_leave_memory(&self) -> bool {
        self.recording().is_some() && self.requests.open.is_empty()
    }

    pub(super) fn recording_sink(&self) -> Option<Arc<dyn JournalSink>> {
        self.recording().map(|keeping| Arc::clone(&keeping.sink))
    }

    /// A tail without the bytes: what the call was asked and has used.
    fn tail_so_far(&self) -> Option<Tail> {
        let answered = u32::try_from(self.requests_answered).unwrap_or(u32::MAX);
        Some(Tail { answered, spent: self.recording()?.spent(), ..Tail::default() })
    }

    /// The end of the journal, up to here.
    pub(super) fn tail(&mut self) -> Option<Tail> {
        let sink = self.recording_sink()?;
        self.state.put_mark();
        Some(self.tail_so_far()?.with_end(self.state.tail(sink.kept())))
    }

    /// The end of the journal, with what an import will have given here.
    pub(super) fn tail_with<T: Recorded>(&mut self, value: &T) -> Option<Tail> {
        let sink = self.recording_sink()?;
        Some(self.tail_so_far()?.with_end(self.state.draft().tail_with(sink.kept(), encode(value))))
    }

    pub(super) fn open_tail(&mut self) -> Option<OpenTail> {
        let sink = self.recording_sink()?;
        self.state.put_mark();
        let draft = self.state.draft();
        let so_far = self.tail_so_far()?;
        Some(OpenTail::new(move |messages| {
            so_far.clone().with_end(match messages {
                [] => draft.clone().tail(sink.kept()),
                messages => draft.clone().tail_with(sink.kept(), encode(&messages.to_vec())),
            })
        }))
    }

    /// Has everything up to here kept soon.
    pub(super) fn keep_soon(&mut self) {
        let Some(tail) = self.tail() else { return };
        let end = self.state.end_offset();
        if let Some(keeping) = &mut self.keeping {
            keeping.submitted = end;
            keeping.sink.submit(tail);
        }
    }

    /// Bounds what is lost, and has to be done again, when the host is killed.
    pub(super) fn keep_much(&mut self) {
        let Some(keeping) = &self.keeping else { return };
        // Every import comes here, and most have written nothing: the sink need not be asked.
        if self.state.end_offset() <= keeping.submitted {
            return;
        }
        let known = keeping.submitted.max(keeping.sink.kept());
        let waiting_max = if keeping.sink.is_eager() { 0 } else { WAITING_BYTES_MAX };
        if self.state.is_recording() && self.state.end_offset().saturating_sub(known) > waiting_max {
            self.keep_soon();
        }
    }

    /// Where it has to be kept that the journal was given up, and why.
    pub(super) fn to_give_up(&self) -> Option<(Arc<dyn JournalSink>, String)> {
        let reason = self.state.demotion()?;
        Some((Arc::clone(&self.keeping.as_ref()?.sink), reason.to_string()))
    }
}
