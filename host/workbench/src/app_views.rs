//! What users of an MCP App would miss of it: views that no client finds or shows.
//!
//! Owns the rules about a plugin's tools and resources together, as it lists them without grants. Must not refuse: a
//! host takes them all. Invariant: what is warned of keeps a client from showing a view, or means nothing to it.

use bulkhead_domain::call::VIEW_MIME_TYPE;
use bulkhead_domain::server_features::{Resource, ResourceTemplate};
use bulkhead_domain::text::escaped;
use bulkhead_domain::tool::{Meta, Tool};
use bulkhead_domain::uri_template::UriTemplate;
use bulkhead_runtime::VIEW_SCHEME;
use serde_json::Value;

/// What clients would not show of a plugin's views.
pub(super) fn warnings(tools: &[Tool], resources: &[Resource], templates: &[ResourceTemplate]) -> Vec<String> {
    let mut warnings = Vec::new();
    let families: Vec<_> =
        templates.iter().filter_map(|template| UriTemplate::parse(&template.uri_template).ok()).collect();
    let is_there = |uri: &str| {
        resources.iter().any(|resource| resource.uri == uri) || families.iter().any(|family| family.fits(uri))
    };
    for tool in tools {
        let mut warn = |text: String| warnings.push(format!("tool {}: {}", tool.name, escaped(&text)));
        let ui = member(&tool.meta, "ui").unwrap_or_default();
        let uri = ui.get("resourceUri").cloned().or_else(|| member(&tool.meta, "ui/resourceUri"));
        match uri.as_ref().map(|uri| uri.as_str().unwrap_or_default()) {
            None => {}
            Some(uri) if !uri.starts_with(VIEW_SCHEME) => {
                warn(format!("its view is {uri:?}, and clients show views whose URI begins with {VIEW_SCHEME}"));
            }
            Some(uri) if !is_there(uri) => warn(format!("its view is {uri}, and the plugin lists no such resource")),
            Some(_) => {}
        }
        for stray in ["csp", "permissions"].into_iter().filter(|stray| ui.get(stray).is_some()) {
            warn(format!("its _meta.ui says {stray}, which clients look for on the resource of the view alone"));
        }
        let callers = ui.get("visibility").and_then(Value::as_array).into_iter().flatten();
        for unknown in callers.filter(|caller| !["model", "app"].map(Value::from).contains(caller)) {
            warn(format!("its _meta.ui.visibility says {unknown}; expected \"model\" and \"app\""));
        }
    }
    let listed = resources.iter().map(|resource| (&resource.uri, resource.mime_type.as_ref()));
    let listed = listed.chain(templates.iter().map(|template| (&template.uri_template, template.mime_type.as_ref())));
    for (uri, mime_type) in listed.filter(|(uri, _)| uri.starts_with(VIEW_SCHEME)) {
        if mime_type.is_none_or(|mime_type| mime_type != VIEW_MIME_TYPE) {
            let mime_type = mime_type.map_or("not known", String::as_str);
            warnings.push(escaped(&format!(
                "resource {uri}: its media type is {mime_type}; clients show views of {VIEW_MIME_TYPE} only"
            )));
        }
    }
    warnings
}

fn member(meta: &Meta, name: &str) -> Option<Value> {
    let (_, json) = meta.iter().find(|(key, _)| key == name)?;
    serde_json::from_str(json.as_str()).ok()
}

#[cfg(test)]
mod tests {
    use bulkhead_domain::Json;
    use bulkhead_domain::server_features::Described;
    use serde_json::json;

    use super::*;

    fn tool(ui: &Value) -> Tool {
        Tool { meta: vec![("ui".to_owned(), Json::new(ui.to_string()))], ..Tool::sample("show") }
    }

    fn resource(uri: &str, mime_type: &str) -> Resource {
        Resource {
            uri: uri.to_owned(),
            described: Described::default(),
            mime_type: Some(mime_type.to_owned()),
            size: None,
            annotations: None,
            icons: Vec::new(),
            meta: Vec::new(),
        }
    }

    #[test]
    fn views_that_no_client_shows_are_warned_of() {
        let right = [resource("ui://chart", VIEW_MIME_TYPE), resource("notes://today", "text/plain")];
        for (ui, expected) in [
            (json!({"resourceUri": "ui://chart", "visibility": ["model", "app"]}), vec![]),
            (json!({"visibility": ["app"]}), vec![]),
            (
                json!({"resourceUri": "ui://other"}),
                vec!["tool show: its view is ui://other, and the plugin lists no such resource"],
            ),
            (
                json!({"resourceUri": "notes://today"}),
                vec!["tool show: its view is \"notes://today\", and clients show views whose URI begins with ui://"],
            ),
            (
                json!({"resourceUri": "ui://chart", "csp": {}, "visibility": ["user"]}),
                vec![
                    "tool show: its _meta.ui says csp, which clients look for on the resource of the view alone",
                    "tool show: its _meta.ui.visibility says \"user\"; expected \"model\" and \"app\"",
                ],
            ),
        ] {
            assert_eq!(warnings(&[tool(&ui)], &right, &[]), expected, "{ui}");
        }
        assert_eq!(
            warnings(&[], &[resource("ui://chart", "text/html")], &[]),
            ["resource ui://chart: its media type is text/html; clients show views of text/html;profile=mcp-app only"]
        );
    }
}
