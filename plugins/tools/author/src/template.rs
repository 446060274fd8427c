//! New projects.

use std::path::Path;

use crate::{Error, Language, c, javascript, python, sdk, typescript};

type File = (&'static str, &'static str);

macro_rules! files {
    ($folder:literal: $($path:literal = $source:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../templates/", $folder, "/", $source)))),*]
    };
}

// The sources have names of their own where a tool would take them for its own.
const RUST: &[File] = files!["rust":
    "Cargo.toml" = "Cargo.toml.txt",
    "manifest.toml" = "manifest.toml",
    "src/lib.rs" = "src/lib.rs",
    "tests/plugin.toml" = "../tests.toml",
    "README.md" = "README.md",
    ".gitignore" = "gitignore.txt",
];

const PYTHON: &[File] = files!["python":
    "plugin.py" = "plugin.py",
    "manifest.toml" = "manifest.toml",
    "test_plugin.py" = "test_plugin.py",
    "tests/plugin.toml" = "../tests.toml",
    "requirements.txt" = "requirements.txt",
    "README.md" = "README.md",
    ".gitignore" = "gitignore.txt",
];

const JAVASCRIPT: &[File] = files!["javascript":
    "plugin.js" = "plugin.js",
    "manifest.toml" = "manifest.toml",
    "plugin.test.js" = "plugin.test.js.txt",
    "tests/plugin.toml" = "../tests.toml",
    "package.json" = "package.json.txt",
    "jsconfig.json" = "jsconfig.json.txt",
    "README.md" = "README.md",
    ".gitignore" = "gitignore.txt",
];

const TYPESCRIPT: &[File] = files!["typescript":
    "plugin.ts" = "plugin.ts",
    "manifest.toml" = "../javascript/manifest.toml",
    "plugin.test.ts" = "plugin.test.ts.txt",
    "tests/plugin.toml" = "../tests.toml",
    "package.json" = "package.json.txt",
    "tsconfig.json" = "tsconfig.json.txt",
    "README.md" = "README.md",
    ".gitignore" = "gitignore.txt",
];

const C: &[File] = files!["c":
    "plugin.c" = "plugin.c",
    "tools.json" = "tools.json",
    "manifest.toml" = "../python/manifest.toml",
    "test_plugin.c" = "test_plugin.c",
    "tests/plugin.toml" = "../tests.toml",
    "README.md" = "README.md",
    ".gitignore" = "gitignore.txt",
];

/// Makes a project in a folder that is empty or not there yet.
///
/// # Errors
///
/// A name that is none, a folder with something in it, or a disk that does not take it.
pub fn create(folder: &Path, name: &str, language: Language) -> Result<(), Error> {
    check(name)?;
    match std::fs::read_dir(folder) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                return Err(Error::Exists(folder.to_owned()));
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(Error::io(folder)(error)),
    }
    let files = match language {
        Language::Rust => RUST,
        Language::Python => PYTHON,
        Language::Javascript => JAVASCRIPT,
        Language::Typescript => TYPESCRIPT,
        Language::C => C,
    };
    for (path, text) in files {
        sdk::write(&folder.join(path), &filled_in(text, name))?;
    }
    sdk::unpack(language, &folder.join("bulkhead"))
}

fn check(name: &str) -> Result<(), Error> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    if begins && name.len() <= 64 && name.bytes().all(is_plain) { Ok(()) } else { Err(Error::Name(name.to_owned())) }
}

fn filled_in(text: &str, name: &str) -> String {
    let packages = javascript::PACKAGES.iter().filter_map(|package| package.rsplit_once('@'));
    let packages = packages.map(|(package, version)| format!("    \"{package}\": \"{version}\"")).collect::<Vec<_>>();
    text.replace("{{name}}", name)
        .replace("{{componentize-py}}", python::COMPONENTIZE_PY)
        .replace("{{zig}}", c::ZIG)
        .replace("{{packages}}", &packages.join(",\n"))
        .replace("{{typescript}}", typescript::VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Project;

    #[test]
    fn new_project_is_complete_without_placeholders() {
        for language in [Language::Rust, Language::Python, Language::Javascript, Language::Typescript, Language::C] {
            let folder = tempfile::tempdir().unwrap();
            create(folder.path(), "trip-planner", language).unwrap();
            let project = Project::find(folder.path()).unwrap();
            assert_eq!((project.language, project.name.as_str()), (language, "trip-planner"));
            assert!(project.sdk(&crate::Options::default()).is_ok());
            for entry in std::fs::read_dir(folder.path()).unwrap() {
                let path = entry.unwrap().path();
                if path.is_file() {
                    let text = std::fs::read_to_string(&path).unwrap();
                    let mut holes = text.split("{{").skip(1).filter(|rest| !rest.starts_with(' '));
                    assert_eq!(holes.next(), None, "{}", path.display());
                }
            }
            assert!(matches!(create(folder.path(), "again", language), Err(Error::Exists(_))));
        }
    }

    #[test]
    fn project_names_must_be_plain() {
        for name in ["", "-a", "A", "a b", "../a", "1a", &"a".repeat(65)] {
            let folder = tempfile::tempdir().unwrap();
            assert!(matches!(create(folder.path(), name, Language::Rust), Err(Error::Name(_))), "{name}");
        }
    }

    #[test]
    fn the_packages_of_a_javascript_project_are_pinned() {
        let packages = |template: &str| {
            let package: serde_json::Value = serde_json::from_str(&filled_in(template, "x")).unwrap();
            package["devDependencies"].as_object().unwrap().len()
        };
        let javascript = packages(include_str!("../templates/javascript/package.json.txt"));
        let typescript = packages(include_str!("../templates/typescript/package.json.txt"));
        assert_eq!((javascript, typescript), (javascript::PACKAGES.len(), javascript::PACKAGES.len() + 1));
    }
}
