//! What the server's errors mean to callers of the store.
//!
//! Must not put a value of a statement into a message: the server's own message and code are all there is.

use std::error::Error as _;

use super::super::Error;
use tokio_postgres::error::SqlState;

/// How long callers are asked to wait while the server cannot be reached.
pub(super) const RETRY_AFTER_MS: u64 = 1_000;

/// Something that an operator has to change, in a sentence.
pub(super) fn refuse(what: &str) -> Error {
    Error::Engine(what.to_owned())
}

pub(super) fn unavailable() -> Error {
    Error::Unavailable { retry_after_ms: RETRY_AFTER_MS }
}

/// Why a statement failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server answered: the transaction that it belonged to is undone.
    Refused { code: String, message: String },
    /// No answer: what was sent may have been done.
    Broken(String),
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(answer) => {
                Self::Refused { code: answer.code().code().to_owned(), message: answer.message().to_owned() }
            }
            None => {
                Self::Broken(error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}")))
            }
        }
    }
}

impl Failure {
    /// For the log.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Refused { code, message } => format!("{message} (SQLSTATE {code})"),
            Self::Broken(reason) => reason.clone(),
        }
    }

    /// Whether the connection is of no more use.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Broken(_) => true,
            // Of class 57: ended by an operator, a crash, or not up yet.
            Self::Refused { code, .. } => code.starts_with("57P") || code.starts_with("08"),
        }
    }

    /// What a caller is told of an operation that was certainly not done.
    pub(super) fn undone(&self) -> Error {
        let Self::Refused { code, message } = self else { return unavailable() };
        let is = |state: &SqlState| code == state.code();
        if is(&SqlState::DISK_FULL) {
            return Error::ReadOnly(format!("the database's disk is full ({message}): make room there"));
        }
        if is(&SqlState::READ_ONLY_SQL_TRANSACTION) {
            return Error::ReadOnly(format!("the database takes no writes ({message}): it may have become a standby"));
        }
        if is(&SqlState::INSUFFICIENT_PRIVILEGE) {
            return Error::Engine(format!("the role may not do that ({message}): grant it the rights on the schema"));
        }
        let passes = ["08", "53", "55", "57", "40"].iter().any(|class| code.starts_with(class));
        if passes { unavailable() } else { Error::Engine(self.describe()) }
    }
}
