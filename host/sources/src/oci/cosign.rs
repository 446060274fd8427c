//! Signatures of artifacts by a key, as cosign makes and finds them: no transparency log, no certificates, nothing
//! online.
//!
//! Two forms are read. The older is a signed JSON text that names a manifest ("simple signing"), kept under the tag
//! `sha256-DIGEST.sig`. The newer is a Sigstore bundle: a DSSE envelope around an in-toto statement whose subject is
//! the manifest. Invariant: a text counts for a manifest only if the text itself names that manifest's digest.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bulkhead_domain::without_byte_order_mark;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;

use super::manifest::Descriptor;
use super::{SIGNATURES_MAX, oci_digest};
use crate::{Digest, OciReference, PublicKey};

pub(super) const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
pub(super) const SIGNATURE_ANNOTATION: &str = "dev.cosignproject.cosign/signature";
/// Of the config beside signatures.
pub(super) const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// What artifacts and layers with a bundle are called, before the version.
pub(super) const BUNDLE: &str = "application/vnd.dev.sigstore.bundle";
const IN_TOTO: &str = "application/vnd.in-toto+json";
const TYPE: &str = "cosign container image signature";
/// What a predicate of a plain signature is called, as against an attestation, which says something else about an
/// artifact.
const SIGN_PREDICATE: &str = "https://sigstore.dev/cosign/sign/v1";

/// Whether a signed text is a signature of this manifest, and of the manifest in this repository if one is given. The
/// signature itself is checked by the owner of the key.
///
/// # Errors
/// What was expected and what was found, in words.
pub fn names(payload: &[u8], manifest: Digest, repository: Option<&OciReference>) -> Result<(), String> {
    let (digests, named) = match dsse_body(payload) {
        Some(statement) => (subjects(statement)?, None),
        None => image(payload).map(|(digest, named)| (vec![digest], Some(named)))?,
    };
    if let Some(expected) = repository.map(|at| format!("{}/{}", at.registry, at.repository)) {
        let named = named.ok_or("a bundle, which names no repository, though same_repository = true wants one")?;
        // Docker Hub is called by two names, and some signers add the tag.
        let plain = named.strip_prefix("index.").filter(|rest| rest.starts_with("docker.io/")).unwrap_or(&named);
        let rest = plain.strip_prefix(&expected);
        if !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '@'])) {
            let found: String = named.chars().filter(|c| !c.is_control()).take(200).collect();
            return Err(format!("a signature for another repository: expected {expected}, found {found}"));
        }
    }
    if digests.iter().any(|digest| oci_digest(digest) == Some(manifest)) {
        return Ok(());
    }
    let found: Vec<_> = digests.iter().take(3).map(|text| text.chars().take(80).collect::<String>()).collect();
    Err(format!("a signature of another manifest: expected sha256:{manifest}, found {}", found.join(", ")))
}

/// Of a simple-signing text: the manifest and the repository that it names.
fn image(payload: &[u8]) -> Result<(String, String), String> {
    #[derive(Deserialize)]
    struct Payload {
        critical: Critical,
    }
    #[derive(Deserialize)]
    struct Critical {
        #[serde(default)]
        identity: Identity,
        image: Image,
        #[serde(rename = "type")]
        kind: String,
    }
    #[derive(Default, Deserialize)]
    struct Identity {
        #[serde(rename = "docker-reference", default)]
        reference: String,
    }
    #[derive(Deserialize)]
    struct Image {
        #[serde(rename = "docker-manifest-digest")]
        digest: String,
    }
    let payload: Payload =
        serde_json::from_slice(payload).map_err(|error| format!("a signed text that names no manifest ({error})"))?;
    if payload.critical.kind != TYPE {
        return Err(format!("a signed text of another type than {TYPE:?}"));
    }
    Ok((payload.critical.image.digest, payload.critical.identity.reference))
}

/// Of an in-toto statement.
fn subjects(statement: &[u8]) -> Result<Vec<String>, String> {
    #[derive(Deserialize)]
    struct Statement {
        #[serde(default)]
        subject: Vec<Subject>,
        #[serde(rename = "predicateType")]
        predicate_type: String,
    }
    #[derive(Deserialize)]
    struct Subject {
        digest: std::collections::BTreeMap<String, String>,
    }
    let statement: Statement =
        serde_json::from_slice(statement).map_err(|error| format!("a bundle without a statement ({error})"))?;
    if statement.predicate_type != SIGN_PREDICATE {
        return Err("an attestation, which is no signature of the artifact".to_owned());
    }
    let digests = statement.subject.iter().filter_map(|subject| subject.digest.get("sha256"));
    Ok(digests.map(|digits| format!("sha256:{digits}")).collect())
}

/// The text that a DSSE signature is over (its pre-authentication encoding).
fn dsse_text(body: &[u8]) -> Vec<u8> {
    let mut text = format!("DSSEv1 {} {IN_TOTO} {} ", IN_TOTO.len(), body.len()).into_bytes();
    text.extend_from_slice(body);
    text
}

