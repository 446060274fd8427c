//! What an author wrote in WIT, for components that know nothing of Bulkhead: their functions are tools, and a model
//! has to know what they do. Toolchains leave such texts out of a component.

use std::path::Path;

use wit_parser::{PackageMetadata, Resolve, UnresolvedPackageGroup};

use crate::{Error, section};

/// Interfaces of this package make a component one that describes its tools itself.
const OUR_PACKAGE: &str = "bulkhead:plugin/";

/// The component with the documentation of the package in `wit`, the author's own file or folder, unless it needs none
/// or has it already.
pub(crate) fn with_docs(mut component: Vec<u8>, wit: &Path) -> Result<Vec<u8>, Error> {
    let is_needed = wit.exists()
        && !section::exports(&component, OUR_PACKAGE)?
        && !section::is_there(&component, PackageMetadata::SECTION_NAME)?;
    if is_needed {
        let wrong = |reason: String| Error::Failed {
            step: "reading the descriptions in WIT",
            reason: format!("{}: {reason}", wit.display()),
        };
        // Says which file and line is wrong; reading the folder with what it depends on would not.
        if wit.is_dir() {
            UnresolvedPackageGroup::parse_dir(wit).map_err(|error| wrong(error.to_string()))?;
        }
        let mut resolve = Resolve { all_features: true, ..Resolve::default() };
        let (package, _) = resolve.push_path(wit).map_err(|error| wrong(format!("{error:#}")))?;
        let docs = PackageMetadata::extract(&resolve, package).encode();
        section::append(
            &mut component,
            PackageMetadata::SECTION_NAME,
            &docs.map_err(|error| wrong(error.to_string()))?,
        );
    }
    Ok(component)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::tests::{EMPTY, sections};

    fn folder(wit: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("units.wit"), wit).unwrap();
        folder
    }

    const WIT: &str = "package acme:units@1.0.0;
        interface length {
            /// How long.
            record span { /// In metres.
                metres: f64 }
            /// To feet.
            to-feet: func(span: span) -> f64;
        }
        world library { export length; }";

    #[test]
    fn component_carries_wit_docs_once() {
        let folder = folder(WIT);
        let component = with_docs(EMPTY.to_vec(), folder.path()).unwrap();
        let carried = sections(&component, "package-docs");
        let docs: serde_json::Value = serde_json::from_slice(&carried[0][1..]).unwrap();
        let length = &docs["interfaces"]["length"];
        assert_eq!(length["funcs"]["to-feet"]["docs"], "To feet.", "{docs}");
        assert_eq!(length["types"]["span"]["items"]["metres"], "In metres.", "{docs}");
        assert_eq!(with_docs(component.clone(), folder.path()).unwrap(), component);
    }

    #[test]
    fn missing_wit_is_accepted_and_invalid_wit_refused() {
        assert_eq!(with_docs(EMPTY.to_vec(), Path::new("/nowhere")).unwrap(), EMPTY);
        let error = with_docs(EMPTY.to_vec(), folder("package ;").path()).unwrap_err().to_string();
        assert!(error.contains("descriptions in WIT") && error.contains("units.wit"), "{error}");
    }
}
