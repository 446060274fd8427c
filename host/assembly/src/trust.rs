//! Whom the host trusts and how it is trusted: certificates and secrets from their files.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use bulkhead_audit::Audit;
use bulkhead_config::{
    AdminConfig, AdminSecret, Config, DashboardConfig, IssuerConfig, MetricsConfig, OidcConfig, SecretLocation,
    TlsConfig,
};
use bulkhead_control::remote::AdminTokenDigest;
use bulkhead_domain::clock::SharedClock;
use bulkhead_domain::rights::ScopeBook;
use bulkhead_domain::without_byte_order_mark;
use bulkhead_identity::auth::{Authenticator, Issuer, LoginClient, OauthVerifier, ResourceOptions, Trusted, Verifier};
use bulkhead_identity::principal::{Principals, TokenVerifier};
use bulkhead_limits::LiveLimits;
use bulkhead_net::server::Certificate;
use bulkhead_net::{dial, pem};
use bulkhead_transport::http::ENDPOINT;
use rustls::pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};

use super::host::Host;
use super::sources;

/// Too many to guess.
const ADMIN_TOKEN_BYTES_MIN: usize = 32;

/// The issuers with what their entries point at.
pub(super) fn issuers(config: &Config) -> anyhow::Result<Vec<Trusted>> {
    config.auth.issuers.iter().map(trusted).collect()
}

fn trusted(issuer: &IssuerConfig) -> anyhow::Result<Trusted> {
    let name = &issuer.options.issuer;
    let roots = match &issuer.root_certificate {
        Some(file) => certificates(file).with_context(|| format!("the root certificate of {name}"))?,
        None => Vec::new(),
    };
    let tls = dial::tls_config(&roots).with_context(|| format!("the root certificate of {name} cannot be used"))?;
    let client_secret = match &issuer.client_secret {
        Some(location) => secret(location).with_context(|| format!("the client secret for {name}"))?,
        None => String::new(),
    };
    Ok(Trusted { options: issuer.options.clone(), tls, client_secret })
}

pub fn certificates(file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let text = std::fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
    pem::certificates(&text).with_context(|| format!("{} holds no certificate in PEM form", file.display()))
}

fn secret(location: &SecretLocation) -> anyhow::Result<String> {
    let text = match location {
        SecretLocation::File(file) => {
            std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?
        }
        SecretLocation::Variable(name) => {
            sources::variable(name).with_context(|| format!("the environment variable {name} is not set"))?
        }
    };
    Ok(without_byte_order_mark(&text).trim_end_matches(['\r', '\n']).to_owned())
}

/// The host's own certificate.
pub(super) fn certificate(config: &Config) -> anyhow::Result<Option<Arc<Certificate>>> {
    load_certificate(config.tls.as_ref(), "server.tls")
}

/// That of a listener, whose `key` is told of what is wrong.
fn load_certificate(tls: Option<&TlsConfig>, key: &'static str) -> anyhow::Result<Option<Arc<Certificate>>> {
    tls.map(|tls| Certificate::load(&tls.certificate, &tls.key).context(key)).transpose()
}

/// What a listener's credential is held against.
fn token_digest(secret: &AdminSecret, key: &'static str) -> anyhow::Result<AdminTokenDigest> {
    match secret {
        AdminSecret::Sha256(digest) => Ok(AdminTokenDigest::of_digest(*digest)),
        AdminSecret::File(file) => Ok(AdminTokenDigest::of_token(&admin_token(file).context(key)?)),
    }
}

/// Who knows tokens.
#[derive(Clone)]
pub(super) struct Verifiers {
    tokens: Arc<TokenVerifier>,
    issuers: Vec<KnownIssuer>,
    oauth: Option<Arc<OauthVerifier>>,
    principals: Principals,
    limits: LiveLimits,
    audit: Audit,
    now: SharedClock,
}

/// An issuer, with what it is known by. It keeps its keys and answers while that stays the same, whatever happens to
/// others.
#[derive(Clone)]
struct KnownIssuer {
    config: IssuerConfig,
    /// Of what was in the files that the configuration points at.
    digest: [u8; 32],
    issuer: Arc<Issuer>,
}

impl KnownIssuer {
    fn is(&self, config: &IssuerConfig, digest: &[u8; 32]) -> bool {
        self.config == *config && self.digest == *digest
    }
}

impl Verifiers {
    /// Begins to fetch the keys of issuers.
    pub(super) fn new(config: &Config, issuers: Vec<Trusted>, host: &Host) -> Self {
        let tokens = TokenVerifier::new(host.principals.clone(), Arc::clone(&host.now));
        let used = tokens.used();
        let audit = host.audit.clone();
        tokio::spawn(async move { used.run_maintenance(&audit).await });
        let none = Self {
            tokens: Arc::new(tokens),
            issuers: Vec::new(),
            oauth: None,
            principals: host.principals.clone(),
            limits: host.limits.clone(),
            audit: host.audit.clone(),
            now: Arc::clone(&host.now),
        };
        none.with_issuers(config, issuers)
    }

