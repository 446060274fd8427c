//! `push`, and the way to a registry.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use anyhow::Context as _;
use bulkhead_sources::oci::{self, SigningKey};
use bulkhead_sources::{FetchOptions, OciReference, Source};
use clap::Args;
use serde_json::json;

use crate::Outcome;
use crate::progress::{self, Place, Transfer};

/// Put a component into an OCI registry, in the layout that other wasm hosts and tools read, and print its digest.
///
/// The tag moves to what is pushed; what it stood for before stays there under its digest. A file that was not changed
/// gives the same digest again.
///
/// Credentials are those of `docker login` and `podman login` (DOCKER_AUTH_CONFIG, REGISTRY_AUTH_FILE,
/// $XDG_RUNTIME_DIR/containers/auth.json, ~/.config/containers/auth.json, ~/.docker/config.json), helpers included. A
/// registry on this machine, or named with --plain-http, is spoken to over http, all others over https.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:\n  \
    bulkhead plugin push csv.wasm oci://ghcr.io/acme/csv:1.2.0\n  \
    bulkhead plugin push csv.wasm oci://ghcr.io/acme/csv:1.2.0 --sign key.pem\n\n\
    A key for --sign, and its public half for [[trust]] keys and for `cosign verify --key`:\n  \
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out key.pem\n  \
    openssl pkey -in key.pem -pubout -out key.pub")]
pub struct PushArguments {
    /// The component
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where to: oci://REGISTRY/REPOSITORY:TAG
    #[arg(value_name = "REFERENCE")]
    to: Source,
    /// Sign it as cosign does, with this ECDSA P-256 private key (PKCS #8, PEM)
    #[arg(long, value_name = "KEY")]
    sign: Option<PathBuf>,
    /// Speak to the registry of this host over http, which everybody on the way can read and change; may be given more
    /// than once
    #[arg(long = "plain-http", value_name = "HOST")]
    plain_http: Vec<String>,
    /// More certificates (PEM) that the registry may be certified by; may be given more than once
    #[arg(long = "root", value_name = "FILE")]
    roots: Vec<PathBuf>,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Puts a component into a registry. `options` are what the program knows of registries, beside the arguments;
/// `program` is what says on stderr how far it is.
///
/// # Errors
///
/// The file is no component or too large, the key is none, or the registry does not take it.
pub async fn push(
    arguments: PushArguments,
    mut options: FetchOptions,
    program: &'static str,
) -> anyhow::Result<Outcome> {
    let PushArguments { file, to, sign, plain_http, roots, json } = arguments;
    let reference = reference(to)?;
    let key = sign.as_deref().map(signing_key).transpose()?;
    options.plain_http_hosts.extend(plain_http.iter().map(|host| host.to_ascii_lowercase()));
    options.roots.extend(roots);
    let component = read(&file, options.component_bytes_max)?;
    let transfer = Transfer::default();
    let made_at = made_at(&file)?;
    options.progress = transfer.counter();
    let what = || transfer.describe(&format!("sending {} to oci://{reference}", file.display()));
    let pushing = Box::pin(oci::push(&reference, component, made_at, key.as_ref(), &options));
    let pushed = progress::during(Place::Stderr(program), what, pushing).await?;
    if json {
        return Ok(Outcome::line(json!({
            "reference": format!("oci://{}", pushed.reference),
            "manifest": format!("sha256:{}", pushed.manifest),
            "component": pushed.component,
            "was_there": pushed.was_there,
            "signed_by": key.as_ref().map(SigningKey::public).map(|key| key.id()),
        })));
    }
    let done = Outcome::line(format_args!("oci://{}", pushed.reference))
        .with_note(format_args!("the component has sha256 {}", pushed.component));
    Ok(match key {
        Some(key) => done.with_note(format_args!("signed by key {}", key.public().id())),
        None => done,
    })
}

fn read(file: &Path, bytes_max: u64) -> anyhow::Result<Vec<u8>> {
    let facts = file.metadata().with_context(|| format!("cannot read {}", file.display()))?;
    anyhow::ensure!(facts.is_file(), "{} is not a file", file.display());
    anyhow::ensure!(facts.len() <= bytes_max, "{} has {} bytes; {bytes_max} is the most", file.display(), facts.len());
    std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}

fn reference(source: Source) -> anyhow::Result<OciReference> {
    match source {
        Source::Oci(reference) => Ok(reference),
        other => anyhow::bail!("{other} is in no registry: write oci://REGISTRY/REPOSITORY:TAG"),
    }
}

/// When a file was made, in milliseconds since the Unix epoch: the same file gives the same artifact.
fn made_at(file: &Path) -> anyhow::Result<u64> {
    let modified = file.metadata().and_then(|facts| facts.modified()).with_context(|| file.display().to_string())?;
    let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(u64::try_from(since.as_millis()).unwrap_or_default())
}

fn signing_key(file: &Path) -> anyhow::Result<SigningKey> {
    let text = std::fs::read_to_string(file).with_context(|| format!("the key {} cannot be read", file.display()))?;
    SigningKey::from_pem(&text).map_err(|problem| anyhow::anyhow!("the key {}: {problem}", file.display()))
}
