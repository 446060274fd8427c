//! The description of one key, for `bulkhead help config KEY`.
//!
//! Owns how a key is found by what a person knows of it: its path, its name, its variable or its table. Must not
//! describe a key that the page of all keys has not. Invariant: every key of that page is found by its path.

use std::fmt::Write as _;

use super::{Kind, Scope, TABLES, bounds, keys, numbers};

/// Names that are offered in place of an unknown one.
const NEAR_MAX: usize = 5;

/// What is known of one key.
struct Described {
    /// As it stands in messages: `limits.ttl_ms_max`, `auth.scope.tools`.
    path: String,
    variable: Option<String>,
    /// Default and bounds; empty where there are none.
    setting: String,
    /// Where else than in its table it may stand.
    places: &'static str,
    doc: &'static str,
}

impl Described {
    fn table(&self) -> &str {
        self.path.rsplit_once('.').map_or("", |(table, _)| table)
    }

    fn is_meant(&self, name: &str) -> bool {
        let is_end = self.path.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        is_end || self.variable.as_deref() == Some(name)
    }

    fn write(&self, to: &mut String) {
        // Writing to a String cannot fail.
        let _ = writeln!(to, "{}\n  {}", self.path, self.doc);
        for (what, text) in [("default", &*self.setting), ("also in", self.places)] {
            if !text.is_empty() {
                let _ = writeln!(to, "  {what}: {text}");
            }
        }
        if let Some(variable) = &self.variable {
            let _ = writeln!(to, "  variable: {variable}");
        }
    }
}

fn every_key() -> Vec<Described> {
    let fixed = keys::all().map(|key| Described {
        path: key.path(),
        variable: (key.kind != Kind::List).then(|| key.variable_name()),
        setting: bounds(key),
        places: match (key.scope, key.section) {
            (Scope::Host, _) => "",
            (Scope::Override, "limits") => "[tenant.NAME.limits]",
            (Scope::Override, _) => "[plugin.call], [plugin.tool.NAME]",
        },
        doc: key.doc,
    });
    let numbers = numbers().into_iter().map(|(table, name, unit, default, max, doc)| Described {
        path: format!("{table}.{name}"),
        variable: None,
        setting: format!("{default}  [{}, up to {max}]", unit.name()),
        places: "",
        doc,
    });
    let others = TABLES.iter().flat_map(|table| {
        table.keys.iter().map(|(name, default, doc)| Described {
            path: format!("{}.{name}", plain(table.header)),
            variable: None,
            setting: (*default).to_owned(),
            places: "",
            doc,
        })
    });
    fixed.chain(numbers).chain(others).collect()
}

/// A header as paths have it: `[[auth.scope]]` is `auth.scope`, `[server] tls` is `server.tls`.
fn plain(header: &str) -> String {
    header.replace("] ", ".").replace(['[', ']'], "")
}

/// The tables, for who knows no key.
pub fn tables() -> Vec<String> {
    let mut tables = Vec::new();
    for key in every_key() {
        if !tables.iter().any(|table| table == key.table()) {
            tables.push(key.table().to_owned());
        }
    }
    tables
}

/// What a key is for, what may stand there and where; of a table, every key.
///
/// # Errors
///
/// There is none of this name: which ones are near.
pub fn explain(wanted: &str) -> Result<String, String> {
    let wanted = plain(wanted.trim());
    let every = every_key();
    // A key that holds a table has the keys of that below it.
    let exactly = every.iter().filter(|key| key.path == wanted).chain(every.iter().filter(|key| key.table() == wanted));
    let mut found: Vec<_> = exactly.collect();
    if found.is_empty() {
        found = every.iter().filter(|key| key.is_meant(&wanted)).collect();
    }
    if found.is_empty() {
        return Err(unknown(&wanted, &every));
    }
    let mut text = String::new();
    for key in found {
        key.write(&mut text);
    }
    Ok(text)
}

fn unknown(wanted: &str, every: &[Described]) -> String {
    let name = wanted.rsplit('.').next().unwrap_or_default();
    let paths = || every.iter().map(|key| key.path.as_str());
    let names = every.iter().filter_map(|key| key.path.rsplit('.').next());
    let nearest = bulkhead_protocol::nearest_name(wanted, paths());
    let nearest_name = bulkhead_protocol::nearest_name(name, names);
    let mut near: Vec<&str> = nearest.into_iter().collect();
    let is_near = |path: &&str| {
        let own = path.rsplit('.').next();
        nearest_name.is_some() && own == nearest_name || !name.is_empty() && path.contains(name)
    };
    for path in paths().filter(is_near) {
        if near.len() < NEAR_MAX && !near.contains(&path) {
            near.push(path);
        }
    }
    let hint = match near.as_slice() {
        [] => String::new(),
        near => format!(" (did you mean {}?)", near.join(", ")),
    };
    format!("the configuration has no key {wanted:?}{hint}; `bulkhead help config` lists the tables")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_found_by_its_path() {
        let every = every_key();
        assert!(every.len() > 150, "{}", every.len());
        for key in &every {
            let said = explain(&key.path).unwrap();
            assert!(said.starts_with(&format!("{}\n", key.path)) && said.contains(key.doc), "{said}");
        }
    }

    #[test]
    fn key_is_found_by_what_a_person_knows_of_it() {
        for (wanted, parts) in [
            ("limits.ttl_ms_max", vec!["limits.ttl_ms_max\n", "default: ", " to ", "BULKHEAD_LIMITS_TTL_MS_MAX"]),
            ("ttl_ms_max", vec!["limits.ttl_ms_max\n"]),
            ("BULKHEAD_LIMITS_TTL_MS_MAX", vec!["limits.ttl_ms_max\n"]),
            ("[[auth.scope]]", vec!["auth.scope.tools\n", "auth.scope.tenant_control\n"]),
            ("[server] tls", vec!["server.tls.certificate\n"]),
            ("plugin.kv", vec!["plugin.kv\n", "plugin.kv.keys_max\n"]),
            ("plugin.kv.keys_max", vec!["plugin.kv.keys_max\n", "up to"]),
            // In several tables.
            ("token_file", vec!["admin.token_file\n", "metrics.token_file\n"]),
        ] {
            let said = explain(wanted).unwrap();
            assert!(parts.iter().all(|part| said.contains(part)), "{wanted}: {said}");
        }
        assert!(tables().iter().any(|table| table == "plugin.grants"));
    }

    #[test]
    fn unknown_key_is_answered_with_near_ones() {
        for (wanted, near) in [
            ("limits.ttl_ms_mux", Some("limits.ttl_ms_max")),
            ("server.lisen", Some("server.listen")),
            ("keyfile", Some("secrets.key_file")),
            ("zzzzqqqq", None),
        ] {
            let said = explain(wanted).unwrap_err();
            match near {
                Some(near) => assert!(said.contains(near), "{said}"),
                None => assert!(!said.contains("did you mean"), "{said}"),
            }
            assert!(said.contains(wanted) && said.ends_with("`bulkhead help config` lists the tables"), "{said}");
        }
    }
}
