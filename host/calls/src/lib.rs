//! PORT: what a call of a plugin is.
//!
//! Owns the words in which a call is asked for, seen and steered: what it is before it starts ([`CallSpec`]), what it
//! says ([`CallEvent`]), the levers on it ([`Control`]), what can be called ([`Catalog`]), what an operator grants
//! ([`policy`]), and the ports through which it reaches what is its tenant's. Must not run anything, nor know what runs
//! it: there is no wasmtime here, and `runtime` is one [`Executor`]. Invariant: a call sends exactly one
//! [`CallEvent::Finished`], always last, and once its [`RunningCall`] is dropped nothing of it goes on; each executor
//! keeps that.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

pub mod catalog;
mod control;
mod durability;
pub mod guest_services;
pub mod journal;
mod journal_sink;
mod operation;
mod outside;
pub mod policy;
pub mod schema;
mod sealed;
pub mod secrets;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::expect_used, reason = "only tests use it, and a fixture that fails ends its test")]
pub mod testing;

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

use crate::policy::Denial;
use bulkhead_domain::Json;
use bulkhead_domain::call::{CallError, ClientFeatures, InputRequest, InputRequestError, InputResponse, LogLevel};
use bulkhead_domain::limits::CallLimits;
use bulkhead_domain::requestor::TenantId;
use bulkhead_domain::route::Route;
use bulkhead_domain::task::{CallId, PluginVersion};
use bulkhead_metrics::ActivityCounts;
use bulkhead_threads::{Share, Stop};

pub use catalog::{Catalog, CatalogPlugin, ListGenerations, PromptEntry, SkillEntry, TemplateEntry, ToolEntry};
pub use control::{CallLevers, ClientView, Control};
pub use durability::{Durability, IDEMPOTENCY_KEY, InDoubt, JournalPolicy};
pub use guest_services::GuestServices;
pub use journal::Journaling;
pub use journal_sink::{Fenced, JournalSink, JournaledQuestion, OpenTail, Spent, Tail};
pub use operation::{Operation, Returned, URI_BYTES_MAX};
pub use outside::OutsideWorld;
pub use sealed::Sealed;

/// Everything that a call of a plugin is, before it starts. Nothing in it names the requestor; of the tenant there is
/// the id alone, because grants, directories and what a plugin keeps are a tenant's.
#[derive(Clone, Debug)]
pub struct CallSpec {
    pub plugin: PluginVersion,
    pub tenant: TenantId,
    pub operation: Operation,
    pub limits: CallLimits,
    /// What its time on the guests' threads is taken from.
    pub share: Share,
    /// Where it is counted for its requestor, if it is. Says nothing about whose it is, either.
    pub activity: Option<Arc<ActivityCounts>>,
    pub facts: CallContext,
    pub journaling: Journaling,
}

/// What a guest may know about its own call.
#[derive(Clone, Debug)]
pub struct CallContext {
    pub call_id: CallId,
    /// Set from the start for a call that is a task from the start; see [`CallLevers::promoted`].
    pub task_id: Option<String>,
    pub attempt: u32,
    pub idempotency_key: OnDemand,
    /// A tenant-scoped random id.
    pub requestor_alias: OnDemand,
    /// This, the level and the wish for progress are of the request that the call began with; see
    /// [`CallLevers::set_client`].
    pub features: ClientFeatures,
    pub log_level: Option<LogLevel>,
    pub related_tasks: Vec<String>,
    /// Seeds every random byte that the guest sees.
    pub seed: [u8; 32],
    /// Whether the client wants progress; otherwise reports are dropped at once.
    pub wants_progress: bool,
    /// The guest's key-value store and secrets; none for a call without a requestor.
    pub guest_services: Option<Arc<dyn GuestServices>>,
    /// Stands in for network and clock in tests of plugins; none in a host.
    pub outside: Option<Arc<dyn OutsideWorld>>,
}

impl CallContext {
    /// Of a call that no client waits for.
    pub fn detached() -> Self {
        Self {
            call_id: CallId([0; 16]),
            task_id: None,
            attempt: 1,
            idempotency_key: OnDemand::Text(String::new()),
            requestor_alias: OnDemand::Text(String::new()),
            features: ClientFeatures::default(),
            log_level: None,
            related_tasks: Vec::new(),
            seed: [0; 32],
            wants_progress: false,
            guest_services: None,
            outside: None,
        }
    }
}

