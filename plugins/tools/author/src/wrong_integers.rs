//! Integers of typed functions that arrive as others than were sent.
//!
//! Owns which tool made a component, and which of its functions are looked at; what each tool changes is in a module of
//! its own. Must not refuse. Invariant: a component of another tool is named nothing.

use bulkhead_domain::exports::of_function;
use wasmparser::{KnownCustom, Parser, Payload};
use wit_parser::decoding::{DecodedWasm, decode};
use wit_parser::{Function, Resolve, World, WorldItem};

use crate::check::without_docs;
use crate::{componentize_js, componentize_py, interface};

/// What a tool changes of the types of one function, a sentence each.
type OfTypes = fn(&Resolve, &Function) -> Vec<String>;

/// What would come out wrong of a component, a sentence for each place.
pub(crate) fn of_component(component: &[u8]) -> Vec<String> {
    let Some(of_types) = of_maker(component) else { return Vec::new() };
    let Ok(DecodedWasm::Component(resolve, world)) = decode(&without_docs(component)) else { return Vec::new() };
    let Some(world) = resolve.worlds.get(world) else { return Vec::new() };
    let mut wrong = Vec::new();
    for (name, function) in functions(&resolve, world) {
        wrong.extend(of_types(&resolve, function).into_iter().map(|why| of_function(&name, why)));
    }
    wrong
}

/// The rules of the tool that made a component, if there are any.
fn of_maker(component: &[u8]) -> Option<OfTypes> {
    if is_produced_by(component, componentize_js::PRODUCER) {
        return Some(componentize_js::of_types);
    }
    let has_runtime = || component.windows(componentize_py::MODULE.len()).any(|bytes| bytes == componentize_py::MODULE);
    (is_produced_by(component, componentize_py::PRODUCER) && has_runtime()).then_some(componentize_py::of_types)
}

/// Whether a tool is among those that made a component.
fn is_produced_by(component: &[u8], tool: &str) -> bool {
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
        values.any(|value| value.name == tool)
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

/// The functions that a rule names, of one for each integer type in each place.
#[cfg(test)]
pub(crate) fn in_every_place(of_types: OfTypes) -> Vec<String> {
    let integers = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64", "f32", "f64", "bool", "char", "string"];
    let places = [
        ("bare", "{}"),
        ("alias", "alias-{}"),
        ("option", "option<{}>"),
        ("record", "record-{}"),
        ("two", "two-{}"),
        ("list", "list<{}>"),
        ("lists", "option<list<list<{}>>>"),
        ("listed", "list<record-{}>"),
        ("list-of-alias", "list<alias-{}>"),
        ("result", "result<{}>"),
        ("result-list", "result<_, list<{}>>"),
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
    let mut wrong: Vec<_> = wrong.map(|(_, function)| function.name.clone()).collect();
    wrong.sort_unstable();
    wrong
}

#[cfg(test)]
mod tests {
    use super::{componentize_py, of_maker};

    /// A component that says so much of what made it.
    fn made_by(tool: &str, module: &[u8]) -> Vec<u8> {
        let text = |text: &[u8]| [&[u8::try_from(text.len()).unwrap()], text].concat();
        let section = |bytes: Vec<u8>| [&[0, u8::try_from(bytes.len()).unwrap()], &*bytes].concat();
        let processed = [&[1], &*text(b"processed-by"), &[1], &text(tool.as_bytes()), &text(b"0.23.0")].concat();
        let producers = section([text(b"producers"), processed].concat());
        let named = section([text(b"other"), module.to_vec()].concat());
        [wat::parse_str("(component)").unwrap(), producers, named].concat()
    }

    #[test]
    fn maker_of_a_component_is_read_among_its_producers() {
        let is_known = |component: &[u8]| of_maker(component).is_some();
        assert!(is_known(&made_by("ComponentizeJS", b"")));
        assert!(is_known(&made_by("component-init-transform", componentize_py::MODULE)));
        for other in [
            made_by("wit-component", componentize_py::MODULE),
            made_by("component-init-transform", b""),
            wat::parse_str("(component)").unwrap(),
            b"no component".to_vec(),
        ] {
            assert!(!is_known(&other));
        }
    }
}
