//! How a task is looked for: the same way whether it is somebody else's or never was, so that not even the time it
//! takes can tell.
//!
//! Shown by what the store is asked, which is all that an id from outside ever reaches; clocks would show it only now
//! and then.

use super::*;
use crate::method_names;
use bulkhead_domain::task::Era;

/// Methods that take the id of a task.
fn about_tasks(era: Era) -> impl Iterator<Item = &'static str> {
    method_names(era).filter(|name| name.starts_with("tasks/") && *name != "tasks/list")
}

#[tokio::test]
async fn foreign_task_id_lookup_equals_absent_one() {
    let world = world();
    let anna = world.anna().await;
    let everything = json!({"experimental": {"dev.bulkhead/task-interaction": {"steer": true, "pause": true}}});
    let bob = world.client(BOB, "2025-11-25", everything).await;
    let id = anna.start("quick").await;
    anna.until(&id, "completed").await;
    let capabilities = json!({"extensions": {"io.modelcontextprotocol/tasks": {},
        "dev.bulkhead/task-interaction": {"steer": true, "pause": true}}});
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities});
    let legacy = about_tasks(Era::Legacy).map(|method| (method, None));
    let modern = about_tasks(Era::Modern).map(|method| (method, Some(meta.clone())));
    let mut seen = 0;
    for (method, meta) in legacy.chain(modern) {
        let mut ways = Vec::new();
        for task in ["f".repeat(32), id.clone(), "0".repeat(32)] {
            let mut params = json!({"taskId": task, "message": "m", "inputResponses": {}});
            if let Some(meta) = &meta {
                params["_meta"] = meta.clone();
            }
            let session = meta.is_none().then(|| bob.session.clone());
            let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
            world.store.take_looks();
            let received = world.receive(Peer::unheralded(BOB, session), &message.to_string()).await;
            let Received::Exchange(mut exchange) = received else { panic!("{method}") };
            let said = exchange.next().await.expect("an answer").message.into_text();
            assert!(said.contains("-32602"), "{method}: {said}");
            ways.push((said, world.store.take_looks()));
        }
        let (_, looks) = &ways[0];
        assert!(!looks.is_empty(), "{method}: the store was not asked");
        assert!(
            looks.iter().all(|(_, whose)| *whose == BOB),
            "{method}: looked among what is somebody else's: {looks:?}"
        );
        assert!(ways.iter().all(|way| *way == ways[0]), "{method}: {ways:?}");
        seen += 1;
    }
    assert_eq!(seen, 7 + 6, "every method that takes an id of a task");
}
