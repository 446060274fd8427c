//! The operator's keys, as the configuration names them.

use crate::config::{Config, SecretLocation};
use anyhow::Context as _;
use bulkhead_store::vault::VaultKeys;

use super::sources;

/// What stored tasks are sealed with; `None`: nothing is.
pub(crate) fn encryption(config: &Config) -> anyhow::Result<Option<VaultKeys>> {
    config.encryption.as_ref().map(|place| read(place).context("[encryption]")).transpose()
}

/// Reads keys from where they are.
pub(crate) fn read(place: &SecretLocation) -> anyhow::Result<VaultKeys> {
    match place {
        SecretLocation::File(file) => Ok(VaultKeys::from_file(file)?),
        SecretLocation::Variable(name) => {
            let value = sources::variable(name);
            let value = value.with_context(|| format!("the environment variable {name} is not set"))?;
            Ok(VaultKeys::from_variable(name, &value)?)
        }
    }
}
