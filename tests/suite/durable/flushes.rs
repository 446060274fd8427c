//! What a journal costs the disk: a flush before a request with an effect leaves, one that nobody waits for when it is answered, and none
//! for anything else.

use tests::{Setup, place};

use super::cases::CASES;
use super::lives::{Ending, Place};

/// The journal of a task is written with what the task writes anyway. A request with an effect is on the disk before it leaves, and its
/// answer soon after it came.
#[tokio::test]
async fn only_requests_with_an_effect_cost_flushes() {
    for case in CASES.iter().filter(|case| !place::left_out(case.languages)) {
        let count = async |durable| Place::new(case, Setup::new(), durable, &Ending::Kill).await.count_syncs().await;
        let mut seen = Vec::new();
        // A host may write something else meanwhile, which only adds.
        let fits = loop {
            let ((on, posts), (off, _)) = (count("auto").await, count("off").await);
            seen.push(format!("{on} syncs with a journal, {off} without, {posts} requests with an effect"));
            let fits = on <= off + f64::from(2 * posts);
            if fits || seen.len() == 3 {
                break fits;
            }
        };
        println!("{}: {seen:?}", case.name());
        assert!(fits, "{}: {seen:?}", case.name());
    }
}
