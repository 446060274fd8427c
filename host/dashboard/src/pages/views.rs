//! The view of a tool's result, in a frame of another origin.

use bulkhead_domain::tool::Tool;
use maud::{Markup, html};

use super::notice;
use crate::assets::VIEW_SCRIPT_PATH;
use crate::digests::form_token;
use crate::sessions::Session;
use crate::text;

/// See the module.
pub(crate) struct ShownView<'a> {
    pub(crate) tool: &'a Tool,
    pub(crate) frame_address: String,
    /// Of the frame.
    pub(crate) origin: &'a str,
    /// Where the view's calls go.
    pub(crate) call: String,
    /// JSON for the script: the view, and what the tool was called with and answered.
    pub(crate) data: String,
}

pub(crate) fn view(session: &Session, shown: &ShownView<'_>) -> Markup {
    let ShownView { tool, frame_address, origin, call, data } = shown;
    html! {
        h2 { "View" }
        div.app-view data-origin=(origin) data-call=(call) data-token=(form_token(&session.key, call)) data-view=(data) {
            iframe title={ "The view of " (text::line(&tool.name)) } data-src=(frame_address) sandbox="allow-scripts allow-same-origin" referrerpolicy="no-referrer" {}
            noscript { (notice("ask", "A view needs a browser with scripts.")) }
            p.note { "All within the frame is the plugin's. It may call tools of its plugin in your name; its last calls are listed here." }
            ol {}
        }
        script src=(*VIEW_SCRIPT_PATH) defer {}
    }
}

pub(crate) fn no_view(why: &str) -> Markup {
    html! {
        h2 { "View" }
        (notice("bad", &format!("The view cannot be shown: {why}.")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn view_is_data_of_a_frame_in_a_sandbox() {
        let session = Session::of_operator();
        let tool = Tool::sample("chart");
        let data = serde_json::json!({"html": "</div>\"'<script>alert(1)</script>"}).to_string();
        let shown = view(
            &session,
            &ShownView {
                tool: &tool,
                frame_address: "http://apps.localhost/frame?policy=a&proof=b".to_owned(),
                origin: "http://apps.localhost",
                call: "/tools/chart/view/call".to_owned(),
                data,
            },
        );
        let shown = shown.into_string();
        assert!(!shown.contains("<script>") && shown.contains("&lt;script&gt;alert"), "{shown}");
        assert!(
            shown.contains("sandbox=\"allow-scripts allow-same-origin\"") && !shown.contains(" src=\"http"),
            "{shown}"
        );
    }
}
