//! `bulkhead audit`: reading the audit log, whether a host writes it or not.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bulkhead_assembly::offline::connect;
use bulkhead_assembly::stop_signal;
use bulkhead_audit::{self as audit, LineHash, LogLine, Tail};
use bulkhead_author_cli::EXIT_FAILED;
use bulkhead_console::table::{cell, fields, member, now, when};
use bulkhead_console::{print_error, print_line, progress};
use bulkhead_control::Operator as _;
use bulkhead_control::commands::{AuditPage, TenantNames};
use bulkhead_control::views::{AuditChainView, AuditLineView, AuditPageView};
use bulkhead_domain::text::quoted_name;
use clap::Subcommand;
use serde_json::{Value, json};

use super::operate::{OperateArguments, load, show_answer};

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
    ///
    /// With a running host, tenants and requestors are shown by their names where they have one. --json prints the
    /// lines as they are kept, with ids.
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
    /// Print a page of the lines that fit, the newest first, and how their chain stands
    #[command(
        after_long_help = "Reads a bounded part of the log, however long it is: a page may hold fewer lines than there are, and \
        says where the next one begins. The chain is checked for every line that was read; `bulkhead audit verify` follows all of it."
    )]
    List {
        /// Only such events, as `task.created`, or all that begin so, as `task.`; may be given more than once
        #[arg(long = "event", value_name = "EVENT")]
        events: Vec<String>,
        /// Only lines of this tenant
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
        /// How many
        #[arg(long, value_name = "COUNT", default_value_t = 100)]
        max: usize,
        /// Where an earlier page ended, as it says at its end
        #[arg(long, value_name = "PLACE")]
        after: Option<String>,
        #[command(flatten)]
        operate: OperateArguments,
    },
}

pub(crate) async fn run(command: AuditCommand) -> anyhow::Result<ExitCode> {
    match command {
        AuditCommand::Verify { anchor, operate } => verify(anchor, &operate).await,
        AuditCommand::Tail { lines, follow, operate } => tail(lines, follow, &operate).await,
        AuditCommand::List { events, tenant, max, after, operate } => {
            let request = AuditPage { events, tenant, after, count_max: max, lines_only: false, changes_only: false };
            show_answer(&operate, request, |view, _| page(view, now())).await
        }
    }
}

fn folder(operate: &OperateArguments) -> anyhow::Result<PathBuf> {
    Ok(audit::folder(&load(operate)?.server.data))
}

