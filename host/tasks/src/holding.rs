//! Tasks that are held: paused by the host or by an operator until an operator lets them go.
//!
//! Owns how a held task is told from one that its requestor paused. Must not decide what is held. Invariant: what holds a task is the words
//! of its record alone, so that every host, and a store that no host runs, say the same of it.

use super::Tasks;
use bulkhead_domain::task::{Phase, Task};

/// How the status of every held task begins.
const HELD: &str = "it is held";

/// Whether the task is held.
pub fn is_held(task: &Task) -> bool {
    let is_paused = matches!(task.phase, Phase::Paused { .. });
    is_paused && task.status_message.as_deref().is_some_and(|said| said.starts_with(HELD))
}

/// What a task says that an operator holds, with their own words for it.
pub fn held_by_operator(why: Option<&str>) -> String {
    match why {
        Some(why) => format!("{HELD} by the operator: {why}"),
        None => format!("{HELD} by the operator"),
    }
}

impl Tasks {
    /// How many tasks of this host are held.
    pub fn held_count(&self) -> usize {
        self.inner.watchers.tasks().iter().filter(|task| is_held(task)).count()
    }
}
