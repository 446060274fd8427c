//! Integers of typed functions that componentize-js changes on their way.
//!
//! Owns the list of places where versions up to 0.23.0 do that (`findings/componentize-js-wrong-integers.sh` shows it
//! without this host). Must not refuse: the component is valid, and right for other numbers. Invariant: what is warned
//! of has a type beside it that arrives whole.

use wit_parser::{Function, Resolve, Type, TypeDefKind};

/// How componentize-js calls itself among the producers of a component.
pub(crate) const PRODUCER: &str = "ComponentizeJS";

/// What is wrong with the types of one function.
pub(crate) fn of_types(resolve: &Resolve, function: &Function) -> Vec<String> {
    let mut wrong = Vec::new();
    for parameter in &function.params {
        if holds_s64(resolve, parameter.ty) {
            wrong.push(format!(
                "parameter {} has an s64, and componentize-js hands a negative one over as 2^64 more: take an s32, an f64 or a string, \
                 or a list of them",
                parameter.name
            ));
        }
    }
    wrong.extend(match function.result.and_then(|result| sole(resolve, result)) {
        Some(Type::U32) => Some(
            "its result is a u32, and componentize-js returns another number from 2147483648 on: return a u64 or an option<u32>"
                .to_owned(),
        ),
        Some(Type::S64) => Some(
            "its result is an s64, and a component of componentize-js ends when it is negative: return an s32, an f64 or a string"
                .to_owned(),
        ),
        _ => None,
    });
    wrong
}

/// What a type is that the canonical ABI passes as one value: records of one field are that field.
fn sole(resolve: &Resolve, ty: Type) -> Option<Type> {
    let Type::Id(id) = ty else { return Some(ty) };
    match &resolve.types.get(id)?.kind {
        TypeDefKind::Type(ty) => sole(resolve, *ty),
        TypeDefKind::Record(record) => match record.fields.as_slice() {
            [field] => sole(resolve, field.ty),
            _ => None,
        },
        TypeDefKind::Tuple(tuple) => match tuple.types.as_slice() {
            [ty] => sole(resolve, *ty),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a value has an s64 that is passed by itself: the items of a list are passed in memory, where they stay
/// whole.
fn holds_s64(resolve: &Resolve, ty: Type) -> bool {
    let Type::Id(id) = ty else { return ty == Type::S64 };
    match resolve.types.get(id).map(|ty| &ty.kind) {
        Some(TypeDefKind::Type(ty) | TypeDefKind::Option(ty)) => holds_s64(resolve, *ty),
        Some(TypeDefKind::Record(record)) => record.fields.iter().any(|field| holds_s64(resolve, field.ty)),
        Some(TypeDefKind::Tuple(tuple)) => tuple.types.iter().any(|ty| holds_s64(resolve, *ty)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::of_types;
    use crate::wrong_integers::in_every_place;

    /// Every integer type in every place, as the finding shows what arrives.
    #[test]
    fn integers_that_arrive_wrong_are_named_and_no_others() {
        let expected = [
            "alias-s64-in",
            "alias-s64-out",
            "alias-u32-out",
            "bare-s64-in",
            "bare-s64-out",
            "bare-u32-out",
            "option-s64-in",
            "record-s64-in",
            "record-s64-out",
            "record-u32-out",
            "two-s64-in",
        ];
        assert_eq!(in_every_place(of_types), expected);
    }
}
