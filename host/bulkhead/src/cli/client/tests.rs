use clap::Parser;
use serde_json::Value;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(subcommand)]
    command: ClientCommand,
}

fn parsed(words: &[&str]) -> Result<Box<AddArguments>, String> {
    let words = ["client", "add"].iter().chain(words);
    match Line::try_parse_from(words).map_err(|error| error.to_string())?.command {
        ClientCommand::Add(arguments) => Ok(arguments),
        ClientCommand::List { .. } => unreachable!(),
    }
}

/// A folder with a plugin and a token in it.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.wasm"), "").unwrap();
    std::fs::write(folder.path().join("token"), "s3cret\n").unwrap();
    folder
}

#[test]
fn every_client_takes_both_kinds_of_servers_into_a_new_file() {
    for client in &KNOWN {
        let folder = folder();
        let file = folder.path().join("deep/file");
        let plugin = folder.path().join("a.wasm");
        let file = file.to_str().unwrap();
        let plugin = plugin.to_str().unwrap();
        let token = folder.path().join("token");
        let common = [client.word, "--file", file, "--write"];
        let stdio = [&common[..], &["--plugin", plugin]].concat();
        let http = ["--name", "far", "--url", "https://mcp.example.com/mcp", "--token-file", token.to_str().unwrap()];
        for words in [stdio, [&common[..], &http].concat()] {
            add(&parsed(&words).unwrap()).unwrap_or_else(|error| panic!("{words:?}: {error:#}"));
        }
        let text = std::fs::read_to_string(file).unwrap();
        assert!(text.contains(plugin) && text.contains("https://mcp.example.com/mcp"), "{}: {text}", client.word);
        // Only those that know no other way hold it.
        assert_eq!(text.contains("s3cret"), client.token == TokenSource::Plain, "{}: {text}", client.word);
    }
}

#[test]
fn added_client_as_json_shows_text_only_where_it_is_not_written() {
    let client = find("zed").unwrap();
    let of = |text, backup| -> Value {
        let shown = added(client, Path::new("/home/a/settings.json"), "proposed", text, backup);
        serde_json::from_str(&shown).unwrap()
    };
    let proposed = of(Some("{}"), None);
    assert_eq!((&proposed["client"], &proposed["text"]), (&"zed".into(), &"{}".into()));
    assert_eq!((&proposed["file"], &proposed["backup"]), (&"/home/a/settings.json".into(), &Value::Null));
    let written = of(None, Some(Path::new("/home/a/settings.json.backup-1")));
    assert_eq!((&written["text"], &written["backup"]), (&Value::Null, &"/home/a/settings.json.backup-1".into()));
}

#[test]
fn file_that_others_can_read_takes_no_token() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = folder();
    let file = folder.path().join("settings.json");
    let token = folder.path().join("token");
    std::fs::write(&file, "{}").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let words = ["zed", "--file", file.to_str().unwrap(), "--write", "--url", "http://127.0.0.1:8808/mcp"];
    let with = [&words[..], &["--token-file", token.to_str().unwrap()]].concat();
    assert!(add(&parsed(&with).unwrap()).unwrap_err().to_string().contains("chmod 600"));
    let without_file = [&words[..], &["--token"]].concat();
    assert!(add(&parsed(&without_file).unwrap()).unwrap_err().to_string().contains("--token-file"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "{}");
    add(&parsed(&words).unwrap()).unwrap();
}

#[test]
fn file_that_cannot_be_parsed_is_named_and_left_alone() {
    let folder = folder();
    let file = folder.path().join("mcp.json");
    std::fs::write(&file, "{\"mcpServers\": ").unwrap();
    let words = ["cursor", "--file", file.to_str().unwrap(), "--write", "--url", "http://127.0.0.1:8808/mcp"];
    let error = format!("{:#}", add(&parsed(&words).unwrap()).unwrap_err());
    assert!(error.contains(file.to_str().unwrap()), "{error}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "{\"mcpServers\": ");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3, "there is no backup of what did not change");
}

