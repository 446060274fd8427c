//! Which sources a rule is for.
//!
//! Owns patterns and the one spelling in which addresses are compared. Must not know what a rule demands. Invariant:
//! two spellings of one address fit the same patterns.

use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use super::Source;

/// Which sources a rule is for: `*` stands for anything but a slash, `**` for anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl FromStr for Pattern {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        if text.contains("***") {
            return Err("* stands for anything but a slash, ** for anything; there is no ***");
        }
        let begins = ["https://", "oci://", "/", "./", "../"];
        if text != "**" && !begins.iter().any(|begin| text.starts_with(begin)) {
            return Err("a pattern begins with https://, oci://, / or ./, or is **");
        }
        Ok(Self(normal(text)))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl Pattern {
    /// The pattern of a relative path as seen from a folder.
    #[must_use]
    pub fn from_folder(self, folder: &Path) -> Self {
        let stays = self.0 == "**" || self.0.contains("://");
        if stays {
            return self;
        }
        let mut plain = PathBuf::new();
        for part in folder.join(self.0).components() {
            match part {
                Component::CurDir => {}
                Component::ParentDir if plain.file_name().is_some() => drop(plain.pop()),
                other => plain.push(other),
            }
        }
        Self(plain.to_string_lossy().into_owned())
    }

    /// Whether a source is meant. A file is known by its path as it was written, unless that goes up, and by `behind`:
    /// where the file was that was read, with no link on the way.
    pub fn fits(&self, source: &Source, behind: Option<&Path>) -> bool {
        let Source::File(path) = source else {
            return fits(self.0.as_bytes(), normal(&source.to_string()).as_bytes());
        };
        let named = std::path::absolute(path).ok();
        let named = named.filter(|path| !path.components().any(|part| part == Component::ParentDir));
        let mut paths = named.into_iter().chain(behind.map(Path::to_owned));
        let resolved = self.behind_links();
        paths.any(|path| {
            let path = path.as_os_str().as_bytes();
            fits(self.0.as_bytes(), path) || resolved.as_ref().is_some_and(|pattern| fits(pattern, path))
        })
    }

    /// The same pattern with the path behind the links of its leading folder, the part before any star.
    fn behind_links(&self) -> Option<Vec<u8>> {
        let plain = self.0.split('*').next().filter(|plain| plain.starts_with('/'))?;
        let (folder, _) = plain.rsplit_once('/')?;
        let rest = self.0.get(folder.len()..)?;
        let behind = Path::new(if folder.is_empty() { "/" } else { folder }).canonicalize().ok()?;
        let behind = behind.as_os_str().as_bytes();
        // A star in a name would stand for anything.
        let behind = Some(behind).filter(|behind| !behind.contains(&b'*'))?;
        Some([behind.strip_suffix(b"/").unwrap_or(behind), rest.as_bytes()].concat())
    }
}

/// An address, or a pattern of some, in the one spelling in which they are compared: small letters and no dot at the
/// end of the host, no default port, no part of the path that is empty or `.`, and nothing escaped that need not be. A
/// path is as it is.
fn normal(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let authority = authority.to_ascii_lowercase();
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (host, port),
        _ => (authority.as_str(), ""),
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    // A star is no part of a name, and a registry's name is plain.
    let parsed = Some(host).filter(|host| scheme == "https" && !host.contains('*')).map(url::Host::parse);
    let host = parsed.and_then(Result::ok).map_or_else(|| host.to_owned(), |host| host.to_string());
    let port = if port.is_empty() || port == "443" { String::new() } else { format!(":{port}") };
    if path.is_empty() {
        return format!("{scheme}://{host}{port}");
    }
    let path =
        url::Url::parse(&format!("https://host{path}")).map_or_else(|_| path.to_owned(), |url| url.path().to_owned());
    let path = unescaped(&path);
    let mut parts: Vec<_> = path.split('/').collect();
    // The first one is empty, and the last one may be: that is a path that ends with a slash.
    let last = parts.pop();
    parts.retain(|part| !part.is_empty() && *part != ".");
    parts.extend(last);
    format!("{scheme}://{host}{port}/{}", parts.join("/"))
}

/// A path without escapes of what means the same without: unreserved characters (RFC 3986, section 2.3). The others
/// have large digits.
fn unescaped(path: &str) -> String {
    let mut plain = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('%') {
        plain.push_str(before);
        let escape = after.get(..2).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match escape.map(|digits| (digits, u8::from_str_radix(digits, 16))) {
            Some((_, Ok(byte))) if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => plain.push(byte.into()),
            Some((digits, _)) => {
                plain.push('%');
                plain.push_str(&digits.to_ascii_uppercase());
            }
            None => plain.push('%'),
        }
        rest = after.get(escape.map_or(0, str::len)..).unwrap_or_default();
    }
    plain.push_str(rest);
    plain
}

/// Keeps the places of the pattern that the name so far leads to, so that no pattern takes longer than their product.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let mut places = vec![0];
    spread(pattern, &mut places);
    for byte in name {
        let mut next = Vec::new();
        for position in places {
            match (pattern.get(position), pattern.get(position + 1)) {
                (Some(b'*'), Some(b'*')) => next.push(position),
                (Some(b'*'), _) if *byte != b'/' => next.push(position),
                (Some(b'*'), _) | (None, _) => {}
                (Some(wanted), _) if wanted == byte => next.push(position + 1),
                (Some(_), _) => {}
            }
        }
        spread(pattern, &mut next);
        places = next;
    }
    places.contains(&pattern.len())
}

/// Adds the places that are reached without a byte: behind each star.
fn spread(pattern: &[u8], places: &mut Vec<usize>) {
    let mut at = 0;
    while let Some(position) = places.get(at).copied() {
        let behind = match (pattern.get(position), pattern.get(position + 1)) {
            (Some(b'*'), Some(b'*')) => Some(position + 2),
            (Some(b'*'), _) => Some(position + 1),
            _ => None,
        };
        places.extend(behind.filter(|behind| !places.contains(behind)));
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_pattern_star_stops_at_slash() {
        for (pattern, name, expected) in [
            ("https://a.example/*.wasm", "https://a.example/x.wasm", true),
            ("https://a.example/*.wasm", "https://a.example/b/x.wasm", false),
            ("https://a.example/**", "https://a.example/b/x.wasm", true),
            ("https://*.example/**", "https://evil.org/.example/x", false),
            ("https://a.example/**", "https://a.example.evil.org/x", false),
            ("oci://ghcr.io/acme/*", "oci://ghcr.io/acme/csv:1", true),
            ("oci://ghcr.io/acme/*", "oci://ghcr.io/acme2/csv:1", false),
            ("/srv/**/x.wasm", "/srv/a/b/x.wasm", true),
            ("/srv/**", "/srv/", true),
            ("**", "/anything/at/all", true),
            ("/a*b*c", "/axxbyyc", true),
            ("/a*b*c", "/axxbyy", false),
        ] {
            assert_eq!(fits(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }
}
