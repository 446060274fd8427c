//! How a call with a journal begins: a new one, or one that is replayed.

use std::sync::Arc;

use http::HeaderName;

use super::call_journal::CallJournal;
use super::clock;
use super::header::{Header, Opening, PINNED_BYTES_MAX, PinnedLimits, UnwrittenHeader};
use super::keeping::Keeping;
use super::requests::Requests;
use super::state::{Bounds, Journal};
use crate::call_state::CallState;
use crate::engine::EngineKind;
use crate::granted::Granted;
use crate::limits::MemoryUse;
use bulkhead_calls::journal::{History, JournalReport, JournalStatus, Journaling, Reason};
use bulkhead_calls::{CallContext, ClientView, JournalPolicy, JournalSink, Operation, Spent};
use bulkhead_domain::limits::CallLimits;

/// A call at its begin.
pub(crate) struct Beginning<'a> {
    pub(crate) component: [u8; 32],
    pub(crate) engine: u64,
    pub(crate) kind: EngineKind,
    pub(crate) operation: &'a Arc<Operation>,
    pub(crate) limits: &'a CallLimits,
    pub(crate) granted: &'a Arc<Granted>,
    pub(crate) facts: &'a CallContext,
}

/// What a call begins with.
#[derive(Default)]
pub(crate) struct Begun {
    /// None of a call that cannot have one.
    pub(crate) journal: Option<Box<CallJournal>>,
    /// Where the journal would have been kept that the call cannot have.
    pub(crate) unused: Option<Arc<dyn JournalSink>>,
    /// None of a call that is no replay.
    pub(crate) pinned: Option<Pinned>,
}

/// What a replay has to go by, instead of the limits and grants of the moment.
pub(crate) struct Pinned {
    pub(crate) limits: CallLimits,
    pub(crate) granted: Arc<Granted>,
}

