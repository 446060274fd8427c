//! The names of sources, as an operator types them.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fmt, io};

use url::Url;

use super::Digest;

/// Bytes of a name: it is kept with every version.
const SOURCE_BYTES_MAX: usize = 800;

/// Where a component is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file of this machine.
    File(PathBuf),
    /// An address, without credentials, query and fragment.
    Https(Url),
    /// An artifact in an OCI registry.
    Oci(OciReference),
}

/// Why a text names no source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a source: {wrong}")]
pub struct SourceError {
    /// Without what could be a password.
    text: String,
    wrong: &'static str,
}

/// Where a path leads to, over links and `..`; of one that leads nowhere, the path itself.
pub fn real_path(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

impl FromStr for Source {
    type Err = SourceError;

    /// `./x.wasm`, `https://HOST/PATH`, `oci://REGISTRY/REPOSITORY:TAG`, `oci://REGISTRY/REPOSITORY@sha256:DIGEST`.
    fn from_str(text: &str) -> Result<Self, SourceError> {
        let wrong = |wrong| SourceError { text: shown(text), wrong };
        if text.len() > SOURCE_BYTES_MAX {
            return Err(wrong("it is too long"));
        }
        if text.chars().any(char::is_control) {
            return Err(wrong("it holds control characters"));
        }
        if let Some(rest) = text.strip_prefix("oci://") {
            return rest.parse().map(Self::Oci).map_err(wrong);
        }
        if text.starts_with("https://") {
            return https(text).map(Self::Https).map_err(wrong);
        }
        match text.split_once("://") {
            Some(("http", _)) => Err(wrong("http is neither private nor safe; use https")),
            Some((scheme, _)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                Err(wrong("there are files, https:// and oci://"))
            }
            _ if text.is_empty() => Err(wrong("it is empty")),
            _ => Ok(Self::File(text.into())),
        }
    }
}

impl Source {
    /// A file with its absolute path, for a host that works in another folder.
    ///
    /// # Errors
    /// The working folder is gone.
    pub fn absolute(self) -> io::Result<Self> {
        match self {
            Self::File(path) => std::path::absolute(path).map(Self::File),
            other => Ok(other),
        }
    }

    /// Whether both name one thing: of files, whatever way leads to each.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File(path), Self::File(other)) => real_path(path) == real_path(other),
            _ => self == other,
        }
    }

    /// Of a file of this machine.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Https(_) | Self::Oci(_) => None,
        }
    }

    /// Where to look for something newer: behind a tag rather than at what it stood for.
    #[must_use]
    pub fn unpinned(self) -> Self {
        match self {
            Self::Oci(reference) if reference.tag.is_some() => Self::Oci(OciReference { digest: None, ..reference }),
            other => other,
        }
    }

    /// What a plugin may be called that says nothing itself: the last part of the name, without an ending.
    pub fn fallback_name(&self) -> Option<String> {
        let last = match self {
            Self::File(path) => return path.file_stem().map(|stem| stem.to_string_lossy().into_owned()),
            Self::Https(url) => url.path().rsplit('/').next()?,
            Self::Oci(reference) => reference.repository.rsplit('/').next()?,
        };
        let stem = last.strip_suffix(".wasm").unwrap_or(last);
        (!stem.is_empty()).then(|| stem.to_owned())
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Https(url) => write!(f, "{url}"),
            Self::Oci(reference) => write!(f, "oci://{reference}"),
        }
    }
}

/// An address that may be kept, compared and shown.
fn https(text: &str) -> Result<Url, &'static str> {
    let url: Url = text.parse().map_err(|_| "it is not a valid address")?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it holds a name or a password; a source is kept and shown");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("it has a query or a fragment; a source is kept and shown");
    }
    if url.path().to_ascii_lowercase().contains("%2f") {
        return Err("it has an escaped slash");
    }
    Ok(url)
}

/// The text without anything that stands before an `@` or behind a `?`.
fn shown(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) if !rest.starts_with("sha256:") => format!("{scheme}://{rest}"),
        _ => text.to_owned(),
    }
}

