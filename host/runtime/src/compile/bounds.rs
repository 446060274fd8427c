//! What a component may be made of, counted before anything is compiled.
//!
//! Parses section by section and keeps only numbers, so that it costs no memory and about as much time as reading the
//! file. What these counts cannot see is bounded by the child that compiles.

use std::collections::BTreeMap;

use wasmparser::{Parser, Payload};

/// Bytes of one function. Stops the one huge function that takes a compiler minutes: the largest in Python's
/// interpreter has a fifth of it.
const FUNCTION_BYTES_MAX: u64 = 2 << 20;
/// Components inside components. Stops recursion in everything that reads them.
const NESTING_MAX: u64 = 16;
/// Core modules and components together. Stops thousands of tiny ones, each with its own tables in the host.
const MODULES_MAX: u64 = 512;
/// Instances that are made of them. Stops the same for instances.
const INSTANCES_MAX: u64 = 4_096;
/// Imports, exports and aliases, in all modules and components together. Stops lists that the host would search for
/// ever.
const LINKS_MAX: u64 = 200_000;
/// Types. Stops tables of types that no function uses.
const TYPES_MAX: u64 = 200_000;
/// Memories and tables that are declared. Stops the same for them; how many an instance may have is checked with its
/// imports.
const MEMORIES_MAX: u64 = 512;
/// Globals. Stops an initialiser of megabytes.
const GLOBALS_MAX: u64 = 200_000;
/// Element and data segments. Stops a start of each call that copies them one by one.
const SEGMENTS_MAX: u64 = 200_000;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Functions,
    Modules,
    Instances,
    Links,
    Types,
    Memories,
    Globals,
    Segments,
}

impl Part {
    /// Its name and its maximum. The number of functions is the operator's choice.
    fn bound(self, functions_max: u32) -> (&'static str, u64) {
        match self {
            Self::Functions => ("functions", functions_max.into()),
            Self::Modules => ("modules and components", MODULES_MAX),
            Self::Instances => ("instances", INSTANCES_MAX),
            Self::Links => ("imports, exports and aliases", LINKS_MAX),
            Self::Types => ("types", TYPES_MAX),
            Self::Memories => ("memories and tables", MEMORIES_MAX),
            Self::Globals => ("globals", GLOBALS_MAX),
            Self::Segments => ("element and data segments", SEGMENTS_MAX),
        }
    }
}

/// Refuses a component that is made to keep the compiler busy.
///
/// # Errors
///
/// The first bound that it is over, with what was found.
pub(crate) fn check(component: &[u8], functions_max: u32) -> Result<(), String> {
    let mut counts = BTreeMap::<Part, u64>::new();
    let mut depth = 0_u64;
    let mut nested = Vec::new();
    for payload in Parser::new(0).parse_all(component) {
        let payload = payload.map_err(|error| match error.message() {
            text if text.contains("unexpected end") => "the file is truncated".to_owned(),
            _ => format!("it is not a valid component: {error}"),
        })?;
        match &payload {
            Payload::ModuleSection { .. } => nested.push(0),
            Payload::ComponentSection { .. } => {
                depth += 1;
                nested.push(1);
                if depth > NESTING_MAX {
                    return Err(format!("its components are nested more than {NESTING_MAX} deep"));
                }
            }
            Payload::End(_) => depth = depth.saturating_sub(nested.pop().unwrap_or_default()),
            Payload::CodeSectionEntry(body) => {
                let bytes = body.as_bytes().len() as u64;
                if bytes > FUNCTION_BYTES_MAX {
                    return Err(format!("one of its functions has {bytes} bytes; {FUNCTION_BYTES_MAX} is the most"));
                }
            }
            _ => {}
        }
        let Some((part, more)) = found(&payload) else { continue };
        let count = counts.entry(part).or_default();
        *count = count.saturating_add(more);
        let (name, most) = part.bound(functions_max);
        if *count > most {
            let key = if part == Part::Functions { " (compile.functions_max)" } else { "" };
            return Err(format!("it has at least {count} {name}; {most} is the most{key}"));
        }
    }
    Ok(())
}

