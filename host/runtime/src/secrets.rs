//! Secrets on their way: values take the place of placeholders in a request, and placeholders that of values in its
//! answer.
//!
//! Owns the finding of placeholders. Must not know where secrets are kept. Invariant: a value goes to a destination
//! that it is bound to, in a place that it is bound to, or nowhere; a guest sees placeholders only, also in answers.

mod inject;
mod scrub;
mod spelling;
#[cfg(test)]
mod tests;

use std::ops::Range;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

pub(super) use self::inject::{Refusal, inject};
use bulkhead_calls::policy::HttpGrant;
use bulkhead_calls::secrets::{NAME_BYTES_MAX, is_name};

/// Bytes of a placeholder, with everything in it encoded that may be.
const PLACEHOLDER_BYTES_MAX: usize = "%7b%7bsecret%3a%7d%7d".len() + NAME_BYTES_MAX;

/// Where a request goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    pub(super) method: &'a str,
    pub(super) tls: bool,
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) path: &'a str,
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

/// The first placeholder at or after `from`: where it is, and whose name it has. In a URL, `{`, `:` and `}` may be
/// percent-encoded.
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
