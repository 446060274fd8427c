//! Each limit with the smallest guest that runs into it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use wasmtime::component::{Component, InstancePre, Resource};
use wasmtime_wasi::WasiView as _;
use wasmtime_wasi::p2::bindings::random::insecure::Host as _;
use wasmtime_wasi::p2::bindings::random::random::Host as _;
use wasmtime_wasi::p2::pipe::SinkOutputStream;
use wasmtime_wasi_http::FieldMapError;
use wasmtime_wasi_http::p2::HeaderError;
use wasmtime_wasi_io::bindings::wasi::io::streams::HostOutputStream as _;
use wasmtime_wasi_io::streams::{DynOutputStream, StreamError};

use super::*;
use crate::blocking::Blocking;
use crate::call::{Call, Surroundings};
use crate::engine::{Effort, EngineKind};
use crate::engines::{Engines, GuestEngine, Ticks};
use crate::events::Outbox;
use crate::fault;
use crate::granted::Granted;
use crate::host_context::HostContext;
use crate::limits::HOST_RESOURCES_MAX;
use crate::link;
use crate::perform::visit;
use crate::read;

pub(super) const INSTANCES: u32 = 4;

/// A component whose `run` executes this core code, with one page of memory.
fn component(body: &str) -> String {
    format!(
        "(component
            (core module $m
                (memory 1)
                (table $t 1 funcref)
                (func $deep (param i32) (result i32) (i32.add (i32.const 1) (call $deep (local.get 0))))
                (func (export \"run\") {body}))
            (core instance $i (instantiate $m))
            (func (export \"run\") (canon lift (core func $i \"run\"))))"
    )
}

/// A component in an engine with a pool of four, and its clock.
pub(super) struct Subject {
    pub(super) host_context: HostContext,
    engine: Arc<GuestEngine>,
    instance: InstancePre<Call>,
}

impl Subject {
    fn new(wat: &str) -> Self {
        Self::of(EngineKind::Plain, wat)
    }

    pub(super) fn of(kind: EngineKind, wat: &str) -> Self {
        let engines =
            Engines::start(INSTANCES, Effort::Usual, Ticks { every: Duration::from_millis(10), late: None }, false)
                .unwrap();
        let own = engines.of(kind).unwrap();
        let component = Component::from_binary(&own.engine, &wat::parse_str(wat).unwrap()).unwrap();
        let instance = own.linker.instantiate_pre(&component).unwrap();
        Self {
            host_context: HostContext {
                engines,
                names: None,
                quotas: Arc::default(),
                request_quotas: Default::default(),
                blocking: Arc::default(),
                metrics: Default::default(),
            },
            engine: own,
            instance,
        }
    }

    fn call(&self, limits: &CallLimits, shared: Arc<CallState>, outbox: Outbox) -> Box<Call> {
        let around = Surroundings {
            tenant: None,
            quotas: &self.host_context.quotas,
            blocking: Blocking::of(&self.host_context.blocking, TENANT),
            program: None,
            conversation: None,
            journal: None,
        };
        Call::new("test".into(), Arc::new(Granted::default()), facts(), limits, shared, outbox, around).unwrap()
    }

    pub(super) async fn run(&self, limits: &CallLimits) -> Result<(), CallError> {
        self.run_with(limits, Arc::new(CallState::default())).await
    }

    pub(super) async fn run_with(&self, limits: &CallLimits, shared: Arc<CallState>) -> Result<(), CallError> {
        let (sender, _receiver) = mpsc::channel(1);
        let call = self.call(limits, shared, Outbox::new(sender, 10, 0));
        let ran = visit(&self.engine, &self.instance, Some(TENANT), call, limits, |store, instance| {
            Box::pin(async move {
                let run = instance.get_func(&mut *store, "run").unwrap();
                run.call_async(store, &[], &mut []).await
            })
        });
        ran.await
    }
}

async fn run(body: &str, change: impl FnOnce(&mut CallLimits)) -> (FaultKind, String) {
    let mut limits = limits();
    change(&mut limits);
    match Subject::new(&component(body)).run(&limits).await {
        Err(CallError::Fault { kind, reason }) => (kind, reason),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn host_resources_stay_bounded_after_they_were_dropped() {
    let (sender, _receiver) = mpsc::channel(1);
    let mut call =
        Subject::new(&component("")).call(&limits(), Arc::new(CallState::default()), Outbox::new(sender, 10, 0));
    for _ in 0..2 {
        let held = (0..=HOST_RESOURCES_MAX).take_while(|_| call.ctx().table.push(()).is_ok()).count();
        assert_eq!(held, HOST_RESOURCES_MAX);
        call.drop_resources();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bounds_of_wasi_functions_are_limits_with_their_numbers() {
    let (sender, _receiver) = mpsc::channel(1);
    let mut call =
        Subject::new(&component("")).call(&limits(), Arc::new(CallState::default()), Outbox::new(sender, 10, 0));
    assert_eq!(call.get_random_bytes(65_536).unwrap().len(), 65_536);
    let random = "the tool asked for 65537 random bytes at once; 65536 is the most";
    let headers = "the headers of one HTTP message of the tool are longer than 64 KiB, or too many";
    let stream = "the tool wrote more than 4096 bytes to a stream at once";
    let sink: DynOutputStream = Box::new(SinkOutputStream);
    let sink = call.ctx().table.push(sink).unwrap();
    let borrowed = || Resource::new_borrow(sink.rep());
    let table = call.ctx().table;
    assert!(table.blocking_write_and_flush(borrowed(), vec![0; 4_096]).await.is_ok());
    assert!(table.blocking_write_zeroes_and_flush(borrowed(), 4_096).await.is_ok());
    let written = table.blocking_write_and_flush(borrowed(), vec![0; 4_097]).await;
    let zeroes = table.blocking_write_zeroes_and_flush(borrowed(), 4_097).await;
    let [written, zeroes] = [written, zeroes].map(|outcome| match outcome {
        Err(StreamError::Trap(error)) => error,
        other => panic!("{other:?}"),
    });
    for (error, expected) in [
        (written, stream),
        (zeroes, stream),
        (call.get_random_bytes(65_537).unwrap_err(), random),
        (call.get_insecure_random_bytes(65_537).unwrap_err(), random),
        (HeaderError::from(FieldMapError::TotalSizeTooBig).downcast().unwrap_err(), headers),
        (HeaderError::from(FieldMapError::TooManyFields).downcast().unwrap_err(), headers),
    ] {
        let expected = CallError::Fault { kind: FaultKind::Limit, reason: expected.to_owned() };
        assert_eq!(fault::classify("test", &error, 0), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn loop_ends_at_its_cpu_limit() {
    let started = Instant::now();
    let (kind, reason) = run("(loop (br 0))", |limits| limits.cpu_ms = 100).await;
    assert_eq!((kind, reason.as_str()), (FaultKind::Limit, "the tool used more than its 100 ms of CPU time"));
    assert!(started.elapsed() >= Duration::from_millis(100));
}

#[tokio::test(flavor = "multi_thread")]
async fn loop_ends_at_its_wall_limit() {
    let (kind, reason) = run("(loop (br 0))", |limits| limits.wall_ms = 100).await;
    assert_eq!((kind, reason.as_str()), (FaultKind::Deadline, "the tool did not finish within 100 ms"));
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_limit_sums_all_memories() {
    let grow = "(loop (drop (memory.grow (i32.const 16))) (br 0))";
    let (kind, reason) = run(grow, |limits| limits.memory_bytes = 8 << 20).await;
    assert_eq!((kind, reason.as_str()), (FaultKind::Limit, "the tool used more than its 8 MiB of memory"));

    let two_memories = "(component
        (core module $m (memory 100) (func (export \"run\")))
        (core instance $i (instantiate $m))
        (core instance $j (instantiate $m))
        (func (export \"run\") (canon lift (core func $i \"run\"))))";
    let limits = CallLimits { memory_bytes: 150 * 65536, ..limits() };
    let outcome = Subject::new(two_memories).run(&limits).await;
    assert!(matches!(outcome, Err(CallError::Fault { kind: FaultKind::Limit, .. })), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn table_growth_is_limited() {
    let grow = "(loop (br_if 0 (i32.ne (i32.const -1) (table.grow $t (ref.null func) (i32.const 1000)))))";
    let outcome = Subject::new(&component(grow)).run(&limits()).await;
    // A table ends at the size of its slot, long before the sum of all tables does; the guest sees the failure.
    assert_eq!(outcome, Ok(()));
    let tables: String = (0..6).map(|at| format!("(table $t{at} 39000 funcref)")).collect();
    let wat = format!(
        "(component (core module $m {tables} (func (export \"run\"))) (core instance $i (instantiate $m))
            (func (export \"run\") (canon lift (core func $i \"run\"))))"
    );
    let outcome = Subject::new(&wat).run(&limits()).await;
    assert!(
        matches!(&outcome, Err(CallError::Fault { kind: FaultKind::Limit, reason }) if reason.contains("table")),
        "{outcome:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn stack_overflow_and_traps_have_distinct_reasons() {
    let (kind, reason) = run("(drop (call $deep (i32.const 0)))", |_| {}).await;
    assert_eq!((kind, reason.as_str()), (FaultKind::Trap, "the tool's call stack overflowed"));
    let (kind, reason) = run("unreachable", |_| {}).await;
    assert_eq!((kind, reason.as_str()), (FaultKind::Trap, "the tool crashed: it panicked or aborted"));
    let (kind, reason) = run("(drop (i32.load (i32.const -4)))", |_| {}).await;
    assert_eq!(kind, FaultKind::Trap);
    assert!(reason.contains("out of bounds"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_call_stops_and_frees_its_instance() {
    let subject = Arc::new(Subject::new(&component("(loop (br 0))")));
    // Many more than the pool holds at once.
    for _ in 0..INSTANCES * 10 {
        let subject = Arc::clone(&subject);
        let running = tokio::spawn(async move { subject.run(&limits()).await });
        tokio::time::sleep(Duration::from_millis(2)).await;
        running.abort();
        assert!(running.await.unwrap_err().is_cancelled());
    }
    let limits = CallLimits { cpu_ms: 20, ..limits() };
    let all = futures::future::join_all((0..INSTANCES).map(|_| subject.run(&limits))).await;
    assert!(
        all.iter().all(|outcome| matches!(outcome, Err(CallError::Fault { kind: FaultKind::Limit, .. }))),
        "{all:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_loop_stops_cpu_and_wall_clocks() {
    let subject = Subject::new(&component("(loop (br 0))"));
    let limits = CallLimits { cpu_ms: 600, wall_ms: 5000, ..limits() };
    let state = Arc::<CallState>::default();
    let control = Control::new(Arc::<CallState>::clone(&state));
    let shared = Arc::clone(&state);
    let over = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&over);
    let running = tokio::spawn(async move {
        let outcome = subject.run_with(&limits, shared).await;
        ended.store(true, Ordering::Release);
        outcome
    });
    wait_until(|| control.cpu_ms() > 0).await;
    control.pause();
    let cpu = settled(|| control.cpu_ms()).await;
    let (wall, held) = state.wall_elapsed();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(control.cpu_ms(), cpu, "no CPU time is used while paused");
    assert_eq!(state.wall_elapsed(), (wall, true));
    assert!(held && !over.load(Ordering::Acquire));
    control.resume();
    wait_until(|| control.cpu_ms() > cpu).await;
    let outcome = tokio::time::timeout(Duration::from_secs(20), running).await.unwrap().unwrap();
    assert!(matches!(outcome, Err(CallError::Fault { kind: FaultKind::Limit, .. })), "{outcome:?}");
}

pub(super) async fn wait_until(mut happened: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if happened() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it did not happen within 10 s");
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_components_are_refused_at_load() {
    let engines =
        Engines::start(INSTANCES, Effort::Usual, Ticks { every: Duration::from_millis(10), late: None }, false)
            .unwrap();
    let own = engines.plain();
    let memories: String = (0..9).map(|_| "(core instance (instantiate $m))").collect();
    let wat = format!("(component (core module $m (memory 1)) {memories})");
    let raw = read::read(&Source::Bytes(wat::parse_str(wat).unwrap().into())).unwrap();
    let component = Component::from_binary(&own.engine, &raw.bytes).unwrap();
    let Err(problems) = link::link(&own.linker, &component, &raw) else { panic!("it was accepted") };
    let problems = problems.join("; ");
    assert!(problems.contains("9 memories; 8 is the most"), "{problems}");
    assert!(problems.contains("does not export bulkhead:plugin/tools@0.1.0"), "{problems}");
}
