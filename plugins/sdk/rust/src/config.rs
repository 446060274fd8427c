//! The operator's settings for this plugin: `[[plugin]] config = { … }` in the host's configuration. Never secrets,
//! those do not enter a guest.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::Error;
use crate::bindings::bulkhead::plugin::config as host;

/// One setting, or none.
///
/// ```no_run
/// # fn read() -> Result<(), bulkhead_plugin::Error> {
/// let delimiter: char = bulkhead_plugin::config::get("delimiter")?.unwrap_or(',');
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// A setting of another type is the operator's mistake: the error goes to the log and names the key.
pub fn get<T: DeserializeOwned>(key: &str) -> Result<Option<T>, Error> {
    host::get(key).map(|json| parse(key, &json)).transpose()
}

/// All settings.
///
/// # Errors
///
/// As [`get`].
pub fn all() -> Result<BTreeMap<String, Value>, Error> {
    host::all().into_iter().map(|(key, json)| parse(&key, &json).map(|value| (key, value))).collect()
}

fn parse<T: DeserializeOwned>(key: &str, json: &str) -> Result<T, Error> {
    serde_json::from_str(json).map_err(|error| Error::internal(format!("config.{key}: {error}")))
}
