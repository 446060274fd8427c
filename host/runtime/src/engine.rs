//! The engines that guests share, their pools and their clock ticks.
//!
//! Owns the settings of both: guests of WASI 0.2 share one, and those of WASI 0.3 another one, since what asynchronous
//! functions need puts every call on a longer way. Invariant: compiled code fits the engine of its kind alone.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig, RegallocAlgorithm,
};

use super::limits::{TABLE_SLOT_ELEMENTS, TABLES_MAX};
use super::memory_images::{ImagedComponent, SharedSlots};
use super::wasi_needs::{PARTS_MAX, WasiVersion};
use bulkhead_metrics::Histogram;

/// Bytes of one memory that stay resident between two calls in one slot, where pages can be reset in place.
const MEMORY_KEEP_RESIDENT: usize = 1 << 20;
/// The same for a table.
const TABLE_KEEP_RESIDENT: usize = 64 << 10;
/// Stack of one call: as much for the host's functions as the guest's own part has. What is not used costs time at each
/// reset.
const STACK_BYTES: usize = 1 << 20;
/// Stack of one call that is cleared by hand rather than returned to the kernel: what a small tool needs. More pushes
/// other things out of the processor's cache.
const STACK_KEEP_RESIDENT: usize = 8 << 10;
/// Regions of ended calls that one processor collects before it returns them to the kernel with one system call. A
/// small call counts three: the rest of its stack, and what is left of its memory and of its table, empty or not. Each
/// system call interrupts the other processors. No slot is used again before its regions are returned, and fewer than
/// this many wait for each processor; more of them would have calls go round in more slots than stay in the processor's
/// cache.
const REGIONS_RETURNED_AT_ONCE: usize = 12;
/// Slots that stay warm for idle plugins.
const UNUSED_WARM_SLOTS: u32 = 128;
/// Core instances per component instance, on average over the pool (a Rust guest has 1 to 3, Python about 20).
const CORE_INSTANCES_PER_CALL: u32 = 20;
/// Memories per component instance, on average.
const MEMORIES_PER_CALL: u32 = 2;
/// Tables per component instance, on average.
const TABLES_PER_CALL: u32 = 4;

/// Calls of WASI 0.3 at the same time, on a host that has so many; the next ones wait. Stops the stacks of their pool
/// from using up what the kernel lets a process map.
const CONCURRENT_CALLS_MAX: u32 = 512;
/// Those of one tenant, where not every call has a place: one tenant that keeps its calls waiting leaves an eighth to
/// the others.
const CONCURRENT_CALLS_PER_TENANT_MAX: u32 = 448;
/// Stacks of one call of WASI 0.3: one for each part that can be asleep in the middle of a function, one for the call
/// itself, and one that waits for work.
const STACKS_PER_CONCURRENT_CALL: u32 = PARTS_MAX as u32 + 2;

/// What an engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EngineKind {
    /// Components of WASI 0.2.
    Plain,
    /// Components with anything of WASI 0.3 or asynchronous functions.
    Concurrent,
}

impl EngineKind {
    /// How many calls an engine of this kind has room for, on a host with so many.
    pub(super) fn calls_max(self, calls_max: u32) -> u32 {
        match self {
            Self::Plain => calls_max,
            Self::Concurrent => calls_max.min(CONCURRENT_CALLS_MAX),
        }
    }

    /// How many of them one tenant may have; `None`: there is room for all calls of the host, which bounds each
    /// tenant's itself.
    pub(super) fn calls_per_tenant_max(self, calls_max: u32) -> Option<u32> {
        (self.calls_max(calls_max) < calls_max).then_some(CONCURRENT_CALLS_PER_TENANT_MAX)
    }

    fn stacks_per_call(self) -> u32 {
        match self {
            Self::Plain => 1,
            Self::Concurrent => STACKS_PER_CONCURRENT_CALL,
        }
    }
}

impl From<WasiVersion> for EngineKind {
    fn from(version: WasiVersion) -> Self {
        match version {
            WasiVersion::V0_2 => Self::Plain,
            WasiVersion::V0_3 => Self::Concurrent,
        }
    }
}

