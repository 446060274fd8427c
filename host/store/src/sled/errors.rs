//! What is said of an engine that fails, of a store that is closed, and of a database that is damaged.

use super::super::Error;

pub(super) fn engine_error(error: ::sled::Error) -> Error {
    match error {
        ::sled::Error::Corruption { at, .. } => {
            let position = at.map_or_else(String::new, |at| format!(" at {at:?}"));
            refuse(&format!("the engine cannot read its file{position}"))
        }
        other => Error::Engine(other.to_string()),
    }
}

pub(super) fn closed() -> Error {
    Error::Engine("the store is closed, or being opened again".to_owned())
}

/// The refusal of a damaged database, with what can be done about it.
pub(super) fn refuse(damage: &str) -> Error {
    Error::Corrupt(format!(
        "{damage}. Nothing is served from a damaged database. Save what can still be read with `bulkhead store export`, \
         make a sound database of it with `bulkhead store rebuild`, or put a backup of the whole folder back"
    ))
}
