//! Records, arguments and outputs that only the owner of a key can read.
//!
//! Owns what a seal is bound to: which payload of which task of whom. Must not know where keys come from. Invariant:
//! bytes that are not sealed are read with or without a key; sealed bytes are told apart from them by how they begin.

use super::output::StoredOutput;
use super::task::{PrivateRepr, StoredTask, apart, together};
use super::{
    Blob, Error, Format, Repr, decode_checked, decode_output, encode_checked, encode_output, outline, read, read_task,
    to_bytes, write_task,
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
        let tenant = self.requestor.tenant.0;
        let requestor = self.requestor.id.0;
        let sealed = key.seal(&[what.as_bytes(), &tenant, &requestor, &self.id.0, beside], bytes);
        sealed.map_err(|error| Error::Engine(error.to_string()))
    }

    pub(crate) fn open(&self, what: &str, beside: &[u8], key: &SealingKey, sealed: &[u8]) -> Result<Vec<u8>, Error> {
        let tenant = self.requestor.tenant.0;
        let requestor = self.requestor.id.0;
        let opened = key.open(&[what.as_bytes(), &tenant, &requestor, &self.id.0, beside], sealed);
        opened.map_err(|error| Error::Corrupt(format!("the {what} of task {} cannot be opened: {error}", self.id)))
    }
}

/// A task as bytes, with what is private of it sealed.
pub fn seal_task(task: &Task, key: &SealingKey) -> Result<Vec<u8>, Error> {
    seal_task_as(Format::WRITTEN, task, key)
}

pub(super) fn seal_task_as(format: Format, task: &Task, key: &SealingKey) -> Result<Vec<u8>, Error> {
    let (open, private) = apart(task);
    let open = to_bytes(&open)?;
    let sealed = Owner::of(task).seal("record", &open, key, &to_bytes(&private)?)?;
    write_task(format, StoredTask::Sealed { open: Blob(open), sealed: Blob(sealed) })
}

/// A task from bytes, with all that is private. The key is asked for only if it is needed.
pub fn open_task(bytes: &[u8], key: impl FnOnce(&Requestor) -> Result<SealingKey, Error>) -> Result<Task, Error> {
    match read_task(bytes)? {
        StoredTask::Open(task) => Repr::from_repr(task),
        StoredTask::Sealed { open, sealed } => {
            let task = outline(&open)?;
            let private = Owner::of(&task).open("record", &open.0, &key(&task.requestor)?, &sealed.0)?;
            together(task, read::<PrivateRepr>(&private, "task")?)
        }
    }
}

/// An output as sealed bytes.
pub fn seal_output(output: &TaskOutput, owner: Owner<'_>, key: &SealingKey) -> Result<Vec<u8>, Error> {
    encode_checked(&StoredOutput::Sealed(Blob(owner.seal("output", &[], key, &encode_output(output)?)?)))
}

/// An output from bytes.
pub fn open_output(
    bytes: &[u8],
    owner: Owner<'_>,
    key: impl FnOnce() -> Result<SealingKey, Error>,
) -> Result<TaskOutput, Error> {
    match decode_checked(bytes, "output")? {
        StoredOutput::Open(output) => Repr::from_repr(output),
        StoredOutput::Sealed(sealed) => decode_output(&owner.open("output", &[], &key()?, &sealed.0)?),
    }
}

/// Whether an output can be read, or could with its key.
pub fn check_output(bytes: &[u8]) -> Result<(), Error> {
    match decode_checked(bytes, "output")? {
        StoredOutput::Open(output) => TaskOutput::from_repr(output).map(drop),
        StoredOutput::Sealed(_) => Ok(()),
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
