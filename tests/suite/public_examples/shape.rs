//! What a component imports and exports, in lines that can be compared with those that were recorded of an original.

use std::collections::BTreeSet;

use wit_parser::decoding::{DecodedWasm, decode};
use wit_parser::{Function, Handle, Resolve, Type, TypeDefKind, WorldItem};

/// What the languages' own libraries need, whatever a component does. The lists need not name it.
const OF_TOOLCHAINS: [&str; 6] =
    ["wasi:cli/", "wasi:clocks/", "wasi:filesystem/", "wasi:io/", "wasi:random/", "wasi:sockets/"];
/// Exported by every component of componentize-py, for the component itself.
const OF_COMPONENTIZE_PY: &str = "exports: ";

#[derive(Debug, Default)]
pub(super) struct Shape {
    imports: BTreeSet<String>,
    /// Functions with their types.
    exports: BTreeSet<String>,
}

impl Shape {
    /// Reads a list: `import`, `toolchain` (imported by the original as well, but not by its own source) and `export`.
    pub(super) fn recorded(text: &str) -> Self {
        let mut shape = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            match line.split_once(' ') {
                Some(("import", name)) => shape.imports.insert(plain(name)),
                Some(("export", function)) => shape.exports.insert(plain(function)),
                Some(("toolchain", name)) if is_of_toolchains(&plain(name)) => true,
                _ => panic!("{line:?} is no line of a list"),
            };
        }
        shape
    }

    pub(super) fn of(component: &[u8]) -> Self {
        // Descriptions are of the author's package; a reader of types takes them for those of the package that it makes
        // up.
        let name = b"package-docs";
        let mut bytes = component.to_vec();
        let places: Vec<_> =
            (0..bytes.len().saturating_sub(name.len())).filter(|at| bytes[*at..].starts_with(name)).collect();
        places.into_iter().for_each(|at| bytes[at] = b'-');
        let Ok(DecodedWasm::Component(resolve, world)) = decode(&bytes) else { panic!("this is no component") };
        let world = &resolve.worlds[world];
        let mut shape = Self::default();
        shape.imports.extend(world.imports.keys().map(|key| plain(&resolve.name_world_key(key))));
        for (key, item) in &world.exports {
            let name = resolve.name_world_key(key);
            match item {
                WorldItem::Function(function) => {
                    shape.exports.insert(plain(&format!("{name}: {}", signature(&resolve, function))));
                }
                WorldItem::Interface { id, .. } => {
                    let functions = resolve.interfaces[*id].functions.values();
                    let lines = functions
                        .map(|function| format!("{name}: {}: {}", function.name, signature(&resolve, function)));
                    shape.exports.extend(lines.map(|line| plain(&line)));
                }
                WorldItem::Type { .. } => {}
            }
        }
        shape.exports.retain(|line| !line.starts_with(OF_COMPONENTIZE_PY));
        shape
    }

    /// What of this one is not as it was recorded; a sentence for each.
    pub(super) fn differences(&self, recorded: &Self) -> Vec<String> {
        let missing = recorded.imports.difference(&self.imports).map(|name| format!("it does not import {name}"));
        let more = self.imports.difference(&recorded.imports).filter(|name| !is_of_toolchains(name));
        let more = more.map(|name| format!("it imports {name}"));
        let other = self.exports.symmetric_difference(&recorded.exports).map(|line| format!("export {line}"));
        missing.chain(more).chain(other).collect()
    }
}

fn is_of_toolchains(name: &str) -> bool {
    name.ends_with("@0.2") && OF_TOOLCHAINS.iter().any(|package| name.starts_with(package))
}

/// The name with WASI 0.2 in any of its patches as `@0.2`: a component of one runs where another is offered.
fn plain(line: &str) -> String {
    let (name, rest) = match line.split_once(": ") {
        Some((name, rest)) => (name, format!(": {rest}")),
        None => (line, String::new()),
    };
    match name.split_once("@0.2.") {
        Some((name, patch)) if name.starts_with("wasi:") && patch.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{name}@0.2{rest}")
        }
        _ => line.to_owned(),
    }
}

fn signature(resolve: &Resolve, function: &Function) -> String {
    let params = function.params.iter().map(|param| format!("{}: {}", param.name, text(resolve, param.ty)));
    let result = function.result.map(|result| format!(" -> {}", text(resolve, result)));
    format!("func({}){}", params.collect::<Vec<_>>().join(", "), result.unwrap_or_default())
}

/// A type by its name, if it has one.
fn text(resolve: &Resolve, ty: Type) -> String {
    let Type::Id(id) = ty else { return format!("{ty:?}").to_lowercase() };
    let definition = &resolve.types[id];
    if let Some(name) = &definition.name {
        return name.clone();
    }
    let one = |ty: &Type| text(resolve, *ty);
    match &definition.kind {
        TypeDefKind::List(ty) => format!("list<{}>", one(ty)),
        TypeDefKind::Option(ty) => format!("option<{}>", one(ty)),
        TypeDefKind::Tuple(tuple) => format!("tuple<{}>", tuple.types.iter().map(one).collect::<Vec<_>>().join(", ")),
        TypeDefKind::Result(result) => match (&result.ok, &result.err) {
            (None, None) => "result".to_owned(),
            (Some(ok), None) => format!("result<{}>", one(ok)),
            (ok, Some(err)) => format!("result<{}, {}>", ok.as_ref().map_or_else(|| "_".to_owned(), one), one(err)),
        },
        TypeDefKind::Handle(Handle::Own(id)) => format!("own<{}>", text(resolve, Type::Id(*id))),
        TypeDefKind::Handle(Handle::Borrow(id)) => format!("borrow<{}>", text(resolve, Type::Id(*id))),
        TypeDefKind::Type(ty) => one(ty),
        other => other.as_str().to_owned(),
    }
}

#[test]
fn other_imports_and_exports_than_recorded_are_told() {
    let recorded = |text: &str| Shape::recorded(text);
    let original =
        recorded("# x\nimport wasi:http/types@0.2.0\ntoolchain wasi:io/poll@0.2.3\nexport a: func()\nexport b: func()");
    let same = recorded("import wasi:http/types@0.2.10\nimport wasi:io/poll@0.2.1\nexport b: func()\nexport a: func()");
    assert_eq!(same.differences(&original), Vec::<String>::new());
    let other = recorded("import wasi:http/types@0.3.0\nimport acme:x/y\nexport a: func(x: u8)\nexport b: func()");
    assert_eq!(
        other.differences(&original),
        [
            "it does not import wasi:http/types@0.2",
            "it imports acme:x/y",
            "it imports wasi:http/types@0.3.0",
            "export a: func()",
            "export a: func(x: u8)"
        ]
    );
}
