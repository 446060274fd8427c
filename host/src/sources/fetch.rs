//! From a source to bytes.

use sha2::{Digest as _, Sha256};

use super::{Digest, Error, Fetched, Fetching, Source};
use crate::runtime::{read_component, wit_file};

/// Reads or downloads what a source names. Nothing of it is trusted yet.
///
/// # Errors
/// It cannot be had, or not within the bounds.
pub async fn fetch(source: &Source, fetching: &Fetching) -> Result<Fetched, Error> {
    let refused = |problem: &str| Error::Failed { what: source.to_string(), problem: problem.to_owned() };
    match source {
        Source::File(path) => {
            let path = path.clone();
            let read = tokio::task::spawn_blocking(move || read(&path));
            read.await.map_err(|_| refused("reading it was given up"))?
        }
        Source::Https(_) => Err(refused("components cannot be fetched over https yet")),
        Source::Oci(reference) => super::oci::fetch(reference, fetching).await,
    }
}

fn read(path: &std::path::Path) -> Result<Fetched, Error> {
    let bytes = read_component(path).map_err(Error::File)?;
    let wit = wit_file(&path.with_extension("wit")).map_err(Error::File)?;
    let sha256 = Digest(Sha256::digest(&bytes).into());
    Ok(Fetched { bytes, sha256, origin: path.display().to_string(), signatures: Vec::new(), wit })
}
