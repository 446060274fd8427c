//! How a version comes to be: the bytes of a component, from wherever, for a plugin.
//!
//! Invariant: what is refused leaves nothing behind; what passed can be switched to without its source.

use std::path::Path;
use std::sync::Arc;

use super::book::{Draft, Stage, Version};
use super::difference::Changes;
use super::{Digest, Error, Inner, Plugins, State, version};
use crate::domain::task::PluginVersion;
use crate::runtime::{LoadError, LoadedPlugin, PluginSource, Source, read_component, wit_file};

/// A component on its way in. Whoever has fetched it has also decided that it may be trusted.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Which plugin it is a version of; `None`: as it says itself, else `fallback_name`.
    pub name: Option<String>,
    pub fallback_name: Option<String>,
    pub bytes: Arc<[u8]>,
    /// The WIT text that came with it, for descriptions of tools that were made of its functions.
    pub wit: Option<String>,
    /// Where it came from, for people: a path, an address.
    pub source: String,
}

impl Candidate {
    /// The component in a file.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is too large.
    pub fn of_file(path: &Path, name: Option<String>) -> Result<Self, Error> {
        let label = || name.clone().unwrap_or_else(|| path.display().to_string());
        let bytes = read_component(path).map_err(|problem| refused(label(), vec![problem]))?;
        let fallback_name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let wit_path = path.with_extension("wit");
        let wit = wit_file(&wit_path).unwrap_or_else(|problem| {
            tracing::warn!(file = %wit_path.display(), problem, "the WIT file beside the component is not used");
            None
        });
        Ok(Self { name, fallback_name, bytes: bytes.into(), wit, source: path.display().to_string() })
    }
}

/// A version that can be switched to.
#[derive(Clone, Debug)]
pub struct Staged {
    pub version: PluginVersion,
    pub stage: Stage,
    pub tools: usize,
    /// Against the active version; `None`: there is none.
    pub changes: Option<Changes>,
    /// What of it needs the operator's word, one sentence each.
    pub held: Vec<String>,
}

fn refused(plugin: String, problems: Vec<String>) -> Error {
    Error::Refused(vec![LoadError { plugin, problems }])
}

impl Plugins {
    /// Takes a component in as a version of a plugin, and checks it. Calls notice nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with everything that is wrong with it.
    pub async fn stage(&self, candidate: Candidate) -> Result<Staged, Error> {
        let Candidate { name, fallback_name, bytes, wit, source } = candidate;
        let version = self.identify(name, fallback_name, &bytes).await?;
        let digest = Digest(version.digest);
        let policy = self.inner.policy(&version.name);
        let is_new = self.note_staged(&version, &bytes, wit, source).await?;
        let loaded = match self.inner.sandbox.load_kept(&version, &policy.source).await {
            Ok(loaded) => loaded,
            Err(error) if is_new => {
                let mut state = self.inner.state.lock().await;
                self.inner.forget(&mut state, &version).await?;
                return Err(Error::Refused(vec![error]));
            }
            Err(error) => return Err(Error::Refused(vec![error])),
        };
        let mut state = self.inner.state.lock().await;
        let mut draft = Draft::default();
        let tools = loaded.tools.len();
        match draft.entry(&state.book, &version.name).versions.get_mut(&digest) {
            Some(staged) => {
                (staged.checked_at, staged.tools) = (staged.checked_at.or(Some(self.inner.clock.now())), tools);
            }
            None => return Err(Error::NotFound(format!("{digest} was removed while it was checked: stage it again"))),
        }
        state.book.commit(&*self.inner.store, draft).await?;
        let active = state.table.iter().find(|plugin| plugin.version.name == version.name);
        let changes = active.map(|active| Changes::between(active, &loaded));
        let entry = state.book.get(&version.name);
        let stage = entry.and_then(|entry| entry.stage(&digest)).unwrap_or(Stage::Checked);
        let held = entry.map(|entry| self.held(&version.name, entry, active, &loaded)).unwrap_or_default();
        if stage != Stage::Active {
            state.fresh.insert(version.name.clone(), loaded);
        }
        Ok(Staged { version, stage, tools, changes, held })
    }

