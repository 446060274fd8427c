//! Components from Python, by componentize-py.

use std::process::Command;

use crate::{Error, Options, Project, programs};

/// The version that the SDK is tested with, as pip wants it.
pub const COMPONENTIZE_PY: &str = "componentize-py==0.25.1";

/// The module that the component is made of: the author's, then what the host calls.
const ENTRY: &str = "import plugin\nfrom bulkhead_plugin.component import Tools\n";

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
    std::fs::write(&entry, ENTRY).map_err(Error::io(&entry))?;
    let component = scratch.path().join("component.wasm");

    let mut command = Command::new(program);
    command.current_dir(scratch.path());
    command.arg("--quiet").arg("-d").arg(sdk.join("wit")).args(["-w", "plugin", "componentize", "bulkhead_entry"]);
    for path in [scratch.path(), &project.folder, &sdk.join("plugins/python")] {
        command.arg("-p").arg(path);
    }
    command.arg("-o").arg(&component);
    if environment.is_dir() {
        // So that what the author installed there is found as well.
        command.env("VIRTUAL_ENV", &environment);
    }
    programs::run("componentize-py", &mut command)?;
    programs::read(&component)
}
