//! What can be known of a configuration without serving.

use anyhow::Context as _;
use bulkhead_calls::Executor as _;
use bulkhead_config::{Config, refused_by_clients};
use bulkhead_domain::tool_names::PORTABLE_NAME_CHARS_MAX;
use bulkhead_runtime::LoadError;

use super::host::{load_plugins, sandbox};
use super::{offline, sources, traces, trust};

/// What came of a look at a configuration.
#[derive(Debug, Default)]
pub struct ConfigCheck {
    /// How many would be served.
    pub tools: usize,
    pub problems: Vec<String>,
    pub warnings: Vec<String>,
}

/// Looks at a configuration and loads every plugin.
pub async fn check(config: &Config) -> anyhow::Result<ConfigCheck> {
    // The cache of a running host is left alone.
    let scratch = tempfile::tempdir().context("there is no room for a temporary folder")?;
    let sandbox = sandbox(config, scratch.path(), None, None)?;
    sources::refuse_exposing(config, &config.server.data)?;
    let refused = load_plugins(&sandbox, config).await?;
    let of_plugin = |error: &LoadError| {
        error.problems.iter().map(|problem| format!("plugin {}: {problem}", error.plugin)).collect()
    };
    let mut problems: Vec<String> = refused.iter().flat_map::<Vec<_>, _>(of_plugin).collect();
    let exposure = match config.check_exposure(false) {
        Ok(()) => Ok(()),
        Err(_) => config.check_exposure(offline::any_active_token(config).await?),
    };
    problems.extend(exposure.err().map(|problem| problem.to_string()));
    let trusted = trust::issuers(config).and_then(|_| trust::certificate(config));
    let trusted = trusted.and_then(|_| config.admin.as_ref().map(trust::admin).transpose());
    let trusted = trusted.and_then(|_| config.metrics.as_ref().map(trust::metrics).transpose());
    let trusted = trusted.and_then(|_| config.dashboard.as_ref().map(trust::dashboard).transpose());
    let oidc = config.dashboard.as_ref().and_then(|dashboard| dashboard.oidc.as_deref());
    let trusted = trusted.and_then(|_| oidc.map(trust::login_client).transpose());
    problems.extend(trusted.err().map(|problem| format!("{problem:#}")));
    problems.extend(traces::check(config).err().map(|wrong| format!("{wrong:#}")));
    let warnings = refused_by_clients(&config.plugins, PORTABLE_NAME_CHARS_MAX);
    Ok(ConfigCheck { tools: sandbox.catalog().tools().len(), problems, warnings })
}
