//! `bulkhead plugin push` and `bulkhead plugin pull`.

use std::collections::HashMap;
use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use bulkhead_assembly::sources;
use bulkhead_author_cli::progress::{self, Place, Transfer};
use bulkhead_author_cli::{EXIT_REFUSED, PushArguments};
use bulkhead_config::Flags;
use bulkhead_console::{PROGRAM, print_error, print_line};
use bulkhead_plugins::sources::{ComponentFetcher, Digest, Error, FetchOptions, Source};
use clap::Args;
use serde_json::json;

/// `push` of every author, with what the configuration says of registries.
#[derive(Args, Debug)]
pub struct ConfiguredPushArguments {
    #[command(flatten)]
    push: PushArguments,
    /// The configuration file, for its [sources]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
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
pub struct PullArguments {
    /// What to take: oci://REGISTRY/REPOSITORY:TAG or oci://REGISTRY/REPOSITORY@sha256:DIGEST
    #[arg(value_name = "REFERENCE")]
    from: Source,
    /// The file, which is replaced [default: the last part of the repository, with .wasm]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// What the component's SHA-256 must be
    #[arg(long, value_name = "DIGEST")]
    sha256: Option<String>,
    /// The configuration file, for its [sources] and [[trust]]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

pub(super) async fn push(arguments: ConfiguredPushArguments) -> anyhow::Result<ExitCode> {
    let ConfiguredPushArguments { push, config } = arguments;
    let config = sources::load(config.as_deref(), &Flags::default())?;
    Ok(bulkhead_author_cli::push(push, sources::fetching(&config), PROGRAM).await?.print(PROGRAM))
}

pub(super) async fn pull(arguments: PullArguments) -> anyhow::Result<ExitCode> {
    let PullArguments { from: source, output, sha256, config, json } = arguments;
    anyhow::ensure!(
        matches!(source, Source::Oci(_)),
        "{source} is in no registry: write oci://REGISTRY/REPOSITORY:TAG"
    );
    let pinned = sha256.map(|text| Digest::try_from(text.strip_prefix("sha256:").unwrap_or(&text).to_owned()));
    let pinned = pinned.transpose().map_err(|wrong| anyhow::anyhow!("--sha256: {wrong}"))?;
    let file = output.or_else(|| Some(PathBuf::from(source.fallback_name()?).with_extension("wasm")));
    let file = file.context("name the file with -o")?;
    let config = sources::load(config.as_deref(), &Flags::default())?;
    let transfer = Transfer::default();
    let fetching = FetchOptions { progress: transfer.counter(), ..sources::fetching(&config) };
    let intake = ComponentFetcher::new(sources::trust(&config)?, fetching, HashMap::new());
    let what = || transfer.describe(&format!("fetching {source}"));
    let taking = Box::pin(intake.take(&source, pinned));
    let verified = match progress::during(Place::Stderr(PROGRAM), what, taking).await {
        Err(Error::Untrusted(refusal)) => {
            print_error(refusal);
            return Ok(ExitCode::from(EXIT_REFUSED));
        }
        verified => verified?,
    };
    let origin = verified.origin().to_owned();
    let sha256 = verified.sha256();
    let signed_by = verified.signed_by().to_vec();
    let signers: Vec<_> = intake.signers(&verified).iter().map(ToString::to_string).collect();
    write(&file, &verified.candidate(None).bytes).with_context(|| format!("{} cannot be written", file.display()))?;
    if json {
        print_line(json!({ "file": file, "origin": origin, "component": sha256, "signed_by": signed_by }));
    } else {
        print_line(file.display());
        print_error(format_args!("{origin} with sha256 {sha256}"));
        let signers = if signers.is_empty() { "nobody, and nobody needs to".to_owned() } else { signers.join(", ") };
        print_error(format_args!("signed by {signers}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// The whole file or none.
pub(super) fn write(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut draft = tempfile::Builder::new().permissions(Permissions::from_mode(0o644)).tempfile_in(folder)?;
    draft.write_all(bytes)?;
    draft.persist(file)?;
    Ok(())
}
