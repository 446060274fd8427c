//! A line on stderr about work that takes a person's patience.
//!
//! Owns when such a line comes and goes. Must not write to stdout, and nothing at all about what is over within a second. Invariant: on a
//! terminal no trace is left of it when the work is over.

use std::io::Write as _;
use std::time::{Duration, Instant};

use bulkhead_control::Command;
use bulkhead_control::commands::{PluginCommand, StoreCommand, TenantCommand};

use super::table::cell;
use super::{print_error, terminal};

/// What is over by then needs no line.
const QUIET: Duration = Duration::from_secs(1);
/// Between two lines where they cannot be written over.
const PLAIN_EVERY: Duration = Duration::from_secs(10);
/// Writes over the line where the cursor is.
const OVERWRITE: &str = "\r\u{1b}[2K";

/// What is said where stderr is no terminal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Elsewhere {
    /// A plain line now and then.
    PlainText,
    /// Nothing: stderr has something else to say there.
    Nothing,
}

/// Does the work and says what it is while it takes long.
pub(super) async fn during<T>(what: &str, elsewhere: Elsewhere, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    let begun = Instant::now();
    let overwrites = terminal::can_overwrite(&std::io::stderr());
    let (mut wait, mut is_shown) = (QUIET, false);
    loop {
        tokio::select! {
            biased;
            done = &mut work => {
                if is_shown && overwrites {
                    write(OVERWRITE);
                }
                return done;
            }
            () = tokio::time::sleep(wait) => {}
        }
        let seconds = begun.elapsed().as_secs();
        if overwrites {
            (wait, is_shown) = (QUIET, true);
            write(&format!("{OVERWRITE}bulkhead: {what} … {seconds} s"));
        } else if elsewhere == Elsewhere::PlainText {
            wait = PLAIN_EVERY;
            print_error(format_args!("{what} … {seconds} s"));
        }
    }
}

fn write(text: &str) {
    let mut stderr = std::io::stderr().lock();
    // If nobody reads stderr, nobody waits for it.
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

/// What a command does, for the line about it.
pub(super) fn describe(command: &Command) -> String {
    let sources = |sources: &[String]| sources.iter().map(|source| cell(&**source)).collect::<Vec<_>>().join(", ");
    match command {
        Command::Plugin(PluginCommand::Stage(stage)) => format!("fetching and compiling {}", cell(&*stage.source)),
        Command::Plugin(PluginCommand::Add(add)) => format!("fetching and compiling {}", sources(&add.sources)),
        Command::Plugin(PluginCommand::Update(update)) => {
            format!("fetching and compiling what is at the source of {}", cell(&*update.name))
        }
        Command::Plugin(PluginCommand::Verify(_)) => "reading the kept components".to_owned(),
        Command::Plugin(_) => "changing plugins".to_owned(),
        Command::Store(StoreCommand::Check(_)) => "reading the store".to_owned(),
        Command::Store(StoreCommand::Export(_)) => "exporting the store".to_owned(),
        Command::Store(StoreCommand::Rebuild(_)) => "rebuilding the store".to_owned(),
        Command::Store(StoreCommand::Backup(_)) => "copying the store".to_owned(),
        Command::Store(StoreCommand::Rekey(_)) => "sealing the keys of tenants".to_owned(),
        Command::Tenant(TenantCommand::Purge(_)) => "erasing the tenant and rebuilding the store".to_owned(),
        Command::Token(_) | Command::Secret(_) | Command::Tenant(_) | Command::Tasks(_) | Command::Host(_) => {
            "waiting for the host or the store".to_owned()
        }
    }
}
