//! The first contents of a memory, in memory that cannot be written.
//!
//! Owns the sealed file that slots map, and the view of it that they are restored from. Invariant: neither ever
//! changes.

use std::fs::File;
use std::io::{self, Write as _};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// Bytes of an image. Stops a component with a little data at each end of four gibibytes, whose gap would be memory of
/// the host: the image of Python's interpreter has a third of it.
const IMAGE_BYTES_MAX: usize = 64 << 20;

/// What a memory begins with: these bytes, and zeros around them.
pub(super) struct Contents {
    /// From one border of pages to another one.
    bytes: Vec<u8>,
    /// Where they begin.
    start: usize,
    /// Bytes of the memory.
    pub(super) minimum: usize,
}

impl Contents {
    /// Pieces that lie within `minimum`, each above the ones before. `None`: there is nothing, or it lies too far
    /// apart.
    pub(super) fn of(pieces: &[(usize, &[u8])], minimum: usize) -> Option<Self> {
        let page = rustix::param::page_size();
        let pieces = || pieces.iter().filter(|(_, bytes)| !bytes.is_empty());
        let start = pieces().map(|(start, _)| *start).min()?;
        let start = start - start % page;
        let end = pieces().map(|(start, bytes)| start + bytes.len()).max()?.checked_next_multiple_of(page)?;
        if end > minimum || end - start > IMAGE_BYTES_MAX {
            return None;
        }
        let mut contents = vec![0; end - start];
        for (at, piece) in pieces() {
            contents.get_mut(at - start..at - start + piece.len())?.copy_from_slice(piece);
        }
        Some(Self { bytes: contents, start, minimum })
    }
}

/// The same where slots can map it.
pub(super) struct Image {
    file: OwnedFd,
    view: *const u8,
    /// Where it lies in a memory.
    pub(super) at: Range<usize>,
    /// Bytes that a memory has at its beginning.
    pub(super) minimum: usize,
}

#[expect(unsafe_code, reason = "the view is read from all threads")]
// SAFETY: what the pointer leads to is mapped for as long as this lives, and never written.
unsafe impl Send for Image {}
#[expect(unsafe_code, reason = "the view is read from all threads")]
// SAFETY: as above.
unsafe impl Sync for Image {}

impl Image {
    pub(super) fn new(contents: &Contents) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut file = File::from(rustix::fs::memfd_create("memory-image", flags)?);
        file.write_all(&contents.bytes)?;
        let file = OwnedFd::from(file);
        let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        let length = contents.bytes.len();
        #[expect(unsafe_code, reason = "a mapping has no safe form")]
        // SAFETY: a new mapping of a whole file, at a place that the kernel chooses; the seals keep the file as it is.
        let view = unsafe { rustix::mm::mmap(ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, &file, 0)? };
        let at = contents.start..contents.start + length;
        Ok(Self { file, view: view.cast(), at, minimum: contents.minimum })
    }

    /// Maps it into a memory, so that what is written there is the memory's own.
    ///
    /// # Safety
    ///
    /// `base` must begin a mapping of at least `minimum` bytes that nobody else uses, and which `self.at` may be taken
    /// from.
    #[expect(unsafe_code, reason = "a mapping at a place that is given")]
    pub(super) unsafe fn map(&self, base: *mut u8) -> io::Result<()> {
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the caller gives the place away.
        unsafe {
            rustix::mm::mmap(base.add(self.at.start).cast(), self.at.len(), protection, flags, &self.file, 0)?;
        }
        Ok(())
    }

    /// What a memory begins with.
    #[expect(unsafe_code, reason = "a slice of a mapping")]
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for as long as `self` lives, readable, and never written.
        unsafe { std::slice::from_raw_parts(self.view, self.at.len()) }
    }
}

impl Drop for Image {
    #[expect(unsafe_code, reason = "the end of a mapping")]
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and slices of it are borrowed from it. Failure leaves it mapped.
        let _ = unsafe { rustix::mm::munmap(self.view.cast_mut().cast(), self.at.len()) };
    }
}
