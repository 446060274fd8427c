//! How a domain value and its twin on disk become each other.
//!
//! Owns the mapping of building blocks (numbers, texts, lists, ids) and the two macros that declare a twin field by field. Must
//! not know any particular record. Invariant: [`Twin::back`] undoes [`Twin::twin`], so nothing is lost on the way to disk.

use crate::domain::Json;
use crate::domain::call::ClientFeatures;
use crate::domain::requestor::{RequestorId, TenantId};
use crate::domain::task::{CallId, NodeId, TaskId};

/// A domain value that is written as a `W`.
pub(super) trait Twin<W>: Sized {
    /// What goes to disk.
    fn twin(&self) -> W;
    /// What came from disk.
    fn back(stored: W) -> Self;
}

macro_rules! same {
    ($($kind:ty),*) => {$(
        impl Twin<$kind> for $kind {
            fn twin(&self) -> $kind {
                self.clone()
            }
            fn back(stored: $kind) -> Self {
                stored
            }
        }
    )*};
}
same!(bool, u32, u64, i32, f64, String, [u8; 16], [u8; 32]);

macro_rules! id {
    ($($kind:ident),*) => {$(
        impl Twin<[u8; 16]> for $kind {
            fn twin(&self) -> [u8; 16] {
                self.0
            }
            fn back(stored: [u8; 16]) -> Self {
                $kind(stored)
            }
        }
    )*};
}
id!(TaskId, CallId, NodeId, RequestorId, TenantId);

impl Twin<u16> for ClientFeatures {
    fn twin(&self) -> u16 {
        self.0
    }
    fn back(stored: u16) -> Self {
        Self(stored)
    }
}

impl Twin<String> for Json {
    fn twin(&self) -> String {
        self.as_str().to_owned()
    }
    fn back(stored: String) -> Self {
        Json::new(stored)
    }
}

impl<D: Twin<W>, W> Twin<Option<W>> for Option<D> {
    fn twin(&self) -> Option<W> {
        self.as_ref().map(Twin::twin)
    }
    fn back(stored: Option<W>) -> Self {
        stored.map(Twin::back)
    }
}

/// Bytes in one piece: serde would write a `Vec<u8>` number by number.
pub(super) struct Blob(Vec<u8>);

impl Twin<Blob> for Vec<u8> {
    fn twin(&self) -> Blob {
        Blob(self.clone())
    }
    fn back(stored: Blob) -> Self {
        stored.0
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

impl<D: Twin<W>, W> Twin<List<W>> for Vec<D> {
    fn twin(&self) -> List<W> {
        List(self.iter().map(Twin::twin).collect())
    }
    fn back(stored: List<W>) -> Self {
        stored.0.into_iter().map(Twin::back).collect()
    }
}

impl<A: Twin<V>, B: Twin<W>, V, W> Twin<(V, W)> for (A, B) {
    fn twin(&self) -> (V, W) {
        (self.0.twin(), self.1.twin())
    }
    fn back(stored: (V, W)) -> Self {
        (A::back(stored.0), B::back(stored.1))
    }
}

/// Declares the twin of a struct: the order of the fields is the order of the bytes.
macro_rules! twin_struct {
    ($twin:ident of $domain:ident { $($field:ident: $stored:ty),* $(,)? }) => {
        #[derive(serde::Serialize, serde::Deserialize)]
        pub(super) struct $twin { $($field: $stored),* }

        impl Twin<$twin> for $domain {
            fn twin(&self) -> $twin {
                $twin { $($field: self.$field.twin()),* }
            }
            fn back(stored: $twin) -> Self {
                Self { $($field: Twin::back(stored.$field)),* }
            }
        }
    };
}

/// Declares the twin of an enum: the order of the variants is the number on disk.
macro_rules! twin_enum {
    ($twin:ident of $domain:ident {
        $($variant:ident $({ $($field:ident: $stored:ty),* })? $(($inner:ident: $kind:ty))?),* $(,)?
    }) => {
        #[derive(serde::Serialize, serde::Deserialize)]
        pub(super) enum $twin {
            $($variant $({ $($field: $stored),* })? $(($kind))?),*
        }

        impl Twin<$twin> for $domain {
            fn twin(&self) -> $twin {
                match self {
                    $(Self::$variant $({ $($field),* })? $(($inner))? =>
                        $twin::$variant $({ $($field: $field.twin()),* })? $(($inner.twin()))?),*
                }
            }
            fn back(stored: $twin) -> Self {
                match stored {
                    $($twin::$variant $({ $($field),* })? $(($inner))? =>
                        Self::$variant $({ $($field: Twin::back($field)),* })? $((Twin::back($inner)))?),*
                }
            }
        }
    };
}

pub(super) use {twin_enum, twin_struct};
