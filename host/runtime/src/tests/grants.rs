//! What a plugin wants, what it is granted, what a tenant is left of that, and how a call says what it lacked.

use std::collections::HashMap;

use super::*;
use bulkhead_calls::policy::{Bound, DirBound, DirGrant};

/// With a manifest, which the build would have put in.
fn with_manifest(plugin: PluginSource, manifest: &str) -> PluginSource {
    let Source::File(file) = &plugin.component else { panic!() };
    let component = std::fs::read(file).unwrap();
    let mut section = vec![17];
    section.extend_from_slice(b"bulkhead:manifest");
    section.extend_from_slice(manifest.as_bytes());
    // The size of a section is in 7 bits a byte. The first manifest counts, so this one comes first.
    let size = u8::try_from(section.len() & 0x7f).unwrap() | 0x80;
    let size = [size, u8::try_from(section.len() >> 7).unwrap()];
    let bytes = [&component[..8], &[0], &size, &section, &component[8..]].concat();
    PluginSource { component: Source::Bytes(bytes.into()), name: Some("hostile".to_owned()), ..plugin }
}

fn reading(folder: &TempDir) -> Option<PluginSource> {
    let mut plugin = sample("hostile")?;
    std::fs::write(folder.path().join("a.txt"), "inside").unwrap();
    plugin.grants.directories =
        vec![DirGrant { host: folder.path().to_owned(), guest: "/data".to_owned(), write: true, bytes_max: None }];
    plugin.grants.env = vec!["GRANTED".to_owned()];
    Some(plugin)
}

