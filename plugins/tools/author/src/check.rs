//! What can be said of a component without running it.
//!
//! Owns the rules about manifests, imports and exports that need no engine. Must not decide for a host: what passes
//! here may be refused there, for what its tools say or do. Invariant: what is refused here, a host refuses as well.

use toml::{Table, Value};
use wasmparser::{Parser, Payload, Validator, WasmFeatures};
use wit_parser::decoding::{DecodedWasm, decode};
use wit_parser::{PackageMetadata, Resolve, TypeDefKind, TypeId, World, WorldItem, WorldKey};

use bulkhead_domain::imports;

use crate::interface::{self, Direction};
use crate::{functions, manifest, project, wrong_integers};

/// Bytes of a component and of its manifest that a host reads.
const COMPONENT_BYTES_MAX: usize = 128 << 20;
const MANIFEST_BYTES_MAX: usize = 64 << 10;
/// What a manifest may wish for in `[call]`.
pub const CALL_KEYS: [&str; 7] =
    ["cpu_ms", "wall_ms", "memory_bytes", "arguments_bytes", "result_bytes", "log_bytes", "events_per_second"];

/// What the first bytes of a file say that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Component,
    Module,
    /// With a sentence for the author.
    Unknown(&'static str),
}

impl Kind {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        match bytes.first_chunk::<8>() {
            Some(b"\0asm\x0d\0\x01\0") => Self::Component,
            Some(b"\0asm\x01\0\0\0") => Self::Module,
            Some([b'\0', b'a', b's', b'm', ..]) => Self::Unknown(
                "this is WebAssembly of a version that is not known here; expected a component or a core module",
            ),
            _ => Self::Unknown("this is not WebAssembly; expected a component or a core module"),
        }
    }
}

/// What was found.
#[derive(Debug, Default)]
pub struct Findings {
    /// What its manifest calls it.
    pub name: Option<String>,
    pub imports: Vec<String>,
    pub exports: Vec<String>,
    /// Why every host refuses it.
    pub refused: Vec<String>,
    /// What its users would miss.
    pub warnings: Vec<String>,
}

/// Looks at a component.
pub fn check(component: &[u8]) -> Findings {
    let mut findings = Findings::default();
    match Kind::of(component) {
        Kind::Component => {}
        Kind::Module => {
            findings.refused.push(
                "this is a core module; expected a component: `bulkhead plugin wrap` or `wasm-tools component new` makes one"
                    .to_owned(),
            );
            return findings;
        }
        Kind::Unknown(what) => {
            findings.refused.push(what.to_owned());
            return findings;
        }
    }
    if component.len() > COMPONENT_BYTES_MAX {
        findings.refused.push(format!("it has {} bytes; {COMPONENT_BYTES_MAX} is the most", component.len()));
        return findings;
    }
    if let Err(error) = Validator::new_with_features(WasmFeatures::all()).validate_all(component) {
        findings.refused.push(format!("it is not a valid component: {} (at byte {})", error.message(), error.offset()));
        return findings;
    }
    of_world(component, &mut findings);
    findings.warnings.extend(self::wrong_integers(component));
    match manifest_of(component) {
        Some(Ok(text)) => {
            findings.refused.extend(manifest(&text).err().into_iter().flatten());
            findings.name = manifest::name(&text).ok().flatten();
            findings.warnings.extend(manifest_warnings(Some(&text), &findings.imports));
        }
        Some(Err(wrong)) => findings.refused.push(wrong),
        None => findings.warnings.extend(manifest_warnings(None, &findings.imports)),
    }
    findings
}

/// The integers of its functions that arrive as others than were sent, for the tool that made it.
pub fn wrong_integers(component: &[u8]) -> Vec<String> {
    wrong_integers::of_component(component)
}

/// The text of the manifest that a component carries.
fn manifest_of(component: &[u8]) -> Option<Result<String, String>> {
    let mut payloads = Parser::new(0).parse_all(component).filter_map(Result::ok);
    let data = payloads.find_map(|payload| match payload {
        Payload::CustomSection(section) if section.name() == manifest::SECTION => Some(section.data()),
        _ => None,
    })?;
    if data.len() > MANIFEST_BYTES_MAX {
        return Some(Err(format!("its manifest has {} bytes; {MANIFEST_BYTES_MAX} is the most", data.len())));
    }
    Some(String::from_utf8(data.to_vec()).map_err(|_| "its manifest is not UTF-8".to_owned()))
}

