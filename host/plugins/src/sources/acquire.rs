//! From a source to a candidate: fetched, and trusted.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use async_trait::async_trait;

use super::{Digest, Error, FetchOptions, Source, Trust, Verified, fetch};
use crate::{Candidate, ComponentSource};
use bulkhead_runtime::LoadError;

/// The rules that every component passes, whichever command or folder brings it.
#[derive(Debug)]
pub struct ComponentFetcher {
    rules: ArcSwap<Rules>,
}

#[derive(Debug)]
struct Rules {
    trust: Trust,
    fetching: FetchOptions,
    /// By the plugin's name: where the configuration says that its component is.
    configured: HashMap<String, (Source, Option<Digest>)>,
}

impl ComponentFetcher {
    pub fn new(trust: Trust, fetching: FetchOptions, configured: HashMap<String, (Source, Option<Digest>)>) -> Self {
        Self { rules: ArcSwap::from_pointee(Rules { trust, fetching, configured }) }
    }

    /// Applies the rules of another one from now on.
    pub fn replace(&self, with: &Self) {
        self.rules.store(with.rules.load_full());
    }

    /// Fetches a component and makes sure that it may be taken. `pinned` is what its SHA-256 must be.
    ///
    /// # Errors
    /// It cannot be had, or nothing vouches for it.
    pub async fn take(&self, source: &Source, pinned: Option<Digest>) -> Result<Verified, Error> {
        let rules = self.rules.load_full();
        let fetched = fetch(source, &rules.fetching, rules.trust.requires_signature(source)).await?;
        Ok(rules.trust.verify(source, pinned, fetched)?)
    }

    /// Where the configuration says that a plugin is, and what its SHA-256 must be.
    pub fn configured(&self, plugin: &str) -> Option<(Source, Option<Digest>)> {
        self.rules.load().configured.get(plugin).cloned()
    }

    /// The plugin that the configuration says comes from there, and what its SHA-256 must be.
    pub fn configured_from(&self, source: &Source) -> Option<(String, Option<Digest>)> {
        let rules = self.rules.load();
        let found = rules.configured.iter().find(|(_, (configured, _))| configured == source);
        found.map(|(name, (_, pinned))| (name.clone(), *pinned))
    }
}

/// The component of a plugin that the configuration or a flag names.
#[derive(Clone, Debug)]
pub struct Configured {
    pub intake: Arc<ComponentFetcher>,
    pub source: Source,
    pub sha256: Option<Digest>,
    pub name: Option<String>,
}

#[async_trait]
impl ComponentSource for Configured {
    fn label(&self) -> String {
        self.source.to_string()
    }

    fn is_local(&self) -> bool {
        matches!(self.source, Source::File(_))
    }

    async fn fetch(&self) -> Result<Candidate, LoadError> {
        let taken = self.intake.take(&self.source, self.sha256).await;
        let verified = taken.map_err(|error| LoadError {
            plugin: self.label(),
            problems: vec![error.to_string()],
            passing: error.is_passing(),
        })?;
        Ok(verified.candidate(self.name.clone()))
    }
}
