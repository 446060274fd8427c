//! Components from JavaScript and TypeScript, by esbuild and componentize-js.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::{Error, Language, Options, Project, programs, typescript, world};

/// The packages that a build needs, in the versions that the SDK is tested with, as npm wants them.
///
/// componentize-js imports preview2-shim without naming it among its dependencies: npm removes it at the next
/// installation of anything, unless the project names it. The version is the one that the others agree on.
pub const PACKAGES: [&str; 4] = [
    "@bytecodealliance/componentize-js@0.23.0",
    "@bytecodealliance/jco@1.35.0",
    "@bytecodealliance/preview2-shim@0.25.0",
    "esbuild@0.28.2",
];

/// What MCP servers in TypeScript and JavaScript are made of, in the versions that the host is tested with.
pub const SERVER_PACKAGES: [&str; 2] = ["@modelcontextprotocol/server@2.4.0", "zod@4.6.0"];

/// The oldest major version of Node.js that componentize-js runs on. Debian 12 has 18.
const NODE_MAJOR_MIN: u32 = 20;

/// Bundles and componentizes; its argument is one JSON object. One module, as it is placed beside the packages of
/// others.
const SCRIPT: &str = concat!(
    include_str!("watch.mjs"),
    "\n",
    include_str!("lacking.mjs"),
    "\n",
    include_str!("bundle.mjs"),
    "\n",
    include_str!("build.mjs")
);

/// The same for MCP servers.
const SERVER_SCRIPT: &str =
    concat!(include_str!("lacking.mjs"), "\n", include_str!("bundle.mjs"), "\n", include_str!("server.mjs"));

pub(crate) fn build(project: &Project, options: &Options) -> Result<Vec<u8>, Error> {
    let sdk = if project.is_http_server() { None } else { Some(project.sdk(options)?) };
    let packages = options.tools.clone().unwrap_or_else(|| project.folder.clone()).join("node_modules");
    let missing = |what: &str, remedy: String| Error::Missing { what: what.to_owned(), remedy };
    let node = node()?;
    for package in PACKAGES {
        let name = package.rsplit_once('@').map_or(package, |(name, _)| name);
        if !packages.join(name).is_dir() {
            let folder = project.folder.display();
            return Err(missing(
                name,
                format!("Run `npm install` in {folder}, or `npm install {}`.", PACKAGES.join(" ")),
            ));
        }
    }
    if project.language == Language::Typescript {
        typescript::check(&project.folder, project.entry, &node)?;
    }
    let scratch = programs::scratch()?;
    let component = scratch.path().join("component.wasm");
    let wit = match &sdk {
        Some(sdk) => world::place(sdk, scratch.path())?,
        None => world::place_of_server(&packages, scratch.path())?,
    };
    let script = Script::place(&packages, if sdk.is_some() { SCRIPT } else { SERVER_SCRIPT })?;
    let task = json!({
        "entry": project.folder.join(project.entry),
        "project": project.folder,
        "sdk": sdk.map(|sdk| crate::sdk::folder(&sdk, "javascript")),
        "packages": packages,
        "wit": wit,
        "scratch": scratch.path(),
        "output": component,
    });
    let mut command = Command::new(node);
    command.arg(&script.0).arg(task.to_string()).current_dir(scratch.path());
    programs::run_script("componentize-js", &mut command)?;
    programs::read(&component)
}

/// Node.js, if it is new enough.
///
/// # Errors
///
/// What is there instead, and what to install.
pub fn node() -> Result<PathBuf, Error> {
    let missing = |what: &str| Error::Missing {
        what: what.to_owned(),
        remedy: format!("Install Node.js {NODE_MAJOR_MIN} or newer with npm, from https://nodejs.org."),
    };
    let node = programs::find("node", &[]).ok_or_else(|| missing("node"))?;
    let version = programs::output("node --version", Command::new(&node).arg("--version"))?;
    let version = version.trim();
    if major(version).is_some_and(|major| major >= NODE_MAJOR_MIN) {
        Ok(node)
    } else {
        Err(missing(&format!("a new enough node ({} is {version})", node.display())))
    }
}

/// The first number of a version such as `v20.1.0`.
fn major(version: &str) -> Option<u32> {
    version.strip_prefix('v')?.split('.').next()?.parse().ok()
}

/// The script beside the packages, because Node looks for packages beside the file that imports them. Removed in the
/// end.
struct Script(PathBuf);

impl Script {
    fn place(packages: &Path, text: &str) -> Result<Self, Error> {
        let path = packages.join(format!(".bulkhead-build-{}.mjs", std::process::id()));
        std::fs::write(&path, text).map_err(Error::io(&path))?;
        Ok(Self(path))
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // A script that stays behind harms nobody.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_major_version_is_parsed() {
        assert_eq!(major("v18.20.4"), Some(18));
        assert_eq!(major("v22.0.0-nightly"), Some(22));
        assert_eq!(major("20.1.0"), None);
        assert_eq!(major(""), None);
    }
}
