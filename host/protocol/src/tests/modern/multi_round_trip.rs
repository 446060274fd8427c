//! Questions before there is a task: asked in a result, answered by the next request.

use super::*;
use bulkhead_store::{RowKind, RowStore as _};

fn accept(name: &str) -> Value {
    json!({"action": "accept", "content": {"name": name}})
}

fn retry(tool: &str, state: &Value, responses: Value) -> Value {
    json!({"name": tool, "arguments": {}, "inputResponses": responses, "requestState": state})
}

fn text(result: &Value) -> &str {
    assert_eq!(result["resultType"], "complete", "{result}");
    result["content"][0]["text"].as_str().unwrap()
}

#[tokio::test]
async fn input_request_is_a_result_and_its_answer_resumes() {
    let world = world();
    let client = world.plain();
    let mut answers = Transcript::default();
    let asked = client.call("form").await;
    answers.note("asked", &asked);
    let done = client.result("tools/call", retry("form", &asked["requestState"], json!({"name": accept("Ada")}))).await;
    answers.note("done", &done);
    answers.expect(&expect![[r#"
        asked: {"resultType":"input_required","inputRequests":{"name":{"method":"elicitation/create","params":{"mode":"form","message":"name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}}},"requestState":"<state>","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bulkhead","version":"0.1.0"}}}
        done: {"resultType":"complete","content":[{"type":"text","text":"Accept {\"name\":\"Ada\"}"}],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bulkhead","version":"0.1.0"}}}
    "#]]);
    assert_eq!((world.started(), world.stored().await), (1, 0), "the same guest went on");
}

#[tokio::test]
async fn each_round_trip_has_a_new_request_state() {
    let world = world();
    let client = world.plain();
    let first = client.call("two_forms").await;
    let second =
        client.result("tools/call", retry("two_forms", &first["requestState"], json!({"one": accept("A")}))).await;
    assert_eq!(second["inputRequests"].as_object().unwrap().keys().collect::<Vec<_>>(), ["two"]);
    assert_ne!(first["requestState"], second["requestState"]);
    let done =
        client.result("tools/call", retry("two_forms", &second["requestState"], json!({"two": accept("B")}))).await;
    assert!(text(&done).contains('2'), "{done}");
    assert_eq!(world.started(), 1);
}

#[tokio::test]
async fn multi_round_trip_reruns_a_lost_guest_with_answers() {
    let before = world();
    let first = before.plain().call("two_forms").await;
    let second = before
        .plain()
        .result("tools/call", retry("two_forms", &first["requestState"], json!({"one": accept("A")})))
        .await;
    let after = before.restarted();
    let done = after
        .plain()
        .result("tools/call", retry("two_forms", &second["requestState"], json!({"two": accept("B")})))
        .await;
    let text = text(&done);
    assert!(text.matches("Accept").count() == 2, "{text}");
    assert_eq!(after.started(), 1);
}

#[tokio::test]
async fn used_request_state_is_refused_after_restart() {
    let before = world();
    let asked = before.plain().call("form").await;
    let params = retry("form", &asked["requestState"], json!({"name": accept("Ada")}));
    before.plain().result("tools/call", params.clone()).await;
    let after = before.restarted();
    for name in ["Ada", "Bob"] {
        let params = retry("form", &asked["requestState"], json!({"name": accept(name)}));
        assert_eq!(after.plain().refusal("tools/call", params).await, (-32602, None), "{name}");
    }
    assert_eq!(after.started(), 0);
}

#[tokio::test]
async fn unused_request_state_is_accepted_after_restart() {
    let mut world = world();
    let asked = world.plain().call("form").await;
    let nothing = retry("form", &asked["requestState"], json!({}));
    let wrong = retry("form", &asked["requestState"], json!({"name": 1}));
    for _ in 0..2 {
        assert_eq!(world.plain().result("tools/call", nothing.clone()).await["requestState"], asked["requestState"]);
        assert_eq!(world.plain().refusal("tools/call", wrong.clone()).await, (-32602, None));
        world = world.restarted();
    }
    let answered = retry("form", &asked["requestState"], json!({"name": accept("Ada")}));
    assert!(text(&world.plain().result("tools/call", answered).await).contains("Ada"));
    assert_eq!(world.started(), 1);
}

#[tokio::test]
async fn used_request_state_expires_from_store() {
    let world = world();
    let asked = world.plain().call("form").await;
    assert_eq!(world.used().await, 0, "who asks writes nothing");
    let answered = retry("form", &asked["requestState"], json!({"name": accept("Ada")}));
    world.plain().result("tools/call", answered).await;
    assert!(world.used().await > 0);
    let tasks = world.tasks.clone();
    let tending = tokio::spawn(async move { tasks.run_maintenance().await });
    world.clock.advance(15 * 60_000);
    for _ in 0..500 {
        if world.used().await == 0 {
            return tending.abort();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("rows stay");
}

#[tokio::test]
async fn multi_round_trip_retry_gets_its_own_notifications() {
    let world = world();
    let client = world.plain();
    let asked = client.call("reports").await;
    let curious =
        client.with_meta("progressToken", json!("p")).with_meta("io.modelcontextprotocol/logLevel", json!("debug"));
    let mut stream =
        curious.open("tools/call", retry("reports", &asked["requestState"], json!({"name": accept("Ada")}))).await;
    assert_eq!(stream.next().await["params"]["progressToken"], "p");
    assert_eq!(stream.next().await["params"]["data"], "heard");
    assert_eq!(text(&stream.next().await["result"]), r#"Accept {"name":"Ada"}"#);
    assert_eq!(world.started(), 1, "the guest that stood still");
    // And what the first one asked for is not said to the second.
    let asked = curious.call("reports").await;
    let quiet = retry("reports", &asked["requestState"], json!({"name": accept("Ada")}));
    assert_eq!(text(&world.plain().result("tools/call", quiet).await), r#"Accept {"name":"Ada"}"#);
}

#[tokio::test]
async fn multi_round_trip_retry_needs_declared_capability() {
    let world = world();
    let client = world.plain();
    let asked = client.call("form").await;
    let nothing = retry("form", &asked["requestState"], json!({}));
    let mute = client.clone().lacking("elicitation");
    assert_eq!(mute.refusal("tools/call", nothing.clone()).await, (-32021, Some(Rejection::Unserved)));
    assert_eq!(client.result("tools/call", nothing).await["inputRequests"], asked["inputRequests"]);
    let answered = retry("form", &asked["requestState"], json!({"name": accept("Ada")}));
    assert!(text(&mute.result("tools/call", answered).await).contains("Ada"), "an answer is one whoever brings it");
    assert_eq!(world.started(), 1);
}

#[tokio::test]
async fn multi_round_trip_retry_without_answers_is_asked_again() {
    let world = world();
    let client = world.plain();
    let asked = client.call("form").await;
    for nothing in [json!({}), json!({"other": accept("X")})] {
        let again = client.result("tools/call", retry("form", &asked["requestState"], nothing)).await;
        assert_eq!(again["inputRequests"], asked["inputRequests"]);
        assert_eq!(again["requestState"], asked["requestState"]);
    }
    let done = client
        .result("tools/call", retry("form", &asked["requestState"], json!({"name": accept("Ada"), "x": 1})))
        .await;
    assert!(text(&done).contains("Ada"));
    assert_eq!(world.started(), 1);
}

#[tokio::test]
async fn partial_input_answers_are_kept_across_round_trips() {
    let world = world();
    let client = world.plain();
    let mut answers = Transcript::default();
    let asked = client.call("all").await;
    answers.note("asked", &asked);
    let some = json!({"name": accept("Ada"), "roots": {"roots": [{"uri": "file:///a"}]}});
    let again = client.result("tools/call", retry("all", &asked["requestState"], some)).await;
    answers.note("asked for the rest", &again);
    let sample = json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "yo"}});
    let done = client.result("tools/call", retry("all", &again["requestState"], json!({"sample": sample}))).await;
    answers.note("done", &done);
    answers.expect(&expect![[r#"
        asked: {"resultType":"input_required","inputRequests":{"name":{"method":"elicitation/create","params":{"mode":"form","message":"name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}},"sample":{"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":"hi"}}],"maxTokens":9}},"roots":{"method":"roots/list","params":{}}},"requestState":"<state>","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bulkhead","version":"0.1.0"}}}
        asked for the rest: {"resultType":"input_required","inputRequests":{"sample":{"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":"hi"}}],"maxTokens":9}}},"requestState":"<state>","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bulkhead","version":"0.1.0"}}}
        done: {"resultType":"complete","content":[{"type":"text","text":"Accept {\"name\":\"Ada\"}, sampled {\"role\":\"assistant\",\"model\":\"m\",\"content\":{\"type\":\"text\",\"text\":\"yo\"}}, 1 roots"}],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bulkhead","version":"0.1.0"}}}
    "#]]);
}

#[tokio::test]
async fn invalid_input_answer_is_refused_and_can_be_retried() {
    let world = world();
    let client = world.plain();
    let asked = client.call("form").await;
    let mut answers = Transcript::default();
    for wrong in
        [json!(12_345), json!(null), json!({}), json!({"action": "maybe"}), json!({"action": "accept", "content": {}})]
    {
        let params = retry("form", &asked["requestState"], json!({"name": wrong}));
        answers.note(&wrong.to_string(), &client.ask("tools/call", params).await["error"]);
    }
    let declined = retry("form", &asked["requestState"], json!({"name": {"action": "decline"}}));
    answers.note("decline", &client.result("tools/call", declined).await);
    assert_eq!(world.started(), 1);
    for wrong in [json!(null), json!([]), json!("x")] {
        let params = json!({"name": "form", "inputResponses": wrong});
        answers.note(&format!("{wrong} for all"), &client.ask("tools/call", params).await["error"]);
    }
    answers.expect(&expect![[r#"
        12345: {"code":-32602,"message":"params.inputResponses.name cannot be used: it must be an object, not a number"}
        null: {"code":-32602,"message":"params.inputResponses.name cannot be used: it must be an object, not null"}
        {}: {"code":-32602,"message":"params.inputResponses.name cannot be used: action is missing; it must be a string"}
        {"action":"maybe"}: {"code":-32602,"message":"params.inputResponses.name cannot be used: action must be accept, decline or cancel"}
        {"action":"accept","content":{}}: {"code":-32602,"message":"params.inputResponses.name cannot be used: content: the member `name` is missing"}
        decline: {"resultType":"complete","content":[{"type":"text","text":"Decline nothing"}],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bulkhead","version":"0.1.0"}}}
        null for all: {"code":-32602,"message":"params.inputResponses must be an object, not null"}
        [] for all: {"code":-32602,"message":"params.inputResponses must be an object, not an array"}
        "x" for all: {"code":-32602,"message":"params.inputResponses must be an object, not a string"}
    "#]]);
}

#[tokio::test]
async fn input_answers_can_be_given_in_advance() {
    let world = world();
    let client = world.plain();
    let params = json!({"name": "two_forms", "inputResponses": {"one": accept("A"), "two": accept("B"), "three": 3}});
    assert_eq!(text(&client.result("tools/call", params).await).matches("Accept").count(), 2);
    let asked = client.result("tools/call", json!({"name": "two_forms", "inputResponses": {"two": accept("B")}})).await;
    assert_eq!(asked["inputRequests"].as_object().unwrap().keys().collect::<Vec<_>>(), ["one"]);
    let done =
        client.result("tools/call", retry("two_forms", &asked["requestState"], json!({"one": accept("A")}))).await;
    assert_eq!(text(&done).matches("Accept").count(), 2);
    let wrong = json!({"name": "form", "inputResponses": {"name": {"action": "accept", "content": {"name": 1}}}});
    assert_eq!(client.refusal("tools/call", wrong).await, (-32602, None));
    world.quiet_but(1).await;
}

#[tokio::test]
async fn equal_multi_round_trip_retry_is_idempotent() {
    let world = world();
    let client = world.plain();
    let first = client.call("two_forms").await;
    let one = retry("two_forms", &first["requestState"], json!({"one": accept("A")}));
    let second = client.result("tools/call", one.clone()).await;
    assert_eq!(client.result("tools/call", one.clone()).await, second);
    let two = retry("two_forms", &second["requestState"], json!({"two": accept("B")}));
    let done = client.result("tools/call", two.clone()).await;
    let mut respelled = two.clone();
    respelled["inputResponses"]["two"] = json!({"content": {"name": "B"}, "action": "accept"});
    assert_eq!(client.result("tools/call", respelled).await, done);
    assert_eq!(client.result("tools/call", one).await, second);
    for other in [json!({"one": accept("Z")}), json!({"one": {"action": "decline"}})] {
        let params = retry("two_forms", &first["requestState"], other);
        assert_eq!(client.refusal("tools/call", params).await, (-32602, None));
    }
    assert_eq!(world.started(), 1);
}

#[tokio::test]
async fn concurrent_multi_round_trip_retries_run_once() {
    let world = world();
    let client = world.plain();
    let asked = client.call("form").await;
    let params = retry("form", &asked["requestState"], json!({"name": accept("Ada")}));
    let (a, b) = tokio::join!(client.result("tools/call", params.clone()), client.result("tools/call", params));
    assert_eq!(a, b);
    assert_eq!(world.started(), 1);
}

#[tokio::test]
async fn request_state_is_bound_to_call_requestor_and_time() {
    let world = world();
    let client = world.plain();
    let asked = client.call("form").await;
    let state = asked["requestState"].as_str().unwrap();
    let answer = json!({"name": accept("Ada")});
    let good = retry("form", &asked["requestState"], answer.clone());
    let mut other = good.clone();
    other["arguments"] = json!({"a": 1});
    let mut answers = Transcript::default();
    for (name, params) in [
        ("tampered", retry("form", &json!(format!("{state}-TAMPERED")), answer.clone())),
        ("empty", retry("form", &json!(""), answer.clone())),
        ("of another tool", retry("two_forms", &asked["requestState"], answer)),
        ("with other arguments", other),
    ] {
        answers.note(name, &client.ask("tools/call", params).await);
    }
    answers.note("of another requestor", &client.clone().of(BOB).ask("tools/call", good.clone()).await);
    world.clock.advance(15 * 60_000);
    answers.note("expired", &client.ask("tools/call", good).await);
    answers.expect(&expect![[r#"
        tampered, empty, of another tool, with other arguments, of another requestor, expired: {"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"requestState is not one that was given for this call, or it is over its time; call the tool again without it"}}
    "#]]);
}

#[tokio::test]
async fn round_trip_input_request_needs_declared_capability() {
    let world = world();
    let refused = world.plain().lacking("elicitation").call("form").await;
    assert!(refused["isError"] == true && text(&refused).contains("Unsupported"));
    let forms = world.plain();
    let asked = forms.call("two_forms").await;
    let params = retry("two_forms", &asked["requestState"], json!({"one": accept("A")}));
    let now_mute = forms.lacking("elicitation").result("tools/call", params).await;
    assert!(text(&now_mute).contains("Unsupported"), "each request speaks for itself");
}

#[tokio::test]
async fn url_input_request_has_no_elicitation_id() {
    let world = world();
    let mut answers = Transcript::default();
    answers.note("asked", &world.plain().call("url").await);
    answers.expect(&expect![[r#"
        asked: {"resultType":"input_required","inputRequests":{"page":{"method":"elicitation/create","params":{"mode":"url","message":"Sign in","url":"https://example.com/in"}}},"requestState":"<state>","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bulkhead","version":"0.1.0"}}}
    "#]]);
}

#[tokio::test]
async fn input_request_keys_are_unique_per_call() {
    let world = world();
    let client = world.plain();
    let asked = client.call("same_key").await;
    assert_eq!(asked["inputRequests"].as_object().unwrap().keys().collect::<Vec<_>>(), ["name", "name-2"]);
    let both = json!({"name": accept("A"), "name-2": accept("B")});
    let again = client.result("tools/call", retry("same_key", &asked["requestState"], both)).await;
    assert_eq!(again["inputRequests"].as_object().unwrap().keys().collect::<Vec<_>>(), ["name-3"]);
    let done =
        client.result("tools/call", retry("same_key", &again["requestState"], json!({"name-3": accept("C")}))).await;
    assert_eq!(text(&done), r#"Accept {"name":"B"}, Accept {"name":"C"}"#);
}

#[tokio::test]
async fn waiting_guests_are_bounded_and_request_states_survive() {
    let world = world();
    let client = world.plain();
    let mut states = Vec::new();
    for _ in 0..12 {
        states.push(client.call("form").await["requestState"].clone());
    }
    world.quiet_but(8).await;
    let started = world.started();
    // The first one is gone, and its state still good.
    let done = client.result("tools/call", retry("form", &states[0], json!({"name": accept("Ada")}))).await;
    assert!(text(&done).contains("Ada"));
    assert_eq!(world.started(), started + 1);
}

#[tokio::test]
async fn promotion_can_follow_a_round_trip() {
    let world = world();
    let client = world.tasked();
    let asked = client.call("all").await;
    assert_eq!(asked["resultType"], "input_required");
    assert_eq!(world.stored().await, 0);
    let again = client.call("form").await;
    assert!(again["requestState"].is_string());
}

impl World {
    /// Rows of answered states.
    async fn used(&self) -> usize {
        self.store.rows(RowKind::UsedToken, None, 99).await.unwrap().len()
    }

    /// Waits until so many guests are alive.
    async fn quiet_but(&self, count: u64) {
        for _ in 0..500 {
            if self.guests.living.load(Ordering::SeqCst) == count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("{:?} are alive", self.guests);
    }
}
