//! SHELL: the task engine.
//!
//! Owns the running of calls: admission, runs, answers, cancellation, expiry, recovery and drain, and who is told about what.
//! Must not know a wire name or a transport, nor hold anything that the store does not, except what a running call needs (its
//! levers, its watchers). Invariant: what changes a task goes through `domain::lifecycle::step` inside one store commit; the
//! first terminal state wins, and watchers are told after the commit.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

pub mod secrets;

mod engine;
mod parts;

use std::sync::Arc;

use tokio::sync::oneshot;

use bulkhead_calls::{CatalogPlugin, Operation, Returned, ToolEntry};
use bulkhead_domain::Json;
use bulkhead_domain::call::{CallError, ClientFeatures, InputRequest, InputRequestError, InputResponse, LogLevel};
use bulkhead_domain::task::{Origin, Task, TaskId};
use bulkhead_limits::rate;

pub use bulkhead_store::ListPosition;
pub use engine::change::IS_HELD;
pub use engine::checking::{CheckError, CheckedJournal};
pub use engine::holding::held_by_operator;
pub use engine::run::plain::{PlainCall, of_kind};
pub use engine::run::resuming::COULD_NOT;
pub use engine::takeover::Recovered;
pub use engine::usage::{Unfinished, Withdrawal};
pub use engine::{Options, Tasks};
pub use parts::activity::{ActivityGroup, ActivityKey, ActivitySample};
pub use parts::admission::{InUse, Sums};
pub use parts::call_health::{CallHealth, EndedCall};
pub use parts::catalog_events::ResourceUpdate;
pub use parts::guest_services::in_memory;
pub use parts::job::{Fallback, FallbackRequest, Job};

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
    /// Its calls kept breaking.
    #[error("the plugin {plugin} is quarantined, because its calls kept breaking; try again later")]
    Quarantined { plugin: String },
}

/// What a client declared with its request.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientContext {
    pub features: ClientFeatures,
    /// The lowest level it wants to see.
    pub log_level: Option<LogLevel>,
    pub wants_progress: bool,
}

/// A call to be made. The arguments have been checked against the tool's input schema.
#[derive(Clone, Debug)]
pub struct CallRequest {
    pub tool: Arc<ToolEntry>,
    pub arguments: Json,
    pub client: ClientContext,
    /// Earlier tasks that this call continues: calls that its requestor has looked at.
    pub related: Vec<TaskId>,
    /// Whether a plain call of it may be promoted: it keeps what its task is to be brought back from.
    pub may_become_task: bool,
}

/// A request to a plugin that is no call of a tool, on the terms of a plain call; a task is made of an [`FallbackRequest`].
#[derive(Clone, Debug)]
pub struct PluginRequest {
    pub library: Arc<CatalogPlugin>,
    pub operation: Operation,
    pub client: ClientContext,
}

/// How long a client would like its task to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedTtl {
    Default,
    Ms(u64),
    Unlimited,
    /// So many milliseconds after its end; `None`: as long as the host likes.
    AfterEnd(Option<u64>),
}

/// A task to be made.
#[derive(Clone, Debug)]
pub struct TaskRequest {
    pub job: Job,
    pub origin: Origin,
    pub ttl: RequestedTtl,
}

/// What became of a request for a task that is to be made once.
#[derive(Clone, Debug)]
pub struct Once {
    pub task: Arc<Task>,
    /// It was there before.
    pub found: bool,
}

/// What a plain call says while it runs.
#[derive(Debug)]
pub enum CallNews {
    Progress {
        progress: f64,
        total: Option<f64>,
        message: Option<String>,
    },
    Log {
        level: LogLevel,
        logger: Option<String>,
        data: Json,
    },
    /// The guest would rather be a task, or there is the place for it that a promotion did not find: [`PlainCall::promote`] it, or go on.
    Detach,
    /// Must be replied to; dropping the reply tells the guest that no client can be reached.
    InputRequests {
        requests: Vec<InputRequest>,
        reply: oneshot::Sender<Result<Vec<InputResponse>, InputRequestError>>,
    },
    /// Always last. [`of_kind`] takes out of it what was asked for.
    Finished(Result<Returned, CallError>),
}

/// What happens to tasks, for watchers. What comes too fast is dropped, oldest first (`broadcast` says so): read the task again.
#[derive(Clone, Debug)]
pub enum TaskNews {
    /// There is a new one, as it was written first.
    Created(TaskId),
    /// The record after a commit.
    Changed(Arc<Task>),
    /// Expired or removed.
    Gone(TaskId),
    Progress {
        id: TaskId,
        progress: f64,
        total: Option<f64>,
        message: Option<String>,
    },
    Log {
        id: TaskId,
        level: LogLevel,
        logger: Option<String>,
        data: Json,
    },
}
