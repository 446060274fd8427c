//! Threads for work that grows with a message: parsing it and checking its contents.
//!
//! Owns the order of that work and charges its time to the share that asked. Must not know what the work is.
//! Invariants: work of one share waits behind its own, not in front of that of others; it is done once or, when its
//! caller is gone, not at all.

use std::io;

use tokio::sync::oneshot;

use super::{Share, Threads};

/// See the module.
#[derive(Debug)]
pub struct MessageWorkers(Threads);

impl MessageWorkers {
    /// Starts the threads. Work may use `io` for what it begins.
    ///
    /// # Errors
    ///
    /// A thread cannot be started.
    pub fn start(io: &tokio::runtime::Handle) -> io::Result<Self> {
        Threads::start_message_workers(io).map(Self)
    }

    /// Does work in the turn of a share. Nothing comes if it panics, or the host is going down.
    pub fn run<T: Send + 'static>(
        &self,
        share: &Share,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        self.0.run(share, async move { work() })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use parking_lot::Mutex;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn message_work_is_fair_between_shares() {
        let workers = MessageWorkers::start(&tokio::runtime::Handle::current()).unwrap();
        let one = Share::new(1);
        let other = Share::new(1);
        let threads = std::thread::available_parallelism().map_or(1, usize::from).max(2);
        let gate = Arc::new(Barrier::new(threads + 1));
        let order = Arc::new(Mutex::new(Vec::new()));
        let work = |share: &Share, name: &'static str| {
            let order = Arc::clone(&order);
            workers.run(share, move || order.lock().push(name))
        };
        let held: Vec<_> = (0..threads)
            .map(|_| {
                let gate = Arc::clone(&gate);
                workers.run(&one, move || _ = gate.wait())
            })
            .collect();
        let many: Vec<_> = (0..50).map(|_| work(&one, "one")).collect();
        let single = work(&other, "other");
        drop(work(&other, "nobody waits"));
        tokio::task::spawn_blocking(move || gate.wait()).await.unwrap();
        futures::future::join_all(held).await;
        assert_eq!((futures::future::join_all(many).await.len(), single.await), (50, Ok(())));
        let order = order.lock();
        let place = order.iter().position(|name| *name == "other").unwrap();
        assert!(place <= threads, "it stood behind {place} of another share");
        assert!(!order.contains(&"nobody waits"));
    }

    #[tokio::test]
    async fn message_work_panic_ends_work_but_not_its_thread() {
        let workers = MessageWorkers::start(&tokio::runtime::Handle::current()).unwrap();
        for _ in 0..8 {
            assert!(workers.run(&Share::default(), || -> u8 { panic!("on purpose") }).await.is_err());
        }
        assert_eq!(workers.run(&Share::default(), || 7).await, Ok(7));
    }
}
