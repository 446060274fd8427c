//! The distribution API of one repository: manifests, blobs, and the credentials that it asks for.
//!
//! Invariant: bytes come out of here only after their digest was compared; a credential is sent only after the registry
//! has asked for it, to the registry itself or to the token service that it names, never along a redirect.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{Method, StatusCode};
use serde::Deserialize;
use url::Url;

use super::logins::{Credential, Login};
use super::{digest_of, manifest, oci_digest};
use crate::web::{self, failed};
use crate::{Digest, Error, FetchOptions, OciReference, Progress};
use bulkhead_net::address::{is_this_machine, normal_host};
use bulkhead_net::client::{Client, Request, Response};

/// Bytes of a manifest or index: the specification asks registries to take 4 MiB, and ours have a few lines.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a token or of an error.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// A connection's worth of one repository.
pub(super) struct Registry<'a> {
    client: Client,
    fetching: &'a FetchOptions,
    reference: &'a OciReference,
    /// `SCHEME://HOST/v2/REPOSITORY/`.
    base: Url,
    /// What the token is to be good for: `pull` or `pull,push`.
    actions: &'static str,
    authorization: Option<HeaderValue>,
}

/// A manifest with what it hashes to.
pub(super) struct FetchedManifest {
    pub(super) bytes: Vec<u8>,
    pub(super) digest: Digest,
}

impl<'a> Registry<'a> {
    pub(super) fn new(
        fetching: &'a FetchOptions,
        reference: &'a OciReference,
        actions: &'static str,
    ) -> Result<Self, Error> {
        // Docker Hub's registry has another name than Docker Hub, and a folder for what has none.
        let is_hub = reference.registry == "docker.io";
        let registry = if is_hub { "registry-1.docker.io" } else { &reference.registry };
        let folder = if is_hub && !reference.repository.contains('/') { "library/" } else { "" };
        let invalid = |_| Error::Failed { what: format!("oci://{reference}"), problem: "it is no address".to_owned() };
        let host: http::uri::Authority = registry.parse().map_err(|_| invalid(()))?;
        let host = normal_host(host.host());
        let scheme = if is_this_machine(&host) || fetching.is_plain(&host) { "http" } else { "https" };
        let base = format!("{scheme}://{registry}/v2/{folder}{}/", reference.repository);
        let base: Url = base.parse().map_err(|_| invalid(()))?;
        let client = web::client(fetching, Some(&base))?;
        Ok(Self { client, fetching, reference, base, actions, authorization: None })
    }

    /// By tag or by `sha256:…`; `None`: there is none.
    pub(super) async fn manifest(&mut self, wanted: &str) -> Result<Option<FetchedManifest>, Error> {
        let url = self.url(&format!("manifests/{wanted}"))?;
        let request = || {
            let mut request = Request::new(Method::GET, url.clone());
            request.headers.push((ACCEPT, HeaderValue::from_static(manifest::ACCEPT)));
            request
        };
        let response = self.send(request).await?;
        if response.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let response = self.expect(response, StatusCode::OK).await?;
        let claimed = response.header("docker-content-digest").map(str::to_owned);
        let bytes = response.bytes(MANIFEST_BYTES_MAX, &Progress::default()).await?;
        let digest = digest_of(&bytes);
        let expected = oci_digest(wanted).or_else(|| claimed.as_deref().and_then(oci_digest));
        self.compare("the manifest", expected.unwrap_or(digest), digest)?;
        Ok(Some(FetchedManifest { bytes, digest }))
    }

    /// A blob of exactly this size and digest.
    pub(super) async fn blob(&mut self, digest: Digest, size: u64, progress: &Progress) -> Result<Vec<u8>, Error> {
        let url = self.url(&format!("blobs/sha256:{digest}"))?;
        let response = self.send(|| Request::new(Method::GET, url.clone())).await?;
        let response = self.expect(response, StatusCode::OK).await?;
        let bytes = response.bytes(size, progress).await?;
        if (bytes.len() as u64) < size {
            let problem = format!("the blob is truncated: expected {size} bytes, found {}", bytes.len());
            return Err(self.failed(problem));
        }
        self.compare("the blob", digest, digest_of(&bytes))?;
        Ok(bytes)
    }

    /// What refers to a manifest, where the registry has a list of it.
    pub(super) async fn referrers(&mut self, manifest: Digest) -> Result<Option<manifest::Index>, Error> {
        let url = self.url(&format!("referrers/sha256:{manifest}"))?;
        let response = self.send(|| Request::new(Method::GET, url.clone())).await?;
        let found = if response.status == StatusCode::OK && response.header("content-type") == Some(manifest::INDEX) {
            Some(response.bytes(MANIFEST_BYTES_MAX, &Progress::default()).await?)
        } else {
            // Registries from before that API keep the list under a tag.
            self.manifest(&format!("sha256-{manifest}")).await?.map(|found| found.bytes)
        };
        let unreadable = |error| self.failed(format!("its list of referrers cannot be read: {error}"));
        found.map(|bytes| serde_json::from_slice(&bytes).map_err(unreadable)).transpose()
    }

