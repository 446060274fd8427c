//! Where plugins come from: what is signed is taken, everything else is refused with what was expected and what was found, and
//! whatever was active stays active.

use std::path::Path;

use serde_json::{Value, json};
use tests::client::{Client, text};
use tests::place::{component, variant};
use tests::{Setup, command};

const FIRST: &str = "The texts are the same.";
const SECOND: &str = "The texts are the SAME.";

/// What the running version of `text` says.
async fn said(client: &Client) -> String {
    let same = json!({"before": "a", "after": "a"});
    text(&client.tool("diff", same).await.expect("it is called")).to_owned()
}

/// A pair of keys beside the data directory; the id of the public one.
async fn keygen(setup: &Setup, name: &str) -> String {
    let path = setup.path(name).display().to_string();
    let said = command::run(command::bulkhead().args(["plugin", "keygen"]), &[&path], None).await;
    said.trim().to_owned()
}

async fn sign(setup: &Setup, file: &Path, key: &str) {
    let key = setup.path(&format!("{key}.key")).display().to_string();
    let arguments = ["plugin", "sign", "--key", &key];
    command::run(&mut command::bulkhead(), &arguments, Some(file)).await;
}

/// A component in a file beside the data directory.
fn write(setup: &Setup, name: &str, bytes: &[u8]) -> String {
    let path = setup.path(name);
    std::fs::write(&path, bytes).expect("the component is written");
    path.display().to_string()
}

/// What was refused, and why. Nothing else may have happened.
async fn refused(setup: &Setup, arguments: &[&str]) -> String {
    let (code, said) = command::outcome(arguments, &setup.data()).await;
    assert_eq!((code, &said["done"]), (Some(4), &Value::Bool(false)), "{said}");
    said["refused"].to_string()
}

async fn versions(setup: &Setup, name: &str) -> Vec<Value> {
    let versions = command::json(&["plugin", "versions", name], &setup.data()).await;
    versions["versions"].as_array().expect("a list").clone()
}

#[tokio::test]
async fn only_signed_files_are_taken_where_a_rule_wants_signatures() {
    let setup = Setup::new();
    let (acme, other) = (keygen(&setup, "acme").await, keygen(&setup, "other").await);
    let first = write(&setup, "text.wasm", &std::fs::read(component("text")).expect("it is built"));
    sign(&setup, Path::new(&first), "acme").await;
    let setup = setup
        .config("[[trust]]\nsource = './*.wasm'\nkeys = ['acme.pub']")
        .config(&format!("[[plugin]]\nname = 'text'\nfile = {first:?}"));
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    assert_eq!(said(&client).await, FIRST);
    assert_eq!(versions(&setup, "text").await[0]["signed_by"], json!([acme]));

    // The same place, another component: nobody signed that.
    let second = write(&setup, "text.wasm", &variant("text", FIRST, SECOND));
    let add = ["plugin", "add", second.as_str()];
    let why = refused(&setup, &add).await;
    assert!(
        why.contains(&format!("expected a signature by key {acme}")) && why.contains("but a component of"),
        "{why}"
    );
    std::fs::remove_file(setup.path("text.wasm.sig")).expect("it is there");
    let why = refused(&setup, &add).await;
    assert!(why.contains("found none"), "{why}");
    sign(&setup, Path::new(&second), "other").await;
    let why = refused(&setup, &["plugin", "stage", &second]).await;
    assert!(why.contains(&format!("found a signature by key {other}")), "{why}");
    let signature = std::fs::read(setup.path("text.wasm.sig")).expect("it is signed");
    std::fs::write(setup.path("text.wasm.sig"), &signature[..signature.len() - 20]).expect("it is written");
    let why = refused(&setup, &add).await;
    assert!(why.contains("a line that is no signature"), "{why}");
    let why = refused(&setup, &["plugin", "add", &second, "--sha256", &"5".repeat(64)]).await;
    assert!(why.contains(&format!("expected sha256 {}", "5".repeat(64))), "{why}");
    assert_eq!((said(&client).await.as_str(), versions(&setup, "text").await.len()), (FIRST, 1));

    // Neither does a start take it, and what was active is what starts.
    host.kill().await;
    let host = setup.start().await;
    assert_eq!(said(&Client::connect(&host).await).await, FIRST);
    assert!(host.log().contains("is not trusted: expected a signature by key"), "{}", host.log());

    sign(&setup, Path::new(&second), "acme").await;
    command::json(&["plugin", "update", "text", "--activate"], &setup.data()).await;
    assert_eq!(said(&Client::connect(&host).await).await, SECOND);
    assert_eq!(versions(&setup, "text").await.len(), 2);
}

#[tokio::test]
async fn nothing_unsigned_begins_where_a_rule_wants_signatures() {
    let setup = Setup::new();
    keygen(&setup, "acme").await;
    let file = write(&setup, "text.wasm", &std::fs::read(component("text")).expect("it is built"));
    let setup = setup.config("[[trust]]\nsource = '**'\nkeys = ['acme.pub']");
    let pinned = setup.clone().argument("--plugin").argument(&file);
    let configured = setup.clone().config(&format!("[[plugin]]\nname = 'text'\nfile = {file:?}"));
    for setup in [pinned, configured] {
        let host = setup.start().await;
        assert!(host.log().contains("found none"), "{}", host.log());
        let list = command::json(&["plugin", "list"], &setup.data()).await;
        assert!(
            list["plugins"].as_array().is_some_and(Vec::is_empty) || list["plugins"][0]["state"] == "broken",
            "{list}"
        );
        assert!(!setup.data().join("components").read_dir().expect("a folder").any(|_| true), "nothing of it is kept");
        host.kill().await;
    }
    let wrong = setup.config("[[trust]]\nsource = 'https://a.example/*'\nkeys = ['acme.key']").refused().await.1;
    assert!(wrong.contains("trust.keys") && wrong.contains("there is no public key in it"), "{wrong}");
}
