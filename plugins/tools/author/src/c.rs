//! Components from C, by clang with a sysroot for WASI, or by Zig.
//!
//! Owns the bindings, which are made anew for each build, and the table of tools that is made of `tools.json`. A
//! project with WIT of its own in `wit/` gets the bindings of its one world, and no table: its functions are the tools.
//! Invariant: what is compiled is what lies in the project, without its tests.

use std::path::{Path, PathBuf};
use std::process::Command;

use wit_bindgen_core::Files;
use wit_bindgen_core::wit_parser::Resolve;

use crate::{Error, Options, Project, c_tools, programs, wrap};

/// The version of Zig that the SDK is tested with, as pip wants it.
pub const ZIG: &str = "ziglang==0.17.1";
/// One MiB, as Rust's components have. By itself Zig asks for 16 MiB, which each call would have to have of its memory.
const ZIG_STACK: &str = "-Wl,-z,stack-size=1048576";

/// The world of a plugin that speaks for itself.
const WORLD: &str = "plugin";

pub(crate) fn build(project: &Project, options: &Options) -> Result<Vec<u8>, Error> {
    let environment = options.tools.clone().unwrap_or_else(|| project.folder.join(".venv"));
    let Some(compiler) = Compiler::find(&environment) else {
        let remedy = format!(
            "Install Zig with `python3 -m venv .venv && .venv/bin/pip install {ZIG}` in {}, or wasi-sdk and name its folder in \
             WASI_SDK_PATH, or clang, lld and wasi-libc of your system.",
            project.folder.display()
        );
        return Err(Error::Missing { what: "a C compiler for WASI".to_owned(), remedy });
    };
    let scratch = programs::scratch()?;
    let own = project.folder.join("wit");
    let is_own = own.is_dir();
    let mut includes = vec![scratch.path().to_owned()];
    let mut sources = sources(&project.folder)?;
    let wit = if is_own {
        own
    } else {
        let sdk = project.sdk(options)?;
        includes.push(crate::sdk::folder(&sdk, "c"));
        let table = scratch.path().join("bulkhead_entry.c");
        std::fs::write(&table, c_tools::entry(&project.folder)?).map_err(Error::io(&table))?;
        sources.push(table);
        sdk.join("wit")
    };
    sources.extend(generate(&wit, (!is_own).then_some(WORLD), scratch.path())?);

    let module = scratch.path().join("module.wasm");
    let mut command = compiler.command();
    command.current_dir(&project.folder);
    // Of the library as well, whose debug information is larger than most plugins.
    command.args(["-mexec-model=reactor", "-O2", "-Wall", "-Wl,--strip-debug", "-o"]).arg(&module);
    for include in includes {
        command.arg("-I").arg(include);
    }
    // Beside the sources it writes nothing.
    command.args(&sources).env("ZIG_LOCAL_CACHE_DIR", scratch.path().join("cache"));
    programs::output("compiling C", &mut command)?;
    wrap::component_of(programs::read(&module)?, None)
        .map_err(|reason| Error::Failed { step: "making a component of the module", reason })
}

