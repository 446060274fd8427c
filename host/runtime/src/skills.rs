//! Skills (SEP-2640) that a component carries: instructions for agents, with the files that they name.
//!
//! Owns the section that holds them, what a component may carry of them, and what clients read of them, which the host
//! answers without a guest. Must not read YAML: a frontmatter is what the build made of it, and clients compare it with
//! the instructions. Invariants: every file has a URI below its plugin's name, so that two plugins never have the same;
//! what is read is what was listed with its digest.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use wasmparser::{Parser, Payload};

use bulkhead_calls::{CatalogPlugin, Operation, SkillEntry};
use bulkhead_domain::Json;
use bulkhead_domain::server_features::{Described, Resource};
use bulkhead_domain::skills::{
    FRONTMATTER_BYTES_MAX, INSTRUCTIONS, SECTION, SKILL_FILE_BYTES_MAX, SKILL_FILES_MAX, SKILL_SCHEME,
    SKILLS_BYTES_MAX, SKILLS_MAX, Skill, SkillFile, check_description, check_name, check_path,
};
use bulkhead_domain::text::escaped;
use bulkhead_domain::tool::{ResourceBody, ResourceContents};

/// Bytes of the index in front of the files, whatever it says.
const INDEX_BYTES_MAX: usize = SKILLS_MAX * FRONTMATTER_BYTES_MAX * 4;
const CUT_OFF: &str = "it is cut off";

/// What an operator accepts of a skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillSummary {
    /// SHA-256 over its frontmatter, and the path and the contents of each file.
    pub digest: [u8; 32],
    pub files: usize,
    /// Of all files.
    pub bytes: usize,
}

/// The index in front of the files, as the build writes it.
#[derive(Deserialize)]
struct Index {
    skills: Vec<SkillIndex>,
}

#[derive(Deserialize)]
struct SkillIndex {
    frontmatter: Map<String, Value>,
    files: Vec<FileIndex>,
}

#[derive(Deserialize)]
struct FileIndex {
    path: String,
    bytes: usize,
}

/// The skills of one component, by name.
#[derive(Debug, Default)]
pub(super) struct Skills {
    by_name: BTreeMap<String, CarriedSkill>,
    summaries: BTreeMap<String, SkillSummary>,
    bytes: usize,
}

#[derive(Debug)]
struct CarriedSkill {
    frontmatter: Json,
    description: String,
    /// By path.
    files: BTreeMap<String, CarriedFile>,
}

#[derive(Debug)]
struct CarriedFile {
    sha256: [u8; 32],
    contents: Arc<[u8]>,
}

/// Finds the skills, in the component or in anything inside it.
///
/// # Errors
///
/// They are not what a build writes, or more than a component may carry.
pub(super) fn read(component: &[u8]) -> Result<Skills, String> {
    let mut skills = Skills::default();
    for payload in Parser::new(0).parse_all(component) {
        // What is wrong with the component itself is said elsewhere.
        let Ok(payload) = payload else { break };
        if let Payload::CustomSection(section) = payload
            && section.name() == SECTION
        {
            skills
                .take(section.data())
                .map_err(|wrong| escaped(&format!("its skills (section {SECTION}): {wrong}")))?;
        }
    }
    Ok(skills)
}

impl Skills {
    /// Takes a section: the length of its index in four bytes, the least significant first, the index, and the files
    /// one behind the other.
    fn take(&mut self, section: &[u8]) -> Result<(), String> {
        let (length, rest) = section.split_first_chunk::<4>().ok_or(CUT_OFF)?;
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        if length > INDEX_BYTES_MAX {
            return Err(format!("its index has {length} bytes; {INDEX_BYTES_MAX} is the most"));
        }
        let (index, mut contents) = rest.split_at_checked(length).ok_or(CUT_OFF)?;
        let Index { skills } =
            serde_json::from_slice(index).map_err(|error| format!("its index is not that of a build: {error}"))?;
        for skill in skills {
            let name = text(&skill.frontmatter, "name")?.to_owned();
            check_name(&name)?;
            self.add(&name, skill, &mut contents).map_err(|wrong| format!("{name}: {wrong}"))?;
        }
        if contents.is_empty() { Ok(()) } else { Err("there are bytes that belong to no file".to_owned()) }
    }

