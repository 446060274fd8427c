//! Plugins from a real registry: pushed, pulled, signed, with passwords.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bulkhead_plugins::sources::oci::{self, Logins};
use bulkhead_plugins::sources::{
    Error, FetchOptions, Fetched, OciReference, Progress, PublicKey, Rule, Source, Trust, TrustedKey,
};
use serde_json::{Value, json};
use tests::command;
use tests::place::{component, variant};
use tests::registry::{Registry, USER};

/// As an operator who configured nothing has it.
pub(crate) fn fetching() -> FetchOptions {
    FetchOptions {
        component_bytes_max: 32 << 20,
        fetch_max: Duration::from_secs(30),
        private_hosts: Vec::new(),
        plain_http_hosts: Vec::new(),
        roots: Vec::new(),
        logins: Logins::default(),
        progress: Progress::default(),
    }
}

/// Credentials for a registry, as `docker login` writes them.
pub(crate) fn logins(registry: &str, username: &str, password: &str) -> Logins {
    let config = json!({ "auths": { registry: { "username": username, "password": password } } }).to_string();
    Logins::of_environment(|name| (name == "DOCKER_AUTH_CONFIG").then(|| config.clone()))
}

pub(crate) fn reference(text: &str) -> OciReference {
    match text.parse() {
        Ok(Source::Oci(reference)) => reference,
        other => panic!("{text}: {other:?}"),
    }
}

async fn fetch(text: &str) -> Result<Fetched, Error> {
    oci::fetch(&reference(text), &fetching(), true).await
}

/// `bulkhead plugin push --json`; what it printed.
async fn push(file: &Path, to: &str, more: &[&str]) -> Value {
    let file = file.display().to_string();
    let arguments = [&["plugin", "push", &file, to, "--json"], more].concat();
    let said = command::run(&mut command::bulkhead(), &arguments, None).await;
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("no JSON ({error}): {said}"))
}

