//! `[traces]`: which requests are recorded, and which collector is told of them.

use std::path::PathBuf;

use toml::de::DeValue;
use url::Url;

use super::reader::Item;
use bulkhead_traces::FollowedMax;

/// Of one tenant, and of the host, when nobody says.
pub(super) const FOLLOWED_DEFAULT: (u32, u32) = (50, 500);
const FOLLOWED_MAX: u64 = 1_000_000;

/// `[traces]`.
#[derive(Clone, Debug, PartialEq)]
pub struct TracesConfig {
    /// The base address of the collector. Without one nothing is recorded.
    pub endpoint: Option<Url>,
    pub headers_file: Option<PathBuf>,
    /// From 0 to 1.
    pub ratio: f64,
    pub followed_max: FollowedMax,
    pub requestor: bool,
}

impl Default for TracesConfig {
    fn default() -> Self {
        let (per_tenant, total) = FOLLOWED_DEFAULT;
        let followed_max = FollowedMax { per_tenant, total };
        Self { endpoint: None, headers_file: None, ratio: 0.0, followed_max, requestor: false }
    }
}

table!(TRACES, TracesKeys, "[traces]",
    "OpenTelemetry traces of requests, over OTLP/HTTP. Off without an endpoint. Below these keys, the variables OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES count.", {
    endpoint: Url = |item| item.parsed(endpoint), "",
        "Base address of the collector, like http://127.0.0.1:4318; /v1/traces is added";
    headers_file: PathBuf = Item::file, "",
        "File with one `Name: value` a line, for a collector that wants a credential; needs https or a collector on this machine";
    ratio: f64 = ratio, "0",
        "The part of the requests without a traceparent that is recorded, from 0 to 1";
    followed_per_second: u32 = |item| item.number(0..=FOLLOWED_MAX), "50",
        "Spans of one tenant that are recorded in one second because the traceparent of a request has the flag sampled";
    followed_per_second_total: u32 = |item| item.number(0..=FOLLOWED_MAX), "500",
        "Those of all tenants";
    requestor: bool = Item::switch, "false",
        "Whether spans name the requestor's id";
});

/// Reads `[traces]`.
pub(super) fn read(item: &Item<'_>) -> Option<TracesConfig> {
    let section = item.section(TRACES.names())?;
    let keys = TracesKeys::read(&section);
    let default = TracesConfig::default();
    let FollowedMax { per_tenant, total } = default.followed_max;
    let read = TracesConfig {
        endpoint: keys.endpoint,
        headers_file: keys.headers_file,
        ratio: keys.ratio.unwrap_or(default.ratio),
        followed_max: FollowedMax {
            per_tenant: keys.followed_per_second.unwrap_or(per_tenant),
            total: keys.followed_per_second_total.unwrap_or(total),
        },
        requestor: keys.requestor.unwrap_or(default.requestor),
    };
    section.is_sound().then_some(read)
}

/// Reads the base address of a collector, from the file or from the environment.
pub fn endpoint(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let is_plain = |url: &Url| {
        url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none()
    };
    url.filter(is_plain).ok_or_else(|| {
        format!(
            "{text:?} is not the base address of a collector: write https://HOST:PORT or http://HOST:PORT, without \
             /v1/traces, user and query; credentials belong into traces.headers_file"
        )
    })
}

/// A number from 0 to 1.
fn ratio(item: &Item<'_>) -> Option<f64> {
    let number = match item.node.get_ref() {
        DeValue::Float(float) => float.as_str().replace('_', "").parse().ok(),
        DeValue::Integer(integer) if integer.as_str() == "0" => Some(0.0),
        DeValue::Integer(integer) if integer.as_str() == "1" => Some(1.0),
        _ => None,
    };
    let ratio = number.filter(|ratio| (0.0..=1.0).contains(ratio));
    if ratio.is_none() {
        item.refuse("must be a number from 0 (none) to 1 (all), such as 0.01");
    }
    ratio
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{Config, File, Flags};

    fn read(text: &str) -> Result<TracesConfig, String> {
        let file = File { path: Path::new("/etc/bulkhead.toml"), text };
        let config = Config::load(Some(file), Vec::new(), &Flags::default());
        config.map(|config| config.traces).map_err(|problems| problems.to_string())
    }

    #[test]
    fn traces_are_off_unless_configured_and_keys_have_their_defaults() {
        assert_eq!(read("").unwrap(), TracesConfig::default());
        let set = read("[traces]\nendpoint = 'http://collector:4318'\nratio = 0.25\nheaders_file = 'h'").unwrap();
        assert_eq!(set.endpoint.unwrap().as_str(), "http://collector:4318/");
        assert_eq!((set.ratio, set.headers_file.unwrap()), (0.25, PathBuf::from("/etc/h")));
        assert_eq!((set.followed_max, set.requestor), (FollowedMax { per_tenant: 50, total: 500 }, false));
        assert_eq!(read("[traces]\nratio = 1").unwrap().ratio, 1.0);
    }

    #[test]
    fn wrong_traces_keys_are_refused_with_what_is_expected() {
        for (text, expected) in [
            ("ratio = 1.5", "traces.ratio: must be a number from 0 (none) to 1 (all)"),
            ("ratio = nan", "traces.ratio: must be"),
            ("ratio = '1'", "traces.ratio: must be"),
            ("ratio = -0.1", "traces.ratio: must be"),
            ("endpoint = 'collector:4318'", "traces.endpoint: \"collector:4318\" is not the base address"),
            ("endpoint = 'https://u:p@c'", "credentials belong into traces.headers_file"),
            ("followed_per_second = -1", "traces.followed_per_second: must be a whole number from 0 to 1000000"),
            ("sampler = 1", "traces.sampler: no such key; there are endpoint"),
        ] {
            let said = read(&format!("[traces]\n{text}")).unwrap_err();
            assert!(said.contains(expected), "{text}: {said}");
        }
    }
}
