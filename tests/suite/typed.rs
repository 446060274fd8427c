//! A component whose author never heard of this host: its functions are tools like all others.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tests::client::{Client, text};
use tests::modern::Modern;
use tests::{Host, Setup, command, place};

const CHECK: &str = "prism_colour_contrast_check";
const TO_RGB: &str = "prism_colour_convert_to-rgb";

async fn host() -> Host {
    Setup::with(&["colour", "text"]).start().await
}

fn css(text: &str) -> Value {
    json!({"tag": "css", "val": text})
}

fn tool<'a>(page: &'a Value, name: &str) -> &'a Value {
    let found = page["tools"].as_array().into_iter().flatten().find(|tool| tool["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {page}"))
}

#[tokio::test]
async fn typed_functions_are_listed_with_docs_and_schemas() {
    let host = host().await;
    let legacy = Client::connect(&host).await.call("tools/list", json!({})).await.expect("a list");
    let modern = Modern::plain(&host, None).result("tools/list", json!({})).await;
    let names: Vec<_> =
        legacy["tools"].as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str()).collect();
    let expected = [
        "colour-count",
        "diff",
        "echo",
        "prism_colour_contrast_check",
        "prism_colour_contrast_pick",
        "prism_colour_convert_to-hex",
        "prism_colour_convert_to-hsl",
        "prism_colour_convert_to-rgb",
        "prism_colour_palette_gradient",
        "prism_colour_palette_harmonise",
        "prism_colour_palette_load",
        "prism_colour_palette_parse-all",
        "prism_colour_palette_swatch",
        "word_count",
    ];
    assert_eq!(names, expected);
    for page in [&legacy, &modern] {
        let check = tool(page, CHECK);
        assert_eq!(check["description"], "The contrast of a text on a background.");
        assert_eq!(check["inputSchema"]["required"], json!(["text", "background"]));
        // Every output is an object, also for clients that know no other.
        for tool in page["tools"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|tool| tool["name"] != "echo" && tool["name"] != "diff")
        {
            assert_eq!(tool["outputSchema"]["type"], "object", "{tool}");
        }
        let steps = &tool(page, "prism_colour_palette_gradient")["inputSchema"];
        assert_eq!(steps["required"], json!(["start", "end"]), "an option is not required");
        // What the author wrote about types and their parts, which functions of several interfaces use.
        let colour = &check["inputSchema"]["properties"]["background"];
        assert_eq!(colour["description"], "A colour, however it is written.");
        assert!(colour["oneOf"][2]["description"].as_str().is_some_and(|css| css.contains("#rrggbb")), "{colour}");
        let ratio = &check["outputSchema"]["anyOf"][0]["properties"]["ratio"]["description"];
        assert_eq!(ratio, "From 1 (the same) to 21 (black on white).");
    }
    assert_eq!(tool(&legacy, CHECK)["execution"]["taskSupport"], "optional");
}

