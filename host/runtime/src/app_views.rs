//! Views of MCP Apps: the resources of one plugin under `ui://`, which clients show in a frame beside a conversation.
//!
//! Owns their URIs as clients see them (the operator's prefix stands in front of the authority, so that two plugins
//! never have the same), and what they may reach. What a view fetches leaves the client's machine, so that no grant
//! bounds it: the entry of the list does that was read when the version was loaded, and that the operator accepted.
//! Must not touch other resources, whose URIs may mean something to clients. Invariants: own URI and shown URI are each
//! other's inverse; no list and no contents name a domain or a permission that the loaded entry does not.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use bulkhead_calls::catalog::PluginFeatures;
use bulkhead_calls::{Operation, Returned, TemplateEntry};
use bulkhead_domain::Json;
use bulkhead_domain::call::VIEW_MIME_TYPE;
use bulkhead_domain::server_features::{Reference, Resource, ResourceTemplate};
use bulkhead_domain::tool::{Content, ContentKind, Meta};
use bulkhead_domain::uri_template::UriTemplate;

/// What URIs of views begin with.
pub const VIEW_SCHEME: &str = "ui://";
/// The member of `_meta` that is about views.
const UI: &str = "ui";
/// Where older clients look for the URI of a tool's view.
const FLAT_URI: &str = "ui/resourceUri";
/// The members of `_meta.ui` that say what a view may reach.
const REACH: [&str; 2] = ["csp", "permissions"];

/// Views and families of views of one plugin. What is listed beyond them may reach nothing.
const VIEWS_MAX: usize = 256;

/// What a client that shows views has in common with this host, as `io.modelcontextprotocol/ui` says it.
pub(crate) fn views_extension() -> Value {
    json!({"mimeTypes": [VIEW_MIME_TYPE]})
}

/// What an entry of a list says that its view may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewReach {
    csp: Value,
    permissions: Value,
}

impl ViewReach {
    fn of(meta: &Meta) -> Self {
        Self::of_ui(&ui_of(meta).unwrap_or_default())
    }

    /// What `_meta.ui` says.
    pub fn of_ui(ui: &Value) -> Self {
        let [csp, permissions] = REACH.map(|member| ui.get(member).cloned().unwrap_or_default());
        Self { csp, permissions }
    }

    /// One text for each domain, with its directive in front, and for each permission. Empty: what a client allows
    /// every view.
    pub fn parts(&self) -> Vec<String> {
        let mut parts = Vec::new();
        for (directive, domains) in members(&self.csp) {
            match domains {
                Value::Array(domains) => {
                    parts.extend(domains.iter().map(|domain| format!("{directive} {}", text(domain))))
                }
                other => parts.push(format!("{directive} {other}")),
            }
        }
        parts.extend(members(&self.permissions).map(|(permission, _)| format!("permission {permission}")));
        parts
    }
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn ui_of(meta: &Meta) -> Option<Value> {
    let (_, json) = meta.iter().find(|(key, _)| key == UI)?;
    serde_json::from_str(json.as_str()).ok()
}

/// A view's URI, or the template of several, as clients see it; `None`: it is none of a view, or nothing stands in
/// front.
pub(super) fn shown(prefix: &str, uri: &str) -> Option<String> {
    let rest = uri.strip_prefix(VIEW_SCHEME).filter(|_| !prefix.is_empty())?;
    Some(format!("{VIEW_SCHEME}{prefix}{rest}"))
}

/// Has the metadata of a tool name its view as clients see it.
pub(super) fn name_view(meta: &mut Meta, prefix: &str) {
    for (key, json) in meta.iter_mut().filter(|(key, _)| [UI, FLAT_URI].contains(&key.as_str())) {
        let Ok(mut value) = serde_json::from_str::<Value>(json.as_str()) else { continue };
        let uri = if key == UI { value.get_mut("resourceUri") } else { Some(&mut value) };
        let Some(uri) = uri else { continue };
        let Some(shown) = uri.as_str().and_then(|own| shown(prefix, own)) else { continue };
        *uri = shown.into();
        *json = Json::new(value.to_string());
    }
}

/// The views of one version of a plugin.
#[derive(Debug, Default)]
pub(super) struct AppViews {
    prefix: String,
    /// By their own URIs and templates.
    reach: BTreeMap<String, ViewReach>,
    families: Vec<(UriTemplate, ViewReach)>,
}

impl AppViews {
    /// Of what was listed, under its own URIs.
    pub(super) fn new<'a>(
        prefix: &str,
        resources: &[Resource],
        templates: impl IntoIterator<Item = &'a ResourceTemplate>,
    ) -> Self {
        let mut views = Self { prefix: prefix.to_owned(), ..Self::default() };
        let listed = resources.iter().filter(|resource| resource.uri.starts_with(VIEW_SCHEME));
        for Resource { uri, meta, .. } in listed.take(VIEWS_MAX) {
            views.reach.insert(uri.clone(), ViewReach::of(meta));
        }
        for ResourceTemplate { uri_template, meta, .. } in templates {
            if uri_template.starts_with(VIEW_SCHEME)
                && views.reach.len() < VIEWS_MAX
                && let Ok(parsed) = UriTemplate::parse(uri_template)
            {
                views.families.push((parsed, ViewReach::of(meta)));
                views.reach.insert(uri_template.clone(), ViewReach::of(meta));
            }
        }
        views
    }