/// The body of such a text, if it is one.
fn dsse_body(text: &[u8]) -> Option<&[u8]> {
    let rest = text.strip_prefix(format!("DSSEv1 {} {IN_TOTO} ", IN_TOTO.len()).as_bytes())?;
    let at = rest.iter().position(|byte| *byte == b' ')?;
    let length = rest.get(..at)?;
    let body = rest.get(at + 1..)?;
    (length == body.len().to_string().as_bytes()).then_some(body)
}

/// A text with one signature over it.
#[derive(Debug)]
pub(super) struct SignedText {
    pub(super) text: Vec<u8>,
    pub(super) signature: Vec<u8>,
}

/// What is signed in a Sigstore bundle, once for each signature that is looked at: each has a copy of the text.
///
/// # Errors
/// It is none that a key can have signed; in words.
pub(super) fn read_bundle(bytes: &[u8]) -> Result<Vec<SignedText>, String> {
    #[derive(Deserialize)]
    struct Bundle {
        #[serde(rename = "dsseEnvelope")]
        dsse_envelope: Envelope,
    }
    #[derive(Deserialize)]
    struct Envelope {
        payload: String,
        #[serde(rename = "payloadType")]
        payload_type: String,
        signatures: Vec<Signed>,
    }
    #[derive(Deserialize)]
    struct Signed {
        sig: String,
    }
    let bundle: Bundle =
        serde_json::from_slice(bytes).map_err(|error| format!("a bundle that cannot be read: {error}"))?;
    let envelope = bundle.dsse_envelope;
    if envelope.payload_type != IN_TOTO {
        return Err(format!("a bundle around something else than {IN_TOTO}"));
    }
    let text = dsse_text(&decode(&envelope.payload)?);
    envelope
        .signatures
        .iter()
        .take(SIGNATURES_MAX)
        .map(|signed| Ok(SignedText { text: text.clone(), signature: decode(&signed.sig)? }))
        .collect()
}

/// Base64 of a signature.
pub(super) fn decode(text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text.trim()).map_err(|_| "a signature that is not base64".to_owned())
}

pub(super) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The text that is signed for a manifest. `name` is the repository with its registry.
pub(super) fn payload(name: &str, manifest: Digest) -> Vec<u8> {
    // In the order in which cosign writes it, for people who compare.
    let text = serde_json::json!({
        "critical": {
            "identity": { "docker-reference": name },
            "image": { "docker-manifest-digest": format!("sha256:{manifest}") },
            "type": TYPE,
        },
        "optional": null,
    });
    text.to_string().into_bytes()
}

/// The config of a manifest of signatures: cosign's reader wants an image with as many layers as there are.
pub(super) fn config(layers: &[Descriptor]) -> Vec<u8> {
    let digests: Vec<_> = layers.iter().map(|layer| layer.digest_text()).collect();
    let config = serde_json::json!({
        "architecture": "",
        "os": "",
        "config": {},
        "created": "0001-01-01T00:00:00Z",
        "rootfs": { "type": "layers", "diff_ids": digests },
        "history": vec![serde_json::json!({ "created": "0001-01-01T00:00:00Z" }); layers.len()],
    });
    config.to_string().into_bytes()
}

/// A private key that cosign's verification knows the public half of.
pub struct SigningKey {
    pair: EcdsaKeyPair,
    public: PublicKey,
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SigningKey").field(&"redacted").finish()
    }
}

