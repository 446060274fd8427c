//! Components that others have published as examples, written anew: to the same imports and exports, in code of our
//! own.
//!
//! [`EXAMPLES`] says of each what becomes of it; the table in `host/docs/public-examples.md` is the same. What was
//! recorded of an original is in `tests/fixtures/public-examples/NAME/original.txt`. Sources are beside it, or, in
//! Rust, in `plugins/fixtures/public`.

mod build;
mod shape;

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tests::client::Client;
use tests::{Setup, command, place};

use self::shape::Shape;
use crate::components::{Made, folder as components_folder};
use crate::egress::Web;

/// One of them.
struct Example {
    /// Its folder, and its plugin's name.
    name: &'static str,
    /// Where the original is, as the table says it.
    origin: &'static str,
    made: Made,
    /// Keys and tables of its entry in the configuration: what the operator grants. `DATA` and `WEB` stand for the
    /// test's folder and server.
    grants: &'static str,
    /// The same for the readers of the table.
    granted: &'static str,
    /// What becomes of it.
    outcome: &'static str,
}

impl Example {
    fn language(&self) -> &'static str {
        match self.made {
            Made::Rust => "Rust",
            Made::Python { .. } => "Python",
            Made::JavaScript { .. } => "JavaScript",
            Made::C => "C",
            Made::Module { .. } => "WAT",
        }
    }
}

const EXAMPLES: [Example; 16] = [
    Example {
        name: "filesystem",
        origin: "Wassette, filesystem-rs",
        made: Made::Rust,
        grants: "[plugin.grants]\ndirectories = [{ host = \"DATA\", guest = \"/data\", write = false }]",
        granted: "`directories`",
        outcome: "four tools, which read below the granted directory and nowhere else",
    },
    Example {
        name: "fetch",
        origin: "Wassette, fetch-rs",
        made: Made::Rust,
        grants: "[plugin.grants]\nhttp = [\"WEB\"]",
        granted: "`http`",
        outcome: "a tool, which reaches the granted server and no other",
    },
    Example {
        name: "get-weather-js",
        origin: "Wassette, get-weather-js",
        made: Made::JavaScript { world: "weather-mcp", without: "stdio,random,clocks,fetch-event" },
        grants: "config = { OPENWEATHER_API_KEY = \"a-key\", OPENWEATHER_URL = \"WEB\" }\n[plugin.grants]\nhttp = [\"WEB\"]",
        granted: "`http`, settings",
        outcome: "a tool, which reads its key by `wasi:config`",
    },
    Example {
        name: "time-server-js",
        origin: "Wassette, time-server-js",
        made: Made::JavaScript { world: "time-server", without: "http,random,stdio,fetch-event" },
        grants: "",
        granted: "none",
        outcome: "a tool",
    },
    Example {
        name: "eval-py",
        origin: "Wassette, eval-py",
        made: Made::Python { world: "sandbox" },
        grants: "",
        granted: "none",
        outcome: "two tools; an exception is the tool's error",
    },
    Example {
        name: "adder-py",
        origin: "component-docs, the adder in Python",
        made: Made::Python { world: "adder" },
        grants: "prefix = \"py-\"",
        granted: "none",
        outcome: "a tool, beside the other component of componentize-py and with a prefix beside the other adders",
    },
    Example {
        name: "adder-c",
        origin: "component-docs, the adder in C",
        made: Made::C,
        grants: "prefix = \"c-\"",
        granted: "none",
        outcome: "a tool",
    },
    Example {
        name: "adder-wat",
        origin: "component-docs, the adder in WAT",
        made: Made::Module { world: "adder" },
        grants: "",
        granted: "none",
        outcome: "the core module is refused; after `plugin wrap` it is a tool",
    },
    Example {
        name: "string-reverse-js",
        origin: "component-docs, string-reverse",
        made: Made::JavaScript { world: "string-reverse", without: "stdio,random,clocks,http,fetch-event" },
        grants: "",
        granted: "none",
        outcome: "a tool",
    },
    Example {
        name: "calculator",
        origin: "component-docs, calculator",
        made: Made::Rust,
        grants: "",
        granted: "none",
        outcome: "refused alone, since it imports the adder",
    },
    Example {
        name: "rpn",
        origin: "component-docs, the resource engine",
        made: Made::Rust,
        grants: "",
        granted: "none",
        outcome: "refused: each of its functions has to do with a resource",
    },
    Example {
        name: "hello-command",
        origin: "component-docs, a runnable component",
        made: Made::Rust,
        grants: "",
        granted: "none",
        outcome: "a tool of the plugin's name; what it writes to standard error is in the operator's log",
    },
    Example {
        name: "hello-http",
        origin: "sunfishcode/hello-wasi-http",
        made: Made::Rust,
        grants: "",
        granted: "none",
        outcome: "the tool `request`, whose result has status, headers and body",
    },
    Example {
        name: "counter",
        origin: "wasmex, counter-component",
        made: Made::Rust,
        grants: "",
        granted: "none",
        outcome: "a tool of the one plain function; those of the resource are left out, and named",
    },
    Example {
        name: "host-logging",
        origin: "jco, host-logging",
        made: Made::Rust,
        grants: "",
        granted: "none",
        outcome: "a tool, which logs by `wasi:logging`",
    },
    Example {
        name: "ferris-says-c",
        origin: "wasmCloud, ferris-says",
        made: Made::C,
        grants: "",
        granted: "none",
        outcome: "two tools",
    },
];