/// The component with its section of descriptions under another name. They are of the author's package, and a reader of
/// types takes them for those of the package that it makes up for a component.
pub(crate) fn without_docs(component: &[u8]) -> Vec<u8> {
    let mut bytes = component.to_vec();
    for payload in Parser::new(0).parse_all(component).filter_map(Result::ok) {
        if let Payload::CustomSection(section) = payload
            && section.name() == PackageMetadata::SECTION_NAME
            && let Some(begin) = section.data_offset().checked_sub(section.name().len())
            && let Some(letter) = bytes.get_mut(begin)
        {
            *letter = b'-';
        }
    }
    bytes
}

fn of_world(component: &[u8], findings: &mut Findings) {
    let (resolve, world) = match decode(&without_docs(component)) {
        Ok(DecodedWasm::Component(resolve, world)) => (resolve, world),
        Ok(DecodedWasm::WitPackage(..)) => {
            findings.refused.push("this is a WIT package in binary form; expected a component".to_owned());
            return;
        }
        Err(error) => {
            findings.refused.push(format!("its imports and exports cannot be read: {error:#}"));
            return;
        }
    };
    let Some(world) = resolve.worlds.get(world) else { return };
    let mut required = Vec::new();
    for (key, item) in &world.imports {
        let name = resolve.name_world_key(key);
        match key {
            WorldKey::Interface(id) if name.starts_with(interface::PACKAGE) => {
                findings.refused.extend(interface::differences(&resolve, *id, &name, Direction::Import));
            }
            _ if is_of_types_alone(&resolve, item) => {}
            _ => required.push(name.clone()),
        }
        findings.imports.push(name);
    }
    findings.refused.extend(imports::refusals(required.iter().map(String::as_str)));
    let absent = required.iter().filter(|import| imports::is_absent_release(import));
    findings.refused.extend(absent.map(|import| imports::refusal(import)));
    for (key, item) in &world.exports {
        let name = resolve.name_world_key(key);
        if let (WorldKey::Interface(id), true) = (key, name.starts_with(interface::PACKAGE)) {
            findings.refused.extend(interface::differences(&resolve, *id, &name, Direction::Export));
        }
        if let WorldItem::Interface { .. } | WorldItem::Function(_) = item {
            findings.exports.push(name);
        }
    }
    if let Some(reason) = of_wasi_03(&resolve, world, &findings.imports) {
        findings.warnings.push(format!(
            "it needs WASI 0.3 ({reason}), which is experimental: a host refuses it until the operator allows it with wasi = \"0.3\" in its \
             [[plugin]]"
        ));
    }
    let is_ours = findings.exports.iter().any(|export| export.starts_with(interface::PACKAGE));
    if is_ours && !findings.exports.iter().any(|export| *export == interface::tools()) {
        findings.refused.push(format!("it does not export {}, which every plugin needs", interface::tools()));
    }
    if !is_ours {
        functions::check(&resolve, world, findings);
    }
    if findings.exports.is_empty() {
        findings.refused.push(format!(
            "it exports nothing; expected {}, or functions of its own, which become its tools",
            interface::tools()
        ));
    }
}

/// What a component needs of WASI 0.3, if anything.
fn of_wasi_03(resolve: &Resolve, world: &World, imports: &[String]) -> Option<String> {
    let imported = imports.iter().find(|import| import.starts_with("wasi:") && import.contains("@0.3."));
    let functions = |(_, item): (_, &WorldItem)| match item {
        WorldItem::Function(function) => function.kind.is_async(),
        WorldItem::Interface { id, .. } => resolve
            .interfaces
            .get(*id)
            .is_some_and(|interface| interface.functions.values().any(|function| function.kind.is_async())),
        WorldItem::Type { .. } => false,
    };
    let is_async = || world.imports.iter().chain(&world.exports).any(functions);
    match imported {
        Some(import) => Some(format!("it imports {import}")),
        None => is_async().then(|| "it has asynchronous functions".to_owned()),
    }
}

