//! How a version comes to be: the bytes of a component, from wherever, for a plugin.
//!
//! Invariant: what is refused leaves nothing behind; what passed can be switched to without its source.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::difference::Changes;
use super::entry::{Stage, Version};
use super::registry::Draft;
use super::switch::SwitchResult;
use super::{Digest, Error, Inner, Pinning, Plugins, State};
use bulkhead_calls::policy::Grants;
use bulkhead_domain::task::PluginVersion;
use bulkhead_runtime::{LoadError, LoadedPlugin, PluginSource, Sandbox, Source, Wit};

/// A component on its way in. Its source has already decided that it may be trusted.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Which plugin it is a version of; `None`: as it says itself, else `fallback_name`.
    pub name: Option<String>,
    pub fallback_name: Option<String>,
    pub bytes: Arc<[u8]>,
    /// The WIT text that came with it, for descriptions of tools that were made of its functions.
    pub wit: Wit,
    pub provenance: Provenance,
    /// Whether an operator asks for it at this moment. Else it is listed without what is granted to its plugin, until
    /// it was compared with what was accepted.
    pub is_attended: bool,
}

/// Components on their way: those that are being written and that no row names yet, whose files stay even if a version
/// is removed meanwhile, and those that are being added, whose versions stay.
#[derive(Clone, Debug, Default)]
pub(super) struct Arriving(Arc<Mutex<Vec<[u8; 32]>>>);

impl Arriving {
    /// Announces a component. Removals read this under the lock of the state, so this is called under it, too.
    pub(super) fn announce(&self, digest: [u8; 32]) -> Arrival {
        self.0.lock().push(digest);
        Arrival { of: self.clone(), digest }
    }

    pub(super) fn contains(&self, digest: &[u8; 32]) -> bool {
        self.0.lock().contains(digest)
    }
}

/// One component of [`Arriving`], until it is dropped.
pub(super) struct Arrival {
    of: Arriving,
    digest: [u8; 32],
}

impl Drop for Arrival {
    fn drop(&mut self) {
        let mut digests = self.of.0.lock();
        if let Some(at) = digests.iter().position(|digest| *digest == self.digest) {
            digests.swap_remove(at);
        }
    }
}

/// Where a component came from, for people and for asking again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    /// A path, an address, a reference, as it was asked for.
    pub source: String,
    /// The same as it was resolved, where that is more exact.
    pub origin: String,
    /// Ids of the keys that it had to be signed with, and was.
    pub signed_by: Vec<String>,
    /// What the rule for the source says of definitions that change, if it says anything.
    pub pinning: Option<Pinning>,
    /// Whether changes that pass are noted, whatever lets them pass: one of several rules wants it so.
    pub shows_changes: bool,
}

/// Where the component of a plugin comes from that is configured for the start; the binary implements it.
#[async_trait]
pub trait ComponentSource: std::fmt::Debug + Send + Sync {
    /// For messages, while the plugin has no name.
    fn label(&self) -> String;

    /// Whether looking costs nothing. All others are asked only for plugins that are not known yet, and nobody waits
    /// for them.
    fn is_local(&self) -> bool;

    /// The component, if it may be trusted.
    ///
    /// # Errors
    /// Why not, in words for the operator; the caller adds the plugin's name.
    async fn fetch(&self) -> Result<Candidate, LoadError>;
}

impl Candidate {
    /// What it would be called, and its SHA-256.
    pub(super) async fn identify(&self, sandbox: &Sandbox, policy: &PluginSource) -> Result<PluginVersion, LoadError> {
        let source = |name| {
            let component = Source::Bytes(Arc::clone(&self.bytes));
            PluginSource { component, name, ..policy.clone() }
        };
        match sandbox.identify(source(self.name.clone())).await {
            Err(_) if self.name.is_none() && self.fallback_name.is_some() => {
                sandbox.identify(source(self.fallback_name.clone())).await
            }
            identified => identified,
        }
    }

