//! What is accepted, what is refused, and what the refusal says.

use super::*;
use crate::load::LoadError;
use crate::plugin_source::{Presentation, Source, ToolPolicy};
use bulkhead_calls::ToolEntry;
use bulkhead_domain::tool::TaskSupport;

fn bytes(wasm: impl Into<Vec<u8>>) -> PluginSource {
    let mut source = source(Source::Bytes(wasm.into().into()));
    source.name = Some("x".to_owned());
    source
}

fn policy(limits: CallLimits) -> ToolPolicy {
    ToolPolicy { task_support: None, hidden: false, name: None, presentation: Presentation::default(), limits }
}

async fn problems(house: &House, source: PluginSource) -> String {
    house.sandbox.load(source).await.unwrap_err().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_component_is_refused_with_reason() {
    let house = House::new();
    assert!(problems(&house, bytes("hello")).await.contains("not WebAssembly"));
    assert!(problems(&house, bytes(wat::parse_str("(module)").unwrap())).await.contains("core module"));
    let missing = source(Source::File("/no/such/file.wasm".into()));
    assert!(problems(&house, missing).await.contains("cannot read"));
    let other_world = bytes(wat::parse_str("(component)").unwrap());
    assert!(problems(&house, other_world).await.contains("does not export bulkhead:plugin/tools@0.1.0"));
    let unknown_import = bytes(wat::parse_str("(component (import \"evil:host/shell@1.0.0\" (instance)))").unwrap());
    let error = problems(&house, unknown_import).await;
    assert!(error.contains("plugin x:") && !error.is_empty(), "{error}");
    let asynchronous = "(component (core module $m (func (export \"f\") (result i32) unreachable) (func (export \"cb\") (param i32 i32 i32) (result i32) unreachable))
        (core instance $i (instantiate $m))
        (func (export \"f\") async (canon lift (core func $i \"f\") async (callback (core func $i \"cb\")))))";
    let error = problems(&house, bytes(wat::parse_str(asynchronous).unwrap())).await;
    assert!(error.contains("it needs WASI 0.3"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn truncated_component_is_refused_as_truncated() {
    let Some(plugin) = sample("text") else { return };
    let Source::File(file) = plugin.component else { panic!() };
    let whole = std::fs::read(file).unwrap();
    let house = House::new();
    let error = problems(&house, bytes(&whole[..whole.len() / 2])).await;
    assert!(error.contains("truncated"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_name_clash_names_both_plugins() {
    let Some(first) = sample("text") else { return };
    let second = PluginSource { name: Some("copy".to_owned()), ..first.clone() };
    let prefixed = PluginSource { name: Some("third".to_owned()), prefix: "third.".to_owned(), ..first.clone() };
    let house = House::new();
    let mut loaded = Vec::new();
    for plugin in [first, second, prefixed] {
        loaded.push(house.sandbox.load(plugin).await.unwrap());
    }
    assert_eq!(house.sandbox.clashes(&loaded, &[]).len(), 1);
    let (_, refused) = house.sandbox.publish(loaded);
    let [LoadError { plugin, problems, passing: false }] = refused.as_slice() else { panic!("{refused:?}") };
    assert_eq!(plugin, "copy");
    assert!(problems.iter().all(|problem| problem.contains("plugin text")), "{problems:?}");
    assert!(house.sandbox.catalog().get("echo").is_some());
    assert_eq!(text(&house.call("third.echo", r#"{"text":"a"}"#).await.unwrap()), "a");
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_policy_narrows_and_never_widens() {
    let Some(mut plugin) = sample("primes") else { return };
    let house = House::new();
    let lowered = CallLimits { promote_after_ms: 7, ..limits() };
    let narrowed = ToolPolicy { task_support: Some(TaskSupport::Required), ..policy(lowered) };
    plugin.tools = BTreeMap::from([("count_primes".to_owned(), narrowed)]);
    house.publish(plugin.clone()).await;
    let catalog = house.sandbox.catalog();
    let entry = catalog.get("count_primes").unwrap();
    assert_eq!((entry.tool.task_support, entry.limits.promote_after_ms), (TaskSupport::Required, 7));

    plugin.tools = BTreeMap::from([("no_such_tool".to_owned(), policy(limits()))]);
    assert!(problems(&house, plugin).await.contains("no_such_tool"));
    let mut text_plugin = sample("text").unwrap();
    text_plugin.tools = BTreeMap::from([(
        "echo".to_owned(),
        ToolPolicy { task_support: Some(TaskSupport::Optional), ..policy(limits()) },
    )]);
    assert!(problems(&house, text_plugin).await.contains("task support"));
}

/// What is listed of the tools of this plugin is taken by every client and every model interface.
pub(super) fn expect_portable(name: &str, tools: &[Arc<ToolEntry>]) {
    for tool in tools.iter().map(|entry| &entry.tool) {
        assert!(bulkhead_domain::tool_names::is_portable(&tool.name), "{name}: {}", tool.name);
        let refusals = bulkhead_calls::schema::refusals(&serde_json::from_str(tool.input_schema.as_str()).unwrap());
        // That of the conformance suite says what no other form can say.
        let is_known = name == "conformance" && refusals.iter().all(|refusal| refusal.contains("at the top"));
        assert!(refusals.is_empty() || is_known, "{name}: {}: {refusals:?}", tool.name);
        let output = tool.output_schema.iter().map(|text| serde_json::from_str(text.as_str()).unwrap());
        let refusals: Vec<_> = output.flat_map(|schema| bulkhead_calls::schema::refusals(&schema)).collect();
        assert!(refusals.iter().all(|refusal| refusal.contains("at the top")), "{name}: {}: {refusals:?}", tool.name);
    }
}

/// Those in Python and JavaScript are looked at where they are loaded to be replayed.
#[tokio::test(flavor = "multi_thread")]
async fn tools_of_all_samples_have_names_and_schemas_that_every_client_takes() {
    let house = House::new();
    let names =
        ["colour", "csv", "desk", "hostile", "probe", "text", "foreign_command", "foreign_service", "conformance"];
    for name in names {
        let Some(plugin) = sample(name) else { return };
        expect_portable(name, &house.sandbox.load(plugin).await.unwrap().tools);
    }
}

fn called(name: &str) -> ToolPolicy {
    ToolPolicy { name: Some(name.to_owned()), ..policy(limits()) }
}

#[tokio::test(flavor = "multi_thread")]
async fn hidden_and_renamed_tools_keep_their_own_definition() {
    let Some(mut plugin) = sample("text") else { return };
    plugin.prefix = "t.".to_owned();
    let described = Presentation {
        title: Some("Again".to_owned()),
        description: Some("Says it again.".to_owned()),
        annotations: None,
    };
    let hidden = ToolPolicy { hidden: true, ..policy(limits()) };
    let said = ToolPolicy { presentation: described, ..called("say") };
    plugin.tools = BTreeMap::from([("echo".to_owned(), said), ("diff".to_owned(), hidden)]);
    let house = House::new();
    let loaded = house.publish(plugin.clone()).await;
    let catalog = house.sandbox.catalog();
    let names: Vec<_> = catalog.tools().iter().map(|entry| entry.tool.name.as_str()).collect();
    assert_eq!(names, ["say", "t.word_count"]);
    let shown = &catalog.get("say").unwrap().tool;
    assert_eq!((shown.title.as_deref(), shown.description.as_str()), (Some("Again"), "Says it again."));
    assert_eq!(text(&house.call("say", r#"{"text":"a"}"#).await.unwrap()), "a");
    // What operators accept is what the plugin declares.
    let plain = house.sandbox.load(PluginSource { tools: BTreeMap::new(), ..plugin }).await.unwrap();
    let own = |loaded: &LoadedPlugin| {
        let tools = loaded.own_tools().map(|(name, tool)| (name.to_owned(), tool.clone()));
        tools.collect::<Vec<_>>()
    };
    assert_eq!(own(&loaded), own(&plain));
    // Tasks know their tool by the name that it had.
    for name in ["say", "t.echo"] {
        assert_eq!(house.sandbox.tool(&loaded.version, name).await.unwrap().plugin_tool.as_ref(), "echo", "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clash_of_a_renamed_tool_names_both_tools() {
    let (Some(mut text), Some(mut primes)) = (sample("text"), sample("primes")) else { return };
    let house = House::new();
    text.tools = BTreeMap::from([("echo".to_owned(), called("diff"))]);
    let error = problems(&house, text.clone()).await;
    assert!(error.contains("\"echo\"") && error.contains("would both be called \"diff\""), "{error}");
    let diff = ToolPolicy { hidden: true, ..policy(limits()) };
    text.tools.insert("diff".to_owned(), diff);
    assert!(house.sandbox.load(text.clone()).await.is_ok(), "what nobody sees has no name");
    let clash = async |text: &PluginSource, primes: &PluginSource| {
        let mut loaded = Vec::new();
        for plugin in [text, primes] {
            loaded.push(house.sandbox.load(plugin.clone()).await.unwrap());
        }
        let clashes = house.sandbox.clashes(&loaded, &[]);
        clashes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(clash(&text, &primes).await, "");
    primes.tools = BTreeMap::from([("count_primes".to_owned(), called("diff"))]);
    let both = "plugin primes: its tool \"count_primes\" and the tool \"echo\" of plugin text are both called \"diff\"";
    assert!(clash(&text, &primes).await.starts_with(both));
    text.tools = BTreeMap::from([("echo".to_owned(), called("count_primes"))]);
    primes.tools.clear();
    let other =
        "plugin primes: its tool \"count_primes\" has the name that the configuration gives to the tool \"echo\"";
    assert!(clash(&text, &primes).await.starts_with(other));
    text.tools.clear();
    primes.tools = BTreeMap::from([("count_primes".to_owned(), called("diff"))]);
    let taken = "plugin primes: its tool \"count_primes\" is called \"diff\" by the configuration, which is a tool of plugin text";
    assert!(clash(&text, &primes).await.starts_with(taken));
    primes.tools = BTreeMap::from([("count_primes".to_owned(), called("two words"))]);
    assert!(problems(&house, primes).await.contains("other characters than"));
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_plugin_version_can_still_run() {
    let (Some(old), Some(new)) = (sample("text"), sample("primes")) else { return };
    let data = TempDir::new().unwrap();
    let house = House::with_data(data.path());
    let named = |plugin: PluginSource| PluginSource { name: Some("tools".to_owned()), ..plugin };
    let before = house.publish(named(old)).await;
    let entry = Arc::clone(house.sandbox.catalog().get("echo").unwrap());
    let new = house.sandbox.load(named(new)).await.unwrap();
    assert_eq!(house.sandbox.publish(vec![new.clone()]).0, [ListKind::Tools]);
    assert_eq!(house.sandbox.publish(vec![new]).0, [], "the same again is no change");
    assert!(house.sandbox.catalog().get("echo").is_none());
    let spec = || CallSpec {
        tenant: TENANT,
        plugin: entry.plugin.clone(),
        operation: Operation::CallTool { tool: "echo".into(), arguments: Json::new(r#"{"text":"still here"}"#) },
        share: Share::default(),
        activity: None,
        limits: limits(),
        facts: facts(),
        journaling: Journaling::Off,
    };
    let start = || house.sandbox.start(spec());
    assert_eq!(text(&finished(start().unwrap()).await.unwrap()), "still here");

    // Its compiled code is forgotten, the component is not.
    house.sandbox.retain(&std::collections::HashSet::new());
    assert_eq!(text(&finished(start().unwrap()).await.unwrap()), "still here");
    assert!(house.sandbox.catalog().get("echo").is_none());
    let tool = house.sandbox.tool(&before.version, "echo").await.unwrap();
    assert_eq!(tool.plugin, before.version);
    assert!(house.sandbox.tool(&before.version, "count_primes").await.is_none());

    house.sandbox.retain(&std::collections::HashSet::new());
    let kept = data.path().join("components").join(format!("{}.wasm", bulkhead_domain::hex(&before.version.digest)));
    std::fs::write(&kept, std::fs::read(&kept).unwrap().split_at(1000).0).unwrap();
    assert!(matches!(finished(start().unwrap()).await, Err(CallError::Internal { .. })));
    std::fs::remove_file(&kept).unwrap();
    assert!(matches!(start(), Err(StartError::UnknownPlugin(name)) if name == "tools"));
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_version_are_counted_and_withdrawn() {
    let (Some(old), Some(new)) = (sample("primes"), sample("text")) else { return };
    let house = House::new();
    let named = |plugin: PluginSource| PluginSource { name: Some("tools".to_owned()), ..plugin };
    let before = house.publish(named(old)).await.version;
    let running = house.start("count_primes", r#"{"below":1000000000000}"#);
    assert_eq!(house.sandbox.calls(&before), 1);
    let after = house.publish(named(new)).await.version;
    house.sandbox.retain(&std::collections::HashSet::new());
    assert_eq!(house.sandbox.calls(&before), 1, "what is in a call is kept");
    house.sandbox.withdraw(&before);
    let (kind, reason) = fault(finished(running).await);
    assert_eq!(kind, FaultKind::Deadline);
    assert!(reason.contains("withdrawn"), "{reason}");
    assert_eq!((house.sandbox.calls(&before), house.sandbox.calls(&after)), (0, 0));
    assert_eq!(text(&house.call("echo", r#"{"text":"a"}"#).await.unwrap()), "a");
}

#[tokio::test(flavor = "multi_thread")]
async fn tampered_compiled_code_is_compiled_again() {
    let Some(plugin) = sample("text") else { return };
    let data = TempDir::new().unwrap();
    let house = House::with_data(data.path());
    house.publish(plugin.clone()).await;
    drop(house);
    let cached = || -> Vec<_> {
        std::fs::read_dir(data.path().join("cache")).unwrap().map(|file| file.unwrap().path()).collect()
    };
    let [file] = cached().try_into().unwrap();
    let good = std::fs::read(&file).unwrap();
    let mut bad = good.clone();
    let middle = bad.len() / 2;
    bad[middle] ^= 0x40;
    std::fs::write(&file, &bad).unwrap();
    let house = House::with_data(data.path());
    house.publish(plugin).await;
    assert_eq!(text(&house.call("echo", r#"{"text":"a"}"#).await.unwrap()), "a");
    assert_ne!(std::fs::read(&file).unwrap(), bad, "the file was written anew");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_components_are_refused_without_affecting_others() {
    let house = House::new();
    for (name, reasons) in [
        ("bad_panic", &["list-tools", "crashed"][..]),
        ("bad_spin", &["list-tools", "1 s of CPU time"]),
        ("bad_utf8", &["list-tools", "UTF-8"]),
        ("bad_import", &["nobody:has/this"]),
        ("bad_twins", &["\"twin\"", "used twice"]),
        ("bad_many", &["list-tools", "too much data"]),
        ("bad_schema_json", &["input schema: not well-formed JSON"]),
        ("bad_schema", &["\"unknown_type\"", "\"keyword_of_the_wrong_type\"", "\"no_object\""]),
        ("bad_name", &["\"line\\\\r\\\\nbreak\"", "escape", "two words", "is empty", "129 characters"]),
    ] {
        let Some(plugin) = sample(name) else { return };
        let error = problems(&house, plugin).await;
        assert!(error.starts_with("plugin ") && error.contains(name), "{error}");
        for reason in reasons {
            assert!(error.contains(reason), "{name}: {error}");
        }
        assert!(!error.contains(|character: char| character.is_control()), "{error:?}");
    }
    house.publish(sample("text").unwrap()).await;
    assert_eq!(text(&house.call("echo", r#"{"text":"a"}"#).await.unwrap()), "a");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_component_problems_are_reported_at_once() {
    let house = House::new();
    let mut plugin =
        bytes(wat::parse_str("(component (import \"x:y/z@1.0.0\" (instance (export \"f\" (func)))))").unwrap());
    plugin.name = Some("no good".to_owned());
    plugin.grants.directories = vec![policy::DirGrant {
        host: "/no/such/place".into(),
        guest: "/data".to_owned(),
        write: false,
        bytes_max: None,
    }];
    let error = problems(&house, plugin).await;
    for wrong in ["no good", "/no/such/place", "x:y/z@1.0.0"] {
        assert!(error.contains(wrong), "{error}");
    }
}
