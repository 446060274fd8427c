//! The state of one journal: recording, replaying, or given up.
//!
//! A call counts a step for each interposed import. A running hash goes over the names of the imports and the bodies of
//! the entries that were taken or written; it stands in commands, values, marks and the end, so that a replay which
//! takes another way is noticed there at the latest. Owns the order of entries, and nothing else of the call.
//! Invariant: while a journal is replayed, [`Journal::live`] refuses every effect; a replay leaves the journal behind
//! only after its last mark.

mod checkpoints;
mod draft;

use std::ops::Range;

use bytes::Bytes;

use self::checkpoints::is_act;
use self::draft::{Draft, from, index};
use super::entry::{self, Command, CommandKind, Decoded, Entry, Placed};
use super::header::{Digest, Header, UnwrittenHeader};
use bulkhead_calls::Tail;
use bulkhead_calls::journal::names::{Import, fnv};
use bulkhead_calls::journal::{Corrupt, Divergence, JournalStatus, Reason};
use bulkhead_domain::limits::CallLimits;

/// How long a journal may get. Stops a guest from filling the host's memory with what it sees.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) bytes_max: u64,
    pub(super) entries_max: u32,
}

impl Bounds {
    pub(super) fn of(limits: &CallLimits) -> Self {
        Self { bytes_max: limits.journal_bytes, entries_max: limits.journal_entries }
    }
}

enum Mode {
    Recording,
    Replaying(Box<Replay>),
    /// Of a replay that goes no further than the last mark.
    Reached,
    Demoted(Reason),
}

struct Replay {
    journal: Decoded,
    position: usize,
    /// It goes no further than the last mark.
    stops_at_mark: bool,
}

impl Replay {
    fn next(&self) -> Option<&Placed> {
        self.journal.entries.get(self.position)
    }

    /// Whether the guest may go on without the journal at this step.
    fn may_go_on(&self, step: u64) -> bool {
        !self.journal.is_complete && self.next().is_none() && step >= self.journal.mark
    }
}

pub(super) struct Journal {
    mode: Mode,
    bounds: Bounds,
    step: u64,
    hash: u32,
    /// The one of this step.
    import: Import,
    /// Of a new journal without an entry: written in front of the first one.
    header: Option<UnwrittenHeader>,
    bytes: Vec<u8>,
    /// The place of the first of them: one that begins anew goes on counting.
    origin: u64,
    /// Where the states of checkpoints stand among them.
    states: Vec<Range<usize>>,
    /// Whether something happened behind the last checkpoint that must not happen again, or in a call without one at
    /// all.
    has_acted: bool,
    entries: u32,
    /// The step of the last entry in `bytes`.
    last_step: u64,
    has_ended: bool,
    diverged: Option<Divergence>,
}

impl Journal {
    /// A new one that begins with this header, once it has an entry.
    pub(super) fn record(header: UnwrittenHeader, bounds: Bounds) -> Self {
        Self { header: Some(header), ..Self::empty(Mode::Recording, bounds) }
    }

    /// One that is replayed, with its header.
    pub(super) fn replay(bytes: &[u8], bounds: Bounds) -> Result<(Header, Self), Corrupt> {
        let journal = entry::decode(bytes)?;
        let kept = bytes.get(..journal.bytes).unwrap_or_default().to_vec();
        let header = journal.header.clone();
        let entries = journal.count;
        let last_step = journal.last_step;
        let states = journal.states.clone();
        let replay = Replay { journal, position: 0, stops_at_mark: false };
        let replaying = Self::empty(Mode::Replaying(Box::new(replay)), bounds);
        Ok((header, Self { bytes: kept, states, entries, last_step, ..replaying }))
    }

    fn empty(mode: Mode, bounds: Bounds) -> Self {
        Self {
            mode,
            bounds,
            step: 0,
            hash: 0x811C_9DC5,
            import: Import::BEGIN,
            header: None,
            bytes: Vec::new(),
            origin: 0,
            states: Vec::new(),
            has_acted: false,
            entries: 0,
            last_step: 0,
            has_ended: false,
            diverged: None,
        }
    }

    /// Goes no further than the last mark of what is replayed: nothing is recorded behind it, and no effect is let
    /// through.
    pub(super) fn stop_at_mark(&mut self) {
        if let Mode::Replaying(replay) = &mut self.mode {
            replay.stops_at_mark = true;
        }
    }

    pub(super) fn is_replaying(&self) -> bool {
        matches!(self.mode, Mode::Replaying(_))
    }

