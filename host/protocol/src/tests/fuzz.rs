//! Messages made of anything, before a host with scripted guests and the store in memory.

use std::borrow::Cow;

use super::*;
use crate::{cursor, method_names, modern};
use bulkhead_domain::task::Era;

/// Longer than a guest that says something takes to say it; who waits longer waits for ever.
const TIMEOUT: Duration = Duration::from_millis(3);
/// What one request may say before nobody listens any more.
const FRAMES_MAX: usize = 64;
/// The key of the world's cursors and states.
const KEY: [u8; 32] = [7; 32];
/// Messages of one conversation.
const LINES_MAX: usize = 8;
/// Ids are drawn at random. These stand for those of tasks: one that asks for a name, one that waits to be steered, one
/// that is paused, one that is over; the last one is over too, and its client named it so.
const ASKING: &str = "00000000000000000000000000000000";
const STEERED: &str = "11111111111111111111111111111111";
const PAUSED: &str = "22222222222222222222222222222222";
const OVER: &str = "ffffffffffffffffffffffffffffffff";
const NAMED: &str = "33333333333333333333333333333333";

/// A world in which nothing else has happened, so that what breaks one breaks it again.
struct Stage {
    world: World,
    session: Option<Arc<Session>>,
}

fn on_stage<T>(act: impl AsyncFnOnce(&mut Stage) -> T) -> T {
    let threads = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    threads.block_on(async {
        let mut stage = Stage { world: world_of(50, guest::Scripted::complete), session: None };
        act(&mut stage).await
    })
}

impl Stage {
    /// With a client that has been through the handshake.
    async fn shake_hands(&mut self) {
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25",
            "capabilities": everything(), "clientInfo": {"name": "a", "version": "1"}}});
        self.say(&hello.to_string()).await;
    }

    /// One message, and all that is said to it: lines of JSON, one response at most, and it is the last. Whether it was
    /// not refused, and what goes on.
    async fn hear(&mut self, message: &[u8]) -> (bool, Option<Exchange>) {
        let peer = Peer::unheralded(ANNA, self.session.clone());
        match self.world.protocol.receive(peer, &Envelope::parse(Bytes::copy_from_slice(message))) {
            Received::Exchange(exchange) => listen(exchange).await,
            Received::Opened { session, reply } => {
                self.session = Some(session);
                (whole(&reply).get("result").is_some(), None)
            }
            Received::Rejected { body, .. } => {
                whole(&body);
                (false, None)
            }
            Received::Accepted => (true, None),
            Received::Settling(work) => {
                work.await;
                (true, None)
            }
        }
    }

    async fn say(&mut self, message: &str) -> bool {
        let message = self.with_ids(message.as_bytes()).await;
        self.hear(&message).await.0
    }

    /// One message on each line; what the earlier ones began goes on meanwhile. Whether any was served.
    async fn converse(&mut self, messages: &[u8]) -> bool {
        let messages = self.with_ids(messages).await;
        let mut open = Vec::new();
        let mut any = false;
        for message in messages.split(|byte| *byte == b'\n').take(LINES_MAX) {
            let (served, exchange) = self.hear(message).await;
            any |= served;
            open.extend(exchange);
        }
        any
    }

    /// The message with the ids of real tasks, if it is about any.
    async fn with_ids<'a>(&self, message: &'a [u8]) -> Cow<'a, [u8]> {
        let Ok(text) = std::str::from_utf8(message) else { return message.into() };
        let mut text = Cow::Borrowed(text);
        let tasks = [
            (ASKING, "form", "input_required"),
            (STEERED, "steered", "working"),
            (PAUSED, "steered", "working"),
            (OVER, "only_task", "completed"),
            (NAMED, "quick", "completed"),
        ];
        for (word, tool, status) in tasks {
            if text.contains(word) {
                let anna = self.world.client(ANNA, "2025-11-25", everything()).await;
                let id = if word == NAMED { anna.start_named(tool, NAMED).await } else { anna.start(tool).await };
                anna.until(&id, status).await;
                if word == PAUSED {
                    anna.result("tasks/pause", json!({"taskId": id})).await;
                }
                text = text.replace(word, &id).into();
            }
        }
        text.into_owned().into_bytes().into()
    }
}

impl Client<'_> {
    /// Starts a tool as a task that has this name.
    async fn start_named(&self, tool: &str, name: &str) -> String {
        let named = json!({"modelcontextprotocol.io/task": {"taskId": name}});
        let mut talk = self.open(1, "tools/call", json!({"name": tool, "_meta": named})).await;
        while talk.exchange.next().await.is_some_and(|frame| !frame.last) {}
        name.to_owned()
    }
}

/// What a client of the legacy era says when it can do everything.
fn everything() -> Value {
    json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {},
        "experimental": {"dev.bulkhead/task-interaction": {"steer": true, "pause": true}}})
}

async fn listen(mut exchange: Exchange) -> (bool, Option<Exchange>) {
    let mut served = None;
    for _ in 0..FRAMES_MAX {
        let frame = match tokio::time::timeout(TIMEOUT, exchange.next()).await {
            Ok(Some(frame)) => frame,
            Ok(None) => return (served.unwrap_or(true), None),
            Err(_) => break,
        };
        assert!(served.is_none(), "something is said after the response: {}", frame.message.text());
        let value = whole(&frame.message.text());
        served = frame.last.then(|| value.get("result").is_some());
    }
    (served.unwrap_or(true), Some(exchange))
}