/// A text that few guests ask for, so that most calls need not make it.
#[derive(Clone, Debug)]
pub enum OnDemand {
    Text(String),
    Made { of: [u8; 32], by: fn(&[u8; 32]) -> String },
}

impl OnDemand {
    /// The text; the same each time.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Made { of, by } => by(of),
        }
    }
}

/// What a running call says. Waiting is always the receiver's business: it sends the reply when the wait is over, after
/// it has taken a running permit again.
#[derive(Debug)]
pub enum CallEvent {
    Progress {
        progress: f64,
        total: Option<f64>,
        message: Option<String>,
    },
    Status(String),
    Log {
        level: LogLevel,
        logger: Option<String>,
        data: Json,
    },
    /// Features, keys and schemas have been checked.
    InputRequests {
        requests: Vec<InputRequest>,
        /// Of a call whose journal is kept: it is kept with the question.
        journal: Option<JournaledQuestion>,
        reply: oneshot::Sender<Result<Vec<InputResponse>, InputRequestError>>,
    },
    /// Become a task, if that can be.
    Detach {
        reply: oneshot::Sender<Option<String>>,
    },
    /// Fetch the waiting messages; they count as delivered once replied.
    Steering {
        /// Of a call whose journal is kept: it is kept with the delivery.
        journal: Option<OpenTail>,
        reply: oneshot::Sender<Vec<String>>,
    },
    Sleep {
        ms: u64,
        reply: oneshot::Sender<()>,
    },
    ListsChanged(ListKind),
    ResourceUpdated(String),
    /// The guest reached for something that is not granted: the first thing of the call.
    GrantDenied(Denial),
    /// Always the last event.
    Finished(Result<Returned, CallError>),
}

/// A list of a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListKind {
    Tools,
    Resources,
    Prompts,
}

impl ListKind {
    /// All of them, in the order in which clients are told of them.
    pub const ALL: [Self; 3] = [Self::Tools, Self::Resources, Self::Prompts];
}

/// A call that runs. Dropping it stops the guest at once, wherever it is.
#[derive(Debug)]
pub struct RunningCall {
    /// Bounded: progress, status and logs that come too fast are merged before they get here.
    pub events: mpsc::Receiver<CallEvent>,
    pub control: Control,
    /// Dropped with the call: stops the guest.
    pub stop: StopOnDrop,
}

/// Stops a guest when it is dropped.
#[derive(Debug)]
pub struct StopOnDrop(Arc<dyn Stop>);

impl StopOnDrop {
    /// Stops this.
    pub fn new(what: Arc<dyn Stop>) -> Self {
        Self(what)
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        Arc::clone(&self.0).stop();
    }
}

/// Why a call could not even start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Neither ready nor kept: it was never accepted, or its plugin is not configured any more.
    #[error("plugin {0} is not loaded")]
    UnknownPlugin(String),
}

/// Starts calls. The real one is the sandbox of `runtime`; tests of the task engine script their own.
pub trait Executor: Send + Sync + 'static {
    /// The current catalog for requestors in no canary; a caller keeps one snapshot from begin to end.
    fn catalog(&self) -> Arc<Catalog>;

    /// The current catalog for a requestor that takes part in these routes. Which requestor that is, only the caller
    /// knows.
    fn catalog_for(&self, takes_part: &dyn Fn(&Route) -> bool) -> Arc<Catalog> {
        let _ = takes_part;
        self.catalog()
    }

    /// A tool as a version offers it that may not be offered any more, made ready if need be; `name` has the prefix in
    /// front. `None`: this version cannot run here any more, or has no such tool.
    fn tool<'a>(&'a self, version: &'a PluginVersion, name: &'a str) -> BoxFuture<'a, Option<Arc<ToolEntry>>> {
        let offered = self.catalog().get(name).filter(|entry| entry.plugin == *version).cloned();
        Box::pin(std::future::ready(offered))
    }

    /// What a version is for everything that is no call of a tool, made ready if need be. `None`: it cannot run here
    /// any more.
    fn library<'a>(&'a self, version: &'a PluginVersion) -> BoxFuture<'a, Option<Arc<CatalogPlugin>>> {
        let offered = self.catalog().libraries().iter().find(|library| library.plugin == *version).cloned();
        Box::pin(std::future::ready(offered))
    }

    /// Starts a call on the guests' own threads. Everything that goes wrong from here on is a `Finished` event.
    fn start(&self, spec: CallSpec) -> Result<RunningCall, StartError>;

    /// The hash of engine and settings that compiled code depends on.
    fn engine_hash(&self) -> u64;
}
