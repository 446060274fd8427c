//! Who is calling, as far as anything below the transport may know: two random ids.
//!
//! Names, tokens and claims stay in `transport/auth`; a changed mapping there orphans nothing here. Both are drawn by
//! this host, so that nobody can choose some whose hashes collide: tables by these ids hash fast.

use std::fmt;
use std::hash::{Hash, Hasher};

use super::{read_hex, write_hex};

/// The tenant of requestors that were not given another.
pub const LOCAL_TENANT: &str = "default";
/// The requestor without a credential: the users of this machine.
pub const LOCAL_REQUESTOR: &str = "local";

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(pub [u8; 16]);

        impl Hash for $name {
            fn hash<H: Hasher>(&self, state: &mut H) {
                state.write_u128(u128::from_ne_bytes(self.0));
            }
        }

        impl $name {
            /// Reads the one spelling of an id: 32 lower-case hexadecimal digits.
            pub fn parse(text: &str) -> Option<Self> {
                read_hex(text).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_hex(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_hex(&self.0, f)
            }
        }
    };
}
pub(crate) use random_id;

random_id! {
    /// One authenticated principal.
    RequestorId
}
random_id! {
    /// The group that quotas and plugin grants are set for.
    TenantId
}

/// The authenticated principal of a request. A requestor belongs to exactly one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requestor {
    /// Its tenant.
    pub tenant: TenantId,
    /// Itself.
    pub id: RequestorId,
}

impl Hash for Requestor {
    /// Its own id tells nearly all; tables of requestors are asked several times a request.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}
