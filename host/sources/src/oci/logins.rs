//! Names and passwords for registries, from where `docker login` and `podman login` leave them.
//!
//! Must not read the environment: it is told what stands there. Invariant: a password is given out for the registry
//! that it was stored for and no other, and shows in no text and no `Debug`.

use std::fmt;
use std::path::{Path, PathBuf};

use docker_credential::{CredentialRetrievalError, DockerCredential, get_credential_from_reader};

use crate::{Error, OciReference};
use bulkhead_domain::without_byte_order_mark;

/// What Docker Hub's credentials are stored under.
const DOCKER_HUB: &str = "https://index.docker.io/v1/";

/// Where credentials are looked for, in this order.
#[derive(Clone, Default)]
pub struct Logins {
    /// The text of a `config.json` (`DOCKER_AUTH_CONFIG`), for machines without a home.
    inline: Option<String>,
    files: Vec<PathBuf>,
}

impl fmt::Debug for Logins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logins").field("inline", &self.inline.is_some()).field("files", &self.files).finish()
    }
}

/// For one registry.
pub(super) struct Login {
    pub(super) credential: Credential,
    /// Where it was found, for messages.
    pub(super) source: String,
}

/// What a registry wants to see.
pub(super) enum Credential {
    Password {
        username: String,
        password: String,
    },
    /// To be exchanged for tokens.
    Identity(String),
}

impl Logins {
    /// As Docker and Podman look for them: `DOCKER_AUTH_CONFIG`, then `REGISTRY_AUTH_FILE`, or else
    /// `$XDG_RUNTIME_DIR/containers/auth.json`, `$XDG_CONFIG_HOME/containers/auth.json`, `$DOCKER_CONFIG/config.json`.
    pub fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Self {
        let named = |name: &str| variable(name).filter(|text| !text.is_empty());
        let folder = |name: &str| named(name).map(PathBuf::from);
        let at_home = |path: &str| Some(folder("HOME")?.join(path));
        let files = match folder("REGISTRY_AUTH_FILE") {
            Some(only) => vec![only],
            None => {
                let podman = [folder("XDG_RUNTIME_DIR"), folder("XDG_CONFIG_HOME").or_else(|| at_home(".config"))];
                let podman = podman.into_iter().flatten().map(|folder| folder.join("containers/auth.json"));
                let docker = folder("DOCKER_CONFIG").or_else(|| at_home(".docker"));
                podman.chain(docker.map(|folder| folder.join("config.json"))).collect()
            }
        };
        Self { inline: named("DOCKER_AUTH_CONFIG"), files }
    }

    /// The first that fits. Starts a credential helper where the configuration names one.
    ///
    /// # Errors
    /// A configuration that is there cannot be used: going on without it would only give a stranger's error.
    pub(super) async fn find(&self, reference: &OciReference) -> Result<Option<Login>, Error> {
        let logins = self.clone();
        let reference = reference.clone();
        let found = tokio::task::spawn_blocking(move || logins.find_now(&reference)).await;
        found.map_err(|_| Error::File("looking for credentials was given up".to_owned()))?
    }

    fn find_now(&self, reference: &OciReference) -> Result<Option<Login>, Error> {
        let inline = self.inline.clone().map(|text| ("DOCKER_AUTH_CONFIG".to_owned(), text));
        let files = self.files.iter().filter_map(|path| match std::fs::read_to_string(path) {
            Ok(text) => Some(Ok((path.display().to_string(), text))),
            Err(error) if is_absent(path, &error) => None,
            Err(error) => {
                Some(Err(Error::File(format!("the credentials in {} cannot be read: {error}", path.display()))))
            }
        });
        for place_and_text in inline.map(Ok).into_iter().chain(files) {
            let (source, text) = place_and_text?;
            if let Some(credential) = find_in(&source, &text, reference)? {
                return Ok(Some(Login { credential, source }));
            }
        }
        Ok(None)
    }

    /// The places, for a message that says where nothing was found.
    pub(super) fn places(&self) -> String {
        let inline = self.inline.as_ref().map(|_| "DOCKER_AUTH_CONFIG".to_owned());
        let all: Vec<_> = inline.into_iter().chain(self.files.iter().map(|path| path.display().to_string())).collect();
        if all.is_empty() { "nowhere, because HOME is not set".to_owned() } else { all.join(", ") }
    }
}

/// Also when something on the way is a file: then nobody has logged in there.
fn is_absent(path: &Path, error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) && !path.exists()
}

fn find_in(source: &str, text: &str, reference: &OciReference) -> Result<Option<Credential>, Error> {
    let unusable = |why: String| Error::File(format!("the credentials in {source} cannot be used: {why}"));
    let text = without_byte_order_mark(text);
    let mut config: serde_json::Value =
        serde_json::from_str(text).map_err(|_| unusable("it is not JSON".to_owned()))?;
    // `base64` breaks its lines, and readers of base64 want none.
    for entry in config.get_mut("auths").and_then(serde_json::Value::as_object_mut).into_iter().flatten() {
        if let Some(serde_json::Value::String(auth)) = entry.1.get_mut("auth") {
            auth.retain(|letter| !letter.is_ascii_whitespace());
        }
    }
    let registry = if reference.registry == "docker.io" { DOCKER_HUB } else { &reference.registry };
    // Podman keeps credentials of a part of a registry under its path: the longest one decides.
    let path = format!("{}/{}", reference.registry, reference.repository);
    let key = std::iter::successors(Some(path.as_str()), |path| Some(path.rsplit_once('/')?.0))
        .find(|path| path.contains('/') && config.pointer("/auths").and_then(|auths| auths.get(*path)).is_some())
        .unwrap_or(registry);
    match get_credential_from_reader(config.to_string().as_bytes(), key) {
        Ok(DockerCredential::UsernamePassword(username, password)) => {
            Ok(Some(Credential::Password { username, password }))
        }
        Ok(DockerCredential::IdentityToken(token)) => Ok(Some(Credential::Identity(token))),
        Err(CredentialRetrievalError::NoCredentialConfigured) => Ok(None),
        // What every helper says of a registry that nobody logged in to.
        Err(CredentialRetrievalError::HelperFailure { stdout, .. }) if stdout.contains("credentials not found") => {
            Ok(None)
        }
        // What a helper writes may hold anything.
        Err(CredentialRetrievalError::HelperFailure { helper, .. }) => Err(unusable(format!("{helper} failed"))),
        // An entry that only says that a helper has it.
        Err(CredentialRetrievalError::CredentialDecodingError) if is_empty_entry(&config, key) => Ok(None),
        Err(error) => Err(unusable(error.to_string())),
    }
}

