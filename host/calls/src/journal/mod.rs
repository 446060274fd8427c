//! The journal of a call, as those know it who keep it and those who read it: what is to be made of it, and what became
//! of it.
//!
//! Owns the choice between no journal, a new one and an earlier one, the reasons for which a journal is given up, and
//! the list of its entries. Must not know what an entry holds: that is between the sandbox and its guest. Invariant:
//! reading is total, whatever the bytes are.

mod class;
mod listing;
pub mod names;
pub mod reader;
mod status;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

pub use self::{
    class::{Class, Reason},
    listing::{ListedEntry, list},
    status::{Corrupt, Divergence, JournalStatus},
};
use super::durability::JournalPolicy;
use super::journal_sink::{JournalSink, Spent};

/// What is made of a call's journal.
#[derive(Clone, Debug, Default)]
pub enum Journaling {
    /// There is none.
    #[default]
    Off,
    /// It is written, and can be taken from the call's [`Control`](crate::Control) when the call is over.
    InMemory,
    /// The call is one that ran before, up to the end of this journal.
    Replay(History),
    /// The same, and the call ends there: it does nothing new.
    Check { history: History, spent: Spent },
    /// It is written, and kept there.
    To { sink: Arc<dyn JournalSink>, policy: JournalPolicy },
    /// The call goes on after the end of this journal, which is kept there and is continued there.
    From { history: History, spent: Spent, sink: Arc<dyn JournalSink>, policy: JournalPolicy },
}

impl Journaling {
    /// Whether the call does nothing new.
    pub fn is_check(&self) -> bool {
        matches!(self, Self::Check { .. })
    }
}

/// The journal of an earlier run of a call.
#[derive(Clone, PartialEq, Eq)]
pub struct History(pub Bytes);

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "History({} bytes)", self.0.len())
    }
}

/// What came of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalReport {
    pub status: JournalStatus,
    /// Empty of a call whose journal was given up, or is kept elsewhere.
    pub history: History,
    pub entries: u32,
    pub steps: u64,
    /// Over the names of all imports that were called and the bodies of all entries.
    pub hash: u32,
}

impl JournalReport {
    /// Of a call that has no journal.
    pub fn nothing(status: JournalStatus) -> Self {
        Self { status, history: History(Bytes::new()), entries: 0, steps: 0, hash: 0 }
    }

    /// Whether the call can be brought back from it.
    pub fn class(&self) -> Class {
        match self.status {
            JournalStatus::Demoted(reason) => Class::Restart(reason),
            _ => Class::Replay,
        }
    }
}
