//! What a plugin author needs from the command line: a new project, and a component from a project.
//!
//! Owns the templates, the copy of the SDKs that every project carries, and the calls of the languages' own tools. It
//! never installs anything: it says what is missing and how to get it. Invariant: a component appears under its name
//! only when it is whole, and with its manifest and its skills inside.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod c;
mod c_tools;
pub mod check;
mod componentize_js;
mod componentize_py;
mod docs;
mod functions;
mod interface;
mod javascript;
mod manifest;
mod programs;
mod project;
mod python;
mod rust;
mod sdk;
mod section;
mod skills;
mod template;
mod traceback;
mod typescript;
mod world;
mod wrap;
mod wrong_integers;

use std::io;
use std::path::{Path, PathBuf};

pub use c::{ZIG, compiler as c_compiler};
pub use javascript::{PACKAGES as JAVASCRIPT_PACKAGES, SERVER_PACKAGES, node};
pub use programs::find as find_program;
pub use project::{Language, Project};
pub use python::COMPONENTIZE_PY;
pub use rust::{TARGET as RUST_TARGET, has_target as has_rust_target};
pub use template::{Kind, create};
pub use wrap::{WrapOptions, wrap};

/// Why there is no project or no component. The texts are for the author.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: there is no plugin here: no Cargo.toml, plugin.py, plugin.js, plugin.ts or plugin.c, nor the server.ts or server.js of an MCP server. `bulkhead plugin new` makes one; what another language compiles to is made a plugin by `bulkhead plugin wrap` (plugins/docs/other-languages.md)", .0.display())]
    NoProject(PathBuf),
    #[error(
        "{0:?} is no name for a plugin: use 1 to 64 lower-case letters, digits and dashes, beginning with a letter"
    )]
    Name(String),
    #[error(
        "there is a template of an MCP server for rust and for ts; a server in another language is a plugin if it can be compiled to a \
         component (plugins/docs/mcp-servers.md)"
    )]
    NoServer,
    #[error(
        "there is a template of an MCP App for rust, python and js; in another language a plugin with a resource under ui:// is one \
         (plugins/docs/apps.md)"
    )]
    NoApp,
    #[error("{} is there already, and not empty", .0.display())]
    Exists(PathBuf),
    #[error("{what} is missing. {remedy}")]
    Missing { what: String, remedy: String },
    #[error("{step} failed: {reason}")]
    Failed { step: &'static str, reason: String },
    /// A mistake in a source, with its place.
    #[error("{0}")]
    Source(String),
    #[error("the manifest is wrong: {0}")]
    Manifest(String),
    #[error("{}: {}", file.display(), wrong.join("; "))]
    Wrapped { file: PathBuf, wrong: Vec<String> },
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl Error {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

/// How a component is built.
#[derive(Debug, Default)]
pub struct Options {
    /// The folder that holds `wit/` and `plugins/` as in Bulkhead's repository; else the project's own `bulkhead/`.
    pub sdk: Option<PathBuf>,
    /// The folder where the language's tools are installed (a virtual environment, or what holds `node_modules`); else
    /// they are looked for in the project and on the search path.
    pub tools: Option<PathBuf>,
    /// The component; else `NAME.wasm` in the project.
    pub output: Option<PathBuf>,
    /// Passed on to Cargo.
    pub cargo: Vec<String>,
}

/// Builds the project of a folder; gives back where the component is. What the language's tools say goes to stderr.
///
/// # Errors
///
/// What is missing, or what did not work.
pub fn build(folder: &Path, options: &Options) -> Result<PathBuf, Error> {
    let project = Project::find(folder)?;
    let output = options.output.clone().unwrap_or_else(|| folder.join(format!("{}.wasm", project.name)));
    let component = match project.language {
        Language::Rust => rust::build(&project, options)?,
        Language::Python => python::build(&project, options)?,
        Language::Javascript | Language::Typescript => javascript::build(&project, options)?,
        Language::C => c::build(&project, options)?,
    };
    let component = docs::with_docs(component, &project.folder.join("wit"))?;
    let component = manifest::with_manifest(component, project.manifest.as_deref())?;
    let component = skills::with_skills(component, &project.folder.join("skills"))?;
    publish(&component, &output)?;
    Ok(output)
}

/// Written aside and renamed: whoever watches the file never sees half of it.
fn publish(component: &[u8], output: &Path) -> Result<(), Error> {
    if let Some(folder) = output.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
    }
    let aside = output.with_extension("part");
    std::fs::write(&aside, component).map_err(Error::io(&aside))?;
    std::fs::rename(&aside, output).map_err(Error::io(output))
}
