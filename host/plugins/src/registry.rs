//! What the store remembers of plugins, and the one way to change it.
//!
//! Owns the rows of [`RowKind::Plugin`] and a copy of them in memory. Must not load or publish anything. Invariant: the
//! copy is changed after the store has taken the change, whole, and only if nobody else changed the same plugins in
//! between.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::entry::Entry;
use bulkhead_sources::Digest;
use bulkhead_store::{self as store, RowKind, RowState, RowStore};

/// Rows that are read at once.
const PAGE_ROWS: usize = 1_000;
/// Stands between a plugin's name, which cannot hold it, and the rest of a key; then comes the kind of the row.
const SEPARATOR: u8 = 0;
const VERSION: u8 = b'v';
const ACCEPTED: u8 = b't';
const CANARY_ACCEPTED: u8 = b'c';

impl Entry {
    /// The rows of a plugin of this name, by key.
    fn rows(&self, name: &str) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, store::Error> {
        let mut rows = BTreeMap::from([(name.as_bytes().to_vec(), encode(&self.head)?)]);
        for (digest, version) in &self.versions {
            rows.insert(key(name, VERSION, &digest.0), encode(version)?);
        }
        for (kind, accepted) in [(ACCEPTED, &self.accepted), (CANARY_ACCEPTED, &self.canary_accepted)] {
            for (tool, hash) in accepted {
                rows.insert(key(name, kind, tool.as_bytes()), hash.0.to_vec());
            }
        }
        Ok(rows)
    }
}

fn key(name: &str, kind: u8, rest: &[u8]) -> Vec<u8> {
    [name.as_bytes(), &[SEPARATOR, kind], rest].concat()
}

fn encode(value: &impl Serialize) -> Result<Vec<u8>, store::Error> {
    serde_json::to_vec(value).map_err(|error| store::Error::Engine(error.to_string()))
}

/// All plugins by name.
#[derive(Debug, Default)]
pub(super) struct PluginRegistry {
    entries: BTreeMap<String, Entry>,
    /// A change was reported as failed: the store may hold it, or another host's, and what runs here may be another
    /// version.
    pub(super) in_doubt: bool,
}

/// A change before its commit: the new entry of each plugin that it touches.
#[derive(Debug, Default)]
pub(super) struct Draft {
    entries: BTreeMap<String, Option<Entry>>,
}

impl Draft {
    /// The plugin as it will be, for changing.
    pub(super) fn entry(&mut self, book: &PluginRegistry, name: &str) -> &mut Entry {
        let entry = self.entries.entry(name.to_owned()).or_default();
        entry.get_or_insert_with(|| book.get(name).cloned().unwrap_or_default())
    }

    /// Forgets a plugin.
    pub(super) fn remove(&mut self, name: &str) {
        self.entries.insert(name.to_owned(), None);
    }
}

impl PluginRegistry {
    /// Reads every row.
    pub(super) async fn read(store: &dyn RowStore) -> Result<Self, store::Error> {
        let mut entries = BTreeMap::<String, Entry>::new();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let rows = store.rows(RowKind::Plugin, after.as_deref(), PAGE_ROWS).await?;
            let is_last = rows.len() < PAGE_ROWS;
            after = rows.last().map(|(key, _)| key.clone()).or(after);
            for (key, value) in rows {
                take(&mut entries, &key, value).ok_or_else(|| {
                    store::Error::Corrupt(format!("a row of a plugin is unreadable ({})", key.escape_ascii()))
                })?;
            }
            if is_last {
                return Ok(Self { entries, in_doubt: false });
            }
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &Entry)> {
        self.entries.iter()
    }

    /// Plugins of which something is otherwise than in an earlier copy.
    pub(super) fn changed_since(&self, earlier: &Self) -> Vec<String> {
        let head = |book: &Self, name: &str| book.get(name).and_then(|entry| entry.head_row.clone());
        let names: BTreeSet<&String> = self.entries.keys().chain(earlier.entries.keys()).collect();
        names.into_iter().filter(|name| head(self, name) != head(earlier, name)).cloned().collect()
    }

