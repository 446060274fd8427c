//! Messages made of anything, before a host with scripted guests and the store in memory.

use std::cell::OnceCell;

use super::*;
use crate::protocol::{METHODS, MODERN_METHODS, cursor, modern};

/// Longer than a guest that says something takes to say it; who waits longer waits for ever.
const PATIENCE: Duration = Duration::from_millis(3);
/// What one request may say before nobody listens any more.
const FRAMES_MAX: usize = 64;
/// The key of the world's cursors and states.
const KEY: [u8; 32] = [7; 32];

/// A world with a session, for as long as its thread lives.
struct Stage {
    threads: tokio::runtime::Runtime,
    world: World,
    session: OnceCell<Arc<Session>>,
}

impl Stage {
    fn new() -> Self {
        let threads = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let world = threads.block_on(async { world_of(50, guest::Scripted::complete) });
        Self { threads, world, session: OnceCell::new() }
    }

    fn say(&self, with_session: bool, message: &[u8]) {
        self.threads.block_on(async {
            let session = with_session.then(|| self.session.get().cloned()).flatten();
            speak(&self.world, Peer::unheralded(ANNA, session), message).await;
        });
    }
}

fn on_stage(act: impl FnOnce(&Stage)) {
    // Never dropped: what ends threads and their runtimes is not there any more when a thread's own values go.
    thread_local! { static STAGE: OnceCell<&'static Stage> = const { OnceCell::new() }; }
    STAGE.with(|stage| {
        let stage = *stage.get_or_init(|| Box::leak(Box::new(Stage::new())));
        stage.session.get_or_init(|| stage.threads.block_on(async { stage.world.anna().await.session.clone() }));
        act(stage);
    });
}

/// One message, and all that is said to it: lines of JSON, one response at most, and it is the last.
async fn speak(world: &World, peer: Peer, message: &[u8]) {
    match world.protocol.receive(peer, Bytes::copy_from_slice(message)) {
        Received::Exchange(mut exchange) => {
            let mut over = false;
            for _ in 0..FRAMES_MAX {
                let Ok(Some(frame)) = tokio::time::timeout(PATIENCE, exchange.next()).await else { break };
                assert!(!over, "something is said after the response: {}", frame.message);
                over = frame.last;
                whole(&frame.message);
            }
        }
        Received::Opened { reply, .. } => whole(&reply),
        Received::Rejected { body, .. } => whole(&body),
        Received::Accepted => {}
        Received::Settling(work) => work.await,
    }
}

fn whole(line: &str) {
    assert!(!line.contains(['\n', '\r']), "more than a line: {line}");
    let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("no JSON ({error}): {line}"));
    assert_eq!(value["jsonrpc"], "2.0", "{line}");
    assert!(value.get("id").is_none_or(|id| !id.is_null()), "{line}");
}

/// A message as it arrives.
pub(crate) fn envelope(data: &[u8]) {
    on_stage(|stage| {
        stage.say(true, data);
        stage.say(false, data);
    });
}

/// The first byte names a method of the legacy era, the rest is its params.
pub(crate) fn legacy_params(data: &[u8]) {
    let Some((first, params)) = data.split_first() else { return };
    let Ok(params) = std::str::from_utf8(params) else { return };
    let (method, _) = METHODS[usize::from(*first) % METHODS.len()];
    let message = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
    on_stage(|stage| stage.say(method != "initialize", message.as_bytes()));
}

/// The first byte names a method of the modern era, the rest is its params, to which what every request needs is added.
pub(crate) fn modern_params(data: &[u8]) {
    let Some((first, params)) = data.split_first() else { return };
    let (method, _) = MODERN_METHODS[usize::from(*first) % MODERN_METHODS.len()];
    let Ok(Value::Object(mut params)) = serde_json::from_slice(params) else { return };
    let meta = params.entry("_meta").or_insert_with(|| json!({}));
    if let Some(meta) = meta.as_object_mut() {
        meta.entry("io.modelcontextprotocol/protocolVersion").or_insert_with(|| json!("2026-07-28"));
        let everything = json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {},
            "extensions": {"io.modelcontextprotocol/tasks": {}, "dev.bulkhead/task-interaction": {"steer": true, "pause": true}}});
        meta.entry("io.modelcontextprotocol/clientCapabilities").or_insert(everything);
    }
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    on_stage(|stage| stage.say(false, message.to_string().as_bytes()));
}

/// A cursor that nobody sealed opens nothing; one that was sealed opens there alone, wherever it leads.
pub(crate) fn cursors(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let lists = METHODS.iter().map(|(method, _)| *method).filter(|method| method.ends_with("/list"));
    for method in lists {
        assert!(cursor::open(&KEY, method, &ANNA, &text).is_none(), "a cursor that nobody sealed");
        let Some(sealed) = cursor::seal(&KEY, method, &ANNA, data) else { continue };
        assert_eq!(cursor::open(&KEY, method, &ANNA, &sealed).as_deref(), Some(data));
        assert!(cursor::open(&KEY, method, &BOB, &sealed).is_none());
        // Positions in a list of resources are the plugin's own words, which a scripted one takes for numbers.
        if method != "resources/list" {
            let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"cursor": sealed}});
            on_stage(|stage| stage.say(true, message.to_string().as_bytes()));
        }
    }
}

/// The same for states of calls.
pub(crate) fn states(data: &[u8]) {
    let arguments = crate::protocol::digest::digest(&json!({}));
    let Some(state) = modern::fuzz::state(&KEY, &ANNA, "form", arguments, data) else { return };
    let params = json!({"name": "form", "arguments": {}, "requestState": state, "inputResponses": {}});
    let call = MODERN_METHODS.iter().position(|(method, _)| *method == "tools/call").unwrap_or_default();
    let mut message = vec![u8::try_from(call).unwrap_or_default()];
    message.extend(params.to_string().as_bytes());
    modern_params(&message);
}
