//! `bulkhead plugin push` and `bulkhead plugin pull`.

use std::collections::HashMap;
use std::fs::Permissions;
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, UNIX_EPOCH};

use crate::config::Config;
use anyhow::Context as _;
use bulkhead_plugins::sources::oci::{self, SigningKey};
use bulkhead_plugins::sources::{ComponentFetcher, Digest, Error, FetchOptions, OciReference, Progress, Source};
use clap::Args;
use parking_lot::Mutex;
use serde_json::json;

use super::args::SourceArguments;
use super::inspect::EXIT_REFUSED;
use super::{print_error, print_line, sources};

/// A transfer that takes longer than this shows how far it is.
const QUIET: Duration = Duration::from_millis(500);
/// Between two lines of progress on a terminal.
const EVERY: Duration = Duration::from_millis(200);

/// Put a component into an OCI registry, in the layout that other wasm hosts and tools read, and print its digest.
///
/// The tag moves to what is pushed; what it stood for before stays there under its digest. A file that was not changed gives the
/// same digest again.
///
/// Credentials are those of `docker login` and `podman login` (DOCKER_AUTH_CONFIG, REGISTRY_AUTH_FILE,
/// $XDG_RUNTIME_DIR/containers/auth.json, ~/.config/containers/auth.json, ~/.docker/config.json), helpers included. A registry on
/// this machine, or named in sources.plain_http_hosts, is spoken to over http, all others over https.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:\n  \
    bulkhead plugin push csv.wasm oci://ghcr.io/acme/csv:1.2.0\n  \
    bulkhead plugin push csv.wasm oci://ghcr.io/acme/csv:1.2.0 --sign key.pem\n\n\
    A key for --sign, and its public half for [[trust]] keys and for `cosign verify --key`:\n  \
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out key.pem\n  \
    openssl pkey -in key.pem -pubout -out key.pub")]
pub(crate) struct PushArguments {
    /// The component
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where to: oci://REGISTRY/REPOSITORY:TAG
    #[arg(value_name = "REFERENCE")]
    to: Source,
    /// Sign it as cosign does, with this ECDSA P-256 private key (PKCS #8, PEM)
    #[arg(long, value_name = "KEY")]
    sign: Option<PathBuf>,
    #[command(flatten)]
    how: HowArguments,
}

/// Take a component out of an OCI registry into a file, once everything about it was verified, and print its digests.
///
/// What may be taken is said by [[trust]] in the configuration; without a rule for the reference, it must name a digest
/// (oci://REGISTRY/REPOSITORY@sha256:DIGEST), or --sha256 the component's. Credentials are those of `docker login` and
/// `podman login`, as for `plugin push`.
#[derive(Args, Debug)]
#[command(
    after_long_help = "Exit code 4: it is not trusted; what was expected and what was found is said, and nothing is written.\n\n\
    Examples:\n  \
    bulkhead plugin pull oci://ghcr.io/acme/csv:1.2.0 --config bulkhead.toml\n  \
    bulkhead plugin pull oci://ghcr.io/acme/csv@sha256:0a11... -o csv.wasm"
)]
pub(crate) struct PullArguments {
    /// What to take: oci://REGISTRY/REPOSITORY:TAG or oci://REGISTRY/REPOSITORY@sha256:DIGEST
    #[arg(value_name = "REFERENCE")]
    from: Source,
    /// The file, which is replaced [default: the last part of the repository, with .wasm]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// What the component's SHA-256 must be
    #[arg(long, value_name = "DIGEST")]
    sha256: Option<String>,
    #[command(flatten)]
    how: HowArguments,
}

