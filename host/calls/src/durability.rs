//! What the operator says about tasks whose host is killed.
//!
//! Owns the choices and nothing that acts on them. Must not know a task. Invariant: by default nothing that may
//! have had an effect is done again by itself.

use http::Method;
use http::header::HeaderName;

/// Whether tasks of a plugin go on where they were after the host was killed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// They do not.
    Off,
    /// Those do whose calls can be brought back.
    #[default]
    Auto,
    /// A plugin whose calls cannot be brought back is not loaded.
    Required,
}

/// What becomes of an HTTP request that was sent when the host was killed and may have had an effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InDoubt {
    /// The guest is told that nobody knows.
    #[default]
    Error,
    /// One that may be sent twice is sent again, the others are as [`Self::Error`].
    ResendIdempotent,
    /// It is sent again.
    Resend,
}

impl InDoubt {
    /// Whether a request with this method is sent again.
    pub fn sends_again(self, method: &Method) -> bool {
        match self {
            Self::Error => method.is_safe(),
            Self::ResendIdempotent => method.is_idempotent(),
            Self::Resend => true,
        }
    }
}

/// By which a server can tell that it has seen a request before, where the operator names no other header.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// How the tasks of a tool keep journals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalPolicy {
    pub in_doubt: InDoubt,
    /// The header that POST and PATCH requests get which have none: the same value each time that the call runs.
    /// `None`: they get none.
    pub idempotency_header: Option<HeaderName>,
}

impl Default for JournalPolicy {
    fn default() -> Self {
        Self { in_doubt: InDoubt::default(), idempotency_header: Some(IDEMPOTENCY_KEY) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_operator_allows_is_sent_again() {
        let again = |policy: InDoubt| {
            let methods = [Method::GET, Method::PUT, Method::DELETE, Method::POST, Method::PATCH];
            methods.map(|method| policy.sends_again(&method))
        };
        assert_eq!(again(InDoubt::Error), [true, false, false, false, false]);
        assert_eq!(again(InDoubt::ResendIdempotent), [true, true, true, false, false]);
        assert_eq!(again(InDoubt::Resend), [true; 5]);
    }
}
