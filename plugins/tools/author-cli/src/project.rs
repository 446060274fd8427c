//! `new`, `build` and `wrap`.

use std::path::{Path, PathBuf};

use bulkhead_author::{Error, Language, Options, WrapOptions};
use clap::{Args, ValueEnum};

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
}

/// Start a plugin: a small project with two tools, a test and a README.
///
/// The project carries the interface and the SDK in its folder bulkhead/, so it builds without a clone of Bulkhead.
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  bulkhead plugin new trip-planner --lang python")]
pub struct NewArguments {
    /// The plugin's name: lower-case letters, digits and dashes
    #[arg(value_name = "NAME")]
    name: String,
    /// What it is written in
    #[arg(long, value_enum)]
    lang: Lang,
    /// The folder; it must be empty or not exist yet [default: ./NAME]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Make a component of a project: with Cargo where there is a Cargo.toml, with componentize-py where there is a plugin.py, with
/// componentize-js where there is a plugin.js or a plugin.ts, with clang or Zig where there is a plugin.c.
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
    /// Passed on to Cargo
    #[arg(last = true, value_name = "ARGUMENT")]
    cargo: Vec<String>,
}

/// Put manifest and descriptions into a component of another language, as the SDKs do for theirs.
///
/// FILE is a component, or a core module that the bindings of wit-bindgen gave its types (C, Go, MoonBit, Zig); one without types
/// needs --wit and --world. What a host is sure to refuse is refused here, and OUT is not written. A component that exports
/// functions of its own, and not bulkhead:plugin/tools, takes the descriptions of its tools from --wit.
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
    /// The component that is written
    #[arg(long, short, value_name = "OUT")]
    output: PathBuf,
}

pub(crate) fn new(arguments: &NewArguments) -> Outcome {
    let folder = arguments.dir.clone().unwrap_or_else(|| PathBuf::from(&arguments.name));
    let language = match arguments.lang {
        Lang::Rust => Language::Rust,
        Lang::Python => Language::Python,
        Lang::Js => Language::Javascript,
        Lang::Ts => Language::Typescript,
        Lang::C => Language::C,
    };
    match bulkhead_author::create(&folder, &arguments.name, language) {
        Ok(()) => {
            let readme = folder.join("README.md");
            Outcome::line(folder.display()).with_note(format_args!("what to do next is in {}", readme.display()))
        }
        Err(error) => Outcome::failed(EXIT_USAGE, error),
    }
}

pub(crate) fn build(arguments: BuildArguments) -> Outcome {
    let BuildArguments { dir, output, sdk, cargo } = arguments;
    match bulkhead_author::build(&dir, &Options { sdk, output, cargo, tools: None }) {
        Ok(component) => Outcome::line(shown(&component)),
        Err(error) => Outcome::failed(EXIT_FAILED, error),
    }
}

pub(crate) fn wrap(arguments: WrapArguments) -> Outcome {
    let WrapArguments { file, manifest, wit, world, output } = arguments;
    let options = WrapOptions { file, manifest, wit, world, output };
    match bulkhead_author::wrap(&options) {
        Ok(findings) => {
            let warned = Outcome::line(shown(&options.output));
            findings
                .warnings
                .iter()
                .fold(warned, |warned, warning| warned.with_note(format_args!("warning: {warning}")))
        }
        Err(error @ Error::Wrapped { .. }) => Outcome::failed(EXIT_REFUSED, error),
        Err(error) => Outcome::failed(EXIT_FAILED, error),
    }
}

/// As short as it can be typed.
fn shown(path: &Path) -> String {
    path.strip_prefix("./").unwrap_or(path).display().to_string()
}
