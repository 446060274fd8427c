//! The keys that secrets of plugins are sealed with, and the secrets that they open.

use std::sync::Arc;

use anyhow::Context as _;
use bulkhead_config::{Config, SECRET_KEY_VARIABLE};
use bulkhead_store::Store;
use bulkhead_store::vault::VaultKeys;
use bulkhead_tasks::secrets::{KeySource, Secrets};

/// The operator's keys: those of the file, else those of the variable.
fn source(config: &Config) -> KeySource {
    let file = config.secrets.key_file.clone();
    Box::new(move || match (&file, std::env::var(SECRET_KEY_VARIABLE)) {
        (Some(file), _) => VaultKeys::from_file(file).map(Some),
        (None, Ok(text)) => VaultKeys::from_variable(SECRET_KEY_VARIABLE, &text).map(Some),
        (None, Err(_)) => Ok(None),
    })
}

/// The secrets of a store, once every one of them can be opened.
pub(super) async fn open(config: &Config, store: Arc<dyn Store>) -> anyhow::Result<Arc<Secrets>> {
    let secrets = Secrets::open(store, source(config)).await;
    Ok(Arc::new(secrets.context("the secrets of plugins cannot be used")?))
}

/// The same for commands that need no value: they must do their work where a key is lost.
pub(super) fn unopened(config: &Config, store: Arc<dyn Store>) -> Arc<Secrets> {
    Arc::new(Secrets::unopened(store, source(config)))
}
