//! What a folder with a plugin's sources is.

use std::path::{Path, PathBuf};

use crate::{Error, Options, manifest};

/// What a plugin is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    Rust,
    Python,
    Javascript,
    /// Built by the tools of JavaScript, from a `plugin.ts` or a `server.ts`.
    Typescript,
    C,
}

/// The files that say what a folder holds, the first one that is there. A server is made of an SDK that knows nothing
/// of Bulkhead.
const ENTRIES: [(&str, Language); 7] = [
    ("plugin.py", Language::Python),
    ("plugin.js", Language::Javascript),
    ("plugin.ts", Language::Typescript),
    ("Cargo.toml", Language::Rust),
    ("plugin.c", Language::C),
    ("server.ts", Language::Typescript),
    ("server.js", Language::Javascript),
];

/// A folder with a plugin's sources.
#[derive(Debug)]
pub struct Project {
    /// Absolute.
    pub folder: PathBuf,
    pub language: Language,
    /// The file by which the project was recognised.
    pub entry: &'static str,
    /// That of the manifest, else the folder's; one that the host takes, and so no path either.
    pub name: String,
    /// The text of `manifest.toml`.
    pub manifest: Option<String>,
}

impl Project {
    /// Looks at a folder.
    ///
    /// # Errors
    ///
    /// When it holds no plugin, or a manifest that is none.
    pub fn find(folder: &Path) -> Result<Self, Error> {
        let folder = folder.canonicalize().map_err(Error::io(folder))?;
        let Some((entry, language)) = ENTRIES.into_iter().find(|(entry, _)| folder.join(entry).is_file()) else {
            return Err(Error::NoProject(folder));
        };
        let path = folder.join("manifest.toml");
        let manifest = match std::fs::read_to_string(&path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(Error::io(&path)(error)),
        };
        let named = manifest.as_deref().map(manifest::name).transpose()?.flatten();
        let name = named.or_else(|| folder.file_name().map(|name| name.to_string_lossy().into_owned()));
        let name = name.unwrap_or_else(|| "plugin".to_owned());
        if !is_plain(&name) {
            return Err(Error::Manifest(format!(
                "the plugin's name {name:?} is not 1 to 64 characters of [A-Za-z0-9_.-]: set `name` in manifest.toml"
            )));
        }
        Ok(Self { name, language, entry, manifest, folder })
    }

    /// Whether it is an MCP server that answers HTTP requests, which is built without the SDK of plugins.
    pub(crate) fn is_http_server(&self) -> bool {
        self.entry.starts_with("server.")
    }

    /// The folder of the SDKs and the interface.
    pub(crate) fn sdk(&self, options: &Options) -> Result<PathBuf, Error> {
        let root = options.sdk.clone().unwrap_or_else(|| self.folder.join("bulkhead"));
        if root.join("wit").is_dir() && root.join("plugins").is_dir() {
            root.canonicalize().map_err(Error::io(&root))
        } else {
            Err(Error::Missing {
                what: format!("the SDK in {}", root.display()),
                remedy: "A project of `bulkhead plugin new` carries it; else name a clone of Bulkhead with --sdk."
                    .to_owned(),
            })
        }
    }
}

/// The host's own rule.
pub(crate) fn is_plain(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn project_name_leading_outside_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path().join("project");
        std::fs::create_dir(&project).unwrap();
        std::fs::write(project.join("plugin.py"), "").unwrap();
        let named = |name: &str| {
            std::fs::write(project.join("manifest.toml"), format!("name = {name:?}\n")).unwrap();
            Project::find(&project).map(|project| project.name)
        };
        assert_eq!(named("My_plugin-1.2").unwrap(), "My_plugin-1.2");
        for wrong in ["../../x", "/tmp/x", "a/b", "a b", "", &"a".repeat(65)] {
            let error = named(wrong).unwrap_err().to_string();
            assert!(error.contains("is not 1 to 64 characters of [A-Za-z0-9_.-]"), "{wrong}: {error}");
        }
        std::fs::remove_file(project.join("manifest.toml")).unwrap();
        assert_eq!(Project::find(&project).unwrap().name, "project");
    }
}
