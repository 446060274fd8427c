//! What a command prints, and how it ends.

use std::fmt::Display;
use std::io::Write as _;
use std::process::ExitCode;

/// Something did not work.
pub const EXIT_FAILED: u8 = 1;
/// The command line is wrong.
pub const EXIT_USAGE: u8 = 2;
/// A host would not load the component.
pub const EXIT_REFUSED: u8 = 4;

/// What a command says and ends with. The default: nothing, and success.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What was asked for, for stdout.
    pub lines: Vec<String>,
    /// For the person at the terminal, on stderr.
    pub notes: Vec<String>,
    pub code: u8,
}

impl Outcome {
    pub(crate) fn line(text: impl Display) -> Self {
        Self { lines: vec![text.to_string()], ..Self::default() }
    }

    pub(crate) fn failed(code: u8, why: impl Display) -> Self {
        Self { notes: vec![why.to_string()], code, ..Self::default() }
    }

    #[must_use]
    pub(crate) fn with_note(mut self, text: impl Display) -> Self {
        self.notes.push(text.to_string());
        self
    }

    /// Prints it under the program's name.
    pub fn print(&self, program: &str) -> ExitCode {
        // A reader that went away has seen enough.
        let mut stdout = std::io::stdout().lock();
        self.lines.iter().for_each(|line| _ = writeln!(stdout, "{line}"));
        _ = stdout.flush();
        let mut stderr = std::io::stderr().lock();
        self.notes.iter().for_each(|note| _ = writeln!(stderr, "{program}: {note}"));
        ExitCode::from(self.code)
    }
}
