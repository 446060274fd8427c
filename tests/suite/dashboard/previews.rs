//! Views of MCP Apps in the dashboard: who is shown one, and what is at the origin that it has.

use reqwest::header::{CONTENT_SECURITY_POLICY, HOST, SET_COOKIE};
use reqwest::{Method, StatusCode};
use serde_json::Value;

use super::browser::{Browser, Page, setup};

const RAIN: [(&str, &str); 2] = [("field.title", "Rain"), ("field.values", "[0, 3, 6]")];
const SHOW: &str = "/tools/chart/view";
const CALL: &str = "/tools/chart/view/call";

/// The value of an attribute of a page.
fn attribute(page: &Page, name: &str) -> String {
    let (_, rest) = page.text.split_once(&format!("{name}=\"")).unwrap_or_else(|| panic!("{name}: {}", page.text));
    rest.split('"')
        .next()
        .expect("a value")
        .replace("&quot;", "\"")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

#[tokio::test]
async fn view_is_shown_at_another_origin_that_has_nothing_else() {
    let setup = setup(&["chart", "text"]).config("app_preview_origin = \"http://apps.localhost\"\n");
    let host = setup.start().await;
    let anna = Browser::with_token(&host, &setup.token("anna", "acme").await).await;
    assert!(!anna.get("/tools/echo").await.text.contains("/view"), "a tool without a view is called without one");
    let shown = anna.press("/tools/chart", SHOW, &RAIN).await;
    assert_eq!(shown.status, StatusCode::OK, "{}", shown.text);
    let port = anna.base.rsplit(':').next().expect("a port");
    let origin = format!("http://apps.localhost:{port}");
    let policy = shown.headers[CONTENT_SECURITY_POLICY].to_str().expect("a text");
    assert!(policy.ends_with(&format!("; frame-src {origin}")), "{policy}");
    let view: Value = serde_json::from_str(&attribute(&shown, "data-view")).expect("JSON");
    assert!(view["html"].as_str().is_some_and(|html| html.starts_with("<!doctype html>")), "{view}");
    assert_eq!((view["tool"]["name"].as_str(), attribute(&shown, "data-call").as_str()), (Some("chart"), CALL));

    let frame = attribute(&shown, "data-src");
    let path = frame.strip_prefix(&origin).expect("an address of the other origin");
    let there = async |method: Method, path: &str| {
        anna.send(anna.request(method, path).header(HOST, format!("apps.localhost:{port}"))).await
    };
    let page = there(Method::GET, path).await;
    let policy = page.headers[CONTENT_SECURITY_POLICY].to_str().expect("a text");
    assert!(page.status == StatusCode::OK && policy.contains("connect-src 'none'"), "{policy}");
    assert!(policy.ends_with(&format!("frame-ancestors {}", anna.base)) && !page.headers.contains_key(SET_COOKIE));
    // Also who is logged in at the dashboard finds nothing else, not even by their cookie.
    for path in ["/", "/tasks", "/login", "/frame", "/nothing", &path.replace("none", "self")] {
        let refused = there(Method::GET, path).await;
        assert_eq!(refused.status, StatusCode::NOT_FOUND, "{path}: {}", refused.text);
    }
    assert_eq!(there(Method::POST, "/login").await.status, StatusCode::NOT_FOUND);
    assert_eq!(anna.get(path).await.status, StatusCode::NOT_FOUND, "the dashboard has no such page");

    let token = attribute(&shown, "data-token");
    let call = async |token: &str, name: &str| {
        anna.post(CALL, token, &[("name", name), ("arguments", "{\"title\": \"Rain\", \"values\": [0, 3, 6]}")]).await
    };
    let smoothed: Value = serde_json::from_str(&call(&token, "smooth").await.text).expect("JSON");
    assert_eq!(smoothed["result"]["structuredContent"]["values"][1], 3.0, "{smoothed}");
    let refused: Value = serde_json::from_str(&call(&token, "echo").await.text).expect("JSON");
    assert_eq!(refused["error"]["code"], -32602, "a tool of another plugin: {refused}");
    assert_eq!(call(&anna.get("/tasks").await.token("/logout"), "smooth").await.status, StatusCode::FORBIDDEN);
    let ben = Browser::with_token(&host, &setup.token("ben", "acme").await).await;
    assert_eq!(ben.post(CALL, &token, &[("name", "smooth")]).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn no_view_is_shown_unless_an_origin_is_configured() {
    let setup = setup(&["chart"]);
    let host = setup.start().await;
    let anna = Browser::with_token(&host, &setup.token("anna", "acme").await).await;
    let tool = anna.get("/tools/chart").await;
    assert!(tool.status == StatusCode::OK && !tool.text.contains("/view"), "{}", tool.text);
    let named = anna.request(Method::GET, "/login").header(HOST, "apps.localhost");
    assert_eq!(anna.send(named).await.status, StatusCode::FORBIDDEN, "a name that the dashboard does not answer to");
}
