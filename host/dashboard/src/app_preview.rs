//! The origin at which views of MCP Apps are previewed: the page around a view, served by the dashboard's listener
//! under another name.
//!
//! Owns that page, its address and the policy that a view runs under. Must not serve anything else under that name,
//! read a cookie or know who looks. Invariants: the page comes with a policy that the dashboard made, as its address
//! proves; only the page of the dashboard that it was made for may frame it; a view reaches the domains that its
//! plugin's entry names, and no others.

use bulkhead_config::PreviewOrigin;
use bulkhead_net::address::host_of;
use bytes::Bytes;
use http::request::Parts;
use http::uri::Authority;
use http::{Method, StatusCode, header};
use serde_json::Value;

use crate::digests::{derive, form_token, is_form_token};
use crate::pages::address;
use crate::request::Form;
use crate::respond::{self, Answer};

const PAGE: &str = include_str!("../assets/frame.html");
/// Where the page is.
const PATH: &str = "/frame";
/// The parts of its address: the policy, and the proof that the dashboard made it.
const POLICY: &str = "policy";
const PROOF: &str = "proof";
/// Characters of the policy of a view that is previewed in the dashboard.
const POLICY_CHARS_MAX: usize = 4_000;

/// See the module.
pub(crate) struct AppPreview {
    origin: String,
    host: String,
    /// Of the dashboard's own pages.
    scheme: &'static str,
    key: [u8; 32],
}

/// Where views are shown to a viewer, who came to the dashboard by this name.
#[derive(Clone, Copy)]
pub(crate) struct PreviewedBy<'a> {
    pub(crate) preview: &'a AppPreview,
    pub(crate) host: &'a str,
}

impl PreviewedBy<'_> {
    /// What browsers call the origin of previews.
    pub(crate) fn origin(&self) -> &str {
        &self.preview.origin
    }

    /// Where the page around a view is that may reach this (`csp` of its `_meta.ui`); `None`: it names too much.
    pub(crate) fn frame_address(&self, csp: &Value) -> Option<String> {
        let host: Authority = self.host.parse().ok()?;
        let port = host.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
        let policy = policy(csp, &format!("{}://{}{port}", self.preview.scheme, host.host()));
        let proof = form_token(&self.preview.key, &policy);
        let is_short = policy.len() <= POLICY_CHARS_MAX;
        let path = || address(PATH, &[(POLICY, Some(&policy)), (PROOF, Some(&proof))]);
        is_short.then(|| format!("{}{}", self.preview.origin, path()))
    }
}

impl AppPreview {
    /// For a dashboard on this port.
    pub(crate) fn new(origin: &PreviewOrigin, port: u16, has_tls: bool, secret: &[u8; 32]) -> Self {
        // By `http`, a policy means `https` as well: a proxy in front of the listener may have TLS.
        let scheme = if has_tls { "https" } else { "http" };
        Self { origin: origin.text(port), host: origin.host.clone(), scheme, key: derive(secret, "preview", &[]) }
    }

    /// Whether a request came by the name of this origin.
    pub(crate) fn is_for(&self, request: &Parts) -> bool {
        let named = request.headers.get_all(header::HOST).iter().filter_map(|name| name.to_str().ok());
        let mut names = named.chain(request.uri.authority().map(Authority::as_str));
        names.any(|name| host_of(name.trim()).as_ref() == Some(&self.host))
    }

    /// The page, or that there is nothing else.
    pub(crate) fn answer(&self, request: &Parts) -> Answer {
        let query = Form::parse(request.uri.query().unwrap_or_default().as_bytes());
        let policy = query.get(POLICY).unwrap_or_default();
        let is_page = [Method::GET, Method::HEAD].contains(&request.method) && request.uri.path() == PATH;
        if !is_page || !is_form_token(&self.key, policy, query.get(PROOF).unwrap_or_default()) {
            return respond::refusal(StatusCode::NOT_FOUND, "There is nothing here but previews of the dashboard\n");
        }
        let mut page = respond::answer(StatusCode::OK, "text/html; charset=utf-8", Bytes::from_static(PAGE.as_bytes()));
        respond::set_policy(&mut page, policy);
        // Who may frame it is in its policy.
        page.headers_mut().remove(header::X_FRAME_OPTIONS);
        page
    }
}

/// What a view may do. Scripts and styles of its own page are within it; whatever else it loads is of a domain that is
/// named.
fn policy(csp: &Value, framed_by: &str) -> String {
    let named = |member: &str, or_none: bool| match sources(csp.get(member)) {
        sources if sources.is_empty() && or_none => " 'none'".to_owned(),
        sources => sources,
    };
    let resources = named("resourceDomains", false);
    format!(
        "default-src 'none'; script-src 'unsafe-inline'{resources}; style-src 'unsafe-inline'{resources}; \
         img-src data:{resources}; font-src data:{resources}; media-src data:{resources}; connect-src{}; frame-src{}; \
         base-uri{}; object-src 'none'; form-action 'none'; frame-ancestors {framed_by}",
        named("connectDomains", true),
        named("frameDomains", true),
        named("baseUriDomains", true),
    )
}

/// Domains as a policy has them, each with a space in front. What is no address of the web is left out.
fn sources(domains: Option<&Value>) -> String {
    let domains = domains.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    domains.filter(|domain| is_source(domain)).fold(String::new(), |sources, domain| sources + " " + domain)
}

