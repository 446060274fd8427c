//! Components from Python, by componentize-py.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::world::{self, Offer};
use crate::{Error, Options, Project, manifest, programs, traceback};

/// The version that the SDK is tested with, as pip wants it.
pub const COMPONENTIZE_PY: &str = "componentize-py==0.25.1";

/// What the SDK writes beside the entry.
const LATE_REPORT: &str = "late.json";
const READ_REPORT: &str = "read.json";

/// Folders of a project that hold no modules of the plugin. Names that begin with a dot are passed over as well.
const NO_MODULES: [&str; 5] = ["bulkhead", "target", "node_modules", "__pycache__", "tests"];

/// How a plugin reaches web services, where its manifest asks for any.
const HTTP: &str = "wasi:http/outgoing-handler@0.2.0";

pub(crate) fn build(project: &Project, options: &Options) -> Result<Vec<u8>, Error> {
    let sdk = project.sdk(options)?;
    let environment = options.tools.clone().unwrap_or_else(|| project.folder.join(".venv"));
    let Some(program) = programs::find("componentize-py", &[environment.join("bin")]) else {
        let remedy = format!(
            "Install it with `python3 -m venv .venv && .venv/bin/pip install -r requirements.txt` in {}, or \
             `pip install {COMPONENTIZE_PY}`.",
            project.folder.display()
        );
        return Err(Error::Missing { what: "componentize-py".to_owned(), remedy });
    };
    let scratch = programs::scratch()?;
    let entry = scratch.path().join("bulkhead_entry.py");
    let offers = offers(&project.folder)?;
    let wit = world::place(&sdk, scratch.path())?;
    let python_sdk = crate::sdk::folder(&sdk, "python");
    let watch = Watch::of(&python_sdk);
    std::fs::write(&entry, module(&offers, watch)).map_err(Error::io(&entry))?;
    let has_http = project.manifest.as_deref().is_some_and(manifest::asks_for_http);
    let world =
        if has_http { world::extend(&wit, &python_sdk.join("wit"), HTTP, &offers)? } else { world::name(&offers) };
    let component = scratch.path().join("component.wasm");

    let mut command = Command::new(program);
    command.current_dir(scratch.path());
    command.arg("--quiet").arg("-d").arg(wit);
    command.args(["-w", &world, "componentize", "bulkhead_entry"]);
    // In the order that `traceback` knows.
    for path in [scratch.path(), &project.folder, &python_sdk] {
        command.arg("-p").arg(path);
    }
    command.arg("-o").arg(&component);
    if environment.is_dir() {
        // So that what the author installed there is found as well.
        command.env("VIRTUAL_ENV", &environment);
    }
    componentize(&mut command)?;
    let mut warnings = String::new();
    if watch.follows_late {
        warnings += &late_imports(&programs::read(&scratch.path().join(LATE_REPORT))?)?;
    }
    if watch.sees_reads {
        warnings += &reads(&programs::read(&scratch.path().join(READ_REPORT))?)?;
    }
    let _ = std::io::stderr().write_all(warnings.as_bytes());
    programs::read(&component)
}

/// What the SDK looks at while the modules are imported. That of an older project does less.
#[derive(Clone, Copy)]
struct Watch {
    follows_late: bool,
    sees_reads: bool,
}

impl Watch {
    fn of(sdk: &Path) -> Self {
        let has = |module: &str| sdk.join("bulkhead_plugin").join(module).is_file();
        Self { follows_late: has("_late.py"), sees_reads: has("_snapshot.py") }
    }
}

/// A clock, a random number or a variable that a module reads when it is imported, as the SDK reports it.
#[derive(serde::Deserialize)]
struct Read {
    what: String,
    file: String,
    line: u32,
}

/// A line for the author of everything that is read once for all calls.
fn reads(report: &[u8]) -> Result<String, Error> {
    let failed =
        |error: serde_json::Error| Error::Failed { step: "reading what is read once", reason: error.to_string() };
    let reads: Vec<Read> = serde_json::from_slice(report).map_err(failed)?;
    let lines = reads.iter().map(|Read { what, file, line }| {
        format!(
            "warning: {file}:{line}: {what} is read while the plugin is built, and every call sees that value. Read it inside of \
             the tool\n"
        )
    });
    Ok(lines.collect())
}

