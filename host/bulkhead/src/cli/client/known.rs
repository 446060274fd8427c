//! The MCP clients that Bulkhead can be added to.
//!
//! Owns the one table of their files and formats: the command, its help and the page of the documentation are made from
//! it. Must not read a file or the environment.

use serde_json::{Map, Value, json};
use url::{Host, Url};

/// A client, and how it is told of a server.
#[derive(Debug)]
pub(crate) struct KnownClient {
    /// What the command line calls it.
    pub(super) word: &'static str,
    /// What its makers call it.
    pub(super) title: &'static str,
    /// The file that counts wherever the user works.
    pub(super) user_file: Option<UserFile>,
    /// The file of one project, from its folder.
    pub(super) project_file: Option<&'static str>,
    pub(super) syntax: Syntax,
    /// The member of the file that holds its servers by their names.
    pub(super) section: &'static str,
    pub(super) token: TokenSource,
    /// Characters of a tool's name, where the client refuses, or fails to call, tools whose names have more or hold
    /// anything but letters, digits, `_` and `-`. `None`: nothing is known against the protocol's names, or the client
    /// makes others of them itself.
    pub(super) tool_name_chars_max: Option<usize>,
    /// A server that the client starts.
    pub(super) stdio: fn(&Program) -> Value,
    /// A server that the client reaches over HTTP.
    pub(super) http: fn(&Remote) -> Value,
    /// What the user does next.
    pub(super) then: &'static str,
}

/// A file of the user's, on Linux.
#[derive(Clone, Copy, Debug)]
pub(super) enum UserFile {
    /// From the home directory.
    Home(&'static str),
    /// From `$XDG_CONFIG_HOME`, which is `~/.config` unless it is set.
    Config(&'static str),
}

impl std::fmt::Display for UserFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Home(path) => write!(f, "~/{path}"),
            Self::Config(path) => write!(f, "~/.config/{path}"),
        }
    }
}

/// What a file is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    Json,
    /// JSON that may have comments and commas behind the last member.
    JsonWithComments,
    Toml,
    Yaml,
}

impl Syntax {
    /// The word behind the fence of a block of code.
    pub(super) const fn fence(self) -> &'static str {
        match self {
            Self::Json | Self::JsonWithComments => "json",
            Self::Toml => "toml",
            Self::Yaml => "yaml",
        }
    }
}

/// Where a client takes the token from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenSource {
    /// It asks the user once and keeps the answer.
    Input,
    /// An environment variable, written between these texts.
    Variable(&'static str, &'static str),
    /// An environment variable or its own store of secrets, written between these texts.
    VariableOrKeyring(&'static str, &'static str),
    /// The file holds the token itself: the client has no other way.
    Plain,
}

impl TokenSource {
    /// What stands in the file for the token. `plain` is the token, or a placeholder.
    pub(super) fn text(self, name: &str, plain: &str) -> String {
        match self {
            Self::Input => format!("${{input:{}}}", input_id(name)),
            Self::Variable(before, after) | Self::VariableOrKeyring(before, after) => {
                format!("{before}{}{after}", variable(name))
            }
            Self::Plain => plain.to_owned(),
        }
    }
}

/// The environment variable with the token of a server.
pub(super) fn variable(name: &str) -> String {
    format!("{}_TOKEN", name.to_ascii_uppercase().replace('-', "_"))
}

/// The name of the input with the token of a server.
pub(super) fn input_id(name: &str) -> String {
    format!("{}_token", name.replace('-', "_"))
}

/// A program with its arguments.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: String,
    pub(super) command: String,
    pub(super) arguments: Vec<String>,
}

/// A host that serves over HTTP.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) name: String,
    pub(super) url: Url,
    /// What stands for the token in the file, if the host wants one.
    pub(super) token: Option<String>,
}

impl Remote {
    /// The header with the token, as a member `headers`.
    fn add_headers(&self, entry: &mut Value) {
        if let (Some(token), Some(entry)) = (&self.token, entry.as_object_mut()) {
            entry.insert("headers".to_owned(), json!({"Authorization": format!("Bearer {token}")}));
        }
    }

