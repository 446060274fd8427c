//! The engine's numbers and strings.
//!
//! Invariant: nothing is read beyond the end; `None` where there is too little.

/// What is still to be read.
#[derive(Clone, Copy)]
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (chunk, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*chunk)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.chunk().map(|[byte]| byte)
    }

    pub(super) fn checksum(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_le_bytes)
    }

    /// A number of eight bytes.
    pub(super) fn signed(&mut self) -> Option<i64> {
        self.chunk().map(i64::from_le_bytes)
    }

    /// A number of one to nine bytes.
    pub(super) fn number(&mut self) -> Option<u64> {
        let first = self.byte()?;
        match first {
            0..=240 => Some(u64::from(first)),
            241..=248 => Some(240 + 256 * u64::from(first - 241) + u64::from(self.byte()?)),
            249 => {
                let [high, low] = self.chunk()?;
                Some(2_288 + 256 * u64::from(high) + u64::from(low))
            }
            _ => {
                let taken = self.take(usize::from(first - 247))?;
                Some(taken.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
            }
        }
    }

    pub(super) fn length(&mut self) -> Option<usize> {
        self.number()?.try_into().ok()
    }

    /// A length and so many bytes.
    pub(super) fn string(&mut self) -> Option<&'a [u8]> {
        let length = self.length()?;
        self.take(length)
    }

    /// A number of which zero says that there is none.
    pub(super) fn id(&mut self) -> Option<Option<u64>> {
        self.number().map(|number| (number > 0).then_some(number))
    }
}
