use serde_json::json;

use super::super::entry::Server;
use super::super::known::{Program, Remote, find};
use super::*;

/// A server that the client starts with these arguments.
fn entry(client: &str, arguments: &[&str]) -> Entry {
    let arguments = arguments.iter().map(|text| (*text).to_owned()).collect();
    let program = Program { name: "bulkhead".to_owned(), command: "/bin/bulkhead".to_owned(), arguments };
    Entry::new(find(client).unwrap(), &Server::Stdio(program))
}

fn remote(client: &str) -> Entry {
    let client = find(client).unwrap();
    let token = Some(client.token.text("bulkhead", "secret"));
    let url = "https://mcp.example.com/mcp".parse().unwrap();
    Entry::new(client, &Server::Http(Remote { name: "bulkhead".to_owned(), url, token }))
}

fn merged(client: &str, text: &str, entry: &Entry) -> String {
    let syntax = find(client).unwrap().syntax;
    let merged = merge(syntax, text, entry, IfThere::Refuse).unwrap().expect("a change");
    assert_eq!(merge(syntax, &merged, entry, IfThere::Refuse).unwrap(), None, "it is there now: {merged}");
    merged
}

fn refusal(client: &str, text: &str) -> String {
    let error = merge(find(client).unwrap().syntax, text, &entry(client, &["stdio"]), IfThere::Refuse);
    format!("{:#}", error.expect_err(text))
}

#[test]
fn json_keeps_members_order_comments_and_layout() {
    let text = "// mine\n{\n    \"theme\": \"dark\", // at night\n    \"context_servers\": {\n        // the first\n        \
        \"other\": {\"command\": \"x\"},\n    },\n    \"z\": 1e3,\n}\n";
    assert_eq!(
        merged("zed", text, &entry("zed", &["stdio"])),
        "// mine\n{\n    \"theme\": \"dark\", // at night\n    \"context_servers\": {\n        // the first\n        \
        \"other\": {\"command\": \"x\"},\n        \"bulkhead\": {\n            \"command\": \"/bin/bulkhead\",\n            \
        \"args\": [\"stdio\"],\n            \"env\": {},\n        },\n    },\n    \"z\": 1e3,\n}\n"
    );
}

#[test]
fn json_without_the_section_gets_it() {
    for text in ["", "\n", "{}", "{ }\n", "{\"a\": [1]}", "{\n\t\"a\": [1]\n}\n", "{\"mcpServers\": {}}"] {
        let text = merged("claude-desktop", text, &entry("claude-desktop", &["stdio"]));
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["mcpServers"]["bulkhead"], json!({"command": "/bin/bulkhead", "args": ["stdio"]}), "{text}");
    }
}

#[test]
fn inputs_are_added_once_and_others_stay() {
    let text = "{\"inputs\": [{\"type\": \"promptString\", \"id\": \"theirs\"}], \"servers\": {}}";
    let value: Value = serde_json::from_str(&merged("vscode", text, &remote("vscode"))).unwrap();
    let ids: Vec<_> = value["inputs"].as_array().unwrap().iter().map(|input| input["id"].clone()).collect();
    assert_eq!(ids, ["theirs", "bulkhead_token"]);
    assert_eq!(value["servers"]["bulkhead"]["headers"]["Authorization"], "Bearer ${input:bulkhead_token}");
}

#[test]
fn other_server_of_the_name_is_replaced_only_when_told() {
    for (client, text) in [
        ("cursor", "{\"mcpServers\": {\"bulkhead\": {\"command\": \"theirs\"}, \"b\": {}}}"),
        (
            "codex",
            "model = \"m\" # best\n\n[mcp_servers.bulkhead]\ncommand = \"theirs\"\n\n[mcp_servers.b]\ncommand = \"b\"\n",
        ),
    ] {
        assert!(refusal(client, text).contains("--replace"), "{client}");
        let syntax = find(client).unwrap().syntax;
        let after = merge(syntax, text, &entry(client, &["stdio"]), IfThere::Replace).unwrap().unwrap();
        assert!(after.contains("/bin/bulkhead") && !after.contains("theirs"), "{after}");
    }
    let text = "extensions:\n  bulkhead:\n    cmd: theirs\n";
    assert!(refusal("goose", text).contains("--name"));
}

