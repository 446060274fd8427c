//! What recording costs, measured by hand:
//! `cargo test --release -p bulkhead-traces cost -- --ignored --nocapture --test-threads 1`.

use std::path::Path;

use super::*;

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
        let (exported, dropped) = (tracer.spans_exported(), tracer.spans_dropped());
        eprintln!("{name}: {own} ns of CPU a call, {all} ns with the export; {exported} exported, {dropped} dropped");
    }
}
