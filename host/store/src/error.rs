//! Why a store refuses or fails.

/// Why a store refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another writer changed the record first: read again and decide again.
    #[error("the record is at another revision")]
    Conflict,
    /// An append does not go on from what is there: the task is gone or over, or another life of its call writes the
    /// journal. To try again makes no sense.
    #[error("another life of the call writes its journal")]
    Fenced,
    /// The id or the alias is taken.
    #[error("the key is taken")]
    Exists,
    /// A stored-tasks or stored-bytes quota is full.
    #[error("{limit} is at its limit of {value}")]
    Quota { limit: &'static str, value: u64 },
    /// Writes are refused until there is room again; what was acknowledged stays readable.
    #[error("the store is read-only: {0}")]
    ReadOnly(String),
    /// A record cannot be understood.
    #[error("corrupt data: {0}")]
    Corrupt(String),
    /// The engine failed.
    #[error("storage failed: {0}")]
    Engine(String),
    /// What is written to belongs to another host by now, or this one was declared dead. Nothing was written, and to
    /// try again makes no sense: stop.
    #[error("another host has it by now")]
    Lost,
    /// The engine cannot be reached at the moment, and nothing was written.
    #[error("the store cannot be reached at the moment")]
    Unavailable { retry_after_ms: u64 },
    /// Whether it was written is not known yet: read before it is done again.
    #[error("the store has not said whether it was written")]
    InDoubt,
    /// What is stored is sealed, and the keys that were given do not open it.
    #[error("the store is sealed: {0}")]
    Sealed(String),
    /// A build before 0.1.0, the first version that promises compatibility, wrote the data directory.
    #[error(
        "a build before 0.1.0 wrote this data directory: `bulkhead store export FILE` of commit b1eaa0b4, the last that reads \
         it, and then `bulkhead store rebuild --from FILE` of this version take over everything but tasks"
    )]
    Unreleased,
    /// The data directory belongs to another process.
    #[error("the data directory is in use: {0}")]
    Locked(String),
}
