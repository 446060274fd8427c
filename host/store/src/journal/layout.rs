//! Keys and bytes of journals.
//!
//! Owns the layout of [`RowKind::Journal`](crate::RowKind): by tenant, requestor and task, number 0 is the head and the
//! others are the pieces of the stream, each written once. Invariant: decoding is total; a piece that is sealed is
//! sealed for its place alone; and every value fits into a row.

use serde::{Deserialize, Serialize};

use super::{Append, HEAD_VERSION, HeadAfter, JournalHead, JournalState, TaskRef};
use crate::Error;
use crate::record::Owner;
use crate::vault::SealingKey;
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_domain::task::TaskId;

/// Bytes of the stream in a piece.
pub const PIECE_BYTES: usize = 3_900;
/// The longest reason that a head keeps.
pub const REASON_BYTES_MAX: usize = 200;

/// The number of the head.
pub(crate) const HEAD: u32 = 0;

/// How a piece begins: as it is, or sealed.
const CLEAR: u8 = 1;
const SEALED: u8 = 2;
const LABEL: &str = "journal";

/// A head on disk, of version [`HEAD_VERSION`].
#[derive(Serialize, Deserialize)]
struct HeadRepr {
    attempt: u32,
    rows: u32,
    bytes: u64,
    step: u64,
    entries: u64,
    cpu_us: u64,
    wall_us: u64,
    resumes_since_growth: u32,
    cooperative: bool,
    state: StateRepr,
    wake_at: Option<u64>,
}

#[derive(Serialize, Deserialize)]
enum StateRepr {
    Sound,
    Demoted(String),
    Diverged(String),
}

impl JournalState {
    fn to_repr(&self) -> StateRepr {
        match self {
            Self::Sound => StateRepr::Sound,
            Self::Demoted { reason } => StateRepr::Demoted(kept(reason)),
            Self::Diverged { reason } => StateRepr::Diverged(kept(reason)),
        }
    }
}

impl From<StateRepr> for JournalState {
    fn from(stored: StateRepr) -> Self {
        match stored {
            StateRepr::Sound => Self::Sound,
            StateRepr::Demoted(reason) => Self::Demoted { reason: kept(&reason) },
            StateRepr::Diverged(reason) => Self::Diverged { reason: kept(&reason) },
        }
    }
}

/// As much of a reason as a head keeps.
fn kept(reason: &str) -> String {
    reason.get(..reason.floor_char_boundary(REASON_BYTES_MAX)).unwrap_or_default().to_owned()
}

impl JournalHead {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, Error> {
        let body = HeadRepr {
            attempt: self.attempt,
            rows: self.rows,
            bytes: self.bytes,
            step: self.step,
            entries: self.entries,
            cpu_us: self.cpu_us,
            wall_us: self.wall_us,
            resumes_since_growth: self.resumes_since_growth,
            cooperative: self.cooperative,
            state: self.state.to_repr(),
            wake_at: self.wake_at,
        };
        postcard::to_extend(&body, vec![HEAD_VERSION])
            .map_err(|error| Error::Engine(format!("the head of a journal cannot be written: {error}")))
    }

    pub(crate) fn decode(row: &[u8]) -> Result<Self, Error> {
        let stored = match row.split_first() {
            Some((&HEAD_VERSION, body)) => match postcard::take_from_bytes::<HeadRepr>(body) {
                Ok((stored, [])) => stored,
                Ok(_) | Err(_) => return Err(corrupt("the head of a journal cannot be read")),
            },
            Some((version, _)) => {
                return Err(corrupt(&format!("the head of a journal has version {version}: use a newer program")));
            }
            None => return Err(corrupt("the head of a journal is empty")),
        };
        let after = HeadAfter {
            step: stored.step,
            entries: stored.entries,
            cpu_us: stored.cpu_us,
            wall_us: stored.wall_us,
            resumes_since_growth: stored.resumes_since_growth,
            cooperative: stored.cooperative,
            state: stored.state.into(),
            wake_at: stored.wake_at,
        };
        Ok(Self::new(stored.attempt, stored.rows, stored.bytes, after))
    }
}

impl Append {
    /// The rows of its pieces, in their order from the first one on that it writes.
    pub(crate) fn pieces(&self, task: &TaskRef, sealing: Option<&SealingKey>) -> Result<Vec<Vec<u8>>, Error> {
        if matches!(self.head.state, JournalState::Demoted { .. }) {
            return Ok(Vec::new());
        }
        let numbered = self.numbers().zip(self.bytes.chunks(PIECE_BYTES));
        numbered.map(|(number, bytes)| piece(task, number, bytes, sealing)).collect()
    }
}

fn piece(task: &TaskRef, number: u32, bytes: &[u8], sealing: Option<&SealingKey>) -> Result<Vec<u8>, Error> {
    let Some(sealing) = sealing else { return Ok([&[CLEAR], bytes].concat()) };
    let owner = Owner { requestor: &task.requestor, id: task.id };
    Ok([&[SEALED], owner.seal(LABEL, &number.to_be_bytes(), sealing, bytes)?.as_slice()].concat())
}

/// The part of the stream that is in a piece. The key is asked for only if it is needed.
pub(crate) fn open_piece(
    task: &TaskRef,
    number: u32,
    row: &[u8],
    key: impl FnOnce() -> Result<SealingKey, Error>,
) -> Result<Vec<u8>, Error> {
    match row.split_first() {
        Some((&CLEAR, bytes)) => Ok(bytes.to_vec()),
        Some((&SEALED, sealed)) => {
            let owner = Owner { requestor: &task.requestor, id: task.id };
            owner.open(LABEL, &number.to_be_bytes(), &key()?, sealed)
        }
        _ => Err(corrupt("a piece of a journal cannot be read; a newer program may have written it")),
    }
}

/// Whether a piece can be read, or could with its key.
pub(crate) fn check_piece(row: &[u8]) -> Result<(), Error> {
    match row.split_first() {
        Some((&CLEAR, _)) => Ok(()),
        Some((&SEALED, sealed)) if crate::vault::sealed_by(sealed).is_some() => Ok(()),
        _ => Err(corrupt("a piece of a journal cannot be read")),
    }
}

/// The key of a row, behind its kind.
pub(crate) fn row_key(task: &TaskRef, number: u32) -> Vec<u8> {
    let mut key = prefix(task);
    key.extend(number.to_be_bytes());
    key
}

/// What the keys of all rows of a journal begin with, behind their kind.
pub(crate) fn prefix(task: &TaskRef) -> Vec<u8> {
    [task.requestor.tenant.0, task.requestor.id.0, task.id.0].concat()
}

/// Whose row it is, and its number.
pub(crate) fn parse_key(key: &[u8]) -> Option<(TaskRef, u32)> {
    let (tenant, rest) = key.split_first_chunk()?;
    let (requestor, rest) = rest.split_first_chunk()?;
    let (id, number) = rest.split_first_chunk()?;
    let requestor = Requestor { tenant: TenantId(*tenant), id: RequestorId(*requestor) };
    Some((TaskRef { requestor, id: TaskId(*id) }, u32::from_be_bytes(number.try_into().ok()?)))
}

fn corrupt(what: &str) -> Error {
    Error::Corrupt(what.to_owned())
}
