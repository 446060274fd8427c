//! Starts what exports traces, from the configuration and, below it, from the variables that every OpenTelemetry
//! program knows.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use bulkhead_config::{Config, collector_endpoint};
use bulkhead_domain::without_byte_order_mark;
use bulkhead_net::address::{is_this_machine, normal_host};
use bulkhead_net::dial;
use bulkhead_traces::{Tracer, TracerOptions};
use http::{HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use tokio::runtime::Handle;

use super::sources;

/// How long a span waits for others.
const BATCH_MAX: Duration = Duration::from_secs(5);
/// Headers of a request to the collector.
const HEADERS_MAX: usize = 32;
/// Attributes that the environment says of this host.
const ATTRIBUTES_MAX: usize = 64;

/// What begins traces; off where no collector is configured.
pub(super) fn start(config: &Config) -> anyhow::Result<Tracer> {
    let Some(options) = options(config, sources::variable)? else { return Ok(Tracer::default()) };
    tracing::info!(collector = %options.endpoint, "traces are exported");
    Ok(Tracer::start(options))
}

/// What keeps traces from being exported as configured.
pub(super) fn check(config: &Config) -> anyhow::Result<()> {
    options(config, sources::variable).map(drop)
}

fn options(config: &Config, variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Option<TracerOptions>> {
    let traces = &config.traces;
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let endpoint = match (&traces.endpoint, set("OTEL_EXPORTER_OTLP_ENDPOINT")) {
        (Some(endpoint), _) => endpoint.clone(),
        (None, Some(text)) => collector_endpoint(&text)
            .map_err(anyhow::Error::msg)
            .context("the environment variable OTEL_EXPORTER_OTLP_ENDPOINT")?,
        (None, None) => return Ok(None),
    };
    let headers = match &traces.headers_file {
        Some(file) => {
            // Credentials do not go over a network without TLS.
            let is_here = endpoint.host_str().is_some_and(|host| is_this_machine(&normal_host(host)));
            anyhow::ensure!(
                endpoint.scheme() == "https" || is_here,
                "traces.headers_file would be sent to {endpoint} in the clear: use https, or a collector on this machine"
            );
            headers(file).with_context(|| format!("traces.headers_file = {}", file.display()))?
        }
        None => Vec::new(),
    };
    let mut resource = set("OTEL_RESOURCE_ATTRIBUTES").map(|text| attributes(&text)).unwrap_or_default();
    let of_resource = resource.iter().position(|(key, _)| key == "service.name").map(|at| resource.remove(at).1);
    Ok(Some(TracerOptions {
        endpoint,
        headers,
        tls: dial::tls_config(&[]).context("the roots of the web")?,
        ratio: traces.ratio,
        followed_max: traces.followed_max,
        names_requestor: traces.requestor,
        service_name: set("OTEL_SERVICE_NAME").or(of_resource).unwrap_or_else(|| "bulkhead".to_owned()),
        service_version: env!("CARGO_PKG_VERSION"),
        resource,
        io: Handle::current(),
        batch_max: BATCH_MAX,
    }))
}

/// One `Name: value` a line.
fn headers(file: &Path) -> anyhow::Result<Vec<(HeaderName, HeaderValue)>> {
    let text = std::fs::read_to_string(file).context("it cannot be read")?;
    let lines = without_byte_order_mark(&text).lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let read = lines.map(|(at, line)| {
        // What is wrong is not repeated: it may be a secret.
        let wrong = || format!("line {} is not `Name: value`", at + 1);
        let (name, value) = line.split_once(':').with_context(wrong)?;
        let mut value: HeaderValue = value.trim().parse().ok().with_context(wrong)?;
        value.set_sensitive(true);
        Ok((name.trim().parse().ok().with_context(wrong)?, value))
    });
    let headers: Vec<_> = read.collect::<anyhow::Result<_>>()?;
    anyhow::ensure!(headers.len() <= HEADERS_MAX, "it has more than {HEADERS_MAX} headers");
    Ok(headers)
}

/// `key=value,key=value`, values percent-encoded; what is not like this is passed over, as the specification wants.
fn attributes(text: &str) -> Vec<(String, String)> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    let decoded = pairs
        .map(|(key, value)| (key.trim().to_owned(), percent_decode_str(value.trim()).decode_utf8_lossy().into_owned()));
    decoded.filter(|(key, _)| !key.is_empty()).take(ATTRIBUTES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_config::{File, Flags};

    fn config(text: &str) -> Config {
        let file = File { path: Path::new("/etc/bulkhead.toml"), text };
        Config::load(Some(file), Vec::new(), &Flags::default()).unwrap()
    }

    fn read(text: &str, variables: &[(&str, &str)]) -> anyhow::Result<Option<TracerOptions>> {
        let of = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        options(&config(text), of)
    }

    #[tokio::test]
    async fn variables_of_opentelemetry_count_below_the_file() {
        assert!(read("", &[]).unwrap().is_none() && read("[traces]\nratio = 1", &[]).unwrap().is_none());
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://from-environment:4318"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=less,team=a%20b,broken"),
        ];
        let read_from = |text: &str, variables: &[(&str, &str)]| read(text, variables).unwrap().unwrap();
        let of_environment = read_from("", &variables);
        assert_eq!(of_environment.endpoint.as_str(), "http://from-environment:4318/");
        assert_eq!(of_environment.resource, [("team".to_owned(), "a b".to_owned())]);
        assert_eq!(of_environment.service_name, "less");
        let named = [variables[0], variables[1], ("OTEL_SERVICE_NAME", "more")];
        let of_file = read_from("[traces]\nendpoint = 'http://from-file:4318'", &named);
        assert_eq!((of_file.endpoint.as_str(), of_file.service_name.as_str()), ("http://from-file:4318/", "more"));
        let wrong = read("", &[("OTEL_EXPORTER_OTLP_ENDPOINT", "collector")]).err().unwrap();
        assert!(format!("{wrong:#}").contains("OTEL_EXPORTER_OTLP_ENDPOINT"), "{wrong:#}");
    }

    #[tokio::test]
    async fn headers_of_the_collector_are_read_and_never_sent_in_the_clear() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("headers");
        let text = |endpoint: &str| format!("[traces]\nendpoint = '{endpoint}'\nheaders_file = '{}'", file.display());
        // Some editors write a byte order mark in front.
        std::fs::write(&file, "\u{feff}Authorization: Bearer planted\n\nx-team: a\n").unwrap();
        for endpoint in ["https://collector", "http://127.0.0.1:4318", "http://localhost:4318"] {
            let headers = read(&text(endpoint), &[]).unwrap().unwrap().headers;
            assert_eq!((headers.len(), headers[0].1.as_bytes()), (2, &b"Bearer planted"[..]));
            assert!(!format!("{headers:?}").contains("planted"));
        }
        let clear = read(&text("http://collector:4318"), &[]).err().unwrap().to_string();
        assert!(clear.contains("in the clear"), "{clear}");
        std::fs::write(&file, "planted").unwrap();
        let wrong = format!("{:#}", read(&text("https://collector"), &[]).err().unwrap());
        assert!(wrong.contains("line 1 is not `Name: value`") && !wrong.contains("planted"), "{wrong}");
    }
}
