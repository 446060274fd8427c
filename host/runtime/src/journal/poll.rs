//! Waiting, in a journaled call.
//!
//! Owns the host of `wasi:io/poll`. What is ready is computed from what the guest may know, never raced: timers by the
//! shown time, responses by whether they were delivered, streams that are always ready. Invariant: whatever a wait
//! waits for, its end is in the journal before the guest sees it.

use std::sync::Arc;

use wasmtime::Result;
use wasmtime::component::Resource;
use wasmtime_wasi::WasiView as _;
use wasmtime_wasi_io::bindings::wasi::io::poll;
use wasmtime_wasi_io::poll::DynPollable;

use crate::call::Call;
use bulkhead_calls::journal::{Reason, names};

impl Call {
    /// An observation of everything that comes from outside: the clock, and responses to requests.
    pub(super) fn observe(&mut self) -> Result<()> {
        self.collect_requests()?;
        loop {
            let Some(journal) = &mut self.journal else { return Ok(()) };
            journal.clock.look(&mut journal.state)?;
            let Some((number, outcome)) = journal.state.take_delivery()? else { break };
            self.deliver_recorded(number, &outcome)?;
        }
        self.deliver_arrived()
    }

    /// An observation of responses alone, in a call that is live.
    pub(super) fn observe_responses(&mut self) -> Result<()> {
        if self.journal.as_ref().is_none_or(|journal| journal.requests.are_none()) {
            return Ok(());
        }
        self.collect_requests()?;
        self.deliver_arrived()
    }

    async fn is_ready(&mut self, pollable: &Resource<DynPollable>) -> Result<bool> {
        let same = Resource::new_borrow(pollable.rep());
        // A thread that has done much in a row would otherwise be told that nothing is ready.
        tokio::task::unconstrained(poll::HostPollable::ready(self.ctx().table, same)).await
    }

    /// Whether nobody but the library has to know what the guest waits for.
    fn waits_freely(&self) -> bool {
        self.journal.is_none() && self.conversation.is_none()
    }

    /// Comes back when the guest of a server has to be told that it is cancelled.
    fn cancelled(&self) -> impl Future<Output = ()> + use<> {
        let unaware = self.conversation.as_ref().filter(|conversation| !conversation.knows_of_cancel());
        let shared = unaware.map(|_| Arc::clone(&self.shared));
        async move {
            match shared {
                Some(shared) => shared.cancel_signalled().await,
                None => std::future::pending().await,
            }
        }
    }

    /// Waits until something may be ready of these.
    async fn wait(&mut self, pollables: &[u32]) -> Result<()> {
        let cancelled = self.cancelled();
        let Some(journal) = &mut self.journal else {
            let same = pollables.iter().map(|rep| Resource::new_borrow(*rep)).collect();
            return tokio::select! {
                ended = poll::Host::poll(&mut self.table, same) => ended.map(drop),
                () = cancelled => Ok(()),
            };
        };
        let was_replaying = journal.state.is_replaying();
        if !journal.state.goes_on() {
            return Err(journal.state.diverge("nothing is ready that the guest waits for").into());
        }
        if was_replaying {
            // What was under way when the host stopped is settled first.
            return self.settle();
        }
        if self.has_open_request() {
            return self.stream_requests(Reason::OpenRequest);
        }
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let until = journal.clock.until_first(pollables);
        let is_demoted = journal.state.is_demoted();
        let arrivals = journal.requests.arrival();
        let timer = async {
            match until {
                Some(until) => tokio::time::sleep(until).await,
                None => std::future::pending().await,
            }
        };
        // What is streamed to a call that is not journaled any more is awaited by the library.
        let streamed = async {
            if !is_demoted {
                return std::future::pending().await;
            }
            let same = pollables.iter().map(|rep| Resource::new_borrow(*rep)).collect();
            poll::Host::poll(&mut self.table, same).await.map(drop)
        };
        tokio::select! {
            () = timer => Ok(()),
            () = arrivals => Ok(()),
            () = cancelled => Ok(()),
            ended = streamed => ended,
        }
    }
}

impl poll::Host for Call {
    async fn poll(&mut self, pollables: Vec<Resource<DynPollable>>) -> Result<Vec<u32>> {
        if self.waits_freely() || pollables.is_empty() {
            return poll::Host::poll(self.ctx().table, pollables).await;
        }
        self.step(names::POLL)?;
        let numbers: Vec<_> = pollables.iter().map(Resource::rep).collect();
        loop {
            self.observe()?;
            self.attend().await?;
            let mut ready = Vec::new();
            self.count_looks();
            for (at, pollable) in (0_u32..).zip(&pollables) {
                if self.is_ready(pollable).await? {
                    ready.push(at);
                }
            }
            if !ready.is_empty() {
                return Ok(ready);
            }
            if !self.ends_input_for(numbers.len()) {
                self.wait(&numbers).await?;
            }
        }
    }
}

impl poll::HostPollable for Call {
    async fn ready(&mut self, pollable: Resource<DynPollable>) -> Result<bool> {
        if self.waits_freely() {
            return poll::HostPollable::ready(self.ctx().table, pollable).await;
        }
        self.step(names::POLLABLE_READY)?;
        self.observe()?;
        self.attend().await?;
        self.count_looks();
        let is_ready = self.is_ready(&pollable).await?;
        if !is_ready && !self.is_replaying() {
            self.nap_for_input().await;
        }
        Ok(is_ready)
    }

    async fn block(&mut self, pollable: Resource<DynPollable>) -> Result<()> {
        if self.waits_freely() {
            return poll::HostPollable::block(self.ctx().table, pollable).await;
        }
        self.step(names::POLLABLE_BLOCK)?;
        loop {
            self.observe()?;
            self.attend().await?;
            self.count_looks();
            if self.is_ready(&pollable).await? {
                return Ok(());
            }
            if !self.ends_input_for(1) {
                self.wait(&[pollable.rep()]).await?;
            }
        }
    }

    fn drop(&mut self, pollable: Resource<DynPollable>) -> Result<()> {
        if let Some(journal) = &mut self.journal {
            journal.clock.forget(pollable.rep());
        }
        poll::HostPollable::drop(self.ctx().table, pollable)
    }
}
