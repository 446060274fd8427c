//! Places for the memories of one component's instances, which begin with its image.
//!
//! Owns the slots: who has one, what is done to it before the next one gets it, and which stay warm. Invariants: a slot
//! has one holder; a slot that is free holds the image and zeros, whatever its holder did and however it ended, and
//! nothing above its first size can be reached; one of which that is not certain is returned to the kernel as a whole.

use std::io;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use wasmtime::{LinearMemory, MemoryCreator, MemoryType};

use super::image::Image;
use super::pages::PageMap;

/// Pages of one slot that are restored by copying them. Of a slot with more, all are returned to the kernel: what calls
/// have written over time adds up. A Python guest writes some 280.
pub(super) const PAGES_KEPT_MAX: usize = 512;

/// Slots of all components that stay warm between calls. More would hold memory for calls that may never come.
const WARM_SLOTS_MAX: usize = 128;

/// The warm slots of all components of a sandbox.
#[derive(Clone, Default)]
pub(crate) struct WarmSlots(Arc<AtomicUsize>);

impl WarmSlots {
    /// Whether another one may stay warm.
    fn add(&self) -> bool {
        let add = |warm: usize| (warm < WARM_SLOTS_MAX).then_some(warm + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    fn remove(&self, slots: usize) {
        self.0.fetch_sub(slots, Ordering::Relaxed);
    }
}

/// The slots of one component.
pub(super) struct Slots {
    image: Image,
    page_map: PageMap,
    free: Mutex<Vec<Slot>>,
    warm: WarmSlots,
}

impl Slots {
    pub(super) fn new(image: Image, warm: WarmSlots) -> io::Result<Self> {
        Ok(Self { image, page_map: PageMap::open()?, free: Mutex::default(), warm })
    }

    /// Shows on one slot that the kernel finds what was written, and that it is as it was afterwards.
    ///
    /// # Errors
    ///
    /// It does not.
    #[expect(unsafe_code, reason = "reads and writes in a mapping that has no references")]
    pub(super) fn try_out(&self) -> io::Result<()> {
        let page = rustix::param::page_size();
        let size = self.image.minimum;
        let slot = self.take(size)?;
        let start = slot.base.expose_provenance();
        let found = || self.page_map.own(start..start + size, PAGES_KEPT_MAX, |_| {});
        // SAFETY: every page of the slot can be read.
        let read = |at: usize| unsafe { ptr::read_volatile(slot.base.wrapping_add(at)) };
        let before: Vec<u8> = (0..size).step_by(page).map(read).collect();
        let read_alone = found()?;
        for at in (0..size).step_by(page) {
            // SAFETY: every page of the slot can be written.
            unsafe { ptr::write_volatile(slot.base.wrapping_add(at), read(at).wrapping_add(1)) }
        }
        let written = found()?;
        self.restore(&slot, size)?;
        let after: Vec<u8> = (0..size).step_by(page).map(read).collect();
        let holds = read_alone == 0 && written == size / page && before == after;
        if holds { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
    }

    /// A slot of so many bytes of addresses, whose first ones are the image.
    fn take(&self, mapped: usize) -> io::Result<Slot> {
        let free = self.free.lock().pop();
        let Some(slot) = free else { return Slot::new(&self.image, mapped) };
        self.warm.remove(1);
        // All memories of an engine are reserved alike.
        if slot.mapped == mapped { Ok(slot) } else { Slot::new(&self.image, mapped) }
    }

    /// Takes a slot back of which the first `used` bytes could be written.
    fn give_back(&self, slot: Slot, used: usize) {
        if self.restore(&slot, used).is_err() {
            // Dropped, it goes to the kernel as a whole.
            return;
        }
        if self.warm.add() {
            self.free.lock().push(slot);
        }
    }

    /// Makes a slot as it was at first.
    fn restore(&self, slot: &Slot, used: usize) -> io::Result<()> {
        let start = slot.base.expose_provenance();
        let kept = self.page_map.own(start..start + used, PAGES_KEPT_MAX, |run| self.restore_pages(slot, run));
        if kept.is_err() {
            #[expect(unsafe_code, reason = "a mapping has no safe form")]
            // SAFETY: the range is the slot's, which nobody else has; its pages are those of the image or zeros
            // afterwards.
            unsafe {
                rustix::mm::madvise(slot.base.cast(), used, Advice::LinuxDontNeed)?;
            }
        }
        #[cfg(test)]
        super::tests::check_slot(&self.image, slot.base, used);
        if used > self.image.minimum {
            slot.protect(self.image.minimum..used, MprotectFlags::empty())?;
        }
        Ok(())
    }

    /// Restores a run of pages: those of the image from it, and zeros around it.
    #[expect(unsafe_code, reason = "writes to a mapping that has no references")]
    fn restore_pages(&self, slot: &Slot, run: Range<usize>) {
        let start = slot.base.expose_provenance();
        let image = start + self.image.at.start..start + self.image.at.end;
        let before = run.start..run.end.min(image.start);
        let within = run.start.max(image.start)..run.end.min(image.end);
        let after = run.start.max(image.end)..run.end;
        let pointer = |address: usize| slot.base.wrapping_add(address - start);
        for zeros in [before, after].into_iter().filter(|zeros| !zeros.is_empty()) {
            // SAFETY: a run lies in what was asked for, which is the part of the slot that its memory could write.
            unsafe { ptr::write_bytes(pointer(zeros.start), 0, zeros.len()) }
        }
        if let Some(bytes) =
            self.image.bytes().get(within.start.saturating_sub(image.start)..within.end.saturating_sub(image.start))
        {
            // SAFETY: as above; the image lies elsewhere, and is as long as it is in the slot.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), pointer(within.start), bytes.len()) }
        }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        self.warm.remove(self.free.get_mut().len());
    }
}

/// Addresses for one memory and what guards it.
struct Slot {
    base: *mut u8,
    mapped: usize,
}

#[expect(unsafe_code, reason = "a slot goes from thread to thread with its call")]
// SAFETY: it is the only one that knows its mapping, which belongs to no thread.
unsafe impl Send for Slot {}
#[expect(unsafe_code, reason = "wasmtime asks for it of memories")]
// SAFETY: a shared reference gives away the address and nothing else.
unsafe impl Sync for Slot {}

impl Slot {
    #[expect(unsafe_code, reason = "a mapping has no safe form")]
    fn new(image: &Image, mapped: usize) -> io::Result<Self> {
        if mapped < image.minimum {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let base = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), mapped, ProtFlags::empty(), flags)? };
        let slot = Self { base: base.cast(), mapped };
        // SAFETY: the mapping is new, and nobody else knows of it; it is at least as long as the memory.
        unsafe { image.map(slot.base)? };
        slot.protect(0..image.minimum, MprotectFlags::READ | MprotectFlags::WRITE)?;
        Ok(slot)
    }

    /// What may be done to a part of it.
    #[expect(unsafe_code, reason = "a mapping has no safe form")]
    fn protect(&self, part: Range<usize>, may: MprotectFlags) -> io::Result<()> {
        if part.end > self.mapped || part.start > part.end {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the part lies in the slot's own mapping, to which there are no references.
        unsafe { rustix::mm::mprotect(self.base.wrapping_add(part.start).cast(), part.len(), may)? };
        Ok(())
    }
}

impl Drop for Slot {
    #[expect(unsafe_code, reason = "the end of a mapping")]
    fn drop(&mut self) {
        // SAFETY: the mapping is the slot's own; its memory is gone. Failure leaves addresses mapped that nobody knows.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.mapped) };
    }
}

/// Gives memories their places.
pub(super) struct SlotCreator(pub(super) Arc<Slots>);

#[expect(unsafe_code, reason = "wasmtime relies on what memories say of themselves")]
// SAFETY: a memory that comes out of it has the bytes that are reserved, from which it never moves, followed by as many
// as guard it; of all those, its present size can be read and written, the rest cannot be reached. It is not filled
// with zeros but begins with the image, in the place of the data that was taken out of the component.
unsafe impl MemoryCreator for SlotCreator {
    fn new_memory(
        &self,
        _: MemoryType,
        minimum: usize,
        _: Option<usize>,
        reserved: Option<usize>,
        guard: usize,
    ) -> Result<Box<dyn LinearMemory>, String> {
        let slots = Arc::clone(&self.0);
        let reserved = reserved.ok_or("memories without a reservation are not offered")?;
        if minimum != slots.image.minimum || minimum > reserved {
            return Err("the memory is not that of the image".to_owned());
        }
        let mapped = reserved.checked_add(guard).ok_or("the reservation is too large")?;
        let slot = slots.take(mapped).map_err(|error| format!("no place for a memory: {error}"))?;
        Ok(Box::new(SlotMemory { slot: Some(slot), size: minimum, reserved, slots }))
    }
}

/// A memory in its slot.
struct SlotMemory {
    /// There until the end.
    slot: Option<Slot>,
    size: usize,
    reserved: usize,
    slots: Arc<Slots>,
}

#[expect(unsafe_code, reason = "wasmtime relies on what memories say of themselves")]
// SAFETY: see `SlotCreator`.
unsafe impl LinearMemory for SlotMemory {
    fn byte_size(&self) -> usize {
        self.size
    }

    fn byte_capacity(&self) -> usize {
        self.reserved
    }

    fn grow_to(&mut self, size: usize) -> wasmtime::Result<()> {
        let slot = self.slot.as_ref().filter(|_| (self.size..=self.reserved).contains(&size));
        let slot = slot.ok_or_else(|| wasmtime::Error::msg("the memory does not fit into its place"))?;
        slot.protect(self.size..size, MprotectFlags::READ | MprotectFlags::WRITE)?;
        self.size = size;
        Ok(())
    }

    fn as_ptr(&self) -> *mut u8 {
        self.slot.as_ref().map_or(ptr::null_mut(), |slot| slot.base)
    }
}

impl Drop for SlotMemory {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.slots.give_back(slot, self.size);
        }
    }
}