fn is_source(domain: &str) -> bool {
    let Some((scheme, rest)) = domain.split_once("://") else { return false };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/*%".contains(&byte);
    ["https", "http", "wss", "ws"].contains(&scheme) && !rest.is_empty() && rest.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Request};
    use serde_json::json;

    use super::*;

    fn preview() -> AppPreview {
        AppPreview {
            origin: "http://apps.localhost:8810".to_owned(),
            host: "apps.localhost".to_owned(),
            scheme: "http",
            key: [7; 32],
        }
    }

    fn request(method: &str, target: &str, hosts: &[&'static str]) -> Parts {
        let request = Request::builder().method(method).uri(target);
        hosts.iter().fold(request, |request, host| request.header(header::HOST, *host)).body(()).unwrap().into_parts().0
    }

    #[test]
    fn view_reaches_what_its_entry_names_and_nothing_by_default() {
        let least = policy(&Value::Null, "http://localhost:8810");
        for part in ["default-src 'none'", "connect-src 'none'", "frame-src 'none'", "form-action 'none'"] {
            assert!(least.contains(part), "{part} is not in {least}");
        }
        assert!(least.ends_with("frame-ancestors http://localhost:8810") && !least.contains("'self'"), "{least}");
        let more = policy(
            &json!({"connectDomains": ["https://tiles.example.com", "wss://*.example.com:8443"], "frameDomains": [],
                "resourceDomains": ["https://cdn.example.com/a"]}),
            "http://localhost",
        );
        assert!(more.contains("; connect-src https://tiles.example.com wss://*.example.com:8443; "), "{more}");
        assert!(more.contains("img-src data: https://cdn.example.com/a; ") && more.contains("; frame-src 'none'; "));
    }

    #[test]
    fn entry_of_a_list_adds_no_directive_and_no_keyword() {
        let hostile = [
            "'unsafe-eval'",
            "*",
            "data:",
            "https://a; script-src *",
            "https://a, default-src *",
            "https://a b",
            "https://",
            "javascript://a",
            "https://a\r\nx: y",
            "filesystem:https://a",
        ];
        let csp = json!({"connectDomains": hostile, "resourceDomains": hostile, "frameDomains": "https://a", "x": 1});
        assert_eq!(policy(&csp, "http://b"), policy(&Value::Null, "http://b"));
    }

    #[test]
    fn nothing_is_there_but_the_page_with_a_policy_that_the_dashboard_made() {
        let preview = preview();
        let by = PreviewedBy { preview: &preview, host: "127.0.0.1:8810" };
        let address = by.frame_address(&json!({"connectDomains": ["https://a.example"]})).unwrap();
        let target = address.strip_prefix("http://apps.localhost:8810").unwrap();
        let answer = |method: &str, target: &str| preview.answer(&request(method, target, &["apps.localhost:8810"]));
        let page = answer("GET", target);
        let header =
            |headers: &HeaderMap, name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        let policy = header(page.headers(), "content-security-policy").unwrap();
        assert!(policy.contains("connect-src https://a.example;"), "{policy}");
        assert!(policy.ends_with("frame-ancestors http://127.0.0.1:8810"), "{policy}");
        assert_eq!((page.status(), header(page.headers(), "x-frame-options")), (StatusCode::OK, None));
        assert_eq!(header(page.headers(), "set-cookie"), None);
        for (method, target) in [
            ("POST", target.to_owned()),
            ("GET", "/".to_owned()),
            ("GET", "/login".to_owned()),
            ("GET", "/tasks".to_owned()),
            ("GET", PATH.to_owned()),
            ("GET", target.replace("a.example", "b.example")),
            ("GET", target.replace("proof=", "proof=0")),
        ] {
            let refused = answer(method, &target);
            assert_eq!(refused.status(), StatusCode::NOT_FOUND, "{method} {target}");
            assert_eq!(header(refused.headers(), "x-frame-options").as_deref(), Some("DENY"));
        }
        let other = AppPreview { key: [8; 32], ..preview_of(&preview) };
        assert_eq!(other.answer(&request("GET", target, &[])).status(), StatusCode::NOT_FOUND, "of another host");
        let many: Vec<_> = (0..POLICY_CHARS_MAX).map(|index| format!("https://{index}.example")).collect();
        assert_eq!(by.frame_address(&json!({"connectDomains": many})), None);
    }

    fn preview_of(other: &AppPreview) -> AppPreview {
        AppPreview { origin: other.origin.clone(), host: other.host.clone(), scheme: other.scheme, key: other.key }
    }

    #[test]
    fn request_that_names_the_origin_in_any_way_is_for_it() {
        let preview = preview();
        for hosts in [&["apps.localhost"][..], &["APPS.localhost.:99"], &["localhost:8810", "apps.localhost"]] {
            assert!(preview.is_for(&request("GET", "/", hosts)), "{hosts:?}");
        }
        assert!(preview.is_for(&request("GET", "http://apps.localhost/x", &["localhost"])));
        for hosts in [&["localhost:8810"][..], &["a.apps.localhost"], &["apps.localhost.example"], &[]] {
            assert!(!preview.is_for(&request("GET", "/", hosts)), "{hosts:?}");
        }
    }
}
