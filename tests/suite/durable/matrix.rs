//! The crash matrix: for each tool, a host that ends at each of the places that it reaches, and at one of those of its
//! second life. It is tried with a kill, and with a power cut, after which the next host finds what was synced alone.
//!
//! A host with debug assertions does that, no release. The gate tries every eleventh pair of places, and fewer without
//! power, `XTASK_TEST_MODE=nightly` all of them. A whole run can be divided, `XTASK_CRASH_SHARD=i/n` with i from 1 on,
//! and goes on where it was if `XTASK_CRASH_LOG` names a file: it has a line for each pair that passed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::PathBuf;

use futures::StreamExt as _;
use serde_json::json;
use tests::modern::Modern;
use tests::power_cut::PowerCutLibrary;
use tests::{Setup, command, place, store_engine};

use super::cases::{CASES, Case};
use super::lives::{Ended, Ending, Place};

/// Lives at once: a host that ends waits for its disk most of the time.
const AT_ONCE: usize = 3;

/// Of the pairs of a kill, and of a power cut, the gate tries one in so many.
const KILLS_EVERY: u32 = 11;
/// The same where the store is in PostgreSQL: other places are between an effect and its record.
const KILLS_ON_POSTGRES_EVERY: u32 = 7;
const POWER_CUTS_EVERY: u32 = 19;

/// Which pairs are tried.
struct Plan {
    ending: Ending,
    stride: usize,
    shard: (usize, usize),
    log: Option<PathBuf>,
    /// The pairs that an earlier run of this log has seen pass.
    passed: BTreeSet<String>,
    /// Over all tools, so that the stride meets other places of each.
    counted: usize,
}

impl Plan {
    fn of_environment(ending: Ending) -> Self {
        let shard = match std::env::var("XTASK_CRASH_SHARD") {
            Ok(text) => {
                let shard = text.split_once('/').and_then(|(at, of)| Some((at.parse().ok()?, of.parse().ok()?)));
                let shard = shard.filter(|(at, of)| (1..=*of).contains(at));
                shard.unwrap_or_else(|| panic!("XTASK_CRASH_SHARD is `{text}`: use i/n, such as 1/4"))
            }
            Err(_) => (1, 1),
        };
        let log = std::env::var_os("XTASK_CRASH_LOG").map(PathBuf::from);
        let text = log.as_ref().and_then(|log| std::fs::read_to_string(log).ok()).unwrap_or_default();
        let passed = text.lines().filter_map(|line| Some(line.split_once(": ")?.0.to_owned())).collect();
        let every = match ending {
            Ending::Kill if store_engine::is_postgres() => KILLS_ON_POSTGRES_EVERY,
            Ending::Kill => KILLS_EVERY,
            Ending::PowerCut(_) => POWER_CUTS_EVERY,
        };
        Self { ending, stride: place::rounds(every, 1) as usize, shard, log, passed, counted: 0 }
    }

    /// The pairs of places of a tool whose host reaches `before` places before it listens, and `all` in a life without
    /// an end.
    fn pairs(&mut self, before: usize, all: usize) -> Vec<(usize, usize)> {
        let mut pairs = Vec::new();
        for first in before + 1..=all {
            self.counted += 1;
            // What is left for a second life, the places before it listens among them.
            let left = before + all - first + 3;
            let second = 1 + self.counted % left;
            let is_tried = self.counted.is_multiple_of(self.stride);
            if is_tried && self.counted / self.stride % self.shard.1 == self.shard.0 - 1 {
                pairs.push((first, second));
            }
        }
        pairs
    }

    fn note(&self, ended: &Ended) {
        let Some(log) = &self.log else { return };
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(log).expect("the log can be written");
        writeln!(file, "{}: {:?}", ended.what, ended.ends).expect("the log can be written");
    }
}

/// What came of the pairs of a tool.
#[derive(Default)]
struct Summary {
    pairs: usize,
    crashes: [usize; 2],
    in_doubt: usize,
    /// How often a host ended at each.
    places: BTreeMap<String, usize>,
    /// What a host reached that lived on.
    reached: BTreeSet<String>,
}

/// Where a call that leaves memory can be interrupted, and one that comes back.
const OF_DORMANT_TASKS: [&str; 5] = ["evict.before", "evict.after", "wake.permit", "wake.loaded", "wake.tail"];

impl Summary {
    fn add(&mut self, ended: &Ended) {
        self.pairs += 1;
        self.in_doubt += usize::from(ended.is_in_doubt());
        for (count, end) in self.crashes.iter_mut().zip(&ended.ends) {
            *count += usize::from(end.is_some());
            if let Some(place) = end {
                *self.places.entry(place.clone()).or_default() += 1;
            }
        }
    }
}

