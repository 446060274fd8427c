//! The world that a component is built for. Clients are told of resources, prompts and completions by what a component exports, so it
//! exports what its plugin has and no more.

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

    /// The decorator in Python that makes one.
    pub(crate) fn decorator(self) -> &'static str {
        match self {
            Self::Resources => "resource",
            Self::Prompts => "prompt",
            Self::Completions => "complete",
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

/// Puts a copy of the interface into `scratch`, with a world for everything that a plugin may have; gives back the folder.
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

/// Adds what the SDK's own folder describes, and a world that has the import of one interface of it beside the offers; gives back the
/// name of that world. An SDK that describes nothing gets the world of the offers alone.
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
