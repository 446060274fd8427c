//! Bad input of every kind: a clear answer, and nothing is lost.

use bulkhead_domain::task::Era;
use reqwest::Method;
use serde_json::{Value, json};
use tests::client::{Client, text};
use tests::small_disk::SmallDisk;
use tests::{Host, Setup, command};

use crate::skills::with_skill;

async fn host() -> Host {
    Setup::with(&["text"]).start().await
}

async fn still_serves(client: &Client) {
    assert_eq!(text(&client.tool("echo", json!({"text": "ok"})).await.expect("an echo")), "ok");
}

#[tokio::test]
async fn malformed_messages_are_refused_with_their_code() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let params = format!(r#"{{"name":"echo","arguments":{{"text":{deep}}}}}"#);
    let deep_call = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
    let rows: [(&str, i64); 14] = [
        ("", -32700),
        ("{", -32700),
        ("nonsense", -32700),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"} x", -32700),
        ("\u{feff}", -32700),
        ("[]", -32600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600),
        ("7", -32600),
        (r#"{"id":1,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, -32600),
    ];
    for (body, code) in rows {
        let mut reply = client.post(body, None).await;
        assert_eq!(reply.status.as_u16(), 400, "{body}: {}", reply.text);
        let message = reply.next().await.unwrap_or_else(|| panic!("{body}: an error in the body"));
        assert_eq!(message["error"]["code"], code, "{body}: {message}");
        assert!(message.get("id").is_none_or(|id| !id.is_null()), "an id of null is against the schema: {message}");
    }
    let mut reply = client.post(deep_call, None).await;
    let message = reply.next().await.expect("an answer");
    assert!(message.get("error").is_some() || message["result"]["isError"] == true, "{message}");
    let reply = client
        .exchange(
            client
                .request(Method::POST)
                .header("content-type", "application/json")
                .header("accept", "application/json, text/event-stream")
                .body(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"p\xff\"}".to_vec()),
        )
        .await;
    assert_eq!(reply.status.as_u16(), 400, "no UTF-8: {}", reply.text);
    still_serves(&client).await;
}

#[tokio::test]
async fn params_of_the_wrong_type_are_refused_for_every_method() {
    // Methods that no plugin offers anything for do not exist.
    let setup = Setup::with(&["text", "conformance"]);
    let skilled = with_skill(&setup, "skilled.wasm", "Mix them.").await;
    let host = setup.config(&format!("[[plugin]]\nfile = {skilled:?}\n")).start().await;
    let client = Client::connect(&host).await;
    for method in bulkhead_protocol::method_names(Era::Legacy) {
        for params in ["[1]", "\"text\"", "7"] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
            let mut reply = client.post(body, None).await;
            let message = reply.next().await.expect("an answer");
            if method == "ping" && message.get("result").is_some() {
                continue;
            }
            let code = message["error"]["code"].as_i64();
            assert!(matches!(code, Some(-32602 | -32600)), "{method} {params}: {message}");
        }
    }
    still_serves(&client).await;
}

#[tokio::test]
async fn an_oversized_body_is_refused_without_being_read() {
    let host = Setup::with(&["text"])
        .config("[server]\nbody_bytes_max = 65536\n[call]\narguments_bytes = 65536")
        .start()
        .await;
    let client = Client::connect(&host).await;
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "echo", "arguments": {"text": "x".repeat(100_000)}}});
    let reply = client.post(body.to_string(), None).await;
    assert_eq!(reply.status.as_u16(), 413, "{}", reply.text);
    still_serves(&client).await;
}

#[tokio::test]
async fn an_oversized_header_is_refused() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let request = client.request(Method::POST).header("x-long", "x".repeat(100_000)).body("{}");
    match request.send().await {
        Ok(reply) => assert!(reply.status().is_client_error(), "{}", reply.status()),
        Err(error) => assert!(!error.is_timeout(), "{error}"),
    }
    still_serves(&client).await;
}

#[tokio::test]
async fn half_sent_request_times_out() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let host = Setup::with(&["text"]).config("[server]\nheader_read_ms_max = 300").start().await;
    let address = host.url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/mcp")).expect("an address");
    let mut connection = tokio::net::TcpStream::connect(address).await.expect("a connection");
    connection.write_all(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\n").await.expect("half a request");
    let mut rest = Vec::new();
    tests::wait::soon("the host to hang up", connection.read_to_end(&mut rest)).await.ok();
    still_serves(&Client::connect(&host).await).await;
}

