#!/usr/bin/env bash
# A client of rust-mcp-sdk shows a choice of a form as a free text: it never sees the values that may be chosen.
#
# Surprising: the crate has a type for each kind of choice (UntitledSingleSelectEnumSchema and three others), and a form with choices is
# read without an error; but what is read of a single choice is the schema of a text, without `enum`, `oneOf` and `enumNames`. Choices
# of several values (`type: "array"`) arrive whole. Bounds of integers come back as 1.0.
# The guess before the run: each kind of schema is read as the type that is made for it.
# Who meets it: users of agents that are built with rust-mcp-sdk. They are asked for a text, write what the server does not take, and are
# asked again, or the call fails.
# What to do: name the values in the description of the member, too; ask for several values with maxItems 1; or take another client.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

mkdir src
cat >Cargo.toml <<'END'
[package]
name = "finding"
version = "0.1.0"
edition = "2024"

[dependencies]
rust-mcp-schema = "=2.0.0"
serde_json = "=1.0.154"
END
cat >src/main.rs <<'END'
use rust_mcp_schema::ElicitRequestFormParams;
use serde_json::{Value, json};

/// What is asked for, and which of its members a client gets to see.
fn cases() -> Vec<(&'static str, Value, &'static [&'static str])> {
    vec![
        ("choice", json!({"type": "string", "enum": ["economy", "business"]}), &["type"]),
        ("choice with titles", json!({"type": "string", "oneOf": [{"const": "e", "title": "Economy"}]}), &["type"]),
        ("choice of 2025-06-18", json!({"type": "string", "enum": ["e"], "enumNames": ["Economy"]}), &["type"]),
        ("several", json!({"type": "array", "items": {"type": "string", "enum": ["aisle"]}}), &["items", "type"]),
        ("text", json!({"type": "string", "maxLength": 80}), &["maxLength", "type"]),
    ]
}

fn main() {
    println!("rust-mcp-schema 2.0.0, which rust-mcp-sdk 2.0.0 reads messages with");
    println!("expected: MCP 2026-07-28, elicitation, \"Requested Schema\": enums are among the schemas that clients make forms of");
    let mut changed = false;
    for (what, schema, stated) in cases() {
        let form = json!({"message": "m", "requestedSchema": {"type": "object", "properties": {"member": schema}}});
        let form: ElicitRequestFormParams = serde_json::from_value(form).expect("a valid form");
        let seen = serde_json::to_value(&form).expect("a form")["requestedSchema"]["properties"]["member"].clone();
        let mut members: Vec<&str> = seen.as_object().expect("an object").keys().map(String::as_str).collect();
        members.sort_unstable();
        println!("{what}: sent {schema}, seen {seen}");
        changed |= members != stated;
    }
    if changed {
        println!("CHANGED: other members arrive");
        std::process::exit(1);
    }
}
END
cargo run --quiet
