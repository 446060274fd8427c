//! The keys as documents: for `bulkhead serve --help` and for the page `host/docs/reference/configuration.md`.
//!
//! Owns the form and the order of these texts. Must not describe a key: its declaration does, in [`keys`] or beside its
//! reader.

mod lookup;

use std::fmt::Write as _;

pub use lookup::{explain, tables};

use super::key::{self, Key, Kind, Scope, Unit};
use super::keys;
use super::table::Table;
use super::{admin, auth, cluster, dashboard, document, grants, metrics, plugin, tls, toolset, traces, trust};

/// The tables of the file whose keys are not plain values with bounds, in the order of the page.
pub(super) static TABLES: &[&Table] = &[
    &tls::TLS,
    &admin::ADMIN,
    &metrics::METRICS,
    &dashboard::DASHBOARD,
    &dashboard::OIDC,
    &traces::TRACES,
    &document::SECRETS,
    &document::STORE,
    &cluster::CLUSTER,
    &document::ENCRYPTION,
    &auth::AUTH,
    &auth::SCOPE,
    &auth::ISSUER,
    &trust::TRUST,
    &document::TENANT,
    &plugin::PLUGIN,
    &toolset::TOOLSET,
    &grants::GRANTS,
    &plugin::CANARY,
    &plugin::TOOL,
];

/// A number of a table that is not in [`keys`]: table, name, unit, default, maximum and meaning.
type Number = (&'static str, &'static str, Unit, u64, u64, &'static str);

fn numbers() -> Vec<Number> {
    let of = |table: &'static str, numbers: &[key::Number]| {
        let listed = |number: &key::Number| {
            let key::Number { name, unit, default, max, doc, .. } = *number;
            (table, name, unit, default, max, doc)
        };
        numbers.iter().map(listed).collect::<Vec<_>>()
    };
    let quota = of("plugin.grants.directories", &[grants::QUOTA]);
    [of("cluster", &cluster::NUMBERS), of("auth.issuer", &auth::NUMBERS), quota, of("plugin.kv", &grants::KEYVALUE)]
        .concat()
}

/// The page of every key.
pub fn configuration_markdown() -> String {
    let mut page = String::from(INTRODUCTION);
    let mut section = "";
    for key in keys::all() {
        if key.section != section {
            section = key.section;
            let head = "| key | unit | default | minimum | maximum | set for | meaning |\n| --- | --- | --- | --- | --- | --- | --- |";
            // Writing to a String cannot fail.
            let _ = writeln!(page, "\n## \\[{section}]\n\n{head}");
        }
        let (unit, default, min, max) = match key.kind {
            Kind::Number { unit, default, min, max } => (unit.name(), grouped(default), grouped(min), grouped(max)),
            Kind::Switch { default } => ("switch", default.to_string(), String::new(), String::new()),
            Kind::Text { default, .. } => ("text", format!("`{default}`"), String::new(), String::new()),
            Kind::List => ("list", "empty".to_owned(), String::new(), String::new()),
        };
        let scope = match (key.scope, section) {
            (Scope::Host, _) => "host",
            (Scope::Override, "limits") => "host, tenant",
            (Scope::Override, _) => "host, plugin, tool",
        };
        let _ = writeln!(
            page,
            "| `{}` | {unit} | {default} | {min} | {max} | {scope} | {} |",
            key.path(),
            escaped(key.doc)
        );
    }
    page.push_str("\n## Numbers of other tables\n\n| key | unit | default | maximum | meaning |\n| --- | --- | --- | --- | --- |\n");
    for (table, name, unit, default, max, doc) in numbers() {
        let unit = unit.name();
        let default = grouped(default);
        let max = grouped(max);
        let _ = writeln!(page, "| `{table}.{name}` | {unit} | {default} | {max} | {} |", escaped(doc));
    }
    for Table { header, purpose, keys, .. } in TABLES {
        let head = "| key | default | meaning |\n| --- | --- | --- |";
        let _ = writeln!(page, "\n## {}\n\n{}\n\n{head}", escaped(header), escaped(purpose));
        for (name, default, doc) in *keys {
            let _ = writeln!(page, "| `{name}` | {} | {} |", escaped(default), escaped(doc));
        }
    }
    page
}

/// Text in a cell of a Markdown table, with what Markdown would read as a link.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('[', "\\[")
}

const INTRODUCTION: &str = "\
# Configuration

For operators. This page lists every key of the configuration file. `cargo xtask docs` writes it from the program; do not edit it.

`bulkhead serve --config bulkhead.toml` reads the file. A flag wins over the environment, the environment wins over the file.

Each scalar key of the sections `server`, `limits`, `call`, `compile`, `log`, `audit` and `sources` is also a variable:
`limits.ttl_ms_max` is `BULKHEAD_LIMITS_TTL_MS_MAX`. Lists can be set in the file only. Relative paths start at the file's folder.

An unknown key, a wrong type, a value out of bounds or a contradiction is an error that names its place.
`bulkhead serve --check` looks at the configuration and every plugin, and exits.

A key of `[limits]` holds for one requestor unless its name says `per_tenant` or `total`. `[tenant.NAME.limits]` sets it for one
tenant. A default that is over a limit that you lowered follows it down; a limit of a tenant or of the host that you did not set
follows a lower level up.

\"Set for\" says where a key may stand: `host` in its section, `tenant` in `[tenant.NAME.limits]`, `plugin` in `[plugin.call]`, `tool` in
`[plugin.tool.NAME]`.
";

/// Every key with its variable, for the long help.
pub fn keys_help() -> String {
    let mut help = String::from(
        "Configuration keys. A key is set in the file as [SECTION] KEY, or by the variable BULKHEAD_SECTION_KEY\n\
         (limits.ttl_ms_max is BULKHEAD_LIMITS_TTL_MS_MAX; lists only in the file). Flags win over the environment,\n\
         the environment over the file. A default that is over a limit that you lowered follows it down. Relative\n\
         paths in the file start at the file's folder. [tenant.NAME.limits] takes the keys of [limits], [plugin.call] and\n\
         [plugin.tool.NAME] those of [call], except the ones marked (host).\n",
    );
    for Table { header, purpose, keys, .. } in TABLES {
        let _ = write!(help, "\n{header}\n  {purpose}\n");
        for (name, default, doc) in *keys {
            let default = if default.is_empty() { String::new() } else { format!("  [default: {default}]") };
            let _ = writeln!(help, "  {name}{default}\n      {doc}");
        }
    }
    help.push('\n');
    for (table, name, unit, default, max, doc) in numbers() {
        let _ = writeln!(help, "  {table}.{name} = {default}  [{}, up to {max}]\n      {doc}", unit.name());
    }
    let mut section = "";
    for key in keys::all() {
        if key.section != section {
            section = key.section;
            let _ = write!(help, "\n[{section}]\n");
        }
        let _ = writeln!(help, "  {} = {}\n      {}", key.name, bounds(key), key.doc);
    }
    help
}

/// Default, unit and bounds in one line.
fn bounds(key: &Key) -> String {
    let host = if key.scope == Scope::Host && matches!(key.section, "limits" | "call") { " (host)" } else { "" };
    match key.kind {
        Kind::Number { unit, default, min, max } => format!("{default}  [{}, {min} to {max}]{host}", unit.name()),
        Kind::Switch { default } => format!("{default}{host}"),
        Kind::Text { default, .. } => format!("{default:?}{host}"),
        Kind::List => "[]".to_owned(),
    }
}

/// 86400000 as 86,400,000.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
