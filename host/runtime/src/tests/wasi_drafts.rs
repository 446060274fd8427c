//! Components that import drafts of WASI: what they are given, and what each of them costs the plugin.

use std::collections::BTreeMap as Map;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;
use wit_parser::abi::{AbiVariant, WasmType};

use super::*;
use bulkhead_calls::Tail;
use bulkhead_calls::guest_services::{KeyPage, KeyValueError};
use bulkhead_calls::secrets::Secret;
use bulkhead_domain::limits::KeyValueLimits;

const CONFIG: &str = include_str!("wasi_drafts/config.wit");
const LOGGING: &str = include_str!("wasi_drafts/logging.wit");
const KEYVALUE: &str = include_str!("wasi_drafts/keyvalue.wit");
const CAS: &str = include_str!("wasi_drafts/cas.wit");

fn config(version: &str) -> String {
    CONFIG.replace("VERSION", version)
}

fn keyvalue(version: &str) -> String {
    let text = KEYVALUE.replace("VERSION", version);
    match version {
        "0.2.0-draft" => text.replace("CURSOR", "u64").replace("NUMBER", "u64"),
        _ => text.replace("CURSOR", "string").replace("NUMBER", "s64").replace("  // SECOND DRAFT", CAS),
    }
}

/// Every draft in every version that is out there, each by itself.
fn texts() -> Vec<String> {
    let configs = ["0.2.0-draft", "0.2.0-draft-2024-09-27", "0.2.0-rc.1"].map(config);
    let once = config("0.2.0-draft").replace("interface store", "interface runtime");
    let logging = [LOGGING.replace("@VERSION", ""), LOGGING.replace("VERSION", "0.1.0-draft")];
    let keyvalues = ["0.2.0-draft", "0.2.0-draft2"].map(keyvalue);
    configs.into_iter().chain([once]).chain(logging).chain(keyvalues).collect()
}

fn resolved(text: &str) -> Resolve {
    let mut resolve = Resolve::default();
    resolve.push_str("draft.wit", text).unwrap();
    resolve
}

/// The same as WIT.
pub(super) fn packages() -> Vec<Resolve> {
    texts().iter().map(|text| resolved(text)).collect()
}

/// What every module of these tests has.
const BASIS: &str = r#"
    (memory (export "memory") 4)
    (data (i32.const 0) "default")
    (global $top (mut i32) (i32.const 1024))
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (local $at i32)
        (local.set $at (i32.and (i32.add (global.get $top) (i32.const 7)) (i32.const -8)))
        (global.set $top (i32.add (local.get $at) (local.get 3)))
        (local.get $at))"#;

/// A component of a module, as the tools of the field make them.
fn component(draft: &str, world: &str, imports: &str, functions: &str) -> PluginSource {
    let mut resolve = resolved(draft);
    let package = resolve.push_str("guest.wit", &format!("package test:guest; world guest {{ {world} }}")).unwrap();
    let world = resolve.select_world(&[package], None).unwrap();
    let mut module = wat::parse_str(format!("(module {imports} {BASIS} {functions})")).unwrap();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
    let bytes = ComponentEncoder::default().module(&module).unwrap().validate(true).encode().unwrap();
    let mut source = source(Source::Bytes(bytes.into()));
    source.name = Some("stranger".to_owned());
    source
}

fn structured(output: &ToolOutput) -> Value {
    serde_json::from_str(output.structured.as_ref().expect("structured content").as_str()).unwrap()
}

fn last_text(output: &ToolOutput) -> &str {
    match &output.content.last().expect("a text").kind {
        ContentKind::Text(text) => text,
        other => panic!("{other:?}"),
    }
}

