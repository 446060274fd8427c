//! The plugins of a host that starts.
//!
//! Owns who is told what became of each: the stage of the start, the audit log and the log. Must not judge a plugin.
//! Invariant: one that is refused is no reason not to start.

use std::sync::Arc;

use bulkhead_audit::{Audit, Entry};
use bulkhead_plugins::{ConfiguredPlugin, Options, Plugins};
use bulkhead_runtime::LoadError;

use super::progress::{self, StartStage};

/// Loads the plugins.
pub(crate) async fn start_plugins(
    options: Options,
    wanted: Vec<ConfiguredPlugin>,
    stage: &StartStage,
) -> anyhow::Result<Plugins> {
    let sandbox = Arc::clone(&options.sandbox);
    stage.enter(move || progress::describe_loading(&sandbox.load_progress()));
    let audit = options.audit.clone();
    let starting = Box::pin(Plugins::start(options, wanted));
    let (plugins, refused) = progress::logged(|| stage.describe(), starting).await?;
    refused.iter().for_each(refuse_with(audit.clone()));
    for version in plugins.versions_offered() {
        audit.note(|| Entry::new("plugin.loaded").plugin(&version));
    }
    Ok(plugins)
}

/// Says, and has in the audit log, that a plugin does not run.
pub(crate) fn refuse_with(audit: Audit) -> impl Fn(&LoadError) + Send + Sync + 'static {
    move |refused| {
        let why = refused.problems.join("; ");
        audit.note(|| Entry::new("plugin.refused").named(&refused.plugin).because(&why));
        tracing::error!(plugin.name = refused.plugin, problems = ?refused.problems, "a plugin was not loaded");
    }
}
