//! `bulkhead plugin replay`: a recorded call runs again from its journal, and nothing leaves the sandbox.
//!
//! Owns the verdict. Must not give a replay anything that it could reach: what a tool sees is in the journal, or it has
//! left it. Invariant: a call is equal only if it did and returned, step by step, what its journal says.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use bulkhead_assembly::sources;
use bulkhead_calls::journal::{History, JournalStatus};
use bulkhead_calls::{CallEvent, Executor as _, Journaling, Sealed};
use bulkhead_console::{logging, print_error, print_line};
use bulkhead_domain::call::CallError;
use bytes::Bytes;
use clap::Args;
use serde::Serialize;

use super::call::{CallTarget, CallWorld, EXIT_CALL, Prepared, explain, prepare, spec};
use super::journal_file::{JournalSize, fix_randomness};

/// A call does not do again what its journal says.
pub const EXIT_DIFFERENT: u8 = 5;

/// Run a recorded call again, from its journal alone.
///
/// `plugin call --journal` keeps what a tool saw. This runs the tool again and shows it the same: it reaches no clock,
/// no network, no store and no client, and nobody is asked. If it does what it did before and returns the same, a host
/// can bring such a call back after a crash. If not, it depends on something that the host does not know of, and the
/// place where it left the journal is said.
///
/// The component, the arguments (to the letter), the granted folders and the other grants are those of the call.
/// Settings and variables are in the journal. What the tool gets as random is the same in every recorded call of the
/// same component with the same arguments, and so is the Idempotency-Key of its requests.
#[derive(Args, Debug)]
#[command(after_long_help = "Exit codes:\n  \
    0  it did the same; how long the journal is stands in one line: entries, steps, bytes\n  \
    1  the command itself failed\n  \
    2  the command line, the configuration or the arguments are wrong\n  \
    3  the replay was stopped: by a limit of CPU time or wall clock\n  \
    4  the component was refused\n  \
    5  it did not do the same: where it left the journal is said. Or the journal is another call's, or none\n\n\
    Examples:\n  \
    bulkhead plugin call target/plugins/primes.wasm count_primes '{\"below\": 1000000}' --journal primes.journal\n  \
    bulkhead plugin replay target/plugins/primes.wasm count_primes '{\"below\": 1000000}' --journal primes.journal")]
pub struct ReplayArguments {
    /// The journal, as `plugin call --journal` wrote it
    #[arg(long, value_name = "FILE")]
    journal: PathBuf,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: CallTarget,
}

/// What came of a replay.
#[derive(Debug, Serialize)]
struct Verdict {
    equal: bool,
    /// None of bytes that are no journal.
    #[serde(flatten)]
    size: Option<JournalSize>,
    /// Why it is not equal.
    why: Option<String>,
}

/// How a replay ended.
enum Replayed {
    Equal,
    Different(String),
    /// Not by anything of its own.
    Stopped(CallError),
}

pub async fn run(arguments: ReplayArguments) -> anyhow::Result<ExitCode> {
    let ReplayArguments { journal, json, target } = arguments;
    logging::start_for_a_person();
    sources::require_file(&target.file)?;
    let bytes = std::fs::read(&journal).with_context(|| format!("the journal {} cannot be read", journal.display()))?;
    let size = match JournalSize::of(&bytes) {
        Ok(size) => size,
        Err(error) => {
            let why = Some(format!("{}: {error}", journal.display()));
            return show(&Verdict { equal: false, size: None, why }, json);
        }
    };
    let prepared = match prepare(&target).await? {
        Ok(prepared) => prepared,
        Err(code) => return Ok(code),
    };
    let why = match replay(&prepared, &target.arguments, History(Bytes::from(bytes))).await? {
        Replayed::Equal => None,
        Replayed::Different(why) => Some(format!("{}: {why}", journal.display())),
        Replayed::Stopped(error) => {
            print_error(explain(&error));
            return Ok(ExitCode::from(EXIT_CALL));
        }
    };
    show(&Verdict { equal: why.is_none(), size: Some(size), why }, json)
}

