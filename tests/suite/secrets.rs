//! Secrets of plugins, from the operator's pipe to the server that needs them, and nowhere else.

use std::process::Stdio;

use serde_json::{Value, json};
use tests::client::{Client, all_capabilities, text};
use tests::wait::{soon, until};
use tests::{Host, Setup, command};
use tokio::io::AsyncWriteExt as _;

use crate::egress::Web;

const KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
const NEW_KEY: &str = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=";
const VALUE: &str = "sk-the-marker/+=of-1";

/// A server that says back whatever it is sent, in its body and in a header, and redirects `/away?URL` there.
async fn echo() -> Web {
    Web::answering(|request| {
        let auth = request.lines().find_map(|line| line.strip_prefix("authorization: ")).unwrap_or_default();
        let path = request.split(' ').nth(1).unwrap_or_default();
        let (status, more) = match path.split_once("/away?") {
            Some((_, to)) => ("302 Found", format!("location: {to}#{auth}\r\n")),
            None => ("200 OK", String::new()),
        };
        let head = format!("HTTP/1.1 {status}\r\nx-auth: {auth}\r\n{more}content-length: {}\r\n\r\n", request.len());
        format!("{head}{request}").into_bytes()
    })
    .await
}

/// All that it was sent.
fn seen(echo: &Web) -> String {
    echo.asked().join("\n")
}

fn setup(echo: &Web) -> Setup {
    let grants = format!("[plugin.grants]\nhttp = [{:?}]\n", echo.origin);
    Setup::new()
        .config("[log]\nlevel = \"trace\"\n[audit]\nenabled = true\n")
        .plugin("probe", &grants)
        .plugin_as("other", "probe", &format!("prefix = \"other_\"\n{grants}"))
        .env("BULKHEAD_SECRET_KEY", KEY)
}

/// `bulkhead secret ...` with a value on stdin; what it printed and whether it worked.
async fn secret(setup: &Setup, arguments: &[&str], value: &str) -> (bool, String) {
    // Writes the configuration, and knows the environment.
    let as_the_host = setup.command("serve");
    let mut command = command::bulkhead();
    command.envs(as_the_host.as_std().get_envs().filter_map(|(key, value)| Some((key, value?))));
    command.arg("secret").args(arguments).arg("--config").arg(setup.path("bulkhead.toml"));
    let mut child = command
        .arg("--data")
        .arg(setup.data())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    // A command that needs no value may be over already.
    let _ = stdin.write_all(value.as_bytes()).await;
    drop(stdin);
    let output = soon("a command", child.wait_with_output()).await.expect("the command ends");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!said.contains("marker"), "{said}");
    (output.status.success(), said)
}

async fn set(setup: &Setup, name: &str, to: &str, more: &[&str]) {
    let arguments = [&["set", name, "--plugin", "probe", "--to", to], more].concat();
    let (done, said) = secret(setup, &arguments, &format!("{VALUE}\n")).await;
    assert!(done, "{said}");
}

async fn send(client: &Client, tool: &str, arguments: Value) -> Value {
    client.tool(tool, arguments).await.expect("a result")
}

/// Everything that the host wrote: its log, and every file of the data directory.
fn written(host: &Host) -> Vec<(String, Vec<u8>)> {
    let mut found = vec![("the log".to_owned(), host.log().into_bytes())];
    let mut folders = vec![host.setup.data()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.is_file() {
                found.push((entry.display().to_string(), std::fs::read(&entry).unwrap_or_default()));
            }
        }
    }
    found
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

