//! Why a request is not let in.
//!
//! Owns what its client and the audit log are told of it. Invariant: nothing in it says what was wrong with a token.

use super::verifier::{Denied, Limited};

/// Why a request is not let in.
#[derive(Debug, PartialEq, Eq)]
pub enum Unauthorized {
    Missing,
    Malformed,
    Invalid,
    Unavailable { incident: String },
    StoreUnavailable { retry_after_ms: u64 },
    Limited(Limited),
}

impl From<Denied> for Unauthorized {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Invalid => Self::Invalid,
            Denied::Unavailable { incident } => Self::Unavailable { incident },
            Denied::StoreUnavailable { retry_after_ms } => Self::StoreUnavailable { retry_after_ms },
            Denied::Limited(limited) => Self::Limited(limited),
        }
    }
}

impl Unauthorized {
    /// The challenge of a host that makes its tokens itself.
    pub(super) fn challenge(&self) -> Option<&'static str> {
        match self {
            Self::Missing => Some(r#"Bearer realm="bulkhead""#),
            Self::Malformed => Some(r#"Bearer realm="bulkhead", error="invalid_request""#),
            Self::Invalid => Some(r#"Bearer realm="bulkhead", error="invalid_token""#),
            Self::Unavailable { .. } | Self::StoreUnavailable { .. } | Self::Limited(_) => None,
        }
    }

    /// Whether it says nothing about the credential.
    pub fn is_no_judgement(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::StoreUnavailable { .. } | Self::Limited(_))
    }

    /// Whether the credential was invalid, as a guessed one is.
    pub fn is_a_failed_try(&self) -> bool {
        matches!(self, Self::Malformed | Self::Invalid)
    }

    /// For the audit log.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Missing => "no credential",
            Self::Malformed => "a malformed credential",
            Self::Invalid => "an invalid credential",
            Self::Unavailable { .. } | Self::StoreUnavailable { .. } => "the credential could not be checked",
            Self::Limited(Limited::Failures(_)) => "too many invalid credentials from one address",
            Self::Limited(Limited::Rate(_)) => "too many new requestors of one tenant",
            Self::Limited(Limited::Full(full)) => full.limit,
        }
    }
}
