//! The cryptography of signatures on tokens: ring, which TLS has brought anyway.
//!
//! Owns which algorithms exist at all. Invariant: nothing is verified with a key of another kind than its algorithm's,
//! and nothing symmetric or unsigned has a verifier.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind};
use ring::signature as ring;

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(unsupported()),
    verifier_factory: |algorithm, key| Ok(Box::new(Checked::new(*algorithm, key)?)),
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes the library use ring; once or more often.
pub(super) fn install() {
    // Somebody was first: ourselves.
    let _ = PROVIDER.install_default();
}

fn unsupported() -> Error {
    ErrorKind::UnsupportedAlgorithm.into()
}

/// A key for one algorithm.
struct Checked {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl Checked {
    fn new(algorithm: Algorithm, key: &DecodingKey) -> Result<Self, Error> {
        let family = match algorithm {
            Algorithm::RS256 => AlgorithmFamily::Rsa,
            Algorithm::ES256 => AlgorithmFamily::Ec,
            Algorithm::EdDSA => AlgorithmFamily::Ed,
            _ => return Err(unsupported()),
        };
        if key.family() == family { Ok(Self { algorithm, key: key.clone() }) } else { Err(unsupported()) }
    }
}

impl Verifier<Vec<u8>> for Checked {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let wrong = |_| signature::Error::new();
        let whole = |algorithm: &'static dyn ring::VerificationAlgorithm, key: &[u8]| {
            ring::UnparsedPublicKey::new(algorithm, key).verify(message, signature).map_err(wrong)
        };
        match (self.algorithm, self.key.kind()) {
            (Algorithm::RS256, DecodingKeyKind::RsaModulusExponent { n, e }) => ring::RsaPublicKeyComponents { n, e }
                .verify(&ring::RSA_PKCS1_2048_8192_SHA256, message, signature)
                .map_err(wrong),
            (Algorithm::ES256, DecodingKeyKind::SecretOrDer(key)) => whole(&ring::ECDSA_P256_SHA256_FIXED, key),
            (Algorithm::EdDSA, DecodingKeyKind::SecretOrDer(key)) => whole(&ring::ED25519, key),
            _ => Err(signature::Error::new()),
        }
    }
}

impl JwtVerifier for Checked {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
