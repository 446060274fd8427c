//! What counting costs a call of a tool, measured by hand:
//! `cargo test --release -p bulkhead-metrics cost -- --ignored --nocapture --test-threads 1`.
//!
//! A call here is what one plain `tools/call` does with handles, in that order, with its readings of the clock. Calls
//! with metrics and calls without take turns in one process, because two processes differ by more than what is looked
//! for. What the host does either way and without this crate is left out: permits, shares, and the bytes and calls of
//! tenants. A ticking engine counts once a tick, and a scrape reads; neither is part of a call.

use std::array::from_fn;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use super::*;

/// Calls of one block.
const CALLS: usize = 20_480;
/// Blocks with metrics, and as many without.
const PAIRS: usize = 201;
/// The handles of so many tools are larger than the first cache, as they are to a call that comes after another one's
/// guest.
const SOME: usize = 256;
/// The handles of so many tools are larger than a core's own caches.
const MANY: usize = 4_096;
const TRACE: [u8; 16] = [7; 16];

/// CPU time of this thread so far.
fn cpu() -> Duration {
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(cpu.tv_sec.try_into().unwrap(), cpu.tv_nsec.try_into().unwrap())
}

/// What the host holds for the calls of one tool.
struct Handles {
    metrics: Metrics,
    tasks: Arc<OnceLock<TaskMetrics>>,
    plugin: PluginMetrics,
    tool: ToolMetrics,
    of_tool: Arc<ActivityCounts>,
    of_requestor: Arc<ActivityCounts>,
}

impl Handles {
    /// Of so many tools, each of a plugin of its own. Each has been called once: the first call makes series.
    fn of_tools(metrics: &Metrics, tools: usize) -> Vec<Self> {
        let tasks = Arc::new(TaskMetrics::of(metrics).map_or_else(OnceLock::new, OnceLock::from));
        let handles = |number: usize| {
            let name = format!("plugin{number}");
            let plugin = metrics.plugin(&name);
            let tool = metrics.tool(&plugin, &format!("{name}_echo"));
            let of_tool = metrics.activity().tool(&name, &format!("{name}_echo"));
            let of_requestor = metrics.activity().counts();
            Self { metrics: metrics.clone(), tasks: Arc::clone(&tasks), plugin, tool, of_tool, of_requestor }
        };
        let all: Vec<_> = (0..tools).map(handles).collect();
        all.iter().for_each(|handles| call(handles, PLAIN));
        all
    }
}

/// What kind of call it is.
#[derive(Clone, Copy)]
struct Case {
    /// It finds no room to run at once.
    waits: bool,
    /// Its client names a trace.
    is_traced: bool,
    /// Another thread calls the same tool all the time.
    is_shared: bool,
}

const PLAIN: Case = Case { waits: false, is_traced: false, is_shared: false };

/// One call. What the host comes to count in a call belongs here, too.
#[inline(never)]
fn call(handles: &Handles, case: Case) {
    // The request begins.
    let begun = Instant::now();
    if case.waits {
        let since = Instant::now();
        if let Some(tasks) = handles.tasks.get() {
            tasks.waited(Waiting::Plain, since.elapsed());
        }
    }
    // The call begins, and its guest gets what requests over HTTP are counted with.
    let since = handles.plugin.is_on().then(Instant::now);
    let activity = OnceLock::from((Arc::clone(&handles.of_tool), Arc::clone(&handles.of_requestor)));
    let egress = black_box(handles.plugin.clone());
    // It uses its CPU time in one turn.
    if let Some((of_tool, of_requestor)) = black_box(&activity).get() {
        of_tool.cpu_used(20);
        of_requestor.cpu_used(20);
    }
    drop(egress);
    // The call ends, and no operator looks.
    if let Some((of_tool, of_requestor)) = black_box(&activity).get()
        && of_tool.is_watched()
    {
        of_tool.call_ended(Outcome::Ok, begun.elapsed());
        of_requestor.call_ended(Outcome::Ok, begun.elapsed());
    }
    if let Some(since) = since {
        handles.plugin.call_ended(Duration::from_micros(20), since.elapsed());
        handles.tool.call_ended(Outcome::Ok);
    }
    drop(activity);
    // The request ends.
    let took = black_box(begun.elapsed());
    if handles.metrics.is_on() {
        let trace_id = case.is_traced.then_some(&TRACE);
        handles.tool.operation.ended(took, Answer::Result, black_box("2025-11-25"), Transport::Http, trace_id);
    }
}

/// Nanoseconds of CPU that each call of a block takes.
fn block(tools: &[Handles], case: Case) -> f64 {
    let begun = AtomicBool::new(!case.is_shared);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if case.is_shared {
            scope.spawn(|| {
                while !ended.load(Relaxed) {
                    call(&tools[0], case);
                    begun.store(true, Relaxed);
                }
            });
        }
        while !begun.load(Relaxed) {
            std::thread::yield_now();
        }
        let before = cpu();
        // Far from each other, so that no tool is fetched ahead.
        (0..CALLS).for_each(|number| call(black_box(&tools[number * 1_667 % tools.len()]), case));
        let took = cpu() - before;
        ended.store(true, Relaxed);
        took.as_nanos() as f64 / CALLS as f64
    })
}

/// The median, and the values that one in twenty is below and above.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [50, 5, 95].map(|percent| values[(values.len() - 1) * percent / 100])
}

/// Measures calls with metrics and without, in turns.
fn compare(name: &str, tools: usize, case: Case) {
    let counts = [Metrics::new(MetricsOptions { series_max: 1_000_000, tools: true }), Metrics::off()];
    let handles = counts.each_ref().map(|metrics| Handles::of_tools(metrics, tools));
    assert_eq!(counts.each_ref().map(|metrics| metrics.series(&families::CALLS).len()), [tools, 0]);
    let mut took: [Vec<f64>; 2] = from_fn(|_| Vec::new());
    for pair in 0..PAIRS {
        // Each is first as often as it is second.
        for which in [pair % 2, 1 - pair % 2] {
            took[which].push(block(&handles[which], case));
        }
    }
    let more = took[0].iter().zip(&took[1]).map(|(on, off)| on - off).collect();
    let [on, off] = took.map(|took| spread(took)[0]);
    let [more, least, most] = spread(more);
    eprintln!("{name}: {on:.0} ns with metrics, {off:.0} ns without, {more:.0} ns more ({least:.0} to {most:.0})");
}

#[test]
#[ignore = "a measurement"]
fn cost_of_counted_calls() {
    let reading = |_| {
        let before = cpu();
        (0..CALLS).for_each(|_| _ = black_box(Instant::now()));
        (cpu() - before).as_nanos() as f64 / CALLS as f64
    };
    eprintln!("a reading of the clock: {:.0} ns", spread((0..PAIRS).map(reading).collect())[0]);
    for (name, tools, case) in [
        ("a call", 1, PLAIN),
        ("of one of 256 tools in turn", SOME, PLAIN),
        ("of one of 4,096 tools in turn", MANY, PLAIN),
        ("that waited for room", 1, Case { waits: true, ..PLAIN }),
        ("of a client that names a trace", 1, Case { is_traced: true, ..PLAIN }),
        ("while another thread calls the tool", 1, Case { is_shared: true, ..PLAIN }),
    ] {
        compare(name, tools, case);
    }
}
