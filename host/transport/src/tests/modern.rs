//! What is different for revisions without sessions.

use serde_json::json;

use super::{Edge, status_and_body};

#[tokio::test]
async fn mcp_headers_are_handed_over_unchanged() {
    let edge = Edge::usual().await;
    let client = edge
        .client()
        .with("mcp-protocol-version", "2026-07-28")
        .with("MCP-METHOD", " declared ")
        .with("Mcp-Name", "=?base64?eA==?=")
        .with("Mcp-Param-Region", "eu")
        .with("mcp-param-count", "42");
    let (status, body) = status_and_body(client.rpc(1, "declared", json!({})).await).await;
    let expected = json!({"version": "2026-07-28", "method": "declared", "name": "=?base64?eA==?=",
        "params": [["region", "eu"], ["count", "42"]], "session": false});
    assert_eq!((status, &body["result"]), (200, &expected));
    let (_, body) = status_and_body(edge.client().rpc(1, "declared", json!({})).await).await;
    let nothing = json!({"version": null, "method": null, "name": null, "params": [], "session": false});
    assert_eq!(body["result"], nothing);
}

#[tokio::test]
async fn modern_refusals_have_their_http_status() {
    let edge = Edge::usual().await;
    for (rejection, status) in [("unserved", 400), ("unknown", 404), ("too many", 429)] {
        let reply = edge.client().with("MCP-Protocol-Version", "2026-07-28").rpc(1, "refused", json!(rejection)).await;
        assert_eq!(reply.header("content-type"), Some("application/json"));
        assert_eq!(reply.status, status, "{rejection}");
        assert_eq!(reply.header("retry-after"), (status == 429).then_some("2"), "{rejection}");
    }
}

#[tokio::test]
async fn session_header_is_ignored_by_modern_requests() {
    let edge = Edge::usual().await;
    let client = edge.session().await.with("MCP-Protocol-Version", "2026-07-28");
    for client in [client.with("Mcp-Session-Id", "unknown"), client] {
        let (status, body) = status_and_body(client.rpc(1, "declared", json!({})).await).await;
        assert_eq!((status, &body["result"]["session"]), (200, &json!(false)));
    }
}

#[tokio::test]
async fn session_header_is_ignored_when_body_is_modern() {
    let edge = Edge::usual().await;
    let modern = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}});
    let live = edge.session().await;
    for client in [live.with("Mcp-Session-Id", "unknown"), live.clone()] {
        for client in [client.with("MCP-Protocol-Version", "2025-11-25"), client] {
            let (status, body) = status_and_body(client.rpc(1, "declared", modern.clone()).await).await;
            assert_eq!((status, &body["result"]["session"]), (200, &json!(false)));
        }
    }
    let only_mentioned = json!({"text": "io.modelcontextprotocol/protocolVersion"});
    assert_eq!(live.with("Mcp-Session-Id", "unknown").rpc(1, "declared", only_mentioned).await.status, 404);
}

#[tokio::test]
async fn protocol_version_in_body_is_judged_by_the_protocol() {
    let edge = Edge::usual().await;
    let client = edge.client().with("MCP-Protocol-Version", "1900-01-01");
    let named = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "1900-01-01"}});
    let (status, body) = status_and_body(client.rpc(1, "declared", named).await).await;
    assert_eq!((status, &body["result"]["version"]), (200, &json!("1900-01-01")));
    assert_eq!(client.rpc(1, "declared", json!({})).await.status, 400);
}