    /// Whether the guest must do nothing new and has nothing left to do again.
    pub(super) fn has_reached_mark(&self) -> bool {
        matches!(self.mode, Mode::Reached)
    }

    pub(super) fn is_recording(&self) -> bool {
        matches!(self.mode, Mode::Recording)
    }

    /// Whether nothing of the call is in the journal any more.
    pub(super) fn is_demoted(&self) -> bool {
        matches!(self.mode, Mode::Demoted(_))
    }

    /// Why, if it was given up.
    pub(super) fn demotion(&self) -> Option<Reason> {
        if let Mode::Demoted(reason) = self.mode { Some(reason) } else { None }
    }

    /// Bytes so far.
    pub(super) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The place behind its last byte.
    pub(super) fn end_offset(&self) -> u64 {
        self.origin.saturating_add(self.len())
    }

    pub(super) fn bytes_max(&self) -> u64 {
        self.bounds.bytes_max
    }

    /// What is not kept of it, if it is kept up to this place.
    pub(super) fn tail(&self, kept: u64) -> Tail {
        let &Self { step, entries, origin, .. } = self;
        let (at, begins) = from(origin, self.len(), kept);
        let bytes = self.bytes.get(index(at - origin)..).unwrap_or_default().to_vec();
        Tail { at, begins, bytes, step, entries, ..Tail::default() }
    }

    /// The journal as it may go on.
    pub(super) fn draft(&mut self) -> Draft {
        self.begin();
        let &mut Self { origin, step, hash, last_step, entries, .. } = self;
        Draft { bytes: self.bytes.clone(), origin, step, hash, last_step, entries }
    }

    pub(super) fn status(&self) -> JournalStatus {
        match (&self.diverged, &self.mode) {
            (Some(divergence), _) => JournalStatus::Diverged(divergence.clone()),
            (None, Mode::Demoted(reason)) => JournalStatus::Demoted(*reason),
            (None, Mode::Reached) => JournalStatus::Reached,
            (None, _) if self.has_ended => JournalStatus::Ended,
            (None, Mode::Recording) => JournalStatus::Recording,
            (None, Mode::Replaying(_)) => JournalStatus::Replaying,
        }
    }

    pub(super) fn steps(&self) -> u64 {
        self.step
    }

    pub(super) fn hash(&self) -> u32 {
        self.hash
    }

