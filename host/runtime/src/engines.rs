//! The engines of a sandbox, each with what only its own guests can use: linker, pool, key of the code cache.
//!
//! Owns when the second one is made: with the first plugin of WASI 0.3, so that a host without such plugins pays nothing for it.
//! Invariant: a component is compiled, linked and run by the same engine.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use wasmtime::component::Linker;
use wasmtime::{Engine, EngineWeak};

use super::call::Call;
use super::engine::{self, Effort, EngineKind};
use super::load;

/// One engine with its own.
pub(super) struct GuestEngine {
    pub(super) kind: EngineKind,
    pub(super) engine: Engine,
    /// Every import that its guests may have.
    pub(super) linker: Linker<Call>,
    /// What compiled code depends on.
    pub(super) hash: u64,
    /// Stands before the instance pool.
    pub(super) slots: Semaphore,
}

impl GuestEngine {
    /// One whose clock goes, with a pool for the calls of such a host.
    fn start(kind: EngineKind, effort: Effort, calls_max: u32, tick: Duration) -> Result<Arc<Self>, StartFailure> {
        let calls_max = kind.calls_max(calls_max);
        let build = || {
            let engine = engine::build(kind, calls_max)?;
            let linker = load::linker(&engine, kind)?;
            let hash = engine::compatibility_hash(&engine, effort);
            Ok(Self { kind, engine, linker, hash, slots: Semaphore::new(calls_max as usize) })
        };
        let built = build().map_err(StartFailure::Engine)?;
        engine::tick(&built.engine, tick).map_err(StartFailure::Thread)?;
        Ok(Arc::new(built))
    }
}

/// Both.
pub(super) struct Engines {
    plain: Arc<GuestEngine>,
    concurrent: OnceLock<Arc<GuestEngine>>,
    /// It is made once.
    making: Mutex<()>,
    calls_max: u32,
    /// Of the code that they run.
    effort: Effort,
    tick: Duration,
    clocks: Arc<Clocks>,
}

impl Engines {
    /// With the first one alone.
    pub(super) fn start(calls_max: u32, effort: Effort, tick: Duration) -> Result<Self, StartFailure> {
        let plain = GuestEngine::start(EngineKind::Plain, effort, calls_max, tick)?;
        let clocks = Arc::new(Clocks { plain: plain.engine.weak(), concurrent: OnceLock::new() });
        Ok(Self { plain, concurrent: OnceLock::new(), making: Mutex::default(), calls_max, effort, tick, clocks })
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
        let made = GuestEngine::start(kind, self.effort, self.calls_max, self.tick)?;
        self.clocks.concurrent.get_or_init(|| made.engine.weak());
        tracing::info!(calls_max = kind.calls_max(self.calls_max), "the engine for plugins of WASI 0.3 has started");
        Ok(Arc::clone(self.concurrent.get_or_init(|| made)))
    }

    /// The first one.
    pub(super) fn plain(&self) -> &GuestEngine {
        &self.plain
    }

    /// That which a component was compiled for.
    pub(super) fn behind(&self, engine: &Engine) -> &GuestEngine {
        match self.concurrent.get() {
            Some(concurrent) if Engine::same(&concurrent.engine, engine) => concurrent,
            _ => &self.plain,
        }
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
}

impl Clocks {
    /// Ends the time slice of every guest.
    pub(super) fn tick(&self) {
        let engines = [Some(&self.plain), self.concurrent.get()];
        let running = engines.into_iter().flatten().filter_map(EngineWeak::upgrade);
        running.for_each(|engine| engine.increment_epoch());
    }
}
