//! A token is for this host: neither a plugin nor whoever a plugin asks gets it.

use serde_json::json;
use tests::client::{Client, all_capabilities};
use tests::issuer::{Issuer, Key};
use tests::modern::Modern;

use super::{claims, setup};
use crate::egress::Web;

/// What a guest can look at that comes from outside.
const LOOKS: [(&str, &str); 2] = [("probe", "facts"), ("hostile", "environment")];

#[tokio::test]
async fn guest_and_egress_never_see_the_callers_token() {
    let key = Key::ed("k1");
    let issuer = Issuer::start(&[&key]).await;
    let web = Web::start().await;
    let grants = format!("[plugin.grants]\nhttp = [\"{}\"]\n", web.origin);
    let setup = setup(&issuer, "").plugin("probe", &grants).plugin("hostile", "").plugin("http", &grants);
    let host = setup.start().await;
    let own = host.setup.token("carla", "acme").await;
    for token in [key.token(&claims(&issuer, "anna")), own] {
        // A part of it would do for somebody who collects them.
        let secret = token.rsplit('.').next().expect("a part").trim_start_matches("bh_");
        let legacy = Client::connect_as(&host, Some(&token), all_capabilities()).await;
        let modern = Modern::plain(&host, Some(&token));
        let before = web.asked().len();
        for (plugin, tool) in LOOKS {
            let seen = legacy.tool(tool, json!({})).await.expect("a result").to_string();
            let seen = format!("{seen}{}", modern.tool(tool, json!({})).await);
            assert!(!seen.contains(secret), "{plugin} sees the token: {seen}");
        }
        for (tool, arguments) in [("http_get", json!({"url": web.origin})), ("send", json!({"url": web.origin}))] {
            let page = legacy.tool(tool, arguments.clone()).await.expect("a result");
            assert_eq!(page["structuredContent"]["body"], "hello", "{page}");
            let page = modern.tool(tool, arguments).await;
            assert_eq!(page["structuredContent"]["body"], "hello", "{page}");
        }
        let asked = web.asked();
        assert_eq!(asked.len(), before + 4);
        for request in &asked {
            let request = request.to_ascii_lowercase();
            assert!(!request.contains("authorization"), "{request}");
            assert!(!request.contains(&secret.to_ascii_lowercase()), "{request}");
        }
    }
}
