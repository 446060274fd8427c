//! `bulkhead audit`: reading the audit log, whether a host writes it or not.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use crate::config::Config;
use bulkhead_audit::{self as audit, Audit, LineHash, LogLine, Options, Tail};
use clap::Subcommand;
use serde_json::json;

use super::args::OperateArguments;
use super::serve::stop_signal;
use super::table::{fields, member, now, when};
use super::{EXIT_FAILED, print_error, print_line};

/// Between two looks at a log that is followed.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Works on the files, with a running host and without. A host keeps the log when `audit.enabled` is true.
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Follow the chain of digests from the oldest line to the newest
    #[command(
        after_long_help = "The chain shows a line that was changed, removed or put in between. Somebody who can write the \
        files can make a new chain, or cut off its end: write the printed anchor down elsewhere, and give it back with --anchor \
        later.\n\nExit code 1: the log is not what was written; the place is printed."
    )]
    Verify {
        /// A line that must be there, with its digest, as an earlier `audit verify` printed it
        #[arg(long, value_name = "LINE:SHA256", value_parser = anchor)]
        anchor: Option<(u64, LineHash)>,
        #[command(flatten)]
        operate: OperateArguments,
    },
    /// Print the newest lines
    Tail {
        /// How many
        #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 20)]
        lines: usize,
        /// Go on with those that come, until SIGINT
        #[arg(long, short)]
        follow: bool,
        #[command(flatten)]
        operate: OperateArguments,
    },
}

pub(crate) async fn run(command: AuditCommand) -> anyhow::Result<ExitCode> {
    match command {
        AuditCommand::Verify { anchor, operate } => verify(anchor, &operate),
        AuditCommand::Tail { lines, follow, operate } => tail(lines, follow, &operate).await,
    }
}

/// The log that a host with this configuration keeps in its data directory.
pub(crate) fn of_host(config: &Config, data: &Path) -> anyhow::Result<Audit> {
    if config.audit.enabled { open(config, data) } else { Ok(Audit::off()) }
}

fn open(config: &Config, data: &Path) -> anyhow::Result<Audit> {
    let (audit, folder) = (&config.audit, audit::folder(data));
    let options = Options { folder, file_bytes_max: audit.file_bytes_max, files_max: audit.files_max };
    Audit::open(options, now).map_err(|error| anyhow::anyhow!("the audit log cannot be kept: {error}"))
}

/// The log of a data directory on which no host runs: what is done to it is noted where a host has begun to.
pub(crate) fn of_idle(config: &Config) -> anyhow::Result<Audit> {
    let data = &config.server.data;
    if audit::folder(data).is_dir() { open(config, data) } else { Ok(Audit::off()) }
}

fn folder(operate: &OperateArguments) -> anyhow::Result<PathBuf> {
    Ok(audit::folder(&super::operate::load(operate)?.server.data))
}

fn verify(anchor: Option<(u64, LineHash)>, operate: &OperateArguments) -> anyhow::Result<ExitCode> {
    let (value, code) = match audit::verify(&folder(operate)?, anchor) {
        Ok(verified) => (
            json!({
                "sound": true,
                "files": verified.files,
                "first": verified.first,
                "last": verified.last,
                "anchor": format!("{}:{}", verified.last, verified.hash),
                "unfinished": verified.unfinished,
            }),
            ExitCode::SUCCESS,
        ),
        Err(broken) => (json!({ "sound": false, "problem": broken.to_string() }), ExitCode::from(EXIT_FAILED)),
    };
    if operate.json {
        print_line(&value);
    } else if let Some(problem) = value.get("problem") {
        print_error(member(problem));
    } else {
        print_line(fields(&value));
    }
    Ok(code)
}

async fn tail(lines: usize, follow: bool, operate: &OperateArguments) -> anyhow::Result<ExitCode> {
    let mut tail = Tail::new(&folder(operate)?, lines)?;
    let mut stop = std::pin::pin!(stop_signal()?);
    loop {
        for line in tail.lines()? {
            print_line(if operate.json { String::from_utf8_lossy(&line).into_owned() } else { readable(&line) });
        }
        if !follow {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::select! {
            () = &mut stop => return Ok(ExitCode::SUCCESS),
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

/// A line for a person: long ids and digests by their beginnings.
fn readable(line: &[u8]) -> String {
    let Ok(line) = LogLine::parse(line) else {
        return "(a line that cannot be read: see `bulkhead audit verify`)".to_owned();
    };
    let facts = line.facts.iter().map(|(name, value)| {
        let text: String = match name.as_str() {
            "arguments_sha256" | "version" => member(value).chars().take(12).collect(),
            _ => member(value),
        };
        format!("{name}={text}")
    });
    let facts: Vec<_> = facts.collect();
    let at = when(line.at_ms, now());
    format!("{:>8}  {:>9}  {:<18}  {}", line.sequence, at, line.event, facts.join(" "))
}

/// `SEQ:SHA256`, as `audit verify` prints it.
pub(super) fn anchor(text: &str) -> Result<(u64, LineHash), String> {
    let parts =
        text.split_once(':').and_then(|(sequence, hash)| Some((sequence.parse().ok()?, LineHash::parse(hash)?)));
    parts.ok_or_else(|| format!("{text:?} is not LINE:SHA256, as `bulkhead audit verify` prints it as its anchor"))
}
