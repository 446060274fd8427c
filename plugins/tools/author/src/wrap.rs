//! Components of toolchains that know nothing of Bulkhead: C, Go, C#, MoonBit, Zig.
//!
//! Owns the way from what such a toolchain writes to a component that carries what the SDKs put into theirs. Must not
//! run it. Invariant: what a host is sure to refuse is refused here, and nothing is written then.

use std::path::{Path, PathBuf};

use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME as WASI_PREVIEW1, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
};
use wasmparser::{Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::{PackageId, Resolve};

use crate::check::{self, Findings, Kind};
use crate::{Error, docs, manifest, programs, publish, section, skills};

/// What a module says of its types is in sections whose names begin so.
const COMPONENT_TYPE: &str = "component-type";

/// What goes into a component, and where it is written.
#[derive(Debug)]
pub struct WrapOptions {
    /// A component, or a core module.
    pub file: PathBuf,
    pub manifest: PathBuf,
    /// A WIT file, or a folder with a package.
    pub wit: Option<PathBuf>,
    /// The world of `wit` that a module without types was built for.
    pub world: Option<String>,
    /// A folder with one folder for each skill.
    pub skills: Option<PathBuf>,
    pub output: PathBuf,
}

/// Puts manifest, descriptions and skills into a component; gives back what its users would miss.
///
/// # Errors
///
/// The file is neither component nor module, the manifest or the WIT is wrong, or a host would refuse the result.
pub fn wrap(options: &WrapOptions) -> Result<Findings, Error> {
    let WrapOptions { file, manifest, wit, world, skills, output } = options;
    let bytes = programs::read(file)?;
    let text = std::fs::read_to_string(manifest).map_err(Error::io(manifest))?;
    check::manifest(&text).map_err(|wrong| Error::Wrapped { file: manifest.clone(), wrong })?;
    if let Some(missing) = [wit, skills].into_iter().flatten().find(|path| !path.exists()) {
        return Err(Error::io(missing)(std::io::ErrorKind::NotFound.into()));
    }
    let wrong = |reason: String| Error::Wrapped { file: file.clone(), wrong: vec![reason] };
    let component = match Kind::of(&bytes) {
        Kind::Component => bytes,
        Kind::Module => component_of(bytes, wit.as_deref().zip(world.as_deref())).map_err(wrong)?,
        Kind::Unknown(what) => return Err(wrong(what.to_owned())),
    };
    if section::is_there(&component, manifest::SECTION)? {
        let has =
            "it carries a manifest (the section bulkhead:manifest); expected what the toolchain made, without one";
        return Err(wrong(has.to_owned()));
    }
    let component = match wit {
        Some(wit) => docs::with_docs(component, wit)?,
        None => component,
    };
    let component = manifest::with_manifest(component, Some(&text))?;
    let component = match skills {
        Some(folder) => skills::with_skills(component, folder)?,
        None => component,
    };
    let findings = check::check(&component);
    if findings.refused.is_empty() {
        publish(&component, output)?;
        Ok(findings)
    } else {
        Err(Error::Wrapped { file: file.clone(), wrong: findings.refused })
    }
}

/// Makes a component of a core module.
pub(crate) fn component_of(mut module: Vec<u8>, world: Option<(&Path, &str)>) -> Result<Vec<u8>, String> {
    let Facts { has_types, needs_adapter } = Facts::of(&module)?;
    match (has_types, world) {
        (true, _) => {}
        (false, Some((wit, world))) => {
            let (resolve, package) = read_wit(wit)?;
            let world = resolve
                .select_world(&[package], Some(world))
                .map_err(|error| format!("--world {world} is not in {}: {error:#}", wit.display()))?;
            embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)
                .map_err(|error| format!("the types of the world do not go into the module: {error:#}"))?;
        }
        (false, None) => {
            return Err(format!(
                "it is a core module without types; expected a component, a module with a section {COMPONENT_TYPE} (the \
                 bindings of wit-bindgen bring it), or --wit and --world"
            ));
        }
    }
    let encoder = ComponentEncoder::default().validate(true);
    let prepared = encoder.module(&module).and_then(|encoder| match needs_adapter {
        true => encoder.adapter(WASI_PREVIEW1, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER),
        false => Ok(encoder),
    });
    let encoded = prepared.and_then(|mut encoder| encoder.encode());
    encoded.map_err(|error| format!("no component can be made of it: {error:#}"))
}

fn read_wit(wit: &Path) -> Result<(Resolve, PackageId), String> {
    let mut resolve = Resolve { all_features: true, ..Resolve::default() };
    let (package, _) = resolve.push_path(wit).map_err(|error| format!("{}: {error:#}", wit.display()))?;
    Ok((resolve, package))
}

/// What decides how a module becomes a component.
#[derive(Default)]
struct Facts {
    has_types: bool,
    /// Whether it calls the system in the older way, as wasi-libc does.
    needs_adapter: bool,
}

