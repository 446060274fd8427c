//! Orders that people give: each goes on without its browser, to its line in the audit log.
//!
//! Owns that, and what became of each order about a plugin, in memory, for the pages that show it: fetching and
//! compiling may take longer than a browser waits. Must not know what an order does. Invariant: there is a bounded
//! number of orders about plugins at a time, and one for a plugin.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_domain::UnixMs;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// Orders from the dashboard that are under way at a time.
const UNDER_WAY_MAX: usize = 4;
/// Orders from the dashboard whose outcome is remembered.
const ORDERS_MAX: usize = 32;
/// Versions that are read for pages of the dashboard at a time; one that is not in the code cache is compiled first.
const READS_MAX: usize = 4;
/// How long a browser waits for an order or for a version to be read.
const ORDER_WAIT: Duration = Duration::from_secs(5);

/// What is under way or was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// None: it is not known yet.
    pub(crate) plugin: Option<String>,
    pub(crate) what: String,
    pub(crate) who: String,
    pub(crate) begun: UnixMs,
    /// None: it is under way.
    pub(crate) outcome: Option<Outcome>,
}

/// What became of an order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) is_done: bool,
    /// What there is to say of it.
    pub(crate) messages: Vec<String>,
    /// The plugin that it was about, where that came out on the way.
    pub(crate) plugin: Option<String>,
    /// The page that says more.
    pub(crate) leads_to: Option<String>,
}

impl Outcome {
    pub(crate) fn refused(why: impl Into<String>) -> Self {
        Self { messages: vec![why.into()], ..Self::default() }
    }

    fn lost() -> Self {
        Self::refused("the host failed at this order")
    }
}

/// An order as it is carried out.
pub(crate) type Work = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// Too much is under way, or something for this plugin.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Busy;

/// Carries an order out, whether or not its request is still open; `None`: the host failed at it.
pub(crate) async fn carried_out<T: Send + 'static>(order: impl Future<Output = T> + Send + 'static) -> Option<T> {
    tokio::spawn(order).await.ok()
}

/// The orders about plugins of all operators.
pub(crate) struct PluginOrders {
    orders: Arc<Mutex<Orders>>,
    reads: Arc<Semaphore>,
}

#[derive(Default)]
struct Orders {
    next: u64,
    /// The newest first.
    all: VecDeque<(u64, Order)>,
}

impl Default for PluginOrders {
    fn default() -> Self {
        Self { orders: Arc::default(), reads: Arc::new(Semaphore::new(READS_MAX)) }
    }
}

impl PluginOrders {
    /// Begins an order and waits for it, but not for long; `None`: it goes on.
    ///
    /// # Errors
    ///
    /// It was not begun.
    pub(crate) async fn give(&self, order: Order, work: Work) -> Result<Option<Outcome>, Busy> {
        let mut under_way = self.begin(order)?;
        let outcome = carried_out(async move {
            under_way.outcome = work.await;
            under_way.outcome.clone()
        });
        let outcome = tokio::time::timeout(ORDER_WAIT, outcome).await;
        Ok(outcome.ok().map(|outcome| outcome.unwrap_or_else(Outcome::lost)))
    }

    fn begin(&self, order: Order) -> Result<UnderWay, Busy> {
        let mut orders = self.orders.lock();
        let under_way = || orders.all.iter().filter(|(_, order)| order.outcome.is_none());
        if under_way().count() >= UNDER_WAY_MAX
            || order.plugin.is_some() && under_way().any(|(_, other)| other.plugin == order.plugin)
        {
            return Err(Busy);
        }
        let id = orders.next;
        orders.next += 1;
        orders.all.push_front((id, order));
        // Those under way are fewer: what goes has been done.
        if orders.all.len() > ORDERS_MAX
            && let Some(oldest) = orders.all.iter().rposition(|(_, order)| order.outcome.is_some())
        {
            orders.all.remove(oldest);
        }
        Ok(UnderWay { orders: Arc::clone(&self.orders), id, outcome: Outcome::lost() })
    }

    /// Those of one plugin, or all, the newest first.
    pub(crate) fn list(&self, plugin: Option<&str>) -> Vec<Order> {
        let orders = self.orders.lock();
        let wanted = |order: &Order| plugin.is_none() || order.plugin.as_deref() == plugin;
        orders.all.iter().map(|(_, order)| order).filter(|order| wanted(order)).cloned().collect()
    }

