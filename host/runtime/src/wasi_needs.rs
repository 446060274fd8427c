//! Which WASI a component needs, read off its sections before anything is compiled.
//!
//! Owns the line between components of WASI 0.2, which every host takes, and those of WASI 0.3, which the operator
//! allows for each plugin. Must not judge whether a component is valid: what cannot be read here, the compiler refuses.
//! Invariants: a component passes as one of 0.2 only if it has nothing of 0.3 that this reader knows, and the engine of
//! 0.2 has none of it either; whatever a component is made of, reading it takes little memory and no deep stack, since
//! it is read inside the host.

use wasmparser::{
    CanonicalFunction, CanonicalOption, Chunk, ComponentAlias, ComponentDefinedType, ComponentExternalKind,
    ComponentInstance, ComponentOuterAliasKind, ComponentType, ComponentTypeDeclaration, ComponentTypeRef,
    InstanceTypeDeclaration, Parser, Payload,
};

use bulkhead_domain::text::{beginning, escaped};

/// The versions of WASI that a plugin may be written for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WasiVersion {
    #[default]
    V0_2,
    /// And 0.2 beside it, which most tools go on using for what 0.3 has as well.
    V0_3,
}

/// What the operator has to write.
const KEY: &str = "wasi = \"0.3\"";

/// Interfaces of WASI 0.3 that a plugin may import, as they begin.
const OFFERED: [&str; 5] = ["wasi:cli/", "wasi:clocks/", "wasi:http/", "wasi:random/", "wasi:sockets/"];

/// Component instances of one call that can be asleep in the middle of a function, each on a stack of its own. Stops a
/// component of many parts from taking the stacks of other calls.
pub(super) const PARTS_MAX: u64 = 6;

/// Components inside components that are looked into; the compiler takes fewer.
const NESTING_MAX: usize = 32;
/// Components that one component can name. Stops a list of millions; the compiler takes fewer than 1024.
const COMPONENTS_MAX: usize = 4096;
/// Types inside types that are looked into. Stops the reader of types, which goes down into each, from using up its
/// stack.
const TYPE_NESTING_MAX: usize = 100;
/// Bytes of a section of types that are looked into; that of a large component has some ten thousand. Stops types that
/// take a hundred times their size while they are read.
const TYPES_BYTES_MAX: usize = 1 << 20;
/// Imports that are named in a refusal.
const ABSENT_MAX: usize = 16;

const ASYNCHRONOUS: &str = "it has asynchronous functions";

/// Bytes of an import's name in a message.
const SHOWN_BYTES_MAX: usize = 128;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WasiNeeds {
    /// The first thing of WASI 0.3 that was found.
    reason: Option<String>,
    /// Imports of WASI 0.3 that no plugin gets.
    absent: Vec<String>,
    /// Instances of components with functions in one instance of it. `None`: that cannot be told.
    parts: Option<u64>,
}

impl WasiNeeds {
    /// Reads them off a component.
    pub(super) fn of(component: &[u8]) -> Self {
        let mut reader = Reader::default();
        let whole = reader.read(component).is_some();
        // What it imports says more than what follows from that.
        let reason = reader.import.or(reader.other);
        Self { reason, absent: reader.absent, parts: reader.parts.filter(|_| whole) }
    }

    /// The version whose engine the component needs.
    ///
    /// # Errors
    ///
    /// The operator has not allowed it, or the host does not have what it needs.
    pub(super) fn version(&self, allowed: WasiVersion) -> Result<WasiVersion, Vec<String>> {
        let Some(reason) = &self.reason else { return Ok(WasiVersion::V0_2) };
        if allowed == WasiVersion::V0_2 {
            return Err(vec![format!(
                "it needs WASI 0.3 ({reason}), whose implementation is experimental: allow it with {KEY} in its [[plugin]], or build \
                 the component for WASI 0.2 (wasm32-wasip2, synchronous functions)"
            )]);
        }
        let mut problems = Vec::new();
        for import in &self.absent {
            problems.push(format!(
                "it imports {import}, which plugins of WASI 0.3 do not get: of 0.3 there are cli, clocks, http (client and types), random \
                 and sockets; files are those of wasi:filesystem@0.2"
            ));
        }
        match self.parts {
            Some(parts) if parts <= PARTS_MAX => {}
            Some(parts) => problems.push(format!(
                "it is composed of {parts} components that run; {PARTS_MAX} is the most for a plugin of WASI 0.3"
            )),
            None => problems.push(
                "it takes components from outside or is cut off, so that nobody can tell how many of them run, which a plugin of WASI \
                 0.3 must not"
                    .to_owned(),
            ),
        }
        if problems.is_empty() { Ok(WasiVersion::V0_3) } else { Err(problems) }
    }
}

