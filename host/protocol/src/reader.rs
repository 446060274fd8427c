//! Reads what the other side sent into types, and says in the words of JSON what does not fit.
//!
//! Owns the text of every refusal of a member: its path and the JSON type that is expected there. Must not know any
//! method. Invariants: only an object is read as a struct (serde alone takes an array as well), a number without a
//! fraction is an integer however it is spelled (`60000.0`, `6e4`), and no name of a Rust type is in a refusal. Nothing
//! is allocated for a value that fits; nearly all are read by `plain` alone.

mod access;
mod misread;
mod plain;
mod visitor;

use std::cell::Cell;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use misread::{Misread, Step};
use visitor::{Expecting, JsonType};

pub(crate) use misread::{member, reason};

/// The name under which `serde_json` asks for JSON as it stands there.
const RAW_VALUE: &str = "$serde_json::private::RawValue";

/// Reads a value. `root` is its place in the message (`params.task`), for the refusal.
///
/// # Errors
///
/// What does not fit, as a sentence for the sender.
pub(crate) fn read<'de, T: Deserialize<'de>>(text: &'de str, root: &str) -> Result<T, String> {
    read_at(text, || root.to_owned())
}

/// As [`read`], for a place whose name has to be made.
pub(crate) fn read_at<'de, T: Deserialize<'de>>(text: &'de str, root: impl FnOnce() -> String) -> Result<T, String> {
    let unusual = || attempt(text, None).map_err(|misread| explain::<T>(text, misread, &root()));
    plain::read(text).map_or_else(unusual, Ok)
}

/// As [`read`], for a value that the message may have in several places or that only its reader is told of: no path.
pub(crate) fn read_if_fits<'de, T: Deserialize<'de>>(text: &'de str) -> Option<T> {
    plain::read(text).or_else(|| attempt(text, None).ok())
}

/// The refusal of a value that was looked at as it stands there: `params.arguments must be an object, not a string`.
pub(crate) fn unfit(path: &str, expected: &str, raw: &str) -> String {
    let found = match raw.trim_start().as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => "a number",
    };
    format!("{path} must be {expected}, not {found}")
}

/// The refusal of an object that lacks a member.
pub(crate) fn missing(path: &str, expected: &str) -> String {
    format!("{path} is missing; it must be {expected}")
}

/// A whole number, however it is spelled.
pub(crate) fn whole(number: f64) -> Option<i128> {
    #[expect(clippy::cast_possible_truncation, reason = "saturates far beyond every bound that is asked for")]
    (number.fract() == 0.0).then_some(number as i128)
}

/// An object of which only the presence matters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AnyObject;

impl<'de> Deserialize<'de> for AnyObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = AnyObject;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AnyObject, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(AnyObject)
            }
        }
        deserializer.deserialize_map(Object)
    }
}

fn attempt<'de, T: Deserialize<'de>>(text: &'de str, aim: Option<Aim<'_>>) -> Result<T, Misread> {
    let slip = Cell::new(None);
    let mut json = serde_json::Deserializer::from_str(text);
    let value = T::deserialize(Reader { inner: &mut json, frame: Frame { slip: &slip, aim } })?;
    json.end().map_err(|error| Misread::other(&error))?;
    Ok(value)
}

/// The expected type of a missing member is known only to the type that reads it. So the value is read once more, with
/// a probe in the member's place that reports the type it was asked for.
fn explain<'de, T: Deserialize<'de>>(text: &'de str, misread: Misread, root: &str) -> String {
    let Some(member) = misread.missing() else { return misread.at(root) };
    let aim = Aim { path: misread.steps(), member };
    match attempt::<T>(text, Some(aim)) {
        Err(typed) if typed.missing() == Some(member) => typed.at(root),
        _ => misread.at(root),
    }
}

/// Where a member is missing: the steps to its object, innermost first, as far as they are not gone yet.
#[derive(Clone, Copy)]
struct Aim<'c> {
    path: &'c [Step],
    member: &'static str,
}

/// What every level of a reading shares.
#[derive(Clone, Copy)]
struct Frame<'c> {
    /// Carries a refusal through `serde_json`, whose own errors are texts.
    slip: &'c Cell<Option<Misread>>,
    aim: Option<Aim<'c>>,
}