async fn verify(anchor: Option<(u64, LineHash)>, operate: &OperateArguments) -> anyhow::Result<ExitCode> {
    let folder = folder(operate)?;
    let reading = tokio::task::spawn_blocking(move || audit::verify(&folder, anchor));
    let (value, code) = match progress::during("reading the audit log", reading).await? {
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
    let mut known = KnownNames::default();
    loop {
        let lines = tail.lines()?;
        if !operate.json {
            known.learn(&lines, operate).await;
        }
        for line in lines {
            print_line(if operate.json {
                String::from_utf8_lossy(&line).into_owned()
            } else {
                readable(&line, &known)
            });
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

/// Names that are asked for at once.
const NAMES: usize = 500;

/// The names of tenants and requestors, as far as the running host has told them. An id without a name is not asked for
/// again.
#[derive(Default)]
struct KnownNames(HashMap<String, Option<String>>);

impl KnownNames {
    /// Asks the running host for the names of all ids that are new. Where no host runs, nothing is opened for them: the
    /// ids are shown.
    async fn learn(&mut self, lines: &[Vec<u8>], operate: &OperateArguments) {
        let lines = lines.iter().filter_map(|line| LogLine::parse(line).ok());
        let ids: BTreeSet<String> = lines
            .flat_map(|line| {
                ["tenant", "requestor"].map(|fact| line.facts.get(fact).and_then(|id| id.as_str()).map(str::to_owned))
            })
            .flatten()
            .filter(|id| !self.0.contains_key(id))
            .collect();
        let ids: Vec<_> = ids.into_iter().collect();
        for ids in ids.chunks(NAMES) {
            let names = names(ids.to_vec(), operate).await;
            self.0.extend(ids.iter().map(|id| (id.clone(), names.get(id).cloned())));
        }
    }

    fn get(&self, id: &Value) -> Option<&str> {
        self.0.get(id.as_str()?)?.as_deref()
    }
}

/// What the running host says. The log is shown without names rather than not at all.
async fn names(ids: Vec<String>, operate: &OperateArguments) -> HashMap<String, String> {
    let Ok(config) = load(operate) else { return HashMap::new() };
    let Ok(Some(host)) = connect(&config.server.data).await else { return HashMap::new() };
    host.execute(TenantNames { ids }).await.map(|view| view.names.into_iter().collect()).unwrap_or_default()
}

/// A line for a person: names in place of ids, and long digests by their beginnings.
fn readable(line: &[u8], known: &KnownNames) -> String {
    let Ok(line) = LogLine::parse(line) else {
        return "(a line that cannot be read: see `bulkhead audit verify`)".to_owned();
    };
    let at = when(line.at_ms, now());
    shown(line.sequence, &at, &line.event, line.facts.iter(), |id| known.get(id))
}

fn shown<'f, 'n>(
    sequence: u64,
    at: &str,
    event: &str,
    facts: impl Iterator<Item = (&'f String, &'f Value)>,
    name_of: impl Fn(&Value) -> Option<&'n str>,
) -> String {
    let facts = facts.map(|(name, value)| {
        let text: String = match name.as_str() {
            "arguments_sha256" | "version" => member(value).chars().take(12).collect(),
            "tenant" | "requestor" => {
                name_of(value).map_or_else(|| member(value), |name| quoted_name(name).into_owned())
            }
            _ => member(value),
        };
        format!("{name}={text}")
    });
    let facts: Vec<_> = facts.collect();
    format!("{sequence:>8}  {at:>9}  {event:<18}  {}", facts.join(" "))
}

/// A page for a person.
pub(super) fn page(view: &AuditPageView, now: u64) -> String {
    let name_of = |id: &Value| view.names.get(id.as_str()?).map(String::as_str);
    let line = |line: &AuditLineView| {
        shown(line.seq, &when(line.at_ms, now), &cell(line.event.as_str()), line.facts.iter(), name_of)
    };
    let mut lines: Vec<_> = view.lines.iter().map(line).collect();
    let AuditChainView { problem, first, last, whole, anchor, .. } = &view.chain;
    let anchor = anchor.as_ref().map(|anchor| format!("; anchor {anchor}")).unwrap_or_default();
    lines.push(match problem {
        Some(problem) => format!("(the chain is broken: {})", cell(problem.as_str())),
        None if *last == 0 => "(no line was read)".to_owned(),
        None if *whole => format!("(the chain holds from line {first} to line {last}, which is all of it{anchor})"),
        None => format!("(the chain holds from line {first} to line {last}{anchor})"),
    });
    lines.extend(view.next.as_ref().map(|next| format!("(there is more: --after {next})")));
    lines.join("\n")
}

/// `SEQ:SHA256`, as `audit verify` prints it.
pub(super) fn anchor(text: &str) -> Result<(u64, LineHash), String> {
    let parts =
        text.split_once(':').and_then(|(sequence, hash)| Some((sequence.parse().ok()?, LineHash::parse(hash)?)));
    parts.ok_or_else(|| format!("{text:?} is not LINE:SHA256, as `bulkhead audit verify` prints it as its anchor"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_lines_show_names_where_they_are_known() {
        let zero = "0".repeat(64);
        let line = format!(
            r#"{{"seq":7,"at_ms":1,"event":"task.created","prev":"{zero}","tenant":"01","requestor":"02","plugin":"csv"}}"#
        );
        let known = KnownNames([("01".to_owned(), Some("acme".to_owned())), ("02".to_owned(), None)].into());
        let shown = readable(line.as_bytes(), &known);
        assert!(shown.ends_with("plugin=csv requestor=02 tenant=acme"), "{shown}");
        let shown = readable(line.as_bytes(), &KnownNames::default());
        assert!(shown.ends_with("plugin=csv requestor=02 tenant=01"), "{shown}");
        // An issuer's name does not look like another fact, or like another name.
        let foreign = "a\u{202e}b operator=root".to_owned();
        let known = KnownNames([("01".to_owned(), Some("acme".to_owned())), ("02".to_owned(), Some(foreign))].into());
        let shown = readable(line.as_bytes(), &known);
        assert!(shown.ends_with("plugin=csv requestor=\"a\\u{202e}b operator=root\" tenant=acme"), "{shown}");
    }
}
