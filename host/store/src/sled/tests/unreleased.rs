//! Data directories of builds before 0.1.0 are refused and left as they are; what an export of theirs holds comes over
//! but for tasks.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::{open, options, runtime};
use crate::sled::{SledStore, check, export, is_there, rebuild};
use crate::{Error, RowKind, RowStore as _, TaskStore as _};

/// The two slots that such a build has left in the file `state`.
const SLOTS: [&[u8]; 2] = [
    b"\x18\x00\x01\x86\x1e\x8f\x08\x65\x44\x81\x17\xc0\x11\x41\x2c\x14\xb3\x08\xc6\x54\x00\x22\x66\x63\x85\xa5",
    b"\x18\x00\x01\x86\x1e\x8f\x08\x65\x44\x81\x17\xc0\x11\x41\x2c\x14\xb3\x08\xc6\x53\x00\x21\x59\x24\xc3\x39",
];

/// A data directory whose store, in the folder of this name, such a build has made.
fn left_in(folder: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join(folder);
    fs::create_dir_all(store.join("sled")).unwrap();
    fs::write(store.join("sled/db"), "its log").unwrap();
    let slots = SLOTS.map(|slot| [slot, &vec![0; 512 - slot.len()]].concat());
    fs::write(store.join("state"), slots.concat()).unwrap();
    dir
}

fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    found
}

#[test]
fn directory_of_a_build_before_the_first_release_is_refused_untouched() {
    // The second is that of an interrupted rebuild.
    for folder in ["store", "store.new"] {
        let dir = left_in(folder);
        let before = files(dir.path());
        assert!(is_there(dir.path()));
        let refused = [
            SledStore::open(options(dir.path())).map(drop),
            check(dir.path()).map(drop),
            export(dir.path(), &mut Vec::new()).map(drop),
            rebuild(dir.path(), None).map(drop),
        ];
        for refusal in refused {
            let refusal = refusal.unwrap_err();
            assert!(matches!(refusal, Error::Unreleased), "{refusal:?}");
            for part in ["b1eaa0b4", "`bulkhead store export FILE`", "`bulkhead store rebuild --from FILE`"] {
                assert!(refusal.to_string().contains(part), "{refusal}");
            }
        }
        assert_eq!(files(dir.path()), before, "{folder}");
    }
}

#[test]
fn export_of_a_build_before_the_first_release_comes_over_but_for_tasks() {
    let dir = left_in("store");
    let mut record = vec![4, 0];
    record.extend(crc32fast::hash(&record).to_le_bytes());
    let key = BASE64.encode("t");
    let value = BASE64.encode("v");
    let lines = format!(
        r#"{{"kind":"store","format":1,"id":""}}
{{"kind":"task","tenant":"a","requestor":"b","id":"c1","record":"{}","arguments":"e30=","output":null,"reserved_bytes":0}}
{{"kind":"row","row":"B","key":"{key}","value":"{value}"}}
"#,
        BASE64.encode(record)
    );
    let (moved, old_store) = rebuild(dir.path(), Some(&mut lines.as_bytes())).unwrap();
    assert_eq!((moved.tasks, moved.rows), (0, 1));
    assert_eq!(moved.lost, ["task c1: a build before 0.1.0 wrote it"]);
    assert_eq!(fs::read(old_store.join("sled/db")).unwrap(), b"its log");
    let store = open(dir.path());
    runtime().block_on(async {
        assert_eq!(store.row(RowKind::Token, b"t").await.unwrap(), Some(b"v".to_vec()));
        assert_eq!(store.scan(None, 9).await.unwrap(), []);
    });
}
