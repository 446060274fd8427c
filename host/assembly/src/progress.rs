//! What is said about the start of a host: in its log, and to the commands that come during it.

use std::sync::Arc;
use std::time::Duration;

use bulkhead_control::server::DescribeStart;
use bulkhead_domain::text::on_terminal;
use bulkhead_runtime::LoadProgress;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// What is over by then needs no line.
const QUIET: Duration = Duration::from_secs(1);
/// Between two lines.
const EVERY: Duration = Duration::from_secs(10);

/// Does a part of the start, and says in the log what it is while it takes long.
pub(super) async fn logged<T>(what: impl Fn() -> String, work: impl Future<Output = T>) -> T {
    // Large, and would be so once more in every future around it.
    let mut work = Box::pin(work);
    let begun = Instant::now();
    let mut next = begun + QUIET;
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = sleep_until(next) => {
                let what = what();
                tracing::info!(seconds = begun.elapsed().as_secs(), "{what}");
            }
        }
        next = Instant::now() + EVERY;
    }
}

/// How far the start of a host is, for commands that come during it.
#[derive(Clone)]
pub(super) struct StartStage(Arc<Mutex<DescribeStart>>);

impl StartStage {
    pub(super) fn begin() -> Self {
        Self(Arc::new(Mutex::new(Arc::new(|| "reading its configuration and its store".to_owned()))))
    }

    /// What it does from now on.
    pub(super) fn enter(&self, describe: impl Fn() -> String + Send + Sync + 'static) {
        *self.0.lock() = Arc::new(describe);
    }

    pub(super) fn describe(&self) -> String {
        let describe = Arc::clone(&self.0.lock());
        describe()
    }
}

/// What a host does about its plugins before it serves.
pub(super) fn describe_loading(progress: &LoadProgress) -> String {
    let LoadProgress { begun, over, compiling } = progress;
    let compiling: Vec<_> =
        compiling.iter().map(|plugin| plugin.chars().map(on_terminal).collect::<String>()).collect();
    match (begun, compiling.is_empty()) {
        (0, _) => "reading the components of plugins".to_owned(),
        (_, true) => format!("loading plugins, {over} of {begun} done"),
        (_, false) => format!("loading plugins, {over} of {begun} done: compiling {}", compiling.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn slow_start_is_told_after_a_second_and_then_every_ten() {
        for (work_ms, times) in [(999, 0), (2_500, 1), (25_000, 3)] {
            let told = Cell::new(0);
            let what = || {
                told.set(told.get() + 1);
                "loading".to_owned()
            };
            logged(what, sleep(Duration::from_millis(work_ms))).await;
            assert_eq!(told.get(), times, "{work_ms} ms");
        }
    }

    #[test]
    fn loading_is_described_by_what_is_done_and_what_is_compiled() {
        let mut progress = LoadProgress::default();
        assert_eq!(describe_loading(&progress), "reading the components of plugins");
        (progress.begun, progress.over) = (5, 2);
        assert_eq!(describe_loading(&progress), "loading plugins, 2 of 5 done");
        progress.compiling = vec!["csv".to_owned(), "a\u{1b}b".to_owned()];
        let said = describe_loading(&progress);
        assert!(said.starts_with("loading plugins, 2 of 5 done: compiling csv, a"), "{said}");
        assert!(!said.contains('\u{1b}'), "{said:?}");
    }
}