    /// Makes a change durable, all of it or nothing.
    ///
    /// # Errors
    ///
    /// [`store::Error::Conflict`]: another host changed one of the plugins. After any error the registry reads itself
    /// again, because the change may have been made all the same; where it was, that is no error.
    pub(super) async fn commit(&mut self, store: &dyn RowStore, draft: Draft) -> Result<(), store::Error> {
        let mut expected = Vec::new();
        let mut changes = Vec::<RowState>::new();
        let mut next = Vec::new();
        for (name, entry) in draft.entries {
            let before = self.entries.get(&name);
            expected.push((name.as_bytes().to_vec(), before.and_then(|before| before.head_row.clone())));
            let rows_before = before.map(|before| before.rows(&name)).transpose()?.unwrap_or_default();
            let mut rows_after = BTreeMap::new();
            let entry = match entry {
                None => None,
                Some(mut entry) => {
                    entry.head.changes += 1;
                    rows_after = entry.rows(&name)?;
                    entry.head_row = rows_after.get(name.as_bytes()).cloned();
                    Some(entry)
                }
            };
            let gone = rows_before.keys().filter(|key| !rows_after.contains_key(*key));
            changes.extend(gone.map(|key| (key.clone(), None)));
            changes.extend(
                rows_after
                    .into_iter()
                    .filter(|(key, value)| rows_before.get(key) != Some(value))
                    .map(|(key, value)| (key, Some(value))),
            );
            next.push((name, entry));
        }
        if let Err(error) = store.change_rows(RowKind::Plugin, expected, changes, None).await {
            self.in_doubt = true;
            match Self::read(store).await {
                Ok(again) => *self = Self { in_doubt: true, ..again },
                Err(again) => {
                    tracing::warn!(error = %again, "the plugins in the store cannot be read again");
                    return Err(error);
                }
            }
            let mut made = !matches!(error, store::Error::Conflict);
            for (name, entry) in &next {
                let wanted = entry.as_ref().map(|entry| entry.rows(name)).transpose()?;
                made &= wanted == self.get(name).map(|entry| entry.rows(name)).transpose()?;
            }
            if !made {
                return Err(error);
            }
            tracing::warn!(%error, "a change of plugins was reported as failed, but it is in the store");
            // Whoever made it goes on as if it had not been reported.
            self.in_doubt = false;
            return Ok(());
        }
        for (name, entry) in next {
            match entry {
                Some(entry) => self.entries.insert(name, entry),
                None => self.entries.remove(&name),
            };
        }
        Ok(())
    }
}

