//! `bulkhead stdio`: MCP on stdin and stdout, and nothing else on stdout.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use bulkhead::config::Config;
use bulkhead::control::client::Client;
use bulkhead::transport::stdio;
use tokio::io::{AsyncWriteExt as _, copy};

use super::args::SourceArguments;
use super::host::{Host, open_store};
use super::serve::stop_signal;
use super::{complain, logging, sources};

pub(crate) async fn run(arguments: SourceArguments) -> anyhow::Result<ExitCode> {
    let config = sources::load(&arguments, None)?;
    logging::start(&config.log);
    let data = &config.server.data;
    let names_plugins = !arguments.plugins.is_empty() || !arguments.plugin_dirs.is_empty();
    // Plugins that were named for this client alone belong into a host of its own, unless it shares a data directory by name.
    if config.data_named || !names_plugins {
        let client = Client::connect(data).await;
        if let Some(client) = client.with_context(|| format!("the host at {} cannot be reached", data.display()))? {
            if names_plugins {
                complain(format_args!(
                    "the host at {} is used with its own plugins; those of the flags are not",
                    data.display()
                ));
            }
            return forward(client).await;
        }
    }
    if config.data_named {
        // Tasks of a data directory with a name can be fetched by the next client: they may finish.
        return own(&config, data, Duration::from_millis(config.server.drain_ms)).await;
    }
    let private = tempfile::tempdir().context("there is no room for a temporary data directory")?;
    own(&config, private.path(), Duration::ZERO).await
}

/// Passes bytes between the client and a running host until either is done.
async fn forward(client: Client) -> anyhow::Result<ExitCode> {
    let (mut from_host, mut to_host) = client.attach().await?;
    let inward = async {
        copy(&mut tokio::io::stdin(), &mut to_host).await?;
        // The host answers what is still open, then ends the connection.
        to_host.shutdown().await
    };
    let outward = async {
        let mut stdout = tokio::io::stdout();
        copy(&mut from_host, &mut stdout).await?;
        stdout.flush().await
    };
    tokio::pin!(outward);
    tokio::select! {
        done = &mut outward => done?,
        done = inward => {
            done?;
            outward.await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a host for this one client. Others with the same data directory come in through its control socket.
async fn own(config: &Config, data: &Path, grace: Duration) -> anyhow::Result<ExitCode> {
    let stop = stop_signal()?;
    let mut host = Host::start(config, data, open_store(config, data).await?).await?;
    host.listen_to_operators(data)?;
    let requestor = host.principals.local_requestor().await?;
    let serving =
        stdio::serve(host.protocol.clone(), requestor, tokio::io::stdin(), tokio::io::stdout(), host.stdio_options());
    tokio::select! {
        served = serving => served?,
        () = stop => {}
    }
    host.stop(grace).await?;
    Ok(ExitCode::SUCCESS)
}