    fn add(&mut self, name: &str, skill: SkillIndex, contents: &mut &[u8]) -> Result<(), String> {
        let SkillIndex { frontmatter, files } = skill;
        if self.by_name.len() >= SKILLS_MAX {
            return Err(format!("a plugin has {SKILLS_MAX} skills at most"));
        }
        if files.len() > SKILL_FILES_MAX {
            return Err(format!("it has {} files; {SKILL_FILES_MAX} is the most", files.len()));
        }
        let description = text(&frontmatter, "description")?.to_owned();
        check_description(&description)?;
        let frontmatter = Value::Object(frontmatter).to_string();
        if frontmatter.len() > FRONTMATTER_BYTES_MAX {
            return Err(format!(
                "its frontmatter has {} bytes; {FRONTMATTER_BYTES_MAX} is the most",
                frontmatter.len()
            ));
        }
        let mut carried = CarriedSkill { frontmatter: Json::new(frontmatter), description, files: BTreeMap::new() };
        for FileIndex { path, bytes } in files {
            check_path(&path)?;
            if bytes > SKILL_FILE_BYTES_MAX {
                return Err(format!("{path} has {bytes} bytes; {SKILL_FILE_BYTES_MAX} is the most"));
            }
            let (file, rest) = contents.split_at_checked(bytes).ok_or(CUT_OFF)?;
            *contents = rest;
            self.bytes += bytes;
            let file = CarriedFile { sha256: Sha256::digest(file).into(), contents: file.into() };
            if carried.files.insert(path, file).is_some() {
                return Err("two of its files have the same path".to_owned());
            }
        }
        if self.bytes > SKILLS_BYTES_MAX {
            return Err(format!("the skills of a plugin have {SKILLS_BYTES_MAX} bytes at most"));
        }
        let begins = carried.files.get(INSTRUCTIONS).ok_or_else(|| format!("it has no {INSTRUCTIONS}"))?;
        if !begins.contents.starts_with(b"---") || std::str::from_utf8(&begins.contents).is_err() {
            return Err(format!("{INSTRUCTIONS} is no text that begins with a frontmatter"));
        }
        self.summaries.insert(name.to_owned(), carried.summary());
        match self.by_name.insert(name.to_owned(), carried) {
            None => Ok(()),
            Some(_) => Err("there are two of this name".to_owned()),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// What an operator accepts, by name.
    pub(super) fn summaries(&self) -> &BTreeMap<String, SkillSummary> {
        &self.summaries
    }

    /// As clients see them.
    pub(super) fn entries(&self, library: &Arc<CatalogPlugin>) -> Vec<Arc<SkillEntry>> {
        let plugin = &library.plugin.name;
        let entries = self.by_name.iter().map(|(name, carried)| {
            let files = carried.files.iter().map(|(path, file)| SkillFile {
                uri: uri(plugin, name, path),
                sha256: file.sha256,
                bytes: file.contents.len() as u64,
            });
            let skill = Skill {
                uri: uri(plugin, name, INSTRUCTIONS),
                frontmatter: carried.frontmatter.clone(),
                files: files.collect(),
            };
            Arc::new(SkillEntry { skill, library: Arc::clone(library) })
        });
        entries.collect()
    }

    /// The instructions as resources: their other files are found through them.
    pub(super) fn resources(&self, plugin: &str) -> Vec<Resource> {
        let listed = self.by_name.iter().map(|(name, carried)| Resource {
            uri: uri(plugin, name, INSTRUCTIONS),
            described: Described { name: name.clone(), title: None, description: Some(carried.description.clone()) },
            mime_type: Some(mime_type(INSTRUCTIONS, true).to_owned()),
            size: carried.files.get(INSTRUCTIONS).map(|file| file.contents.len() as u64),
            annotations: None,
            icons: Vec::new(),
            meta: Vec::new(),
        });
        listed.collect()
    }

    /// The file that an operation reads, if it is one of a skill.
    pub(super) fn contents(&self, plugin: &str, operation: &Operation) -> Option<ResourceContents> {
        let Operation::ReadResource { uri } = operation else { return None };
        let path = uri.strip_prefix(SKILL_SCHEME)?.strip_prefix(plugin)?.strip_prefix('/')?;
        let (name, path) = path.split_once('/')?;
        let contents = &self.by_name.get(name)?.files.get(path)?.contents;
        let text = std::str::from_utf8(contents).ok();
        Some(ResourceContents {
            uri: uri.clone(),
            mime_type: Some(mime_type(path, text.is_some()).to_owned()),
            body: text
                .map_or_else(|| ResourceBody::Blob(contents.to_vec()), |text| ResourceBody::Text(text.to_owned())),
            meta: Vec::new(),
        })
    }
}

impl CarriedSkill {
    fn summary(&self) -> SkillSummary {
        let mut hash = Sha256::new();
        let mut add = |part: &[u8]| {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        };
        add(self.frontmatter.as_str().as_bytes());
        for (path, file) in &self.files {
            add(path.as_bytes());
            add(&file.sha256);
        }
        let bytes = self.files.values().map(|file| file.contents.len()).sum();
        SkillSummary { digest: hash.finalize().into(), files: self.files.len(), bytes }
    }
}

/// A member of a frontmatter that every skill has.
fn text<'a>(frontmatter: &'a Map<String, Value>, member: &str) -> Result<&'a str, String> {
    let value = frontmatter.get(member).and_then(Value::as_str);
    value.ok_or_else(|| format!("the frontmatter of a skill has no text `{member}`"))
}

