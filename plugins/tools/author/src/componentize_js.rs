//! Integers of typed functions that componentize-js changes on their way.
//!
//! Owns the list of places where versions up to 0.23.0 do that (`findings/componentize-js-wrong-integers.sh` shows it without this
//! host). Must not refuse: the component is valid, and right for other numbers. Invariant: what is warned of has a type beside it that
//! arrives whole.

use bulkhead_domain::exports::of_function;
use wasmparser::{KnownCustom, Parser, Payload};
use wit_parser::decoding::{DecodedWasm, decode};
use wit_parser::{Function, Resolve, Type, TypeDefKind, World, WorldItem};

use crate::check::without_docs;
use crate::interface;

/// How componentize-js calls itself among the producers of a component.
const NAME: &str = "ComponentizeJS";

/// What would come out wrong of a component that componentize-js has made, a sentence for each place; nothing of any other component.
pub(crate) fn wrong_integers(component: &[u8]) -> Vec<String> {
    if !is_maker(component) {
        return Vec::new();
    }
    let Ok(DecodedWasm::Component(resolve, world)) = decode(&without_docs(component)) else { return Vec::new() };
    let Some(world) = resolve.worlds.get(world) else { return Vec::new() };
    let mut wrong = Vec::new();
    for (name, function) in functions(&resolve, world) {
        wrong.extend(of_types(&resolve, function).into_iter().map(|why| of_function(&name, why)));
    }
    wrong
}

/// Whether componentize-js is among those that made a component.
fn is_maker(component: &[u8]) -> bool {
    let payloads = Parser::new(0).parse_all(component).filter_map(Result::ok);
    let mut producers = payloads.filter_map(|payload| match payload {
        Payload::CustomSection(section) => match section.as_known() {
            KnownCustom::Producers(producers) => Some(producers),
            _ => None,
        },
        _ => None,
    });
    producers.any(|producers| {
        let mut values = producers.into_iter().flatten().flat_map(|field| field.values.into_iter().flatten());
        values.any(|value| value.name == NAME)
    })
}

/// The functions that a host could make tools of, as messages call them.
fn functions<'a>(resolve: &'a Resolve, world: &'a World) -> Vec<(String, &'a Function)> {
    let mut functions = Vec::new();
    for (key, item) in &world.exports {
        let name = resolve.name_world_key(key);
        match item {
            WorldItem::Function(function) => functions.push((name, function)),
            WorldItem::Interface { id, .. } if !name.starts_with("wasi:") && !name.starts_with(interface::PACKAGE) => {
                let own = resolve.interfaces.get(*id).into_iter().flat_map(|interface| interface.functions.values());
                functions.extend(own.map(|function| (format!("{name}.{}", function.name), function)));
            }
            _ => {}
        }
    }
    functions
}

fn of_types(resolve: &Resolve, function: &Function) -> Vec<String> {
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

/// Whether a value has an s64 that is passed by itself: the items of a list are passed in memory, where they stay whole.
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
    use wit_parser::Resolve;

    use super::{functions, is_maker, of_types};

    /// A component that says so many things of who made it.
    fn made_by(name: &str) -> Vec<u8> {
        let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        let producers = [&[1], &*text("processed-by"), &[1], &text(name), &text("0.23.0")].concat();
        let section = [text("producers"), producers].concat();
        [&*wat::parse_str("(component)").unwrap(), &[0, u8::try_from(section.len()).unwrap()], &section].concat()
    }

    #[test]
    fn maker_of_a_component_is_read_among_its_producers() {
        assert!(is_maker(&made_by("ComponentizeJS")));
        for other in [made_by("wit-component"), wat::parse_str("(component)").unwrap(), b"no component".to_vec()] {
            assert!(!is_maker(&other));
        }
    }

    /// Every integer type in every place, as the finding shows what arrives.
    #[test]
    fn integers_that_arrive_wrong_are_named_and_no_others() {
        let integers = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64", "f32", "f64", "bool", "char", "string"];
        let places = [
            ("bare", "{}"),
            ("alias", "alias-{}"),
            ("option", "option<{}>"),
            ("record", "record-{}"),
            ("two", "two-{}"),
            ("list", "list<{}>"),
            ("listed", "list<record-{}>"),
            ("result", "result<{}>"),
        ];
        let mut wit = "package acme:integers; interface numbers {".to_owned();
        for ty in integers {
            wit += &format!(
                "type alias-{ty} = {ty}; record record-{ty} {{ value: {ty} }} record two-{ty} {{ a: {ty}, b: {ty} }}"
            );
            for (place, form) in places {
                let form = form.replace("{}", ty);
                wit += &format!("{place}-{ty}-in: func(x: {form}); {place}-{ty}-out: func() -> {form};");
            }
        }
        wit += "} world integers { export numbers; }";
        let mut resolve = Resolve::default();
        let package = resolve.push_str("numbers.wit", &wit).unwrap();
        let world = resolve.select_world(&[package], None).unwrap();
        let functions = functions(&resolve, &resolve.worlds[world]);
        assert_eq!(functions.len(), 2 * integers.len() * places.len());
        let wrong = functions.iter().filter(|(_, function)| !of_types(&resolve, function).is_empty());
        let mut wrong: Vec<_> = wrong.map(|(_, function)| function.name.as_str()).collect();
        wrong.sort_unstable();
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
        assert_eq!(wrong, expected);
    }
}
