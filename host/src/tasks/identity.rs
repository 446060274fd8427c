//! Random ids and seeds, from the operating system.

use crate::domain::task::CallId;
use crate::tasks::Error;

/// Bytes that nobody can guess.
pub(super) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    match getrandom::fill(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(error) => Err(host_failure("randomness", &error)),
    }
}

/// What every call begins with; from one visit to the operating system, since calls are many.
pub(super) fn seed_and_id() -> Result<([u8; 32], CallId), Error> {
    let bytes: [u8; 48] = random()?;
    match (bytes.first_chunk(), bytes.last_chunk()) {
        (Some(seed), Some(id)) => Ok((*seed, CallId(*id))),
        _ => Err(host_failure("randomness", &"there is too little of it")),
    }
}

/// Logs a failure of the host once, and gives the error that may be shown.
pub(super) fn host_failure(what: &str, error: &dyn std::fmt::Display) -> Error {
    let incident = incident();
    tracing::error!(incident, "{what} failed: {error}");
    Error::Host { incident }
}

/// A short id that a requestor can quote and an operator can find.
pub(super) fn incident() -> String {
    let mut bytes = [0; 6];
    // Without randomness every incident has the same name, which is the smaller trouble by then.
    let _ = getrandom::fill(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
