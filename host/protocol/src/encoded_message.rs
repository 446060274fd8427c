//! A JSON-RPC message as it waits to be written.
//!
//! Owns the way from a result to the bytes on the wire. Must not know who reads them. Invariants: what the pieces of a
//! message add up to is what `serde_json` writes, byte for byte; a message that waits takes no more memory than twice
//! what it was made of, because a control character, which takes six bytes on the wire (`\u0001`), stays one byte until
//! it is written.
//!
//! No JSON text holds a control character that is not escaped, except for white space between its parts, so that the
//! one byte can stand for the six. All other escapes are two bytes long and are written at once.

use std::borrow::Cow;
use std::io;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::Serialize;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter};
use sha2::{Digest as _, Sha256};
use tokio::runtime::{Handle, RuntimeFlavor};

use bulkhead_metrics::Answer;

/// What is longer is written in pieces, counted while it waits, and rendered where that holds up no other connection.
pub const SMALL_BYTES: usize = 64 * 1024;
/// Bytes that a folded control character takes on the wire.
const ESCAPE_BYTES: usize = 6;
const HEX: &[u8; 16] = b"0123456789abcdef";

/// One message on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedMessage {
    /// With control characters as they are, where there are any.
    text: String,
    /// How many there are.
    folded: usize,
    /// What it says of its request, for those who count.
    ending: Ending,
}

/// How a request ended that this message is the answer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) answer: Answer,
    /// The limit that refused it.
    pub(crate) limit: Option<&'static str>,
}

impl From<String> for EncodedMessage {
    /// A text that is JSON already.
    fn from(text: String) -> Self {
        Self { text, folded: 0, ending: Ending::default() }
    }
}

impl EncodedMessage {
    /// A value as JSON; the reason if there is no JSON for it.
    pub(crate) fn of(value: &impl Serialize) -> Result<Self, String> {
        const BYTES_USUAL: usize = 640;
        let rendered = match render(value, BYTES_USUAL, SMALL_BYTES) {
            // Measured first: a text that grows while it is written leaves copies of its beginning behind, more bytes
            // than itself, whose pages the allocator keeps for a while.
            Err(error) if error.is_io() => elsewhere(|| {
                let mut length = Length(0);
                write(value, &mut length)?;
                render(value, length.0, usize::MAX)
            }),
            rendered => rendered,
        };
        let (text, folded) = rendered.map_err(|error| error.to_string())?;
        let text = String::from_utf8(text).map_err(|error| error.to_string())?;
        Ok(Self { text, folded, ending: Ending::default() })
    }

    /// The same with what it says of its request.
    pub(crate) fn ending(self, ending: Ending) -> Self {
        Self { ending, ..self }
    }

    /// The same as the result of a tool, which may be a failure of its own.
    pub(crate) fn of_tool(self, is_error: bool) -> Self {
        let Ending { answer, .. } = self.ending;
        match (answer, is_error) {
            (Answer::Result, true) => self.ending(Ending { answer: Answer::ToolError, limit: None }),
            _ => self,
        }
    }

    /// What it says of its request.
    pub(crate) fn how_ended(&self) -> Ending {
        self.ending
    }

    /// Bytes in memory.
    pub fn held(&self) -> usize {
        self.text.len()
    }

    /// Bytes on the wire.
    pub fn wire_len(&self) -> usize {
        self.text.len() + self.folded * (ESCAPE_BYTES - 1)
    }

    /// Whether it is written at once.
    pub fn is_small(&self) -> bool {
        self.wire_len() <= SMALL_BYTES
    }

