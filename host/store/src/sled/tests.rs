//! Crashes, damage and full disks, with the real engine on a real file system.
//!
//! `XTASK_TEST_MODE=nightly` runs more rounds of each.

mod copies;
mod crash;
mod damage;
mod full_disk;
mod journals;
mod power_cut;
mod sealed;
mod starts;
mod unreleased;
mod writer;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::{ProbeMode, SledOptions, SledStore};

/// Options for tests: the test binary cannot be its own probe, and no test needs room to spare.
pub(super) fn options(dir: &Path) -> SledOptions {
    SledOptions {
        probe: ProbeMode::InProcess,
        ballast_bytes: 0,
        free_bytes_min: 1 << 20,
        retry_every: std::time::Duration::from_millis(20),
        ..SledOptions::new(dir)
    }
}

fn open(dir: &Path) -> Arc<SledStore> {
    SledStore::open(options(dir)).unwrap()
}

pub(super) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// How often something random is tried.
pub(super) fn rounds(gate: u32, nightly: u32) -> u32 {
    let mode = std::env::var("XTASK_TEST_MODE").unwrap_or_default();
    if mode == "nightly" { nightly } else { gate }
}

pub(super) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Says on the real standard error, past the test harness, that something could not be tried here.
fn not_run(why: &str) {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    // If nobody listens there is nobody to tell.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("NOT RUN: {name}: {why}\n").as_bytes());
}
