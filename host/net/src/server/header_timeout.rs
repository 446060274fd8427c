//! How long a connection may take to send the headers of its next request.
//!
//! Owns one timer for each connection, however many requests come on it: a new one for each would take the lock of all
//! timers twice a request. Invariant: a wait is over at its own deadline, whatever the timer was set to before.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};
use parking_lot::Mutex;

/// The timer of one connection, as hyper asks for it. It stays where it was set: when it fires too early for the wait
/// that there is by then, it is set anew.
#[derive(Clone, Default)]
pub(super) struct HeaderTimeout(Arc<Mutex<Option<Pin<Box<tokio::time::Sleep>>>>>);

/// One wait.
struct Wait {
    timeout: HeaderTimeout,
    deadline: Instant,
}

impl Future for Wait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = tokio::time::Instant::from_std(self.deadline);
        let mut timer = self.timeout.0.lock();
        let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if timer.deadline() > deadline {
            timer.as_mut().reset(deadline);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= deadline {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline);
        }
    }
}

impl Sleep for Wait {}

impl Timer for HeaderTimeout {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(Instant::now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Wait { timeout: self.clone(), deadline })
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn Sleep>>, new_deadline: Instant) {
        *sleep = self.sleep_until(new_deadline);
    }
}

#[cfg(test)]
mod unit {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn header_timeouts_end_at_their_own_deadline() {
        let timeout = HeaderTimeout::default();
        let begun = Instant::now();
        let short = Duration::from_millis(60);
        // Waits that are given up, as for requests that came in time.
        for _ in 0..3 {
            assert!(timeout.sleep(short).now_or_never().is_none());
        }
        timeout.sleep_until(begun + 3 * short).await;
        assert!(begun.elapsed() >= 3 * short, "the timer was set for an earlier wait");
        let late = timeout.sleep(Duration::from_secs(3_600));
        let soon = timeout.sleep(short);
        assert!(late.now_or_never().is_none());
        let before = Instant::now();
        soon.await;
        assert!(before.elapsed() < Duration::from_secs(60), "the timer was set for a later one");
    }
}
