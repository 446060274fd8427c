//! Whom the host trusts and how it is trusted: certificates and secrets from their files.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use bulkhead::config::{Config, IssuerConfig, SecretPlace};
use bulkhead::domain::rights::ScopeBook;
use bulkhead::outward::dial;
use bulkhead::transport::auth::{Authenticator, OauthVerifier, ResourceOptions, Trusted, Verifier};
use bulkhead::transport::http::Certificate;
use bulkhead::transport::principal::TokenVerifier;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::host::Host;
use super::sources;

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
        Some(place) => secret(place).with_context(|| format!("the client secret for {name}"))?,
        None => String::new(),
    };
    Ok(Trusted { options: issuer.options.clone(), tls, client_secret })
}

fn certificates(file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let text = std::fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.ok().filter(|found| !found.is_empty());
    found.with_context(|| format!("{} holds no certificate in PEM form", file.display()))
}

fn secret(place: &SecretPlace) -> anyhow::Result<String> {
    let text = match place {
        SecretPlace::File(file) => {
            std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?
        }
        SecretPlace::Variable(name) => {
            sources::variable(name).with_context(|| format!("the environment variable {name} is not set"))?
        }
    };
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// The host's own certificate.
pub(super) fn certificate(config: &Config) -> anyhow::Result<Option<Arc<Certificate>>> {
    let Some(tls) = &config.tls else { return Ok(None) };
    Ok(Some(Certificate::load(&tls.certificate, &tls.key).context("server.tls")?))
}

/// Who is let in.
pub(super) fn authenticator(config: &Config, host: &Host, issuers: Vec<Trusted>) -> Authenticator {
    let tokens = TokenVerifier::new(host.principals.clone(), host.now.clone());
    let used = tokens.used();
    let audit = host.audit.clone();
    tokio::spawn(async move { used.tend(&audit).await });
    let tokens: Arc<dyn Verifier> = Arc::new(tokens);
    let scopes = ScopeBook::new(config.auth.scopes.clone());
    let Some(resource) = config.auth.resource.clone().filter(|_| !issuers.is_empty()) else {
        return Authenticator::new(vec![tokens], config.is_local() || config.insecure.anonymous).with_scopes(scopes);
    };
    let resource = ResourceOptions {
        resource,
        issuers: issuers.iter().map(|trusted| trusted.options.issuer.clone()).collect(),
        scopes: config.auth.scopes.iter().filter(|rule| rule.basic).map(|rule| rule.name.clone()).collect(),
    };
    let oauth = Arc::new(OauthVerifier::new(issuers, host.principals.clone(), host.now.clone()));
    // Where issuers say who somebody is, nobody is anybody without one.
    Authenticator::new(vec![tokens, oauth], false).with_resource(&resource).with_scopes(scopes)
}
