//! Skills (SEP-2640): the folder `skills/` of a project, which becomes a custom section of its component.
//!
//! Owns how a skill is written: one folder each, with a `SKILL.md` that begins with a frontmatter in YAML. Must not
//! change a file. Invariant: what a host would refuse is refused here, with the file that is wrong.

use std::path::Path;

use saphyr::{LoadableYamlNode as _, ScalarOwned, YamlOwned};
use serde_json::{Map, Number, Value, json};

use bulkhead_domain::skills::{
    FRONTMATTER_BYTES_MAX, INSTRUCTIONS, SECTION, SKILL_FILE_BYTES_MAX, SKILL_FILES_MAX, SKILLS_BYTES_MAX, SKILLS_MAX,
    check_description, check_name, check_path,
};
use bulkhead_domain::without_byte_order_mark;

use crate::{Error, section};

/// Folders inside each other below that of a skill.
const DEPTH_MAX: usize = 16;
/// What stands in a line of its own above and below a frontmatter.
const FENCE: &str = "---";

/// A file of a skill, by its path from the skill's folder.
struct File {
    path: String,
    contents: Vec<u8>,
}

/// The component with the skills of a folder, if it is there.
pub(crate) fn with_skills(mut component: Vec<u8>, folder: &Path) -> Result<Vec<u8>, Error> {
    if !folder.exists() {
        return Ok(component);
    }
    let mut index = Vec::new();
    let mut contents = Vec::new();
    for (name, is_folder) in entries(folder)? {
        let path = folder.join(&name);
        if !is_folder {
            return Err(wrong(&path, format!("it belongs to no skill; expected folders, each with a {INSTRUCTIONS}")));
        }
        let files = files(&path)?;
        index.push(json!({
            "frontmatter": frontmatter(&path, &name, &files)?,
            "files": files.iter().map(|file| json!({"path": file.path, "bytes": file.contents.len()})).collect::<Vec<_>>(),
        }));
        files.iter().for_each(|file| contents.extend_from_slice(&file.contents));
    }
    let bytes = contents.len();
    if index.len() > SKILLS_MAX || bytes > SKILLS_BYTES_MAX {
        let reason = format!(
            "{} skills with {bytes} bytes; a plugin has up to {SKILLS_MAX} of {SKILLS_BYTES_MAX} bytes together",
            index.len()
        );
        return Err(wrong(folder, reason));
    }
    if !index.is_empty() {
        let index = json!({ "skills": index }).to_string();
        let length =
            u32::try_from(index.len()).map_err(|_| wrong(folder, "its frontmatters are too long".to_owned()))?;
        section::append(&mut component, SECTION, &[&length.to_le_bytes(), index.as_bytes(), &contents].concat());
    }
    Ok(component)
}

/// What is in a folder, in order, each with whether it is a folder; without what is hidden.
fn entries(folder: &Path) -> Result<Vec<(String, bool)>, Error> {
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(Error::io(folder))? {
        let entry = entry.map_err(Error::io(folder))?;
        let kind = entry.file_type().map_err(Error::io(&entry.path()))?;
        let name = entry.file_name();
        let name = name.to_str().ok_or_else(|| wrong(&entry.path(), "its name is not UTF-8".to_owned()))?;
        if name.starts_with('.') {
            continue;
        }
        if !kind.is_dir() && !kind.is_file() {
            return Err(wrong(&entry.path(), "it is a link, or no file at all; expected files and folders".to_owned()));
        }
        entries.push((name.to_owned(), kind.is_dir()));
    }
    entries.sort();
    Ok(entries)
}

