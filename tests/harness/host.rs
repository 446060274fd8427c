//! A host as an operator runs it: the program, a data directory, a configuration, signals.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{Mutex, MutexGuard};

use crate::command;
use crate::place;
use crate::store_engine;
use crate::wait::{PATIENCE, soon};

/// A component of this size holds the runtime of a language, and takes a processor half a minute to compile.
const LARGE_COMPONENT_BYTES: u64 = 4 << 20;
/// What compiling some of them may take on a machine that does other things as well.
const COMPILING: Duration = Duration::from_secs(900);

/// The large components whose shared code is there. The lock is held while a host compiles others: hosts that start
/// beside each other would each compile the same.
static COMPILED: Mutex<BTreeSet<PathBuf>> = Mutex::const_new(BTreeSet::new());

/// What a host is started with. Clones share the data directory: that is how a restart is written.
#[derive(Clone)]
pub struct Setup {
    program: PathBuf,
    folder: Arc<TempDir>,
    sections: String,
    plugins: String,
    components: Vec<PathBuf>,
    environment: Vec<(String, String)>,
    arguments: Vec<String>,
    shares_code: bool,
}

impl Setup {
    /// An empty data directory and no plugin.
    pub fn new() -> Self {
        let folder =
            Arc::new(tempfile::Builder::new().prefix(store_engine::FOLDER_PREFIX).tempdir().expect("a folder"));
        Self {
            program: place::host_binary().to_path_buf(),
            folder,
            sections: String::new(),
            plugins: String::new(),
            components: Vec::new(),
            environment: Vec::new(),
            arguments: Vec::new(),
            shares_code: true,
        }
    }

    /// With these of the built components.
    pub fn with(plugins: &[&str]) -> Self {
        plugins.iter().fold(Self::new(), |setup, name| setup.plugin(name, ""))
    }

    /// Another build of the host.
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = program.into();
        self
    }

    /// Sections of the configuration, such as `[limits]` with its keys.
    pub fn config(mut self, toml: &str) -> Self {
        self.sections.push_str(toml);
        self.sections.push('\n');
        self
    }

    /// One more component; `toml` are further keys and tables of its entry.
    pub fn plugin(self, name: &str, toml: &str) -> Self {
        self.plugin_as(name, name, toml)
    }

    /// The same under another name, for having one component more than once.
    pub fn plugin_as(mut self, name: &str, component: &str, toml: &str) -> Self {
        let file = place::component(component);
        // Its faults are what a test wants to see, however many come in a row.
        let faults =
            if component == "hostile" && !toml.contains("quarantine_after") { "quarantine_after = 0\n" } else { "" };
        writeln!(self.plugins, "[[plugin]]\nname = {name:?}\nfile = {file:?}\n{faults}{toml}")
            .expect("strings take text");
        self.components.push(file);
        self
    }

    /// Compiles its components itself, for tests of just that, and of what a whole data directory holds. Other hosts
    /// share with each other what was compiled once: it takes seconds.
    pub fn own_code(mut self) -> Self {
        self.shares_code = false;
        self
    }

    /// An environment variable of the host.
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.environment.push((key.to_owned(), value.to_owned()));
        self
    }

    /// One more argument.
    pub fn argument(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// A file beside the data directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `bulkhead` with this setup's configuration and data directory.
    pub fn command(&self, subcommand: &str) -> Command {
        let config = self.path("bulkhead.toml");
        let names_store = self.sections.contains("[store]");
        let store = if names_store { String::new() } else { store_engine::section(self.folder.path()) };
        let text = format!("{}{store}{}", self.sections, self.plugins);
        std::fs::write(&config, text).expect("the configuration is written");
        if self.shares_code {
            self.link_code();
        }
        let mut command = command::program(&self.program);
        command.arg(subcommand).arg("--config").arg(config).arg("--data").arg(self.data());
        command.envs(self.environment.iter().map(|(key, value)| (key, value))).args(&self.arguments);
        command
    }

    /// `bulkhead serve` with this setup.
    pub fn serve(&self) -> Command {
        let mut command = self.command("serve");
        command.arg("--listen").arg("127.0.0.1:0");
        command
    }

    /// Links the code that all tests share into a data directory that has none of its own.
    fn link_code(&self) {
        let data = self.data();
        DirBuilder::new().recursive(true).mode(0o700).create(&data).expect("a data directory");
        for name in ["cache", "cache.key"] {
            match symlink(place::compiled_code().join(name), data.join(name)) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => panic!("{name} cannot be linked: {error}"),
                _ => {}
            }
        }
    }

    /// The large components of this setup that no host has compiled yet, with the right to be the one that does.
    async fn to_compile(&self) -> Option<(MutexGuard<'static, BTreeSet<PathBuf>>, Vec<PathBuf>)> {
        let is_large = |file: &&PathBuf| file.metadata().is_ok_and(|facts| facts.len() >= LARGE_COMPONENT_BYTES);
        let mut large: Vec<_> = self.components.iter().filter(is_large).cloned().collect();
        if !self.shares_code || large.is_empty() {
            return None;
        }
        let compiled = COMPILED.lock().await;
        large.retain(|file| !compiled.contains(file));
        (!large.is_empty()).then_some((compiled, large))
    }

    /// Starts a host and waits until it says where it listens.
    pub async fn start(&self) -> Host {
        self.start_within(PATIENCE).await
    }

    /// The same for a host that has much to compile.
    pub async fn start_within(&self, patience: Duration) -> Host {
        let log = self.path("log");
        let started = self.start_or_end(patience).await;
        started.unwrap_or_else(|line| panic!("the host said {line:?}; its log:\n{}", read(&log)))
    }

    /// The same for a host that may end before it listens: what it said instead.
    pub async fn start_or_end(&self, patience: Duration) -> Result<Host, Option<String>> {
        let to_compile = self.to_compile().await;
        let patience = if to_compile.is_some() { patience.max(COMPILING) } else { patience };
        let log = self.path("log");
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&log).expect("a log file");
        let mut child = self
            .serve()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(file)
            .kill_on_drop(true)
            .spawn()
            .expect("the host starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let line = tokio::time::timeout(patience, lines.next_line()).await.expect("the host to listen in time");
        let line = line.expect("stdout can be read");
        let url = line.as_deref().and_then(|line| line.strip_prefix("bulkhead: listening on ")).map(str::to_owned);
        let Some(url) = url else { return Err(line) };
        if let Some((mut compiled, large)) = to_compile {
            compiled.extend(large);
        }
        // Nothing else may come on stdout; who waits for the host reads the rest.
        let rest = tokio::spawn(async move {
            let mut rest = Vec::new();
            while let Ok(Some(line)) = lines.next_line().await {
                rest.push(line);
            }
            rest
        });
        Ok(Host { url, setup: self.clone(), child, rest })
    }

    /// Starts a host that must not come up; its exit code and what it said on stderr.
    pub async fn refused(&self) -> (Option<i32>, String) {
        let output = soon("the host to give up", self.serve().stdin(Stdio::null()).kill_on_drop(true).output()).await;
        let output = output.expect("the host starts");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "a host that does not serve says nothing on stdout");
        assert!(!output.status.success(), "the host went away with success");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// A new bearer token.
    pub async fn token(&self, requestor: &str, tenant: &str) -> String {
        let data = self.data();
        let arguments = ["token", "create", "--requestor", requestor, "--tenant", tenant, "--data"];
        let said = command::run(&mut command::bulkhead(), &arguments, Some(&data)).await;
        said.split_whitespace().last().expect("a token").to_owned()
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self::new()
    }
}

