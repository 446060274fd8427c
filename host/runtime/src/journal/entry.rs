//! The entries of a journal, and their bytes.
//!
//! An entry is `varint length · varint (step − step of the entry before) · kind · body`. Numbers of kinds are never
//! used again for something else. Owns the frames; what stands in an outcome or a value is its owner's. Invariant:
//! reading is total, and a journal that was read is the one that was written.

use std::ops::Range;

use super::checkpoint::Checkpoint;
use super::codec::{Recorded, encode, variants, write_varint};
use super::header::{Digest, Header};
use bulkhead_calls::journal::Corrupt;
use bulkhead_calls::journal::reader::Reader;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Entry {
    Header(Box<Header>),
    /// The clock moved: milliseconds since it moved last.
    Clock(u64),
    /// The guest asked for an effect.
    Command(Command),
    /// What came of a command, by its number. It belongs to no step.
    Outcome {
        number: u32,
        bytes: Vec<u8>,
    },
    /// The guest can see what came of a command from here on.
    Delivery(u32),
    /// What an import gave.
    Value {
        hash: u32,
        bytes: Vec<u8>,
    },
    /// The signals that the guest sees from here on.
    Signals(u8),
    /// The call is this task from here on.
    Promoted(String),
    /// The guest wrote down where it is; the digest is that of its state.
    Checkpoint {
        hash: u32,
        digest: Digest,
    },
    /// Up to here everything is kept.
    Mark {
        hash: u32,
    },
    /// The call is over; the digest is that of what it returned.
    End {
        hash: u32,
        digest: Digest,
    },
    /// From where the call can begin again: of the checkpoint before it, or what the call began from. It belongs to no
    /// step.
    State(Box<Checkpoint>),
    /// The guest began to sleep. Written behind a checkpoint alone: a call that sleeps is not to begin again from
    /// there.
    Sleep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) kind: CommandKind,
    pub(super) number: u32,
    pub(super) hash: u32,
    /// Of what was asked for.
    pub(super) digest: Digest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandKind {
    Question,
    Request,
}

variants!(CommandKind { 1 => Question, 2 => Request });

/// An entry in its place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Placed {
    /// In the order of the journal, the header being 0.
    pub(super) number: u32,
    pub(super) step: u64,
    pub(super) entry: Entry,
}

impl Placed {
    fn digest_of_state(&self) -> Option<Digest> {
        if let Entry::Checkpoint { digest, .. } = &self.entry { Some(*digest) } else { None }
    }
}

/// Everything that a journal holds.
#[derive(Clone, Debug)]
pub(super) struct Decoded {
    pub(super) header: Header,
    /// All but the header, the outcomes and the states.
    pub(super) entries: Vec<Placed>,
    pub(super) outcomes: std::collections::BTreeMap<u32, Vec<u8>>,
    /// What the call began from; none of one that began at its begin.
    pub(super) beginning: Option<Box<Checkpoint>>,
    /// What stands behind the last checkpoint, and how many of the entries are in front of that.
    pub(super) checkpoint: Option<(Box<Checkpoint>, usize)>,
    /// Where the states of checkpoints stand in the bytes.
    pub(super) states: Vec<Range<usize>>,
    /// Up to this step a replay sees nothing but the journal.
    pub(super) mark: u64,
    /// Whether the call is over.
    pub(super) is_complete: bool,
    /// Where the entries end that count: behind the last mark or the end.
    pub(super) bytes: usize,
    pub(super) count: u32,
    /// The step of the last of them.
    pub(super) last_step: u64,
}

