//! Components in OCI registries: fetched, pushed and signed.
//!
//! Owns the layout of the artifact, the distribution API, credentials and cosign's signatures. Must not decide whom to
//! trust: it returns what is signed to its caller, which verifies it. Invariant: what is fetched is what the manifest
//! names, and the origin names the manifest by its digest, so it means the same for ever.
//!
//! The transfers go through the host's own client rather than a client library: none of those can be told which
//! addresses a registry may send us to, nor where to stop reading.

mod cosign;
mod logins;
mod manifest;
mod registry;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::{Digest, Error, FetchOptions, Fetched, OciReference, Progress, Signature};
use bulkhead_domain::UnixMs;
use bulkhead_domain::timestamp::iso8601;
use manifest::{Descriptor, Manifest, World};
use registry::Registry;

pub use cosign::{SigningKey, names};
pub use logins::Logins;

/// Signatures of one manifest that are looked at, the newest. Stops a registry from sending them without end.
const SIGNATURES_MAX: usize = 32;
/// Bundles of one artifact that are looked at; signers attach one.
const BUNDLES_PER_ARTIFACT_MAX: usize = 4;
/// Bytes of a signed text or bundle.
const SIGNATURE_BYTES_MAX: u64 = 256 << 10;

/// What a push left in the registry.
#[derive(Debug)]
pub struct Pushed {
    /// The reference with the manifest's digest.
    pub reference: OciReference,
    /// Of the manifest.
    pub manifest: Digest,
    /// Of the component.
    pub component: Digest,
    /// Whether the registry had the component already.
    pub was_there: bool,
}

/// Fetches a component, and the signatures of its manifest if `requires_signature`.
///
/// # Errors
/// The registry does not have it or does not give it, or gives something else.
pub async fn fetch(
    reference: &OciReference,
    fetching: &FetchOptions,
    requires_signature: bool,
) -> Result<Fetched, Error> {
    within(fetching, reference, async {
        let mut registry = Registry::new(fetching, reference, "pull")?;
        let wanted = match (&reference.digest, &reference.tag) {
            (Some(digest), _) => format!("sha256:{digest}"),
            (None, tag) => tag.clone().unwrap_or_else(|| "latest".to_owned()),
        };
        let absent = "the registry has no such thing, or does not show it to everybody";
        let found = registry.manifest(&wanted).await?.ok_or_else(|| registry.failed(absent))?;
        let manifest = Manifest::parse(&found.bytes).map_err(|problem| registry.failed(problem))?;
        let layer = manifest.component().map_err(|problem| registry.failed(problem))?;
        let bytes_max = fetching.component_bytes_max;
        if layer.size > bytes_max {
            return Err(Error::TooLarge { what: format!("oci://{reference} ({} bytes)", layer.size), bytes_max });
        }
        let digest = layer.digest().map_err(|problem| registry.failed(problem))?;
        let signatures = if requires_signature { signatures(&mut registry, found.digest).await? } else { Vec::new() };
        let bytes = registry.blob(digest, layer.size, &fetching.progress).await?;
        let origin = OciReference { digest: Some(found.digest), ..reference.clone() };
        Ok(Fetched { bytes, sha256: digest, origin: format!("oci://{origin}"), file: None, signatures, wit: None })
    })
    .await
}

/// Puts a component into a registry under its tag, and signs it if there is a key.
///
/// `created_at` is for its config.
///
/// # Errors
/// It is no component, the reference has no tag, or the registry does not take it.
pub async fn push(
    reference: &OciReference,
    component: Vec<u8>,
    created_at: UnixMs,
    key: Option<&SigningKey>,
    fetching: &FetchOptions,
) -> Result<Pushed, Error> {
    within(fetching, reference, async {
        let mut registry = Registry::new(fetching, reference, "pull,push")?;
        let tag = match (&reference.tag, &reference.digest) {
            (Some(tag), None) => tag.clone(),
            _ => return Err(registry.failed("a push goes to a tag: a digest is what comes out of it")),
        };
        let world = World::of(&component).map_err(|problem| registry.failed(problem))?;
        let (manifest, config) = manifest::of_component(&component, &world, &iso8601(created_at));
        let component = Bytes::from(component);
        let component_digest = digest_of(&component);
        let was_there = !registry.push_blob(component, &fetching.progress).await?;
        registry.push_blob(Bytes::from(config), &Progress::default()).await?;
        let manifest = serde_json::to_vec(&manifest).map_err(|error| registry.failed(error.to_string()))?;
        let digest = digest_of(&manifest);
        // Whoever sees the tag must be able to see the signature.
        if let Some(key) = key {
            registry.push_manifest(&format!("sha256:{digest}"), manifest.clone()).await?;
            sign(&mut registry, reference, digest, key).await?;
        }
        registry.push_manifest(&tag, manifest).await?;
        let reference = OciReference { digest: Some(digest), ..reference.clone() };
        Ok(Pushed { reference, manifest: digest, component: component_digest, was_there })
    })
    .await
}

/// Everything takes at most as long as the operator said.
async fn within<T>(
    fetching: &FetchOptions,
    reference: &OciReference,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let slow = |_| Error::TooSlow { what: format!("oci://{reference}"), ms: fetching.fetch_max.as_millis() };
    tokio::time::timeout(fetching.fetch_max, Box::pin(work)).await.map_err(slow)?
}

