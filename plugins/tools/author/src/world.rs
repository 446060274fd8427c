//! The world that a component is built for. Clients are told of resources, prompts and completions by what a component
//! exports, so it exports what its plugin has and no more.

use std::path::{Path, PathBuf};

use crate::{Error, sdk};

/// What a plugin may have beside tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    Resources,
    Prompts,
    Completions,
}

impl Offer {
    pub(crate) const ALL: [Self; 3] = [Self::Resources, Self::Prompts, Self::Completions];

    /// The interface, as WIT calls it.
    pub(crate) fn interface(self) -> &'static str {
        match self {
            Self::Resources => "resources",
            Self::Prompts => "prompts",
            Self::Completions => "completions",
        }
    }

    /// The class in Python that stands for it.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Resources => "Resources",
            Self::Prompts => "Prompts",
            Self::Completions => "Completions",
        }
    }

    /// The functions in Python that make one.
    pub(crate) fn makers(self) -> &'static [&'static str] {
        match self {
            Self::Resources => &["resource", "app"],
            Self::Prompts => &["prompt"],
            Self::Completions => &["complete"],
        }
    }

    /// The world that holds it alone.
    fn world(self) -> &'static str {
        match self {
            Self::Resources => "resource-provider",
            Self::Prompts => "prompt-provider",
            Self::Completions => "completion-provider",
        }
    }
}

/// The world of tools and these, which are in the order of [`Offer::ALL`]. `build.mjs` knows the rule as well.
pub(crate) fn name(offers: &[Offer]) -> String {
    offers.iter().fold("with-tools".to_owned(), |name, offer| format!("{name}-{}", offer.interface()))
}

/// Puts a copy of the interface into `scratch`, with a world for everything that a plugin may have; gives back the
/// folder.
pub(crate) fn place(sdk: &Path, scratch: &Path) -> Result<PathBuf, Error> {
    let from = sdk.join("wit");
    let to = scratch.join("wit");
    for entry in std::fs::read_dir(&from).map_err(Error::io(&from))?.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "wit") {
            let text = std::fs::read_to_string(&path).map_err(Error::io(&path))?;
            sdk::write(&to.join(entry.file_name()), &text)?;
        }
    }
    let worlds = subsets().map(|offers| {
        let includes = offers.iter().map(|offer| format!("  include {};\n", offer.world())).collect::<String>();
        format!("world {} {{\n  include plugin;\n{includes}}}\n", name(&offers))
    });
    sdk::write(&to.join("built.wit"), &worlds.collect::<String>())?;
    Ok(to)
}

/// The version of WASI by which the engine of componentize-js 0.23 answers fetch events: a world of any other one ends
/// in "failed to find export … handle".
const ENGINE_WASI: &str = "0.2.10";

/// Puts the WIT of `wasi:http` into `scratch`, with the world of what answers requests and may send some; gives back
/// the folder.
///
/// jco brings it, in a later version than the engine has. Nothing in it has changed since but the number.
pub(crate) fn place_of_server(packages: &Path, scratch: &Path) -> Result<PathBuf, Error> {
    let builtin = packages.join("@bytecodealliance/jco/lib/wit/builtin");
    let version = names(&builtin)?.into_iter().find(|name| name.starts_with("0.2."));
    let version = version.ok_or_else(|| Error::Missing {
        what: format!("the WIT of WASI 0.2 in {}", builtin.display()),
        remedy: "Install the versions of jco and componentize-js that `bulkhead plugin new` writes into package.json."
            .to_owned(),
    })?;
    let to = scratch.join("wit");
    for package in names(&builtin.join(&version))? {
        for file in names(&builtin.join(&version).join(&package))? {
            let path = Path::new(&package).join(file);
            let from = builtin.join(&version).join(&path);
            let text = std::fs::read_to_string(&from).map_err(Error::io(&from))?;
            sdk::write(&to.join("deps").join(path), &text.replace(&version, ENGINE_WASI))?;
        }
    }
    let world = format!(
        "package bulkhead:server;\nworld server {{\n  import wasi:http/outgoing-handler@{ENGINE_WASI};\n  export \
         wasi:http/incoming-handler@{ENGINE_WASI};\n}}\n"
    );
    sdk::write(&to.join("server.wit"), &world)?;
    Ok(to)
}

