//! Several components made into one: what one imports and another exports is connected inside of it.
//!
//! Owns which export satisfies which import. Must not fetch or trust anything: it gets bytes and gives bytes, which are
//! a component like any other. Invariant: the same components in the same order are the same bytes; every component has
//! a use; an import that the host cannot bring is refused by its name; what a component is made of is counted before
//! anything reads it as a whole.

use std::panic::{AssertUnwindSafe, catch_unwind};

use wac_graph::types::{Package, are_semver_compatible};
use wac_graph::{CompositionGraph, EncodeOptions, InstantiationArgumentError, NodeId, PackageId};

use super::compile::bounds;
use super::manifest;
use super::read::{COMPONENT_BYTES_MAX, check_kind};
use super::wasi_needs::has_plain_types;
use bulkhead_domain::text::{beginning, escaped};

/// Components of one plugin.
pub const COMPOSED_MAX: usize = 16;

/// Names in one message; more are left out.
const NAMED_MAX: usize = 8;
/// Bytes of a name in a message.
const SHOWN_BYTES_MAX: usize = 128;
/// Things that are said to be wrong at once.
const PROBLEMS_MAX: usize = 16;
/// Imports of one component, and its exports. Each import is looked for among the exports of every component behind it.
const NAMES_MAX: usize = 1_000;
/// Functions of one component: more than an operator lets be compiled by default.
const FUNCTIONS_MAX: u32 = 1_000_000;

/// What the host brings, or will refuse in its own words.
const OF_THE_HOST: [&str; 2] = ["wasi:", "bulkhead:plugin/"];

/// One component on its way into another one.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// For messages: its file or address.
    pub name: &'a str,
    pub bytes: &'a [u8],
}

/// Makes one component of several. It exports what the first one exports; each may import what those behind it export,
/// and where two export the same, the nearest one counts.
///
/// # Errors
///
/// Everything that is wrong, each with the name of the component.
pub fn compose(parts: &[Part<'_>]) -> Result<Vec<u8>, Vec<String>> {
    let mut problems = Vec::new();
    if parts.len() > COMPOSED_MAX {
        problems.push(format!("{} components; {COMPOSED_MAX} is the most", parts.len()));
    }
    let size: usize = parts.iter().map(|part| part.bytes.len()).sum();
    if size as u64 > COMPONENT_BYTES_MAX {
        problems.push(format!("{size} bytes together; a component has at most {COMPONENT_BYTES_MAX}"));
    }
    for part in parts {
        let checked = check_kind(part.bytes).and_then(|()| check_size(part.bytes));
        problems.extend(checked.err().map(|wrong| format!("{}: {}", part.name, escaped(&wrong))));
    }
    let manifest = manifest_of(parts).map_err(|wrong| problems.push(wrong));
    let (true, Ok(manifest)) = (problems.is_empty(), manifest) else { return Err(problems) };
    // The library gives up on what it does not know.
    let composed = catch_unwind(AssertUnwindSafe(|| Composition::of(parts).and_then(Composition::encode)));
    let composed =
        composed.unwrap_or_else(|_| Err(vec!["their types are of a kind that cannot be composed".to_owned()]))?;
    Ok(match manifest {
        Some(manifest) => manifest::put_first(&composed, &manifest),
        None => composed,
    })
}

/// The library reads a component inside the host, with types inside types one below another on its stack.
fn check_size(component: &[u8]) -> Result<(), String> {
    bounds::check(component, FUNCTIONS_MAX)?;
    if !has_plain_types(component) {
        return Err("its types are too many, or lie too deep in each other, for composing it".to_owned());
    }
    Ok(())
}

/// The manifest of the whole is that of the first component. The host would otherwise take one that it finds inside for
/// it.
fn manifest_of(parts: &[Part<'_>]) -> Result<Option<String>, String> {
    let read = |part: &Part<'_>| manifest::manifest(part.bytes).map_err(|wrong| format!("{}: {wrong}", part.name));
    let Some((first, others)) = parts.split_first() else { return Ok(None) };
    if let Some(manifest) = read(first)? {
        return Ok(Some(manifest.text));
    }
    for other in others {
        if read(other)?.is_some() {
            let first = first.name;
            let other = other.name;
            return Err(format!(
                "{other} has a manifest and {first} has none: the manifest of a composed plugin is that of its first component"
            ));
        }
    }
    Ok(None)
}

struct Composition<'a> {
    graph: CompositionGraph,
    members: Vec<Member<'a>>,
}

/// One component in the graph.
struct Member<'a> {
    name: &'a str,
    package: PackageId,
    instance: NodeId,
    is_used: bool,
}

