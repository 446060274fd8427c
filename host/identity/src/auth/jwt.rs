//! Signed tokens: their header, and the signature.
//!
//! Owns which headers are acceptable. Must not trust a word of a token before its signature was checked, save to find
//! the key. Invariant: the key comes from the issuer's own set, and its kind decides what may be verified with it.

use jsonwebtoken::{Algorithm, DecodingKey, Validation, dangerous, decode, decode_header};
use serde::Deserialize;

use super::claims::Claims;
use super::issuer_options::IssuerOptions;

/// Longer names of keys are not looked for.
const KID_BYTES_MAX: usize = 512;

/// How to find the key of a token.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TokenHeader {
    pub kid: Option<String>,
    pub algorithm: Algorithm,
}

/// Whether a text looks like a signed token at all: what does not may be an opaque one.
pub(super) fn looks_signed(token: &str) -> bool {
    token.starts_with("ey") && token.bytes().filter(|byte| *byte == b'.').count() == 2
}

/// Who a token says it is from. Nothing is proven by it.
pub(super) fn claimed_issuer(token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Issuer {
        iss: String,
    }
    dangerous::insecure_decode_claims::<Issuer>(token).ok().map(|claims| claims.iss)
}

/// What a token is shown for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Access,
    /// It says who has logged in.
    Login,
}

/// Reads a header; refuses everything that is not a plain signature over a token for this purpose.
pub(super) fn head(token: &str, options: &IssuerOptions, purpose: Purpose) -> Result<TokenHeader, &'static str> {
    // Unknown algorithms and "none" are unreadable here.
    let header =
        decode_header(token).map_err(|_| "its header cannot be read, or has an algorithm that is not served")?;
    if !options.algorithms.contains(&header.alg) {
        return Err("its algorithm is not one of this issuer's");
    }
    if header.jku.is_some() || header.jwk.is_some() || header.x5u.is_some() || header.x5c.is_some() {
        return Err("it brings a key of its own");
    }
    if header.crit.is_some() || header.enc.is_some() || header.zip.is_some() {
        return Err("its header demands what is not understood");
    }
    let kind = header.typ.as_deref().map(str::to_ascii_lowercase);
    let kind = kind.as_deref().map(|kind| kind.strip_prefix("application/").unwrap_or(kind));
    match (purpose, kind) {
        (Purpose::Access, Some("at+jwt")) | (Purpose::Login, None | Some("jwt")) => {}
        (Purpose::Access, None | Some("jwt")) if !options.require_at_jwt => {}
        _ => return Err("it is a token for something else"),
    }
    if header.kid.as_ref().is_some_and(|kid| kid.len() > KID_BYTES_MAX) {
        return Err("the name of its key is too long");
    }
    Ok(TokenHeader { kid: header.kid, algorithm: header.alg })
}

/// The claims of a token that one of these keys has signed.
pub(super) fn claims(token: &str, keys: &[DecodingKey], algorithm: Algorithm) -> Result<Claims, &'static str> {
    let mut validation = Validation::new(algorithm);
    // What the claims say is judged by `claims`, by the host's own clock and with exact types.
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    keys.iter()
        .find_map(|key| decode::<Claims>(token, key, &validation).ok())
        .map(|token| token.claims)
        .ok_or("no key of the issuer fits its signature, or its claims cannot be read")
}
