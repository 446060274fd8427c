//! A host for one client that has started it, over the process's own streams.

use std::path::Path;
use std::time::Duration;

use bulkhead_runtime::CodeCacheConfig;
use bulkhead_transport::stdio;
use tokio::io::{Stdin, Stdout};

use super::host::{Host, open_store};
use super::progress;
use super::reload::HostStartup;
use super::serve::stop_signal;

/// What running tasks get after the client has closed the input: it waits for the end of the process, and kills it
/// soon. Tasks that wait for their turn are there for the next client; one that runs has to be finished by then, or is
/// interrupted as in any stop.
const EOF_DRAIN: Duration = Duration::from_millis(200);

/// Runs a host for this one client. Others with the same data directory come in through its control socket. `grace` is
/// what running calls get after a signal.
pub async fn serve_client(
    startup: HostStartup,
    data: &Path,
    code: Option<CodeCacheConfig>,
    grace: Duration,
    stdin: Stdin,
    stdout: Stdout,
) -> anyhow::Result<()> {
    let stop = stop_signal()?;
    let engine = progress::logged(|| "opening the store".to_owned(), open_store(&startup.config, data)).await?;
    let host = Host::start(&startup.config, data, code, engine, None, startup.hold_tasks).await?;
    // Whoever can use this host's pipe or socket is let in without a token.
    let (_, reloading) = startup.follow(&host, Vec::new())?;
    let operator = host.operator(host.identity.clone(), reloading);
    host.serve_operators(operator);
    let requestor = host.principals.local_requestor().await?;
    let options = host.stdio_options();
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
    Ok(())
}
