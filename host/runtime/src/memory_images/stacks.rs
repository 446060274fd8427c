//! Stacks for the calls of components with images.
//!
//! Owns the stacks that wait for the next call. Invariants: a stack has one holder and a page below it that nobody can
//! reach; one that is free holds zeros alone.

use std::io;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use wasmtime::{StackCreator, StackMemory};

use super::pages::PageMap;

/// Pages of one stack that are filled with zeros; of a stack with more, all are returned to the kernel. A script takes
/// some ten.
const PAGES_KEPT_MAX: usize = 32;

/// Stacks that wait for calls.
const FREE_STACKS_MAX: usize = 128;

/// The stacks of a sandbox.
pub(super) struct Stacks {
    page_map: PageMap,
    free: Mutex<Vec<Stack>>,
}

impl Stacks {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { page_map: PageMap::open()?, free: Mutex::default() })
    }

    fn take(&self, bytes: usize) -> io::Result<Stack> {
        // All of them have one size, that of the configuration.
        let free = self.free.lock().pop().filter(|stack| stack.range().len() == bytes);
        free.map_or_else(|| Stack::new(bytes), Ok)
    }

    fn give_back(&self, stack: Stack) {
        if self.clear(&stack).is_err() {
            return;
        }
        #[cfg(test)]
        super::tests::check_stack(stack.base, stack.range());
        let mut free = self.free.lock();
        if free.len() < FREE_STACKS_MAX {
            free.push(stack);
        }
    }

    #[expect(unsafe_code, reason = "writes to a mapping that has no references")]
    fn clear(&self, stack: &Stack) -> io::Result<()> {
        let start = stack.base.expose_provenance();
        let cleared = self.page_map.own(stack.range(), PAGES_KEPT_MAX, |run| {
            // SAFETY: a run lies in what was asked for, which is the stack's own mapping; its call has ended.
            unsafe { ptr::write_bytes(stack.base.wrapping_add(run.start - start), 0, run.len()) }
        });
        if cleared.is_err() {
            let base = stack.base.wrapping_add(stack.guard);
            // SAFETY: as above; anonymous pages are zeros afterwards.
            unsafe { rustix::mm::madvise(base.cast(), stack.range().len(), Advice::LinuxDontNeed)? };
        }
        Ok(())
    }
}

/// Addresses for one stack and what guards it.
struct Stack {
    base: *mut u8,
    mapped: usize,
    /// Bytes at the beginning that cannot be reached.
    guard: usize,
}

#[expect(unsafe_code, reason = "a stack goes from thread to thread with its call")]
// SAFETY: it is the only one that knows its mapping, which belongs to no thread.
unsafe impl Send for Stack {}
#[expect(unsafe_code, reason = "wasmtime asks for it of stacks")]
// SAFETY: a shared reference gives away addresses and nothing else.
unsafe impl Sync for Stack {}

impl Stack {
    #[expect(unsafe_code, reason = "a mapping has no safe form")]
    fn new(bytes: usize) -> io::Result<Self> {
        let guard = rustix::param::page_size();
        if !bytes.is_multiple_of(guard) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mapped = bytes.checked_add(guard).ok_or(io::ErrorKind::InvalidInput)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let base = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), mapped, ProtFlags::empty(), flags)? };
        let stack = Self { base: base.cast(), mapped, guard };
        let may = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: the part lies in the new mapping.
        unsafe { rustix::mm::mprotect(stack.base.wrapping_add(guard).cast(), bytes, may)? };
        Ok(stack)
    }

    /// The addresses of the stack itself.
    fn range(&self) -> Range<usize> {
        let base = self.base.expose_provenance();
        base + self.guard..base + self.mapped
    }
}

impl Drop for Stack {
    #[expect(unsafe_code, reason = "the end of a mapping")]
    fn drop(&mut self) {
        // SAFETY: the mapping is the stack's own, and its call has ended. Failure leaves addresses mapped that nobody
        // knows.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.mapped) };
    }
}

/// Gives calls their stacks.
pub(super) struct StackLender(pub(super) Arc<Stacks>);

#[expect(unsafe_code, reason = "wasmtime relies on what stacks say of themselves")]
// SAFETY: a stack is aligned to pages, holds zeros, and has a page below it that cannot be reached.
unsafe impl StackCreator for StackLender {
    fn new_stack(&self, size: usize, _: bool) -> Result<Box<dyn StackMemory>, wasmtime::Error> {
        let stack = self.0.take(size)?;
        Ok(Box::new(CallStack { stack: Some(stack), stacks: Arc::clone(&self.0) }))
    }
}

/// A stack in the hands of a call.
struct CallStack {
    /// There until the end.
    stack: Option<Stack>,
    stacks: Arc<Stacks>,
}

#[expect(unsafe_code, reason = "wasmtime relies on what stacks say of themselves")]
// SAFETY: see `StackLender`.
unsafe impl StackMemory for CallStack {
    fn top(&self) -> *mut u8 {
        self.stack.as_ref().map_or(ptr::null_mut(), |stack| stack.base.wrapping_add(stack.mapped))
    }

    fn range(&self) -> Range<usize> {
        self.stack.as_ref().map_or(0..0, Stack::range)
    }

    fn guard_range(&self) -> Range<*mut u8> {
        let guard = |stack: &Stack| stack.base..stack.base.wrapping_add(stack.guard);
        self.stack.as_ref().map_or(ptr::null_mut()..ptr::null_mut(), guard)
    }
}

impl Drop for CallStack {
    fn drop(&mut self) {
        if let Some(stack) = self.stack.take() {
            self.stacks.give_back(stack);
        }
    }
}
