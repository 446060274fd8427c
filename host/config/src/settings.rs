//! The values that hold, each with where it was said: what `bulkhead config show` prints.
//!
//! Owns which keys are shown for a tenant. Must not read a source by itself. Invariant: a value shown here is the one
//! that a host with the same sources runs on.

use serde_json::Value as Json;

use super::document::TenantEntry;
use super::key::{Key, Scope, Value};
use super::layer::Layer;
use super::report::{ConfigLocation, Report};
use super::{Config, File, Flags, Problems, keys, read_sources};

/// Why a value holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Default,
    /// An operator wrote it there.
    Set(ConfigLocation),
    /// Nobody set it: it was raised to what was set there.
    FollowsUp(ConfigLocation),
    /// Nobody set it: it was lowered to a limit above it.
    FollowsDown,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => formatter.write_str("default"),
            Self::Set(location) => location.fmt(formatter),
            Self::FollowsUp(location) => write!(formatter, "raised to what {location} says"),
            Self::FollowsDown => formatter.write_str("lowered to the limit above it"),
        }
    }
}

/// A key with the value that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// `limits.ttl_ms_max`
    pub key: String,
    pub value: Json,
    pub origin: Origin,
}

impl Config {
    /// Every key of the fixed sections, in the order of the reference; for a tenant those that it may have otherwise.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn settings(
        file: Option<File<'_>>,
        variables: impl IntoIterator<Item = (String, String)>,
        flags: &Flags,
        tenant: Option<&str>,
    ) -> Result<Vec<Setting>, Problems> {
        let variables: Vec<_> = variables.into_iter().collect();
        Self::load(file, variables.iter().cloned(), flags)?;
        let report = Report::default();
        let (base, parsed) = read_sources(file, variables, flags, &report);
        let Some(tenant) = tenant else { return Ok(keys::all().map(|key| setting(&base, key)).collect()) };
        let entry = parsed.tenants.into_iter().find(|entry| entry.name == tenant);
        let values = entry.map(|TenantEntry { values, .. }| values).unwrap_or_default();
        let layer = base.overlaid(format!("tenant.{tenant}."), values, &report);
        let own = keys::all().filter(|key| key.section == "limits" && key.scope == Scope::Override);
        Ok(own.map(|key| setting(&layer, key)).collect())
    }
}

fn setting(layer: &Layer<'_>, key: &Key) -> Setting {
    let (value, location) = layer.get((key.section, key.name));
    let origin = match location {
        ConfigLocation::Default if value == key.default() => Origin::Default,
        ConfigLocation::Default => Origin::FollowsDown,
        location if layer.has_followed((key.section, key.name)) => Origin::FollowsUp(location),
        location => Origin::Set(location),
    };
    Setting { key: key.path(), value: json(value), origin }
}

fn json(value: Value) -> Json {
    match value {
        Value::Number(number) => number.into(),
        Value::Switch(switch) => switch.into(),
        Value::Text(text) => text.into(),
        Value::List(list) => list.into(),
        // No key has such a value.
        Value::Other(_) => Json::Null,
    }
}
