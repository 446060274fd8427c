//! Why the engine refuses or fails.
//!
//! Invariant: a failure of the host is logged once, and shown as the id of its log line alone.

use bulkhead_domain::call::CallError;
use bulkhead_limits::rate;

/// Why the engine refused or failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Absent, expired or another requestor's: the caller cannot tell which.
    #[error("no such task")]
    NotFound,
    /// The task is over.
    #[error("the task is over")]
    Ended,
    /// Not allowed in the task's present phase; says what is.
    #[error("{0}")]
    Illegal(&'static str),
    /// A limit is reached: which one, its value, and when to try again.
    #[error("{limit} is at its limit of {value}")]
    Quota { limit: &'static str, value: u64, retry_after_ms: Option<u64> },
    /// Too many requests or task creations per second.
    #[error("{limit} is at its limit of {value} per second")]
    Rate { limit: &'static str, value: u64, retry_after_ms: u64 },
    /// The input itself is wrong; the text may be shown.
    #[error("{0}")]
    Invalid(String),
    /// Not now, whatever is asked.
    #[error("{why}")]
    Unavailable { why: Unavailable, retry_after_ms: Option<u64> },
    /// Something broke; it was logged under this id.
    #[error("host failure {incident}")]
    Host { incident: String },
}

impl From<rate::Exceeded> for Error {
    fn from(rate::Exceeded { limit, value, retry_after_ms }: rate::Exceeded) -> Self {
        Self::Rate { limit, value: value.into(), retry_after_ms }
    }
}

impl Error {
    /// The host is going down.
    pub fn draining() -> Self {
        Self::Unavailable { why: Unavailable::Draining, retry_after_ms: None }
    }
}

/// Logs a failure of the host once and returns the error that may be shown.
pub(crate) fn host_failure(what: &str, error: &dyn std::fmt::Display) -> Error {
    let incident = incident();
    tracing::error!(incident, "{what} failed: {error}");
    Error::Host { incident }
}

/// A short id that a requestor can quote and an operator can find.
pub(crate) fn incident() -> String {
    let mut bytes = [0; 6];
    // Without randomness every incident has the same name, which is the smaller trouble by then.
    let _ = getrandom::fill(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Why nothing can be begun at the moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    #[error("the host is shutting down")]
    Draining,
    /// Its tenant was erased, or is being erased.
    #[error("everything of this tenant was erased; authenticate again")]
    Erased,
    /// The store cannot be reached, or another host goes on with what this one had.
    #[error("the store cannot be reached at the moment; nothing was done, try again later")]
    Store,
    /// The store was asked, and did not say what came of it.
    #[error("whether this was done is not known yet; look before you do it again")]
    InDoubt,
    /// Its calls kept breaking.
    #[error("the plugin {plugin} is quarantined, because its calls kept breaking; try again later")]
    Quarantined { plugin: String },
}

/// What a guest is told of it.
pub(crate) fn internal(error: Error) -> CallError {
    match error {
        Error::Host { incident } => CallError::Internal { incident },
        _ => CallError::Interrupted,
    }
}
