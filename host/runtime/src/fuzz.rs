//! Components, their manifests and journals of calls made of anything.

use std::sync::{Arc, OnceLock};

use super::{CompilerMode, PluginSource, Sandbox, SandboxConfig, Source, WasiVersion, manifest, skills};
use bulkhead_calls::Operation;
use bulkhead_calls::schema::Validator;
use bulkhead_domain::limits::{CallLimits, CompileLimits};
use bulkhead_domain::skills::SECTION;

/// A component that holds nothing but a custom section.
fn with_section(name: &str, data: &[u8]) -> Vec<u8> {
    let mut component = b"\0asm\x0d\0\x01\0".to_vec();
    let mut body = vec![name.len() as u8];
    body.extend(name.as_bytes());
    body.extend(data);
    component.push(0);
    let mut length = body.len();
    while length >= 0x80 {
        component.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    component.push(length as u8);
    component.extend(body);
    component
}

/// A manifest, and skills, as they stand in a component's custom section; a schema as a tool brings it, with a value to
/// judge by it.
pub fn manifests(data: &[u8]) -> bool {
    if let Ok(skills) = skills::read(&with_section(SECTION, data)) {
        assert!(skills.resources("p").iter().all(|listed| {
            let read = Operation::ReadResource { uri: listed.uri.clone() };
            skills.contents("p", &read).is_some()
        }));
    }
    let manifest = manifest::manifest(&with_section("bulkhead:manifest", data));
    if let Ok(found) = &manifest {
        assert!(
            found.as_ref().is_some_and(|manifest| manifest.text.as_bytes() == data),
            "the manifest is what was written"
        );
    }
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let (schema, value) = text.split_once('\n').unwrap_or((text, "{}"));
    let validator = Validator::compile_any(schema);
    let value = serde_json::from_str(value);
    if let (Ok(validator), Ok(value)) = (&validator, value) {
        let judged = validator.check(&value);
        assert!(judged.is_ok() || judged.is_err_and(|violations| !violations.is_empty()));
    }
    manifest.is_ok() || validator.is_ok()
}

/// What a sandbox needs to live, for as long as the process does.
struct FuzzSandbox {
    sandbox: Arc<Sandbox>,
    threads: tokio::runtime::Runtime,
    data: tempfile::TempDir,
}

fn yard() -> Option<&'static FuzzSandbox> {
    static YARD: OnceLock<Option<FuzzSandbox>> = OnceLock::new();
    let open = || {
        let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().ok()?;
        let data = tempfile::tempdir().ok()?;
        let config = SandboxConfig {
            data: data.path().to_owned(),
            code: None,
            calls_running_total: 2,
            calls_resting_total: 2,
            compile: CompileLimits { memory_bytes: 1 << 30, cpu_ms: 10_000, functions_max: 10_000 },
            compiler: CompilerMode::InProcess,
            epoch_tick_ms: 10,
            memory_images: true,
            io: threads.handle().clone(),
            environment: |_| None,
            tenant_names: None,
            metrics: Default::default(),
        };
        Some(FuzzSandbox { sandbox: Sandbox::new(config).ok()?, threads, data })
    };
    YARD.get_or_init(open).as_ref()
}

/// Loads a component as a host does: counted, compiled, linked, asked for its tools.
pub fn components(data: &[u8]) -> bool {
    let Some(yard) = yard() else { return false };
    let limits = CallLimits {
        cpu_ms: 1_000,
        wall_ms: 1_000,
        memory_bytes: 1 << 20,
        arguments_bytes: 1 << 20,
        result_bytes: 1 << 20,
        log_bytes: 1 << 10,
        events_per_second: 50,
        promote_after_ms: 1_000,
        cancel_grace_ms: 0,
        epoch_tick_ms: 10,
        journal_bytes: 4 << 20,
        journal_entries: 100_000,
        journal_response_bytes: 1 << 20,
    };
    // With both engines.
    let name = Some("fuzzed".to_owned());
    let wasi = WasiVersion::V0_3;
    let source = PluginSource { name, wasi, ..PluginSource::bare(Source::Bytes(data.into()), limits) };
    let loaded = yard.threads.block_on(yard.sandbox.load(source));
    if let Err(refused) = &loaded {
        assert!(!refused.problems.is_empty(), "a refusal says why");
        assert!(
            refused.problems.iter().all(|problem| !problem.chars().any(|c| c.is_control() && c != '\n')),
            "{refused}"
        );
    }
    // What passed is kept for long otherwise, and what was compiled once is not compiled again.
    for folder in ["components", "cache"] {
        let files = std::fs::read_dir(yard.data.path().join(folder)).into_iter().flatten().flatten();
        files.for_each(|file| drop(std::fs::remove_file(file.path())));
    }
    loaded.is_ok()
}

/// The journal of a call as it comes from the store, and a guest that runs again with it.
pub fn journals(data: &[u8]) -> bool {
    super::journal::fuzz::journals(data)
}

#[cfg(test)]
mod corpus {
    use std::path::Path;

    use bulkhead_domain::testing::replay_corpus;

    #[test]
    fn corpus_is_replayed() {
        let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz");
        replay_corpus(&fuzz, "manifests", super::manifests);
        replay_corpus(&fuzz, "components", super::components);
        replay_corpus(&fuzz, "journals", super::journals);
    }
}
