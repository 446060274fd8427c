//! Whether a component is made for another host, by its imports.
//!
//! Reads types, which only a compiler's process does. Invariant: what is no valid component passes here; the compiler
//! says why.

use wasmparser::component_types::{ComponentAnyTypeId, ComponentEntityType};
use wasmparser::types::TypesRef;
use wasmparser::{Parser, Payload, ValidPayload, Validator, WasmFeatures};

use bulkhead_domain::imports;
use bulkhead_domain::text::{beginning, escaped};

/// Bytes of a name that a refusal shows; those of packages with a version have some fifty.
const SHOWN_BYTES_MAX: usize = 128;

/// Refuses a component that imports what this host does not have. No function is looked at, so that this takes a
/// moment.
///
/// # Errors
///
/// A sentence for each world that such imports belong to.
pub(super) fn check(component: &[u8]) -> Result<(), String> {
    let imports = required(component).unwrap_or_default();
    let refusals = imports::refusals(imports.iter().map(String::as_str));
    if refusals.is_empty() { Ok(()) } else { Err(refusals.join("; ")) }
}

/// The imports at the root that a host has to provide: functions, and interfaces that have some or a resource. Types
/// alone need no host.
fn required(component: &[u8]) -> Option<Vec<String>> {
    let mut validator = Validator::new_with_features(WasmFeatures::all());
    let mut imports = Vec::new();
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(component) {
        let payload = payload.ok()?;
        match &payload {
            Payload::Version { .. } => depth += 1,
            Payload::ComponentImportSection(section) if depth == 1 => {
                for import in section.clone() {
                    imports.push(import.ok()?.name.name);
                }
            }
            Payload::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
        if let ValidPayload::End(types) = validator.payload(&payload).ok()?
            && depth == 0
        {
            imports.retain(|import| is_required(types.as_ref(), import));
            return Some(imports.into_iter().map(shown).collect());
        }
    }
    None
}

/// A name as operators see it: it is the component's own choice, down to what acts on a terminal.
fn shown(import: &str) -> String {
    escaped(beginning(import, SHOWN_BYTES_MAX))
}

fn is_required(types: TypesRef<'_>, import: &str) -> bool {
    let needs_a_host = |ty: &ComponentEntityType| match ty {
        ComponentEntityType::Type { created, .. } => matches!(created, ComponentAnyTypeId::Resource(_)),
        _ => true,
    };
    match types.component_item_for_import(import).map(|item| item.ty) {
        Some(ComponentEntityType::Instance(id)) => {
            types.get(id).is_none_or(|instance| instance.exports.values().any(|item| needs_a_host(&item.ty)))
        }
        Some(ty) => needs_a_host(&ty),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_of_types_alone_are_not_required() {
        let wat = r#"(component
            (import "acme:a/types@1.0.0" (instance (type (enum "red")) (export "hue" (type (eq 0)))))
            (import "acme:a/door@1.0.0" (instance (export "open" (func))))
            (import "acme:a/brush@1.0.0" (instance (export "brush" (type (sub resource)))))
            (import "plain" (func))
            (component (import "inner" (func)))
            (core module))"#;
        let component = wat::parse_str(wat).unwrap();
        assert_eq!(required(&component).unwrap(), ["acme:a/door@1.0.0", "acme:a/brush@1.0.0", "plain"]);
        let refused = check(&component).unwrap_err();
        assert!(refused.starts_with("it imports acme:a/door@1.0.0, acme:a/brush@1.0.0, plain, which"), "{refused}");
    }

    #[test]
    fn names_in_a_refusal_are_short_and_cannot_act() {
        let long = "x".repeat(10_000);
        let wat = format!(r#"(component (import "url=<\u{{1b}}]0;{long}>" (func)))"#);
        let refused = check(&wat::parse_str(&wat).unwrap()).unwrap_err();
        assert!(refused.starts_with(r"it imports url=<\u{1b}]0;xx") && refused.len() < 600, "{refused}");
    }

    #[test]
    fn invalid_component_passes_to_the_compiler() {
        for bytes in [b"".as_slice(), b"\0asm\x0d\0\x01\0\x01\x99", b"#!/bin/sh"] {
            assert_eq!(check(bytes), Ok(()));
        }
    }
}