/// Runs the tool again.
async fn replay(prepared: &Prepared, arguments: &str, history: History) -> anyhow::Result<Replayed> {
    let world = CallWorld { services: Arc::new(Sealed), outside: Some(Arc::new(Sealed)) };
    let mut spec = spec(&prepared.tool, arguments, world)?;
    fix_randomness(&mut spec);
    spec.journaling = Journaling::Replay(history);
    let mut running = prepared.sandbox.start(spec)?;
    let outcome = loop {
        match running.events.recv().await {
            Some(CallEvent::Finished(outcome)) => break outcome,
            // A replay says and asks nothing. If it did, it would get no reply.
            Some(_) => {}
            None => anyhow::bail!("the replay ended without a result"),
        }
    };
    Ok(match (running.control.journal(), outcome) {
        (Some(report), _) => judge(&report.status),
        // Nothing else than a divergence interrupts a call here.
        (None, Err(CallError::Interrupted)) => {
            Replayed::Different("it left its journal before the tool began".to_owned())
        }
        (None, Err(error)) => Replayed::Stopped(error),
        (None, Ok(_)) => Replayed::Different("it ended without its journal".to_owned()),
    })
}

/// What a replay whose journal came to this was.
fn judge(status: &JournalStatus) -> Replayed {
    match status {
        JournalStatus::Ended => Replayed::Equal,
        // Before the first import there is no place to name: the journal is another call's, or the tool called nothing.
        JournalStatus::Diverged(divergence) if divergence.step == 0 => Replayed::Different(divergence.why.to_owned()),
        other => Replayed::Different(other.to_string()),
    }
}

fn show(verdict: &Verdict, json: bool) -> anyhow::Result<ExitCode> {
    match verdict {
        verdict if json => print_line(serde_json::to_string(verdict)?),
        Verdict { why: Some(why), .. } => print_error(why),
        Verdict { size: Some(size), .. } => print_line(size),
        Verdict { .. } => {}
    }
    Ok(if verdict.equal { ExitCode::SUCCESS } else { ExitCode::from(EXIT_DIFFERENT) })
}

#[cfg(test)]
mod tests {
    use bulkhead_calls::journal::Divergence;

    use super::*;

    fn different(status: &JournalStatus) -> String {
        match judge(status) {
            Replayed::Different(why) => why,
            Replayed::Equal | Replayed::Stopped(_) => panic!("{status:?}"),
        }
    }

    #[test]
    fn only_a_journal_that_came_to_its_end_is_equal() {
        assert!(matches!(judge(&JournalStatus::Ended), Replayed::Equal));
        let divergence = Divergence {
            entry: 3,
            recorded: "a move of the clock by 2 ms at step 5".to_owned(),
            requested: "set of bulkhead:plugin/keyvalue".to_owned(),
            step: 6,
            why: "what was recorded is still to come",
        };
        assert_eq!(
            different(&JournalStatus::Diverged(divergence.clone())),
            "entry 3: a move of the clock by 2 ms at step 5 was recorded, set of bulkhead:plugin/keyvalue was asked for at \
             step 6: what was recorded is still to come"
        );
        let other = Divergence { step: 0, why: "the journal is of another component", ..divergence };
        assert_eq!(different(&JournalStatus::Diverged(other)), "the journal is of another component");
        assert_eq!(different(&JournalStatus::Replaying), "it is replayed");
    }

    #[test]
    fn verdict_as_json_has_the_size_among_its_members() {
        let bytes = [2, 0, 1, 3, 3, 11, 0];
        let size = JournalSize::of(&bytes).unwrap();
        let equal = Verdict { equal: true, size: Some(size), why: None };
        let expected = r#"{"equal":true,"entries":2,"steps":3,"bytes":7,"why":null}"#;
        assert_eq!(serde_json::to_string(&equal).unwrap(), expected);
        let none = Verdict { equal: false, size: None, why: Some("the file is empty".to_owned()) };
        assert_eq!(serde_json::to_string(&none).unwrap(), r#"{"equal":false,"why":"the file is empty"}"#);
    }
}
