//! The engines of a sandbox, each with what only its own guests can use: linker, pool, key of the code cache.
//!
//! Owns when the second one is made, with the first plugin of WASI 0.3, so that a host without such plugins pays
//! nothing for it; who gets a place in its pool; and the engines of components whose memory has an image, each made
//! with its component and gone with it. Invariants: a component is compiled, linked and run by the same engine; where
//! not every call of the host has a place, one tenant cannot take all of them.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use wasmtime::component::Linker;
use wasmtime::{Engine, EngineWeak};

use super::call::Call;
use super::engine::{self, Effort, EngineKind};
use super::link;
use super::memory_images::{ImagedComponent, SharedSlots};
use bulkhead_domain::requestor::TenantId;
use bulkhead_limits::ScopedSemaphore;
use bulkhead_metrics::Histogram;

/// One engine with its own.
pub(super) struct GuestEngine {
    pub(super) kind: EngineKind,
    pub(super) engine: Engine,
    /// Every import that its guests may have.
    pub(super) linker: Linker<Call>,
    /// What compiled code depends on.
    pub(super) hash: u64,
    pub(super) slots: CallSlots,
}

impl GuestEngine {
    /// One whose clock goes, with a pool for the calls of such a host.
    fn start(
        kind: EngineKind,
        effort: Effort,
        calls_max: u32,
        ticks: &Ticks,
        beside: impl Fn() + Send + 'static,
    ) -> Result<Arc<Self>, StartFailure> {
        let slots = CallSlots::new(kind, calls_max);
        let build = || {
            let engine = engine::build(kind, effort, kind.calls_max(calls_max))?;
            let linker = link::linker(&engine, kind)?;
            let hash = engine::compatibility_hash(&engine, effort);
            Ok(Self { kind, engine, linker, hash, slots })
        };
        let built = build().map_err(StartFailure::Engine)?;
        engine::tick(&built.engine, ticks.every, ticks.late.clone(), beside).map_err(StartFailure::Thread)?;
        Ok(Arc::new(built))
    }
}

/// What ends the turns of guests.
#[derive(Clone)]
pub(super) struct Ticks {
    pub(super) every: Duration,
    /// Counts how late they come.
    pub(super) late: Option<Arc<Histogram>>,
}

/// The places for calls on one engine, which stand before its instance pool.
pub(super) struct CallSlots {
    kind: EngineKind,
    total: u32,
    order: SlotOrder,
}

/// How the places are given.
enum SlotOrder {
    /// There is one for every call that the host admits.
    First(Semaphore),
    /// There are fewer. The host's own visits have no tenant, and a share as large as one's.
    PerTenant { max: u32, free: Arc<ScopedSemaphore<Option<TenantId>>> },
}

impl CallSlots {
    fn new(kind: EngineKind, calls_max: u32) -> Self {
        let total = kind.calls_max(calls_max);
        let order = match kind.calls_per_tenant_max(calls_max) {
            Some(max) => SlotOrder::PerTenant { max, free: ScopedSemaphore::new(max as usize, total as usize) },
            None => SlotOrder::First(Semaphore::new(total as usize)),
        };
        Self { kind, total, order }
    }

    /// Waits for a place, which is free again when what comes back is dropped. The wait has no bound of its own.
    pub(super) async fn acquire(&self, tenant: Option<TenantId>) -> impl Send {
        match &self.order {
            // Never closed.
            SlotOrder::First(free) => (free.acquire().await.ok(), None),
            SlotOrder::PerTenant { free, .. } => (None, Some(free.acquire(tenant, 1).await)),
        }
    }
}

/// What a call is told that got none.
impl fmt::Display for CallSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = match self.kind {
            EngineKind::Plain => "0.2",
            EngineKind::Concurrent => "0.3",
        };
        write!(f, "{} calls of plugins of WASI {version} is the most at a time", self.total)?;
        match self.order {
            SlotOrder::First(_) => Ok(()),
            SlotOrder::PerTenant { max, .. } => write!(f, ", {max} of them of one tenant"),
        }
    }
}

/// All of them.
pub(super) struct Engines {
    plain: Arc<GuestEngine>,
    concurrent: OnceLock<Arc<GuestEngine>>,
    /// It is made once.
    making: Mutex<()>,
    calls_max: u32,
    /// Of the code that they run.
    effort: Effort,
    ticks: Ticks,
    clocks: Arc<Clocks>,
    /// Of the components whose memory has an image. None where they stay in the pool.
    images: Option<SharedSlots>,
}

impl Engines {
    /// With the first one alone. `with_images` says whether components may have engines of their own.
    pub(super) fn start(calls_max: u32, effort: Effort, ticks: Ticks, with_images: bool) -> Result<Self, StartFailure> {
        let imaged = Arc::<ImagedClocks>::default();
        let beside = Arc::clone(&imaged);
        let plain = GuestEngine::start(EngineKind::Plain, effort, calls_max, &ticks, move || beside.tick())?;
        let clocks = Arc::new(Clocks { plain: plain.engine.weak(), concurrent: OnceLock::new(), imaged });
        let images = if with_images { shared_slots() } else { None };
        let concurrent = OnceLock::new();
        Ok(Self { plain, concurrent, making: Mutex::default(), calls_max, effort, ticks, clocks, images })
    }

