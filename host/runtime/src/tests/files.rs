//! Directories of a real guest that takes every way out of them, and into them.

use serde_json::json;

use super::*;
use bulkhead_calls::policy::DirGrant;

/// A sandbox whose guest has these directories, with these quotas.
async fn house(directories: &[(&str, &Path, Option<u64>)]) -> Option<House> {
    let mut plugin = sample("hostile")?;
    let grant = |(guest, host, bytes_max): &(&str, &Path, Option<u64>)| DirGrant {
        host: host.to_path_buf(),
        guest: (*guest).to_owned(),
        write: true,
        bytes_max: *bytes_max,
    };
    plugin.grants.directories = directories.iter().map(grant).collect();
    let house = House::of(Arc::new(Names));
    house.publish(plugin).await;
    Some(house)
}

#[derive(Debug)]
struct Names;

#[async_trait::async_trait]
impl TenantNames for Names {
    async fn name(&self, tenant: TenantId) -> Option<String> {
        Some(match tenant.0 {
            [7, ..] => "acme".to_owned(),
            [1, ..] => "...".to_owned(),
            [2, ..] => "a/../b".to_owned(),
            _ => return None,
        })
    }
}

async fn walk(house: &House, steps: serde_json::Value) -> Vec<String> {
    walk_as(house, TENANT, steps).await.unwrap()
}

async fn walk_as(house: &House, tenant: TenantId, steps: serde_json::Value) -> Option<Vec<String>> {
    let arguments = json!({"directory": "/data", "steps": steps}).to_string();
    let running = house.start_with("files", &arguments, |spec| spec.tenant = tenant);
    let output = finished(running).await.ok()?;
    let results: serde_json::Value = serde_json::from_str(output.structured?.as_str()).unwrap();
    Some(serde_json::from_value(results["results"].clone()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn granted_directory_cannot_be_escaped() {
    let folder = TempDir::new().unwrap();
    let inside = folder.path().join("in");
    let outside = folder.path().join("secret");
    std::fs::create_dir(&inside).unwrap();
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("key"), "secret").unwrap();
    std::os::unix::fs::symlink(&outside, inside.join("planted")).unwrap();
    let absolute = outside.join("key").to_str().unwrap().to_owned();
    for quota in [None, Some(1 << 20)] {
        let Some(house) = house(&[("/data", &inside, quota)]).await else { return };
        let mut steps = Vec::new();
        for path in ["../secret/key", "./../secret/key", "a/../../secret/key", "planted/key", &absolute, "/etc/passwd"]
        {
            steps.push(json!({"do": "read", "path": path}));
            steps.push(json!({"do": "write", "path": path, "bytes": 1}));
            steps.push(json!({"do": "remove", "path": path}));
            steps.push(json!({"do": "link", "from": path, "path": "stolen"}));
            steps.push(json!({"do": "rename", "from": path, "path": "stolen"}));
        }
        for target in ["../secret", &absolute, "/"] {
            steps.push(json!({"do": "symlink", "target": target, "path": "way"}));
            steps.push(json!({"do": "read", "path": "way/key"}));
            steps.push(json!({"do": "read", "path": "way"}));
            steps.push(json!({"do": "write", "path": "way/new", "bytes": 1}));
            steps.push(json!({"do": "remove", "path": "way"}));
        }
        steps.push(json!({"do": "mkdir", "path": "../made"}));
        for (step, result) in steps.iter().zip(walk(&house, json!(steps)).await) {
            let is_harmless = step["path"] == "way" && step["do"] != "read";
            let worked = result == "done" || result.contains("secret") || result == "1";
            assert!(!worked || is_harmless, "{step}: {result}");
        }
    }
    let mut left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["in", "secret"]);
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(std::fs::read_to_string(outside.join("key")).unwrap(), "secret");
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_directories_are_isolated() {
    let folder = TempDir::new().unwrap();
    let Some(house) = house(&[("/data", &folder.path().join("{tenant}"), None)]).await else { return };
    let write = json!([{"do": "write", "path": "a", "bytes": 3}, {"do": "read", "path": "a"}]);
    let read = json!([{"do": "read", "path": "a"}, {"do": "read", "path": "../acme/a"}]);
    assert_eq!(walk(&house, write.clone()).await, ["3", "xxx"]);
    let other = TenantId([1; 16]);
    assert_eq!(walk_as(&house, other, read).await.unwrap(), ["no-entry", "not-permitted"]);
    assert_eq!(walk_as(&house, other, write.clone()).await.unwrap(), ["3", "xxx"]);
    for nobody in [TenantId([2; 16]), TenantId([3; 16])] {
        assert_eq!(walk_as(&house, nobody, write.clone()).await, None, "there is no directory for {nobody}");
    }
    let mut made: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    made.sort();
    assert_eq!(made, ["%2E..", "acme"]);
}

/// The bytes below a directory, by an eye of its own.
fn bytes_in(folder: &Path) -> u64 {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let found = entry.metadata().unwrap();
            if found.is_dir() { bytes_in(&entry.path()) } else { found.len() }
        })
        .sum()
}

