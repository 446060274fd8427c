//! What a token says, once it is known who says it.
//!
//! Owns the rules of issuer, audience, time and subject (RFC 7519, RFC 9068), for signed and for introspected tokens
//! alike. Invariant: what is missing, of another type or out of its time makes the token invalid; nothing is guessed.

use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};

use super::issuer_options::{IssuerOptions, TenantRule};
use bulkhead_domain::UnixMs;

/// Bytes of a subject or client id in a token; more cannot be an identifier.
const SUBJECT_BYTES_MAX: usize = 512;
/// Names of scopes in one token.
pub(super) const SCOPES_MAX: usize = 256;
/// The end of the year 9999, in seconds.
const SECONDS_MAX: f64 = 253_402_300_799.0;

/// The claims that matter, as they were written.
#[derive(Debug, Deserialize)]
pub(super) struct Claims {
    iss: Option<String>,
    sub: Option<String>,
    aud: Option<OneOrMany>,
    exp: Option<Number>,
    nbf: Option<Number>,
    /// A text (RFC 9068), or a list as some issuers write it.
    scope: Option<Value>,
    /// How others spell `scope`.
    scp: Option<Value>,
    client_id: Option<String>,
    /// Who a token was issued to, in the words of OpenID Connect.
    azp: Option<String>,
    #[serde(flatten, deserialize_with = "each_once")]
    further: Map<String, Value>,
}

/// Claims without a field of their own. One that is there twice is refused, as those with a field are: nobody knows
/// which one is meant.
fn each_once<'de, D: Deserializer<'de>>(claims: D) -> Result<Map<String, Value>, D::Error> {
    struct EachOnce;
    impl<'de> Visitor<'de> for EachOnce {
        type Value = Map<String, Value>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("claims that are there once")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut claims: A) -> Result<Self::Value, A::Error> {
            let mut read = Map::new();
            while let Some((name, value)) = claims.next_entry::<String, Value>()? {
                if read.insert(name, value).is_some() {
                    return Err(A::Error::custom("a claim is there twice"));
                }
            }
            Ok(read)
        }
    }
    claims.deserialize_map(EachOnce)
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    fn all(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

/// What a good token proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proof {
    pub subject: String,
    /// Empty unless the token names one.
    pub client: String,
    pub tenant: String,
    pub scopes: Vec<String>,
    pub expires_at: UnixMs,
}

/// Why most tokens are refused that were good once.
const EXPIRED: &str = "it has expired";

/// Tells the operator why a token is refused that its issuer vouches for. The client learns that it is refused.
pub(super) fn tell_refused(issuer: &str, reason: &'static str) {
    if reason == EXPIRED {
        tracing::debug!(issuer, reason, "refused a token");
    } else {
        tracing::info!(
            issuer,
            reason,
            "refused a token of the issuer: what it says is not what the configuration wants"
        );
    }
}

/// Whether the issuer has to be named: a signed token does, an answer to a question need not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum IssuerClaim {
    Always,
    IfAtAll,
}