/// Puts a row in its place; `None`: it makes no sense.
fn take(entries: &mut BTreeMap<String, Entry>, key: &[u8], value: Vec<u8>) -> Option<()> {
    let mut parts = key.splitn(2, |byte| *byte == SEPARATOR);
    let name = std::str::from_utf8(parts.next()?).ok()?;
    let entry = entries.entry(name.to_owned()).or_default();
    match parts.next().and_then(<[u8]>::split_first) {
        None => {
            entry.head = serde_json::from_slice(&value).ok()?;
            entry.head_row = Some(value);
        }
        Some((&VERSION, digest)) => {
            let version = serde_json::from_slice(&value).ok()?;
            entry.versions.insert(Digest(digest.try_into().ok()?), version);
        }
        Some((kind @ (&ACCEPTED | &CANARY_ACCEPTED), tool)) => {
            let hash = Digest(value.as_slice().try_into().ok()?);
            let accepted = if *kind == ACCEPTED { &mut entry.accepted } else { &mut entry.canary_accepted };
            accepted.insert(std::str::from_utf8(tool).ok()?.to_owned(), hash);
        }
        // Of a newer host: it is kept as it is.
        Some(_) => {}
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::super::Provenance;
    use super::super::entry::{Stage, Version};
    use super::*;
    use bulkhead_domain::UnixMs;
    use bulkhead_store::memory::MemoryStore;

    fn version(at: UnixMs) -> Version {
        Version { checked_at: Some(at), ..Version::staged(&Provenance::default(), 1, at) }
    }

    const A: Digest = Digest([0xa; 32]);
    const B: Digest = Digest([0xb; 32]);

    #[tokio::test]
    async fn committed_plugin_entries_are_read_back() {
        let store = MemoryStore::new();
        let mut book = PluginRegistry::read(&store).await.unwrap();
        let mut draft = Draft::default();
        let entry = draft.entry(&book, "text");
        entry.versions.insert(A, version(1));
        entry.accepted.extend((0..600).map(|number| (format!("tool_{number}"), B)));
        entry.activate(Some(A), 2);
        draft.entry(&book, "text.more").versions.insert(B, version(3));
        book.commit(&store, draft).await.unwrap();

        let again = PluginRegistry::read(&store).await.unwrap();
        for book in [&book, &again] {
            let names: Vec<_> = book.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, ["text", "text.more"]);
            let entry = book.get("text").unwrap();
            assert_eq!((entry.stage(&A), entry.accepted.len()), (Some(Stage::Active), 600));
            assert_eq!(book.get("text.more").unwrap().stage(&B), Some(Stage::Checked));
        }

        let mut draft = Draft::default();
        let entry = draft.entry(&book, "text");
        entry.versions.insert(B, version(4));
        entry.activate(Some(B), 5);
        entry.accepted.clear();
        book.commit(&store, draft).await.unwrap();
        let again = PluginRegistry::read(&store).await.unwrap();
        let entry = again.get("text").unwrap();
        assert_eq!((entry.stage(&A), entry.stage(&B)), (Some(Stage::Draining), Some(Stage::Active)));
        assert_eq!((entry.head.previous, entry.accepted.len()), (Some(A), 0));

        let mut draft = Draft::default();
        draft.remove("text");
        book.commit(&store, draft).await.unwrap();
        assert_eq!(PluginRegistry::read(&store).await.unwrap().iter().count(), 1);
        assert_eq!(store.rows(RowKind::Plugin, None, 99).await.unwrap().len(), 2);
    }

    #[tokio::test]
    async fn concurrent_plugin_commits_conflict() {
        let store = MemoryStore::new();
        let mut one = PluginRegistry::read(&store).await.unwrap();
        let mut other = PluginRegistry::read(&store).await.unwrap();
        let draft = |book: &PluginRegistry, digest| {
            let mut draft = Draft::default();
            draft.entry(book, "text").versions.insert(digest, version(1));
            draft
        };
        let first = draft(&one, A);
        let second = draft(&other, B);
        one.commit(&store, first).await.unwrap();
        assert!(matches!(other.commit(&store, second).await, Err(store::Error::Conflict)));
        assert!(other.get("text").unwrap().versions.contains_key(&A), "it has read what the other one wrote");
        assert_eq!(other.changed_since(&one), [""; 0]);
        let again = draft(&other, B);
        other.commit(&store, again).await.unwrap();
        assert_eq!(
            (other.changed_since(&one), one.changed_since(&other)),
            (vec!["text".to_owned()], vec!["text".to_owned()])
        );
        assert_eq!(PluginRegistry::read(&store).await.unwrap().get("text").unwrap().versions.len(), 2);
    }

    #[tokio::test]
    async fn failed_plugin_commit_changes_nothing() {
        let store = MemoryStore::new();
        let mut book = PluginRegistry::read(&store).await.unwrap();
        let mut draft = Draft::default();
        draft.entry(&book, "text").versions.insert(A, version(1));
        store.fail_next_writes(1);
        assert!(book.commit(&store, draft).await.is_err());
        assert!(book.get("text").is_none() && PluginRegistry::read(&store).await.unwrap().get("text").is_none());
        // The change was made, and nobody heard of it.
        let mut draft = Draft::default();
        draft.entry(&book, "text").versions.insert(A, version(1));
        store.lose_next_acknowledgements(1);
        book.commit(&store, draft).await.unwrap();
        assert!(book.get("text").is_some());
        // What is in the store already does not make a failed change of the same plugin a done one.
        let mut draft = Draft::default();
        draft.entry(&book, "text").accepted.insert("tool".to_owned(), B);
        store.fail_next_writes(1);
        assert!(book.commit(&store, draft).await.is_err());
        assert!(book.get("text").unwrap().accepted.is_empty());
    }
}