fn uri(plugin: &str, name: &str, path: &str) -> String {
    format!("{SKILL_SCHEME}{plugin}/{name}/{path}")
}

/// The media type by the ending of a file's name.
fn mime_type(path: &str, is_text: bool) -> &'static str {
    let ending = path.rsplit_once('.').map(|(_, ending)| ending).unwrap_or_default();
    match (ending, is_text) {
        ("md", true) => "text/markdown",
        ("json", true) => "application/json",
        ("yaml" | "yml", true) => "application/yaml",
        ("csv", true) => "text/csv",
        ("html", true) => "text/html",
        ("py", true) => "text/x-python",
        ("js" | "mjs", true) => "text/javascript",
        ("svg", true) => "image/svg+xml",
        (_, true) => "text/plain",
        ("png", false) => "image/png",
        ("jpg" | "jpeg", false) => "image/jpeg",
        ("pdf", false) => "application/pdf",
        (_, false) => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_domain::hex;
    use serde_json::json;

    const REVIEW: &str = "---\nname: review\ndescription: Reviews.\n---\nRead references/style.md.\n";

    /// Files by path.
    type Files<'a> = &'a [(&'a str, &'a [u8])];

    /// A section as a build writes it.
    fn section(skills: &[(Value, Files<'_>)]) -> Vec<u8> {
        let index = |(frontmatter, files): &(Value, Files<'_>)| {
            let files: Vec<_> =
                files.iter().map(|(path, contents)| json!({"path": path, "bytes": contents.len()})).collect();
            json!({"frontmatter": frontmatter, "files": files})
        };
        let index = json!({"skills": skills.iter().map(index).collect::<Vec<_>>()}).to_string();
        let mut section = u32::try_from(index.len()).unwrap().to_le_bytes().to_vec();
        section.extend_from_slice(index.as_bytes());
        skills.iter().flat_map(|(_, files)| *files).for_each(|(_, contents)| section.extend_from_slice(contents));
        section
    }

    fn frontmatter(name: &str) -> Value {
        json!({"name": name, "description": "Reviews.", "metadata": {"version": "1"}})
    }

    fn taken(sections: &[Vec<u8>]) -> Result<Skills, String> {
        let mut skills = Skills::default();
        sections.iter().try_for_each(|section| skills.take(section))?;
        Ok(skills)
    }

    fn review() -> Skills {
        let files = [("SKILL.md", REVIEW.as_bytes()), ("assets/a.png", &[0xff, 0][..]), ("style.md", b"Short.")];
        taken(&[section(&[(frontmatter("review"), &files)])]).unwrap()
    }

    #[test]
    fn files_are_read_as_they_are_listed() {
        let skills = review();
        let read = |uri: &str| skills.contents("house", &Operation::ReadResource { uri: uri.to_owned() });
        let listed = skills.resources("house");
        assert_eq!(
            (listed[0].uri.as_str(), listed[0].size),
            ("skill://house/review/SKILL.md", Some(REVIEW.len() as u64))
        );
        for (path, mime_type, contents) in [
            ("SKILL.md", "text/markdown", REVIEW.as_bytes()),
            ("style.md", "text/markdown", b"Short."),
            ("assets/a.png", "image/png", &[0xff, 0]),
        ] {
            let found = read(&format!("skill://house/review/{path}")).unwrap();
            assert_eq!(found.mime_type.as_deref(), Some(mime_type));
            let bytes = match found.body {
                ResourceBody::Text(text) => text.into_bytes(),
                ResourceBody::Blob(bytes) => bytes,
            };
            assert_eq!(bytes, contents);
            let carried = &skills.by_name["review"].files[path];
            assert_eq!(hex(&carried.sha256), hex(&Sha256::digest(contents)));
        }
        for absent in [
            "skill://house/review",
            "skill://house/review/",
            "skill://house/other/SKILL.md",
            "skill://ho/review/SKILL.md",
            "skill://housereview/SKILL.md",
            "house/review/SKILL.md",
        ] {
            assert_eq!(read(absent), None, "{absent}");
        }
    }

    #[test]
    fn every_change_of_a_skill_is_another_digest() {
        let of = |frontmatter: Value, files: Files<'_>| {
            taken(&[section(&[(frontmatter, files)])]).unwrap().summaries["review"].digest
        };
        let files = [("SKILL.md", REVIEW.as_bytes()), ("a.md", b"A")];
        let digests = [
            of(frontmatter("review"), &files),
            of(json!({"name": "review", "description": "Reviews."}), &files),
            of(frontmatter("review"), &files[..1]),
            of(frontmatter("review"), &[files[0], ("b.md", b"A")]),
            of(frontmatter("review"), &[files[0], ("a.md", b"B")]),
        ];
        let different: std::collections::BTreeSet<_> = digests.iter().collect();
        assert_eq!(different.len(), digests.len());
        assert_eq!(of(frontmatter("review"), &[files[1], files[0]]), digests[0], "their order says nothing");
    }

    #[test]
    fn what_no_build_writes_is_refused() {
        let with = |frontmatter: Value, files: Files<'_>| taken(&[section(&[(frontmatter, files)])]).unwrap_err();
        let instructions: (&str, &[u8]) = ("SKILL.md", REVIEW.as_bytes());
        let large = vec![b'x'; SKILL_FILE_BYTES_MAX + 1];
        let long = "x".repeat(FRONTMATTER_BYTES_MAX);
        for (wrong, why) in [
            (with(frontmatter("Review"), &[instructions]), "lower-case"),
            (with(json!({"description": "x"}), &[instructions]), "no text `name`"),
            (with(json!({"name": "review"}), &[instructions]), "no text `description`"),
            (with(json!({"name": "review", "description": ""}), &[instructions]), "0 characters"),
            (with(json!({"name": "review", "description": "x", "more": long}), &[instructions]), "frontmatter has"),
            (with(frontmatter("review"), &[("a.md", b"A")]), "no SKILL.md"),
            (with(frontmatter("review"), &[("SKILL.md", b"Review.")]), "begins with a frontmatter"),
            (with(frontmatter("review"), &[instructions, ("../a", b"A")]), "the path"),
            (with(frontmatter("review"), &[instructions, ("a", b"A"), ("a", b"B")]), "same path"),
            (with(frontmatter("review"), &[instructions, ("a", &large)]), "is the most"),
        ] {
            assert!(wrong.contains(why), "{wrong}");
        }
        let one = section(&[(frontmatter("review"), &[instructions])]);
        for (sections, why) in [
            (vec![one.clone(), one.clone()], "two of this name"),
            (vec![one[..one.len() - 1].to_vec()], CUT_OFF),
            (vec![[&one[..], b"x"].concat()], "belong to no file"),
            (vec![vec![1, 0]], CUT_OFF),
            (vec![vec![255, 255, 255, 255]], "index has"),
            (vec![vec![2, 0, 0, 0, b'{', b'}']], "not that of a build"),
        ] {
            let wrong = taken(&sections).err().unwrap_or_default();
            assert!(wrong.contains(why), "{wrong}: {why}");
        }
        let many: Vec<_> =
            (0..=SKILLS_MAX).map(|number| section(&[(frontmatter(&format!("s{number}")), &[instructions])])).collect();
        assert!(taken(&many).unwrap_err().contains("64 skills at most"));
        let file = vec![b'x'; SKILL_FILE_BYTES_MAX];
        let files: Vec<_> =
            ["a", "b", "c", "d"].map(|path| (path, &file[..])).into_iter().chain([instructions]).collect();
        assert!(with(frontmatter("review"), &files).contains("bytes at most"));
    }
}
