//! What a task came to, and the line that its status says of it.

use std::time::Duration;

use bulkhead_domain::task::{Outcome, TaskOutput};
use bulkhead_domain::tool::ContentKind;

/// Between two tries to write an outcome to a store that refuses: the result exists, so it is kept until it is written.
pub(crate) const OUTCOME_RETRY: Duration = Duration::from_secs(1);

/// Characters of a status line.
const STATUS_CHARS_MAX: usize = 200;

/// How a task ended that came to this, and what its status says of it.
pub(crate) fn outcome(output: &TaskOutput) -> (Outcome, Option<String>) {
    let message = match output {
        TaskOutput::Tool(output) if output.is_error => output.content.iter().find_map(|content| match &content.kind {
            ContentKind::Text(text) => Some(line(text)),
            _ => None,
        }),
        _ => None,
    };
    (Outcome::Output { is_error: output.is_error() }, message)
}

/// One line without control characters, cut where it gets long.
pub(crate) fn line(text: &str) -> String {
    let visible = text.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control());
    visible.take(STATUS_CHARS_MAX).collect()
}
