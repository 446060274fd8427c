//! A value that does not fit, as its sender is told.

use std::fmt::{self, Write as _};

use serde::de::{self, Expected, Unexpected};

/// What of a name of the sender's is said back.
const NAME_CHARS_MAX: usize = 64;
/// Characters of a foreign error text that are kept.
const REASON_CHARS_MAX: usize = 300;

/// One step of a path.
#[derive(Debug)]
pub(super) enum Step {
    Member(String),
    Item(usize),
}

#[derive(Debug)]
enum Problem {
    Unfit { expected: String, found: Option<&'static str> },
    Missing { member: &'static str, expected: Option<String> },
    Twice { member: &'static str },
    Other(String),
}

/// Why a value cannot be read, and where.
#[derive(Debug)]
pub(super) struct Misread(Box<Inner>);

#[derive(Debug)]
struct Inner {
    /// Innermost first.
    steps: Vec<Step>,
    problem: Problem,
}

impl Misread {
    fn new(problem: Problem) -> Self {
        Self(Box::new(Inner { steps: Vec::new(), problem }))
    }

    pub(super) fn other(error: &impl fmt::Display) -> Self {
        Self::new(Problem::Other(reason(error)))
    }

    pub(super) fn unfit(expected: String, found: &'static str) -> Self {
        Self::new(Problem::Unfit { expected, found: Some(found) })
    }

    pub(super) fn out_of_range(smallest: i128, largest: i128) -> Self {
        Self::new(Problem::Unfit { expected: format!("an integer from {smallest} to {largest}"), found: None })
    }

    pub(super) fn absent(member: &'static str, expected: Option<String>) -> Self {
        Self::new(Problem::Missing { member, expected })
    }

    pub(super) fn inside(mut self, step: Step) -> Self {
        self.0.steps.push(step);
        self
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.0.steps
    }

    /// The member that is missing, if that is the problem.
    pub(super) fn missing(&self) -> Option<&'static str> {
        match self.0.problem {
            Problem::Missing { member, .. } => Some(member),
            _ => None,
        }
    }

    /// The whole sentence; `root` is the place of the value that was read.
    pub(super) fn at(&self, root: &str) -> String {
        let mut path = root.to_owned();
        for step in self.0.steps.iter().rev() {
            match step {
                Step::Member(name) => path = member(&path, name),
                Step::Item(at) => {
                    let _ = write!(path, "[{at}]");
                }
            }
        }
        match &self.0.problem {
            Problem::Unfit { expected, found: Some(found) } => {
                format!("{} must be {expected}, not {found}", named(&path))
            }
            Problem::Unfit { expected, found: None } => format!("{} must be {expected}", named(&path)),
            Problem::Missing { member: name, expected: Some(expected) } => {
                super::missing(&member(&path, name), expected)
            }
            Problem::Missing { member: name, expected: None } => format!("{} is missing", member(&path, name)),
            Problem::Twice { member: name } => format!("{} is there twice", member(&path, name)),
            Problem::Other(text) => format!("{}: {text}", named(&path)),
        }
    }
}

fn named(path: &str) -> &str {
    if path.is_empty() { "it" } else { path }
}

/// The path of a member: `params.task`, `params._meta["a/b"]`.
pub(crate) fn member(path: &str, name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'-');
    if !name.is_empty() && name.len() <= NAME_CHARS_MAX && name.bytes().all(is_plain) {
        return if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    }
    let shown: String = name.chars().take(NAME_CHARS_MAX).collect();
    format!("{path}[{}]", serde_json::Value::from(shown))
}

/// What is wrong, without the position (which counts in a part of the message only), cut to a readable length.
pub(crate) fn reason(error: &impl fmt::Display) -> String {
    let text = error.to_string();
    let text = text.rfind(" at line ").and_then(|at| text.get(..at)).unwrap_or(&text);
    text.chars().take(REASON_CHARS_MAX).collect()
}

impl fmt::Display for Misread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.at(""))
    }
}

impl std::error::Error for Misread {}

impl de::Error for Misread {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self::other(&text)
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let found = match found {
            Unexpected::Bool(_) => "a boolean",
            Unexpected::Float(_) => "a number with a fraction",
            Unexpected::Unsigned(_) | Unexpected::Signed(_) => "a number",
            Unexpected::Char(_) | Unexpected::Str(_) | Unexpected::Bytes(_) => "a string",
            Unexpected::Unit | Unexpected::Option => "null",
            Unexpected::Seq => "an array",
            _ => "an object",
        };
        Self::unfit(expected.to_string(), found)
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(Problem::Unfit { expected: expected.to_string(), found: None })
    }

    fn missing_field(member: &'static str) -> Self {
        Self::absent(member, None)
    }

    fn duplicate_field(member: &'static str) -> Self {
        Self::new(Problem::Twice { member })
    }
}
