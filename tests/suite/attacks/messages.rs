//! Messages that are meant to break their reader: nested without end, the same member twice, numbers beyond all types.

use serde_json::{Value, json};
use tests::client::{Client, text};
use tests::modern::Modern;
use tests::place::rounds;
use tests::{Host, Setup};

use super::serves_on;

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;

async fn host() -> Host {
    let host = Setup::with(&["text", "desk"]).start().await;
    // Once for every place: compiled and warm.
    let client = Client::connect(&host).await;
    assert_eq!(text(&client.tool("echo", json!({"text": "x"})).await.expect("an echo")), "x");
    host
}

/// Arguments that do not fit are a result, for the model to read.
fn succeeds(answer: &Value) -> bool {
    answer.get("result").is_some_and(|result| result["isError"] != true)
}

/// Sends a body in the legacy era (in a session and without one) and in the modern one; each is answered with an error,
/// or not at all where there is nothing to answer.
async fn refused(host: &mut Host, what: &str, body: &str) {
    let client = Client::connect(host).await;
    for session in [client.session.clone(), None] {
        let mut client = Client::new(client.url(), None);
        client.session = session;
        let reply = client.post(body, None).await;
        assert!(matches!(reply.status.as_u16(), 200 | 202 | 400 | 413), "{what}: {} {}", reply.status, reply.text);
        let answer: Value = serde_json::from_str(&reply.text).unwrap_or_default();
        assert!(!succeeds(&answer), "{what}: {answer}");
    }
    let request = Modern::full(host, None).request("tools/call", &json!({"name": "echo"})).body(body.to_owned());
    let reply = tests::wait::soon("an answer", request.send()).await.expect("an answer");
    assert!(matches!(reply.status().as_u16(), 200 | 202 | 400 | 413), "{what}: {}", reply.status());
    let answer: Value = serde_json::from_str(&reply.text().await.expect("a text")).unwrap_or_default();
    assert!(!succeeds(&answer), "{what}: {answer}");
    serves_on(host, what).await;
}

#[tokio::test]
async fn deeply_nested_message_is_refused() {
    let mut host = host().await;
    for depth in [200, 10_000, 1_900_000] {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let open = open.repeat(depth.min(4_000_000 / (open.len() + close.len())));
            let bomb = match close {
                "]" => format!("{open}{}", "]".repeat(open.len())),
                _ => format!("{open}0{}", "}".repeat(open.len() / 5)),
            };
            // Closed, and cut off in the middle. The deepest are four megabytes each; of them the gate sends those that
            // are closed.
            let is_cut_too = depth < 1_900_000 || rounds(0, 1) == 1;
            for bomb in [Some(bomb.as_str()), is_cut_too.then_some(open.as_str())].into_iter().flatten() {
                for (place, body) in [
                    ("the message", bomb.to_owned()),
                    ("params", format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{bomb}}}"#)),
                    (
                        "arguments",
                        format!(
                            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","arguments":{{"text":{bomb}}},{META}}}}}"#
                        ),
                    ),
                    (
                        "arguments of the legacy era",
                        format!(
                            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","arguments":{{"text":{bomb}}}}}}}"#
                        ),
                    ),
                    (
                        "metadata",
                        format!(
                            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","_meta":{bomb}}}}}"#
                        ),
                    ),
                    ("the id", format!(r#"{{"jsonrpc":"2.0","id":{bomb},"method":"ping"}}"#)),
                    (
                        "answers",
                        format!(
                            r#"{{"jsonrpc":"2.0","id":1,"method":"tasks/update","params":{{"taskId":"x","inputResponses":{{"a":{bomb}}},{META}}}}}"#
                        ),
                    ),
                    ("a result", format!(r#"{{"jsonrpc":"2.0","id":1,"result":{bomb}}}"#)),
                ] {
                    if depth == 200 || place != "the id" {
                        refused(&mut host, &format!("{depth} deep in {place}"), &body).await;
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn duplicate_message_members_are_refused() {
    let mut host = host().await;
    for (what, body) in [
        ("the method", r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","method":"tools/list"}"#.to_owned()),
        ("the id", r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}"#.to_owned()),
        ("the version", r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"tools/list"}"#.to_owned()),
        ("params", r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{},"params":{"cursor":"x"}}"#.to_owned()),
        ("the method, once in disguise", r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","m\u0065thod":"tools/list"}"#.to_owned()),
        ("the tool", r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","name":"diff","arguments":{"text":"x"}}}"#.to_owned()),
        ("arguments", r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"},"arguments":{"text":"y"}}}"#.to_owned()),
        ("an argument", r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x","text":"y"}}}"#.to_owned()),
        ("an argument, once in disguise", r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x","t\u0065xt":"y"}}}"#.to_owned()),
        ("the tool of the modern era", format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","name":"diff","arguments":{{"text":"x"}},{META}}}}}"#)),
        ("an argument of the modern era", format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","arguments":{{"text":"x","text":"y"}},{META}}}}}"#)),
        ("metadata", format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","arguments":{{"text":"x"}},{META},{META}}}}}"#)),
        ("the task", format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{{"taskId":"a","taskId":"b",{META}}}}}"#)),
    ] {
        refused(&mut host, what, &body).await;
    }
}

#[tokio::test]
async fn out_of_range_message_values_are_refused_or_kept() {
    let mut host = host().await;
    let nines = "9".repeat(100_000);
    for (what, body) in [
        ("a huge id", format!(r#"{{"jsonrpc":"2.0","id":{nines},"method":"tools/list"}}"#)),
        ("an id with an exponent", r#"{"jsonrpc":"2.0","id":1e400,"method":"tools/list"}"#.to_owned()),
        ("an id that is a fraction", r#"{"jsonrpc":"2.0","id":0.1,"method":"tools/list"}"#.to_owned()),
        ("no id", r#"{"jsonrpc":"2.0","id":null,"method":"tools/list"}"#.to_owned()),
        (
            "half of a character",
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"\ud800"}}}"#
                .to_owned(),
        ),
        (
            "a number that is none",
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait","arguments":{"ms":NaN}}}"#
                .to_owned(),
        ),
        (
            "a number beyond its type",
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":1e999}}}"#
                .to_owned(),
        ),
        ("a comment", r#"{"jsonrpc":"2.0","id":1,/**/"method":"tools/list"}"#.to_owned()),
        (
            "something behind it",
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":2,"method":"ping"}"#.to_owned(),
        ),
        // One byte order mark is skipped (RFC 8259 8.1); what follows it is a message or nothing.
        ("two marks in front of it", "\u{feff}\u{feff}{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}".to_owned()),
        ("a method without end", format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{nines}"}}"#)),
        (
            "a tool without end",
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{nines}"}}}}"#),
        ),
        (
            "a task without end",
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{{"taskId":"{nines}"}}}}"#),
        ),
        (
            "a cursor without end",
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"cursor":"{nines}"}}}}"#),
        ),
        (
            "a level without end",
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{{"level":"{nines}"}}}}"#),
        ),
    ] {
        refused(&mut host, what, &body).await;
    }
    let log = host.log();
    assert!(!log.contains(&nines[..1_000]), "the log repeats what a client sent");
}