fn whole(line: &str) -> Value {
    assert!(!line.contains(['\n', '\r']), "more than a line: {line}");
    let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("no JSON ({error}): {line}"));
    assert_eq!(value["jsonrpc"], "2.0", "{line}");
    assert!(value.get("id").is_none_or(|id| !id.is_null()), "{line}");
    value
}

/// Messages as they arrive, in a session and without one.
pub fn envelope(data: &[u8]) -> bool {
    let in_session = on_stage(async |stage| {
        stage.shake_hands().await;
        stage.converse(data).await
    });
    on_stage(async |stage| stage.converse(data).await) || in_session
}

/// The method of an era that a byte stands for: its place among them.
fn method_of(era: Era, byte: u8) -> &'static str {
    let names: Vec<_> = method_names(era).collect();
    names[usize::from(byte) % names.len()]
}

/// The first byte names a method of the legacy era, the rest is its params.
pub fn legacy_params(data: &[u8]) -> bool {
    let Some((first, params)) = data.split_first() else { return false };
    let Ok(params) = std::str::from_utf8(params) else { return false };
    let method = method_of(Era::Legacy, *first);
    let message = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
    on_stage(async |stage| {
        if method != "initialize" {
            stage.shake_hands().await;
        }
        stage.say(&message).await
    })
}

/// The first byte names a method of the modern era, the rest is its params, to which what every request needs is added.
pub fn modern_params(data: &[u8]) -> bool {
    let Some((first, params)) = data.split_first() else { return false };
    let method = method_of(Era::Modern, *first);
    let Ok(Value::Object(params)) = serde_json::from_slice(params) else { return false };
    let message = modern_message(method, params);
    on_stage(async |stage| stage.say(&message).await)
}

fn modern_message(method: &str, mut params: serde_json::Map<String, Value>) -> String {
    let meta = params.entry("_meta").or_insert_with(|| json!({}));
    if let Some(meta) = meta.as_object_mut() {
        meta.entry("io.modelcontextprotocol/protocolVersion").or_insert_with(|| json!("2026-07-28"));
        let everything = json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {},
            "extensions": {"io.modelcontextprotocol/tasks": {}, "dev.bulkhead/task-interaction": {"steer": true, "pause": true}}});
        meta.entry("io.modelcontextprotocol/clientCapabilities").or_insert(everything);
    }
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string()
}

/// A cursor that nobody sealed opens nothing; one that was sealed opens there alone, wherever it leads.
pub fn cursors(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    on_stage(async |stage| {
        stage.shake_hands().await;
        let mut any = false;
        for method in method_names(Era::Legacy).filter(|method| method.ends_with("/list")) {
            assert!(cursor::verify(&KEY, method, &ANNA, &text).is_none(), "a cursor that nobody sealed");
            let Some(sealed) = cursor::sign(&KEY, method, &ANNA, data) else { continue };
            assert_eq!(cursor::verify(&KEY, method, &ANNA, &sealed).as_deref(), Some(data));
            assert!(cursor::verify(&KEY, method, &BOB, &sealed).is_none());
            let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"cursor": sealed}});
            any |= stage.say(&message.to_string()).await;
        }
        any
    })
}

/// The same for states of calls.
pub fn states(data: &[u8]) -> bool {
    let arguments = crate::digest::digest(&json!({}));
    let Some(state) = modern::fuzz::state(&KEY, &ANNA, "form", arguments, data) else { return false };
    let params = json!({"name": "form", "arguments": {}, "requestState": state, "inputResponses": {}});
    let Value::Object(params) = params else { return false };
    let message = modern_message("tools/call", params);
    on_stage(async |stage| stage.say(&message).await)
}

#[cfg(test)]
mod tests {
    use bulkhead_domain::testing::replay_corpus;

    use super::*;

    /// The names of the methods that some file of this folder is served by.
    fn served(folder: &str, methods: &[&'static str], feed: fn(&[u8]) -> bool) -> Vec<&'static str> {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus").join(folder);
        let files: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
        let names = |method: usize, file: &[u8]| file.first().is_some_and(|first| usize::from(*first) == method);
        let is_served = |method: usize| files.iter().any(|file| names(method, file) && feed(file));
        (0..methods.len()).filter(|method| is_served(*method)).map(|method| methods[method]).collect()
    }

    #[test]
    fn corpus_is_replayed() {
        let fuzz = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz");
        replay_corpus(&fuzz, "envelope", envelope);
        replay_corpus(&fuzz, "legacy_params", legacy_params);
        replay_corpus(&fuzz, "modern_params", modern_params);
        replay_corpus(&fuzz, "cursors", cursors);
        replay_corpus(&fuzz, "states", states);
    }

    #[test]
    fn fuzz_corpus_has_valid_params_for_every_method() {
        let legacy: Vec<_> = method_names(Era::Legacy).collect();
        assert_eq!(served("legacy_params", &legacy, legacy_params), legacy);
        let modern: Vec<_> = method_names(Era::Modern).collect();
        assert_eq!(served("modern_params", &modern, modern_params), modern);
    }
}
