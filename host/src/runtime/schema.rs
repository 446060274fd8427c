//! JSON Schema 2020-12 of tools, compiled once.

/// One way in which a value does not fit a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// JSON Pointer to the offending place; empty for the root.
    pub path: String,
    pub message: String,
}

/// A compiled schema.
#[derive(Debug)]
pub struct Validator {
    pub(crate) compiled: jsonschema::Validator,
}

impl Validator {
    /// Every violation, up to a bounded number.
    pub fn check(&self, value: &serde_json::Value) -> Result<(), Vec<Violation>> {
        let violations: Vec<_> = self
            .compiled
            .iter_errors(value)
            .take(8)
            .map(|error| Violation { path: error.instance_path().to_string(), message: error.to_string() })
            .collect();
        if violations.is_empty() { Ok(()) } else { Err(violations) }
    }
}
