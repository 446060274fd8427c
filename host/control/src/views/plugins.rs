//! Answers about plugins and their versions.

use serde::{Deserialize, Serialize};

use bulkhead_plugins::{Changes, Digest, PluginView, Stage, Staged, SwitchResult, VersionView};

/// All plugins.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PluginListView {
    pub plugins: Vec<PluginView>,
}

/// The versions of one plugin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PluginVersionsView {
    pub name: String,
    pub versions: Vec<VersionView>,
}

/// What came of a command, unless the components themselves stand against it: that is an answer, not a failure.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PluginOutcome<T> {
    Refused(RefusedView),
    Result(T),
}

impl<T: PluginResult> PluginOutcome<T> {
    /// Whether anything has changed. Else the answer says why not.
    pub fn is_done(&self) -> bool {
        match self {
            Self::Refused(refused) => refused.done,
            Self::Result(result) => result.is_done(),
        }
    }
}

/// What a command about plugins did.
pub trait PluginResult {
    /// Whether it was done, or waits for the operator's word.
    fn is_done(&self) -> bool;
}

/// Components that cannot be plugins here.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RefusedView {
    pub done: bool,
    pub refused: Vec<RefusedPlugin>,
}

/// One of them, with everything that is wrong with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RefusedPlugin {
    pub plugin: String,
    pub problems: Vec<String>,
}

/// A version that can be switched to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StagedView {
    pub done: bool,
    pub name: String,
    pub version: Digest,
    pub state: Stage,
    pub tools: usize,
    /// Against the active version; none: there is none.
    pub changes: Option<Changes>,
    /// What of it needs the operator's word, one sentence each.
    pub held: Vec<String>,
}

impl From<Staged> for StagedView {
    fn from(staged: Staged) -> Self {
        let Staged { version, stage, tools, changes, held } = staged;
        Self { done: true, name: version.name, version: Digest(version.digest), state: stage, tools, changes, held }
    }
}

impl PluginResult for StagedView {
    fn is_done(&self) -> bool {
        self.done
    }
}

impl PluginResult for SwitchResult {
    fn is_done(&self) -> bool {
        self.done
    }
}

/// What was at a plugin's source, and whether it was switched to.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PluginUpdateView {
    Staged(StagedView),
    Switched(SwitchResult),
}

impl PluginResult for PluginUpdateView {
    fn is_done(&self) -> bool {
        match self {
            Self::Staged(staged) => staged.is_done(),
            Self::Switched(switched) => switched.is_done(),
        }
    }
}

/// A version that is gone, or a plugin that is out of service.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PluginRemoveView {
    Version(VersionRemovedView),
    Plugin(SwitchResult),
}

/// A version that is gone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VersionRemovedView {
    pub done: bool,
    pub name: String,
    pub removed: Digest,
}

impl PluginResult for PluginRemoveView {
    fn is_done(&self) -> bool {
        match self {
            Self::Version(removed) => removed.done,
            Self::Plugin(switched) => switched.is_done(),
        }
    }
}