/// `REGISTRY/REPOSITORY`, with a tag, a digest, or both; then the digest decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OciReference {
    /// Host, and port if one was named.
    pub registry: String,
    pub repository: String,
    pub tag: Option<String>,
    /// Of the manifest.
    pub digest: Option<Digest>,
}

impl FromStr for OciReference {
    type Err = &'static str;

    /// Without the `oci://`. No tag and no digest is the tag `latest`.
    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => {
                let hex = digest.strip_prefix("sha256:").ok_or("behind @ stands sha256: and a digest")?;
                (name, Some(Digest::try_from(hex.to_owned())?))
            }
            None => (text, None),
        };
        let (registry, path) = name.split_once('/').ok_or("write oci://REGISTRY/REPOSITORY:TAG")?;
        let (repository, tag) = match path.split_once(':') {
            Some((repository, tag)) => (repository, Some(tag.to_owned())),
            None => (path, digest.is_none().then(|| "latest".to_owned())),
        };
        let host: Result<http::uri::Authority, _> = registry.parse();
        if registry != registry.to_ascii_lowercase() || host.is_err() {
            return Err("the registry is a host in lower case, with a port if it needs one");
        }
        let part = |part: &str| {
            let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
            part.bytes().all(allowed) && part.starts_with(|first: char| first.is_ascii_alphanumeric())
        };
        if repository.len() > 255 || !repository.split('/').all(part) {
            return Err("a repository has parts of a-z 0-9 . _ - between slashes");
        }
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_tag =
            |tag: &String| (1..=128).contains(&tag.len()) && tag.bytes().all(allowed) && !tag.starts_with(['.', '-']);
        if !tag.iter().all(is_tag) {
            return Err("a tag has 1 to 128 characters of A-Z a-z 0-9 _ . -");
        }
        Ok(Self { registry: registry.to_owned(), repository: repository.to_owned(), tag, digest })
    }
}

impl fmt::Display for OciReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        self.digest.map_or(Ok(()), |digest| write!(f, "@sha256:{digest}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        text.parse().unwrap()
    }

    #[test]
    fn plugin_source_is_displayed_as_written() {
        let digest = "5".repeat(64);
        let pinned = format!("oci://localhost:5000/a/b@sha256:{digest}");
        for text in ["./x.wasm", "/srv/x.wasm", "https://example.com/a/x.wasm", "oci://ghcr.io/a/b:1.0", &pinned] {
            assert_eq!(source(text).to_string(), text);
        }
        assert_eq!(source("oci://ghcr.io/a/b").to_string(), "oci://ghcr.io/a/b:latest");
        assert_eq!(source("https://EXAMPLE.com/a/../x.wasm").to_string(), "https://example.com/x.wasm");
    }

    #[test]
    fn invalid_plugin_source_is_refused_without_its_password() {
        for (text, why) in [
            ("http://example.com/x.wasm", "use https"),
            ("ftp://example.com/x.wasm", "there are files"),
            ("https://alice:secret@example.com/x.wasm", "password"),
            ("https://example.com/x.wasm?token=secret", "query"),
            ("https://example.com/a%2Fx.wasm", "escaped"),
            ("https://", "valid"),
            ("oci://ghcr.io", "REGISTRY/REPOSITORY"),
            ("oci://alice:secret@ghcr.io/a", "behind @"),
            ("oci://ghcr.io/a/../b:1", "parts"),
            ("oci://ghcr.io/a:b/c", "tag"),
            ("oci://ghcr.io/a@sha256:12", "64 hexadecimal"),
            ("", "empty"),
        ] {
            let error = text.parse::<Source>().unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("secret"), "{text}: {error}");
        }
    }

    #[test]
    fn unnamed_plugin_is_named_after_its_source() {
        for text in ["csv.wasm", "/a/csv.wasm", "https://example.com/a/csv.wasm", "oci://ghcr.io/a/csv:1"] {
            assert_eq!(source(text).fallback_name().as_deref(), Some("csv"), "{text}");
        }
    }
}
