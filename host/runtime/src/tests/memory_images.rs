//! Components whose memory has an image: their calls, limits and refusals are those of any other one.

use super::*;
use crate::engine::EngineKind;
use crate::plugin_source::Source;

/// A component with two megabytes of data after 64 KiB of zeros, whose function `run` is this.
fn component(run: &str) -> PluginSource {
    let data = "d".repeat(2 << 20);
    let wat = format!(
        "(component
            (core module $m
                (memory 40)
                (data (i32.const 65536) \"{data}\")
                (func (export \"run\") (result i32) {run}))
            (core instance $i (instantiate $m))
            (func (export \"run\") (result u32) (canon lift (core func $i \"run\"))))"
    );
    let mut source = source(Source::Bytes(wat::parse_str(wat).unwrap().into()));
    source.name = Some("stranger".to_owned());
    source
}

/// Adds up a byte of the image, one of the zeros and one of a new page, and writes to all of them.
const LEAVES_TRACES: &str = "
    (local $grown i32)
    (local.set $grown (i32.mul (memory.grow (i32.const 2)) (i32.const 65536)))
    (i32.add (i32.load8_u (i32.const 100000)) (i32.add (i32.load8_u (i32.const 9)) (i32.load8_u (local.get $grown))))
    (i32.store8 (i32.const 100000) (i32.const 7))
    (i32.store8 (i32.const 9) (i32.const 7))
    (i32.store8 (local.get $grown) (i32.const 7))";

fn house(data: &TempDir, memory_images: bool) -> House {
    let config = SandboxConfig { memory_images, ..House::config(data.path(), None) };
    House { sandbox: Sandbox::new(config).unwrap() }
}

/// Whether the pool's engine runs it.
fn is_pooled(house: &House, loaded: &LoadedPlugin) -> bool {
    let engines = &house.sandbox.host_context.engines;
    Arc::ptr_eq(&loaded.plugin.engine, &engines.of(EngineKind::Plain).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn call_finds_nothing_of_an_earlier_one_in_a_memory_with_an_image() {
    let data = TempDir::new().unwrap();
    for memory_images in [true, false] {
        let house = house(&data, memory_images);
        let loaded = house.publish(component(LEAVES_TRACES)).await;
        assert_eq!(is_pooled(&house, &loaded), !memory_images);
        for _ in 0..5 {
            let output = house.call("run", "{}").await.unwrap();
            assert_eq!(output.structured.unwrap().as_str(), r#"{"result":100}"#);
        }
    }
    // The code of each is kept, and each finds its own.
    let codes = std::fs::read_dir(data.path().join("cache")).unwrap().count();
    assert_eq!(codes, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn version_with_an_image_keeps_its_digest_and_comes_back() {
    let data = TempDir::new().unwrap();
    let pooled = house(&data, false).publish(component(LEAVES_TRACES)).await.version;
    let house = house(&data, true);
    let loaded = house.publish(component(LEAVES_TRACES)).await;
    assert_eq!(loaded.version, pooled);
    house.publish(component("(i32.const 1)")).await;
    let again = house.sandbox.load_kept(&loaded.version, &component("")).await.unwrap();
    assert!(!is_pooled(&house, &again));
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_and_traps_are_the_same_with_an_image() {
    let bodies = [
        "(drop (memory.grow (i32.const 2000))) (memory.size)",
        "(loop $l (br_if $l (i32.ge_s (memory.grow (i32.const 16)) (i32.const 0)))) (i32.const 1)",
        "(i32.load (i32.const -9))",
        "(unreachable)",
        "(loop $l (br $l)) (unreachable)",
    ];
    let data = TempDir::new().unwrap();
    for body in bodies {
        let mut faults = Vec::new();
        for memory_images in [true, false] {
            let house = house(&data, memory_images);
            let mut source = component(body);
            source.limits.cpu_ms = 100;
            house.publish(source).await;
            faults.push(fault(house.call("run", "{}").await));
        }
        assert_eq!(faults[0], faults[1], "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_component_is_refused_in_the_same_words_with_an_image() {
    let data = TempDir::new().unwrap();
    let mut problems = Vec::new();
    for memory_images in [true, false] {
        let refused = house(&data, memory_images).sandbox.load(component("(i64.const 1)")).await.unwrap_err();
        assert!(refused.problems[0].contains("type mismatch"), "{refused}");
        problems.push(refused.problems);
    }
    assert_eq!(problems[0], problems[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn script_has_an_image() {
    let Some(source) = sample("probe-javascript") else { return };
    let config = SandboxConfig { memory_images: true, ..House::config(&kept(), None) };
    let house = House { sandbox: Sandbox::new(config).unwrap() };
    let loaded = house.publish(source).await;
    assert!(!is_pooled(&house, &loaded));
    for _ in 0..3 {
        assert_eq!(text(&house.call("js_echo", r#"{"text": "hello"}"#).await.unwrap()), "hello");
    }
}