#[tokio::test]
async fn typed_values_of_every_kind_pass_over_http() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let call = async |name: &str, arguments: Value| {
        let result = client.tool(name, arguments).await.expect("a result");
        assert_ne!(result["isError"], true, "{result}");
        assert_eq!(
            serde_json::from_str::<Value>(text(&result)).expect("the same as text"),
            result["structuredContent"]
        );
        result["structuredContent"].clone()
    };
    // A record is itself; anything else is the member `result`.
    assert_eq!(call(TO_RGB, json!({"colour": css("#1af")})).await, json!({"red": 17, "green": 170, "blue": 255}));
    let rgb = json!({"tag": "rgb", "val": {"red": 0, "green": 0, "blue": 128}});
    assert_eq!(call("prism_colour_convert_to-hex", json!({"colour": rgb})).await, json!({"result": "#000080"}));
    let verdict = call(CHECK, json!({"text": css("black"), "background": css("white")})).await;
    assert_eq!(verdict, json!({"ratio": 21.0, "meets": ["aa-large", "aa", "aaa-large", "aaa"]}));
    let pick = |choices: &[&str]| {
        json!({"choices": choices.iter().map(|choice| css(choice)).collect::<Vec<_>>(),
        "background": css("white"), "needed": ["aa"]})
    };
    assert_eq!(call("prism_colour_contrast_pick", pick(&["aqua", "navy"])).await, json!({"result": [1, "#000080"]}));
    assert_eq!(call("prism_colour_contrast_pick", pick(&["aqua"])).await, json!({"result": null}));
    let gradient = json!({"start": css("black"), "end": css("white"), "steps": 3});
    assert_eq!(
        call("prism_colour_palette_gradient", gradient).await,
        json!({"result": ["#000000", "#808080", "#ffffff"]})
    );
    let gradient = call("prism_colour_palette_gradient", json!({"start": css("red"), "end": css("blue")})).await;
    assert_eq!(gradient["result"].as_array().map(Vec::len), Some(5));
    let triad = call("prism_colour_palette_harmonise", json!({"base": css("red"), "harmony": "triadic"})).await;
    assert_eq!(triad["result"][1], json!({"red": 0, "green": 255, "blue": 0}));
    let lines = call("prism_colour_palette_parse-all", json!({"lines": ["#fff", "mauve"]})).await;
    let white = json!({"red": 255, "green": 255, "blue": 255});
    let unknown = json!({"tag": "unknown", "val": "mauve"});
    assert_eq!(lines, json!({"result": [{"tag": "ok", "val": white}, {"tag": "err", "val": unknown}]}));
    let swatch = call("prism_colour_palette_swatch", json!({"colours": [css("red"), css("lime")], "size": 16})).await;
    assert!(swatch["result"].as_str().is_some_and(|data| data.starts_with("iVBORw0KGgo")), "{swatch}");
    assert_eq!(call("colour-count", json!({})).await, json!({"result": "18446744073709551615"}));
}

#[tokio::test]
async fn typed_function_errors_are_readable_tool_errors() {
    let host = host().await;
    let legacy = Client::connect(&host).await;
    let modern = Modern::plain(&host, None);
    for arguments in [json!({"colour": css("mauve")}), json!({"colour": {"tag": "transparent"}})] {
        let error = match &arguments["colour"]["tag"] {
            tag if tag == "css" => json!({"tag": "unknown", "val": "mauve"}),
            _ => json!({"tag": "invisible"}),
        };
        for result in
            [legacy.tool(TO_RGB, arguments.clone()).await.expect("a result"), modern.tool(TO_RGB, arguments).await]
        {
            assert_eq!((&result["isError"], &result["structuredContent"]), (&json!(true), &json!({"error": error})));
        }
    }
    let wrong = json!({"colour": {"tag": "rgb", "val": {"red": 256, "green": 0, "blue": 0}}});
    let result = legacy.tool(TO_RGB, wrong).await.expect("a result");
    assert_eq!(result["isError"], true, "{result}");
    assert!(text(&result).contains("/colour"), "{result}");
}

