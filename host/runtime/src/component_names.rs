//! What a component imports and exports by name, read off its bytes.
//!
//! Must not read types: a hostile component may have so many of them that reading them exhausts the host, which is what
//! the compiler's own process is for. Invariant: of what is no component, nothing is read.

use wasmparser::{Parser, Payload};

/// Imports, and exports, that are looked at. A component of this host has a tenth of it.
const NAMES_MAX: usize = 1024;

/// Names at the root.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ComponentNames<'a> {
    pub(super) imports: Vec<&'a str>,
    pub(super) exports: Vec<&'a str>,
}

impl<'a> ComponentNames<'a> {
    pub(super) fn read(component: &'a [u8]) -> Self {
        let mut names = Self::default();
        let mut depth = 0_usize;
        for payload in Parser::new(0).parse_all(component) {
            let Ok(payload) = payload else { break };
            match payload {
                Payload::Version { .. } => depth += 1,
                Payload::ComponentImportSection(section) if depth == 1 => {
                    let found = section.into_iter().map_while(|import| Some(import.ok()?.name.name));
                    names.imports.extend(found.take(NAMES_MAX.saturating_sub(names.imports.len())));
                }
                Payload::ComponentExportSection(section) if depth == 1 => {
                    let found = section.into_iter().map_while(|export| Some(export.ok()?.name.name));
                    names.exports.extend(found.take(NAMES_MAX.saturating_sub(names.exports.len())));
                }
                Payload::End(_) => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn component_names_are_those_at_the_root() {
        let wat = r#"(component
            (import "acme:a/door@1.0.0" (instance (export "open" (func))))
            (component (import "inner" (func)))
            (core module (import "a" "b" (func)))
            (instance $i)
            (export "acme:b/things@1.0.0" (instance $i)))"#;
        let component = wat::parse_str(wat).unwrap();
        let names = ComponentNames::read(&component);
        assert_eq!((names.imports, names.exports), (vec!["acme:a/door@1.0.0"], vec!["acme:b/things@1.0.0"]));
        assert_eq!(ComponentNames::read(b"#!/bin/sh"), ComponentNames::default());
    }
}