    /// The same with the issuers of a configuration.
    pub(super) fn with_issuers(&self, config: &Config, issuers: Vec<Trusted>) -> Self {
        let issuers = config.auth.issuers.iter().zip(issuers).map(|(config, trusted)| {
            let digest = digest(config, &trusted);
            let known = self.issuers.iter().find(|known| known.is(config, &digest)).cloned();
            let new = || KnownIssuer { config: config.clone(), digest, issuer: Issuer::new(trusted, &self.now) };
            known.unwrap_or_else(new)
        });
        let issuers: Vec<_> = issuers.collect();
        let these: Vec<_> = issuers.iter().map(|known| Arc::clone(&known.issuer)).collect();
        let verifier = || {
            let principals = self.principals.clone();
            let limits = self.limits.clone();
            let audit = self.audit.clone();
            OauthVerifier::new(these, principals, limits, audit, Arc::clone(&self.now))
        };
        let oauth = (!issuers.is_empty()).then(|| Arc::new(verifier()));
        Self { issuers, oauth, ..self.clone() }
    }

    /// Who is let in by this configuration, and for what.
    pub(super) fn authenticator(&self, config: &Config) -> Authenticator {
        let tokens: Arc<dyn Verifier> = self.tokens.clone();
        let scopes = ScopeBook::new(config.auth.scopes.clone());
        let (Some(resource), Some(oauth)) = (config.auth.resource.clone(), &self.oauth) else {
            return Authenticator::new(vec![tokens], config.is_local() || config.insecure.anonymous)
                .with_loopback_anonymous(config.is_local() && config.auth.anonymous_loopback.is_some())
                .with_scopes(scopes);
        };
        let resource = ResourceOptions {
            resource,
            issuers: config.auth.issuers.iter().map(|issuer| issuer.options.issuer.clone()).collect(),
            scopes: config.auth.scopes.iter().filter(|rule| rule.basic).map(|rule| rule.name.clone()).collect(),
        };
        // Where issuers say who somebody is, nobody is anybody without one.
        Authenticator::new(vec![tokens, oauth.clone()], false)
            .with_logins(Arc::clone(oauth))
            .with_resource(&resource, ENDPOINT)
            .with_scopes(scopes)
    }
}

fn digest(config: &IssuerConfig, trusted: &Trusted) -> [u8; 32] {
    // A file that cannot be read would have been refused before.
    let root = config.root_certificate.as_ref().and_then(|file| std::fs::read(file).ok()).unwrap_or_default();
    let digest = Sha256::new().chain_update((root.len() as u64).to_be_bytes()).chain_update(root);
    digest.chain_update(&trusted.client_secret).finalize().into()
}

/// The certificate of the administrators' listener, and the credential that it asks for.
pub(super) fn admin(config: &AdminConfig) -> anyhow::Result<(AdminTokenDigest, Option<Arc<Certificate>>)> {
    Ok((token_digest(&config.secret, "admin.token_file")?, load_certificate(config.tls.as_ref(), "admin.tls")?))
}

/// The certificate of the listener for metrics, and the credential that it asks for.
pub(super) fn metrics(config: &MetricsConfig) -> anyhow::Result<(Option<AdminTokenDigest>, Option<Arc<Certificate>>)> {
    let secret = config.secret.as_ref().map(|secret| token_digest(secret, "metrics.token_file")).transpose()?;
    Ok((secret, load_certificate(config.tls.as_ref(), "metrics.tls")?))
}

/// How the issuer at which people log in knows the host.
pub(super) fn login_client(config: &OidcConfig) -> anyhow::Result<LoginClient> {
    let client_secret = config.client_secret.as_ref().map(secret).transpose().context("dashboard.oidc")?;
    Ok(LoginClient {
        issuer: config.issuer.clone(),
        client_id: config.client_id.clone(),
        client_secret,
        scopes: config.scopes.clone(),
        operators: config.operators.clone(),
    })
}

/// The certificate of the dashboard.
pub(super) fn dashboard(config: &DashboardConfig) -> anyhow::Result<Option<Arc<Certificate>>> {
    load_certificate(config.tls.as_ref(), "dashboard.tls")
}

/// The token of administrators in a file.
pub fn admin_token(file: &Path) -> anyhow::Result<String> {
    checked_admin_token(&secret(&SecretLocation::File(file.to_owned()))?, &file.display().to_string())
}

/// The same from elsewhere.
pub fn checked_admin_token(text: &str, source: &str) -> anyhow::Result<String> {
    let token = text.trim_end_matches(['\r', '\n']);
    let plain = token.bytes().all(|byte| byte.is_ascii_graphic());
    anyhow::ensure!(
        token.len() >= ADMIN_TOKEN_BYTES_MIN && plain,
        "{source} must hold one line of at least {ADMIN_TOKEN_BYTES_MIN} visible characters, as `openssl rand -hex 32` writes it",
    );
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_order_mark_in_front_of_a_secret_or_a_token_is_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let token = "0123456789abcdef0123456789abcdef";
        std::fs::write(&file, format!("\u{feff}{token}\r\n")).unwrap();
        assert_eq!(admin_token(&file).unwrap(), token);
        assert_eq!(secret(&SecretLocation::File(file)).unwrap(), token);
    }

    #[test]
    fn byte_order_mark_in_front_of_certificates_is_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("roots.pem");
        let first = include_str!("../../../tests/harness/keys/root1.pem");
        let second = include_str!("../../../tests/harness/keys/root2.pem");
        std::fs::write(&file, format!("\u{feff}{first}{second}")).unwrap();
        assert_eq!(certificates(&file).unwrap().len(), 2);
    }
}
