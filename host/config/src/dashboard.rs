//! `[dashboard]`: where people look at the host in a browser.

use std::net::SocketAddr;
use std::path::PathBuf;

use http::uri::Authority;

use bulkhead_domain::names::check_scope;
use bulkhead_identity::auth::OperatorClaim;
use bulkhead_net::address::{host_of, is_this_machine, normal_host};

use super::admin;
use super::auth::{AuthConfig, SecretLocation};
use super::reader::{Item, Section};
use super::report::{ConfigLocation, Report};
use super::tls::{TlsConfig, read_tls};

/// `[dashboard]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DashboardConfig {
    pub listen: SocketAddr,
    /// Names that it answers to besides those of this machine.
    pub allowed_hosts: Vec<String>,
    pub tls: Option<TlsConfig>,
    pub oidc: Option<Box<OidcConfig>>,
    /// Where traces are shown, with `{trace_id}` in place of the id of one.
    pub trace_link: Option<String>,
    /// Where views of MCP Apps are previewed, if they are.
    pub app_preview_origin: Option<PreviewOrigin>,
}

/// Where views of MCP Apps are previewed: an origin whose host name is none of the dashboard's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreviewOrigin {
    pub has_tls: bool,
    /// In the normal spelling.
    pub host: String,
    /// None: that of the dashboard.
    port: Option<u16>,
}

impl PreviewOrigin {
    /// As browsers write it, for a dashboard that listens on this port.
    pub fn text(&self, dashboard_port: u16) -> String {
        let scheme = if self.has_tls { "https" } else { "http" };
        let default_port = if self.has_tls { 443 } else { 80 };
        match self.port.unwrap_or(dashboard_port) {
            port if port == default_port => format!("{scheme}://{}", self.host),
            port => format!("{scheme}://{}:{port}", self.host),
        }
    }

    /// Why a dashboard that is called by these names cannot preview there.
    fn refusal(&self, tls: Option<&TlsConfig>, allowed_hosts: &[String]) -> Option<String> {
        let host = &self.host;
        let is_named = allowed_hosts.iter().any(|name| host_of(name).as_ref() == Some(host));
        // Browsers are sent to such a name where the dashboard has no other.
        let is_made = host.starts_with("bulkhead-") && host.ends_with(LOOPBACK_NAME_ENDS);
        if is_this_machine(host) || is_named || is_made {
            return Some(format!(
                "{host:?} is a name of the dashboard itself, and views need another: {PREVIEW_EXAMPLES}"
            ));
        }
        let is_mixed = tls.is_some() && !self.has_tls;
        is_mixed.then(|| "it begins with http://, but this listener has TLS: write https://".to_owned())
    }
}

/// Browsers take these names for this machine, whatever a name server says.
const LOOPBACK_NAME_ENDS: &str = ".localhost";
const PREVIEW_EXAMPLES: &str = "write https://apps.example.com, or http://apps.localhost on this machine";

fn preview_origin(text: &str) -> Result<PreviewOrigin, String> {
    let wrong = |why: &str| format!("{text:?} {why}: {PREVIEW_EXAMPLES}");
    let (has_tls, rest) = match text.split_once("://") {
        Some(("https", rest)) => (true, rest),
        Some(("http", rest)) => (false, rest),
        _ => return Err(wrong("begins with neither https:// nor http://")),
    };
    if rest.contains(['/', '?', '#', '@']) {
        return Err(wrong("has more than a host name and a port"));
    }
    let authority: Authority = rest.parse().map_err(|_| wrong("has no host name"))?;
    let host = normal_host(authority.host());
    let is_name = host
        .split('.')
        .all(|label| !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'));
    // Whatever ends in a number is an address to browsers.
    let is_address =
        host.rsplit('.').next().is_none_or(|label| label.starts_with(|first: char| first.is_ascii_digit()));
    if !is_name || is_address {
        return Err(wrong("has no host name"));
    }
    let port = authority.port_u16().filter(|port| *port != 0);
    if port.is_none() && authority.as_str() != authority.host() {
        return Err(wrong("has no port behind its colon"));
    }
    if !has_tls && !host.ends_with(LOOPBACK_NAME_ENDS) && !is_this_machine(&host) {
        return Err(wrong("begins with http://, and its name is none of this machine"));
    }
    Ok(PreviewOrigin { has_tls, host, port })
}

/// `[dashboard.oidc]`: the issuer at which people log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OidcConfig {
    /// Of `[[auth.issuer]]`.
    pub issuer: String,
    location: ConfigLocation,
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

/// What stands in place of the id of a trace.
const TRACE_ID: &str = "{trace_id}";

fn trace_link(text: &str) -> Result<String, String> {
    let is_web = ["https://", "http://"].iter().any(|scheme| text.starts_with(scheme));
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
    match is_web && is_plain && text.matches(TRACE_ID).count() == 1 {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "{text:?} is not an address with {TRACE_ID} in it once, like https://traces.example.com/trace/{TRACE_ID}"
        )),
    }
}

