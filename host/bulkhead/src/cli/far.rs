//! A host on another machine, reached over its administrators' listener.
//!
//! Must not send a command that such a listener refuses anyway, nor show the token. Invariant: without `--url` nothing
//! of this is used.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use bulkhead_assembly::{sources, trust};
use bulkhead_config::{ADMIN_TOKEN_VARIABLE, ConfigLocation, Problem};
use bulkhead_control::{Answer, Command, remote, wire};
use bulkhead_net::client::{self, Client, parse_server_url};
use bulkhead_net::dial;
use bytes::Bytes;
use clap::Args;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method};
use url::Url;

/// A whole command.
const COMMAND_MS_MAX: u64 = 120_000;
const REPLY_BYTES_MAX: u64 = 64 << 20;

/// A host that is not on this machine.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct FarArguments {
    /// The administrators' listener of a host anywhere: https://HOST:PORT (http:// for this machine only)
    #[arg(long, value_name = "URL", value_parser = parse_server_url, conflicts_with_all = ["data", "config"])]
    url: Option<Url>,
    /// The file with the administrators' token [default: the token in the variable BULKHEAD_ADMIN_TOKEN]
    #[arg(long, value_name = "FILE", requires = "url")]
    token_file: Option<PathBuf>,
    /// A file with more certificates (PEM) that the host may be certified by
    #[arg(long, value_name = "FILE", requires = "url")]
    ca: Option<PathBuf>,
}

impl FarArguments {
    /// Whether the host is elsewhere.
    pub(super) fn is_named(&self) -> bool {
        self.url.is_some()
    }

    /// Has a command carried out; `None`: the host is on this machine.
    pub(super) async fn carry_out(&self, command: &Command) -> anyhow::Result<Option<Answer>> {
        let Some(url) = &self.url else { return Ok(None) };
        if !command.is_for_administrators() {
            return Err(usage(
                "this is done on the machine of the host only; from afar there are `tasks`, `limits`, `top`, `host`, \
                 `token list` and `revoke`, `tenant list`, `plugin list`, `versions` and `usage`",
            ));
        }
        let token = self.token()?;
        let roots = self.ca.as_deref().map(trust::certificates).transpose()?.unwrap_or_default();
        let tls = dial::tls_config(&roots).context("--ca")?;
        // Whoever types an address means it.
        let networks = ["0.0.0.0/0", "::/0"].iter().filter_map(|network| network.parse().ok()).collect();
        let client = Client { networks, plain: true, connect_max: Duration::MAX, ..Client::new(tls) };
        let url = url.join(remote::PATH)?;
        let mut authorization = HeaderValue::from_str(&format!("Bearer {token}"))?;
        authorization.set_sensitive(true);
        let request = client::Request {
            headers: vec![(CONTENT_TYPE, HeaderValue::from_static("application/json"))],
            authorization: Some(authorization),
            body: Bytes::from(wire::write_request(command)?),
            ..client::Request::new(Method::POST, url.clone())
        };
        let (status, body) = client.fetch_document(request, COMMAND_MS_MAX, REPLY_BYTES_MAX).await?;
        let reply = wire::read_reply(&body);
        let reply =
            reply.with_context(|| format!("{url} answered with status {status} and nothing that a host says"))?;
        Ok(Some(reply.with_context(|| format!("{url} refused"))?))
    }

    fn token(&self) -> anyhow::Result<String> {
        match (&self.token_file, sources::variable(ADMIN_TOKEN_VARIABLE)) {
            (Some(file), _) => trust::admin_token(file).context("--token-file"),
            (None, Some(token)) => trust::checked_admin_token(&token, ADMIN_TOKEN_VARIABLE),
            (None, None) => Err(usage(&format!(
                "the administrators' token is missing: name its file with --token-file FILE, or put it into the variable \
                 {ADMIN_TOKEN_VARIABLE}"
            ))),
        }
    }
}

fn usage(message: &str) -> anyhow::Error {
    Problem { location: ConfigLocation::Flag("--url"), message: message.to_owned() }.into()
}
