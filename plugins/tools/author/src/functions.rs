//! The functions of a component that knows nothing of Bulkhead: which of them can be tools.
//!
//! Must not know more of it than a host does. Invariant: what is said to be no tool here is none in a host, in the same
//! words.

use std::collections::HashSet;

use bulkhead_domain::exports::{NO_USABLE_FUNCTION, NotJson, of_function, of_parameter, of_result};
use wit_parser::{Function, Resolve, Type, TypeDefKind, TypeId, World, WorldItem};

use crate::check::{Findings, left_out};

/// Interfaces of this namespace are called by a host that runs programs or servers.
const PLATFORM: &str = "wasi:";

/// Finds what a host leaves out, or refuses because nothing else is there.
pub(crate) fn check(resolve: &Resolve, world: &World, findings: &mut Findings) {
    let mut usable = 0_usize;
    let mut unusable = Vec::new();
    let mut see = |shown: String, function: &Function| {
        let wrong = problems(resolve, function);
        usable += usize::from(wrong.is_empty());
        unusable.extend(wrong.into_iter().map(|wrong| of_function(&shown, wrong)));
    };
    for (key, item) in &world.exports {
        let name = resolve.name_world_key(key);
        match item {
            WorldItem::Function(function) => see(name, function),
            WorldItem::Interface { id, .. } if !name.starts_with(PLATFORM) => {
                let functions =
                    resolve.interfaces.get(*id).into_iter().flat_map(|interface| interface.functions.values());
                functions.for_each(|function| see(format!("{name}.{}", function.name), function));
            }
            _ => {}
        }
    }
    if usable == 0 && !unusable.is_empty() {
        findings.refused.push(NO_USABLE_FUNCTION.to_owned());
        findings.refused.extend(unusable);
    } else {
        findings.warnings.extend(unusable.iter().map(|function| left_out(function)));
    }
}

/// Why a function is no tool.
fn problems(resolve: &Resolve, function: &Function) -> Vec<String> {
    let mut wrong = Vec::new();
    for param in &function.params {
        wrong.extend(not_json(resolve, param.ty).map(|why| of_parameter(&param.name, why)));
    }
    wrong.extend(function.result.and_then(|result| not_json(resolve, result)).map(of_result));
    wrong
}

/// Why values of a type have no form in JSON, if they have none.
fn not_json(resolve: &Resolve, ty: Type) -> Option<NotJson> {
    let mut left = vec![ty];
    let mut seen = HashSet::<TypeId>::new();
    while let Some(ty) = left.pop() {
        let id = match ty {
            Type::ErrorContext => return Some(NotJson::ErrorContext),
            Type::Id(id) if seen.insert(id) => id,
            _ => continue,
        };
        match &resolve.types.get(id)?.kind {
            TypeDefKind::Resource | TypeDefKind::Handle(_) => return Some(NotJson::Resource),
            TypeDefKind::Stream(_) => return Some(NotJson::Stream),
            TypeDefKind::Future(_) => return Some(NotJson::Future),
            TypeDefKind::Record(record) => left.extend(record.fields.iter().map(|field| field.ty).rev()),
            TypeDefKind::Tuple(tuple) => left.extend(tuple.types.iter().copied().rev()),
            TypeDefKind::Variant(variant) => left.extend(variant.cases.iter().filter_map(|case| case.ty).rev()),
            TypeDefKind::Option(ty) | TypeDefKind::List(ty) | TypeDefKind::Type(ty) => left.push(*ty),
            TypeDefKind::Result(result) => left.extend(result.err.into_iter().chain(result.ok)),
            TypeDefKind::Enum(_) | TypeDefKind::Flags(_) => {}
            _ => return Some(NotJson::Unknown),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
    use wit_parser::Resolve;

    use crate::check::{Findings, check};

    /// A component with a resource that has a method, and with what else is said in WIT.
    fn checked(more: &str) -> Findings {
        let wit = format!(
            "package acme:units@1.0.0; interface counters {{
                resource counter {{ size: func() -> u32; }}
                open: func(at: list<option<counter>>) -> u32;
                {more}
            }} world w {{ export counters; }}"
        );
        let mut resolve = Resolve::default();
        let package = resolve.push_str("units.wit", &wit).unwrap();
        let world = resolve.select_world(&[package], None).unwrap();
        let name = "acme:units/counters@1.0.0";
        let seven = if more.is_empty() {
            String::new()
        } else {
            format!(r#"(func (export "{name}#seven") (result i32) (i32.const 7))"#)
        };
        let module = format!(
            r#"(module (memory (export "memory") 1)
                (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 8))
                (func (export "{name}#[method]counter.size") (param i32) (result i32) (i32.const 1))
                (func (export "{name}#open") (param i32 i32) (result i32) (i32.const 1)) {seven})"#
        );
        let mut module = wat::parse_str(module).unwrap();
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
        check(&ComponentEncoder::default().module(&module).unwrap().encode().unwrap())
    }

    #[test]
    fn functions_that_cannot_be_tools_are_left_out_or_refused() {
        let no_tools = ["[method]counter.size: parameter self", "open: parameter at"].map(|place| {
            format!(
                "function acme:units/counters@1.0.0.{place} is or holds a resource, which lives inside the component only"
            )
        });
        let mut alone = checked("").refused;
        assert!(alone.remove(0).ends_with("its own functions cannot be tools"), "{alone:?}");
        alone.sort();
        assert_eq!(alone, no_tools);
        let beside = checked("seven: func() -> u32;");
        assert_eq!(beside.refused, Vec::<String>::new());
        let left_out = beside.warnings.iter().filter_map(|warning| warning.strip_prefix("left out: "));
        let mut left_out: Vec<_> = left_out.collect();
        left_out.sort_unstable();
        assert_eq!(left_out, no_tools);
    }
}
