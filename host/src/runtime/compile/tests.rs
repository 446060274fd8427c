//! A child that answers, and children that do not. What a real one does with a real component is tested with the program.

use std::os::unix::process::ExitStatusExt as _;

use super::*;

fn limits() -> CompileLimits {
    CompileLimits { memory_bytes: 2 << 30, cpu_ms: 1_000, functions_max: 10 }
}

/// A shell in the place of the compiler.
async fn instead(script: &str) -> Result<Vec<u8>, String> {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    in_child(command, b"component", &limits()).await
}

#[tokio::test]
async fn an_answer_is_code_or_the_reason_why_there_is_none() {
    let answer = |kind: u8, length: u8, body: &str| {
        format!("cat >/dev/null & printf 'bulkcode\\{kind:03o}\\{length:03o}\\0\\0\\0\\0\\0\\0\\0{body}'")
    };
    assert_eq!(instead(&answer(1, 4, "code")).await, Ok(b"code".to_vec()));
    assert_eq!(instead(&answer(0, 2, "no")).await, Err("no".to_owned()));
    for cut_off in [answer(1, 9, "code"), answer(7, 4, "code"), "printf bulk".to_owned(), "true".to_owned()] {
        let refused = instead(&cut_off).await.unwrap_err();
        assert!(refused.starts_with("the compiler failed on it"), "{cut_off}: {refused}");
    }
}

#[tokio::test]
async fn more_code_than_the_host_takes_is_not_even_read() {
    let refused = instead("printf 'bulkcode\\001\\0\\0\\0\\0\\0\\0\\0\\001'; yes").await.unwrap_err();
    assert!(refused.contains("72057594037927936 bytes; 536870912 is the most"), "{refused}");
}

#[tokio::test]
async fn each_death_has_its_cause() {
    assert!(instead("kill -SEGV $$").await.unwrap_err().contains("crashed on it (signal 11)"));
    assert!(instead("kill -XCPU $$").await.unwrap_err().contains("compile.cpu_ms = 1000"));
    let refused = instead("echo memory allocation of 7 bytes failed >&2; kill -ABRT $$").await.unwrap_err();
    assert!(refused.contains("compile.memory_bytes = 2147483648"), "{refused}");
    let status = ExitStatus::from_raw(Signal::ABORT.as_raw());
    assert!(cause_of_death(status, "thread 'main' has overflowed its stack", &limits()).contains("signal 6"));
}

#[tokio::test(start_paused = true)]
async fn a_child_that_only_waits_is_killed() {
    let refused = instead("exec sleep 1000").await.unwrap_err();
    assert!(refused.contains("took longer than 60000 ms"), "{refused}");
}

#[tokio::test]
async fn code_that_is_made_here_obeys_the_bounds_too() {
    let compiler = Compiler::new(CompilerMode::InProcess, limits(), tokio::runtime::Handle::current());
    let engine = engine_for_tests();
    let component = |functions: usize| -> Arc<[u8]> {
        wat::parse_str(format!("(component (core module {}))", "(func)".repeat(functions))).unwrap().into()
    };
    assert!(compiler.compile(&engine, &component(10)).await.is_ok());
    assert!(compiler.compile(&engine, &component(11)).await.unwrap_err().contains("compile.functions_max"));
}

fn engine_for_tests() -> Engine {
    super::super::engine::for_compiling().unwrap()
}

#[test]
fn code_of_the_compilers_engine_fits_the_one_with_a_pool() {
    let (pooled, plain) = (super::super::engine::build(4).unwrap(), engine_for_tests());
    let hash = super::super::engine::compatibility_hash;
    assert_eq!(hash(&pooled), hash(&plain));
}
