//! PORT: where the journal of a call is kept.
//!
//! Owns what a call hands over to be kept, in bytes that mean something to the sandbox alone. Must not know whose call
//! it is: a call comes with a sink that is already narrowed to it. Invariant: what is kept of a journal is a beginning
//! of it, or of what it was before it began anew.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

/// What a call has used, in this run and in those whose journal it goes on with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    pub cpu: Duration,
    /// Without what it waited for its client.
    pub wall: Duration,
}

/// The end of a journal, from where it was known to be kept on. Places in a journal are counted over all that it ever
/// was: one that begins anew, shorter, is further.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tail {
    /// Bytes of the journal in front of it.
    pub at: u64,
    /// The journal begins anew with it: nothing of what is kept counts any more.
    pub begins: bool,
    pub bytes: Vec<u8>,
    /// The step of the guest up to which the journal is complete with it.
    pub step: u64,
    /// Of the whole journal.
    pub entries: u32,
    /// Questions that the call was answered so far.
    pub answered: u32,
    pub spent: Spent,
}

impl Tail {
    /// The same with the bytes of this one.
    pub fn with_end(self, end: Self) -> Self {
        let Self { at, begins, bytes, step, entries, .. } = end;
        Self { at, begins, bytes, step, entries, ..self }
    }
}

impl fmt::Debug for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tail(at {}, {} bytes, step {})", self.at, self.bytes.len(), self.step)
    }
}

/// A tail that lacks what its last step brings, which its keeper knows first.
pub struct OpenTail(Box<WithMessages>);

type WithMessages = dyn Fn(&[String]) -> Tail + Send + Sync;

impl OpenTail {
    /// Of what makes the tail once the messages are known.
    pub fn new(close: impl Fn(&[String]) -> Tail + Send + Sync + 'static) -> Self {
        Self(Box::new(close))
    }

    /// The tail with the messages that the guest is given.
    pub fn with_messages(&self, messages: &[String]) -> Tail {
        (self.0)(messages)
    }
}

impl fmt::Debug for OpenTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenTail")
    }
}

/// What a journaled call asks its client with.
#[derive(Debug)]
pub struct JournaledQuestion {
    /// Questions that the call has asked before, and was answered, in this run and in those whose journal it goes on
    /// with.
    pub asked_before: usize,
    pub tail: Tail,
}

/// Nothing of a call is kept any more: another run of it has taken over, or it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another run of this call has taken over")]
pub struct Fenced;

/// Keeps the journal of one call.
#[async_trait]
pub trait JournalSink: fmt::Debug + Send + Sync + 'static {
    /// Up to which place the journal is known to be kept.
    fn kept(&self) -> u64;

    /// Whether it wants each entry soon, because it may have to show the journal as it is: a tail is taken at once
    /// then, in memory.
    fn is_eager(&self) -> bool {
        false
    }

    /// Keeps a tail, durable on return. It takes as long as the store needs to be able to.
    async fn append(&self, tail: Tail) -> Result<(), Fenced>;

    /// Keeps a tail soon.
    fn submit(&self, tail: Tail);

    /// Gives the journal up, durable on return. The reason is for people.
    async fn give_up(&self, reason: String) -> Result<(), Fenced>;
}
