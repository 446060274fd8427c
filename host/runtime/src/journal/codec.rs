//! How values stand in a journal: length-prefixed, numbers as varints, nothing that depends on a compiler or a
//! platform.
//!
//! Owns the two directions of each type. Must not know what a value means. Invariant: decoding is total: whatever the
//! bytes are, it ends, and takes no more memory than a small multiple of their number.

use std::collections::BTreeMap;

use bulkhead_calls::journal::reader::Reader;
use bulkhead_domain::Json;

pub(super) fn write_varint(mut value: u64, to: &mut Vec<u8>) {
    loop {
        let byte = (value & 0x7F) as u8;
        value >>= 7;
        if value == 0 {
            to.push(byte);
            return;
        }
        to.push(byte | 0x80);
    }
}

/// What can stand in a journal.
pub(crate) trait Recorded: Sized {
    fn write(&self, to: &mut Vec<u8>);

    /// `None`: these are no bytes of such a value.
    fn read(from: &mut Reader<'_>) -> Option<Self>;

    fn write_items(items: &[Self], to: &mut Vec<u8>) {
        items.iter().for_each(|item| item.write(to));
    }

    fn read_items(count: usize, from: &mut Reader<'_>) -> Option<Vec<Self>> {
        // Every item has a byte at least, so that a count cannot be made up.
        if count > from.left() {
            return None;
        }
        (0..count).map(|_| Self::read(from)).collect()
    }
}

pub(super) fn encode(value: &impl Recorded) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.write(&mut bytes);
    bytes
}

/// A value that is these bytes, all of them.
pub(super) fn decode<T: Recorded>(bytes: &[u8]) -> Option<T> {
    let mut reader = Reader::new(bytes);
    T::read(&mut reader).filter(|_| reader.left() == 0)
}

impl Recorded for u8 {
    fn write(&self, to: &mut Vec<u8>) {
        to.push(*self);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        from.byte()
    }

    fn write_items(items: &[Self], to: &mut Vec<u8>) {
        to.extend_from_slice(items);
    }

    fn read_items(count: usize, from: &mut Reader<'_>) -> Option<Vec<Self>> {
        from.take(count).map(<[u8]>::to_vec)
    }
}

/// Nothing is one byte: what is counted is there.
impl Recorded for () {
    fn write(&self, to: &mut Vec<u8>) {
        to.push(0);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        (u8::read(from)? == 0).then_some(())
    }
}

impl Recorded for bool {
    fn write(&self, to: &mut Vec<u8>) {
        to.push(u8::from(*self));
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        match u8::read(from)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Recorded for $number {
            fn write(&self, to: &mut Vec<u8>) {
                write_varint(u64::from(*self), to);
            }

            fn read(from: &mut Reader<'_>) -> Option<Self> {
                from.varint()?.try_into().ok()
            }
        }
    )*};
}

numbers!(u16, u32, u64);

impl<const N: usize> Recorded for [u8; N] {
    fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        from.array()
    }
}

impl<T: Recorded> Recorded for Vec<T> {
    fn write(&self, to: &mut Vec<u8>) {
        write_varint(self.len() as u64, to);
        T::write_items(self, to);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let count = from.varint()?.try_into().ok()?;
        T::read_items(count, from)
    }
}

impl Recorded for String {
    fn write(&self, to: &mut Vec<u8>) {
        write_varint(self.len() as u64, to);
        to.extend_from_slice(self.as_bytes());
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        String::from_utf8(Vec::read(from)?).ok()
    }
}

impl Recorded for Json {
    fn write(&self, to: &mut Vec<u8>) {
        self.as_str().to_owned().write(to);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        String::read(from).map(Self::new)
    }
}

