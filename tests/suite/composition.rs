//! Plugins that are composed of several components: one version, one digest, and every component counts.

use std::path::Path;

use serde_json::{Value, json};
use tests::client::Client;
use tests::place::component;
use tests::wait::until;
use tests::{Setup, command};

const CHECK: &str = "acme_words_spelling_check";
const FILES: [&str; 3] = ["speller.wasm", "words.wasm", "folding.wasm"];

/// The components beside the data directory; the path of the first one.
fn components(setup: &Setup, folder: &str) -> String {
    std::fs::create_dir_all(setup.path(folder)).expect("a folder");
    for file in FILES {
        let name = format!("foreign_{}", file.trim_end_matches(".wasm"));
        std::fs::copy(component(&name), setup.path(folder).join(file)).expect("it is copied");
    }
    setup.path(folder).join(FILES[0]).display().to_string()
}

fn entry(folder: &str, more: &str) -> String {
    format!(
        "[[plugin]]\nname = 'spelling'\nfile = '{folder}/speller.wasm'\n\
         compose = ['{folder}/words.wasm', '{folder}/folding.wasm']\n{more}"
    )
}

async fn checked(client: &Client, text: &str) -> Value {
    let result = client.tool(CHECK, json!({"text": text})).await.expect("a result");
    result["structuredContent"].clone()
}

async fn versions(setup: &Setup) -> Vec<Value> {
    let versions = command::json(&["plugin", "versions", "spelling"], &setup.data()).await;
    versions["versions"].as_array().expect("a list").clone()
}

/// The digest of what the files in a folder make.
async fn composed(setup: &Setup, folder: &str) -> String {
    let path = |file: &str| setup.path(folder).join(file).display().to_string();
    let files = FILES.map(path);
    let output = setup.path("composed.wasm").display().to_string();
    let arguments = ["plugin", "compose", &files[0], &files[1], &files[2], "-o", &output, "--json"];
    let said = command::run(&mut command::bulkhead(), &arguments, None).await;
    let said: Value = serde_json::from_str(&said).expect("JSON");
    said["sha256"].as_str().expect("a digest").to_owned()
}

/// Another component that does the same.
fn change(file: &Path) {
    let mut bytes = std::fs::read(file).expect("it is there");
    // A custom section, with a name of one letter and nothing in it.
    bytes.extend([0, 2, 1, b'x']);
    let aside = file.with_extension("part");
    std::fs::write(&aside, bytes).expect("it is written");
    std::fs::rename(aside, file).expect("it is there");
}

#[tokio::test]
async fn composed_plugin_is_one_version_with_one_digest() {
    let setup = Setup::new();
    components(&setup, "parts");
    let digest = composed(&setup, "parts").await;
    let setup = setup.config(&entry("parts", &format!("sha256 = '{digest}'")));
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    let page = client.call("tools/list", json!({})).await.expect("a list");
    let names: Vec<_> = page["tools"].as_array().expect("a list").iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, [CHECK], "what is connected inside is no tool");
    let found = json!({"result": [{"word": "sea", "count": 1}, {"word": "wind", "count": 2}]});
    for _ in 0..2 {
        assert_eq!(checked(&client, "SEA and Wind").await, found, "each call has instances of its own");
    }
    assert_eq!(checked(&client, "").await, json!({"error": "there is nothing to check"}));
    assert_eq!(versions(&setup).await[0]["version"], json!(digest));

    // Of the same place, another dependency: the digest of the whole does not fit any more.
    change(&setup.path("parts/folding.wasm"));
    let (code, said) = command::outcome(&["plugin", "update", "spelling", "--activate"], &setup.data()).await;
    assert_eq!(code, Some(4), "{said}");
    let why = said["refused"].to_string();
    assert!(why.contains(&format!("expected sha256 {digest}")) && why.contains("of what it is composed to"), "{why}");
    assert_eq!(
        (checked(&client, "sea").await["result"][0]["word"].clone(), versions(&setup).await.len()),
        (json!("sea"), 1)
    );
}

