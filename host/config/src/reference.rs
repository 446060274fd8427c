//! The keys as documents: for `bulkhead serve --help` and for the page `host/docs/reference/configuration.md`.
//!
//! Owns the description of the tables whose keys are not in [`keys`]. Must not decide what a key means: the readers do. Invariant:
//! every key that a reader takes is described here once.

mod lookup;

use std::fmt::Write as _;

pub use lookup::{explain, tables};

use super::keys::{self, Key, Kind, Scope, Unit};

/// A table of the file whose keys are not plain values with bounds.
pub(super) struct Table {
    /// As it is written in the file: `[[auth.scope]]`.
    pub(super) header: &'static str,
    purpose: &'static str,
    /// Name, default (empty: none) and meaning. A name may be several that belong together.
    pub(super) keys: &'static [(&'static str, &'static str, &'static str)],
}

pub(super) const TABLES: &[Table] = &[
    Table {
        header: "[server] tls",
        purpose: "Serves HTTPS. Also a table of [admin].",
        keys: &[
            ("certificate", "", "PEM file with the certificate and its chain; read again when it changes"),
            ("key", "", "PEM file with the private key; read again when it changes"),
        ],
    },
    Table {
        header: "[admin]",
        purpose: "A listener for administrators (`bulkhead limits --url` and others) and the one credential that it takes.",
        keys: &[
            ("listen", "", "ADDR:PORT to listen on"),
            ("token_file", "", "File with the token that administrators show, at least 32 characters"),
            ("token_sha256", "", "In place of token_file: the SHA-256 of the token, as 64 hexadecimal digits"),
            ("tls", "", "As of [server]; required for anything but a loopback address"),
        ],
    },
    Table {
        header: "[metrics]",
        purpose: "A listener for Prometheus: the page /metrics. Without this table nothing is counted.",
        keys: &[
            ("listen", "", "ADDR:PORT to listen on"),
            ("token_file", "", "File with the token that scrapers show, at least 32 characters"),
            ("token_sha256", "", "In place of token_file: the SHA-256 of the token, as 64 hexadecimal digits"),
            ("tls", "", "As of [server]; with a token required for anything but a loopback address"),
            (
                "series_max",
                "10,000",
                "Lines of all series together, 1,000 to 1,000,000; what is beyond counts as `_overflow`",
            ),
            (
                "tenants",
                "configured",
                "`configured`: numbers of each tenant that has a `[tenant.NAME]`; `none`: of no tenant",
            ),
            ("tools", "true", "Whether durations of requests are told apart by tool and prompt"),
        ],
    },
    Table {
        header: "[dashboard]",
        purpose: "A listener for people in a browser. Without this table there is none.",
        keys: &[
            ("listen", "", "ADDR:PORT to listen on"),
            (
                "allowed_hosts",
                "none",
                "Names that browsers may call it by, besides those of this machine; links of `bulkhead dashboard login` have the first",
            ),
            ("tls", "", "As of [server]; required for anything but a loopback address"),
            ("oidc", "", "Logging in at an issuer: see [dashboard.oidc]"),
        ],
    },
    Table {
        header: "[dashboard.oidc]",
        purpose: "Lets people log in at the dashboard with OpenID Connect. Without this table they paste tokens.",
        keys: &[
            ("issuer", "", "The issuer of one of [[auth.issuer]], exactly as it is written there"),
            ("client_id", "", "How the issuer knows the dashboard"),
            ("client_secret_file", "", "File with the secret that belongs to it; a public client has none"),
            (
                "scopes",
                "openid",
                "Scopes that are asked for, beside `openid`; they give rights as those of access tokens do",
            ),
            (
                "operators",
                "nobody",
                "{ claim, value }: whose id token has this text in this claim, or in its list, is an operator",
            ),
        ],
    },
    Table {
        header: "[traces]",
        purpose: "OpenTelemetry traces of requests, over OTLP/HTTP. Off without an endpoint. Below these keys, the variables OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES count.",
        keys: &[
            ("endpoint", "", "Base address of the collector, like http://127.0.0.1:4318; /v1/traces is added"),
            (
                "headers_file",
                "",
                "File with one `Name: value` a line, for a collector that wants a credential; needs https or a collector on this machine",
            ),
            ("ratio", "0", "The part of the requests without a traceparent that is recorded, from 0 to 1"),
            (
                "followed_per_second",
                "50",
                "Spans of one tenant that are recorded in one second because the traceparent of a request has the flag sampled",
            ),
            ("followed_per_second_total", "500", "Those of all tenants"),
            ("requestor", "false", "Whether spans name the requestor's id"),
        ],
    },
    Table {
        header: "[secrets]",
        purpose: "The keys that secrets of plugins are sealed with. Without key_file the variable BULKHEAD_SECRET_KEY has them.",
        keys: &[(
            "key_file",
            "",
            "File with one key a line, 32 random bytes in base64 (`openssl rand -base64 32`); the first one seals",
        )],
    },
    Table {
        header: "[encryption]",
        purpose: "Seals the arguments, results, input requests, answers and steering of stored tasks, and what plugins keep.",
        keys: &[
            (
                "key_file",
                "",
                "File with one key a line, 32 random bytes in base64; the first one seals; only its owner may read the file",
            ),
            ("key_env", "", "In place of key_file: the name of an environment variable with the keys"),
        ],
    },
    Table {
        header: "[auth]",
        purpose: "How clients know this host, and who needs no token.",
        keys: &[
            (
                "resource",
                "",
                "The URI that clients call this endpoint by, like https://mcp.example.com/mcp; access tokens must be meant for it",
            ),
            (
                "anonymous_loopback",
                "false",
                "Whether clients on this machine are let in without a token, as the requestor `local`, also when there are tokens; only with a loopback listener and without proxies and issuers",
            ),
        ],
    },
    Table {
        header: "[[auth.scope]]",
        purpose: "What one scope is good for. Without any, an authenticated requestor may call every tool, have tasks and steer them.",
        keys: &[
            ("name", "", "The scope, as it stands in tokens"),
            ("tools", "[]", "Tools that it lets call; `*` stands for any text"),
            (
                "plugins",
                "[]",
                "Plugins whose resources and prompts it lets use, beside those of its tools; `*` stands for any text",
            ),
            ("tasks", "false", "Whether it lets have tasks: create, read, list, follow, answer and cancel them"),
            ("steer", "false", "Whether it lets steer, pause and resume tasks"),
            (
                "tenant",
                "false",
                "Whether it lets see, in the dashboard, the tasks of the whole tenant without arguments, answers and results, its requestors and its limits",
            ),
            ("tenant_control", "false", "Whether it lets cancel, pause and resume these tasks; needs `tenant`"),
            ("basic", "false", "Whether clients are asked to get it at first"),
            ("includes", "[]", "Scopes that it contains"),
            ("tenants", "[]", "Tenants for whose requestors it counts; without any, for all"),
            ("requestors", "[]", "Requestors for whom it counts; without any, for all"),
        ],
    },
    Table {
        header: "[[auth.issuer]]",
        purpose: "An authorization server whose access tokens are accepted.",
        keys: &[
            ("issuer", "", "Its address, as tokens name it in `iss`"),
            ("tenant", "", "The tenant of every requestor that it names"),
            ("tenant_claim", "", "In place of tenant: the claim of a token that names the tenant"),
            ("tenants", "[]", "With tenant_claim: the tenants that this issuer may name; `*` for any"),
            ("audience", "auth.resource", "What tokens must name in `aud`"),
            ("jwks_url", "from its metadata", "Where its keys are"),
            ("algorithms", "all three", "Of RS256, ES256 and EdDSA, those that it signs with"),
            ("client_id_in_principal", "false", "Whether the same subject with another client is another requestor"),
            ("require_at_jwt", "false", "Whether a signed token must say `typ: at+jwt` (RFC 9068)"),
            ("private_addresses", "[]", "Addresses and networks that are not public and on which it may be"),
            ("root_certificate", "", "PEM file with a certificate that its own may be certified by"),
            ("introspection_url", "", "Where opaque tokens are asked about (RFC 7662); only one issuer can have it"),
            ("client_id", "", "With introspection_url: the name of this host there"),
            ("client_secret_file", "", "File with the password of this host there"),
            ("client_secret_env", "", "In place of client_secret_file: the name of an environment variable"),
        ],
    },
    Table {
        header: "[[trust]]",
        purpose: "Who must have signed what comes from where. The first rule that fits a source decides.",
        keys: &[
            (
                "source",
                "",
                "Pattern of files, addresses and references; `*` stands for anything but a slash, `**` for anything",
            ),
            ("keys", "[]", "Files of public keys, one of which must have signed"),
            ("unsigned", "false", "In place of keys: nobody has to sign"),
            (
                "same_repository",
                "false",
                "Whether a signature in a registry must name the repository that it was found in",
            ),
            ("changed_definitions", "", "What becomes of changes of accepted tools: `hold`, `show` or `allow`"),
        ],
    },
    Table {
        header: "[tenant.NAME]",
        purpose: "What is different for one tenant.",
        keys: &[
            ("limits", "", "Table with keys of [limits] for its requestors and for itself"),
            (
                "grants",
                "",
                "Table with directories, http, env and kv: what is left to its calls of what plugins are granted",
            ),
            (
                "cpu_weight",
                "1",
                "Its share of processor time against other tenants when there is not enough, 1 to 1000",
            ),
            ("changed_definitions", "", "As of [[trust]]; the strictest of all who would get a version decides"),
        ],
    },
    Table {
        header: "[[plugin]]",
        purpose: "A plugin: where its component comes from, and on which terms it runs.",
        keys: &[
            ("name", "as the component says, else the file's name", "Its name; required with url, oci and sha256"),
            ("file", "", "The component: a file"),
            ("url", "", "In place of file: an https address"),
            ("oci", "", "In place of file: REGISTRY/REPOSITORY:TAG"),
            (
                "compose",
                "",
                "Components, files or addresses, that bring what this one imports: they become one component",
            ),
            ("sha256", "", "The digest that the component must have; with compose, that of the whole"),
            ("prefix", "", "Text that is put before the names of its tools. Some clients refuse dots"),
            ("config", "", "Table of settings that the plugin reads"),
            (
                "on_restart",
                "\"fail\"",
                "`rerun`: interrupted tasks of idempotent tools run again; steering that the lost run had taken is not repeated",
            ),
            (
                "durable",
                "\"auto\"",
                "`auto`: a task whose host was killed goes on where it was; a call that cannot (one that used a file, or was sent a \
                 stream) ends as with `off`. `required`: a plugin whose grants or component forbid it is refused",
            ),
            (
                "in_doubt",
                "\"error\"",
                "What a durable task is told of an HTTP request that was sent when the host was killed and may have had an effect: `error` \
                 says that, `resend-idempotent` sends PUT and DELETE again, `resend` all",
            ),
            (
                "idempotency_header",
                "\"Idempotency-Key\"",
                "Header that a durable task's POST and PATCH requests get where they have none, with the same value however often the task is \
                 brought back; empty: none",
            ),
            (
                "accept_changes",
                "\"none\"",
                "What a switch may change of accepted tools without --accept: `compatible` allows other descriptions, wider inputs \
                 and narrower outputs, `any` everything",
            ),
            ("drain_ms", "0", "How long calls of a replaced version may go on; 0: as long as they like"),
            ("drain_then", "\"wait\"", "What happens to them then: `wait`, `cancel` or `fail`"),
            (
                "manifest",
                "\"optional\"",
                "`required`: a component without a manifest is refused; otherwise it wants all that it is granted",
            ),
            (
                "wasi",
                "\"0.2\"",
                "`0.3`: its component may need WASI 0.3 and have asynchronous functions, whose implementation in wasmtime is experimental and \
                 gets no promised security fixes; at most 512 calls of such plugins are in progress at a time, 448 of them of one tenant, \
                 and more wait within their `wall_ms`",
            ),
            (
                "quarantine_after",
                "10",
                "Faults in a row (traps and limits) after which a requestor is kept from the plugin for a while; 0: never",
            ),
            ("grants", "nothing", "Table [plugin.grants]: what its calls may reach"),
            ("kv", "nothing", "Table [plugin.kv]: what it may keep from call to call"),
            ("call", "", "Table [plugin.call] with keys of [call] for this plugin"),
            ("tool", "", "Tables [plugin.tool.NAME]: what is different for one tool"),
            ("canary", "", "Table [plugin.canary]: when a canary is taken back"),
        ],
    },
    Table {
        header: "[[toolset]]",
        purpose: "Which tools some requestors are shown, of those that they may call. Of several for one requestor, a tool is shown if one \
                  includes it and none excludes it; without any, everything is.",
        keys: &[
            ("name", "", "Its name"),
            ("tenants", "all", "Tenants for whose requestors it is"),
            ("requestors", "all", "Requestors for whom it is; with tenants, those of these tenants"),
            (
                "include",
                "every tool",
                "Table with plugins, tools (`*` stands for any text) and annotations (read_only, destructive, idempotent, open_world); a \
                 tool that fits any of them is included",
            ),
            ("exclude", "no tool", "The same for tools that are not shown"),
            (
                "tool_search",
                "server.tool_search",
                "Whether its requestors search for tools; of several toolsets the first that says so decides",
            ),
        ],
    },
    Table {
        header: "[plugin.grants]",
        purpose: "What the plugin may reach, as far as its manifest asks for it. By default nothing.",
        keys: &[
            (
                "directories",
                "[]",
                "List of tables with host, guest, write and bytes_max; `{tenant}` in host is the caller's tenant",
            ),
            (
                "http",
                "[]",
                "Destinations of outgoing HTTP: `[METHODS ]SCHEME://HOST[:PORT][/PATH]`, or `{ to = …, trace = true }` where a destination is told of the trace (`traceparent`)",
            ),
            ("env", "[]", "Environment variables that it may read"),
        ],
    },
    Table {
        header: "[plugin.canary]",
        purpose: "When a canary is taken back by itself.",
        keys: &[
            ("fault_percent_max", "5", "More calls than this break; 100: never"),
            (
                "latency_percent_max",
                "0",
                "The slowest twentieth of a tool's calls takes more than this percentage of the active version's time, like 150; 0: never",
            ),
            ("window_ms", "600000", "How far back calls count"),
            ("calls_min", "20", "Calls that a verdict needs, without those of any one requestor"),
            ("watch_switch_ms", "0", "How long the bound on faults also holds for a new version after a switch"),
        ],
    },
    Table {
        header: "[plugin.tool.NAME]",
        purpose: "One tool, by the name that clients see without prefix; takes the keys of [call] as well.",
        keys: &[
            ("hidden", "false", "Whether no client sees it and none can call it"),
            (
                "name",
                "the prefix and its own name",
                "What clients call it; the prefix is not put in front. Some clients refuse dots, or more than 64 characters",
            ),
            (
                "task_support",
                "as the tool says",
                "`forbidden`, `optional` or `required`; only narrower than the tool says",
            ),
            ("title", "as the tool says", "Its title for clients"),
            ("description", "as the tool says", "Its description for clients"),
            (
                "annotations",
                "",
                "Table with read_only, destructive, idempotent and open_world; for functions of typed components only",
            ),
        ],
    },
];

/// A number of a table that is not in [`keys`]: table, name, unit, default, maximum and meaning.
type Number = (&'static str, &'static str, Unit, u64, u64, &'static str);

fn numbers() -> Vec<Number> {
    let issuer = super::auth::numbers();
    let issuer = issuer.map(|(name, default, max, doc)| ("auth.issuer", name, Unit::Milliseconds, default, max, doc));
    let (name, default, max, doc) = super::grants::quota();
    let quota = ("plugin.grants.directories", name, Unit::Bytes, default, max, doc);
    let kept = super::grants::keyvalue_numbers().map(|(name, default, max, doc)| {
        let unit = if name == "keys_max" { Unit::Count } else { Unit::Bytes };
        ("plugin.kv", name, unit, default, max, doc)
    });
    issuer.chain([quota]).chain(kept).collect()
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
        let place = match (key.scope, section) {
            (Scope::Host, _) => "host",
            (Scope::Override, "limits") => "host, tenant",
            (Scope::Override, _) => "host, plugin, tool",
        };
        let _ = writeln!(
            page,
            "| `{}` | {unit} | {default} | {min} | {max} | {place} | {} |",
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
    for Table { header, purpose, keys } in TABLES {
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
    for Table { header, purpose, keys } in TABLES {
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
