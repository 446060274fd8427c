//! Standard input and output of one instance of a server: a line is a message.
//!
//! Owns both streams. Must not ask anybody anything: what the server asks is kept until its guest waits. Invariants:
//! what it reads follows from the request, from what it wrote and from the answers to that alone; its input stays open
//! until the answer is there, or until nothing but more input could bring the guest on; what it writes is bounded while
//! it comes.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use wasmtime_wasi::cli::{IsTerminal, StdinStream, StdoutStream};
use wasmtime_wasi_io::poll::Pollable;
use wasmtime_wasi_io::streams::{InputStream, OutputStream, StreamError, StreamResult};

use super::McpEra;
use super::listener::{Heard, Listener};
use super::messages::{Reply, ServerRequest};
use super::reader::{Framing, MessageReader};
use crate::limits::{LimitHit, STDIO_BYTES_MAX};

/// How often a guest may look for input in a row before it is made to wait a little: its other work may be under way
/// meanwhile.
const LOOKS_IN_A_ROW: u32 = 32;
/// How long it waits then: what it looks for besides may be there any time.
const NAP: Duration = Duration::from_millis(5);

/// The streams of one call, and what passed in them. All clones are the same ones.
#[derive(Clone, Default)]
pub(crate) struct Conversation(Arc<Streams>);

#[derive(Default)]
struct Streams {
    state: Mutex<State>,
    /// There is input, or there will be none any more.
    arrived: Notify,
    answered: Notify,
}

#[derive(Default)]
struct State {
    input: VecDeque<u8>,
    is_closed: bool,
    /// `None`: nobody listens yet.
    output: Option<Output>,
    /// Of what is looked at for being ready, how often that was the input.
    looks: usize,
    /// Looks in vain since anything passed.
    vain_looks: u32,
}

/// What takes the messages of an instance.
struct Output {
    era: McpEra,
    reader: MessageReader,
    listener: Listener,
    requests: VecDeque<ServerRequest>,
    requests_taken: u32,
    is_cancelled: bool,
    reply: Option<Reply>,
    /// A limit that ended it. Not every way of writing tells a guest that it is over.
    hit: Option<LimitHit>,
}

impl Conversation {
    /// Begins anew, for another instance.
    pub(super) fn begin(&self, era: McpEra, lines: String, listener: Listener, bytes_max: u64) {
        let output = Output {
            era,
            reader: MessageReader::new(Framing::JsonLines, bytes_max),
            listener,
            requests: VecDeque::new(),
            requests_taken: 0,
            is_cancelled: false,
            reply: None,
            hit: None,
        };
        *self.0.state.lock() = State { input: lines.into_bytes().into(), output: Some(output), ..State::default() };
    }

    /// Comes back with the answer to the call.
    pub(super) async fn answered(&self) -> Reply {
        loop {
            let answered = self.0.answered.notified();
            if let Some(reply) = self.reply() {
                return reply;
            }
            answered.await;
        }
    }

    fn reply(&self) -> Option<Reply> {
        self.0.state.lock().output.as_mut()?.reply.take()
    }

    /// The answer of a guest that is over.
    ///
    /// # Errors
    ///
    /// It wrote too much.
    pub(super) fn finish(&self) -> Result<Option<Reply>, LimitHit> {
        let output = self.0.state.lock().output.take();
        let Some(Output { reader, mut listener, reply, hit, .. }) = output else { return Ok(None) };
        if reply.is_some() {
            return Ok(reply);
        }
        if let Some(hit) = hit {
            return Err(hit);
        }
        let rest = reader.finish().map(|message| listener.hear(&message)).transpose()?.flatten();
        Ok(rest.and_then(|heard| if let Heard::Reply(reply) = heard { Some(reply) } else { None }))
    }

    /// The revision that the server speaks, and its next request. How many there were counts that one.
    pub(super) fn next_request(&self) -> Option<(McpEra, ServerRequest, u32)> {
        let mut state = self.0.state.lock();
        let output = state.output.as_mut()?;
        let request = output.requests.pop_front()?;
        output.requests_taken += 1;
        Some((output.era, request, output.requests_taken))
    }

    /// Gives the guest another line.
    pub(super) fn push(&self, line: &str) {
        let mut state = self.0.state.lock();
        state.input.extend(line.bytes());
        state.input.push_back(b'\n');
        state.vain_looks = 0;
        self.0.arrived.notify_waiters();
    }

    /// Tells the guest that nobody wants its answer any more, once.
    pub(super) fn cancel(&self) {
        let is_first = {
            let mut state = self.0.state.lock();
            let Some(output) = state.output.as_mut() else { return };
            !std::mem::replace(&mut output.is_cancelled, true)
        };
        if is_first {
            self.push(&super::requests::cancellation());
        }
    }