    fn with_headers(&self, mut entry: Value) -> Value {
        self.add_headers(&mut entry);
        entry
    }
}

/// All of them, in the order of the page.
pub(super) static KNOWN: [KnownClient; 10] = [
    KnownClient {
        word: "claude-desktop",
        title: "Claude Desktop",
        user_file: Some(UserFile::Config("Claude/claude_desktop_config.json")),
        project_file: None,
        syntax: Syntax::Json,
        section: "mcpServers",
        token: TokenSource::Plain,
        tool_name_chars_max: Some(64),
        stdio: |program| json!({"command": program.command, "args": program.arguments}),
        http: over_mcp_remote,
        then: "Quit Claude Desktop and start it again.",
    },
    KnownClient {
        word: "claude-code",
        title: "Claude Code",
        user_file: None,
        project_file: Some(".mcp.json"),
        syntax: Syntax::Json,
        section: "mcpServers",
        token: TokenSource::Variable("${", "}"),
        tool_name_chars_max: Some(128),
        stdio: typed_stdio,
        http: typed_http,
        then: "Start Claude Code in this folder; it asks once whether it may use the servers of the project.",
    },
    KnownClient {
        word: "vscode",
        title: "VS Code",
        user_file: Some(UserFile::Config("Code/User/mcp.json")),
        project_file: Some(".vscode/mcp.json"),
        syntax: Syntax::JsonWithComments,
        section: "servers",
        token: TokenSource::Input,
        tool_name_chars_max: None,
        stdio: typed_stdio,
        http: typed_http,
        then: "Start the server with the command `MCP: List Servers`.",
    },
    KnownClient {
        word: "cursor",
        title: "Cursor",
        user_file: Some(UserFile::Home(".cursor/mcp.json")),
        project_file: Some(".cursor/mcp.json"),
        syntax: Syntax::JsonWithComments,
        section: "mcpServers",
        token: TokenSource::Variable("${env:", "}"),
        tool_name_chars_max: Some(128),
        stdio: |program| json!({"command": program.command, "args": program.arguments}),
        http: |remote| remote.with_headers(json!({"url": remote.url.as_str()})),
        then: "Switch the server on in Cursor's settings, under MCP.",
    },
    KnownClient {
        word: "windsurf",
        title: "Windsurf",
        user_file: Some(UserFile::Home(".codeium/windsurf/mcp_config.json")),
        project_file: None,
        syntax: Syntax::Json,
        section: "mcpServers",
        token: TokenSource::Variable("${env:", "}"),
        tool_name_chars_max: None,
        stdio: |program| json!({"command": program.command, "args": program.arguments}),
        http: |remote| remote.with_headers(json!({"serverUrl": remote.url.as_str()})),
        then: "Refresh the list of MCP servers in Cascade.",
    },
    KnownClient {
        word: "zed",
        title: "Zed",
        user_file: Some(UserFile::Config("zed/settings.json")),
        project_file: Some(".zed/settings.json"),
        syntax: Syntax::JsonWithComments,
        section: "context_servers",
        token: TokenSource::Plain,
        tool_name_chars_max: None,
        stdio: |program| json!({"command": program.command, "args": program.arguments, "env": {}}),
        http: |remote| remote.with_headers(json!({"url": remote.url.as_str()})),
        then: "Zed reads the file at once; the settings of its agent panel show the server.",
    },
    KnownClient {
        word: "goose",
        title: "Goose",
        user_file: Some(UserFile::Config("goose/config.yaml")),
        project_file: None,
        syntax: Syntax::Yaml,
        section: "extensions",
        token: TokenSource::VariableOrKeyring("${", "}"),
        tool_name_chars_max: None,
        stdio: |program| {
            json!({"enabled": true, "type": "stdio", "name": program.name, "description": DESCRIPTION,
                "cmd": program.command, "args": program.arguments, "timeout": GOOSE_TIMEOUT_S})
        },
        http: |remote| {
            let mut entry = json!({"enabled": true, "type": "streamable_http", "name": remote.name,
                "description": DESCRIPTION, "uri": remote.url.as_str(), "timeout": GOOSE_TIMEOUT_S});
            remote.add_headers(&mut entry);
            if let (Some(_), Some(entry)) = (&remote.token, entry.as_object_mut()) {
                entry.insert("env_keys".to_owned(), json!([variable(&remote.name)]));
            }
            entry
        },
        then: "Start a new session of Goose.",
    },
    KnownClient {
        word: "gemini-cli",
        title: "Gemini CLI",
        user_file: Some(UserFile::Home(".gemini/settings.json")),
        project_file: Some(".gemini/settings.json"),
        syntax: Syntax::JsonWithComments,
        section: "mcpServers",
        token: TokenSource::Variable("${", "}"),
        tool_name_chars_max: None,
        stdio: |program| json!({"command": program.command, "args": program.arguments}),
        http: |remote| remote.with_headers(json!({"httpUrl": remote.url.as_str()})),
        then: "Start Gemini CLI again; `/mcp` lists its servers.",
    },
    KnownClient {
        word: "codex",
        title: "Codex",
        user_file: Some(UserFile::Home(".codex/config.toml")),
        project_file: Some(".codex/config.toml"),
        syntax: Syntax::Toml,
        section: "mcp_servers",
        token: TokenSource::Variable("", ""),
        tool_name_chars_max: Some(128),
        stdio: |program| json!({"command": program.command, "args": program.arguments}),
        http: |remote| {
            let mut entry = json!({"url": remote.url.as_str()});
            if let (Some(token), Some(entry)) = (&remote.token, entry.as_object_mut()) {
                entry.insert("bearer_token_env_var".to_owned(), json!(token));
            }
            entry
        },
        then: "Start Codex again; `codex mcp list` lists its servers.",
    },
    KnownClient {
        word: "opencode",
        title: "opencode",
        user_file: Some(UserFile::Config("opencode/opencode.json")),
        project_file: Some("opencode.json"),
        syntax: Syntax::JsonWithComments,
        section: "mcp",
        token: TokenSource::Variable("{env:", "}"),
        tool_name_chars_max: None,
        stdio: |program| {
            let command: Vec<_> = std::iter::once(&program.command).chain(&program.arguments).collect();
            json!({"type": "local", "command": command, "enabled": true})
        },
        http: |remote| remote.with_headers(json!({"type": "remote", "url": remote.url.as_str(), "enabled": true})),
        then: "Start opencode again; `opencode mcp list` lists its servers.",
    },
];

