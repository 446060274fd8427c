//! Skills: what a built component carries of them, for clients of both eras and for the operator who accepts it.

use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tests::client::Client;
use tests::modern::Modern;
use tests::{Setup, command, place};

/// The result of a request in both eras, without what only one of them has around it.
async fn both(legacy: &Client, modern: &Modern, method: &str, params: Value, member: &str) -> Value {
    let in_session =
        legacy.call(method, params.clone()).await.unwrap_or_else(|failure| panic!("{method}: {failure:?}"));
    let alone = modern.result(method, params).await;
    assert_eq!(in_session[member], alone[member], "{method}");
    in_session[member].clone()
}

#[tokio::test]
async fn skills_of_a_built_plugin_are_listed_and_read_as_their_digests_say() {
    if place::left_out(&["python"]) {
        return;
    }
    let setup = Setup::with(&["dedup"]);
    // Another plugin with a skill of the same name.
    let skilled = wrapped(&setup, "colour.wasm", &place::root().join("plugins/samples/dedup/skills")).await;
    let setup = setup.config(&format!("[[plugin]]\nfile = {skilled:?}\n"));
    let host = setup.start().await;
    let legacy = Client::connect(&host).await;
    let modern = Modern::plain(&host, None);
    let folder = place::root().join("plugins/samples/dedup/skills/clean-records");
    let skills = both(&legacy, &modern, "skills/list", json!({}), "skills").await;
    let [colour, dedup] = &skills.as_array().expect("a list")[..] else { panic!("{skills}") };
    for (plugin, skill) in [("colour", colour), ("dedup", dedup)] {
        let uri = format!("skill://{plugin}/clean-records/SKILL.md");
        assert_eq!((&skill["uri"], &skill["frontmatter"]["name"]), (&json!(uri), &json!("clean-records")));
        assert_eq!(skill["frontmatter"]["license"], "Apache-2.0");
        assert_eq!(both(&legacy, &modern, "skills/get", json!({"uri": uri}), "skill").await, *skill);
        let files = skill["resources"].as_array().expect("files");
        assert_eq!(files.len(), 2, "{skill}");
        for file in files {
            let path =
                file["uri"].as_str().and_then(|uri| uri.strip_prefix(&format!("skill://{plugin}/clean-records/")));
            let written = std::fs::read_to_string(folder.join(path.expect("of this skill"))).expect("the source");
            let contents = both(&legacy, &modern, "resources/read", json!({"uri": file["uri"]}), "contents").await;
            let expected = json!([{"uri": file["uri"], "mimeType": "text/markdown", "text": written}]);
            assert_eq!(contents, expected);
            let digest = format!("sha256:{}", bulkhead_domain::hex(&Sha256::digest(&written)));
            assert_eq!((&file["digest"], &file["size"]), (&json!(digest), &json!(written.len())));
        }
        for absent in [format!("skill://{plugin}/clean-records/none.md"), format!("skill://{plugin}/none/SKILL.md")] {
            assert!(legacy.call("resources/read", json!({"uri": absent})).await.is_err(), "{absent}");
            assert!(legacy.call("skills/get", json!({"uri": absent})).await.is_err(), "{absent}");
        }
    }
    // The instructions are resources as others are, beside those of the plugin itself.
    let listed = modern.result("resources/list", json!({})).await;
    let first = listed["resources"].as_array().and_then(|resources| resources.first()).expect("a resource");
    assert_eq!((&first["name"], &first["mimeType"]), (&json!("clean-records"), &json!("text/markdown")));
}

/// The component `colour` with a skill that says this, as its author makes it.
pub(crate) async fn with_skill(setup: &Setup, file: &str, says: &str) -> String {
    let folder = setup.path("skills/mix-colours");
    std::fs::create_dir_all(&folder).expect("a folder");
    let instructions = format!("---\nname: mix-colours\ndescription: Mixes colours.\n---\n{says}\n");
    std::fs::write(folder.join("SKILL.md"), instructions).expect("the skill is written");
    wrapped(setup, file, &setup.path("skills")).await
}

/// The component `colour` with these skills.
async fn wrapped(setup: &Setup, file: &str, skills: &Path) -> String {
    let manifest = setup.path("manifest.toml");
    std::fs::write(&manifest, "name = \"colour\"\n").expect("the manifest is written");
    let wrapped = setup.path(file);
    let mut wrap = command::bulkhead();
    wrap.args(["plugin", "wrap"]).arg(place::component("colour")).arg("--manifest").arg(manifest).arg("--skills");
    wrap.arg(skills).arg("--wit").arg(place::root().join("plugins/samples/colour/wit/colour.wit"));
    command::run(wrap.arg("--output").arg(&wrapped), &[], None).await;
    wrapped.display().to_string()
}

#[tokio::test]
async fn changed_skill_is_held_until_accepted() {
    let setup = Setup::new();
    let first = with_skill(&setup, "first.wasm", "Mix them once.").await;
    let setup = setup.config(&format!("[[plugin]]\nfile = {first:?}\n"));
    let host = setup.start().await;
    let modern = Modern::plain(&host, None);
    let uri = "skill://colour/mix-colours/SKILL.md";
    let says = async || {
        let read = modern.result("resources/read", json!({"uri": uri})).await;
        read["contents"][0]["text"].as_str().expect("a text").lines().last().expect("a line").to_owned()
    };
    assert_eq!(says().await, "Mix them once.");
    let second = with_skill(&setup, "second.wasm", "Mix them twice.").await;
    let (code, held) = command::outcome(&["plugin", "add", &second, "--name", "colour"], &setup.data()).await;
    assert_eq!((code, &held["held"]), (Some(4), &json!(["colour: the skill mix-colours changes"])), "{held}");
    assert_eq!(says().await, "Mix them once.");
    let changes = command::json(&["plugin", "changes", "colour"], &setup.data()).await;
    let grants: Vec<_> =
        changes["grants"].as_array().into_iter().flatten().map(|row| row["grant"].to_string()).collect();
    assert_eq!(grants.iter().filter(|grant| grant.contains("skill mix-colours sha256:")).count(), 2, "{changes}");
    let inspected = command::run(&mut command::bulkhead(), &["plugin", "inspect", &second], None).await;
    assert!(inspected.contains("skill mix-colours sha256:"), "{inspected}");
    command::json(&["plugin", "activate", "colour", "--accept"], &setup.data()).await;
    assert_eq!(says().await, "Mix them twice.");
}
