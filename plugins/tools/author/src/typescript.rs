//! The types of a plugin in TypeScript. esbuild drops them unread, so a build has them checked where the project has a
//! compiler.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::Error;

/// The version that new projects get.
pub(crate) const VERSION: &str = "7.0.2";

/// What holds for a project without a configuration of its own: what new ones get.
const DEFAULTS: [&str; 10] = [
    "--strict",
    "--target",
    "es2022",
    "--module",
    "esnext",
    "--moduleResolution",
    "bundler",
    "--lib",
    "es2022,webworker",
    "--skipLibCheck",
];

/// Refuses a project whose types do not fit. Without a compiler in it, there is nothing to ask.
pub(crate) fn check(folder: &Path, entry: &str, node: &Path) -> Result<(), Error> {
    let compiler = folder.join("node_modules/typescript/bin/tsc");
    if !compiler.is_file() {
        return Ok(());
    }
    let mut command = Command::new(node);
    command.arg(compiler).args(["--noEmit", "--pretty", "false"]).current_dir(folder).stdin(Stdio::null());
    if folder.join("tsconfig.json").is_file() {
        command.args(["-p", "tsconfig.json"]);
    } else {
        command.args(DEFAULTS).arg(entry);
    }
    let failed = |reason: String| Error::Failed { step: "tsc", reason };
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let mistakes = said.lines().map(mistake).collect::<Vec<_>>().join("\n");
    Err(if mistakes.is_empty() { failed(format!("it ended with {}", output.status)) } else { Error::Source(mistakes) })
}

/// `plugin.ts(3,5): error TS2322: Text` as `plugin.ts:3:5: Text (TS2322)`; any other line as it is.
fn mistake(line: &str) -> String {
    let parts = || {
        let (place, rest) = line.split_once("): error ")?;
        let (file, position) = place.rsplit_once('(')?;
        let (row, column) = position.split_once(',')?;
        let (code, text) = rest.split_once(": ")?;
        Some(format!("{file}:{row}:{column}: {text} ({code})"))
    };
    parts().unwrap_or_else(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_error_is_told_with_file_and_line() {
        let line = "src/a(b).ts(31,15): error TS2322: Type 'number' is not assignable to type 'string'.";
        assert_eq!(mistake(line), "src/a(b).ts:31:15: Type 'number' is not assignable to type 'string'. (TS2322)");
        for other in ["  more of it", "error TS5083: Cannot read file", ""] {
            assert_eq!(mistake(other), other);
        }
    }
}
