//! `new`, `build` and `wrap`.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bulkhead_author::{Error, Kind, Language, Options, Project, WrapOptions};
use bulkhead_sources::Digest;
use clap::{Args, ValueEnum};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::progress::{self, Place};
use crate::{EXIT_FAILED, EXIT_REFUSED, EXIT_USAGE, Outcome};

/// What a plugin is written in.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Lang {
    Rust,
    Python,
    #[value(alias = "javascript")]
    Js,
    #[value(alias = "typescript")]
    Ts,
    C,
    /// Languages whose own tools make components.
    #[value(hide = true, aliases = ["go", "tinygo", "csharp", "c#", "moonbit", "zig", "kotlin", "java", "swift", "dart"])]
    Other,
}

const NO_TEMPLATE: &str = "there is no template for this language: build a component with its own tools \
                           (plugins/docs/other-languages.md says how, for Go, C#, MoonBit, Zig and others)";

/// Start a plugin: a small project with two tools, a test and a README.
///
/// The project carries the interface and the SDK in its folder bulkhead/, so it builds without a clone of Bulkhead.
#[derive(Args, Debug)]
#[command(
    after_long_help = "Examples:\n  bulkhead plugin new trip-planner --lang python\n  bulkhead plugin new trip-planner --lang ts --mcp\n\n\
                       Go, C#, MoonBit, Zig and others: build a component with the tools of that language, see \
                       plugins/docs/other-languages.md."
)]
pub struct NewArguments {
    /// The plugin's name: lower-case letters, digits and dashes
    #[arg(value_name = "NAME")]
    name: String,
    /// What it is written in
    #[arg(long, value_enum)]
    lang: Lang,
    /// An MCP server of the language's official SDK, for rust and ts, instead of a plugin of Bulkhead's SDK
    #[arg(long)]
    mcp: bool,
    /// An MCP App, for rust, python and js: tools with a view, which clients show beside the conversation
    #[arg(long, conflicts_with = "mcp")]
    app: bool,
    /// The folder; it must be empty or not exist yet [default: ./NAME]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Make a component of a project: with Cargo where there is a Cargo.toml, with componentize-py where there is a
/// plugin.py, with componentize-js where there is a plugin.js, plugin.ts, server.js or server.ts, with clang or Zig
/// where there is a plugin.c.
///
/// Nothing is installed: what is missing is named, with the command that installs it. The manifest is manifest.toml.
#[derive(Args, Debug)]
#[command(
    after_long_help = "Example:\n  bulkhead plugin build trip-planner && bulkhead plugin check trip-planner/trip-planner.wasm"
)]
pub struct BuildArguments {
    /// The project's folder
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// The component [default: DIR/NAME.wasm]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// A clone of Bulkhead, for its interface and SDK [default: DIR/bulkhead]
    #[arg(long, value_name = "DIR")]
    sdk: Option<PathBuf>,
    /// One JSON object instead of text; what the language's tools print goes to stderr as ever
    #[arg(long)]
    json: bool,
    /// Passed on to Cargo
    #[arg(last = true, value_name = "ARGUMENT")]
    cargo: Vec<String>,
}