/// Adds what the SDK's own folder describes, and a world that has the import of one interface of it beside the offers;
/// gives back the name of that world. An SDK that describes nothing gets the world of the offers alone.
pub(crate) fn extend(wit: &Path, described: &Path, import: &str, offers: &[Offer]) -> Result<String, Error> {
    let base = name(offers);
    if !described.is_dir() {
        return Ok(base);
    }
    for entry in std::fs::read_dir(described).map_err(Error::io(described))?.flatten() {
        let text = std::fs::read_to_string(entry.path()).map_err(Error::io(&entry.path()))?;
        sdk::write(&wit.join("deps").join(entry.file_name()), &text)?;
    }
    let extended = format!("{base}-extended");
    let world = format!("world {extended} {{\n  include {base};\n  import {import};\n}}\n");
    sdk::write(&wit.join("extended.wit"), &world)?;
    Ok(extended)
}

fn names(folder: &Path) -> Result<Vec<String>, Error> {
    let entries = std::fs::read_dir(folder).map_err(Error::io(folder))?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

/// Every choice of them, each in the order of [`Offer::ALL`].
fn subsets() -> impl Iterator<Item = Vec<Offer>> {
    (0..1 << Offer::ALL.len()).map(|chosen: usize| {
        let all = Offer::ALL.into_iter().enumerate();
        all.filter(|(at, _)| chosen & (1 << at) != 0).map(|(_, offer)| offer).collect()
    })
}

#[cfg(test)]
mod tests {
    use wit_parser::Resolve;

    use super::*;

    #[test]
    fn wit_world_exports_the_offers_of_a_plugin() {
        let scratch = tempfile::tempdir().unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
        let mut resolve = Resolve::default();
        let (package, _) = resolve.push_dir(place(&root, scratch.path()).unwrap()).unwrap();
        for offers in subsets() {
            let world = resolve.select_world(&[package], Some(&name(&offers))).unwrap();
            assert_eq!(resolve.worlds[world].exports.len(), 1 + offers.len(), "{offers:?}");
        }
        assert_eq!(name(&[Offer::Resources, Offer::Completions]), "with-tools-resources-completions");
    }

    #[test]
    fn world_of_a_server_has_the_version_of_the_engine() {
        let packages = tempfile::tempdir().unwrap();
        let wit = packages.path().join("@bytecodealliance/jco/lib/wit/builtin");
        assert!(place_of_server(packages.path(), packages.path()).is_err(), "there is no jco");
        let http = "package wasi:http@0.2.12;
            interface incoming-handler { handle: func(); }
            interface outgoing-handler { handle: func(); }";
        sdk::write(&wit.join("0.2.12/wasi-http/package.wit"), http).unwrap();
        sdk::write(&wit.join("0.3.0/wasi-http/package.wit"), "package wasi:http@0.3.0;").unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let mut resolve = Resolve::default();
        let (package, _) = resolve.push_dir(place_of_server(packages.path(), scratch.path()).unwrap()).unwrap();
        let world = &resolve.worlds[resolve.select_world(&[package], Some("server")).unwrap()];
        let exports: Vec<_> = world.exports.keys().map(|key| resolve.name_world_key(key)).collect();
        assert_eq!(exports, ["wasi:http/incoming-handler@0.2.10"]);
    }

    #[test]
    fn python_world_imports_outgoing_http_beside_offers() {
        let scratch = tempfile::tempdir().unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
        let wit = place(&root, scratch.path()).unwrap();
        let import = "wasi:http/outgoing-handler@0.2.0";
        assert_eq!(extend(&wit, Path::new("/nowhere"), import, &[]).unwrap(), "with-tools", "of an older SDK");
        let name = extend(&wit, &root.join("plugins/sdk/python/wit"), import, &[Offer::Prompts]).unwrap();
        let mut resolve = Resolve::default();
        let (package, _) = resolve.push_dir(&wit).unwrap();
        let world = &resolve.worlds[resolve.select_world(&[package], Some(&name)).unwrap()];
        let imports: Vec<_> = world.imports.keys().map(|key| resolve.name_world_key(key)).collect();
        assert!(imports.iter().any(|name| name == import), "{imports:?}");
        assert_eq!(world.exports.len(), 2);
    }
}
