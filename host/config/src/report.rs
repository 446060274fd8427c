//! What is wrong with a configuration, and where.
//!
//! Owns the places and the list of problems. Invariant: reading goes on after a problem, and each is reported with its
//! place.

use std::cell::RefCell;
use std::fmt;

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigLocation {
    Default,
    File { file: String, line: usize },
    Variable(String),
    Flag(&'static str),
}

impl fmt::Display for ConfigLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => write!(f, "default"),
            Self::File { file, line } => write!(f, "{file}:{line}"),
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::Flag(flag) => write!(f, "{flag}"),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub location: ConfigLocation,
    /// Names the key and says what to do.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location, self.message)
    }
}

impl std::error::Error for Problem {}

/// Everything that is wrong with a configuration, one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the configuration is wrong in {} place(s):", self.0.len())?;
        self.0.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl std::error::Error for Problems {}

/// Collects problems while reading goes on.
#[derive(Debug, Default)]
pub(super) struct Report(RefCell<Vec<Problem>>);

impl Report {
    pub(super) fn add(&self, location: &ConfigLocation, message: impl Into<String>) {
        self.0.borrow_mut().push(Problem { location: location.clone(), message: message.into() });
    }

    pub(super) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// All of them; those of the file in its order, however it was read.
    pub(super) fn into_problems(self) -> Vec<Problem> {
        let mut problems = self.0.into_inner();
        problems.sort_by_key(|problem| match problem.location {
            ConfigLocation::File { line, .. } => line,
            ConfigLocation::Default | ConfigLocation::Variable(_) | ConfigLocation::Flag(_) => usize::MAX,
        });
        problems
    }
}
