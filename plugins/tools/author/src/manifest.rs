//! The manifest: a custom section of the component, in TOML.

use crate::{Error, section};

pub(crate) const SECTION: &str = "bulkhead:manifest";

/// The plugin's name, where it says one.
pub(crate) fn name(text: &str) -> Result<Option<String>, Error> {
    let table: toml::Table =
        text.parse().map_err(|error: toml::de::Error| Error::Manifest(error.message().to_owned()))?;
    match table.get("name") {
        None => Ok(None),
        Some(toml::Value::String(name)) => Ok(Some(name.clone())),
        Some(_) => Err(Error::Manifest("`name` is no text".to_owned())),
    }
}

/// Whether the plugin asks for web services. One that does not gets none, whatever an operator says.
pub(crate) fn asks_for_http(text: &str) -> bool {
    let table = text.parse::<toml::Table>().unwrap_or_default();
    let http = table.get("grants").and_then(|grants| grants.get("http"));
    http.and_then(toml::Value::as_array).is_some_and(|destinations| !destinations.is_empty())
}

/// The component with this manifest, unless it has one already (the Rust SDK writes it while it compiles).
pub(crate) fn with_manifest(mut component: Vec<u8>, text: Option<&str>) -> Result<Vec<u8>, Error> {
    if let Some(text) = text
        && !section::is_there(&component, SECTION)?
    {
        section::append(&mut component, SECTION, text.as_bytes());
    }
    Ok(component)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::tests::{EMPTY, sections};

    #[test]
    fn a_component_carries_its_manifest_once() {
        let component = with_manifest(EMPTY.to_vec(), Some("name = \"x\"")).unwrap();
        assert_eq!(sections(&component, SECTION), [b"name = \"x\""]);
        assert_eq!(with_manifest(component.clone(), Some("name = \"other\"")).unwrap(), component);
        assert_eq!(with_manifest(EMPTY.to_vec(), None).unwrap(), EMPTY);
    }

    #[test]
    fn web_services_are_asked_for_by_destination() {
        assert!(asks_for_http("[grants]\nhttp = [\"https://api.example.com\"]"));
        for text in ["", "[grants]\nhttp = []", "http = [\"x\"]", "[grants]\nkv = true", "not TOML ="] {
            assert!(!asks_for_http(text), "{text}");
        }
    }

    #[test]
    fn invalid_manifest_toml_or_name_is_refused() {
        assert_eq!(name("name = \"a\"").unwrap().as_deref(), Some("a"));
        assert_eq!(name("").unwrap(), None);
        assert!(name("name = ").is_err());
        assert!(name("name = 3").unwrap_err().to_string().contains("no text"));
    }
}