/// Reads a component and those inside it.
#[derive(Default)]
struct Reader {
    /// The first import of WASI 0.3, and the first other thing.
    import: Option<String>,
    other: Option<String>,
    absent: Vec<String>,
    parts: Option<u64>,
}

/// A component that is being read.
#[derive(Default)]
struct Level {
    /// For each component that it can name, how many parts an instance of it has. `None`: unknown.
    components: Vec<Option<u64>>,
    /// Those of the components that it instantiates.
    within: Option<u64>,
    /// Whether it has functions of its own that run.
    runs: bool,
}

impl Level {
    fn new() -> Self {
        Self { within: Some(0), ..Self::default() }
    }

    /// One more component that it can name. `None`: those are too many.
    fn name(&mut self, parts: Option<u64>) -> Option<()> {
        (self.components.len() < COMPONENTS_MAX).then(|| self.components.push(parts))
    }

    fn parts(&self) -> Option<u64> {
        self.within.map(|within| within.saturating_add(u64::from(self.runs)))
    }
}

impl Reader {
    /// `None`: it cannot be read to its end.
    fn read(&mut self, component: &[u8]) -> Option<()> {
        let mut rest = component;
        let mut parsers = vec![Parser::new(0)];
        let mut levels = vec![Level::new()];
        while let Some(parser) = parsers.last_mut() {
            let Ok(Chunk::Parsed { consumed, payload }) = parser.parse(rest, true) else { return None };
            let (section, after) = rest.split_at_checked(consumed)?;
            rest = after;
            match payload {
                // What is in it, a component has to export or import first.
                Payload::ModuleSection { unchecked_range, .. } => {
                    rest = rest.get(unchecked_range.len()..)?;
                }
                Payload::ComponentSection { parser, .. } if parsers.len() < NESTING_MAX => {
                    parsers.push(parser);
                    levels.push(Level::new());
                }
                Payload::ComponentSection { .. } => return None,
                Payload::End(_) => {
                    parsers.pop();
                    let parts = levels.pop()?.parts();
                    match levels.last_mut() {
                        Some(outer) => outer.name(parts)?,
                        None => self.parts = parts,
                    }
                }
                Payload::ComponentTypeSection(types) => {
                    if is_easily_read(section) {
                        for ty in types {
                            self.ty(&ty.ok()?);
                        }
                    }
                }
                payload => self.section(payload, &mut levels)?,
            }
        }
        Some(())
    }

    fn section(&mut self, payload: Payload<'_>, levels: &mut [Level]) -> Option<()> {
        let is_root = levels.len() == 1;
        match payload {
            Payload::ComponentImportSection(imports) => {
                for import in imports {
                    let import = import.ok()?;
                    if is_root {
                        self.import(import.name.name);
                    }
                    if matches!(import.ty, ComponentTypeRef::Component(_)) {
                        levels.last_mut()?.name(None)?;
                    }
                }
            }
            Payload::ComponentCanonicalSection(functions) => {
                for function in functions {
                    let function = function.ok()?;
                    levels.last_mut()?.runs |= matches!(function, CanonicalFunction::Lift { .. });
                    self.function(&function);
                }
            }
            Payload::ComponentInstanceSection(instances) => {
                for instance in instances {
                    let ComponentInstance::Instantiate { component_index, .. } = instance.ok()? else { continue };
                    let level = levels.last_mut()?;
                    let parts = level.components.get(component_index as usize).copied().flatten();
                    level.within = level.within.zip(parts).map(|(before, more)| before.saturating_add(more));
                }
            }
            Payload::ComponentAliasSection(aliases) => {
                for alias in aliases {
                    let found = match alias.ok()? {
                        ComponentAlias::InstanceExport { kind: ComponentExternalKind::Component, .. } => None,
                        ComponentAlias::Outer { kind: ComponentOuterAliasKind::Component, count, index } => {
                            let at = levels.len().checked_sub(1)?.checked_sub(count as usize)?;
                            levels.get(at)?.components.get(index as usize).copied().flatten()
                        }
                        _ => continue,
                    };
                    levels.last_mut()?.name(found)?;
                }
            }
            Payload::ComponentExportSection(exports) => {
                for export in exports {
                    let export = export.ok()?;
                    // An export can be named again, under the next index.
                    if export.kind == ComponentExternalKind::Component {
                        let level = levels.last_mut()?;
                        let same = level.components.get(export.index as usize).copied().flatten();
                        level.name(same)?;
                    }
                }
            }
            _ => {}
        }
        Some(())
    }

    fn import(&mut self, name: &str) {
        let Some((interface, version)) = name.strip_prefix("wasi:").and_then(|_| name.split_once('@')) else { return };
        if version != "0.3" && !version.starts_with("0.3.") {
            return;
        }
        let shown = escaped(beginning(name, SHOWN_BYTES_MAX));
        self.import.get_or_insert_with(|| format!("it imports {shown}"));
        let is_draft = version.contains('-');
        let is_server = interface == "wasi:http/handler";
        if is_draft || is_server || !OFFERED.iter().any(|package| interface.starts_with(package)) {
            self.absent.extend((self.absent.len() < ABSENT_MAX).then_some(shown));
        }
    }