    /// Keeps the component in the data directory, where it is loaded from.
    ///
    /// # Errors
    ///
    /// The data directory cannot be written.
    pub async fn keep(self, sandbox: &Arc<Sandbox>, digest: [u8; 32]) -> std::io::Result<Source> {
        let sandbox = Arc::clone(sandbox);
        let kept = tokio::task::spawn_blocking(move || {
            // Before the component: what is there without it is nothing yet.
            sandbox.kept().keep_wit(&digest, &self.wit)?;
            sandbox.kept().keep(&digest, &self.bytes)?;
            Ok(Source::File(sandbox.kept().path(&digest)))
        });
        kept.await.unwrap_or_else(|error| Err(std::io::Error::other(error)))
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

impl Plugins {
    /// Takes a component in as a version of a plugin, and checks it. Calls notice nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with everything that is wrong with it.
    pub async fn stage(&self, candidate: Candidate) -> Result<Staged, Error> {
        let version = self.identify(&candidate).await?;
        self.stage_as(version, candidate).await
    }

    /// Stages components, one after the other, and switches to all of them at once or to none. What was staged here
    /// cannot be removed until it was switched to.
    ///
    /// # Errors
    ///
    /// As [`Self::stage`] and [`Self::activate`]. What was staged until then can be switched to.
    pub async fn add<F>(&self, candidates: impl Iterator<Item = F> + Send, accept: bool) -> Result<SwitchResult, Error>
    where
        F: Future<Output = Result<Candidate, Error>> + Send,
    {
        let mut versions = Vec::new();
        let mut kept = Vec::new();
        for candidate in candidates {
            let candidate = candidate.await?;
            let version = self.identify(&candidate).await?;
            {
                let _state = self.inner.state.lock().await;
                kept.push(self.inner.adding.announce(version.digest));
            }
            versions.push(self.stage_as(version, candidate).await?.version);
        }
        self.switch(&versions, accept).await
    }

    async fn stage_as(&self, version: PluginVersion, candidate: Candidate) -> Result<Staged, Error> {
        let digest = Digest(version.digest);
        let granted = &self.inner.policy(&version.name).source;
        let is_final = candidate.is_attended || granted.grants == Grants::default();
        let terms =
            if is_final { granted.clone() } else { PluginSource { grants: Grants::default(), ..granted.clone() } };
        let is_new = self.note_staged(&version, candidate).await?;
        let loaded = match self.inner.load_kept(&version, &terms).await {
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
        let held = entry.map(|entry| self.held(&version.name, entry, active, &loaded, None)).unwrap_or_default();
        if stage != Stage::Active && is_final {
            state.fresh.insert(version.name.clone(), loaded);
        }
        Ok(Staged { version, stage, tools, changes, held })
    }

    /// Which version of which plugin a component would be.
    ///
    /// # Errors
    ///
    /// It is no component, or has no usable name.
    pub async fn identify(&self, candidate: &Candidate) -> Result<PluginVersion, Error> {
        let identified = candidate.identify(&self.inner.sandbox, &self.inner.policies.load().otherwise.source).await;
        identified.map_err(|error| Error::Refused(vec![error]))
    }

    /// What operators see in the list as wrong with a plugin, or with a file that is none yet. Empty: nothing is.
    pub async fn note_problems(&self, name: &str, problems: Vec<String>) {
        let mut state = self.inner.state.lock().await;
        if problems.is_empty() {
            state.noticed.remove(name);
            // What a start said of a file whose plugin it did not get to know is settled with the file.
            if state.book.get(name).is_none() && !self.inner.is_configured(name) {
                state.broken.remove(name);
            }
        } else {
            state.noticed.insert(name.to_owned(), problems);
        }
    }

    /// Keeps the bytes and says so in the store. Returns whether the version was not there before.
    async fn note_staged(&self, version: &PluginVersion, candidate: Candidate) -> Result<bool, Error> {
        let inner = &self.inner;
        let size = candidate.bytes.len() as u64;
        let provenance = candidate.provenance.clone();
        let arriving = {
            let _state = inner.state.lock().await;
            inner.arriving.announce(version.digest)
        };
        // Up to 128 MiB to a disk that may be slow: lists, switches and calls do not wait for it.
        candidate.keep(&inner.sandbox, version.digest).await?;
        // Before another host reads of it.
        inner.share(version.digest).await?;
        let mut state = inner.state.lock().await;
        drop(arriving);
        let mut draft = Draft::default();
        let entry = draft.entry(&state.book, &version.name);
        if let Some(known) = entry.versions.get_mut(&Digest(version.digest)) {
            // The same from elsewhere, or signed by now.
            if known.came(&provenance) {
                state.book.commit(&*inner.store, draft).await?;
            }
            return Ok(false);
        }
        entry.versions.insert(Digest(version.digest), Version::staged(&provenance, size, inner.clock.now()));
        state.book.commit(&*inner.store, draft).await?;
        Ok(true)
    }

    /// A version that is in the book, ready to be published on the terms of the configuration.
    pub(super) async fn ready(&self, version: &PluginVersion) -> Result<LoadedPlugin, Error> {
        let name = &version.name;
        let terms = self.inner.policy(name).source;
        let running = {
            let state = self.inner.state.lock().await;
            let running = state.running(version);
            let fresh = state.fresh.get(name).filter(|fresh| fresh.version == *version);
            // A canary with the lists that it has by now.
            if let Some(ready) = running.filter(|running| running.is_under(&terms)).or(fresh) {
                return Ok(ready.clone());
            }
            running.cloned()
        };
        let loaded = match running {
            // It goes on as what it was until the operator accepts what the configuration makes of it.
            Some(running) => self.inner.sandbox.under(&running, &terms).await,
            None => self.inner.load_kept(version, &terms).await,
        };
        match loaded {
            Ok(loaded) => Ok(loaded),
            Err(mut error) => {
                let state = self.inner.state.lock().await;
                error.problems.extend(self.inner.way_out(&state.book, name, &Digest(version.digest)));
                Err(Error::Refused(vec![error]))
            }
        }
    }
}

impl Inner {
    /// Removes a version, and its files unless another plugin is made of the same component. The caller has checked,
    /// under the same lock, that it is not in use.
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
        if !in_book && !runs && !self.arriving.contains(&digest.0) {
            let sandbox = Arc::clone(&self.sandbox);
            let removed = tokio::task::spawn_blocking(move || sandbox.remove_kept(&digest.0)).await;
            removed.unwrap_or_else(|error| Err(std::io::Error::other(error)))?;
            self.store.remove_component(&digest.0).await?;
        }
        Ok(())
    }
}
