//! `bulkhead doctor`, on a machine where a host runs: that of the suite.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use tests::command;

async fn doctor(folder: &Path, arguments: &[&str]) -> (Option<i32>, Value) {
    let mut bulkhead = command::bulkhead();
    bulkhead.current_dir(folder).args(["doctor", "--json"]).args(arguments).stdin(Stdio::null());
    let output = bulkhead.output().await.expect("the command starts");
    let report = serde_json::from_slice(&output.stdout);
    (output.status.code(), report.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr))))
}

fn verdict<'a>(report: &'a Value, subject: &str) -> (&'a str, String) {
    let findings = report["findings"].as_array().expect("findings");
    let finding = findings.iter().find(|finding| finding["subject"] == subject).expect(subject);
    (finding["verdict"].as_str().expect("a verdict"), finding.to_string())
}

#[tokio::test]
async fn doctor_finds_a_machine_that_hosts_run_on_fit() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, report) = doctor(folder.path(), &["--listen", "127.0.0.1:0", "--data", "data"]).await;
    for subject in ["configuration", "kernel: openat2", "sandbox", "clock: time of day", "data directory", "address"] {
        let (verdict, finding) = verdict(&report, subject);
        assert_eq!(verdict, "ok", "{finding}");
    }
    for finding in report["findings"].as_array().expect("findings") {
        assert_eq!(finding["verdict"] == "ok", finding["remedy"].is_null(), "each has a remedy: {finding}");
    }
    assert_eq!((code, &report["failures"]), (Some(0), &Value::from(0)), "{report}");
    assert!(!folder.path().join("data").exists(), "it makes nothing");
}

#[tokio::test]
async fn doctor_fails_for_a_taken_port_and_a_wrong_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("a mode");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let (code, report) = doctor(folder.path(), &["--listen", &address, "--data", "."]).await;
    assert_eq!(code, Some(1), "{report}");
    assert_eq!(verdict(&report, "address").0, "fail", "{report}");
    let (mode, finding) = verdict(&report, "data directory");
    assert!(mode == "warn" && finding.contains("mode 755"), "{finding}");

    std::fs::write(folder.path().join("bulkhead.toml"), "[limits]\nno_such_key = 1\n").expect("a file");
    let (code, report) = doctor(folder.path(), &["--config", "bulkhead.toml", "--data", "data"]).await;
    let (configuration, finding) = verdict(&report, "configuration");
    assert!(code == Some(1) && configuration == "fail" && finding.contains("no_such_key"), "{report}");
}
