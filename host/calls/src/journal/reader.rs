//! The bytes of a journal, taken from the front.
//!
//! Owns how long a piece and a number are. Must not know what they mean. Invariant: reading is total, and never goes
//! beyond the end.

/// Bytes of the longest varint.
const VARINT_BYTES_MAX: usize = 10;

/// The rest of some bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Of all of them.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// How many bytes are left.
    pub fn left(&self) -> usize {
        self.0.len()
    }

    /// The next bytes; `None`: there are not so many.
    pub fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, left) = self.0.split_at_checked(bytes)?;
        self.0 = left;
        Some(taken)
    }

    /// The next bytes, as many as are asked for.
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// The next byte.
    pub fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    /// A number of any length up to 64 bits.
    pub fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for at in 0..VARINT_BYTES_MAX {
            let [byte] = self.array()?;
            let bits = u64::from(byte & 0x7F);
            let shifted = bits.checked_shl(7 * at as u32).filter(|shifted| shifted >> (7 * at) == bits)?;
            value |= shifted;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}
