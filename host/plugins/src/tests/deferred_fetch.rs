//! What the configuration names: what is refused, what is waited for, and what was said about it meanwhile.

use tokio::sync::Semaphore;

use super::*;
use bulkhead_store::memory::MemoryStore;

/// A component that comes when it is let.
#[derive(Debug)]
struct Parcel {
    candidate: Candidate,
    is_local: bool,
    may_come: Semaphore,
}

#[async_trait::async_trait]
impl ComponentSource for Parcel {
    fn label(&self) -> String {
        "https://a.example/text.wasm".to_owned()
    }

    fn is_local(&self) -> bool {
        self.is_local
    }

    async fn fetch(&self) -> Result<Candidate, LoadError> {
        self.may_come.acquire().await.unwrap().forget();
        Ok(self.candidate.clone())
    }
}

fn parcel(candidate: &Candidate, is_local: bool, may_come: usize) -> Arc<Parcel> {
    Arc::new(Parcel { candidate: candidate.clone(), is_local, may_come: Semaphore::new(may_come) })
}

/// A plugin of the configuration that cannot be granted what it is granted.
fn misconfigured(mut policy: Policy) -> Policy {
    let absent = DirGrant { host: "/nowhere/at/all".into(), guest: "/a".to_owned(), write: false, bytes_max: None };
    policy.source.grants.directories.push(absent);
    policy
}

fn named(name: &str, prefix: &str) -> Policy {
    let mut policy = policy();
    (policy.source.name, policy.source.prefix) = (Some(name.to_owned()), prefix.to_owned());
    policy
}

struct Bench {
    data: tempfile::TempDir,
    store: Arc<MemoryStore>,
    clock: Arc<ManualClock>,
}

impl Bench {
    fn new() -> Self {
        let store = Arc::new(MemoryStore::new());
        let clock = Arc::new(ManualClock::at(1));
        Self { data: tempfile::tempdir().unwrap(), store, clock }
    }

    async fn start(&self, wanted: Vec<(Policy, Arc<Parcel>)>) -> (World, Vec<LoadError>) {
        let wanted = wanted.into_iter().map(|(policy, component_source)| ConfiguredPlugin {
            policy,
            component_source,
            pinned: false,
        });
        start_in(self.data.path(), &self.store, &self.clock, policy(), wanted.collect()).await
    }
}

async fn line(world: &World, name: &str) -> Option<PluginView> {
    world.plugins.list().await.unwrap().into_iter().find(|line| line.name == name)
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_plugin_leaves_shared_component_in_place() {
    let Some(text) = text(SAME, SAME) else { return };
    let bench = Bench::new();
    let wanted = |policy: Policy| {
        let candidate = Candidate { name: policy.source.name.clone(), ..text.clone() };
        (policy, parcel(&candidate, true, 9))
    };
    let (world, refused) =
        bench.start(vec![wanted(misconfigured(named("one", "one."))), wanted(named("two", "two."))]).await;
    assert_eq!(refused.iter().map(|error| error.plugin.as_str()).collect::<Vec<_>>(), ["one"]);
    let digest = line(&world, "two").await.unwrap().active.unwrap();
    world.sandbox.kept().verify(&digest.0).unwrap();
    let (world, _) = bench.start(vec![wanted(named("two", "two."))]).await;
    assert!(world.sandbox.catalog().get("two.echo").is_some(), "a later start finds it");
}

#[tokio::test(flavor = "multi_thread")]
async fn repaired_file_keeps_problems_of_a_broken_plugin() {
    let Some(text) = text(SAME, SAME) else { return };
    let bench = Bench::new();
    let (world, _) = bench.start(vec![(misconfigured(named("text", "")), parcel(&text, true, 9))]).await;
    let problems = async || line(&world, "text").await.unwrap().problems;
    let why = problems().await;
    assert!(why[0].contains("/nowhere/at/all is not there"), "{why:?}");
    world.plugins.note_problems("text", vec!["the file is cut off".to_owned()]).await;
    assert_eq!(problems().await, [why.clone(), vec!["the file is cut off".to_owned()]].concat());
    world.plugins.note_problems("text", Vec::new()).await;
    assert_eq!((problems().await, line(&world, "text").await.unwrap().state), (why, PluginState::Broken));
}

#[tokio::test(flavor = "multi_thread")]
async fn fetched_plugin_joins_and_list_change_is_notified() {
    let Some(text) = text(SAME, SAME) else { return };
    let bench = Bench::new();
    let late = parcel(&text, false, 0);
    let (world, refused) = bench.start(vec![(named("text", "late."), Arc::clone(&late))]).await;
    assert_eq!(refused, Vec::new());
    let awaited = line(&world, "text").await.unwrap();
    assert_eq!(awaited.state, PluginState::Awaited);
    assert!(awaited.problems[0].contains("not there yet"), "{:?}", awaited.problems);
    world.calls.told.lock().clear();
    late.may_come.add_permits(1);
    world.plugins.fetch_awaited(|error| panic!("{error}")).await;
    assert_eq!(*world.calls.told.lock(), [vec![ListKind::Tools]]);
    assert!(world.sandbox.catalog().get("late.echo").is_some());
    let [there] = <[PluginView; 1]>::try_from(world.plugins.list().await.unwrap()).unwrap();
    assert_eq!((there.name.as_str(), there.state, there.problems), ("text", PluginState::Active, Vec::new()));
    let other = super::text(SAME, "The texts are the SAME.").unwrap();
    let other = world.plugins.stage(other).await.unwrap().version;
    assert!(world.plugins.activate(&to(other.digest), false).await.unwrap().done);
    assert!(world.sandbox.catalog().get("late.echo").is_some(), "the next version has the same terms");
}

#[tokio::test(flavor = "multi_thread")]
async fn version_activated_during_fetch_stays_active() {
    let (Some(text), Some(other)) = (text(SAME, SAME), text(SAME, "The texts are the SAME.")) else { return };
    let bench = Bench::new();
    let late = parcel(&text, false, 1);
    let (world, _) = bench.start(vec![(named("text", "p."), Arc::clone(&late))]).await;
    let other = world.plugins.stage(other).await.unwrap().version;
    assert!(world.plugins.activate(&to(other.digest), false).await.unwrap().done);
    let now = line(&world, "text").await.unwrap();
    assert_eq!((now.state, now.problems), (PluginState::Active, Vec::new()), "nothing is missing any more");
    world.plugins.fetch_awaited(|error| panic!("{error}")).await;
    let line = line(&world, "text").await.unwrap();
    assert_eq!((line.active, line.state, line.versions), (Some(Digest(other.digest)), PluginState::Active, 1));
    assert!(world.sandbox.catalog().get("p.echo").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_fetched_plugin_is_not_retried() {
    let Some(text) = text(SAME, SAME) else { return };
    let bench = Bench::new();
    let late = parcel(&text, false, 1);
    let (world, _) = bench.start(vec![(misconfigured(named("text", "")), Arc::clone(&late))]).await;
    let failed = parking_lot::Mutex::new(Vec::new());
    world.plugins.fetch_awaited(|error| failed.lock().push(error.problems.join("; "))).await;
    let failed = failed.into_inner();
    assert!(matches!(failed.as_slice(), [why] if why.contains("/nowhere/at/all is not there")), "{failed:?}");
    assert_eq!(line(&world, "text").await.unwrap().state, PluginState::Broken);
    let kept = bench.data.path().join("components").read_dir().unwrap().count();
    assert_eq!(kept, 0, "nothing of it is left");
}