#[test]
fn sources_are_named_from_the_root() {
    let sources = SourceArguments {
        config: Some("Cargo.toml".into()),
        data: Some("not-yet".into()),
        plugins: vec!["src/main.rs".into()],
        plugin_dirs: vec!["src".into()],
    };
    let program = own_program("bulkhead", &sources).unwrap();
    assert!(Path::new(&program.command).is_absolute());
    let here = std::env::current_dir().unwrap();
    let at = |path: &str| here.join(path).to_str().unwrap().to_owned();
    let config = at("Cargo.toml");
    let data = at("not-yet");
    let plugin = at("src/main.rs");
    let folder = at("src");
    let wanted = ["stdio", "--config", &config, "--data", &data, "--plugin", &plugin, "--plugins", &folder];
    assert_eq!(program.arguments, wanted);
    let missing = SourceArguments { config: Some("nothing.toml".into()), ..SourceArguments::default() };
    assert!(own_program("bulkhead", &missing).unwrap_err().to_string().contains("nothing.toml"));
    assert!(own_program("bulkhead", &SourceArguments::default()).is_err());
}

#[test]
fn wrong_words_are_refused_on_the_command_line() {
    let url = "https://mcp.example.com/mcp";
    for words in [
        &["nano", "--url", url][..],
        &["cursor", "--name", "a b", "--url", url],
        &["cursor", "--name", "1", "--url", url],
        &["cursor", "--url", "ftp://mcp.example.com"],
        &["cursor", "--url", "https://me:secret@mcp.example.com/mcp"],
        &["cursor", "--url", url, "--plugins", "."],
        &["cursor", "--url", url, "--replace"],
    ] {
        assert!(parsed(words).is_err(), "{words:?}");
    }
    // A program that the client starts asks for no token.
    assert!(add(&parsed(&["cursor", "--token", "--plugins", "."]).unwrap()).is_err());
}

#[test]
fn projects_have_files_of_their_own() {
    let path = |words: &[&str]| path_of(&parsed(words).unwrap());
    assert_eq!(path(&["vscode", "--project", "/p"]).unwrap(), Path::new("/p/.vscode/mcp.json"));
    assert!(path(&["windsurf", "--project", "/p"]).is_err());
    assert_eq!(path(&["claude-code"]).unwrap(), std::env::current_dir().unwrap().join(".mcp.json"));
}

#[test]
fn claude_desktop_reaches_http_through_a_program() {
    let client = find("claude-desktop").unwrap();
    let arguments = |url: &str| {
        let remote = Remote { name: "b".to_owned(), url: url.parse().unwrap(), token: None };
        (client.http)(&remote)["args"].clone()
    };
    let allows = |url: &str| arguments(url).as_array().unwrap().contains(&Value::from("--allow-http"));
    assert!(
        !allows("http://127.0.0.1:8808/mcp") && !allows("http://localhost/mcp") && !allows("https://a.example/mcp")
    );
    assert!(allows("http://10.0.0.7:8808/mcp"));
}

#[test]
fn page_shows_every_client_and_no_secret() {
    let page = markdown();
    for client in &KNOWN {
        assert!(page.contains(&format!("\n## {}\n", client.title)), "{}", client.title);
        assert!(page.contains(&token_words(client, "bulkhead")), "{}", client.title);
    }
    assert_eq!(page.matches("\n```\n").count(), 2 * KNOWN.len());
}

#[test]
fn client_is_told_of_configured_names_that_it_refuses() {
    let folder = folder();
    let config = folder.path().join("bulkhead.toml");
    let long = "x".repeat(100);
    let text =
        format!("[[plugin]]\nfile = 'a.wasm'\nname = 'crm'\nprefix = 'crm.'\n[plugin.tool.find]\nname = '{long}'\n");
    std::fs::write(&config, text).unwrap();
    let warned = |word: &str| {
        let words = [word, "--config", config.to_str().unwrap()];
        let arguments = parsed(&words).unwrap();
        refused_names(arguments.client, &arguments.sources)
    };
    let desktop = warned("claude-desktop");
    assert!(desktop.len() == 2 && desktop[0].contains("prefix = \"crm.\""), "{desktop:?}");
    assert!(desktop[1].contains("100 characters, and clients take 64"), "{desktop:?}");
    assert_eq!(warned("claude-code").len(), 1, "it takes 128 characters");
    assert_eq!(warned("opencode"), Vec::<String>::new(), "it makes names of its own");
}

#[test]
fn byte_order_mark_in_front_of_a_token_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    for (marks, token) in [(0, Some("s3cret")), (1, Some("s3cret")), (2, None)] {
        std::fs::write(&file, format!("{}s3cret\r\n", "\u{feff}".repeat(marks))).unwrap();
        assert_eq!(read_token(&file).ok().as_deref(), token, "{marks} marks");
    }
}
