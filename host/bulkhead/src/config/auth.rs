//! `[auth]`: whose tokens are accepted, and what they are good for.

use std::path::PathBuf;

use jsonwebtoken::Algorithm;
use url::Url;

use super::Report;
use super::document::{Node, Reader, Table};
use super::scopes::read_scopes;
use bulkhead_domain::names::check_name;
use bulkhead_domain::rights::ScopeRule;
use bulkhead_identity::auth::{IntrospectionOptions, IssuerOptions, TenantRule};
use bulkhead_net::address::Network;
use bulkhead_net::client::parse_server_url;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const DAY: u64 = 24 * 60 * MINUTE;

/// `[auth]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AuthConfig {
    /// The canonical URI of this host's endpoint, as it was written; there when there are issuers.
    pub resource: Option<String>,
    pub issuers: Vec<IssuerConfig>,
    /// What each scope is good for. Empty: every authenticated requestor may do everything.
    pub scopes: Vec<ScopeRule>,
}

/// `[[auth.issuer]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IssuerConfig {
    pub options: IssuerOptions,
    /// PEM.
    pub root_certificate: Option<PathBuf>,
    /// The password of the host at the introspection endpoint.
    pub client_secret: Option<SecretLocation>,
}

/// Where a secret is. The configuration itself holds none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SecretLocation {
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
pub(super) fn read(reader: &mut Reader<'_>, node: &Node<'_>) -> AuthConfig {
    let mut auth = AuthConfig::default();
    let Some(table) = reader.table("auth", node) else { return auth };
    let mut issuers = None;
    for (key, node) in table {
        match key.get_ref().as_ref() {
            "resource" => auth.resource = resource(reader, node),
            "issuer" => issuers = Some(node),
            "scope" => auth.scopes = read_scopes(reader, node),
            other => reader.refuse(
                key,
                format!("auth.{other}: no such key; there are resource, [[auth.issuer]] and [[auth.scope]]"),
            ),
        }
    }
    let Some(issuers) = issuers else { return auth };
    if auth.resource.is_none() && !table.contains_key("resource") {
        reader.refuse(
            node,
            "auth.resource: missing; it is the URI that clients know this host by, like \
             \"https://mcp.example.com/mcp\", and tokens must be meant for it",
        );
    }
    for node in reader.list("auth.issuer", issuers) {
        let Some(issuer) = read_issuer(reader, node, auth.resource.as_deref()) else { continue };
        if auth.issuers.iter().any(|known| known.options.issuer == issuer.options.issuer) {
            reader.refuse(node, format!("auth.issuer: {:?} is there twice", issuer.options.issuer));
        }
        if issuer.options.introspection.is_some()
            && auth.issuers.iter().any(|known| known.options.introspection.is_some())
        {
            reader.refuse(
                node,
                "auth.issuer.introspection_url: only one issuer can have it: an opaque token does not say whose it is, \
                 and must not be shown to anybody else",
            );
        }
        auth.issuers.push(issuer);
    }
    auth
}

fn resource(reader: &mut Reader<'_>, node: &Node<'_>) -> Option<String> {
    let (text, _) = written_url(reader, "auth.resource", node)?;
    if text.contains('?') || text.ends_with('/') {
        reader.refuse(node, format!("auth.resource: {text:?} must have neither a query nor a slash at its end"));
        return None;
    }
    Some(text)
}

fn url(reader: &mut Reader<'_>, path: &str, node: &Node<'_>) -> Option<Url> {
    written_url(reader, path, node).map(|(_, url)| url)
}

/// A URL with its text, which is what tokens are compared with.
fn written_url(reader: &mut Reader<'_>, path: &str, node: &Node<'_>) -> Option<(String, Url)> {
    let text = reader.text(path, node)?;
    match parse_server_url(&text) {
        Ok(url) => Some((text, url)),
        Err(error) => {
            reader.refuse(node, format!("{path}: {error}"));
            None
        }
    }
}

/// What an issuer's table says, before it is put together.
#[derive(Default)]
struct Entry {
    issuer: Option<(String, Url)>,
    audiences: Vec<String>,
    jwks_url: Option<Url>,
    algorithms: Vec<Algorithm>,
    tenant: Option<String>,
    tenant_claim: Option<String>,
    tenants: Vec<String>,
    client_id_in_principal: bool,
    require_at_jwt: bool,
    numbers: [u64; NUMBERS.len()],
    private_addresses: Vec<Network>,
    root_certificate: Option<PathBuf>,
    introspection_url: Option<Url>,
    client_id: Option<String>,
    client_secret: Option<SecretLocation>,
}

