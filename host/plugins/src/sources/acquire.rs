//! From a source to a candidate: fetched, and trusted.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use async_trait::async_trait;

use super::{Digest, Error, FetchOptions, Refusal, Source, Trust, Verified, fetch, real_path};
use crate::{Candidate, ComponentSource, Signer, VersionView};
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
    configured: HashMap<String, ConfiguredSource>,
}

/// Where a component is, or the components that it is composed of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredSource {
    pub source: Source,
    /// What is composed with it, in this order. Empty: nothing.
    pub compose: Vec<Source>,
    /// What its SHA-256 must be: of one that is composed, the whole's.
    pub sha256: Option<Digest>,
}

/// Components of watched folders that are parts of configured plugins. Paths are as they are written, or
/// [`Self::resolved`].
#[derive(Clone, Debug, Default)]
pub(super) struct ComposedFiles {
    /// By the first component of each.
    pub(super) parts: HashMap<PathBuf, Vec<PathBuf>>,
    /// Those that are no plugins of their own.
    pub(super) only_parts: HashSet<PathBuf>,
}

impl Rules {
    async fn take(&self, source: &Source, pinned: Option<Digest>, fetching: &FetchOptions) -> Result<Verified, Error> {
        let fetched = fetch(source, fetching, self.trust.requires_signature(source)).await?;
        Ok(self.trust.verify(source, pinned, fetched)?)
    }
}

impl ComposedFiles {
    /// The same with the paths behind all links. It asks the file system.
    pub(super) fn resolved(&self) -> Self {
        let real = |path: &PathBuf| real_path(path);
        Self {
            parts: self.parts.iter().map(|(first, parts)| (real(first), parts.clone())).collect(),
            only_parts: self.only_parts.iter().map(real).collect(),
        }
    }
}

impl ConfiguredSource {
    /// A component as it is.
    pub fn single(source: Source, sha256: Option<Digest>) -> Self {
        Self { source, compose: Vec::new(), sha256 }
    }

    /// Every component of it.
    fn all(&self) -> impl Iterator<Item = &Source> {
        std::iter::once(&self.source).chain(&self.compose)
    }
}

impl ComponentFetcher {
    pub fn new(trust: Trust, fetching: FetchOptions, configured: HashMap<String, ConfiguredSource>) -> Self {
        Self { rules: ArcSwap::from_pointee(Rules { trust, fetching, configured }) }
    }

    /// Applies the rules of another one from now on.
    pub fn replace(&self, with: &Self) {
        self.rules.store(with.rules.load_full());
    }

    /// Says of each version who the keys are that have signed it, by the rules as they are now.
    pub fn name_signers(&self, versions: &mut [VersionView]) {
        let rules = self.rules.load();
        for version in versions {
            version.signers = rules.trust.signers(&version.signed_by);
        }
    }

    /// Who the keys are that have signed what was taken.
    pub fn signers(&self, verified: &Verified) -> Vec<Signer> {
        self.rules.load().trust.signers(verified.signed_by())
    }

    /// Fetches a component and makes sure that it may be taken. `pinned` is what its SHA-256 must be.
    ///
    /// # Errors
    /// It cannot be had, or nothing vouches for it.
    pub async fn take(&self, source: &Source, pinned: Option<Digest>) -> Result<Verified, Error> {
        let rules = self.rules.load_full();
        rules.take(source, pinned, &rules.fetching).await
    }

    /// The same of everything that a plugin is composed of; then `sha256` is that of the whole. Each component passes
    /// the rule for its own source.
    ///
    /// # Errors
    /// As [`Self::take`], or the components do not fit together.
    pub async fn take_whole(&self, wanted: &ConfiguredSource) -> Result<Verified, Error> {
        if wanted.compose.is_empty() {
            return self.take(&wanted.source, wanted.sha256).await;
        }
        let rules = self.rules.load_full();
        let mut parts = Vec::new();
        let mut fetching = rules.fetching.clone();
        for source in wanted.all() {
            let part = rules.take(source, None, &fetching).await?;
            // Together they are as large as one may be: what follows is not even fetched.
            fetching.component_bytes_max = fetching.component_bytes_max.saturating_sub(part.size());
            parts.push(part);
        }
        let composed = tokio::task::spawn_blocking(|| Verified::composed(parts)).await;
        let whole = composed.unwrap_or_else(|_| {
            let what = wanted.source.to_string();
            let problem = "the host panicked while composing it".to_owned();
            Err(Error::NotComposed { what, problem })
        })?;
        match wanted.sha256.filter(|pinned| *pinned != whole.sha256()) {
            None => Ok(whole),
            Some(pinned) => Err(Error::Untrusted(Refusal {
                source_name: wanted.source.to_string(),
                expected: format!("sha256 {pinned}"),
                found: format!("sha256 {} of what it is composed to", whole.sha256()),
            })),
        }
    }

    /// Where the configuration says that a plugin is.
    pub fn configured(&self, plugin: &str) -> Option<ConfiguredSource> {
        self.rules.load().configured.get(plugin).cloned()
    }

    /// The plugin that the configuration says comes from there, whatever way leads to a file.
    pub async fn configured_from(&self, source: &Source) -> Option<(String, ConfiguredSource)> {
        let rules = self.rules.load_full();
        let source = source.clone();
        let found = move || {
            let of_it = rules.configured.iter().filter(|(_, configured)| configured.source.is_same(&source));
            // Of several plugins of one file always the same.
            let found = of_it.min_by_key(|(name, _)| *name);
            found.map(|(name, configured)| (name.clone(), configured.clone()))
        };
        tokio::task::spawn_blocking(found).await.ok().flatten()
    }

    /// The files that configured plugins are composed of.
    pub(super) fn composed_files(&self) -> ComposedFiles {
        let rules = self.rules.load();
        let mut files = ComposedFiles::default();
        for configured in rules.configured.values().filter(|configured| !configured.compose.is_empty()) {
            let paths = configured.compose.iter().filter_map(Source::path).map(Path::to_owned);
            let paths: Vec<_> = paths.collect();
            files.only_parts.extend(paths.iter().cloned());
            if let Some(first) = configured.source.path() {
                files.parts.insert(first.to_owned(), paths);
            }
        }
        for first in rules.configured.values().filter_map(|configured| configured.source.path()) {
            files.only_parts.remove(first);
        }
        files
    }
}

/// The component of a plugin that the configuration or a flag names.
#[derive(Clone, Debug)]
pub struct Configured {
    pub intake: Arc<ComponentFetcher>,
    pub from: ConfiguredSource,
    pub name: Option<String>,
}

#[async_trait]
impl ComponentSource for Configured {
    fn label(&self) -> String {
        self.from.source.to_string()
    }

    fn is_local(&self) -> bool {
        self.from.all().all(|source| source.path().is_some())
    }

    async fn fetch(&self) -> Result<Candidate, LoadError> {
        let taken = self.intake.take_whole(&self.from).await;
        let verified = taken.map_err(|error| LoadError {
            plugin: self.label(),
            problems: vec![error.to_string()],
            passing: error.is_passing(),
        })?;
        Ok(verified.candidate(self.name.clone()))
    }
}