    pub(super) fn entries(&self) -> u32 {
        self.entries
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The guest called an import.
    pub(super) fn step(&mut self, import: Import) -> Result<(), Divergence> {
        if self.is_demoted() {
            return Ok(());
        }
        self.pass_marks()?;
        self.step += 1;
        self.import = import;
        self.hash = (self.hash.rotate_left(5) ^ import.hash).wrapping_mul(0x0100_0193);
        let Mode::Replaying(replay) = &self.mode else { return Ok(()) };
        match replay.next() {
            Some(next) if next.step < self.step => Err(self.diverge("what was recorded is still to come")),
            None if replay.journal.is_complete => Err(self.diverge("the call was over")),
            None if self.step > replay.journal.mark => {
                self.leave();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Compares the marks that stand here with what was seen.
    fn pass_marks(&mut self) -> Result<(), Divergence> {
        let Mode::Replaying(replay) = &mut self.mode else { return Ok(()) };
        while let Some(Placed { step, entry: Entry::Mark { hash }, .. }) = replay.next() {
            if *step > self.step {
                break;
            }
            if (*step, *hash) != (self.step, self.hash) {
                return Err(self.diverge("the guest called something else before"));
            }
            replay.position += 1;
        }
        Ok(())
    }

    /// The entry of this step, if the next one is of this step and wanted.
    fn take(&mut self, wanted: impl Fn(&Entry) -> bool) -> Result<Option<Entry>, Divergence> {
        self.pass_marks()?;
        let Mode::Replaying(replay) = &mut self.mode else { return Ok(None) };
        let Some(next) = replay.next().filter(|next| next.step == self.step && wanted(&next.entry)) else {
            return Ok(None);
        };
        let entry = next.entry.clone();
        let expected = match &entry {
            Entry::Command(Command { hash, .. })
            | Entry::Value { hash, .. }
            | Entry::End { hash, .. }
            | Entry::Checkpoint { hash, .. } => *hash,
            _ => self.hash,
        };
        if expected != self.hash {
            return Err(self.diverge("the guest saw or called something else before"));
        }
        replay.position += 1;
        self.fold(&entry);
        Ok(Some(entry))
    }

    /// The same, where a replay must have one. `None`: the journal is behind the guest, which acts by itself.
    fn must(&mut self, wanted: impl Fn(&Entry) -> bool) -> Result<Option<Entry>, Divergence> {
        if !self.is_replaying() {
            return Ok(None);
        }
        match self.take(wanted)? {
            Some(entry) => Ok(Some(entry)),
            None if self.goes_on() => Ok(None),
            None => Err(self.diverge("something else is recorded here, or nothing")),
        }
    }

    /// Leaves the journal behind, if everything that was kept is shown. To be asked where the guest waits: what it
    /// waits for is to come.
    pub(super) fn goes_on(&mut self) -> bool {
        if let Mode::Replaying(replay) = &self.mode
            && replay.may_go_on(self.step)
        {
            self.leave();
        }
        !self.is_replaying()
    }

    /// The journal is behind the guest.
    fn leave(&mut self) {
        if let Mode::Replaying(replay) = &self.mode {
            self.mode = if replay.stops_at_mark { Mode::Reached } else { Mode::Recording };
        }
    }

    /// To be asked before every effect.
    pub(super) fn live(&mut self) -> Result<(), Divergence> {
        let is_live = !self.is_replaying() && !self.has_reached_mark();
        debug_assert!(is_live, "an effect while a journal is replayed: {}", self.import);
        if !is_live { Err(self.diverge("an effect while the journal is replayed")) } else { Ok(()) }
    }

    pub(super) fn take_clock(&mut self) -> Result<Option<u64>, Divergence> {
        let taken = self.take(|entry| matches!(entry, Entry::Clock(_)))?;
        Ok(taken.and_then(|entry| if let Entry::Clock(ms) = entry { Some(ms) } else { None }))
    }

    pub(super) fn take_signals(&mut self) -> Result<Option<u8>, Divergence> {
        let taken = self.take(|entry| matches!(entry, Entry::Signals(_)))?;
        Ok(taken.and_then(|entry| if let Entry::Signals(bits) = entry { Some(bits) } else { None }))
    }

    pub(super) fn take_promotion(&mut self) -> Result<Option<String>, Divergence> {
        let taken = self.take(|entry| matches!(entry, Entry::Promoted(_)))?;
        Ok(taken.and_then(|entry| if let Entry::Promoted(id) = entry { Some(id) } else { None }))
    }

    /// A value that is there only if something was new.
    pub(super) fn take_value(&mut self) -> Result<Option<Vec<u8>>, Divergence> {
        Ok(value(self.take(|entry| matches!(entry, Entry::Value { .. }))?))
    }

    /// A value that every call of the import has.
    pub(super) fn must_value(&mut self) -> Result<Option<Vec<u8>>, Divergence> {
        Ok(value(self.must(|entry| matches!(entry, Entry::Value { .. }))?))
    }

    /// Whether this command is in the journal; otherwise it is to be carried out.
    pub(super) fn must_command(&mut self, kind: CommandKind, number: u32, digest: Digest) -> Result<bool, Divergence> {
        match self.must(|entry| matches!(entry, Entry::Command(command) if command.kind == kind))? {
            None => Ok(false),
            Some(Entry::Command(command)) if (command.number, command.digest) == (number, digest) => Ok(true),
            Some(_) => Err(self.diverge_after("it is another one than was recorded")),
        }
    }

    /// The next outcome that the guest sees here, with its command's number.
    pub(super) fn take_delivery(&mut self) -> Result<Option<(u32, Bytes)>, Divergence> {
        let taken = self.take(|entry| matches!(entry, Entry::Delivery(_)))?;
        let Some(Entry::Delivery(number)) = taken else { return Ok(None) };
        let Mode::Replaying(replay) = &mut self.mode else { return Ok(None) };
        let Some(outcome) = replay.journal.outcomes.remove(&number) else {
            return Err(self.diverge_after("its outcome is not in the journal"));
        };
        self.hash = fnv(self.hash, &outcome);
        Ok(Some((number, outcome.into())))
    }

    pub(super) fn put_clock(&mut self, ms: u64) {
        self.put(&Entry::Clock(ms));
    }

    pub(super) fn put_signals(&mut self, bits: u8) {
        self.put(&Entry::Signals(bits));
    }

    pub(super) fn put_promotion(&mut self, id: String) {
        self.put(&Entry::Promoted(id));
    }

    pub(super) fn put_value(&mut self, bytes: Vec<u8>) {
        self.put(&Entry::Value { hash: self.hash, bytes });
    }

    pub(super) fn put_command(&mut self, kind: CommandKind, number: u32, digest: Digest) {
        self.put(&Entry::Command(Command { kind, number, hash: self.hash, digest }));
    }

    pub(super) fn put_delivery(&mut self, number: u32, outcome: Vec<u8>) {
        if self.is_recording() {
            let outcome = Entry::Outcome { number, bytes: outcome };
            self.write(&outcome);
            self.put(&Entry::Delivery(number));
            if let Entry::Outcome { bytes, .. } = outcome {
                self.hash = fnv(self.hash, &bytes);
            }
        }
    }

    /// Everything up to here has to be kept before what comes now.
    pub(super) fn put_mark(&mut self) {
        self.put(&Entry::Mark { hash: self.hash });
    }

    /// The guest is over and returned something of this digest.
    pub(super) fn end(&mut self, digest: Digest) -> Result<(), Divergence> {
        if let Some(divergence) = &self.diverged {
            return Err(divergence.clone());
        }
        if self.is_demoted() || self.has_reached_mark() {
            return Ok(());
        }
        self.pass_marks()?;
        if self.is_replaying() && !self.goes_on() {
            match self.take(|entry| matches!(entry, Entry::End { .. }))? {
                Some(Entry::End { digest: recorded, .. }) if recorded == digest => {}
                Some(_) => return Err(self.diverge_after("it returned something else")),
                None => return Err(self.diverge("the call ended too early")),
            }
        }
        self.put(&Entry::End { hash: self.hash, digest });
        self.has_ended = true;
        Ok(())
    }

    /// Records nothing any more. What was recorded is void.
    pub(super) fn demote(&mut self, reason: Reason) {
        if self.is_recording() {
            self.mode = Mode::Demoted(reason);
            (self.header, self.bytes, self.entries, self.states) = (None, Vec::new(), 0, Vec::new());
        }
    }

    fn put(&mut self, entry: &Entry) {
        if self.is_recording() {
            self.write(entry);
            self.fold(entry);
        }
    }

    /// Writes the header, if it is not there yet.
    fn begin(&mut self) {
        if let Some(header) = self.header.take() {
            entry::write(&Entry::Header(Box::new(header.header())), 0, 0, &mut self.bytes);
            self.entries = 1;
        }
    }

    fn write(&mut self, entry: &Entry) {
        self.begin();
        entry::write(entry, self.step, self.last_step, &mut self.bytes);
        self.last_step = self.step;
        self.entries += 1;
        let Bounds { bytes_max, entries_max } = self.bounds;
        if self.len() > bytes_max {
            self.demote(Reason::Journal { bytes_max });
        } else if self.entries > entries_max {
            self.demote(Reason::Entries { entries_max });
        }
    }

    fn fold(&mut self, entry: &Entry) {
        self.hash = folded(self.hash, entry);
        self.has_acted = match entry {
            Entry::Checkpoint { .. } => false,
            entry => self.has_acted || is_act(entry),
        };
    }

    /// The guest asked for something else than the next entry.
    pub(super) fn diverge(&mut self, why: &'static str) -> Divergence {
        self.diverged_at(0, why)
    }

    /// The guest asked for something else than the entry that was just taken.
    pub(super) fn diverge_after(&mut self, why: &'static str) -> Divergence {
        self.diverged_at(1, why)
    }

    fn diverged_at(&mut self, back: usize, why: &'static str) -> Divergence {
        let at = match &self.mode {
            Mode::Replaying(replay) => replay.journal.entries.get(replay.position.saturating_sub(back)),
            _ => None,
        };
        let divergence = Divergence {
            entry: at.map_or(self.entries, |placed| placed.number),
            recorded: at.map_or("nothing".to_owned(), |placed| format!("{} at step {}", placed.entry, placed.step)),
            requested: self.import.to_string(),
            step: self.step,
            why,
        };
        self.diverged.get_or_insert(divergence).clone()
    }
}

/// The running hash after an entry.
fn folded(hash: u32, entry: &Entry) -> u32 {
    let kind = match entry {
        Entry::Mark { .. } | Entry::End { .. } | Entry::Header(_) | Entry::Outcome { .. } | Entry::State(_) => {
            return hash;
        }
        Entry::Clock(_) => 2,
        Entry::Command(_) => 3,
        Entry::Delivery(_) => 5,
        Entry::Value { .. } => 6,
        Entry::Signals(_) => 7,
        Entry::Promoted(_) => 8,
        Entry::Checkpoint { .. } => 9,
        Entry::Sleep => 13,
    };
    fnv(fnv(hash, &[kind]), &entry::body(entry))
}

fn value(entry: Option<Entry>) -> Option<Vec<u8>> {
    entry.and_then(|entry| if let Entry::Value { bytes, .. } = entry { Some(bytes) } else { None })
}
