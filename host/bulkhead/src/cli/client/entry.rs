//! What is added to a client's file.
//!
//! Owns the server's entry and its text in each syntax. Must not read or write a file.

use anyhow::Context as _;
use serde_json::{Map, Value, json};

use super::known::{KnownClient, Program, Remote, Syntax, TokenSource, input_id};

/// How the client reaches the host.
#[derive(Debug)]
pub(super) enum Server {
    Stdio(Program),
    Http(Remote),
}

impl Server {
    fn name(&self) -> &str {
        match self {
            Self::Stdio(program) => &program.name,
            Self::Http(remote) => &remote.name,
        }
    }
}

/// A server in the words of one client.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) section: &'static str,
    pub(super) value: Map<String, Value>,
    /// What the client has to ask its user for, as an element of `inputs`.
    pub(super) input: Option<Value>,
}

impl Entry {
    pub(super) fn new(client: &KnownClient, server: &Server) -> Self {
        let (value, has_token) = match server {
            Server::Stdio(program) => ((client.stdio)(program), false),
            Server::Http(remote) => ((client.http)(remote), remote.token.is_some()),
        };
        let name = server.name().to_owned();
        let input = (has_token && client.token == TokenSource::Input).then(|| {
            json!({"type": "promptString", "id": input_id(&name), "description": format!("Token of {name}"),
                "password": true})
        });
        let value = match value {
            Value::Object(members) => members,
            // No client has a server that is anything else.
            _ => Map::new(),
        };
        Self { name, section: client.section, value, input }
    }

    /// A file with nothing but this entry: what a new file gets, and what the user merges by hand.
    ///
    /// # Errors
    ///
    /// A value cannot be said in the syntax.
    pub(super) fn document(&self, syntax: Syntax) -> anyhow::Result<String> {
        match syntax {
            Syntax::Json | Syntax::JsonWithComments => {
                Ok(serde_json::to_string_pretty(&self.tree()).map(|text| text + "\n")?)
            }
            Syntax::Toml => Ok(toml::to_string(&self.tree()).context("this cannot be written as TOML")?),
            Syntax::Yaml => Ok(format!("{}:\n{}", self.section, self.yaml("  "))),
        }
    }

    /// The same as a value.
    pub(super) fn tree(&self) -> Value {
        let mut tree = Map::new();
        tree.insert(self.section.to_owned(), json!({ self.name.as_str(): self.value }));
        if let Some(input) = &self.input {
            tree.insert("inputs".to_owned(), json!([input]));
        }
        Value::Object(tree)
    }

    /// The entry as lines of YAML that begin with `indent`.
    pub(super) fn yaml(&self, indent: &str) -> String {
        let mut lines = format!("{indent}{}:\n", self.name);
        yaml_members(&mut lines, &self.value, &indent.repeat(2), indent);
        lines
    }
}

/// Members one a line. Texts have the quotes and escapes of JSON, which are YAML's, too.
fn yaml_members(lines: &mut String, members: &Map<String, Value>, indent: &str, step: &str) {
    for (name, value) in members {
        match value {
            Value::Object(below) => {
                lines.push_str(&format!("{indent}{name}:\n"));
                yaml_members(lines, below, &format!("{indent}{step}"), step);
            }
            Value::Array(elements) => {
                let elements: Vec<_> = elements.iter().map(Value::to_string).collect();
                lines.push_str(&format!("{indent}{name}: [{}]\n", elements.join(", ")));
            }
            scalar => lines.push_str(&format!("{indent}{name}: {scalar}\n")),
        }
    }
}
