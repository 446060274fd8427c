//! After a change that was reported as failed: finding out what the store holds, and running that.
//!
//! Invariant: a command works on what the store says, never on a copy that may be behind it; what is published here was
//! accepted, as at a start.

use tokio::sync::MutexGuard;

use super::registry::PluginRegistry;
use super::{Digest, Error, Plugins, State, version};
use bulkhead_runtime::PluginSource;

impl Plugins {
    /// The state, once it is certain.
    pub(super) async fn settled(&self) -> Result<MutexGuard<'_, State>, Error> {
        let mut state = self.inner.state.lock().await;
        self.look_at_others(&mut state).await?;
        self.settle(&mut state).await?;
        Ok(state)
    }

    /// Reads the store again if a change may be in it that nobody heard of, and publishes what it says.
    ///
    /// # Errors
    ///
    /// The store cannot be read: nothing is certain yet.
    pub(super) async fn settle(&self, state: &mut State) -> Result<(), Error> {
        if !state.book.in_doubt {
            return Ok(());
        }
        let inner = &self.inner;
        let book = PluginRegistry::read(&*inner.store).await?;
        let mut table = state.table.clone();
        let mut lost = Vec::new();
        for (name, entry) in book.iter().filter(|(name, _)| !state.pinned.contains(*name)) {
            let position = table.iter().position(|plugin| plugin.version.name == *name);
            let running = position.and_then(|at| table.get(at)).map(|plugin| Digest(plugin.version.digest));
            // It does not run for a reason that a start has to look at.
            let is_out = running.is_none()
                && (state.broken.contains_key(name) || self.is_unconfigured(name, entry.head.configured));
            if running == entry.head.active || is_out {
                continue;
            }
            let policy = PluginSource { name: Some(name.clone()), ..inner.policy(name).source.clone() };
            let loaded = match entry.head.active {
                Some(digest) => {
                    let loaded = inner.load_kept(&version(name, digest), &policy).await;
                    Some(loaded.and_then(|plugin| inner.accepted(&book, plugin)))
                }
                None => None,
            };
            state.broken.remove(name);
            if !matches!(loaded, Some(Err(_))) {
                inner.set_lacking(name, false);
                tracing::warn!(
                    plugin.name = name,
                    "the store holds another version than the one that ran: it runs now"
                );
            }
            match (loaded, position) {
                (Some(Ok(plugin)), Some(at)) => table.splice(at..=at, [plugin]).for_each(drop),
                (Some(Ok(plugin)), None) => table.push(plugin),
                (Some(Err(error)), _) => {
                    // What was loaded when it was staged is not what it is now.
                    state.fresh.remove(name);
                    lost.push(error);
                }
                (None, Some(at)) => drop(table.remove(at)),
                (None, None) => {}
            }
        }
        let (canaries, without) = self.load_canaries(&book, &table, &state.pinned).await;
        lost.extend(without);
        state.book = book;
        lost.extend(inner.publish(state, table, canaries));
        for error in &lost {
            state.note_broken(error);
        }
        Ok(())
    }

    fn is_unconfigured(&self, name: &str, configured: bool) -> bool {
        configured && !self.inner.is_configured(name)
    }
}