async fn place_of<'a>(case: &'a Case, plan: &'a Plan) -> Place<'a> {
    Place::new(case, Setup::new(), "auto", &plan.ending).await
}

async fn try_pair(case: &Case, (first, second): (usize, usize), plan: &Plan) -> Ended {
    let ended = place_of(case, plan).await.check(first, second).await;
    plan.note(&ended);
    ended
}

async fn try_case(case: &Case, plan: &mut Plan) -> Summary {
    let (before, names) = place_of(case, plan).await.named_places().await;
    let all = names.len();
    let mut pairs = plan.pairs(before, all);
    let planned = pairs.len();
    pairs.retain(|pair| !plan.passed.contains(&plan.ending.named_pair(case, *pair)));
    let mut summary = Summary { reached: names.into_iter().collect(), ..Summary::default() };
    {
        let plan = &*plan;
        let mut lives = futures::stream::iter(pairs).map(|pair| try_pair(case, pair, plan)).buffer_unordered(AT_ONCE);
        while let Some(ended) = lives.next().await {
            summary.add(&ended);
        }
    }
    if summary.crashes[0] == 0 && plan.shard.1 == 1 {
        // A tool without effects has few places, and none of them was to be tried; or those that were come last, which
        // are not reached each time. One in the middle is.
        summary.add(&try_pair(case, ((before + all).div_ceil(2), before + 1), plan).await);
    }
    if plan.stride == 1 && plan.shard.0 == plan.shard.1 {
        // How many places there are is not the same each time: on, until the first life has no further one.
        for further in 1.. {
            let ended = try_pair(case, (all + further, before + 1), plan).await;
            summary.add(&ended);
            if ended.ends[0].is_none() {
                break;
            }
        }
    }
    let Summary { pairs, crashes: [first, second], in_doubt, places, .. } = &summary;
    println!(
        "{}: {before} + {} places; {pairs} pairs, {} before; the host ended {first} times in its first life, {second} in its \
         second; in doubt {in_doubt}; {places:?}",
        case.name(),
        all - before,
        planned.saturating_sub(*pairs),
    );
    summary
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn durable_crash_matrix() {
    try_all(Ending::Kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn durable_power_cut_matrix() {
    if let Some(library) = PowerCutLibrary::compile() {
        try_all(Ending::PowerCut(library)).await;
    }
}

async fn try_all(ending: Ending) {
    if !place::has_crash_points() {
        eprintln!("not run: the host under test is no debug build, and so has no crash points");
        return;
    }
    let mut plan = Plan::of_environment(ending);
    let mut total = Summary::default();
    for case in &CASES {
        if place::left_out(case.languages) {
            continue;
        }
        let summary = try_case(case, &mut plan).await;
        let is_part = plan.shard.1 > 1 || !plan.passed.is_empty();
        assert!(is_part || summary.crashes[0] > 0, "{}: the host never ended", case.tool);
        total.pairs += summary.pairs;
        total.in_doubt += summary.in_doubt;
        total.reached.extend(summary.reached);
        for (count, of_case) in total.crashes.iter_mut().zip(summary.crashes) {
            *count += of_case;
        }
        for (place, count) in summary.places {
            *total.places.entry(place).or_default() += count;
        }
    }
    for name in OF_DORMANT_TASKS {
        assert!(total.reached.contains(name), "no case reaches {name}: {:?}", total.reached);
    }
    println!(
        "all: {} pairs; the host ended {} + {} times; in doubt {}; {:?}",
        total.pairs, total.crashes[0], total.crashes[1], total.in_doubt, total.places
    );
}

/// The module of the places, compiled as a release is: its own test says that nothing is reached there.
#[tokio::test]
async fn release_build_has_no_crash_points() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("crash_points");
    let mut rustc = tokio::process::Command::new("rustc");
    rustc.args(["--edition=2024", "--test", "-O", "-Cdebug-assertions=off", "-o"]).arg(&program);
    rustc.arg(place::root().join("host/domain/src/crash_points.rs"));
    for mut command in [rustc, tokio::process::Command::new(&program)] {
        let output = command::output(&mut command, &[], None).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

/// `.ci/run nightly` builds a release and runs this test with it.
#[tokio::test]
async fn release_host_lives_on_at_a_crash_point() {
    if place::has_crash_points() {
        eprintln!("not run: the host under test is a debug build");
        return;
    }
    // A host that starts writes to its store: it lives on, and says nothing of places.
    let host = Setup::with(&["text"]).env("CRASH_AT", "1").start().await;
    Modern::plain(&host, None).tool("echo", json!({"text": "words"})).await;
    assert!(!host.log().contains("crash point"), "{}", host.log());
}
