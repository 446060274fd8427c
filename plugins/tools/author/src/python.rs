//! Components from Python, by componentize-py.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::world::{self, Offer};
use crate::{Error, Options, Project, programs, traceback};

/// The version that the SDK is tested with, as pip wants it.
pub const COMPONENTIZE_PY: &str = "componentize-py==0.25.1";

/// Folders of a project that hold no modules of the plugin. Names that begin with a dot are passed over as well.
const NO_MODULES: [&str; 5] = ["bulkhead", "target", "node_modules", "__pycache__", "tests"];

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
    std::fs::write(&entry, module(&offers)).map_err(Error::io(&entry))?;
    let wit = world::place(&sdk, scratch.path())?;
    let component = scratch.path().join("component.wasm");

    let mut command = Command::new(program);
    command.current_dir(scratch.path());
    command.arg("--quiet").arg("-d").arg(wit);
    command.args(["-w", &world::name(&offers), "componentize", "bulkhead_entry"]);
    // In the order that `traceback` knows.
    for path in [scratch.path(), &project.folder, &crate::sdk::folder(&sdk, "python")] {
        command.arg("-p").arg(path);
    }
    command.arg("-o").arg(&component);
    if environment.is_dir() {
        // So that what the author installed there is found as well.
        command.env("VIRTUAL_ENV", &environment);
    }
    componentize(&mut command)?;
    programs::read(&component)
}

/// Runs componentize-py. What the plugin's module printed goes to stderr; the exception that ended it, if one did, is the error.
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
        Some(uncaught) => Err(Error::Failed { step: "importing plugin.py", reason: uncaught.exception }),
        None if output.status.success() => Ok(()),
        None => Err(failed(format!("{} ended with {}", command.get_program().display(), output.status))),
    }
}

/// The module that the component is made of: the author's, then what the host calls.
fn module(offers: &[Offer]) -> String {
    let mut text =
        "import plugin\nfrom bulkhead_plugin import _offers\nfrom bulkhead_plugin.component import Tools\n".to_owned();
    for offer in offers {
        let interface = offer.interface();
        text += &format!("from bulkhead_plugin.component_{interface} import {}\n", offer.class());
    }
    let exported = offers.iter().map(|offer| format!("{:?}, ", offer.interface())).collect::<String>();
    text + &format!("_offers.check(set([{exported}]))\n")
}

/// What the plugin offers beside tools, by what its modules import of the SDK. The SDK says so if anything was not seen.
fn offers(folder: &Path) -> Result<Vec<Offer>, Error> {
    let mut found = [false; 3];
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(Error::io(&folder))?.flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if name.starts_with('.') || NO_MODULES.contains(&name.as_str()) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".py") && !name.starts_with("test_") {
                let text = std::fs::read_to_string(&path).map_err(Error::io(&path))?;
                found.iter_mut().zip(Offer::ALL).for_each(|(found, offer)| *found |= uses(&text, offer.decorator()));
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
        assert!(module(&[Offer::Prompts]).contains("from bulkhead_plugin.component_prompts import Prompts\n"));
        assert!(module(&[Offer::Prompts]).ends_with("_offers.check(set([\"prompts\", ]))\n"));
    }
}