/// Puts a signature beside those of other keys that are there.
async fn sign(
    registry: &mut Registry<'_>,
    reference: &OciReference,
    digest: Digest,
    key: &SigningKey,
) -> Result<(), Error> {
    let text = cosign::payload(&format!("{}/{}", reference.registry, reference.repository), digest);
    let signature = key.sign(&text).map_err(|problem| registry.failed(problem))?;
    let mut layer = Descriptor::of(cosign::SIMPLE_SIGNING, &text);
    layer.annotations.insert(cosign::SIGNATURE_ANNOTATION.to_owned(), cosign::encode(&signature));
    let tag = signature_tag(digest);
    let there = registry.manifest(&tag).await?;
    let unreadable = |problem| registry.failed(format!("the signatures that are there: {problem}"));
    let mut layers = match there {
        Some(there) => Manifest::parse(&there.bytes).map_err(unreadable)?.layers,
        None => Vec::new(),
    };
    layers.retain(|there| there.digest_text() != layer.digest_text() || !is_by(key, &text, there));
    layers.push(layer);
    registry.push_blob(Bytes::from(text), &Progress::default()).await?;
    let config = cosign::config(&layers);
    registry.push_blob(Bytes::from(config.clone()), &Progress::default()).await?;
    let manifest = Manifest::new(Descriptor::of(cosign::CONFIG, &config), layers);
    let manifest = serde_json::to_vec(&manifest).map_err(|error| registry.failed(error.to_string()))?;
    registry.push_manifest(&tag, manifest).await.map(|_| ())
}

/// Whether a layer with this text is signed by this key: as every signature of a key is another one, only the key can
/// tell.
fn is_by(key: &SigningKey, text: &[u8], layer: &Descriptor) -> bool {
    let signature = layer.annotations.get(cosign::SIGNATURE_ANNOTATION).and_then(|text| cosign::decode(text).ok());
    signature.is_some_and(|signature| key.public().has_signed(text, &signature))
}

/// Where cosign keeps the signatures of a manifest.
fn signature_tag(digest: Digest) -> String {
    format!("sha256-{digest}.sig")
}

/// The signatures that claim to be of a manifest, those first that were added last.
async fn signatures(registry: &mut Registry<'_>, manifest: Digest) -> Result<Vec<Signature>, Error> {
    let mut found = Vec::new();
    if let Some(signed) = registry.manifest(&signature_tag(manifest)).await? {
        let signed =
            Manifest::parse(&signed.bytes).map_err(|problem| registry.failed(format!("its signatures: {problem}")))?;
        let layers = signed.layers.iter().rev().filter(|layer| layer.media_type == cosign::SIMPLE_SIGNING);
        for layer in layers.take(SIGNATURES_MAX) {
            let Some(signature) = layer.annotations.get(cosign::SIGNATURE_ANNOTATION) else { continue };
            let payload = small_blob(registry, layer).await?;
            found.push(match cosign::decode(signature) {
                Ok(signature) => Signature::Cosign { manifest, payload, signature },
                Err(problem) => Signature::Unreadable(problem),
            });
        }
    }
    let Some(index) = registry.referrers(manifest).await? else { return Ok(found) };
    let is_bundle = |kind: &str| kind.starts_with(cosign::BUNDLE);
    let bundles = index.manifests.iter().rev().filter(|entry| entry.artifact_type.as_deref().is_none_or(is_bundle));
    for entry in bundles.take(SIGNATURES_MAX) {
        if found.len() >= SIGNATURES_MAX {
            break;
        }
        let digest = entry.digest().map_err(|problem| registry.failed(problem))?;
        let Some(artifact) = registry.manifest(&format!("sha256:{digest}")).await? else { continue };
        let Ok(artifact) = Manifest::parse(&artifact.bytes) else { continue };
        let layers = artifact.layers.iter().filter(|layer| is_bundle(&layer.media_type));
        for layer in layers.take(BUNDLES_PER_ARTIFACT_MAX) {
            if found.len() >= SIGNATURES_MAX {
                break;
            }
            let bundle = small_blob(registry, layer).await?;
            // Others may attach what they like; only what can be read can count.
            for signed in cosign::read_bundle(&bundle).unwrap_or_default() {
                found.push(Signature::Cosign { manifest, payload: signed.text, signature: signed.signature });
            }
        }
    }
    found.truncate(SIGNATURES_MAX);
    Ok(found)
}

async fn small_blob(registry: &mut Registry<'_>, layer: &Descriptor) -> Result<Vec<u8>, Error> {
    if layer.size > SIGNATURE_BYTES_MAX {
        return Err(registry.failed(format!("a signature of {} bytes; {SIGNATURE_BYTES_MAX} is the most", layer.size)));
    }
    let digest = layer.digest().map_err(|problem| registry.failed(problem))?;
    registry.blob(digest, layer.size, &Progress::default()).await
}

fn digest_of(bytes: &[u8]) -> Digest {
    Digest(Sha256::digest(bytes).into())
}

/// `sha256:` and 64 digits.
fn oci_digest(text: &str) -> Option<Digest> {
    Digest::try_from(text.strip_prefix("sha256:")?.to_owned()).ok()
}
