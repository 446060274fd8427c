//! A small file system of its own for a host's data directory, which a test can fill to its last byte.
//!
//! Must not be used where a user may not mount, or where the store is not on the host's disk: the test is left out
//! there, and says so. Invariant: it is unmounted with its value.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use crate::store_engine;

pub struct SmallDisk {
    at: PathBuf,
}

impl SmallDisk {
    /// Mounts one of this size there; `None` where this user may not, or the store is elsewhere, and then it is said.
    pub fn mount(at: PathBuf, mebibytes: u32) -> Option<Self> {
        if store_engine::is_left_out("the disk that is full is the host's, not the database's") {
            return None;
        }
        fs::create_dir_all(&at).expect("a folder");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={mebibytes}m"), "tmpfs"]).arg(&at);
        let is_mounted = mount.output().is_ok_and(|output| output.status.success());
        if !is_mounted {
            eprintln!("not run: mounting a file system needs more rights");
        }
        is_mounted.then_some(Self { at })
    }

    fn filler(&self) -> PathBuf {
        self.at.join("filler")
    }

    /// Takes all the room that is left.
    pub fn fill(&self) {
        let mut file = fs::File::create(self.filler()).expect("a file");
        for block in [vec![1; 1 << 20], vec![1; 512]] {
            while file.write_all(&block).is_ok() {}
        }
    }

    /// Gives that room back.
    pub fn make_room(&self) {
        fs::remove_file(self.filler()).expect("the file goes");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Whatever comes of it: the folder goes anyway.
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}
