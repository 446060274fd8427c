//! A power cut for tests: what a process did not sync is forgotten.
//!
//! Owns the way to the library of `sled/tests/power_cut.c`, which a process is started with, and what of its second
//! disk is left when it was killed. Must not know what anybody writes. Invariant: what a life did not sync is in no
//! later one.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles the library into a folder.
///
/// # Errors
///
/// There is no C compiler.
pub fn library(dir: &Path) -> Result<PathBuf, String> {
    compile(dir, "power_cut.c", &["-shared", "-fPIC"])
}

/// Compiles one of the C files of the tests; `Err`: there is no C compiler.
pub(crate) fn compile(dir: &Path, source: &str, options: &[&str]) -> Result<PathBuf, String> {
    let made = dir.join(source).with_extension("made");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sled/tests").join(source);
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-w"]).args(options).arg("-o").arg(&made).arg(source).args(["-ldl", "-lpthread"]);
    let output = compiler.output().map_err(|error| format!("no C compiler: {error}"))?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(made)
}

/// The environment of a process that writes below `root`, and whose second disk is the folder `disk`, which has to be
/// empty. With `early`, some writes reach it without a sync.
pub fn environment(library: &Path, root: &Path, disk: &Path, early: bool) -> Vec<(&'static str, OsString)> {
    let mut variables = [("LD_PRELOAD", library), ("POWER_CUT_ROOT", root), ("POWER_CUT_DISK", disk)]
        .map(|(name, path)| (name, path.as_os_str().to_owned()))
        .to_vec();
    if early {
        variables.push(("POWER_CUT_EARLY", OsString::from("1")));
    }
    variables
}

/// Puts what the second disk holds into an empty folder.
pub fn restore(disk: &Path, folder: &Path) {
    for line in fs::read_to_string(disk.join("names")).unwrap().lines() {
        let mut words = line.splitn(3, ' ');
        let kind = words.next().unwrap();
        let number = words.next().unwrap();
        let name = words.next().unwrap();
        let path = folder.join(name.trim_start_matches('/'));
        match kind {
            "d" => fs::create_dir_all(path).unwrap(),
            // A file that was never synced has its name and nothing in it.
            _ if disk.join(number).exists() => fs::copy(disk.join(number), path).map(drop).unwrap(),
            _ => fs::write(path, "").unwrap(),
        }
    }
}
