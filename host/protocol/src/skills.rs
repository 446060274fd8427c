//! Skills (SEP-2640): instructions for agents that plugins carry.
//!
//! Owns who is told of them, and what `skills/list` and `skills/get` answer in both eras. Must not read a skill:
//! `resources/read` does. Invariant: an entry is whole wherever it stands; what a requestor may not see is answered
//! like what is not there.

use std::sync::Arc;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::cursor::PAGE;
use super::error::RpcError;
use super::request_context::RequestContext;
use super::server_features::{self, Page};
use super::unknown;
use super::wire::{Body, Raw};
use bulkhead_calls::{Catalog, SkillEntry};
use bulkhead_domain::hex;
use bulkhead_domain::skills::{Skill, SkillFile};

/// The extension by which a server says that it has skills.
pub(crate) const SKILLS_EXTENSION: &str = "io.modelcontextprotocol/skills";

/// Bytes of what an entry says of each file beside its URI, nearly.
const FILE_BYTES: usize = 120;

/// Whether any plugin carries a skill.
pub(crate) fn any_skill(catalog: &Catalog) -> bool {
    !catalog.skills().is_empty()
}

impl RequestContext {
    /// `skills/list`.
    pub(crate) fn skills(&self, params: Option<&str>) -> Result<Page<&Skill>, RpcError> {
        let skills = self.catalog.skills().iter().map(|entry| &entry.skill);
        self.page("skills/list", params, PAGE, skills, |skill| &skill.uri, entry_bytes)
    }

    /// `skills/get`.
    pub(crate) fn skill(&self, params: Option<&str>) -> Result<&Arc<SkillEntry>, RpcError> {
        let uri = server_features::uri(params)?;
        let known = || self.catalog.skills().iter().map(|entry| entry.skill.uri.as_str());
        self.catalog.skill(&uri).ok_or_else(|| unknown::refusal("skill", &uri, known()))
    }
}

/// Bytes of what a client is told of a skill, nearly.
fn entry_bytes(skill: &Skill) -> usize {
    let files: usize = skill.files.iter().map(|file| file.uri.len() + FILE_BYTES).sum();
    skill.uri.len() + skill.frontmatter.as_str().len() + files
}

/// A skill in a list.
pub(crate) struct SkillView<'a>(pub(crate) &'a Skill);

impl Serialize for SkillView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Skill { uri, frontmatter, files } = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("uri", uri)?;
        map.serialize_entry("frontmatter", &Raw(frontmatter))?;
        map.serialize_entry("resources", &files.iter().map(FileView::from).collect::<Vec<_>>())?;
        map.end()
    }
}

#[derive(Serialize)]
struct FileView<'a> {
    uri: &'a str,
    digest: String,
    size: u64,
}

impl<'a> From<&'a SkillFile> for FileView<'a> {
    fn from(file: &'a SkillFile) -> Self {
        Self { uri: &file.uri, digest: format!("sha256:{}", hex(&file.sha256)), size: file.bytes }
    }
}

/// The entry of one skill.
pub(crate) struct SkillBody<'a>(pub(crate) &'a Skill);

impl Body for SkillBody<'_> {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        map.serialize_entry("skill", &SkillView(self.0))
    }
}
