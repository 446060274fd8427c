//! What a plugin says about itself and requests: the manifest, a custom section that its build wrote.
//!
//! Wishes are no grants: they only take away. A component without a manifest requests all that it is granted.

use serde::Deserialize;
use wasmparser::{Parser, Payload};

use bulkhead_calls::policy::{Bound, DirBound, HttpGrant};
use bulkhead_domain::limits::CallLimits;

const SECTION: &str = "bulkhead:manifest";
const BYTES_MAX: usize = 64 << 10;
/// Stands for everything that the operator grants of a kind.
const EVERYTHING: &str = "*";

/// What a plugin says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    pub name: Option<String>,
    pub description: Option<String>,
    pub requested: RequestedPolicy,
    /// Everything as it was written.
    pub text: String,
}

/// The most that a plugin requests. The default is all that it is granted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedPolicy {
    pub grants: Bound,
    pub limits: RequestedLimits,
}

/// What a plugin requests of `[call]`: less than the operator gives it, if it says so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct RequestedLimits {
    pub cpu_ms: Option<u64>,
    pub wall_ms: Option<u64>,
    pub memory_bytes: Option<u64>,
    pub arguments_bytes: Option<u64>,
    pub result_bytes: Option<u64>,
    pub log_bytes: Option<u64>,
    pub events_per_second: Option<u32>,
}

impl RequestedLimits {
    /// The operator's limits where the plugin is content with less.
    #[must_use]
    pub fn within(&self, granted: &CallLimits) -> CallLimits {
        let least = |granted: u64, wanted: Option<u64>| wanted.map_or(granted, |wanted| granted.min(wanted));
        CallLimits {
            cpu_ms: least(granted.cpu_ms, self.cpu_ms),
            wall_ms: least(granted.wall_ms, self.wall_ms),
            memory_bytes: least(granted.memory_bytes, self.memory_bytes),
            arguments_bytes: least(granted.arguments_bytes, self.arguments_bytes),
            result_bytes: least(granted.result_bytes, self.result_bytes),
            log_bytes: least(granted.log_bytes, self.log_bytes),
            events_per_second: self
                .events_per_second
                .map_or(granted.events_per_second, |wanted| granted.events_per_second.min(wanted)),
            ..granted.clone()
        }
    }
}

#[derive(Deserialize)]
struct Written {
    name: Option<String>,
    description: Option<String>,
    #[serde(default)]
    grants: WrittenGrants,
    #[serde(default)]
    call: RequestedLimits,
}

#[derive(Default, Deserialize)]
struct WrittenGrants {
    #[serde(default)]
    directories: Vec<WrittenDirectory>,
    #[serde(default)]
    http: Vec<String>,
    #[serde(default)]
    env: Vec<String>,
    #[serde(default)]
    kv: bool,
}

#[derive(Deserialize)]
struct WrittenDirectory {
    guest: String,
    #[serde(default)]
    write: bool,
    #[serde(default)]
    optional: bool,
}

/// Finds the manifest, in the component or in a module inside it.
///
/// # Errors
///
/// When the component cannot be read to its end, or the manifest is wrong.
pub(super) fn manifest(bytes: &[u8]) -> Result<Option<Manifest>, String> {
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.map_err(|error| {
            if error.message().contains("unexpected end") {
                "the file is truncated".to_owned()
            } else {
                format!("it is not a valid component: {error}")
            }
        })?;
        if let Payload::CustomSection(section) = payload
            && section.name() == SECTION
        {
            return read(section.data()).map(Some);
        }
    }
    Ok(None)
}

/// Puts a manifest in front of everything else in a component, where it is found first.
pub(super) fn put_first(component: &[u8], manifest: &str) -> Vec<u8> {
    let name = [leb128(SECTION.len()), SECTION.as_bytes().to_vec()].concat();
    let size = leb128(name.len() + manifest.len());
    // The eight bytes that say what a file is, then a section of kind 0.
    let (head, rest) = component.split_at(component.len().min(8));
    [head, &[0], &size, &name, manifest.as_bytes(), rest].concat()
}