fn read_issuer(reader: &mut Reader<'_>, node: &Node<'_>, resource: Option<&str>) -> Option<IssuerConfig> {
    let table = reader.table("auth.issuer", node)?;
    let mut entry = Entry { numbers: NUMBERS.map(|(_, default, ..)| default), ..Entry::default() };
    read_entry(reader, table, &mut entry);
    let Some((issuer, url)) = entry.issuer else {
        if !table.contains_key("issuer") {
            reader.refuse(node, "auth.issuer.issuer: missing; it is the address that tokens name as `iss`");
        }
        return None;
    };
    let tenant = match (entry.tenant, entry.tenant_claim, entry.tenants) {
        (Some(name), None, allowed) if allowed.is_empty() => TenantRule::Fixed(name),
        (None, Some(claim), allowed) if !allowed.is_empty() => TenantRule::Claim { claim, allowed },
        _ => {
            reader.refuse(
                node,
                "auth.issuer: needs either tenant = \"NAME\", or tenant_claim = \"CLAIM\" together with \
                 tenants = [\"NAME\", …], the tenants that this issuer may name (\"*\" for any)",
            );
            return None;
        }
    };
    let introspection = match (entry.introspection_url, entry.client_id) {
        (None, None) => None,
        (Some(url), Some(client_id)) => {
            let [.., cache_ms] = entry.numbers;
            Some(IntrospectionOptions { url, client_id, cache_ms })
        }
        _ => {
            reader.refuse(node, "auth.issuer: introspection_url and client_id belong together");
            None
        }
    };
    if entry.audiences.is_empty() {
        entry.audiences.extend(resource.map(str::to_owned));
    }
    if entry.algorithms.is_empty() {
        entry.algorithms = vec![Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA];
    }
    let [clock_skew_ms, keys_fresh_ms, keys_stale_ms, keys_retry_ms, fetch_ms_max, _] = entry.numbers;
    let options = IssuerOptions {
        issuer,
        url,
        audiences: entry.audiences,
        jwks_url: entry.jwks_url,
        algorithms: entry.algorithms,
        tenant,
        client_id_in_principal: entry.client_id_in_principal,
        require_at_jwt: entry.require_at_jwt,
        clock_skew_ms,
        keys_fresh_ms,
        keys_stale_ms,
        keys_retry_ms,
        fetch_ms_max,
        private_addresses: entry.private_addresses,
        introspection,
    };
    Some(IssuerConfig { options, root_certificate: entry.root_certificate, client_secret: entry.client_secret })
}

fn read_entry(reader: &mut Reader<'_>, table: &Table<'_>, entry: &mut Entry) {
    for (key, node) in table {
        let path = format!("auth.issuer.{}", key.get_ref());
        match key.get_ref().as_ref() {
            "issuer" => entry.issuer = written_url(reader, &path, node),
            "audience" => entry.audiences.extend(reader.text(&path, node)),
            "jwks_url" => entry.jwks_url = url(reader, &path, node),
            "algorithms" => entry.algorithms = reader.texts(&path, node, algorithm),
            "tenant" => entry.tenant = reader.parsed(&path, node, name),
            "tenant_claim" => entry.tenant_claim = reader.parsed(&path, node, tenant_claim),
            "tenants" => entry.tenants = reader.texts(&path, node, name_or_any),
            "client_id_in_principal" => entry.client_id_in_principal = reader.switch(&path, node),
            "require_at_jwt" => entry.require_at_jwt = reader.switch(&path, node),
            "private_addresses" => entry.private_addresses = reader.texts(&path, node, network),
            "root_certificate" => entry.root_certificate = reader.text(&path, node).map(|text| reader.path(&text)),
            "introspection_url" => entry.introspection_url = url(reader, &path, node),
            "client_id" => entry.client_id = reader.text(&path, node),
            "client_secret_file" => {
                entry.client_secret = reader.text(&path, node).map(|text| SecretLocation::File(reader.path(&text)));
            }
            "client_secret_env" => entry.client_secret = reader.text(&path, node).map(SecretLocation::Variable),
            "client_secret" => reader.refuse(
                node,
                format!(
                    "{path}: secrets are not kept in the configuration; use client_secret_file or client_secret_env"
                ),
            ),
            other => {
                let numbers = NUMBERS.iter().zip(&mut entry.numbers);
                match numbers.into_iter().find(|((name, ..), _)| *name == other) {
                    Some(((_, _, min, max, _), number)) => {
                        if let Some(value) = reader.number(&path, node, *min, *max) {
                            *number = value;
                        }
                    }
                    None => reader.refuse(key, format!("{path}: no such key in [[auth.issuer]]")),
                }
            }
        }
    }
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

pub(super) fn network(text: &str) -> Result<Network, String> {
    text.parse().map_err(|error: bulkhead_net::address::NotANetwork| error.to_string())
}

/// Scopes that grant what others do must exist.
pub(super) fn check(auth: &AuthConfig, report: &mut Report) {
    for rule in &auth.scopes {
        for included in &rule.includes {
            if !auth.scopes.iter().any(|other| other.name == *included) {
                let message = format!("auth.scope: {:?} includes {included:?}, which is not configured", rule.name);
                report.add(&super::ConfigLocation::Default, message);
            }
        }
    }
}
