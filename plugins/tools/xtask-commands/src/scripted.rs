//! The guests in Python, JavaScript and TypeScript: every folder below `plugins/samples` and `plugins/fixtures` with a
//! `plugin.py`, `plugin.js`, `plugin.ts` or `server.ts`.
//!
//! Their tools are installed once, in exactly the versions that the author's crate names, and a component is built
//! again only when something that it is made of has changed: that takes ten seconds each, and gives other bytes each
//! time.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use bulkhead_author::{COMPONENTIZE_PY, JAVASCRIPT_PACKAGES, Language, Options, Project, SERVER_PACKAGES, ZIG};

use xtask::{layout, steps};

const FORCE: &str = "XTASK_SCRIPT_GUESTS";

/// What the tests of new Python projects need beside componentize-py: a type checker, as editors run one, and what
/// installs the SDK without asking a registry.
const PYTHON_TESTING: [&str; 2] = ["mypy==2.4.1", "setuptools==84.2.1"];

/// A collector of OpenTelemetry whose wheel holds the program itself.
const COLLECTOR: &str = "rotel==0.0.1a15";

/// The guests' names, in order.
pub(crate) fn folders() -> anyhow::Result<Vec<String>> {
    let is_script = |folder: &Path| {
        ["plugin.py", "plugin.js", "plugin.ts", "server.ts"].iter().any(|file| folder.join(file).is_file())
    };
    Ok(layout::guests()?.into_iter().filter(|(_, folder)| is_script(folder)).map(|(name, _)| name).collect())
}

/// Builds one, if that is needed; gives back where it is (or would be: where its language's tools are missing, a build
/// of everything goes on without it).
pub(crate) fn build(name: &str, is_named: bool) -> anyhow::Result<PathBuf> {
    let folder = layout::guest(name)?;
    let project = Project::find(&folder)?;
    let component = layout::components().join(format!("{name}.wasm"));
    let tools = match tools(project.language) {
        Ok(tools) => tools,
        Err(error) if is_named || std::env::var(FORCE).as_deref() == Ok("required") => return Err(error),
        Err(error) => {
            eprintln!("xtask: {} is left out: {error:#}", layout::shown(&folder));
            return Ok(component);
        }
    };
    let state = format!("{:016x}", fingerprint(&project)?);
    let stamp = tools.join(format!("{name}.stamp"));
    if component.is_file() && std::fs::read_to_string(&stamp).is_ok_and(|stamped| stamped == state) {
        return Ok(component);
    }
    eprintln!("xtask: {}: building target/plugins/{name}.wasm", layout::shown(&folder));
    let options = Options {
        sdk: Some(layout::root()),
        tools: Some(tools),
        output: Some(component.clone()),
        ..Options::default()
    };
    bulkhead_author::build(&project.folder, &options).with_context(|| layout::shown(&folder))?;
    std::fs::write(stamp, state)?;
    Ok(component)
}

/// Installs what tests compile C with; no guest of the repository is written in it.
pub(crate) fn install_c() -> anyhow::Result<()> {
    match tools(Language::C) {
        Err(error) if std::env::var(FORCE).as_deref() != Ok("required") => {
            eprintln!("xtask: the tests of plugins in C are left out: {error:#}");
            Ok(())
        }
        installed => installed.map(drop),
    }
}

/// Installs the collector that a test exports traces to.
pub(crate) fn install_collector() -> anyhow::Result<()> {
    match environment("collector", &[COLLECTOR]) {
        Err(error) if std::env::var(FORCE).as_deref() != Ok("required") => {
            eprintln!("xtask: the test with a collector is left out: {error:#}");
            Ok(())
        }
        installed => installed.map(drop),
    }
}

/// The languages whose guests are left out, for the tests that need them.
pub(crate) fn missing() -> Vec<&'static str> {
    let languages = [("python", Language::Python), ("javascript", Language::Javascript), ("c", Language::C)];
    languages.into_iter().filter(|(_, language)| tools(*language).is_err()).map(|(name, _)| name).collect()
}