impl<'a> Composition<'a> {
    fn of(parts: &[Part<'a>]) -> Result<Self, Vec<String>> {
        let mut graph = CompositionGraph::new();
        let mut members = Vec::new();
        for (at, part) in parts.iter().enumerate() {
            let wrong = |error: String| vec![format!("{}: {}", part.name, escaped(&error))];
            // Names of files stay out of it: the same components are the same bytes wherever they are.
            let package = Package::from_bytes(&format!("part:{at}"), None, part.bytes, graph.types_mut());
            let package = package.map_err(|error| wrong(format!("{error:#}")))?;
            let package = graph.register_package(package).map_err(|error| wrong(error.to_string()))?;
            let world = &graph.types()[graph[package].ty()];
            for (names, what) in [(world.imports.len(), "imports"), (world.exports.len(), "exports")] {
                if names > NAMES_MAX {
                    return Err(wrong(format!("it has {names} {what}; {NAMES_MAX} is the most for composing it")));
                }
            }
            let instance = graph.instantiate(package);
            members.push(Member { name: part.name, package, instance, is_used: at == 0 });
        }
        let mut composition = Self { graph, members };
        composition.connect()?;
        Ok(composition)
    }

    /// Satisfies what can be satisfied, and refuses what nobody brings and what nobody needs.
    fn connect(&mut self) -> Result<(), Vec<String>> {
        let mut problems = Vec::new();
        for at in 0..self.members.len() {
            for import in self.imports(at) {
                match self.provider(at, &import) {
                    Some((provider, export)) => {
                        problems.extend(self.satisfy(at, &import, provider, &export).err());
                    }
                    None if OF_THE_HOST.iter().any(|known| import.starts_with(known)) => {}
                    None => problems.push(self.unsatisfied(at, &import)),
                }
            }
        }
        for at in 1..self.members.len() {
            problems.extend(self.unused(at));
        }
        problems.truncate(PROBLEMS_MAX);
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    fn imports(&self, at: usize) -> Vec<String> {
        let world = self.members.get(at).map(|member| &self.graph.types()[self.graph[member.package].ty()]);
        world.map(|world| world.imports.keys().cloned().collect()).unwrap_or_default()
    }

    fn exports(&self, at: usize) -> Vec<String> {
        let world = self.members.get(at).map(|member| &self.graph.types()[self.graph[member.package].ty()]);
        world.map(|world| world.exports.keys().cloned().collect()).unwrap_or_default()
    }

    /// The nearest component behind this one that exports what it imports, with the name that the export has there.
    fn provider(&self, at: usize, import: &str) -> Option<(usize, String)> {
        (at + 1..self.members.len()).find_map(|behind| Some((behind, self.export_like(behind, import)?)))
    }

    fn export_like(&self, at: usize, import: &str) -> Option<String> {
        let exports = self.exports(at);
        let same = exports.iter().find(|export| *export == import);
        same.or_else(|| exports.iter().find(|export| are_semver_compatible(export, import))).cloned()
    }

    fn satisfy(&mut self, at: usize, import: &str, provider: usize, export: &str) -> Result<(), String> {
        let Self { graph, members } = self;
        let Ok([importer, provider]) = members.get_disjoint_mut([at, provider]) else { return Ok(()) };
        provider.is_used = true;
        let mut connect = || -> Result<(), String> {
            let export = graph.alias_instance_export(provider.instance, export).map_err(|error| error.to_string())?;
            graph.set_instantiation_argument(importer.instance, import, export).map_err(|error| match error {
                InstantiationArgumentError::ArgumentTypeMismatch { source, .. } => format!("{source:#}"),
                other => other.to_string(),
            })
        };
        let wrong = |error: String| {
            let importer = importer.name;
            let provider = provider.name;
            let import = shown(import);
            format!("{importer} imports {import} with other types than {provider} exports it: {error}")
        };
        connect().map_err(|error| escaped(&wrong(error)))
    }

    fn unsatisfied(&self, at: usize, import: &str) -> String {
        let name = self.members.get(at).map_or("", |member| member.name);
        let before = (1..at).find(|before| self.export_like(*before, import).is_some());
        let hint = match before.and_then(|before| self.members.get(before)) {
            Some(before) => format!("; {} exports it, and has to stand behind {name}", before.name),
            None => String::new(),
        };
        let import = shown(import);
        escaped(&format!("{name} imports {import}, which no component behind it exports{hint}"))
    }

    fn unused(&self, at: usize) -> Option<String> {
        let member = self.members.get(at).filter(|member| !member.is_used)?;
        let known = |import: &String| OF_THE_HOST.iter().any(|known| import.starts_with(known));
        let wanted: Vec<_> = (0..at).flat_map(|before| self.imports(before)).filter(|import| !known(import)).collect();
        let exports = names(&self.exports(at));
        let wanted = names(&wanted);
        let name = member.name;
        Some(escaped(&format!(
            "{name} exports nothing that a component before it still needs: it exports {exports}; imported is {wanted}"
        )))
    }

    fn encode(mut self) -> Result<Vec<u8>, Vec<String>> {
        let wrong = |error: String| vec![escaped(&error)];
        let Some(first) = self.members.first().map(|member| member.instance) else { return Err(Vec::new()) };
        for export in self.exports(0) {
            let item = self.graph.alias_instance_export(first, &export).map_err(|error| wrong(error.to_string()))?;
            self.graph.export(item, &export).map_err(|error| wrong(error.to_string()))?;
        }
        // It is validated when it is compiled.
        let options = EncodeOptions { define_components: true, validate: false, processor: None };
        // With its causes, on one line.
        self.graph.encode(options).map_err(|error| wrong(format!("{:#}", wasmtime::Error::from(error))))
    }
}

/// The beginning of a name: it is the component's own choice.
fn shown(name: &str) -> &str {
    beginning(name, SHOWN_BYTES_MAX)
}

fn names(names: &[String]) -> String {
    let shown: Vec<_> = names.iter().take(NAMED_MAX).map(|name| shown(name)).collect();
    match shown.as_slice() {
        [] => "nothing".to_owned(),
        shown if shown.len() < names.len() => format!("{} and {} more", shown.join(", "), names.len() - shown.len()),
        shown => shown.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A component that imports and exports interfaces with one function each, of a number.
    fn component(imports: &[&str], exports: &[&str]) -> Vec<u8> {
        let imported: String = imports
            .iter()
            .map(|name| format!(r#"(import "{name}" (instance (export "f" (func (result u32)))))"#))
            .collect();
        let exported: String = exports
            .iter()
            .enumerate()
            .map(|(at, name)| {
                format!(
                    r#"(func $f{at} (result u32) (canon lift (core func $i "f")))
                    (instance $e{at} (export "f" (func $f{at})))
                    (export "{name}" (instance $e{at}))"#
                )
            })
            .collect();
        let module =
            r#"(core module $m (func (export "f") (result i32) (i32.const 7))) (core instance $i (instantiate $m))"#;
        wat::parse_str(format!("(component {imported} {module} {exported})")).unwrap()
    }

    fn composed(parts: &[(&str, &[u8])]) -> Result<Vec<u8>, String> {
        let parts: Vec<_> = parts.iter().map(|(name, bytes)| Part { name, bytes }).collect();
        compose(&parts).map_err(|problems| problems.join("\n"))
    }

    /// Names of imports and exports.
    fn shape(bytes: &[u8]) -> (Vec<String>, Vec<String>) {
        let mut graph = CompositionGraph::new();
        let package = Package::from_bytes("a:b", None, bytes, graph.types_mut()).unwrap();
        let world = &graph.types()[package.ty()];
        (world.imports.keys().cloned().collect(), world.exports.keys().cloned().collect())
    }

    #[test]
    fn composed_component_exports_the_first_and_imports_the_hosts() {
        let main = component(&["a:b/c@1.0.0", "wasi:x/y@0.2.0"], &["a:b/main"]);
        let middle = component(&["a:b/d"], &["a:b/c@1.0.3"]);
        let last = component(&[], &["a:b/d", "a:b/e"]);
        let bytes = composed(&[("main", &main), ("middle", &middle), ("last", &last)]).unwrap();
        assert_eq!(shape(&bytes), (vec!["wasi:x/y@0.2.0".to_owned()], vec!["a:b/main".to_owned()]));
        let elsewhere = composed(&[("/srv/main", &main), ("/srv/middle", &middle), ("/srv/last", &last)]).unwrap();
        assert_eq!(bytes, elsewhere, "names are no part of the bytes");
    }

    #[test]
    fn unsatisfied_import_is_named() {
        let main = component(&["a:b/c", "a:b/d"], &["a:b/main"]);
        let (c, needs_d) = (component(&[], &["a:b/c"]), component(&["a:b/d"], &["a:b/c"]));
        let wrong = composed(&[("main", &main), ("c", &c)]).unwrap_err();
        assert_eq!(wrong, "main imports a:b/d, which no component behind it exports");
        let d = component(&[], &["a:b/d"]);
        let wrong = composed(&[("main", &main), ("d", &d), ("needs_d", &needs_d)]).unwrap_err();
        assert!(
            wrong.contains("needs_d imports a:b/d") && wrong.contains("d exports it, and has to stand behind"),
            "{wrong}"
        );
    }

    #[test]
    fn component_without_a_use_is_refused() {
        let main = component(&["a:b/c"], &["a:b/main"]);
        let c = component(&[], &["a:b/c"]);
        let other = component(&[], &["x:y/z"]);
        let wrong = composed(&[("main", &main), ("c", &c), ("other", &other)]).unwrap_err();
        assert_eq!(
            wrong,
            "other exports nothing that a component before it still needs: it exports x:y/z; imported is a:b/c"
        );
    }

    #[test]
    fn export_of_another_type_is_refused_with_both_names() {
        let main = component(&["a:b/c"], &["a:b/main"]);
        let other = wat::parse_str(
            r#"(component
                (core module $m (func (export "f"))) (core instance $i (instantiate $m))
                (func $f (canon lift (core func $i "f"))) (instance $e (export "f" (func $f)))
                (export "a:b/c" (instance $e)))"#,
        );
        let wrong = composed(&[("main", &main), ("other", &other.unwrap())]).unwrap_err();
        assert!(wrong.starts_with("main imports a:b/c with other types than other exports it: "), "{wrong}");
    }

    #[test]
    fn manifest_of_the_first_component_is_that_of_the_whole() {
        let main = component(&["a:b/c"], &["a:b/main"]);
        let c = component(&[], &["a:b/c"]);
        let with = |bytes: &[u8], name: &str| manifest::put_first(bytes, &format!("name = {name:?}"));
        let bytes = composed(&[("main", &with(&main, "outer")), ("c", &with(&c, "inner"))]).unwrap();
        assert_eq!(manifest::manifest(&bytes).unwrap().unwrap().name.as_deref(), Some("outer"));
        let wrong = composed(&[("main", &main), ("c", &with(&c, "inner"))]).unwrap_err();
        assert!(wrong.contains("c has a manifest and main has none"), "{wrong}");
    }

    /// A component of one section of types.
    fn of_types(types: &[u8]) -> Vec<u8> {
        let mut bytes = b"\0asm\x0d\0\x01\0".to_vec();
        bytes.push(7);
        let mut length = types.len();
        while length >= 0x80 {
            bytes.push(length as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        bytes.extend(types);
        bytes
    }

    #[test]
    fn component_that_exhausts_its_reader_is_refused_before_it_is_read() {
        let main = component(&["a:b/c"], &["a:b/main"]);
        // One type that begins with one that begins with one: an instance type whose first declaration is a type.
        let deep: Vec<u8> = [1].into_iter().chain([0x42, 1, 1].repeat(300_000)).collect();
        let wide: Vec<u8> = [vec![0x80, 0x80, 0x40], vec![0x7f; 1 << 20]].concat();
        for (types, says) in [(deep, "deep in each other"), (wide, "types")] {
            let wrong = composed(&[("main", &main), ("hostile", &of_types(&types))]).unwrap_err();
            assert!(wrong.starts_with("hostile: ") && wrong.contains(says), "{wrong}");
        }
        let imports: String = (0..=NAMES_MAX).map(|at| format!("(import \"f{at}\" (func))")).collect();
        let many = wat::parse_str(format!("(component {imports})")).unwrap();
        let wrong = composed(&[("main", &main), ("many", &many)]).unwrap_err();
        assert_eq!(wrong, "many: it has 1001 imports; 1000 is the most for composing it");
    }

    #[test]
    fn problems_of_a_composition_are_few_and_short() {
        let long = format!("a:{}/b", "x".repeat(1_000));
        let names: Vec<_> = (0..100).map(|at| format!("a:b/i{at}")).chain([long]).collect();
        let main = component(&names.iter().map(String::as_str).collect::<Vec<_>>(), &["a:b/main"]);
        let wrong = composed(&[("main", &main), ("c", &component(&[], &["a:b/c"]))]).unwrap_err();
        assert_eq!(wrong.lines().count(), PROBLEMS_MAX);
        assert!(wrong.lines().all(|line| line.len() < 400), "{wrong}");
    }

    #[test]
    fn what_is_no_component_is_refused_by_name() {
        let module = wat::parse_str("(module)").unwrap();
        let main = component(&["a:b/c"], &["a:b/main"]);
        let wrong = composed(&[("main", &main), ("m", &module), ("t", b"text")]).unwrap_err();
        assert!(wrong.contains("m: this is a core module") && wrong.contains("t: this is not WebAssembly"), "{wrong}");
        let many: Vec<_> = (0..=COMPOSED_MAX).map(|_| ("main", main.as_slice())).collect();
        assert!(composed(&many).unwrap_err().contains("16 is the most"));
    }
}