fn is_empty_entry(config: &serde_json::Value, key: &str) -> bool {
    let entry = config.pointer("/auths").and_then(|auths| auths.get(key)).and_then(serde_json::Value::as_object);
    entry.is_some_and(|entry| entry.values().all(|value| value.as_str() == Some("")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    fn reference(text: &str) -> OciReference {
        match text.parse() {
            Ok(Source::Oci(reference)) => reference,
            other => panic!("{text}: {other:?}"),
        }
    }

    fn inline(config: &serde_json::Value) -> Logins {
        Logins { inline: Some(config.to_string()), files: Vec::new() }
    }

    fn password_of(logins: &Logins, text: &str) -> Option<String> {
        match logins.find_now(&reference(text)).unwrap()?.credential {
            Credential::Password { username, password } => Some(format!("{username}:{password}")),
            Credential::Identity(token) => Some(token),
        }
    }

    #[test]
    fn registry_login_is_chosen_by_longest_path() {
        // alice:one, alice:two
        let logins = inline(&serde_json::json!({ "auths": {
            "ghcr.io": { "auth": "YWxpY2U6b25l" },
            "ghcr.io/acme": { "auth": "YWxpY2U6dHdv" },
            "https://index.docker.io/v1/": { "username": "bob", "password": "three" },
            "tokens.example": { "identitytoken": "four" },
        } }));
        for (text, expected) in [
            ("oci://ghcr.io/other/csv:1", Some("alice:one")),
            ("oci://ghcr.io/acme/csv:1", Some("alice:two")),
            ("oci://ghcr.io/acme2/csv:1", Some("alice:one")),
            ("oci://docker.io/acme/csv:1", Some("bob:three")),
            ("oci://tokens.example/csv:1", Some("four")),
            ("oci://evil.example/csv:1", None),
            ("oci://ghcr.io:5000/acme/csv:1", None),
        ] {
            assert_eq!(password_of(&logins, text).as_deref(), expected, "{text}");
        }
        let shown = format!("{logins:?}");
        assert!(!shown.contains("YWxp") && !shown.contains("three"), "{shown}");
    }

    #[test]
    fn registry_login_is_read_however_it_was_written() {
        for (text, expected) in [
            ("{\"auths\":{\"ghcr.io\":{\"auth\":\"YWxpY2U6b25l\"}}}", Some("alice:one")),
            ("\u{feff}{\"auths\":{\"ghcr.io\":{\"auth\":\"YWxpY2U6b25l\"}}}", Some("alice:one")),
            ("{\"auths\":{\"ghcr.io\":{\"auth\":\"YWxp\\nY2U6b25l\\r\\n\"}}}", Some("alice:one")),
            ("{\"auths\":{\"quay.io\":{\"auth\":\"YWxpY2U6b25l\"}}}", None),
        ] {
            let logins = Logins { inline: Some(text.to_owned()), files: Vec::new() };
            assert_eq!(password_of(&logins, "oci://ghcr.io/csv:1").as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn registry_login_comes_from_first_matching_file() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_string_lossy().into_owned();
        let logins = Logins::of_environment(|name| (name == "HOME").then(|| home.clone()));
        assert_eq!(password_of(&logins, "oci://ghcr.io/csv:1"), None);
        assert!(logins.places().contains(".docker/config.json"), "{}", logins.places());
        std::fs::create_dir_all(folder.path().join(".docker")).unwrap();
        std::fs::create_dir_all(folder.path().join(".config/containers")).unwrap();
        std::fs::write(folder.path().join(".config/containers/auth.json"), r#"{"auths":{"quay.io":{}}}"#).unwrap();
        std::fs::write(folder.path().join(".docker/config.json"), r#"{"auths":{"ghcr.io":{"auth":"YWxpY2U6b25l"}}}"#)
            .unwrap();
        assert_eq!(password_of(&logins, "oci://ghcr.io/csv:1").as_deref(), Some("alice:one"));
        std::fs::write(folder.path().join(".docker/config.json"), "secret {").unwrap();
        let refused = logins.find_now(&reference("oci://ghcr.io/csv:1")).err().unwrap().to_string();
        assert!(refused.contains(".docker/config.json") && !refused.contains("secret"), "{refused}");
        let only = Logins::of_environment(|name| match name {
            "HOME" => Some(home.clone()),
            "REGISTRY_AUTH_FILE" => Some("/nowhere/auth.json".to_owned()),
            _ => None,
        });
        assert_eq!(only.places(), "/nowhere/auth.json");
    }
}