/// Put manifest and descriptions into a component of another language, as the SDKs do for theirs.
///
/// FILE is a component, or a core module that the bindings of wit-bindgen gave its types (C, Go, MoonBit, Zig); one
/// without types needs --wit and --world. What a host is sure to refuse is refused here, and OUT is not written. A
/// component that exports functions of its own, and not bulkhead:plugin/tools, takes the descriptions of its tools from
/// --wit.
#[derive(Args, Debug)]
#[command(
    after_long_help = "Example:\n  bulkhead plugin wrap build/units.wasm --manifest manifest.toml --wit wit -o units.wasm"
)]
pub struct WrapArguments {
    /// The component, or the core module
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The manifest, in TOML
    #[arg(long, value_name = "FILE")]
    manifest: PathBuf,
    /// The author's WIT: a file, or the folder of a package
    #[arg(long, value_name = "PATH")]
    wit: Option<PathBuf>,
    /// The world of --wit that a core module without types was built for
    #[arg(long, value_name = "NAME", requires = "wit")]
    world: Option<String>,
    /// A folder with skills, one folder each, that go into the component
    #[arg(long, value_name = "DIR")]
    skills: Option<PathBuf>,
    /// The component that is written
    #[arg(long, short, value_name = "OUT")]
    output: PathBuf,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn new(arguments: &NewArguments) -> Outcome {
    let folder = arguments.dir.clone().unwrap_or_else(|| PathBuf::from(&arguments.name));
    let language = match arguments.lang {
        Lang::Rust => Language::Rust,
        Lang::Python => Language::Python,
        Lang::Js => Language::Javascript,
        Lang::Ts => Language::Typescript,
        Lang::C => Language::C,
        Lang::Other => return Outcome::failed(EXIT_USAGE, NO_TEMPLATE),
    };
    let kind = match (arguments.mcp, arguments.app) {
        (true, _) => Kind::McpServer,
        (false, true) => Kind::App,
        (false, false) => Kind::Plugin,
    };
    match bulkhead_author::create(&folder, &arguments.name, language, kind) {
        Ok(()) => {
            let readme = folder.join("README.md");
            if arguments.json {
                let name = &arguments.name;
                let language = word(language);
                return Outcome::line(
                    json!({ "folder": folder, "name": name, "language": language, "readme": readme }),
                );
            }
            Outcome::line(folder.display()).with_note(format_args!("what to do next is in {}", readme.display()))
        }
        Err(error) => Outcome::failed(EXIT_USAGE, error),
    }
}

/// Builds the project of a folder, and says so on stderr while it takes long. Cargo says itself what it does.
///
/// # Errors
///
/// As `bulkhead_author::build`, below those of the thread that it blocks.
pub async fn build_project(
    folder: PathBuf,
    options: Options,
    program: &'static str,
) -> anyhow::Result<Result<PathBuf, Error>> {
    let tool = Project::find(&folder).ok().and_then(|project| match project.language {
        Language::Rust => None,
        Language::Python => Some((project.name, "componentize-py")),
        Language::Javascript | Language::Typescript => Some((project.name, "componentize-js")),
        Language::C => Some((project.name, "a compiler for C")),
    });
    let building = tokio::task::spawn_blocking(move || bulkhead_author::build(&folder, &options));
    Ok(match tool {
        None => building.await?,
        Some((name, tool)) => {
            let what = || format!("building {name} with {tool}");
            progress::during(Place::Lines(program), what, building).await?
        }
    })
}

pub(crate) async fn build(arguments: BuildArguments, program: &'static str) -> anyhow::Result<Outcome> {
    let BuildArguments { dir, output, sdk, json, cargo } = arguments;
    let options = Options { sdk, output, cargo, tools: None };
    let component = match build_project(dir.clone(), options, program).await? {
        Ok(component) => component,
        Err(error) => return Ok(Outcome::failed(EXIT_FAILED, error)),
    };
    if !json {
        return Ok(Outcome::line(shown(&component)));
    }
    let Project { name, language, .. } = Project::find(&dir)?;
    let (digest, bytes) = digest(&component)?;
    Ok(Outcome::line(json!({
        "file": shown(&component),
        "component": digest,
        "bytes": bytes,
        "name": name,
        "language": word(language),
    })))
}

pub(crate) fn wrap(arguments: WrapArguments) -> anyhow::Result<Outcome> {
    let WrapArguments { file, manifest, wit, world, skills, output, json } = arguments;
    let options = WrapOptions { file, manifest, wit, world, skills, output };
    let findings = match bulkhead_author::wrap(&options) {
        Ok(findings) => findings,
        Err(error @ Error::Wrapped { .. }) => return Ok(Outcome::failed(EXIT_REFUSED, error)),
        Err(error) => return Ok(Outcome::failed(EXIT_FAILED, error)),
    };
    if json {
        let (digest, bytes) = digest(&options.output)?;
        let file = shown(&options.output);
        let warnings = findings.warnings;
        return Ok(Outcome::line(json!({ "file": file, "component": digest, "bytes": bytes, "warnings": warnings })));
    }
    let warned = Outcome::line(shown(&options.output));
    let warnings = findings.warnings.iter();
    Ok(warnings.fold(warned, |warned, warning| warned.with_note(format_args!("warning: {warning}"))))
}

/// The SHA-256 of a component that was written, and its size.
fn digest(component: &Path) -> anyhow::Result<(String, usize)> {
    let bytes = std::fs::read(component).with_context(|| format!("{} cannot be read", component.display()))?;
    Ok((Digest(Sha256::digest(&bytes).into()).to_string(), bytes.len()))
}

/// As `--lang` names it.
fn word(language: Language) -> &'static str {
    match language {
        Language::Rust => "rust",
        Language::Python => "python",
        Language::Javascript => "js",
        Language::Typescript => "ts",
        Language::C => "c",
    }
}

/// As short as it can be typed.
fn shown(path: &Path) -> String {
    path.strip_prefix("./").unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        new: NewArguments,
    }

    #[test]
    fn server_of_a_language_without_one_is_refused_in_words() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("trip");
        let line = Line::try_parse_from(["new", "trip", "--lang", "c", "--mcp", "--dir", folder.to_str().unwrap()]);
        let outcome = new(&line.unwrap_or_else(|error| panic!("{error}")).new);
        assert_eq!(outcome.code, EXIT_USAGE);
        assert!(outcome.notes[0].contains("a template of an MCP server for rust and for ts"), "{:?}", outcome.notes);
        assert!(!folder.exists(), "nothing is made");
    }

    #[test]
    fn language_without_a_template_is_answered_with_the_page_about_it() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("trip");
        for language in ["go", "c#", "moonbit"] {
            let folder = folder.to_str().unwrap();
            let line = Line::try_parse_from(["new", "trip", "--lang", language, "--dir", folder]);
            let outcome = new(&line.unwrap_or_else(|error| panic!("{error}")).new);
            let said = "its own tools (plugins/docs/other-languages.md says how";
            assert_eq!((outcome.code, outcome.notes.len()), (EXIT_USAGE, 1));
            assert!(outcome.notes[0].contains(said), "{:?}", outcome.notes);
        }
        assert!(!folder.exists(), "nothing is made");
        let unknown = Line::try_parse_from(["new", "trip", "--lang", "latin"]).err().unwrap().to_string();
        assert!(unknown.contains("python") && !unknown.contains("other"), "{unknown}");
    }
}