/// An import of every function of a package, as a core module has it.
fn all_imports(resolve: &Resolve) -> (String, String) {
    let mut world = String::new();
    let mut imports = String::new();
    for (id, interface) in resolve.interfaces.iter() {
        let name = resolve.id_of(id).unwrap();
        world.push_str(&format!("import {name}; "));
        for function in interface.functions.values() {
            let signature = resolve.wasm_signature(AbiVariant::GuestImport, function);
            let types = |types: &[WasmType]| {
                let names = types.iter().map(|ty| if matches!(ty, WasmType::I64) { "i64" } else { "i32" });
                names.collect::<Vec<_>>().join(" ")
            };
            let params = types(&signature.params);
            let results = types(&signature.results);
            imports.push_str(&format!(
                "(import \"{name}\" \"{}\" (func (param {params}) (result {results})))",
                function.name
            ));
        }
    }
    (world, imports)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_function_of_a_draft_links_with_its_types() {
    let house = House::new();
    for text in texts() {
        let (world, imports) = all_imports(&resolved(&text));
        let world = format!("{world} export f: func();");
        house.publish(component(&text, &world, &imports, r#"(func (export "f"))"#)).await;
        assert_eq!(structured(&house.call("f", "{}").await.unwrap()), json!({}), "{text}");
    }
}

fn settings_guest(version: &str) -> PluginSource {
    let name = format!("wasi:config/store@{version}");
    let world = format!(
        "use {name}.{{error}};
         export get: func(key: string) -> result<option<string>, error>;
         export get-all: func() -> result<list<tuple<string, string>>, error>;
         export need: func(key: string) -> result;"
    );
    let imports = format!(
        r#"(import "{name}" "get" (func $get (param i32 i32 i32))) (import "{name}" "get-all" (func $all (param i32)))"#
    );
    let functions = r#"
        (func (export "get") (param i32 i32) (result i32)
            (call $get (local.get 0) (local.get 1) (i32.const 16)) (i32.const 16))
        (func (export "get-all") (result i32) (call $all (i32.const 16)) (i32.const 16))
        ;; Fails where there is no such setting.
        (func (export "need") (param i32 i32) (result i32)
            (call $get (local.get 0) (local.get 1) (i32.const 16)) (i32.eqz (i32.load8_u (i32.const 20))))"#;
    component(&config(version), &world, &imports, functions)
}

#[tokio::test(flavor = "multi_thread")]
async fn wasi_config_gives_the_settings_of_the_plugin_as_texts() {
    let house = House::new();
    for version in ["0.2.0-draft", "0.2.0-draft-2024-09-27", "0.2.0-rc.1"] {
        let mut plugin = settings_guest(version);
        let settings = [("key", "\"secret \\u00fc\""), ("retries", "3"), ("hosts", "[\"a\"]")];
        plugin.config = settings.map(|(key, value)| (key.to_owned(), Json::new(value))).into();
        house.publish(plugin).await;
        let get = async |key: &str| {
            structured(&house.call("get", &json!({"key": key}).to_string()).await.unwrap())["result"].clone()
        };
        assert_eq!((get("key").await, get("retries").await), (json!("secret ü"), json!("3")));
        assert_eq!((get("hosts").await, get("other").await), (json!("[\"a\"]"), Value::Null));
        let all = structured(&house.call("get-all", "{}").await.unwrap());
        assert_eq!(all, json!({"result": [["hosts", "[\"a\"]"], ["key", "secret ü"], ["retries", "3"]]}));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_call_names_the_setting_that_is_missing() {
    let house = House::new();
    let mut plugin = settings_guest("0.2.0-draft");
    house.publish(plugin.clone()).await;
    let output = house.call("need", r#"{"key": "WEATHER_KEY"}"#).await.unwrap();
    let cure = "the operator does not set it: `config` of the [[plugin]], or the flag --setting";
    let said = format!("a grant may be missing: config WEATHER_KEY ({cure})");
    assert_eq!((output.is_error, last_text(&output)), (true, said.as_str()));
    plugin.config = Map::from([("WEATHER_KEY".to_owned(), Json::new("\"x\""))]);
    house.publish(plugin).await;
    assert!(!house.call("need", r#"{"key": "WEATHER_KEY"}"#).await.unwrap().is_error);
}

#[tokio::test(flavor = "multi_thread")]
async fn wasi_logging_is_the_log_of_the_guest_within_its_bounds() {
    let house = House::new();
    for (draft, name) in [
        (LOGGING.replace("@VERSION", ""), "wasi:logging/logging"),
        (LOGGING.replace("VERSION", "0.1.0-draft"), "wasi:logging/logging@0.1.0-draft"),
    ] {
        let world = format!("use {name}.{{level}}; export say: func(level: level, context: string, message: string);");
        let imports = format!(r#"(import "{name}" "log" (func $log (param i32 i32 i32 i32 i32)))"#);
        let functions = r#"(func (export "say") (param i32 i32 i32 i32 i32)
            (call $log (local.get 0) (local.get 1) (local.get 2) (local.get 3) (local.get 4)))"#;
        house.publish(component(&draft, &world, &imports, functions)).await;
        let logged = async |level: &str, context: &str, message: &str, bytes: u64| {
            let arguments = json!({"level": level, "context": context, "message": message}).to_string();
            let running = house.start_with("say", &arguments, |spec| {
                spec.facts.log_level = Some(LogLevel::Info);
                spec.limits.log_bytes = bytes;
            });
            let (seen, outcome) = events(running).await;
            assert!(!outcome.unwrap().is_error);
            let records = seen.into_iter().filter_map(|event| match event {
                CallEvent::Log { level, logger, data } => Some((level, logger, data.as_str().to_owned())),
                _ => None,
            });
            records.collect::<Vec<_>>()
        };
        let warning = (LogLevel::Warning, Some("door".to_owned()), "\"it is \\\"open\\\"\"".to_owned());
        assert_eq!(logged("warn", "door", "it is \"open\"", 1_000).await, [warning]);
        assert_eq!(logged("critical", "", "1", 1_000).await, [(LogLevel::Critical, None, "\"1\"".to_owned())]);
        assert_eq!(logged("debug", "", "x", 1_000).await, [], "the client does not want it");
        let dropped = (LogLevel::Warning, Some("bulkhead".to_owned()), "{\"dropped\":1}".to_owned());
        assert_eq!(logged("error", "", &"x".repeat(99), 100).await, [dropped], "it is more than a call may log");
    }
}

/// What one plugin keeps, in memory. A page has two keys.
#[derive(Debug, Default)]
struct Kept {
    values: Mutex<Map<String, Vec<u8>>>,
    /// Written by somebody else just before a value is swapped.
    meanwhile: Mutex<Option<(String, Vec<u8>)>>,
}

fn room(limits: &KeyValueLimits, value: &[u8]) -> Result<(), KeyValueError> {
    if value.len() as u64 > limits.bytes_max {
        return Err(KeyValueError::Quota("plugin.kv.bytes_max is at its limit".to_owned()));
    }
    Ok(())
}

#[async_trait]
impl GuestServices for Kept {
    async fn get(&self, plugin: &str, key: &str) -> Result<Option<Vec<u8>>, KeyValueError> {
        assert_eq!(plugin, "stranger");
        Ok(self.values.lock().get(key).cloned())
    }

    async fn set(
        &self,
        _: &str,
        limits: &KeyValueLimits,
        key: String,
        value: Vec<u8>,
        ttl_ms: Option<u64>,
        _: Option<Tail>,
    ) -> Result<(), KeyValueError> {
        assert_eq!(ttl_ms, None);
        room(limits, &value)?;
        self.values.lock().insert(key, value);
        Ok(())
    }

    async fn set_if(
        &self,
        _: &str,
        limits: &KeyValueLimits,
        key: String,
        value: Vec<u8>,
        seen: Option<[u8; 32]>,
        _: Option<Tail>,
    ) -> Result<bool, KeyValueError> {
        room(limits, &value)?;
        let mut values = self.values.lock();
        values.extend(self.meanwhile.lock().take());
        let found = values.get(&key).map(|found| <[u8; 32]>::from(Sha256::digest(found)));
        let fits = found == seen;
        if fits {
            values.insert(key, value);
        }
        Ok(fits)
    }

    async fn delete(&self, _: &str, key: String, _: Option<Tail>) -> Result<(), KeyValueError> {
        self.values.lock().remove(&key);
        Ok(())
    }

    async fn keys(&self, _: &str, prefix: &str, after: Option<&str>) -> Result<KeyPage, KeyValueError> {
        assert_eq!(prefix, "");
        let values = self.values.lock();
        let mut keys = values.keys().filter(|key| after.is_none_or(|after| key.as_str() > after)).cloned();
        let page: Vec<_> = keys.by_ref().take(2).collect();
        let next = keys.next().and(page.last().cloned());
        Ok(KeyPage { keys: page, next })
    }

    async fn secrets(&self, _: &str) -> Result<Vec<Secret>, ()> {
        Ok(Vec::new())
    }
}

/// A guest with a tool for most functions; values are texts.
fn keeping_guest(version: &str) -> PluginSource {
    let is_first = version == "0.2.0-draft";
    let store = format!("wasi:keyvalue/store@{version}");
    let atomics = format!("wasi:keyvalue/atomics@{version}");
    let batch = format!("wasi:keyvalue/batch@{version}");
    let number = if is_first { "u64" } else { "s64" };
    let mut world = format!(
        "use {store}.{{error, key-response}}; import {atomics}; import {batch};
         export put: func(name: string, key: string, value: string) -> result<_, error>;
         export find: func(key: string) -> result<option<string>, error>;
         export count: func(key: string, delta: {number}) -> result<{number}, error>;
         export many: func(keys: list<string>) -> result<list<option<tuple<string, string>>>, error>;
         export second: func() -> result<key-response, error>;"
    );
    let cursor = if is_first { "i64" } else { "i32 i32" };
    let mut imports = format!(
        r#"(import "{store}" "open" (func $open (param i32 i32 i32)))
        (import "{store}" "[method]bucket.set" (func $set (param i32 i32 i32 i32 i32 i32)))
        (import "{store}" "[method]bucket.get" (func $get (param i32 i32 i32 i32)))
        (import "{store}" "[method]bucket.list-keys" (func $list (param i32 i32 {cursor} i32)))
        (import "{atomics}" "increment" (func $increment (param i32 i32 i32 i64 i32)))
        (import "{batch}" "get-many" (func $many (param i32 i32 i32 i32)))"#
    );
    let second = if is_first {
        "(call $list (local.get 0) (i32.const 0) (i64.const 0) (i32.const 64))
         (call $list (local.get 0) (i32.const 1) (i64.load (i32.const 88)) (i32.const 64))"
    } else {
        "(call $list (local.get 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 64))
         (call $list (local.get 0) (i32.const 1) (i32.load (i32.const 80)) (i32.load (i32.const 84)) (i32.const 64))"
    };
    let mut functions = format!(
        r#"(func $bucket (result i32)
            (call $open (i32.const 0) (i32.const 7) (i32.const 16)) (i32.load (i32.const 20)))
        (func (export "put") (param i32 i32 i32 i32 i32 i32) (result i32)
            (call $open (local.get 0) (local.get 1) (i32.const 64))
            (if (i32.eqz (i32.load8_u (i32.const 64))) (then (call $set (i32.load (i32.const 68)) (local.get 2)
                (local.get 3) (local.get 4) (local.get 5) (i32.const 64))))
            (i32.const 64))
        (func (export "find") (param i32 i32) (result i32)
            (call $get (call $bucket) (local.get 0) (local.get 1) (i32.const 64)) (i32.const 64))
        (func (export "count") (param i32 i32 i64) (result i32)
            (call $increment (call $bucket) (local.get 0) (local.get 1) (local.get 2) (i32.const 64)) (i32.const 64))
        (func (export "many") (param i32 i32) (result i32)
            (call $many (call $bucket) (local.get 0) (local.get 1) (i32.const 64)) (i32.const 64))
        (func (export "second") (result i32) (local i32) (local.set 0 (call $bucket)) {second} (i32.const 64))"#
    );
    if !is_first {
        world.push_str("export exchange: func(key: string, meanwhile: string, value: string) -> u32;");
        imports.push_str(&format!(
            r#"(import "{atomics}" "[static]cas.new" (func $cas (param i32 i32 i32 i32)))
            (import "{atomics}" "swap" (func $swap (param i32 i32 i32 i32)))"#
        ));
        // The outcome of the first swap, which is too late, and ten times that of the second one, with the new handle.
        functions.push_str(
            r#"(func (export "exchange") (param i32 i32 i32 i32 i32 i32) (result i32) (local $bucket i32) (local $first i32)
                (local.set $bucket (call $bucket))
                (call $cas (local.get $bucket) (local.get 0) (local.get 1) (i32.const 64))
                (call $set (local.get $bucket) (local.get 0) (local.get 1) (local.get 2) (local.get 3) (i32.const 128))
                (call $swap (i32.load (i32.const 68)) (local.get 4) (local.get 5) (i32.const 192))
                (local.set $first (i32.add (i32.load8_u (i32.const 192)) (i32.load8_u (i32.const 196))))
                (call $swap (i32.load (i32.const 200)) (local.get 4) (local.get 5) (i32.const 256))
                (i32.add (local.get $first) (i32.mul (i32.const 10) (i32.load8_u (i32.const 256)))))"#,
        );
    }
    component(&keyvalue(version), &world, &imports, &functions)
}

struct Keeper {
    house: House,
    kept: Arc<Kept>,
}

impl Keeper {
    async fn new(version: &str, granted: bool) -> Self {
        let house = House::new();
        let mut plugin = keeping_guest(version);
        plugin.grants.keyvalue = granted.then_some(KeyValueLimits { keys_max: 9, bytes_max: 8, value_bytes_max: 8 });
        house.publish(plugin).await;
        Self { house, kept: Arc::default() }
    }

    async fn call(&self, tool: &str, arguments: Value) -> ToolOutput {
        let services: Arc<dyn GuestServices> = Arc::clone(&self.kept) as _;
        let running = self.house.start_with(tool, &arguments.to_string(), |spec| {
            spec.facts.guest_services = Some(services);
        });
        finished(running).await.unwrap()
    }

    async fn result(&self, tool: &str, arguments: Value) -> Value {
        structured(&self.call(tool, arguments).await)
    }

    fn set(&self, key: &str, value: &str) {
        self.kept.values.lock().insert(key.to_owned(), value.as_bytes().to_vec());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wasi_keyvalue_reads_and_writes_the_values_of_the_plugin() {
    for version in ["0.2.0-draft", "0.2.0-draft2"] {
        let keeper = Keeper::new(version, true).await;
        for (name, key, value) in [("default", "a", "one"), ("", "b", "two")] {
            assert_eq!(keeper.result("put", json!({"name": name, "key": key, "value": value})).await, json!({}));
        }
        assert_eq!(keeper.kept.values.lock().get("a").map(Vec::as_slice), Some(b"one".as_slice()));
        assert_eq!(keeper.result("find", json!({"key": "b"})).await, json!({"result": "two"}));
        assert_eq!(keeper.result("find", json!({"key": "z"})).await, json!({"result": null}));
        let many = keeper.result("many", json!({"keys": ["b", "z"]})).await;
        assert_eq!(many, json!({"result": [["b", "two"], null]}));
        keeper.set("c", "three");
        let page = keeper.result("second", json!({})).await;
        assert_eq!(page["keys"], json!(["c"]), "{page}");
        assert_eq!(page.get("cursor"), None, "{page}");

        let foreign = keeper.call("put", json!({"name": "other", "key": "a", "value": "x"})).await;
        assert_eq!((foreign.is_error, structured(&foreign)), (true, json!({"error": {"tag": "no-such-store"}})));
        let large = keeper.result("put", json!({"name": "", "key": "a", "value": "x".repeat(9)})).await;
        assert_eq!(large["error"]["val"], "plugin.kv.bytes_max is at its limit", "{large}");
        let long = keeper.result("find", json!({"key": "k".repeat(257)})).await;
        assert_eq!(long["error"]["tag"], "other", "{long}");
        let many = keeper.result("many", json!({"keys": vec!["a"; 101]})).await;
        assert_eq!(many["error"]["val"], "101 keys at once; 100 is the most");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wasi_keyvalue_counts_in_one_step() {
    for version in ["0.2.0-draft", "0.2.0-draft2"] {
        let keeper = Keeper::new(version, true).await;
        let count = async |delta: i64| keeper.result("count", json!({"key": "n", "delta": delta})).await;
        assert_eq!(count(40).await, json!({"result": 40}));
        // Another call counts between this one's look and its write.
        *keeper.kept.meanwhile.lock() = Some(("n".to_owned(), b"100".to_vec()));
        assert_eq!(count(2).await, json!({"result": 102}));
        keeper.set("n", "no number");
        assert_eq!(count(1).await["error"]["val"], "the value of this key is not a decimal number");
        keeper.set("n", "18446744073709551615");
        assert_eq!(count(1).await["error"]["tag"], "other");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wasi_keyvalue_swaps_only_what_was_seen() {
    let keeper = Keeper::new("0.2.0-draft2", true).await;
    keeper.set("k", "old");
    let arguments = json!({"key": "k", "meanwhile": "new", "value": "mine"});
    // A failure with a new handle (1 + 1), then a success.
    assert_eq!(keeper.result("exchange", arguments).await, json!({"result": 2}));
    assert_eq!(keeper.kept.values.lock()["k"], b"mine");
}

#[tokio::test(flavor = "multi_thread")]
async fn wasi_keyvalue_without_the_grant_is_denied_and_named() {
    let keeper = Keeper::new("0.2.0-draft", false).await;
    keeper.set("a", "one");
    let output = keeper.call("put", json!({"name": "default", "key": "a", "value": "x"})).await;
    assert_eq!((output.is_error, structured(&output)), (true, json!({"error": {"tag": "access-denied"}})));
    let cure = "the operator does not grant it: [plugin.kv], or the flag --kv";
    assert_eq!(last_text(&output), format!("not granted to this plugin: kv ({cure})"));
    assert_eq!(keeper.kept.values.lock()["a"], b"one");
}
