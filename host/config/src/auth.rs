//! `[auth]`: whose tokens are accepted, and what they are good for.

use std::path::PathBuf;

use jsonwebtoken::Algorithm;

use super::reader::Item;
use super::report::{ConfigLocation, Report};
use bulkhead_domain::names::{check_name, check_scope};
use bulkhead_domain::rights::ScopeRule;
use bulkhead_identity::auth::{IntrospectionOptions, IssuerOptions, TenantRule};
use bulkhead_net::client::parse_server_url;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const DAY: u64 = 24 * 60 * MINUTE;

/// `[auth]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthConfig {
    /// The canonical URI of this host's endpoint, as it was written; there when there are issuers.
    pub resource: Option<String>,
    pub issuers: Vec<IssuerConfig>,
    /// What each scope is good for. Empty: every authenticated requestor may do everything.
    pub scopes: Vec<ScopeRule>,
    /// Where it was said that clients on this machine are let in without a token although there are tokens.
    pub anonymous_loopback: Option<ConfigLocation>,
}

/// `[[auth.issuer]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerConfig {
    pub options: IssuerOptions,
    /// PEM.
    pub root_certificate: Option<PathBuf>,
    /// The password of the host at the introspection endpoint.
    pub client_secret: Option<SecretLocation>,
}

/// Where a secret is. The configuration itself holds none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretLocation {
    File(PathBuf),
    Variable(String),
}

/// A number of an issuer: name, default, smallest, largest, meaning.
type NumberSetting = (&'static str, u64, u64, u64, &'static str);

const NUMBERS: [NumberSetting; 6] = [
    ("clock_skew_ms", 30 * SECOND, 0, 10 * MINUTE, "How far the clocks of issuer and host may differ"),
    ("keys_fresh_ms", 5 * MINUTE, SECOND, DAY, "How long keys are used before they are fetched again"),
    ("keys_stale_ms", 60 * MINUTE, 0, 7 * DAY, "How much longer they are used while the issuer does not answer"),
    ("keys_retry_ms", 10 * SECOND, 100, 60 * MINUTE, "Keys are not fetched more often, whatever tokens arrive"),
    ("fetch_ms_max", 5 * SECOND, 100, MINUTE, "One question to the issuer"),
    ("introspection_cache_ms", 30 * SECOND, 0, 60 * MINUTE, "How long an answer about an opaque token is believed"),
];

/// Every number of `[[auth.issuer]]`, for documents: name, default, maximum, meaning.
pub(super) fn numbers() -> impl Iterator<Item = (&'static str, u64, u64, &'static str)> {
    NUMBERS.iter().map(|(name, default, _, max, doc)| (*name, *default, *max, *doc))
}

/// Reads `[auth]`.
pub(super) fn read(item: Item<'_>) -> Option<AuthConfig> {
    let section = item.section(&["resource", "issuer", "scope", "anonymous_loopback"])?;
    let scopes = section.items("scope").into_iter().filter_map(read_scope).collect();
    let anonymous_loopback =
        section.get("anonymous_loopback").filter(|_| section.switch("anonymous_loopback") == Some(true));
    let mut auth = AuthConfig {
        resource: section.parsed("resource", resource),
        issuers: Vec::new(),
        scopes,
        anonymous_loopback: anonymous_loopback.map(|item| item.place()),
    };
    if section.has("issuer") && !section.has("resource") {
        section.refuse(
            "resource",
            "missing; it is the URI that clients know this host by, like \"https://mcp.example.com/mcp\", and tokens must \
             be meant for it",
        );
    }
    for item in section.items("issuer") {
        let Some(issuer) = read_issuer(item.clone(), auth.resource.as_deref()) else { continue };
        if auth.issuers.iter().any(|known| known.options.issuer == issuer.options.issuer) {
            item.refuse(format_args!("{:?} is there twice", issuer.options.issuer));
        }
        let has_introspection = |issuer: &IssuerConfig| issuer.options.introspection.is_some();
        if has_introspection(&issuer) && auth.issuers.iter().any(has_introspection) {
            item.reader.refuse(
                item.node,
                "auth.issuer.introspection_url: only one issuer can have it: an opaque token does not say whose it is, \
                 and must not be shown to anybody else",
            );
        }
        auth.issuers.push(issuer);
    }
    Some(auth)
}

fn resource(text: &str) -> Result<String, String> {
    parse_server_url(text).map_err(|wrong| wrong.to_string())?;
    if text.contains('?') || text.ends_with('/') {
        return Err(format!("{text:?} must have neither a query nor a slash at its end"));
    }
    Ok(text.to_owned())
}

/// What a scope is good for; a rule without a name grants nothing.
fn read_scope(item: Item<'_>) -> Option<ScopeRule> {
    let section = item.section(&[
        "name",
        "tools",
        "plugins",
        "tasks",
        "steer",
        "tenant",
        "tenant_control",
        "basic",
        "includes",
        "tenants",
        "requestors",
    ])?;
    if !section.has("name") {
        section.refuse("name", "missing");
    }
    let is_on = |key| section.switch(key).unwrap_or_default();
    let tenant = is_on("tenant");
    let tenant_control = is_on("tenant_control");
    if tenant_control && !tenant {
        section.refuse("tenant_control", "needs tenant = true: nobody controls tasks that they may not see");
    }
    Some(ScopeRule {
        tenant,
        tenant_control,
        tools: section.texts("tools", any),
        plugins: section.texts("plugins", any),
        tasks: is_on("tasks"),
        steer: is_on("steer"),
        basic: is_on("basic"),
        includes: section.texts("includes", check_scope),
        tenants: section.texts("tenants", name),
        requestors: section.texts("requestors", any),
        name: section.parsed("name", check_scope)?,
    })
}

