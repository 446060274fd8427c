//! `bulkhead doctor`: what a host on this machine would lack.
//!
//! Owns the findings and their remedies. Must not change anything that stays: what it makes to try something is gone
//! when it ends, and a running host of the same data directory notices nothing. Invariant: every finding that is not ok
//! says what to do.

mod data;
mod database;
mod machine;
mod toolchains;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bulkhead_assembly::sources;
use bulkhead_author_cli::EXIT_FAILED;
use bulkhead_config::{Config, Flags};
use bulkhead_console::{print_line, progress};
use clap::Args;
use serde::Serialize;

/// Look at this machine: what a host here would lack, and what to do about it.
///
/// Looks at the configuration, the kernel, the limits of the process, the data directory and its disk, the database if
/// there is one, the clock, the address, and the tools that plugins are built with. Nothing is changed. Exit code 1:
/// something fails; warnings alone do not.
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  bulkhead doctor --config bulkhead.toml")]
pub(crate) struct DoctorArguments {
    /// The configuration file that the host will have
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data directory [default: ./bulkhead-data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The address that it will listen on [default: 127.0.0.1:8808]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<String>,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    /// It works, and not as well as it could, or not for everybody.
    Warn,
    /// A host does not start, or loses what it acknowledged.
    Fail,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Finding {
    subject: &'static str,
    verdict: Verdict,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Finding {
    fn ok(subject: &'static str, found: impl Into<String>) -> Self {
        Self { subject, verdict: Verdict::Ok, found: found.into(), remedy: None }
    }

    fn warn(subject: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { subject, verdict: Verdict::Warn, found: found.into(), remedy: Some(remedy.into()) }
    }

    fn fail(subject: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { subject, verdict: Verdict::Fail, found: found.into(), remedy: Some(remedy.into()) }
    }
}

pub(super) async fn run(arguments: DoctorArguments) -> anyhow::Result<ExitCode> {
    let DoctorArguments { config, data, listen, json } = arguments;
    let (config, first) = configuration(config.as_deref(), Flags { data, listen, ..Flags::default() })?;
    let mut findings = vec![first];
    findings.extend(progress::during("looking at this machine", look(&config)).await?);
    Ok(report(&findings, json)?)
}

async fn look(config: &Config) -> anyhow::Result<Vec<Finding>> {
    let mut findings = vec![machine::openat2(), machine::sandbox(config).await, machine::address_space()];
    findings.push(machine::open_files(config.server.connections_max));
    let data = config.server.data.clone();
    // A disk and other programs take their time.
    let disk = tokio::task::spawn_blocking(move || (machine::threads(), machine::clock(), data::look(&data))).await?;
    findings.push(disk.0);
    findings.extend(disk.1.into_iter().chain(disk.2));
    findings.extend(database::look(config).await);
    findings.push(machine::port(config).await);
    findings.extend(tokio::task::spawn_blocking(toolchains::look).await?);
    Ok(findings)
}

/// The configuration, or what holds without one where it is wrong.
fn configuration(file: Option<&Path>, flags: Flags) -> anyhow::Result<(Config, Finding)> {
    const SUBJECT: &str = "configuration";
    let what = file.map_or_else(|| "the defaults".to_owned(), |file| file.display().to_string());
    match sources::load(file, &flags) {
        Ok(config) => Ok((config, Finding::ok(SUBJECT, format!("{what}: valid")))),
        Err(error) => {
            let remedy = "Change what is named; `bulkhead help config KEY` says what a key is for, and its bounds.";
            let finding = Finding::fail(SUBJECT, format!("{what}: {error:#}"), remedy);
            Ok((sources::load(None, &Flags { data: flags.data, ..Flags::default() })?, finding))
        }
    }
}

fn report(findings: &[Finding], as_json: bool) -> serde_json::Result<ExitCode> {
    let of = |verdict: Verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let warnings = of(Verdict::Warn);
    let failures = of(Verdict::Fail);
    if as_json {
        let report = serde_json::json!({ "findings": findings, "warnings": warnings, "failures": failures });
        print_line(serde_json::to_string_pretty(&report)?);
    } else {
        findings.iter().for_each(|finding| print_line(as_text(finding)));
        print_line(format_args!("{} checks, {warnings} warnings, {failures} failures", findings.len()));
    }
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILED) })
}

fn as_text(finding: &Finding) -> String {
    let verdict = match finding.verdict {
        Verdict::Ok => "ok  ",
        Verdict::Warn => "warn",
        Verdict::Fail => "FAIL",
    };
    let remedy = finding.remedy.as_ref().map(|remedy| format!("\n     {remedy}")).unwrap_or_default();
    format!("{verdict} {}: {}{remedy}", finding.subject, finding.found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_finding_is_shown_with_its_remedy_and_ends_in_failure() {
        let finding = Finding::fail("clock", "the year is 1970", "Set the clock.");
        assert_eq!(as_text(&finding), "FAIL clock: the year is 1970\n     Set the clock.");
        let shown = |code: ExitCode| format!("{code:?}");
        let fails = report(&[finding], true).unwrap();
        let warns = report(&[Finding::warn("x", "y", "z"), Finding::ok("a", "b")], true).unwrap();
        assert_eq!(shown(fails), shown(ExitCode::from(EXIT_FAILED)));
        assert_eq!(shown(warns), shown(ExitCode::SUCCESS), "warnings alone do not fail");
    }

    #[test]
    fn wrong_configuration_fails_and_the_rest_is_looked_at_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bulkhead.toml");
        std::fs::write(&file, "[server]\nlisten = 3\n").unwrap();
        let flags = Flags { data: Some(folder.path().into()), ..Flags::default() };
        let (config, finding) = configuration(Some(&file), flags).unwrap();
        assert_eq!((finding.verdict, config.server.data.as_path()), (Verdict::Fail, folder.path()));
        assert!(finding.found.contains("listen"), "{}", finding.found);
    }
}
