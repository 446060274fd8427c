//! The engine's log: segments, and messages within them.
//!
//! Invariant: a message is what its checksum says, and belongs to the segment that it lies in.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::Doubt;
use super::bytes::Bytes;

/// A place in the sequence of everything that was ever written.
pub(super) type Lsn = i64;

pub(super) const SEGMENT_BYTES: usize = 512 << 10;
pub(super) const SEGMENT_LSNS: Lsn = SEGMENT_BYTES as Lsn;
const SEGMENT_HEADER_BYTES: usize = 20;
/// No message begins nearer to the end of a segment.
pub(super) const MESSAGE_HEADER_BYTES_MAX: usize = 32;

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Canceled,
    Cap,
    /// Where the last message of its batch begins.
    Manifest(Lsn),
    Free,
    Counter,
    Meta,
    Node,
    Link,
    /// It lies in a file of its own.
    Blob,
}

impl Kind {
    fn read(byte: u8, body: &[u8]) -> Option<Self> {
        Some(match byte {
            1 => Self::Canceled,
            2 => Self::Cap,
            3 => Self::Manifest(Lsn::from_le_bytes(body.try_into().ok()?)),
            4 => Self::Free,
            5 => Self::Counter,
            6 => Self::Meta,
            8 => Self::Node,
            10 => Self::Link,
            7 | 9 | 11 => Self::Blob,
            _ => return None,
        })
    }
}

/// Where a message lies, and when it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) lsn: Lsn,
    pub(super) offset: u64,
    /// With its header.
    pub(super) bytes: usize,
}

pub(super) struct Message<'a> {
    pub(super) kind: Kind,
    pub(super) page: u64,
    pub(super) body: &'a [u8],
    /// With its header.
    bytes: usize,
}

/// The message at the beginning of these bytes, which end with their segment or with the file; `None`: there is none.
fn message(bytes: &[u8], segment: Lsn) -> Option<Message<'_>> {
    let mut rest = Bytes(bytes);
    let checksum = rest.checksum()?;
    let kind = rest.byte()?;
    let length = rest.length()?;
    let number = rest.number()?;
    let page = rest.number()?;
    let header_bytes = bytes.len() - rest.0.len();
    let body = rest.take(length)?;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(body);
    hasher.update(bytes.get(4..header_bytes)?);
    if !hasher.finalize() != checksum || number != u64::try_from(segment / SEGMENT_LSNS).ok()? {
        return None;
    }
    Some(Message { kind: Kind::read(kind, body)?, page, body, bytes: header_bytes + length })
}

/// Reads a message into `buffer`.
pub(super) fn message_at<'a>(file: &File, position: &Position, buffer: &'a mut Vec<u8>) -> Result<Message<'a>, Doubt> {
    const WRONG: Doubt = Doubt("a page is not where the log says");
    if position.bytes > SEGMENT_BYTES || position.lsn < 0 {
        return Err(WRONG);
    }
    buffer.resize(position.bytes, 0);
    file.read_exact_at(buffer, position.offset)?;
    message(buffer, position.lsn).filter(|message| message.bytes == position.bytes).ok_or(WRONG)
}

/// The beginning of a segment.
pub(super) struct SegmentHeader {
    pub(super) lsn: Lsn,
    /// What was on the disk when the segment was begun.
    pub(super) stable: Lsn,
}

/// The header at an offset; `None` where no segment begins.
pub(super) fn segment_header(file: &File, offset: u64) -> Result<Option<SegmentHeader>, Doubt> {
    let mut header = [0; SEGMENT_HEADER_BYTES];
    file.read_exact_at(&mut header, offset)?;
    let mut rest = Bytes(&header);
    let checksum = rest.checksum();
    let is_sound = checksum == Some(!crc32fast::hash(rest.0));
    let (Some(lsn), Some(stable)) = (rest.signed(), rest.signed()) else { return Ok(None) };
    Ok(is_sound.then_some(SegmentHeader { lsn: lsn ^ Lsn::MAX, stable: stable ^ Lsn::MAX }))
}

/// Offsets at which a segment may begin.
pub(super) fn segment_offsets(file: &File) -> Result<impl Iterator<Item = u64>, Doubt> {
    let length = file.metadata()?.len();
    let whole = length.saturating_sub(SEGMENT_HEADER_BYTES as u64 - 1);
    Ok((0..whole).step_by(SEGMENT_BYTES))
}

/// A message of a segment without its body.
#[derive(Clone, Copy)]
pub(super) struct Item {
    pub(super) kind: Kind,
    pub(super) page: u64,
    pub(super) position: Position,
}

/// How the messages of a segment end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The segment is full, or was closed.
    Whole,
    /// What comes is no message.
    Torn,
}

pub(super) struct Segment {
    pub(super) items: Vec<Item>,
    pub(super) end: End,
    /// Behind the last message.
    pub(super) next: Lsn,
}

impl Segment {
    /// Reads a segment, by way of `buffer`.
    pub(super) fn read(file: &File, lsn: Lsn, offset: u64, buffer: &mut Vec<u8>) -> Result<Self, Doubt> {
        buffer.resize(SEGMENT_BYTES, 0);
        let mut read = 0;
        while let Some(rest) = buffer.get_mut(read..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, offset + read as u64)? {
                0 => break,
                count => read += count,
            }
        }
        Ok(Self::parse(buffer.get(..read).unwrap_or_default(), lsn, offset))
    }

    fn parse(bytes: &[u8], lsn: Lsn, offset: u64) -> Self {
        let mut items = Vec::new();
        let mut at = SEGMENT_HEADER_BYTES;
        let mut end = End::Whole;
        while at + MESSAGE_HEADER_BYTES_MAX <= SEGMENT_BYTES {
            let Some(message) = bytes.get(at..).and_then(|bytes| message(bytes, lsn)) else {
                end = End::Torn;
                break;
            };
            if message.kind == Kind::Cap {
                break;
            }
            let position = Position { lsn: lsn + at as Lsn, offset: offset + at as u64, bytes: message.bytes };
            items.push(Item { kind: message.kind, page: message.page, position });
            at += message.bytes;
        }
        Self { items, end, next: lsn + at as Lsn }
    }
}