impl Claims {
    /// The proof, if the token is meant for this host at this time; else what is wrong, for the log of the operator.
    pub(super) fn check(
        self,
        options: &IssuerOptions,
        issuer: IssuerClaim,
        now: UnixMs,
    ) -> Result<Proof, &'static str> {
        let audience = self.aud.as_ref().ok_or("it names no audience")?;
        if !audience.all().iter().any(|name| options.audiences.iter().any(|ours| same_resource(name, ours))) {
            return Err("it is for another audience");
        }
        let expires_at = self.end(options, issuer, now)?;
        let tenant = self.tenant(&options.tenant)?;
        self.proof(options, tenant, expires_at)
    }

    /// The proof of an id token: of who logged in as that client with that nonce. With `is_operator`, the person needs
    /// no tenant.
    pub(super) fn check_login(
        mut self,
        options: &IssuerOptions,
        client_id: &str,
        nonce: &str,
        is_operator: impl Fn(&Self) -> bool,
        now: UnixMs,
    ) -> Result<(Proof, bool), &'static str> {
        let audience = self.aud.as_ref().ok_or("it names no audience")?.all();
        if !audience.iter().any(|name| name == client_id) {
            return Err("it is for another client");
        }
        if (audience.len() > 1 && self.azp.is_none()) || self.azp.as_ref().is_some_and(|azp| azp != client_id) {
            return Err("it was issued to another client");
        }
        if self.further.get("nonce").and_then(Value::as_str) != Some(nonce) {
            return Err("it is of another login");
        }
        let expires_at = self.end(options, IssuerClaim::Always, now)?;
        let is_operator = is_operator(&self);
        let tenant = if is_operator { String::new() } else { self.tenant(&options.tenant)? };
        self.client_id = Some(client_id.to_owned());
        Ok((self.proof(options, tenant, expires_at)?, is_operator))
    }

    /// Whether a claim is this text, or a list with it.
    pub(super) fn says(&self, claim: &str, value: &str) -> bool {
        self.text(claim) == Some(value)
            || self.further.get(claim).and_then(Value::as_array).is_some_and(|list| list.iter().any(|one| one == value))
    }

    /// When the token ends, if it is of this issuer and of this time.
    fn end(&self, options: &IssuerOptions, issuer: IssuerClaim, now: UnixMs) -> Result<UnixMs, &'static str> {
        match &self.iss {
            Some(name) if *name == options.issuer => {}
            None if issuer == IssuerClaim::IfAtAll => {}
            _ => return Err("it is of another issuer"),
        }
        let exp = milliseconds(self.exp.as_ref().ok_or("it has no end")?).ok_or("its end is no time")?;
        // Of a signed token the end is all there is; skew works in favour of the client, as everywhere.
        let expires_at = exp.saturating_add(options.clock_skew_ms);
        if now >= expires_at {
            return Err(EXPIRED);
        }
        if let Some(nbf) = &self.nbf {
            let from = milliseconds(nbf).ok_or("its begin is no time")?;
            if now.saturating_add(options.clock_skew_ms) < from {
                return Err("it is not valid yet");
            }
        }
        Ok(expires_at)
    }

    fn proof(self, options: &IssuerOptions, tenant: String, expires_at: UnixMs) -> Result<Proof, &'static str> {
        let client = self.client_id.or(self.azp).unwrap_or_default();
        if !is_identifier(&client) && !client.is_empty() {
            return Err("its client is no identifier");
        }
        if options.client_id_in_principal && client.is_empty() {
            return Err("it names no client");
        }
        let subject = self.sub.filter(|subject| is_identifier(subject)).ok_or("it has no usable subject")?;
        let wrong = "its scopes are neither a text nor a list of texts";
        let claims = [&self.scope, &self.scp].into_iter().flatten();
        let texts: Vec<_> = claims.map(texts).collect::<Option<Vec<_>>>().ok_or(wrong)?.concat();
        let names = texts.iter().flat_map(|text| text.split(' ')).filter(|name| !name.is_empty());
        let scopes: Vec<_> = names.map(str::to_owned).collect();
        if scopes.len() > SCOPES_MAX {
            return Err("it has too many scopes");
        }
        Ok(Proof { subject, client, tenant, scopes, expires_at })
    }

    fn tenant(&self, rule: &TenantRule) -> Result<String, &'static str> {
        let (claim, allowed) = match rule {
            TenantRule::Fixed(name) => return Ok(name.clone()),
            TenantRule::Claim { claim, allowed } => (claim, allowed),
        };
        let name = self.text(claim).ok_or("it names no tenant")?;
        let is_allowed = allowed.iter().any(|known| known == "*" || known == name);
        if !is_allowed || bulkhead_domain::names::check_name(name).is_err() {
            return Err("its tenant is not one that this issuer may name");
        }
        Ok(name.to_owned())
    }

    /// A claim that is a text. Those with a field of their own are not among the others.
    fn text(&self, claim: &str) -> Option<&str> {
        match claim {
            "sub" => self.sub.as_deref(),
            "client_id" => self.client_id.as_deref(),
            "azp" => self.azp.as_deref(),
            other => self.further.get(other).and_then(Value::as_str),
        }
    }
}

/// A text, or the texts of a list; `None`: it is something else.
fn texts(claim: &Value) -> Option<Vec<&str>> {
    match claim {
        Value::String(text) => Some(vec![text]),
        Value::Array(list) => list.iter().map(Value::as_str).collect(),
        _ => None,
    }
}

