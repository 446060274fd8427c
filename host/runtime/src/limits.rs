//! What a guest may take of the host's memory, and what happens when it takes more.
//!
//! Owns the caps that no configuration changes, each with the attack that it stops, and the limiter that sums over all
//! memories and tables of a call. Invariant: a guest that hits a limit traps with a [`LimitHit`], whose text may be
//! read by anybody.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wasmtime::ResourceLimiter;

use super::trap_causes::HostFailure;
use bulkhead_domain::text::Bytes;

/// Core instances of one call. Stops a component that is made of thousands of tiny instances (Python needs about 20).
pub(super) const INSTANCES_MAX: usize = 64;

/// Linear memories of one call. Stops a component from taking many pool slots at once.
pub(super) const MEMORIES_MAX: usize = 8;

/// Tables of one call. Stops the same for tables.
pub(super) const TABLES_MAX: usize = 64;

/// Elements of all tables of one call; each costs 8 bytes of the host. Stops memory growth past the memory limit by
/// `table.grow`.
pub(super) const TABLE_ELEMENTS_MAX: usize = 200_000;

/// Elements of one table: the size of a slot in the pool. Language runtimes with many functions need tens of thousands.
pub(super) const TABLE_SLOT_ELEMENTS: usize = 40_000;

/// Component-model handles alive in one call. Stops `resource.new` in a loop, which allocates in the host without
/// calling it.
pub(super) const COMPONENT_HANDLES_MAX: usize = 4096;

/// Entries in the table of host resources (streams, pollables, files). Stops the hoarding of pollables, each a host
/// allocation.
pub(super) const HOST_RESOURCES_MAX: usize = 1024;

/// Entries in the table of what is pending in a call of WASI 0.3: calls between components, streams, futures and what
/// waits for them. A stream takes three. Stops a guest from beginning things that it never ends.
pub(super) const PENDING_MAX: usize = HOST_RESOURCES_MAX;

/// Bytes that one host call copies besides results and logs. Stops a guest from making the host allocate huge lists at
/// once.
pub(super) const HOSTCALL_BYTES_BASE: u64 = 1 << 20;

/// Random bytes in one request. Stops the host from generating megabytes per call.
pub(super) const RANDOM_BYTES_MAX: u64 = 64 << 10;

/// Bytes that a guest writes to a stream of WASI 0.2 in one call that waits for them. WASI sets this bound, and
/// wasmtime holds it.
pub(super) const BLOCKING_WRITE_BYTES_MAX: u64 = 4_096;

/// Bytes of a request's body that one piece of it has, in WASI 0.3. Stops a guest from having the host copy all of its
/// memory at once.
pub(super) const HTTP_PIECE_BYTES_MAX: usize = 64 << 10;

/// Bytes in the headers of one HTTP message. Stops header hoarding in the host.
pub(super) const HTTP_FIELD_BYTES_MAX: usize = 64 << 10;

/// Events between a guest and its driver. Stops a guest from filling the host's memory faster than it is read.
pub(super) const EVENTS_QUEUED_MAX: usize = 32;

/// Bytes in a status line or progress message; the rest is cut off. Stops megabytes in every `tasks/get`.
pub(super) const STATUS_BYTES_MAX: usize = 2048;

/// Different resources that can be reported as updated between two deliveries. Stops an endless set of URIs.
pub(super) const RESOURCE_UPDATES_MAX: usize = 64;

/// Questions in one `ask`, as the interface says. Stops a wall of dialogs.
pub(super) const INPUT_REQUESTS_MAX: usize = 16;

/// Bytes in one question, answers not counted. Stops megabytes in a stored task record.
pub(super) const INPUT_REQUEST_BYTES_MAX: usize = 256 << 10;

/// Bytes of the text of an error; the rest is cut off. Stops megabytes in logs, records and lists of faults.
pub(super) const ERROR_BYTES_MAX: usize = 8 << 10;

/// Bytes of stdout and stderr that reach the operator's debug log, per stream and call. Stops a guest from filling the
/// disk.
pub(super) const STDIO_BYTES_MAX: usize = 8 << 10;

/// Nesting of JSON that comes out of a guest. Stops stack overflows in every later reader.
pub(super) const JSON_DEPTH_MAX: usize = 64;

