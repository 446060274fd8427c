//! `[metrics]`: where the host's metrics are read, and by whom.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::admin::{self, AdminSecret};
use super::plugin::digest;
use super::reader::Item;
use super::tls::{TlsConfig, read_tls};
use bulkhead_metrics::MetricsOptions;
use bulkhead_plugins::sources::Digest;

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

table!(METRICS, MetricsKeys, "[metrics]",
    "A listener for Prometheus: the page /metrics. Without this table nothing is counted.", {
    listen: SocketAddr = |item| item.parsed(admin::address), "",
        "ADDR:PORT to listen on";
    token_file: PathBuf = Item::file, "",
        "File with the token that scrapers show, at least 32 characters";
    token_sha256: Digest = |item| item.parsed(digest), "",
        "In place of token_file: the SHA-256 of the token, as 64 hexadecimal digits";
    tls: TlsConfig = read_tls, "",
        "As of [server]; with a token required for anything but a loopback address";
    series_max: usize = |item| item.number(1_000..=1_000_000), "10,000",
        "Lines of all series together, 1,000 to 1,000,000; what is beyond counts as `_overflow`";
    tenants: bool = |item| item.choice(&[("configured", true), ("none", false)]), "configured",
        "`configured`: numbers of each tenant that has a `[tenant.NAME]`; `none`: of no tenant";
    tools: bool = Item::switch, "true",
        "Whether durations of requests are told apart by tool and prompt";
});

/// Reads `[metrics]`.
pub(super) fn read(item: &Item<'_>) -> Option<MetricsConfig> {
    let section = item.section(METRICS.names())?;
    let MetricsKeys { listen, token_file, token_sha256, tls, series_max, tenants, tools } = MetricsKeys::read(&section);
    let secret = match (section.has("token_file"), section.has("token_sha256")) {
        (false, false) => None,
        _ => Some(AdminSecret::of(token_file, token_sha256)),
    };
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
        admin::refuse_reachable(&section, "metrics", "metrics.token_file = \"…\" and ", listen);
        return None;
    }
    let options = MetricsOptions { series_max: series_max.unwrap_or(SERIES), tools: tools.unwrap_or(true) };
    Some(MetricsConfig { listen, secret, tls, tenants: tenants.unwrap_or(true), options })
}
