//! `[dashboard]`: where people look at the host in a browser.

use std::net::SocketAddr;

use http::uri::Authority;

use bulkhead_domain::names::check_scope;
use bulkhead_identity::auth::OperatorClaim;

use super::admin;
use super::auth::{AuthConfig, SecretLocation};
use super::reader::{Item, Section};
use super::report::{ConfigLocation, Report};
use super::tls::{self, TlsConfig};

/// `[dashboard]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DashboardConfig {
    pub listen: SocketAddr,
    /// Names that it answers to besides those of this machine.
    pub allowed_hosts: Vec<String>,
    pub tls: Option<TlsConfig>,
    pub oidc: Option<Box<OidcConfig>>,
}

/// `[dashboard.oidc]`: the issuer at which people log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OidcConfig {
    /// Of `[[auth.issuer]]`.
    pub issuer: String,
    place: ConfigLocation,
    pub client_id: String,
    pub client_secret: Option<SecretLocation>,
    /// What is asked for, `openid` among it.
    pub scopes: Vec<String>,
    pub operators: Option<OperatorClaim>,
}

/// A name, with a port or without.
fn host(text: &str) -> Result<String, String> {
    let is_host = text.parse::<Authority>().is_ok_and(|host| !host.host().is_empty()) && !text.contains('@');
    if is_host { Ok(text.to_owned()) } else { Err(format!("{text:?} is not HOST or HOST:PORT, like ops.example.com")) }
}

/// Reads `[dashboard]`.
pub(super) fn read(item: Item<'_>) -> Option<DashboardConfig> {
    let section = item.section(&["listen", "allowed_hosts", "tls", "oidc"])?;
    let listen = section.parsed("listen", admin::address);
    let allowed_hosts = section.texts("allowed_hosts", host);
    let tls = section.get("tls").and_then(tls::read_tls);
    let oidc = section.get("oidc").and_then(read_oidc);
    if !section.is_sound() {
        return None;
    }
    let Some(listen) = listen else {
        section.refuse("listen", "missing; it is ADDR:PORT, such as 127.0.0.1:8810");
        return None;
    };
    if tls.is_none() && !listen.ip().to_canonical().is_loopback() {
        admin::refuse_reachable(&section, ("dashboard", ""), listen);
        return None;
    }
    Some(DashboardConfig { listen, allowed_hosts, tls, oidc })
}

/// The scope without which nobody logs in.
const OPENID: &str = "openid";

fn read_oidc(item: Item<'_>) -> Option<Box<OidcConfig>> {
    let place = item.place();
    let section = item.section(&["issuer", "client_id", "client_secret_file", "scopes", "operators"])?;
    let mut scopes = section.texts("scopes", check_scope);
    if !scopes.iter().any(|scope| scope == OPENID) {
        scopes.insert(0, OPENID.to_owned());
    }
    let operators = section.get("operators").and_then(read_operators);
    let client_secret = section.file("client_secret_file").map(SecretLocation::File);
    let issuer = required(&section, "issuer");
    let client_id = required(&section, "client_id");
    Some(Box::new(OidcConfig { issuer: issuer?, place, client_id: client_id?, client_secret, scopes, operators }))
}

fn read_operators(item: Item<'_>) -> Option<OperatorClaim> {
    let section = item.section(&["claim", "value"])?;
    let claim = required(&section, "claim");
    let value = required(&section, "value");
    Some(OperatorClaim { claim: claim?, value: value? })
}

/// A text that must be there.
fn required(section: &Section<'_>, key: &str) -> Option<String> {
    if !section.has(key) {
        section.refuse(key, "missing");
    }
    section.parsed(key, |text| if text.is_empty() { Err("must not be empty") } else { Ok(text.to_owned()) })
}

/// People log in where access tokens come from: who they are is said in the same words.
pub(super) fn check(dashboard: Option<&DashboardConfig>, auth: &AuthConfig, report: &Report) {
    let Some(oidc) = dashboard.and_then(|dashboard| dashboard.oidc.as_ref()) else { return };
    if !auth.issuers.iter().any(|issuer| issuer.options.issuer == oidc.issuer) {
        let message = format!("dashboard.oidc.issuer: {:?} is the issuer of no [[auth.issuer]]", oidc.issuer);
        report.add(&oidc.place, message);
    }
}
