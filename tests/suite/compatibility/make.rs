//! Makes the fixtures, with an older program and older components: `tests/fixtures/data-directory/README.md` says how.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sha2::Digest as _;
use tests::client::{Client, all_capabilities};
use tests::modern::Modern;
use tests::wait::until;
use tests::{Host, Setup, place};

use super::observe::{Observer, of_sep1686};
use super::{fixtures, unpacked};

/// The older program accepts this much as a time to live with the change that the README names: nothing expires in the fixtures.
const CENTURY_MS: &str = "3155760000000";
/// What the versions of `text` say about equal texts.
const TEXTS: [&str; 2] = ["The texts are the same.", "The texts are the SAME."];

#[tokio::test]
#[ignore = "makes the fixtures anew, with an older program"]
async fn data_directory_fixtures_are_made() {
    assert!(std::env::var_os("XTASK_HOST_BIN").is_some(), "name the older program in XTASK_HOST_BIN");
    for name in ["plain", "encrypted"] {
        make(name).await;
    }
}

#[tokio::test]
#[ignore = "records what an older program says about the fixtures"]
async fn answers_of_the_older_program_are_recorded() {
    assert!(std::env::var_os("XTASK_HOST_BIN").is_some(), "name the older program in XTASK_HOST_BIN");
    let [mut commands, mut served, mut rekeyed] = ["plain", "plain", "encrypted"].map(unpacked);
    tokio::join!(commands.commands(), served.serve(), async {
        rekeyed.rekey().await;
        rekeyed.serve().await;
    });
    record("plain-commands", &commands.said);
    record("plain-served", &served.said);
    record("encrypted-served", &rekeyed.said);
}

fn record(name: &str, said: &[Value]) {
    let lines: Vec<_> = said.iter().map(Value::to_string).collect();
    fs::write(fixtures().join(format!("{name}.json")), format!("[\n{}\n]\n", lines.join(",\n"))).expect("a fixture");
}

/// One folder: configuration, keys, components and the data directory of a host that was killed at work.
async fn make(name: &str) {
    let setup = with_files(name == "encrypted");
    let now = |format: &str| {
        let said = Command::new("date").args(["-u", format]).output().expect("date starts").stdout;
        String::from_utf8(said).expect("UTF-8").trim().to_owned()
    };
    let (begun, begun_ms) = (now("+%FT%TZ"), now("+%s000"));
    let second = digest(&fs::read(setup.path("plugins/text-2.wasm")).expect("a component"));
    let mut observer = Observer::new(setup, json!({}));
    observer.name("SECOND", &json!(second.clone()));
    let mut tokens = json!({});
    for (name, arguments) in [
        ("alice", "--requestor alice --tenant acme --name laptop"),
        ("bob", "--requestor bob --tenant globex"),
        ("carol", "--requestor carol --tenant acme --expires 36500d"),
        ("dora", "--requestor dora --tenant acme --scope words"),
        ("expired", "--requestor alice --tenant acme --expires 1s"),
        ("revoked", "--requestor alice --tenant acme --name lost"),
    ] {
        let created = observer.run(&format!("token create {arguments}")).await;
        tokens[name] = created["token"].clone();
        observer.name("ID", &created["id"]);
    }
    for line in [
        "token revoke $ID",
        "secret set KEY --plugin probe --to https://api.example.com --in header --in query",
        "secret set OTHER --plugin probe --to https://api.example.com/v1 --in body --tenant acme",
    ] {
        observer.run(line).await;
    }
    let host = observer.setup.start().await;
    for line in [
        "plugin add $DIR/plugins/text-1.wasm --name text",
        "plugin add $DIR/plugins/text-2.wasm --name text",
        "plugin rollback text",
        "plugin stage $DIR/plugins/text-2.wasm --name text",
        "plugin activate text@$SECOND --canary 10% --tenant globex --max-fault-percent 50 --window 1h",
    ] {
        observer.run(line).await;
    }
    let tasks = fill(&mut observer, &host, &tokens).await;
    // The time of a token's last use is written a few seconds behind.
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    let setup = host.kill().await;
    for entry in &observer.said {
        assert_eq!(entry["code"], 0, "{entry}");
    }
    let (made, made_ms) = (now("+%FT%T.999Z"), now("+%s999"));
    let ms = |text: String| text.parse::<u64>().expect("a number");
    let facts = json!({
        "begun": begun, "made": made, "begun_ms": ms(begun_ms), "made_ms": ms(made_ms), "tokens": tokens, "tasks": tasks,
        "second": second,
    });
    fs::write(setup.path("facts.json"), format!("{facts:#}\n")).expect("a file");
    pack(&setup, name);
}

