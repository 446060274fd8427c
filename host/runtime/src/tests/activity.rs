//! What a call counts for whoever looks at what calls cost.

use super::*;
use bulkhead_metrics::{Activity, ActivityReading, Outcome};

/// A house with one plugin whose calls an operator looks at.
async fn looked_at() -> Option<(House, Arc<Activity>, LoadedPlugin)> {
    let plugin = sample("text")?;
    let config = SandboxConfig::sample(&kept());
    let activity = Arc::clone(config.metrics.activity());
    activity.look(std::time::Instant::now());
    let house = House { sandbox: Sandbox::new(config).unwrap() };
    let loaded = house.publish(plugin).await;
    Some((house, activity, loaded))
}

fn counted(activity: &Activity, tool: &str) -> ActivityReading {
    let tools = activity.tools().into_iter();
    tools.filter(|row| row.tool.as_deref() == Some(tool)).map(|row| row.reading).next().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn call_counts_once_for_its_tool_and_its_requestor_also_when_it_is_dropped() {
    let Some((house, activity, _)) = looked_at().await else { return };
    let requestor = activity.counts();
    let start = |arguments: &str| {
        house.start_with("word_count", arguments, |spec| spec.activity = Some(Arc::clone(&requestor)))
    };
    finished(start(r#"{"text":"three small words"}"#)).await.unwrap();
    let fails = finished(start(r#"{"text":7}"#)).await;
    let failed = fails.map_or_else(
        |error| Outcome::from(&error),
        |output| {
            assert!(output.is_error, "{output:?}");
            Outcome::ToolError
        },
    );
    drop(start(r#"{"text":"nobody waits"}"#));
    let read = settled(|| requestor.read()).await;
    assert_eq!(read, counted(&activity, "word_count"), "one reading for both");
    let outcomes: Vec<_> = read.outcomes().collect();
    let calls =
        |wanted: Outcome| outcomes.iter().find(|(outcome, _)| *outcome == wanted).map_or(0, |(_, calls)| *calls);
    // The one that was dropped may have been over by then, or may not have begun.
    assert!(calls(Outcome::Ok) >= 1 && calls(failed) == 1 && read.calls() <= 3, "{outcomes:?}");
    assert!(read.cpu_us > 0 && read.busy_us().map(|(_, calls)| calls).sum::<u64>() == read.calls(), "{read:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_plugin_leaves_the_counts_with_its_last_version() {
    let Some((house, activity, loaded)) = looked_at().await else { return };
    finished(house.start("word_count", r#"{"text":"a"}"#)).await.unwrap();
    assert_eq!(settled(|| counted(&activity, "word_count").calls()).await, 1);
    house.sandbox.publish(Vec::new());
    house.sandbox.retain(&std::collections::HashSet::new());
    drop(loaded);
    assert!(settled(|| activity.tools().is_empty()).await, "{:?}", activity.tools());
}