    /// What stands in front of their URIs, as clients see them.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// What each of them may reach, by own URI or template.
    pub(super) fn reach(&self) -> &BTreeMap<String, ViewReach> {
        &self.reach
    }

    /// What a plugin offers, under the URIs that clients see.
    pub(super) fn offered(&self, mut features: PluginFeatures) -> PluginFeatures {
        for resource in &mut features.resources {
            resource.uri = self.shown(std::mem::take(&mut resource.uri));
        }
        for entry in &mut features.templates {
            let Some(uri_template) = shown(&self.prefix, &entry.template.uri_template) else { continue };
            // What stands in front has no braces, and the template was understood before.
            let Ok(parsed) = UriTemplate::parse(&uri_template) else { continue };
            let template = ResourceTemplate { uri_template, ..entry.template.clone() };
            *entry = Arc::new(TemplateEntry { template, parsed, library: Arc::clone(&entry.library) });
        }
        features
    }

    /// As clients see it.
    pub(super) fn shown(&self, uri: String) -> String {
        shown(&self.prefix, &uri).unwrap_or(uri)
    }

    /// As the plugin knows it; `None`: it is a view of another one.
    fn own(&self, uri: String) -> Option<String> {
        let Some(rest) = uri.strip_prefix(VIEW_SCHEME).filter(|_| !self.prefix.is_empty()) else { return Some(uri) };
        Some(format!("{VIEW_SCHEME}{}", rest.strip_prefix(&self.prefix)?))
    }

    /// An operation in the plugin's own URIs; `None`: it is about a view of another one.
    pub(super) fn inward(&self, operation: Operation) -> Option<Operation> {
        Some(match operation {
            Operation::ReadResource { uri } => Operation::ReadResource { uri: self.own(uri)? },
            Operation::Complete { reference: Reference::Template(uri), argument } => {
                Operation::Complete { reference: Reference::Template(self.own(uri)?), argument }
            }
            other => other,
        })
    }

    /// Has what a call returned name views as clients see them, with what they may reach.
    pub(super) fn outward(&self, returned: &mut Returned) {
        match returned {
            Returned::Resources(page) => {
                page.items.iter_mut().for_each(|resource| self.show(&mut resource.uri, &mut resource.meta));
            }
            Returned::Contents(contents) => {
                contents.iter_mut().for_each(|contents| self.show(&mut contents.uri, &mut contents.meta));
            }
            Returned::Tool(output) => output.content.iter_mut().for_each(|block| self.show_in(block)),
            Returned::Prompt(output) => {
                output.messages.iter_mut().for_each(|message| self.show_in(&mut message.content));
            }
            Returned::Completion(_) => {}
        }
    }

    fn show_in(&self, block: &mut Content) {
        match &mut block.kind {
            ContentKind::ResourceLink(link) => self.show(&mut link.uri, &mut block.meta),
            ContentKind::Resource(contents) => self.show(&mut contents.uri, &mut contents.meta),
            ContentKind::Text(_) | ContentKind::Image { .. } | ContentKind::Audio { .. } => {}
        }
    }

    fn show(&self, uri: &mut String, meta: &mut Meta) {
        if !uri.starts_with(VIEW_SCHEME) {
            return;
        }
        self.bound(uri, meta);
        *uri = self.shown(std::mem::take(uri));
    }