    /// A component whose memory has an image, if this one is such and may have an engine of its own.
    pub(super) fn imaged(&self, kind: EngineKind, component: &[u8]) -> Option<ImagedComponent> {
        self.images.as_ref().filter(|_| kind == EngineKind::Plain).and_then(|_| ImagedComponent::of(component))
    }

    /// An engine for such a component alone.
    ///
    /// # Errors
    ///
    /// It cannot be made now.
    pub(super) fn with_image(&self, component: &ImagedComponent) -> Result<Arc<GuestEngine>, StartFailure> {
        let kind = EngineKind::Plain;
        let build = || {
            let shared = self.images.as_ref().ok_or_else(|| wasmtime::Error::msg("images are not offered"))?;
            let engine = engine::with_image(component, self.effort, shared)?;
            let linker = link::linker(&engine, kind)?;
            let hash = engine::imaged_hash(self.plain.hash);
            Ok(GuestEngine { kind, engine, linker, hash, slots: CallSlots::new(kind, self.calls_max) })
        };
        let built = Arc::new(build().map_err(StartFailure::Engine)?);
        self.clocks.imaged.add(built.engine.weak());
        Ok(built)
    }

    /// That of a kind; the second one is made when it is asked for first, which blocks for a moment.
    ///
    /// # Errors
    ///
    /// It cannot be made now.
    pub(super) fn of(&self, kind: EngineKind) -> Result<Arc<GuestEngine>, StartFailure> {
        if kind == EngineKind::Plain {
            return Ok(Arc::clone(&self.plain));
        }
        let _turn = self.making.lock();
        if let Some(made) = self.concurrent.get() {
            return Ok(Arc::clone(made));
        }
        let made = GuestEngine::start(kind, self.effort, self.calls_max, &self.ticks, || ())?;
        self.clocks.concurrent.get_or_init(|| made.engine.weak());
        tracing::info!(calls_max = kind.calls_max(self.calls_max), "the engine for plugins of WASI 0.3 has started");
        Ok(Arc::clone(self.concurrent.get_or_init(|| made)))
    }

    /// The first one.
    pub(super) fn plain(&self) -> &GuestEngine {
        &self.plain
    }

    /// What ends time slices early.
    pub(super) fn clocks(&self) -> Arc<Clocks> {
        Arc::clone(&self.clocks)
    }
}

/// Why there is no engine.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartFailure {
    #[error("the WebAssembly engine does not start: {0:#}")]
    Engine(wasmtime::Error),
    #[error("threads cannot be started: {0}")]
    Thread(#[source] std::io::Error),
}

/// The clocks of all engines. They keep no engine alive, whose end is that of its ticking thread.
pub(super) struct Clocks {
    plain: EngineWeak,
    concurrent: OnceLock<EngineWeak>,
    imaged: Arc<ImagedClocks>,
}

impl Clocks {
    /// Ends the time slice of every guest.
    pub(super) fn tick(&self) {
        let engines = [Some(&self.plain), self.concurrent.get()];
        let running = engines.into_iter().flatten().filter_map(EngineWeak::upgrade);
        running.for_each(|engine| engine.increment_epoch());
        self.imaged.tick();
    }
}

/// The clocks of the components with images.
#[derive(Default)]
struct ImagedClocks(Mutex<Vec<EngineWeak>>);

impl ImagedClocks {
    fn add(&self, engine: EngineWeak) {
        let mut engines = self.0.lock();
        engines.retain(|engine| engine.upgrade().is_some());
        engines.push(engine);
    }

    fn tick(&self) {
        let engines = self.0.lock();
        engines.iter().filter_map(EngineWeak::upgrade).for_each(|engine| engine.increment_epoch());
    }
}

/// What components with images share, where a slot can be restored page by page.
fn shared_slots() -> Option<SharedSlots> {
    let shared = engine::proof_of_no_swap()
        .map_err(ToOwned::to_owned)
        .and_then(|_| SharedSlots::new().map_err(|error| error.to_string()));
    shared.map_err(|reason| tracing::debug!(reason, "memories of scripts stay in the pool")).ok()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    const A: Option<TenantId> = Some(TenantId([1; 16]));
    const B: Option<TenantId> = Some(TenantId([2; 16]));

    /// The places that a tenant gets at once.
    fn taken(slots: &CallSlots, tenant: Option<TenantId>) -> Vec<impl Send> {
        std::iter::from_fn(|| slots.acquire(tenant).now_or_never()).collect()
    }

    #[test]
    fn tenant_that_keeps_its_calls_leaves_an_eighth_of_scarce_places_to_others() {
        let slots = CallSlots::new(EngineKind::Concurrent, 4096);
        let a = taken(&slots, A);
        let b = taken(&slots, B);
        assert_eq!((a.len(), b.len()), (448, 64));
        assert!(slots.acquire(None).now_or_never().is_none(), "all are taken");
        drop(a);
        assert_eq!(taken(&slots, None).len(), 448);
        assert_eq!(
            slots.to_string(),
            "512 calls of plugins of WASI 0.3 is the most at a time, 448 of them of one tenant"
        );
    }

    #[test]
    fn places_for_all_calls_of_the_host_are_given_as_they_are_asked_for() {
        for (kind, calls_max) in [(EngineKind::Plain, 4096), (EngineKind::Concurrent, 512)] {
            let slots = CallSlots::new(kind, calls_max);
            assert_eq!(taken(&slots, A).len(), calls_max as usize, "{kind:?}");
        }
    }
}