#[tokio::test]
async fn server_gets_the_secret_and_guest_a_placeholder() {
    let echo = echo().await;
    let setup = setup(&echo).own_code();
    let host = setup.start().await;
    // While the host runs, over its socket.
    set(&setup, "KEY", &echo.origin, &["--in", "header", "--in", "query", "--in", "body"]).await;
    let (done, said) = secret(&setup, &["set", "KEY", "--plugin", "prbe", "--to", &echo.origin], VALUE).await;
    assert!(done && said.contains("no plugin prbe"), "it may come later: {said}");
    let client = Client::connect(&host).await;
    let body = "{\"key\": \"{{secret:KEY}}\"}";
    let arguments = json!({
        "method": "POST", "url": format!("{}/v1?key={{{{secret:KEY}}}}", echo.origin), "body": body,
        "headers": [["authorization", "Bearer {{secret:KEY}}"], ["content-type", "application/json"],
            ["content-length", body.len().to_string()]]
    });
    let answer = send(&client, "send", arguments.clone()).await;
    let seen = seen(&echo);
    assert!(seen.contains(&format!("authorization: Bearer {VALUE}\r\n")), "{seen}");
    assert!(seen.contains("?key=sk-the-marker%2F%2B%3Dof-1 "), "{seen}");
    assert!(seen.contains(&format!("{{\"key\": \"{VALUE}\"}}")), "{seen}");
    assert_eq!(seen.matches("content-length: 31").count(), 1, "{seen}");
    assert!(!answer.to_string().contains("marker"), "{answer}");
    let headers = &answer["structuredContent"]["headers"];
    let body = &answer["structuredContent"]["body"];
    assert!(headers.as_str().expect("text").contains("x-auth: Bearer {{secret:KEY}}"), "{answer}");
    let body = body.as_str().expect("text");
    assert_eq!(body.matches("{{secret:KEY}}").count(), 3, "{body}");

    let task = client.task("send", arguments).await;
    client.until_status(&task, "completed").await;
    let page = client.about("tasks/result", &task).await.expect("a result");
    assert!(!page.to_string().contains("marker") && page.to_string().contains("{{secret:KEY}}"));
    let (_, listed) = secret(&setup, &["list", "--json"], "").await;
    assert!(listed.contains("\"KEY\"") && listed.contains("\"body\""), "{listed}");
    for (place, bytes) in written(&host) {
        assert!(!holds(&bytes, "the-marker"), "{place} holds the value");
    }
    until("the audit log to have the command", async || {
        let files = written(&host);
        let mut audit = files.iter().filter(|(place, _)| place.contains("/audit/"));
        audit.any(|(_, bytes)| holds(bytes, "secret_set") && holds(bytes, "KEY")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn secret_is_bound_to_destination_plugin_place_and_tenant() {
    let (echo, elsewhere) = (echo().await, echo().await);
    let grants = format!("[plugin.grants]\nhttp = [{:?}, {:?}]\n", echo.origin, elsewhere.origin);
    let setup = Setup::new()
        .plugin("probe", &grants)
        .plugin_as("other", "probe", &format!("prefix = \"other_\"\n{grants}"))
        .env("BULKHEAD_SECRET_KEY", KEY);
    let alice = setup.token("alice", "acme").await;
    let bob = setup.token("bob", "globex").await;
    // Without a host, on the files.
    set(&setup, "KEY", &format!("{}/v1", echo.origin), &[]).await;
    set(&setup, "ACME", &echo.origin, &["--tenant", "acme"]).await;
    let host = setup.start().await;
    let alice = Client::connect_as(&host, Some(&alice), all_capabilities()).await;
    let bob = Client::connect_as(&host, Some(&bob), all_capabilities()).await;
    let asking = |origin: &str, path: &str, name: &str| json!({"url": format!("{origin}{path}"), "headers": [["authorization", format!("Bearer {{{{secret:{name}}}}}")]]});
    let good = send(&alice, "send", asking(&echo.origin, "/v1/users", "KEY")).await;
    assert_eq!(good["structuredContent"]["status"], 200, "{good}");
    assert_eq!(send(&alice, "send", asking(&echo.origin, "/", "ACME")).await["structuredContent"]["status"], 200);
    let asked = seen(&echo);
    for (client, tool, arguments) in [
        (&alice, "send", asking(&elsewhere.origin, "/v1", "KEY")),
        (&alice, "send", asking(&echo.origin, "/v2", "KEY")),
        (&alice, "send", asking(&echo.origin, "/v1/../v2", "KEY")),
        (&alice, "send", asking(&echo.origin, "/v1", "UNKNOWN")),
        (&alice, "other_send", asking(&echo.origin, "/v1", "KEY")),
        (&alice, "send", json!({"url": format!("{}/v1?k={{{{secret:KEY}}}}", echo.origin)})),
        (&bob, "send", asking(&echo.origin, "/", "ACME")),
    ] {
        let refused = send(client, tool, arguments.clone()).await;
        assert_eq!(refused["isError"], true, "{arguments}: {refused}");
        assert!(text(&refused).contains("HttpRequestDenied"), "{refused}");
    }
    assert_eq!((seen(&echo), seen(&elsewhere)), (asked, String::new()), "nothing of it went out");
    until("the log to name it", async || host.log().contains("secret KEY in the header").then_some(())).await;

    // A redirect names the placeholder, and whoever follows it with the placeholder is refused elsewhere.
    let away = send(&alice, "send", asking(&echo.origin, &format!("/v1/away?{}", elsewhere.origin), "KEY")).await;
    assert_eq!(away["structuredContent"]["status"], 302, "{away}");
    assert!(away.to_string().contains(&format!("location: {}#Bearer {{{{secret:KEY}}}}", elsewhere.origin)), "{away}");
    assert!(!away.to_string().contains("marker"));
    assert_eq!(seen(&elsewhere), "");

    assert!(secret(&setup, &["remove", "KEY", "--plugin", "probe"], "").await.0);
    let refused = send(&alice, "send", asking(&echo.origin, "/v1", "KEY")).await;
    assert_eq!(refused["isError"], true, "{refused}");
    let (done, said) = secret(&setup, &["remove", "KEY", "--plugin", "probe"], "").await;
    assert!(!done && said.contains("there is no secret KEY"), "{said}");
}

#[tokio::test]
async fn secret_key_rotates_and_wrong_key_stops_the_start() {
    let echo = echo().await;
    let setup = Setup::new().plugin("probe", &format!("[plugin.grants]\nhttp = [{:?}]\n", echo.origin));
    let file = setup.path("secrets.key");
    let keys = |text: &str| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::write(&file, text).expect("a file");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("a file of one's own");
    };
    let without = setup.clone();
    let setup = setup.config(&format!("[secrets]\nkey_file = {file:?}\n"));
    let (done, said) = secret(&without, &["set", "KEY", "--plugin", "probe", "--to", &echo.origin], VALUE).await;
    assert!(!done && said.contains("[secrets] key_file"), "{said}");
    keys(KEY);
    set(&setup, "KEY", &echo.origin, &[]).await;
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    let asking = json!({"url": format!("{}/", echo.origin), "headers": [["x-key", "{{secret:KEY}}"]]});
    assert_eq!(send(&client, "send", asking.clone()).await["structuredContent"]["status"], 200);

    keys(NEW_KEY);
    let (done, said) = secret(&setup, &["rotate"], "").await;
    assert!(!done && said.contains("not among the keys"), "{said}");
    keys(&format!("{NEW_KEY}\n{KEY} # old\n"));
    let (done, said) = secret(&setup, &["rotate", "--json"], "").await;
    assert!(done && said.contains("\"rotated\":1"), "{said}");
    keys(NEW_KEY);
    let setup = host.kill().await;
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    assert_eq!(send(&client, "send", asking).await["structuredContent"]["status"], 200);
    assert_eq!(seen(&echo).matches(&format!("x-key: {VALUE}")).count(), 2);
    let setup = host.kill().await;

    keys(KEY);
    let (_, said) = setup.refused().await;
    assert!(said.contains("secret KEY of plugin probe cannot be opened") && said.contains("not among"), "{said}");
    let (_, said) = without.refused().await;
    assert!(said.contains("secret KEY of plugin probe is sealed, and there is no key"), "{said}");
    keys(NEW_KEY);
    setup.start().await;
}

#[tokio::test]
async fn secret_value_is_never_a_command_argument() {
    let echo = echo().await;
    let setup = setup(&echo);
    let arguments = ["set", "KEY", "--plugin", "probe", "--to", &echo.origin];
    for (value, why) in
        [("short", "8 to 2048 bytes"), ("two lines\nof text", "one line"), (&"x".repeat(3_000), "bytes")]
    {
        let (done, said) = secret(&setup, &arguments, value).await;
        assert!(!done && said.contains(why), "{said}");
    }
    let (done, said) = secret(&setup, &[&arguments[..], &["long-enough-value"]].concat(), "").await;
    assert!(!done && said.contains("unexpected argument"), "{said}");
    let (done, said) = secret(&setup, &["set", "K", "--plugin", "probe", "--to", "ftp://x.example"], VALUE).await;
    assert!(!done && said.contains("is not a destination"), "{said}");
}
