//! Which pages of a mapping have contents of their own.
//!
//! Owns the question to the kernel (`PAGEMAP_SCAN`, Linux 6.7). Invariant: every page that was written since it was
//! mapped or returned to the kernel is found, whether it is in memory, swapped out or on its way to another place; or
//! the answer is that it is not known.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ops::Range;

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, opcode};

/// Runs of pages in one answer; there may be many answers.
const RUNS_PER_SCAN: usize = 128;

// What the kernel says of a page (`linux/fs.h`).
const IS_FILE: u64 = 1 << 2;
const IS_PRESENT: u64 = 1 << 3;
/// Also one that is being moved: compaction does that without any swap.
const IS_SWAPPED: u64 = 1 << 4;
const IS_ZERO_PAGE: u64 = 1 << 5;

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct ScanArguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

struct Scan<'a>(&'a mut ScanArguments);

#[expect(unsafe_code, reason = "a request to the kernel that rustix does not know")]
// SAFETY: opcode and structure are those of `linux/fs.h`; the kernel writes to the structure, and to `vec` up to its
// length.
unsafe impl Ioctl for Scan<'_> {
    /// How many regions were found.
    type Output = usize;

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        opcode::read_write::<ScanArguments>(b'f', 16)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::from_mut(self.0).cast()
    }

    unsafe fn output_from_ptr(count: IoctlOutput, _: *mut c_void) -> rustix::io::Result<usize> {
        usize::try_from(count).map_err(|_| rustix::io::Errno::OVERFLOW)
    }
}

/// The page map of this process.
pub(super) struct PageMap(File);

impl PageMap {
    pub(super) fn open() -> io::Result<Self> {
        File::open("/proc/self/pagemap").map(Self)
    }

    /// Gives each run of own pages in a range of addresses, in order; how many pages they are. What was given before an
    /// error may be a part.
    ///
    /// # Errors
    ///
    /// The kernel does not say, or they are more than `pages_max`.
    pub(super) fn own(
        &self,
        range: Range<usize>,
        pages_max: usize,
        mut run: impl FnMut(Range<usize>),
    ) -> io::Result<usize> {
        let page = rustix::param::page_size();
        let mut regions = [PageRegion::default(); RUNS_PER_SCAN];
        let mut pages = 0;
        let mut start = range.start;
        while start < range.end {
            let mut arguments = ScanArguments {
                size: size_of::<ScanArguments>() as u64,
                start: start as u64,
                end: range.end as u64,
                vec: regions.as_mut_ptr().expose_provenance() as u64,
                vec_len: regions.len() as u64,
                // Neither a page of the file that is mapped nor the page of zeros.
                category_inverted: IS_FILE | IS_ZERO_PAGE,
                category_mask: IS_FILE | IS_ZERO_PAGE,
                category_anyof_mask: IS_PRESENT | IS_SWAPPED,
                ..ScanArguments::default()
            };
            #[expect(unsafe_code, reason = "a request to the kernel")]
            // SAFETY: the file is a page map, `vec` is an array of `vec_len` regions, and any range may be asked for.
            let count = unsafe { rustix::ioctl::ioctl(&self.0, Scan(&mut arguments))? };
            for region in regions.get(..count).ok_or(io::ErrorKind::InvalidData)? {
                let region = address(region.start)?..address(region.end)?;
                pages += region.len() / page;
                if pages > pages_max || region.start < start || region.end > range.end {
                    return Err(io::ErrorKind::QuotaExceeded.into());
                }
                run(region);
            }
            let end = address(arguments.walk_end)?;
            if end <= start {
                return Err(io::ErrorKind::InvalidData.into());
            }
            start = end;
        }
        Ok(pages)
    }
}

fn address(number: u64) -> io::Result<usize> {
    usize::try_from(number).map_err(|_| io::ErrorKind::InvalidData.into())
}
