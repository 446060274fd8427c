//! Records, arguments and outputs that only the owner of a key can read.
//!
//! Owns what a seal is bound to: which payload of which task of whom. Must not know where keys come from. Invariant: bytes that
//! were never sealed read as before, with or without a key; sealed bytes are told apart from them by how they begin.

use super::v2::TaskV2;
use super::v3::{PrivateV3, SealedTaskV3, apart, together};
use super::v4::{self, PrivateV4, RecordV4, TaskV4};
use super::{
    Blob, Error, FOURTH, Repr, THIRD, decode_output, decode_task, encode_checked_as, encode_output, read,
    split_checked, to_bytes,
};
use crate::vault::{self, SealingKey};
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{Task, TaskId, TaskOutput};

/// Which task something belongs to.
#[derive(Clone, Copy)]
pub struct Owner<'a> {
    pub requestor: &'a Requestor,
    pub id: TaskId,
}

impl<'a> Owner<'a> {
    pub fn of(task: &'a Task) -> Self {
        Self { requestor: &task.requestor, id: task.id }
    }

    pub(crate) fn seal(&self, what: &str, beside: &[u8], key: &SealingKey, bytes: &[u8]) -> Result<Vec<u8>, Error> {
        let (tenant, requestor) = (self.requestor.tenant.0, self.requestor.id.0);
        let sealed = key.seal(&[what.as_bytes(), &tenant, &requestor, &self.id.0, beside], bytes);
        sealed.map_err(|error| Error::Engine(error.to_string()))
    }

    pub(crate) fn open(&self, what: &str, beside: &[u8], key: &SealingKey, sealed: &[u8]) -> Result<Vec<u8>, Error> {
        let (tenant, requestor) = (self.requestor.tenant.0, self.requestor.id.0);
        let opened = key.open(&[what.as_bytes(), &tenant, &requestor, &self.id.0, beside], sealed);
        opened.map_err(|error| Error::Corrupt(format!("the {what} of task {} cannot be opened: {error}", self.id)))
    }
}

/// A task as bytes, with what is private of it sealed.
pub fn seal_task(task: &Task, key: &SealingKey) -> Result<Vec<u8>, Error> {
    if v4::is_needed(task) {
        let (open, private) = v4::apart(task);
        let open = to_bytes(&open)?;
        let sealed = Owner::of(task).seal("record", &open, key, &to_bytes(&private)?)?;
        return encode_checked_as(FOURTH, &RecordV4::Sealed { open: open.to_repr(), sealed: sealed.to_repr() });
    }
    let (open, private) = apart(task);
    let open = to_bytes(&open)?;
    let sealed = Owner::of(task).seal("record", &open, key, &to_bytes(&private)?)?;
    encode_checked_as(THIRD, &SealedTaskV3 { open: open.to_repr(), sealed: sealed.to_repr() })
}

/// A task from bytes, with all that is private. The key is asked for only if it is needed.
pub fn open_task(bytes: &[u8], key: impl FnOnce(&Requestor) -> Result<SealingKey, Error>) -> Result<Task, Error> {
    let (version, open, sealed) = match split_checked(bytes, "task")? {
        (THIRD, body) => {
            let SealedTaskV3 { open, sealed } = read(body, "task")?;
            (THIRD, open, sealed)
        }
        (FOURTH, body) => match read(body, "task")? {
            RecordV4::Sealed { open, sealed } => (FOURTH, open, sealed),
            RecordV4::Open(task, trace) => return v4::read(task, trace),
        },
        _ => return decode_task(bytes),
    };
    let (open, sealed): (Vec<u8>, Vec<u8>) = (Repr::from_repr(open), Repr::from_repr(sealed));
    if version == THIRD {
        let outline = Task::from_repr(read::<TaskV2>(&open, "task")?);
        let private = Owner::of(&outline).open("record", &open, &key(&outline.requestor)?, &sealed)?;
        return Ok(together(read::<TaskV2>(&open, "task")?, read::<PrivateV3>(&private, "task")?));
    }
    let outline = v4::outline(read::<TaskV4>(&open, "task")?)?;
    let private = Owner::of(&outline).open("record", &open, &key(&outline.requestor)?, &sealed)?;
    v4::together(read::<TaskV4>(&open, "task")?, read::<PrivateV4>(&private, "task")?)
}

/// What is not private of a sealed task.
pub(super) fn outline(body: &[u8]) -> Result<Task, Error> {
    let SealedTaskV3 { open, .. } = read(body, "task")?;
    let open: Vec<u8> = Repr::from_repr(open);
    read::<TaskV2>(&open, "task").map(Repr::from_repr)
}

/// The same, of a record of version 4.
pub(super) fn outline_v4(open: Blob) -> Result<Task, Error> {
    let open: Vec<u8> = Repr::from_repr(open);
    v4::outline(read::<TaskV4>(&open, "task")?)
}

/// An output as sealed bytes.
pub fn seal_output(output: &TaskOutput, owner: Owner<'_>, key: &SealingKey) -> Result<Vec<u8>, Error> {
    let sealed = owner.seal("output", &[], key, &encode_output(output)?)?;
    let sealed: Blob = sealed.to_repr();
    encode_checked_as(THIRD, &sealed)
}

/// An output from bytes.
pub fn open_output(
    bytes: &[u8],
    owner: Owner<'_>,
    key: impl FnOnce() -> Result<SealingKey, Error>,
) -> Result<TaskOutput, Error> {
    let (THIRD, body) = split_checked(bytes, "output")? else { return decode_output(bytes) };
    let sealed: Vec<u8> = Repr::from_repr(read::<Blob>(body, "output")?);
    decode_output(&owner.open("output", &[], &key()?, &sealed)?)
}

/// Whether an output can be read, or could with its key.
pub fn check_output(bytes: &[u8]) -> Result<(), Error> {
    match split_checked(bytes, "output")? {
        (THIRD, body) => read::<Blob>(body, "output").map(drop),
        _ => decode_output(bytes).map(drop),
    }
}

/// Arguments as sealed bytes.
pub fn seal_arguments(text: &str, owner: Owner<'_>, key: &SealingKey) -> Result<Vec<u8>, Error> {
    owner.seal("arguments", &[], key, text.as_bytes())
}

/// Arguments from bytes: JSON never begins as sealed bytes do.
pub fn open_arguments(
    bytes: Vec<u8>,
    owner: Owner<'_>,
    key: impl FnOnce() -> Result<SealingKey, Error>,
) -> Result<Vec<u8>, Error> {
    match vault::sealed_by(&bytes) {
        None => Ok(bytes),
        Some(_) => owner.open("arguments", &[], &key()?, &bytes),
    }
}