/// A number as WebAssembly writes it.
fn leb128(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = (number & 0x7F) as u8;
        number >>= 7;
        if number == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

fn read(data: &[u8]) -> Result<Manifest, String> {
    if data.len() > BYTES_MAX {
        return Err(format!("its manifest has {} bytes; {BYTES_MAX} is the most", data.len()));
    }
    let text = std::str::from_utf8(data).map_err(|_| "its manifest is not UTF-8".to_owned())?;
    let table: toml::Table =
        toml::from_str(text).map_err(|error| format!("its manifest is not valid TOML: {}", error.message()))?;
    let Written { name, description, grants, call } =
        table.try_into().map_err(|error| format!("its manifest is wrong: {}", error.message()))?;
    let requested = RequestedPolicy { grants: grants.bound()?, limits: call };
    Ok(Manifest { name, description, requested, text: text.to_owned() })
}

impl WrittenGrants {
    fn bound(self) -> Result<Bound, String> {
        let directories = self.directories.into_iter().map(|WrittenDirectory { guest, write, optional }| {
            if guest.starts_with('/') && guest.split('/').all(|part| part != "..") {
                Ok(DirBound { guest, write, optional })
            } else {
                Err("its manifest is wrong: a directory's guest is no absolute path without \"..\"".to_owned())
            }
        });
        Ok(Bound {
            directories: Some(directories.collect::<Result<_, _>>()?),
            http: http(&self.http)?,
            env: env(self.env),
            keyvalue: Some(self.kv),
        })
    }
}

fn http(texts: &[String]) -> Result<Option<Vec<HttpGrant>>, String> {
    if texts.iter().any(|text| text == EVERYTHING) {
        return Ok(None);
    }
    let parsed = texts.iter().map(|text| text.parse().map_err(|error| format!("its manifest is wrong: {error}")));
    parsed.collect::<Result<_, _>>().map(Some)
}

fn env(keys: Vec<String>) -> Option<Vec<String>> {
    if keys.iter().any(|key| key == EVERYTHING) { None } else { Some(keys) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_without_grants_wants_nothing() {
        let requested = read(b"name = \"a\"").unwrap().requested;
        let nothing = Bound {
            directories: Some(Vec::new()),
            http: Some(Vec::new()),
            env: Some(Vec::new()),
            keyvalue: Some(false),
        };
        assert_eq!(requested, RequestedPolicy { grants: nothing, limits: RequestedLimits::default() });
    }

    #[test]
    fn manifest_wants_are_read_with_wildcard() {
        let text = r#"
            [grants]
            directories = [{ guest = "/data", reason = "numbers" }]
            http = ["GET https://a.org/v1"]
            env = ["*"]
            kv = true
            later = [1]
            [call]
            cpu_ms = 5
        "#;
        let requested = read(text.as_bytes()).unwrap().requested;
        assert_eq!(
            requested.grants.directories.unwrap(),
            [DirBound { guest: "/data".to_owned(), write: false, optional: false }]
        );
        assert_eq!(requested.grants.http.unwrap()[0].to_string(), "GET https://a.org:443/v1");
        assert_eq!((requested.grants.env, requested.grants.keyvalue), (None, Some(true)));
        assert_eq!(requested.limits.cpu_ms, Some(5));
    }

    #[test]
    fn invalid_manifest_wants_are_refused() {
        for (text, why) in [
            ("name = ", "TOML"),
            ("name = 1", "wrong"),
            ("[grants]\nhttp = 3", "wrong"),
            ("[grants]\nhttp = ['ftp://a']", "ftp"),
            ("[grants]\ndirectories = ['/data']", "wrong"),
            ("[grants]\ndirectories = [{ guest = 'data' }]", "absolute"),
            ("[grants]\ndirectories = [{ guest = '/data/../x' }]", "absolute"),
            ("[call]\ncpu_ms = -1", "wrong"),
        ] {
            assert!(read(text.as_bytes()).unwrap_err().contains(why), "{text}");
        }
    }

    #[test]
    fn manifest_limits_are_capped_by_granted_limits() {
        let granted = crate::tests::limits();
        let requested = RequestedLimits { cpu_ms: Some(1), wall_ms: Some(u64::MAX), ..RequestedLimits::default() };
        let least = requested.within(&granted);
        assert_eq!((least.cpu_ms, least.wall_ms), (1, granted.wall_ms));
        assert_eq!(RequestedLimits::default().within(&granted), granted);
    }
}
