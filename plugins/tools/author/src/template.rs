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

const RUST_SERVER: &[File] = files!["rust-mcp":
    "Cargo.toml" = "Cargo.toml.txt",
    "manifest.toml" = "../rust/manifest.toml",
    "build.rs" = "build.rs",
    "src/main.rs" = "src/main.rs",
    "src/stdio.rs" = "src/stdio.rs",
    "tests/plugin.toml" = "../tests.toml",
    "README.md" = "README.md",
    ".gitignore" = "../rust/gitignore.txt",
];

const TYPESCRIPT_SERVER: &[File] = files!["typescript-mcp":
    "server.ts" = "server.ts",
    "manifest.toml" = "../javascript/manifest.toml",
    "tests/plugin.toml" = "../tests.toml",
    "package.json" = "package.json.txt",
    "tsconfig.json" = "tsconfig.json.txt",
    "README.md" = "README.md",
    ".gitignore" = "../typescript/gitignore.txt",
];

const RUST_APP: &[File] = files!["app":
    "Cargo.toml" = "../rust/Cargo.toml.txt",
    "manifest.toml" = "../rust/manifest.toml",
    "src/lib.rs" = "lib.rs",
    "src/view.html" = "../../../../samples/chart/src/view.html",
    "tests/plugin.toml" = "tests.toml",
    "README.md" = "README.md",
    ".gitignore" = "../rust/gitignore.txt",
];

const PYTHON_APP: &[File] = files!["app":
    "plugin.py" = "plugin.py",
    "view.py" = "view.py",
    "manifest.toml" = "../python/manifest.toml",
    "test_plugin.py" = "test_plugin.py",
    "tests/plugin.toml" = "tests.toml",
    "requirements.txt" = "../python/requirements.txt",
    "README.md" = "README.md",
    ".gitignore" = "../python/gitignore.txt",
];

const JAVASCRIPT_APP: &[File] = files!["app":
    "plugin.js" = "plugin.js",
    "view.js" = "view.js",
    "manifest.toml" = "../javascript/manifest.toml",
    "plugin.test.js" = "plugin.test.js.txt",
    "tests/plugin.toml" = "tests.toml",
    "package.json" = "../javascript/package.json.txt",
    "jsconfig.json" = "../javascript/jsconfig.json.txt",
    "README.md" = "README.md",
    ".gitignore" = "../javascript/gitignore.txt",
];

/// The page of an app. It holds nothing that would end a text of JavaScript or Python.
const VIEW: &str = include_str!("../../../samples/chart/src/view.html");

const C: &[File] = files!["c":
    "plugin.c" = "plugin.c",
    "tools.json" = "tools.json",
    "manifest.toml" = "../python/manifest.toml",
    "test_plugin.c" = "test_plugin.c",
    "tests/plugin.toml" = "../tests.toml",
    "README.md" = "README.md",
    ".gitignore" = "gitignore.txt",
];

/// What a new project is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A plugin of Bulkhead's own SDK, which it carries with it.
    Plugin,
    /// The same with a view, which clients show.
    App,
    /// An MCP server of the language's official SDK.
    McpServer,
}

/// Makes a project in a folder that is empty or not there yet.
///
/// # Errors
///
/// A name that is none, a language that there is no such project in, a folder with something in it, or a disk that does
/// not take it.
pub fn create(folder: &Path, name: &str, language: Language, kind: Kind) -> Result<(), Error> {
    check(name)?;
    let files = match (kind, language) {
        (Kind::Plugin, Language::Rust) => RUST,
        (Kind::Plugin, Language::Python) => PYTHON,
        (Kind::Plugin, Language::Javascript) => JAVASCRIPT,
        (Kind::Plugin, Language::Typescript) => TYPESCRIPT,
        (Kind::Plugin, Language::C) => C,
        (Kind::App, Language::Rust) => RUST_APP,
        (Kind::App, Language::Python) => PYTHON_APP,
        (Kind::App, Language::Javascript) => JAVASCRIPT_APP,
        (Kind::App, _) => return Err(Error::NoApp),
        (Kind::McpServer, Language::Rust) => RUST_SERVER,
        (Kind::McpServer, Language::Typescript) => TYPESCRIPT_SERVER,
        (Kind::McpServer, _) => return Err(Error::NoServer),
    };
    match std::fs::read_dir(folder) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                return Err(Error::Exists(folder.to_owned()));
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(Error::io(folder)(error)),
    }
    for (path, text) in files {
        sdk::write(&folder.join(path), &filled_in(text, name))?;
    }
    if kind == Kind::McpServer { Ok(()) } else { sdk::unpack(language, &folder.join("bulkhead")) }
}

