//! The span that the work of this thread belongs to at this moment.
//!
//! Owns one slot a thread. Invariant: who enters a span leaves the one that was there before.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::Span;

thread_local! {
    static CURRENT: RefCell<Option<Span>> = const { RefCell::new(None) };
}

/// The span that was entered last, if the request is recorded.
pub fn current() -> Option<Span> {
    CURRENT.with_borrow(Option::clone)
}

/// Leaves a span when it is dropped, on the thread that entered it.
pub struct Entered {
    before: Option<Span>,
    stays_here: PhantomData<*const ()>,
}

impl Span {
    /// Makes this the [current](current()) span until the guard is dropped.
    pub fn enter(&self) -> Entered {
        let before = CURRENT.with_borrow_mut(|current| current.replace(self.clone()));
        Entered { before, stays_here: PhantomData }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let before = self.before.take();
        // What was current may be dropped by this, and that may look at the slot.
        let left = CURRENT.with_borrow_mut(|current| std::mem::replace(current, before));
        drop(left);
    }
}

/// A future within a span, wherever it is polled.
pub struct WithinSpan<F> {
    span: Option<Span>,
    future: F,
}

/// Puts a future within a span.
pub trait InSpan: Future + Unpin + Sized {
    /// Without a span, the future as it is.
    fn in_span(self, span: Option<Span>) -> WithinSpan<Self> {
        WithinSpan { span, future: self }
    }
}

impl<F: Future + Unpin> InSpan for F {}

impl<F: Future + Unpin> Future for WithinSpan<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Self { span, future } = &mut *self;
        let _entered = span.as_ref().map(Span::enter);
        Pin::new(future).poll(context)
    }
}