#[tokio::test]
async fn invalid_component_does_not_stop_other_plugins() {
    let setup = Setup::with(&["text"]);
    let folder = setup.path("components");
    std::fs::create_dir(&folder).expect("a folder");
    let good = std::fs::read(tests::place::component("primes")).expect("a component");
    std::fs::write(folder.join("primes.wasm"), &good).expect("a file");
    std::fs::write(folder.join("truncated.wasm"), &good[..good.len() / 2]).expect("a file");
    std::fs::write(folder.join("empty.wasm"), b"").expect("a file");
    std::fs::write(folder.join("text_file.wasm"), b"this is no wasm").expect("a file");
    std::fs::write(folder.join("core_module.wasm"), b"\0asm\x01\0\0\0").expect("a file");
    std::fs::write(folder.join("other_world.wasm"), b"\0asm\x0d\0\x01\0").expect("a file");
    std::fs::write(folder.join("README.md"), b"not a component, and not meant as one").expect("a file");
    let host = setup.argument("--plugins").argument(folder.display().to_string()).start().await;
    let client = Client::connect(&host).await;
    let page = client.call("tools/list", json!({})).await.expect("a list");
    let names: Vec<_> = page["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["count_primes", "diff", "echo", "word_count"]);
    let log = host.log();
    for name in ["truncated", "empty", "text_file", "core_module", "other_world"] {
        assert!(log.contains(name), "the log does not say what is wrong with {name}:\n{log}");
    }
}

#[tokio::test]
async fn vanished_plugin_directory_keeps_running_plugins() {
    let setup = Setup::with(&["text"]);
    let folder = setup.path("components");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::copy(tests::place::component("primes"), folder.join("primes.wasm")).expect("a copy");
    let setup = setup.argument("--plugins").argument(folder.display().to_string());
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    std::fs::remove_dir_all(&folder).expect("it goes");
    let id = client.task("count_primes", json!({"below": 100})).await;
    client.until_status(&id, "completed").await;
    host.terminate().await;
    let (_, said) = setup.refused().await;
    assert!(said.contains("components"), "a host that is told to look there says that it is gone: {said}");
}

#[tokio::test]
async fn port_in_use_is_reported() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let setup = Setup::with(&["text"]);
    let mut serve = setup.command("serve");
    let output = command::output(&mut serve, &["--listen", &address], None).await;
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(&address), "it names the address: {said}");
}

#[tokio::test]
async fn data_directory_in_use_is_reported_and_untouched() {
    let setup = Setup::with(&["primes"]);
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    let (_, said) = setup.refused().await;
    assert!(said.contains("in use") || said.contains("another"), "it says why: {said}");
    let id = client.task("count_primes", json!({"below": 10})).await;
    client.until_status(&id, "completed").await;
}

#[tokio::test]
async fn corrupt_store_is_refused_and_never_recreated() {
    let setup = Setup::with(&["primes"]);
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    for _ in 0..20 {
        let id = client.task("count_primes", json!({"below": 1000})).await;
        client.until_status(&id, "completed").await;
    }
    host.terminate().await;
    let database = largest_file(&setup.data(), "db");
    let healthy = std::fs::read(&database).expect("the database");
    let damages: [(&str, Vec<u8>); 2] =
        [("truncated", Vec::new()), ("flipped", healthy.iter().map(|byte| byte ^ 0x5A).collect())];
    for (what, damaged) in damages {
        std::fs::write(&database, &damaged).expect("the damage");
        let (_, said) = setup.refused().await;
        assert!(said.contains("bulkhead store"), "{what}: it says what to do: {said}");
        assert_eq!(std::fs::read(&database).expect("the database"), damaged, "{what}: the damaged file is evidence");
    }
    std::fs::write(&database, &healthy).expect("the repair");
    let host = setup.start().await;
    assert_eq!(Client::connect(&host).await.tasks().await.len(), 20, "nothing was lost");
}

