//! What the program says to people and programs: results on stdout, everything else on stderr.
//!
//! Owns lines, tables, the log and what is said while work takes long. Must not read an argument, nor know what a
//! command does. Invariant: stdout has what was asked for and nothing else, and a reader that went away is no error.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod log_trace;
pub mod logging;
pub mod progress;
pub mod table;
mod terminal;

use std::io::Write as _;

/// What the program calls itself where it speaks to a person.
pub const PROGRAM: &str = "bulkhead";

/// A line on stderr, for a person.
pub fn print_error(text: impl std::fmt::Display) {
    // If nobody reads stderr, nobody can be told.
    let _ = writeln!(std::io::stderr(), "{PROGRAM}: {text}");
}

/// A line on stdout: what was asked for. A reader that went away has seen enough.
pub fn print_line(text: impl std::fmt::Display) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{text}");
    let _ = stdout.flush();
}

/// Says where a host serves, as soon as clients can connect.
pub fn tell_address(url: &str) {
    print_line(format_args!("{PROGRAM}: listening on {url}"));
}