    fn ty(&mut self, ty: &ComponentType<'_>) {
        match ty {
            ComponentType::Func(function) if function.async_ => self.found(ASYNCHRONOUS),
            ComponentType::Defined(ComponentDefinedType::Future(_)) => self.found("it has futures"),
            ComponentType::Defined(ComponentDefinedType::Stream(_)) => self.found("it has streams"),
            ComponentType::Component(declarations) => {
                for declaration in declarations {
                    if let ComponentTypeDeclaration::Type(ty) = declaration {
                        self.ty(ty);
                    }
                }
            }
            ComponentType::Instance(declarations) => {
                for declaration in declarations {
                    if let InstanceTypeDeclaration::Type(ty) = declaration {
                        self.ty(ty);
                    }
                }
            }
            _ => {}
        }
    }

    fn function(&mut self, function: &CanonicalFunction) {
        let is_async = match function {
            CanonicalFunction::Lift { options, .. } | CanonicalFunction::Lower { options, .. } => {
                options.iter().any(|option| matches!(option, CanonicalOption::Async | CanonicalOption::Callback(_)))
            }
            CanonicalFunction::ResourceNew { .. }
            | CanonicalFunction::ResourceDrop { .. }
            | CanonicalFunction::ResourceRep { .. } => false,
            // Of what is left, WASI 0.3 has some, and the rest no host has.
            _ => true,
        };
        if is_async {
            self.found(ASYNCHRONOUS);
        }
    }

    fn found(&mut self, reason: &str) {
        self.other.get_or_insert_with(|| reason.to_owned());
    }
}

/// Whether reading a section of types takes little. A type inside another one begins with one of two pairs of bytes, so
/// that there are no more levels than such pairs.
fn is_easily_read(types: &[u8]) -> bool {
    let inner = types.windows(2).filter(|pair| matches!(pair, [0x01, 0x41 | 0x42])).count();
    types.len() <= TYPES_BYTES_MAX && inner < TYPE_NESTING_MAX
}