/// The engine's main file: the largest one called `name` below the folder.
fn largest_file(folder: &std::path::Path, name: &str) -> std::path::PathBuf {
    fn walk(folder: &std::path::Path, name: &str, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(&path, name, found);
            } else if path.file_name().is_some_and(|file| file == name) {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(folder, name, &mut found);
    let size = |path: &std::path::PathBuf| path.metadata().map_or(0, |metadata| metadata.len());
    found.into_iter().max_by_key(size).expect("there is a database file")
}

#[tokio::test]
async fn full_disk_stops_writes_only_until_space_returns() {
    let setup = Setup::with(&["primes"]).own_code();
    let Some(disk) = SmallDisk::mount(setup.data(), 160) else { return };
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    let done = client.task("count_primes", json!({"below": 1000})).await;
    client.until_status(&done, "completed").await;
    let result = client.about("tasks/result", &done).await.expect("a result");

    disk.fill();
    let refused = tests::wait::until("writes to be refused", async || {
        client.create("count_primes", json!({"below": 10})).await.err()
    })
    .await;
    assert_eq!(refused.code, -32603, "{refused:?}");
    assert_eq!(client.about("tasks/result", &done).await.expect("reads go on"), result);
    let ready = reqwest::get(host.address("/readyz")).await.expect("an answer");
    assert_eq!(ready.status().as_u16(), 503, "it is not ready for writes");
    let why: Value = ready.json().await.expect("JSON");
    assert_eq!(why, json!({"status": "unready", "reason": "the store is read-only"}), "a stranger learns no path");
    assert_eq!(reqwest::get(host.address("/healthz")).await.expect("an answer").status().as_u16(), 200);

    disk.make_room();
    let again = tests::wait::until("writes to be taken again", async || {
        client.create("count_primes", json!({"below": 10})).await.ok()
    })
    .await;
    client.until_status(again["taskId"].as_str().expect("an id"), "completed").await;
    let setup = host.kill().await;
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    assert_eq!(client.about("tasks/result", &done).await.expect("it survived"), result);
    drop(host);
}

#[tokio::test]
async fn wrong_config_is_refused_by_key_name() {
    let rows = [
        ("[limits]\nttl_ms_maximum = 5", "ttl_ms_maximum"),
        ("[limits]\nttl_ms_max = \"long\"", "ttl_ms_max"),
        ("[limits]\nttl_ms_max = 99999999999", "ttl_ms_max"),
        ("[limits]\nttl_ms_default = 1000\nttl_ms_max = 500", "ttl_ms"),
        ("[nonsense]\na = 1", "nonsense"),
        ("[limits", "bulkhead.toml"),
        ("[log]\nlevel = \"loud\"", "level"),
    ];
    for (config, name) in rows {
        let setup = Setup::with(&["text"]).config(config);
        let (code, said) = setup.refused().await;
        assert!(said.contains(name), "{config}: {said}");
        assert_eq!(code, Some(2), "{config}: {said}");
    }
    let (_, said) = Setup::with(&["text"]).env("BULKHEAD_LIMITS_TTL_MAX", "5").refused().await;
    assert!(said.contains("BULKHEAD_LIMITS_TTL_MAX"), "{said}");
    let (_, said) = Setup::with(&["text"]).env("BULKHEAD_LIMITS_TTL_MS_MAX", "five").refused().await;
    assert!(said.contains("BULKHEAD_LIMITS_TTL_MS_MAX"), "{said}");
}

#[tokio::test]
async fn config_environment_overrides_file_and_flag_overrides_both() {
    let setup = Setup::with(&["primes"]).config("[limits]\nttl_ms_default = 1000\nttl_ms_max = 60000");
    let host =
        setup.env("BULKHEAD_LIMITS_TTL_MS_DEFAULT", "7000").env("BULKHEAD_SERVER_LISTEN", "127.0.0.1:1").start().await;
    let client = Client::connect(&host).await;
    let task = client.create_with("count_primes", json!({"below": 10}), json!({})).await.expect("a task");
    assert_eq!(task["ttl"], Value::from(7000));
}

#[tokio::test]
async fn open_listen_address_needs_a_token() {
    let setup = Setup::with(&["text"]);
    let mut serve = setup.command("serve");
    let output = command::output(&mut serve, &["--listen", "0.0.0.0:0"], None).await;
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("token"), "it says what to do: {said}");
}
