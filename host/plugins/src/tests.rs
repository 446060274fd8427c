//! Switches over a store that fails, with components that are built already.

mod canary;
mod deferred_fetch;
mod demotion;
mod mcp;
mod policy_reload;

use std::path::Path;
use std::sync::Arc;

use futures::future::BoxFuture;

use super::*;
use bulkhead_calls::policy::DirGrant;
use bulkhead_calls::{Executor as _, ListKind};
use bulkhead_domain::clock::ManualClock;
use bulkhead_domain::limits::CallLimits;
use bulkhead_metrics::{Form, MetricsOptions, Readings, page};
use bulkhead_runtime::{SandboxConfig, Source, Wit};
use bulkhead_store::memory::MemoryStore;

/// Nobody calls; what is told is remembered.
#[derive(Default)]
struct Silence {
    told: parking_lot::Mutex<Vec<Vec<ListKind>>>,
}

#[async_trait::async_trait]
impl Calls for Silence {
    async fn tasks(&self) -> Result<HashMap<PluginVersion, usize>, store::Error> {
        Ok(HashMap::new())
    }

    fn lists_changed(&self, kinds: &[ListKind]) {
        self.told.lock().push(kinds.to_vec());
    }

    async fn end(&self, _: &PluginVersion, _: DrainThen) {}
}

fn policy() -> Policy {
    let source = PluginSource::bare(Source::Bytes(Vec::new().into()), CallLimits::generous());
    Policy {
        source,
        accept_changes: AcceptChanges::Nothing,
        drain_ms: 0,
        drain_then: DrainThen::Wait,
        quarantine_after: 0,
        canary: CanaryThresholds::default(),
        watch_switch_ms: 0,
    }
}

pub(crate) struct World {
    pub(crate) plugins: Plugins,
    sandbox: Arc<Sandbox>,
    calls: Arc<Silence>,
    health: Arc<HealthMonitor>,
}

/// A host on this store, as after a start.
pub(crate) async fn start(store: &Arc<MemoryStore>, clock: &Arc<ManualClock>) -> World {
    let (world, refused) = start_with(store, clock, policy()).await;
    assert_eq!(refused, Vec::new());
    world
}

async fn start_with(store: &Arc<MemoryStore>, clock: &Arc<ManualClock>, otherwise: Policy) -> (World, Vec<LoadError>) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tmp/plugins");
    start_in(&data, store, clock, otherwise, Vec::new()).await
}

async fn start_in(
    data: &Path,
    store: &Arc<MemoryStore>,
    clock: &Arc<ManualClock>,
    otherwise: Policy,
    wanted: Vec<ConfiguredPlugin>,
) -> (World, Vec<LoadError>) {
    let sandbox = Sandbox::new(SandboxConfig::sample(data)).unwrap();
    let calls = Arc::new(Silence::default());
    let health = Arc::new(HealthMonitor::of_running_host(None));
    let options = Options {
        store: store.clone(),
        sandbox: sandbox.clone(),
        calls: calls.clone(),
        health: health.clone(),
        clock: clock.clone(),
        otherwise,
        tenants: HashMap::new(),
        audit: Audit::off(),
        metrics: Metrics::new(MetricsOptions { series_max: 1_000, tools: true }),
    };
    let (plugins, refused) = Plugins::start(options, wanted).await.unwrap();
    (World { plugins, sandbox, calls, health }, refused)
}

/// The component of `text`, with one text in it replaced, once `cargo xtask plugins` has built it.
pub(crate) fn text(from: &str, to: &str) -> Option<Candidate> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/plugins/text.wasm");
    let Ok(mut bytes) = std::fs::read(&file) else {
        eprintln!("NOT RUN: {} is not built (cargo xtask plugins)", file.display());
        return None;
    };
    let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
    bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    let name = Some("text".to_owned());
    let fallback_name = None;
    Some(Candidate {
        name,
        fallback_name,
        bytes: bytes.into(),
        wit: Wit::Free(None),
        provenance: Provenance::default(),
        is_attended: true,
    })
}

pub(crate) const SAME: &str = "The texts are the same.";

async fn active(world: &World) -> Option<Digest> {
    let listed = world.plugins.list().await.unwrap();
    let published = world.sandbox.catalog().get("echo").map(|entry| Digest(entry.plugin.digest));
    let [line] = listed.try_into().unwrap();
    assert_eq!(published, line.active, "what is listed is what runs");
    line.active
}

/// The component of `probe`, which lists one more tool when a file says so.
fn probe() -> Option<Candidate> {
    built("probe.wasm", "probe")
}

