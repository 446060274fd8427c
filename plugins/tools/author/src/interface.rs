//! The interface `bulkhead:plugin`, as this version has it, and how that of a component differs from it.

use std::collections::BTreeMap;

use wit_parser::{Function, Handle, InterfaceId, PackageId, Resolve, SourceMap, Type, TypeDefKind, TypeId};

use crate::sdk;

pub(crate) const PACKAGE: &str = "bulkhead:plugin/";
const VERSION: &str = "@0.1.0";

/// Which side of a component an interface is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// It may use some functions of the interface.
    Import,
    /// It must have all of them.
    Export,
}

/// What every plugin exports that speaks for itself.
pub(crate) fn tools() -> String {
    format!("{PACKAGE}tools{VERSION}")
}

/// How a component's interface of this name differs from ours; a sentence for each member.
pub(crate) fn differences(theirs: &Resolve, id: InterfaceId, name: &str, direction: Direction) -> Vec<String> {
    let verb = if direction == Direction::Import { "imports" } else { "exports" };
    let Some((ours, package)) = own() else { return vec!["the interface of this program cannot be read".to_owned()] };
    let own_name = name.strip_prefix(PACKAGE).and_then(|rest| rest.strip_suffix(VERSION));
    let our_id = own_name.and_then(|own_name| ours.packages.get(package)?.interfaces.get(own_name));
    let (Some(expected), Some(found)) = (our_id.and_then(|id| ours.interfaces.get(*id)), theirs.interfaces.get(id))
    else {
        let known = ours.packages.get(package).into_iter().flat_map(|package| package.interfaces.keys());
        let known: Vec<_> = known.map(|known| format!("{PACKAGE}{known}{VERSION}")).collect();
        return vec![format!("it {verb} {name}; expected one of {}", known.join(", "))];
    };
    let mut wrong = Vec::new();
    for (function, expected) in &expected.functions {
        let expected = Signature::of(&ours, expected);
        match found.functions.get(function).map(|found| Signature::of(theirs, found)) {
            Some(found) => wrong.extend(expected.difference(&found).map(|why| format!("{name}: `{function}`: {why}"))),
            None if direction == Direction::Export => {
                wrong.push(format!("{name}: `{function}` is not there; expected {}", expected.text));
            }
            None => {}
        }
    }
    for function in found.functions.keys().filter(|function| !expected.functions.contains_key(*function)) {
        if direction == Direction::Import {
            let known: Vec<_> = expected.functions.keys().map(String::as_str).collect();
            wrong.push(format!("it imports `{function}` of {name}; expected one of {}", known.join(", ")));
        }
    }
    wrong
}

fn own() -> Option<(Resolve, PackageId)> {
    let mut sources = SourceMap::new();
    for (path, text) in sdk::WIT {
        sources.push_str(path, *text);
    }
    let mut resolve = Resolve { all_features: true, ..Resolve::default() };
    let package = resolve.push_group(sources.parse().ok()?).ok()?;
    Some((resolve, package))
}

/// A function's types, comparable between two resolves.
struct Signature {
    text: String,
    /// What the named types in it are.
    types: BTreeMap<String, String>,
}

impl Signature {
    fn of(resolve: &Resolve, function: &Function) -> Self {
        let mut types = BTreeMap::new();
        let params =
            function.params.iter().map(|param| format!("{}: {}", param.name, text(resolve, param.ty, &mut types)));
        let params = params.collect::<Vec<_>>().join(", ");
        let result = function.result.map(|result| format!(" -> {}", text(resolve, result, &mut types)));
        Self { text: format!("func({params}){}", result.unwrap_or_default()), types }
    }

    fn difference(&self, found: &Self) -> Option<String> {
        if self.text != found.text {
            return Some(format!("expected {}, found {}", self.text, found.text));
        }
        let (name, expected) = self.types.iter().find(|(name, expected)| found.types.get(*name) != Some(expected))?;
        let found = found.types.get(name).map_or("nothing of that name", String::as_str);
        Some(format!("its type `{name}`: expected {expected}, found {found}"))
    }
}

