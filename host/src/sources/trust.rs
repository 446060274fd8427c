//! Whom a component may come from.
//!
//! Invariant: a [`Verified`] exists only after every check; the first rule whose pattern fits a source decides about it, and what
//! comes over a network is never taken because nobody said anything.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use super::{Digest, Fetched, PublicKey, Signature, Source};
use crate::plugins::Candidate;

/// Which sources a rule is for: `*` stands for anything but a slash, `**` for anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

/// What the sources of a pattern need.
#[derive(Clone, Debug)]
pub struct Rule {
    pub pattern: Pattern,
    /// One of these must have signed. Empty: nobody needs to.
    pub keys: Vec<PublicKey>,
}

/// The rules, in the operator's order.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    rules: Vec<Rule>,
}

/// A component that may become a version of a plugin.
#[derive(Clone, Debug)]
pub struct Verified {
    fetched: Fetched,
    source: Source,
    /// [`PublicKey::id`] of the required keys that have signed.
    signed_by: Vec<String>,
}

/// Why a component is not taken: what was expected, and what was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{source_name} is not trusted: expected {expected}, found {found}")]
pub struct Refusal {
    pub source_name: String,
    pub expected: String,
    pub found: String,
}

impl Trust {
    pub fn new(rules: Vec<Rule>) -> Self {
        Self { rules }
    }

    /// The one way from bytes to a candidate.
    ///
    /// `pinned` is what the operator says that the component's SHA-256 is.
    ///
    /// # Errors
    /// Another digest, no rule that lets it in, or not the signature that the rule wants.
    pub fn verify(&self, source: &Source, pinned: Option<Digest>, fetched: Fetched) -> Result<Verified, Refusal> {
        let refuse = |expected: String, found: String| Refusal { source_name: source.to_string(), expected, found };
        if let Some(pinned) = pinned.filter(|pinned| *pinned != fetched.sha256) {
            return Err(refuse(format!("sha256 {pinned}"), format!("sha256 {}", fetched.sha256)));
        }
        let verified = |fetched, signed_by| Verified { fetched, source: source.clone(), signed_by };
        let Some(rule) = self.rules.iter().find(|rule| rule.pattern.fits(source)) else {
            let named = pinned.is_some() || matches!(source, Source::Oci(oci) if oci.digest.is_some());
            if named || matches!(source, Source::File(_)) {
                return Ok(verified(fetched, Vec::new()));
            }
            return Err(refuse(
                "a [[trust]] rule for it, or a digest (sha256 = \"...\", oci://...@sha256:...)".to_owned(),
                format!("neither, and sha256 {}", fetched.sha256),
            ));
        };
        if rule.keys.is_empty() {
            return Ok(verified(fetched, Vec::new()));
        }
        let mut found = Vec::new();
        let mut signed_by = Vec::new();
        for signature in &fetched.signatures {
            match signer(rule, signature, &fetched) {
                Ok(key_id) => signed_by.push(key_id),
                Err(why) => found.push(why),
            }
        }
        if signed_by.is_empty() {
            let ids: Vec<_> = rule.keys.iter().map(PublicKey::id).collect();
            let expected = format!("a signature by key {} ([[trust]] source = {})", ids.join(" or "), rule.pattern);
            return Err(refuse(expected, if found.is_empty() { "none".to_owned() } else { found.join("; ") }));
        }
        Ok(verified(fetched, signed_by))
    }
}

/// The key that made a signature, or what is wrong with it.
fn signer(rule: &Rule, signature: &Signature, _fetched: &Fetched) -> Result<String, String> {
    match signature {
        Signature::Detached { key_id, .. } => Err(format!("a detached signature by key {key_id}")),
        Signature::Cosign { manifest, payload, signature } => {
            let key = rule.keys.iter().find(|key| key.has_signed(payload, signature));
            let key = key.ok_or("a cosign signature by none of these keys")?;
            super::oci::names(payload, *manifest).map(|()| key.id())
        }
    }
}

impl Verified {
    pub fn sha256(&self) -> Digest {
        self.fetched.sha256
    }

    /// The source as it was resolved.
    pub fn origin(&self) -> &str {
        &self.fetched.origin
    }

    pub fn signed_by(&self) -> &[String] {
        &self.signed_by
    }

    /// What the plugins take.
    pub fn candidate(self, name: Option<String>) -> Candidate {
        Candidate {
            name,
            fallback_name: self.source.fallback_name(),
            bytes: Arc::from(self.fetched.bytes),
            wit: self.fetched.wit,
            source: self.fetched.origin,
        }
    }
}

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
        Ok(Self(text.to_owned()))
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
        if stays { self } else { Self(Source::File(self.0.into()).from_folder(folder).to_string()) }
    }

    /// Whether a source is meant. A file is known by its path and by the path behind its links.
    pub fn fits(&self, source: &Source) -> bool {
        let fits = |name: &str| fits(self.0.as_bytes(), name.as_bytes());
        let behind = match source {
            Source::File(path) => path.canonicalize().ok(),
            Source::Https(_) | Source::Oci(_) => None,
        };
        fits(&source.to_string()) || behind.is_some_and(|path| fits(&path.to_string_lossy()))
    }
}

/// Keeps the places of the pattern that the name so far leads to, so that no pattern takes longer than their product.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let mut places = vec![0];
    spread(pattern, &mut places);
    for byte in name {
        let mut next = Vec::new();
        for place in places {
            match (pattern.get(place), pattern.get(place + 1)) {
                (Some(b'*'), Some(b'*')) => next.push(place),
                (Some(b'*'), _) if *byte != b'/' => next.push(place),
                (Some(b'*'), _) | (None, _) => {}
                (Some(wanted), _) if wanted == byte => next.push(place + 1),
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
    while let Some(place) = places.get(at).copied() {
        let behind = match (pattern.get(place), pattern.get(place + 1)) {
            (Some(b'*'), Some(b'*')) => Some(place + 2),
            (Some(b'*'), _) => Some(place + 1),
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
    fn a_star_stops_at_a_slash_and_two_do_not() {
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
