//! MCP servers whose host is killed in the middle of a call.

use serde_json::json;
use tests::client::text;
use tests::modern::Modern;
use tests::wait::until;
use tests::{Setup, place};

use super::lives::counting_server;
use super::{AT_ONCE, again};

#[tokio::test]
async fn task_of_a_server_goes_on_with_the_same_requests_after_a_kill() {
    let (origin, sent) = counting_server().await;
    let grants = format!("durable = \"auto\"\n[plugin.grants]\nhttp = [{origin:?}]\n");
    let setup = Setup::new().plugin_as("legacy", "foreign_mcp_stdio", &grants).config(AT_ONCE);
    let host = setup.start().await;
    let client = Modern::full(&host, None);
    let to = format!("{}/pay", origin.trim_start_matches("http://"));
    let posting = client.task("post", json!({"to": to, "ms": "4000"})).await;
    until("the first request", async || (sent.lock().posts == 1).then_some(())).await;
    let asking = client.task("ask", json!({})).await;
    client.until_status(&asking, "input_required").await;
    // Its answer is kept by itself where the call writes nothing soon.
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    let (_host, client) = again(host).await;
    client.until_status(&asking, "input_required").await;
    let answers = json!({"request-1": {"action": "accept", "content": {"name": "Ada"}}});
    client.result("tasks/update", json!({"taskId": asking, "inputResponses": answers})).await;
    let done = client.until_status(&asking, "completed").await;
    assert_eq!(text(&done["result"]), "Hello, Ada", "{done}");
    let done = client.until_status(&posting, "completed").await;
    assert_eq!(text(&done["result"]), "posted paid 200 paid 200", "{done}");
    assert_eq!(sent.lock().posts, 2, "none is sent twice");
}

/// The SDKs know nothing of tasks that go on after a crash: what is sent is the host's business.
#[tokio::test]
async fn tasks_of_official_sdks_go_on_after_a_kill_and_send_nothing_twice() {
    let (origin, sent) = counting_server().await;
    let mut setup =
        Setup::new().plugin_as("rs", "server_rmcp", "durable = \"auto\"\nprefix = \"rs_\"\n").config(AT_ONCE);
    let has_typescript = !place::left_out(&["javascript"]);
    if has_typescript {
        let grants = format!("durable = \"auto\"\nprefix = \"ts_\"\n[plugin.grants]\nhttp = [{origin:?}]\n");
        setup = setup.plugin_as("ts", "typescript-server", &grants);
    }
    let host = setup.start().await;
    let client = Modern::full(&host, None);
    let waiting = client.task("rs_wait", json!({"ms": 3000})).await;
    let posting = if has_typescript {
        let posting = client.task("ts_post", json!({"to": format!("{origin}/pay")})).await;
        until("the first request", async || (sent.lock().posts == 1).then_some(())).await;
        // Its answer is kept by itself where the call writes nothing soon.
        tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
        Some(posting)
    } else {
        None
    };
    let (_host, client) = again(host).await;
    let done = client.until_status(&waiting, "completed").await;
    assert_eq!(text(&done["result"]), "waited", "{done}");
    if let Some(posting) = posting {
        let done = client.until_status(&posting, "completed").await;
        assert_eq!(text(&done["result"]), "posted 200 200", "{done}");
        assert_eq!(sent.lock().posts, 2, "none is sent twice");
    }
}
