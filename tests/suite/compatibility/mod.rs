//! What an older program has written and said: its data directories, configuration, components and `--json`, with this program.
//!
//! `tests/fixtures/data-directory` holds what the program of commit 5597bb5 left behind, and what it said about it. Each test
//! unpacks that, asks the same with the program of today, and compares. A member that was added on purpose is in [`CHANGED`],
//! with the reason.

mod make;
mod observe;

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use tests::client::Client;
use tests::{Setup, place};

use observe::Observer;

/// Members that are new: the beginning of the command, the member, why.
const CHANGED: [(&str, &str, &str); 26] = [
    ("plugin check", "errors", "why a component is refused is told there as well"),
    ("plugin inspect", "durable", DURABLE),
    ("plugin check", "durable", DURABLE),
    ("tasks show", "durable", DURABLE),
    ("admin tasks inspect", "durable", DURABLE),
    ("admin limits", "tasks_running_per_tenant", NEW_LIMIT),
    ("admin limits", "request_bytes_open_per_requestor", NEW_LIMIT),
    ("admin limits", "request_bytes_open_per_tenant", NEW_LIMIT),
    ("admin limits", "request_bytes_open_total", NEW_LIMIT),
    ("admin limits", "answer_bytes_per_requestor", NEW_LIMIT),
    ("admin limits", "answer_bytes_per_tenant", NEW_LIMIT),
    ("admin limits", "answer_bytes_total", NEW_LIMIT),
    ("admin limits", "tasks_stored_bytes_per_requestor", TIMELINE),
    ("admin limits", "tasks_stored_bytes_per_tenant", TIMELINE),
    ("tenant list", "bytes", TIMELINE),
    ("store check", "bytes", TIMELINE),
    ("store backup", "components", COMPONENTS),
    ("store backup", "left_out", COMPONENTS),
    ("alice: tools/list", "inputSchema", PORTABLE),
    ("alice: tools/list", "outputSchema", PORTABLE),
    ("bob: tools/list", "inputSchema", PORTABLE),
    ("bob: tools/list", "outputSchema", PORTABLE),
    ("carol: tools/list", "inputSchema", PORTABLE),
    ("carol: tools/list", "outputSchema", PORTABLE),
    ("plugin inspect", "inputSchema", PORTABLE),
    ("token list", "last_used_at", "a host that stops keeps the uses that it had noted"),
];
const COMPONENTS: &str = "a backup holds components of plugins, and says what it does not hold";
const PORTABLE: &str = "schemas are listed in a form that more model interfaces take";
const TIMELINE: &str = "the record of a task that was interrupted says so, and takes more bytes";
const DURABLE: &str = "whether a task goes on after its host ended";
const NEW_LIMIT: &str = "a limit that the older program did not have";

fn fixtures() -> PathBuf {
    place::root().join("tests/fixtures/data-directory")
}

/// A copy of the folder that the older program has left behind: its configuration, its data directory and the components.
fn unpacked(name: &str) -> Observer {
    let setup = Setup::new();
    for name in ["components", name] {
        let archive = fixtures().join(format!("{name}.tar.gz"));
        let mut tar = Command::new("tar");
        let done = tar.arg("-xzpf").arg(&archive).arg("-C").arg(setup.path("")).status().expect("tar starts");
        assert!(done.success(), "{} cannot be unpacked", archive.display());
    }
    let text = |name: &str| std::fs::read_to_string(setup.path(name)).expect("a file of the archive");
    let facts = serde_json::from_str(&text("facts.json")).expect("JSON");
    let config = text("bulkhead.toml");
    Observer::new(setup.config(&config), facts)
}

/// What the older program said, without what was changed on purpose.
fn recorded(name: &str) -> Vec<Value> {
    let path = fixtures().join(format!("{name}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).expect("JSON")
}

fn without_changed(entry: &Value) -> Value {
    let mut entry = entry.clone();
    let command = entry["command"].as_str().unwrap_or_default().to_owned();
    for (_, member, _) in CHANGED.iter().filter(|(begins, _, _)| command.starts_with(begins)) {
        remove(&mut entry["out"], member);
    }
    entry
}

/// Removes every member of this name.
fn remove(value: &mut Value, name: &str) {
    match value {
        Value::Object(members) => {
            // In their order: the others keep theirs.
            members.shift_remove(name);
            members.values_mut().for_each(|value| remove(value, name));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| remove(value, name)),
        _ => {}
    }
}

/// The order of members counts, so the texts are compared.
fn compare(name: &str, said: &[Value]) {
    let recorded = recorded(name);
    let lines =
        |entries: &[Value]| entries.iter().map(without_changed).map(|entry| entry.to_string()).collect::<Vec<_>>();
    let (then, now) = (lines(&recorded), lines(said));
    let different: Vec<_> = then.iter().zip(&now).filter(|(then, now)| then != now).collect();
    let shown: String = different.iter().map(|(then, now)| format!("then {then}\n now {now}\n")).collect();
    assert!(different.is_empty(), "{name}: {} of {} are different:\n{shown}", different.len(), then.len());
    assert_eq!(then.len(), now.len(), "{name}: as many commands");
}

#[tokio::test]
async fn json_outputs_about_an_older_data_directory_are_unchanged() {
    let mut observer = unpacked("plain");
    observer.commands().await;
    compare("plain-commands", &observer.said);
}

#[tokio::test]
async fn older_data_directory_is_recovered_and_served_as_before() {
    let mut observer = unpacked("plain");
    observer.serve().await;
    compare("plain-served", &observer.said);
}

#[tokio::test]
async fn older_encrypted_data_directory_is_read_served_and_rekeyed_as_before() {
    let mut observer = unpacked("encrypted");
    observer.rekey().await;
    observer.serve().await;
    compare("encrypted-served", &observer.said);
}

#[tokio::test]
async fn older_configuration_and_components_are_accepted_by_a_new_host() {
    let observer = unpacked("plain");
    let setup = observer.setup.clone();
    std::fs::remove_dir_all(setup.data()).expect("the data directory goes");
    let checked = tests::command::output(&mut setup.command("serve"), &["--check"], None).await;
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(checked.status.success(), "{said}");
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    let settings = client.tool("settings", json!({})).await.expect("the old component answers");
    assert!(settings.to_string().contains("delimiter"), "its settings reach it: {settings}");
    let counted = client.tool("count_primes", json!({"below": 1_000})).await.expect("a result");
    assert_eq!(counted["structuredContent"]["count"], 168);
    let trip = client.task("book_trip", json!({})).await;
    client.until_status(&trip, "input_required").await;
}
