//! Integers of typed functions that componentize-py changes on their way.
//!
//! Owns the list of places where versions up to 0.25.1 do that: a `list<s8>` is handled as `bytes`, as one of `u8` is.
//! Must not refuse: the component is valid, and right for numbers from 0 on. Invariant: what is warned of has a type
//! beside it that arrives whole.

use wit_parser::{Function, Resolve, Type, TypeDefKind};

/// How the tool that componentize-py starts a component with calls itself among its producers; it adds no name of its
/// own.
pub(crate) const PRODUCER: &str = "component-init-transform";
/// The module that every component of componentize-py has and no other one.
pub(crate) const MODULE: &[u8] = b"libcomponentize_py_runtime.so";

/// What is wrong with the types of one function.
pub(crate) fn of_types(resolve: &Resolve, function: &Function) -> Vec<String> {
    let parameters = function.params.iter().filter(|parameter| holds_s8_list(resolve, parameter.ty)).map(|parameter| {
        format!(
            "parameter {} has a list<s8>, and componentize-py hands it over as bytes, where -1 is 255: take a list<s16> or a list<s32>",
            parameter.name
        )
    });
    let result = function.result.filter(|result| holds_s8_list(resolve, *result)).map(|_| {
        "its result has a list<s8>, and componentize-py takes only bytes for it, which hold no negative number: return a list<s16> or \
         a list<s32>"
            .to_owned()
    });
    parameters.chain(result).collect()
}

/// Whether a value has a list whose items are written as `s8` itself: those of a type of another name are passed one by
/// one.
fn holds_s8_list(resolve: &Resolve, ty: Type) -> bool {
    let Type::Id(id) = ty else { return false };
    let holds = |ty: &Type| holds_s8_list(resolve, *ty);
    match resolve.types.get(id).map(|ty| &ty.kind) {
        Some(TypeDefKind::List(item)) => *item == Type::S8 || holds(item),
        Some(TypeDefKind::Type(ty) | TypeDefKind::Option(ty)) => holds(ty),
        Some(TypeDefKind::Record(record)) => record.fields.iter().any(|field| holds(&field.ty)),
        Some(TypeDefKind::Tuple(tuple)) => tuple.types.iter().any(holds),
        Some(TypeDefKind::Variant(variant)) => variant.cases.iter().any(|case| case.ty.as_ref().is_some_and(holds)),
        Some(TypeDefKind::Result(result)) => result.ok.iter().chain(&result.err).any(holds),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::of_types;
    use crate::wrong_integers::in_every_place;

    #[test]
    fn lists_of_s8_are_named_and_no_others() {
        let expected =
            ["list-s8-in", "list-s8-out", "lists-s8-in", "lists-s8-out", "result-list-s8-in", "result-list-s8-out"];
        assert_eq!(in_every_place(of_types), expected);
    }
}
