//! What is said about work that takes a person's patience: where, and in which words. When, is the business of the authors' library,
//! which has the same lines.

use std::sync::Arc;

use bulkhead_author_cli::progress::{self, Place};
use bulkhead_control::Command;
use bulkhead_control::commands::{PluginCommand, StoreCommand, TenantCommand};
use bulkhead_control::server::DescribeStart;
use bulkhead_runtime::LoadProgress;
use parking_lot::Mutex;

use super::console::PROGRAM;
use super::table::cell;

/// Does the work of a command and says what it is while it takes long: on a terminal in one line, elsewhere in a plain line now and then.
pub(super) async fn during<T>(what: &str, work: impl Future<Output = T>) -> T {
    progress::during(Place::Stderr(PROGRAM), || what.to_owned(), work).await
}

/// The same for a host, which speaks to its operator in its log.
pub(super) async fn logged<T>(what: impl Fn() -> String, work: impl Future<Output = T>) -> T {
    progress::during(Place::Log(|what, seconds| tracing::info!(seconds, "{what}")), what, work).await
}

/// How far the start of a host is, for commands that come during it.
#[derive(Clone)]
pub(super) struct StartStage(Arc<Mutex<DescribeStart>>);

impl StartStage {
    pub(super) fn begin() -> Self {
        Self(Arc::new(Mutex::new(Arc::new(|| "reading its configuration and its store".to_owned()))))
    }

    /// What it does from now on.
    pub(super) fn enter(&self, describe: impl Fn() -> String + Send + Sync + 'static) {
        *self.0.lock() = Arc::new(describe);
    }

    pub(super) fn describe(&self) -> String {
        let describe = Arc::clone(&self.0.lock());
        describe()
    }
}

/// What a host does about its plugins before it serves.
pub(super) fn describe_loading(progress: &LoadProgress) -> String {
    let LoadProgress { begun, over, compiling } = progress;
    let compiling: Vec<_> = compiling.iter().map(|plugin| cell(plugin.as_str())).collect();
    match (begun, compiling.is_empty()) {
        (0, _) => "reading the components of plugins".to_owned(),
        (_, true) => format!("loading plugins, {over} of {begun} done"),
        (_, false) => format!("loading plugins, {over} of {begun} done: compiling {}", compiling.join(", ")),
    }
}

/// What a command does, for the line about it.
pub(super) fn describe(command: &Command) -> String {
    let sources = |sources: &[String]| sources.iter().map(|source| cell(&**source)).collect::<Vec<_>>().join(", ");
    match command {
        Command::Plugin(PluginCommand::Stage(stage)) => format!("fetching and compiling {}", cell(&*stage.source)),
        Command::Plugin(PluginCommand::Add(add)) => format!("fetching and compiling {}", sources(&add.sources)),
        Command::Plugin(PluginCommand::Update(update)) => {
            format!("fetching and compiling what is at the source of {}", cell(&*update.name))
        }
        Command::Plugin(PluginCommand::Verify(_)) => "reading the kept components".to_owned(),
        Command::Plugin(_) => "changing plugins".to_owned(),
        Command::Store(StoreCommand::Check(_)) => "reading the store".to_owned(),
        Command::Store(StoreCommand::Export(_)) => "exporting the store".to_owned(),
        Command::Store(StoreCommand::Rebuild(_)) => "rebuilding the store".to_owned(),
        Command::Store(StoreCommand::Backup(_)) => "copying the store".to_owned(),
        Command::Store(StoreCommand::Rekey(_)) => "sealing the keys of tenants".to_owned(),
        Command::Tenant(TenantCommand::Purge(_)) => "erasing the tenant and rebuilding the store".to_owned(),
        Command::Audit(_) => "reading the audit log".to_owned(),
        Command::Token(_) | Command::Secret(_) | Command::Tenant(_) | Command::Tasks(_) | Command::Host(_) => {
            "waiting for the host or the store".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loading_is_described_by_what_is_done_and_what_is_compiled() {
        let mut progress = LoadProgress::default();
        assert_eq!(describe_loading(&progress), "reading the components of plugins");
        (progress.begun, progress.over) = (5, 2);
        assert_eq!(describe_loading(&progress), "loading plugins, 2 of 5 done");
        progress.compiling = vec!["csv".to_owned(), "a\u{1b}b".to_owned()];
        let said = describe_loading(&progress);
        assert!(said.starts_with("loading plugins, 2 of 5 done: compiling csv, a"), "{said}");
        assert!(!said.contains('\u{1b}'), "{said:?}");
    }
}
