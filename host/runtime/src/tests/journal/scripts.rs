//! The plugins in Python and JavaScript.

use super::equivalence::{check, replays};
use super::*;

fn ungranted(_: &mut PluginSource) {}

#[tokio::test(flavor = "multi_thread")]
async fn sample_tools_in_python_replay() {
    let records = json!(["Bob Smith", "Smith, Bob", "Bob Smyth", "Alice", "Alice Jones"]);
    let cases = [
        replays("find_duplicates", json!({"records": records, "doubtful": 0.5})),
        replays("find_duplicates", json!({"records": records, "threshold": 0.1, "doubtful": 0.5})),
    ];
    check("dedup", ungranted, &[], &cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sample_tools_in_javascript_replay() {
    let busy = json!({"start": "2026-03-02T09:00:00Z", "end": "2026-03-02T11:00:00Z"});
    let meeting = json!({
        "participants": [{"name": "Ada", "busy": [busy]}, {"name": "Bob"}],
        "from": "2026-03-02T08:00:00Z", "to": "2026-03-03T18:00:00Z", "minutes": 60,
    });
    let cases = [replays("find_slots", meeting.clone()), replays("arrange_meeting", meeting)];
    check("meetings", ungranted, &[], &cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_tools_for_each_function_of_the_host_replay() {
    let cases = [
        replays("py_echo", json!({"text": "grüß dich"})),
        replays("py_grow", json!({})),
        replays("py_recurse", json!({})),
        replays("py_tidy", json!({})).cancelled(),
        replays("py_raise", json!({"how": "error"})),
        replays("py_raise", json!({"how": "exit"})),
        replays("py_raise", json!({"how": "custom"})),
        replays("py_outside", json!({})),
        replays("py_chance", json!({})),
        replays("py_blocks", json!({})),
        replays("py_ask", json!({})),
        replays("py_facts", json!({})),
        replays("py_keep", json!({"key": "k"})),
        replays("py_fetch", json!({"url": "http://peer.test/page"})),
        replays("py_fetch", json!({"url": "http://peer.test/post", "body": "words"})),
        replays("py_urlopen", json!({"url": "http://peer.test/page"})),
        replays("py_gather", json!({"count": 3})),
    ];
    // It loops until it is stopped.
    check("probe-python", ungranted, &["py_spin"], &cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn javascript_tools_for_each_function_of_the_host_replay() {
    let cases = [
        replays("js_echo", json!({"text": "grüß dich"})),
        replays("js_grow", json!({})),
        replays("js_recurse", json!({})),
        replays("js_tidy", json!({})).cancelled(),
        replays("js_throw", json!({"how": "error"})),
        replays("js_throw", json!({"how": "custom"})),
        replays("js_later", json!({})),
        replays("js_blocks", json!({})),
        replays("js_ask", json!({})),
        replays("js_facts", json!({})),
        replays("js_keep", json!({"key": "k"})),
    ];
    // It loops until it is stopped.
    check("probe-javascript", ungranted, &["js_spin"], &cases).await;
}
