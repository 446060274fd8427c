//! Skills (SEP-2640): instructions for an agent, which a component carries together with the files that they name.
//!
//! Owns what a skill may be called and how much of it a component may carry, for the build that puts it in and for the
//! host that reads it. Must not know how it is carried. Invariant: a name and a path that pass stand in a URI as they
//! are.

use super::Json;

/// The custom section of a component that holds its skills.
pub const SECTION: &str = "bulkhead:skills";
/// What URIs of skills begin with.
pub const SKILL_SCHEME: &str = "skill://";
/// The file of each skill with the instructions, which begins with its frontmatter.
pub const INSTRUCTIONS: &str = "SKILL.md";

/// Skills of one plugin. Every client reads the list of them all.
pub const SKILLS_MAX: usize = 64;
/// Files of one skill: what SEP-2640 has every client take.
pub const SKILL_FILES_MAX: usize = 512;
/// Bytes of one file of a skill.
pub const SKILL_FILE_BYTES_MAX: usize = 1 << 20;
/// Bytes of all files of a plugin's skills, which the host holds while it has a version of the plugin.
pub const SKILLS_BYTES_MAX: usize = 4 << 20;
/// Bytes of a skill's frontmatter as JSON.
pub const FRONTMATTER_BYTES_MAX: usize = 16 << 10;
/// Bytes of the path of a skill's file, from the skill's folder.
pub const SKILL_PATH_BYTES_MAX: usize = 256;
/// Characters of a skill's name, as the specification of Agent Skills has it.
const NAME_CHARS_MAX: usize = 64;
/// Characters of its description, likewise.
const DESCRIPTION_CHARS_MAX: usize = 1024;

/// A skill as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// Of its instructions.
    pub uri: String,
    /// What the instructions say of themselves: a JSON object.
    pub frontmatter: Json,
    /// All of its files, the instructions among them.
    pub files: Vec<SkillFile>,
}

/// A file of a skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillFile {
    pub uri: String,
    pub sha256: [u8; 32],
    pub bytes: u64,
}

/// Checks a name: that of the skill's folder, too.
///
/// # Errors
///
/// What is wrong with it.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_separated = !name.starts_with('-') && !name.ends_with('-') && !name.contains("--");
    match (1..=NAME_CHARS_MAX).contains(&name.len()) && name.bytes().all(is_plain) && is_separated {
        true => Ok(()),
        false => Err(format!(
            "its name {name:?} is not 1 to {NAME_CHARS_MAX} lower-case letters, digits and single dashes between them"
        )),
    }
}

/// Checks a description.
///
/// # Errors
///
/// What is wrong with it.
pub fn check_description(description: &str) -> Result<(), String> {
    let characters = description.chars().count();
    match description.trim().is_empty() || characters > DESCRIPTION_CHARS_MAX {
        true => Err(format!("its description has {characters} characters; expected 1 to {DESCRIPTION_CHARS_MAX}")),
        false => Ok(()),
    }
}

/// Checks the path of a file, from the skill's folder.
///
/// # Errors
///
/// What is wrong with it.
pub fn check_path(path: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let is_segment = |segment: &str| !["", ".", ".."].contains(&segment) && segment.bytes().all(is_plain);
    match path.len() <= SKILL_PATH_BYTES_MAX && path.split('/').all(is_segment) {
        true => Ok(()),
        false => Err(format!(
            "the path {path:?} of a file is not up to {SKILL_PATH_BYTES_MAX} bytes of names of letters, digits and -._~ with / between \
             them"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_agent_skills() {
        let long = "a".repeat(64);
        for (name, passes) in [
            ("review", true),
            ("git-workflow-2", true),
            (&long, true),
            ("", false),
            ("Review", false),
            ("-review", false),
            ("review-", false),
            ("re--view", false),
            ("re view", false),
            ("a/b", false),
            (&format!("{long}a"), false),
        ] {
            assert_eq!(check_name(name).is_ok(), passes, "{name:?}");
        }
    }

    #[test]
    fn paths_stay_in_their_skill_and_in_a_uri() {
        let long = "a".repeat(SKILL_PATH_BYTES_MAX + 1);
        for (path, passes) in [
            ("SKILL.md", true),
            ("references/FORMS_2~.md", true),
            ("", false),
            ("/etc/passwd", false),
            ("a//b", false),
            ("../x", false),
            ("a/./b", false),
            ("a b", false),
            ("a?b", false),
            ("a%2Fb", false),
            ("ä", false),
            (&long, false),
        ] {
            assert_eq!(check_path(path).is_ok(), passes, "{path:?}");
        }
    }

    #[test]
    fn descriptions_say_something_and_end() {
        for (description, passes) in
            [("Reviews.", true), ("", false), (" \n", false), (&"ü".repeat(1024), true), (&"ü".repeat(1025), false)]
        {
            assert_eq!(check_description(description).is_ok(), passes);
        }
    }
}
