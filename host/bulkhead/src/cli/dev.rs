//! `bulkhead plugin dev`: a host of one's own, and a new version of the plugin whenever its sources change.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use bulkhead_author::{Options, Project};
use bulkhead_plugins::sources::Source;
use rustix::process::{Pid, Signal, kill_process};
use sha2::{Digest as _, Sha256};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use super::args::{OperateArguments, PluginCommand};
use super::author::DevArguments;
use super::{EXIT_FAILED, dev_host, plugins, print_error};

/// How often the sources are looked at. A change counts once they stay the same for as long.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// Folders that hold no sources. Names that begin with a dot are passed over as well.
const NO_SOURCES: [&str; 4] = ["target", "node_modules", "__pycache__", "bulkhead-data"];
/// Folders that hold none unless they are below `src`, where they are modules.
const OUTPUTS: [&str; 3] = ["build", "dist", "venv"];
/// What is no source even in a folder `src`.
const LEFTOVER_ENDS: [&str; 9] = ["log", "out", "err", "tmp", "bak", "orig", "swp", "swo", "part"];
/// What components are made of, by the ends of the files' names.
const SOURCE_ENDS: [&str; 12] = ["rs", "py", "pyi", "js", "mjs", "cjs", "ts", "c", "h", "json", "toml", "wit"];

/// Every source with its time and size.
type Sources = Vec<(PathBuf, Option<SystemTime>, u64)>;

pub(super) async fn run(arguments: DevArguments) -> anyhow::Result<ExitCode> {
    let project = Project::find(&arguments.dir)?;
    let data = arguments.data.clone().unwrap_or_else(|| project.folder.join(".bulkhead-dev"));
    if arguments.is_host {
        return dev_host::run(arguments, &data).await;
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
        wrong = follow(&project.folder, &arguments, &data) => wrong,
    };
    stop(&mut host).await?;
    ended.map(|()| ExitCode::SUCCESS)
}

/// The host is a process of its own, as it is for users. What it tells of calls, and what the plugin prints, comes out on stderr.
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

/// Builds now and after every change. Only a folder that cannot be read ends it: what is wrong with the sources is said, and the
/// version before goes on serving.
async fn follow(folder: &Path, arguments: &DevArguments, data: &Path) -> anyhow::Result<()> {
    until_reachable(data).await;
    loop {
        let mut built_from = sources(folder)?;
        let built = contents(&built_from);
        renew(folder, arguments, data).await?;
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
async fn until_reachable(data: &Path) {
    while !matches!(bulkhead_control::client::ControlClient::connect(data).await, Ok(Some(_))) {
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
            print_error(format_args!("{error}; the version before goes on serving"));
            return Ok(());
        }
    };
    let operate = OperateArguments { data: Some(data.to_owned()), ..OperateArguments::default() };
    let add =
        PluginCommand::Add { sources: vec![Source::File(component)], name: None, sha256: None, accept: true, operate };
    if let Err(error) = Box::pin(plugins::run(add)).await {
        print_error(format_args!("{error:#}; the version before goes on serving"));
    }
    Ok(())
}

/// Hashes what is in the sources. Each comes with its length, so that no two of them read like others.
fn contents(sources: &[(PathBuf, Option<SystemTime>, u64)]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for (path, ..) in sources {
        // What cannot be read any more is as good as empty.
        let bytes = std::fs::read(path).unwrap_or_default();
        hash.update(path.as_os_str().as_encoded_bytes());
        hash.update([0]);
        hash.update(bytes.len().to_le_bytes());
        hash.update(bytes);
    }
    hash.finalize().into()
}

fn sources(folder: &Path) -> anyhow::Result<Sources> {
    let mut found = Vec::new();
    let mut folders = vec![(folder.to_owned(), false)];
    while let Some((folder, is_embedded)) = folders.pop() {
        let entries = std::fs::read_dir(&folder).with_context(|| format!("{} cannot be read", folder.display()))?;
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            // What is gone by now is no source any more.
            let Ok(facts) = entry.metadata() else { continue };
            if name.starts_with('.') || name == "Cargo.lock" {
                continue;
            }
            if facts.is_dir() {
                let is_output = !is_embedded && OUTPUTS.contains(&name.as_str());
                if !is_output && !NO_SOURCES.contains(&name.as_str()) {
                    folders.push((path, is_embedded || name == "src"));
                }
            } else if !is_own_log(&facts) && (is_source(&name) || is_embedded && !is_leftover(&name)) {
                found.push((path, facts.modified().ok(), facts.len()));
            }
        }
    }
    found.sort();
    Ok(found)
}

fn is_source(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, end)| SOURCE_ENDS.contains(&end))
}

/// What editors and programs leave beside the files of `src`, of which Rust may embed any other.
fn is_leftover(name: &str) -> bool {
    name.ends_with('~')
        || name.starts_with('#')
        || name.rsplit_once('.').is_some_and(|(_, end)| LEFTOVER_ENDS.contains(&end))
}

/// Whether this process writes the file: its logs, sent there by a shell.
fn is_own_log(facts: &Metadata) -> bool {
    let is_same = |stat: rustix::io::Result<rustix::fs::Stat>| {
        stat.is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (facts.dev(), facts.ino()))
    };
    is_same(rustix::fs::fstat(std::io::stderr())) || is_same(rustix::fs::fstat(std::io::stdout()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str, text: &str) {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn dev_sources_exclude_build_output() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| write(folder.path(), name, "x");
        write("plugin.py");
        let before = sources(folder.path()).unwrap();
        for name in ["hello.wasm", "hello.part", "target/x.rs", "node_modules/a/b.js", "__pycache__/plugin.pyc"] {
            write(name);
        }
        for name in [".venv/x.py", "venv/x.py", "dist/plugin.js", "build/lib/plugin.py", ".bulkhead-dev/store"] {
            write(name);
        }
        assert_eq!(sources(folder.path()).unwrap(), before);
        write("package/more.py");
        write("src/build/mod.rs");
        assert_eq!(sources(folder.path()).unwrap().len(), 3);
    }

    #[test]
    fn dev_sources_exclude_logs_notes_and_editor_files() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| write(folder.path(), name, "x");
        write("Cargo.toml");
        write("src/lib.rs");
        write("src/prompt.txt");
        let before = sources(folder.path()).unwrap();
        assert_eq!(before.len(), 3, "what Rust embeds is a source");
        for name in ["dev.err", "host.log", "notes.md", "TODO", "plugin.py~", "4913", "out.txt", ".plugin.py.swp"] {
            write(name);
        }
        for name in ["src/lib.rs~", "src/#lib.rs#", "src/debug.log", "src/lib.rs.bak"] {
            write(name);
        }
        assert_eq!(sources(folder.path()).unwrap(), before);
    }

    #[test]
    fn dev_source_rewritten_unchanged_is_not_a_change() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "plugin.js", "one");
        let (first, built) = (sources(folder.path()).unwrap(), contents(&sources(folder.path()).unwrap()));
        let later = SystemTime::now() + Duration::from_secs(5);
        std::fs::File::options()
            .write(true)
            .open(folder.path().join("plugin.js"))
            .unwrap()
            .set_modified(later)
            .unwrap();
        let again = sources(folder.path()).unwrap();
        assert_ne!(again, first);
        assert_eq!(contents(&again), built);
        write(folder.path(), "plugin.js", "two");
        assert_ne!(contents(&sources(folder.path()).unwrap()), built);
    }
}
