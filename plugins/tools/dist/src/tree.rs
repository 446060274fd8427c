//! A tree of files as packages hold it, and its bytes as tar.
//!
//! Owns the order of entries, their owners, modes and times. Must not read a file's metadata. Invariant: equal trees
//! have equal bytes, whatever they were read from, in whatever order, by whatever user and on whatever day.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;
use libdeflater::{CompressionLvl, Compressor};
use sha2::{Digest as _, Sha256};

/// The mode of programs and folders.
pub(crate) const EXECUTABLE: u32 = 0o755;
/// The mode of every other file.
pub(crate) const READABLE: u32 = 0o644;

/// Files, folders and links by their paths, which begin without a slash.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tree {
    entries: BTreeMap<String, Entry>,
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    mode: u32,
    /// Both user and group.
    owner: u64,
    content: Content,
}

#[derive(Clone, Debug, PartialEq)]
enum Content {
    Folder,
    File(Arc<[u8]>),
    Link(String),
}

impl Tree {
    /// Adds a file with the folders above it.
    pub(crate) fn file(&mut self, path: &str, mode: u32, bytes: impl Into<Arc<[u8]>>) {
        self.insert(path, Entry { mode, owner: 0, content: Content::File(bytes.into()) });
    }

    /// Adds a folder with those above it.
    pub(crate) fn folder(&mut self, path: &str, mode: u32, owner: u64) {
        self.insert(path, Entry { mode, owner, content: Content::Folder });
    }

    /// Adds a symbolic link with the folders above it.
    pub(crate) fn link(&mut self, path: &str, target: &str) {
        self.insert(path, Entry { mode: 0o777, owner: 0, content: Content::Link(target.to_owned()) });
    }

    fn insert(&mut self, path: &str, entry: Entry) {
        let folder = Entry { mode: EXECUTABLE, owner: 0, content: Content::Folder };
        for (end, _) in path.match_indices('/') {
            self.entries.entry(path[..end].to_owned()).or_insert_with(|| folder.clone());
        }
        self.entries.insert(path.to_owned(), entry);
    }

    /// The same tree in a folder of this name.
    pub(crate) fn below(self, folder: &str) -> Self {
        let mut tree = Self::default();
        for (path, entry) in self.entries {
            tree.insert(&format!("{folder}/{path}"), entry);
        }
        tree
    }

    /// The paths of all files with their bytes, in order.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, u32, &[u8])> {
        self.entries.iter().filter_map(|(path, entry)| match &entry.content {
            Content::File(bytes) => Some((path.as_str(), entry.mode, &bytes[..])),
            Content::Folder | Content::Link(_) => None,
        })
    }

    /// The tree as tar, every entry with this time.
    pub(crate) fn tar(&self, epoch: u64) -> anyhow::Result<Vec<u8>> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, entry) in &self.entries {
            let mut header = tar::Header::new_gnu();
            header.set_mode(entry.mode);
            header.set_uid(entry.owner);
            header.set_gid(entry.owner);
            header.set_mtime(epoch);
            header.set_size(0);
            let appended = match &entry.content {
                Content::Folder => {
                    header.set_entry_type(tar::EntryType::Directory);
                    builder.append_data(&mut header, format!("{path}/"), [].as_slice())
                }
                Content::File(bytes) => {
                    header.set_size(bytes.len() as u64);
                    builder.append_data(&mut header, path, &bytes[..])
                }
                Content::Link(target) => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    builder.append_link(&mut header, path, target)
                }
            };
            appended.with_context(|| format!("{path} does not fit into an archive"))?;
        }
        Ok(builder.into_inner()?)
    }

    /// The tree as `.tar.gz`.
    pub(crate) fn tar_gz(&self, epoch: u64, level: CompressionLvl) -> anyhow::Result<Vec<u8>> {
        gzip(&self.tar(epoch)?, level)
    }
}

/// Bytes as gzip, without a time or a name.
pub(crate) fn gzip(bytes: &[u8], level: CompressionLvl) -> anyhow::Result<Vec<u8>> {
    let mut compressor = Compressor::new(level);
    let mut compressed = vec![0; compressor.gzip_compress_bound(bytes.len())];
    let length = compressor.gzip_compress(bytes, &mut compressed)?;
    compressed.truncate(length);
    Ok(compressed)
}

/// The SHA-256 of bytes in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_trees_have_equal_bytes_whatever_the_order() {
        let level = CompressionLvl::best();
        let mut one = Tree::default();
        one.file("b/c", EXECUTABLE, *b"program");
        one.link("b/a", "c");
        one.folder("data", 0o700, 65_532);
        let mut other = Tree::default();
        other.folder("data", 0o700, 65_532);
        other.link("b/a", "c");
        other.file("b/c", EXECUTABLE, *b"program");
        assert_eq!(one.tar_gz(1_000, level).unwrap(), other.tar_gz(1_000, level).unwrap());
        assert_ne!(one.tar_gz(1_000, level).unwrap(), other.tar_gz(1_001, level).unwrap());

        let tar = one.tar(1_000).unwrap();
        let mut archive = tar::Archive::new(&tar[..]);
        let entries: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let header = entry.header();
                let path = entry.path().unwrap().display().to_string();
                (path, header.mode().unwrap(), header.uid().unwrap(), header.mtime().unwrap())
            })
            .collect();
        let expected = [("b/", EXECUTABLE, 0), ("b/a", 0o777, 0), ("b/c", EXECUTABLE, 0), ("data/", 0o700, 65_532)];
        assert_eq!(entries, expected.map(|(path, mode, owner)| (path.to_owned(), mode, owner, 1_000)));
    }

    #[test]
    fn gzip_holds_neither_time_nor_system() {
        // Of the ten, 2 says that the smallest size was looked for, and 255 that the system is not said.
        assert_eq!(gzip(b"x", CompressionLvl::best()).unwrap()[..10], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255]);
    }
}