/// Bounds of transfers, and how to answer.
#[derive(Args, Debug)]
pub(crate) struct HowArguments {
    /// The configuration file, for its [sources] and [[trust]]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

pub(super) async fn push(arguments: PushArguments) -> anyhow::Result<ExitCode> {
    let PushArguments { file, to, sign, how } = arguments;
    let reference = reference(to)?;
    let key = sign.as_deref().map(signing_key).transpose()?;
    let made_at = made_at(&file)?;
    let fetching = FetchOptions { progress: progress("sent"), ..sources::fetching(&config(&how)?) };
    let component = bulkhead_plugins::sources::fetch(&Source::File(file), &fetching, false).await?;
    let pushed = oci::push(&reference, component.bytes, made_at, key.as_ref(), &fetching).await?;
    if how.json {
        print_line(json!({
            "reference": format!("oci://{}", pushed.reference),
            "manifest": format!("sha256:{}", pushed.manifest),
            "component": pushed.component,
            "was_there": pushed.was_there,
            "signed_by": key.as_ref().map(SigningKey::public).map(|key| key.id()),
        }));
        return Ok(ExitCode::SUCCESS);
    }
    print_line(format_args!("oci://{}", pushed.reference));
    print_error(format_args!("the component has sha256 {}", pushed.component));
    if let Some(key) = key {
        print_error(format_args!("signed by key {}", key.public().id()));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn pull(arguments: PullArguments) -> anyhow::Result<ExitCode> {
    let PullArguments { from, output, sha256, how } = arguments;
    let reference = reference(from)?;
    let pinned = sha256.map(|text| Digest::try_from(text.strip_prefix("sha256:").unwrap_or(&text).to_owned()));
    let pinned = pinned.transpose().map_err(|wrong| anyhow::anyhow!("--sha256: {wrong}"))?;
    let source = Source::Oci(reference);
    let file = output.or_else(|| Some(PathBuf::from(source.fallback_name()?).with_extension("wasm")));
    let file = file.context("name the file with -o")?;
    let config = config(&how)?;
    let fetching = FetchOptions { progress: progress("taken"), ..sources::fetching(&config) };
    let intake = ComponentFetcher::new(sources::trust(&config)?, fetching, HashMap::new());
    let verified = match intake.take(&source, pinned).await {
        Err(Error::Untrusted(refusal)) => {
            print_error(refusal);
            return Ok(ExitCode::from(EXIT_REFUSED));
        }
        verified => verified?,
    };
    let (origin, sha256) = (verified.origin().to_owned(), verified.sha256());
    let signed_by = verified.signed_by().to_vec();
    write(&file, &verified.candidate(None).bytes).with_context(|| format!("{} cannot be written", file.display()))?;
    if how.json {
        print_line(json!({ "file": file, "origin": origin, "component": sha256, "signed_by": signed_by }));
    } else {
        print_line(file.display());
        print_error(format_args!("{origin} with sha256 {sha256}"));
        let signers =
            if signed_by.is_empty() { "nobody, and nobody needs to".to_owned() } else { signed_by.join(", ") };
        print_error(format_args!("signed by {signers}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// The whole file or none.
fn write(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut draft = tempfile::Builder::new().permissions(Permissions::from_mode(0o644)).tempfile_in(folder)?;
    draft.write_all(bytes)?;
    draft.persist(file)?;
    Ok(())
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

fn config(how: &HowArguments) -> anyhow::Result<Config> {
    sources::load(&SourceArguments { config: how.config.clone(), ..SourceArguments::default() }, None)
}

/// A line on a terminal's stderr, for transfers that take a while.
fn progress(done: &'static str) -> Progress {
    if !std::io::stderr().is_terminal() {
        return Progress::default();
    }
    let next = Mutex::new(Instant::now() + QUIET);
    Progress::new(move |bytes, of| {
        let mut next = next.lock();
        if Instant::now() < *next {
            return;
        }
        *next = Instant::now() + EVERY;
        let end = if bytes == of { "\n" } else { "" };
        let mib = |bytes: u64| bytes / 1024 * 10 / 1024;
        let (bytes, of) = (mib(bytes), mib(of));
        // If nobody reads stderr, nobody can be told.
        let _ = write!(std::io::stderr(), "\r{}.{} of {}.{} MiB {done}{end}", bytes / 10, bytes % 10, of / 10, of % 10);
    })
}
