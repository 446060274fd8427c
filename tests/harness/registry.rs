//! A real registry: Debian's `docker-registry`, for the test that starts it.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;

use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::wait::until;

/// Whoever may use a registry that asks: `U*U` is the password of the published test vector that its entry is.
pub const USER: (&str, &str) = ("alice", "U*U");
const ENTRY: &str = "alice:$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n";

/// A registry on a port of this machine. Dropping it stops it; its folder stays until then.
pub struct Registry {
    /// `127.0.0.1:PORT`.
    pub address: String,
    folder: TempDir,
    child: Option<Child>,
}

impl Registry {
    /// Starts an empty registry, or says why a test cannot be run. Where it is required (`XTASK_REGISTRY=required`)
    /// nothing is left out.
    pub async fn start(asks_for_password: bool) -> Option<Self> {
        let is_there = |folder: &Path| folder.join("docker-registry").is_file();
        let path = std::env::var_os("PATH").unwrap_or_default();
        if !std::env::split_paths(&path).any(|folder| is_there(&folder)) {
            let is_required = std::env::var("XTASK_REGISTRY").as_deref() == Ok("required");
            assert!(!is_required, "docker-registry is missing: `apt-get install docker-registry`");
            eprintln!("not run: docker-registry is missing (`apt-get install docker-registry`)");
            return None;
        }
        // Between here and there another program could take the port, but the system hands them out in turn.
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.expect("a free port").to_string();
        let folder = tempfile::Builder::new().prefix("bulkhead-registry-").tempdir().expect("a folder");
        let root = folder.path().join("blobs");
        let mut config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {root:?}}}}}\n\
             http: {{addr: {address:?}}}\n"
        );
        if asks_for_password {
            let passwords = folder.path().join("htpasswd");
            std::fs::write(&passwords, ENTRY).expect("a file");
            writeln!(config, "auth: {{htpasswd: {{realm: tests, path: {passwords:?}}}}}").expect("strings take text");
        }
        std::fs::write(folder.path().join("config.yml"), config).expect("a file");
        let mut registry = Self { address, folder, child: None };
        registry.resume().await;
        Some(registry)
    }

    /// Starts it again with what it had.
    pub async fn resume(&mut self) {
        let log = std::fs::File::create(self.folder.path().join("log")).expect("a file");
        let child = Command::new("docker-registry")
            .arg("serve")
            .arg(self.folder.path().join("config.yml"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file"))
            .stderr(log)
            .kill_on_drop(true)
            .spawn();
        self.child = Some(child.expect("the registry starts"));
        let address = self.address.clone();
        until("the registry to listen", || async { tokio::net::TcpStream::connect(&address).await.ok() }).await;
    }

    /// Nobody answers any more when this returns.
    pub async fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().await.expect("the registry can be stopped");
        }
    }

    /// `oci://127.0.0.1:PORT/REPOSITORY:TAG`.
    pub fn reference(&self, repository_and_tag: &str) -> String {
        format!("oci://{}/{repository_and_tag}", self.address)
    }
}
