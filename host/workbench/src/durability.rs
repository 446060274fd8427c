//! Whether calls of a plugin can be brought back after their host ended, for `plugin inspect` and `plugin check`.
//!
//! Owns the words for it. Must not decide it: the sandbox does. Invariant: without a configuration nothing is granted,
//! so it is the component alone that speaks.

use std::collections::BTreeMap;

use bulkhead_calls::Durability;
use bulkhead_calls::policy::{Bound, Grants};
use bulkhead_config::{Config, PluginConfig};
use bulkhead_console::table::cell;
use bulkhead_runtime::durable_hindrance;
use bulkhead_runtime::inspect::Inspection;
use serde_json::{Value, json};

/// What is known of a plugin.
pub(super) struct PluginDurability {
    /// Why not; `None`: they can.
    why_not: Option<String>,
    /// Of tenants for which it is otherwise.
    tenants: Vec<(String, Option<String>)>,
    /// What the configuration says, where it has the plugin.
    setting: Option<Durability>,
    /// Directories that its manifest asks for and nothing grants: they would be in the way.
    wishes: Vec<String>,
}

impl PluginDurability {
    pub(super) fn of(inspection: &Inspection, entry: Option<&PluginConfig>, config: &Config) -> Self {
        let wanted = inspection.manifest.as_ref().map(|manifest| manifest.requested.grants.clone()).unwrap_or_default();
        let none = Grants::default();
        let no_settings = BTreeMap::new();
        let source = entry.map(|entry| &entry.policy.source);
        let (granted, settings) = source.map_or((&none, &no_settings), |source| (&source.grants, &source.config));
        let effective = granted.within(&wanted);
        let hindrance = |grants: &Grants| durable_hindrance(inspection.is_concurrent, grants, settings);
        let why_not = hindrance(&effective);
        let bounded = config.tenants.iter().filter(|(_, tenant)| tenant.grants != Bound::default());
        let of_tenants = bounded.map(|(name, tenant)| (name.clone(), hindrance(&effective.within(&tenant.grants))));
        let wishes = wanted.directories.iter().flatten().map(|directory| directory.guest.clone());
        Self {
            tenants: of_tenants.filter(|(_, of_tenant)| *of_tenant != why_not).collect(),
            setting: source.map(|source| source.durable),
            wishes: if effective.directories.is_empty() { wishes.collect() } else { Vec::new() },
            why_not,
        }
    }

    pub(super) fn as_json(&self) -> Value {
        let one = |why_not: &Option<String>| json!({"possible": why_not.is_none(), "whyNot": why_not});
        let tenants = self.tenants.iter().map(|(name, why_not)| (name.clone(), one(why_not)));
        let mut value = one(&self.why_not);
        if let Some(value) = value.as_object_mut() {
            if let Some(setting) = self.setting {
                value.insert("setting".to_owned(), json!(format!("{setting:?}").to_lowercase()));
            }
            if !self.tenants.is_empty() {
                value.insert("tenants".to_owned(), Value::Object(tenants.collect()));
            }
        }
        value
    }

    /// For everybody, and a line for each tenant for which it is otherwise.
    pub(super) fn as_lines(&self) -> Vec<String> {
        let words = |why_not: &Option<String>| match why_not {
            Some(why) => format!("no, {}", cell(why.as_str())),
            None => "yes".to_owned(),
        };
        let more = match (&self.why_not, self.setting, &self.wishes[..]) {
            (None, Some(Durability::Off), _) => ", but `durable` of its [[plugin]] is off".to_owned(),
            (Some(_), ..) | (None, _, []) => String::new(),
            (None, _, wishes) => {
                let wishes = wishes.join(", ");
                format!(", as long as none of the directories is granted that it asks for: {}", cell(wishes.as_str()))
            }
        };
        let of_tenant = |(name, why_not): &(String, Option<String>)| {
            format!("{} in calls of tenant {}", words(why_not), cell(name.as_str()))
        };
        let everybody = format!("{}{more}", words(&self.why_not));
        std::iter::once(everybody).chain(self.tenants.iter().map(of_tenant)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(why_not: Option<&str>, setting: Option<Durability>, wishes: &[&str]) -> PluginDurability {
        let tenants = vec![("acme".to_owned(), None)];
        let tenants = if why_not.is_some() { tenants } else { Vec::new() };
        let wishes = wishes.iter().map(ToString::to_string).collect();
        PluginDurability { why_not: why_not.map(str::to_owned), tenants, setting, wishes }
    }

    #[test]
    fn durability_says_why_not_for_whom_and_that_it_is_off() {
        let granted = told(Some("directories are granted: /data"), Some(Durability::Auto), &[]);
        assert_eq!(granted.as_lines(), ["no, directories are granted: /data", "yes in calls of tenant acme"]);
        let expected = json!({"possible": false, "whyNot": "directories are granted: /data", "setting": "auto",
            "tenants": {"acme": {"possible": true, "whyNot": null}}});
        assert_eq!(granted.as_json(), expected);
        let off = told(None, Some(Durability::Off), &["/data"]);
        assert_eq!(off.as_lines(), ["yes, but `durable` of its [[plugin]] is off"]);
        let asks = told(None, None, &["/data", "/tmp"]);
        let expected = "yes, as long as none of the directories is granted that it asks for: /data, /tmp";
        assert_eq!(asks.as_lines(), [expected]);
        assert_eq!(asks.as_json(), json!({"possible": true, "whyNot": null}));
    }
}