    /// As it is on the wire.
    pub fn text(&self) -> Cow<'_, str> {
        match self.folded {
            0 => Cow::Borrowed(&self.text),
            _ => Cow::Owned(self.clone().into_text()),
        }
    }

    /// The message as one text.
    pub fn into_text(self) -> String {
        if self.folded == 0 {
            return self.text;
        }
        let mut text = String::with_capacity(self.wire_len());
        for letter in self.text.chars() {
            match u8::try_from(letter) {
                Ok(byte) if is_folded(byte) => text.extend(unfolded(byte).map(char::from)),
                _ => text.push(letter),
            }
        }
        text
    }

    /// Equal lines have equal digests.
    pub(crate) fn digest(&self) -> [u8; 32] {
        Sha256::digest(&self.text).into()
    }

    /// In an event a line break would end it. In JSON it is white space between two parts.
    #[must_use]
    pub fn on_one_line(self) -> Self {
        if self.text.contains('\n') || self.text.contains('\r') {
            return Self { text: self.text.replace(['\n', '\r'], " "), ..self };
        }
        self
    }

    /// As it is on the wire, in pieces.
    pub fn into_pieces(self) -> Pieces {
        Pieces { left: self.wire_len(), folded: self.folded > 0, text: Bytes::from(self.text) }
    }
}

/// What is left to be written of a message; each piece is made when it is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    text: Bytes,
    folded: bool,
    left: usize,
}

impl Pieces {
    /// Bytes in memory.
    pub fn held(&self) -> usize {
        self.text.len()
    }

    /// Bytes on the wire.
    pub fn left(&self) -> usize {
        self.left
    }
}

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.text.is_empty() {
            return None;
        }
        let piece = match self.folded {
            false => self.text.split_to(self.text.len().min(SMALL_BYTES)),
            true => {
                let mut piece = BytesMut::with_capacity(self.left.min(SMALL_BYTES));
                let taken = unfold(&self.text, &mut piece);
                // The rest of the text keeps its memory until the last piece.
                drop(self.text.split_to(taken));
                piece.freeze()
            }
        };
        self.left -= piece.len();
        Some(piece)
    }
}

/// Writes as much of a folded text as there is room for; how many of its bytes that were.
fn unfold(text: &[u8], piece: &mut BytesMut) -> usize {
    let mut taken = 0;
    while let Some(rest) = text.get(taken..).filter(|rest| !rest.is_empty()) {
        let free = SMALL_BYTES - piece.len();
        let plain = rest.iter().take(free).position(|byte| is_folded(*byte)).unwrap_or(rest.len().min(free));
        if plain > 0 {
            piece.put_slice(rest.get(..plain).unwrap_or_default());
            taken += plain;
            continue;
        }
        let Some(byte) = rest.first().filter(|_| free >= ESCAPE_BYTES) else { break };
        piece.put_slice(&unfolded(*byte));
        taken += 1;
    }
    taken
}

fn is_folded(byte: u8) -> bool {
    byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r')
}

fn unfolded(byte: u8) -> [u8; ESCAPE_BYTES] {
    let digit = |nibble: u8| HEX.get(usize::from(nibble)).copied().unwrap_or(b'0');
    [b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)]
}

/// Renders with control characters folded: the text, and how many there are. Ends with an I/O error beyond `bytes_max`.
fn render(value: &impl Serialize, bytes_expected: usize, bytes_max: usize) -> serde_json::Result<(Vec<u8>, usize)> {
    let mut writer = Bounded { text: Vec::with_capacity(bytes_expected), bytes_max };
    let folded = write(value, &mut writer)?;
    Ok((writer.text, folded))
}

/// How many control characters were folded.
fn write(value: &impl Serialize, writer: impl io::Write) -> serde_json::Result<usize> {
    let mut folded = 0;
    value.serialize(&mut serde_json::Serializer::with_formatter(writer, Folding(&mut folded)))?;
    Ok(folded)
}

struct Folding<'a>(&'a mut usize);

impl Formatter for Folding<'_> {
    fn write_char_escape<W: ?Sized + io::Write>(&mut self, writer: &mut W, escape: CharEscape) -> io::Result<()> {
        match escape {
            CharEscape::AsciiControl(byte) if is_folded(byte) => {
                *self.0 += 1;
                writer.write_all(&[byte])
            }
            other => CompactFormatter.write_char_escape(writer, other),
        }
    }
}

