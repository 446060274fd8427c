//! Which host this is: what an operator is shown of it.
//!
//! Owns what is known before it serves. Must not follow its configuration, which another one may take the place of.

use std::path::Path;

use bulkhead_config::Config;
use bulkhead_control::views::HostIdentity;
use bulkhead_runtime::WASMTIME_VERSION;

use super::system_clock::unix_ms;

/// What this process is, before it serves anywhere.
pub(super) fn identify(config: &Config, data: &Path, engine: &str) -> HostIdentity {
    HostIdentity {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        program: std::env::current_exe().ok().map(|program| program.display().to_string()),
        pid: std::process::id(),
        started_at: unix_ms(),
        address: None,
        admin_address: None,
        metrics_address: None,
        dashboard_address: None,
        data: data.display().to_string(),
        store: engine.to_owned(),
        sealed: config.encryption.is_some(),
        wasmtime: WASMTIME_VERSION.to_owned(),
    }
}
