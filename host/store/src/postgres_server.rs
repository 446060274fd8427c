//! A PostgreSQL server for tests: Debian's, as an ordinary user, on a socket in a folder of its own.
//!
//! Owns the server's process and its folder; both are gone when the test process is, however that ends. Must not touch
//! a server of the machine. Invariant: it is durable as an operator's has to be, but in memory where the machine has a
//! file system there.

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

/// The server and the libraries that a small machine may lack.
const PACKAGES: [&str; 6] = ["postgresql-15", "libpq5", "libicu72", "libxslt1.1", "libldap-2.5-0", "libxml2"];
/// The user of the server where the tests are root's, as which it does not start.
const NOBODY: u32 = 65_534;
/// A folder with other programs: `initdb` and `postgres`, with what they need beside it.
const PROGRAMS: &str = "XTASK_POSTGRES_PROGRAMS";
/// How long a server may take to start.
const START_MAX: Duration = Duration::from_secs(60);

/// Runs the server until its standard input ends; then it is stopped at once, and all that it wrote goes, unless that
/// is `keep`.
const RUN: &str = r#"
trap '' INT TERM HUP
programs=$1; folder=$2; shift 2
"$programs/postgres" -D "$folder/data" -k "$folder" -c listen_addresses='' -c max_connections=200 "$@" >>"$folder/log" 2>&1 </dev/null &
server=$!
word=
read -r word
kill -QUIT $server 2>/dev/null
kill -CONT $server 2>/dev/null
wait $server
[ "$word" = keep ] || rm -rf "$folder"
"#;

/// See the module.
pub struct PostgresServer {
    programs: PathBuf,
    folder: PathBuf,
    settings: Vec<String>,
    child: Mutex<Option<Child>>,
}

/// The server that the tests of a process share. `None`: there is no PostgreSQL to be had, which is an error where it
/// is required (`XTASK_POSTGRES=required`).
pub fn shared() -> Option<&'static PostgresServer> {
    static SERVER: OnceLock<Option<PostgresServer>> = OnceLock::new();
    SERVER.get_or_init(|| PostgresServer::start(&[])).as_ref()
}

