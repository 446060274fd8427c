//! Hosts that share the store: what one of them adds or switches to, the others fetch and run.
//!
//! Owns the copies of components in the store, and the look at what other hosts decided. Must not decide anything: what
//! is published here is what the store says, as at a start. Invariants: bytes from the store are kept under their own
//! SHA-256 only; and a host that cannot have a version goes on with the one that it has, and says so.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::entry::{Entry, Stage};
use super::registry::PluginRegistry;
use super::{Error, Inner, Plugins, State, version};
use bulkhead_domain::task::PluginVersion;
use bulkhead_runtime::{LoadError, LoadedPlugin, PluginSource, Wit};
use bulkhead_store::RowKind;
use bulkhead_store::hosts::StoredComponent;

/// How often it is looked again for components that could not be had.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// After the store has failed.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Versions that tasks are left of.
fn versions_draining(name: &str, entry: &Entry) -> Vec<PluginVersion> {
    let digests = entry.versions.keys().filter(|digest| entry.stage(digest) == Some(Stage::Draining));
    digests.map(|digest| version(name, *digest)).collect()
}

impl Plugins {
    /// Runs what other hosts switch to, until dropped. On a store of one host it returns.
    pub(super) async fn follow_other_hosts(&self) {
        let inner = &self.inner;
        if !inner.store.is_shared() {
            return;
        }
        self.share_components().await;
        let mut seen = None;
        loop {
            let changed = inner.store.rows_changed(RowKind::Plugin, seen);
            let looked = match tokio::time::timeout(LOOK_EVERY, changed).await {
                Ok(generation) => self.catch_up().await.map(|()| seen = generation),
                Err(_) if inner.lacking.load().is_empty() => Ok(()),
                Err(_) => self.try_lacking().await,
            };
            if let Err(error) = looked {
                tracing::warn!(%error, "what other hosts did with plugins is looked at later");
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }

    /// Lets other hosts have the components of this one: it may have been alone when they came.
    async fn share_components(&self) {
        let inner = &self.inner;
        let mut digests = HashSet::new();
        let mut draining = Vec::new();
        for (name, entry) in inner.state.lock().await.book.iter() {
            digests.extend(entry.versions.keys().map(|digest| digest.0));
            draining.extend(versions_draining(name, entry));
        }
        // This host may go on with their tasks.
        for version in &draining {
            inner.fetch_if_missing(version).await;
        }
        for digest in digests.into_iter().filter(|digest| !inner.sandbox.kept().is_missing(digest)) {
            if let Err(error) = inner.share(digest).await {
                tracing::warn!(%error, "a component cannot be had by the other hosts yet");
            }
        }
    }

    /// Runs what the store says, if that is something else than what this host knows.
    async fn catch_up(&self) -> Result<(), Error> {
        let inner = &self.inner;
        let book = PluginRegistry::read(&*inner.store).await?;
        let changed = book.changed_since(&inner.state.lock().await.book);
        if changed.is_empty() {
            return Ok(());
        }
        // A component may have to be fetched and compiled: lists and commands do not wait for that.
        for name in &changed {
            let Some(entry) = book.get(name) else { continue };
            let canary = entry.head.canary.as_ref().map(|canary| canary.version);
            let terms = PluginSource { name: Some(name.clone()), ..inner.policy(name).source.clone() };
            for digest in entry.head.active.into_iter().chain(canary) {
                // What is wrong with it is said when it is published.
                let _ = inner.load_kept(&version(name, digest), &terms).await;
            }
            for version in versions_draining(name, entry) {
                inner.fetch_if_missing(&version).await;
            }
        }
        self.settled().await.map(drop)
    }

    /// Tries those again that do not run because their component could not be had.
    async fn try_lacking(&self) -> Result<(), Error> {
        let inner = &self.inner;
        let mut state = inner.state.lock().await;
        let mut tries = false;
        for name in inner.lacking.load_full().iter() {
            let Some(digest) = state.book.get(name).and_then(|entry| entry.head.active) else { continue };
            if !inner.sandbox.kept().is_missing(&digest.0) || inner.store.has_component(&digest.0).await? {
                state.broken.remove(name);
                tries = true;
            }
        }
        state.book.in_doubt |= tries;
        self.settle(&mut state).await
    }

    /// Notes whether other hosts have changed what this one knows.
    pub(super) async fn look_at_others(&self, state: &mut State) -> Result<(), Error> {
        if !self.inner.store.is_shared() {
            return Ok(());
        }
        let changed = PluginRegistry::read(&*self.inner.store).await?.changed_since(&state.book);
        for name in &changed {
            // What kept it from running may be settled.
            state.broken.remove(name);
        }
        state.book.in_doubt |= !changed.is_empty();
        Ok(())
    }
}

impl Inner {
    /// A version as the data directory has it, or another host that shares the store.
    pub(super) async fn load_kept(
        &self,
        version: &PluginVersion,
        terms: &PluginSource,
    ) -> Result<LoadedPlugin, LoadError> {
        self.fetch_if_missing(version).await;
        let loaded = self.sandbox.load_kept(version, terms).await;
        if loaded.is_err() && self.store.is_shared() && self.sandbox.kept().is_missing(&version.digest) {
            self.set_lacking(&version.name, true);
        }
        loaded
    }

    async fn fetch_if_missing(&self, version: &PluginVersion) {
        if !self.store.is_shared() || !self.sandbox.kept().is_missing(&version.digest) {
            return;
        }
        match self.fetch(version.digest).await {
            Ok(true) => tracing::info!(plugin.name = version.name, "fetched a component that another host took in"),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(plugin.name = version.name, %error, "a component of another host cannot be fetched")
            }
        }
    }

    /// Whether some host has this component.
    async fn fetch(&self, digest: [u8; 32]) -> Result<bool, Error> {
        let Some(StoredComponent { bytes, wit, is_wit_vouched }) = self.store.component(&digest).await? else {
            return Ok(false);
        };
        let wit = if is_wit_vouched { Wit::Vouched(wit) } else { Wit::Free(wit) };
        let sandbox = Arc::clone(&self.sandbox);
        let kept = tokio::task::spawn_blocking(move || {
            // It refuses what has another digest.
            sandbox.kept().keep_wit(&digest, &wit)?;
            sandbox.kept().keep(&digest, &bytes)
        });
        kept.await.unwrap_or_else(|error| Err(std::io::Error::other(error)))?;
        Ok(true)
    }

    /// Lets other hosts have a component that is in the data directory.
    pub(super) async fn share(&self, digest: [u8; 32]) -> Result<(), Error> {
        if !self.store.is_shared() || self.store.has_component(&digest).await? {
            return Ok(());
        }
        let sandbox = Arc::clone(&self.sandbox);
        let read = tokio::task::spawn_blocking(move || sandbox.kept().read(&digest));
        let (bytes, wit) = read.await.unwrap_or_else(|error| Err(std::io::Error::other(error)))?;
        let (wit, is_wit_vouched) = match wit {
            Wit::Vouched(wit) => (wit, true),
            Wit::Free(wit) => (wit, false),
        };
        Ok(self.store.keep_component(&digest, &StoredComponent { bytes, wit, is_wit_vouched }).await?)
    }
}
