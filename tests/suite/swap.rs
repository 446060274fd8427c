//! Many switches in a row on a busy host: no call fails, none runs on a version that was not the active one when it
//! began, and nothing is left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bulkhead_control::Operator as _;
use bulkhead_control::client::ControlClient as Control;
use bulkhead_control::commands::{PluginActivate, PluginTarget};
use serde_json::{Value, json};
use tests::client::{Client, text};
use tests::modern::Modern;
use tests::place::{rounds, variant};
use tests::wait::until;
use tests::{Host, Setup, command};

const DIFF: [&str; 2] = ["The texts are the same.", "The texts are the SAME."];
const TRIP: [&str; 2] = [" seats to ", " chairs to"];

/// Which version is active, for calls to be held against.
#[derive(Default)]
struct Course {
    /// Odd while a switch is under way; half of it counts the switches that are done.
    steps: AtomicU64,
    over: AtomicBool,
    calls: AtomicU64,
    /// Calls that began and ended between two switches, so that only one version was possible.
    certain: AtomicU64,
}

impl Course {
    fn now(&self) -> u64 {
        self.steps.load(Ordering::SeqCst)
    }

    /// Holds what a call said against the versions that may have been active while it began.
    fn check(&self, said: &str, markers: [&str; 2], begun: (u64, u64)) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let is = |version: usize| said.contains(markers[version]);
        assert!(is(0) || is(1), "no version says {said:?}");
        if begun.0 == begun.1 && begun.0.is_multiple_of(2) {
            self.certain.fetch_add(1, Ordering::SeqCst);
            let active = usize::try_from(begun.0 / 2 % 2).expect("0 or 1");
            assert!(is(active), "after {} switches a call said {said:?}", begun.0 / 2);
        }
    }

    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::SeqCst)
    }
}

fn summary(result: &Value) -> &str {
    result["structuredContent"]["summary"].as_str().unwrap_or_else(|| panic!("no summary: {result}"))
}

fn journey() -> Value {
    json!({"journey": {"action": "accept", "content": {"destination": "Rome", "travellers": 2}}})
}

fn details() -> Value {
    json!({"details": {"action": "accept", "content": {"class": "economy", "confirm": true}}})
}

async fn plain_calls(course: Arc<Course>, client: Client) -> Vec<Duration> {
    let mut took = Vec::new();
    while course.goes_on() {
        let before = course.now();
        let start = Instant::now();
        let done = client.tool("diff", json!({"before": "a", "after": "a"})).await.expect("no call fails");
        took.push(start.elapsed());
        course.check(text(&done), DIFF, (before, course.now()));
    }
    took
}

/// Tasks that ask; every other one is paused for a while in between.
async fn tasks(course: Arc<Course>, client: Client, modern: Modern) {
    for number in 0.. {
        if !course.goes_on() {
            return;
        }
        let before = course.now();
        let task = client.task("book_trip", json!({})).await;
        let begun = (before, course.now());
        modern.until_status(&task, "input_required").await;
        if number % 2 == 0 {
            modern.result("tasks/pause", json!({"taskId": task})).await;
            tokio::time::sleep(Duration::from_millis(60)).await;
            modern.result("tasks/resume", json!({"taskId": task})).await;
        }
        for (key, answers) in [("journey", journey()), ("details", details())] {
            until("the question", async || {
                let now = modern.result("tasks/get", json!({"taskId": task})).await;
                now["inputRequests"].get(key).is_some().then_some(())
            })
            .await;
            modern.result("tasks/update", json!({"taskId": task, "inputResponses": answers})).await;
        }
        let done = modern.until_status(&task, "completed").await;
        course.check(summary(&done["result"]), TRIP, begun);
    }
}

/// Calls that stand still between rounds of questions.
async fn rounds_of_questions(course: Arc<Course>, modern: Modern) {
    while course.goes_on() {
        let before = course.now();
        let mut asked = modern.tool("book_trip", json!({})).await;
        let begun = (before, course.now());
        for answers in [journey(), details()] {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let retry = json!({"name": "book_trip", "arguments": {}, "requestState": asked["requestState"],
                "inputResponses": answers});
            asked = modern.result("tools/call", retry).await;
        }
        course.check(summary(&asked), TRIP, begun);
    }
}

/// Resident memory in KiB, and open files.
fn footprint(host: &Host) -> (u64, usize) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", host.pid())).expect("the process is there");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
    let memory = line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number");
    let files = std::fs::read_dir(format!("/proc/{}/fd", host.pid())).expect("the process is there").count();
    (memory, files)
}

fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times.get(times.len().saturating_sub(1) * percent / 100).copied().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_call_fails_or_mixes_versions_during_switches() {
    let limits = "[limits]\nrequests_per_second = 100000\ntask_creations_per_second = 100000\n\
        tasks_stored_per_requestor = 1000000\ntasks_stored_per_tenant = 1000000";
    let setup = Setup::with(&["text", "desk"]).config(limits);
    let host = setup.start().await;
    let mut versions = [Vec::new(), Vec::new()];
    for (name, from, to) in [("text", DIFF[0], DIFF[1]), ("desk", TRIP[0], TRIP[1])] {
        let first = command::json(&["plugin", "versions", name], &setup.data()).await;
        let path = setup.path(&format!("{name}-2.wasm"));
        std::fs::write(&path, variant(name, from, to)).expect("the component is written");
        let path = path.display().to_string();
        let second = command::json(&["plugin", "stage", &path, "--name", name], &setup.data()).await;
        for (set, digest) in versions.iter_mut().zip([&first["versions"][0]["version"], &second["version"]]) {
            let version = Some(digest.as_str().expect("a digest").to_owned());
            set.push(PluginTarget { name: name.to_owned(), version });
        }
    }
    let course = Arc::new(Course::default());
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..2 {
        callers.spawn(plain_calls(course.clone(), Client::connect(&host).await));
    }
    let mut others = tokio::task::JoinSet::new();
    for _ in 0..2 {
        others.spawn(tasks(course.clone(), Client::connect(&host).await, Modern::full(&host, None)));
        others.spawn(rounds_of_questions(course.clone(), Modern::plain(&host, None)));
    }

    let control = Control::connect(&setup.data()).await.expect("the socket").expect("a host");
    let mut took = Vec::new();
    let mut settled = None;
    let swaps = rounds(200, 1_000);
    for swap in 1..=swaps {
        let targets = versions[usize::try_from(swap % 2).expect("0 or 1")].clone();
        course.steps.fetch_add(1, Ordering::SeqCst);
        let start = Instant::now();
        let done = control.execute(PluginActivate { targets, accept: false }).await.expect("it is done");
        took.push(start.elapsed());
        course.steps.fetch_add(1, Ordering::SeqCst);
        assert!(done.is_done(), "{done:?}");
        // Some switches follow each other at once, others leave time for whole calls.
        if swap % 3 != 0 {
            tokio::time::sleep(Duration::from_millis(80)).await;
        }
        if swap == swaps / 4 {
            settled = Some(footprint(&host));
        }
    }
    course.over.store(true, Ordering::SeqCst);
    let mut calls = Vec::new();
    while let Some(done) = callers.join_next().await {
        calls.extend(done.expect("no call failed"));
    }
    while let Some(done) = others.join_next().await {
        done.expect("no call failed");
    }
    let (memory, files) = footprint(&host);
    let (memory_before, files_before) = settled.expect("it was looked at");
    let all = course.calls.load(Ordering::SeqCst);
    let certain = course.certain.load(Ordering::SeqCst);
    assert!(certain > 10, "{certain} of {all} calls prove something");
    assert!(files <= files_before + 16, "{files_before} open files became {files}");
    assert!(memory <= memory_before * 5 / 4 + 32_768, "{memory_before} KiB became {memory}");
    println!(
        "{swaps} switches (p50 {:?}, p99 {:?}), {all} calls ({certain} certain), plain calls p99 {:?}, {memory_before} -> {memory} KiB, \
         {files_before} -> {files} files",
        percentile(&mut took, 50),
        percentile(&mut took, 99),
        percentile(&mut calls, 99),
    );

    // What is left of either version goes away by itself.
    until("the other versions to retire", async || {
        for name in ["text", "desk"] {
            let shown = command::json(&["plugin", "versions", name], &setup.data()).await;
            let drains = shown["versions"].as_array()?.iter().any(|version| version["state"] == "draining");
            if drains {
                return None;
            }
        }
        Some(())
    })
    .await;
}

/// The heap that a host gives back only now and then, and what its thread pools hold.
const MEMORY_KIB_SPARE: u64 = 8 << 10;