fn digest(bytes: &[u8]) -> String {
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn with_files(encrypted: bool) -> Setup {
    let setup = Setup::new()
        .env("BULKHEAD_LIMITS_TTL_MS_MAX", CENTURY_MS)
        .env("BULKHEAD_LIMITS_TTL_MS_DEFAULT", CENTURY_MS)
        .env("BULKHEAD_LIMITS_TASKS_RUNNING_PER_REQUESTOR", "2")
        .env("BULKHEAD_CALL_PROMOTE_AFTER_MS", "0");
    for folder in ["plugins", "lists"] {
        fs::create_dir(setup.path(folder)).expect("a folder");
    }
    let write = |name: &str, bytes: &[u8]| fs::write(setup.path(name), bytes).expect("a file");
    for name in ["probe", "desk", "primes"] {
        write(&format!("plugins/{name}.wasm"), &fs::read(place::component(name)).expect("a component"));
    }
    for (version, text) in (1..).zip(TEXTS) {
        write(&format!("plugins/text-{version}.wasm"), &place::variant("text", TEXTS[0], text));
    }
    let private = |name: &str, text: &str| {
        write(name, text.as_bytes());
        fs::set_permissions(setup.path(name), fs::Permissions::from_mode(0o600)).expect("a private file");
    };
    private("secrets.key", "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n");
    let primes = digest(&fs::read(place::component("primes")).expect("a component"));
    let config = fs::read_to_string(fixtures().join("bulkhead.toml")).expect("a configuration");
    let mut config = config.replace("$primes", &primes);
    if encrypted {
        private("store.key", &format!("{}\n", "3a".repeat(32)));
        config.push_str("\n[encryption]\nkey_file = \"store.key\"\n");
    }
    setup.config(&config)
}

/// Tasks in every state, of both eras and under names of SEP-1686, and what plugins keep.
async fn fill(observer: &mut Observer, host: &Host, tokens: &Value) -> Vec<Value> {
    let mut tasks = Vec::new();
    let mut add = |owner: &str, name: &str, id: &str| {
        let design = name.split('_').next().unwrap_or_default();
        tasks.push(json!({"name": name, "owner": owner, "id": id, "design": design}));
    };
    let token = |name: &str| tokens[name].as_str();
    let alice = Client::connect_as(host, token("alice"), all_capabilities()).await;
    let modern = Modern::full(host, token("alice"));
    let earlier = of_sep1686(host, token("alice").expect("a token")).await;
    let bob = Client::connect_as(host, token("bob"), all_capabilities()).await;
    let bob_modern = Modern::full(host, token("bob"));
    keep_values([(&alice, "of acme"), (&bob, "of globex")]).await;
    let create = async |client: &Client, tool: &str, arguments: Value| {
        let task = client.create_with(tool, arguments, json!({"ttl": null})).await.expect("a task");
        task["taskId"].as_str().expect("an id").to_owned()
    };
    // What is over.
    for (name, tool, arguments, status) in [
        ("legacy_completed", "count_primes", json!({"below": 1_000}), "completed"),
        ("legacy_contents", "contents", json!({}), "completed"),
        ("legacy_tool_error", "fail", json!({"way": "tool"}), "failed"),
        ("legacy_failed", "fail", json!({"way": "custom"}), "failed"),
    ] {
        let id = create(&alice, tool, arguments).await;
        alice.until_status(&id, status).await;
        add("alice", name, &id);
    }
    let cancelled = create(&alice, "wait", json!({"ms": 600_000})).await;
    alice.about("tasks/cancel", &cancelled).await.expect("cancelled");
    add("alice", "legacy_cancelled", &cancelled);
    let done = create(&bob, "count_primes", json!({"below": 100})).await;
    bob.until_status(&done, "completed").await;
    add("bob", "legacy_bobs", &done);
    let done = modern.task("required", json!({"ms": 1})).await;
    modern.until_status(&done, "completed").await;
    add("alice", "modern_completed", &done);
    let failed = modern.task("fail", json!({"way": "invalid_params"})).await;
    modern.until_status(&failed, "failed").await;
    add("alice", "modern_failed", &failed);
    let keyed = modern
        .with_meta("dev.bulkhead/idempotencyKey", json!("once"))
        .task("steps", json!({"steps": 2, "pause_ms": 900}))
        .await;
    modern.until_status(&keyed, "completed").await;
    add("alice", "modern_keyed", &keyed);
    for (name, method, mut params) in [
        ("sep1686_call", "tools/call", json!({"name": "count_primes", "arguments": {"below": 1_000}})),
        ("sep1686_list", "tools/list", json!({})),
    ] {
        params["_meta"] = named(name);
        earlier.call(method, params).await.expect("a result");
        add("alice", name, name);
    }
    // What waits for its requestor, or is paused.
    let asking = create(&alice, "book_trip", json!({})).await;
    alice.until_status(&asking, "input_required").await;
    add("alice", "legacy_asking", &asking);
    let asking = bob_modern.task("book_trip", json!({})).await;
    bob_modern.until_status(&asking, "input_required").await;
    add("bob", "modern_bobs", &asking);
    let answered = modern.task("book_trip", json!({})).await;
    modern.until_status(&answered, "input_required").await;
    let journey = json!({"journey": {"action": "accept", "content": {"destination": "Kyiv", "travellers": 2}}});
    modern.result("tasks/update", json!({"taskId": answered, "inputResponses": journey})).await;
    until("the second question", async || {
        let now = modern.result("tasks/get", json!({"taskId": answered})).await;
        now["inputRequests"].get("details").is_some().then_some(())
    })
    .await;
    add("alice", "modern_answered", &answered);
    let params = json!({"name": "book_trip", "arguments": {}, "_meta": named("sep1686_asking")});
    let _asking = earlier.send("tools/call", params).await;
    until("the question", async || {
        let now = earlier.about("tasks/get", "sep1686_asking").await.ok()?;
        (now["status"] == "input_required").then_some(())
    })
    .await;
    add("alice", "sep1686_asking", "sep1686_asking");
    let paused = modern.task("wait", json!({"ms": 600_000})).await;
    modern.result("tasks/steer", json!({"taskId": paused, "message": "a message"})).await;
    modern.result("tasks/pause", json!({"taskId": paused})).await;
    add("alice", "modern_paused", &paused);
    let again = modern.task("wait", json!({"ms": 4_000})).await;
    // What runs, two of each requestor at most, and what waits for its turn.
    let long = json!({"below": 1_000_000_000_000_u64});
    let params = json!({"name": "count_primes", "arguments": long, "_meta": named("sep1686_running")});
    let _running = earlier.send("tools/call", params).await;
    add("alice", "sep1686_running", "sep1686_running");
    add("alice", "legacy_running", &create(&alice, "count_primes", long.clone()).await);
    add("bob", "legacy_bobs_running", &create(&bob, "count_primes", long).await);
    add("alice", "legacy_queued", &create(&alice, "count_primes", json!({"below": 10_000})).await);
    add("alice", "modern_queued", &modern.task("required", json!({"ms": 2})).await);
    let paused = create(&alice, "count_primes", json!({"below": 100_000})).await;
    observer.name("PAUSED", &json!(paused));
    observer.run("tasks pause $PAUSED --message later").await;
    add("alice", "legacy_paused_before_its_turn", &paused);
    add("alice", "modern_run_again", &again);
    tasks
}

/// What a plugin keeps for the tenant of each client.
async fn keep_values(clients: [(&Client, &str); 2]) {
    for (client, value) in clients {
        for arguments in [
            json!({"what": "set", "key": "k", "value": value}),
            json!({"what": "fill", "key": "large", "bytes": 9_000}),
        ] {
            client.tool("keep", arguments).await.expect("it is kept");
        }
    }
}

fn named(name: &str) -> Value {
    json!({"modelcontextprotocol.io/task": {"taskId": name, "keepAlive": 3_155_760_000_000_u64}})
}

/// What is compiled is left out. The components are the same in all folders, so they are in an archive of their own, and one that
/// lies in two places is there once.
fn pack(setup: &Setup, name: &str) {
    for (path, digest) in components(&setup.path("data")) {
        for (other, same) in components(&setup.path("plugins")) {
            if digest == same {
                fs::remove_file(&other).and_then(|()| fs::hard_link(&path, &other)).expect("a link");
            }
        }
    }
    let folder = setup.path("");
    let inside = |(path, _): (PathBuf, _)| path.strip_prefix(&folder).expect("it is inside").to_path_buf();
    let listed: Vec<_> = components(&folder).into_iter().map(inside).collect();
    let archive = |name: &str, arguments: &[OsString]| {
        let mut tar = Command::new("tar");
        tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-c", "-I", "gzip -9n", "-C"])
            .arg(&folder);
        let done = tar.arg("-f").arg(fixtures().join(format!("{name}.tar.gz"))).args(arguments).status();
        assert!(done.expect("tar starts").success(), "{name} cannot be packed");
    };
    let mut others: Vec<OsString> = ["data/cache", "data/cache.key", "data/control.sock", "log"].map(exclude).into();
    others.extend(listed.iter().map(exclude));
    others.push(".".into());
    archive(name, &others);
    archive("components", &listed.into_iter().map(Into::into).collect::<Vec<_>>());
}

fn exclude(path: impl AsRef<Path>) -> OsString {
    Path::new("--exclude=.").join(path.as_ref()).into_os_string()
}

/// Every component below a folder, with its digest.
fn components(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for path in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if path.is_dir() {
            found.extend(components(&path));
        } else if let Ok(bytes) = fs::read(&path)
            && bytes.starts_with(b"\0asm")
        {
            found.push((path, digest(&bytes)));
        }
    }
    found
}