    /// Reads a version for a page, which may have to be compiled first. What takes longer goes on, for the next request
    /// for it.
    ///
    /// # Errors
    ///
    /// Too much is being read, or it takes longer.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Busy> {
        let permit = Arc::clone(&self.reads).try_acquire_owned().map_err(|_| Busy)?;
        let reading = carried_out(async move {
            let _permit = permit;
            work.await
        });
        tokio::time::timeout(ORDER_WAIT, reading).await.ok().flatten().ok_or(Busy)
    }
}

/// An order that is being carried out; it is over when this is dropped, whatever became of it.
struct UnderWay {
    orders: Arc<Mutex<Orders>>,
    id: u64,
    outcome: Outcome,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut orders = self.orders.lock();
        if let Some((_, order)) = orders.all.iter_mut().find(|(other, _)| *other == self.id) {
            order.plugin = order.plugin.take().or_else(|| self.outcome.plugin.clone());
            order.outcome = Some(std::mem::take(&mut self.outcome));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(plugin: Option<&str>) -> Order {
        let plugin = plugin.map(str::to_owned);
        Order { plugin, what: "what".to_owned(), who: "who".to_owned(), begun: 1, outcome: None }
    }

    fn done() -> Outcome {
        Outcome { is_done: true, plugin: Some("csv".to_owned()), ..Outcome::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn order_that_takes_long_goes_on_and_keeps_others_of_its_plugin_waiting() {
        let orders = PluginOrders::default();
        let long = || -> Work {
            Box::pin(async {
                tokio::time::sleep(ORDER_WAIT * 2).await;
                done()
            })
        };
        assert_eq!(orders.give(order(Some("csv")), long()).await, Ok(None));
        assert_eq!(orders.give(order(Some("csv")), long()).await, Err(Busy));
        assert_eq!(orders.list(Some("csv"))[0].outcome, None);
        tokio::time::sleep(ORDER_WAIT * 2).await;
        assert_eq!(orders.list(Some("csv"))[0].outcome, Some(done()));
        assert_eq!(orders.give(order(None), Box::pin(async { done() })).await, Ok(Some(done())));
        assert_eq!((orders.list(Some("csv")).len(), orders.list(None).len(), orders.list(Some("x")).len()), (2, 2, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn orders_under_way_and_remembered_are_bounded() {
        let orders = PluginOrders::default();
        for _ in 0..UNDER_WAY_MAX {
            assert_eq!(orders.give(order(None), Box::pin(std::future::pending())).await, Ok(None));
        }
        assert_eq!(orders.give(order(None), Box::pin(async { done() })).await, Err(Busy));
        let orders = PluginOrders::default();
        assert_eq!(orders.give(order(Some("long")), Box::pin(std::future::pending())).await, Ok(None));
        for _ in 0..ORDERS_MAX * 2 {
            assert_eq!(orders.give(order(None), Box::pin(async { done() })).await, Ok(Some(done())));
        }
        assert_eq!((orders.list(None).len(), orders.list(Some("long")).len()), (ORDERS_MAX, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn order_goes_on_without_whoever_gave_it() {
        let (tell, told) = tokio::sync::oneshot::channel();
        let order = carried_out(async move {
            tokio::time::sleep(ORDER_WAIT).await;
            tell.send(()).unwrap();
        });
        assert!(tokio::time::timeout(Duration::from_millis(1), order).await.is_err());
        told.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn reads_are_bounded_in_number_and_time() {
        let orders = PluginOrders::default();
        assert_eq!(orders.read(async { 7 }).await, Ok(7));
        for _ in 0..READS_MAX {
            assert_eq!(orders.read(std::future::pending::<()>()).await, Err(Busy));
        }
        assert_eq!(orders.read(async { 7 }).await, Err(Busy), "no place is left");
    }

    #[tokio::test]
    async fn order_that_panics_is_over() {
        let orders = PluginOrders::default();
        fn fails() -> Outcome {
            panic!("x")
        }
        let outcome = orders.give(order(Some("csv")), Box::pin(async { fails() })).await;
        assert!(outcome.is_ok_and(|outcome| outcome.is_some_and(|outcome| !outcome.is_done)));
        assert_eq!(orders.give(order(Some("csv")), Box::pin(async { done() })).await, Ok(Some(done())));
    }
}
