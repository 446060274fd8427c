//! The page of the documentation about clients, made from the table.

use std::fmt::Write as _;

use url::Url;

use super::entry::{Entry, Server};
use super::known::{KNOWN, KnownClient, Program, Remote};
use super::{PLACEHOLDER, token_words};

const NAME: &str = "bulkhead";

const INTRODUCTION: &str = "\
# Client setup

For users of MCP clients. This page has the configuration that each client needs. `cargo xtask docs` writes it from the program; do not
edit it.

`bulkhead client add CLIENT` prints it with your paths. With `--write` it goes into the client's file: everything else there stays,
and a copy of the file is kept beside it. `bulkhead client list` shows where the files are.

A client on the same machine starts `bulkhead stdio` itself. All clients that name the same `--data` share one host. A client that
connects over HTTP uses a host that runs; where the host wants a token, make one with `bulkhead token create`.

Paths are those of Linux. `--file` names another one.
";

/// The page.
pub(crate) fn markdown() -> String {
    let mut page = String::from(INTRODUCTION);
    page.push_str("\n| client | word | file of the user | file of a project |\n| --- | --- | --- | --- |\n");
    for client in &KNOWN {
        let user = client.user_file.map_or_else(|| "-".to_owned(), |file| format!("`{file}`"));
        let project = client.project_file.map_or_else(|| "-".to_owned(), |file| format!("`{file}`"));
        // Writing to a String cannot fail.
        let _ = writeln!(page, "| {} | `{}` | {user} | {project} |", client.title, client.word);
    }
    for client in &KNOWN {
        describe(&mut page, client);
    }
    page
}

fn describe(page: &mut String, client: &KnownClient) {
    let program = Program {
        name: NAME.to_owned(),
        command: "/usr/local/bin/bulkhead".to_owned(),
        arguments: ["stdio", "--config", "/home/me/bulkhead.toml"].map(str::to_owned).to_vec(),
    };
    let _ = writeln!(page, "\n## {}\n\n`bulkhead client add {} --config bulkhead.toml`:\n", client.title, client.word);
    show(page, client, &Server::Stdio(program));
    // A constant that parses.
    let Ok(url) = Url::parse("https://mcp.example.com/mcp") else { return };
    let token = Some(client.token.text(NAME, PLACEHOLDER));
    let _ = writeln!(page, "\n`bulkhead client add {} --url {url} --token`:\n", client.word);
    show(page, client, &Server::Http(Remote { name: NAME.to_owned(), url, token }));
    let _ = writeln!(page, "\n{} {}", token_words(client, NAME), client.then);
}

fn show(page: &mut String, client: &KnownClient, server: &Server) {
    // What cannot be written shows as the reason: a test looks for it.
    let text = Entry::new(client, server).document(client.syntax).unwrap_or_else(|error| format!("{error:#}\n"));
    let _ = write!(page, "```{}\n{text}```\n", client.syntax.fence());
}
