//! The power cut: what was not synced is forgotten.
//!
//! A library preloaded into the writing process keeps a second disk that holds only what was synced. After a kill, that
//! disk must hold everything that was acknowledged. Bytes that were flushed without a sync are gone there, as they are
//! after a real power cut; a control shows that the second disk does forget. Where this user may mount file systems,
//! the same is tried with an ext4 that is shut down without writing its journal.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::writer::{ACKNOWLEDGEMENTS_MIN, Acknowledged, end_after, kill_after, start, unacknowledged, verify};
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

/// How long a child may take to begin.
const BEGIN_TRIES: u32 = 12_000;
const BEGIN_WAIT: Duration = Duration::from_millis(5);

/// A process that writes until its power is cut, and what the next one finds.
struct Life {
    bytes: usize,
    first_task: u64,
    /// How long it writes after its first acknowledgements.
    time: Duration,
    /// Whether some writes reach the disk without a sync.
    early: bool,
    /// The power goes with a write that overtook so many others.
    cut_at: Option<u32>,
}

impl Life {
    /// Lives in a folder, and gives the folder after the power cut. Everything that was acknowledged by now is in it.
    fn live(self, library: &Path, dir: &Path, said: &mut Acknowledged) -> tempfile::TempDir {
        let disk = tempfile::tempdir().unwrap();
        let child = start(dir, self.bytes, self.first_task, |command| {
            command.envs(power_cut::environment(library, dir, disk.path(), self.early));
            command.envs(self.cut_at.map(|overtakings| ("POWER_CUT_AT", overtakings.to_string())));
        });
        let begun = (0..BEGIN_TRIES).any(|_| {
            std::thread::sleep(BEGIN_WAIT);
            disk.path().join("names").exists()
        });
        assert!(begun, "the child does not begin");
        // It may end by itself, before its first acknowledgement.
        let acknowledgements_min = if self.cut_at.is_some() { 0 } else { ACKNOWLEDGEMENTS_MIN };
        said.extend(end_after(child, acknowledgements_min, self.time, || {}));
        let dir = after_the_cut(disk.path());
        verify(dir.path(), self.bytes, said);
        // The check saw unacknowledged tasks, too; they are not counted again.
        said.retain(|_, last| *last != '-');
        let known = unacknowledged(dir.path(), said);
        said.extend(known);
        dir
    }
}

/// Two lives after each other, the second one on what the first one had synced.
fn survives_power_cuts(bytes: usize) {
    let tools = tempfile::tempdir().unwrap();
    let Some(library) = library(tools.path()) else { return };
    let mut dir = tempfile::tempdir().unwrap();
    let mut said = Acknowledged::new();
    for round in 0..rounds(2, 20) {
        let is_second = round % 2 == 1;
        if !is_second {
            (dir, said) = (tempfile::tempdir().unwrap(), Acknowledged::new());
        }
        let time = Duration::from_millis(u64::from(100 + round * 211 % 900));
        let first_task = 1 + u64::from(round) * 1_000_000;
        let life = Life { bytes, first_task, time, early: is_second, cut_at: None };
        dir = life.live(&library, dir.path(), &mut said);
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

/// Lives after each other in one folder.
const LIVES: u32 = 12;

/// The engine moves rows to write anew where they were: where they are now has to be on the disk before.
#[test]
fn moved_rows_survive_a_power_cut() {
    let tools = tempfile::tempdir().unwrap();
    let Some(library) = library(tools.path()) else { return };
    let mut dir = tempfile::tempdir().unwrap();
    let mut said = Acknowledged::new();
    for round in 0..rounds(LIVES, 8 * LIVES) {
        if round % LIVES == 0 {
            (dir, said) = (tempfile::tempdir().unwrap(), Acknowledged::new());
        }
        let first_task = 1 + u64::from(round) * 1_000_000;
        let time = Duration::from_millis(600);
        let cut_at = Some(1 + round % 6);
        let life = Life { bytes: 40_000, first_task, time, early: true, cut_at };
        dir = life.live(&library, dir.path(), &mut said);
    }
}

/// The control: a file is written, and never synced.
#[test]
#[ignore = "the child process of the control"]
fn unsynced_child() {
    let dir = std::env::var("POWER_CUT_ROOT").unwrap();
    let mut file = fs::File::create(Path::new(&dir).join("plain")).unwrap();
    for number in 0u64.. {
        writeln!(file, "{number}").unwrap();
        file.flush().unwrap();
        say(number);
    }
}

/// sled by itself, without anything of the committer.
#[test]
#[ignore = "the child process of the test of the engine"]
fn engine_child() {
    let dir = std::env::var("POWER_CUT_ROOT").unwrap();
    let db = ::sled::open(Path::new(&dir).join("plain")).unwrap();
    for number in 0u64.. {
        db.insert(number.to_be_bytes(), vec![7; 200]).unwrap();
        db.flush().unwrap();
        say(number);
    }
}

fn say(number: u64) {
    std::io::stdout().write_all(format!("\nack c {number}\n").as_bytes()).unwrap();
}

/// How much a child wrote before its power was cut, and what the disk holds of it. `None`: there is no C compiler.
fn cut_power_of(child: &str) -> Option<(usize, tempfile::TempDir)> {
    let tools = tempfile::tempdir().unwrap();
    let library = library(tools.path())?;
    let dir = tempfile::tempdir().unwrap();
    let disk = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", &format!("sled::tests::power_cut::{child}"), "--ignored", "--nocapture"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .envs(power_cut::environment(&library, dir.path(), disk.path(), false));
    let said = kill_after(command.spawn().unwrap(), Duration::from_millis(700));
    Some((said.len(), after_the_cut(disk.path())))
}

#[test]
fn power_cut_loses_what_was_not_synced() {
    let Some((written, kept)) = cut_power_of("unsynced_child") else { return };
    let kept = fs::read_to_string(kept.path().join("plain")).map_or(0, |lines| lines.lines().count());
    assert!(kept < written, "{kept} of {written} writes are there: the disk does not forget");
}

#[test]
fn engine_loses_nothing_that_it_flushed() {
    let Some((written, kept)) = cut_power_of("engine_child") else { return };
    let kept = ::sled::open(kept.path().join("plain")).unwrap().len();
    assert!(kept >= written, "{kept} of {written} writes are there");
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
        let said = end_after(start(&dir, bytes, 1, |_| {}), ACKNOWLEDGEMENTS_MIN, time, || {
            let done = Command::new(&shutdown).arg(disk.folder.path()).status().unwrap();
            assert!(done.success(), "the file system was not shut down");
        });
        disk.unmount();
        assert!(disk.mount(), "the file system cannot be mounted again");
        verify(&dir, bytes, &said);
    }
}
