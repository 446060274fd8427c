//! `bulkhead client`: tells MCP clients of a host.
//!
//! Owns what a client's configuration must say. Must not start a host or connect to one. Invariant: without `--write`
//! nothing is written, and a token is never printed.

mod entry;
mod file;
mod known;
mod merge;
mod page;

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use bulkhead_assembly::sources;
use bulkhead_config::refused_by_clients;
use bulkhead_console::print_line;
use bulkhead_console::table::Layout;
use bulkhead_domain::without_byte_order_mark;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
pub(super) use page::markdown;
use serde_json::json;
use url::Url;

use super::source_arguments::SourceArguments;
use entry::{Entry, Server};
use file::ClientFile;
use known::{KNOWN, KnownClient, Program, Remote, TokenSource, UserFile, find, variable};
use merge::{IfThere, merge};

/// What stands for a token that is not said.
const PLACEHOLDER: &str = "TOKEN";
/// A token is a line.
const TOKEN_BYTES_MAX: u64 = 16 * 1024;

#[derive(Debug, Subcommand)]
pub(crate) enum ClientCommand {
    /// Print the configuration with which a client uses this program or a host, or write it into the client's file
    #[command(after_long_help = ADD_HELP)]
    Add(Box<AddArguments>),
    /// List the clients that are known, and where their files are
    List {
        /// One JSON value instead of text
        #[arg(long)]
        json: bool,
    },
}

const ADD_HELP: &str = "Without --url the client starts `bulkhead stdio` with --config, --data, --plugin and --plugins.\n\n\
    Examples:\n  \
    bulkhead client add claude-desktop --plugins target/plugins\n  \
    bulkhead client add vscode --config bulkhead.toml --project . --write\n  \
    bulkhead client add cursor --url https://mcp.example.com/mcp --token";

/// What to tell which client.
#[derive(Args, Debug)]
pub(crate) struct AddArguments {
    /// The client
    #[arg(value_name = "CLIENT", value_parser = known_client())]
    client: &'static KnownClient,
    /// What the client calls the server
    #[arg(long, value_name = "NAME", default_value = "bulkhead", value_parser = server_name)]
    name: String,
    #[command(flatten)]
    sources: SourceArguments,
    /// The client uses a host that serves there, as `bulkhead serve` prints it; of its configuration, names of tools
    /// that the client would refuse are told
    // Not `config`: the environment may name one, which no one has written on this line.
    #[arg(long, value_name = "URL", value_parser = host_url, conflicts_with_all = ["data", "plugins", "plugin_dirs"])]
    url: Option<Url>,
    /// The host wants a token; the client reads it from a variable, or asks for it, wherever it can
    #[arg(long)]
    token: bool,
    /// The same, with the file that holds the token, for clients that know no other way than to keep it in their own
    /// file
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// For the project in this folder alone
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    /// The client's file, if it is elsewhere
    #[arg(long, value_name = "FILE", conflicts_with = "project")]
    file: Option<PathBuf>,
    /// Write it into the client's file; a copy of what the file was stays beside it
    #[arg(long)]
    write: bool,
    /// Replace another server of this name
    #[arg(long, requires = "write")]
    replace: bool,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

fn known_client() -> impl TypedValueParser<Value = &'static KnownClient> {
    PossibleValuesParser::new(KNOWN.iter().map(|client| client.word))
        .try_map(|word| find(&word).ok_or_else(|| format!("there is no client {word}")))
}

/// Names that are the same in JSON, YAML and TOML without quotes, and in names of variables.
fn server_name(text: &str) -> Result<String, String> {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let begins = text.starts_with(|first: char| first.is_ascii_alphabetic());
    if begins && text.len() <= 64 && text.bytes().all(is_fine) {
        return Ok(text.to_owned());
    }
    Err("expected a letter and up to 63 letters, digits, `-` or `_`".to_owned())
}

fn host_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("expected http://HOST[:PORT]/mcp or https://HOST[:PORT]/mcp".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it must hold no password: use --token".to_owned());
    }
    Ok(url)
}