/// Adds an entry to a journal whose last one is of the step `last`.
pub(super) fn write(entry: &Entry, step: u64, last: u64, to: &mut Vec<u8>) {
    let mut body = Vec::new();
    write_varint(step.saturating_sub(last), &mut body);
    match entry {
        Entry::Header(header) => tagged(1, &**header, &mut body),
        Entry::Clock(ms) => tagged(2, ms, &mut body),
        Entry::Command(Command { kind, number, hash, digest }) => {
            tagged(3, &(*kind, *number), &mut body);
            write_hash(*hash, &mut body);
            digest.write(&mut body);
        }
        Entry::Outcome { number, bytes } => {
            tagged(4, number, &mut body);
            body.extend_from_slice(bytes);
        }
        Entry::Delivery(number) => tagged(5, number, &mut body),
        Entry::Value { hash, bytes } => {
            body.push(6);
            write_hash(*hash, &mut body);
            body.extend_from_slice(bytes);
        }
        Entry::Signals(bits) => tagged(7, bits, &mut body),
        Entry::Promoted(id) => tagged(8, id, &mut body),
        Entry::Checkpoint { hash, digest } => {
            body.push(9);
            write_hash(*hash, &mut body);
            digest.write(&mut body);
        }
        Entry::Mark { hash } => {
            body.push(10);
            write_hash(*hash, &mut body);
        }
        Entry::End { hash, digest } => {
            body.push(11);
            write_hash(*hash, &mut body);
            digest.write(&mut body);
        }
        Entry::State(checkpoint) => tagged(12, &**checkpoint, &mut body),
        Entry::Sleep => body.push(13),
    }
    write_varint(body.len() as u64, to);
    to.extend_from_slice(&body);
}

fn tagged(kind: u8, value: &impl Recorded, to: &mut Vec<u8>) {
    to.push(kind);
    value.write(to);
}

/// All of its bits are in use, so that a varint would be longer.
fn write_hash(hash: u32, to: &mut Vec<u8>) {
    hash.to_le_bytes().write(to);
}

fn read_hash(from: &mut Reader<'_>) -> Option<u32> {
    Recorded::read(from).map(u32::from_le_bytes)
}

/// One entry with the step that it is further than the one before.
fn read(from: &mut Reader<'_>) -> Option<(u64, Entry)> {
    let length = from.varint()?.try_into().ok()?;
    let mut body = Reader::new(from.take(length)?);
    let delta = body.varint()?;
    let rest = |body: &mut Reader<'_>| body.take(body.left()).map(<[u8]>::to_vec);
    let entry = match u8::read(&mut body)? {
        1 => Entry::Header(Box::new(Recorded::read(&mut body)?)),
        2 => Entry::Clock(Recorded::read(&mut body)?),
        3 => {
            let (kind, number) = Recorded::read(&mut body)?;
            let hash = read_hash(&mut body)?;
            let digest = Recorded::read(&mut body)?;
            Entry::Command(Command { kind, number, hash, digest })
        }
        4 => Entry::Outcome { number: Recorded::read(&mut body)?, bytes: rest(&mut body)? },
        5 => Entry::Delivery(Recorded::read(&mut body)?),
        6 => Entry::Value { hash: read_hash(&mut body)?, bytes: rest(&mut body)? },
        7 => Entry::Signals(Recorded::read(&mut body)?),
        8 => Entry::Promoted(Recorded::read(&mut body)?),
        9 => Entry::Checkpoint { hash: read_hash(&mut body)?, digest: Recorded::read(&mut body)? },
        10 => Entry::Mark { hash: read_hash(&mut body)? },
        11 => Entry::End { hash: read_hash(&mut body)?, digest: Recorded::read(&mut body)? },
        12 => Entry::State(Box::new(Recorded::read(&mut body)?)),
        13 => Entry::Sleep,
        _ => return None,
    };
    (body.left() == 0).then_some((delta, entry))
}

