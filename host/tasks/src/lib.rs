//! SHELL: the task engine.
//!
//! Owns the running of calls: admission, runs, answers, cancellation, expiry, recovery and drain, and who is told about
//! what. Must not know a wire name or a transport, nor hold anything that the store does not, except what a running
//! call needs (its levers, its watchers). Invariant: what changes a task goes through `domain::lifecycle::step` inside
//! one store commit; the first terminal state wins, and watchers are told after the commit.
//!
//! ```text
//!  callers        Tasks: a handle, cheap to clone                PlainCall
//!                   |                                              |
//!  engine/        call  create  read  change  usage                |
//!                 checking  takeover  maintenance  drain           |
//!                   |                                              |
//!  engine/run/    drive --> task_call --> guest_driver <-- plain <-+
//!                 queued  resuming  dormant  finish
//!                   |                          | DriverContext: executor, lists, health, audit
//!  engine.rs      EngineContext                |
//!                   |                          |
//!  parts/         admission  availability  shares  watchers  run_state  journal  ...
//!                   |        state and rules: no engine is known here
//!  below          store: TaskStore, JournalStore       calls: Executor, CallEvent
//! ```
//!
//! No file of these imports one that imports it, directly or through others. A change goes from `engine` to the store
//! first; then the watchers tell the run, which acts on its new record.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

pub mod secrets;

mod engine;
mod error;
mod parts;

pub use bulkhead_store::ListPosition;
pub use engine::change::{IS_HELD, held_by_operator};
pub use engine::checking::{CheckError, CheckedJournal};
pub use engine::create::Once;
pub use engine::drain::{Unfinished, Withdrawal};
pub use engine::run::plain::PlainCall;
pub use engine::run::resuming::COULD_NOT;
pub use engine::takeover::Recovered;
pub use engine::{Options, Tasks};
pub use error::{Error, Unavailable};
pub use parts::activity::{ActivityGroup, ActivityKey, ActivitySample};
pub use parts::admission::{InUse, Sums};
pub use parts::call_health::{CallHealth, EndedCall};
pub use parts::catalog_events::ResourceUpdate;
pub use parts::guest_services::in_memory;
pub use parts::host_messages::ClientMessageReader;
pub use parts::job::{Fallback, FallbackRequest, Job, RequestedTtl, TaskRequest};
pub use parts::news::{CallNews, TaskNews, of_kind};
pub use parts::request::{CallRequest, ClientContext, PluginRequest};