#[test]
fn files_that_the_client_cannot_read_are_refused() {
    for (client, text) in [
        ("claude-desktop", "{\"a\": 1,}"),
        ("claude-desktop", "// no comments here\n{}"),
        ("claude-desktop", "[]"),
        ("claude-desktop", "{\"mcpServers\": []}"),
        ("claude-desktop", "{\"a\": 1} {\"b\": 2}"),
        ("vscode", "{\"servers\": {\"a\": {}"),
        ("vscode", "{'servers': {}}"),
        ("codex", "[mcp_servers\n"),
        ("codex", "mcp_servers = 1\n"),
        ("goose", "a: [1\n"),
        ("goose", "- 1\n"),
        ("goose", "a: 1\n---\nb: 2\n"),
        ("goose", "extensions: 7\n"),
        ("goose", "extensions: {a: {enabled: true}}\n"),
    ] {
        assert!(!refusal(client, text).is_empty());
    }
}

/// Two members of one name: which one the client takes is unknown.
#[test]
fn section_that_occurs_twice_is_refused() {
    let twice = "{\"mcpServers\": {\"a\": {}}, \"mcpServers\": {\"b\": {}}}";
    assert!(!refusal("claude-desktop", twice).is_empty());
}

#[test]
fn toml_keeps_comments_and_other_tables() {
    let text = "# mine\nmodel = \"m\"\n\n[mcp_servers.other] # theirs\ncommand = \"x\"\n\n[tail]\na = 1\n";
    let after = merged("codex", text, &remote("codex"));
    for line in text.lines() {
        assert!(after.contains(line), "{line}: {after}");
    }
    let value: toml::Table = toml::from_str(&after).unwrap();
    assert_eq!(value["mcp_servers"]["bulkhead"]["bearer_token_env_var"].as_str(), Some("BULKHEAD_TOKEN"));
    assert!(after.contains("\n[mcp_servers.bulkhead]\n"), "{after}");
}

#[test]
fn yaml_keeps_every_line() {
    let entry = entry("goose", &["stdio", "--data", "/a b"]);
    let added = |indent: &str| entry.yaml(indent);
    for (text, before, indent) in [
        ("GOOSE_MODEL: m # best\nextensions:\n  # first\n  a:\n    enabled: true\n", "extensions:\n", "  "),
        ("extensions:  # all\n    a:\n        enabled: true\nb: 1\n", "extensions:  # all\n", "    "),
        ("extensions:\nb: 1\n", "extensions:\n", "  "),
    ] {
        let (head, tail) = text.split_once(before).unwrap();
        assert_eq!(merged("goose", text, &entry), format!("{head}{before}{}{tail}", added(indent)));
    }
    for text in ["# nothing yet\n", "a: 1\n", "a: 1"] {
        let after = merged("goose", text, &entry);
        assert_eq!(after, format!("{}\nextensions:\n{}", text.trim_end(), added("  ")));
    }
    assert_eq!(merged("goose", "extensions: {}\nb: 1\n", &entry), format!("extensions:\n{}b: 1\n", added("  ")));
}

/// A line that only looks like the section: what would come out is read again.
#[test]
fn yaml_text_that_looks_like_the_section_is_not_changed() {
    let text = "note: |\n  x\nquoted: \"\nextensions:\n  \"\nextensions:\n  a:\n    enabled: true\n";
    if let Ok(Some(after)) = merge(Syntax::Yaml, text, &entry("goose", &["stdio"]), IfThere::Refuse) {
        assert!(after.starts_with("note: |\n  x\nquoted: \"\nextensions:\n  \"\n"), "{after}");
    }
}
