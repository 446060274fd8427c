//! What an operator who looks at what calls cost sees of refusals, and of an erased tenant.

use bulkhead_metrics::Metrics;

use super::*;

#[tokio::test]
async fn refusals_count_for_their_requestor_until_its_tenant_is_erased() {
    let world = world();
    world.tasks.count(&Metrics::off());
    world.health.retry_after_ms.store(7, Ordering::SeqCst);
    let refuse = async || {
        world.tasks.call(&ANNA, world.call("quick")).await.err().expect("it is refused");
        world.create(&ANNA, "quick").await.expect_err("it is refused");
    };
    let refused = |requestor: &Requestor| {
        let sample = world.tasks.activity(ActivityGroup::Requestor);
        let key = ActivityKey::Requestor(*requestor);
        sample
            .entries
            .into_iter()
            .find(|(other, _)| *other == key)
            .map(|(_, reading)| (reading.refused, reading.calls()))
    };
    refuse().await;
    assert_eq!(refused(&ANNA), None, "no operator looked");
    refuse().await;
    assert_eq!((refused(&ANNA), refused(&BOB)), (Some((2, 0)), None));

    world.tasks.block_tenant(ANNA.tenant);
    refuse().await;
    for group in [ActivityGroup::Requestor, ActivityGroup::Tenant] {
        assert_eq!(world.tasks.activity(group).entries, [], "an erased tenant is forgotten, and stays so");
    }
}