/// A host that serves. Dropping it kills it.
pub struct Host {
    /// The MCP endpoint.
    pub url: String,
    pub setup: Setup,
    child: Child,
    rest: tokio::task::JoinHandle<Vec<String>>,
}

impl Host {
    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id().expect("the host runs")
    }

    /// An address of the host outside of MCP, such as `/readyz`.
    pub fn address(&self, path: &str) -> String {
        format!("{}{path}", self.url.strip_suffix("/mcp").expect("the endpoint is /mcp"))
    }

    /// Whether the process is still there.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("the host can be waited for").is_none()
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, signal).expect("the host can be signalled");
    }

    /// `kill -9`, and nobody answers any more when this returns.
    pub async fn kill(mut self) -> Setup {
        self.signal(Signal::KILL);
        soon("the host to be gone", self.child.wait()).await.expect("the host can be waited for");
        self.setup.clone()
    }

    /// `SIGTERM`, and the end of a drain.
    pub async fn terminate(mut self) -> (ExitStatus, Setup) {
        self.signal(Signal::TERM);
        let status = soon("the host to drain", self.child.wait()).await.expect("the host can be waited for");
        let rest = self.rest.await.expect("stdout can be read");
        assert_eq!(rest, Vec::<String>::new(), "the host says one line on stdout");
        (status, self.setup)
    }

    /// `SIGTERM` without waiting.
    pub fn ask_to_stop(&self) {
        self.signal(Signal::TERM);
    }

    /// What the host has logged so far.
    pub fn log(&self) -> String {
        read(&self.setup.path("log"))
    }

    /// Processor time used so far, in milliseconds, by all threads.
    pub fn cpu_ms(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("the process is there");
        // The fields after the command's name, which may hold spaces: state is the first, utime and stime are 12th and
        // 13th.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or_default();
        let per_second = rustix::param::clock_ticks_per_second();
        (ticks(11) + ticks(12)) * 1000 / per_second
    }

    /// Processor time that it uses from now on for a while, in milliseconds.
    pub async fn cpu_ms_in(&self, time: Duration) -> u64 {
        let before = self.cpu_ms();
        tokio::time::sleep(time).await;
        self.cpu_ms() - before
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
