//! `bulkhead plugin compose`: several components made into one file.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use bulkhead_author_cli::EXIT_REFUSED;
use bulkhead_console::{print_error, print_line};
use bulkhead_plugins::sources::Digest;
use bulkhead_runtime::{Part, compose, read_component};
use clap::Args;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::registry;

/// Make one component of several: what one imports and one behind it exports is connected.
///
/// The result exports what the first component exports, and is signed, pushed and added like any other. A [[plugin]]
/// with `compose` makes the same bytes of the same components.
#[derive(Args, Debug)]
#[command(
    after_long_help = "Exit code 4: they do not fit together; every import that stays open and every component without a use is said, and \
    nothing is written.\n\n\
    Example:\n  bulkhead plugin compose speller.wasm words.wasm -o spelling.wasm"
)]
pub struct ComposeArguments {
    /// The component whose exports stay, then those that it imports from
    #[arg(value_name = "FILE", required = true, num_args = 2..)]
    files: Vec<PathBuf>,
    /// The file, which is replaced
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &ComposeArguments) -> anyhow::Result<ExitCode> {
    let ComposeArguments { files, output, json } = arguments;
    let read = |file: &PathBuf| read_component(file).map_err(anyhow::Error::msg);
    let components = files.iter().map(read).collect::<anyhow::Result<Vec<_>>>()?;
    let names: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    let parts: Vec<_> = names.iter().zip(&components).map(|(name, bytes)| Part { name, bytes }).collect();
    let composed = match compose(&parts) {
        Ok(composed) => composed,
        Err(problems) => {
            problems.iter().for_each(print_error);
            return Ok(ExitCode::from(EXIT_REFUSED));
        }
    };
    registry::write(output, &composed).with_context(|| format!("{} cannot be written", output.display()))?;
    let sha256 = Digest(Sha256::digest(&composed).into());
    if *json {
        print_line(json!({ "file": output, "sha256": sha256, "bytes": composed.len() }));
    } else {
        print_line(output.display());
        print_error(format_args!("{} bytes with sha256 {sha256}", composed.len()));
    }
    Ok(ExitCode::SUCCESS)
}