#[tokio::test]
async fn changed_dependency_in_watched_folder_is_a_new_version() {
    let setup = Setup::new();
    components(&setup, "drop");
    let drop = setup.path("drop");
    let setup = setup.config(&format!("[sources]\nwatch = [{drop:?}]")).config(&entry("drop", ""));
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    assert_eq!(versions(&setup).await.len(), 1);
    change(&drop.join("folding.wasm"));
    let digest = composed(&setup, "drop").await;
    until("the new version is active", async || {
        let versions = versions(&setup).await;
        let is_active = |version: &Value| version["version"] == json!(digest) && version["state"] == "active";
        versions.iter().any(is_active).then_some(())
    })
    .await;
    assert_eq!(checked(&client, "Sea").await["result"][0]["word"], "sea");
    let list = command::json(&["plugin", "list"], &setup.data()).await;
    assert_eq!(list["plugins"].as_array().map(Vec::len), Some(1), "what it is composed with is no plugin: {list}");

    // By a command, too, which is given the first file.
    change(&drop.join("words.wasm"));
    let digest = composed(&setup, "drop").await;
    let file = drop.join("speller.wasm").display().to_string();
    command::json(&["plugin", "add", &file], &setup.data()).await;
    assert!(versions(&setup).await.iter().any(|version| version["version"] == json!(digest)));
}

#[tokio::test]
async fn every_component_of_a_composed_plugin_needs_its_signature() {
    let setup = Setup::new();
    components(&setup, "parts");
    let key = setup.path("acme").display().to_string();
    command::run(command::bulkhead().args(["plugin", "keygen"]), &[&key], None).await;
    let sign = async |file: &str| {
        let key = format!("{key}.key");
        let file = setup.path("parts").join(file);
        command::run(&mut command::bulkhead(), &["plugin", "sign", "--key", &key], Some(&file)).await;
    };
    sign("speller.wasm").await;
    sign("words.wasm").await;
    let configured =
        setup.clone().config("[[trust]]\nsource = './parts/*.wasm'\nkeys = ['acme.pub']").config(&entry("parts", ""));
    let host = configured.start().await;
    let log = host.log();
    assert!(log.contains("folding.wasm is not trusted: expected a signature by key"), "{log}");
    sign("folding.wasm").await;
    command::json(&["plugin", "update", "spelling", "--activate"], &configured.data()).await;
    assert_eq!(checked(&Client::connect(&host).await, "Sea").await["result"][0]["word"], "sea");
    assert_eq!(versions(&configured).await[0]["signed_by"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn components_that_do_not_fit_together_are_refused_by_name() {
    let setup = Setup::new();
    components(&setup, "parts");
    let entry = "[[plugin]]\nname = 'spelling'\nfile = 'parts/speller.wasm'\ncompose = ['parts/words.wasm']\n";
    let host = setup.clone().config(entry).start().await;
    let log = host.log();
    assert!(
        log.contains("speller.wasm imports acme:words/folding@1.0.0, which no component behind it exports"),
        "{log}"
    );
    let path = |file: &str| setup.path("parts").join(file).display().to_string();
    let output = setup.path("no.wasm").display().to_string();
    let colour = component("colour").display().to_string();
    let files = FILES.map(path);
    let arguments = ["plugin", "compose", &files[0], &files[1], &files[2], &colour, "-o", &output];
    let refused = command::output(&mut command::bulkhead(), &arguments, None).await;
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(4), "{said}");
    assert!(said.contains("colour.wasm exports nothing that a component before it still needs"), "{said}");
    assert!(!setup.path("no.wasm").exists(), "nothing is written");
}

#[tokio::test]
async fn composed_plugin_is_inspected_and_called_with_its_configuration() {
    let setup = Setup::new();
    let file = components(&setup, "parts");
    let config = setup.path("bulkhead.toml").display().to_string();
    std::fs::write(&config, entry("parts", "")).expect("it is written");
    let inspect = ["plugin", "inspect", &file, "--config", &config, "--json"];
    let said = command::run(&mut command::bulkhead(), &inspect, None).await;
    let shown: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((&shown["name"], &shown["tools"][0]["name"]), (&json!("spelling"), &json!(CHECK)), "{shown}");
    assert_eq!(shown["sha256"], json!(composed(&setup, "parts").await));
    let call = ["plugin", "call", "--config", &config, &file, CHECK, r#"{"text": "Sea"}"#, "--json"];
    let said = command::run(&mut command::bulkhead(), &call, None).await;
    let result: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(result["structuredContent"]["result"][0]["word"], "sea");
    let refused = command::output(&mut command::bulkhead(), &["plugin", "check", &file], None).await;
    assert_eq!(refused.status.code(), Some(4), "alone it cannot be loaded");
}
