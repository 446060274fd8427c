//! The parts of arrays and objects: each knows its place.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::de::value::{BorrowedStrDeserializer, StrDeserializer};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::misread::{Misread, Step};
use super::{Frame, Part, Reader};

/// The items of an array.
pub(super) struct Items<'c, A> {
    inner: A,
    frame: Frame<'c>,
    at: usize,
}

impl<'c, A> Items<'c, A> {
    pub(super) fn new(inner: A, frame: Frame<'c>) -> Self {
        Self { inner, frame, at: 0 }
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Items<'_, A> {
    type Error = Misread;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Misread> {
        let at = self.at;
        self.at += 1;
        let frame = self.frame.inside(|step| matches!(step, Step::Item(item) if *item == at));
        let read = self.inner.next_element_seed(Part { seed, frame });
        frame.take_back(read).map_err(|misread| misread.inside(Step::Item(at)))
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

/// The members of an object.
pub(super) struct Members<'de, 'c, A> {
    inner: A,
    frame: Frame<'c>,
    /// Of the member that is read now.
    name: Cow<'de, str>,
    /// Set when it is one that is missing.
    absent: Option<&'static str>,
}

impl<'c, A> Members<'_, 'c, A> {
    pub(super) fn new(inner: A, frame: Frame<'c>) -> Self {
        Self { inner, frame, name: Cow::Borrowed(""), absent: None }
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Members<'de, '_, A> {
    type Error = Misread;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Misread> {
        let Some(name) = self.frame.take_back(self.inner.next_key_seed(Name))? else {
            let absent = self.frame.aim.filter(|aim| aim.path.is_empty() && self.absent.is_none());
            let Some(aim) = absent else { return Ok(None) };
            self.absent = Some(aim.member);
            return seed.deserialize(BorrowedStrDeserializer::new(aim.member)).map(Some);
        };
        let key = match &name {
            Cow::Borrowed(name) => seed.deserialize(BorrowedStrDeserializer::new(name)),
            Cow::Owned(name) => seed.deserialize(StrDeserializer::new(name)),
        }?;
        self.name = name;
        Ok(Some(key))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Misread> {
        if let Some(member) = self.absent {
            let frame = Frame { aim: None, ..self.frame };
            return seed.deserialize(Reader { inner: Absent { member, slip: frame.slip }, frame });
        }
        let name = &self.name;
        let frame = self.frame.inside(|step| matches!(step, Step::Member(member) if member == name));
        let read = self.inner.next_value_seed(Part { seed, frame });
        frame.take_back(read).map_err(|misread| misread.inside(Step::Member(name.to_string())))
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

/// Reads a member's name, without copying it unless it has escapes.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cow<'de, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member's name")
    }

    fn visit_borrowed_str<E: de::Error>(self, name: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}

/// Stands in the place of a member that is missing, and says what was expected there.
struct Absent<'c> {
    member: &'static str,
    slip: &'c Cell<Option<Misread>>,
}

impl<'de> Deserializer<'de> for Absent<'_> {
    type Error = Misread;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misread> {
        self.slip.set(Some(Misread::absent(self.member, Some((&visitor as &dyn de::Expected).to_string()))));
        Err(Misread::other(&""))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, _: V) -> Result<V::Value, Misread> {
        self.slip.set(Some(Misread::absent(self.member, None)));
        Err(Misread::other(&""))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct seq
        tuple tuple_struct map struct enum identifier ignored_any
    }
}
