//! What stands in a journal, for operators: each entry in its place, without what it says.
//!
//! Owns the words for kinds of entries. Must not read a body further than its kind: what a guest saw belongs to its
//! requestor. Invariant: listing is total, and says of the first bytes that are no entry which one they would be.

use super::Corrupt;
use super::names::{HTTP_HANDLE, Import, TASK_ASK, TASK_CHECKPOINT, TASK_SAFE_POINT, TASK_SLEEP};
use super::reader::Reader;

/// One entry of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedEntry {
    /// In the order of the journal; the header is 0.
    pub number: u32,
    /// The call of an import, counted from the begin, at which the guest saw it or asked for it.
    pub step: u64,
    /// What it is, in a word.
    pub kind: &'static str,
    /// The import that it is of, where an entry of this kind is always of the same.
    pub import: Option<String>,
    /// Bytes that it takes in the journal.
    pub bytes: u64,
}

/// All entries of a journal, in order.
///
/// # Errors
///
/// These bytes are no journal.
pub fn list(bytes: &[u8]) -> Result<Vec<ListedEntry>, Corrupt> {
    let mut reader = Reader::new(bytes);
    let mut entries = Vec::new();
    let mut step = 0_u64;
    let mut number = 0_u32;
    let mut asked_at = None;
    while reader.left() > 0 {
        let corrupt = || Corrupt { number };
        let before = reader.left();
        let Frame { delta, what } = frame(&mut reader).ok_or_else(corrupt)?;
        step = step.checked_add(delta).ok_or_else(corrupt)?;
        let (kind, import) = match what {
            What::Question => {
                asked_at = Some(step);
                ("question", Some(TASK_ASK))
            }
            What::Plain("value") if asked_at == Some(step) => ("answer", Some(TASK_ASK)),
            What::Request => ("request", Some(HTTP_HANDLE)),
            What::Plain(kind @ ("outcome" | "delivery")) => (kind, Some(HTTP_HANDLE)),
            What::Plain(kind @ ("checkpoint" | "state")) => (kind, Some(TASK_CHECKPOINT)),
            What::Plain(kind @ "sleep") => (kind, Some(TASK_SLEEP)),
            What::Plain(kind @ "signals") => (kind, Some(TASK_SAFE_POINT)),
            What::Plain(kind) => (kind, None),
        };
        let import = import.map(|import: Import| import.to_string());
        let bytes = (before - reader.left()) as u64;
        entries.push(ListedEntry { number, step, kind, import, bytes });
        number = number.checked_add(1).ok_or_else(corrupt)?;
    }
    Ok(entries)
}

struct Frame {
    /// Steps since the entry before.
    delta: u64,
    what: What,
}

enum What {
    Question,
    Request,
    Plain(&'static str),
}

fn frame(reader: &mut Reader<'_>) -> Option<Frame> {
    let length = reader.varint()?.try_into().ok()?;
    let mut body = Reader::new(reader.take(length)?);
    let delta = body.varint()?;
    let what = match body.byte()? {
        1 => What::Plain("header"),
        2 => What::Plain("clock"),
        3 => match body.byte()? {
            1 => What::Question,
            2 => What::Request,
            _ => return None,
        },
        4 => What::Plain("outcome"),
        5 => What::Plain("delivery"),
        6 => What::Plain("value"),
        7 => What::Plain("signals"),
        8 => What::Plain("promoted"),
        9 => What::Plain("checkpoint"),
        10 => What::Plain("mark"),
        11 => What::Plain("end"),
        12 => What::Plain("state"),
        13 => What::Plain("sleep"),
        _ => return None,
    };
    Some(Frame { delta, what })
}