/// The engine for at most this many instances at once, which run code of this effort.
pub(super) fn build(kind: EngineKind, effort: Effort, instances_max: u32) -> wasmtime::Result<Engine> {
    let reason = match proof_of_no_swap() {
        Ok(proof) => match Engine::new(&config(kind, effort, instances_max, true)?) {
            Ok(engine) => {
                tracing::debug!(
                    pagemap_scan = true,
                    proof,
                    "instance slots are reset in place: nothing can be swapped out"
                );
                return Ok(engine);
            }
            // Linux before 6.7; any other mistake fails again below.
            Err(_) => "the kernel cannot scan page maps",
        },
        Err(reason) => reason,
    };
    tracing::debug!(pagemap_scan = false, reason, "instance slots are given back to the kernel after each call");
    Engine::new(&config(kind, effort, instances_max, false)?)
}

fn config(kind: EngineKind, effort: Effort, instances_max: u32, reset_in_place: bool) -> wasmtime::Result<Config> {
    let mut pool = PoolingAllocationConfig::default();
    pool.total_component_instances(instances_max)
        .total_core_instances(instances_max.saturating_mul(CORE_INSTANCES_PER_CALL))
        .total_memories(instances_max.saturating_mul(MEMORIES_PER_CALL))
        .total_tables(instances_max.saturating_mul(TABLES_PER_CALL))
        .total_stacks(instances_max.saturating_mul(kind.stacks_per_call()))
        .max_tables_per_module(u32::try_from(TABLES_MAX).unwrap_or(u32::MAX))
        .table_elements(TABLE_SLOT_ELEMENTS)
        .max_unused_warm_slots(UNUSED_WARM_SLOTS)
        .async_stack_keep_resident(STACK_KEEP_RESIDENT)
        .decommit_batch_size(REGIONS_RETURNED_AT_ONCE);
    if reset_in_place {
        pool.linear_memory_keep_resident(MEMORY_KEEP_RESIDENT)
            .table_keep_resident(TABLE_KEEP_RESIDENT)
            .pagemap_scan(Enabled::Yes);
    }
    let mut config = of_code(kind, effort)?;
    config.async_stack_size(STACK_BYTES).allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    Ok(config)
}

/// The engine for one component whose memory has an image. It has no pool: its slots are those of the image.
pub(super) fn with_image(
    component: &ImagedComponent,
    effort: Effort,
    shared: &SharedSlots,
) -> wasmtime::Result<Engine> {
    let mut config = of_code(EngineKind::Plain, effort)?;
    config.async_stack_size(STACK_BYTES).allocation_strategy(InstanceAllocationStrategy::OnDemand);
    component.configure(&mut config, shared)?;
    Engine::new(&config)
}

/// How good compiled code is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effort {
    Usual,
    /// Ready in two thirds of the time; it does the same, slower.
    Quick,
    /// For any processor of this kind, and made in another way: what another machine, or another version, has.
    #[cfg(test)]
    Portable,
}

/// An engine without a pool, whose code fits the others.
pub(super) fn for_compiling(kind: EngineKind, effort: Effort) -> wasmtime::Result<Engine> {
    let mut config = of_code(kind, effort)?;
    if effort == Effort::Quick {
        config.cranelift_opt_level(OptLevel::None).cranelift_regalloc_algorithm(RegallocAlgorithm::SinglePass);
    }
    Engine::new(&config)
}

/// What compiled code depends on.
fn of_code(kind: EngineKind, effort: Effort) -> wasmtime::Result<Config> {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true)
        .shared_memory(false)
        .concurrency_support(kind == EngineKind::Concurrent)
        .async_stack_zeroing(true)
        // Registered per module in a list that is searched on each load; nobody unwinds through guests.
        .native_unwind_info(false)
        .wasm_backtrace_details(wasmtime::WasmBacktraceDetails::Disable);
    match effort {
        // Every engine runs quick code.
        Effort::Usual | Effort::Quick => {}
        #[cfg(test)]
        Effort::Portable => {
            // For a target that is named, nothing is taken from the processor that is there.
            config.target(&format!("{}-unknown-linux-gnu", std::env::consts::ARCH))?;
            config.cranelift_opt_level(OptLevel::None).cranelift_regalloc_algorithm(RegallocAlgorithm::SinglePass);
        }
    }
    Ok(config)
}

