//! Secrets that a guest may use without seeing them: it writes `{{secret:NAME}}`, and the host puts the value there on
//! the way out.
//!
//! Owns what a secret is and what it is bound to. Must not know where secrets are kept, nor how they get into a
//! request. Invariant: the value is in no debug text.

use std::fmt;

use super::policy::HttpGrant;

/// Bytes of a value. A shorter one would be found by chance all over an answer; a longer one does not fit its row.
pub const VALUE_BYTES: std::ops::RangeInclusive<usize> = 8..=2_048;

/// Bytes of a secret's name.
pub const NAME_BYTES_MAX: usize = 64;
/// Where in a request a value may be put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InjectionPoints {
    pub header: bool,
    pub query: bool,
    pub body: bool,
}

impl InjectionPoints {
    /// Their names.
    pub fn names(self) -> Vec<&'static str> {
        let all = [(self.header, "header"), (self.query, "query"), (self.body, "body")];
        all.into_iter().filter_map(|(set, name)| set.then_some(name)).collect()
    }

    /// By their names; `None` when one is unknown.
    pub fn named<T: AsRef<str>>(names: &[T]) -> Option<Self> {
        names.iter().try_fold(Self::default(), |places, name| match name.as_ref() {
            "header" => Some(Self { header: true, ..places }),
            "query" => Some(Self { query: true, ..places }),
            "body" => Some(Self { body: true, ..places }),
            _ => None,
        })
    }
}

/// One secret of the plugin that calls.
#[derive(Clone)]
pub struct Secret {
    pub name: String,
    pub value: String,
    /// Where it may go, with everything below a path.
    pub destinations: Vec<HttpGrant>,
    pub places: InjectionPoints,
}

/// Never the value.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Secret {
    /// What a guest writes for it.
    pub fn placeholder(&self) -> String {
        format!("{{{{secret:{}}}}}", self.name)
    }
}

/// Whether a text can be the name of a secret.
pub fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}
