//! Exports that are no functions of the author's: they are for the programs that run or make a component.
//!
//! Owns how they are told apart, by name and by parameters alone. Invariant: nothing that is listed here is ever a
//! tool, and a function that is not listed is never left out.

use wasmtime::Engine;
use wasmtime::component::types::{ComponentInstance, ComponentItem};

/// Interfaces of this namespace are called by a host that runs programs or servers.
const PLATFORM: &str = "wasi:";

/// What such an interface makes of a component.
const KINDS: [(&str, &str); 3] = [
    ("wasi:cli/run", "a program for a command line"),
    ("wasi:http/incoming-handler", "an HTTP server"),
    ("wasi:http/handler", "an HTTP server"),
];

/// The interface with the function that componentize-py calls once, when it makes a component, and the parameters which
/// that function has in each of its versions.
const PYTHON: &str = "exports";
const PYTHON_START: (&str, [&str; 2]) = ("init", ["app-name", "symbols"]);

/// Whether an exported interface is no tool's.
pub(super) fn holds(engine: &Engine, name: &str, interface: &ComponentInstance) -> bool {
    name.starts_with(PLATFORM) || name == PYTHON && starts_python(engine, interface)
}

fn starts_python(engine: &Engine, interface: &ComponentInstance) -> bool {
    let (function, parameters) = PYTHON_START;
    let is_start = |item: &ComponentItem| match item {
        ComponentItem::ComponentFunc(ty) => ty.params().map(|(name, _)| name).take(2).eq(parameters),
        _ => false,
    };
    let functions = interface.exports(engine).filter(|(_, item)| matches!(item.ty, ComponentItem::ComponentFunc(_)));
    functions.map(|(name, item)| name == function && is_start(&item.ty)).eq([true])
}

/// Why a component with exports has no tools; the names are those of its exports.
pub(super) fn why_no_tools<'a>(exports: impl Iterator<Item = &'a str>) -> String {
    let platform: Vec<&str> = exports.filter(|name| name.starts_with(PLATFORM)).collect();
    let Some(first) = platform.first() else { return "it exports no functions".to_owned() };
    let kind = KINDS.iter().find_map(|(interface, kind)| {
        let export = platform.iter().find(|name| name.split('@').next() == Some(*interface))?;
        Some(format!("it is {kind} ({export}), which this host does not run"))
    });
    let kind = kind.unwrap_or_else(|| format!("it exports {first} alone, which this host does not call"));
    format!("{kind}; export functions of an interface of your own, and each of them is a tool")
}