    async fn identify(
        &self,
        name: Option<String>,
        fallback_name: Option<String>,
        bytes: &Arc<[u8]>,
    ) -> Result<PluginVersion, Error> {
        let source = |name| PluginSource {
            component: Source::Bytes(Arc::clone(bytes)),
            name,
            ..self.inner.otherwise.source.clone()
        };
        let identified = match self.inner.sandbox.identify(source(name.clone())).await {
            Err(_) if name.is_none() && fallback_name.is_some() => {
                self.inner.sandbox.identify(source(fallback_name)).await
            }
            identified => identified,
        };
        identified.map_err(|error| Error::Refused(vec![error]))
    }

    /// Keeps the bytes and says so in the store. Gives whether the version was not there before.
    async fn note_staged(
        &self,
        version: &PluginVersion,
        bytes: &Arc<[u8]>,
        wit: Option<String>,
        source: String,
    ) -> Result<bool, Error> {
        let inner = &self.inner;
        let mut state = inner.state.lock().await;
        let (sandbox, kept, digest) = (Arc::clone(&inner.sandbox), Arc::clone(bytes), version.digest);
        let kept = tokio::task::spawn_blocking(move || {
            wit.map_or(Ok(()), |wit| sandbox.kept().keep_wit(&digest, wit.as_bytes()))?;
            sandbox.kept().keep(&digest, &kept)
        });
        let kept = kept.await;
        kept.unwrap_or_else(|error| Err(std::io::Error::other(error)))?;
        let mut draft = Draft::default();
        let entry = draft.entry(&state.book, &version.name);
        if entry.versions.contains_key(&Digest(version.digest)) {
            return Ok(false);
        }
        let staged = Version::staged(&source, bytes.len() as u64, inner.clock.now());
        entry.versions.insert(Digest(version.digest), staged);
        state.book.commit(&*inner.store, draft).await?;
        Ok(true)
    }

    /// A version that is in the book, ready to be published.
    pub(super) async fn ready(&self, name: &str, digest: Digest) -> Result<LoadedPlugin, Error> {
        let version = version(name, digest);
        {
            let state = self.inner.state.lock().await;
            let fresh = state.fresh.get(name).filter(|fresh| fresh.version == version);
            // A canary with the lists that it has by now.
            if let Some(ready) = state.running(&version).or(fresh) {
                return Ok(ready.clone());
            }
        }
        let loaded = self.inner.sandbox.load_kept(&version, &self.inner.policy(name).source).await;
        loaded.map_err(|error| Error::Refused(vec![error]))
    }
}

impl Inner {
    /// Removes a version, and its files unless another plugin is made of the same component. Whoever asks has looked whether it is
    /// in use, under the same lock.
    ///
    /// # Errors
    ///
    /// It is active.
    pub(super) async fn forget(&self, state: &mut State, gone: &PluginVersion) -> Result<(), Error> {
        let digest = Digest(gone.digest);
        let mut draft = Draft::default();
        let entry = draft.entry(&state.book, &gone.name);
        if entry.head.active == Some(digest) || entry.is_canary(&digest) || state.runs(gone) {
            return Err(Error::Invalid(format!("{digest} is active: switch to another version first")));
        }
        entry.versions.remove(&digest);
        entry.head.previous = entry.head.previous.filter(|previous| *previous != digest);
        if entry.versions.is_empty() {
            draft.remove(&gone.name);
        }
        state.fresh.retain(|_, fresh| fresh.version != *gone);
        state.book.commit(&*self.store, draft).await?;
        let in_book = state.book.iter().any(|(_, entry)| entry.versions.contains_key(&digest));
        // What is pinned for this run is in no book.
        let runs = state.table.iter().any(|plugin| plugin.version.digest == digest.0);
        if !in_book && !runs {
            let sandbox = Arc::clone(&self.sandbox);
            let removed = tokio::task::spawn_blocking(move || sandbox.remove_kept(&digest.0)).await;
            removed.unwrap_or_else(|error| Err(std::io::Error::other(error)))?;
        }
        Ok(())
    }
}
