//! The body of an answer, taken apart into messages while it comes.
//!
//! Owns the framing: one JSON text, server-sent events, or lines. Must not know what messages mean. Invariant: neither
//! one message nor all of them together become longer than the call's result allows, whatever still comes; comments
//! count as well.

use crate::limits::LimitHit;

/// All messages of one answer may be so many times as long as a result.
const MESSAGES_PER_RESULT: u64 = 4;

/// How messages follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// There is one.
    Whole,
    /// Server-sent events.
    Events,
    /// Each line is one.
    JsonLines,
}

pub(super) struct MessageReader {
    framing: Framing,
    bytes_max: u64,
    total: u64,
    /// The line that is not over.
    line: Vec<u8>,
    /// Whether the byte before ended a line and may be half of its end.
    was_return: bool,
    /// The data of the event, or of the body, so far.
    data: Vec<u8>,
    has_data: bool,
}

impl MessageReader {
    /// `bytes_max`: of one message.
    pub(super) fn new(framing: Framing, bytes_max: u64) -> Self {
        let line = Vec::new();
        let data = Vec::new();
        Self { framing, bytes_max, total: 0, line, was_return: false, data, has_data: false }
    }

    /// Takes more of the body, and gives the messages that are whole by now.
    ///
    /// # Errors
    ///
    /// A message, or all of them, can only get too long.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, LimitHit> {
        let mut whole = Vec::new();
        self.total = self.total.saturating_add(bytes.len() as u64);
        if self.framing == Framing::Whole {
            self.data.extend_from_slice(bytes);
            self.has_data = true;
            self.check()?;
            return Ok(whole);
        }
        for byte in bytes {
            let is_second_half = self.framing == Framing::Events && *byte == b'\n' && self.was_return;
            self.was_return = *byte == b'\r';
            match byte {
                _ if is_second_half => {}
                b'\n' if self.framing == Framing::JsonLines => whole.extend(self.end_message()),
                b'\r' | b'\n' if self.framing == Framing::Events => whole.extend(self.end_line()),
                byte => self.line.push(*byte),
            }
            self.check()?;
        }
        let bytes_max = self.bytes_max.saturating_mul(MESSAGES_PER_RESULT);
        if self.total > bytes_max { Err(LimitHit::Messages { bytes_max }) } else { Ok(whole) }
    }

    /// What is left at the end. An event that was not ended is none.
    pub(super) fn finish(mut self) -> Option<Vec<u8>> {
        match self.framing {
            Framing::Whole => self.has_data.then_some(self.data),
            Framing::Events => None,
            Framing::JsonLines => self.end_message(),
        }
    }

    fn check(&self) -> Result<(), LimitHit> {
        let bytes = (self.line.len() + self.data.len()) as u64;
        let hit = LimitHit::Output { what: "answer", bytes_max: self.bytes_max };
        if bytes > self.bytes_max { Err(hit) } else { Ok(()) }
    }

    /// The message that a line is; an empty one is none.
    fn end_message(&mut self) -> Option<Vec<u8>> {
        let line = std::mem::take(&mut self.line);
        (!line.trim_ascii().is_empty()).then_some(line)
    }

    /// The message that an empty line ends.
    fn end_line(&mut self) -> Option<Vec<u8>> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            return std::mem::take(&mut self.has_data).then_some(data);
        }
        if let Some(rest) = line.strip_prefix(b"data").and_then(value_of) {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(rest);
            self.has_data = true;
        }
        None
    }
}

/// What follows the name of a field. `None`: the name goes on.
fn value_of(rest: &[u8]) -> Option<&[u8]> {
    match rest {
        [] => Some(rest),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        _ => None,
    }
}
