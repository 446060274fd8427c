//! What is different for revisions without sessions.

use serde_json::json;

use super::{Edge, status_and_body};

#[tokio::test]
async fn what_stands_in_headers_is_handed_over_as_it_stands_there() {
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
async fn refusals_have_their_status() {
    let edge = Edge::usual().await;
    for (rejection, status) in [("unserved", 400), ("unknown", 404), ("too many", 429)] {
        let reply = edge.client().with("MCP-Protocol-Version", "2026-07-28").rpc(1, "refused", json!(rejection)).await;
        assert_eq!(reply.header("content-type"), Some("application/json"));
        assert_eq!(reply.status, status, "{rejection}");
        assert_eq!(reply.header("retry-after"), (status == 429).then_some("2"), "{rejection}");
    }
}

#[tokio::test]
async fn a_session_means_nothing_to_a_modern_request() {
    let edge = Edge::usual().await;
    let client = edge.session().await.with("MCP-Protocol-Version", "2026-07-28");
    for client in [client.with("Mcp-Session-Id", "unknown"), client] {
        let (status, body) = status_and_body(client.rpc(1, "declared", json!({})).await).await;
        assert_eq!((status, &body["result"]["session"]), (200, &json!(false)));
    }
}

#[tokio::test]
async fn a_session_means_nothing_to_a_request_that_is_modern_by_its_body_alone() {
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
async fn a_revision_that_a_message_names_itself_is_for_the_protocol_to_judge() {
    let edge = Edge::usual().await;
    let client = edge.client().with("MCP-Protocol-Version", "1900-01-01");
    let named = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "1900-01-01"}});
    let (status, body) = status_and_body(client.rpc(1, "declared", named).await).await;
    assert_eq!((status, &body["result"]["version"]), (200, &json!("1900-01-01")));
    assert_eq!(client.rpc(1, "declared", json!({})).await.status, 400);
}