const READ: (&str, &str) = ("read_file", r#"{"path":"/data/a.txt"}"#);
const WRITE: (&str, &str) = ("write_file", r#"{"path":"/data/b.txt","text":"x"}"#);

async fn is_done(house: &House, call: (&str, &str)) -> bool {
    let (tool, arguments) = call;
    !house.call(tool, arguments).await.unwrap().is_error
}

#[tokio::test(flavor = "multi_thread")]
async fn plugin_gets_only_grants_its_manifest_wants() {
    let folder = TempDir::new().unwrap();
    let Some(plugin) = reading(&folder) else { return };
    let house = House::new();
    for (manifest, reads, writes, sees) in [
        ("name = \"hostile\"", false, false, false),
        ("[grants]\ndirectories = [{ guest = \"/data\" }]\nenv = [\"GRANTED\"]", true, false, true),
        ("[grants]\ndirectories = [{ guest = \"/\", write = true }]\nenv = [\"OTHER\"]", true, true, false),
        ("[grants]\ndirectories = [{ guest = \"/dat\", write = true }]\nenv = [\"*\"]", false, false, true),
    ] {
        house.publish(with_manifest(plugin.clone(), &format!("{manifest}\n"))).await;
        assert_eq!((is_done(&house, READ).await, is_done(&house, WRITE).await), (reads, writes), "{manifest}");
        let environment = house.call("environment", "{}").await.unwrap();
        assert_eq!(text(&environment) == "GRANTED=yes\n", sees, "{manifest}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn manifest_want_without_grant_gets_nothing() {
    let Some(plugin) = sample("hostile") else { return };
    let house = House::new();
    house.publish(plugin).await;
    assert!(!is_done(&house, READ).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn lower_limit_wanted_by_manifest_applies() {
    let Some(plugin) = sample("hostile") else { return };
    let house = House::new();
    let loaded = house.publish(with_manifest(plugin, "[call]\ncpu_ms = 50\nwall_ms = 999999999\n")).await;
    let limits = &loaded.tools[0].limits;
    assert_eq!((limits.cpu_ms, limits.wall_ms), (50, super::limits().wall_ms));
    let (kind, reason) = fault(house.call("spin", "{}").await);
    assert_eq!((kind, reason.contains("50 ms")), (FaultKind::Limit, true), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn component_without_manifest_loads_unless_manifest_required() {
    let component = || Source::Bytes(wat::parse_str("(component)").unwrap().into());
    let named =
        |manifest_required| PluginSource { name: Some("bare".to_owned()), manifest_required, ..source(component()) };
    let house = House::new();
    let error = house.sandbox.load(named(true)).await.unwrap_err();
    assert!(error.problems.iter().any(|problem| problem.contains("carries no manifest")), "{error}");
    let error = house.sandbox.load(named(false)).await.unwrap_err();
    assert!(!error.problems.iter().any(|problem| problem.contains("manifest")), "{error}");
    let Some(plugin) = sample("text") else { return };
    house.sandbox.load(PluginSource { manifest_required: true, ..plugin }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_bound_narrows_plugin_grants() {
    let folder = TempDir::new().unwrap();
    let Some(plugin) = reading(&folder) else { return };
    let read_only = DirBound { guest: "/data".to_owned(), write: false, optional: false };
    let bound = Bound { directories: Some(vec![read_only]), env: Some(Vec::new()), ..Bound::default() };
    let other = TenantId([8; 16]);
    let all = (true, "GRANTED=yes\n");
    let less = (false, "");
    let house = House::new();
    let is_left = async |of_one, of_other| {
        for (tenant, (writes, sees)) in [(TENANT, of_one), (other, of_other)] {
            let call = async |(tool, arguments)| {
                finished(house.start_with(tool, arguments, |spec| spec.tenant = tenant)).await.unwrap()
            };
            assert_eq!(text(&call(READ).await), "inside");
            assert_eq!(!call(WRITE).await.is_error, writes);
            assert_eq!(text(&call(("environment", "{}")).await), sees);
        }
    };
    let bound = |tenant| Arc::new(HashMap::from([(tenant, bound.clone())]));
    let loaded = house.publish(PluginSource { tenants: bound(other), ..plugin.clone() }).await;
    is_left(all, less).await;
    // The same component on other terms.
    let terms = PluginSource { tenants: bound(TENANT), ..plugin };
    assert!(!loaded.is_under(&terms));
    let loaded = house.sandbox.under(&loaded, &terms).await.unwrap();
    assert!(loaded.is_under(&terms));
    assert_eq!(house.sandbox.publish(vec![loaded]).1, Vec::new());
    is_left(less, all).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_call_names_denied_grant_once() {
    let Some(plugin) = sample("hostile") else { return };
    let house = House::new();
    house.publish(plugin).await;
    let arguments = r#"{"method":"GET","url":"https://a.example/secret/path?with=arguments","at_once":3}"#;
    let (seen, outcome) = events(house.start("request", arguments)).await;
    let denied: Vec<_> = seen.iter().filter(|event| matches!(event, CallEvent::GrantDenied(_))).collect();
    assert!(
        matches!(&denied[..], [CallEvent::GrantDenied(denial)] if denial.to_string() == "http https://a.example"),
        "{seen:?}"
    );
    assert!(!outcome.unwrap().is_error, "a guest that copes with it has not failed");

    let Some(plugin) = sample("http") else { return };
    house.publish(plugin).await;
    let output = house.call("http_get", r#"{"url":"https://a.example/secret"}"#).await.unwrap();
    assert!(output.is_error);
    let ContentKind::Text(why) = &output.content.last().unwrap().kind else { panic!() };
    let cure = "the operator does not grant it: [plugin.grants] http, or the flag --http";
    assert_eq!(why, &format!("not granted to this plugin: http https://a.example ({cure})"));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_call_names_wanted_ungranted_directory() {
    let Some(plugin) = sample("hostile") else { return };
    let house = House::new();
    let manifest = "[grants]\ndirectories = [{ guest = \"/data\", write = true }]\nenv = [\"KEY\"]\n";
    house.publish(with_manifest(plugin, manifest)).await;
    let (seen, outcome) = events(house.start(READ.0, READ.1)).await;
    let output = outcome.unwrap();
    let ContentKind::Text(why) = &output.content.last().unwrap().kind else { panic!() };
    let cure = "the operator does not grant it: [plugin.grants] directories, or the flag --dir";
    assert_eq!(why, &format!("not granted to this plugin: directory /data (write) ({cure})"));
    assert_eq!(seen.iter().filter(|event| matches!(event, CallEvent::GrantDenied(_))).count(), 1);
    let (seen, _) = events(house.start("environment", "{}")).await;
    assert!(!seen.iter().any(|event| matches!(event, CallEvent::GrantDenied(_))), "it did not fail: {seen:?}");
}
