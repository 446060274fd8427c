//! Components that do not know us: what becomes of their functions.

use proptest::test_runner::{Config, TestCaseError, TestRunner};
use serde_json::{Value, json};

use super::*;
use crate::plugin_source::{Presentation, Source, ToolPolicy};
use crate::typed::tests::echoes;
use bulkhead_domain::tool::{TaskSupport, ToolAnnotations};

fn component(wat: &str) -> PluginSource {
    let mut source = source(Source::Bytes(wat::parse_str(wat).unwrap().into()));
    source.name = Some("stranger".to_owned());
    source
}

async fn problems(wat: &str) -> Vec<String> {
    House::new().sandbox.load(component(wat)).await.unwrap_err().problems
}

fn structured(output: &ToolOutput) -> Value {
    serde_json::from_str(output.structured.as_ref().expect("structured content").as_str()).unwrap()
}

/// A core module with one function per result, and an allocator that moves on and on.
const MODULE: &str = r#"
    (core module $m
        (memory (export "memory") 1)
        (global $top (mut i32) (i32.const 1024))
        (func (export "realloc") (param i32 i32 i32 i32) (result i32) (local $at i32)
            (local.set $at (i32.and (i32.add (global.get $top) (i32.const 7)) (i32.const -8)))
            (global.set $top (i32.add (local.get $at) (local.get 3)))
            (local.get $at))
        (func (export "add") (param i32 i32) (result i32) (i32.add (local.get 0) (local.get 1)))
        (func (export "nothing"))
        ;; Gives back its argument as the discriminant of a result: 0 is success.
        (func (export "check") (param i32) (result i32) (local.get 0))
        ;; A result with a payload of four bytes, as a success or an error.
        (func (export "choose") (param i32 i32) (result i32)
            (i32.store8 (i32.const 16) (local.get 0))
            (i32.store (i32.const 20) (local.get 1))
            (i32.const 16))
        (func (export "zero") (result i32) (i32.const 0))
        (func (export "spin") (loop (br 0)))
        (func (export "crash") unreachable))
    (core instance $i (instantiate $m))
"#;