impl Frame<'_> {
    /// The frame of a part.
    fn inside(self, is_step: impl FnOnce(&Step) -> bool) -> Self {
        let aim = self.aim.and_then(|aim| {
            let (outermost, rest) = aim.path.split_last()?;
            is_step(outermost).then_some(Aim { path: rest, ..aim })
        });
        Self { aim, ..self }
    }

    /// Hands a refusal over to `serde_json`.
    fn into_inner<T, E: serde::de::Error>(self, read: Result<T, Misread>) -> Result<T, E> {
        read.map_err(|misread| {
            self.slip.set(Some(misread));
            E::custom("")
        })
    }

    /// Takes it back; an error of `serde_json` itself is its own text.
    fn take_back<T, E: std::fmt::Display>(self, read: Result<T, E>) -> Result<T, Misread> {
        read.map_err(|error| self.slip.take().unwrap_or_else(|| Misread::other(&error)))
    }
}

/// A deserializer that looks at a value's JSON type before its visitor does.
struct Reader<'c, D> {
    inner: D,
    frame: Frame<'c>,
}

impl<'de, D: Deserializer<'de>> Reader<'_, D> {
    fn read<V: Visitor<'de>>(self, wanted: JsonType, visitor: V) -> Result<V::Value, Misread> {
        let Self { inner, frame } = self;
        frame.take_back(inner.deserialize_any(Expecting { wanted, frame, visitor }))
    }
}

/// One JSON type for each type of serde.
macro_rules! read_as {
    ($($method:ident($($ignored:ident: $type:ty),*) => $wanted:expr;)*) => {$(
        fn $method<V: Visitor<'de>>(self, $($ignored: $type,)* visitor: V) -> Result<V::Value, Misread> {
            $(let _ = $ignored;)*
            self.read($wanted, visitor)
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Reader<'_, D> {
    type Error = Misread;

    read_as! {
        deserialize_any() => JsonType::Any;
        deserialize_bool() => JsonType::Boolean;
        deserialize_i8() => JsonType::integer(i8::MIN, i8::MAX);
        deserialize_i16() => JsonType::integer(i16::MIN, i16::MAX);
        deserialize_i32() => JsonType::integer(i32::MIN, i32::MAX);
        deserialize_i64() => JsonType::integer(i64::MIN, i64::MAX);
        deserialize_u8() => JsonType::integer(u8::MIN, u8::MAX);
        deserialize_u16() => JsonType::integer(u16::MIN, u16::MAX);
        deserialize_u32() => JsonType::integer(u32::MIN, u32::MAX);
        deserialize_u64() => JsonType::integer(u64::MIN, u64::MAX);
        deserialize_f32() => JsonType::Number;
        deserialize_f64() => JsonType::Number;
        deserialize_char() => JsonType::Text;
        deserialize_str() => JsonType::Text;
        deserialize_string() => JsonType::Text;
        deserialize_bytes() => JsonType::Text;
        deserialize_byte_buf() => JsonType::Text;
        deserialize_identifier() => JsonType::Text;
        deserialize_unit() => JsonType::Any;
        deserialize_unit_struct(name: &'static str) => JsonType::Any;
        deserialize_seq() => JsonType::Array;
        deserialize_tuple(len: usize) => JsonType::Array;
        deserialize_tuple_struct(name: &'static str, len: usize) => JsonType::Array;
        deserialize_map() => JsonType::Object;
        deserialize_struct(name: &'static str, fields: &'static [&'static str]) => JsonType::Object;
        deserialize_enum(name: &'static str, variants: &'static [&'static str]) => JsonType::Text;
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misread> {
        let Self { inner, frame } = self;
        frame.take_back(inner.deserialize_option(Expecting { wanted: JsonType::Any, frame, visitor }))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Misread> {
        if name == RAW_VALUE {
            return self.frame.take_back(self.inner.deserialize_newtype_struct(name, visitor));
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misread> {
        self.frame.take_back(self.inner.deserialize_ignored_any(visitor))
    }
}

/// A part of a value, with the type that it is read as.
struct Part<'c, S> {
    seed: S,
    frame: Frame<'c>,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Part<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        let Self { seed, frame } = self;
        frame.into_inner(seed.deserialize(Reader { inner: deserializer, frame }))
    }
}

#[cfg(test)]
mod tests;
