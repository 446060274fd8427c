//! A real Prometheus: Debian's package, unpacked below `target/prometheus`, for the test that starts it.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::place;
use crate::wait::until;

/// The folder with `prometheus` and `promtool`, or the reason why a test cannot be run. Where they are required
/// (`XTASK_PROMETHEUS=required`) nothing is left out.
pub async fn programs() -> Option<PathBuf> {
    static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _turn = ONE_AT_A_TIME.lock().await;
    let folder = place::root().join("target/prometheus");
    let programs = folder.join("usr/bin");
    if programs.join("promtool").is_file() || unpack(&folder).await.is_some() {
        return Some(programs);
    }
    let is_required = std::env::var("XTASK_PROMETHEUS").as_deref() == Ok("required");
    assert!(!is_required, "`apt-get download prometheus` did not work");
    eprintln!("not run: Debian's prometheus is missing, and `apt-get download prometheus` did not work");
    None
}

/// Needs no root: the package is only unpacked, and its programs are whole.
async fn unpack(folder: &Path) -> Option<()> {
    let aside = tempfile::Builder::new().prefix("prometheus-").tempdir_in(folder.parent()?).ok()?;
    let run = async |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(aside.path()).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null()).status().await.ok().filter(std::process::ExitStatus::success)
    };
    run("apt-get", &["download", "prometheus"]).await?;
    let package = std::fs::read_dir(aside.path()).ok()?.find_map(|entry| entry.ok())?.path();
    run("dpkg-deb", &["--extract", package.to_str()?, "unpacked"]).await?;
    // Another test run may have been faster.
    let _ = std::fs::rename(aside.path().join("unpacked"), folder);
    folder.join("usr/bin/promtool").is_file().then_some(())
}

/// A Prometheus that scrapes one target every second. Dropping it stops it.
pub struct Prometheus {
    address: String,
    _folder: TempDir,
    _child: Child,
}

impl Prometheus {
    /// Starts one from the folder of the [`programs`]; `target` is `127.0.0.1:PORT`.
    pub async fn start(programs: &Path, target: &str) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.expect("a free port").to_string();
        let folder = tempfile::Builder::new().prefix("bulkhead-prometheus-").tempdir().expect("a folder");
        let config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\n\
             scrape_configs: [{{job_name: bulkhead, static_configs: [{{targets: ['{target}']}}]}}]\n"
        );
        std::fs::write(folder.path().join("prometheus.yml"), config).expect("a file");
        let log = std::fs::File::create(folder.path().join("log")).expect("a file");
        let child = Command::new(programs.join("prometheus"))
            .arg(format!("--config.file={}", folder.path().join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--enable-feature=exemplar-storage")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file"))
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("prometheus starts");
        let prometheus = Self { address, _folder: folder, _child: child };
        until("prometheus to be ready", || async { prometheus.get("/api/v1/targets").await }).await;
        prometheus
    }

    /// What its API says; `None` while it cannot be asked.
    pub async fn get(&self, path: &str) -> Option<Value> {
        ask(&format!("http://{}{path}", self.address)).await
    }

    /// What it answers to a query in PromQL.
    pub async fn query(&self, query: &str) -> Value {
        let url = format!("http://{}/api/v1/query", self.address);
        let url = reqwest::Url::parse_with_params(&url, [("query", query)]).expect("an address");
        ask(url.as_str()).await.unwrap_or_else(|| panic!("no answer to {query}"))
    }
}

async fn ask(url: &str) -> Option<Value> {
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    http.get(url).send().await.ok()?.json().await.ok()
}
