//! The third version of the records: what is private of a task is sealed, what the engine needs without a key is not. Frozen as
//! the first one is.
//!
//! Owns which part of a task is which. Must not know where keys come from. Invariant: the golden bytes of [`super`]'s tests, and
//! nothing that a client, a plugin or a person wrote is in the open part but names: those of the tool, of the plugin, and the
//! task's alias.

use serde::{Deserialize, Serialize};

use super::repr::{Blob, List, Repr};
use super::v1::{InputV1, JsonText, PhaseV1};
use super::v2::TaskV2;
use bulkhead_domain::call::CallError;
use bulkhead_domain::task::{Input, Outcome, Phase, Task};

/// A task in its two parts.
#[derive(Serialize, Deserialize)]
pub(super) struct SealedTaskV3 {
    /// A [`TaskV2`] without the private part.
    pub(super) open: Blob,
    /// A sealed [`PrivateV3`].
    pub(super) sealed: Blob,
}

/// What only the owner of the key may know.
#[derive(Serialize, Deserialize)]
pub(super) struct PrivateV3 {
    progress_token: Option<JsonText>,
    arguments_digest: [u8; 32],
    phase: PhaseV1,
    status_message: Option<String>,
    inputs: List<InputV1>,
    steering: List<String>,
    seed: [u8; 32],
}

/// Takes a task apart. What is left says how the task stands, and not what it is about.
pub(super) fn apart(task: &Task) -> (TaskV2, PrivateV3) {
    let private = PrivateV3 {
        progress_token: task.origin.progress_token.to_repr(),
        arguments_digest: task.arguments_digest,
        phase: task.phase.to_repr(),
        status_message: task.status_message.clone(),
        inputs: task.inputs.to_repr(),
        steering: task.steering.to_repr(),
        seed: task.seed,
    };
    let mut open = Task {
        arguments_digest: [0; 32],
        status_message: None,
        inputs: Vec::new(),
        steering: Vec::new(),
        seed: [0; 32],
        ..task.clone()
    };
    open.origin.progress_token = None;
    if let Phase::Ended(Outcome::Error(error)) = &mut open.phase {
        *error = CallError::Interrupted;
    }
    (open.to_repr(), private)
}

/// Puts a task together again.
pub(super) fn together(open: TaskV2, private: PrivateV3) -> Task {
    let mut task = Task::from_repr(open);
    task.origin.progress_token = Repr::from_repr(private.progress_token);
    task.arguments_digest = private.arguments_digest;
    task.phase = Phase::from_repr(private.phase);
    task.status_message = private.status_message;
    task.inputs = Vec::<Input>::from_repr(private.inputs);
    task.steering = Vec::<String>::from_repr(private.steering);
    task.seed = private.seed;
    task
}
