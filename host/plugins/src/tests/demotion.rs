//! Versions whose tasks do something else when they are brought back, over a store that fails and over starts.

use super::*;
use bulkhead_calls::Durability;
use bulkhead_domain::UnixMs;
use bulkhead_tasks::CallHealth as _;

const DAY: u64 = 86_400_000;

/// A host with one active version, and that version.
async fn with_one_version(store: &Arc<MemoryStore>, otherwise: Policy) -> Option<(World, PluginVersion)> {
    let clock = Arc::new(ManualClock::at(1));
    let (world, _) = start_with(store, &clock, otherwise).await;
    let version = world.plugins.stage(text(SAME, SAME)?).await.unwrap().version;
    assert!(world.plugins.activate(&to(version.digest), false).await.unwrap().done);
    Some((world, version))
}

fn of_active() -> Target {
    Target { name: "text".to_owned(), version: None }
}

async fn diverge(world: &World, version: &PluginVersion, at: UnixMs) {
    world.plugins.note_divergence(&(version.clone(), at)).await.unwrap();
}

async fn demoted(world: &World) -> Option<Demotion> {
    let of_plugin = world.plugins.list().await.unwrap().remove(0).demoted;
    let of_version = world.plugins.versions("text").await.unwrap().remove(0).demoted;
    assert_eq!(of_plugin, of_version);
    of_plugin
}

#[tokio::test(flavor = "multi_thread")]
async fn third_divergence_within_a_day_demotes_a_version_until_the_operator_says_otherwise() {
    let store = Arc::new(MemoryStore::new());
    let Some((world, version)) = with_one_version(&store, policy()).await else { return };
    for at in [10, DAY, DAY + 5] {
        diverge(&world, &version, at).await;
    }
    assert_eq!(demoted(&world).await.map(|demoted| demoted.at), Some(DAY + 5));
    assert!(!world.health.may_keep_journal(&version));
    let other = PluginVersion { digest: [7; 32], ..version.clone() };
    assert!(world.health.may_keep_journal(&other), "another version is not concerned");

    let said = world.plugins.set_durable(&of_active(), true).await.unwrap();
    assert_eq!((said.version, said.durable, said.changed), (Digest(version.digest), true, true));
    assert!(demoted(&world).await.is_none() && world.health.may_keep_journal(&version));
    assert!(!world.plugins.set_durable(&of_active(), true).await.unwrap().changed);
    // It begins anew: those of before do not count any more.
    diverge(&world, &version, DAY + 6).await;
    assert_eq!(demoted(&world).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn divergences_on_different_days_demote_nothing() {
    let store = Arc::new(MemoryStore::new());
    let Some((world, version)) = with_one_version(&store, policy()).await else { return };
    for at in [10, 20, 20 + DAY, 30 + DAY, 40 + 2 * DAY] {
        diverge(&world, &version, at).await;
        assert_eq!(demoted(&world).await, None, "at {at}");
    }
    assert!(world.health.may_keep_journal(&version));
}

#[tokio::test(flavor = "multi_thread")]
async fn divergences_are_counted_over_starts_and_failures_of_the_store() {
    let store = Arc::new(MemoryStore::new());
    let Some((mut world, version)) = with_one_version(&store, policy()).await else { return };
    let clock = Arc::new(ManualClock::at(1));
    for at in [1, 2] {
        diverge(&world, &version, at).await;
        world = start(&store, &clock).await;
    }
    store.fail_next_writes(1);
    assert!(world.plugins.note_divergence(&(version.clone(), 3)).await.is_err());
    assert!(world.health.may_keep_journal(&version), "nothing was decided");
    diverge(&world, &version, 3).await;
    assert!(!world.health.may_keep_journal(&version));
    let world = start(&store, &clock).await;
    assert!(!world.health.may_keep_journal(&version), "a start changes nothing");
    assert_eq!(demoted(&world).await.map(|demoted| demoted.at), Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn reported_divergences_are_written_down_in_the_background() {
    let store = Arc::new(MemoryStore::new());
    let Some((world, version)) = with_one_version(&store, policy()).await else { return };
    let plugins = world.plugins.clone();
    let watching = tokio::spawn(async move { plugins.watch_divergences().await });
    (1..=3).for_each(|at| world.health.diverged(&version, at));
    tokio::time::timeout(Duration::from_secs(60), async {
        while world.health.may_keep_journal(&version) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await
    .unwrap();
    watching.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn configuration_decides_before_operator_and_divergences() {
    let under = |durable| Policy { source: PluginSource { durable, ..policy().source }, ..policy() };
    let store = Arc::new(MemoryStore::new());
    let Some((world, version)) = with_one_version(&store, under(Durability::Required)).await else { return };
    for at in [1, 2, 3] {
        diverge(&world, &version, at).await;
    }
    assert!(demoted(&world).await.is_none() && world.health.may_keep_journal(&version));
    let refused = world.plugins.set_durable(&of_active(), false).await.unwrap_err();
    assert!(refused.to_string().contains("durable = \"required\""), "{refused}");

    // What was decided before holds again when the configuration leaves it open again.
    let store = Arc::new(MemoryStore::new());
    let Some((world, _)) = with_one_version(&store, policy()).await else { return };
    world.plugins.set_durable(&of_active(), false).await.unwrap();
    let clock = Arc::new(ManualClock::at(1));
    for (durable, may_keep) in [(Durability::Required, true), (Durability::Auto, false)] {
        let (world, _) = start_with(&store, &clock, under(durable)).await;
        assert_eq!((world.health.may_keep_journal(&version), demoted(&world).await.is_none()), (may_keep, may_keep));
    }

    let store = Arc::new(MemoryStore::new());
    let Some((world, _)) = with_one_version(&store, under(Durability::Off)).await else { return };
    let refused = world.plugins.set_durable(&of_active(), true).await.unwrap_err();
    assert!(refused.to_string().contains("durable = \"off\""), "{refused}");
    let absent = Target { name: "text".to_owned(), version: Some("ffff".to_owned()) };
    assert!(matches!(world.plugins.set_durable(&absent, false).await, Err(Error::NotFound(_))));
}
