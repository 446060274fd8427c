//! A child that answers, and children that do not. What a real one does with a real component is tested with the
//! program.

use std::os::unix::process::ExitStatusExt as _;

use super::*;

fn limits() -> CompileLimits {
    CompileLimits { memory_bytes: 2 << 30, cpu_ms: 1_000, functions_max: 10 }
}

/// A shell in the place of the compiler.
async fn instead(script: &str) -> Result<Vec<u8>, CompileError> {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    in_child(command, b"component", &limits()).await
}

/// Why the component is refused for good.
async fn refused(script: &str) -> String {
    match instead(script).await {
        Err(CompileError::Refused(why)) => why,
        other => panic!("{script}: {other:?}"),
    }
}

#[tokio::test]
async fn compiler_child_answers_code_or_reason() {
    let answer = |kind: u8, length: u8, body: &str| {
        format!("cat >/dev/null & printf 'bulkcode\\{kind:03o}\\{length:03o}\\0\\0\\0\\0\\0\\0\\0{body}'")
    };
    assert_eq!(instead(&answer(1, 4, "code")).await, Ok(b"code".to_vec()));
    assert_eq!(instead(&answer(0, 2, "no")).await, Err(CompileError::Refused("no".to_owned())));
    for cut_off in [answer(1, 9, "code"), answer(7, 4, "code"), "printf bulk".to_owned(), "true".to_owned()] {
        let refused = refused(&cut_off).await;
        assert!(refused.starts_with("the compiler failed on it"), "{cut_off}: {refused}");
    }
}

#[tokio::test]
async fn oversized_compiler_answer_is_not_read() {
    let refused = refused("printf 'bulkcode\\001\\0\\0\\0\\0\\0\\0\\0\\001'; yes").await;
    assert!(refused.contains("72057594037927936 bytes; 536870912 is the most"), "{refused}");
}

#[tokio::test]
async fn compiler_child_death_reports_its_cause() {
    assert!(refused("kill -SEGV $$").await.contains("crashed on it (signal 11)"));
    assert!(refused("kill -XCPU $$").await.contains("compile.cpu_ms = 1000"));
    let large = refused("echo memory allocation of 7 bytes failed >&2; kill -ABRT $$").await;
    assert!(large.contains("compile.memory_bytes = 2147483648"), "{large}");
    let status = ExitStatus::from_raw(Signal::ABORT.as_raw());
    let cause = cause_of_death(status, "thread 'main' has overflowed its stack", &limits());
    assert!(cause.to_string().contains("signal 6"));
}

#[tokio::test]
async fn killed_compiler_child_is_a_passing_error() {
    for signal in ["KILL", "TERM"] {
        let ended = instead(&format!("kill -{signal} $$")).await.unwrap_err();
        assert!(matches!(&ended, CompileError::Passing(why) if why.contains("was killed")), "{ended:?}");
    }
    let absent = in_child(Command::new("/nowhere/at/all"), b"component", &limits()).await.unwrap_err();
    assert!(matches!(absent, CompileError::Passing(_)), "{absent:?}");
}

#[tokio::test(start_paused = true)]
async fn hanging_compiler_child_is_killed() {
    let late = instead("exec sleep 1000").await.unwrap_err();
    assert!(matches!(&late, CompileError::Passing(why) if why.contains("took longer than 60000 ms")), "{late:?}");
}

#[tokio::test]
async fn in_process_compile_obeys_the_limits() {
    let compiler = Compiler::new(CompilerMode::InProcess, limits(), tokio::runtime::Handle::current());
    let engine = engine_for_tests();
    let component = |functions: usize| -> Arc<[u8]> {
        wat::parse_str(format!("(component (core module {}))", "(func)".repeat(functions))).unwrap().into()
    };
    assert!(compiler.compile(&engine, EngineKind::Plain, &component(10)).await.is_ok());
    assert!(
        compiler
            .compile(&engine, EngineKind::Plain, &component(11))
            .await
            .unwrap_err()
            .to_string()
            .contains("compile.functions_max")
    );
}

fn engine_for_tests() -> Engine {
    super::super::engine::for_compiling(EngineKind::Plain, Effort::Usual).unwrap()
}

#[test]
fn compiler_engine_is_compatible_with_pooled_engine() {
    use super::super::engine::{build, compatibility_hash, for_compiling};
    let hash = |kind, effort| {
        let pooled = build(kind, effort, 4).unwrap();
        let plain = for_compiling(kind, Effort::Usual).unwrap();
        assert_eq!(compatibility_hash(&pooled, effort), compatibility_hash(&plain, effort), "{kind:?}");
        compatibility_hash(&pooled, effort)
    };
    let usual = hash(EngineKind::Plain, Effort::Usual);
    assert_ne!(usual, hash(EngineKind::Concurrent, Effort::Usual), "neither takes the code of the other");
    assert_ne!(usual, hash(EngineKind::Plain, Effort::Quick), "quick code is kept apart");
}

#[test]
fn only_a_quick_compiler_is_told_to_be_quick() {
    let is_told = |mode: CompilerMode| {
        let command = child::command(EngineKind::Plain, mode.effort(), &limits(), 2);
        command.as_std().get_args().any(|argument| argument == "quick")
    };
    assert!(is_told(CompilerMode::QuickChild) && !is_told(CompilerMode::Child));
}

#[test]
#[allow(unsafe_code, reason = "compiled code is read back, as the cache does")]
fn quick_code_runs_on_the_pooled_engine() {
    let pooled = super::super::engine::build(EngineKind::Plain, Effort::Usual, 4).unwrap();
    let component = wat::parse_str("(component (core module (func (export \"f\") (result i32) i32.const 7)))").unwrap();
    for effort in [Effort::Usual, Effort::Quick] {
        let compiler = super::super::engine::for_compiling(EngineKind::Plain, effort).unwrap();
        let code = compiler.precompile_component(&component).unwrap();
        // SAFETY: the compiler has just made it.
        let loaded = unsafe { wasmtime::component::Component::deserialize(&pooled, &code) };
        assert!(loaded.is_ok(), "{effort:?}: {:?}", loaded.err());
    }
}

#[test]
fn types_that_this_host_does_not_offer_are_named_with_what_does_the_same() {
    let engine = engine_for_tests();
    for (ty, what, instead) in [
        ("(map string u32)", "`map<K, V>`", "`list<tuple<K, V>>`"),
        ("(list u8 4)", "`list<T, N>`", "`list<T>`"),
        ("error-context", "`error-context`", "`string`"),
    ] {
        let component = wat::parse_str(format!("(component (type (func (param \"x\" {ty}))))")).unwrap();
        let error = engine.precompile_component(&component).unwrap_err();
        let expected = format!("it has {what} in its types, which this host does not offer: write {instead}");
        assert_eq!(refusal(&error, &limits()), expected, "{error:#}");
    }
}
