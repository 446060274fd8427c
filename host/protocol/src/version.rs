//! The revisions that are spoken: the legacy ones with what came with each, and the modern one.
//!
//! Must not know what a session settled beside its revision. Invariant: revisions are ordered by their dates, so that
//! what came with one is there in all later ones unless it says otherwise.

/// The revision of the modern era.
pub(crate) const MODERN: &str = "2026-07-28";

/// The revisions that are spoken, newest first.
pub const VERSIONS: [&str; 4] = [MODERN, Version::V2025_11_25.name(), Version::V2025_06_18.name(), BATCH_VERSION];

/// The one revision that has batches.
pub const BATCH_VERSION: &str = Version::V2025_03_26.name();

/// Whether a name of a version is this revision's or a later one's. Names of versions are dates.
pub fn is_modern_version(name: &str) -> bool {
    let name = name.trim();
    name.len() == MODERN.len() && name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') && name >= MODERN
}

/// A negotiated revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
}

impl Version {
    pub(crate) const ALL: [Self; 3] = [Self::V2025_11_25, Self::V2025_06_18, Self::V2025_03_26];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.name() == name)
    }

    /// Tasks, icons and URL elicitation came with 2025-11-25.
    pub(crate) fn has_tasks(self) -> bool {
        self >= Self::V2025_11_25
    }

    /// Elicitation, structured output, links to resources and titles came with 2025-06-18.
    pub(crate) fn has_structured_output(self) -> bool {
        self >= Self::V2025_06_18
    }

    /// Batches came with 2025-03-26, and went with the next revision.
    pub(crate) fn has_batches(self) -> bool {
        self == Self::V2025_03_26
    }
}
