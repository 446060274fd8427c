//! SHELL: plugins come, change and go while the host runs.
//!
//! Owns which version of each plugin is active, how another one takes its place, and what becomes of the calls of the
//! one before. Must not know where a component came from, nor any wire name. Invariant: a switch is one commit and then
//! one exchange of the catalog, so a host that dies has the old versions or the new ones, all of them; a call keeps the
//! version that it began with.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

pub mod sources;

mod calls;
mod canary;
mod canonical;
mod change;
mod comparison;
mod deferred_fetch;
mod definition;
mod demotion;
mod difference;
mod entry;
mod grants;
mod health;
mod maintenance;
mod other_hosts;
mod pinning;
mod policy_reload;
mod reconcile;
mod registry;
mod relist;
mod schema;
mod staging;
mod start;
mod switch;
mod tenant_removal;
#[cfg(test)]
pub(crate) mod tests;
mod view;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Mutex, Notify};

use entry::Entry;
use registry::PluginRegistry;

use self::staging::Arriving;
use bulkhead_audit::Audit;
use bulkhead_domain::clock::Clock;
use bulkhead_domain::requestor::TenantId;
use bulkhead_domain::task::PluginVersion;
use bulkhead_metrics::Metrics;
use bulkhead_runtime::{Canary, LoadError, LoadedPlugin, McpMode, PluginSource, Sandbox};
use bulkhead_store::{self as store, Store};

pub use bulkhead_sources::Digest;
pub use calls::Calls;
pub use canary::{CanaryRequest, CanaryThresholdOverrides};
pub use comparison::{DifferenceKind, GrantDifference, TextDifference, ToolDifference, VersionChanges};
pub use demotion::VersionDurability;
pub use difference::{AcceptChanges, Changes, ToolChange, ToolPart};
pub use entry::{Demotion, Stage, TakenBack, Tenant};
pub use grants::{GrantRow, VersionGrants, grant_rows, limit_rows, skill_rows, view_rows};
pub use health::{CallCounts, CanaryThresholds, FAULTS_IN_A_ROW, FaultRecord, HealthMonitor, PluginHealth};
pub use pinning::Pinning;
pub use policy_reload::{NamedPolicy, PreparedPolicies};
pub use schema::{Difference, Direction, compare};
pub use staging::{Candidate, ComponentSource, Provenance, Staged};
pub use start::{ConfiguredPlugin, component};
pub use switch::{SwitchEffect, SwitchResult, SwitchedPlugin, Target};
pub use tenant_removal::forget_tenant;
pub use view::{
    CanaryView, IntegrityProblem, PluginCensus, PluginState, PluginView, Signer, TakenBackView, Verified, VersionView,
};

/// The first pause after a failure that may pass, and the longest.
const AGAIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// Why a command about plugins was not done. Operators may read all of it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Components that cannot be plugins here, with everything that is wrong.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Refused(Vec<LoadError>),
    /// There is no such plugin or version.
    #[error("{0}")]
    NotFound(String),
    /// Not now, or not like this; says what to do.
    #[error("{0}")]
    Invalid(String),
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The data directory cannot be read or written.
    #[error("the data directory cannot be used: {0}")]
    Files(#[from] std::io::Error),
}

impl Error {
    /// Whether the same may go well at another time, with nothing about the component changed.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Refused(errors) => errors.iter().all(|error| error.passing),
            Self::NotFound(_) | Self::Invalid(_) | Self::Store(_) | Self::Files(_) => true,
        }
    }

    /// One sentence for each thing that is wrong.
    pub fn problems(self) -> Vec<String> {
        match self {
            Self::Refused(errors) => errors.into_iter().flat_map(|error| error.problems).collect(),
            other => vec![other.to_string()],
        }
    }
}

/// How long to wait after so many failures in a row that may pass, before the next attempt: longer each time, up to a
/// bound.
pub fn pause_after(failures: u32) -> Duration {
    let (first, longest) = AGAIN;
    first.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1))).min(longest)
}

/// What happens to the calls of a replaced version that are still there after `drain_ms`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DrainThen {
    /// They go on.
    #[default]
    Wait,
    /// Tasks are cancelled, other calls fail.
    Cancel,
    /// All fail, and say why.
    Fail,
}

/// What the operator says about a plugin, whichever version of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Name, prefix, settings, grants and limits; the component itself is that of a version.
    pub source: PluginSource,
    pub accept_changes: AcceptChanges,
    /// 0: calls of a replaced version have no deadline.
    pub drain_ms: u64,
    pub drain_then: DrainThen,
    /// Faults in a row after which a requestor is kept away for a while; 0: never.
    pub quarantine_after: u32,
    /// When a canary is taken back, unless it was begun with others.
    pub canary: CanaryThresholds,
    /// How long the same bounds hold for a new version after a switch, in milliseconds; 0: not at all.
    pub watch_switch_ms: u64,
}

/// What plugins are made of.
pub struct Options {
    pub store: Arc<dyn Store>,
    pub sandbox: Arc<Sandbox>,
    pub calls: Arc<dyn Calls>,
    pub health: Arc<HealthMonitor>,
    pub clock: Arc<dyn Clock>,
    /// Of plugins that the configuration does not name.
    pub otherwise: Policy,
    /// Tenants that have a say of their own about definitions that change.
    pub tenants: HashMap<TenantId, Pinning>,
    pub audit: Audit,
    pub metrics: Metrics,
}

