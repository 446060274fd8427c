//! MCP Apps: two apps of one component under prefixes, listed, read and called as clients with views do, in both eras.

use serde_json::{Value, json};
use tests::client::{Client, Failure};
use tests::modern::Modern;
use tests::{Host, Setup};

/// A client of each era.
struct Clients {
    legacy: Client,
    modern: Modern,
}

impl Clients {
    async fn of(host: &Host) -> Self {
        Self { legacy: Client::connect(host).await, modern: Modern::full(host, None) }
    }

    async fn call(&self, method: &str, params: Value) -> [Result<Value, Failure>; 2] {
        [self.legacy.call(method, params.clone()).await, self.modern.call(method, params).await]
    }

    async fn results(&self, method: &str, params: Value) -> [Value; 2] {
        self.call(method, params).await.map(|result| result.unwrap_or_else(|failure| panic!("{method}: {failure:?}")))
    }
}

/// The view that a tool of a list names.
fn view<'a>(listed: &'a Value, tool: &str) -> &'a Value {
    let tools = listed["tools"].as_array().expect("tools");
    let tool = tools.iter().find(|listed| listed["name"] == tool).unwrap_or_else(|| panic!("no {tool} in {listed}"));
    &tool["_meta"]["ui"]["resourceUri"]
}

#[tokio::test]
async fn apps_under_prefixes_show_their_own_views_and_take_their_calls() {
    let setup = Setup::new().plugin("chart", "prefix = \"c_\"").plugin_as(
        "again",
        "chart",
        "prefix = \"d_\"\n[plugin.tool.smooth]\nhidden = true",
    );
    let host = setup.start().await;
    let clients = Clients::of(&host).await;
    for listed in clients.results("tools/list", json!({})).await {
        for (tool, uri) in [("c_chart", "ui://c_chart/view.html"), ("d_chart", "ui://d_chart/view.html")] {
            assert_eq!(view(&listed, tool), uri);
            for read in clients.results("resources/read", json!({"uri": uri})).await {
                let contents = &read["contents"][0];
                assert_eq!(
                    (&contents["uri"], &contents["mimeType"]),
                    (&json!(uri), &json!("text/html;profile=mcp-app"))
                );
                assert!(contents["text"].as_str().is_some_and(|html| html.contains("ui/initialize")), "{contents}");
            }
        }
    }
    for refused in clients.call("resources/read", json!({"uri": "ui://chart/view.html"})).await {
        assert!(refused.is_err(), "no client sees that URI: {refused:?}");
    }
    let series = json!({"title": "Rain", "values": [0, 3, 6]});
    // As the page says it, which knows no prefix. Only one of the two has such a tool for it.
    for smoothed in clients.results("tools/call", json!({"name": "smooth", "arguments": series})).await {
        assert_eq!(smoothed["structuredContent"]["values"], json!([1.5, 3.0, 4.5]));
    }
    for refused in clients.call("tools/call", json!({"name": "chart", "arguments": series})).await {
        let message = refused.expect_err("either view may mean its own").message;
        assert!(message.starts_with("Unknown tool: chart"), "{message}");
    }
}
