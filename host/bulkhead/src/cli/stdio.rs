//! `bulkhead stdio`: MCP on stdin and stdout, and nothing else on stdout.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use bulkhead_config::Insecure;
use bulkhead_control::client::ControlClient;
use bulkhead_runtime::CodeCacheConfig;
use bulkhead_transport::stdio;
use tokio::io::{AsyncWriteExt as _, copy};

use super::args::SourceArguments;
use super::host::{Host, open_store};
use super::reload::{HostStartup, Origin};
use super::serve::stop_signal;
use super::service_manager::ServiceManager;
use super::{compile_cache, logging, print_error, progress};

/// What running tasks get after the client has closed the input: it waits for the end of the process, and kills it soon. Tasks that
/// wait for their turn are there for the next client; one that runs has to be finished by then, or is interrupted as in any stop.
const EOF_DRAIN: Duration = Duration::from_millis(200);

pub(crate) async fn run(arguments: SourceArguments) -> anyhow::Result<ExitCode> {
    let origin = Origin { sources: arguments.clone(), listen: None, insecure: Insecure::default(), granted: None };
    let (config, digest) = origin.read()?;
    let level = logging::start(&config.log);
    let manager = ServiceManager::default();
    let data = &config.server.data.clone();
    let names_plugins = !arguments.plugins.is_empty() || !arguments.plugin_dirs.is_empty();
    // Plugins that were named for this client alone belong into a host of its own, unless it shares a data directory by name.
    if config.data_named || !names_plugins {
        let client = ControlClient::connect(data).await;
        if let Some(client) = client.with_context(|| format!("the host at {} cannot be reached", data.display()))? {
            if names_plugins {
                print_error(format_args!(
                    "the host at {} is used with its own plugins; those of the flags are not",
                    data.display()
                ));
            }
            return forward(client).await;
        }
    }
    if config.data_named {
        let grace = Duration::from_millis(config.server.drain_ms);
        return own(HostStartup { origin, config, digest, level, told: None, manager }, data, None, grace).await;
    }
    let private = tempfile::tempdir().context("there is no room for a temporary data directory")?;
    // The data goes with this host; the next one need not compile the same plugins again.
    let code = compile_cache::of_user();
    own(HostStartup { origin, config, digest, level, told: None, manager }, private.path(), code, Duration::ZERO).await
}

/// Passes bytes between the client and a running host until either is done.
async fn forward(client: ControlClient) -> anyhow::Result<ExitCode> {
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

/// Runs a host for this one client. Others with the same data directory come in through its control socket. `grace` is what running
/// calls get after a signal.
async fn own(
    beginning: HostStartup,
    data: &Path,
    code: Option<CodeCacheConfig>,
    grace: Duration,
) -> anyhow::Result<ExitCode> {
    let stop = stop_signal()?;
    let store = progress::logged(|| "opening the store".to_owned(), open_store(&beginning.config, data)).await?;
    let host = Host::start(&beginning.config, data, code, store, None).await?;
    // Whoever can use this host's pipe or socket is let in without a token.
    let (_, reloading) = beginning.follow(&host, Vec::new())?;
    let operator = host.operator(data, reloading);
    host.serve_operators(operator);
    let requestor = host.principals.local_requestor().await?;
    let options = host.stdio_options();
    let stdin = tokio::io::stdin();
    let stdout = tokio::io::stdout();
    let mut serving = Box::pin(stdio::serve(host.protocol.clone(), requestor, stdin, stdout, options));
    let served = tokio::select! {
        served = &mut serving => Some(served),
        () = stop => None,
    };
    match served {
        Some(served) => {
            served?;
            host.stop(grace.min(EOF_DRAIN)).await?;
        }
        None => {
            // What is open is answered. The client may be gone, so that nothing can be written to it any more.
            let (_, stopped) = tokio::join!(serving, host.stop(grace));
            stopped?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