table!(DASHBOARD, DashboardKeys, "[dashboard]",
    "A listener for people in a browser. Without this table there is none.", {
    listen: SocketAddr = |item| item.parsed(admin::address), "",
        "ADDR:PORT to listen on";
    allowed_hosts: Vec<String> = |item| Some(item.texts(host)), "none",
        "Names that browsers may call it by, besides those of this machine; links of `bulkhead dashboard login` have the first";
    tls: TlsConfig = read_tls, "",
        "As of [server]; required for anything but a loopback address";
    oidc: Box<OidcConfig> = read_oidc, "",
        "Logging in at an issuer: see [dashboard.oidc]";
    trace_link: String = |item| item.parsed(trace_link), "",
        "Where traces are shown, with {trace_id} in place of the id; operators' pages of tasks have a link to it";
    app_preview_origin: PreviewOrigin = |item| item.parsed(preview_origin), "none",
        "Where pages of tools show views of MCP Apps: an origin with a host name of its own, https:// or http://NAME.localhost; without a port it has the dashboard's";
});

table!(OIDC, OidcKeys, "[dashboard.oidc]",
    "Lets people log in at the dashboard with OpenID Connect. Without this table they paste tokens.", {
    issuer: String = filled, "",
        "The issuer of one of [[auth.issuer]], exactly as it is written there";
    client_id: String = filled, "",
        "How the issuer knows the dashboard";
    client_secret_file: PathBuf = Item::file, "",
        "File with the secret that belongs to it; a public client has none";
    scopes: Vec<String> = |item| Some(item.texts(check_scope)), "openid",
        "Scopes that are asked for, beside `openid`; they give rights as those of access tokens do";
    operators: OperatorClaim = read_operators, "nobody",
        "{ claim, value }: whose id token has this text in this claim, or in its list, is an operator";
});

/// Reads `[dashboard]`.
pub(super) fn read(item: &Item<'_>) -> Option<DashboardConfig> {
    let section = item.section(DASHBOARD.names())?;
    let DashboardKeys { listen, allowed_hosts, tls, oidc, trace_link, app_preview_origin } =
        DashboardKeys::read(&section);
    if !section.is_sound() {
        return None;
    }
    let Some(listen) = listen else {
        section.refuse("listen", "missing; it is ADDR:PORT, such as 127.0.0.1:8810");
        return None;
    };
    if tls.is_none() && !listen.ip().to_canonical().is_loopback() {
        admin::refuse_reachable(&section, "dashboard", "", listen);
        return None;
    }
    let allowed_hosts = allowed_hosts.unwrap_or_default();
    let refusal = app_preview_origin.as_ref().and_then(|origin| origin.refusal(tls.as_ref(), &allowed_hosts));
    if let Some(why) = refusal {
        section.get("app_preview_origin")?.refuse(why);
        return None;
    }
    Some(DashboardConfig { listen, allowed_hosts, tls, oidc, trace_link, app_preview_origin })
}

/// The scope without which nobody logs in.
const OPENID: &str = "openid";

fn read_oidc(item: &Item<'_>) -> Option<Box<OidcConfig>> {
    let section = item.section(OIDC.names())?;
    let OidcKeys { issuer, client_id, client_secret_file, scopes, operators } = OidcKeys::read(&section);
    refuse_missing(&section, ["issuer", "client_id"]);
    let mut scopes = scopes.unwrap_or_default();
    if !scopes.iter().any(|scope| scope == OPENID) {
        scopes.insert(0, OPENID.to_owned());
    }
    let client_secret = client_secret_file.map(SecretLocation::File);
    let location = item.location();
    Some(Box::new(OidcConfig { issuer: issuer?, location, client_id: client_id?, client_secret, scopes, operators }))
}

fn read_operators(item: &Item<'_>) -> Option<OperatorClaim> {
    let section = item.section(["claim", "value"])?;
    refuse_missing(&section, ["claim", "value"]);
    let claim = section.get("claim").as_ref().and_then(filled);
    let value = section.get("value").as_ref().and_then(filled);
    Some(OperatorClaim { claim: claim?, value: value? })
}

/// A text with something in it.
fn filled(item: &Item<'_>) -> Option<String> {
    item.parsed(|text| if text.is_empty() { Err("must not be empty") } else { Ok(text.to_owned()) })
}

fn refuse_missing(section: &Section<'_>, keys: [&str; 2]) {
    for key in keys.into_iter().filter(|key| !section.has(key)) {
        section.refuse(key, "missing");
    }
}

/// People log in where access tokens come from: who they are is said in the same words.
pub(super) fn check(dashboard: Option<&DashboardConfig>, auth: &AuthConfig, report: &Report) {
    let Some(oidc) = dashboard.and_then(|dashboard| dashboard.oidc.as_ref()) else { return };
    if !auth.issuers.iter().any(|issuer| issuer.options.issuer == oidc.issuer) {
        let message = format!("dashboard.oidc.issuer: {:?} is the issuer of no [[auth.issuer]]", oidc.issuer);
        report.add(&oidc.location, message);
    }
}
