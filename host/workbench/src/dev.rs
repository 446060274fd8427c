//! `bulkhead plugin dev`: a host of one's own, and a new version of the plugin whenever its sources change.

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use bulkhead_author::{Options, Project};
use bulkhead_author_cli::progress::{self, Place};
use bulkhead_author_cli::{EXIT_FAILED, build_project};
use bulkhead_console::{PROGRAM, print_error};
use bulkhead_control::client::ControlClient;
use bulkhead_control::commands::DrainShow;
use bulkhead_control::{ControlError, Operator as _};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use super::dev_host::{self, DevArguments};
use super::source_files::{contents, sources};

/// How often the sources are looked at. A change counts once they stay the same for as long.
const LOOK_EVERY: Duration = Duration::from_millis(300);

pub(super) async fn run(
    arguments: DevArguments,
    install: impl AsyncFn(&Path, PathBuf) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    let project = Project::find(&arguments.dir)?;
    let data = arguments.data.clone().unwrap_or_else(|| project.folder.join(".bulkhead-dev"));
    if arguments.is_host {
        Box::pin(dev_host::run(arguments, &data)).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut host = start(&data, &arguments)?;
    let mut terminated = signal(SignalKind::terminate())?;
    let ended = tokio::select! {
        status = host.wait() => {
            print_error(format_args!("the host ended with {}", status?));
            return Ok(ExitCode::from(EXIT_FAILED));
        }
        _ = terminated.recv() => Ok(()),
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(anyhow::Error::from),
        wrong = follow(&project.folder, &arguments, &data, &install) => wrong,
    };
    stop(&mut host).await?;
    ended.map(|()| ExitCode::SUCCESS)
}

/// The host is a process of its own, as it is for users. What it tells of calls, and what the plugin prints, comes out
/// on stderr.
fn start(data: &Path, arguments: &DevArguments) -> anyhow::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["plugin", "dev", "--host"]).arg(&arguments.dir).arg("--data").arg(data);
    for (flag, file) in [("--config", &arguments.config), ("--answers", &arguments.answers)] {
        if let Some(file) = file {
            command.arg(flag).arg(file);
        }
    }
    command.args(arguments.listen.iter().flat_map(|listen| ["--listen", listen]));
    command.args(arguments.grants.to_arguments()).stdin(Stdio::null()).kill_on_drop(true);
    command.spawn().context("the host does not start")
}

async fn stop(host: &mut Child) -> anyhow::Result<()> {
    if let Some(pid) = host.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)) {
        // Ctrl-C in a terminal has reached it already; a second word does no harm.
        let _ = kill_process(pid, Signal::TERM);
    }
    host.wait().await?;
    Ok(())
}

/// Builds now and after every change. Only a folder that cannot be read ends it: what is wrong with the sources is
/// said, and the version before goes on serving.
async fn follow(
    folder: &Path,
    arguments: &DevArguments,
    data: &Path,
    install: &impl AsyncFn(&Path, PathBuf) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let starting = || "starting the host".to_owned();
    progress::during(Place::Lines(PROGRAM), starting, until_serving(data)).await;
    loop {
        let mut built_from = sources(folder)?;
        let built = contents(&built_from);
        renew(folder, arguments, data, install).await?;
        let mut seen = built_from.clone();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = sources(folder)?;
            if now == seen && now != built_from {
                if contents(&now) != built {
                    break;
                }
                // Written again as they were, perhaps by the build itself.
                built_from.clone_from(&now);
            }
            seen = now;
        }
        print_error("the sources have changed");
    }
}

/// A host that never comes up ends, and that is seen elsewhere.
async fn until_serving(data: &Path) {
    loop {
        if let Ok(Some(host)) = ControlClient::connect(data).await
            && !matches!(host.execute(DrainShow {}).await, Err(ControlError::Starting(_)))
        {
            return;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Builds, and switches the host to what was built.
async fn renew(
    folder: &Path,
    arguments: &DevArguments,
    data: &Path,
    install: &impl AsyncFn(&Path, PathBuf) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let sdk = arguments.sdk.clone();
    let cargo = arguments.cargo.clone();
    let options = Options { sdk, cargo, ..Options::default() };
    let installed = match build_project(folder.to_owned(), options, PROGRAM).await? {
        Ok(component) => install(data, component).await.map_err(|error| format!("{error:#}")),
        Err(error) => Err(error.to_string()),
    };
    if let Err(why) = installed {
        print_error(format_args!("{why}; the version before goes on serving"));
    }
    Ok(())
}