/// The plugins of a host; cheap to clone.
#[derive(Clone)]
pub struct Plugins {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    sandbox: Arc<Sandbox>,
    calls: Arc<dyn Calls>,
    health: Arc<HealthMonitor>,
    clock: Arc<dyn Clock>,
    policies: ArcSwap<Policies>,
    audit: Audit,
    metrics: Metrics,
    /// One switch at a time.
    state: Mutex<State>,
    /// Something began to drain.
    drains: Notify,
    /// Plugins that do not run because the component of their active version is not in the data directory. For probes,
    /// without a lock.
    lacking: ArcSwap<BTreeSet<String>>,
    arriving: Arriving,
    adding: Arriving,
}

#[derive(Default)]
struct State {
    book: PluginRegistry,
    /// By the source of what the configuration names, what it is called.
    names: HashMap<String, String>,
    /// What is published, in the order that decides about clashes.
    table: Vec<LoadedPlugin>,
    /// What a part of the requestors gets instead.
    canaries: Vec<Canary>,
    /// Named by `--plugin`: what runs is no business of the store.
    pinned: HashSet<String>,
    /// Those of the configuration whose components are still to be fetched.
    awaited: Vec<ConfiguredPlugin>,
    /// Why a plugin that should run does not.
    broken: BTreeMap<String, Vec<String>>,
    /// What is wrong with a file that it might come from. Says nothing about what runs.
    noticed: BTreeMap<String, Vec<String>>,
    /// Of each plugin, what was staged or compared last: switching to it loads nothing again.
    fresh: BTreeMap<String, LoadedPlugin>,
    /// Whose calls the operator's deadline has ended.
    ended: HashSet<PluginVersion>,
}

impl State {
    /// Whether new calls go to this version, be it for a part of the requestors.
    fn runs(&self, version: &PluginVersion) -> bool {
        self.running(version).is_some()
    }

    /// Notes why a plugin does not run, or not all of it, beside what else is wrong with it.
    fn note_broken(&mut self, error: &LoadError) {
        let known = self.broken.entry(error.plugin.clone()).or_default();
        let news: Vec<_> = error.problems.iter().filter(|problem| !known.contains(problem)).cloned().collect();
        known.extend(news);
    }

    /// A version that new calls go to.
    fn running(&self, version: &PluginVersion) -> Option<&LoadedPlugin> {
        let canaries = self.canaries.iter().map(|canary| &canary.plugin);
        self.table.iter().chain(canaries).find(|plugin| plugin.version == *version)
    }

    /// The active version of a plugin, if it does not run.
    fn stopped(&self, name: &str, entry: &Entry) -> Option<Digest> {
        entry.head.active.filter(|active| !self.runs(&version(name, *active)))
    }

    /// What the store knows of a plugin.
    fn entry(&self, name: &str) -> Result<&Entry, Error> {
        self.book.get(name).ok_or_else(|| {
            Error::NotFound(if self.pinned.contains(name) {
                format!("{name} is pinned by --plugin for this run, and no version of it is kept: start the host without it to add one")
            } else {
                format!("there is no plugin {name:?}; `bulkhead plugin list` shows the names")
            })
        })
    }
}

/// What the operator says about each plugin.
#[derive(Clone, Debug)]
struct Policies {
    by_name: HashMap<String, Policy>,
    /// Of plugins that the configuration does not name.
    otherwise: Policy,
    /// Tenants that have a say of their own about definitions that change.
    tenants: HashMap<TenantId, Pinning>,
    /// Of plugins whose operator does not say whether they are MCP servers, and who are known as what they were before
    /// that was asked.
    unasked: HashMap<String, Policy>,
}

impl Policies {
    fn new(
        by_name: HashMap<String, Policy>,
        otherwise: Policy,
        tenants: HashMap<TenantId, Pinning>,
        book: &PluginRegistry,
    ) -> Self {
        let mut policies = Self { by_name, otherwise, tenants, unasked: HashMap::new() };
        let keeping = book.iter().filter(|(name, entry)| entry.kept_program(name).is_some());
        let unasked = keeping.filter_map(|(name, _)| {
            let mut policy = policies.of(name).clone();
            let mode = &mut policy.source.mcp.mode;
            mode.is_none().then(|| *mode = Some(McpMode::Off))?;
            Some((name.clone(), policy))
        });
        let unasked = unasked.collect();
        policies.unasked = unasked;
        policies
    }

    fn of(&self, name: &str) -> &Policy {
        self.unasked.get(name).or_else(|| self.by_name.get(name)).unwrap_or(&self.otherwise)
    }
}

impl Inner {
    /// What holds at this moment.
    fn policy(&self, name: &str) -> Policy {
        self.policies.load().of(name).clone()
    }

    fn is_configured(&self, name: &str) -> bool {
        self.policies.load().by_name.contains_key(name)
    }
}

fn version(name: &str, digest: Digest) -> PluginVersion {
    PluginVersion { name: name.to_owned(), digest: digest.0 }
}

/// The version whose digest begins like this.
fn find(name: &str, entry: &Entry, begins: &str) -> Result<Digest, Error> {
    let begins = begins.to_ascii_lowercase();
    let mut found = entry.versions.keys().filter(|digest| digest.to_string().starts_with(&begins));
    match (found.next(), found.next()) {
        (Some(digest), None) if !begins.is_empty() => Ok(*digest),
        (Some(_), Some(_)) => Err(Error::Invalid(format!("more than one version of {name} begins with {begins}"))),
        _ => Err(Error::NotFound(format!(
            "{name} has no version {begins:?}; `bulkhead plugin versions {name}` shows the digests"
        ))),
    }
}