/// An import that will fail in a call, as the SDK reports it. Without a module it is one whose name only a call knows.
#[derive(serde::Deserialize)]
struct LateImport {
    module: Option<String>,
    file: String,
    line: u32,
    problem: String,
}

/// A line for the author of everything that is imported in calls and is not there.
fn late_imports(report: &[u8]) -> Result<String, Error> {
    let failed =
        |error: serde_json::Error| Error::Failed { step: "reading what is imported late", reason: error.to_string() };
    let imports: Vec<LateImport> = serde_json::from_slice(report).map_err(failed)?;
    let lines = imports.iter().map(|LateImport { module, file, line, problem }| match module {
        Some(module) => format!(
            "warning: {file}:{line}: {module} is imported when a call gets here, and the component does not have it ({problem}). \
             Install it before the build, or do without\n"
        ),
        None => format!(
            "warning: {file}:{line}: modules are imported here by names that only a call knows. Import those that you need at the top \
             of plugin.py\n"
        ),
    });
    Ok(lines.collect())
}

/// Runs componentize-py. What the plugin's module printed goes to stderr; the exception that ended it, if one did, is
/// the error.
fn componentize(command: &mut Command) -> Result<(), Error> {
    let failed = |reason: String| Error::Failed { step: "componentize-py", reason };
    let mut stderr = std::io::stderr();
    let shown = stderr.as_fd().try_clone_to_owned().map_err(|error| failed(error.to_string()))?;
    // The frames of componentize-py itself help no author.
    command.env_remove("RUST_BACKTRACE").stdin(Stdio::null()).stdout(shown).stderr(Stdio::piped());
    let output = command.output().map_err(|error| failed(format!("{}: {error}", command.get_program().display())))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let uncaught = if output.status.success() { None } else { traceback::read(&said) };
    // A closed stderr is no reason to fail: there is nobody who would read it.
    let _ = stderr.write_all(uncaught.as_ref().map_or(&*said, |uncaught| uncaught.before.as_str()).as_bytes());
    match uncaught {
        Some(uncaught) => Err(Error::Source(uncaught.mistake)),
        None if output.status.success() => Ok(()),
        None => Err(failed(format!("{} ended with {}", command.get_program().display(), output.status))),
    }
}

/// The module that the component is made of: the author's, then what the host calls.
fn module(offers: &[Offer], watch: Watch) -> String {
    let mut text = if watch.sees_reads {
        format!(
            "from bulkhead_plugin import _snapshot\n_snapshot.watch()\nimport plugin\n_snapshot.report({:?})\n",
            in_guest(READ_REPORT)
        )
    } else {
        "import plugin\n".to_owned()
    };
    text += "from bulkhead_plugin import _offers\nfrom bulkhead_plugin.component import Tools\n";
    for offer in offers {
        let interface = offer.interface();
        text += &format!("from bulkhead_plugin.component_{interface} import {}\n", offer.class());
    }
    let exported = offers.iter().map(|offer| format!("{:?}, ", offer.interface())).collect::<String>();
    text += &format!("_offers.check(set([{exported}]))\n");
    if watch.follows_late {
        text += &format!(
            "from bulkhead_plugin import _late, component\n_late.include({:?})\ncomponent.settle()\n",
            in_guest(LATE_REPORT)
        );
    }
    text
}

/// A report as the build sees it: the scratch folder is the first that componentize-py is given.
fn in_guest(report: &str) -> String {
    format!("/0/{report}")
}

/// What the plugin offers beside tools, by what its modules import of the SDK. The SDK says so if anything was not
/// seen.
fn offers(folder: &Path) -> Result<Vec<Offer>, Error> {
    let mut found = [false; 3];
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(Error::io(&folder))?.flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with('.') || NO_MODULES.contains(&name.as_str()) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".py") && !name.starts_with("test_") {
                let text = std::fs::read_to_string(&path).map_err(Error::io(&path))?;
                let is_made = |offer: Offer| offer.makers().iter().any(|maker| uses(&text, maker));
                found.iter_mut().zip(Offer::ALL).for_each(|(found, offer)| *found |= is_made(offer));
            }
        }
    }
    Ok(Offer::ALL.into_iter().zip(found).filter(|(_, found)| *found).map(|(offer, _)| offer).collect())
}

