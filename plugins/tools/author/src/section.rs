//! Custom sections: what a component carries beside its code.

use wasmparser::{Parser, Payload};

use crate::Error;

/// Whether a component, or a module inside it, carries a section of this name.
pub(crate) fn is_there(component: &[u8], name: &str) -> Result<bool, Error> {
    for payload in Parser::new(0).parse_all(component) {
        if let Payload::CustomSection(section) = payload.map_err(unreadable)?
            && section.name() == name
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a component exports something whose name begins like this.
pub(crate) fn exports(component: &[u8], beginning: &str) -> Result<bool, Error> {
    let mut depth = 0;
    for payload in Parser::new(0).parse_all(component) {
        match payload.map_err(unreadable)? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth -= 1,
            Payload::ComponentExportSection(exports) if depth == 0 => {
                for export in exports {
                    if export.map_err(unreadable)?.name.name.starts_with(beginning) {
                        return Ok(true);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(false)
}

/// A custom section may stand behind all others: a zero, its size, its name with a size of its own, its contents.
pub(crate) fn append(component: &mut Vec<u8>, name: &str, contents: &[u8]) {
    let mut body = Vec::with_capacity(contents.len() + 32);
    leb128(&mut body, name.len());
    body.extend_from_slice(name.as_bytes());
    body.extend_from_slice(contents);
    component.push(0);
    leb128(component, body.len());
    component.extend_from_slice(&body);
}

fn unreadable(error: wasmparser::BinaryReaderError) -> Error {
    Error::Failed { step: "reading the component", reason: error.message().to_owned() }
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
pub(crate) mod tests {
    use super::*;

    pub(crate) const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

    /// The contents of all sections of this name.
    pub(crate) fn sections(component: &[u8], name: &str) -> Vec<Vec<u8>> {
        Parser::new(0)
            .parse_all(component)
            .filter_map(|payload| match payload.unwrap() {
                Payload::CustomSection(section) if section.name() == name => Some(section.data().to_vec()),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn appended_custom_section_of_any_length_is_found() {
        for length in [0, 1, 100, 127, 128, 20_000, 3_000_000] {
            let mut component = EMPTY.to_vec();
            assert!(!is_there(&component, "mine").unwrap());
            append(&mut component, "mine", &vec![b'y'; length]);
            assert!(is_there(&component, "mine").unwrap());
            assert_eq!(sections(&component, "mine"), [vec![b'y'; length]]);
        }
    }
}
