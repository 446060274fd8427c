//! A power cut for whole hosts: the next one finds what the one before had synced, and nothing else.
//!
//! Owns the disks that forget, by the library of `bulkhead_store::power_cut`. `kill -9` alone loses nothing that was
//! written. Must not end a host itself. Links in the data directory lead to another disk, whose power stays.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use bulkhead_store::power_cut;
use tempfile::TempDir;

use crate::Setup;
use crate::store_engine;

/// The library that hosts on such disks are started with.
pub struct PowerCutLibrary {
    path: PathBuf,
    _folder: TempDir,
}

impl PowerCutLibrary {
    /// `None` where there is no C compiler; then it is said.
    pub fn compile() -> Option<Self> {
        if store_engine::is_left_out("the disk that forgets is the host's, not the database's") {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        match power_cut::library(folder.path()) {
            Ok(path) => Some(Self { path, _folder: folder }),
            Err(why) => {
                eprintln!("not run: {why}");
                None
            }
        }
    }

    /// The same setup, for one host on a disk that forgets, and that disk. With `early`, some writes are not forgotten.
    pub fn disk(&self, setup: &Setup, early: bool) -> (Setup, ForgetfulDisk) {
        let data = setup.data();
        fs::create_dir_all(&data).expect("a data directory");
        let disk = tempfile::tempdir_in(setup.path("")).expect("a folder");
        let environment = power_cut::environment(&self.path, &data, disk.path(), early);
        let with = |setup: Setup, (name, value): (&str, std::ffi::OsString)| {
            setup.env(name, value.to_str().expect("a path in UTF-8"))
        };
        (environment.into_iter().fold(setup.clone(), with), ForgetfulDisk { disk, data })
    }
}

/// The disk of a host's data directory.
pub struct ForgetfulDisk {
    disk: TempDir,
    data: PathBuf,
}

impl ForgetfulDisk {
    /// Cuts the power of a host that was killed: what the disk holds takes the place of the data directory.
    pub fn cut(self) {
        let lost = self.disk.path().join("lost");
        fs::rename(&self.data, &lost).expect("a data directory");
        fs::create_dir(&self.data).expect("a data directory");
        power_cut::restore(self.disk.path(), &self.data);
        for entry in fs::read_dir(lost).expect("a folder").flatten() {
            if let Ok(to) = fs::read_link(entry.path()) {
                symlink(to, self.data.join(entry.file_name())).expect("a link");
            }
        }
    }
}
