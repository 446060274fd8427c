//! Memories of guests that begin with a large image: those of Python, JavaScript and the like.
//!
//! The pool of wasmtime 48 restores at most 32 runs of pages of a memory after a call and gives the rest back to the
//! kernel. A script writes to more of them in each call, and so causes a page fault for each in the next one, which
//! costs more than the script. The memories of such guests are therefore this module's: it takes the data of a
//! component's memory out of what is compiled, keeps it as one sealed file, and gives each instance a slot in which
//! that file is mapped copy-on-write.
//!
//! Owns which components have an image, the slots and stacks of their calls, and how these are made anew between two
//! calls. Must not know what a call does. Invariants: an engine with an image runs the code of that component alone, so
//! that no memory begins with another one's data; what a call gets holds the image and zeros, never anything of another
//! call. Where that cannot be had (a component of another kind, a kernel that does not scan page maps, memory that can
//! be swapped out), guests stay in the pool.

mod image;
mod pages;
mod slots;
mod split;
mod stacks;

use std::io;
use std::sync::Arc;

use wasmtime::Config;

use image::{Contents, Image};
use slots::{SlotCreator, Slots, WarmSlots};
use split::Split;
use stacks::{StackLender, Stacks};

/// Bytes of data from which on an image pays: a script's runtime has some millions, a compiled guest some ten thousand.
const DATA_BYTES_MIN: usize = 1 << 20;

/// What the memories of all components of a sandbox share.
pub(super) struct SharedSlots {
    warm: WarmSlots,
    stacks: Arc<Stacks>,
}

impl SharedSlots {
    /// # Errors
    ///
    /// The kernel does not say which pages were written.
    pub(super) fn new() -> io::Result<Self> {
        let page = rustix::param::page_size();
        // A page of the image between two of zeros.
        let contents = Contents::of(&[(page, &vec![1; page])], 3 * page).ok_or(io::ErrorKind::InvalidData)?;
        Slots::new(Image::new(&contents)?, WarmSlots::default())?.try_out()?;
        Ok(Self { warm: WarmSlots::default(), stacks: Arc::new(Stacks::new()?) })
    }
}

/// A component whose memory has an image.
pub(super) struct ImagedComponent {
    /// What is compiled in its place.
    pub(super) code: Arc<[u8]>,
    contents: Contents,
}

impl ImagedComponent {
    /// `None`: the pool is the place for it.
    pub(super) fn of(component: &[u8]) -> Option<Self> {
        let Split { code, contents } = split::split(component, DATA_BYTES_MIN)?;
        Some(Self { code: code.into(), contents })
    }

    /// Lets an engine make instances of this component, and of no other one.
    ///
    /// # Errors
    ///
    /// There is no memory for the image.
    pub(super) fn configure(&self, config: &mut Config, shared: &SharedSlots) -> io::Result<()> {
        let slots = Slots::new(Image::new(&self.contents)?, shared.warm.clone())?;
        config.with_host_memory(Arc::new(SlotCreator(Arc::new(slots))));
        config.with_host_stack(Arc::new(StackLender(Arc::clone(&shared.stacks))));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
