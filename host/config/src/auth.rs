//! `[auth]`: whose tokens are accepted, and what they are good for.

use std::path::PathBuf;

use jsonwebtoken::Algorithm;
use url::Url;

use super::key::{Number, Unit};
use super::reader::Item;
use super::report::{ConfigLocation, Report};
use bulkhead_domain::names::{check_name, check_scope};
use bulkhead_domain::rights::ScopeRule;
use bulkhead_identity::auth::{IntrospectionOptions, IssuerOptions, TenantRule};
use bulkhead_net::address::Network;
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

const fn ms(name: &'static str, default: u64, min: u64, max: u64, doc: &'static str) -> Number {
    Number { name, unit: Unit::Milliseconds, default, min, max, doc }
}

/// Of `[[auth.issuer]]`.
pub(super) const NUMBERS: [Number; 6] = [
    ms("clock_skew_ms", 30 * SECOND, 0, 10 * MINUTE, "How far the clocks of issuer and host may differ"),
    ms("keys_fresh_ms", 5 * MINUTE, SECOND, DAY, "How long keys are used before they are fetched again"),
    ms("keys_stale_ms", 60 * MINUTE, 0, 7 * DAY, "How much longer they are used while the issuer does not answer"),
    ms("keys_retry_ms", 10 * SECOND, 100, 60 * MINUTE, "Keys are not fetched more often, whatever tokens arrive"),
    ms("fetch_ms_max", 5 * SECOND, 100, MINUTE, "One question to the issuer"),
    ms("introspection_cache_ms", 30 * SECOND, 0, 60 * MINUTE, "How long an answer about an opaque token is believed"),
];

table!(AUTH, AuthKeys, "[auth]", "How clients know this host, and who needs no token.", {
    resource: String = |item| item.parsed(resource), "",
        "The URI that clients call this endpoint by, like https://mcp.example.com/mcp; access tokens must be meant for it";
    anonymous_loopback: bool = Item::switch, "false",
        "Whether clients on this machine are let in without a token, as the requestor `local`, also when there are tokens; only with a loopback listener and without proxies and issuers";
}, tables: ["issuer", "scope"]);

