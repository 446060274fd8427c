//! Calls that begin from a checkpoint, and those that must not.

use parking_lot::Mutex;

use super::*;
use bulkhead_calls::{Fenced, JournalPolicy, JournalSink, Tail};

/// Keeps a journal as a store does.
#[derive(Debug, Default)]
struct KeptStream(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// The place behind the last byte.
    offset: u64,
    stream: Vec<u8>,
    /// What was kept after each tail.
    all: Vec<History>,
}

impl KeptStream {
    /// Of a host that goes on with this.
    fn of(history: &History) -> Arc<Self> {
        let kept = Kept { offset: history.0.len() as u64, stream: history.0.to_vec(), all: Vec::new() };
        Arc::new(Self(Mutex::new(kept)))
    }

    fn all(&self) -> Vec<History> {
        self.0.lock().all.clone()
    }
}

#[async_trait::async_trait]
impl JournalSink for KeptStream {
    fn kept(&self) -> u64 {
        self.0.lock().offset
    }

    async fn append(&self, tail: Tail) -> Result<(), Fenced> {
        self.submit(tail);
        Ok(())
    }

    fn submit(&self, Tail { at, begins, bytes, .. }: Tail) {
        let mut kept = self.0.lock();
        if begins {
            kept.stream.clear();
        } else {
            assert_eq!(at, kept.offset, "a tail goes on where the one before it ended");
        }
        kept.stream.extend_from_slice(&bytes);
        kept.offset = at + bytes.len() as u64;
        let history = History(kept.stream.clone().into());
        kept.all.push(history);
    }

    async fn give_up(&self, reason: String) -> Result<(), Fenced> {
        panic!("the journal was given up: {reason}")
    }
}

const TOOL: &str = "saved_steps";

fn said(outcome: &Outcome) -> Value {
    let output = outcome.as_ref().unwrap();
    serde_json::from_str(output.structured.as_ref().unwrap().as_str()).unwrap()
}

async fn first(place: &Place, arguments: &Value) -> (Value, Vec<History>) {
    let sink = Arc::new(KeptStream::default());
    let journaling = Journaling::To { sink: Arc::clone(&sink) as _, policy: JournalPolicy::default() };
    let (outcome, _) = drive(place.start(TOOL, arguments, journaling), Levers::default()).await;
    (said(&outcome), sink.all())
}

async fn again(place: &Place, arguments: &Value, history: &History) -> (Value, Vec<History>) {
    let sink = KeptStream::of(history);
    let policy = JournalPolicy::default();
    let journaling =
        Journaling::From { history: history.clone(), spent: Spent::default(), sink: Arc::clone(&sink) as _, policy };
    let (outcome, _) = drive(place.start(TOOL, arguments, journaling), Levers::default()).await;
    (said(&outcome), sink.all())
}

async fn is_sound(place: &Place, arguments: &Value, history: &History) {
    let (_, report) = place.check(TOOL, arguments, history.clone()).await;
    assert_eq!(report.status, JournalStatus::Reached);
}

#[tokio::test(flavor = "multi_thread")]
async fn call_that_computes_begins_from_its_checkpoint() {
    let Some(place) = Place::of("probe", |_| {}).await else { return };
    let arguments = json!({"steps": 3, "counts": false, "rounds": 1000, "padding": 0});
    let (whole, kept) = first(&place, &arguments).await;
    assert_eq!((&whole["attempt"], &whole["restored"]), (&json!(1), &json!(0)), "{whole}");
    is_sound(&place, &arguments, &kept[0]).await;
    // The first checkpoint of each life is kept, and others come too soon after it.
    let (second, kept) = again(&place, &arguments, &kept[0]).await;
    assert_eq!((&second["attempt"], &second["restored"], &second["sum"]), (&json!(2), &json!(1), &whole["sum"]));
    is_sound(&place, &arguments, &kept[0]).await;
    let (third, kept) = again(&place, &arguments, &kept[0]).await;
    assert_eq!((&third["attempt"], &third["restored"], &third["sum"]), (&json!(3), &json!(2), &whole["sum"]));
    is_sound(&place, &arguments, &kept[0]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_last_state_is_kept_for_long() {
    let Some(place) = Place::of("probe", |_| {}).await else { return };
    let arguments = json!({"steps": 12, "counts": true, "rounds": 1, "padding": 100_000});
    let (whole, kept) = first(&place, &arguments).await;
    assert_eq!(whole["counts"].as_array().unwrap().len(), 12, "{whole}");
    assert!(kept.len() >= 12, "a state that follows an effect is kept: {}", kept.len());
    assert!(kept.iter().all(|history| history.0.len() < 300_000), "{:?}", kept.last());
    for history in kept {
        is_sound(&place, &arguments, &history).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn state_that_is_too_large_is_refused() {
    let Some(place) = Place::of("probe", |_| {}).await else { return };
    let arguments = json!({"steps": 1, "counts": false, "rounds": 1, "padding": 300_000});
    let (outcome, _) = place.record(TOOL, &arguments, Levers::default()).await;
    let said = format!("{outcome:?}");
    assert!(said.contains("bytes; at most 262144 are kept"), "{said}");
}
