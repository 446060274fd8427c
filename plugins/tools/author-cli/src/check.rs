//! `check`, as far as it goes without running the component.

use std::path::PathBuf;

use anyhow::Context as _;
use bulkhead_author::check::Findings;
use clap::Args;
use serde_json::json;

use crate::{EXIT_FAILED, EXIT_REFUSED, Outcome};

/// What is checked, and how strictly.
#[derive(Args, Debug)]
pub struct CheckArguments {
    /// The component
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Fail on warnings too
    #[arg(long)]
    pub strict: bool,
}

/// Says what every host refuses in a component and what its users would miss, without running it.
///
/// # Errors
///
/// The file cannot be read.
pub fn check(arguments: &CheckArguments) -> anyhow::Result<Outcome> {
    let file = &arguments.file;
    let bytes = std::fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let findings = bulkhead_author::check::check(&bytes);
    let fallback = || file.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let name = findings.name.clone().unwrap_or_else(fallback);
    let lines = if arguments.json {
        let report = json!({
            "name": name,
            "bytes": bytes.len(),
            "imports": findings.imports,
            "exports": findings.exports,
            "refused": findings.refused,
            "warnings": findings.warnings,
            "static": true,
        });
        vec![serde_json::to_string_pretty(&report)?]
    } else {
        text(&name, &findings)
    };
    let code = if !findings.refused.is_empty() {
        EXIT_REFUSED
    } else if arguments.strict && !findings.warnings.is_empty() {
        EXIT_FAILED
    } else {
        0
    };
    Ok(Outcome { lines, code, ..Outcome::default() })
}

fn text(name: &str, findings: &Findings) -> Vec<String> {
    let mut lines: Vec<_> = findings.refused.iter().map(|problem| format!("refused: {problem}")).collect();
    lines.extend(findings.warnings.iter().map(|warning| format!("warning: {warning}")));
    lines.push(if findings.refused.is_empty() {
        let warnings = findings.warnings.len();
        format!(
            "{name}: nothing in it is refused without running it; exports {}, {warnings} warnings",
            findings.exports.join(", ")
        )
    } else {
        format!("{name}: a host refuses it")
    });
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(wat: &str, strict: bool) -> Outcome {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("units.wasm");
        std::fs::write(&file, wat::parse_str(wat).unwrap()).unwrap();
        check(&CheckArguments { file, json: true, strict }).unwrap()
    }

    #[test]
    fn static_check_ends_by_what_was_found() {
        let bad = checked("(component (import \"acme:secret/door@1.0.0\" (instance (export \"f\" (func)))))", false);
        assert_eq!(bad.code, EXIT_REFUSED);
        let report: serde_json::Value = serde_json::from_str(&bad.lines[0]).unwrap();
        assert!(report["refused"].to_string().contains("acme:secret/door@1.0.0"), "{report}");
        let bare = "(component (instance $i) (export \"acme:units/length@1.0.0\" (instance $i)))";
        assert_eq!((checked(bare, false).code, checked(bare, true).code), (0, EXIT_FAILED), "it carries no manifest");
    }
}
