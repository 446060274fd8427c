//! The tools of the crash matrix: what each is called with, and what must be true of its end.

use serde_json::{Value, json};
use tests::client::text;
use tests::modern::Modern;

use super::lives::Ended;

/// A call that is to be made over several lives of its host.
pub(super) struct Case {
    pub(super) plugin: &'static str,
    pub(super) tool: &'static str,
    /// What tells it from another call of the same tool.
    how: &'static str,
    /// The languages that its plugin needs to be built.
    pub(super) languages: &'static [&'static str],
    pub(super) keeps: bool,
    pub(super) is_steered: bool,
    /// Whether it rests for so long after a request that its answer is kept by itself, and a later life finds it.
    pub(super) rests: bool,
    /// Whether it leaves memory as soon as it rests.
    pub(super) evicts: bool,
    /// With the address of a server that counts.
    pub(super) arguments: fn(&str) -> Value,
    /// The keys under which it asks, in order.
    pub(super) asks: &'static [&'static str],
    pub(super) check: fn(&Ended),
}

impl Case {
    pub(super) fn name(&self) -> String {
        let Self { plugin, tool, how, .. } = self;
        format!("{tool}{how} of {plugin}")
    }

    /// Its name, with the places at which its host is to end.
    pub(super) fn named_pair(&self, (first, second): (usize, usize)) -> String {
        format!("{} at {first} and {second}", self.name())
    }
}

const PLAIN: Case = Case {
    plugin: "",
    tool: "",
    how: "",
    languages: &[],
    keeps: false,
    is_steered: false,
    rests: false,
    evicts: false,
    arguments: |_| json!({}),
    asks: &[],
    check: |_| {},
};

