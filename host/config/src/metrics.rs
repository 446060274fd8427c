//! `[metrics]`: where the host's metrics are read, and by whom.

use std::net::SocketAddr;

use super::admin::{self, AdminSecret};
use super::reader::Item;
use super::tls::{self, TlsConfig};
use bulkhead_metrics::MetricsOptions;

/// Lines of all series together, if the file says nothing else.
const SERIES: usize = 10_000;

/// `[metrics]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsConfig {
    pub listen: SocketAddr,
    /// None: on a loopback address only.
    pub secret: Option<AdminSecret>,
    pub tls: Option<TlsConfig>,
    /// Whether what the host counts of tenants is told apart by those that have a section.
    pub tenants: bool,
    pub options: MetricsOptions,
}

/// Reads `[metrics]`.
pub(super) fn read(item: Item<'_>) -> Option<MetricsConfig> {
    let section = item.section(&["listen", "token_file", "token_sha256", "tls", "series_max", "tools", "tenants"])?;
    let listen = section.parsed("listen", admin::address);
    let secret = match (section.has("token_file"), section.has("token_sha256")) {
        (false, false) => None,
        _ => Some(admin::read_secret(&section)),
    };
    let tls = section.get("tls").and_then(tls::read_tls);
    let series_max = section.number("series_max", 1_000..=1_000_000).unwrap_or(SERIES);
    let tools = section.switch("tools").unwrap_or(true);
    let tenants = section.choice("tenants", &[("configured", true), ("none", false)]).unwrap_or(true);
    if !section.is_sound() {
        return None;
    }
    let Some(listen) = listen else {
        section.refuse("listen", "missing; it is ADDR:PORT, such as 127.0.0.1:9464");
        return None;
    };
    let secret = match secret {
        Some(None) => {
            section.item.refuse("takes one token: give it as token_file or as token_sha256, not both");
            return None;
        }
        secret => secret.flatten(),
    };
    if !listen.ip().to_canonical().is_loopback() && (secret.is_none() || tls.is_none()) {
        admin::refuse_reachable(&section, ("metrics", "metrics.token_file = \"…\" and "), listen);
        return None;
    }
    Some(MetricsConfig { listen, secret, tls, tenants, options: MetricsOptions { series_max, tools } })
}
