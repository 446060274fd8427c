//! The smallest PNG writer that draws squares: no compression, no filters.

use crate::bindings::prism::colour::types::Rgb;

/// Bytes in one stored block of deflate.
const BLOCK_MAX: usize = 0xFFFF;

/// A row of squares, each so many pixels wide and high.
pub(crate) fn squares(colours: &[Rgb], size: usize) -> Vec<u8> {
    let mut line = vec![0];
    for colour in colours {
        for _ in 0..size {
            line.extend([colour.red, colour.green, colour.blue]);
        }
    }
    let pixels = line.repeat(size);
    let mut header = Vec::new();
    for side in [colours.len() * size, size] {
        header.extend(u32::try_from(side).unwrap_or(u32::MAX).to_be_bytes());
    }
    // Eight bits each of red, green and blue.
    header.extend([8, 2, 0, 0, 0]);
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    for (kind, data) in [(b"IHDR", header), (b"IDAT", stored(&pixels)), (b"IEND", Vec::new())] {
        file.extend(u32::try_from(data.len()).unwrap_or(u32::MAX).to_be_bytes());
        let start = file.len();
        file.extend(kind);
        file.extend(data);
        let sum = crc(&file[start..]);
        file.extend(sum.to_be_bytes());
    }
    file
}

/// zlib with blocks that are stored as they are.
fn stored(data: &[u8]) -> Vec<u8> {
    let mut zlib = vec![0x78, 0x01];
    let mut blocks = data.chunks(BLOCK_MAX).peekable();
    while let Some(block) = blocks.next() {
        let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
        zlib.push(u8::from(blocks.peek().is_none()));
        zlib.extend(length.to_le_bytes());
        zlib.extend((!length).to_le_bytes());
        zlib.extend(block);
    }
    zlib.extend(adler(data).to_be_bytes());
    zlib
}

fn adler(data: &[u8]) -> u32 {
    let (a, b) = data.iter().fold((1u32, 0u32), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65521;
        (a, (a + b) % 65521)
    });
    b << 16 | a
}

fn crc(data: &[u8]) -> u32 {
    !data.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn png_checksums_match_their_definitions() {
        assert_eq!(crc(b"123456789"), 0xCBF4_3926);
        assert_eq!(adler(b"Wikipedia"), 0x11E6_0398);
    }

    #[test]
    fn png_width_follows_the_number_of_colours() {
        let red = Rgb { red: 255, green: 0, blue: 0 };
        let file = squares(&[red, red, red], 4);
        assert!(file.starts_with(b"\x89PNG"));
        assert_eq!(file[16..24], [0, 0, 0, 12, 0, 0, 0, 4]);
        assert!(file.ends_with(b"IEND\xae\x42\x60\x82"));
    }
}