/// A name for a schema that no other test of this process has.
pub fn new_schema() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("t{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

impl PostgresServer {
    /// Starts one with settings like `fsync=off`.
    pub fn start(settings: &[&str]) -> Option<Self> {
        Self::start_with(&[], settings)
    }

    /// The same with files of the server's own beside its data: name and content.
    pub fn start_with(files: &[(&str, &[u8])], settings: &[&str]) -> Option<Self> {
        Self::start_in(&memory(), files, settings)
    }

    /// Starts one whose data is on the disk of a folder that everybody may use, such as `/tmp`.
    pub fn start_on_disk(parent: &Path, settings: &[&str]) -> Option<Self> {
        Self::start_in(parent, &[], settings)
    }

    fn start_in(parent: &Path, files: &[(&str, &[u8])], settings: &[&str]) -> Option<Self> {
        let Some(programs) = programs() else {
            let is_required = std::env::var("XTASK_POSTGRES").as_deref() == Ok("required");
            assert!(!is_required, "`apt-get download postgresql-15` did not work");
            eprintln!("not run: Debian's postgresql-15 is missing, and `apt-get download` did not work");
            return None;
        };
        let folder = folder(parent);
        let initdb = ["-U", "bulkhead", "-E", "UTF8", "--locale=C", "--auth=trust", "--no-sync", "--no-instructions"];
        let made = ordinary(&programs.join("initdb")).arg("-D").arg(folder.join("data")).args(initdb).output();
        let made = made.expect("initdb starts");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        for (name, content) in files {
            let path = folder.join(name);
            std::fs::write(&path, content).expect("a file");
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("a file of its own");
            if rustix::process::geteuid().is_root() {
                chown(&path, Some(NOBODY), Some(NOBODY)).expect("a file of the server's user");
            }
        }
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let server = Self { programs, folder, settings, child: Mutex::new(None) };
        server.run();
        Some(server)
    }

    /// The address of the database that comes with the server, for its owner.
    pub fn address(&self) -> String {
        format!("host={} port={} dbname=postgres user=bulkhead", self.folder.display(), self.port())
    }

    fn port(&self) -> u16 {
        let named = self.settings.iter().find_map(|setting| setting.strip_prefix("port="));
        named.map_or(5_432, |port| port.parse().expect("a port"))
    }

    /// Has its owner carry out a statement.
    pub fn execute(&self, statement: &str) {
        let mut command = ordinary(&self.programs.join("postgres"));
        command.args(["--single", "-D"]).arg(self.folder.join("data")).arg("postgres");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("a server without sessions");
        let input = format!("{statement}\n");
        child.stdin.take().expect("its input").write_all(input.as_bytes()).expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Ends the server as a crash does: nothing is written any more.
    pub fn crash(&self) {
        let mut child = self.child.lock().take().expect("a running server");
        child.stdin.take().expect("its input").write_all(b"keep\n").expect("it reads");
        child.wait().expect("it ends");
    }

    /// `kill -9` of all its processes.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
        self.crash();
    }

    /// Has it stand still: connections stay open, and nothing is answered.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on after a pause.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// The first of its processes stands still before the others are looked for: it begins no further ones.
    fn signal(&self, signal: Signal) {
        let first = self.first_process();
        send(first, Signal::STOP);
        for process in children(first) {
            send(process, signal);
        }
        send(first, signal);
    }

    /// Processor time that all its processes have used, in milliseconds.
    pub fn cpu_ms(&self) -> u64 {
        let first = self.first_process();
        let ticks: u64 =
            cpu_ticks(first, 4) + children(first).into_iter().map(|process| cpu_ticks(process, 2)).sum::<u64>();
        ticks * 1_000 / rustix::param::clock_ticks_per_second()
    }

    fn first_process(&self) -> i32 {
        let file = std::fs::read_to_string(self.folder.join("data/postmaster.pid")).expect("a running server");
        file.lines().next().and_then(|line| line.trim().parse().ok()).expect("a process id")
    }

    /// Starts it, for the first time or after a crash; it answers when this returns.
    pub fn run(&self) {
        let mut command = ordinary(Path::new("sh"));
        command.arg("-c").arg(RUN).arg("sh").arg(&self.programs).arg(&self.folder);
        command.args(self.settings.iter().flat_map(|setting| ["-c", setting.as_str()]));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        *self.child.lock() = Some(command.spawn().expect("a shell"));
        let began = Instant::now();
        while !self.answers() {
            let log = || std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(began.elapsed() < START_MAX, "the server does not start: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether the server takes a session: it answers a request for TLS only once it is up.
    fn answers(&self) -> bool {
        let ready = std::fs::read_to_string(self.folder.join("data/postmaster.pid")).unwrap_or_default();
        ready.lines().any(|line| line.trim() == "ready")
            && UnixStream::connect(self.folder.join(format!(".s.PGSQL.{}", self.port()))).is_ok()
    }

    /// Lines for `pg_hba.conf` in place of its own.
    pub fn set_access(&self, lines: &str) {
        let path = self.folder.join("data/pg_hba.conf");
        std::fs::write(path, lines).expect("a file");
        send(self.first_process(), Signal::HUP);
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.lock().take() {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}

fn send(process: i32, signal: Signal) {
    // One that has just ended takes no signal.
    let _ = kill_process(Pid::from_raw(process).expect("a process id"), signal);
}

fn children(process: i32) -> Vec<i32> {
    let listed = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    listed.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// The sum of so many of: its own time, in the kernel, and both of its children that have ended.
fn cpu_ticks(process: i32, times: usize) -> u64 {
    /// Where they stand behind the name of the program.
    const FIRST: usize = 11;
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(FIRST).take(times).filter_map(|field| field.parse::<u64>().ok()).sum()
}

/// A command as an ordinary user, with the libraries of the unpacked packages.
fn ordinary(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir("/").env("LD_LIBRARY_PATH", unpacked().join("usr/lib/x86_64-linux-gnu"));
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

fn memory() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}

/// A new folder that the server's user may write to.
fn folder(parent: &Path) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = parent.join(format!("bulkhead-postgres-{}-{number}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).expect("a folder");
    if rustix::process::geteuid().is_root() {
        chown(&folder, Some(NOBODY), Some(NOBODY)).expect("a folder of the server's user");
    }
    folder
}

fn unpacked() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/postgresql")
}

/// The folder with `initdb` and `postgres`: one that is named, those of the machine, or Debian's packages unpacked
/// below `target`.
fn programs() -> Option<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    if let Some(named) = std::env::var_os(PROGRAMS) {
        let named = PathBuf::from(named);
        assert!(named.join("initdb").is_file(), "{PROGRAMS}: {} has no initdb", named.display());
        return Some(named);
    }
    let _turn = ONE_AT_A_TIME.lock();
    let installed = PathBuf::from("/usr/lib/postgresql/15/bin");
    let own = unpacked().join("usr/lib/postgresql/15/bin");
    [installed, own.clone()]
        .into_iter()
        .find(|folder| folder.join("initdb").is_file())
        .or_else(|| unpack(&unpacked()).filter(|()| own.join("initdb").is_file()).map(|()| own))
}

/// Needs no root: the packages are only unpacked, and their programs are whole.
fn unpack(target: &Path) -> Option<()> {
    let aside = target.with_extension(format!("new-{}", std::process::id()));
    std::fs::create_dir_all(&aside).ok()?;
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&aside).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().ok().filter(std::process::ExitStatus::success)
    };
    let download: Vec<&str> = ["download", "-o", "APT::Sandbox::User=root"].into_iter().chain(PACKAGES).collect();
    let unpacked = run("apt-get", &download).and_then(|_| {
        let packages: Vec<_> = std::fs::read_dir(&aside).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
        packages
            .iter()
            .try_for_each(|package| run("dpkg-deb", &["--extract", package.to_str()?, "unpacked"]).map(drop))?;
        // Another test run may have been faster.
        let _ = std::fs::rename(aside.join("unpacked"), target);
        Some(())
    });
    let _ = std::fs::remove_dir_all(&aside);
    unpacked
}