#[tokio::test]
async fn typed_plugin_reaches_only_granted_files() {
    const LOAD: &str = "prism_colour_palette_load";
    let folder = tempfile::tempdir().expect("a folder");
    let palettes = folder.path().join("palettes");
    std::fs::create_dir(&palettes).expect("a folder");
    std::fs::write(palettes.join("sea.txt"), "navy\n\n#1af\n").expect("a palette");
    std::fs::write(palettes.join("odd.txt"), "navy\nseaweed\n").expect("a palette");
    std::fs::write(folder.path().join("secret.txt"), "navy\n").expect("a file");
    let grant =
        format!("[plugin.grants]\ndirectories = [{{ host = {palettes:?}, guest = \"/palettes\", write = false }}]");
    let granted = Setup::new().plugin("colour", &grant).start().await;
    let legacy = Client::connect(&granted).await;
    let modern = Modern::plain(&granted, None);
    let sea = json!({"path": "/palettes/sea.txt"});
    let expected = json!({"result": [{"red": 0, "green": 0, "blue": 128}, {"red": 17, "green": 170, "blue": 255}]});
    for result in [legacy.tool(LOAD, sea.clone()).await.expect("a result"), modern.tool(LOAD, sea.clone()).await] {
        assert_eq!(result["structuredContent"], expected, "{result}");
    }
    let failed = async |client: &Client, path: &str, tag: &str| {
        let result = client.tool(LOAD, json!({"path": path})).await.expect("a result");
        let error = &result["structuredContent"]["error"];
        assert_eq!((&result["isError"], &error["tag"]), (&json!(true), &json!(tag)), "{path}: {result}");
        let said = error["val"].as_str().expect("a reason").to_owned();
        assert!(!said.contains(&folder.path().display().to_string()), "{said}");
        said
    };
    assert_eq!(failed(&legacy, "/palettes/odd.txt", "no-colour").await, "seaweed");
    for path in ["/palettes/../secret.txt", "/palettes/none.txt", "/etc/hostname"] {
        failed(&legacy, path, "unreadable").await;
    }

    let bare = host().await;
    failed(&Client::connect(&bare).await, "/palettes/sea.txt", "unreadable").await;
}

#[tokio::test]
async fn typed_functions_follow_operator_policy_and_run_as_tasks() {
    let toml = format!(
        "[plugin.tool.\"{CHECK}\"]\ntask_support = \"required\"\ntitle = \"Contrast\"\n\
         description = \"Says whether people can read it.\"\nannotations = {{ read_only = true, idempotent = true }}\n"
    );
    let host = Setup::new().plugin("colour", &toml).start().await;
    let legacy = Client::connect(&host).await;
    let modern = Modern::full(&host, None);
    let page = legacy.call("tools/list", json!({})).await.expect("a list");
    let check = tool(&page, CHECK);
    assert_eq!(
        (&check["title"], &check["description"]),
        (&json!("Contrast"), &json!("Says whether people can read it."))
    );
    assert_eq!(check["annotations"], json!({"readOnlyHint": true, "idempotentHint": true}));
    assert_eq!(check["execution"]["taskSupport"], "required");

    let arguments = json!({"text": css("black"), "background": css("white")});
    let task = legacy.task(CHECK, arguments.clone()).await;
    legacy.until_status(&task, "completed").await;
    let result = legacy.about("tasks/result", &task).await.expect("a result");
    assert_eq!(result["structuredContent"]["ratio"], 21.0);
    let task = modern.task(CHECK, arguments).await;
    let done = modern.until_status(&task, "completed").await;
    assert_eq!(done["result"]["structuredContent"]["ratio"], 21.0, "{done}");
}

#[tokio::test]
async fn typed_plugin_is_inspected_and_called_from_command_line() {
    let file = place::component("colour").display().to_string();
    let said = command::run(&mut command::bulkhead(), &["plugin", "inspect", &file, "--json"], None).await;
    let shown: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((&shown["name"], &shown["typed"]), (&json!("colour"), &json!(true)), "{shown}");
    assert_eq!(tool(&shown, CHECK)["description"], "The contrast of a text on a background.");
    let arguments = json!({"colour": css("teal")}).to_string();
    let call = ["plugin", "call", &file, TO_RGB, &arguments, "--json"];
    let said = command::run(&mut command::bulkhead(), &call, None).await;
    let result: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(result["structuredContent"], json!({"red": 0, "green": 128, "blue": 128}));
    let arguments = json!({"colour": css("mauve")}).to_string();
    let call = ["plugin", "call", &file, TO_RGB, &arguments];
    let output = command::output(&mut command::bulkhead(), &call, None).await;
    assert_eq!(output.status.code(), Some(1), "the function failed");
}