impl Facts {
    fn of(module: &[u8]) -> Result<Self, String> {
        let unreadable = |error: wasmparser::BinaryReaderError| format!("it cannot be read: {}", error.message());
        let mut facts = Self::default();
        for payload in Parser::new(0).parse_all(module) {
            match payload.map_err(unreadable)? {
                Payload::CustomSection(section) => facts.has_types |= section.name().starts_with(COMPONENT_TYPE),
                Payload::ImportSection(imports) => {
                    for import in imports.into_imports() {
                        facts.needs_adapter |= import.map_err(unreadable)?.module == WASI_PREVIEW1;
                    }
                }
                _ => {}
            }
        }
        Ok(facts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::tests::sections;

    const WIT: &str = "package acme:units@1.0.0;
        interface length {
            /// To feet.
            to-feet: func(metres: f64) -> f64;
        }
        world library { export length; }";
    const MODULE: &str = r#"(module
        (func (export "acme:units/length@1.0.0#to-feet") (param f64) (result f64) local.get 0 f64.const 3.28 f64.mul))"#;
    const MANIFEST: &str = "name = \"units\"\ndescription = \"Lengths.\"\n";

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new(module: &str) -> Self {
            let folder = Self(tempfile::tempdir().unwrap());
            folder.write("units.wasm", &wat::parse_str(module).unwrap());
            folder.write("manifest.toml", MANIFEST.as_bytes());
            folder.write("units.wit", WIT.as_bytes());
            folder
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn write(&self, name: &str, bytes: &[u8]) {
            std::fs::write(self.path(name), bytes).unwrap();
        }

        fn wrap(&self, world: Option<&str>) -> Result<Vec<u8>, String> {
            let options = WrapOptions {
                file: self.path("units.wasm"),
                manifest: self.path("manifest.toml"),
                wit: Some(self.path("units.wit")),
                world: world.map(str::to_owned),
                skills: self.path("skills").is_dir().then(|| self.path("skills")),
                output: self.path("out/units.wasm"),
            };
            let wrapped = wrap(&options).map_err(|error| error.to_string());
            assert_eq!(wrapped.is_ok(), options.output.exists());
            wrapped.map(|_| std::fs::read(&options.output).unwrap())
        }
    }

    #[test]
    fn wrapped_module_is_a_component_with_manifest_and_docs() {
        let folder = Folder::new(MODULE);
        std::fs::create_dir_all(folder.path("skills/measure")).unwrap();
        folder.write("skills/measure/SKILL.md", b"---\nname: measure\ndescription: Measures.\n---\n");
        let component = folder.wrap(Some("library")).unwrap();
        assert!(matches!(Kind::of(&component), Kind::Component));
        assert_eq!(sections(&component, manifest::SECTION), [MANIFEST.as_bytes()]);
        assert!(String::from_utf8_lossy(&sections(&component, "package-docs")[0]).contains("To feet."));
        let checked = check::check(&component);
        assert_eq!((checked.name.as_deref(), checked.refused), (Some("units"), Vec::new()));

        assert_eq!(sections(&component, bulkhead_domain::skills::SECTION).len(), 1);

        // What it made is no input again: two manifests would contradict each other.
        folder.write("units.wasm", &component);
        std::fs::remove_dir_all(folder.path("out")).unwrap();
        let error = folder.wrap(None).unwrap_err();
        assert!(error.contains("carries a manifest") && error.contains("units.wasm"), "{error}");
    }

    #[test]
    fn module_with_types_of_its_own_needs_no_world() {
        let folder = Folder::new(MODULE);
        let mut module = std::fs::read(folder.path("units.wasm")).unwrap();
        let (resolve, package) = read_wit(&folder.path("units.wit")).unwrap();
        let world = resolve.select_world(&[package], Some("library")).unwrap();
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
        folder.write("units.wasm", &module);
        assert!(folder.wrap(None).is_ok());
    }

    #[test]
    fn module_that_calls_wasi_preview_1_gets_its_adapter() {
        let folder = Folder::new(
            r#"(module
            (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
            (memory (export "memory") 1)
            (func (export "acme:units/length@1.0.0#to-feet") (param f64) (result f64)
                i32.const 0 i32.const 4 call $random drop local.get 0))"#,
        );
        let component = folder.wrap(Some("library")).unwrap();
        let imports = check::check(&component).imports;
        assert!(imports.iter().any(|import| import.starts_with("wasi:random/random@0.2.")), "{imports:?}");
    }

    #[test]
    fn file_that_cannot_be_wrapped_is_refused_with_what_is_expected() {
        let folder = Folder::new(MODULE);
        let refused = |world: Option<&str>, parts: &[&str]| {
            let error = folder.wrap(world).unwrap_err();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        };
        refused(None, &["core module without types", "--wit and --world"]);
        refused(Some("other"), &["--world other", "units.wit"]);
        folder.write("manifest.toml", b"name = 3\n[grants]\nhttp = \"x\"");
        refused(
            Some("library"),
            &["manifest.toml", "`name` is 3; expected", "`grants.http` is \"x\"; expected a list"],
        );
        folder.write("manifest.toml", MANIFEST.as_bytes());
        folder.write("units.wasm", b"\x7fELF");
        refused(None, &["this is not WebAssembly"]);
        folder.write("units.wasm", &wat::parse_str("(module)").unwrap());
        refused(Some("library"), &["no component can be made of it", "to-feet"]);
    }
}
