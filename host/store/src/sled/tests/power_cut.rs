//! The power cut: what was not synced is forgotten.
//!
//! A library preloaded into the writing process keeps a second disk that holds only what was synced. After a kill, that disk
//! must hold everything that was acknowledged. Bytes that were flushed without a sync are gone there, as they are after a real
//! power cut; a control shows that the second disk does forget. Where this user may mount file systems, the same is tried with
//! an ext4 that is shut down without writing its journal.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::writer::{Acknowledged, end_after, kill_after, start, unacknowledged, verify};
use super::{not_run, rounds};
use crate::power_cut;

/// Compiles the library; `None` where there is no C compiler.
pub(super) fn library(dir: &Path) -> Option<PathBuf> {
    power_cut::library(dir).inspect_err(|why| not_run(why)).ok()
}

/// What the second disk holds, as a folder.
pub(super) fn after_the_cut(disk: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    power_cut::restore(disk, folder.path());
    folder
}

/// Two lives after each other, the second one on what the first one had synced.
fn survives_power_cuts(bytes: usize) {
    let tools = tempfile::tempdir().unwrap();
    let Some(library) = library(tools.path()) else { return };
    let (mut dir, mut said) = (tempfile::tempdir().unwrap(), Acknowledged::new());
    for round in 0..rounds(2, 20) {
        let disk = tempfile::tempdir().unwrap();
        let is_second = round % 2 == 1;
        if !is_second {
            (dir, said) = (tempfile::tempdir().unwrap(), Acknowledged::new());
        }
        let child = start(dir.path(), bytes, 1 + u64::from(round) * 1_000_000, |command| {
            command.envs(power_cut::environment(&library, dir.path(), disk.path(), is_second));
        });
        said.extend(kill_after(child, Duration::from_millis(u64::from(100 + round * 211 % 900))));
        dir = after_the_cut(disk.path());
        verify(dir.path(), bytes, &said);
        // The check saw unacknowledged tasks, too; they are not counted again.
        said.retain(|_, last| *last != '-');
        let known = unacknowledged(dir.path(), &said);
        said.extend(known);
    }
}

#[test]
fn small_outputs_survive_a_power_cut() {
    survives_power_cuts(200);
}

#[test]
fn outputs_of_40_kb_survive_a_power_cut() {
    survives_power_cuts(40_000);
}

#[test]
fn outputs_of_200_kb_survive_a_power_cut() {
    survives_power_cuts(200_000);
}

/// The control: sled by itself, without the sync that the committer adds.
#[test]
#[ignore = "the child process of the control"]
fn control_child() {
    let dir = std::env::var("POWER_CUT_ROOT").unwrap();
    let db = ::sled::open(Path::new(&dir).join("plain")).unwrap();
    for number in 0u64.. {
        db.insert(number.to_be_bytes(), vec![7; 200]).unwrap();
        db.flush().unwrap();
        std::io::Write::write_all(&mut std::io::stdout(), format!("\nack c {number}\n").as_bytes()).unwrap();
    }
}

#[test]
fn power_cut_loses_flushes_without_sync() {
    let tools = tempfile::tempdir().unwrap();
    let Some(library) = library(tools.path()) else { return };
    let (dir, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "sled::tests::power_cut::control_child", "--ignored", "--nocapture"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .envs(power_cut::environment(&library, dir.path(), disk.path(), false));
    let said = kill_after(command.spawn().unwrap(), Duration::from_millis(700));
    let kept = after_the_cut(disk.path());
    let kept = std::panic::catch_unwind(|| ::sled::open(kept.path().join("plain")).map_or(0, |db| db.len()));
    let kept = kept.unwrap_or_default();
    assert!(kept < said.len(), "{kept} of {} writes are there: the disk does not forget", said.len());
}

/// An ext4 in a file, mounted; unmounted at the end.
struct Ext4 {
    folder: tempfile::TempDir,
    image: PathBuf,
}

const IMAGE_BYTES: u64 = 160 << 20;

impl Ext4 {
    /// `None` where this user may not mount.
    fn make(tools: &Path) -> Option<Self> {
        let image = tools.join("image");
        fs::File::create(&image).unwrap().set_len(IMAGE_BYTES).unwrap();
        let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image).output();
        let disk = Self { folder: tempfile::tempdir().unwrap(), image };
        (made.is_ok_and(|made| made.status.success()) && disk.mount()).then_some(disk)
    }

    fn mount(&self) -> bool {
        let mounted = Command::new("mount").args(["-o", "loop"]).arg(&self.image).arg(self.folder.path()).output();
        mounted.is_ok_and(|mounted| mounted.status.success())
    }

    fn unmount(&self) {
        // Files of the killed child are closed a moment after it is gone.
        for _ in 0..100 {
            if Command::new("umount").arg(self.folder.path()).output().is_ok_and(|done| done.status.success()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        self.unmount();
    }
}

#[test]
fn store_survives_file_system_shutdown() {
    let tools = tempfile::tempdir().unwrap();
    let shutdown = match power_cut::compile(tools.path(), "shutdown.c", &[]) {
        Ok(made) => made,
        Err(why) => return not_run(&why),
    };
    for (round, bytes) in (0..).zip([200, 40_000, 200_000].repeat(rounds(1, 10) as usize)) {
        let Some(disk) = Ext4::make(tools.path()) else {
            not_run("mounting a file system needs more rights");
            return;
        };
        let dir = disk.folder.path().join("data");
        let time = Duration::from_millis(100 + round * 171 % 500);
        let said = end_after(start(&dir, bytes, 1, |_| {}), time, || {
            let done = Command::new(&shutdown).arg(disk.folder.path()).status().unwrap();
            assert!(done.success(), "the file system was not shut down");
        });
        disk.unmount();
        assert!(disk.mount(), "the file system cannot be mounted again");
        verify(&dir, bytes, &said);
    }
}