/// Types need nobody who has them: only functions and resources do.
fn is_of_types_alone(resolve: &Resolve, item: &WorldItem) -> bool {
    let is_resource = |id: &TypeId| resolve.types.get(*id).is_none_or(|ty| matches!(ty.kind, TypeDefKind::Resource));
    match item {
        WorldItem::Type { .. } => true,
        WorldItem::Function(_) => false,
        WorldItem::Interface { id, .. } => resolve
            .interfaces
            .get(*id)
            .is_some_and(|interface| interface.functions.is_empty() && !interface.types.values().any(is_resource)),
    }
}

/// Checks a manifest.
///
/// # Errors
///
/// Everything that a host refuses in it, each with the key.
pub fn manifest(text: &str) -> Result<(), Vec<String>> {
    let table: Table = text
        .parse()
        .map_err(|error: toml::de::Error| vec![format!("the manifest is not TOML: {}", error.message())])?;
    let mut wrong = Vec::new();
    for key in ["name", "description"] {
        expect(&table, "", key, "a text", Value::is_str, &mut wrong);
    }
    if let Some(name) = table.get("name").and_then(Value::as_str).filter(|name| !project::is_plain(name)) {
        wrong.push(format!("`name` is {name:?}; expected 1 to 64 characters of [A-Za-z0-9_.-]"));
    }
    let empty = Table::new();
    for part in ["grants", "call"] {
        expect(&table, "", part, "a table", Value::is_table, &mut wrong);
    }
    let part = |key: &str| table.get(key).and_then(Value::as_table).unwrap_or(&empty);
    of_grants(part("grants"), &mut wrong);
    for key in CALL_KEYS {
        let is_count = |value: &Value| value.as_integer().is_some_and(|number| number >= 0);
        expect(part("call"), "call.", key, "a whole number that is not negative", is_count, &mut wrong);
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

fn of_grants(grants: &Table, wrong: &mut Vec<String>) {
    expect(grants, "grants.", "kv", "true or false", Value::is_bool, wrong);
    for key in ["http", "env", "directories"] {
        expect(grants, "grants.", key, "a list", Value::is_array, wrong);
    }
    let items = |key: &str| grants.get(key).and_then(Value::as_array).into_iter().flatten().enumerate();
    for (at, item) in items("env") {
        if !item.is_str() {
            wrong.push(format!("`grants.env[{at}]` is {item}; expected the name of a variable, or \"*\""));
        }
    }
    for (at, item) in items("http") {
        if !item.as_str().is_some_and(is_destination) {
            wrong.push(format!(
                "`grants.http[{at}]` is {item}; expected \"https://HOST[:PORT][/PATH]\", with methods before it (\"GET,HEAD \
                 https://HOST\") if it needs only those, or \"*\""
            ));
        }
    }
    for (at, item) in items("directories") {
        let guest = item.get("guest").and_then(Value::as_str);
        if !guest.is_some_and(|guest| guest.starts_with('/') && guest.split('/').all(|part| part != "..")) {
            wrong.push(format!(
                "`grants.directories[{at}]` is {item}; expected {{ guest = \"/PATH\" }}, an absolute path without \"..\""
            ));
        }
        let table = item.as_table().cloned().unwrap_or_default();
        for key in ["write", "optional"] {
            expect(&table, &format!("grants.directories[{at}]."), key, "true or false", Value::is_bool, wrong);
        }
    }
}

/// As far as it can be told without resolving anything.
fn is_destination(text: &str) -> bool {
    let url = text.trim().rsplit_once(' ').map_or(text.trim(), |(_, url)| url);
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    text == "*"
        || rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/') && !rest.contains(['@', '?', '#']))
}

fn expect(table: &Table, path: &str, key: &str, what: &str, is_it: impl Fn(&Value) -> bool, wrong: &mut Vec<String>) {
    if let Some(value) = table.get(key).filter(|value| !is_it(value)) {
        wrong.push(format!("`{path}{key}` is {value}; expected {what}"));
    }
}

/// What users and operators would miss in a manifest. `imports` are the component's.
pub fn manifest_warnings(text: Option<&str>, imports: &[String]) -> Vec<String> {
    let Some(table) = text.and_then(|text| text.parse::<Table>().ok()) else {
        let mut warnings =
            vec!["it carries no manifest: its name is the file's, and operators see no wishes".to_owned()];
        let usable = imports::usable_grants(imports.iter().map(String::as_str));
        if !usable.is_empty() {
            let usable: Vec<_> =
                usable.into_iter().map(|(grant, interface)| imports::grant_hint(grant, interface)).collect();
            warnings.push(format!(
                "what it needs can only be guessed from its imports, which can use: {}",
                usable.join(", ")
            ));
        }
        return warnings;
    };
    let mut warnings = Vec::new();
    let mut unknown = |path: &str, table: &Table, known: &[&str]| {
        for key in table.keys().filter(|key| !known.contains(&key.as_str())) {
            warnings.push(format!("the manifest has a key `{path}{key}` that nobody reads"));
        }
    };
    let empty = Table::new();
    let part = |key: &str| table.get(key).and_then(Value::as_table).unwrap_or(&empty);
    unknown("", &table, &["name", "description", "grants", "call"]);
    unknown("grants.", part("grants"), &["directories", "http", "env", "kv"]);
    unknown("call.", part("call"), &CALL_KEYS);
    if table.get("description").is_none() {
        warnings.push("the manifest has no description".to_owned());
    }
    let asks_for_http = part("grants").get("http").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    let imports_http = imports.iter().any(|import| import.starts_with("wasi:http/outgoing-handler"));
    if imports_http && !asks_for_http {
        warnings.push(
            "it can make HTTP requests, but its manifest names no destination in grants.http, so it gets none"
                .to_owned(),
        );
    }
    let imports_kv = imports.iter().any(|import| import.starts_with("wasi:keyvalue/"));
    if imports_kv && part("grants").get("kv").and_then(Value::as_bool) != Some(true) {
        warnings.push(
            "it imports wasi:keyvalue, but its manifest does not say grants.kv = true, so every call of it is denied"
                .to_owned(),
        );
    }
    warnings
}

/// What is said of an own function of a component that is no tool.
pub fn left_out(function: &str) -> String {
    format!("left out: {function}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(wat: &str) -> Findings {
        check(&wat::parse_str(wat).unwrap())
    }

    #[test]
    fn what_is_no_component_is_refused() {
        for (bytes, why) in [
            (b"\0asm\x01\0\0\0".as_slice(), "core module"),
            (b"#!/bin/sh\n", "not WebAssembly"),
            (b"\0asm\x02\0\0\0", "version"),
            (b"\0asm\x0d\0\x01\0\x01\x99", "not a valid component"),
            (b"\0asm\x0d\0\x01\0", "exports nothing"),
        ] {
            let refused = check(bytes).refused;
            assert!(refused.iter().any(|refused| refused.contains(why)), "{why}: {refused:?}");
        }
    }

    #[test]
    fn import_that_no_host_has_is_refused_by_its_name() {
        let of =
            |name: &str, body: &str| checked(&format!("(component (import \"{name}\" (instance {body})))")).refused;
        let import = |name: &str| of(name, "(export \"f\" (func))");
        for absent in
            ["wasi:nn/graph@0.2.0", "acme:secret/door@1.0.0", "wasi:http/incoming-handler@0.2.3", "wasi:io/poll@0.3.0"]
        {
            let refused = import(absent);
            assert!(refused.iter().any(|why| why.contains(&format!("it imports {absent}"))), "{refused:?}");
        }
        for offered in ["wasi:io/poll@0.2.3", "wasi:http/outgoing-handler@0.2.6"] {
            let refused = import(offered);
            assert!(!refused.iter().any(|why| why.contains("it imports")), "{offered}: {refused:?}");
        }
        let own = import("bulkhead:plugin/task@0.1.0");
        assert!(own.iter().any(|why| why.contains("it imports `f` of bulkhead:plugin/task@0.1.0")), "{own:?}");
        // Only types: there is nothing to be had.
        let types = of("prism:colour/types@1.2.0", "(type (enum \"red\")) (export \"hue\" (type (eq 0)))");
        assert!(!types.iter().any(|why| why.contains("it imports")), "{types:?}");
        let resource = of("prism:colour/brush@1.2.0", "(export \"brush\" (type (sub resource)))");
        assert!(resource.iter().any(|why| why.contains("it imports prism:colour/brush@1.2.0")), "{resource:?}");
    }

    #[test]
    fn what_needs_wasi_03_is_warned_about() {
        for (wat, reason) in [
            (
                "(import \"wasi:random/random@0.3.0\" (instance (export \"f\" (func))))",
                "it imports wasi:random/random@0.3.0",
            ),
            ("(import \"acme:weather/types@1.0.0\" (instance (export \"t\" (type (sub resource)))))", ""),
            (
                "(core module $m (func (export \"f\") (result i32) unreachable)
                    (func (export \"on\") (param i32 i32 i32) (result i32) unreachable))
                (core instance $i (instantiate $m))
                (func (export \"f\") async (canon lift (core func $i \"f\") async (callback (core func $i \"on\"))))",
                "it has asynchronous functions",
            ),
        ] {
            let findings = checked(&format!("(component {wat})"));
            let warned = findings.warnings.iter().find(|warning| warning.contains("wasi = \"0.3\""));
            assert_eq!(warned.is_some(), !reason.is_empty(), "{wat}: {findings:?}");
            assert!(warned.is_none_or(|warned| warned.contains(reason)), "{warned:?}");
        }
    }

    #[test]
    fn export_that_differs_from_the_interface_names_the_member_and_what_is_expected() {
        let refused = |body: &str| checked(&format!("(component {body})")).refused;
        let tools = refused("(instance $i) (export \"bulkhead:plugin/tools@0.1.0\" (instance $i))");
        assert!(
            tools
                .iter()
                .any(|why| why.contains("call-tool") && why.contains("expected") && why.contains("arguments: string")),
            "{tools:?}"
        );
        let later = refused("(instance $i) (export \"bulkhead:plugin/tools@0.9.0\" (instance $i))");
        assert!(later.iter().any(|why| why.contains("tools@0.9.0") && why.contains("tools@0.1.0")), "{later:?}");
        let alone = refused("(instance $i) (export \"bulkhead:plugin/prompts@0.1.0\" (instance $i))");
        assert!(alone.iter().any(|why| why.contains("does not export bulkhead:plugin/tools@0.1.0")), "{alone:?}");
    }

    #[test]
    fn manifest_with_wrong_members_names_each() {
        for (text, why) in [
            ("name = ", "not TOML"),
            ("name = 1", "`name` is 1; expected a text"),
            ("name = 'a b'", "`name` is \"a b\"; expected 1 to 64"),
            ("grants = 3", "`grants` is 3; expected a table"),
            ("[grants]\nkv = 'yes'", "`grants.kv` is \"yes\"; expected true or false"),
            ("[grants]\nhttp = ['ftp://a']", "`grants.http[0]` is \"ftp://a\"; expected \"https://"),
            ("[grants]\nenv = [1]", "`grants.env[0]` is 1; expected"),
            ("[grants]\ndirectories = [{ guest = '/data/../x' }]", "`grants.directories[0]`"),
            ("[call]\ncpu_ms = -1", "`call.cpu_ms` is -1; expected a whole number"),
        ] {
            let wrong = manifest(text).unwrap_err();
            assert!(wrong.iter().any(|wrong| wrong.contains(why)), "{text}: {wrong:?}");
        }
        let good = "name = 'a'\n[grants]\nhttp = ['GET https://a.org/v1', '*']\nenv = ['*']\nkv = true\n\
            directories = [{ guest = '/data', write = true }]\n[call]\ncpu_ms = 5";
        assert_eq!(manifest(good), Ok(()));
        assert_eq!(manifest_warnings(Some("x = 1"), &[]).len(), 2, "an unknown key, and no description");
        assert_eq!(manifest_warnings(None, &[]).len(), 1);
        let keeps = ["wasi:keyvalue/store@0.2.0-draft".to_owned()];
        let warnings = manifest_warnings(Some("description = 'x'"), &keeps);
        assert!(warnings.len() == 1 && warnings[0].contains("grants.kv = true"), "{warnings:?}");
        assert_eq!(manifest_warnings(Some("description = 'x'\ngrants.kv = true"), &keeps).len(), 0);
        let guessed = manifest_warnings(None, &keeps);
        assert!(guessed[1].ends_with("which can use: kv (it imports wasi:keyvalue/store)"), "{guessed:?}");
    }
}