/// Icons of one tool, prompt, resource or template. Stops a plugin that fills every list with them.
pub(super) const ICONS_MAX: usize = 16;

/// Bytes of all icons of one of them: enough for some small images in `data:` URIs.
pub(super) const ICON_BYTES_MAX: usize = 64 << 10;

/// Members of the `_meta` of one of them.
pub(super) const META_MEMBERS_MAX: usize = 64;

/// Bytes of the `_meta` of one of them. What a call returns is bounded as a whole.
pub(super) const META_BYTES_MAX: usize = 16 << 10;

/// CPU time of the call that lists the tools at load, in milliseconds. Stops a plugin that hangs the start.
pub(super) const LIST_CPU_MS: u64 = 1000;

/// Wall-clock time of the same call, in milliseconds. Stops a plugin that sleeps at load.
pub(super) const LIST_WALL_MS: u64 = 10_000;

/// The limit that a guest hit. The text names it for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LimitHit {
    Memory {
        bytes_max: u64,
    },
    TableElements,
    /// Of what becomes the result, by the name that people know it by.
    Output {
        what: &'static str,
        bytes_max: u64,
    },
    /// Of all messages of one answer of an MCP server.
    Messages {
        bytes_max: u64,
    },
    /// Of those that are nothing of the call's.
    StrayMessages {
        bytes_max: u64,
    },
    /// Of one call of an MCP server.
    Rounds {
        count_max: u32,
    },
    /// In one request.
    RandomBytes {
        count: u64,
    },
}

impl fmt::Display for LimitHit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { bytes_max } => write!(f, "the tool used more than its {} of memory", Bytes(*bytes_max)),
            Self::TableElements => write!(f, "the tool used more than {TABLE_ELEMENTS_MAX} table elements"),
            Self::Output { what, bytes_max } => {
                write!(f, "the tool's {what} is longer than {}, which is call.result_bytes", Bytes(*bytes_max))
            }
            Self::Messages { bytes_max } => {
                write!(f, "the tool's messages are longer than {}, which follows call.result_bytes", Bytes(*bytes_max))
            }
            Self::StrayMessages { bytes_max } => {
                write!(f, "the tool sent more than {} of messages that are nothing of its call's", Bytes(*bytes_max))
            }
            Self::Rounds { count_max } => write!(f, "the tool asked {count_max} times and came to no end"),
            Self::RandomBytes { count } => {
                write!(f, "the tool asked for {count} random bytes at once; {RANDOM_BYTES_MAX} is the most")
            }
        }
    }
}

impl std::error::Error for LimitHit {}

/// The memory that a guest may use, and who uses it: its own memories, and what the host holds for it, such as whole
/// HTTP messages.
#[derive(Debug)]
pub(super) struct MemoryUse {
    bytes_max: u64,
    memories: AtomicU64,
    held: AtomicU64,
}

impl MemoryUse {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { bytes_max, memories: AtomicU64::new(0), held: AtomicU64::new(0) }
    }

    /// Charges what the host is going to hold.
    ///
    /// # Errors
    ///
    /// It does not fit beside the rest; nothing is charged.
    pub(super) fn hold(&self, bytes: u64) -> Result<(), LimitHit> {
        let held = self.held.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if held.saturating_add(self.memories.load(Ordering::Relaxed)) <= self.bytes_max {
            return Ok(());
        }
        self.release(bytes);
        Err(self.hit())
    }

    pub(super) fn release(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn grow(&self, bytes: u64) -> Result<(), LimitHit> {
        let memories = self.memories.load(Ordering::Relaxed).saturating_add(bytes);
        if memories.saturating_add(self.held.load(Ordering::Relaxed)) > self.bytes_max {
            return Err(self.hit());
        }
        self.memories.store(memories, Ordering::Relaxed);
        Ok(())
    }

    fn hit(&self) -> LimitHit {
        LimitHit::Memory { bytes_max: self.bytes_max }
    }
}

/// Bytes that the host holds for a guest, for as long as this is there.
#[derive(Debug)]
pub(super) struct HeldBytes {
    memory: Arc<MemoryUse>,
    bytes: u64,
}

