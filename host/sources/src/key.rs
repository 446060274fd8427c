//! Public keys, as PEM files have them.

use bulkhead_domain::without_byte_order_mark;
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};

/// Before the 32 bytes of an Ed25519 key (RFC 8410).
const ED25519: &[u8] = &[0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// Before the 65 bytes of an uncompressed point on P-256 (RFC 5480).
const P256: &[u8] = &[
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// Bytes of the hash that a key is called by.
const ID_BYTES: usize = 8;

/// A key that signatures are verified with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublicKey {
    /// What `bulkhead plugin keygen` makes.
    Ed25519([u8; 32]),
    /// What `cosign generate-key-pair` makes: a point, uncompressed.
    EcdsaP256(Box<[u8; 65]>),
}

impl PublicKey {
    /// Reads a `-----BEGIN PUBLIC KEY-----` text.
    ///
    /// # Errors
    /// It is none, or of another algorithm.
    pub fn from_pem(pem: &str) -> Result<Self, &'static str> {
        let der = SubjectPublicKeyInfoDer::from_pem_slice(without_byte_order_mark(pem).as_bytes());
        let der = der.map_err(|_| "there is no public key in it (-----BEGIN PUBLIC KEY-----)")?;
        let unknown = "its algorithm is not known here: Ed25519 and ECDSA on P-256 are";
        if let Some(key) = der.strip_prefix(ED25519) {
            return key.try_into().map(Self::Ed25519).map_err(|_| unknown);
        }
        let key = der.strip_prefix(P256).and_then(|key| <[u8; 65]>::try_from(key).ok()).ok_or(unknown)?;
        Ok(Self::EcdsaP256(Box::new(key)))
    }

    /// The `-----BEGIN PUBLIC KEY-----` text.
    pub fn to_pem(&self) -> String {
        super::signature::pem("PUBLIC KEY", &self.to_der())
    }

    fn to_der(&self) -> Vec<u8> {
        match self {
            Self::Ed25519(key) => [ED25519, key].concat(),
            Self::EcdsaP256(key) => [P256, key.as_slice()].concat(),
        }
    }

    /// What the key is called: the beginning of the SHA-256 of its DER form, in hexadecimal digits.
    pub fn id(&self) -> String {
        Sha256::digest(self.to_der()).iter().take(ID_BYTES).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether this key has signed this message. Of ECDSA, the signature is in DER over the SHA-256.
    pub fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        use ring::signature::{ECDSA_P256_SHA256_ASN1, ED25519, UnparsedPublicKey};
        match self {
            Self::Ed25519(key) => UnparsedPublicKey::new(&ED25519, key).verify(message, signature),
            Self::EcdsaP256(key) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key.as_slice()).verify(message, signature)
            }
        }
        .is_ok()
    }
}
