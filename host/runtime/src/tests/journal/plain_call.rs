//! The journal of a plain call, which is there in case the call becomes a task.

use parking_lot::Mutex;

use super::*;
use bulkhead_calls::{Fenced, JournalPolicy, JournalSink, Tail};

/// Takes what a plain call submits.
#[derive(Debug, Default)]
pub(super) struct PlainCallSink(Mutex<Vec<Tail>>);

#[async_trait::async_trait]
impl JournalSink for PlainCallSink {
    fn kept(&self) -> u64 {
        self.0.lock().last().map_or(0, |tail| tail.at + tail.bytes.len() as u64)
    }

    fn is_eager(&self) -> bool {
        true
    }

    async fn append(&self, tail: Tail) -> Result<(), Fenced> {
        self.submit(tail);
        Ok(())
    }

    fn submit(&self, tail: Tail) {
        self.0.lock().push(tail);
    }

    async fn give_up(&self, reason: String) -> Result<(), Fenced> {
        panic!("the journal was given up: {reason}")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn safe_points_write_time_only_for_a_task() {
    let Some(place) = Place::of("primes", |_| {}).await else { return };
    // Some hundred safe points, about a millisecond apart.
    let tool = "count_primes";
    let arguments = json!({"below": 100_000_000});
    let sink = Arc::new(PlainCallSink::default());
    let journaling =
        Journaling::To { sink: Arc::clone(&sink) as Arc<dyn JournalSink>, policy: JournalPolicy::default() };
    let (outcome, _) = drive(place.start(tool, &arguments, journaling), Levers::default()).await;
    assert!(outcome.is_ok(), "{outcome:?}");
    let submitted = sink.0.lock().len();
    assert_eq!(submitted, 0, "nobody brings the call back");
    // That a journal grows is how a task shows that it gets on, however often its host is killed.
    let (_, report) = place.record(tool, &arguments, Levers::default()).await;
    assert!(report.entries > 10, "{} entries", report.entries);
}
