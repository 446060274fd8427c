//! What the program says: results on stdout, everything else on stderr.

use std::io::Write as _;

/// What the program calls itself where it speaks to a person.
pub(crate) const PROGRAM: &str = "bulkhead";

/// A line on stderr, for a person.
pub(crate) fn print_error(text: impl std::fmt::Display) {
    // If nobody reads stderr, nobody can be told.
    let _ = writeln!(std::io::stderr(), "{PROGRAM}: {text}");
}

/// A line on stdout: what was asked for. A reader that went away has seen enough.
pub(crate) fn print_line(text: impl std::fmt::Display) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{text}");
    let _ = stdout.flush();
}

/// Says where a host serves, as soon as clients can connect.
pub(crate) fn tell_address(url: &str) {
    print_line(format_args!("{PROGRAM}: listening on {url}"));
}