/// What clients that ask for one show of a server.
const DESCRIPTION: &str = "Tools of the Bulkhead host";
/// How long Goose waits for a call.
const GOOSE_TIMEOUT_S: u32 = 300;

/// The client of this word.
pub(super) fn find(word: &str) -> Option<&'static KnownClient> {
    KNOWN.iter().find(|client| client.word == word)
}

fn typed_stdio(program: &Program) -> Value {
    json!({"type": "stdio", "command": program.command, "args": program.arguments})
}

fn typed_http(remote: &Remote) -> Value {
    remote.with_headers(json!({"type": "http", "url": remote.url.as_str()}))
}

/// Claude Desktop starts programs only: one of npm connects them to hosts over HTTP.
fn over_mcp_remote(remote: &Remote) -> Value {
    let mut arguments = vec!["-y".to_owned(), "mcp-remote".to_owned(), remote.url.to_string()];
    arguments.extend(["--transport", "http-only"].map(str::to_owned));
    if remote.url.scheme() == "http" && !is_this_machine(&remote.url) {
        arguments.push("--allow-http".to_owned());
    }
    let mut entry = Map::new();
    entry.insert("command".to_owned(), json!("npx"));
    let Some(token) = &remote.token else {
        entry.insert("args".to_owned(), json!(arguments));
        return Value::Object(entry);
    };
    // The header has no blank: some systems cut arguments there.
    arguments.extend(["--header".to_owned(), "Authorization:${BULKHEAD_AUTHORIZATION}".to_owned()]);
    entry.insert("args".to_owned(), json!(arguments));
    entry.insert("env".to_owned(), json!({"BULKHEAD_AUTHORIZATION": format!("Bearer {token}")}));
    Value::Object(entry)
}

fn is_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}
