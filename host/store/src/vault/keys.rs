//! Where the operator's keys come from.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};

use super::{Error, SealingKey, VaultKeys};
use bulkhead_domain::{unhex, without_byte_order_mark};

/// A file of keys is short; a longer one is something else.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Keys in one file: the first and the older ones that data may still be sealed with.
const KEYS_MAX: usize = 64;
const FORM: &str = "a key is 32 random bytes in base64 or hexadecimal digits, as `openssl rand -base64 32` prints them";

impl VaultKeys {
    /// Reads a file: one key a line, the one that seals first; `#` begins a comment. Only its owner may read it.
    ///
    /// # Errors
    ///
    /// [`Error::File`], with what to do about it.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        let wrong = |problem: String| Error::File { path: path.display().to_string(), problem };
        let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
        let facts = file.metadata().map_err(|error| wrong(error.to_string()))?;
        if !facts.is_file() {
            return Err(wrong("is no file".to_owned()));
        }
        if facts.mode() & 0o077 != 0 {
            let mode = facts.mode() & 0o777;
            return Err(wrong(format!("others may use it (mode {mode:04o}): `chmod 600` it, or make new keys")));
        }
        let mut text = String::new();
        let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
        read.map_err(|error| wrong(error.to_string()))?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(wrong(format!("is longer than {FILE_BYTES_MAX} bytes; {FORM}")));
        }
        Self::parse(without_byte_order_mark(&text).lines(), "line").map_err(wrong)
    }

    /// Reads the value of the variable `name`: keys between commas or spaces, the one that seals first.
    ///
    /// # Errors
    ///
    /// [`Error::Text`], with what to do about it.
    pub fn from_variable(name: &str, value: &str) -> Result<Self, Error> {
        let parts = value.split([',', ' ', '\n']).filter(|part| !part.is_empty());
        let wrong = |problem| Error::Text { origin: format!("environment variable {name}"), problem };
        Self::parse(parts, "key").map_err(wrong)
    }

    fn parse<'a>(lines: impl Iterator<Item = &'a str>, what: &str) -> Result<Self, String> {
        let mut keys = Vec::new();
        let mut seen = HashSet::new();
        for (number, line) in (1..).zip(lines) {
            let text = line.split('#').next().unwrap_or_default().trim();
            if text.is_empty() {
                continue;
            }
            let key = SealingKey::new(&secret(text).ok_or_else(|| format!("{what} {number} is no key: {FORM}"))?);
            if !seen.insert(key.id()) {
                return Err(format!("{what} {number} is a key that stands there already"));
            }
            keys.push(key);
        }
        if keys.len() > KEYS_MAX {
            return Err(format!("more than {KEYS_MAX} keys"));
        }
        let mut keys = keys.into_iter();
        let first = keys.next().ok_or_else(|| format!("there is no key in it: {FORM}"))?;
        Ok(Self { first, older: keys.collect() })
    }
}

/// 32 bytes, but not all zero.
fn secret(text: &str) -> Option<[u8; 32]> {
    let forms = [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD];
    let in_base64 = || forms.iter().find_map(|form| form.decode(text).ok())?.try_into().ok();
    unhex(text).or_else(in_base64).filter(|secret| *secret != [0; 32])
}
