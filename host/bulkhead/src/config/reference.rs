//! The table of keys as documents: for `--help` and for the README.

use std::fmt::Write as _;

#[cfg(test)]
use super::keys::Unit;
use super::keys::{self, Key, Kind, Scope};

/// The README's table of limits: every number, with unit, default and bounds.
#[cfg(test)]
pub(crate) fn limits_table_markdown() -> String {
    let mut table =
        String::from("| key | unit | default | maximum | what it bounds |\n| --- | --- | --- | --- | --- |\n");
    for key in keys::all() {
        let (unit, default, max) = match key.kind {
            Kind::Number { unit, default, max, .. } => (unit.name(), grouped(default), grouped(max)),
            Kind::Switch { default } => ("switch", default.to_string(), "".to_owned()),
            Kind::Text { .. } | Kind::List => continue,
        };
        let doc = key.doc;
        // Writing to a String cannot fail.
        let _ = writeln!(table, "| `{}` | {unit} | {default} | {max} | {doc} |", key.path());
    }
    for (name, default, max, doc) in super::auth::numbers() {
        let _ = writeln!(table, "| `auth.issuer.{name}` | ms | {} | {} | {doc} |", grouped(default), grouped(max));
    }
    let (name, default, max, doc) = super::grants::quota();
    let (unit, default, max) = (Unit::Bytes.name(), grouped(default), grouped(max));
    let _ = writeln!(table, "| `plugin.grants.directories.{name}` | {unit} | {default} | {max} | {doc} |");
    for (name, default, max, doc) in super::grants::keyvalue_numbers() {
        let unit = if name == "keys_max" { Unit::Count } else { Unit::Bytes }.name();
        let _ = writeln!(table, "| `plugin.kv.{name}` | {unit} | {} | {} | {doc} |", grouped(default), grouped(max));
    }
    table
}

/// The sections whose keys are not simple.
const AUTH_HELP: &str = r#"
[server]
  tls = { certificate = "cert.pem", key = "key.pem" }
      Serve HTTPS; both files are read again when they change

[admin]
  listen = "127.0.0.1:8809", token_file = "FILE" or token_sha256 = "DIGEST"
      Where administrators may come in (`bulkhead admin --url`), and the token that they must show: at least 32 characters
  tls = { certificate = "cert.pem", key = "key.pem" }
      As of [server]; anything but a loopback address needs it

[secrets]
  key_file = "secrets.key"
      Keys that secrets of plugins are sealed with, one a line, the first one seals; else the variable BULKHEAD_SECRET_KEY
      has them. `openssl rand -base64 32` makes one

[encryption]
  key_file = "store.key" or key_env = "NAME"
      Seal the arguments, results, questions, answers and steering of stored tasks. One key a line, 32 random bytes in base64
      (`openssl rand -base64 32`), the one that seals first; only its owner may read the file

[auth]
  resource = "https://mcp.example.com/mcp"
      What clients know this endpoint by; access tokens must be meant for it

[[auth.scope]]
  name, tools = ["csv_*"], plugins = ["csv"], tasks, steer, basic, includes = [], tenants = [], requestors = []
      What a scope is good for. Without any, whoever is let in may call every tool, have tasks and steer them

[[auth.issuer]]
  issuer = "https://login.example.com", tenant = "NAME" or tenant_claim = "CLAIM" and tenants = ["NAME"]
      An authorization server whose access tokens are accepted
  audience, jwks_url, algorithms = ["RS256", "ES256", "EdDSA"], client_id_in_principal, require_at_jwt,
  root_certificate, private_addresses = ["10.0.0.0/8"]
      What differs from its metadata and from the usual
  introspection_url, client_id, client_secret_file or client_secret_env
      For opaque tokens (RFC 7662)
"#;

/// Every key with its variable, for the long help.
pub(crate) fn keys_help() -> String {
    let mut help = String::from(
        "Configuration keys. A key is set in the file as [SECTION] KEY, or by the variable BULKHEAD_SECTION_KEY\n\
         (limits.ttl_ms_max is BULKHEAD_LIMITS_TTL_MS_MAX; lists only in the file). Flags win over the environment,\n\
         the environment over the file. A default that is over a limit that you lowered follows it down. Relative\n\
         paths in the file start at the file's folder.\n\
         [tenant.NAME] takes cpu_weight (1 to 1000, 1 if not said): how much of the processors a tenant gets against others\n\
         when there is not enough. [tenant.NAME.limits] takes the keys of [limits], [plugin.call] and [plugin.tool.NAME] those of [call], except\n\
         the ones marked (host). [plugin.tool.NAME] also takes task_support and, where the tools are the functions of a\n\
         component that knows nothing of this host, title, description and annotations.\n\
         [[plugin]] has one of file, url (https://...) and oci (REGISTRY/REPOSITORY:TAG), and optionally sha256.\n\
         [plugin.kv] lets the plugin keep bytes under keys; keys_max, bytes_max and value_bytes_max bound what, for each tenant.\n\
         [[trust]] has source, a pattern in which * stands for anything but a slash and ** for anything, and keys, files of\n\
         public keys one of which must have signed, or unsigned = true; with same_repository = true, a signature in a registry must\n\
         also name the repository that it was found in. The first rule that fits a source decides; without one, files are taken,\n\
         and what comes over a network needs a digest. [[trust]] and [tenant.NAME] take changed_definitions: whether\n\
         definitions of accepted tools that a new version changes are held back (\"hold\"), taken and noted (\"show\"), or\n\
         taken (\"allow\"); the strictest of those who would get it decides.\n",
    );
    help.push_str(AUTH_HELP);
    for (name, default, max, doc) in super::auth::numbers() {
        let _ = writeln!(help, "  {name} = {default}  [ms, up to {max}]\n      {doc}");
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
#[cfg(test)]
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