fn any(text: &str) -> Result<String, &'static str> {
    if text.is_empty() { Err("must not be empty") } else { Ok(text.to_owned()) }
}

/// The numbers are those of [`NUMBERS`].
const ISSUER_KEYS: &[&str] = &[
    "issuer",
    "audience",
    "jwks_url",
    "algorithms",
    "tenant",
    "tenant_claim",
    "tenants",
    "client_id_in_principal",
    "require_at_jwt",
    "private_addresses",
    "root_certificate",
    "introspection_url",
    "client_id",
    "client_secret_file",
    "client_secret_env",
    "clock_skew_ms",
    "keys_fresh_ms",
    "keys_stale_ms",
    "keys_retry_ms",
    "fetch_ms_max",
    "introspection_cache_ms",
];

fn read_issuer(item: Item<'_>, resource: Option<&str>) -> Option<IssuerConfig> {
    let section = item.section_of("key in [[auth.issuer]]", ISSUER_KEYS)?;
    // Tokens are compared with the text as it is written.
    let issuer = section.parsed("issuer", |text| parse_server_url(text).map(|url| (text.to_owned(), url)));
    if !section.has("issuer") {
        section.refuse("issuer", "missing; it is the address that tokens name as `iss`");
    }
    let names = (section.parsed("tenant", name), section.parsed("tenant_claim", tenant_claim));
    let tenant = match (names, section.texts("tenants", name_or_any)) {
        ((Some(name), None), allowed) if allowed.is_empty() => Some(TenantRule::Fixed(name)),
        ((None, Some(claim)), allowed) if !allowed.is_empty() => Some(TenantRule::Claim { claim, allowed }),
        _ => {
            section.item.refuse(
                "needs either tenant = \"NAME\", or tenant_claim = \"CLAIM\" together with tenants = [\"NAME\", …], the \
                 tenants that this issuer may name (\"*\" for any)",
            );
            None
        }
    };
    let number = |(name, default, min, max, _): NumberSetting| section.number(name, min..=max).unwrap_or(default);
    let [clock_skew_ms, keys_fresh_ms, keys_stale_ms, keys_retry_ms, fetch_ms_max, cache_ms] = NUMBERS.map(number);
    let introspection = match (section.parsed("introspection_url", parse_server_url), section.text("client_id")) {
        (None, None) => None,
        (Some(url), Some(client_id)) => Some(IntrospectionOptions { url, client_id, cache_ms }),
        _ => {
            section.item.refuse("introspection_url and client_id belong together");
            None
        }
    };
    let mut algorithms = section.texts("algorithms", algorithm);
    if algorithms.is_empty() {
        algorithms = vec![Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA];
    }
    let client_secret = section.file("client_secret_file").map(SecretLocation::File);
    let is_on = |key| section.switch(key).unwrap_or_default();
    Some(IssuerConfig {
        root_certificate: section.file("root_certificate"),
        client_secret: section.text("client_secret_env").map(SecretLocation::Variable).or(client_secret),
        options: IssuerOptions {
            audiences: section.text("audience").or_else(|| resource.map(str::to_owned)).into_iter().collect(),
            jwks_url: section.parsed("jwks_url", parse_server_url),
            algorithms,
            client_id_in_principal: is_on("client_id_in_principal"),
            require_at_jwt: is_on("require_at_jwt"),
            clock_skew_ms,
            keys_fresh_ms,
            keys_stale_ms,
            keys_retry_ms,
            fetch_ms_max,
            private_addresses: section.texts("private_addresses", str::parse),
            introspection,
            issuer: issuer.as_ref()?.0.clone(),
            url: issuer?.1,
            tenant: tenant?,
        },
    })
}

fn algorithm(text: &str) -> Result<Algorithm, String> {
    match text {
        "RS256" => Ok(Algorithm::RS256),
        "ES256" => Ok(Algorithm::ES256),
        "EdDSA" => Ok(Algorithm::EdDSA),
        _ => Err(format!("{text:?} is not one of RS256, ES256, EdDSA")),
    }
}

fn name(text: &str) -> Result<String, String> {
    check_name(text).map(|()| text.to_owned()).map_err(|wrong| format!("{text:?}: {wrong}"))
}

/// What these say is never the name of a tenant.
fn tenant_claim(text: &str) -> Result<String, String> {
    match text {
        "" => Err("must not be empty".to_owned()),
        "iss" | "aud" | "exp" | "nbf" | "iat" | "scope" | "scp" => {
            Err(format!("{text:?} names no tenant; use a claim that does, like \"org\", \"azp\" or \"client_id\""))
        }
        _ => Ok(text.to_owned()),
    }
}

fn name_or_any(text: &str) -> Result<String, String> {
    if text == "*" { Ok(text.to_owned()) } else { name(text) }
}

/// Scopes that grant what others do must exist.
pub(super) fn check(auth: &AuthConfig, report: &Report) {
    for rule in &auth.scopes {
        for included in &rule.includes {
            if !auth.scopes.iter().any(|other| other.name == *included) {
                let message = format!("auth.scope: {:?} includes {included:?}, which is not configured", rule.name);
                report.add(&ConfigLocation::Default, message);
            }
        }
    }
}
