//! The messages in the README, sent as they stand there.

use std::collections::HashMap;

use serde_json::{Value, json};
use tests::client::Client;
use tests::modern::Modern;
use tests::{Host, Setup};

use tests::place::root;

/// The messages of a section, in order.
fn messages(section: &str) -> Vec<Value> {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("the README");
    let (_, rest) = readme.split_once(&format!("\n## {section}\n")).expect("the section");
    let text = rest.split("\n## ").next().unwrap_or_default();
    let blocks = text.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    blocks.map(|block| serde_json::from_str(block).unwrap_or_else(|error| panic!("{error}: {block}"))).collect()
}

/// Puts the id of a task where the text says that one stands.
fn filled(message: &Value, task: &str) -> Value {
    serde_json::from_str(&message.to_string().replace('…', task)).expect("JSON")
}

/// Whether everything that the text shows is there; a text may go on where the README's ends.
fn is_shown(shown: &Value, said: &Value) -> bool {
    match (shown, said) {
        (Value::Object(shown), Value::Object(said)) => {
            shown.iter().all(|(name, value)| said.get(name).is_some_and(|said| is_shown(value, said)))
        }
        (Value::String(shown), Value::String(said)) => said.starts_with(shown.as_str()),
        _ => shown == said,
    }
}

/// Sends a request of either era the way that its client would.
async fn sent(host: &Host, client: &mut Client, request: &Value) -> Value {
    let (method, params) = (request["method"].as_str().expect("a method"), request["params"].clone());
    if let Some(capabilities) = params["_meta"].get("io.modelcontextprotocol/clientCapabilities") {
        let mut modern = Modern::plain(host, None);
        modern.capabilities = capabilities.clone();
        return modern.send(method, params).await.response_after(&mut Vec::new()).await;
    }
    if method == "initialize" {
        client.initialize(params["capabilities"].clone()).await;
        return json!({"result": client.server});
    }
    client.send(method, params).await.response_after(&mut Vec::new()).await
}

#[tokio::test]
async fn readme_client_examples_match_the_host() {
    let host = Setup::with(&["primes", "desk"]).start().await;
    let mut client = Client::connect(&host).await;
    let messages = messages("For authors of clients");
    assert!(
        messages.len() >= 14 && messages.len().is_multiple_of(2),
        "requests with their answers: {}",
        messages.len()
    );
    let (mut task, mut seen) = (String::new(), HashMap::new());
    for pair in messages.chunks_exact(2) {
        let [request, shown] = [0, 1].map(|at| filled(&pair[at], &task));
        assert_eq!(request["id"], shown["id"], "an answer below its request");
        let said = sent(&host, &mut client, &request).await;
        if let Some(id) = said["result"]["task"]["taskId"].as_str() {
            id.clone_into(&mut task);
        }
        // The id of a task is known once the task is there.
        let shown = filled(&pair[1], &task);
        assert!(
            is_shown(&shown["result"], &said["result"]),
            "{request}\nis answered with\n{said}\nand not with\n{shown}"
        );
        *seen.entry(request["method"].as_str().unwrap_or_default().to_owned()).or_insert(0) += 1;
    }
    for method in ["initialize", "tools/call", "tasks/steer", "tasks/pause", "tasks/resume"] {
        assert!(seen.contains_key(method), "{method} is shown");
    }
}