/// Whether a module takes this name from the SDK.
fn uses(module: &str, name: &str) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    let is_attribute = module
        .split("bulkhead_plugin.")
        .skip(1)
        .any(|rest| rest.strip_prefix(name).is_some_and(|after| !after.starts_with(is_part)));
    let is_imported = module.split("from bulkhead_plugin import").skip(1).any(|rest| {
        let names = match rest.trim_start_matches([' ', '\\']).strip_prefix('(') {
            Some(several) => several.split(')').next(),
            None => rest.split('\n').next(),
        };
        names
            .unwrap_or_default()
            .split(|character| !is_part(character) && character != '*')
            .any(|word| word == name || word == "*")
    });
    is_attribute || is_imported
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_sdk_imports_of_a_module_are_detected() {
        for module in [
            "from bulkhead_plugin import prompt",
            "from bulkhead_plugin import tool, prompt as p\nx",
            "from bulkhead_plugin import (\n    Message,\n    prompt,\n)",
            "from bulkhead_plugin import *",
            "import bulkhead_plugin\n@bulkhead_plugin.prompt\n",
        ] {
            assert!(uses(module, "prompt"), "{module}");
            assert!(!uses(module, "resource") || module.contains('*'), "{module}");
        }
        for module in
            ["from bulkhead_plugin import tool\nprompt = 1", "from bulkhead_plugin import prompts", "# prompt"]
        {
            assert!(!uses(module, "prompt"), "{module}");
        }
    }

    #[test]
    fn python_offers_ignore_tests_and_sdk_modules() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "from bulkhead_plugin import complete, resource").unwrap();
        };
        for path in ["test_plugin.py", "bulkhead/plugins/sdk/python/x.py", ".venv/y.py"] {
            write(path);
        }
        assert_eq!(offers(folder.path()).unwrap(), []);
        write("package/more.py");
        assert_eq!(offers(folder.path()).unwrap(), [Offer::Resources, Offer::Completions]);
        let older = Watch { follows_late: false, sees_reads: false };
        let entry = module(&[Offer::Prompts], older);
        assert!(entry.starts_with("import plugin\n"), "an older SDK does not see what is read");
        assert!(entry.contains("from bulkhead_plugin.component_prompts import Prompts\n"));
        assert!(entry.ends_with("_offers.check(set([\"prompts\", ]))\n"), "an older SDK does not follow late imports");
        let entry = module(&[], Watch { follows_late: true, sees_reads: true });
        assert!(entry.contains("_snapshot.watch()\nimport plugin\n_snapshot.report(\"/0/read.json\")\n"));
        assert!(entry.ends_with("_late.include(\"/0/late.json\")\ncomponent.settle()\n"));
    }

    #[test]
    fn reads_are_told_with_their_place() {
        let report = br#"[{"what": "time.time", "file": "words/read.py", "line": 3}]"#;
        assert_eq!(
            reads(report).unwrap(),
            "warning: words/read.py:3: time.time is read while the plugin is built, and every call sees that value. Read it inside of \
             the tool\n"
        );
        assert_eq!(reads(b"[]").unwrap(), "");
        assert!(reads(b"no JSON").is_err());
    }

    #[test]
    fn late_imports_are_told_with_their_place() {
        let report = br#"[{"module": "ujson", "file": "words/read.py", "line": 3, "problem": "ModuleNotFoundError: No module named 'ujson'"},
            {"module": null, "file": "markdown/core.py", "line": 9, "problem": ""}]"#;
        let warnings = late_imports(report).unwrap();
        let lines: Vec<_> = warnings.lines().collect();
        assert!(
            lines[0].starts_with("warning: words/read.py:3: ujson is imported when a call gets here"),
            "{warnings}"
        );
        assert!(lines[0].contains("(ModuleNotFoundError: No module named 'ujson')"), "{warnings}");
        assert!(lines[1].starts_with("warning: markdown/core.py:9: modules are imported here by names"), "{warnings}");
        assert_eq!((lines.len(), late_imports(b"[]").unwrap().as_str()), (2, ""));
        assert!(late_imports(b"no JSON").is_err());
    }
}
