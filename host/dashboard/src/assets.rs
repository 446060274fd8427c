//! What pages need beside themselves: a style sheet, a script, and one more for pages with a view of an MCP App, all in
//! the program.
//!
//! The address of one names its contents, so that a browser keeps it until there is another one.

use std::sync::LazyLock;

use bulkhead_domain::hex;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use sha2::{Digest as _, Sha256};

use crate::columns::card_rules;
use crate::respond::{self, Answer};

/// The rules that are written by hand.
const RULES: &str = include_str!("../assets/dashboard.css");
const SCRIPT: &str = include_str!("../assets/live.js");
const VIEW_SCRIPT: &str = include_str!("../assets/view.js");
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
/// Digits of the digest in an address.
const DIGITS: usize = 16;

/// With those that follow from the columns of lists.
static STYLE: LazyLock<Bytes> = LazyLock::new(|| format!("{RULES}{}", card_rules()).into());

/// Where the style sheet is.
pub(crate) static STYLE_PATH: LazyLock<String> = LazyLock::new(|| path(&STYLE, "dashboard", "css"));
/// Where the script is.
pub(crate) static SCRIPT_PATH: LazyLock<String> = LazyLock::new(|| path(SCRIPT.as_bytes(), "live", "js"));

/// Where the script of pages with a view is.
pub(crate) static VIEW_SCRIPT_PATH: LazyLock<String> = LazyLock::new(|| path(VIEW_SCRIPT.as_bytes(), "view", "js"));

fn path(contents: &[u8], name: &str, extension: &str) -> String {
    let digits: String = hex(&Sha256::digest(contents)).chars().take(DIGITS).collect();
    format!("/assets/{name}.{digits}.{extension}")
}

/// What is at this path, if it is an asset.
pub(crate) fn find(path: &str) -> Option<Answer> {
    let (media, contents) = match path {
        _ if path == *STYLE_PATH => ("text/css; charset=utf-8", STYLE.clone()),
        _ if path == *SCRIPT_PATH => (JAVASCRIPT, Bytes::from_static(SCRIPT.as_bytes())),
        _ if path == *VIEW_SCRIPT_PATH => (JAVASCRIPT, Bytes::from_static(VIEW_SCRIPT.as_bytes())),
        _ => return None,
    };
    let mut response = respond::answer(StatusCode::OK, media, contents);
    let forever = HeaderValue::from_static("public, max-age=31536000, immutable");
    response.headers_mut().insert(header::CACHE_CONTROL, forever);
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn style_sheet_is_small_and_fetches_nothing() {
        // It is read once and kept for good: a quarter more than that of pages of tables alone, for tiles, charts and
        // cards.
        let style = str::from_utf8(&STYLE).unwrap();
        assert!(style.len() <= 14 << 10, "{} bytes", style.len());
        assert!(!style.contains("url(") && !style.contains("@import"));
        assert!(find(&STYLE_PATH).is_some() && find("/assets/dashboard.css").is_none());
    }

    #[test]
    fn script_is_small_and_makes_markup_in_one_place_only() {
        // 4 KiB are for keeping pages fresh. What a chart says below the pointer came after that: there will be no
        // third room.
        assert!(SCRIPT.len() <= 8 << 10, "{} bytes", SCRIPT.len());
        let times = |part: &str| SCRIPT.matches(part).count();
        // What makes markup of a text, or runs it: once, and there by the policy that the pages allow.
        let policy = ".innerHTML = policy.createHTML(";
        assert_eq!((times("innerHTML"), times(policy), times("createPolicy('bulkhead'")), (1, 1, 1));
        for refused in [
            "eval",
            "Function",
            "outerHTML",
            "insertAdjacent",
            "document.write",
            "srcdoc",
            "setAttribute",
            "import",
            "fetch(",
            "http:",
            "https:",
            "localStorage",
            "sessionStorage",
            "cookie",
        ] {
            assert_eq!(times(refused), 0, "{refused}");
        }
        assert!(find(&SCRIPT_PATH).is_some() && find("/assets/live.js").is_none());
    }

    #[test]
    fn script_of_views_is_small_and_makes_no_markup() {
        // Pages with a view alone have it.
        assert!(VIEW_SCRIPT.len() <= 4 << 10, "{} bytes", VIEW_SCRIPT.len());
        for refused in [
            "innerHTML",
            "outerHTML",
            "insertAdjacent",
            "document.write",
            "srcdoc",
            "setAttribute",
            "createPolicy",
            "eval",
            "Function",
            "import",
            "http:",
            "https:",
            "localStorage",
            "sessionStorage",
            "cookie",
            "'*'",
        ] {
            assert_eq!(VIEW_SCRIPT.matches(refused).count(), 0, "{refused}");
        }
        assert!(VIEW_SCRIPT.matches("fetch(").count() == 1 && find(&VIEW_SCRIPT_PATH).is_some());
    }
}
