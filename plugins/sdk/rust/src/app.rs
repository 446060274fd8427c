//! Views of MCP Apps: pages that a client shows in a frame beside the conversation.

use serde_json::{Map, Value, json};

use crate::Resource;

/// The media type by which clients know a view.
const MIME_TYPE: &str = "text/html;profile=mcp-app";

/// The view of an MCP App: one page of HTML, with what it may reach. Without a word about that it may reach nothing:
/// its own inline scripts and styles work, and no request leaves it.
///
/// A tool names its view by [`Tool::view`](crate::Tool::view). What a view may reach is part of what an operator
/// accepts.
///
/// ```
/// use bulkhead_plugin::{App, Plugin, Tool};
///
/// fn plugin() -> Plugin {
///     let view = App::new("ui://chart/view.html", "chart", "<!doctype html><title>Chart</title>")
///         .csp("connectDomains", ["https://api.example.com"])
///         .permission("clipboardWrite");
///     Plugin::new()
///         .tool(Tool::new("show", "Shows a chart.", || "A chart of nothing.").view("ui://chart/view.html"))
///         .resource(view.resource())
/// }
///
/// let contents = plugin().read("ui://chart/view.html").unwrap();
/// assert_eq!(contents[0].mime_type.as_deref(), Some("text/html;profile=mcp-app"));
/// assert_eq!(
///     contents[0].meta[0].1,
///     r#"{"csp":{"connectDomains":["https://api.example.com"]},"permissions":{"clipboardWrite":{}}}"#
/// );
/// ```
pub struct App {
    resource: Resource,
    csp: Map<String, Value>,
    permissions: Map<String, Value>,
}

impl App {
    /// The view with this URI, which begins with `ui://`, and this page. The name is for people and models.
    pub fn new(uri: impl Into<String>, name: impl Into<String>, html: impl Into<String>) -> Self {
        let html = html.into();
        let resource = Resource::new(uri, name, move || html.clone()).mime_type(MIME_TYPE);
        Self { resource, csp: Map::new(), permissions: Map::new() }
    }

    /// Domains that the page may reach: `connectDomains` by requests, `resourceDomains` for scripts, styles, images and
    /// fonts, `frameDomains` in frames of its own, `baseUriDomains` as the base of its links.
    #[must_use]
    pub fn csp<D: Into<String>>(mut self, directive: &str, domains: impl IntoIterator<Item = D>) -> Self {
        let domains: Vec<String> = domains.into_iter().map(Into::into).collect();
        self.csp.insert(directive.to_owned(), json!(domains));
        self
    }

    /// Something that the page may use where the user agrees: `camera`, `microphone`, `geolocation` or
    /// `clipboardWrite`.
    #[must_use]
    pub fn permission(mut self, name: &str) -> Self {
        self.permissions.insert(name.to_owned(), json!({}));
        self
    }

    /// The view as a resource of a plugin; what else clients are told of it is said of that.
    #[must_use]
    pub fn resource(self) -> Resource {
        let parts = [("csp", self.csp), ("permissions", self.permissions)];
        let ui: Map<_, _> = parts
            .into_iter()
            .filter(|(_, part)| !part.is_empty())
            .map(|(name, part)| (name.to_owned(), Value::Object(part)))
            .collect();
        if ui.is_empty() { self.resource } else { self.resource.meta("ui", &Value::Object(ui)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn view_that_reaches_nothing_says_nothing_of_it() {
        let view = App::new("ui://a", "a", "<p>").resource();
        let read = crate::resource::read(std::slice::from_ref(&view), &[], "ui://a").unwrap();
        assert_eq!((read[0].mime_type.as_deref(), read[0].meta.len()), (Some(MIME_TYPE), 0));
    }

    #[test]
    fn what_is_said_of_a_view_in_steps_is_one_entry() {
        let view = App::new("ui://a", "a", "<p>").permission("camera").resource();
        let view = view.meta("ui", &json!({"prefersBorder": true}));
        let read = crate::resource::read(std::slice::from_ref(&view), &[], "ui://a").unwrap();
        let expected = r#"{"permissions":{"camera":{}},"prefersBorder":true}"#;
        assert_eq!(read[0].meta, [("ui".to_owned(), expected.to_owned())]);
        let tool = crate::Tool::new("t", "Does it.", || "done").view("ui://a").for_views_only();
        let expected = r#"{"resourceUri":"ui://a","visibility":["app"]}"#;
        assert_eq!(crate::Plugin::new().tool(tool).list()[0].meta, [("ui".to_owned(), expected.to_owned())]);
    }
}
