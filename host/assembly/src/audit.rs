//! Where the audit log of a data directory is, and whether one is kept.

use std::path::Path;

use bulkhead_audit::{self as audit, Audit, Options};
use bulkhead_config::Config;

use super::system_clock::unix_ms;

/// The log that a host with this configuration keeps in its data directory.
pub(crate) fn of_host(config: &Config, data: &Path) -> anyhow::Result<Audit> {
    if config.audit.enabled { open(config, data) } else { Ok(Audit::off()) }
}

fn open(config: &Config, data: &Path) -> anyhow::Result<Audit> {
    let options = Options {
        folder: audit::folder(data),
        file_bytes_max: config.audit.file_bytes_max,
        files_max: config.audit.files_max,
    };
    Audit::open(options, unix_ms).map_err(|error| anyhow::anyhow!("the audit log cannot be kept: {error}"))
}

/// The log of a data directory on which no host runs: what is done to it is noted where a host has begun to.
pub(crate) fn of_idle(config: &Config) -> anyhow::Result<Audit> {
    let data = &config.server.data;
    if audit::folder(data).is_dir() { open(config, data) } else { Ok(Audit::off()) }
}
