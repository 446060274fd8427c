//! What is said of a component's own functions that cannot be tools.

use std::fmt;

/// Why the values of a type have no form in JSON; to be read after the name of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotJson {
    Resource,
    Stream,
    Future,
    ErrorContext,
    Unknown,
}

impl fmt::Display for NotJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resource => "is or holds a resource, which lives inside the component only",
            Self::Stream => "is or holds a stream, which cannot be passed as JSON",
            Self::Future => "is or holds a future, which cannot be passed as JSON",
            Self::ErrorContext => "is or holds an error context, which cannot be passed as JSON",
            Self::Unknown => "is or holds a type that this host does not know",
        })
    }
}

/// A function that is asynchronous; to be read after its name.
pub const ASYNCHRONOUS: &str = "is asynchronous, which this host does not offer";

/// What is wrong with a parameter.
pub fn of_parameter(name: &str, wrong: impl fmt::Display) -> String {
    format!("parameter {name} {wrong}")
}

/// What is wrong with what a function returns.
pub fn of_result(wrong: impl fmt::Display) -> String {
    format!("its result {wrong}")
}

/// What is wrong with a function.
pub fn of_function(function: impl fmt::Display, wrong: impl fmt::Display) -> String {
    format!("function {function}: {wrong}")
}

/// Why a component is refused none of whose functions can be a tool; each reason is said beside it.
pub const NO_USABLE_FUNCTION: &str =
    "it does not export bulkhead:plugin/tools@0.1.0 of the world, and its own functions cannot be tools";