/// The author's sources, as the compiler is to name them: those beside `plugin.c`, and those below `src`.
fn sources(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    let mut left = vec![PathBuf::new()];
    while let Some(below) = left.pop() {
        let here = folder.join(&below);
        for entry in std::fs::read_dir(&here).map_err(Error::io(&here))?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = below.join(&name);
            if entry.path().is_dir() {
                if path.starts_with("src") {
                    left.push(path);
                }
            } else if name.ends_with(".c") && !name.starts_with("test_") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Writes the bindings of a world, of the only one if none is named; gives back what of them is linked.
fn generate(wit: &Path, world: Option<&str>, folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |reason: String| Error::Failed { step: "making the bindings for C", reason };
    let mut resolve = Resolve { all_features: true, ..Resolve::default() };
    let (package, _) = resolve.push_path(wit).map_err(|error| failed(format!("{}: {error:#}", wit.display())))?;
    let world =
        resolve.select_world(&[package], world).map_err(|error| failed(format!("{}: {error:#}", wit.display())))?;
    let mut files = Files::default();
    let mut generator = wit_bindgen_c::Opts::default().build();
    generator.generate(&mut resolve, world, &mut files).map_err(|error| failed(format!("{error:#}")))?;
    let mut linked = Vec::new();
    for (file, contents) in files.iter() {
        let path = folder.join(file);
        std::fs::write(&path, contents).map_err(Error::io(&path))?;
        // The object file brings the types.
        if file.ends_with(".c") || file.ends_with(".o") {
            linked.push(path);
        }
    }
    Ok(linked)
}

/// The program that compiles C for WASI here: of the system, or in the `.venv` of the working directory.
pub fn compiler() -> Option<PathBuf> {
    let (Compiler::WasiSdk(program) | Compiler::Clang(program) | Compiler::Zig(program)) =
        Compiler::find(Path::new(".venv"))?;
    Some(program)
}

/// What compiles C for WASI on this machine.
#[derive(Debug, PartialEq)]
enum Compiler {
    /// With a sysroot of its own.
    WasiSdk(PathBuf),
    /// A system's clang, with the system's wasi-libc.
    Clang(PathBuf),
    Zig(PathBuf),
}

impl Compiler {
    fn find(environment: &Path) -> Option<Self> {
        let wasi_sdk = std::env::var_os("WASI_SDK_PATH").map(|folder| Path::new(&folder).join("bin/clang"));
        if let Some(clang) = wasi_sdk.filter(|clang| clang.is_file()) {
            return Some(Self::WasiSdk(clang));
        }
        if Path::new("/usr/lib/wasm32-wasi/crt1-reactor.o").is_file()
            && let Some(clang) = programs::find("clang", &[])
        {
            return Some(Self::Clang(clang));
        }
        // The package of PyPI brings a program with the first name.
        let folders = [environment.join("bin")];
        ["python-zig", "zig"].into_iter().find_map(|name| programs::find(name, &folders)).map(Self::Zig)
    }

    fn command(&self) -> Command {
        let (Self::WasiSdk(program) | Self::Clang(program) | Self::Zig(program)) = self;
        let mut command = Command::new(program);
        match self {
            Self::WasiSdk(_) => command.arg("--target=wasm32-wasip1"),
            // Where Debian and its like put the headers and libraries of WASI.
            Self::Clang(_) => command.args(["--target=wasm32-wasi", "--sysroot=/usr"]),
            Self::Zig(_) => command.args(["cc", "--target=wasm32-wasi", ZIG_STACK]),
        };
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bindings_of_own_world_are_generated_under_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let wit = folder.path().join("adder.wit");
        let write = |text: &str| std::fs::write(&wit, text).unwrap();
        write(
            "package acme:adder@0.1.0; interface add { add: func(x: u32, y: u32) -> u32; } world adder { export add; }",
        );
        let linked = generate(&wit, None, folder.path()).unwrap();
        assert_eq!(linked, ["adder.c", "adder_component_type.o"].map(|file| folder.path().join(file)));
        let header = std::fs::read_to_string(folder.path().join("adder.h")).unwrap();
        assert!(header.contains("exports_acme_adder_add_add(uint32_t x, uint32_t y)"), "{header}");

        write("package acme:adder@0.1.0; world one { export a: func(); } world two { export b: func(); }");
        let error = generate(&wit, None, folder.path()).unwrap_err().to_string();
        assert!(error.contains("bindings for C") && error.contains("adder.wit"), "{error}");
    }

    #[test]
    fn c_sources_are_those_of_the_plugin_without_its_tests() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["plugin.c", "test_plugin.c", "words.h", "src/b.c", "src/deep/a.c", "bulkhead/x.c", ".venv/y.c"] {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let names: Vec<_> = sources(folder.path()).unwrap().iter().map(|path| path.display().to_string()).collect();
        assert_eq!(names, ["plugin.c", "src/b.c", "src/deep/a.c"]);
    }

    #[test]
    fn zig_of_the_project_environment_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let zig = folder.path().join("bin/python-zig");
        std::fs::create_dir(folder.path().join("bin")).unwrap();
        std::fs::write(&zig, "").unwrap();
        let found = Compiler::find(folder.path()).unwrap();
        // A machine with clang and wasi-libc takes those.
        assert!(found == Compiler::Zig(zig) || !matches!(found, Compiler::Zig(_)), "{found:?}");
        let arguments: Vec<_> = Compiler::Zig("zig".into()).command().get_args().map(ToOwned::to_owned).collect();
        assert_eq!(arguments, ["cc", "--target=wasm32-wasi", "-Wl,-z,stack-size=1048576"]);
    }
}
