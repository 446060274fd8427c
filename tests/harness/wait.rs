//! Waiting with an end.

use std::time::Duration;

/// Longer than anything here takes on a slow machine: a test that waits this long hangs.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Waits for something that must come. What is waited for goes to the heap: whole suites are waited for through here.
pub fn soon<T>(what: &str, future: impl Future<Output = T>) -> impl Future<Output = T> {
    let future = Box::pin(future);
    async move {
        match tokio::time::timeout(PATIENCE, future).await {
            Ok(value) => value,
            Err(_) => panic!("waited {PATIENCE:?} for {what}"),
        }
    }
}

/// Asks again and again until there is an answer.
pub fn until<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> impl Future<Output = T> {
    soon(what, async move {
        loop {
            if let Some(value) = ask().await {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
}
