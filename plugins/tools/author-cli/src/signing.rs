//! `keygen` and `sign`.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bulkhead_sources::{Digest, SigningKey, beside};
use clap::Args;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::Outcome;

/// Make a pair of keys for signing components.
///
/// Writes the secret key to NAME.key, which only you can read, and the public key to NAME.pub, both in PEM (Ed25519),
/// and prints the key's id. Hosts need the public key: `[[trust]]` in their configuration names it.
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  bulkhead plugin keygen acme && bulkhead plugin sign csv.wasm --key acme.key")]
pub struct KeygenArguments {
    /// What the files are called, without their endings; they must not exist yet
    #[arg(value_name = "NAME", default_value = "bulkhead")]
    name: PathBuf,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Sign a component, and the WIT file beside it if there is one.
///
/// Writes FILE.sig, to be published beside FILE. Signatures of other keys over the same component stay in it.
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  bulkhead plugin sign csv.wasm --key acme.key")]
pub struct SignArguments {
    /// The component
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The secret key, as `bulkhead plugin keygen` makes it
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn keygen(arguments: &KeygenArguments) -> anyhow::Result<Outcome> {
    let secret = ending(&arguments.name, ".key");
    let public = ending(&arguments.name, ".pub");
    anyhow::ensure!(!public.exists(), "{} is there already", public.display());
    let (key, text) = SigningKey::generate().map_err(anyhow::Error::msg)?;
    write_new(&secret, 0o600, &text)?;
    write_new(&public, 0o644, &key.public().to_pem())?;
    let id = key.public().id();
    if arguments.json {
        return Ok(Outcome::line(json!({ "key": id, "secret_file": secret, "public_file": public })));
    }
    let places = format!("the secret key is in {}, the public one in {}", secret.display(), public.display());
    Ok(Outcome::line(id).with_note(places))
}

pub(crate) fn sign(arguments: &SignArguments) -> anyhow::Result<Outcome> {
    let text = read_text(&arguments.key)?;
    let key = SigningKey::from_pem(&text).map_err(|wrong| anyhow::anyhow!("{}: {wrong}", arguments.key.display()))?;
    let component = digest(&arguments.file)?;
    let wit = arguments.file.with_extension("wit");
    let wit = if wit.exists() { Some(digest(&wit)?) } else { None };
    let path = beside(&arguments.file);
    let before = if path.exists() { Some(read_text(&path)?) } else { None };
    let signed = key.sign(component, wit, before.as_deref());
    // In one step: a host that watches the folder sees the old one or the new one.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut draft = tempfile::Builder::new().prefix(".bulkhead-").tempfile_in(folder)?;
    draft.write_all(signed.as_bytes())?;
    draft.as_file().set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    draft.persist(&path).with_context(|| format!("{} cannot be written", path.display()))?;
    let id = key.public().id();
    if arguments.json {
        return Ok(Outcome::line(json!({ "file": path, "component": component.to_string(), "key": id })));
    }
    Ok(Outcome::line(path.display()).with_note(format!("signed sha256 {component} with key {id}")))
}

fn digest(file: &Path) -> anyhow::Result<Digest> {
    let bytes = std::fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
    Ok(Digest(Sha256::digest(bytes).into()))
}

fn read_text(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))
}

fn ending(name: &Path, ending: &str) -> PathBuf {
    let mut path = name.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

fn write_new(file: &Path, mode: u32, text: &str) -> anyhow::Result<()> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(file);
    let mut opened = opened.with_context(|| format!("{} cannot be made", file.display()))?;
    opened.write_all(text.as_bytes())?;
    Ok(opened.sync_all()?)
}
