//! Makes the components. What an interpreter is put into takes some ten seconds, so it is made again only when its sources or tools change.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;

use parking_lot::Mutex;
use tests::place;

use super::{EXAMPLES, Example, Made};

/// Calls componentize-js as its command line does. Node.js looks for the package from the folder that it is started in.
const COMPONENTIZE_JS: &str = r#"
import { writeFile } from "node:fs/promises";
import { componentize } from "@bytecodealliance/componentize-js";
const [sourcePath, witPath, worldName, without, output] = process.argv.slice(1);
const { component } = await componentize({ sourcePath, witPath, worldName, disableFeatures: without.split(",") });
await writeFile(output, component);
"#;

/// The sources of an example that is not in Rust, and what was recorded of every original.
pub(super) fn folder(example: &Example) -> PathBuf {
    place::root().join("tests/fixtures/public-examples").join(example.name)
}

fn tools(language: &str) -> PathBuf {
    place::root().join("target/guest-tools").join(language)
}

/// All of them by their names, made once in a run.
pub(super) fn all() -> &'static BTreeMap<&'static str, PathBuf> {
    static MADE: OnceLock<BTreeMap<&'static str, PathBuf>> = OnceLock::new();
    MADE.get_or_init(|| {
        let left = Mutex::new(EXAMPLES.iter());
        let made = Mutex::new(BTreeMap::new());
        let work = || {
            while let Some(example) = { left.lock().next() } {
                let component = make(example);
                made.lock().insert(example.name, component);
            }
        };
        thread::scope(|scope| {
            let helper = scope.spawn(work);
            work();
            helper.join().expect("the other examples are made");
        });
        made.into_inner()
    })
}

fn make(example: &Example) -> PathBuf {
    if let Made::Rust = example.made {
        return place::component(&format!("public_{}", example.name.replace('-', "_")));
    }
    let built = place::root().join("target/public-examples");
    std::fs::create_dir_all(&built).expect("a folder");
    let component = built.join(format!("{}.wasm", example.name));
    let stamp = component.with_extension("stamp");
    let state = format!("{:016x}", fingerprint(example));
    if component.is_file() && std::fs::read_to_string(&stamp).is_ok_and(|stamped| stamped == state) {
        return component;
    }
    let mut command = command(example, &component, &built);
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}:\n{}\n{}", example.name, said(&output.stdout), said(&output.stderr));
    std::fs::write(stamp, state).expect("a stamp");
    component
}

fn command(example: &Example, component: &Path, built: &Path) -> Command {
    let folder = folder(example);
    let bulkhead = || {
        let mut command = Command::new(place::host_binary());
        command.arg("plugin");
        command
    };
    let mut command = match example.made {
        Made::Python { world } => {
            let mut command = Command::new(tools("python").join("bin/componentize-py"));
            command.args(["--quiet", "-d"]).arg(folder.join("wit")).args(["-w", world, "componentize", "-p"]);
            command.arg(&folder).args(["app", "-o"]);
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
            std::fs::write(&manifest, format!("name = {:?}\ndescription = \"Adds.\"\n", example.name)).expect("a file");
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
            command.env("ZIG_GLOBAL_CACHE_DIR", tools.join("cache")).arg("build").arg(&folder).arg("-o");
            command
        }
    };
    command.arg(component);
    command
}

/// Of the sources, of the tools' versions and, for C, of what calls the compiler.
fn fingerprint(example: &Example) -> u64 {
    let mut hasher = DefaultHasher::new();
    for language in ["python", "javascript", "c"] {
        std::fs::read(tools(language).join("installed")).unwrap_or_default().hash(&mut hasher);
    }
    (COMPONENTIZE_JS, format!("{:?}", example.made)).hash(&mut hasher);
    hash_below(&folder(example), &mut hasher);
    if let Made::C | Made::Module { .. } = example.made {
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