/// A component that `cargo xtask plugins` builds, as a candidate of this name.
fn built(file: &str, name: &str) -> Option<Candidate> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/plugins").join(file);
    let Ok(bytes) = std::fs::read(&file) else {
        eprintln!("NOT RUN: {} is not built (cargo xtask plugins)", file.display());
        return None;
    };
    Some(Candidate {
        name: Some(name.to_owned()),
        fallback_name: None,
        bytes: bytes.into(),
        wit: Wit::Free(None),
        provenance: Provenance::default(),
        is_attended: true,
    })
}

fn to(digest: [u8; 32]) -> Vec<Target> {
    vec![Target { name: "text".into(), version: Some(Digest(digest).to_string()) }]
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_of_a_plugin_go_and_come_with_it_whatever_publishes() {
    let Some(counted) = text(SAME, "The texts are counted.") else { return };
    let store = Arc::new(MemoryStore::new());
    let clock = Arc::new(ManualClock::at(1));
    let world = start(&store, &clock).await;
    let digest = world.plugins.stage(counted).await.unwrap().version.digest;
    assert!(world.plugins.activate(&to(digest), false).await.unwrap().done);
    let inner = &world.plugins.inner;
    let _held = inner.metrics.plugin("text");
    let is_shown = || page(&inner.metrics, Readings::default(), Form::Text).unwrap().contains("plugin=\"text\"");
    assert!(is_shown());
    // As after a change that was in doubt, and as when one comes that was awaited.
    let mut state = world.plugins.settled().await.unwrap();
    let table = state.table.clone();
    inner.publish(&mut state, Vec::new(), Vec::new());
    assert!(!is_shown(), "it is gone");
    inner.publish(&mut state, table, Vec::new());
    assert!(is_shown(), "it is there again");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_store_write_keeps_old_version_active() {
    let (Some(one), Some(other)) = (text(SAME, SAME), text(SAME, "The texts are the SAME.")) else { return };
    let store = Arc::new(MemoryStore::new());
    let clock = Arc::new(ManualClock::at(1));
    let world = start(&store, &clock).await;
    let one = world.plugins.stage(one).await.unwrap().version;
    assert!(world.plugins.activate(&to(one.digest), false).await.unwrap().done);
    let other = world.plugins.stage(other).await.unwrap().version;

    store.fail_next_writes(1);
    assert!(matches!(world.plugins.activate(&to(other.digest), false).await, Err(Error::Store(_))));
    assert_eq!(active(&world).await, Some(Digest(one.digest)));
    assert_eq!(active(&start(&store, &clock).await).await, Some(Digest(one.digest)), "nothing was written");

    // It was written, and the host heard of a failure: it looks, and runs what the store says.
    store.lose_next_acknowledgements(1);
    assert!(world.plugins.activate(&to(other.digest), false).await.unwrap().done);
    assert_eq!(active(&world).await, Some(Digest(other.digest)));
    assert_eq!(active(&start(&store, &clock).await).await, Some(Digest(other.digest)));
}

#[tokio::test(flavor = "multi_thread")]
async fn active_version_is_not_removed_nor_removed_one_activated() {
    let (Some(one), Some(other)) = (text(SAME, "The texts are the one."), text(SAME, "The texts are the two.")) else {
        return;
    };
    let store = Arc::new(MemoryStore::new());
    let clock = Arc::new(ManualClock::at(1));
    let world = start(&store, &clock).await;
    let one = world.plugins.stage(one).await.unwrap().version;
    assert!(world.plugins.activate(&to(one.digest), false).await.unwrap().done);
    let refused = world.plugins.remove_version("text", &Digest(one.digest).to_string()).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    // Between loading a version and switching to it, somebody removes it.
    let other = world.plugins.stage(other).await.unwrap().version;
    let loaded = world.plugins.ready(&other).await.unwrap();
    world.plugins.remove_version("text", &Digest(other.digest).to_string()).await.unwrap();
    let refused = world.plugins.switch_to("text", loaded).await;
    assert!(matches!(refused, Err(Error::NotFound(_))), "{refused:?}");
    assert_eq!(active(&world).await, Some(Digest(one.digest)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_added_stays_until_it_was_switched_to() {
    let (Some(one), Some(probe)) = (text(SAME, "The texts are added."), probe()) else { return };
    let store = Arc::new(MemoryStore::new());
    let clock = Arc::new(ManualClock::at(1));
    let world = start(&store, &clock).await;
    let digest = Digest(world.plugins.identify(&one).await.unwrap().digest);
    let published = || world.sandbox.catalog().get("echo").map(|entry| Digest(entry.plugin.digest));
    let remove = async || world.plugins.remove_version("text", &digest.to_string()).await;
    let first: BoxFuture<'_, _> = Box::pin(async { Ok(one.clone()) });
    let second: BoxFuture<'_, _> = Box::pin(async {
        let refused = remove().await;
        assert!(matches!(&refused, Err(Error::Invalid(why)) if why.contains("being added")), "{refused:?}");
        Ok(probe)
    });
    let switched = world.plugins.add([first, second].into_iter(), false).await.unwrap();
    assert!(switched.done);
    assert_eq!(switched.plugins.iter().map(|plugin| &*plugin.name).collect::<Vec<_>>(), ["text", "probe"]);
    assert_eq!(published(), Some(digest));

    // Of one name there is one version; what was staged for the others is kept, and is no longer held.
    let other = text(SAME, "The texts are not added.").unwrap();
    let both = [other.clone(), one].map(|candidate| std::future::ready(Ok(candidate)));
    let refused = world.plugins.add(both.into_iter(), false).await;
    assert!(matches!(&refused, Err(Error::Invalid(why)) if why == "text is named twice"), "{refused:?}");
    let other = world.plugins.identify(&other).await.unwrap();
    world.plugins.remove_version("text", &Digest(other.digest).to_string()).await.unwrap();
    assert_eq!(published(), Some(digest));
}

#[tokio::test(flavor = "multi_thread")]
async fn arriving_component_survives_version_removal() {
    let Some(one) = text(SAME, "The texts arrive.") else { return };
    let store = Arc::new(MemoryStore::new());
    let clock = Arc::new(ManualClock::at(1));
    let world = start(&store, &clock).await;
    let digest = world.plugins.stage(one.clone()).await.unwrap().version.digest;
    let arrival = world.plugins.inner.arriving.announce(digest);
    world.plugins.remove_version("text", &Digest(digest).to_string()).await.unwrap();
    assert!(world.sandbox.kept().verify(&digest).is_ok(), "whoever writes it finds it gone");
    drop(arrival);
    world.plugins.stage(one).await.unwrap();
    world.plugins.remove_version("text", &Digest(digest).to_string()).await.unwrap();
    assert!(world.sandbox.kept().verify(&digest).is_err(), "it is kept for ever");
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_component_is_repaired_by_staging_it_again() {
    let Some(one) = text(SAME, "The texts are damaged.") else { return };
    let store = Arc::new(MemoryStore::new());
    let clock = Arc::new(ManualClock::at(1));
    let world = start(&store, &clock).await;
    let version = world.plugins.stage(one.clone()).await.unwrap().version;
    assert!(world.plugins.activate(&to(version.digest), false).await.unwrap().done);
    let path = world.sandbox.kept().path(&version.digest);
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let (_, refused) = start_with(&store, &clock, policy()).await;
    assert!(refused.iter().any(|error| error.to_string().contains("has been changed")), "{refused:?}");
    world.plugins.stage(one).await.unwrap();
    assert_eq!(world.sandbox.kept().verify(&version.digest), Ok(bytes.len() as u64));
    assert_eq!(active(&start(&store, &clock).await).await, Some(Digest(version.digest)));
}

#[tokio::test(flavor = "multi_thread")]
async fn plugin_whose_component_is_missing_names_the_command_and_runs_once_it_is_back() {
    let Some(mut one) = text(SAME, "The texts are missing.") else { return };
    one.provenance.source = "oci://registry.example/text:1".to_owned();
    let store = Arc::new(MemoryStore::new());
    let clock = Arc::new(ManualClock::at(1));
    let world = start(&store, &clock).await;
    let version = world.plugins.stage(one.clone()).await.unwrap().version;
    assert!(world.plugins.activate(&to(version.digest), false).await.unwrap().done);
    assert!(!world.plugins.lacks_component());

    std::fs::remove_file(world.sandbox.kept().path(&version.digest)).unwrap();
    let (world, refused) = start_with(&store, &clock, policy()).await;
    let command = "`bulkhead plugin add oci://registry.example/text:1 --name text` brings its component back";
    assert!(refused.iter().any(|error| error.to_string().contains(command)), "{refused:?}");
    let [line] = world.plugins.list().await.unwrap().try_into().unwrap();
    assert!(line.state == PluginState::Broken && line.problems.iter().any(|problem| problem == command), "{line:?}");
    assert!(world.plugins.lacks_component());
    let again = [Target { name: "text".into(), version: None }];
    let missing = world.plugins.activate(&again, false).await;
    let Err(Error::Refused(missing)) = missing else { panic!("it is not back: {missing:?}") };
    assert!(missing.iter().any(|error| error.to_string().contains(command)), "{missing:?}");

    let staged = world.plugins.stage(one).await.unwrap();
    assert_eq!(staged.stage, Stage::Active);
    assert!(!world.plugins.is_running(&staged.version).await, "what should run does not by that alone");
    assert!(world.plugins.activate(&again, false).await.unwrap().done);
    assert!(world.plugins.is_running(&staged.version).await && !world.plugins.lacks_component());
    assert_eq!(active(&world).await, Some(Digest(version.digest)));
}

#[tokio::test(flavor = "multi_thread")]
async fn list_changes_are_notified_and_drained_versions_retire() {
    let Some(one) = text(SAME, SAME) else { return };
    let described = text("Returns the text as it is.", "Returns the text and more.").unwrap();
    let same_lists = text(SAME, "The texts are the SAME.").unwrap();
    let store = Arc::new(MemoryStore::new());
    let clock = Arc::new(ManualClock::at(1));
    let world = start(&store, &clock).await;
    world.calls.told.lock().clear();
    for candidate in [one, same_lists, described] {
        let version = world.plugins.stage(candidate).await.unwrap().version;
        let switched = world.plugins.activate(&to(version.digest), false).await.unwrap();
        if !switched.done {
            assert_eq!(switched.held, ["text: the tool echo changes: description"]);
            assert!(world.plugins.activate(&to(version.digest), true).await.unwrap().done);
        }
    }
    let told: Vec<_> = world.calls.told.lock().clone();
    assert_eq!(told, [vec![ListKind::Tools], vec![], vec![ListKind::Tools]]);
    assert!(!world.plugins.look().await.unwrap(), "nothing drains where nobody calls");
    let versions = world.plugins.versions("text").await.unwrap();
    let stages: Vec<_> = versions.iter().map(|line| line.state).collect();
    assert_eq!(stages.iter().filter(|stage| **stage == Stage::Retired).count(), 2, "{stages:?}");

    // Nothing of a refused component is left.
    let broken = Candidate {
        name: Some("broken".into()),
        fallback_name: None,
        bytes: wat::parse_str("(component)").unwrap().into(),
        wit: Wit::Free(None),
        provenance: Provenance::default(),
        is_attended: true,
    };
    assert!(matches!(world.plugins.stage(broken).await, Err(Error::Refused(_))));
    assert_eq!(world.plugins.list().await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn plugin_relist_is_limited_to_accepted_definitions() {
    let (Some(probe), Some(text)) = (probe(), text(SAME, SAME)) else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut granting = policy();
    let lists = DirGrant { host: folder.path().to_owned(), guest: "/lists".to_owned(), write: false, bytes_max: None };
    granting.source.grants.directories.push(lists);
    let store = Arc::new(MemoryStore::new());
    let clock = Arc::new(ManualClock::at(1));
    let (world, _) = start_with(&store, &clock, granting.clone()).await;
    let version = world.plugins.stage(probe).await.unwrap().version;
    let other = world.plugins.stage(text).await.unwrap().version;
    let targets = [&version, &other]
        .map(|version| Target { name: version.name.clone(), version: Some(Digest(version.digest).to_string()) });
    assert!(world.plugins.activate(&targets, false).await.unwrap().done);
    world.calls.told.lock().clear();
    let file = folder.path().join("tool");
    let relist = async |text: Option<&str>| {
        match text {
            Some(text) => std::fs::write(&file, text).unwrap(),
            None => std::fs::remove_file(&file).unwrap(),
        }
        let result = world.plugins.relist(&version, &HashSet::from([ListKind::Tools])).await;
        let told = std::mem::take(&mut *world.calls.told.lock());
        (result.map_err(|error| error.to_string()), told)
    };
    let described = |name: &str| world.sandbox.catalog().get(name).map(|entry| entry.tool.description.clone());
    let changed = || vec![vec![ListKind::Tools]];

    // A tool comes, and what was one table before stays one for whoever holds it.
    let before = world.sandbox.catalog();
    assert_eq!(relist(Some("extra\nOne.")).await, (Ok(()), changed()));
    assert_eq!((described("extra").as_deref(), before.get("extra").is_none()), (Some("One."), true));
    assert_eq!(relist(Some("extra\nOne.")).await, (Ok(()), vec![]), "the same list is told to nobody");
    // Another definition, a wrong name and a name of another plugin are not taken over.
    for (wrong, why) in
        [("extra\nTwo.", "the tool extra changes: description"), ("a b\nOne.", "a b"), ("echo\nOne.", "echo")]
    {
        let (result, told) = relist(Some(wrong)).await;
        assert!(result.as_ref().is_err_and(|error| error.contains(why)), "{wrong:?}: {result:?}");
        assert_eq!((told, described("extra").as_deref()), (vec![], Some("One.")));
    }
    // Nor does a tool change by going and coming back; as it was accepted, it may.
    assert_eq!(relist(None).await, (Ok(()), changed()));
    assert_eq!(described("extra"), None);
    let (result, told) = relist(Some("extra\nTwo.")).await;
    assert!(result.is_err_and(|error| error.contains("extra is not the one that was accepted")) && told.is_empty());
    assert_eq!(relist(Some("extra\nOne.")).await, (Ok(()), changed()));
    // A version that is not active is on no list.
    let stranger = PluginVersion { digest: [9; 32], ..version.clone() };
    assert!(world.plugins.relist(&stranger, &HashSet::from([ListKind::Resources])).await.is_ok());
    assert_eq!(*world.calls.told.lock(), Vec::<Vec<ListKind>>::new());

    // A start looks as closely.
    std::fs::write(&file, "extra\nTwo.").unwrap();
    let (again, refused) = start_with(&store, &clock, granting).await;
    assert!(refused.iter().any(|error| error.to_string().contains("bulkhead plugin activate probe@")), "{refused:?}");
    assert!(again.sandbox.catalog().get("extra").is_none() && again.sandbox.catalog().get("echo").is_some());
    assert!(again.plugins.activate(&targets, false).await.unwrap().done, "the operator's word");
    assert_eq!(again.sandbox.catalog().get("extra").unwrap().tool.description, "Two.");
}

#[tokio::test(flavor = "multi_thread")]
async fn unaccepted_definition_does_not_run_after_lost_acknowledgement() {
    let Some(probe) = probe() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tool");
    std::fs::write(&file, "extra\nOne.").unwrap();
    let mut granting = policy();
    let lists = DirGrant { host: folder.path().to_owned(), guest: "/lists".to_owned(), write: false, bytes_max: None };
    granting.source.grants.directories.push(lists);
    let store = Arc::new(MemoryStore::new());
    let clock = Arc::new(ManualClock::at(1));
    let (world, _) = start_with(&store, &clock, granting).await;
    world.plugins.stage(probe).await.unwrap();
    let targets = [Target { name: "probe".to_owned(), version: None }];
    // It is in the store, nobody heard of that, and meanwhile the plugin lists something else.
    store.lose_next_acknowledgements(1);
    store.fail_next_reads(1);
    assert!(world.plugins.activate(&targets, false).await.is_err());
    std::fs::write(&file, "extra\nTwo.").unwrap();
    world.plugins.look().await.unwrap();
    assert!(world.sandbox.catalog().get("extra").is_none(), "nobody accepted that");
    let line = world.plugins.list().await.unwrap().remove(0);
    assert_eq!(line.state, PluginState::Broken);
    assert!(line.problems.iter().any(|problem| problem.contains("bulkhead plugin activate probe@")), "{line:?}");
    // The operator's word, as after a start.
    let version = line.active.unwrap().to_string();
    let accepted = [Target { name: "probe".to_owned(), version: Some(version) }];
    assert!(world.plugins.activate(&accepted, false).await.unwrap().done);
    assert_eq!(world.sandbox.catalog().get("extra").unwrap().tool.description, "Two.");
}

#[tokio::test(flavor = "multi_thread")]
async fn staged_version_is_listed_without_grants_until_switch() {
    let Some(probe) = probe() else { return };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tool"), "extra\nOne.").unwrap();
    let mut granting = policy();
    let lists = DirGrant { host: folder.path().to_owned(), guest: "/lists".to_owned(), write: false, bytes_max: None };
    granting.source.grants.directories.push(lists);
    let store = Arc::new(MemoryStore::new());
    let clock = Arc::new(ManualClock::at(1));
    let (world, _) = start_with(&store, &clock, granting).await;
    let unattended = Candidate { is_attended: false, ..probe.clone() };
    let staged = world.plugins.stage(unattended).await.unwrap();
    let target = Target { name: "probe".to_owned(), version: None };
    assert!(world.plugins.activate(&[target], false).await.unwrap().done);
    assert_eq!(world.plugins.stage(probe).await.unwrap().tools, staged.tools + 1);
    assert!(world.sandbox.catalog().get("extra").is_some(), "it runs with what it is granted");
}
