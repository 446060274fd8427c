//! What the operator says of plugins and tenants, changed while they run.

use super::*;
use crate::{NamedPolicy, Pinning};
use bulkhead_calls::policy::Bound;

const ACME: TenantId = TenantId([4; 16]);

impl World {
    /// Takes over other terms for plugins that are not named.
    async fn take_over(&self, otherwise: Policy, tenants: &[(TenantId, Pinning)]) {
        let tenants = tenants.iter().copied().collect();
        self.plugins.prepare(Vec::<NamedPolicy>::new(), otherwise, tenants).await.unwrap().take_over();
    }
}

fn described(text_now: &str) -> Option<Candidate> {
    text("Returns the text as it is.", text_now)
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_pinning_applies_after_policy_reload() {
    let (Some(one), Some(two)) = (described("Returns the text as it is."), described("Returns the text and two."))
    else {
        return;
    };
    let three = described("Returns the text or three").unwrap();
    let store = Arc::new(MemoryStore::new());
    let clock = Arc::new(ManualClock::at(1));
    let anything = || Policy { accept_changes: AcceptChanges::Anything, ..policy() };
    let (world, _) = start_with(&store, &clock, anything()).await;
    let activate = async |candidate: Candidate| {
        let version = world.plugins.stage(candidate).await.unwrap().version;
        world.plugins.activate(&to(version.digest), false).await.unwrap()
    };
    assert!(activate(one).await.done);
    world.take_over(anything(), &[(ACME, Pinning::Hold)]).await;
    let held = activate(two.clone()).await;
    assert_eq!((held.done, held.held), (false, vec!["text: the tool echo changes: description".to_owned()]));
    world.take_over(anything(), &[(ACME, Pinning::Show)]).await;
    assert!(activate(two).await.done);
    // Terms that were only looked at change nothing.
    drop(world.plugins.prepare(Vec::new(), anything(), [(ACME, Pinning::Hold)].into()).await.unwrap());
    assert!(activate(three).await.done);
}

#[tokio::test(flavor = "multi_thread")]
async fn version_prepared_under_old_policy_is_not_switched_to() {
    let (Some(one), Some(two)) = (text(SAME, "The texts are on terms"), text(SAME, "The texts are in terms")) else {
        return;
    };
    let store = Arc::new(MemoryStore::new());
    let clock = Arc::new(ManualClock::at(1));
    let world = start(&store, &clock).await;
    let one = world.plugins.stage(one).await.unwrap().version;
    assert!(world.plugins.activate(&to(one.digest), false).await.unwrap().done);
    let two = world.plugins.stage(two).await.unwrap().version;
    let loaded = world.plugins.ready(&two).await.unwrap();
    let mut less = policy();
    less.source.tenants = Arc::new([(ACME, Bound { http: Some(Vec::new()), ..Bound::default() })].into());
    world.take_over(less.clone(), &[]).await;
    let running = || async { world.plugins.ready(&version("text", active(&world).await.unwrap())).await.unwrap() };
    assert!(running().await.is_under(&less.source), "what runs has the new terms");
    let refused = world.plugins.switch_to("text", loaded).await;
    assert!(matches!(&refused, Err(Error::Invalid(why)) if why.contains("changed meanwhile")), "{refused:?}");
    // What was kept ready to be switched to is made ready again.
    assert!(world.plugins.activate(&to(two.digest), false).await.unwrap().done);
    assert_eq!(active(&world).await, Some(Digest(two.digest)));
    assert!(running().await.is_under(&less.source));
}
