//! Tables of the file whose keys have rules of their own: each key is declared once, with its type, how it is read,
//! what it defaults to and what it means.
//!
//! Owns the form of such a declaration. Invariant: a table takes the keys of its declaration and no others, and the
//! help and the page of all keys describe these.

use super::key::Number;

/// A table as documents have it.
pub(super) struct Table {
    /// As it is written in the file: `[[auth.scope]]`.
    pub(super) header: &'static str,
    pub(super) purpose: &'static str,
    /// Name, default (empty: none) and meaning.
    pub(super) keys: &'static [(&'static str, &'static str, &'static str)],
    /// Keys that are listed with their bounds.
    pub(super) numbers: &'static [Number],
    /// Keys that are tables with a description of their own.
    pub(super) tables: &'static [&'static str],
}

impl Table {
    /// Every key that it takes.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        let numbers = self.numbers.iter().map(|number| number.name);
        self.keys.iter().map(|(name, ..)| *name).chain(numbers).chain(self.tables.iter().copied())
    }
}

/// Declares a [`Table`], and a struct of what the file says there: `None` is a key that is not there or was refused. A
/// key that nobody uses is a warning of the compiler.
macro_rules! table {
    (@or) => { &[] };
    (@or $numbers:expr) => { &$numbers };
    ($table:ident, $keys:ident, $header:literal, $purpose:literal, {
        $($key:ident: $value:ty = $read:expr, $default:literal, $doc:literal;)+
    } $(, numbers: $numbers:expr)? $(, tables: [$($name:literal),+])?) => {
        pub(super) static $table: crate::table::Table = crate::table::Table {
            header: $header,
            purpose: $purpose,
            keys: &[$((stringify!($key), $default, $doc)),+],
            numbers: table!(@or $($numbers)?),
            tables: &[$($($name),+)?],
        };

        #[doc = concat!("What the file says in `", $header, "`.")]
        struct $keys {
            $($key: Option<$value>),+
        }

        impl $keys {
            fn read(section: &crate::reader::Section<'_>) -> Self {
                Self { $($key: section.get(stringify!($key)).as_ref().and_then($read)),+ }
            }
        }
    };
}
