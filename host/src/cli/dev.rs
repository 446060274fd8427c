//! `bulkhead plugin dev`: a host of one's own, and a new version of the plugin whenever its sources change.

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use bulkhead::sources::Source;
use bulkhead_author::{Options, Project};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use super::args::{OperateArguments, PluginCommand};
use super::author::DevArguments;
use super::{EXIT_FAILED, complain, plugins};

/// How often the sources are looked at. A change counts once they stay the same for as long.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// Folders that hold no sources. Names that begin with a dot are passed over as well.
const NO_SOURCES: [&str; 4] = ["target", "node_modules", "__pycache__", "bulkhead-data"];

/// Every source with its time and size.
type Sources = Vec<(PathBuf, Option<SystemTime>, u64)>;

pub(super) async fn run(arguments: DevArguments) -> anyhow::Result<ExitCode> {
    let project = Project::find(&arguments.dir)?;
    let data = arguments.data.clone().unwrap_or_else(|| project.folder.join(".bulkhead-dev"));
    let mut host = start(&data, &arguments.listen)?;
    let mut terminated = signal(SignalKind::terminate())?;
    let ended = tokio::select! {
        status = host.wait() => {
            complain(format_args!("the host ended with {}", status?));
            return Ok(ExitCode::from(EXIT_FAILED));
        }
        _ = terminated.recv() => Ok(()),
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(anyhow::Error::from),
        wrong = follow(&project.folder, &arguments, &data) => wrong,
    };
    stop(&mut host).await?;
    ended.map(|()| ExitCode::SUCCESS)
}

/// The host is a process of its own, as it is for users. Its logs, with what the plugin prints, come out on stderr.
fn start(data: &Path, listen: &str) -> anyhow::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("serve").arg("--listen").arg(listen).arg("--data").arg(data).stdin(Stdio::null()).kill_on_drop(true);
    if std::env::var_os("BULKHEAD_LOG_LEVEL").is_none() {
        command.env("BULKHEAD_LOG_LEVEL", "debug");
    }
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

/// Builds now and after every change. Only a folder that cannot be read ends it: what is wrong with the sources is said, and the
/// version before goes on serving.
async fn follow(folder: &Path, arguments: &DevArguments, data: &Path) -> anyhow::Result<()> {
    until_reachable(data).await;
    loop {
        let built_from = sources(folder)?;
        renew(folder, arguments, data).await?;
        let mut seen = built_from.clone();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = sources(folder)?;
            if now == seen && now != built_from {
                break;
            }
            seen = now;
        }
        complain("the sources have changed");
    }
}

/// A host that never comes up ends, and that is seen elsewhere.
async fn until_reachable(data: &Path) {
    while !matches!(bulkhead::control::client::Client::connect(data).await, Ok(Some(_))) {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Builds, and switches the host to what was built.
async fn renew(folder: &Path, arguments: &DevArguments, data: &Path) -> anyhow::Result<()> {
    let (folder, sdk) = (folder.to_owned(), arguments.sdk.clone());
    let cargo = arguments.cargo.clone();
    let options = Options { sdk, cargo, ..Options::default() };
    let built = tokio::task::spawn_blocking(move || bulkhead_author::build(&folder, &options)).await?;
    let component = match built {
        Ok(component) => component,
        Err(error) => {
            complain(format_args!("{error}; the version before goes on serving"));
            return Ok(());
        }
    };
    let operate = OperateArguments { data: Some(data.to_owned()), config: None, json: false };
    let add =
        PluginCommand::Add { sources: vec![Source::File(component)], name: None, sha256: None, accept: true, operate };
    if let Err(error) = Box::pin(plugins::run(add)).await {
        complain(format_args!("{error:#}; the version before goes on serving"));
    }
    Ok(())
}

fn sources(folder: &Path) -> anyhow::Result<Sources> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).with_context(|| format!("{} cannot be read", folder.display()))?;
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            // What is gone by now is no source any more.
            let Ok(facts) = entry.metadata() else { continue };
            if name.starts_with('.') || name == "Cargo.lock" {
                continue;
            }
            if facts.is_dir() {
                if !NO_SOURCES.contains(&name.as_str()) {
                    folders.push(path);
                }
            } else if path.extension().is_none_or(|extension| extension != "wasm" && extension != "part") {
                found.push((path, facts.modified().ok(), facts.len()));
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_build_writes_is_no_source() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        };
        write("plugin.py");
        let before = sources(folder.path()).unwrap();
        for name in
            ["hello.wasm", "hello.part", "target/x.rs", "node_modules/a/b.js", "__pycache__/plugin.pyc", ".venv/x.py"]
        {
            write(name);
        }
        write(".bulkhead-dev/store");
        assert_eq!(sources(folder.path()).unwrap(), before);
        write("package/more.py");
        assert_eq!(sources(folder.path()).unwrap().len(), 2);
    }
}