impl<T: Recorded> Recorded for Option<T> {
    fn write(&self, to: &mut Vec<u8>) {
        self.is_some().write(to);
        if let Some(value) = self {
            value.write(to);
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(if bool::read(from)? { Some(T::read(from)?) } else { None })
    }
}

impl<T: Recorded, E: Recorded> Recorded for Result<T, E> {
    fn write(&self, to: &mut Vec<u8>) {
        self.is_err().write(to);
        match self {
            Ok(value) => value.write(to),
            Err(error) => error.write(to),
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(if bool::read(from)? { Err(E::read(from)?) } else { Ok(T::read(from)?) })
    }
}

impl<A: Recorded, B: Recorded> Recorded for (A, B) {
    fn write(&self, to: &mut Vec<u8>) {
        self.0.write(to);
        self.1.write(to);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some((A::read(from)?, B::read(from)?))
    }
}

impl<V: Recorded> Recorded for BTreeMap<String, V> {
    fn write(&self, to: &mut Vec<u8>) {
        write_varint(self.len() as u64, to);
        for (key, value) in self {
            key.write(to);
            value.write(to);
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Vec::<(String, V)>::read(from).map(|pairs| pairs.into_iter().collect())
    }
}

/// A type that is its fields, in this order.
macro_rules! fields {
    ($type:ty { $($field:ident),* $(,)? }) => {
        impl $crate::journal::codec::Recorded for $type {
            fn write(&self, to: &mut Vec<u8>) {
                $($crate::journal::codec::Recorded::write(&self.$field, to);)*
            }

            fn read(from: &mut bulkhead_calls::journal::reader::Reader<'_>) -> Option<Self> {
                Some(Self { $($field: $crate::journal::codec::Recorded::read(from)?),* })
            }
        }
    };
}

/// A type that is one of several, each with a number that never changes and at most one value.
macro_rules! variants {
    ($type:ty { $($number:literal => $variant:ident $(($value:ident))?),* $(,)? }) => {
        impl $crate::journal::codec::Recorded for $type {
            fn write(&self, to: &mut Vec<u8>) {
                match self {
                    $(Self::$variant $(($value))? => {
                        to.push($number);
                        $($crate::journal::codec::Recorded::write($value, to);)?
                    })*
                }
            }

            fn read(from: &mut bulkhead_calls::journal::reader::Reader<'_>) -> Option<Self> {
                Some(match <u8 as $crate::journal::codec::Recorded>::read(from)? {
                    $($number => Self::$variant $(({
                        let $value = $crate::journal::codec::Recorded::read(from)?;
                        $value
                    }))?,)*
                    _ => return None,
                })
            }
        }
    };
}

pub(super) use {fields, variants};

#[cfg(test)]
mod tests {
    use super::*;

    type Everything = (Option<String>, (Result<u64, bool>, (Vec<(String, Vec<u8>)>, BTreeMap<String, Json>)));

    #[test]
    fn values_come_back_as_they_were() {
        for number in [0, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            assert_eq!(decode::<u64>(&encode(&number)), Some(number));
        }
        let settings = BTreeMap::from([("k".to_owned(), Json::new("{\"a\":1}"))]);
        let pairs = vec![("a".to_owned(), vec![1, 2]), (String::new(), vec![])];
        let value: Everything = (Some("grün".to_owned()), (Err(true), (pairs, settings)));
        assert_eq!(decode::<Everything>(&encode(&value)), Some(value));
    }

    #[test]
    fn bytes_that_are_no_value_are_refused() {
        assert_eq!(decode::<u64>(&[0xFF; 10]), None, "too large");
        assert_eq!(decode::<u64>(&[0x80]), None, "broken off");
        assert_eq!(decode::<u16>(&encode(&65_536_u64)), None);
        assert_eq!(decode::<bool>(&[2]), None);
        assert_eq!(decode::<String>(&[1, 0xFF]), None);
        assert_eq!(decode::<Vec<String>>(&encode(&u64::MAX)), None, "a count without its items");
        assert_eq!(decode::<u8>(&[1, 2]), None, "something is left");
    }
}