impl Beginning<'_> {
    /// Begins a call; what can be said of its journal already is told in `shared`.
    ///
    /// # Errors
    ///
    /// The earlier journal is none, or that of another call.
    pub(crate) fn begin(&self, journaling: Journaling, shared: &Arc<CallState>) -> Result<Begun, JournalStatus> {
        let Some(Plan { history, stops_at_mark, spent, sink, policy }) = Plan::of(journaling) else {
            return Ok(Begun::default());
        };
        let JournalPolicy { in_doubt, idempotency_header } = policy;
        let begun = match history {
            None => self.record(idempotency_header).map(|journal| (journal, None)),
            Some(history) => self.replay(&history, sink.is_some()).map(|(journal, pinned)| (journal, Some(pinned))),
        };
        match begun {
            Ok((mut journal, pinned)) => {
                if stops_at_mark {
                    journal.state.stop_at_mark();
                }
                journal.in_doubt = in_doubt;
                journal.keeping = sink.map(|sink| Keeping::new(sink, shared));
                if let Some(spent) = spent {
                    shared.replay(spent);
                }
                Ok(Begun { journal: Some(journal), unused: None, pinned })
            }
            Err(status) => {
                shared.keep_report(JournalReport::nothing(status.clone()));
                if !matches!(status, JournalStatus::Demoted(_)) {
                    return Err(status);
                }
                Ok(Begun { unused: sink, ..Begun::default() })
            }
        }
    }

    fn record(&self, idempotency_header: Option<HeaderName>) -> Result<Box<CallJournal>, JournalStatus> {
        if self.kind == EngineKind::Concurrent {
            return Err(JournalStatus::Demoted(Reason::Concurrent));
        }
        if !Header::fits(self.granted) {
            return Err(JournalStatus::Demoted(Reason::Settings { bytes_max: PINNED_BYTES_MAX }));
        }
        let fixed = self.facts.outside.as_ref().and_then(|outside| outside.unix_ms());
        let base_ms = fixed.unwrap_or_else(clock::unix_ms);
        let stands = fixed.is_some();
        let opening = Opening { base_ms, stands, idempotency_header, ..self.opening() };
        let memory = Arc::new(MemoryUse::new(self.limits.memory_bytes));
        let requests = Requests::new(memory, self.limits.journal_response_bytes);
        let state = Journal::record(self.header(opening.clone()), Bounds::of(self.limits));
        Ok(CallJournal::new(state, opening, self.facts, requests))
    }

    /// A call that was begun before: it is replayed, or begins from its last checkpoint, where it may and can.
    fn replay(&self, history: &History, may_begin_anew: bool) -> Result<(Box<CallJournal>, Pinned), JournalStatus> {
        let (mut header, mut state) =
            Journal::replay(&history.0, Bounds::of(self.limits)).map_err(JournalStatus::Corrupt)?;
        if let Some(why) = header.difference(&self.header(self.opening()).header()) {
            return Err(JournalStatus::Diverged(state.diverge(why)));
        }
        let pinned = Pinned { limits: header.limits.over(self.limits), granted: Arc::new(header.over(self.granted)) };
        let memory = Arc::new(MemoryUse::new(pinned.limits.memory_bytes));
        let requests = Requests::new(memory, self.limits.journal_response_bytes);
        let beginning = state.beginning().cloned();
        let Some(mut checkpoint) = state.checkpoint().filter(|_| may_begin_anew) else {
            let mut journal = CallJournal::new(state, header.opening(), self.facts, requests);
            if let Some(beginning) = beginning {
                journal.begin_from(beginning);
            }
            return Ok((journal, pinned));
        };
        checkpoint.beginnings = checkpoint.beginnings.saturating_add(1);
        header.attempt = header.attempt.saturating_add(1);
        let opening = header.opening();
        let state = state.anew(header, checkpoint.clone());
        let mut journal = CallJournal::new(state, opening, self.facts, requests);
        journal.begin_from(*checkpoint);
        // Its first step is where the host goes on, as after a replay.
        journal.stands_still();
        Ok((journal, pinned))
    }

    /// What a call begins with by itself: no time, and no header for its requests.
    fn opening(&self) -> Opening {
        let &CallContext { features, log_level, wants_progress, attempt, .. } = self.facts;
        let audience = ClientView { features, log_level, wants_progress };
        Opening { base_ms: 0, stands: false, attempt, audience, idempotency_header: None }
    }

    /// The header of a call that begins so.
    fn header(&self, opening: Opening) -> UnwrittenHeader {
        let &Self { component, engine, operation, limits, granted, .. } = self;
        let operation = Arc::clone(operation);
        let granted = Arc::clone(granted);
        UnwrittenHeader { component, engine, operation, limits: PinnedLimits::of(limits), granted, opening }
    }
}

/// What a [`Journaling`] asks for, part by part.
#[derive(Default)]
struct Plan {
    /// None: it is a new journal.
    history: Option<History>,
    /// Whether the call ends with its history.
    stops_at_mark: bool,
    /// None: what earlier runs have used does not count.
    spent: Option<Spent>,
    /// None: the journal is kept nowhere.
    sink: Option<Arc<dyn JournalSink>>,
    policy: JournalPolicy,
}

impl Plan {
    /// None: there is no journal.
    fn of(journaling: Journaling) -> Option<Self> {
        let plan = Self::default();
        Some(match journaling {
            Journaling::Off => return None,
            Journaling::InMemory => plan,
            Journaling::Replay(history) => Plan { history: Some(history), ..plan },
            Journaling::Check { history, spent } => {
                Plan { history: Some(history), stops_at_mark: true, spent: Some(spent), ..plan }
            }
            Journaling::To { sink, policy } => Plan { sink: Some(sink), policy, ..plan },
            Journaling::From { history, spent, sink, policy } => {
                Plan { history: Some(history), spent: Some(spent), sink: Some(sink), policy, ..plan }
            }
        })
    }
}
