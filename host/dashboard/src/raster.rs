//! Which images a page may show: raster images, told by their own bytes.
//!
//! Must not believe what a plugin calls them. Invariant: nothing that can hold a script (SVG, HTML, PDF) is an image here.

/// Bytes of an image that the dashboard shows.
pub(crate) const IMAGE_BYTES_MAX: usize = 1 << 20;

/// What images begin with.
const SIGNATURES: [(&[u8], &str); 4] = [
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
];

/// The media type of an image that a page may show.
pub(crate) fn media_type(data: &[u8]) -> Option<&'static str> {
    if data.len() > IMAGE_BYTES_MAX {
        return None;
    }
    let is_webp = data.starts_with(b"RIFF") && data.get(8..12).is_some_and(|form| form == b"WEBP");
    let known = SIGNATURES.iter().find(|(begin, _)| data.starts_with(begin)).map(|(_, media)| *media);
    known.or(is_webp.then_some("image/webp"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_is_what_its_bytes_are() {
        for (data, media) in [
            (&b"\x89PNG\r\n\x1a\n\0"[..], Some("image/png")),
            (b"\xff\xd8\xff\xe0", Some("image/jpeg")),
            (b"GIF89a..", Some("image/gif")),
            (b"RIFF\x04\0\0\0WEBPVP8 ", Some("image/webp")),
            (b"RIFF\x04\0\0\0WAVEfmt ", None),
            (b"<svg xmlns=\"http://www.w3.org/2000/svg\"/>", None),
            (b"%PDF-1.7", None),
            (b"", None),
        ] {
            assert_eq!(media_type(data), media, "{data:?}");
        }
        let large = [&b"\xff\xd8\xff"[..], &vec![0; IMAGE_BYTES_MAX]].concat();
        assert_eq!(media_type(&large), None);
    }
}
