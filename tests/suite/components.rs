//! Components with WIT of their own in every language, made of sources of this repository.
//!
//! Owns what calls the languages' tools, as their tutorials do. What an interpreter is put into takes some ten seconds,
//! so it is made again only when its sources or tools change.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tests::place;

/// Calls componentize-js as its command line does. Node.js looks for the package from the folder that it is started in.
const COMPONENTIZE_JS: &str = r#"
import { writeFile } from "node:fs/promises";
import { componentize } from "@bytecodealliance/componentize-js";
const [sourcePath, witPath, worldName, without, output] = process.argv.slice(1);
const { component } = await componentize({ sourcePath, witPath, worldName, disableFeatures: without.split(",") });
await writeFile(output, component);
"#;

/// What makes a component, of a folder with `wit/` and the sources.
#[derive(Debug)]
pub(crate) enum Made {
    /// With the other guests: `target/plugins` has it.
    Rust,
    /// Of `app.py`.
    Python { world: &'static str },
    /// Of `app.js`, without these features.
    JavaScript { world: &'static str, without: &'static str },
    /// Of `plugin.c`.
    C,
    /// A core module, `adder.wat`, is wrapped.
    Module { world: &'static str },
}

/// A component that a test has made.
pub(crate) struct Source<'a> {
    /// What the component is called; in Rust also the example that it is.
    pub(crate) name: &'a str,
    /// Where the sources are.
    pub(crate) folder: PathBuf,
    pub(crate) made: &'a Made,
}

fn tools(language: &str) -> PathBuf {
    place::root().join("target/guest-tools").join(language)
}

/// Where the components are that are not in Rust.
pub(crate) fn folder() -> PathBuf {
    place::root().join("target/test-components")
}

/// Gives back where the component is, which is made if it is not there yet.
pub(crate) fn make(source: &Source<'_>) -> PathBuf {
    if let Made::Rust = source.made {
        return place::component(&source.name.replace('-', "_"));
    }
    let built = folder();
    std::fs::create_dir_all(&built).expect("a folder");
    let component = built.join(format!("{}.wasm", source.name));
    let stamp = component.with_extension("stamp");
    let state = format!("{:016x}", fingerprint(source));
    if component.is_file() && std::fs::read_to_string(&stamp).is_ok_and(|stamped| stamped == state) {
        return component;
    }
    let mut command = command(source, &component, &built);
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}:\n{}\n{}", source.name, said(&output.stdout), said(&output.stderr));
    std::fs::write(stamp, state).expect("a stamp");
    component
}

fn command(source: &Source<'_>, component: &Path, built: &Path) -> Command {
    let folder = &source.folder;
    let bulkhead = || {
        let mut command = Command::new(place::host_binary());
        command.arg("plugin");
        command
    };
    let mut command = match *source.made {
        Made::Python { world } => {
            let mut command = Command::new(tools("python").join("bin/componentize-py"));
            command.args(["--quiet", "-d"]).arg(folder.join("wit")).args(["-w", world, "componentize", "-p"]);
            command.arg(folder).args(["app", "-o"]);
            command
        }
        Made::JavaScript { world, without } => {
            let mut command = Command::new("node");
            command.args(["--input-type=module", "-e", COMPONENTIZE_JS]).arg(folder.join("app.js"));
            command.arg(folder.join("wit")).args([world, without]).current_dir(tools("javascript"));
            command
        }
        Made::Module { world } => {
            let module = built.join("adder.core");
            let manifest = built.join("adder.toml");
            std::fs::write(&module, wat::parse_file(folder.join("adder.wat")).expect("a module")).expect("a file");
            std::fs::write(&manifest, format!("name = {:?}\ndescription = \"Adds.\"\n", source.name)).expect("a file");
            let mut command = bulkhead();
            command.arg("wrap").arg(module).arg("--manifest").arg(manifest).arg("--wit").arg(folder.join("wit"));
            command.args(["--world", world, "-o"]);
            command
        }
        Made::C | Made::Rust => {
            let mut command = bulkhead();
            let tools = tools("c");
            let path = std::env::var_os("PATH").unwrap_or_default();
            let path = std::iter::once(tools.join("bin")).chain(std::env::split_paths(&path));
            command.env("PATH", std::env::join_paths(path).expect("a search path"));
            command.env("ZIG_GLOBAL_CACHE_DIR", tools.join("cache")).arg("build").arg(folder).arg("-o");
            command
        }
    };
    command.arg(component);
    command
}

/// Of the sources, of the tools' versions and, for C, of what calls the compiler.
fn fingerprint(source: &Source<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for language in ["python", "javascript", "c"] {
        std::fs::read(tools(language).join("installed")).unwrap_or_default().hash(&mut hasher);
    }
    (COMPONENTIZE_JS, format!("{:?}", source.made)).hash(&mut hasher);
    hash_below(&source.folder, &mut hasher);
    if let Made::C | Made::Module { .. } = source.made {
        hash_below(&place::root().join("plugins/tools/author/src"), &mut hasher);
    }
    hasher.finish()
}

fn hash_below(folder: &Path, hasher: &mut DefaultHasher) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a file").path()).collect();
    paths.sort();
    // What Python leaves beside its sources is none of them.
    for path in paths.into_iter().filter(|path| !path.ends_with("__pycache__")) {
        match path.is_dir() {
            true => hash_below(&path, hasher),
            false => (path.file_name(), std::fs::read(&path).expect("a source")).hash(hasher),
        }
    }
}
