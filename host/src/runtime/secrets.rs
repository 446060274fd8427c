//! Secrets that a guest may use without seeing them: it writes `{{secret:NAME}}`, and the host puts the value there on the way out.
//!
//! Owns what a secret is bound to, and the finding of placeholders. Must not know where secrets are kept. Invariant: a value goes
//! to a destination that it is bound to, in a place that it is bound to, or nowhere; a guest sees placeholders only, also in answers.

mod inject;
mod scrub;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

pub(super) use self::inject::{Refusal, inject};
use super::policy::{GrantError, HttpGrant};

/// Bytes of a value. A shorter one would be found by chance all over an answer; a longer one does not fit its row.
pub const VALUE_BYTES: std::ops::RangeInclusive<usize> = 8..=2_048;

/// Where in a request a value may be put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Places {
    pub header: bool,
    pub query: bool,
    pub body: bool,
}

impl Places {
    /// Their names.
    pub fn names(self) -> Vec<&'static str> {
        let all = [(self.header, "header"), (self.query, "query"), (self.body, "body")];
        all.into_iter().filter_map(|(set, name)| set.then_some(name)).collect()
    }

    /// By their names; `None` when one is unknown.
    pub fn named<T: AsRef<str>>(names: &[T]) -> Option<Self> {
        names.iter().try_fold(Self::default(), |places, name| match name.as_ref() {
            "header" => Some(Self { header: true, ..places }),
            "query" => Some(Self { query: true, ..places }),
            "body" => Some(Self { body: true, ..places }),
            _ => None,
        })
    }
}

/// Where a secret may go: `https://api.example.com`, `https://api.example.com/v1`, `https://*.example.org:8443`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    origin: HttpGrant,
    /// Begins with a slash; what lies below it is meant as well.
    path: Option<String>,
    text: String,
}

/// Why a text is no destination.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    #[error(transparent)]
    Origin(#[from] GrantError),
    #[error("the path of {0:?} is not plain: no part of it is empty or . or .., and nothing in it is encoded")]
    Path(String),
}

impl FromStr for Destination {
    type Err = DestinationError;

    fn from_str(text: &str) -> Result<Self, DestinationError> {
        let begin = text.find("://").map_or(0, |at| at + 3);
        let rest = text.get(begin..).unwrap_or_default();
        let split = rest.find('/').map_or(text.len(), |at| begin + at);
        let (origin, path) = text.split_at_checked(split).unwrap_or((text, ""));
        let path = path.trim_end_matches('/');
        if !path.is_empty() && !is_plain_path(path) {
            return Err(DestinationError::Path(text.to_owned()));
        }
        let path = (!path.is_empty()).then(|| path.to_owned());
        Ok(Self { origin: origin.parse()?, path, text: text.to_owned() })
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Destination {
    /// Whether a request goes there. The host is [normal](crate::domain::address::normal_host).
    fn covers(&self, target: &Target<'_>) -> bool {
        let below = |prefix: &String| {
            let rest = target.path.strip_prefix(prefix.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) && is_plain_path(target.path)
        };
        self.origin.covers(target.tls, target.host, target.port) && self.path.as_ref().is_none_or(below)
    }
}

/// Whether every server reads a path alike: nothing in it goes up, is empty or is written in another way.
fn is_plain_path(path: &str) -> bool {
    let mut segments = path.split('/').skip(1).peekable();
    let mut plain = path.starts_with('/') && !path.contains(['%', '\\', ';', '?', '#']);
    while let Some(segment) = segments.next() {
        // An empty one may be the last one.
        plain &= !(segment == "." || segment == ".." || segment.is_empty() && segments.peek().is_some());
    }
    plain
}

/// Where a request goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    pub(super) tls: bool,
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) path: &'a str,
}

/// One secret of the plugin that calls.
#[derive(Clone)]
pub struct Secret {
    pub name: String,
    pub value: String,
    pub destinations: Vec<Destination>,
    pub places: Places,
}

/// Never the value.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Secret {
    /// What a guest writes for it.
    pub fn placeholder(&self) -> String {
        format!("{{{{secret:{}}}}}", self.name)
    }
}

/// Whether a text can be the name of a secret.
pub fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

/// The first placeholder at or after `from`: where it is, and whose name it has. In a URL, `{`, `:` and `}` may be percent-encoded.
fn find(text: &[u8], from: usize) -> Option<(Range<usize>, &str)> {
    let mut at = from;
    loop {
        let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
        if let Some((length, name)) = placeholder(rest) {
            return Some((at..at + length, name));
        }
        at += 1;
    }
}

/// The placeholder that a text begins with: its length and its name.
fn placeholder(text: &[u8]) -> Option<(usize, &str)> {
    let rest = either(text, b"{", b"%7b").and_then(|rest| either(rest, b"{", b"%7b"))?;
    let rest = either(rest.strip_prefix(b"secret")?, b":", b"%3a")?;
    let end = rest.iter().position(|byte| *byte == b'}' || *byte == b'%')?;
    let (name, rest) = rest.split_at_checked(end)?;
    let name = std::str::from_utf8(name).ok().filter(|name| is_name(name))?;
    let rest = either(rest, b"}", b"%7d").and_then(|rest| either(rest, b"}", b"%7d"))?;
    Some((text.len() - rest.len(), name))
}

fn either<'a>(text: &'a [u8], plain: &[u8], encoded: &[u8]) -> Option<&'a [u8]> {
    let begins = |with: &[u8]| text.get(..with.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(with));
    let length = if begins(plain) { plain.len() } else { encoded.len() };
    (begins(plain) || begins(encoded)).then(|| text.get(length..)).flatten()
}

/// As a value of a query or a form.
fn percent_encoded(value: &str) -> String {
    use fmt::Write as _;
    value.bytes().fold(String::with_capacity(value.len()), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

/// As the inside of a JSON string.
fn json_escaped(value: &str) -> String {
    let quoted = serde_json::Value::String(value.to_owned()).to_string();
    quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or_default().to_owned()
}