/// One tool for each way to have an effect, or to have none, and for each kind of component.
pub(super) const CASES: [Case; 21] = [
    Case {
        plugin: "probe",
        tool: "stages",
        keeps: true,
        arguments: |_| json!({"pause_ms": 0}),
        asks: &["first", "second"],
        check: |ended| {
            let answers = [r#"{"value":"first"}"#, r#"{"value":"second"}"#];
            ended.says(&json!({"attempt": 1, "counts": [1, 2], "answers": answers}));
        },
        ..PLAIN
    },
    Case {
        plugin: "probe",
        tool: "stages",
        how: ", which leaves memory while it waits and sleeps,",
        keeps: true,
        evicts: true,
        arguments: |_| json!({"pause_ms": 1_100}),
        asks: &["first", "second"],
        check: |ended| {
            let answers = [r#"{"value":"first"}"#, r#"{"value":"second"}"#];
            ended.says(&json!({"attempt": 1, "counts": [1, 2], "answers": answers}));
        },
        ..PLAIN
    },
    Case {
        plugin: "probe",
        tool: "saved_steps",
        keeps: true,
        arguments: |_| json!({"steps": 2, "counts": true, "rounds": 1, "padding": 5_000}),
        check: |ended| ended.has("counts", &json!([1, 2])),
        ..PLAIN
    },
    Case { tool: "send", plugin: "probe", arguments: |origin| sent("POST", origin), check: sent_once, ..PLAIN },
    Case {
        tool: "send",
        plugin: "probe",
        how: ", which leaves memory afterwards,",
        evicts: true,
        arguments: |origin| {
            let mut sent = sent("POST", origin);
            sent["rest_ms"] = json!(1_100);
            sent
        },
        check: sent_once,
        ..PLAIN
    },
    Case {
        tool: "send",
        plugin: "probe",
        how: ", which rests afterwards,",
        rests: true,
        arguments: |origin| {
            let mut sent = sent("POST", origin);
            sent["rest_ms"] = json!(200);
            sent
        },
        check: sent_once,
        ..PLAIN
    },
    Case {
        plugin: "probe",
        tool: "send",
        how: ", which only reads,",
        arguments: |origin| json!({"url": format!("{origin}/page")}),
        check: |ended| {
            assert!(ended.sent.gets > 0 && ended.sent.posts == 0, "{ended}");
            assert_eq!(ended.result["structuredContent"]["body"], "paid", "what only reads is sent again: {ended}");
        },
        ..PLAIN
    },
    Case {
        plugin: "probe",
        tool: "steered",
        is_steered: true,
        check: |ended| {
            let taken: Vec<_> = text(&ended.result).lines().collect();
            let mut once = taken.clone();
            once.dedup();
            assert!(!taken.is_empty() && once == taken, "each message is given once: {ended}");
            assert!(taken.iter().all(|message| ended.steered.iter().any(|sent| sent == message)), "{ended}");
        },
        ..PLAIN
    },
    Case { plugin: "probe", tool: "ask_again", arguments: |_| json!({"count": 2}), check: asked_again, ..PLAIN },
    Case { plugin: "probe", tool: "facts", check: |ended| ended.has("attempt", &json!(1)), ..PLAIN },
    Case {
        plugin: "desk",
        tool: "book_trip",
        asks: &["journey", "details"],
        check: |ended| ended.has("summary", &json!("Booked 2 economy seats to Oslo.")),
        ..PLAIN
    },
    Case {
        plugin: "desk",
        tool: "book_trip",
        how: ", which leaves memory while it waits,",
        evicts: true,
        asks: &["journey", "details"],
        check: |ended| ended.has("summary", &json!("Booked 2 economy seats to Oslo.")),
        ..PLAIN
    },
    Case {
        plugin: "text",
        tool: "echo",
        arguments: |_| json!({"text": "words"}),
        check: |ended| assert_eq!(text(&ended.result), "words", "{ended}"),
        ..PLAIN
    },
    Case {
        plugin: "primes",
        tool: "count_primes",
        arguments: |_| json!({"below": 1_000}),
        check: |ended| assert!(ended.result.to_string().contains("168"), "{ended}"),
        ..PLAIN
    },
    Case {
        plugin: "dedup",
        tool: "find_duplicates",
        languages: &["python"],
        keeps: true,
        arguments: |_| {
            let records = ["Bob Smith", "Smith, Bob", "Bob Smyth", "Alice", "Alice Jones"];
            json!({"records": records, "doubtful": 0.5})
        },
        check: |ended| {
            assert!(!ended.questions.is_empty(), "{ended}");
            ended.has("complete", &json!(true));
        },
        ..PLAIN
    },
    Case {
        plugin: "probe-python",
        tool: "py_fetch",
        languages: &["python"],
        arguments: |origin| json!({"url": format!("{origin}/pay"), "body": "1"}),
        check: sent_once,
        ..PLAIN
    },
    Case {
        plugin: "meetings",
        tool: "arrange_meeting",
        languages: &["javascript"],
        arguments: |_| {
            json!({
                "participants": [{"name": "Ada"}, {"name": "Bob"}], "minutes": 60,
                "from": "2026-03-02T08:00:00Z", "to": "2026-03-03T18:00:00Z",
            })
        },
        asks: &["slot"],
        check: |ended| {
            ended.has("arranged", &json!(true));
            ended.has(
                "start",
                &ended.questions["slot"]["params"]["requestedSchema"]["properties"]["start"]["oneOf"][0]["const"],
            );
        },
        ..PLAIN
    },
    Case {
        plugin: "foreign_command",
        tool: "foreign_command",
        arguments: |_| json!({"args": ["count"], "stdin": "one two\nthree\n"}),
        check: |ended| assert_eq!(text(&ended.result), "2 lines, 3 words, 0 arguments\n", "{ended}"),
        ..PLAIN
    },
    Case {
        plugin: "foreign_service",
        tool: "request",
        arguments: |_| json!({"method": "POST", "path": "/echo", "body": "hello"}),
        check: |ended| assert!(ended.result.to_string().contains("5 bytes announced: hello"), "{ended}"),
        ..PLAIN
    },
    Case {
        plugin: "foreign_mcp",
        tool: "ask",
        asks: &["name"],
        check: |ended| assert!(text(&ended.result).ends_with(", after round 1"), "{ended}"),
        ..PLAIN
    },
    Case {
        plugin: "foreign_mcp_stdio",
        tool: "pay",
        arguments: |origin| json!({"to": format!("{}/pay", origin.trim_start_matches("http://"))}),
        check: sent_once,
        ..PLAIN
    },
];

fn sent(method: &str, origin: &str) -> Value {
    json!({"method": method, "url": format!("{origin}/pay"), "body": "1"})
}

/// A request with an effect: sent once, or the guest knows that it may not have been; never twice.
fn sent_once(ended: &Ended) {
    let sent = ended.sent.posts;
    assert!(sent <= 1, "it was sent {sent} times: {ended}");
    assert!(sent == 1 || ended.is_in_doubt(), "it was not sent, and the guest does not know: {ended}");
    assert!(ended.is_in_doubt() || ended.result.to_string().contains("paid"), "{ended}");
}

fn asked_again(ended: &Ended) {
    assert_eq!(ended.questions.len(), 2, "{ended}");
    let said = text(&ended.result);
    assert_eq!(said.lines().count(), 2, "{ended}");
    for key in ended.questions.keys() {
        assert_eq!(said.matches(&format!("{{\"value\":\"{key}\"}}")).count(), 1, "each answer is given once: {ended}");
    }
}

/// What a client answers to a question of any of these tools.
pub(super) fn answer(key: &str, question: &Value) -> Value {
    match key {
        "journey" => json!({"destination": "Oslo", "travellers": 2}),
        "details" => json!({"class": "economy", "confirm": true}),
        "slot" => json!({"start": question["params"]["requestedSchema"]["properties"]["start"]["oneOf"][0]["const"]}),
        "name" => json!({"name": "Ada"}),
        key if key.starts_with("pair-") => json!({"same": true}),
        key => json!({"value": key}),
    }
}

/// What the tool `stages` has counted, as another call sees it.
pub(super) async fn check_kept(case: &Case, client: &Modern, ended: &Ended) {
    if matches!(case.tool, "stages" | "saved_steps") {
        let kept = client.tool("keep", json!({"what": "get", "key": "stages"})).await;
        assert_eq!(text(&kept), "1 bytes: 2", "{ended}");
    }
}
