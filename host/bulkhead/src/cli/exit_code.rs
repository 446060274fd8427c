//! What the program ends with.

use bulkhead_assembly::offline;
use bulkhead_author_cli::{EXIT_FAILED, EXIT_USAGE};
use bulkhead_control::ControlError;

/// The data directory is another process's for the moment: a host that starts, or a command that is at it
/// (`EX_TEMPFAIL`).
const EXIT_TRY_AGAIN: u8 = 75;

/// What the program ends with after an error.
pub(crate) fn exit_code(error: &anyhow::Error) -> u8 {
    if error.is::<bulkhead_config::Problems>() || error.is::<bulkhead_config::Problem>() {
        return EXIT_USAGE;
    }
    if is_held_for_now(error) { EXIT_TRY_AGAIN } else { EXIT_FAILED }
}

/// Whether the same command can be carried out soon: a host starts, or another command is at the data directory.
pub(super) fn is_held_for_now(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ControlError::Starting(_))) || offline::is_locked(error)
}