/// What compiled code depends on: version, settings and CPU features. Quick code is not kept as any other.
pub(super) fn compatibility_hash(engine: &Engine, effort: Effort) -> u64 {
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    if effort == Effort::Quick {
        "quick".hash(&mut hasher);
    }
    hasher.finish()
}

/// The key of code whose data was taken out, on a host where other code has this one.
pub(super) fn imaged_hash(plain: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    plain.hash(&mut hasher);
    "image".hash(&mut hasher);
    hasher.finish()
}

/// Starts the thread that ends the time slice of every guest of an engine once per tick, and of what it ticks `beside`
/// that. It ends with the engine. `late` counts how late the ticks come.
pub(super) fn tick(
    engine: &Engine,
    every: Duration,
    late: Option<Arc<Histogram>>,
    beside: impl Fn() + Send + 'static,
) -> std::io::Result<()> {
    let engine = engine.weak();
    thread::Builder::new().name("epoch".to_owned()).spawn(move || {
        while let Some(engine) = engine.upgrade() {
            engine.increment_epoch();
            drop(engine);
            beside();
            let since = late.as_ref().map(|_| Instant::now());
            thread::sleep(every);
            if let (Some(late), Some(since)) = (&late, since) {
                late.observe(since.elapsed().saturating_sub(every));
            }
        }
    })?;
    Ok(())
}

/// Why this process can never be swapped out, or why that cannot be shown.
///
/// It matters because the page map scan of wasmtime 48 skips pages that are swapped out: they would keep the last
/// call's data.
pub(super) fn proof_of_no_swap() -> Result<&'static str, &'static str> {
    if let Ok(swaps) = fs::read_to_string("/proc/swaps")
        && no_swap_devices(&swaps)
    {
        return Ok("no swap device in /proc/swaps");
    }
    let cgroup = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    if forbidden_by_cgroup(&cgroup, Path::new("/sys/fs/cgroup")) {
        return Ok("memory.swap.max is 0");
    }
    Err("the machine has swap and no control group forbids it")
}

/// `/proc/swaps` is a headline and one line per device.
fn no_swap_devices(swaps: &str) -> bool {
    swaps.starts_with("Filename") && swaps.lines().skip(1).all(|line| line.trim().is_empty())
}

/// Whether this process's control group, or one above it, has `memory.swap.max` = 0.
fn forbidden_by_cgroup(own: &str, root: &Path) -> bool {
    let Some(path) = own.lines().find_map(|line| line.strip_prefix("0::/")) else { return false };
    let group = root.join(path);
    group
        .ancestors()
        .take_while(|group| group.starts_with(root))
        .any(|group| fs::read_to_string(group.join("memory.swap.max")).is_ok_and(|limit| limit.trim() == "0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_devices_are_lines_after_the_headline() {
        let headline = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
        assert!(no_swap_devices(headline));
        assert!(!no_swap_devices(&format!("{headline}/dev/sda2 partition 1048572 0 -2\n")));
        assert!(!no_swap_devices(""));
    }

    #[test]
    fn any_parent_cgroup_may_forbid_swap() {
        let root = tempfile::tempdir().unwrap();
        let leaf = root.path().join("system.slice/bulkhead.service");
        fs::create_dir_all(&leaf).unwrap();
        assert!(!forbidden_by_cgroup("0::/system.slice/bulkhead.service\n", root.path()));
        fs::write(leaf.join("memory.swap.max"), "max\n").unwrap();
        assert!(!forbidden_by_cgroup("0::/system.slice/bulkhead.service\n", root.path()));
        fs::write(root.path().join("system.slice/memory.swap.max"), "0\n").unwrap();
        assert!(forbidden_by_cgroup("0::/system.slice/bulkhead.service\n", root.path()));
        assert!(!forbidden_by_cgroup("1:name=systemd:/\n", root.path()));
    }
}
