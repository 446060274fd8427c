//! `bulkhead stdio`: MCP on stdin and stdout, and nothing else on stdout.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use bulkhead_assembly::offline::connect;
use bulkhead_assembly::{HostStartup, Origin, ServiceManager, compile_cache, serve_client};
use bulkhead_console::{logging, print_error};
use bulkhead_control::client::ControlClient;
use tokio::io::{AsyncWriteExt as _, copy, stdin, stdout};

use super::source_arguments::SourceArguments;

pub(crate) async fn run(arguments: SourceArguments) -> anyhow::Result<ExitCode> {
    let names_plugins = !arguments.plugins.is_empty() || !arguments.plugin_dirs.is_empty();
    let origin = Origin { flags: arguments.flags(), file: arguments.config, add_grants: None };
    let (config, digest) = origin.read()?;
    let level = logging::start(&config.log);
    let data = &config.server.data.clone();
    // Plugins that were named for this client alone belong into a host of its own, unless it shares a data directory by
    // name.
    if (config.data_named || !names_plugins)
        && let Some(client) = connect(data).await?
    {
        if names_plugins {
            print_error(format_args!(
                "the host at {} is used with its own plugins; those of the flags are not",
                data.display()
            ));
        }
        return forward(client).await;
    }
    let is_shared = config.data_named;
    let grace = Duration::from_millis(config.server.drain_ms);
    let manager = ServiceManager::default();
    let startup = HostStartup { origin, config, digest, level, observe_calls: None, manager, hold_tasks: false };
    if is_shared {
        serve_client(startup, data, None, grace, stdin(), stdout()).await?;
    } else {
        let private = tempfile::tempdir().context("there is no room for a temporary data directory")?;
        // The data goes with this host; the next one need not compile the same plugins again.
        let code = compile_cache::of_user();
        serve_client(startup, private.path(), code, Duration::ZERO, stdin(), stdout()).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Passes bytes between the client and a running host until either is done.
async fn forward(client: ControlClient) -> anyhow::Result<ExitCode> {
    let (mut from_host, mut to_host) = client.attach().await?;
    let inward = async {
        copy(&mut stdin(), &mut to_host).await?;
        // The host answers what is still open, then ends the connection.
        to_host.shutdown().await
    };
    let outward = async {
        let mut stdout = stdout();
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