const QUOTA: u64 = 64 << 10;

#[tokio::test(flavor = "multi_thread")]
async fn directory_quota_holds_for_every_write_operation() {
    let folder = TempDir::new().unwrap();
    let Some(house) = house(&[("/data", folder.path(), Some(QUOTA))]).await else { return };
    let full = |result: &String| result.contains("insufficient-space") || result.contains("os error 28");
    for steps in [
        json!([{"do": "write", "path": "a", "bytes": 1 << 20}]),
        json!([{"do": "write", "path": "a", "bytes": 1 << 20, "append": true}]),
        json!([{"do": "write_at", "path": "a", "offset": 0, "bytes": 1 << 17}]),
        json!([{"do": "write_at", "path": "a", "offset": 1_u64 << 40, "bytes": 1}]),
        json!([{"do": "resize", "path": "a", "size": 1_u64 << 40}]),
        json!([{"do": "touch", "prefix": "e", "count": 1000}]),
        json!([{"do": "write", "path": "a", "bytes": 50 << 10}, {"do": "write", "path": "b", "bytes": 50 << 10}]),
    ] {
        let results = walk(&house, steps.clone()).await;
        assert!(full(results.last().unwrap()), "{steps}: {results:?}");
        let there = bytes_in(folder.path());
        assert!(there <= QUOTA, "{steps}: {there}");
        let removals: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| json!({"do": "remove", "path": entry.unwrap().file_name().to_str().unwrap()}))
            .collect();
        assert!(walk(&house, json!(removals)).await.iter().all(|result| result == "done"));
    }
    let fits =
        walk(&house, json!([{"do": "write", "path": "a", "bytes": 50 << 10}, {"do": "read", "path": "a"}])).await;
    assert_eq!(fits[0], (50 << 10).to_string(), "what was removed is room again");
    let over = walk(&house, json!([{"do": "write", "path": "a", "bytes": 50 << 10}])).await;
    assert_eq!(over, [(50 << 10).to_string()], "writing over what is there needs no room");
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_quota_is_shared_by_concurrent_calls() {
    let folder = TempDir::new().unwrap();
    let Some(house) = house(&[("/data", folder.path(), Some(QUOTA))]).await else { return };
    let steps = |at: usize| json!([{"do": "write", "path": format!("f{at}"), "bytes": 40 << 10}]);
    let calls = futures::future::join_all((0..6).map(|at| walk(&house, steps(at)))).await;
    assert!(calls.iter().flatten().any(|result| result.contains("28")), "{calls:?}");
    assert!(bytes_in(folder.path()) <= QUOTA);
    assert_eq!(walk(&house, json!([{"do": "read", "path": "missing"}])).await, ["no-entry"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_quota_counts_removed_open_files_and_moves() {
    let folder = TempDir::new().unwrap();
    let free = TempDir::new().unwrap();
    let directories = [("/data", folder.path(), Some(QUOTA)), ("/free", free.path(), None)];
    let Some(house) = house(&directories).await else { return };
    let hidden = |path: &str| json!({"do": "write_removed", "path": path, "bytes": 40 << 10});
    let results = walk(&house, json!([hidden("a"), hidden("b"), hidden("c")])).await;
    assert_eq!(results[0], (40 << 10).to_string());
    let full = |result: &String| result.contains("os error 28") || result == "insufficient-space";
    assert!(results[1..].iter().all(full), "{results:?}");
    std::fs::write(free.path().join("large"), vec![0; 1 << 20]).unwrap();
    let away = json!([
        {"do": "write", "path": "mine", "bytes": 10},
        {"do": "rename", "from": "mine", "path": "mine", "into": "/free"},
        {"do": "rename", "from": "mine", "path": "yours"},
        {"do": "link", "from": "yours", "path": "ours"},
    ]);
    assert_eq!(walk(&house, away).await, ["10", "cross-device", "done", "done"]);
    let arguments = json!({"directory": "/free", "steps": [
        {"do": "rename", "from": "large", "path": "large", "into": "/data"},
        {"do": "write", "path": "unbounded", "bytes": 1 << 18},
    ]});
    let output = house.call("files", &arguments.to_string()).await.unwrap();
    assert!(output.structured.unwrap().as_str().contains("[\"cross-device\",\"262144\"]"));
}

/// Each operation that has a count in front, in a directory that is full, and on what it is not meant for.
#[tokio::test(flavor = "multi_thread")]
async fn directory_quota_refusal_is_a_guest_error() {
    let folder = TempDir::new().unwrap();
    let other = TempDir::new().unwrap();
    let directories = [("/data", folder.path(), Some(QUOTA)), ("/other", other.path(), Some(QUOTA))];
    let Some(house) = house(&directories).await else { return };
    let entries = QUOTA / 4096;
    for number in 0..entries {
        std::fs::write(folder.path().join(format!("{number}")), "").unwrap();
    }
    let path = "new";
    let full = json!([
        {"do": "write", "path": path, "bytes": 1},
        {"do": "write", "path": "0", "bytes": 1},
        {"do": "write", "path": "0", "bytes": 1, "append": true},
        {"do": "write_at", "path": "0", "offset": 0, "bytes": 1},
        {"do": "write_at", "path": "0", "offset": u64::MAX, "bytes": 1},
        {"do": "resize", "path": "0", "size": 1},
        {"do": "resize", "path": "0", "size": u64::MAX},
        {"do": "touch", "prefix": path, "count": 1},
        {"do": "mkdir", "path": path},
        {"do": "symlink", "target": "0", "path": path},
        {"do": "link", "from": "0", "path": path},
    ]);
    for (step, said) in full.as_array().unwrap().iter().zip(walk(&house, full.clone()).await) {
        assert!(said.contains("insufficient-space") || said.contains("os error 28"), "{step}: {said}");
    }
    assert_eq!(bytes_in(folder.path()), 0);
    let astray = [
        (json!({"do": "write", "path": ".", "bytes": 1}), "is-directory invalid not-permitted"),
        (json!({"do": "write", "path": ".", "bytes": 1, "append": true}), "is-directory invalid not-permitted"),
        (json!({"do": "write_at", "path": ".", "offset": 0, "bytes": 1}), "is-directory invalid not-permitted"),
        (json!({"do": "resize", "path": ".", "size": 1}), "is-directory invalid not-permitted"),
        (json!({"do": "rename", "from": "0", "path": "0", "into": "/other"}), "cross-device"),
        (json!({"do": "link", "from": "missing", "path": "x"}), "no-entry insufficient-space"),
        (json!({"do": "rename", "from": "missing", "path": "x"}), "no-entry"),
        (json!({"do": "remove", "path": "missing"}), "no-entry"),
        (json!({"do": "remove", "path": "."}), "is-directory invalid not-permitted"),
        (json!({"do": "mkdir", "path": "../x"}), "not-permitted insufficient-space"),
    ];
    let steps: Vec<_> = astray.iter().map(|(step, _)| step).collect();
    for ((step, expected), said) in astray.iter().zip(walk(&house, json!(steps)).await) {
        assert!(expected.split(' ').any(|name| said.contains(name)), "{step}: {said}");
    }
    let after = json!([{"do": "remove", "path": "1"}, {"do": "remove", "path": "2"}, {"do": "write", "path": "0", "bytes": 8000}]);
    assert_eq!(walk(&house, after).await, ["done", "done", "8000"], "the same call could go on");
    assert_eq!(bytes_in(folder.path()), 8000);
}

/// WASI says a name as text, and a file's name may be anything: one of them must not hide the others.
#[tokio::test(flavor = "multi_thread")]
async fn name_that_is_not_text_hides_no_other() {
    use std::os::unix::ffi::OsStrExt as _;
    let folder = TempDir::new().unwrap();
    let Some(house) = house(&[("/data", folder.path(), None)]).await else { return };
    for name in [&b"a"[..], b"caf\xe9", b"\xff", b"b", b"\xc3\x28", b"z"] {
        std::fs::write(folder.path().join(std::ffi::OsStr::from_bytes(name)), "").unwrap();
    }
    assert_eq!(walk(&house, json!([{"do": "list"}])).await, ["a b z"]);
}