pub(super) fn run(command: ClientCommand) -> anyhow::Result<ExitCode> {
    match command {
        ClientCommand::Add(arguments) => add(&arguments)?,
        ClientCommand::List { json } => list(json)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn add(arguments: &AddArguments) -> anyhow::Result<()> {
    let AddArguments { client, name, .. } = arguments;
    let wants_token = arguments.token || arguments.token_file.is_some();
    ensure!(arguments.url.is_some() || !wants_token, "a token is for a host with --url: `bulkhead stdio` wants none");
    let token = match &arguments.token_file {
        // Nothing but a file that is written holds it.
        Some(file) if client.token == TokenSource::Plain && arguments.write => Some(read_token(file)?),
        Some(file) => {
            read_token(file)?;
            None
        }
        None => None,
    };
    let server = match &arguments.url {
        Some(url) => {
            let text = wants_token.then(|| client.token.text(name, token.as_deref().unwrap_or(PLACEHOLDER)));
            Server::Http(Remote { name: name.clone(), url: url.clone(), token: text })
        }
        None => Server::Stdio(own_program(name, &arguments.sources)?),
    };
    for warning in refused_names(client, &arguments.sources) {
        say(format_args!("warning for {}: {warning}", client.title));
    }
    let entry = Entry::new(client, &server);
    let path = path_of(arguments)?;
    if !arguments.write {
        let file = path.display();
        say(format_args!("add this to {file}, or let `--write` do it"));
        if wants_token {
            say(token_words(client, name));
        }
        let document = entry.document(client.syntax)?;
        print_line(if arguments.json {
            added(client, &path, "proposed", Some(document.trim_end()), None)
        } else {
            document.trim_end().to_owned()
        });
        return Ok(());
    }
    if wants_token && client.token == TokenSource::Plain && token.is_none() {
        bail!(
            "name the token with --token-file: {} knows no other way than to keep it in {}",
            client.title,
            path.display()
        );
    }
    write(arguments, &entry, &path, token.is_some())?;
    if wants_token {
        say(token_words(client, name));
    }
    say(client.then);
    Ok(())
}

fn write(arguments: &AddArguments, entry: &Entry, path: &Path, holds_token: bool) -> anyhow::Result<()> {
    let file = ClientFile::open(path)?;
    let path = file.path().to_owned();
    if holds_token && file.is_readable_by_others() {
        bail!("other users can read {0}, and it would hold the token: run `chmod 600 {0}` first", path.display());
    }
    let if_there = if arguments.replace { IfThere::Replace } else { IfThere::Refuse };
    let merged = merge(arguments.client.syntax, file.text(), entry, if_there).with_context(|| {
        format!("{} is left as it is; the command without --write prints the text to add. Why", path.display())
    })?;
    let json = |state, backup| print_line(added(arguments.client, &path, state, None, backup));
    let Some(text) = merged else {
        if arguments.json {
            json("present", None);
        } else {
            print_line(format_args!("{} has it already", path.display()));
        }
        return Ok(());
    };
    let backup = file.replace(&text)?;
    if arguments.json {
        json("written", backup.as_deref());
        return Ok(());
    }
    print_line(format_args!("wrote {}", path.display()));
    if let Some(backup) = backup {
        print_line(format_args!("what it was is in {}", backup.display()));
    }
    Ok(())
}

/// What was done about a client's file. The text is shown only where it is not written: what is written may hold a
/// token.
fn added(client: &KnownClient, file: &Path, state: &str, text: Option<&str>, backup: Option<&Path>) -> String {
    json!({ "client": client.word, "file": file, "state": state, "text": text, "backup": backup }).to_string()
}

/// What the user has to know of the token.
fn token_words(client: &KnownClient, name: &str) -> String {
    let title = client.title;
    let variable = variable(name);
    match client.token {
        TokenSource::Input => format!("{title} asks for the token when it starts the server, and keeps it encrypted."),
        TokenSource::Variable(..) => {
            format!(
                "{title} reads the token from the environment variable {variable}: set it where {title} is started."
            )
        }
        TokenSource::VariableOrKeyring(..) => format!(
            "{title} reads the token from the environment variable {variable}, or from its keyring under that name."
        ),
        TokenSource::Plain => {
            format!("{title} knows no other way than to keep the token in this file, where {PLACEHOLDER} stands.")
        }
    }
}

/// The names of tools in the configuration that the client refuses. What is wrong with the configuration otherwise is
/// said when it is used.
fn refused_names(client: &KnownClient, sources: &SourceArguments) -> Vec<String> {
    let Some(chars_max) = client.tool_name_chars_max.filter(|_| sources.config.is_some()) else { return Vec::new() };
    sources::load(sources.config.as_deref(), &sources.flags())
        .map_or_else(|_| Vec::new(), |config| refused_by_clients(&config.plugins, chars_max))
}

/// `bulkhead stdio` with everything named from the root: clients start it in folders of their own.
fn own_program(name: &str, sources: &SourceArguments) -> anyhow::Result<Program> {
    let SourceArguments { config, data, plugins, plugin_dirs } = sources;
    ensure!(
        config.is_some() || data.is_some() || !plugins.is_empty() || !plugin_dirs.is_empty(),
        "say what the client is to use: --config, --data, --plugin, --plugins, or --url of a host that serves"
    );
    let program = std::env::current_exe().context("this program has no path")?;
    let mut arguments = vec!["stdio".to_owned()];
    let named = config.iter().map(|path| ("--config", path)).chain(data.iter().map(|path| ("--data", path)));
    let named = named.chain(plugins.iter().map(|path| ("--plugin", path)));
    for (flag, path) in named.chain(plugin_dirs.iter().map(|path| ("--plugins", path))) {
        // A data directory may be made later.
        let absolute = match std::fs::canonicalize(path) {
            Ok(absolute) => absolute,
            Err(_) if flag == "--data" => std::path::absolute(path)?,
            Err(error) => return Err(error).with_context(|| format!("{flag} {}", path.display())),
        };
        arguments.extend([flag.to_owned(), text_of(&absolute)?]);
    }
    Ok(Program { name: name.to_owned(), command: text_of(&program)?, arguments })
}

fn text_of(path: &Path) -> anyhow::Result<String> {
    let text = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
    Ok(text.to_owned())
}

/// Where the client's file is.
fn path_of(arguments: &AddArguments) -> anyhow::Result<PathBuf> {
    let AddArguments { client, project, file, .. } = arguments;
    if let Some(file) = file {
        return Ok(std::path::absolute(file)?);
    }
    match (project, client.project_file, client.user_file) {
        (Some(project), Some(path), _) => Ok(std::path::absolute(project)?.join(path)),
        (Some(_), None, _) => bail!("{} has no file for projects: leave --project out", client.title),
        (None, _, Some(path)) => user_path(path).context("there is no home directory: name the file with --file"),
        (None, path, None) => Ok(std::env::current_dir()?.join(path.unwrap_or_default())),
    }
}

fn user_path(file: UserFile) -> Option<PathBuf> {
    let absolute = |name: &str| sources::variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    match file {
        UserFile::Home(path) => Some(absolute("HOME")?.join(path)),
        UserFile::Config(path) => {
            let folder = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
            Some(folder.join(path))
        }
    }
}

/// The token in a file: one line of visible characters.
fn read_token(path: &Path) -> anyhow::Result<String> {
    let cannot = || format!("--token-file {}", path.display());
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(TOKEN_BYTES_MAX).read_to_string(&mut text))
        .with_context(cannot)?;
    let token = without_byte_order_mark(&text).trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(anyhow::anyhow!("expected one token and nothing else").context(cannot()));
    }
    Ok(token.to_owned())
}

fn list(as_json: bool) -> anyhow::Result<()> {
    let files = KNOWN.iter().map(|client| (client, client.user_file.and_then(user_path)));
    if as_json {
        let views: Vec<_> = files
            .map(|(client, path)| {
                json!({"client": client.word, "title": client.title, "file": path,
                    "exists": path.as_ref().is_some_and(|path| path.exists()), "projectFile": client.project_file})
            })
            .collect();
        print_line(serde_json::to_string_pretty(&views)?);
        return Ok(());
    }
    let rows: Vec<_> = files
        .map(|(client, path)| {
            let exists = if path.as_ref().is_some_and(|path| path.exists()) { "yes" } else { "no" };
            let path = path.map_or_else(|| "-".to_owned(), |path| path.display().to_string());
            vec![client.word.to_owned(), exists.to_owned(), client.project_file.unwrap_or("-").to_owned(), path]
        })
        .collect();
    print_line(Layout::of_stdout(false).table(&["CLIENT", "EXISTS", "IN A PROJECT", "FILE"], &rows));
    Ok(())
}

/// A line for a person that is no part of the text to add.
fn say(text: impl std::fmt::Display) {
    // If nobody reads stderr, nobody can be told.
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[cfg(test)]
mod tests;