    /// Leaves of what is said that a view may reach what was accepted.
    fn bound(&self, uri: &str, meta: &mut Meta) {
        let Some((_, json)) = meta.iter_mut().find(|(key, _)| key == UI) else { return };
        let Ok(Value::Object(mut ui)) = serde_json::from_str(json.as_str()) else { return };
        let nothing = ViewReach::default();
        let family = || self.families.iter().find(|(template, _)| template.fits(uri)).map(|(_, reach)| reach);
        let accepted = self.reach.get(uri).or_else(family).unwrap_or(&nothing);
        let mut differs = false;
        for (member, accepted) in REACH.into_iter().zip([&accepted.csp, &accepted.permissions]) {
            let Some(value) = ui.get_mut(member).filter(|value| *value != accepted) else { continue };
            differs = true;
            *value = accepted.clone();
            if value.is_null() {
                ui.remove(member);
            }
        }
        if differs {
            tracing::debug!(?uri, "a view names domains or permissions that its entry in the list does not");
            *json = Json::new(Value::Object(ui).to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_domain::server_features::{Described, PartialArgument, ResourcePage};
    use bulkhead_domain::tool::{ResourceBody, ResourceContents, ResourceLink, ToolOutput};
    use serde_json::json;

    fn meta(ui: &Value) -> Meta {
        vec![("a/b".to_owned(), Json::new("1")), (UI.to_owned(), Json::new(ui.to_string()))]
    }

    fn resource(uri: &str, ui: &Value) -> Resource {
        Resource {
            uri: uri.to_owned(),
            described: Described::default(),
            mime_type: None,
            size: None,
            annotations: None,
            icons: Vec::new(),
            meta: meta(ui),
        }
    }

    fn family(uri_template: &str, ui: &Value) -> ResourceTemplate {
        ResourceTemplate {
            uri_template: uri_template.to_owned(),
            described: Described::default(),
            mime_type: None,
            annotations: None,
            icons: Vec::new(),
            meta: meta(ui),
        }
    }

    fn contents(uri: &str, ui: &Value) -> ResourceContents {
        let body = ResourceBody::Text("<html>".to_owned());
        ResourceContents { uri: uri.to_owned(), mime_type: None, body, meta: meta(ui) }
    }

    fn views(prefix: &str) -> AppViews {
        let csp = json!({"csp": {"connectDomains": ["https://a.org"]}});
        let listed = [resource("ui://chart/view.html", &csp), resource("notes://today", &csp)];
        let camera = json!({"permissions": {"camera": {}}});
        AppViews::new(prefix, &listed, &[family("ui://chart/{city}", &camera), family("notes://{day}", &camera)])
    }

    #[test]
    fn uris_of_views_have_the_prefix_and_no_others() {
        let views = views("c_");
        for (own, shown) in [
            ("ui://chart/view.html", "ui://c_chart/view.html"),
            ("ui://", "ui://c_"),
            ("notes://today", "notes://today"),
            ("https://ui://x", "https://ui://x"),
        ] {
            assert_eq!(views.shown(own.to_owned()), shown);
            assert_eq!(views.own(shown.to_owned()).as_deref(), Some(own));
        }
        assert_eq!(views.own("ui://d_chart/view.html".to_owned()), None, "that of another plugin");
        let unprefixed = super::tests::views("");
        assert_eq!(unprefixed.own("ui://d_chart".to_owned()).as_deref(), Some("ui://d_chart"));
    }

    #[test]
    fn operations_are_about_own_uris() {
        let views = views("c_");
        let read = |uri: &str| match views.inward(Operation::ReadResource { uri: uri.to_owned() }) {
            Some(Operation::ReadResource { uri }) => Some(uri),
            _ => None,
        };
        assert_eq!(read("ui://c_chart/view.html").as_deref(), Some("ui://chart/view.html"));
        assert_eq!(read("ui://chart/view.html"), None);
        let argument = PartialArgument { name: "city".to_owned(), value: String::new(), context: Vec::new() };
        let reference = Reference::Template("ui://c_chart/{city}".to_owned());
        let completed = views.inward(Operation::Complete { reference, argument });
        assert!(
            matches!(&completed, Some(Operation::Complete { reference: Reference::Template(uri), .. }) if uri == "ui://chart/{city}"),
            "{completed:?}"
        );
    }

    #[test]
    fn tool_names_its_view_as_clients_see_it() {
        let mut named = meta(&json!({"resourceUri": "ui://chart/view.html", "visibility": ["model"]}));
        named.push((FLAT_URI.to_owned(), Json::new("\"ui://chart/view.html\"")));
        let other = named.clone();
        name_view(&mut named, "c_");
        let value = |at: usize, meta: &Meta| serde_json::from_str::<Value>(meta[at].1.as_str()).unwrap();
        assert_eq!(value(1, &named), json!({"resourceUri": "ui://c_chart/view.html", "visibility": ["model"]}));
        assert_eq!((value(0, &named), value(2, &named)), (json!(1), json!("ui://c_chart/view.html")));
        let mut same = other.clone();
        name_view(&mut same, "");
        assert_eq!(same, other);
    }

    #[test]
    fn view_may_reach_what_its_loaded_entry_says_and_no_more() {
        let views = views("c_");
        let accepted = json!({"connectDomains": ["https://a.org"]});
        let seen = |uri: &str, ui: Value| {
            let mut returned = Returned::Contents(vec![contents(uri, &ui)]);
            views.outward(&mut returned);
            let Returned::Contents(contents) = returned else { panic!() };
            (contents[0].uri.clone(), ui_of(&contents[0].meta).unwrap())
        };
        for (uri, ui, expected) in [
            (
                "ui://chart/view.html",
                json!({"csp": accepted, "prefersBorder": true}),
                json!({"csp": accepted, "prefersBorder": true}),
            ),
            (
                "ui://chart/view.html",
                json!({"csp": {"connectDomains": ["https://evil.org"]}}),
                json!({"csp": accepted}),
            ),
            ("ui://chart/view.html", json!({"permissions": {"camera": {}}}), json!({})),
            ("ui://chart/view.html", json!({"domain": "x"}), json!({"domain": "x"})),
            (
                "ui://chart/lima",
                json!({"permissions": {"camera": {}, "microphone": {}}}),
                json!({"permissions": {"camera": {}}}),
            ),
            ("ui://other/view.html", json!({"csp": accepted}), json!({})),
        ] {
            assert_eq!(seen(uri, ui.clone()), (uri.replace("ui://", "ui://c_"), expected), "{uri} {ui}");
        }
        let untouched = json!({"csp": {"connectDomains": ["https://evil.org"]}});
        assert_eq!(seen("notes://today", untouched.clone()), ("notes://today".to_owned(), untouched), "no view");
    }

    #[test]
    fn views_are_shown_wherever_a_plugin_names_them() {
        let views = views("c_");
        let evil = json!({"csp": {"connectDomains": ["https://evil.org"]}});
        let mut listed =
            Returned::Resources(ResourcePage { items: vec![resource("ui://chart/view.html", &evil)], next: None });
        views.outward(&mut listed);
        let Returned::Resources(page) = listed else { panic!() };
        assert_eq!(page.items[0].uri, "ui://c_chart/view.html");
        assert_eq!(ui_of(&page.items[0].meta), Some(json!({"csp": {"connectDomains": ["https://a.org"]}})));
        let link = ResourceLink {
            uri: "ui://chart/view.html".to_owned(),
            name: "n".to_owned(),
            title: None,
            description: None,
            mime_type: None,
            size: None,
        };
        let kinds = [ContentKind::ResourceLink(link), ContentKind::Resource(contents("ui://chart/x", &evil))];
        let content = kinds.map(|kind| Content { kind, annotations: None, meta: Vec::new() }).to_vec();
        let mut output = Returned::Tool(ToolOutput { content, ..ToolOutput::default() });
        views.outward(&mut output);
        let text = format!("{output:?}");
        assert!(
            text.contains("ui://c_chart/view.html") && text.contains("ui://c_chart/x") && !text.contains("evil"),
            "{text}"
        );
    }

    #[test]
    fn reach_is_named_part_by_part() {
        let ui = json!({
            "csp": {"connectDomains": ["https://a.org", "wss://b.org"], "resourceDomains": [], "x": 1},
            "permissions": {"camera": {}},
        });
        let reach = ViewReach::of(&meta(&ui));
        assert_eq!(
            reach.parts(),
            ["connectDomains https://a.org", "connectDomains wss://b.org", "x 1", "permission camera"]
        );
        assert_eq!(ViewReach::of(&Vec::new()).parts(), Vec::<String>::new());
        let views = super::tests::views("c_");
        let own: Vec<_> = views.reach().keys().map(String::as_str).collect();
        assert_eq!(own, ["ui://chart/view.html", "ui://chart/{city}"]);
    }
}
