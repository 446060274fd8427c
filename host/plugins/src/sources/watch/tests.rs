//! A folder over a store that fails.

use std::collections::HashMap;

use super::*;
use crate::sources::{FetchOptions, Progress, Trust, oci};
use crate::tests::{SAME, start, text};
use bulkhead_domain::clock::ManualClock;
use bulkhead_store::memory::MemoryStore;

pub(crate) fn fetching() -> FetchOptions {
    FetchOptions {
        component_bytes_max: 64 << 20,
        fetch_max: Duration::from_secs(10),
        private_hosts: Vec::new(),
        plain_http_hosts: Vec::new(),
        roots: Vec::new(),
        logins: oci::Logins::default(),
        progress: Progress::default(),
    }
}

/// Looks when everything has settled, and what is to be tried again is due.
async fn look(watch: &Watch, known: &mut WatchState) -> Next {
    watch.look(known, scan(&watch.folders, &watch.intake.composed_files()), false).await;
    let [file] = known.seen.values_mut().collect::<Vec<_>>().try_into().map_err(|_| "one file").unwrap();
    file.since -= SETTLE;
    if let Next::Retry { at, .. } = &mut file.next {
        *at = Instant::now();
    }
    file.next
}

#[tokio::test(flavor = "multi_thread")]
async fn watched_plugin_retries_passing_failures_not_refusals() {
    let Some(candidate) = text(SAME, "The texts are waiting.") else { return };
    let store = Arc::new(MemoryStore::new());
    let clock = Arc::new(ManualClock::at(1));
    let world = start(&store, &clock).await;
    let folder = tempfile::tempdir().unwrap();
    let watch = Watch {
        folders: vec![folder.path().to_owned()],
        intake: Arc::new(ComponentFetcher::new(Trust::default(), fetching(), HashMap::new())),
        plugins: world.plugins.clone(),
        audit: Audit::off(),
    };
    let problems = async || {
        let listed = world.plugins.list().await.unwrap();
        listed.into_iter().flat_map(|line| line.problems).collect::<Vec<_>>().join("; ")
    };
    let mut known = WatchState::default();
    let file = folder.path().join("text.wasm");
    std::fs::write(&file, &candidate.bytes).unwrap();
    assert!(look(&watch, &mut known).await == Next::Take, "it has just come");
    for failed in 1..=2 {
        store.fail_next_writes(1);
        assert!(matches!(look(&watch, &mut known).await, Next::Retry { failed: times, .. } if times == failed));
        assert!(problems().await.contains("a write was made to fail; it is tried again"), "{}", problems().await);
    }
    assert!(look(&watch, &mut known).await == Next::Nothing, "it is active");
    assert_eq!((problems().await.as_str(), world.plugins.list().await.unwrap().len()), ("", 1));

    std::fs::write(&file, &candidate.bytes[..candidate.bytes.len() / 2]).unwrap();
    look(&watch, &mut known).await;
    assert!(look(&watch, &mut known).await == Next::Nothing, "nothing will make it whole");
    assert!(problems().await.contains("truncated"), "{}", problems().await);
}

#[test]
fn watch_retry_pauses_grow_up_to_a_maximum() {
    let mut next = Next::Take;
    let mut pauses = Vec::new();
    for _ in 0..40 {
        next = next.after_failure();
        let Next::Retry { at, .. } = next else { panic!("it is tried again") };
        pauses.push(at.duration_since(Instant::now()).as_millis().div_ceil(1000));
    }
    assert_eq!(pauses[..4], [5, 10, 20, 40]);
    assert_eq!(pauses[39], 300);
}

#[test]
fn parts_are_known_whatever_way_leads_to_them() {
    let real = tempfile::tempdir().unwrap();
    for name in ["first.wasm", "part.wasm", "other.wasm"] {
        std::fs::write(real.path().join(name), name).unwrap();
    }
    let link = real.path().join("link");
    std::os::unix::fs::symlink(real.path(), &link).unwrap();
    let source = |path: &Path| Source::File(path.to_owned());
    let compose = vec![source(&real.path().join("link/link/part.wasm"))];
    let configured = ConfiguredSource { source: source(&link.join("first.wasm")), compose, sha256: None };
    let configured = HashMap::from([("whole".to_owned(), configured)]);
    let intake = ComponentFetcher::new(Trust::default(), fetching(), configured);
    let names = |folder: &Path| {
        let found = scan(&[folder.to_owned()], &intake.composed_files()).components;
        found.into_iter().map(|(path, print)| (path.file_name().unwrap().to_owned(), print.len())).collect::<Vec<_>>()
    };
    // Of the first one, its own three files and the two of the part.
    let expected = [("first.wasm".into(), 5), ("other.wasm".into(), 3)];
    assert_eq!(names(real.path()), expected);
    assert_eq!(names(&link), expected);
}

#[tokio::test]
async fn composed_plugin_is_found_by_any_way_to_its_first_file_and_is_fetched_within_one_bound() {
    let folder = tempfile::tempdir().unwrap();
    let first = folder.path().join("first.wasm");
    let link = folder.path().join("link.wasm");
    std::fs::write(&first, vec![0; 700]).unwrap();
    std::os::unix::fs::symlink(&first, &link).unwrap();
    let source = Source::File(first);
    let wanted = ConfiguredSource { source: source.clone(), compose: vec![source], sha256: None };
    let configured = HashMap::from([("whole".to_owned(), wanted.clone())]);
    let fetching = FetchOptions { component_bytes_max: 1_000, ..fetching() };
    let intake = ComponentFetcher::new(Trust::default(), fetching, configured);
    let found = intake.configured_from(&Source::File(link)).await;
    assert_eq!(found, Some(("whole".to_owned(), wanted.clone())));
    let refused = intake.take_whole(&wanted).await.unwrap_err().to_string();
    assert!(refused.contains("has more than 300 bytes"), "{refused}");
}