/// Reads a journal. What stands behind its last mark was never kept, and is left out.
///
/// # Errors
///
/// These bytes are none.
pub(super) fn decode(bytes: &[u8]) -> Result<Decoded, Corrupt> {
    let mut reader = Reader::new(bytes);
    let corrupt = |number| move || Corrupt { number };
    let (_, first) = read(&mut reader).ok_or_else(corrupt(0))?;
    let Entry::Header(header) = first else { return Err(Corrupt { number: 0 }) };
    let kept = bytes.len() - reader.left();
    let mut journal = Decoded {
        header: *header,
        entries: Vec::new(),
        outcomes: Default::default(),
        beginning: None,
        checkpoint: None,
        states: Vec::new(),
        mark: 0,
        is_complete: false,
        bytes: kept,
        count: 1,
        last_step: 0,
    };
    let mut step = 0_u64;
    let mut number = 1;
    let mut kept_entries = 0;
    let mut outcomes = Vec::new();
    let mut state = None;
    while reader.left() > 0 {
        let at = bytes.len() - reader.left();
        let (delta, entry) = read(&mut reader).ok_or_else(corrupt(number))?;
        step = step.checked_add(delta).ok_or_else(corrupt(number))?;
        let is_mark = matches!(entry, Entry::Mark { .. });
        let is_end = matches!(entry, Entry::End { .. });
        match entry {
            Entry::Outcome { number, bytes } => outcomes.push((number, bytes)),
            Entry::Header(_) => return Err(Corrupt { number }),
            Entry::State(beginning) if number == 1 => journal.beginning = Some(beginning),
            Entry::State(checkpoint) => {
                let digest = journal.entries.last().and_then(Placed::digest_of_state);
                if digest != Some(checkpoint.digest()) {
                    return Err(Corrupt { number });
                }
                state = Some((checkpoint, journal.entries.len()));
                journal.states.push(at..bytes.len() - reader.left());
            }
            _ if journal.is_complete => return Err(Corrupt { number }),
            entry => journal.entries.push(Placed { number, step, entry }),
        }
        number = number.checked_add(1).ok_or_else(corrupt(number))?;
        if is_mark || is_end {
            (journal.mark, journal.is_complete, journal.last_step) = (step, is_end, step);
            (journal.bytes, journal.count, kept_entries) = (bytes.len() - reader.left(), number, journal.entries.len());
            journal.outcomes.extend(outcomes.drain(..));
            journal.checkpoint = state.take().or(journal.checkpoint);
        }
    }
    journal.states.retain(|state| state.end <= journal.bytes);
    journal.entries.truncate(kept_entries);
    Ok(journal)
}

/// The body of an entry, for a hash: everything of it but another hash.
pub(super) fn body(entry: &Entry) -> Vec<u8> {
    match entry {
        Entry::Clock(ms) => encode(ms),
        Entry::Command(Command { kind, number, digest, .. }) => encode(&((*kind, *number), *digest)),
        Entry::Delivery(number) => encode(number),
        Entry::Value { bytes, .. } => bytes.clone(),
        Entry::Signals(bits) => vec![*bits],
        Entry::Promoted(id) => id.clone().into_bytes(),
        Entry::Checkpoint { digest, .. } => encode(digest),
        Entry::Header(_)
        | Entry::Outcome { .. }
        | Entry::Mark { .. }
        | Entry::End { .. }
        | Entry::State(_)
        | Entry::Sleep => Vec::new(),
    }
}

/// What an entry is, for people.
impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Header(_) => f.write_str("the begin of the call"),
            Self::Clock(ms) => write!(f, "a move of the clock by {ms} ms"),
            Self::Command(Command { kind: CommandKind::Question, number, .. }) => write!(f, "question {number}"),
            Self::Command(Command { kind: CommandKind::Request, number, .. }) => write!(f, "HTTP request {number}"),
            Self::Outcome { number, .. } => write!(f, "the response to HTTP request {number}"),
            Self::Delivery(number) => write!(f, "the delivery of the response to HTTP request {number}"),
            Self::Value { bytes, .. } => write!(f, "a value of {} bytes", bytes.len()),
            Self::Signals(bits) => write!(f, "signals {bits:#b}"),
            Self::Promoted(_) => f.write_str("the promotion to a task"),
            Self::Checkpoint { .. } => f.write_str("a checkpoint"),
            Self::Mark { .. } => f.write_str("a mark"),
            Self::End { .. } => f.write_str("the end of the call"),
            Self::State(checkpoint) => write!(f, "a state of {} bytes", checkpoint.state.len()),
            Self::Sleep => f.write_str("a sleep"),
        }
    }
}
