//! Detached signatures: the text file beside a component, and the keys that write it.
//!
//! A `.sig` file begins with the line `bulkhead-signature-v1`. Every other line is one signature, its fields separated
//! by spaces: `ed25519`, the id of the key, the SHA-256 of the component, the SHA-256 of the WIT file beside it (`-`:
//! that is not signed), and the signature in base64. Signed is the text [`message`], which names what it is, so that no
//! signature of something else fits.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bulkhead_domain::without_byte_order_mark;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;

use super::{Digest, PublicKey, Signature};

const HEAD: &str = "bulkhead-signature-v1";
/// Bytes of a `.sig` file.
pub const SIGNATURES_BYTES_MAX: u64 = 16 << 10;
/// Before the 32 bytes of a secret Ed25519 key (RFC 8410).
const SECRET: &[u8] = &[0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
const PEM_COLUMNS: usize = 64;

/// What a signature is over.
pub fn message(component: Digest, wit: Option<Digest>) -> String {
    let wit = wit.map_or_else(|| "-".to_owned(), |wit| format!("sha256:{wit}"));
    format!("{HEAD}\ncomponent sha256:{component}\nwit {wit}\n")
}

/// Reads a `.sig` file. What cannot be read is a signature too, for saying what was found.
pub fn parse(file: &[u8]) -> Vec<Signature> {
    let Some((HEAD, lines)) = std::str::from_utf8(file).ok().and_then(|text| text.split_once('\n')) else {
        return vec![Signature::Unreadable(format!("a signature file that does not begin with {HEAD}"))];
    };
    let lines = lines.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| read(line).unwrap_or_else(|| Signature::Unreadable("a line that is no signature".to_owned())))
        .collect()
}

fn read(line: &str) -> Option<Signature> {
    let mut fields = line.split_ascii_whitespace();
    let algorithm = fields.next()?;
    let key_id = fields.next()?;
    let component = fields.next()?;
    let wit = fields.next()?;
    let signature = fields.next()?;
    let digest = |text: &str| Digest::try_from(text.to_owned()).ok();
    let is_id = key_id.len() <= 64 && key_id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if algorithm != "ed25519" || !is_id || fields.next().is_some() {
        return None;
    }
    Some(Signature::Detached {
        key_id: key_id.to_owned(),
        component: digest(component)?,
        wit: if wit == "-" { None } else { Some(digest(wit)?) },
        signature: STANDARD.decode(signature).ok()?,
    })
}

/// A secret key of Ed25519.
pub struct SigningKey(Ed25519KeyPair);

impl SigningKey {
    /// A new key, and the PEM text to keep it in.
    ///
    /// # Errors
    /// There is no randomness.
    pub fn generate() -> Result<(Self, String), String> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|error| format!("there is no randomness: {error}"))?;
        let key = Ed25519KeyPair::from_seed_unchecked(&secret).map_err(|error| error.to_string())?;
        Ok((Self(key), pem("PRIVATE KEY", &[SECRET, secret.as_slice()].concat())))
    }

    /// Reads a `-----BEGIN PRIVATE KEY-----` text.
    ///
    /// # Errors
    /// It is none, or not of Ed25519.
    pub fn from_pem(text: &str) -> Result<Self, &'static str> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(without_byte_order_mark(text).as_bytes());
        let der = der.map_err(|_| "there is no private key in it (-----BEGIN PRIVATE KEY-----, not encrypted)")?;
        let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.secret_pkcs8_der());
        key.map(Self).map_err(|_| "it is not a private key of Ed25519: `bulkhead plugin keygen` makes one")
    }

    pub fn public(&self) -> PublicKey {
        let mut key = [0; 32];
        key.iter_mut().zip(self.0.public_key().as_ref()).for_each(|(to, from)| *to = *from);
        PublicKey::Ed25519(key)
    }

    /// The text of a `.sig` file with this key's signature, and those of other keys over the same in the text that was
    /// there.
    pub fn sign(&self, component: Digest, wit: Option<Digest>, before: Option<&str>) -> String {
        let id = self.public().id();
        let over = format!("{component} {}", wit.map_or_else(|| "-".to_owned(), |wit| wit.to_string()));
        let signature = self.0.sign(message(component, wit).as_bytes());
        let own = format!("ed25519 {id} {over} {}", STANDARD.encode(signature));
        let others = before.unwrap_or_default().lines().filter(|line| {
            matches!(read(line), Some(Signature::Detached { key_id, component: theirs, .. })
                if key_id != id && theirs == component)
        });
        let lines: Vec<_> = [HEAD].into_iter().chain(others).chain([own.as_str()]).collect();
        lines.join("\n") + "\n"
    }
}

