//! What a journal costs the disk: a flush before a request with an effect leaves, and none for anything else.

use tests::{Setup, place};

use super::cases::CASES;
use super::lives::{Ending, Place};

/// The journal of a task is written with what the task writes anyway, the answer to a request with an effect among it.
/// The request itself is on the disk before it leaves; its answer is kept by itself where the call writes nothing soon.
#[tokio::test]
async fn only_requests_with_an_effect_cost_flushes() {
    // What leaves memory has it written that it does.
    for case in CASES.iter().filter(|case| !case.evicts && !place::left_out(case.languages)) {
        let count = async |durable| Place::new(case, Setup::new(), durable, &Ending::Kill).await.count_syncs().await;
        let mut seen = Vec::new();
        // A host may write something else meanwhile, which only adds.
        let fits = loop {
            let ((on, posts), (off, _)) = (count("auto").await, count("off").await);
            seen.push(format!("{on} syncs with a journal, {off} without, {posts} requests with an effect"));
            let fits = on <= off + f64::from(posts * if case.rests { 2 } else { 1 });
            if fits || seen.len() == 6 {
                break fits;
            }
        };
        println!("{}: {seen:?}", case.name());
        assert!(fits, "{}: {seen:?}", case.name());
    }
}
