//! Answers in every order, before and after a timer, and more that is ready at once than a thread likes to look at.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::outside::REACHED;
use super::*;

const REQUESTS: usize = 4;
/// Long after all answers on an idle machine. On a loaded one the order is another, and has to replay as well.
const LATE_MS: u64 = 80;

/// A server that answers requests in one order: each when the guest has seen the answers before it.
#[derive(Debug)]
struct Ordered {
    /// The paths of requests.
    order: Vec<usize>,
    /// How much else the guest sees first.
    first: usize,
    values: Arc<Values>,
}

impl Ordered {
    /// How much the guest says that it has seen.
    fn settled(&self) -> usize {
        let values = self.values.0.lock();
        values.get("settled").and_then(|count| String::from_utf8_lossy(count).parse().ok()).unwrap_or_default()
    }
}

impl OutsideWorld for Ordered {
    fn unix_ms(&self) -> Option<u64> {
        None
    }

    fn answer(&self, request: http::Request<Bytes>) -> Option<http::Response<Bytes>> {
        let number: usize = request.uri().path().trim_start_matches('/').parse().ok()?;
        let turn = self.first + self.order.iter().position(|of| *of == number)?;
        let until = std::time::Instant::now() + Duration::from_secs(30);
        tokio::task::block_in_place(|| {
            while self.settled() < turn {
                assert!(std::time::Instant::now() < until, "the guest does not see what came before");
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        http::Response::builder().body(Bytes::from(format!("answer {number}"))).ok()
    }
}

/// All orders of so many things.
fn orders(of: &[usize]) -> Vec<Vec<usize>> {
    let Some((first, rest)) = of.split_first() else { return vec![Vec::new()] };
    let places = |order: Vec<usize>| {
        (0..=order.len()).map(move |at| {
            let mut order = order.clone();
            order.insert(at, *first);
            order
        })
    };
    orders(rest).into_iter().flat_map(places).collect()
}

/// What is over, in the order in which the guest saw it.
fn seen(outcome: &Outcome) -> Vec<usize> {
    let text = outcome.as_ref().unwrap().structured.as_ref().unwrap().as_str();
    let report: Value = serde_json::from_str(text).unwrap();
    let last = report["seen"].as_array().unwrap().last().unwrap()["saw"].as_str().unwrap().to_owned();
    last.split("; ").filter_map(|what| what.split_once(':')?.0.parse().ok()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn answers_in_every_order_replay() {
    let Some(place) = Place::of("durable", |_| {}).await else { return };
    let mut met = BTreeSet::new();
    for (order, late) in orders(&[0, 1, 2, 3]).into_iter().flat_map(|order| [(order.clone(), false), (order, true)]) {
        place.values.0.lock().clear();
        let mut acts = vec![json!("get"); REQUESTS];
        acts.push(json!({"timer": {"ms": if late { LATE_MS } else { 1 }}}));
        acts.push(json!("settle"));
        let arguments = json!({"acts": acts});
        let running = place.house.start_with("script", &arguments.to_string(), |spec| {
            spec.journaling = Journaling::InMemory;
            let order = order.clone();
            let values = Arc::clone(&place.values);
            let first = usize::from(!late);
            spec.facts.outside = Some(Arc::new(Ordered { order, first, values }));
            spec.facts.guest_services = Some(Arc::clone(&place.values) as Arc<dyn GuestServices>);
        });
        let (outcome, recorded) = drive(running, Levers::default()).await;
        let recorded = recorded.unwrap();
        assert_eq!(recorded.status, JournalStatus::Ended, "{order:?}: {outcome:?}");
        let came: Vec<_> = seen(&outcome).into_iter().filter(|what| *what < REQUESTS).collect();
        assert_eq!(came, order, "the guest saw the answers in the order in which they came");
        met.insert(seen(&outcome));
        for _ in 0..2 {
            let (again, replayed) = place.replay("script", &arguments, recorded.history.clone()).await;
            assert_eq!((comparable(&again), replayed), (comparable(&outcome), recorded.clone()), "{order:?}");
        }
    }
    assert!(met.len() > 24, "the timer was never elsewhere: {} orders", met.len());
    assert_eq!(REACHED.load(Ordering::SeqCst), 0);
}

/// A thread that has looked at much in a row is told that nothing is ready, whatever is.
#[tokio::test(flavor = "multi_thread")]
async fn much_that_is_ready_at_once_replays() {
    let Some(place) = Place::of("durable", |_| {}).await else { return };
    let mut acts = vec![json!({"timer": {"ms": 0}}); 300];
    acts.extend(vec![json!("get"); 5]);
    acts.push(json!({"timer": {"ms": 3}}));
    acts.extend([json!({"spin": {"ms": 2}}), json!("poll"), json!("settle")]);
    let arguments = json!({"acts": acts});
    let (outcome, recorded) = place.record("script", &arguments, Levers::default()).await;
    assert_eq!(recorded.status, JournalStatus::Ended, "{outcome:?}");
    let text = outcome.as_ref().unwrap().structured.as_ref().unwrap().as_str().to_owned();
    let report: Value = serde_json::from_str(&text).unwrap();
    let first = &report["seen"][307]["saw"];
    assert!(first.as_str().unwrap().matches(": over").count() >= 300, "all that is ready is seen at once: {first}");
    let (again, replayed) = place.replay("script", &arguments, recorded.history.clone()).await;
    assert_eq!((comparable(&again), replayed), (comparable(&outcome), recorded));
}