    /// Uploads a blob unless it is there. Returns whether it was sent.
    pub(super) async fn push_blob(&mut self, bytes: Bytes, progress: &Progress) -> Result<bool, Error> {
        let digest = format!("sha256:{}", digest_of(&bytes));
        let url = self.url(&format!("blobs/{digest}"))?;
        if self.send(|| Request::new(Method::HEAD, url.clone())).await?.status == StatusCode::OK {
            return Ok(false);
        }
        let url = self.url("blobs/uploads/")?;
        let begun = self.send(|| Request::new(Method::POST, url.clone())).await?;
        let begun = self.expect(begun, StatusCode::ACCEPTED).await?;
        let mut to = begun.location()?;
        to.query_pairs_mut().append_pair("digest", &digest);
        let request = || Request {
            headers: vec![(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))],
            body: bytes.clone(),
            progress: progress.clone(),
            ..Request::new(Method::PUT, to.clone())
        };
        let done = self.send(request).await?;
        self.expect(done, StatusCode::CREATED).await?;
        Ok(true)
    }

    /// Puts a manifest under a tag or its own digest.
    pub(super) async fn push_manifest(&mut self, to: &str, bytes: Vec<u8>) -> Result<Digest, Error> {
        let digest = digest_of(&bytes);
        let url = self.url(&format!("manifests/{to}"))?;
        let bytes = Bytes::from(bytes);
        let request = || Request {
            headers: vec![(CONTENT_TYPE, HeaderValue::from_static(manifest::MANIFEST))],
            body: bytes.clone(),
            ..Request::new(Method::PUT, url.clone())
        };
        let done = self.send(request).await?;
        let done = self.expect(done, StatusCode::CREATED).await?;
        let kept = done.header("docker-content-digest").and_then(oci_digest).unwrap_or(digest);
        self.compare("the manifest that was kept", digest, kept)?;
        Ok(digest)
    }

    pub(super) fn failed(&self, problem: impl Into<String>) -> Error {
        Error::Failed { what: format!("oci://{}", self.reference), problem: problem.into() }
    }

    fn url(&self, path: &str) -> Result<Url, Error> {
        self.base.join(path).map_err(|error| self.failed(error.to_string()))
    }

    fn compare(&self, what: &str, expected: Digest, found: Digest) -> Result<(), Error> {
        if expected == found {
            return Ok(());
        }
        Err(Error::Digest { what: format!("{what} of oci://{}", self.reference), expected, found })
    }

    /// Sends a request, with credentials if the registry asks for them.
    async fn send(&mut self, request: impl Fn() -> Request) -> Result<Response, Error> {
        let mut first = request();
        first.authorization.clone_from(&self.authorization);
        if first.url.origin() != self.base.origin() {
            // An upload may go elsewhere, with what its address holds.
            first.authorization = None;
        }
        let response = self.client.send(first).await?;
        let is_asked = response.status == StatusCode::UNAUTHORIZED && response.url.origin() == self.base.origin();
        if !is_asked || self.authorization.is_some() {
            return Ok(response);
        }
        self.authorization = Some(self.authorize(&response).await?);
        let mut second = request();
        second.authorization.clone_from(&self.authorization);
        Ok(self.client.send(second).await?)
    }

    /// What the registry wants to see, by what it asked.
    async fn authorize(&self, response: &Response) -> Result<HeaderValue, Error> {
        let headers: Vec<_> =
            response.headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|header| header.to_str().ok()).collect();
        let challenges: Vec<_> =
            headers.iter().filter_map(|header| http_auth::parse_challenges(header).ok()).flatten().collect();
        let login = self.fetching.logins.find(self.reference).await?;
        let of = |scheme: &str| challenges.iter().find(|challenge| challenge.scheme.eq_ignore_ascii_case(scheme));
        if let Some(challenge) = of("Bearer") {
            let parameter = |name: &str| {
                let found = challenge.params.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
                found.map(|(_, value)| value.to_unescaped())
            };
            let realm = parameter("realm").and_then(|realm| Url::parse(&realm).ok());
            let realm =
                realm.ok_or_else(|| self.failed("the registry asks for a token without saying where to get one"))?;
            return self.token(realm, parameter("service"), login.as_ref()).await;
        }
        if of("Basic").is_none() {
            return Err(self.failed("the registry asks for credentials of a kind that is not known here"));
        }
        match login {
            Some(Login { credential: Credential::Password { username, password }, .. }) => basic(&username, &password),
            Some(Login { credential: Credential::Identity(_), source }) => {
                return Err(self.failed(format!("the registry wants a name and a password; {source} has a token")));
            }
            None => return Err(self.unauthorized(None)),
        }
        .ok_or_else(|| self.failed("the credentials cannot be sent"))
    }

    /// Asks the token service of a registry.
    async fn token(&self, realm: Url, service: Option<String>, login: Option<&Login>) -> Result<HeaderValue, Error> {
        let repository = self.base.path().trim_start_matches("/v2/").trim_end_matches('/');
        let mut form = vec![("scope", format!("repository:{repository}:{}", self.actions))];
        form.extend(service.map(|service| ("service", service)));
        let mut request = Request::new(Method::GET, realm);
        match login.map(|login| &login.credential) {
            Some(Credential::Identity(token)) => {
                form.push(("grant_type", "refresh_token".to_owned()));
                form.push(("client_id", "bulkhead".to_owned()));
                form.push(("refresh_token", token.clone()));
                request.method = Method::POST;
                request.headers.push((CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded")));
                let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(&form).finish();
                request.body = Bytes::from(body);
            }
            other => {
                request.url.query_pairs_mut().extend_pairs(&form);
                if let Some(Credential::Password { username, password }) = other {
                    request.authorization = basic(username, password);
                }
            }
        }
        let response = self.client.send(request).await?;
        if matches!(response.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err(self.unauthorized(login));
        }
        if response.status != StatusCode::OK {
            return Err(failed(&response.url, format!("the token service answered {}", response.status)));
        }
        let url = response.url.clone();
        let bytes = response.bytes(ANSWER_BYTES_MAX, &Progress::default()).await?;
        // What it says is not repeated: it may hold a token.
        let token = token_in(&bytes).ok_or_else(|| failed(&url, "the token service gave no token"))?;
        secret(&format!("Bearer {token}")).ok_or_else(|| failed(&url, "the token cannot be sent"))
    }

    fn unauthorized(&self, login: Option<&Login>) -> Error {
        let host = &self.reference.registry;
        self.failed(match login {
            Some(login) => format!(
                "the registry does not accept the credentials in {} for this; log in again (`docker login {host}`)",
                login.source
            ),
            None => format!(
                "the registry wants credentials; log in with `docker login {host}` or `podman login {host}` (looked in: {})",
                self.fetching.logins.places()
            ),
        })
    }

    /// The answer that was hoped for, or an error with what the registry says.
    async fn expect(&self, response: Response, status: StatusCode) -> Result<Response, Error> {
        if response.status == status {
            return Ok(response);
        }
        let found = response.status;
        let is_registry = response.url.origin() == self.base.origin();
        if is_registry && matches!(found, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            let login = self.fetching.logins.find(self.reference).await?;
            return Err(self.unauthorized(login.as_ref()));
        }
        let what = if is_registry { "the registry" } else { "the server that the registry names" };
        let reason = response.bytes(ANSWER_BYTES_MAX, &Progress::default()).await.ok().and_then(|bytes| said(&bytes));
        let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
        Err(self.failed(format!("{what} answered {found}{reason}")))
    }
}

/// The token in the answer of a token service, under either of its names; an empty one is none.
fn token_in(answer: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Answer {
        token: Option<String>,
        access_token: Option<String>,
    }
    let answer: Answer = serde_json::from_slice(answer).ok()?;
    [answer.token, answer.access_token].into_iter().flatten().find(|token| !token.is_empty())
}

/// The message of an error, as the distribution specification has it: bounded and printable, because a stranger wrote
/// it.
fn said(bytes: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Errors {
        errors: Vec<Entry>,
    }
    #[derive(Deserialize)]
    struct Entry {
        #[serde(default)]
        code: String,
        #[serde(default)]
        message: String,
    }
    let errors: Errors = serde_json::from_slice(bytes).ok()?;
    let first = errors.errors.first()?;
    let text = format!("{} {}", first.code, first.message);
    Some(text.chars().filter(|c| !c.is_control()).take(200).collect())
}

fn basic(username: &str, password: &str) -> Option<HeaderValue> {
    secret(&format!("Basic {}", STANDARD.encode(format!("{username}:{password}"))))
}

/// A header that no `Debug` shows.
fn secret(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registry_token_has_either_name() {
        for (answer, expected) in [
            (r#"{"token": "a"}"#, Some("a")),
            (r#"{"access_token": "b"}"#, Some("b")),
            (r#"{"token": "a", "access_token": "b"}"#, Some("a")),
            (r#"{"token": "", "access_token": "b"}"#, Some("b")),
            (r#"{"token": null, "access_token": "b"}"#, Some("b")),
            (r#"{"token": "", "access_token": ""}"#, None),
            ("{}", None),
            ("no JSON", None),
        ] {
            assert_eq!(token_in(answer.as_bytes()).as_deref(), expected, "{answer}");
        }
    }
}
