//! The operator's keys, as the configuration names them.

use anyhow::Context as _;
use bulkhead::config::{Config, SecretPlace};
use bulkhead::vault::Keys;

use super::sources;

/// What stored tasks are sealed with; `None`: nothing is.
pub(crate) fn encryption(config: &Config) -> anyhow::Result<Option<Keys>> {
    config.encryption.as_ref().map(|place| read(place).context("[encryption]")).transpose()
}

/// Reads keys from where they are.
pub(crate) fn read(place: &SecretPlace) -> anyhow::Result<Keys> {
    match place {
        SecretPlace::File(file) => Ok(Keys::from_file(file)?),
        SecretPlace::Variable(name) => {
            let value = sources::variable(name);
            let value = value.with_context(|| format!("the environment variable {name} is not set"))?;
            Ok(Keys::from_variable(name, &value)?)
        }
    }
}
