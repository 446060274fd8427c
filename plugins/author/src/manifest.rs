//! The manifest: a custom section of the component, in TOML.

use wasmparser::{Parser, Payload};

use crate::Error;

const SECTION: &str = "bulkhead:manifest";

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

/// The component with this manifest, unless it has one already (the Rust SDK writes it while it compiles).
pub(crate) fn with_manifest(mut component: Vec<u8>, text: Option<&str>) -> Result<Vec<u8>, Error> {
    let Some(text) = text else { return Ok(component) };
    if !carries_one(&component)? {
        append(&mut component, text.as_bytes());
    }
    Ok(component)
}

fn carries_one(component: &[u8]) -> Result<bool, Error> {
    for payload in Parser::new(0).parse_all(component) {
        let payload = payload
            .map_err(|error| Error::Failed { step: "reading the component", reason: error.message().to_owned() })?;
        if let Payload::CustomSection(section) = payload
            && section.name() == SECTION
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A custom section may stand behind all others: a zero, its size, its name with a size of its own, its contents.
fn append(component: &mut Vec<u8>, contents: &[u8]) {
    let mut body = Vec::with_capacity(contents.len() + 32);
    leb128(&mut body, SECTION.len());
    body.extend_from_slice(SECTION.as_bytes());
    body.extend_from_slice(contents);
    component.push(0);
    leb128(component, body.len());
    component.extend_from_slice(&body);
}

fn leb128(bytes: &mut Vec<u8>, mut value: usize) {
    loop {
        let low = u8::try_from(value & 0x7f).unwrap_or_default();
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return;
        }
        bytes.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

    fn sections(component: &[u8]) -> Vec<String> {
        Parser::new(0)
            .parse_all(component)
            .filter_map(|payload| match payload.unwrap() {
                Payload::CustomSection(section) if section.name() == SECTION => {
                    Some(String::from_utf8(section.data().to_vec()).unwrap())
                }
                _ => None,
            })
            .collect()
    }

    #[test]
    fn a_component_carries_its_manifest_once_however_long_it_is() {
        for length in [0, 1, 100, 127, 128, 20_000, 3_000_000] {
            let text = format!("name = \"x\" # {}", "y".repeat(length));
            let component = with_manifest(EMPTY.to_vec(), Some(&text)).unwrap();
            assert_eq!(sections(&component), std::slice::from_ref(&text));
            assert_eq!(with_manifest(component.clone(), Some("name = \"other\"")).unwrap(), component);
        }
        assert_eq!(with_manifest(EMPTY.to_vec(), None).unwrap(), EMPTY);
    }

    #[test]
    fn what_is_no_toml_or_no_name_is_refused() {
        assert_eq!(name("name = \"a\"").unwrap().as_deref(), Some("a"));
        assert_eq!(name("").unwrap(), None);
        assert!(name("name = ").is_err());
        assert!(name("name = 3").unwrap_err().to_string().contains("no text"));
    }
}