/// A component that imports files, and one of whose functions has to do with a resource.
const MIXED: &str = r#"(component
    (import "wasi:filesystem/types@0.2.0" (instance $types (export "descriptor" (type (sub resource)))))
    (alias export $types "descriptor" (type $descriptor))
    (import "wasi:filesystem/preopens@0.2.0" (instance
        (alias outer 1 $descriptor (type $outer))
        (export "descriptor" (type $own (eq $outer)))
        (export "get-directories" (func (result (list (tuple (own $own) string)))))))
    (core module $m (func (export "give") (result i32) (i32.const 7)))
    (core instance $i (instantiate $m))
    (type $counter' (resource (rep i32)))
    (export $counter "counter" (type $counter'))
    (func (export "seven") (result u32) (canon lift (core func $i "give")))
    (func (export "make") (result (own $counter)) (canon lift (core func $i "give"))))"#;

#[tokio::test]
async fn functions_left_out_and_grants_of_imports_are_named_on_the_command_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mixed.wasm");
    std::fs::write(&file, wat::parse_str(MIXED).expect("a component")).expect("a file");
    let file = file.display().to_string();
    let left_out = "function make: its result is or holds a resource, which lives inside the component only";
    let said = command::run(&mut command::bulkhead(), &["plugin", "inspect", &file, "--json"], None).await;
    let shown: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(shown["leftOut"], json!([left_out]), "{shown}");
    assert_eq!(
        shown["usableGrants"],
        json!([{"grant": "directories", "import": "wasi:filesystem/preopens"}]),
        "{shown}"
    );
    assert_eq!(tool(&shown, "seven")["description"], "seven. No parameters. Returns: integer.");
    let said = command::run(&mut command::bulkhead(), &["plugin", "inspect", &file], None).await;
    for line in [left_out, "directories (it imports wasi:filesystem/preopens)"] {
        assert!(said.lines().any(|found| found.trim() == line), "{line}: {said}");
    }
    let said = command::run(&mut command::bulkhead(), &["plugin", "check", &file], None).await;
    assert!(said.contains(&format!("warning: left out: {left_out}")), "{said}");
    assert!(said.contains("which can use: directories (it imports wasi:filesystem/preopens)"), "{said}");
    let foreign = "(component (import \"spin:postgres/postgres@3.0.0\" (instance (export \"open\" (func)))))";
    std::fs::write(&file, wat::parse_str(foreign).expect("a component")).expect("a file");
    for verb in ["inspect", "check"] {
        let output = command::output(&mut command::bulkhead(), &["plugin", verb, &file], None).await;
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert_eq!(output.status.code(), Some(4), "{said}");
        assert!(
            said.contains("it imports spin:postgres/postgres@3.0.0 of Fermyon Spin, which this host does not have"),
            "{said}"
        );
    }
}

/// The component, with this program among those that made it.
fn made_by(program: &str, mut component: Vec<u8>) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).expect("a short text")], text.as_bytes()].concat();
    let producers = [&[1], &*text("processed-by"), &[1], &text(program), &text("0.23.0")].concat();
    let section = [text("producers"), producers].concat();
    component.extend([0, u8::try_from(section.len()).expect("a short section")]);
    component.extend(section);
    component
}

