//! What the program ends with.

use bulkhead_assembly::offline;
use bulkhead_author_cli::{EXIT_FAILED, EXIT_USAGE};
use bulkhead_control::ControlError;

/// The data directory is another process's for the moment: a host that starts, or a command that is at it (`EX_TEMPFAIL`).
const EXIT_TRY_AGAIN: u8 = 75;

/// What the program ends with after an error.
pub(crate) fn exit_code(error: &anyhow::Error) -> u8 {
    let is_usage = error.is::<bulkhead_config::Problems>() || error.is::<bulkhead_config::Problem>();
    let is_starting = matches!(error.downcast_ref(), Some(ControlError::Starting(_)));
    match (is_usage, is_starting || offline::is_locked(error)) {
        (true, _) => EXIT_USAGE,
        (_, true) => EXIT_TRY_AGAIN,
        _ => EXIT_FAILED,
    }
}
