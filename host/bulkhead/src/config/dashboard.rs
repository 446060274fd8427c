//! `[dashboard]`: where people look at the host in a browser.

use std::net::SocketAddr;

use http::uri::Authority;

use super::admin;
use super::exposure::{self, TlsConfig};
use super::reader::Item;

/// `[dashboard]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DashboardConfig {
    pub listen: SocketAddr,
    /// Names that it answers to besides those of this machine.
    pub allowed_hosts: Vec<String>,
    pub tls: Option<TlsConfig>,
}

/// A name, with a port or without.
fn host(text: &str) -> Result<String, String> {
    let is_host = text.parse::<Authority>().is_ok_and(|host| !host.host().is_empty()) && !text.contains('@');
    if is_host { Ok(text.to_owned()) } else { Err(format!("{text:?} is not HOST or HOST:PORT, like ops.example.com")) }
}

/// Reads `[dashboard]`.
pub(super) fn read(item: Item<'_>) -> Option<DashboardConfig> {
    let section = item.section(&["listen", "allowed_hosts", "tls"])?;
    let listen = section.parsed("listen", admin::address);
    let allowed_hosts = section.texts("allowed_hosts", host);
    let tls = section.get("tls").and_then(exposure::read_tls);
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
    Some(DashboardConfig { listen, allowed_hosts, tls })
}