    /// Whether the guest has been told so, or cannot be told anything.
    pub(crate) fn knows_of_cancel(&self) -> bool {
        self.0.state.lock().output.as_ref().is_none_or(|output| output.is_cancelled)
    }

    /// Looks for input are counted from here on.
    pub(crate) fn count_looks(&self) {
        self.0.state.lock().looks = 0;
    }

    /// Whether some of what was looked at is the input.
    pub(crate) fn was_looked_at(&self) -> bool {
        self.0.state.lock().looks > 0
    }

    /// Nothing is ready of so many things that the guest waits for. If they are all the input, nothing can bring it on,
    /// and it gets to the end of that.
    pub(crate) fn ends_for(&self, count: usize) -> bool {
        let mut state = self.0.state.lock();
        if state.looks < count || count == 0 {
            return false;
        }
        state.is_closed = true;
        self.0.arrived.notify_waiters();
        true
    }

    /// Has a guest that looks for input again and again wait for a moment.
    pub(crate) async fn nap(&self) {
        let arrived = self.0.arrived.notified();
        {
            let mut state = self.0.state.lock();
            state.vain_looks = state.vain_looks.saturating_add(1);
            if state.vain_looks <= LOOKS_IN_A_ROW || state.has_input() {
                return;
            }
        }
        tokio::select! {
            () = arrived => {}
            () = tokio::time::sleep(NAP) => {}
        }
    }

    fn take(&self, bytes: &[u8]) -> Result<(), LimitHit> {
        let mut state = self.0.state.lock();
        state.vain_looks = 0;
        let Some(output) = state.output.as_mut() else { return Ok(()) };
        let taken = output.take(bytes);
        if output.reply.is_some() {
            self.0.answered.notify_waiters();
        }
        if let Err(hit) = &taken {
            output.hit = Some(hit.clone());
        }
        taken
    }
}

impl Output {
    /// What follows the answer is nobody's business.
    fn take(&mut self, bytes: &[u8]) -> Result<(), LimitHit> {
        if self.reply.is_some() {
            return Ok(());
        }
        for message in self.reader.take(bytes)? {
            match self.listener.hear(&message)? {
                Some(Heard::Reply(reply)) => {
                    self.reply = Some(reply);
                    return Ok(());
                }
                Some(Heard::Request(request)) => self.requests.push_back(request),
                None => {}
            }
        }
        Ok(())
    }
}

impl State {
    fn has_input(&self) -> bool {
        !self.input.is_empty() || self.is_closed
    }

    fn read(&mut self, size: usize) -> Vec<u8> {
        let size = size.min(self.input.len());
        // A guest that reads nothing again and again looks in vain as well.
        if size > 0 {
            self.vain_looks = 0;
        }
        self.input.drain(..size).collect()
    }
}

impl IsTerminal for Conversation {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdinStream for Conversation {
    fn async_stream(&self) -> Box<dyn AsyncRead + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn InputStream> {
        Box::new(Stdin(self.clone()))
    }
}

impl StdoutStream for Conversation {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(Stdout(self.clone()))
    }
}

/// The end of input that a guest reads through WASI 0.2.
struct Stdin(Conversation);

#[async_trait::async_trait]
impl Pollable for Stdin {
    async fn ready(&mut self) {
        let streams = Arc::clone(&self.0.0);
        streams.state.lock().looks += 1;
        loop {
            let arrived = streams.arrived.notified();
            if streams.state.lock().has_input() {
                return;
            }
            arrived.await;
        }
    }
}

#[async_trait::async_trait]
impl InputStream for Stdin {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        let mut state = self.0.0.state.lock();
        if state.input.is_empty() && state.is_closed {
            return Err(StreamError::Closed);
        }
        Ok(state.read(size).into())
    }
}

/// The end of output that it writes through WASI 0.2.
struct Stdout(Conversation);

#[async_trait::async_trait]
impl Pollable for Stdout {
    async fn ready(&mut self) {}
}

#[async_trait::async_trait]
impl OutputStream for Stdout {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.0.take(&bytes).map_err(|hit| StreamError::Trap(hit.into()))
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(STDIO_BYTES_MAX)
    }
}

/// A component may run through WASI 0.2 and read through 0.3, where no guest is held while its client is asked: it
/// reads the request, and the end.
impl AsyncRead for Conversation {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        buffer.put_slice(&self.0.state.lock().read(buffer.remaining()));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Conversation {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let full = |hit: LimitHit| io::Error::new(io::ErrorKind::BrokenPipe, hit);
        Poll::Ready(self.take(bytes).map(|()| bytes.len()).map_err(full))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
