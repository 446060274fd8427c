//! From a source to bytes.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use http::{Method, StatusCode};
use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256};
use url::Url;

use super::{Digest, Error, FetchOptions, Fetched, Progress, Source, beside};
use bulkhead_net::client::{Request, Response};
use bulkhead_runtime::wit_file;
use bulkhead_sources::signature::{SIGNATURES_BYTES_MAX, parse};
use bulkhead_sources::web::{client, failed, shown};

/// Reads or downloads what a source names, and its signatures if they are wanted. Nothing of it is trusted yet.
///
/// # Errors
/// It cannot be had, or not within the bounds.
pub async fn fetch(source: &Source, fetching: &FetchOptions, requires_signature: bool) -> Result<Fetched, Error> {
    let refused = |problem: &str| Error::Failed { what: source.to_string(), problem: problem.to_owned() };
    match source {
        Source::File(path) => {
            let path = path.clone();
            let bytes_max = fetching.component_bytes_max;
            let read = tokio::task::spawn_blocking(move || read(&path, bytes_max));
            read.await.map_err(|_| refused("reading it was given up"))?
        }
        Source::Https(url) => {
            let slow = |_| Error::TooSlow { what: source.to_string(), ms: fetching.fetch_max.as_millis() };
            let downloading = Box::pin(download(url, fetching, requires_signature));
            tokio::time::timeout(fetching.fetch_max, downloading).await.map_err(slow)?
        }
        Source::Oci(reference) => super::oci::fetch(reference, fetching, requires_signature).await,
    }
}

fn read(path: &Path, bytes_max: u64) -> Result<Fetched, Error> {
    let (bytes, file) = read_bounded(path, bytes_max)?;
    let wit_path = path.with_extension("wit");
    let wit = wit_file(&wit_path).unwrap_or_else(|problem| {
        tracing::warn!(file = %wit_path.display(), problem, "the WIT file beside the component is not used");
        None
    });
    let signature_path = beside(path);
    let signatures = if signature_path.exists() {
        parse(&read_bounded(&signature_path, SIGNATURES_BYTES_MAX)?.0)
    } else {
        Vec::new()
    };
    let sha256 = Digest(Sha256::digest(&bytes).into());
    Ok(Fetched { bytes, sha256, origin: path.display().to_string(), file: Some(file), signatures, wit })
}

async fn download(url: &Url, fetching: &FetchOptions, requires_signature: bool) -> Result<Fetched, Error> {
    let client = client(fetching, None)?;
    let mut signatures = Vec::new();
    if requires_signature {
        let mut url = url.clone();
        url.set_path(&format!("{}.sig", url.path()));
        let response = client.send(Request::new(Method::GET, url)).await?;
        if !matches!(response.status, StatusCode::NOT_FOUND | StatusCode::GONE) {
            signatures = parse(&whole(response, SIGNATURES_BYTES_MAX, &Progress::default()).await?.0);
        }
    }
    let response = client.send(Request::new(Method::GET, url.clone())).await?;
    let (bytes, origin) = whole(response, fetching.component_bytes_max, &fetching.progress).await?;
    let sha256 = Digest(Sha256::digest(&bytes).into());
    Ok(Fetched { bytes, sha256, origin, file: None, signatures, wit: None })
}

/// The body of a good answer, and who gave it.
async fn whole(response: Response, bytes_max: u64, progress: &Progress) -> Result<(Vec<u8>, String), Error> {
    if response.status != StatusCode::OK {
        return Err(failed(&response.url, format!("the server answered {}", response.status)));
    }
    let origin = shown(&response.url);
    Ok((response.bytes(bytes_max, progress).await?, origin))
}

/// A file, not a device that never ends, and not larger than it may be. Gives also where this very file is, behind all
/// links: when the path is resolved again, a link on it may lead elsewhere.
fn read_bounded(path: &Path, bytes_max: u64) -> Result<(Vec<u8>, PathBuf), Error> {
    let failed = |error: std::io::Error| Error::File(format!("cannot read {}: {error}", path.display()));
    // A pipe would keep whoever opens it waiting.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
    let facts = file.metadata().map_err(failed)?;
    if !facts.is_file() {
        return Err(Error::File(format!("{} is not a file", path.display())));
    }
    let behind = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).map_err(failed)?;
    // A file that has no name any more, or another one, has no place that could be trusted.
    if !std::fs::metadata(&behind).is_ok_and(|there| (there.dev(), there.ino()) == (facts.dev(), facts.ino())) {
        return Err(Error::File(format!("{} was replaced while it was opened", path.display())));
    }
    let mut bytes = Vec::new();
    let read = file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    if read as u64 > bytes_max {
        return Err(Error::TooLarge { what: path.display().to_string(), bytes_max });
    }
    Ok((bytes, behind))
}
