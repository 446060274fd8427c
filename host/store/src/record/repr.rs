//! How a domain value and its representation on disk become each other.
//!
//! Owns the mapping of building blocks (numbers, texts, lists, ids) and the two macros that declare a representation
//! field by field. Must not know any particular record. Invariant: [`Repr::from_repr`] undoes [`Repr::to_repr`], so
//! nothing is lost on the way to disk.

use super::Error;
use bulkhead_domain::Json;
use bulkhead_domain::call::ClientFeatures;
use bulkhead_domain::requestor::{RequestorId, TenantId};
use bulkhead_domain::task::{CallId, NodeId, TaskId};

/// A domain value that is written as a `W`.
pub(super) trait Repr<W>: Sized {
    /// What goes to disk.
    fn to_repr(&self) -> W;
    /// What came from disk. Bytes can say more than the value can hold.
    fn from_repr(stored: W) -> Result<Self, Error>;
}

macro_rules! same {
    ($($kind:ty),*) => {$(
        impl Repr<$kind> for $kind {
            fn to_repr(&self) -> $kind {
                self.clone()
            }
            fn from_repr(stored: $kind) -> Result<Self, Error> {
                Ok(stored)
            }
        }
    )*};
}
same!(bool, u8, u32, u64, i32, f64, String, [u8; 8], [u8; 16], [u8; 32]);

macro_rules! id {
    ($($kind:ident),*) => {$(
        impl Repr<[u8; 16]> for $kind {
            fn to_repr(&self) -> [u8; 16] {
                self.0
            }
            fn from_repr(stored: [u8; 16]) -> Result<Self, Error> {
                Ok($kind(stored))
            }
        }
    )*};
}
id!(TaskId, CallId, NodeId, RequestorId, TenantId);

impl Repr<u16> for ClientFeatures {
    fn to_repr(&self) -> u16 {
        self.0
    }
    fn from_repr(stored: u16) -> Result<Self, Error> {
        Ok(Self(stored))
    }
}

impl Repr<String> for Json {
    fn to_repr(&self) -> String {
        self.as_str().to_owned()
    }
    fn from_repr(stored: String) -> Result<Self, Error> {
        Ok(Json::new(stored))
    }
}

impl<D: Repr<W>, W> Repr<Option<W>> for Option<D> {
    fn to_repr(&self) -> Option<W> {
        self.as_ref().map(Repr::to_repr)
    }
    fn from_repr(stored: Option<W>) -> Result<Self, Error> {
        stored.map(Repr::from_repr).transpose()
    }
}

/// Bytes in one piece: serde would write a `Vec<u8>` number by number.
pub(super) struct Blob(pub(super) Vec<u8>);

impl Repr<Blob> for Vec<u8> {
    fn to_repr(&self) -> Blob {
        Blob(self.clone())
    }
    fn from_repr(stored: Blob) -> Result<Self, Error> {
        Ok(stored.0)
    }
}

impl serde::Serialize for Blob {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> serde::Deserialize<'de> for Blob {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&[u8]>::deserialize(deserializer).map(|bytes| Self(bytes.to_vec()))
    }
}

/// A list. A wrapper on the disk side only, so that bytes (`Vec<u8>`) can be written in one piece.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub(super) struct List<W>(Vec<W>);

impl<D: Repr<W>, W> Repr<List<W>> for Vec<D> {
    fn to_repr(&self) -> List<W> {
        List(self.iter().map(Repr::to_repr).collect())
    }
    fn from_repr(stored: List<W>) -> Result<Self, Error> {
        stored.0.into_iter().map(Repr::from_repr).collect()
    }
}

impl<A: Repr<V>, B: Repr<W>, V, W> Repr<(V, W)> for (A, B) {
    fn to_repr(&self) -> (V, W) {
        (self.0.to_repr(), self.1.to_repr())
    }
    fn from_repr(stored: (V, W)) -> Result<Self, Error> {
        Ok((A::from_repr(stored.0)?, B::from_repr(stored.1)?))
    }
}

/// JSON of a client or a plugin, as its text.
pub(super) type JsonText = String;
/// Members of `_meta`.
pub(super) type Meta = List<(String, JsonText)>;

/// Declares the representation of a struct: the order of the fields is the order of the bytes.
macro_rules! repr_struct {
    ($repr:ident of $domain:ident { $($field:ident: $stored:ty),* $(,)? }) => {
        #[derive(serde::Serialize, serde::Deserialize)]
        pub(super) struct $repr { $($field: $stored),* }

        impl Repr<$repr> for $domain {
            fn to_repr(&self) -> $repr {
                $repr { $($field: self.$field.to_repr()),* }
            }
            fn from_repr(stored: $repr) -> Result<Self, Error> {
                Ok(Self { $($field: Repr::from_repr(stored.$field)?),* })
            }
        }
    };
}

/// Declares the representation of an enum: the order of the variants is the number on disk.
macro_rules! repr_enum {
    ($repr:ident of $domain:ident {
        $($variant:ident $({ $($field:ident: $stored:ty),* })? $(($inner:ident: $kind:ty))?),* $(,)?
    }) => {
        #[derive(serde::Serialize, serde::Deserialize)]
        pub(super) enum $repr {
            $($variant $({ $($field: $stored),* })? $(($kind))?),*
        }

        impl Repr<$repr> for $domain {
            fn to_repr(&self) -> $repr {
                match self {
                    $(Self::$variant $({ $($field),* })? $(($inner))? =>
                        $repr::$variant $({ $($field: $field.to_repr()),* })? $(($inner.to_repr()))?),*
                }
            }
            fn from_repr(stored: $repr) -> Result<Self, Error> {
                Ok(match stored {
                    $($repr::$variant $({ $($field),* })? $(($inner))? =>
                        Self::$variant $({ $($field: Repr::from_repr($field)?),* })? $((Repr::from_repr($inner)?))?),*
                })
            }
        }
    };
}

pub(super) use {repr_enum, repr_struct};
