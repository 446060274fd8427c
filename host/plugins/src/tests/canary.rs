//! Canaries over a store that fails, and what a change comes to that was reported as failed.

use super::*;
use crate::health::CanaryStats;
use bulkhead_domain::call::{CallError, FaultKind};
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_tasks::{CallHealth as _, EndedCall};

const BLUE: TenantId = TenantId([2; 16]);
const ALICE: Requestor = Requestor { tenant: TenantId([1; 16]), id: RequestorId([1; 16]) };
const BOB: Requestor = Requestor { tenant: BLUE, id: RequestorId([2; 16]) };

fn wish(digest: Option<[u8; 32]>, share: Option<u16>, tenants: Option<&[TenantId]>) -> CanaryRequest {
    let named = |tenant: &TenantId| Tenant { name: "blue".into(), id: tenant.to_string() };
    CanaryRequest {
        target: Target { name: "text".into(), version: digest.map(|digest| Digest(digest).to_string()) },
        share,
        tenants: tenants.map(|tenants| tenants.iter().map(named).collect()),
        bounds: CanaryThresholdOverrides::default(),
    }
}

/// The version of `echo` that a requestor gets, and the number of the list that it stands on.
fn seen(world: &World, requestor: &Requestor) -> (Digest, u64) {
    let catalog = world.sandbox.catalog_for(&|route| route.includes(requestor));
    (Digest(catalog.get("echo").unwrap().plugin.digest), catalog.lists().tools)
}