#[tokio::test(flavor = "multi_thread")]
async fn many_switches_leak_no_memory_or_files() {
    let setup = Setup::with(&["text"]).config("[limits]\nrequests_per_second = 100000");
    let host = setup.start().await;
    let first = command::json(&["plugin", "versions", "text"], &setup.data()).await;
    let path = setup.path("text-2.wasm");
    std::fs::write(&path, variant("text", DIFF[0], DIFF[1])).expect("the component is written");
    let second =
        command::json(&["plugin", "stage", &path.display().to_string(), "--name", "text"], &setup.data()).await;
    let versions =
        [&first["versions"][0]["version"], &second["version"]].map(|digest| digest.as_str().map(str::to_owned));
    let control = Control::connect(&setup.data()).await.expect("the socket").expect("a host");
    let client = Client::connect(&host).await;
    let switches = rounds(1_000, 20_000);
    let mut seen = Vec::new();
    for switch in 1..=switches {
        let to = usize::try_from(switch % 2).expect("0 or 1");
        let targets = vec![PluginTarget { name: "text".to_owned(), version: versions[to].clone() }];
        let done = control.execute(PluginActivate { targets, accept: false }).await.expect("it is done");
        assert!(done.is_done(), "{done:?}");
        if switch % 10 == 0 {
            let said = client.tool("diff", json!({"before": "a", "after": "a"})).await.expect("no call fails");
            assert_eq!(text(&said), DIFF[to], "after {switch} switches");
        }
        if switch % (switches / 5) == 0 {
            seen.push(footprint(&host));
        }
    }
    println!("{switches} switches, memory in KiB and open files after each fifth of them: {seen:?}");
    // The first fifth fills the caches of the store and of the allocator.
    let (memory_before, files_before) = seen[0];
    for (memory, files) in &seen[1..] {
        assert!(*files <= files_before + 4, "{files_before} open files became {files}");
        assert!(*memory <= memory_before + MEMORY_KIB_SPARE, "{memory_before} KiB became {memory}");
    }
    let shown = command::json(&["plugin", "versions", "text"], &setup.data()).await;
    assert_eq!(shown["versions"].as_array().map(Vec::len), Some(2), "{shown}");
}

/// What can be seen of a switch to a version that is new, in the order in which it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// Its component is in the data directory; the store does not know it yet, or has just heard of it.
    Kept,
    /// Its code is in the cache: it is linked, listed and compared now.
    Compiled,
    /// The store has the switch; the table is exchanged now.
    Committed,
    /// A call was on the new version; the one before retires.
    Published,
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_during_switch_leaves_old_or_new_version() {
    let setup = Setup::with(&["text"]).own_code().config("[limits]\nrequests_per_second = 100000\n");
    let data = setup.data();
    let count = |folder: &str, ending: &str| {
        let files = std::fs::read_dir(data.join(folder)).expect("a folder").flatten();
        files.filter(|file| file.file_name().to_string_lossy().ends_with(ending)).count()
    };
    let said = async |client: &Client| {
        let done = client.tool("diff", json!({"before": "a", "after": "a"})).await.expect("no call fails");
        text(&done).to_owned()
    };
    let steps = [Step::Kept, Step::Compiled, Step::Committed, Step::Published];
    let mut old = DIFF[0].to_owned();
    for round in 0..rounds(8, 200) {
        let step = steps[usize::try_from(round).expect("a small number") % steps.len()];
        let new = format!("The texts are the {round:04}.");
        let path = setup.path("new.wasm");
        std::fs::write(&path, variant("text", DIFF[0], &new)).expect("the component is written");
        let host = setup.start().await;
        let client = Client::connect(&host).await;
        let components = count("components", ".wasm");
        let codes = count("cache", ".cwasm");
        let switches = host.log().matches("switched").count();
        let mut add = command::bulkhead();
        add.args(["plugin", "add"]).arg(&path).args(["--name", "text", "--data"]).arg(&data);
        let adding = tokio::spawn(async move { add.output().await.expect("the command starts").status.success() });
        loop {
            let reached = match step {
                Step::Kept => count("components", ".wasm") > components,
                Step::Compiled => count("cache", ".cwasm") > codes,
                Step::Committed => host.log().matches("switched").count() > switches,
                Step::Published => said(&client).await == new,
            };
            if reached {
                break;
            }
            tokio::task::yield_now().await;
        }
        host.kill().await;
        let acknowledged = adding.await.expect("the command ends");

        let host = setup.start().await;
        let now = said(&Client::connect(&host).await).await;
        assert!(now == old || now == new, "killed when {step:?}, it says {now:?}");
        if acknowledged || step >= Step::Committed {
            assert_eq!(now, new, "killed when {step:?}");
        }
        let shown = command::json(&["plugin", "versions", "text"], &data).await;
        let active = shown["versions"].as_array().expect("a list").iter().filter(|one| one["state"] == "active");
        assert_eq!(active.count(), 1, "killed when {step:?}: {shown}");
        assert_eq!(command::json(&["plugin", "verify"], &data).await["sound"], true, "whatever is known is there");
        old = now;
        host.terminate().await;
    }
}