/// Those that a host refuses, with words of the reason.
const REFUSED: [(&str, &str); 2] = [
    ("calculator", "it imports docs:adder/add@0.1.0, which this host does not have"),
    ("rpn", "resource, which lives inside the component only"),
];

fn is_refused(example: &Example) -> bool {
    REFUSED.iter().any(|(name, _)| *name == example.name)
}

/// Whether the tools of a language are missing that some of them are written in.
fn left_out() -> bool {
    place::left_out(&["python", "javascript", "c"])
}

#[test]
fn public_examples_have_the_imports_and_exports_of_their_originals() {
    if left_out() {
        return;
    }
    let components = build::all();
    let mut wrong = Vec::new();
    for example in &EXAMPLES {
        let list = build::folder(example).join("original.txt");
        let recorded = Shape::recorded(&std::fs::read_to_string(&list).expect("a list"));
        let built = Shape::of(&std::fs::read(&components[example.name]).expect("a component"));
        let differences = built.differences(&recorded);
        wrong.extend(differences.iter().map(|difference| format!("{}: {difference}", example.name)));
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn public_examples_are_those_of_the_documents() {
    let page = place::root().join("host/docs/public-examples.md");
    let page = std::fs::read_to_string(page).expect("a page");
    let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| ")).skip(1).map(str::to_owned).collect();
    let rows: Vec<_> = rows.into_iter().filter(|row| !row.starts_with("| ---")).collect();
    let expected = EXAMPLES.map(|example| {
        let Example { origin, granted, outcome, .. } = &example;
        format!("| {origin} | {} | {granted} | {outcome} |", example.language())
    });
    assert_eq!(rows, expected);
}

#[tokio::test]
async fn public_examples_are_served_side_by_side_with_their_grants() {
    if left_out() {
        return;
    }
    let data = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(data.path().join("shared")).expect("a folder");
    std::fs::write(data.path().join("shared/note.txt"), "a note").expect("a file");
    std::fs::write(data.path().join("secret.txt"), "a secret").expect("a file");
    let web = Web::answering(|request| {
        let body = match request.starts_with("GET /data/2.5/weather?q=Lima&appid=a-key ") {
            true => r#"{"main": {"temp": 19.5}}"#,
            false => "hello",
        };
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
    })
    .await;
    let components = build::all();
    let entries = EXAMPLES.iter().filter(|example| !is_refused(example)).map(|example| {
        let shared = data.path().join("shared").display().to_string();
        let grants = example.grants.replace("DATA", &shared).replace("WEB", &web.origin);
        format!("[[plugin]]\nname = {:?}\nfile = {:?}\n{grants}\n", example.name, components[example.name])
    });
    let setup = Setup::new().config(&entries.collect::<String>());
    // Four interpreters are compiled for it, if no run before has done that.
    let host = setup.start_within(Duration::from_secs(600)).await;
    let client = Client::connect(&host).await;
    let page = client.call("tools/list", json!({})).await.expect("a list");
    let names: Vec<_> =
        page["tools"].as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str()).collect();
    let expected = [
        "c-docs_adder_add_add",
        "docs_adder_add_add",
        "eval",
        "example_host-logging_log-characters_call",
        "example_string-reverse_reverse_reverse-string",
        "exec",
        "fetch",
        "get-file-info",
        "get-weather",
        "hello-command",
        "list-directory",
        "local_time-server_time_get-current-time",
        "py-docs_adder_add_add",
        "read-file",
        "request",
        "search-file",
        "test",
        "wasmcloud_example-ferris-says_invoke_say",
        "wasmcloud_example-ferris-says_invoke_say-phrase",
    ];
    assert_eq!(names, expected);

    let texts = |result: &Value| -> Vec<String> {
        let blocks = result["content"].as_array().into_iter().flatten();
        blocks.filter_map(|block| block["text"].as_str().map(str::to_owned)).collect()
    };
    let call = async |name: &str, arguments: Value| {
        let result = client.tool(name, arguments).await.expect("a result");
        match result["isError"] == true {
            // What the tool says, and what the host adds.
            true => Err(texts(&result).join("; ")),
            false => Ok(result["structuredContent"].clone()),
        }
    };
    let said = |text: &str| Ok(json!({ "result": text }));
    for adder in ["docs_adder_add_add", "c-docs_adder_add_add", "py-docs_adder_add_add"] {
        assert_eq!(call(adder, json!({"x": 40, "y": 2})).await, Ok(json!({"result": 42})), "{adder}");
        assert!(call(adder, json!({"x": -1, "y": 2})).await.is_err(), "{adder}");
    }
    assert_eq!(call("list-directory", json!({"path": "/data"})).await, Ok(json!({"result": ["[FILE] note.txt"]})));
    assert_eq!(call("read-file", json!({"path": "/data/note.txt"})).await, said("a note"));
    assert_eq!(call("get-file-info", json!({"path": "/data/note.txt"})).await, said("6 bytes"));
    assert_eq!(call("search-file", json!({"path": "/data", "pattern": "note"})).await, said("/data/note.txt"));
    for outside in ["/data/../secret.txt", "/etc/hostname"] {
        assert!(call("read-file", json!({"path": outside})).await.is_err(), "{outside}");
    }
    assert_eq!(call("fetch", json!({"url": format!("{}/page", web.origin)})).await, said("hello"));
    let other = call("fetch", json!({"url": "http://127.0.0.1:9/"})).await;
    assert!(other.as_ref().is_err_and(|error| error.contains("http://127.0.0.1:9")), "{other:?}");
    assert_eq!(call("get-weather", json!({"city": "Lima"})).await, said("19.5"));
    let now = call("local_time-server_time_get-current-time", json!({})).await.expect("the time");
    assert!(now["result"].as_str().is_some_and(|now| now.starts_with("20") && now.ends_with('Z')), "{now}");
    assert_eq!(call("eval", json!({"expression": "[6 * 7, 'a']"})).await, said("[42, \"a\"]"));
    let raised = call("eval", json!({"expression": "1 / 0"})).await;
    assert!(raised.as_ref().is_err_and(|error| error.contains("ZeroDivisionError: division by zero")), "{raised:?}");
    assert_eq!(call("exec", json!({"statements": "print(len('four'))"})).await, said("4\n"));
    assert_eq!(call("example_string-reverse_reverse_reverse-string", json!({"s": "café"})).await, said("éfac"));
    assert_eq!(call("test", json!({})).await, said("a counter is here"));
    let phrase = call("wasmcloud_example-ferris-says_invoke_say-phrase", json!({"phrase": "Zoë"})).await;
    assert!(
        phrase.as_ref().is_ok_and(|said| said["result"].as_str().is_some_and(|said| said.starts_with("Zoë\n"))),
        "{phrase:?}"
    );
    call("wasmcloud_example-ferris-says_invoke_say", json!({})).await.expect("a phrase");
    let response = call("request", json!({"path": "/"})).await.expect("a response");
    assert_eq!(
        (&response["status"], &response["body"]),
        (&json!(200), &json!("Hello, wasi:http/proxy world!\n")),
        "{response}"
    );
    call("hello-command", json!({})).await.expect("it ends well");
    call("example_host-logging_log-characters_call", json!({"s": "ab"})).await.expect("it is logged");
}

#[tokio::test]
async fn public_examples_that_are_no_tools_are_refused_with_the_reason() {
    if left_out() {
        return;
    }
    let check = async |file: &Path| {
        let file = file.display().to_string();
        let output = command::output(&mut command::bulkhead(), &["plugin", "check", &file], None).await;
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        (output.status.code(), said)
    };
    let components = build::all();
    for (name, reason) in REFUSED {
        let (code, said) = check(&components[name]).await;
        assert!(code == Some(4) && said.contains(reason), "{name}: {said}");
    }
    // What is wrapped for the table is a core module before.
    let (code, said) = check(&components_folder().join("adder.core")).await;
    assert!(code == Some(4) && said.contains("this is a core module"), "{said}");
    let (code, said) = check(&components["counter"]).await;
    assert!(code == Some(0) && said.contains("left out: ") && said.contains("use-counter"), "{said}");
}