async fn two_versions(world: &World, texts: [&str; 2]) -> Option<[[u8; 32]; 2]> {
    let mut digests = Vec::new();
    for to in texts {
        let version = world.plugins.stage(text(SAME, to)?).await.unwrap().version;
        digests.push(version.digest);
    }
    let targets = [Target { name: "text".into(), version: Some(Digest(digests[0]).to_string()) }];
    assert!(world.plugins.activate(&targets, false).await.unwrap().done);
    digests.try_into().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn canary_stages_survive_store_failures() {
    let store = Arc::new(MemoryStore::new());
    let clock = Arc::new(ManualClock::at(1));
    let world = start(&store, &clock).await;
    let Some([one, two]) = two_versions(&world, [SAME, "The texts are the CAN."]).await else { return };
    assert!(matches!(world.plugins.begin_canary(wish(None, None, None), false).await, Err(Error::Invalid(_))));
    store.fail_next_writes(1);
    let wanted = || wish(Some(two), None, Some(&[BLUE]));
    assert!(matches!(world.plugins.begin_canary(wanted(), false).await, Err(Error::Store(_))));
    assert_eq!(seen(&world, &BOB), seen(&world, &ALICE), "nothing was begun");
    store.lose_next_acknowledgements(1);
    assert!(world.plugins.begin_canary(wanted(), false).await.unwrap().done);
    let list = seen(&world, &ALICE).1;
    assert_eq!((seen(&world, &ALICE), seen(&world, &BOB)), ((Digest(one), list), (Digest(two), list)), "the same list");
    let versions = world.plugins.versions("text").await.unwrap();
    let stage = versions.iter().find(|line| line.version == Digest(two)).unwrap().state;
    assert_eq!(stage, Stage::Canary);

    // A restart, and somebody else's words, change nothing for the others.
    let again = start(&store, &clock).await;
    assert_eq!((seen(&again, &ALICE).0, seen(&again, &BOB).0), (Digest(one), Digest(two)));
    let changed = again.plugins.begin_canary(wish(None, Some(10_000), None), false).await.unwrap();
    assert_eq!(changed.plugins[0].turn, SwitchEffect::CanaryChanged);
    assert_eq!((seen(&again, &ALICE).0, seen(&again, &BOB).0), (Digest(two), Digest(two)));
    let line = again.plugins.list().await.unwrap().remove(0);
    let canary = line.canary.unwrap();
    assert_eq!((canary.percent, canary.tenants), (100.0, vec!["blue".to_owned()]), "the tenant stays in");

    let version = PluginVersion { name: "text".into(), digest: two };
    store.fail_next_writes(1);
    assert!(again.plugins.take_back(&version, "it broke".into()).await.is_err());
    assert_eq!(seen(&again, &BOB).0, Digest(two), "the store says so");
    again.plugins.take_back(&version, "it broke".into()).await.unwrap();
    assert_eq!((seen(&again, &ALICE).0, seen(&again, &BOB).0), (Digest(one), Digest(one)));
    again.plugins.take_back(&version, "again".into()).await.unwrap();
    let again = start(&store, &clock).await;
    let line = again.plugins.list().await.unwrap().remove(0);
    assert_eq!(line.taken_back.map(|gone| gone.taken_back.why).as_deref(), Some("it broke"));
    assert_eq!(seen(&again, &BOB).0, Digest(one));

    assert!(again.plugins.begin_canary(wanted(), false).await.unwrap().done);
    let moved = again.plugins.activate(&to(one), false).await;
    assert!(matches!(&moved, Err(Error::Invalid(why)) if why.contains("has the canary")), "{moved:?}");
    store.fail_next_writes(1);
    assert!(again.plugins.promote(&["text".to_owned()]).await.is_err());
    assert_eq!((seen(&again, &ALICE).0, seen(&again, &BOB).0), (Digest(one), Digest(two)));
    assert_eq!(again.plugins.promote(&["text".to_owned()]).await.unwrap().plugins[0].turn, SwitchEffect::Promoted);
    assert_eq!((seen(&again, &ALICE).0, seen(&again, &BOB).0), (Digest(two), Digest(two)));
    assert!(again.plugins.rollback(&["text".to_owned()]).await.unwrap().done);
    let again = start(&store, &clock).await;
    assert_eq!((seen(&again, &ALICE).0, seen(&again, &BOB).0), (Digest(one), Digest(one)));
}

#[tokio::test(flavor = "multi_thread")]
async fn version_failing_after_switch_is_rolled_back() {
    let store = Arc::new(MemoryStore::new());
    let clock = Arc::new(ManualClock::at(1));
    let watching = Policy { watch_switch_ms: 1_000, ..policy() };
    let (world, _) = start_with(&store, &clock, watching.clone()).await;
    let Some(one) = text(SAME, SAME) else { return };
    let two = text(SAME, "The texts are the BAD.").unwrap();
    let one = world.plugins.stage(one).await.unwrap().version;
    assert!(world.plugins.activate(&to(one.digest), false).await.unwrap().done);
    let watched = |world: &World| world.health.watched();
    assert_eq!(watched(&world), Vec::new(), "there is nothing to go back to");
    clock.advance(1);
    let two = world.plugins.stage(two).await.unwrap().version;
    let switch = async |world: &World| assert!(world.plugins.activate(&to(two.digest), false).await.unwrap().done);
    switch(&world).await;
    assert_eq!(
        watched(&world),
        vec![CanaryStats { version: two.clone(), against: None, bounds: CanaryThresholds::default() }]
    );
    // It is watched after a restart, too.
    let (world, _) = start_with(&store, &clock, watching).await;
    assert_eq!(watched(&world).len(), 1);
    world.plugins.take_back(&two, "it broke".into()).await.unwrap();
    assert_eq!((active(&world).await, watched(&world)), (Some(Digest(one.digest)), Vec::new()));
    let line = world.plugins.list().await.unwrap().remove(0);
    assert_eq!(
        line.taken_back.map(|gone| (gone.version, gone.taken_back.why)),
        Some((Digest(two.digest), "it broke".into()))
    );
    world.plugins.take_back(&one, "it breaks as well".into()).await.unwrap();
    assert_eq!(active(&world).await, Some(Digest(one.digest)), "what failed is not gone back to");
    // Whoever switches to it again has another look, for as long as the policy says; going back is nobody's failure.
    switch(&world).await;
    assert_eq!(watched(&world).len(), 1);
    clock.advance(1_000);
    world.plugins.take_back(&two, "too late".into()).await.unwrap();
    assert_eq!((active(&world).await, watched(&world)), (Some(Digest(two.digest)), Vec::new()));
    world.plugins.rollback(&["text".to_owned()]).await.unwrap();
    assert_eq!(watched(&world), Vec::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn canary_acceptance_does_not_cover_active_version() {
    let store = Arc::new(MemoryStore::new());
    let clock = Arc::new(ManualClock::at(1));
    let world = start(&store, &clock).await;
    let Some(one) = text(SAME, SAME) else { return };
    let other = text("Returns the text as it is.", "Returns the text and more.").unwrap();
    let one = world.plugins.stage(one).await.unwrap().version;
    assert!(world.plugins.activate(&to(one.digest), false).await.unwrap().done);
    let other = world.plugins.stage(other).await.unwrap().version;
    let wanted = || wish(None, None, Some(&[BLUE]));
    let held = world.plugins.begin_canary(wanted(), false).await.unwrap();
    assert_eq!((held.done, held.held), (false, vec!["text: the tool echo changes: description".to_owned()]));
    assert!(world.plugins.begin_canary(wanted(), true).await.unwrap().done);
    let alice = seen(&world, &ALICE);
    let bob = seen(&world, &BOB);
    assert_eq!(bob.0, Digest(other.digest));
    assert_ne!(alice.1, bob.1, "another list has another number");
    // Both are what was accepted, after a restart too.
    let again = start(&store, &clock).await;
    assert_eq!((seen(&again, &ALICE).0, seen(&again, &BOB).0), (alice.0, bob.0));
    assert!(again.plugins.verify(None).await.unwrap().sound);
    assert!(again.plugins.rollback(&["text".to_owned()]).await.unwrap().done);
    assert!(!again.plugins.begin_canary(wish(Some(other.digest), Some(1), None), false).await.unwrap().done);
    assert!(again.plugins.verify(None).await.unwrap().sound);
}

#[tokio::test(flavor = "multi_thread")]
async fn switch_with_lost_acknowledgement_applies_after_store_read() {
    let store = Arc::new(MemoryStore::new());
    let clock = Arc::new(ManualClock::at(1));
    let world = start(&store, &clock).await;
    let Some([one, two]) = two_versions(&world, [SAME, "The texts are the NEW."]).await else { return };
    // It is in the store, its acknowledgement is lost, and the store cannot be asked what it holds.
    let lose = || {
        store.lose_next_acknowledgements(1);
        store.fail_next_reads(1);
    };
    lose();
    assert!(matches!(world.plugins.activate(&to(two), false).await, Err(Error::Store(_))));
    assert_eq!(active(&world).await, Some(Digest(one)), "what is listed is what runs");
    store.fail_next_reads(1);
    assert!(world.plugins.rollback(&["text".to_owned()]).await.is_err(), "nothing is certain yet");
    world.plugins.look().await.unwrap();
    assert_eq!(active(&world).await, Some(Digest(two)));
    assert_eq!(seen(&world, &ALICE).0, Digest(two));

    // A command looks first: it goes back from what the store says, not from what ran.
    assert!(world.plugins.activate(&to(one), false).await.unwrap().done);
    lose();
    assert!(world.plugins.activate(&to(two), false).await.is_err());
    let back = world.plugins.rollback(&["text".to_owned()]).await.unwrap();
    assert_eq!((back.plugins[0].from, back.plugins[0].to), (Some(Digest(two)), Some(Digest(one))));
    assert_eq!(active(&world).await, Some(Digest(one)));

    // The same for a canary.
    lose();
    assert!(world.plugins.begin_canary(wish(Some(two), None, Some(&[BLUE])), false).await.is_err());
    world.plugins.look().await.unwrap();
    assert_eq!((seen(&world, &ALICE).0, seen(&world, &BOB).0), (Digest(one), Digest(two)));
    // Another process removed the plugin meanwhile, so to speak.
    let other = start(&store, &clock).await;
    other.plugins.rollback(&["text".to_owned()]).await.unwrap();
    other.plugins.remove("text").await.unwrap();
    assert!(world.plugins.promote(&["text".to_owned()]).await.is_err(), "a conflict");
    world.plugins.look().await.unwrap();
    assert!(world.sandbox.catalog().get("echo").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_survives_restart_and_failed_version_stays_out() {
    let store = Arc::new(MemoryStore::new());
    let clock = Arc::new(ManualClock::at(1));
    let watching = Policy { watch_switch_ms: 1_000, ..policy() };
    let (world, _) = start_with(&store, &clock, watching.clone()).await;
    let Some(one) = text(SAME, SAME) else { return };
    let one = world.plugins.stage(one).await.unwrap().version;
    assert!(world.plugins.activate(&to(one.digest), false).await.unwrap().done);
    clock.advance(1);
    let two = text("Returns the text as it is.", "Returns the text and more.").unwrap();
    let two = world.plugins.stage(two).await.unwrap().version;
    assert!(!world.plugins.activate(&to(two.digest), false).await.unwrap().done, "another definition is held back");
    assert!(world.plugins.activate(&to(two.digest), true).await.unwrap().done);
    world.plugins.take_back(&two, "it broke".into()).await.unwrap();
    let again = world.plugins.rollback(&["text".to_owned()]).await;
    assert!(matches!(&again, Err(Error::Invalid(why)) if why.contains("it broke")), "{again:?}");
    let (world, refused) = start_with(&store, &clock, watching).await;
    assert!(refused.is_empty(), "{refused:?}");
    assert_eq!(active(&world).await, Some(Digest(one.digest)));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_canary_rollback_does_not_block_other_plugins() {
    let store = Arc::new(MemoryStore::new());
    let clock = Arc::new(ManualClock::at(1));
    let world = start(&store, &clock).await;
    let Some([one, two]) = two_versions(&world, [SAME, "The texts are the FIN."]).await else { return };
    assert!(world.plugins.begin_canary(wish(Some(two), None, Some(&[BLUE])), false).await.unwrap().done);
    // The store does not know the first one any more.
    let failed = ["gone", "text"].map(|name| PluginVersion { name: name.into(), digest: two });
    let bounds = CanaryThresholds { calls_min: 2, ..CanaryThresholds::default() };
    let watch = |version: &PluginVersion| CanaryStats { version: version.clone(), against: None, bounds };
    world.health.watch(failed.iter().map(watch).collect());
    let fault = CallError::Fault { kind: FaultKind::Trap, reason: "broke".into() };
    for version in &failed {
        for requestor in [&ALICE, &BOB, &ALICE, &BOB] {
            let tool = "echo";
            let result = Err(&fault);
            let busy = std::time::Duration::ZERO;
            world.health.call_ended(&EndedCall { requestor, version, tool, result, busy, at: 1 });
        }
    }
    let tending = tokio::spawn({
        let plugins = world.plugins.clone();
        async move { plugins.watch_canaries().await }
    });
    let taken_back = async {
        while seen(&world, &BOB).0 != Digest(one) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), taken_back).await.expect("it is taken back");
    tending.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_plugin_with_canary_reports_its_problem() {
    let store = Arc::new(MemoryStore::new());
    let clock = Arc::new(ManualClock::at(1));
    let world = start(&store, &clock).await;
    let Some([one, two]) = two_versions(&world, ["The texts are the LIE.", "The texts are the LAY."]).await else {
        return;
    };
    assert!(world.plugins.begin_canary(wish(Some(two), Some(5_000), None), false).await.unwrap().done);
    let path = world.sandbox.kept().path(&one);
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let (again, refused) = start_with(&store, &clock, policy()).await;
    let line = again.plugins.list().await.unwrap().remove(0);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(line.state, PluginState::Broken);
    assert!(line.problems.iter().any(|problem| problem.contains("has been changed")), "{:?}", line.problems);
    assert_eq!(line.problems.len(), 1, "what follows from it is no news: {:?}", line.problems);
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(again.sandbox.catalog().get("echo").is_none());
}