/// A key pair as the help of `plugin push` has it made: the private and the public file.
pub(crate) fn keys(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    let private = folder.join(format!("{name}.pem"));
    let public = folder.join(format!("{name}.pub"));
    let openssl = |arguments: &[&str], file: &Path| {
        let done = std::process::Command::new("openssl").args(arguments).arg("-out").arg(file).output();
        let done = done.expect("openssl starts");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    openssl(&["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"], &private);
    openssl(&["pkey", "-pubout", "-in", &private.display().to_string()], &public);
    (private, public)
}

/// Everything from registries must be signed by this key.
pub(crate) fn trusting(public: &Path) -> Trust {
    let key = PublicKey::from_pem(&std::fs::read_to_string(public).unwrap()).unwrap();
    let pattern = "oci://**".parse().unwrap();
    Trust::new(vec![Rule {
        pattern,
        keys: vec![TrustedKey { key, file: public.to_owned() }],
        same_repository: false,
        changed_definitions: None,
    }])
}

#[tokio::test(flavor = "multi_thread")]
async fn pushed_component_is_pulled_back_unchanged() {
    let Some(registry) = Registry::start(false).await else { return };
    let file = component("text");
    let tag = registry.reference("acme/text:1.0");
    let pushed = push(&file, &tag, &[]).await;
    assert_eq!(pushed["was_there"], false);
    let manifest = pushed["manifest"].as_str().unwrap();

    let by_tag = fetch(&tag).await.unwrap();
    assert!(by_tag.bytes == std::fs::read(&file).unwrap(), "another component came back");
    assert_eq!(by_tag.origin, format!("{tag}@{manifest}"));
    assert_eq!(by_tag.sha256.to_string(), pushed["component"].as_str().unwrap());
    assert!(by_tag.signatures.is_empty());
    let by_digest = fetch(&registry.reference(&format!("acme/text@{manifest}"))).await.unwrap();
    assert!(by_digest.bytes == by_tag.bytes);
    // The whole origin is a reference too, and means the same after the tag has moved.
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.wasm");
    std::fs::write(&other, variant("text", "The texts are the same.", "The texts are the SAME.")).unwrap();
    let moved = push(&other, &tag, &[]).await;
    assert_ne!(moved["manifest"], pushed["manifest"]);
    assert!(fetch(&by_tag.origin).await.unwrap().bytes == by_tag.bytes);
    assert!(fetch(&tag).await.unwrap().bytes != by_tag.bytes);

    let again = push(&file, &tag, &[]).await;
    assert_eq!((&again["was_there"], &again["manifest"]), (&json!(true), &pushed["manifest"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_or_invalid_registry_artifact_is_reported() {
    let Some(mut registry) = Registry::start(false).await else { return };
    let absent = fetch(&registry.reference("acme/nothing:1")).await.unwrap_err().to_string();
    assert!(absent.contains("has no such thing"), "{absent}");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("module.wasm");
    std::fs::write(&file, b"\0asm\x01\0\0\0").unwrap();
    let arguments = ["plugin", "push", &file.display().to_string(), &registry.reference("acme/module:1")];
    let refused = command::output(&mut command::bulkhead(), &arguments, None).await;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("core module"), "{said}");

    registry.stop().await;
    let gone = fetch(&registry.reference("acme/nothing:1")).await.unwrap_err().to_string();
    assert!(gone.contains("no connection") && gone.contains(&registry.address), "{gone}");
}

#[tokio::test(flavor = "multi_thread")]
async fn registry_gets_its_stored_login() {
    let Some(registry) = Registry::start(true).await else { return };
    let tag = registry.reference("acme/text:1");
    let file = component("text").display().to_string();
    let config = |registry: &str, password: &str| {
        json!({ "auths": { registry: { "username": USER.0, "password": password } } }).to_string()
    };
    let helpers = tempfile::tempdir().unwrap();
    let helper = helpers.path().join("docker-credential-tests");
    let answer = json!({ "ServerURL": registry.address, "Username": USER.0, "Secret": USER.1 });
    std::fs::write(&helper, format!("#!/bin/sh\ntest \"$(cat)\" = {} && echo '{answer}'\n", registry.address)).unwrap();
    std::fs::set_permissions(&helper, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", helpers.path().display(), std::env::var("PATH").unwrap());
    for (auth, expected) in [
        (config(&registry.address, USER.1), None),
        (json!({ "credHelpers": { &registry.address: "tests" } }).to_string(), None),
        (json!({ "credHelpers": { &registry.address: "missing" } }).to_string(), Some("credential helper")),
        (config(&registry.address, "wrong"), Some("does not accept the credentials in DOCKER_AUTH_CONFIG")),
        (config("another.example", USER.1), Some("docker login")),
        ("not json".to_owned(), Some("DOCKER_AUTH_CONFIG")),
    ] {
        let mut command = command::bulkhead();
        // Whoever runs the tests may have logins of their own.
        command.env("PATH", &path).env("DOCKER_AUTH_CONFIG", &auth).env("REGISTRY_AUTH_FILE", "/nowhere/auth.json");
        let done = command::output(&mut command, &["plugin", "push", &file, &tag], None).await;
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        match expected {
            None => assert!(done.status.success(), "{said}"),
            Some(part) => assert!(!done.status.success() && said.contains(part), "{said}"),
        }
        assert!(!said.contains(USER.1) && !said.contains("wrong"), "{said}");
    }
    let anonymous = fetch(&tag).await.unwrap_err().to_string();
    assert!(anonymous.contains("docker login"), "{anonymous}");
    let known = FetchOptions { logins: logins(&registry.address, USER.0, USER.1), ..fetching() };
    oci::fetch(&reference(&tag), &known, true).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn registry_signature_is_bound_to_its_artifact() {
    let Some(registry) = Registry::start(false).await else { return };
    let folder = tempfile::tempdir().unwrap();
    let (private, public) = keys(folder.path(), "acme");
    let (_, others) = keys(folder.path(), "other");
    let sign = ["--sign", &private.display().to_string()];
    let signed = registry.reference("acme/text:signed");
    let unsigned = registry.reference("acme/text:unsigned");
    let pushed = push(&component("text"), &signed, &sign).await;
    push(&component("primes"), &unsigned, &[]).await;

    let source = |text: &str| text.parse::<Source>().unwrap();
    let fetched = fetch(&signed).await.unwrap();
    let verified = trusting(&public).verify(&source(&signed), None, fetched.clone()).unwrap();
    assert_eq!(verified.signed_by(), [pushed["signed_by"].as_str().unwrap()]);
    let refused = trusting(&others).verify(&source(&signed), None, fetched.clone()).unwrap_err();
    assert!(refused.found.contains("none of these keys"), "{refused}");
    let refused = trusting(&public).verify(&source(&unsigned), None, fetch(&unsigned).await.unwrap()).unwrap_err();
    assert_eq!(refused.found, "none");

    // Somebody who may write to the registry gives the signature of one artifact to another.
    let victim = fetch(&unsigned).await.unwrap();
    let digest = victim.origin.rsplit_once("@sha256:").unwrap().1.to_owned();
    let client = reqwest::Client::new();
    let api = format!("http://{}/v2/acme/text/manifests", registry.address);
    let own = pushed["manifest"].as_str().unwrap().trim_start_matches("sha256:");
    let manifest = "application/vnd.oci.image.manifest.v1+json";
    let signature = client.get(format!("{api}/sha256-{own}.sig")).header("accept", manifest).send().await.unwrap();
    let signature = signature.error_for_status().unwrap().bytes().await.unwrap();
    let put = client.put(format!("{api}/sha256-{digest}.sig")).header("content-type", manifest);
    put.body(signature.clone()).send().await.unwrap().error_for_status().unwrap();
    let stolen = fetch(&unsigned).await.unwrap();
    assert_eq!(stolen.signatures.len(), 1);
    let refused = trusting(&public).verify(&source(&unsigned), None, stolen).unwrap_err();
    assert!(refused.found.contains(&digest) && refused.found.contains(own), "{refused}");

    // One that was cut short.
    let mut cut: Value = serde_json::from_slice(&signature).unwrap();
    let annotation = &mut cut["layers"][0]["annotations"]["dev.cosignproject.cosign/signature"];
    *annotation = json!(&annotation.as_str().unwrap()[..40]);
    let put = client.put(format!("{api}/sha256-{own}.sig")).header("content-type", manifest);
    put.body(cut.to_string()).send().await.unwrap().error_for_status().unwrap();
    let refused = trusting(&public).verify(&source(&signed), None, fetch(&signed).await.unwrap()).unwrap_err();
    assert!(refused.found.contains("none of these keys"), "{refused}");

    // A second signature stands beside the first, and either is enough.
    let (second, second_public) = keys(folder.path(), "second");
    push(&component("text"), &signed, &["--sign", &second.display().to_string()]).await;
    push(&component("text"), &signed, &sign).await;
    let both = fetch(&signed).await.unwrap();
    for public in [&public, &second_public] {
        trusting(public).verify(&source(&signed), None, both.clone()).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn newest_registry_signatures_are_considered() {
    let Some(registry) = Registry::start(false).await else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = registry.reference("acme/text:often");
    let component = std::fs::read(component("text")).unwrap();
    let fetching = fetching();
    let key = |name: &str| {
        let (private, public) = keys(folder.path(), name);
        (oci::SigningKey::from_pem(&std::fs::read_to_string(private).unwrap()).unwrap(), public)
    };
    let sign = async |key: &oci::SigningKey| {
        oci::push(&reference(&at), component.clone(), 1, Some(key), &fetching).await.unwrap();
        fetch(&at).await.unwrap()
    };
    let (first, _) = key("first");
    for _ in 0..3 {
        assert_eq!(sign(&first).await.signatures.len(), 1, "of one key, the last one is enough");
    }
    // More than the host looks at: it looks at those that were added last.
    for number in 0..33 {
        let (key, public) = key(&format!("key{number}"));
        let fetched = sign(&key).await;
        assert!(fetched.signatures.len() <= 32, "{}", fetched.signatures.len());
        trusting(&public).verify(&at.parse().unwrap(), None, fetched).unwrap();
    }
}

/// What the present version of `diff` says of equal texts.
async fn summary(host: &tests::Host) -> String {
    let client = tests::Client::connect(host).await;
    let done = client.tool("diff", json!({"before": "a", "after": "a"})).await.expect("no call fails");
    tests::client::text(&done).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn registry_plugin_survives_restart_without_registry() {
    let Some(mut registry) = Registry::start(false).await else { return };
    let folder = tempfile::tempdir().unwrap();
    let (private, public) = keys(folder.path(), "acme");
    let sign = ["--sign", &private.display().to_string()];
    let tag = registry.reference("acme/text:stable");
    let old = push(&component("text"), &tag, &sign).await;
    let changed = folder.path().join("text.wasm");
    std::fs::write(&changed, variant("text", "The texts are the same.", "The texts are the SAME.")).unwrap();

    let rule = format!("[[trust]]\nsource = \"oci://{}/acme/*\"\nkeys = [{public:?}]", registry.address);
    let host = tests::Setup::new().config(&rule).start().await;
    let data = host.setup.data();
    let (code, done) = command::outcome(&["plugin", "add", &tag], &data).await;
    assert_eq!(code, Some(0), "{done}");
    assert_eq!(summary(&host).await, "The texts are the same.");
    let name = done["plugins"][0]["name"].as_str().unwrap().to_owned();
    let versions = |data: PathBuf, name: String| async move {
        let all = command::json(&["plugin", "versions", &name], &data).await;
        all["versions"].as_array().unwrap().clone()
    };
    let first = versions(data.clone(), name.clone()).await;
    assert_eq!(first[0]["source"], json!(tag));
    assert_eq!(first[0]["origin"], json!(format!("{tag}@{}", old["manifest"].as_str().unwrap())));

    // The tag moves; nothing changes until the operator says so. What nobody signed is not taken, and the old one
    // serves on.
    push(&changed, &tag, &[]).await;
    assert_eq!(summary(&host).await, "The texts are the same.");
    let (code, refused) = command::outcome(&["plugin", "update", &name, "--activate"], &data).await;
    assert_eq!(code, Some(4), "{refused}");
    assert!(refused.to_string().contains("found none"), "{refused}");
    assert_eq!(summary(&host).await, "The texts are the same.");

    let new = push(&changed, &tag, &sign).await;
    let (code, done) = command::outcome(&["plugin", "update", &name, "--activate"], &data).await;
    assert_eq!(code, Some(0), "{done}");
    assert_eq!(summary(&host).await, "The texts are the SAME.");
    let both = versions(data.clone(), name.clone()).await;
    assert_eq!(both.len(), 2);
    assert!(
        both.iter().any(|version| version["origin"].as_str().unwrap().ends_with(new["manifest"].as_str().unwrap()))
    );

    let (code, done) = command::outcome(&["plugin", "rollback", &name], &data).await;
    assert_eq!(code, Some(0), "{done}");
    assert_eq!(summary(&host).await, "The texts are the same.");

    registry.stop().await;
    let (code, said) = command::outcome(&["plugin", "update", &name], &data).await;
    assert_eq!(code, Some(4), "{said}");
    assert!(said.to_string().contains("no connection"), "{said}");
    let (_, setup) = host.terminate().await;
    let host = setup.start().await;
    assert_eq!(summary(&host).await, "The texts are the same.");
    let (code, done) = command::outcome(
        &["plugin", "activate", &format!("{name}@{}", &new["component"].as_str().unwrap()[..12])],
        &data,
    )
    .await;
    assert_eq!(code, Some(0), "{done}");
    assert_eq!(summary(&host).await, "The texts are the SAME.");
}

#[tokio::test(flavor = "multi_thread")]
async fn registry_pull_writes_trusted_components_only() {
    let Some(registry) = Registry::start(false).await else { return };
    let folder = tempfile::tempdir().unwrap();
    let (private, public) = keys(folder.path(), "acme");
    let tag = registry.reference("acme/text:1");
    let file = folder.path().join("got.wasm");
    let out = file.display().to_string();
    let config = folder.path().join("bulkhead.toml");
    let pushed = push(&component("text"), &tag, &[]).await;
    let pull = async |from: &str, more: &[&str]| {
        let arguments = [&["plugin", "pull", from, "-o", &out, "--json"], more].concat();
        let done = command::output(&mut command::bulkhead(), &arguments, None).await;
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        (done.status.code(), String::from_utf8_lossy(&done.stdout).into_owned(), said)
    };
    let (code, _, said) = pull(&tag, &[]).await;
    assert!(code == Some(4) && said.contains("a [[trust]] rule for it, or a digest") && !file.exists(), "{said}");

    let digest = format!("{}@{}", tag.rsplit_once(':').unwrap().0, pushed["manifest"].as_str().unwrap());
    let (code, said, _) = pull(&digest, &[]).await;
    assert_eq!(code, Some(0));
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["origin"], &said["component"]), (&json!(digest), &pushed["component"]));
    assert!(std::fs::read(&file).unwrap() == std::fs::read(component("text")).unwrap());

    std::fs::write(&file, "what was there").unwrap();
    std::fs::write(&config, format!("[[trust]]\nsource = 'oci://**'\nkeys = [{public:?}]\n")).unwrap();
    let trusting = ["--config", &config.display().to_string()];
    let (code, _, said) = pull(&digest, &trusting).await;
    assert!(code == Some(4) && said.contains("found none"), "{said}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "what was there");
    let signed = push(&component("text"), &tag, &["--sign", &private.display().to_string()]).await;
    let (code, said, _) = pull(&tag, &trusting).await;
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap()["signed_by"], json!([signed["signed_by"]]));
}
