//! The plugins in Rust, those of other worlds, commands and web services.

use super::equivalence::{check, check_place, replays, restarts};
use super::*;
use bulkhead_calls::policy::DirGrant;

fn ungranted(_: &mut PluginSource) {}

/// Grants a folder with a file under `/data`.
fn with_folder(folder: &TempDir, file: &str, text: &str) -> impl FnOnce(&mut PluginSource) + use<> {
    let host = folder.path().to_owned();
    std::fs::write(host.join(file), text).unwrap();
    move |plugin| {
        plugin.grants.directories = vec![DirGrant { host, guest: "/data".to_owned(), write: true, bytes_max: None }];
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sample_tools_in_rust_replay() {
    let cases = [
        replays("echo", json!({"text": "grüß dich"})),
        replays("word_count", json!({"text": "one two three"})),
        replays("diff", json!({"before": "a\nb", "after": "a\nc"})),
    ];
    check("text", ungranted, &[], &cases).await;
    check("primes", ungranted, &[], &[replays("count_primes", json!({"below": 3_000_000}))]).await;
    let desk = [
        replays("book_trip", json!({})),
        replays("summarize", json!({"text": "a long story"})),
        replays("wait", json!({"ms": 250})),
        replays("wait", json!({"ms": 60_000})).steered("stop"),
        replays("wait", json!({"ms": 60_000})).cancelled(),
    ];
    check("desk", ungranted, &[], &desk).await;
    let http = [
        replays("http_get", json!({"url": "http://peer.test/page"})),
        replays("http_get", json!({"url": "http://peer.test/none"})),
        replays("http_get", json!({"url": "http://peer.test/refused"})),
        replays("http_get", json!({"url": "http://elsewhere.test/"})),
        restarts("http_get", json!({"url": "http://peer.test/long"}), Reason::Response { bytes_max: 1 << 20 }),
        restarts("http_get", json!({"url": "http://peer.test/events"}), Reason::EventStream),
    ];
    check("http", ungranted, &[], &http).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_that_use_files_begin_again() {
    let folder = TempDir::new().unwrap();
    let grant = with_folder(&folder, "a.csv", "a,b\n1,2\n");
    check("csv", grant, &[], &[restarts("csv_profile", json!({"path": "/data/a.csv"}), Reason::Files)]).await;
    check("csv", ungranted, &[], &[replays("csv_profile", json!({"path": "/data/a.csv"}))]).await;
    let grant = with_folder(&folder, "a.txt", "words");
    let files = [
        restarts("list-directory", json!({"path": "/data"}), Reason::Files),
        restarts("read-file", json!({"path": "/data/a.txt"}), Reason::Files),
        restarts("search-file", json!({"path": "/data/a.txt", "pattern": "w"}), Reason::Files),
        restarts("get-file-info", json!({"path": "/data/a.txt"}), Reason::Files),
    ];
    check("public_filesystem", grant, &[], &files).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn typed_tools_replay() {
    let red = json!({"tag": "css", "val": "red"});
    let white = json!({"tag": "css", "val": "white"});
    let cases = [
        replays("colour-count", json!({})),
        replays("prism_colour_convert_to-rgb", json!({"colour": red})),
        replays("prism_colour_convert_to-hsl", json!({"colour": red})),
        replays("prism_colour_convert_to-hex", json!({"colour": {"tag": "css", "val": "none"}})),
        replays("prism_colour_contrast_check", json!({"text": red, "background": white})),
        replays("prism_colour_contrast_pick", json!({"choices": [red], "background": white, "needed": ["aa"]})),
        replays("prism_colour_palette_load", json!({"path": "/data/a"})),
        replays("prism_colour_palette_harmonise", json!({"base": red, "harmony": "triadic"})),
        replays("prism_colour_palette_gradient", json!({"start": red, "end": white})),
        replays("prism_colour_palette_swatch", json!({"colours": [red, white], "size": 2})),
        replays("prism_colour_palette_parse-all", json!({"lines": ["red", "nothing"]})),
    ];
    check("colour", ungranted, &[], &cases).await;
    let folder = TempDir::new().unwrap();
    let grant = with_folder(&folder, "palette", "red\nwhite\n");
    let place = Place::of("colour", grant).await;
    let Some(place) = place else { return };
    let (_, report) =
        place.record("prism_colour_palette_load", &json!({"path": "/data/palette"}), Levers::default()).await;
    assert_eq!(report.status, JournalStatus::Demoted(Reason::Files));
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_and_services_replay() {
    let command = |args: &[&str]| json!({"args": args, "stdin": "one two\nthree"});
    let commands = [
        replays("sample", command(&["count", "x"])),
        replays("sample", command(&["count", "--json"])),
        replays("sample", command(&["exit", "2"])),
        replays("sample", command(&["panic"])),
        replays("sample", command(&["env", "GRANTED"])),
        replays("sample", command(&["bytes"])),
    ];
    check("foreign_command", ungranted, &[], &commands).await;
    check("public_hello_command", ungranted, &[], &[replays("sample", json!({}))]).await;
    let echo = json!({"method": "POST", "path": "/echo?a=b", "headers": {"X-Colour": "blue"}, "body": "hello"});
    let services = [
        replays("request", echo),
        replays("request", json!({"path": "/image"})),
        replays("request", json!({"path": "/error"})),
        replays("request", json!({"path": "/silent"})),
        replays("request", json!({"path": "/unfinished"})),
        replays("request", json!({"path": "/trap"})),
        replays("request", json!({"path": "/open"})),
    ];
    check("foreign_service", ungranted, &[], &services).await;
    check("public_hello_http", ungranted, &[], &[replays("request", json!({}))]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn components_of_other_worlds_replay() {
    check("public_counter", ungranted, &[], &[replays("test", json!({}))]).await;
    let fetch = [replays("fetch", json!({"url": "http://peer.test/page"}))];
    check("public_fetch", ungranted, &[], &fetch).await;
    let log = [replays("example_host-logging_log-characters_call", json!({"s": "abc"}))];
    check("public_host_logging", ungranted, &[], &log).await;
}

/// A component of several, as a host loads it. `None`: they were not built.
fn composed(names: &[&str], more: Option<&[u8]>) -> Option<PluginSource> {
    let read = |name: &&str| match sample(name)?.component {
        Source::File(file) => std::fs::read(file).ok(),
        _ => None,
    };
    let bytes: Option<Vec<_>> = names.iter().map(read).collect();
    let bytes = bytes?;
    let own = names.iter().copied().zip(bytes.iter().map(Vec::as_slice));
    let parts = own.chain(more.map(|bytes| ("another", bytes))).map(|(name, bytes)| crate::Part { name, bytes });
    let whole = crate::compose(&parts.collect::<Vec<_>>()).unwrap();
    Some(source(Source::Bytes(whole.into())))
}

#[tokio::test(flavor = "multi_thread")]
async fn composed_components_replay() {
    let Some(speller) = composed(&["foreign_speller", "foreign_words", "foreign_folding"], None) else { return };
    let check = |text: &str| replays("acme_words_spelling_check", json!({"text": text}));
    check_place(&Place::with(speller, ungranted).await, &[], &[check("The Sea the sea"), check("")]).await;
    // Written by hand: that of the documentation is a core module.
    let adder = wat::parse_str(
        r#"(component
            (core module $m (func (export "add") (param i32 i32) (result i32) (i32.add (local.get 0) (local.get 1))))
            (core instance $i (instantiate $m))
            (func $add (param "x" u32) (param "y" u32) (result u32) (canon lift (core func $i "add")))
            (instance $add-interface (export "add" (func $add)))
            (export "docs:adder/add@0.1.0" (instance $add-interface)))"#,
    );
    let calculator = composed(&["public_calculator"], Some(&adder.unwrap())).unwrap();
    let add = replays("docs_calculator_calculate_eval-expression", json!({"op": "add", "x": 1, "y": 2}));
    check_place(&Place::with(calculator, ungranted).await, &[], &[add]).await;
}

/// Attacks that end: what a limit ends is no result, and is not in a journal.
#[tokio::test(flavor = "multi_thread")]
async fn attacks_that_end_replay() {
    let flood = json!({"count": 40});
    let cases = [
        replays("recurse", json!({})),
        replays("trap", json!({})),
        replays("flood_log", flood.clone()),
        replays("flood_progress", flood.clone()),
        replays("flood_stdout", flood),
        replays("read_file", json!({"path": "/etc/passwd"})),
        replays("write_file", json!({"path": "/tmp/file", "text": "words"})),
        replays("files", json!({"directory": "/", "steps": []})),
        replays("request", json!({"method": "GET", "url": "http://peer.test/page", "at_once": 3})),
        replays("request", json!({"method": "POST", "url": "http://peer.test/post", "body_bytes": 70_000})),
        replays("request", json!({"method": "GET", "url": "http://elsewhere.test/"})),
        replays("speak", json!({"text": "\u{1b}[2J words"})),
        replays("environment", json!({})),
        replays("connect", json!({"host": "127.0.0.1", "port": 22})),
        replays("connect", json!({"host": "example.com", "port": 80})),
        replays("bad_output", json!({})),
        replays("bad_json", json!({})),
        replays("half_pairs", json!({})),
        replays("bad_utf8", json!({})),
    ];
    // They loop, or take what a limit ends.
    let endless = ["spin", "ignore_cancel", "grow", "flood_result", "flood_handles"];
    check("hostile", ungranted, &endless, &cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_for_each_function_of_the_host_replay() {
    let cases = [
        replays("facts", json!({})),
        replays("settings", json!({})),
        replays("log", json!({"level": "info", "message": "words"})),
        replays("steps", json!({"steps": 5, "pause_ms": 3})),
        replays("steps", json!({"steps": 2, "pause_ms": 30})),
        replays("required", json!({"ms": 10})),
        replays("detach", json!({"ms": 30})),
        replays("steered", json!({})).steered("a message"),
        replays("stages", json!({"pause_ms": 5})),
        replays("saved_steps", json!({"steps": 3, "counts": true, "rounds": 10, "padding": 20})),
        replays("counted_sleeps", json!({"sleeps": 2, "pause_ms": 5})),
        replays("change_tools", json!({})),
        replays("contents", json!({})),
        replays("squares", json!({"count": 4})),
        replays("fail", json!({"way": "tool"})),
        replays("fail", json!({"way": "internal"})),
        replays("keep", json!({"what": "set", "key": "k", "value": "v"})),
        replays("keep", json!({"what": "get", "key": "k"})),
        replays("keep", json!({"what": "fill", "key": "l", "bytes": 70_000})),
        replays("keep", json!({"what": "keys", "key": ""})),
        replays("keep", json!({"what": "page", "key": "k"})),
        replays("keep", json!({"what": "delete", "key": "k"})),
        replays("keep", json!({"what": "get", "key": ""})),
        replays("send", json!({"url": "http://peer.test/page"})),
        replays("send", json!({"url": "http://peer.test/post", "method": "POST", "body": "words ".repeat(900)})),
        replays("ask_url", json!({"url": "https://example.com/pay"})),
        replays("ask_roots", json!({})),
        replays("ask_sampling", json!({"text": "say something"})),
        replays("ask_many", json!({"count": 3})),
        replays("ask_again", json!({"count": 3})),
        replays("ask_counted", json!({})),
        replays("ask_wrongly", json!({})),
    ];
    check("probe", ungranted, &[], &cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conformance_tools_replay() {
    let Some(place) = Place::of("conformance", ungranted).await else { return };
    let tools: Vec<_> = place.house.sandbox.catalog().tools().iter().map(|entry| entry.tool.name.clone()).collect();
    assert!(tools.len() > 30);
    for tool in tools {
        let arguments = match tool.as_str() {
            "greet" | "json_schema_2020_12_tool" => json!({"name": "Ada"}),
            "slow_compute" => json!({"seconds": 0.05}),
            "confirm_delete" => json!({"filename": "a.txt"}),
            "test_sampling" => json!({"prompt": "say something"}),
            "test_elicitation" => json!({"message": "who are you?"}),
            "test_x_mcp_header" => json!({"region": "north"}),
            _ => json!({}),
        };
        let (outcome, recorded) = place.record(&tool, &arguments, Levers::default()).await;
        assert_eq!(recorded.status, JournalStatus::Ended, "{tool}: {outcome:?}");
        let (again, replayed) = place.replay(&tool, &arguments, recorded.history.clone()).await;
        assert_eq!(comparable(&again), comparable(&outcome), "{tool}: {:?}", replayed.status);
        assert_eq!(replayed, recorded, "{tool}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_grants_are_named_again() {
    let cases =
        [replays("keep", json!({"what": "get", "key": "k"})), replays("send", json!({"url": "http://peer.test/page"}))];
    let Some(place) = Place::of("probe", |plugin| plugin.grants = Default::default()).await else { return };
    for (case, words) in cases.iter().zip(["kv", "http http://peer.test"]) {
        let outcome = case.check(&place).await;
        assert!(format!("{outcome:?}").contains(words), "{outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn components_of_wasi_03_begin_again() {
    let mut house = None;
    if let Some(plugin) = sample("concurrent") {
        let kept = TempDir::new().unwrap();
        let plugin = PluginSource { wasi: crate::WasiVersion::V0_3, ..plugin };
        let of = House::with_data(kept.path());
        of.publish(plugin).await;
        house = Some((of, kept));
    }
    let Some((house, _kept)) = house else { return };
    let name = house.sandbox.catalog().tools().iter().map(|entry| entry.tool.name.clone()).next().unwrap();
    let running = house.start_with(&name, "{}", |spec| spec.journaling = Journaling::InMemory);
    let (_, report) = drive(running, Levers::default()).await;
    let status = report.unwrap().status;
    assert_eq!(status, JournalStatus::Demoted(Reason::Concurrent));
    assert_eq!(status.to_string(), "it was given up: its component uses WASI 0.3");
}
