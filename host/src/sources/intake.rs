//! From a source to a candidate: fetched, and trusted.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::{Digest, Error, Fetching, Source, Trust, Verified, fetch};
use crate::plugins::{Candidate, Supply};
use crate::runtime::LoadError;

/// What every component goes through, whoever asks for it.
#[derive(Clone, Debug)]
pub struct Intake {
    trust: Trust,
    fetching: Fetching,
    /// By the plugin's name: where the configuration says that its component is.
    configured: HashMap<String, (Source, Option<Digest>)>,
}

impl Intake {
    pub fn new(trust: Trust, fetching: Fetching, configured: HashMap<String, (Source, Option<Digest>)>) -> Self {
        Self { trust, fetching, configured }
    }

    /// Fetches a component and makes sure that it may be taken. `pinned` is what its SHA-256 must be.
    ///
    /// # Errors
    /// It cannot be had, or nothing vouches for it.
    pub async fn take(&self, source: &Source, pinned: Option<Digest>) -> Result<Verified, Error> {
        let fetched = fetch(source, &self.fetching, self.trust.wants_signature(source)).await?;
        Ok(self.trust.verify(source, pinned, fetched)?)
    }

    /// Where the configuration says that a plugin is, and what its SHA-256 must be.
    pub fn configured(&self, plugin: &str) -> Option<&(Source, Option<Digest>)> {
        self.configured.get(plugin)
    }

    /// The plugin that the configuration says comes from there, and what its SHA-256 must be.
    pub fn configured_from(&self, source: &Source) -> Option<(&str, Option<Digest>)> {
        let found = self.configured.iter().find(|(_, (configured, _))| configured == source);
        found.map(|(name, (_, pinned))| (name.as_str(), *pinned))
    }
}

/// The component of a plugin that the configuration or a flag names.
#[derive(Clone, Debug)]
pub struct Configured {
    pub intake: Arc<Intake>,
    pub source: Source,
    pub sha256: Option<Digest>,
    pub name: Option<String>,
}

#[async_trait]
impl Supply for Configured {
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