impl HeldBytes {
    pub(super) fn none(memory: &Arc<MemoryUse>) -> Self {
        Self { memory: Arc::clone(memory), bytes: 0 }
    }

    /// Charges more, as [`MemoryUse::hold`].
    pub(super) fn add(&mut self, bytes: u64) -> Result<(), LimitHit> {
        self.memory.hold(bytes)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.memory.release(self.bytes);
    }
}

/// Counts what one store holds.
#[derive(Debug)]
pub(super) struct Limiter {
    memory: Arc<MemoryUse>,
    table_elements: usize,
}

impl Limiter {
    pub(super) fn new(memory: Arc<MemoryUse>) -> Self {
        Self { memory, table_elements: 0 }
    }

    /// For the next instance of the same call, once the one before is gone.
    pub(super) fn renewed(&self) -> Self {
        self.memory.memories.store(0, Ordering::Relaxed);
        Self::new(Arc::clone(&self.memory))
    }

    /// Bytes of all memories. They never shrink.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory.memories.load(Ordering::Relaxed)
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        self.memory.grow(desired.saturating_sub(current) as u64)?;
        Ok(true)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        failed(error)
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let elements = self.table_elements.saturating_add(desired.saturating_sub(current));
        if elements > TABLE_ELEMENTS_MAX {
            return Err(LimitHit::TableElements.into());
        }
        self.table_elements = elements;
        Ok(true)
    }

    fn table_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        failed(error)
    }

    fn instances(&self) -> usize {
        INSTANCES_MAX
    }

    fn tables(&self) -> usize {
        TABLES_MAX
    }

    fn memories(&self) -> usize {
        MEMORIES_MAX
    }
}

/// A guest may see that something cannot grow only if the same guest sees it each time: what its own type forbids. The
/// rest is the host's failure.
fn failed(error: wasmtime::Error) -> wasmtime::Result<()> {
    let text = format!("{error:#}");
    if FORBIDDEN_BY_TYPE.contains(&text.as_str()) {
        Ok(())
    } else {
        Err(HostFailure(format!("growth failed: {text}")).into())
    }
}

/// What wasmtime says of growth that the type of a memory or table forbids, whatever the host has.
const FORBIDDEN_BY_TYPE: [&str; 2] =
    ["memory growth exceeds memory type's limits", "overflow calculating new table size"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_holds_and_the_guest_has_is_one_memory() {
        let memory = Arc::new(MemoryUse::new(100));
        let mut limiter = Limiter::new(Arc::clone(&memory));
        assert!(limiter.memory_growing(0, 60, None).unwrap());
        let mut held = HeldBytes::none(&memory);
        held.add(40).unwrap();
        assert_eq!(held.add(1), Err(LimitHit::Memory { bytes_max: 100 }));
        limiter.memory_growing(60, 61, None).unwrap_err();
        drop(held);
        assert!(limiter.memory_growing(60, 100, None).unwrap());
        memory.hold(1).unwrap_err();
    }

    #[test]
    fn growth_fails_for_the_guest_only_where_its_type_says_so() {
        let said = |text: &str| failed(wasmtime::Error::msg(text.to_owned()));
        FORBIDDEN_BY_TYPE.iter().for_each(|text| said(text).unwrap());
        assert!(said("mprotect failed").unwrap_err().is::<HostFailure>());
    }

    /// The texts are wasmtime's.
    #[test]
    fn guest_sees_that_a_memory_cannot_be_larger_than_its_type() {
        let mut config = wasmtime::Config::new();
        config.concurrency_support(false);
        let engine = wasmtime::Engine::new(&config).unwrap();
        let grow = r#"(module (memory 1)
            (func (export "grow") (result i32) (memory.grow (i32.const 65536))))"#;
        let module = wasmtime::Module::new(&engine, wat::parse_str(grow).unwrap()).unwrap();
        let mut store = wasmtime::Store::new(&engine, Limiter::new(Arc::new(MemoryUse::new(1 << 20))));
        store.limiter(|limiter| limiter);
        let instance = wasmtime::Instance::new(&mut store, &module, &[]).unwrap();
        let grow = instance.get_typed_func::<(), i32>(&mut store, "grow").unwrap();
        assert_eq!(grow.call(&mut store, ()).unwrap(), -1);
    }
}