impl SigningKey {
    /// Reads an unencrypted PKCS #8 key on P-256 (`-----BEGIN PRIVATE KEY-----`).
    ///
    /// # Errors
    /// It is none; says how to make one.
    pub fn from_pem(pem: &str) -> Result<Self, String> {
        let advice = "expected an ECDSA key on P-256 in PKCS #8 (-----BEGIN PRIVATE KEY-----); make one with \
            `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out KEY.pem`, and its public half with \
            `openssl pkey -in KEY.pem -pubout`";
        if pem.contains("ENCRYPTED") {
            return Err(format!("it is encrypted, which is not supported; {advice}"));
        }
        let der = PrivatePkcs8KeyDer::from_pem_slice(without_byte_order_mark(pem).as_bytes())
            .map_err(|_| format!("it holds no key; {advice}"))?;
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, der.secret_pkcs8_der(), &SystemRandom::new());
        let pair = pair.map_err(|error| format!("it is of another kind ({error}); {advice}"))?;
        let point = pair.public_key().as_ref().try_into().map_err(|_| format!("it has no public half; {advice}"))?;
        Ok(Self { pair, public: PublicKey::EcdsaP256(Box::new(point)) })
    }

    /// Its public half.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// # Errors
    /// The system has no randomness.
    pub(super) fn sign(&self, text: &[u8]) -> Result<Vec<u8>, String> {
        let signature = self.pair.sign(&SystemRandom::new(), text);
        signature.map(|signature| signature.as_ref().to_vec()).map_err(|_| "the signature cannot be made".to_owned())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::digest_of;
    use super::*;

    fn key_text() -> String {
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new()).unwrap();
        format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", encode(made.as_ref()))
    }

    pub(crate) fn key() -> SigningKey {
        SigningKey::from_pem(&key_text()).unwrap()
    }

    #[test]
    fn byte_order_mark_in_front_of_a_cosign_key_is_skipped() {
        assert!(SigningKey::from_pem(&format!("\u{feff}{}", key_text())).is_ok());
    }

    #[test]
    fn cosign_signature_is_bound_to_manifest_and_key() {
        let (key, other) = (key(), key());
        let manifest = digest_of(b"manifest");
        let text = payload("ghcr.io/acme/csv", manifest);
        let signature = key.sign(&text).unwrap();
        assert!(key.public().has_signed(&text, &signature));
        assert!(!other.public().has_signed(&text, &signature));
        assert!(!key.public().has_signed(&text, &signature[1..]));
        assert_eq!(names(&text, manifest, None), Ok(()));
        let refused = names(&text, digest_of(b"another"), None).unwrap_err();
        for part in [format!("sha256:{manifest}"), format!("sha256:{}", digest_of(b"another"))] {
            assert!(refused.contains(&part), "{refused}");
        }
    }

    #[test]
    fn cosign_payload_of_other_type_is_refused() {
        let manifest = digest_of(b"manifest");
        let text = String::from_utf8(payload("ghcr.io/acme/csv", manifest)).unwrap();
        for other in ["", "{}", "null", &text.replace(TYPE, "atomic container signature"), &text[..text.len() - 2]] {
            assert!(names(other.as_bytes(), manifest, None).is_err(), "{other}");
        }
    }

    #[test]
    fn cosign_signature_repository_is_checked() {
        let manifest = digest_of(b"manifest");
        let at = |text: &str| text.parse::<OciReference>().unwrap();
        for (named, found_in, fits) in [
            ("ghcr.io/acme/csv", "ghcr.io/acme/csv:1", true),
            ("ghcr.io/acme/csv:1", "ghcr.io/acme/csv:2", true),
            ("index.docker.io/acme/csv", "docker.io/acme/csv:1", true),
            ("ghcr.io/acme/csv", "ghcr.io/acme/csv2:1", false),
            ("ghcr.io/acme/csv2", "ghcr.io/acme/csv:1", false),
            ("ghcr.io/acme/csv", "mirror.example/acme/csv:1", false),
            ("", "ghcr.io/acme/csv:1", false),
        ] {
            let found = names(&payload(named, manifest), manifest, Some(&at(found_in)));
            assert_eq!(found.is_ok(), fits, "{named} {found_in}: {found:?}");
        }
    }

    #[test]
    fn cosign_bundle_is_read_and_attestation_refused() {
        let key = key();
        let manifest = digest_of(b"manifest");
        let bundle = |predicate: &str, kind: &str| {
            let statement = serde_json::json!({
                "_type": "https://in-toto.io/Statement/v1",
                "subject": [{ "digest": { "sha256": manifest.to_string() } }],
                "predicateType": predicate,
                "predicate": {},
            });
            let body = statement.to_string().into_bytes();
            let signature = key.sign(&dsse_text(&body)).unwrap();
            let bundle = serde_json::json!({
                "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
                "verificationMaterial": { "publicKey": { "hint": "x" } },
                "dsseEnvelope": { "payload": encode(&body), "payloadType": kind, "signatures": [{ "sig": encode(&signature) }] },
            });
            bundle.to_string().into_bytes()
        };
        let read = read_bundle(&bundle(SIGN_PREDICATE, IN_TOTO)).unwrap();
        let [SignedText { text, signature }] = read.as_slice() else { panic!("{read:?}") };
        assert!(key.public().has_signed(text, signature));
        assert_eq!(names(text, manifest, None), Ok(()));
        assert!(
            names(text, manifest, Some(&"ghcr.io/acme/csv:1".parse().unwrap())).unwrap_err().contains("no repository")
        );
        assert!(names(text, digest_of(b"another"), None).is_err());
        let read = read_bundle(&bundle("https://slsa.dev/provenance/v1", IN_TOTO)).unwrap();
        assert!(names(&read[0].text, manifest, None).unwrap_err().contains("attestation"));
        assert!(read_bundle(&bundle(SIGN_PREDICATE, "text/plain")).is_err());
        assert!(read_bundle(b"{}").is_err());
    }

    #[test]
    fn cosign_bundle_signatures_are_bounded() {
        let signatures = vec![serde_json::json!({ "sig": "AAAA" }); 1_000];
        let envelope = serde_json::json!({ "payload": "AAAA", "payloadType": IN_TOTO, "signatures": signatures });
        let bundle = serde_json::json!({ "dsseEnvelope": envelope }).to_string();
        assert_eq!(read_bundle(bundle.as_bytes()).unwrap().len(), SIGNATURES_MAX);
    }

    #[test]
    fn unusable_cosign_key_names_the_alternative() {
        for pem in
            ["", "-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED SIGSTORE PRIVATE KEY-----"]
        {
            assert!(SigningKey::from_pem(pem).unwrap_err().contains("openssl genpkey"));
        }
    }
}