/// `x.wasm.sig` of `x.wasm`.
pub fn beside(component: &Path) -> PathBuf {
    let mut path = component.as_os_str().to_owned();
    path.push(".sig");
    path.into()
}

/// A PEM text.
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut lines = vec![format!("-----BEGIN {label}-----")];
    let mut rest = text.as_str();
    while let Some((line, behind)) = rest.split_at_checked(PEM_COLUMNS) {
        lines.push(line.to_owned());
        rest = behind;
    }
    lines.extend((!rest.is_empty()).then(|| rest.to_owned()));
    lines.push(format!("-----END {label}-----\n"));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Digest = Digest([0xa; 32]);
    const B: Digest = Digest([0xb; 32]);

    #[test]
    fn generated_signing_key_round_trips() {
        let (key, text) = SigningKey::generate().unwrap();
        let again = SigningKey::from_pem(&text).unwrap();
        assert_eq!(again.public(), key.public());
        let public = key.public();
        assert_eq!(PublicKey::from_pem(&public.to_pem()), Ok(public.clone()));
        // Some editors write a byte order mark in front.
        assert_eq!(PublicKey::from_pem(&format!("\u{feff}{}", public.to_pem())), Ok(public));
        assert!(SigningKey::from_pem(&format!("\u{feff}{text}")).is_ok());
        assert!(SigningKey::from_pem("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").is_err());
    }

    #[test]
    fn signatures_of_several_keys_are_kept_together() {
        let one = SigningKey::generate().unwrap().0;
        let other = SigningKey::generate().unwrap().0;
        let first = one.sign(A, None, None);
        let both = other.sign(A, Some(B), Some(&first));
        let ids: Vec<_> = parse(both.as_bytes())
            .into_iter()
            .map(|signature| match signature {
                Signature::Detached { key_id, component, wit, signature } => {
                    assert_eq!(component, A);
                    let key = if key_id == one.public().id() { &one } else { &other };
                    assert!(key.public().has_signed(message(A, wit).as_bytes(), &signature));
                    assert!(!key.public().has_signed(message(B, wit).as_bytes(), &signature));
                    key_id
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(ids, [one.public().id(), other.public().id()]);
        assert_eq!(parse(one.sign(B, None, Some(&both)).as_bytes()).len(), 1, "those over something else are gone");
        assert_eq!(parse(other.sign(A, None, Some(&both)).as_bytes()).len(), 2, "its own is replaced");
    }

    #[test]
    fn unreadable_signature_file_is_reported() {
        for file in [&b"\x89PGP"[..], b"", b"bulkhead-signature-v1", b"bulkhead-signature-v2\n"] {
            assert!(matches!(parse(file).as_slice(), [Signature::Unreadable(_)]), "{file:?}");
        }
        let (key, _) = SigningKey::generate().unwrap();
        let whole = key.sign(A, None, None);
        for cut in [whole.len() - 3, whole.len() / 2, HEAD.len() + 9] {
            assert!(matches!(parse(&whole.as_bytes()[..cut]).as_slice(), [Signature::Unreadable(_)]), "{cut}");
        }
        assert_eq!(parse(b"bulkhead-signature-v1\n"), []);
    }
}
