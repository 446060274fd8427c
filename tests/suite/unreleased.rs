//! A data directory of a build before 0.1.0: every command refuses it, says the way over, and leaves it as it is.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tests::{Setup, command};

/// The file `state` of such a build: two slots of 512 bytes.
const SLOTS: [&[u8]; 2] = [
    b"\x18\x00\x01\x86\x1e\x8f\x08\x65\x44\x81\x17\xc0\x11\x41\x2c\x14\xb3\x08\xc6\x54\x00\x22\x66\x63\x85\xa5",
    b"\x18\x00\x01\x86\x1e\x8f\x08\x65\x44\x81\x17\xc0\x11\x41\x2c\x14\xb3\x08\xc6\x53\x00\x21\x59\x24\xc3\x39",
];
/// Commands that open a store, or read its files.
const COMMANDS: [&[&str]; 7] = [
    &["store", "check"],
    &["store", "rebuild"],
    &["store", "rekey"],
    &["token", "list"],
    &["token", "create", "--requestor", "anna", "--tenant", "acme"],
    &["tasks", "list"],
    &["tenant", "purge", "acme", "--yes"],
];

fn left_in(data: &Path) {
    fs::create_dir_all(data.join("store/sled")).expect("a folder");
    fs::write(data.join("store/sled/db"), "its log").expect("a file");
    let slots = SLOTS.map(|slot| [slot, &vec![0; 512 - slot.len()]].concat());
    fs::write(data.join("store/state"), slots.concat()).expect("a file");
}

/// Every file and folder, with the bytes of the files.
fn entries(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.insert(path.clone(), Vec::new());
            found.extend(entries(&path));
        } else {
            found.insert(path.clone(), fs::read(&path).expect("a file"));
        }
    }
    found
}

fn assert_refused(code: Option<i32>, said: &str) {
    assert_eq!(code, Some(1), "{said}");
    let sentence = "a build before 0.1.0 wrote this data directory: `bulkhead store export FILE` of commit b1eaa0b4, the last \
                    that reads it, and then `bulkhead store rebuild --from FILE` of this version take over everything but tasks";
    assert_eq!(said.matches(sentence).count(), 1, "{said}");
}

#[tokio::test]
async fn data_directory_of_a_build_before_the_first_release_is_refused_untouched() {
    // Compiled code of other tests would lie in the data directory.
    let setup = Setup::new().own_code().config("[audit]\nenabled = true");
    left_in(&setup.data());
    let before = entries(&setup.data());
    let (code, said) = setup.refused().await;
    assert_refused(code, &said);
    for arguments in COMMANDS {
        let arguments = [arguments, &["--data"]].concat();
        let output = command::output(&mut command::bulkhead(), &arguments, Some(&setup.data())).await;
        assert_refused(output.status.code(), &String::from_utf8_lossy(&output.stderr));
        assert_eq!(entries(&setup.data()), before, "{arguments:?}");
    }
}
