//! Keys and seals.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::*;

const ONE: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
const TWO: &str = "0202020202020202020202020202020202020202020202020202020202020202";

fn keys(text: &str) -> VaultKeys {
    VaultKeys::from_variable("KEY", text).unwrap()
}

fn written(folder: &Path, text: &str, mode: u32) -> PathBuf {
    let path = folder.join("keys");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

#[test]
fn sealed_bytes_open_in_their_own_context_only() {
    let keys = keys(ONE);
    let sealed = keys.seal(&[b"task", b"acme"], b"the marker").unwrap();
    assert_eq!(sealed.len(), "the marker".len() + SEAL_BYTES);
    assert!(!sealed.windows(6).any(|bytes| bytes == b"marker"));
    assert_eq!(keys.open(&[b"task", b"acme"], &sealed).unwrap(), b"the marker");
    for context in [&[b"task".as_slice(), b"other"][..], &[b"taska", b"cme"], &[b"task"], &[], &[b"task", b"acme", b""]]
    {
        assert_eq!(keys.open(context, &sealed), Err(Error::Opened));
    }
    assert_ne!(keys.seal(&[b"task", b"acme"], b"the marker").unwrap(), sealed);
}

#[test]
fn changed_or_missing_sealed_byte_is_noticed() {
    let keys = keys(ONE);
    let sealed = keys.seal(&[b"a"], b"text").unwrap();
    for at in 0..sealed.len() {
        let mut changed = sealed.clone();
        changed[at] ^= 1;
        assert!(keys.open(&[b"a"], &changed).is_err(), "{at}");
        assert!(keys.open(&[b"a"], &sealed[..at]).is_err(), "{at}");
    }
    assert_eq!(keys.open(&[b"a"], &keys.seal(&[b"a"], b"").unwrap()).unwrap(), b"");
}

#[test]
fn first_key_seals_and_all_keys_open() {
    let old = keys(ONE);
    let both = keys(&format!("{TWO},{ONE}"));
    let new = keys(TWO);
    let sealed = old.seal(&[], b"x").unwrap();
    assert_eq!(both.open(&[], &sealed).unwrap(), b"x");
    assert!(both.is_outdated(&sealed) && !old.is_outdated(&sealed));
    let again = both.seal(&[], b"x").unwrap();
    assert!(!both.is_outdated(&again) && sealed_by(&again) == Some(new.first().id()));
    assert_eq!(new.open(&[], &again).unwrap(), b"x");
    let refused = new.open(&[], &sealed).unwrap_err();
    assert_eq!(refused, Error::UnknownKey { id: old.first().id() });
    assert!(refused.to_string().contains(&old.first().id().to_string()));
    assert_eq!(sealed_by(b"{\"json\": true}"), None);
}

#[test]
fn key_file_allows_comments_and_must_be_private() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("# since May\n{TWO}\n\n{ONE} # until May\n");
    let path = written(folder.path(), &text, 0o600);
    let read = VaultKeys::from_file(&path).unwrap();
    assert_eq!(read.ids().collect::<Vec<_>>(), [keys(TWO).first().id(), keys(ONE).first().id()]);
    for mode in [0o640, 0o604, 0o660, 0o620] {
        let refused = VaultKeys::from_file(&written(folder.path(), &text, mode)).unwrap_err().to_string();
        assert!(refused.contains("chmod 600") && refused.contains("keys"), "{refused}");
    }
    assert!(VaultKeys::from_file(folder.path()).is_err());
    assert!(VaultKeys::from_file(&folder.path().join("absent")).is_err());
}

#[test]
fn byte_order_mark_in_front_of_a_key_file_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path(), &format!("\u{feff}{TWO}\r\n"), 0o600);
    assert_eq!(VaultKeys::from_file(&path).unwrap().first().id(), keys(TWO).first().id());
}

#[test]
fn invalid_key_is_refused_without_showing_it() {
    let folder = tempfile::tempdir().unwrap();
    let secret = "c2VjcmV0LXRleHQtdGhhdC1pcy10b28tc2hvcnQ";
    for text in ["", "# nothing", secret, &"00".repeat(32), &format!("{ONE}\n{ONE}"), &"g".repeat(64)] {
        let refused = VaultKeys::from_file(&written(folder.path(), text, 0o600)).unwrap_err().to_string();
        assert!(refused.contains("key") && !refused.contains(secret), "{refused}");
        assert!(VaultKeys::from_variable("K", text).is_err(), "{text}");
    }
    assert!(VaultKeys::from_file(&written(folder.path(), &"#".repeat(70_000), 0o600)).is_err());
}

#[test]
fn debug_output_hides_keys() {
    let shown = format!("{:?} {}", keys(ONE), keys(ONE).first().id());
    assert!(!shown.contains("1, 1, 1") && !shown.contains("AQEB") && !shown.contains("0101"), "{shown}");
}
