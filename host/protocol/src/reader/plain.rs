//! Values that fit, which nearly all do: read by `serde_json`, with nothing between but that a struct is an object.
//!
//! Owns the quick way. Must not say what is wrong: what does not fit, or is spelled unusually, is read once more by
//! [`Reader`](super::Reader). Invariant: what fits here has the same value there.

use std::fmt;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::RAW_VALUE;

/// Reads a value that fits.
pub(super) fn read<'de, T: Deserialize<'de>>(text: &'de str) -> Option<T> {
    let mut json = serde_json::Deserializer::from_str(text);
    let value = T::deserialize(Plain(&mut json)).ok()?;
    json.end().is_ok().then_some(value)
}

/// A deserializer, or what it passes on, down to the last struct.
struct Plain<T>(T);

/// Texts, numbers and the like: no struct is in them.
macro_rules! as_they_are {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method(visitor)
        }
    )*};
}

macro_rules! with_parts {
    ($($method:ident($($ignored:ident: $type:ty),*) => $inner:ident;)*) => {$(
        fn $method<V: Visitor<'de>>(self, $($ignored: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            $(let _ = $ignored;)*
            self.0.$inner(Plain(visitor))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Plain<D> {
    type Error = D::Error;

    as_they_are! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8 deserialize_u16
        deserialize_u32 deserialize_u64 deserialize_f32 deserialize_f64 deserialize_char deserialize_str deserialize_string
        deserialize_unit deserialize_identifier deserialize_ignored_any
    }

    with_parts! {
        deserialize_any() => deserialize_any;
        deserialize_bytes() => deserialize_str;
        deserialize_byte_buf() => deserialize_str;
        deserialize_option() => deserialize_option;
        deserialize_unit_struct(name: &'static str) => deserialize_unit;
        deserialize_seq() => deserialize_seq;
        deserialize_tuple(len: usize) => deserialize_seq;
        deserialize_tuple_struct(name: &'static str, len: usize) => deserialize_seq;
        deserialize_map() => deserialize_map;
        deserialize_struct(name: &'static str, fields: &'static [&'static str]) => deserialize_map;
        deserialize_enum(name: &'static str, variants: &'static [&'static str]) => deserialize_str;
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        match name {
            RAW_VALUE => self.0.deserialize_newtype_struct(name, visitor),
            _ => visitor.visit_newtype_struct(self),
        }
    }
}

macro_rules! visit {
    ($($method:ident($type:ty))*) => {$(
        fn $method<E: de::Error>(self, value: $type) -> Result<V::Value, E> {
            self.0.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Plain<V> {
    type Value = V::Value;

    visit! { visit_bool(bool) visit_i64(i64) visit_u64(u64) visit_f64(f64) visit_str(&str) visit_borrowed_str(&'de str) }

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_unit<E: de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_none<E: de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(Plain(deserializer))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(Plain(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Plain(members))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Plain<A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, A::Error> {
        self.0.next_element_seed(Plain(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Plain<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        self.0.next_key_seed(seed)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        self.0.next_value_seed(Plain(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Plain<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Plain(deserializer))
    }
}
