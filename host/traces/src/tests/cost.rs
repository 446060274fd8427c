//! What recording costs, measured by hand:
//! `cargo test --release -p bulkhead-traces cost -- --ignored --nocapture --test-threads 1`.

use std::hint::black_box;
use std::path::Path;

use super::*;

/// Requests of one block that are not recorded, and how many pairs of blocks there are.
const REQUESTS: u32 = 1_000_000;
const PAIRS: usize = 101;

/// CPU time of a thread so far.
fn cpu_of(thread: &Path) -> Duration {
    let text = std::fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
    Duration::from_nanos(text.split_whitespace().next().map_or(0, |number| number.parse().unwrap()))
}

/// CPU time of this thread, and of all, so far.
fn cpu() -> (Duration, Duration) {
    let all = std::fs::read_dir("/proc/self/task").unwrap().map(|entry| cpu_of(&entry.unwrap().path()));
    (cpu_of(Path::new("/proc/thread-self")), all.sum())
}

/// What a call of a tool says of itself.
fn call(tracer: &Tracer) {
    let Some(server) = tracer.request("_OTHER", None, TENANT) else { return };
    server.set("mcp.session.id", Value::Hex(&[7; 8]));
    server.set("jsonrpc.request.id", 12_345_i128.to_string().as_str());
    server.set("bulkhead.tenant", Value::Hex(&TENANT.0));
    server.set("mcp.protocol.version", "2025-11-25");
    server.set("network.transport", "tcp");
    let entered = server.enter();
    let guest = current().and_then(|span| span.child("bulkhead.guest", Kind::Internal)).unwrap();
    guest.set_name("bulkhead.guest", Some("text"));
    guest.set("bulkhead.plugin", "text");
    guest.set("bulkhead.plugin.version", Value::Hex(&[7; 6]));
    guest.set("bulkhead.attempt", 1);
    guest.set("bulkhead.memory_bytes", 1_234_567);
    guest.set("bulkhead.cpu_ms", 1);
    guest.end();
    drop(entered);
    server.set("mcp.method.name", "tools/call");
    server.set_name("tools/call", Some("echo"));
    server.set("gen_ai.operation.name", "execute_tool");
    server.set("gen_ai.tool.name", "echo");
    server.set("bulkhead.plugin", "text");
    server.end();
}

/// The fewest nanoseconds of a call of its own thread, and of all, in some rounds of so many.
async fn least(tracer: &Tracer, calls: u32) -> (u128, u128) {
    let mut least = (u128::MAX, u128::MAX);
    for _ in 0..20 {
        let before = cpu();
        (0..calls).for_each(|_| call(tracer));
        let own = cpu().0 - before.0;
        // The export is counted, too, with the collector of this test.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let all = cpu().1 - before.1;
        let a_call = |time: Duration| time.as_nanos() / u128::from(calls);
        least = (least.0.min(a_call(own)), least.1.min(a_call(all)));
    }
    least
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn cost_of_recorded_calls() {
    let (port, mut received) = collector(&[OK]).await;
    tokio::spawn(async move { while received.recv().await.is_some() {} });
    let soon = Duration::from_millis(5);
    for (name, tracer, calls) in [
        ("nothing is recorded", tracer(9, 0.0), 100_000),
        ("there is room", tracer_of(port, 1.0, soon), 800),
        ("the collector is away", tracer(9, 1.0), 100_000),
    ] {
        let (own, all) = least(&tracer, calls).await;
        let exported = tracer.spans_exported();
        let dropped = tracer.spans_dropped();
        eprintln!("{name}: {own} ns of CPU a call, {all} ns with the export; {exported} exported, {dropped} dropped");
    }
}

/// Nanoseconds of CPU that each request of a block takes which is not recorded.
fn block(tracer: &Tracer, parent: Option<&TraceContext>) -> f64 {
    let now = || {
        // The kernel counts what a thread has used when it may give way.
        std::thread::yield_now();
        cpu_of(Path::new("/proc/thread-self"))
    };
    let before = now();
    for _ in 0..REQUESTS {
        assert!(black_box(tracer).request("_OTHER", black_box(parent), TENANT).is_none());
    }
    (now() - before).as_nanos() as f64 / f64::from(REQUESTS)
}

/// The median, and the values that one in twenty is below and above.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [50, 5, 95].map(|percent| values[(values.len() - 1) * percent / 100])
}

/// A request that is not recorded meets its tracer once, when it begins. Requests with a tracer and without take turns.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn cost_of_requests_that_are_not_recorded() {
    let recorded = PARENT;
    let not_recorded = TraceContext { is_sampled: false, ..PARENT };
    let nothing = FollowedMax { per_tenant: 0, total: 0 };
    let without_budget = Tracer::start(TracerOptions { followed_max: nothing, ..options(9, 0.0) });
    for (name, tracer, parent) in [
        ("the ratio is 0", tracer(9, 0.0), None),
        ("the ratio is so low that none is recorded", tracer(9, 1e-12), None),
        ("the caller does not record", tracer(9, 0.0), Some(&not_recorded)),
        ("the caller records, and has no budget here", without_budget, Some(&recorded)),
    ] {
        let tracers = [tracer, Tracer::default()];
        let mut took = [Vec::new(), Vec::new()];
        for pair in 0..PAIRS {
            // Each is first as often as it is second.
            for which in [pair % 2, 1 - pair % 2] {
                took[which].push(block(&tracers[which], parent));
            }
        }
        let more = took[0].iter().zip(&took[1]).map(|(with, without)| with - without).collect();
        let [with, without] = took.map(|took| spread(took)[0]);
        let [more, least, most] = spread(more);
        eprintln!("{name}: {with:.1} ns, {without:.1} ns without traces, {more:.1} ns more ({least:.1} to {most:.1})");
    }
}