fn check(name: &str) -> Result<(), Error> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    if begins && name.len() <= 64 && name.bytes().all(is_plain) { Ok(()) } else { Err(Error::Name(name.to_owned())) }
}

fn filled_in(text: &str, name: &str) -> String {
    let packages = |packages: &[&str]| {
        let packages = packages.iter().filter_map(|package| package.rsplit_once('@'));
        let lines = packages.map(|(package, version)| format!("    \"{package}\": \"{version}\""));
        lines.collect::<Vec<_>>().join(",\n")
    };
    text.replace("{{view}}", VIEW.trim_end())
        .replace("{{name}}", name)
        .replace("{{componentize-py}}", python::COMPONENTIZE_PY)
        .replace("{{zig}}", c::ZIG)
        .replace("{{packages}}", &packages(&javascript::PACKAGES))
        .replace("{{server-packages}}", &packages(&javascript::SERVER_PACKAGES))
        .replace("{{typescript}}", typescript::VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Project;

    #[test]
    fn new_project_is_complete_without_placeholders() {
        let plugins = [Language::Rust, Language::Python, Language::Javascript, Language::Typescript, Language::C];
        let plugins = plugins.map(|language| (language, Kind::Plugin));
        let servers = [Language::Rust, Language::Typescript].map(|language| (language, Kind::McpServer));
        let apps = [Language::Rust, Language::Python, Language::Javascript].map(|language| (language, Kind::App));
        for (language, kind) in plugins.into_iter().chain(servers).chain(apps) {
            let folder = tempfile::tempdir().unwrap();
            create(folder.path(), "trip-planner", language, kind).unwrap();
            let project = Project::find(folder.path()).unwrap();
            assert_eq!((project.language, project.name.as_str()), (language, "trip-planner"));
            assert_eq!(project.sdk(&crate::Options::default()).is_ok(), kind != Kind::McpServer);
            let is_http = kind == Kind::McpServer && language == Language::Typescript;
            assert_eq!(project.is_http_server(), is_http, "{language:?}");
            for entry in std::fs::read_dir(folder.path()).unwrap() {
                let path = entry.unwrap().path();
                if path.is_file() {
                    let text = std::fs::read_to_string(&path).unwrap();
                    let mut holes = text.split("{{").skip(1).filter(|rest| !rest.starts_with(' '));
                    assert_eq!(holes.next(), None, "{}", path.display());
                }
            }
            assert!(matches!(create(folder.path(), "again", language, kind), Err(Error::Exists(_))));
        }
        let folder = tempfile::tempdir().unwrap();
        let python = create(folder.path(), "trip-planner", Language::Python, Kind::McpServer);
        assert!(matches!(python, Err(Error::NoServer)));
        let c = create(folder.path(), "trip-planner", Language::C, Kind::App);
        assert!(matches!(c, Err(Error::NoApp)));
    }

    #[test]
    fn page_of_an_app_stands_in_a_text_as_it_is() {
        for ending in ["`", "${", "\\", "\"\"\"", "{{"] {
            assert!(!VIEW.contains(ending), "{ending}");
        }
        assert!(filled_in(include_str!("../templates/app/view.js"), "x").contains(VIEW.trim_end()));
    }

    #[test]
    fn project_names_must_be_plain() {
        for name in ["", "-a", "A", "a b", "../a", "1a", &"a".repeat(65)] {
            let folder = tempfile::tempdir().unwrap();
            assert!(matches!(create(folder.path(), name, Language::Rust, Kind::Plugin), Err(Error::Name(_))), "{name}");
        }
    }

    #[test]
    fn the_packages_of_a_javascript_project_are_pinned() {
        let package = |template: &str| serde_json::from_str::<serde_json::Value>(&filled_in(template, "x")).unwrap();
        let packages = |template: &str| package(template)["devDependencies"].as_object().unwrap().len();
        let javascript = packages(include_str!("../templates/javascript/package.json.txt"));
        let typescript = packages(include_str!("../templates/typescript/package.json.txt"));
        assert_eq!((javascript, typescript), (javascript::PACKAGES.len(), javascript::PACKAGES.len() + 1));
        let server = package(include_str!("../templates/typescript-mcp/package.json.txt"));
        assert_eq!(server["dependencies"].as_object().unwrap().len(), javascript::SERVER_PACKAGES.len());
    }
}