#[tokio::test]
async fn integers_that_componentize_js_changes_are_named_on_the_command_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let numbers = wat::parse_str(
        r#"(component
            (core module $m
                (func (export "count") (result i32) (i32.const 7))
                (func (export "move") (param i64)))
            (core instance $i (instantiate $m))
            (func (export "count") (result u32) (canon lift (core func $i "count")))
            (func (export "move") (param "by" s64) (canon lift (core func $i "move"))))"#,
    );
    let numbers = numbers.expect("a component");
    let count =
        "function count: its result is a u32, and componentize-js returns another number from 2147483648 on: return";
    let by = "function move: parameter by has an s64, and componentize-js hands a negative one over as 2^64 more: take";
    for (program, expected) in [("ComponentizeJS", &[count, by][..]), ("wit-component", &[])] {
        let file = folder.path().join(format!("{program}.wasm"));
        std::fs::write(&file, made_by(program, numbers.clone())).expect("a file");
        let file = file.display().to_string();
        let said = command::run(&mut command::bulkhead(), &["plugin", "inspect", &file, "--json"], None).await;
        let shown: Value = serde_json::from_str(&said).expect("JSON");
        let warnings: Vec<_> = shown["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        assert_eq!(warnings.len(), expected.len(), "{shown}");
        for verb in ["inspect", "check"] {
            let output = command::output(&mut command::bulkhead(), &["plugin", verb, &file], None).await;
            assert_eq!(output.status.code(), Some(0), "it is valid, and right for other numbers");
            let said =
                [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
            for warning in expected {
                assert!(warnings.iter().any(|found| found.starts_with(warning)), "{warning}: {shown}");
                assert!(said.contains(&format!("warning: {warning}")), "{verb}: {warning}: {said}");
            }
            assert_eq!(said.contains("componentize-js"), !expected.is_empty(), "{verb}: {said}");
            let wit = Path::new(&file).with_extension("wit");
            let hint = format!("put its WIT beside it as {}", wit.display());
            assert_eq!(said.contains(&hint), verb == "check", "{verb}: {said}");
        }
    }
}

/// Makes a component of a module and a world of its own, as the tutorials of componentize-py do.
fn componentize(folder: &Path, name: &str, wit: &str, module: &str) -> PathBuf {
    let project = folder.join(name);
    std::fs::create_dir(&project).expect("a folder");
    std::fs::write(project.join("world.wit"), wit).expect("a world");
    std::fs::write(project.join("app.py"), module).expect("a module");
    let component = folder.join(format!("{name}.wasm"));
    let mut program = Command::new(place::root().join("target/guest-tools/python/bin/componentize-py"));
    program.args(["--quiet", "-d", "world.wit", "-w", name, "componentize", "app", "-o"]).arg(&component);
    let status = program.current_dir(&project).status().expect("componentize-py starts");
    assert!(status.success(), "{name}: {status}");
    component
}

#[tokio::test]
async fn components_of_several_python_authors_are_served_together() {
    // Two runtimes of 18 MB are made and compiled for it; what they have in common is tested with small components by
    // the host.
    if place::rounds(0, 1) == 0 || place::left_out(&["python"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let adder = componentize(
        folder.path(),
        "adder",
        "package acme:adder@0.1.0; interface add { add: func(x: u32, y: u32) -> u32; } world adder { export add; }",
        "from wit_world import exports\n\nclass Add(exports.Add):\n    def add(self, x, y):\n        return x + y\n",
    );
    let greeter = componentize(
        folder.path(),
        "greeter",
        "package acme:greeter; world greeter { export greet: func(name: string) -> string; }",
        "import wit_world\n\nclass WitWorld(wit_world.WitWorld):\n    def greet(self, name):\n        return f'Hello, {name}!'\n",
    );
    let plugins = format!("[[plugin]]\nfile = {adder:?}\n[[plugin]]\nfile = {greeter:?}\n");
    let host = Setup::new().config(&plugins).start_within(Duration::from_secs(600)).await;
    let client = Client::connect(&host).await;
    let page = client.call("tools/list", json!({})).await.expect("a list");
    let names: Vec<_> =
        page["tools"].as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(names, ["acme_adder_add_add", "greet"]);
    for tool in page["tools"].as_array().into_iter().flatten() {
        let refusals = ["inputSchema", "outputSchema"].map(|schema| bulkhead_calls::schema::refusals(&tool[schema]));
        assert_eq!(refusals.concat(), Vec::<String>::new(), "{tool}");
    }
    let sum = client.tool("acme_adder_add_add", json!({"x": 40, "y": 2.0})).await.expect("a sum");
    assert_eq!(sum["structuredContent"], json!({"result": 42}));
    let greeting = client.tool("greet", json!({"name": "Ada"})).await.expect("a greeting");
    assert_eq!(greeting["structuredContent"], json!({"result": "Hello, Ada!"}));
}