/// A type as a function names it. What its names stand for goes into `types`.
fn text(resolve: &Resolve, ty: Type, types: &mut BTreeMap<String, String>) -> String {
    let Type::Id(id) = ty else { return format!("{ty:?}").to_lowercase() };
    named(resolve, id, types)
}

fn named(resolve: &Resolve, id: TypeId, types: &mut BTreeMap<String, String>) -> String {
    let Some(definition) = resolve.types.get(id) else { return String::new() };
    if let TypeDefKind::Type(other) = definition.kind {
        return text(resolve, other, types);
    }
    let Some(name) = &definition.name else { return structure(resolve, &definition.kind, types) };
    if !types.contains_key(name) {
        types.insert(name.clone(), String::new());
        let structure = structure(resolve, &definition.kind, types);
        types.insert(name.clone(), structure);
    }
    name.clone()
}

fn structure(resolve: &Resolve, kind: &TypeDefKind, types: &mut BTreeMap<String, String>) -> String {
    let mut one = |ty: Type| text(resolve, ty, types);
    let optional = |ty: Option<String>| ty.unwrap_or_else(|| "_".to_owned());
    match kind {
        TypeDefKind::Record(record) => {
            let fields = record.fields.iter().map(|field| format!("{}: {}", field.name, one(field.ty)));
            format!("record {{ {} }}", fields.collect::<Vec<_>>().join(", "))
        }
        TypeDefKind::Variant(variant) => {
            let cases = variant.cases.iter().map(|case| match case.ty {
                Some(ty) => format!("{}({})", case.name, one(ty)),
                None => case.name.clone(),
            });
            format!("variant {{ {} }}", cases.collect::<Vec<_>>().join(", "))
        }
        TypeDefKind::Enum(list) => {
            let cases: Vec<_> = list.cases.iter().map(|case| case.name.as_str()).collect();
            format!("enum {{ {} }}", cases.join(", "))
        }
        TypeDefKind::Flags(list) => {
            let flags: Vec<_> = list.flags.iter().map(|flag| flag.name.as_str()).collect();
            format!("flags {{ {} }}", flags.join(", "))
        }
        TypeDefKind::Tuple(tuple) => {
            format!("tuple<{}>", tuple.types.iter().map(|ty| one(*ty)).collect::<Vec<_>>().join(", "))
        }
        TypeDefKind::Option(ty) => format!("option<{}>", one(*ty)),
        TypeDefKind::List(ty) => format!("list<{}>", one(*ty)),
        TypeDefKind::Result(result) => {
            let ok = result.ok.map(&mut one);
            let err = result.err.map(&mut one);
            format!("result<{}, {}>", optional(ok), optional(err))
        }
        TypeDefKind::Handle(Handle::Own(id)) => format!("own<{}>", named(resolve, *id, types)),
        TypeDefKind::Handle(Handle::Borrow(id)) => format!("borrow<{}>", named(resolve, *id, types)),
        other => other.as_str().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_interface_is_read_whole_and_equals_itself() {
        let (resolve, package) = own().unwrap();
        let interfaces = &resolve.packages[package].interfaces;
        for name in ["completions", "config", "keyvalue", "prompts", "resources", "task", "tools", "types"] {
            let id = interfaces[name];
            let full = resolve.id_of(id).unwrap();
            assert_eq!(full, format!("{PACKAGE}{name}{VERSION}"));
            assert_eq!(differences(&resolve, id, &full, Direction::Export), Vec::<String>::new());
        }
        assert_eq!(tools(), resolve.id_of(interfaces["tools"]).unwrap());
    }

    #[test]
    fn a_changed_type_is_named_with_what_is_expected() {
        let (mut resolve, package) = own().unwrap();
        let tools = resolve.packages[package].interfaces["tools"];
        let output = resolve.interfaces[tools].types["tool-output"];
        let TypeDefKind::Record(record) = &mut resolve.types[output].kind else { panic!("it is a record") };
        record.fields.pop();
        let wrong = differences(&resolve, tools, &super::tools(), Direction::Export);
        assert!(
            wrong.len() == 1 && wrong[0].contains("`call-tool`: its type `tool-output`: expected record {"),
            "{wrong:?}"
        );
    }
}
