//! Secrets that a guest may use without seeing them: it writes `{{secret:NAME}}`, and the host puts the value there on the way out.
//!
//! Owns what a secret is bound to, and the finding of placeholders. Must not know where secrets are kept. Invariant: a value goes
//! to a destination that it is bound to, in a place that it is bound to, or nowhere; a guest sees placeholders only, also in answers.

mod inject;
mod scrub;
mod spelling;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

pub(super) use self::inject::{Refusal, inject};
use super::policy::HttpGrant;

/// Bytes of a value. A shorter one would be found by chance all over an answer; a longer one does not fit its row.
pub const VALUE_BYTES: std::ops::RangeInclusive<usize> = 8..=2_048;

/// Bytes of a secret's name.
const NAME_BYTES_MAX: usize = 64;
/// Bytes of a placeholder, with everything in it encoded that may be.
const PLACEHOLDER_BYTES_MAX: usize = "%7b%7bsecret%3a%7d%7d".len() + NAME_BYTES_MAX;

/// Where in a request a value may be put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InjectionPoints {
    pub header: bool,
    pub query: bool,
    pub body: bool,
}

impl InjectionPoints {
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

/// Where a request goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    pub(super) method: &'a str,
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
    /// Where it may go, with everything below a path.
    pub destinations: Vec<HttpGrant>,
    pub places: InjectionPoints,
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

impl Target<'_> {
    fn is_within(&self, grant: &HttpGrant) -> bool {
        self.is_at(grant) && grant.permits(self.method, self.path)
    }

    /// Whether it is the same server, whatever method and path.
    fn is_at(&self, grant: &HttpGrant) -> bool {
        grant.covers(self.tls, self.host, self.port)
    }
}

/// Whether a text can be the name of a secret.
pub fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
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
    // No further than a name can go: a text that begins placeholders and ends none would be read once for each of them.
    let end = rest.iter().take(NAME_BYTES_MAX + 1).position(|byte| *byte == b'}' || *byte == b'%')?;
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

/// What is escaped in a value of a query or a form: all but the unreserved characters (RFC 3986, 2.3).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// As a value of a query or a form.
fn percent_encoded(value: &str) -> String {
    utf8_percent_encode(value, ESCAPED).to_string()
}

/// As the inside of a JSON string.
fn json_escaped(value: &str) -> String {
    let quoted = serde_json::Value::String(value.to_owned()).to_string();
    quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or_default().to_owned()
}
