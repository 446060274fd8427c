//! How the host presents itself to clients that have no token yet (RFC 9728), and what it asks them for.
//!
//! Owns the metadata document, its addresses, and the values of `WWW-Authenticate`. Invariant: nothing of it comes from
//! a request, so no header of anybody's can lead a client to another authorization server.

use http::HeaderValue;
use serde_json::json;

use super::claims::{canonical, split};
use super::unauthorized::Unauthorized;

const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// What a host says about itself as an OAuth resource.
#[derive(Clone, Debug)]
pub struct ResourceOptions {
    /// The canonical URI, as the operator wrote it.
    pub resource: String,
    /// Of the authorization servers.
    pub issuers: Vec<String>,
    /// What a client needs for basic use.
    pub scopes: Vec<String>,
}

/// The metadata and the challenges, ready to be sent.
#[derive(Debug)]
pub struct Resource {
    document: String,
    /// The paths at which the document is.
    paths: Vec<String>,
    /// ` resource_metadata="…"`, and the scopes of basic use.
    metadata: String,
    basic: String,
}

impl Resource {
    /// `endpoint` is the path of the endpoint on this host; a proxy may show it under another one.
    pub fn new(options: &ResourceOptions, endpoint: &str) -> Self {
        let ResourceOptions { resource, issuers, scopes } = options;
        let scopes: Vec<_> = scopes.iter().map(String::as_str).collect();
        let mut document = json!({
            "resource": canonical(resource),
            "authorization_servers": issuers,
            "bearer_methods_supported": ["header"],
            "resource_name": "Bulkhead",
        });
        if let Some(document) = document.as_object_mut().filter(|_| !scopes.is_empty()) {
            document.insert("scopes_supported".to_owned(), json!(scopes));
        }
        let (origin, path) = split(resource).unwrap_or_default();
        let own = format!("{WELL_KNOWN}{path}");
        let mut paths = vec![WELL_KNOWN.to_owned(), format!("{WELL_KNOWN}{endpoint}"), own.clone()];
        paths.dedup();
        let metadata = format!(r#" resource_metadata="{origin}{own}""#);
        Self { document: document.to_string(), paths, metadata, basic: scopes.join(" ") }
    }

    /// The document, if it is at this path.
    pub fn document_at(&self, path: &str) -> Option<&str> {
        self.paths.iter().any(|known| known == path).then_some(self.document.as_str())
    }

    /// The value of `WWW-Authenticate` for a request that is not let in.
    pub fn challenge(&self, unauthorized: &Unauthorized) -> Option<HeaderValue> {
        let error = match unauthorized {
            Unauthorized::Missing => "",
            Unauthorized::Malformed => r#" error="invalid_request","#,
            Unauthorized::Invalid => r#" error="invalid_token","#,
            Unauthorized::Unavailable { .. } | Unauthorized::StoreUnavailable { .. } | Unauthorized::Limited(_) => {
                return None;
            }
        };
        let scope = if self.basic.is_empty() { String::new() } else { format!(r#", scope="{}""#, self.basic) };
        HeaderValue::from_str(&format!("Bearer{error}{}{scope}", self.metadata)).ok()
    }

    /// The value of `WWW-Authenticate` for a request that needs these scopes, all of them.
    pub fn step_up(&self, scopes: &[String]) -> Option<HeaderValue> {
        let scopes = scopes.join(" ");
        let why = "The operation needs these scopes";
        let metadata = &self.metadata;
        HeaderValue::from_str(&format!(
            r#"Bearer error="insufficient_scope", scope="{scopes}",{metadata}, error_description="{why}""#
        ))
        .ok()
    }
}