struct Bounded {
    text: Vec<u8>,
    bytes_max: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > self.bytes_max - self.text.len() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Counts what is written.
struct Length(usize);

impl io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Does what takes long while another thread goes on with the connections of this one.
fn elsewhere<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current() {
        Ok(handle) if handle.runtime_flavor() == RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
    use serde_json::{Value, json};

    use super::*;

    fn written(value: &Value) -> String {
        let message = EncodedMessage::of(value).unwrap();
        let wire = message.wire_len();
        let held = message.held();
        assert!(held <= wire);
        let text = message.clone().into_text();
        assert_eq!(text.len(), wire);
        assert_eq!(message.text(), text);
        let mut pieces = message.into_pieces();
        let mut joined = Vec::new();
        loop {
            let left = pieces.left();
            let Some(piece) = pieces.next() else { break };
            assert!((1..=SMALL_BYTES).contains(&piece.len()));
            assert_eq!(left - piece.len(), pieces.left());
            joined.extend_from_slice(&piece);
        }
        assert_eq!(pieces.left(), 0);
        assert!(joined == text.as_bytes(), "the pieces are the whole");
        text
    }

    /// Texts of all kinds of characters, from none to several pieces.
    fn text(random: &mut ChaCha8Rng) -> String {
        let length = 1_usize << (random.next_u32() % 19);
        let kind = random.next_u32() % 5;
        let letter = |random: &mut ChaCha8Rng| match kind {
            0 => 'a',
            1 => char::from(random.next_u32().to_be_bytes()[0] % 0x20),
            2 => char::from(random.next_u32().to_be_bytes()[0] % 0x80),
            3 => ['"', '\\', '/', '\u{7f}', '\u{2028}', 'ß', '€', '🦀'][random.next_u32() as usize % 8],
            _ => char::from_u32(random.next_u32() % 0x3000).unwrap_or('\n'),
        };
        (0..length).map(|_| letter(random)).collect()
    }

    #[test]
    fn line_is_written_as_serde_json_writes() {
        let mut random = ChaCha8Rng::seed_from_u64(13);
        let mut large = 0;
        for _ in 0..150 {
            let first = text(&mut random);
            let second = text(&mut random);
            let value = json!({"a\u{1}b": [first, {"n": random.next_u32()}], "x": second, "y": [null, 1.5, "\u{0}"]});
            let expected = serde_json::to_string(&value).unwrap();
            large += usize::from(expected.len() > SMALL_BYTES);
            assert!(written(&value) == expected, "{} bytes", expected.len());
        }
        assert!(large > 20, "{large} of them come in pieces");
    }

    #[test]
    fn queued_line_holds_unescaped_size() {
        let control = EncodedMessage::of(&"\u{1}".repeat(1 << 20)).unwrap();
        assert_eq!((control.held(), control.wire_len()), ((1 << 20) + 2, (6 << 20) + 2));
        let quotes = EncodedMessage::of(&"\"".repeat(1 << 20)).unwrap();
        assert_eq!((quotes.held(), quotes.wire_len()), ((2 << 20) + 2, (2 << 20) + 2));
        for message in [&control, &quotes] {
            assert_eq!(message.text.capacity(), message.held(), "nothing waits that was only reserved");
        }
        assert!(!control.is_small() && EncodedMessage::of(&"\u{1}".repeat(SMALL_BYTES / 6 - 1)).unwrap().is_small());
    }

    #[test]
    fn line_break_becomes_space_and_tab_stays() {
        let message = EncodedMessage::from("{\n\t\"a\":\r1}".to_owned()).on_one_line();
        assert_eq!(message.text(), "{ \t\"a\": 1}");
    }

    #[test]
    fn line_serialization_error_is_reported() {
        use serde::Serializer;
        struct Bad;
        impl Serialize for Bad {
            fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
                Err(serde::ser::Error::custom("the reason"))
            }
        }
        assert_eq!(EncodedMessage::of(&Bad), Err("the reason".to_owned()));
    }
}