/// Reads `[auth]`.
pub(super) fn read(item: &Item<'_>) -> Option<AuthConfig> {
    let section = item.section(AUTH.names())?;
    let AuthKeys { resource, anonymous_loopback } = AuthKeys::read(&section);
    let scopes = section.items("scope").into_iter().filter_map(read_scope).collect();
    let anonymous_loopback = section.get("anonymous_loopback").filter(|_| anonymous_loopback == Some(true));
    let mut auth = AuthConfig {
        resource,
        issuers: Vec::new(),
        scopes,
        anonymous_loopback: anonymous_loopback.map(|item| item.location()),
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

table!(SCOPE, ScopeKeys, "[[auth.scope]]",
    "What one scope is good for. Without any, an authenticated requestor may call every tool, have tasks and steer them.", {
    name: String = |item| item.parsed(check_scope), "",
        "The scope, as it stands in tokens";
    tools: Vec<String> = |item| Some(item.texts(any)), "[]",
        "Tools that it lets call; `*` stands for any text";
    plugins: Vec<String> = |item| Some(item.texts(any)), "[]",
        "Plugins whose resources and prompts it lets use, beside those of its tools; `*` stands for any text";
    tasks: bool = Item::switch, "false",
        "Whether it lets have tasks: create, read, list, follow, answer and cancel them";
    steer: bool = Item::switch, "false",
        "Whether it lets steer, pause and resume tasks";
    tenant: bool = Item::switch, "false",
        "Whether it lets see, in the dashboard, the tasks of the whole tenant without arguments, answers and results, its requestors and its limits";
    tenant_control: bool = Item::switch, "false",
        "Whether it lets cancel, pause and resume these tasks; needs `tenant`";
    basic: bool = Item::switch, "false",
        "Whether clients are asked to get it at first";
    includes: Vec<String> = |item| Some(item.texts(check_scope)), "[]",
        "Scopes that it contains";
    tenants: Vec<String> = |item| Some(item.texts(name)), "[]",
        "Tenants for whose requestors it counts; without any, for all";
    requestors: Vec<String> = |item| Some(item.texts(any)), "[]",
        "Requestors for whom it counts; without any, for all";
});

/// What a scope is good for; a rule without a name grants nothing.
fn read_scope(item: Item<'_>) -> Option<ScopeRule> {
    let section = item.section(SCOPE.names())?;
    let keys = ScopeKeys::read(&section);
    if !section.has("name") {
        section.refuse("name", "missing");
    }
    let tenant = keys.tenant.unwrap_or_default();
    let tenant_control = keys.tenant_control.unwrap_or_default();
    if tenant_control && !tenant {
        section.refuse("tenant_control", "needs tenant = true: nobody controls tasks that they may not see");
    }
    Some(ScopeRule {
        tenant,
        tenant_control,
        tools: keys.tools.unwrap_or_default(),
        plugins: keys.plugins.unwrap_or_default(),
        tasks: keys.tasks.unwrap_or_default(),
        steer: keys.steer.unwrap_or_default(),
        basic: keys.basic.unwrap_or_default(),
        includes: keys.includes.unwrap_or_default(),
        tenants: keys.tenants.unwrap_or_default(),
        requestors: keys.requestors.unwrap_or_default(),
        name: keys.name?,
    })
}

fn any(text: &str) -> Result<String, &'static str> {
    if text.is_empty() { Err("must not be empty") } else { Ok(text.to_owned()) }
}

table!(ISSUER, IssuerKeys, "[[auth.issuer]]", "An authorization server whose access tokens are accepted.", {
    issuer: (String, Url) = |item| item.parsed(|text| parse_server_url(text).map(|url| (text.to_owned(), url))), "",
        "Its address, as tokens name it in `iss`";
    tenant: String = |item| item.parsed(name), "",
        "The tenant of every requestor that it names";
    tenant_claim: String = |item| item.parsed(tenant_claim), "",
        "In place of tenant: the claim of a token that names the tenant";
    tenants: Vec<String> = |item| Some(item.texts(name_or_any)), "[]",
        "With tenant_claim: the tenants that this issuer may name; `*` for any";
    audience: String = |item| item.text().map(str::to_owned), "auth.resource",
        "What tokens must name in `aud`";
    jwks_url: Url = |item| item.parsed(parse_server_url), "from its metadata",
        "Where its keys are";
    algorithms: Vec<Algorithm> = |item| Some(item.texts(algorithm)), "all three",
        "Of RS256, ES256 and EdDSA, those that it signs with";
    client_id_in_principal: bool = Item::switch, "false",
        "Whether the same subject with another client is another requestor";
    require_at_jwt: bool = Item::switch, "false",
        "Whether a signed token must say `typ: at+jwt` (RFC 9068)";
    private_addresses: Vec<Network> = |item| Some(item.texts(str::parse)), "[]",
        "Addresses and networks that are not public and on which it may be";
    root_certificate: PathBuf = Item::file, "",
        "PEM file with a certificate that its own may be certified by";
    introspection_url: Url = |item| item.parsed(parse_server_url), "",
        "Where opaque tokens are asked about (RFC 7662); only one issuer can have it";
    client_id: String = |item| item.text().map(str::to_owned), "",
        "With introspection_url: the name of this host there";
    client_secret_file: PathBuf = Item::file, "",
        "File with the password of this host there";
    client_secret_env: String = |item| item.text().map(str::to_owned), "",
        "In place of client_secret_file: the name of an environment variable";
}, numbers: NUMBERS);

fn read_issuer(item: Item<'_>, resource: Option<&str>) -> Option<IssuerConfig> {
    let section = item.section_of("key in [[auth.issuer]]", ISSUER.names())?;
    let keys = IssuerKeys::read(&section);
    if !section.has("issuer") {
        section.refuse("issuer", "missing; it is the address that tokens name as `iss`");
    }
    let tenant = match ((keys.tenant, keys.tenant_claim), keys.tenants.unwrap_or_default()) {
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
    let number = |number: Number| section.number(&number).unwrap_or(number.default);
    let [clock_skew_ms, keys_fresh_ms, keys_stale_ms, keys_retry_ms, fetch_ms_max, cache_ms] = NUMBERS.map(number);
    let introspection = match (keys.introspection_url, keys.client_id) {
        (None, None) => None,
        (Some(url), Some(client_id)) => Some(IntrospectionOptions { url, client_id, cache_ms }),
        _ => {
            section.item.refuse("introspection_url and client_id belong together");
            None
        }
    };
    let mut algorithms = keys.algorithms.unwrap_or_default();
    if algorithms.is_empty() {
        algorithms = vec![Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA];
    }
    let client_secret = keys.client_secret_file.map(SecretLocation::File);
    // Tokens are compared with the text as it is written.
    let (issuer, url) = keys.issuer?;
    Some(IssuerConfig {
        root_certificate: keys.root_certificate,
        client_secret: keys.client_secret_env.map(SecretLocation::Variable).or(client_secret),
        options: IssuerOptions {
            audiences: keys.audience.or_else(|| resource.map(str::to_owned)).into_iter().collect(),
            jwks_url: keys.jwks_url,
            algorithms,
            client_id_in_principal: keys.client_id_in_principal.unwrap_or_default(),
            require_at_jwt: keys.require_at_jwt.unwrap_or_default(),
            clock_skew_ms,
            keys_fresh_ms,
            keys_stale_ms,
            keys_retry_ms,
            fetch_ms_max,
            private_addresses: keys.private_addresses.unwrap_or_default(),
            introspection,
            issuer,
            url,
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