/// Runs the unit tests of the SDKs that are no crates, and of their samples.
pub(crate) fn test() -> anyhow::Result<()> {
    let python = layout::sdk("python");
    let mut steps = Vec::new();
    for (folder, tests) in [(python.clone(), "tests"), (layout::guest("dedup")?, ".")] {
        let mut command = Command::new("python3");
        command.args(["-m", "unittest", "discover", "-s", tests]).current_dir(&folder).env("PYTHONPATH", &python);
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        steps.push((folder, command));
    }
    for folder in [layout::sdk("javascript"), layout::guest("meetings")?] {
        let mut command = Command::new("node");
        command.arg("--test").current_dir(&folder);
        steps.push((folder, command));
    }
    let c = layout::sdk("c");
    let mut command = Command::new("sh");
    // The machine's own compiler: the tests need no component.
    command.args(["-ec", "cc -Wall -Wextra -Werror -I. -o \"$1\" tests/test_sdk.c && \"$1\"", "sh"]);
    command.arg(layout::target().join("test_sdk_c")).current_dir(&c);
    steps.push((c, command));
    for (folder, mut command) in steps {
        let folder = layout::shown(&folder);
        let program = command.get_program().to_owned();
        let is_there = if program == "node" {
            bulkhead_author::node().is_ok()
        } else {
            Command::new(&program).arg("--version").output().is_ok()
        };
        if is_there || std::env::var(FORCE).as_deref() == Ok("required") {
            steps::run(&format!("unit tests of {folder}"), &mut command)?;
        } else {
            eprintln!(
                "xtask: the unit tests of {folder} are left out: there is no {}, or it is too old",
                program.display()
            );
        }
    }
    Ok(())
}

/// Where the language's tools are, installed if they are not there yet.
fn tools(language: Language) -> anyhow::Result<PathBuf> {
    match language {
        Language::Python => python(),
        Language::Javascript | Language::Typescript => javascript(),
        Language::C => environment("c", &[ZIG]),
        Language::Rust => bail!("Rust guests are built by Cargo"),
    }
}

fn python() -> anyhow::Result<PathBuf> {
    environment("python", &[&[COMPONENTIZE_PY][..], &PYTHON_TESTING].concat())
}

/// A virtual environment with these packages of PyPI.
fn environment(name: &str, wanted: &[&str]) -> anyhow::Result<PathBuf> {
    let folder = layout::guest_tools().join(name);
    if is_installed(&folder, &wanted.join(" ")) {
        return Ok(folder);
    }
    std::fs::create_dir_all(&folder)?;
    steps::output(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))
        .context("install python3 with its module venv (Debian: `apt-get install python3 python3-venv`)")?;
    let mut pip = Command::new(folder.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(wanted);
    let wanted = wanted.join(" ");
    steps::run(&format!("install {wanted} into {}", folder.display()), &mut pip)?;
    std::fs::write(folder.join("installed"), wanted)?;
    Ok(folder)
}

fn javascript() -> anyhow::Result<PathBuf> {
    // Before anything else: packages that are there already do not run on an older one either.
    bulkhead_author::node()?;
    let folder = layout::guest_tools().join("javascript");
    let packages = [&JAVASCRIPT_PACKAGES[..], &SERVER_PACKAGES].concat();
    let wanted = packages.join(" ");
    if is_installed(&folder, &wanted) {
        return Ok(folder);
    }
    steps::output(Command::new("npm").arg("--version"))
        .context("install Node.js 20 or newer with npm (Debian: `apt-get install nodejs npm`)")?;
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("package.json"), "{\"private\": true, \"type\": \"module\"}\n")?;
    let mut npm = Command::new("npm");
    npm.arg("install").arg("--prefix").arg(&folder).args(["--no-audit", "--no-fund", "--no-package-lock", "--silent"]);
    npm.args(packages);
    steps::run(&format!("install {wanted} into {}", folder.display()), &mut npm)?;
    std::fs::write(folder.join("installed"), wanted)?;
    Ok(folder)
}

/// The marker is written last, so a folder that was interrupted has none.
fn is_installed(folder: &Path, wanted: &str) -> bool {
    std::fs::read_to_string(folder.join("installed")).is_ok_and(|installed| installed == wanted)
}

/// Everything that a component is made of: its sources, the SDK, the interface, the tools and how they are called.
fn fingerprint(project: &Project) -> anyhow::Result<u64> {
    let mut hasher = DefaultHasher::new();
    let sdk = match project.language {
        Language::Python => layout::sdk("python"),
        _ => layout::sdk("javascript"),
    };
    (COMPONENTIZE_PY, JAVASCRIPT_PACKAGES, SERVER_PACKAGES).hash(&mut hasher);
    let author = layout::root().join("plugins/tools/author/src");
    for folder in [&project.folder, &sdk, &layout::root().join("wit"), &author] {
        hash_folder(folder, &mut hasher)?;
    }
    Ok(hasher.finish())
}

fn hash_folder(folder: &Path, hasher: &mut DefaultHasher) -> anyhow::Result<()> {
    let mut paths = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() {
            let is_other = ["__pycache__", "node_modules", "tests"].iter().any(|other| name == *other);
            if !is_other && !name.as_encoded_bytes().starts_with(b".") {
                hash_folder(&path, hasher)?;
            }
        } else {
            (name, std::fs::read(&path)?).hash(hasher);
        }
    }
    Ok(())
}
