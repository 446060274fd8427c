//! What a key is: its name, its kind with default and bounds, what is a value of it, and the field that it fills.

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Count,
    Milliseconds,
    Bytes,
    PerSecond,
}

impl Unit {
    /// For tables and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Milliseconds => "ms",
            Self::Bytes => "bytes",
            Self::PerSecond => "per second",
        }
    }
}

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Number {
        unit: Unit,
        default: u64,
        min: u64,
        max: u64,
    },
    Switch {
        default: bool,
    },
    /// With `allowed`, one of those.
    Text {
        default: &'static str,
        allowed: &'static [&'static str],
    },
    /// Of texts; empty by default.
    List,
}

/// Where a key may be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Once for the host.
    Host,
    /// Also for a tenant (`[limits]`) or for a plugin and its tools (`[call]`).
    Override,
}

/// One key of a fixed section.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    pub section: &'static str,
    pub name: &'static str,
    pub kind: Kind,
    pub scope: Scope,
    /// One sentence without a full stop.
    pub doc: &'static str,
}

impl Key {
    /// `section.name`.
    pub fn path(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    /// What the variable would be called.
    pub(super) fn variable_name(&self) -> String {
        format!("BULKHEAD_{}_{}", self.section, self.name).to_uppercase()
    }

    /// Its environment variable; lists have none.
    pub fn variable(&self) -> Option<String> {
        (self.kind != Kind::List).then(|| self.variable_name())
    }

    /// The value when nobody sets one.
    pub(super) fn default(&self) -> Value {
        match self.kind {
            Kind::Number { default, .. } => Value::Number(default),
            Kind::Switch { default } => Value::Switch(default),
            Kind::Text { default, .. } => Value::Text(default.to_owned()),
            Kind::List => Value::List(Vec::new()),
        }
    }

    /// Whether the value has the right type and lies within the bounds; else what is wrong, without the key's name.
    pub(super) fn check(&self, value: &Value) -> Result<(), String> {
        match (self.kind, value) {
            (Kind::Number { unit, min, max, .. }, Value::Number(number)) => {
                let unit = unit.name();
                if *number > max {
                    Err(format!("{number} is over its maximum of {max} ({unit})"))
                } else if *number < min && *number == 0 {
                    Err(format!("must not be 0; the smallest value is {min} ({unit})"))
                } else if *number < min {
                    Err(format!("{number} is below its minimum of {min} ({unit})"))
                } else {
                    Ok(())
                }
            }
            (Kind::Text { allowed, .. }, Value::Text(text)) => {
                if text.is_empty() {
                    Err("must not be empty".to_owned())
                } else if allowed.is_empty() || allowed.contains(&text.as_str()) {
                    Ok(())
                } else {
                    Err(format!("{text:?} is not one of {}", allowed.join(", ")))
                }
            }
            (Kind::Switch { .. }, Value::Switch(_)) | (Kind::List, Value::List(_)) => Ok(()),
            (kind, value) => Err(format!("must be {}, not {}", kind.article(), value.article())),
        }
    }

    /// Reads a variable or a flag.
    pub(super) fn parse(&self, text: &str) -> Result<Value, String> {
        match self.kind {
            Kind::Number { .. } => {
                text.parse().map(Value::Number).map_err(|_| format!("{text:?} is not {}", self.kind.article()))
            }
            Kind::Switch { .. } => {
                text.parse().map(Value::Switch).map_err(|_| format!("{text:?} is neither true nor false"))
            }
            Kind::Text { .. } => Ok(Value::Text(text.to_owned())),
            Kind::List => Err("is a list: set it in the file".to_owned()),
        }
    }
}

impl Kind {
    pub(super) fn article(&self) -> &'static str {
        match self {
            Self::Number { .. } => "an integer that is not negative",
            Self::Switch { .. } => "true or false",
            Self::Text { .. } => "a string",
            Self::List => "a list of strings",
        }
    }
}

/// A value that was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Number(u64),
    Switch(bool),
    Text(String),
    List(Vec<String>),
    /// Of a type that no key has; its name.
    Other(&'static str),
}

impl Value {
    pub(super) fn article(&self) -> &'static str {
        match self {
            Self::Number(_) => "an integer",
            Self::Switch(_) => "a boolean",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Other(name) => name,
        }
    }
}

/// A field of a section's struct.
pub(super) trait Field: std::fmt::Debug {
    fn blank() -> Self
    where
        Self: Sized;
    /// The value has passed [`Key::check`].
    fn set(&mut self, value: &Value) -> Result<(), String>;
}

/// A key with the field that it fills.
pub(super) struct Bound<S> {
    pub(super) key: Key,
    pub(super) field: fn(&mut S) -> &mut dyn Field,
}

/// A number of a table whose keys have rules of their own.
#[derive(Clone, Copy)]
pub(super) struct Number {
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    pub(super) default: u64,
    pub(super) min: u64,
    pub(super) max: u64,
    pub(super) doc: &'static str,
}
