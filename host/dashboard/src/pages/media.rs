//! Images, sounds and bytes of a result: what a page offers in their place.
//!
//! Must not load anything by itself. Invariant: an image is shown on a page of its own, which the requestor opened; everything else is a file to
//! download.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bulkhead_domain::task::TaskId;
use maud::{Markup, html};

use super::Frame;
use crate::{raster, text};

/// What stands for a block of a result, with the links to it.
pub(super) fn media(id: TaskId, place: usize, (what, mime): (&str, &str), data: &[u8]) -> Markup {
    html! {
        p {
            (what) " (" (text::line(mime)) ", " (text::bytes(data.len() as u64)) ") "
            @if raster::media_type(data).is_some() { a href={ "/tasks/" (id) "/image/" (place) } { "Show it" } " " }
            a href={ "/tasks/" (id) "/file/" (place) } download { "Download it" }
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