/// A NumericDate: seconds, possibly with a fraction.
fn milliseconds(seconds: &Number) -> Option<UnixMs> {
    let seconds = seconds.as_f64().filter(|seconds| (0.0..=SECONDS_MAX).contains(seconds))?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded one line above")]
    let milliseconds = (seconds * 1000.0) as UnixMs;
    Some(milliseconds)
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty() && text.len() <= SUBJECT_BYTES_MAX && !text.chars().any(char::is_control)
}

/// Whether an audience is this resource: scheme and host are compared without case, and a slash at the end does not
/// matter.
fn same_resource(audience: &str, ours: &str) -> bool {
    audience == ours || canonical(audience) == canonical(ours)
}

/// The canonical spelling of a resource's URI; anything else stays as it is.
pub(super) fn canonical(uri: &str) -> String {
    let Some((origin, path)) = split(uri) else { return uri.to_owned() };
    format!("{}{path}", origin.to_ascii_lowercase())
}

/// Scheme and authority, and the path without a slash at its end.
pub(super) fn split(uri: &str) -> Option<(&str, &str)> {
    let authority = uri.find("://")? + 3;
    let path = uri.get(authority..)?.find('/').map_or(uri.len(), |at| authority + at);
    let (origin, path) = uri.split_at_checked(path)?;
    Some((origin, path.trim_end_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_token_claims_are_refused() {
        let read = |claims: &str| serde_json::from_str::<Claims>(claims).map(drop);
        assert!(read(r#"{"sub": "anna", "org": "acme", "exp": 1}"#).is_ok());
        for twice in [
            r#"{"org": "acme", "org": "globex"}"#,
            r#"{"org": "acme", "sub": "anna", "\u006frg": "acme"}"#,
            r#"{"sub": "anna", "sub": "bert"}"#,
            r#"{"exp": 1, "exp": 2}"#,
        ] {
            assert!(read(twice).is_err(), "{twice}");
        }
    }

    #[test]
    fn token_scopes_are_read_in_each_shape_that_issuers_write() {
        let options = IssuerOptions {
            issuer: "https://issuer.example".to_owned(),
            url: "https://issuer.example".parse().unwrap(),
            audiences: vec!["https://mcp.example.com/mcp".to_owned()],
            jwks_url: None,
            algorithms: Vec::new(),
            client_id_in_principal: false,
            require_at_jwt: false,
            clock_skew_ms: 0,
            keys_fresh_ms: 0,
            keys_stale_ms: 0,
            keys_retry_ms: 0,
            fetch_ms_max: 0,
            private_addresses: Vec::new(),
            introspection: None,
            tenant: TenantRule::Fixed("acme".to_owned()),
        };
        let refused = Err("its scopes are neither a text nor a list of texts");
        for (shape, expected) in [
            (r#""read write""#, Ok(vec!["read", "write"])),
            (r#"["read", "write"]"#, Ok(vec!["read", "write"])),
            (r#"["read write", "admin"]"#, Ok(vec!["read", "write", "admin"])),
            (r#""""#, Ok(vec![])),
            ("[]", Ok(vec![])),
            ("null", Ok(vec![])),
            ("7", refused.clone()),
            (r#"["read", 7]"#, refused.clone()),
            (r#"[["read"]]"#, refused.clone()),
            (r#"{"read": true}"#, refused.clone()),
            ("true", refused),
        ] {
            for claim in ["scope", "scp"] {
                let text = format!(
                    r#"{{"iss": "https://issuer.example", "aud": "https://mcp.example.com/mcp", "exp": 9, "sub": "anna", "{claim}": {shape}}}"#
                );
                let proof = serde_json::from_str::<Claims>(&text).unwrap().check(&options, IssuerClaim::Always, 1);
                let scopes = proof.map(|proof| proof.scopes);
                let expected = expected.clone().map(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>());
                assert_eq!(scopes, expected, "{claim}: {shape}");
            }
        }
    }

    #[test]
    fn token_audience_resource_is_canonicalized() {
        assert_eq!(canonical("HTTPS://MCP.Example.com/Mcp/"), "https://mcp.example.com/Mcp");
        assert_eq!(canonical("https://mcp.example.com"), "https://mcp.example.com");
        assert_eq!(canonical("api://Mixed"), "api://mixed");
        assert_eq!(canonical("plain-Id"), "plain-Id");
        assert!(!same_resource("https://mcp.example.com/mcp2", "https://mcp.example.com/mcp"));
        assert!(!same_resource("plain-id", "plain-Id"));
    }
}
