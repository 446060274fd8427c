//! The Python wheel: `pip` puts the programs beside `python`. Nothing in it is Python.

use std::fmt::Write as _;
use std::io::{Cursor, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use crate::Package;
use crate::notices;
use crate::release::{self, DOCUMENTS, Release};
use crate::tree::{READABLE, Tree};

pub(crate) fn package(release: &Release) -> anyhow::Result<Package> {
    let name = format!("{}-{}", release::NAME, release.version);
    let tag = tag(release);
    let mut tree = Tree::default();
    release.add_programs(&mut tree, &format!("{name}.data/scripts"));
    // pip puts it below the prefix of the environment.
    release.add_documents(&mut tree, &format!("{name}.data/data/{DOCUMENTS}"));
    let info = format!("{name}.dist-info");
    tree.file(&format!("{info}/METADATA"), READABLE, metadata(release).into_bytes());
    let wheel = format!("Wheel-Version: 1.0\nGenerator: bulkhead-dist\nRoot-Is-Purelib: false\nTag: {tag}\n");
    tree.file(&format!("{info}/WHEEL"), READABLE, wheel.into_bytes());
    tree.file(&format!("{info}/licenses/LICENSE"), READABLE, release.license.clone());
    tree.file(&format!("{info}/licenses/{}", notices::FILE), READABLE, release.notices.clone());
    // The list of all files cannot have a digest of itself.
    let record = format!("{info}/RECORD");
    let mut listed = record_of(&tree)?;
    writeln!(listed, "{record},,")?;
    tree.file(&record, READABLE, listed.into_bytes());
    Ok(Package { name: format!("{name}-{tag}.whl"), bytes: zipped(&tree, release.epoch)? })
}

/// For every Python, without an interface to it, on every Linux with this glibc or a newer one.
fn tag(release: &Release) -> String {
    let (major, minor) = release.needs.glibc;
    format!("py3-none-manylinux_{major}_{minor}_{}", release.needs.machine.linux)
}

fn metadata(release: &Release) -> String {
    format!(
        "Metadata-Version: 2.4\n\
         Name: {}\n\
         Version: {}\n\
         Summary: {}\n\
         Keywords: {}\n\
         License-Expression: {}\n\
         License-File: LICENSE\n\
         License-File: {}\n\
         Requires-Python: >=3.8\n\
         Classifier: Operating System :: POSIX :: Linux\n\
         Description-Content-Type: text/markdown\n\n{}",
        release::NAME,
        release.version,
        release::SUMMARY,
        release::KEYWORDS.join(","),
        release::LICENSE,
        notices::FILE,
        String::from_utf8_lossy(&release.readme),
    )
}

/// A line for each file: its path, its digest and its length.
fn record_of(tree: &Tree) -> anyhow::Result<String> {
    let mut record = String::new();
    for (path, _, bytes) in tree.files() {
        writeln!(record, "{path},sha256={},{}", URL_SAFE_NO_PAD.encode(Sha256::digest(bytes)), bytes.len())?;
    }
    Ok(record)
}

fn zipped(tree: &Tree, epoch: u64) -> anyhow::Result<Vec<u8>> {
    let time = OffsetDateTime::from_unix_timestamp(epoch.try_into()?)?;
    let year = u16::try_from(time.year())?;
    let month = u8::from(time.month());
    let time = DateTime::from_date_and_time(year, month, time.day(), time.hour(), time.minute(), time.second())?;
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated).last_modified_time(time);
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (path, mode, bytes) in tree.files() {
        zip.start_file(path, options.unix_permissions(mode))?;
        zip.write_all(bytes)?;
    }
    Ok(zip.finish()?.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_has_digest_and_length_of_each_file() {
        let mut tree = Tree::default();
        tree.file("a/b", READABLE, *b"");
        assert_eq!(record_of(&tree).unwrap(), "a/b,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n");
    }

    #[test]
    fn zip_keeps_modes_and_has_the_time_of_the_release() {
        let mut tree = Tree::default();
        tree.file("scripts/bulkhead", 0o755, *b"program");
        let bytes = zipped(&tree, 1_700_000_000).unwrap();
        assert_eq!(bytes, zipped(&tree, 1_700_000_000).unwrap());
        let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
        let file = archive.by_name("scripts/bulkhead").unwrap();
        assert_eq!(file.unix_mode().unwrap() & 0o777, 0o755);
        assert_eq!(file.last_modified().unwrap().to_string(), "2023-11-14 22:13:20");
    }
}
