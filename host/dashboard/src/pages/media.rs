//! Images, sounds and bytes of a result: what a page offers in their place.
//!
//! Must not load anything by itself, and must not believe what a plugin calls it. Invariants: nothing that can hold a
//! script (SVG, HTML, PDF) is an image here; an image is shown on a page of its own, which the requestor opened;
//! everything else is a file to download.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bulkhead_domain::task::TaskId;
use maud::{Markup, html};

use super::Frame;
use crate::text;

/// Bytes of an image that the dashboard shows.
const IMAGE_BYTES_MAX: usize = 1 << 20;

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

/// What stands for a block of a result, with the links to it.
pub(super) fn media(id: TaskId, index: usize, what: &str, mime: &str, data: &[u8]) -> Markup {
    html! {
        p {
            (what) " (" (text::line(mime)) ", " (text::bytes(data.len() as u64)) ") "
            @if media_type(data).is_some() { a href={ "/tasks/" (id) "/image/" (index) } { "Show it" } " " }
            a href={ "/tasks/" (id) "/file/" (index) } download { "Download it" }
        }
    }
}

/// An image that the requestor asked for.
pub(crate) fn image(frame: &Frame<'_>, id: TaskId, media: &str, data: &[u8]) -> Markup {
    frame.show(
        "An image of a result",
        html! {
            p.note { "The plugin made it. Nobody else sees it." }
            p { img src={ "data:" (media) ";base64," (STANDARD.encode(data)) } alt="The image of the result"; }
            p { a href={ "/tasks/" (id) } { "Back to the task" } }
        },
    )
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