/// What a section adds. A section says in front how much it holds; whether that is true, the compiler finds out.
fn found(payload: &Payload<'_>) -> Option<(Part, u64)> {
    let (part, count) = match payload {
        Payload::FunctionSection(section) => (Part::Functions, section.count()),
        Payload::ComponentCanonicalSection(section) => (Part::Functions, section.count()),
        Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => (Part::Modules, 1),
        Payload::InstanceSection(section) => (Part::Instances, section.count()),
        Payload::ComponentInstanceSection(section) => (Part::Instances, section.count()),
        Payload::ImportSection(section) => (Part::Links, section.count()),
        Payload::ExportSection(section) => (Part::Links, section.count()),
        Payload::ComponentImportSection(section) => (Part::Links, section.count()),
        Payload::ComponentExportSection(section) => (Part::Links, section.count()),
        Payload::ComponentAliasSection(section) => (Part::Links, section.count()),
        Payload::TypeSection(section) => (Part::Types, section.count()),
        Payload::CoreTypeSection(section) => (Part::Types, section.count()),
        Payload::ComponentTypeSection(section) => (Part::Types, section.count()),
        Payload::MemorySection(section) => (Part::Memories, section.count()),
        Payload::TableSection(section) => (Part::Memories, section.count()),
        Payload::GlobalSection(section) => (Part::Globals, section.count()),
        Payload::ElementSection(section) => (Part::Segments, section.count()),
        Payload::DataSection(section) => (Part::Segments, section.count()),
        _ => return None,
    };
    Some((part, count.into()))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn checked(text: &str, functions_max: u32) -> Result<(), String> {
        check(&wat::parse_str(text).unwrap(), functions_max)
    }

    #[test]
    fn compile_limit_counts_functions_of_all_modules() {
        let two = "(component (core module (func) (func)) (core module (func)))";
        checked(two, 3).unwrap();
        let refused = checked(two, 2).unwrap_err();
        assert_eq!(refused, "it has at least 3 functions; 2 is the most (compile.functions_max)");
    }

    #[test]
    fn compile_limit_counts_component_nesting_depth() {
        let nested = |depth: usize| format!("{}{}", "(component ".repeat(depth), ")".repeat(depth));
        checked(&nested(17), 9).unwrap();
        assert!(checked(&nested(18), 9).unwrap_err().contains("more than 16 deep"));
        let beside = format!("(component {})", "(component (core module))".repeat(100));
        checked(&beside, 9).unwrap();
    }

    #[test]
    fn compile_limit_refusals_name_kind_and_number() {
        let of = |each: &str, count: usize| {
            let mut text = "(component ".to_owned();
            for _ in 0..count {
                write!(text, "{each}").unwrap();
            }
            text + ")"
        };
        let refused = checked(&of("(core module)", 513), 9).unwrap_err();
        assert_eq!(refused, "it has at least 513 modules and components; 512 is the most");
        let refused = checked(&of("(core module (memory 1) (table 1 funcref))", 257), 9).unwrap_err();
        assert_eq!(refused, "it has at least 513 memories and tables; 512 is the most");
        let globals = "(global i32 (i32.const 1))".repeat(200_001);
        let refused = checked(&format!("(component (core module {globals}))"), 9).unwrap_err();
        assert!(refused.contains("globals"), "{refused}");
    }

    #[test]
    fn oversized_component_function_is_refused() {
        let long = format!("(component (core module (func {})))", "nop ".repeat(FUNCTION_BYTES_MAX as usize));
        let refused = checked(&long, 9).unwrap_err();
        assert!(refused.contains("one of its functions has") && refused.contains("2097152 is the most"), "{refused}");
    }

    #[test]
    fn truncated_component_is_reported_as_truncated() {
        let whole = wat::parse_str("(component (core module (func nop nop nop)))").unwrap();
        assert_eq!(check(&whole[..whole.len() - 3], 9).unwrap_err(), "the file is truncated");
    }
}