#[tokio::test(flavor = "multi_thread")]
async fn every_wit_type_round_trips_through_a_component() {
    let data = TempDir::new().unwrap();
    let house = House::with_data(data.path());
    let handle = tokio::runtime::Handle::current();
    let checked = tokio::task::spawn_blocking(move || {
        let mut runner = TestRunner::new(Config { cases: 64, failure_persistence: None, ..Config::default() });
        runner.run(&echoes(), |(wat, value)| {
            handle.block_on(async {
                house.publish(component(&wat)).await;
                let output = house.call("echo", &json!({"x": value}).to_string()).await.unwrap();
                if output.is_error || structured(&output) != json!({"result": value}) {
                    return Err(TestCaseError::fail(format!("{output:?} instead of {value} from {wat}")));
                }
                Ok(())
            })
        })
    });
    checked.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn exported_functions_are_tools_with_schemas() {
    let house = House::new();
    let wat = format!(
        r#"(component {MODULE}
            (func $add (param "a" u32) (param "b" u32) (result u32) (canon lift (core func $i "add")))
            (func (export "nothing") (canon lift (core func $i "nothing")))
            (instance $sums (export "add" (func $add)))
            (export "acme:maths/sums@1.2.3" (instance $sums)))"#
    );
    let loaded = house.publish(component(&wat)).await;
    let mut names: Vec<_> = loaded.tools.iter().map(|entry| entry.tool.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["acme_maths_sums_add", "nothing"]);
    let tool = &house.sandbox.catalog().get("acme_maths_sums_add").unwrap().tool.clone();
    let integer = json!({"type": "integer", "minimum": 0, "maximum": u32::MAX});
    let expected = json!({"type": "object", "properties": {"a": integer, "b": integer}, "required": ["a", "b"],
        "additionalProperties": false});
    assert_eq!(serde_json::from_str::<Value>(tool.input_schema.as_str()).unwrap(), expected);
    let expected = json!({"type": "object", "properties": {"result": integer}, "required": ["result"],
        "additionalProperties": false});
    assert_eq!(serde_json::from_str::<Value>(tool.output_schema.as_ref().unwrap().as_str()).unwrap(), expected);
    assert_eq!(tool.description, "add of acme:maths/sums@1.2.3. Parameters: a: integer, b: integer. Returns: integer.");
    assert_eq!(tool.task_support, TaskSupport::Optional);

    let output = house.call("acme_maths_sums_add", r#"{"a": 40, "b": 2}"#).await.unwrap();
    assert_eq!(structured(&output), json!({"result": 42}));
    assert_eq!(structured(&house.call("nothing", "{}").await.unwrap()), json!({}));
    let output = house.call("acme_maths_sums_add", r#"{"a": 40, "b": -2}"#).await.unwrap();
    assert!(output.is_error);
    assert!(text(&output).ends_with("/b: -2 is not an integer from 0 to 4294967295"), "{}", text(&output));
    // An operator accepts the definition by the name inside.
    assert!(loaded.own_tools().any(|(name, _)| name == "acme.maths.sums.add"));
}

#[tokio::test(flavor = "multi_thread")]
async fn outermost_wit_error_is_a_tool_error() {
    let house = House::new();
    let wat = format!(
        r#"(component {MODULE}
            (func (export "check") (param "bad" bool) (result (result)) (canon lift (core func $i "check")))
            (func (export "choose") (param "bad" bool) (param "n" u32) (result (result u32 (error u32)))
                (canon lift (core func $i "choose") (memory (core memory $i "memory")))))"#
    );
    let loaded = house.publish(component(&wat)).await;
    let good = house.call("check", r#"{"bad": false}"#).await.unwrap();
    assert_eq!((good.is_error, structured(&good)), (false, json!({})));
    let bad = house.call("check", r#"{"bad": true}"#).await.unwrap();
    assert!(bad.is_error && bad.structured.is_none());
    let good = house.call("choose", r#"{"bad": false, "n": 7}"#).await.unwrap();
    assert_eq!((good.is_error, structured(&good)), (false, json!({"result": 7})));
    let bad = house.call("choose", r#"{"bad": true, "n": 8}"#).await.unwrap();
    assert_eq!((bad.is_error, structured(&bad)), (true, json!({"error": 8})));
    // Some clients check failures against the output schema too.
    let entry = loaded.tools.iter().find(|entry| entry.tool.name == "choose").unwrap();
    for output in [good, bad] {
        entry.output.as_ref().unwrap().check(&structured(&output)).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn typed_functions_run_under_call_limits() {
    let house = House::new();
    let wat = format!(
        r#"(component {MODULE}
            (func (export "spin") (canon lift (core func $i "spin")))
            (func (export "crash") (canon lift (core func $i "crash"))))"#
    );
    house.publish(component(&wat)).await;
    let running = house.start_with("spin", "{}", |spec| spec.limits.cpu_ms = 50);
    let (kind, reason) = fault(finished(running).await);
    assert_eq!(kind, FaultKind::Limit);
    assert!(reason.contains("CPU"), "{reason}");
    assert_eq!(fault(house.call("crash", "{}").await).0, FaultKind::Trap);

    // Paused where it is, and stopped by being dropped.
    let running = house.start("spin", "{}");
    running.control.pause();
    let cpu = settled(|| running.control.cpu_ms()).await;
    running.control.resume();
    let goes_on = async {
        while running.control.cpu_ms() <= cpu {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), goes_on).await.expect("a resumed guest goes on");
    let control = running.control.clone();
    drop(running);
    settled(|| control.cpu_ms()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_presentation_completes_typed_tools() {
    let house = House::new();
    let wat = format!(r#"(component {MODULE} (func (export "nothing") (canon lift (core func $i "nothing"))))"#);
    let annotations = ToolAnnotations { read_only: Some(true), idempotent: Some(true), ..ToolAnnotations::default() };
    let presentation = Presentation {
        title: Some("Nothing".to_owned()),
        description: Some("Does nothing.".to_owned()),
        annotations: Some(annotations.clone()),
    };
    let policy = ToolPolicy {
        task_support: Some(TaskSupport::Required),
        hidden: false,
        name: None,
        presentation,
        limits: limits(),
    };
    let tools = BTreeMap::from([("nothing".to_owned(), policy.clone())]);
    let loaded = house.publish(PluginSource { tools: tools.clone(), rerun: true, ..component(&wat) }).await;
    let entry = &loaded.tools[0];
    assert_eq!((entry.tool.title.as_deref(), entry.tool.description.as_str()), (Some("Nothing"), "Does nothing."));
    assert_eq!((entry.tool.annotations.as_ref(), entry.tool.task_support), (Some(&annotations), TaskSupport::Required));
    assert!(entry.rerun_on_restart);

    // A plugin of our world speaks for itself.
    let Some(plugin) = sample("text") else { return };
    let tools = BTreeMap::from([("echo".to_owned(), ToolPolicy { task_support: None, ..policy })]);
    let error = house.sandbox.load(PluginSource { tools, ..plugin }).await.unwrap_err().to_string();
    assert!(error.contains("tool \"echo\": the plugin itself says"), "{error}");
}

/// A component two of whose functions have to do with a resource, and what else it has.
fn with_resource(more: &str) -> String {
    format!(
        r#"(component {MODULE}
            (type $blob' (resource (rep i32)))
            (export $blob "blob" (type $blob'))
            {more}
            (func (export "open") (param "a" u32) (param "b" u32) (result (own $blob)) (canon lift (core func $i "add")))
            (func (export "size") (param "blob" (borrow $blob)) (result u32) (canon lift (core func $i "check"))))"#
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn component_with_unusable_functions_alone_is_refused() {
    let text = problems(&with_resource("")).await.join("\n");
    assert!(text.contains("its own functions cannot be tools"), "{text}");
    assert!(text.contains("function open: its result is or holds a resource"), "{text}");
    assert!(text.contains("function size: parameter blob is or holds a resource"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_without_json_form_are_left_out_and_named() {
    let house = House::new();
    let good =
        r#"(func (export "good") (param "a" u32) (param "b" u32) (result u32) (canon lift (core func $i "add")))"#;
    let wat = with_resource(good);
    let inspection = house.sandbox.inspect(component(&wat)).await.unwrap();
    assert_eq!(
        inspection.left_out,
        [
            "function open: its result is or holds a resource, which lives inside the component only",
            "function size: parameter blob is or holds a resource, which lives inside the component only",
        ]
    );
    let loaded = house.publish(component(&wat)).await;
    assert_eq!(loaded.tools.iter().map(|entry| entry.tool.name.as_str()).collect::<Vec<_>>(), ["good"]);
    assert_eq!(structured(&house.call("good", r#"{"a": 40, "b": 2}"#).await.unwrap()), json!({"result": 42}));
}

#[tokio::test(flavor = "multi_thread")]
async fn component_of_another_host_is_refused_before_it_is_compiled() {
    // A body that no compiler takes: whoever compiles it complains.
    let wat = r#"(component
        (import "fermyon:spin/llm@2.0.0" (instance (export "infer" (func))))
        (import "wasmcloud:bus/lattice@1.0.0" (instance (export "link" (func))))
        (import "wasi:clocks/wall-clock@0.2.0" (instance (export "now" (func))))
        (core module (func (result i32))))"#;
    let text = problems(wat).await.join("\n");
    assert!(
        text.contains("it imports fermyon:spin/llm@2.0.0 of Fermyon Spin, which this host does not have"),
        "{text}"
    );
    assert!(text.contains("it imports wasmcloud:bus/lattice@1.0.0 of wasmCloud"), "{text}");
    assert!(!text.contains("wall-clock") && !text.contains("compile"), "{text}");
    // Without them, the compiler sees it.
    let ours = "(component (core module (func (result i32))))";
    assert!(!problems(ours).await.join("\n").contains("it imports"));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_call_of_a_stranger_names_the_grant_of_its_imports() {
    let house = House::new();
    let wat = format!(
        r#"(component
            (import "wasi:filesystem/types@0.2.0" (instance $types (export "descriptor" (type (sub resource)))))
            (alias export $types "descriptor" (type $descriptor))
            (import "wasi:filesystem/preopens@0.2.0" (instance $preopens
                (alias outer 1 $descriptor (type $d))
                (export "descriptor" (type $own (eq $d)))
                (export "get-directories" (func (result (list (tuple (own $own) string)))))))
            {MODULE}
            (core func $get (canon lower (func $preopens "get-directories") (memory (core memory $i "memory"))
                (realloc (core func $i "realloc"))))
            (core module $n
                (import "" "get" (func $get (param i32)))
                (import "" "memory" (memory 1))
                (func (export "blind") (param i32) (result i32) (local.get 0))
                (func (export "look") (param i32) (result i32) (call $get (i32.const 8)) (local.get 0))
                (func (export "explain") (result i32)
                    (call $get (i32.const 8))
                    (i32.store8 (i32.const 64) (i32.const 1))
                    (i32.store8 (i32.const 65) (i32.const 7))
                    (i32.const 64)))
            (core instance $n (instantiate $n
                (with "" (instance (export "get" (func $get)) (export "memory" (memory $i "memory"))))))
            (func (export "blind") (param "fail" bool) (result (result)) (canon lift (core func $n "blind")))
            (func (export "look") (param "fail" bool) (result (result)) (canon lift (core func $n "look")))
            (func (export "explain") (result (result (error u8)))
                (canon lift (core func $n "explain") (memory (core memory $i "memory")))))"#
    );
    let loaded = house.publish(component(&wat)).await;
    assert_eq!(loaded.tools.len(), 3);
    // It looked for nothing.
    let failed = house.call("blind", r#"{"fail": true}"#).await.unwrap();
    assert!(failed.is_error && failed.content.len() == 1, "{failed:?}");
    // It says itself why it failed.
    let explained = house.call("explain", "{}").await.unwrap();
    assert_eq!((explained.is_error, explained.structured.unwrap().as_str()), (true, r#"{"error":7}"#));
    assert_eq!(explained.content.len(), 0);
    assert!(!house.call("look", r#"{"fail": false}"#).await.unwrap().is_error);
    let failed = house.call("look", r#"{"fail": true}"#).await.unwrap();
    let ContentKind::Text(why) = &failed.content.last().unwrap().kind else { panic!() };
    assert_eq!(why, "a grant may be missing: directories (it imports wasi:filesystem/preopens)");
    // With a directory it failed for another reason.
    let folder = TempDir::new().unwrap();
    let mut plugin = component(&wat);
    plugin.grants.directories = vec![bulkhead_calls::policy::DirGrant {
        host: folder.path().to_owned(),
        guest: "/data".to_owned(),
        write: false,
        bytes_max: None,
    }];
    house.publish(plugin).await;
    assert_eq!(house.call("look", r#"{"fail": true}"#).await.unwrap().content.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_wit_types_are_refused() {
    let mut types = "(type $t0 (tuple u8 u8))".to_owned();
    for at in 1..14 {
        types.push_str(&format!("(type $t{at} (tuple $t{} $t{}))", at - 1, at - 1));
    }
    let wat = format!(
        "(component {MODULE} {types} (func (export \"f\") (param \"x\" (list $t13)) (result u32) \
         (canon lift (core func $i \"choose\") (memory (core memory $i \"memory\")) (realloc (core func $i \"realloc\")))))"
    );
    let wide = problems(&wat).await.join("\n");
    assert!(wide.contains("function f: parameter x makes the function's types larger than"), "{wide}");
    let deep = format!("{}u8{}", "(list ".repeat(20), ")".repeat(20));
    let wat = format!(
        "(component {MODULE} (func (export \"f\") (param \"x\" {deep}) (result u32) \
         (canon lift (core func $i \"choose\") (memory (core memory $i \"memory\")) (realloc (core func $i \"realloc\")))))"
    );
    let deep = problems(&wat).await.join("\n");
    assert!(deep.contains("nested deeper than 16"), "{deep}");
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_with_overlong_wit_names_are_left_out() {
    let long = "a".repeat(129);
    let longest = "a".repeat(128);
    let mut items = String::new();
    let mut function = |name: &str, parameter: &str, ty: &str| {
        items.push_str(&format!(
            "(type ${name}' {ty}) (export ${name} \"{name}-type\" (type ${name}'))
             (func (export \"{name}\") (param \"{parameter}\" (list ${name})) (result u32)
             (canon lift (core func $i \"choose\") (memory (core memory $i \"memory\")) (realloc (core func $i \"realloc\"))))"
        ));
    };
    function("field", "x", &format!("(record (field \"{long}\" (option u32)))"));
    function("case", "x", &format!("(variant (case \"{long}\" u32))"));
    function("flag", "x", &format!("(flags \"{long}\")"));
    function("word", "x", &format!("(enum \"{long}\")"));
    function("parameter", &long, "(enum \"a\")");
    function("good", &longest, &format!("(record (field \"{longest}\" u32))"));
    let inspecting = House::new();
    let inspection = inspecting.sandbox.inspect(component(&format!("(component {MODULE} {items})"))).await.unwrap();
    assert_eq!(inspection.tools.len(), 1, "the one whose names are short enough");
    let text = inspection.left_out.join("\n");
    for name in ["field", "case", "flag", "word"] {
        let problem = format!("function {name}: parameter x is or holds a name of 129 bytes; 128 is the most");
        assert!(text.contains(&problem), "{name}: {text}");
    }
    assert!(text.contains("function parameter: parameter aaa"), "{text}");
    assert!(!text.contains("good") && !text.contains(&long), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn component_of_other_world_version_is_refused() {
    let wat = format!(
        r#"(component {MODULE}
            (func $f (canon lift (core func $i "nothing")))
            (func (export "f") (canon lift (core func $i "nothing")))
            (instance $tools (export "call-tool" (func $f)))
            (export "bulkhead:plugin/tools@0.9.0" (instance $tools)))"#
    );
    let problems = problems(&wat).await.join("\n");
    assert!(problems.contains("does not export bulkhead:plugin/tools@0.1.0"), "{problems}");
}

/// A component as componentize-py makes them: with its own start among the exports.
fn python(function: &str) -> PluginSource {
    let wat = format!(
        r#"(component {MODULE}
            (core module $n (func (export "init") (param i32 i32 i32 i32 i32) (result i32) unreachable))
            (core instance $p (instantiate $n))
            (func $init (param "app-name" string) (param "symbols" (list string)) (param "stub-wasi" bool)
                (result (result (error string)))
                (canon lift (core func $p "init") (memory (core memory $i "memory")) (realloc (core func $i "realloc"))))
            (instance $exports (export "init" (func $init)))
            (export "exports" (instance $exports))
            (func (export "{function}") (canon lift (core func $i "nothing"))))"#
    );
    PluginSource { name: Some(function.to_owned()), ..component(&wat) }
}

#[tokio::test(flavor = "multi_thread")]
async fn python_init_export_is_not_a_tool() {
    let house = House::new();
    let mut plugins = Vec::new();
    for function in ["add", "evaluate"] {
        plugins.push(house.sandbox.load(python(function)).await.unwrap());
    }
    let (_, refused) = house.sandbox.publish(plugins);
    assert!(refused.is_empty(), "{refused:?}");
    let catalog = house.sandbox.catalog();
    assert!(catalog.get("exports_init").is_none());
    for function in ["add", "evaluate"] {
        assert!(catalog.get(function).is_some());
        assert_eq!(structured(&house.call(function, "{}").await.unwrap()), json!({}));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lookalike_of_python_init_export_is_a_tool() {
    let house = House::new();
    let wat = format!(
        r#"(component {MODULE}
            (func $init (param "app-name" u32) (param "count" u32) (result u32) (canon lift (core func $i "add")))
            (instance $exports (export "init" (func $init)))
            (export "exports" (instance $exports)))"#
    );
    let loaded = house.publish(component(&wat)).await;
    assert_eq!(loaded.tools[0].tool.name, "exports_init");
}

#[tokio::test(flavor = "multi_thread")]
async fn platform_interfaces_are_not_tools() {
    let exporting = |interface: &str, more: &str| {
        format!(
            r#"(component {MODULE}
                (func $run (result (result)) (canon lift (core func $i "zero")))
                (instance $platform (export "run" (func $run)))
                (export "{interface}" (instance $platform)) {more})"#
        )
    };
    let own = r#"(func (export "nothing") (canon lift (core func $i "nothing")))"#;
    let loaded = House::new().publish(component(&exporting("wasi:cli/run@0.2.9", own))).await;
    let names: Vec<_> = loaded.tools.iter().map(|entry| entry.tool.name.as_str()).collect();
    assert_eq!(names, ["nothing"]);
    for (interface, kind) in [
        ("wasi:cli/run@9.9.9", "it is a program for a command line (wasi:cli/run@9.9.9), which this host does not run"),
        ("wasi:other/thing", "it exports wasi:other/thing alone"),
    ] {
        let problems = problems(&exporting(interface, "")).await.join("\n");
        assert!(
            problems.contains(kind) && problems.contains("export functions of an interface of your own"),
            "{problems}"
        );
    }
    let problems = problems(&exporting("wasi:http/incoming-handler@0.2.0", "")).await.join("\n");
    assert!(problems.contains("its export wasi:http/incoming-handler@0.2.0 is not that of WASI"), "{problems}");
    let loaded = House::new().publish(component(&exporting("wasi:cli/run@0.2.9", ""))).await;
    assert_eq!(loaded.tools[0].tool.name, "stranger", "a command is called like its plugin");
}

#[tokio::test(flavor = "multi_thread")]
async fn platform_function_of_other_type_is_refused_at_load() {
    let wat = format!(
        r#"(component {MODULE}
            (func $run (result u32) (canon lift (core func $i "zero")))
            (instance $platform (export "run" (func $run)))
            (export "wasi:cli/run@0.2.3" (instance $platform)))"#
    );
    let problems = problems(&wat).await.join("\n");
    assert!(problems.contains("it cannot be started"), "{problems}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wit_file_beside_component_describes_its_tools() {
    let folder = TempDir::new().unwrap();
    let wat = format!(r#"(component {MODULE} (func (export "nothing") (canon lift (core func $i "nothing"))))"#);
    let file = folder.path().join("stranger.wasm");
    std::fs::write(&file, wat::parse_str(wat).unwrap()).unwrap();
    let wit = "package a:b; world w {\n/// Does nothing, and well.\n///\n/// Twice.\nexport nothing: func();\n}";
    std::fs::write(folder.path().join("stranger.wit"), wit).unwrap();
    let data = TempDir::new().unwrap();
    let house = House::with_data(data.path());
    let loaded = house.publish(source(Source::File(file))).await;
    assert_eq!(loaded.tools[0].tool.description, "Does nothing, and well.\n\nTwice.");
    // The version keeps its words, wherever it came from.
    let kept = house.sandbox.kept().path(&loaded.version.digest);
    let again = house.publish(PluginSource { name: Some("stranger".to_owned()), ..source(Source::File(kept)) }).await;
    assert_eq!(again.tools[0].tool.description, loaded.tools[0].tool.description);
}