/// Whether every section of types, also of the components inside, takes little to read ([`is_easily_read`]), and all of
/// them together do.
pub(super) fn has_plain_types(component: &[u8]) -> bool {
    let mut bytes = 0_usize;
    Parser::new(0).parse_all(component).map_while(Result::ok).all(|payload| match payload {
        Payload::ComponentTypeSection(types) => {
            let section = component.get(types.range()).unwrap_or_default();
            bytes = bytes.saturating_add(section.len());
            bytes <= TYPES_BYTES_MAX && is_easily_read(section)
        }
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(wat: &str) -> WasiNeeds {
        WasiNeeds::of(&wat::parse_str(wat).unwrap())
    }

    fn refused(wat: &str) -> String {
        needs(wat).version(WasiVersion::V0_3).unwrap_err().join("; ")
    }

    const FUNCTION: &str = "(core module $m (func (export \"f\"))) (core instance $i (instantiate $m))
        (func (export \"f\") (canon lift (core func $i \"f\")))";
    const FUTURE: &str = "(type (future u8))";
    const CALLBACK: &str = "(core module $m (func (export \"f\") (result i32) unreachable)
            (func (export \"on\") (param i32 i32 i32) (result i32) unreachable))
        (core instance $i (instantiate $m))
        (func (export \"f\") async (canon lift (core func $i \"f\") async (callback (core func $i \"on\"))))";

    #[test]
    fn component_of_wasi_02_needs_nothing() {
        for plain in [
            format!("(component {FUNCTION})"),
            "(component (import \"wasi:clocks/monotonic-clock@0.2.3\" (instance (export \"now\" (func (result u64))))))".to_owned(),
            // Of a component inside, the imports are whatever the one around it gives.
            "(component (component (import \"wasi:clocks/monotonic-clock@0.3.0\" (instance))))".to_owned(),
        ] {
            for allowed in [WasiVersion::V0_2, WasiVersion::V0_3] {
                assert_eq!(needs(&plain).version(allowed), Ok(WasiVersion::V0_2), "{plain}");
            }
        }
    }

    #[test]
    fn anything_of_wasi_03_needs_the_operators_word() {
        for (wat, reason) in [
            (
                "(component (import \"wasi:random/random@0.3.2\" (instance)))".to_owned(),
                "it imports wasi:random/random@0.3.2",
            ),
            (format!("(component {CALLBACK})"), "it has asynchronous functions"),
            (format!("(component (component {CALLBACK}))"), "it has asynchronous functions"),
            (
                "(component (import \"a:b/c\" (instance (export \"f\" (func async)))))".to_owned(),
                "it has asynchronous functions",
            ),
            ("(component (import \"f\" (func (param \"x\" (future u8)))))".to_owned(), "it has futures"),
            ("(component (import \"f\" (func (result (stream u8)))))".to_owned(), "it has streams"),
            ("(component (core func (canon waitable-set.new)))".to_owned(), "it has asynchronous functions"),
        ] {
            let needs = needs(&wat);
            let [problem] = needs.version(WasiVersion::V0_2).unwrap_err().try_into().unwrap();
            assert!(problem.contains(reason) && problem.contains("wasi = \"0.3\""), "{wat}: {problem}");
            assert_eq!(needs.version(WasiVersion::V0_3), Ok(WasiVersion::V0_3), "{wat}");
        }
    }

    #[test]
    fn absent_interfaces_of_wasi_03_are_named() {
        for absent in [
            "wasi:filesystem/types@0.3.0",
            "wasi:http/handler@0.3.0",
            "wasi:clocks/types@0.3.0-rc-2025-09-16",
            "wasi:nn/graph@0.3.1",
        ] {
            let problem = refused(&format!("(component (import \"{absent}\" (instance)))"));
            assert!(
                problem.contains(&format!("it imports {absent}, which plugins of WASI 0.3 do not get")),
                "{problem}"
            );
        }
    }

    #[test]
    fn parts_that_run_are_counted_through_all_levels() {
        let part = format!("(component $p {FUNCTION})");
        let times = |count: usize| "(instance (instantiate $p))".repeat(count);
        let of = |body: String| needs(&format!("(component {body})")).parts;
        assert_eq!(of(FUNCTION.to_owned()), Some(1));
        assert_eq!(of(format!("{part} {} {FUNCTION}", times(5))), Some(6));
        // What no instance is made of, and what runs nothing, count for nothing.
        assert_eq!(of(format!("{part} (component $q) (instance (instantiate $q))")), Some(0));
        let pair = format!("(component $pair (alias outer 1 $p (component $p)) {})", times(2));
        assert_eq!(of(format!("{part} {pair} {}", "(instance (instantiate $pair))".repeat(3))), Some(6));
        assert_eq!(of(format!("{part} (export $q \"q\" (component $p)) (instance (instantiate $q))")), Some(1));
        let foreign = "(import \"p\" (component $p)) (instance (instantiate $p))".to_owned();
        assert_eq!(of(foreign), None);

        let many = refused(&format!("(component {part} {} {CALLBACK})", times(6)));
        assert!(many.contains("composed of 7 components that run; 6 is the most"), "{many}");
    }

    /// A component of one section.
    fn section(id: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = b"\0asm\x0d\0\x01\0".to_vec();
        bytes.push(id);
        let mut length = body.len();
        while length >= 0x80 {
            bytes.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        bytes.extend(body);
        bytes
    }

    #[test]
    fn types_inside_types_use_up_no_stack() {
        let nested = |depth: usize| section(7, &[&[1][..], &[0x42, 1, 1].repeat(depth), &[0x43, 0, 1, 0]].concat());
        let needs = WasiNeeds::of(&nested(TYPE_NESTING_MAX - 1));
        assert_eq!(needs.reason.as_deref(), Some(ASYNCHRONOUS));
        let needs = WasiNeeds::of(&nested(1_000_000));
        assert_eq!(needs.version(WasiVersion::V0_2), Ok(WasiVersion::V0_2), "it is the compiler's");
    }

    #[test]
    fn millions_of_parts_take_no_memory() {
        // Exports of the same component again and again, after one that is empty.
        let mut wat = "(component (component $c)".to_owned();
        for at in 0..COMPONENTS_MAX {
            wat.push_str(&format!("(export \"c{at}\" (component $c))"));
        }
        assert_eq!(needs(&format!("{wat})")).parts, None);
        let imports: String =
            (0..3 * ABSENT_MAX).map(|at| format!("(import \"wasi:nn/n{at}@0.3.0\" (instance))")).collect();
        assert_eq!(needs(&format!("(component {imports})")).absent.len(), ABSENT_MAX);
    }

    #[test]
    fn what_breaks_off_is_no_component_of_wasi_03() {
        let whole = wat::parse_str(format!("(component {FUTURE} {CALLBACK})")).unwrap();
        for end in 0..whole.len() {
            let needs = WasiNeeds::of(&whole[..end]);
            // Between two sections it is a shorter component.
            let reads = Parser::new(0).parse_all(&whole[..end]).all(|payload| payload.is_ok());
            assert!(reads || needs.parts.is_none(), "{end}");
            assert!(reads || needs.reason.is_none() || needs.version(WasiVersion::V0_3).is_err(), "{end}");
        }
    }
}
