//! What tenants use is written once, whatever fails on the way.

use bulkhead_metrics::{Metrics, Outcome};
use bulkhead_store::usage_days::{TenantDay, ToolUsage, UsageDays};

use super::*;

async fn written(world: &World) -> Vec<TenantDay> {
    UsageDays::new(world.store.clone()).list(None, 0, 9).await.unwrap().0
}

#[tokio::test]
async fn usage_that_cannot_be_written_is_written_with_the_next() {
    let world = world();
    let quick = async || {
        let task = world.create(&ANNA, "quick").await.unwrap();
        world.ended(task.id).await;
    };
    quick().await;
    world.tasks.usage_counts().of(ANNA.tenant).add_bytes_in(7);
    world.store.fail_next_writes(1);
    world.tasks.write_usage().await;
    assert_eq!(written(&world).await, []);
    quick().await;
    world.tasks.write_usage().await;
    world.tasks.write_usage().await;
    let [day] = written(&world).await[..] else { panic!("one day of one tenant") };
    assert_eq!((day.tenant, day.day, day.usage.calls, day.usage.bytes_in), (ANNA.tenant, 0, 2, 7));
    assert!(day.usage.stored_bytes > 0);

    // What a tenant still did when it was erased is forgotten.
    world.clock.advance(86_400_000);
    world.tasks.usage_counts().of(ANNA.tenant).add_call();
    world.tasks.block_tenant(ANNA.tenant);
    world.tasks.write_usage().await;
    assert_eq!(written(&world).await, [day]);
    assert_eq!(world.tasks.usage_counts().take(), []);
}

#[tokio::test]
async fn calls_of_tools_that_cannot_be_written_are_written_with_the_next() {
    let world = world();
    let metrics = Metrics::off();
    world.tasks.count(&metrics);
    let tool = metrics.activity().tool("csv", "query");
    tool.add_end(Outcome::Ok);
    world.store.fail_next_writes(1);
    world.tasks.write_usage().await;
    tool.add_end(Outcome::Trap);
    world.tasks.write_usage().await;
    world.tasks.write_usage().await;
    let days = UsageDays::new(world.store.clone()).list_tools("csv", 0, 9).await.unwrap().0;
    let [day] = &days[..] else { panic!("one day of one tool: {days:?}") };
    assert_eq!((day.tool.as_deref(), day.usage), (Some("query"), ToolUsage { calls: 2, errors: 1 }));
}