/// All files of a skill.
fn files(skill: &Path) -> Result<Vec<File>, Error> {
    let mut files = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(inside) = folders.pop() {
        for (name, is_folder) in entries(&skill.join(&inside))? {
            let path = if inside.is_empty() { name } else { format!("{inside}/{name}") };
            let at = skill.join(&path);
            check_path(&path).map_err(|reason| wrong(&at, reason))?;
            if is_folder {
                if path.split('/').count() > DEPTH_MAX {
                    return Err(wrong(&at, format!("{DEPTH_MAX} folders inside each other are the most")));
                }
                folders.push(path);
                continue;
            }
            let contents = std::fs::read(&at).map_err(Error::io(&at))?;
            if contents.len() > SKILL_FILE_BYTES_MAX {
                return Err(wrong(&at, format!("it has {} bytes; {SKILL_FILE_BYTES_MAX} is the most", contents.len())));
            }
            files.push(File { path, contents });
            if files.len() > SKILL_FILES_MAX {
                return Err(wrong(skill, format!("a skill has {SKILL_FILES_MAX} files at most")));
            }
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

/// What the instructions say of themselves.
fn frontmatter(skill: &Path, folder_name: &str, files: &[File]) -> Result<Map<String, Value>, Error> {
    let at = skill.join(INSTRUCTIONS);
    let wrong = |reason: String| wrong(&at, reason);
    let file = files.iter().find(|file| file.path == INSTRUCTIONS);
    let file = file.ok_or_else(|| wrong("it is missing; every skill has one".to_owned()))?;
    let text = std::str::from_utf8(&file.contents).map_err(|_| wrong("it is not UTF-8".to_owned()))?;
    let yaml = fenced(text).ok_or_else(|| {
        wrong(format!("it does not begin with a frontmatter: a line {FENCE}, YAML, and another line {FENCE}"))
    })?;
    let mut documents = YamlOwned::load_from_str(yaml).map_err(|error| wrong(format!("its frontmatter: {error}")))?;
    let value = match (documents.pop(), documents.is_empty()) {
        (Some(document), true) => as_json(document).map_err(|reason| wrong(format!("its frontmatter: {reason}")))?,
        _ => Value::Null,
    };
    let Value::Object(members) = value else {
        return Err(wrong("its frontmatter is no mapping; expected at least `name` and `description`".to_owned()));
    };
    let text = |member: &str| {
        let text = members.get(member).and_then(Value::as_str);
        text.ok_or_else(|| wrong(format!("its frontmatter has no text `{member}`")))
    };
    let name = text("name")?;
    check_name(name).map_err(wrong)?;
    if name != folder_name {
        return Err(wrong(format!("its name is {name:?}, and its folder is {folder_name:?}; expected the same")));
    }
    check_description(text("description")?).map_err(wrong)?;
    let bytes = Value::Object(members.clone()).to_string().len();
    if bytes > FRONTMATTER_BYTES_MAX {
        return Err(wrong(format!("its frontmatter has {bytes} bytes as JSON; {FRONTMATTER_BYTES_MAX} is the most")));
    }
    Ok(members)
}

/// What stands between the fences at the beginning of a text.
fn fenced(text: &str) -> Option<&str> {
    let text = without_byte_order_mark(text);
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().filter(|line| line.trim_end() == FENCE)?;
    let mut end = first.len();
    for line in lines {
        if line.trim_end() == FENCE {
            return text.get(first.len()..end);
        }
        end += line.len();
    }
    None
}

/// YAML as JSON, for clients that compare the two.
fn as_json(yaml: YamlOwned) -> Result<Value, String> {
    Ok(match yaml {
        YamlOwned::Value(scalar) => match scalar {
            ScalarOwned::Null => Value::Null,
            ScalarOwned::Boolean(value) => value.into(),
            ScalarOwned::Integer(value) => value.into(),
            ScalarOwned::FloatingPoint(value) => {
                Value::Number(Number::from_f64(*value).ok_or_else(|| format!("{value} is no number of JSON"))?)
            }
            ScalarOwned::String(value) => value.into(),
        },
        YamlOwned::Sequence(items) => items.into_iter().map(as_json).collect::<Result<_, _>>()?,
        YamlOwned::Mapping(members) => {
            let member = |(key, value)| match key {
                YamlOwned::Value(ScalarOwned::String(key)) => Ok((key, as_json(value)?)),
                _ => Err("a key is no text".to_owned()),
            };
            Value::Object(members.into_iter().map(member).collect::<Result<_, String>>()?)
        }
        _ => return Err("it has a tag or an alias, which JSON does not".to_owned()),
    })
}

fn wrong(path: &Path, reason: String) -> Error {
    Error::Source(format!("{}: {reason}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::tests::{EMPTY, sections};

    const REVIEW: &str = "---\nname: review\ndescription: >-\n  Reviews\n  code.\nmetadata: { version: 1.5, tags: [a, 2, true, null] }\n---\n# Review\n";

    fn project(files: &[(&str, &str)]) -> tempfile::TempDir {
        let project = tempfile::tempdir().unwrap();
        for (path, contents) in files {
            let path = project.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, contents).unwrap();
        }
        project
    }

    fn built(files: &[(&str, &str)]) -> Result<Vec<u8>, String> {
        with_skills(EMPTY.to_vec(), &project(files).path().join("skills")).map_err(|error| error.to_string())
    }

    #[test]
    fn component_carries_the_files_of_its_skills() {
        let component = built(&[
            ("skills/review/SKILL.md", REVIEW),
            ("skills/review/references/style.md", "Short."),
            ("skills/review/.DS_Store", "x"),
            ("skills/apply/SKILL.md", "---\r\nname: apply\r\ndescription: Applies.\r\n---\r\n"),
        ]);
        let section = sections(&component.unwrap(), SECTION).remove(0);
        let (length, rest) = section.split_first_chunk::<4>().unwrap();
        let (index, contents) = rest.split_at(u32::from_le_bytes(*length) as usize);
        let index: Value = serde_json::from_slice(index).unwrap();
        let [apply, review] = &index["skills"].as_array().unwrap()[..] else { panic!("{index}") };
        assert_eq!(apply["frontmatter"], json!({"name": "apply", "description": "Applies."}));
        assert_eq!(
            review["frontmatter"],
            json!({"name": "review", "description": "Reviews code.", "metadata": {"version": 1.5, "tags": ["a", 2, true, null]}})
        );
        let files = json!([{"path": "SKILL.md", "bytes": REVIEW.len()}, {"path": "references/style.md", "bytes": 6}]);
        assert_eq!(review["files"], files);
        assert!(contents.ends_with(format!("{REVIEW}Short.").as_bytes()));
    }

    #[test]
    fn project_without_skills_is_built_as_it_was() {
        for files in [&[("plugin.py", "")][..], &[("skills/.gitkeep", "")]] {
            assert_eq!(built(files).unwrap(), EMPTY);
        }
    }

    #[test]
    fn byte_order_mark_in_front_of_instructions_is_skipped() {
        let with_marks =
            |marks: usize| built(&[("skills/review/SKILL.md", &format!("{}{REVIEW}", "\u{feff}".repeat(marks)))]);
        assert!(with_marks(1).is_ok());
        assert!(with_marks(2).unwrap_err().contains("does not begin with a frontmatter"));
    }

    #[test]
    fn wrong_skill_is_refused_with_its_file() {
        let with = |text: &str| built(&[("skills/review/SKILL.md", text)]);
        let front = |text: &str| with(&format!("---\n{text}\n---\n"));
        let long = "x".repeat(1025);
        for (refused, why) in [
            (built(&[("skills/README.md", "x")]), "skills/README.md: it belongs to no skill"),
            (built(&[("skills/review/a.md", "x")]), "skills/review/SKILL.md: it is missing"),
            (with("# Review"), "does not begin with a frontmatter"),
            (with("---\nname: review\n"), "does not begin with a frontmatter"),
            (front("name: [review"), "its frontmatter: "),
            (front("- review"), "is no mapping"),
            (front("name: review"), "no text `description`"),
            (front("name: 7\ndescription: x"), "no text `name`"),
            (front("name: Review\ndescription: x"), "lower-case"),
            (front("name: other\ndescription: x"), "its folder is \"review\""),
            (front(&format!("name: review\ndescription: {long}")), "1025 characters"),
            (front("name: review\ndescription: x\n1: x"), "a key is no text"),
            (front("name: review\ndescription: x\nmore: .inf"), "no number of JSON"),
            (front(&format!("name: review\ndescription: x\nmore: {}", "x".repeat(FRONTMATTER_BYTES_MAX))), "as JSON"),
            (built(&[("skills/review/SKILL.md", REVIEW), ("skills/review/a b.md", "x")]), "a b.md: the path"),
        ] {
            let refused = refused.unwrap_err();
            assert!(refused.contains(why), "{refused}: {why}");
        }
        let project = project(&[("skills/review/SKILL.md", REVIEW)]);
        std::os::unix::fs::symlink("/etc/passwd", project.path().join("skills/review/secret.md")).unwrap();
        let refused = with_skills(EMPTY.to_vec(), &project.path().join("skills")).unwrap_err().to_string();
        assert!(refused.contains("secret.md: it is a link"), "{refused}");
    }
}
