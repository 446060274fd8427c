//! People who log in at an issuer with a browser: OpenID Connect, the authorization code flow with PKCE.
//!
//! Owns where a browser is sent, the exchange of its code, and what the id token must say. Must not keep or log a code
//! or a token, and must not know a browser: whose attempt it is, is the caller's to check. Invariant: who logs in is
//! the same requestor as with an access token of that issuer.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, StatusCode};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use url::Url;
use url::form_urlencoded::Serializer;

use super::claims::{Claims, SCOPES_MAX};
use super::introspection::basic;
use super::issuer::Issuer;
use super::issuer_options::DOCUMENT_BYTES_MAX;
use super::jwt::Purpose;
use super::login_endpoints::unavailable;
use super::oauth::OauthVerifier;
use super::stored::SignedProof;
use super::verifier::Denied;
use super::{Authenticator, Unauthorized};
use bulkhead_net::client::Request;

/// Characters of the code of a login at an issuer; a longer one is none.
const CODE_CHARS_MAX: usize = 4_096;

/// How the host is known to an issuer at which people log in.
pub struct LoginClient {
    pub issuer: String,
    pub client_id: String,
    /// A public client has none.
    pub client_secret: Option<String>,
    /// What is asked for, `openid` among it.
    pub scopes: Vec<String>,
    pub operators: Option<OperatorClaim>,
}

/// Whose id token says this is an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorClaim {
    pub claim: String,
    /// The claim's text, or one in its list.
    pub value: String,
}

/// One attempt of one browser. All of it is hard to guess.
pub struct LoginAttempt {
    pub state: String,
    pub nonce: String,
    /// Of PKCE: 43 to 128 characters.
    pub verifier: String,
    pub redirect_uri: String,
}

/// What the browser brings back.
pub struct LoginAnswer<'a> {
    pub code: &'a str,
    pub attempt: &'a LoginAttempt,
}

/// Who has logged in.
pub enum LoggedIn {
    Operator(SignedProof),
    /// [`Authenticator::stored_caller`] says who that is.
    Requestor(SignedProof),
}

impl Authenticator {
    /// Where the browser of an attempt is sent.
    ///
    /// # Errors
    /// The issuer is not configured, or does not say where.
    pub async fn login_address(&self, client: &LoginClient, attempt: &LoginAttempt) -> Result<Url, Unauthorized> {
        let oauth = self.logins()?;
        let issuer = oauth.issuer(&client.issuer).ok_or(Unauthorized::Invalid)?;
        let mut url = issuer.endpoints.get().await?.authorization;
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &client.client_id)
            .append_pair("redirect_uri", &attempt.redirect_uri)
            .append_pair("scope", &client.scopes.join(" "))
            .append_pair("state", &attempt.state)
            .append_pair("nonce", &attempt.nonce)
            .append_pair("code_challenge", &challenge(&attempt.verifier))
            .append_pair("code_challenge_method", "S256");
        Ok(url)
    }

    /// Who has logged in, by the code that the browser of an attempt brought back.
    ///
    /// # Errors
    /// The issuer refuses the code, its id token is not one of this attempt, or it cannot be asked.
    pub async fn logged_in(&self, client: &LoginClient, answer: LoginAnswer<'_>) -> Result<LoggedIn, Unauthorized> {
        if answer.code.is_empty() || answer.code.len() > CODE_CHARS_MAX {
            return Err(Unauthorized::Malformed);
        }
        let oauth = self.logins()?;
        let issuer = oauth.issuer(&client.issuer).ok_or(Unauthorized::Invalid)?;
        let given = issuer.exchange(client, &answer).await?;
        let (claims, kid) = issuer.claims(&given.id_token, Purpose::Login).await?;
        let is_operator = |claims: &Claims| {
            client.operators.as_ref().is_some_and(|operators| claims.says(&operators.claim, &operators.value))
        };
        let nonce = answer.attempt.nonce.as_str();
        let now = oauth.now.system();
        let checked = claims.check_login(&issuer.options, &client.client_id, nonce, is_operator, now);
        let (mut proof, is_operator) = issuer.judged(checked)?;
        // An id token names no scopes; an answer that names none grants all that were asked for (RFC 6749, 5.1).
        let named = |scopes: &str| scopes.split(' ').filter(|scope| !scope.is_empty()).map(str::to_owned).collect();
        proof.scopes = given.scope.as_deref().map_or_else(|| client.scopes.clone(), named);
        proof.scopes.truncate(SCOPES_MAX);
        let proof = SignedProof::new(client.issuer.clone(), proof, kid);
        Ok(if is_operator { LoggedIn::Operator(proof) } else { LoggedIn::Requestor(proof) })
    }

    fn logins(&self) -> Result<Arc<OauthVerifier>, Unauthorized> {
        self.rules.load().oauth.clone().ok_or(Unauthorized::Invalid)
    }
}

/// What is given for a code. What else comes with it is of no use here.
#[derive(Deserialize)]
struct TokenResponse {
    id_token: String,
    scope: Option<String>,
}

impl Issuer {
    async fn exchange(&self, client: &LoginClient, answer: &LoginAnswer<'_>) -> Result<TokenResponse, Denied> {
        let LoginAnswer { code, attempt } = answer;
        let failed = |why: &str| unavailable(&self.options.issuer, why);
        let url = self.endpoints.get().await?.token;
        let _one = self.endpoints.exchanges.try_acquire().map_err(|_| failed("too many codes are exchanged"))?;
        let request = Request {
            headers: vec![(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"))],
            authorization: client.client_secret.as_ref().map(|secret| basic(&client.client_id, secret)),
            body: Bytes::from(exchange_form(client, code, attempt)),
            ..Request::new(Method::POST, url)
        };
        let answer = self.endpoints.client.fetch_document(request, self.options.fetch_ms_max, DOCUMENT_BYTES_MAX).await;
        let (status, body) = answer.map_err(|error| failed(&error.to_string()))?;
        match status {
            StatusCode::OK => serde_json::from_slice(&body).map_err(|_| failed("its answer holds no id token")),
            StatusCode::BAD_REQUEST if says_invalid_grant(&body) => Err(Denied::Invalid),
            // The client is not known there, say: that is the operator's to mend.
            status => Err(failed(&format!("it refuses to exchange a code, with status {status}"))),
        }
    }
}

/// What is sent for a token (RFC 6749, 4.1.3; RFC 7636, 4.5). A client with a secret shows who it is in a header.
fn exchange_form(client: &LoginClient, code: &str, attempt: &LoginAttempt) -> String {
    let mut form = Serializer::new(String::new());
    form.append_pair("grant_type", "authorization_code")
        .append_pair("code", code)
        .append_pair("redirect_uri", &attempt.redirect_uri)
        .append_pair("code_verifier", &attempt.verifier);
    if client.client_secret.is_none() {
        form.append_pair("client_id", &client.client_id);
    }
    form.finish()
}

/// Whether the issuer does not take the code: it was used, has expired, or is of another client.
fn says_invalid_grant(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Refused {
        error: String,
    }
    serde_json::from_slice::<Refused>(body).is_ok_and(|refused| refused.error == "invalid_grant")
}

/// Of PKCE (RFC 7636, 4.2).
fn challenge(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(verifier))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenge_is_that_of_rfc_7636() {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        assert_eq!(challenge(verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn only_a_refused_code_is_the_browsers_fault() {
        assert!(says_invalid_grant(br#"{"error": "invalid_grant", "error_description": "used"}"#));
        for other in [&br#"{"error": "invalid_client"}"#[..], b"invalid_grant", b"[]", b""] {
            assert!(!says_invalid_grant(other));
        }
    }
}
