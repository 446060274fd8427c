//! What pages need beside themselves: one style sheet, which is in the program.
//!
//! Its address names its contents, so that a browser keeps it until there is another one.

use std::sync::LazyLock;

use bulkhead_domain::hex;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use sha2::{Digest as _, Sha256};

use crate::respond::{self, Answer};

const STYLE: &str = include_str!("../assets/dashboard.css");
/// Digits of the digest in an address.
const DIGITS: usize = 16;

/// Where the style sheet is.
pub(crate) static STYLE_PATH: LazyLock<String> = LazyLock::new(|| {
    let digits: String = hex(&Sha256::digest(STYLE)).chars().take(DIGITS).collect();
    format!("/assets/dashboard.{digits}.css")
});

/// What is at this path, if it is an asset.
pub(crate) fn find(path: &str) -> Option<Answer> {
    if path != *STYLE_PATH {
        return None;
    }
    let mut response = respond::answer(StatusCode::OK, "text/css; charset=utf-8", Bytes::from_static(STYLE.as_bytes()));
    let forever = HeaderValue::from_static("public, max-age=31536000, immutable");
    response.headers_mut().insert(header::CACHE_CONTROL, forever);
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn style_sheet_is_small_and_fetches_nothing() {
        assert!(STYLE.len() <= 10 << 10, "{} bytes", STYLE.len());
        assert!(!STYLE.contains("url(") && !STYLE.contains("@import"));
        assert!(find(&STYLE_PATH).is_some() && find("/assets/dashboard.css").is_none());
    }
}
