//! What stands there, held against what is expected.

use std::fmt;

use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};

use super::access::{Items, Members};
use super::misread::Misread;
use super::{Frame, Reader, whole};

/// A JSON type.
#[derive(Clone, Copy)]
pub(super) enum JsonType {
    /// The visitor knows.
    Any,
    Boolean,
    Text,
    Number,
    Integer {
        smallest: i128,
        largest: i128,
    },
    Array,
    Object,
}

impl JsonType {
    pub(super) fn integer(smallest: impl Into<i128>, largest: impl Into<i128>) -> Self {
        Self::Integer { smallest: smallest.into(), largest: largest.into() }
    }
}

/// A visitor that gets nothing else than what is expected.
pub(super) struct Expecting<'c, V> {
    pub(super) wanted: JsonType,
    pub(super) frame: Frame<'c>,
    pub(super) visitor: V,
}

impl<'de, V: Visitor<'de>> Expecting<'_, V> {
    fn unfit<E: de::Error>(self, found: &'static str) -> Result<V::Value, E> {
        let frame = self.frame;
        frame.into_inner(Err(Misread::unfit((&self as &dyn de::Expected).to_string(), found)))
    }

    fn out_of_range<E: de::Error>(self, smallest: i128, largest: i128) -> Result<V::Value, E> {
        self.frame.into_inner(Err(Misread::out_of_range(smallest, largest)))
    }
}

macro_rules! visit_scalars {
    ($($method:ident($type:ty) $wanted:ident => $found:literal;)*) => {$(
        fn $method<E: de::Error>(self, value: $type) -> Result<V::Value, E> {
            match self.wanted {
                JsonType::Any | JsonType::$wanted => self.frame.into_inner(self.visitor.$method(value)),
                _ => self.unfit($found),
            }
        }
    )*};
}

macro_rules! visit_integers {
    ($($method:ident($type:ty))*) => {$(
        fn $method<E: de::Error>(self, value: $type) -> Result<V::Value, E> {
            match self.wanted {
                JsonType::Integer { smallest, largest } if !(smallest..=largest).contains(&value.into()) => {
                    self.out_of_range(smallest, largest)
                }
                JsonType::Any | JsonType::Number | JsonType::Integer { .. } => {
                    self.frame.into_inner(self.visitor.$method(value))
                }
                _ => self.unfit("a number"),
            }
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Expecting<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.wanted {
            JsonType::Any => return self.visitor.expecting(f),
            JsonType::Boolean => "a boolean",
            JsonType::Text => "a string",
            JsonType::Number => "a number",
            JsonType::Integer { .. } => "an integer",
            JsonType::Array => "an array",
            JsonType::Object => "an object",
        })
    }

    visit_scalars! {
        visit_bool(bool) Boolean => "a boolean";
        visit_str(&str) Text => "a string";
        visit_borrowed_str(&'de str) Text => "a string";
    }

    visit_integers! { visit_i64(i64) visit_u64(u64) }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<V::Value, E> {
        let (smallest, largest) = match self.wanted {
            JsonType::Any | JsonType::Number => return self.frame.into_inner(self.visitor.visit_f64(value)),
            JsonType::Integer { smallest, largest } => (smallest, largest),
            _ => return self.unfit("a number"),
        };
        let Some(number) = whole(value) else { return self.unfit("a number with a fraction") };
        match (i64::try_from(number), u64::try_from(number)) {
            (Ok(number), _) => self.visit_i64(number),
            (_, Ok(number)) => self.visit_u64(number),
            _ => self.out_of_range(smallest, largest),
        }
    }

    fn visit_unit<E: de::Error>(self) -> Result<V::Value, E> {
        match self.wanted {
            JsonType::Any => self.frame.into_inner(self.visitor.visit_unit()),
            _ => self.unfit("null"),
        }
    }

    fn visit_none<E: de::Error>(self) -> Result<V::Value, E> {
        self.frame.into_inner(self.visitor.visit_none())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        let Self { frame, visitor, .. } = self;
        frame.into_inner(visitor.visit_some(Reader { inner: deserializer, frame }))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        let Self { wanted, frame, visitor } = self;
        match wanted {
            JsonType::Any | JsonType::Array => frame.into_inner(visitor.visit_seq(Items::new(items, frame))),
            _ => Self { wanted, frame, visitor }.unfit("an array"),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<V::Value, A::Error> {
        let Self { wanted, frame, visitor } = self;
        match wanted {
            JsonType::Any | JsonType::Object => frame.into_inner(visitor.visit_map(Members::new(members, frame))),
            _ => Self { wanted, frame, visitor }.unfit("an object"),
        }
    }
}
