//! The sample plugins.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_tool_answers() {
    let Some(plugin) = sample("text") else { return };
    let house = House::new();
    let loaded = house.publish(plugin).await;
    assert_eq!(loaded.version.name, "text");
    let output = house.call("echo", r#"{"text":"grüß dich"}"#).await.unwrap();
    assert!(!output.is_error);
    assert_eq!(text(&output), "grüß dich");
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_comes_before_the_end_and_grows() {
    let Some(plugin) = sample("primes") else { return };
    let house = House::new();
    house.publish(plugin).await;
    let (events, outcome) = events(house.start("count_primes", r#"{"below":3000000}"#)).await;
    assert!(text(&outcome.unwrap()).contains("216816"));
    let steps: Vec<f64> = events
        .iter()
        .filter_map(|event| match event {
            CallEvent::Progress { progress, .. } => Some(*progress),
            _ => None,
        })
        .collect();
    assert!(!steps.is_empty());
    assert!(steps.is_sorted_by(|a, b| a < b), "{steps:?}");
}
