//! MCP over a pair of byte streams: standard input and output, or a socket.
//!
//! Owns the lines. Must not write anything but messages. Invariant: one task writes, so that lines never mix, and a
//! line that is too long costs no more than its limit and leaves the stream in step.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use http::StatusCode;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use bulkhead_domain::byte_order_mark;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::rights::Rights;
use bulkhead_limits::Permit;
use bulkhead_metrics::Transport;
use bulkhead_net::server::Phase;
use bulkhead_protocol::{
    self as protocol, Batch, BatchReceived, EncodedMessage as Message, Envelope, Exchange, Mcp, Peer, Received, Session,
};

use super::answer::{Chunks, Recipient};
use super::batch::{joined, short};
use super::ending::{answered_at_end, until_ending};
use super::quota::EdgeQuota;
use super::refusal::{Refusal, request_id};

/// Messages between the requests and the writer; a client that does not read makes its own requests wait.
const QUEUE_MESSAGES_MAX: usize = 64;
/// What open requests get after the input has ended: enough to answer `printf ... | bulkhead stdio`. A client that
/// closes the input waits for the end of the process, and kills it soon.
const EOF_GRACE_MS: u64 = 500;
const READ_BYTES: usize = 16 * 1024;

/// What a connection is served with.
#[derive(Clone)]
pub struct StdioOptions {
    /// `server.body_bytes_max`, for a line.
    pub line_bytes_max: usize,
    pub quota: Arc<EdgeQuota>,
    /// Connections end with [`Phase::Ending`], after what is open was answered. Each holds a receiver for as long as it
    /// lasts.
    pub phase: watch::Sender<Phase>,
}

/// Serves one client until its input ends, or the host. There is one session at most, which `initialize` opens and the
/// end closes.
///
/// # Errors
/// Reading or writing failed; what a client does wrong is answered, not returned.
pub async fn serve(
    mcp: Arc<dyn Mcp>,
    requestor: Requestor,
    reader: impl AsyncRead + Send,
    writer: impl AsyncWrite + Send + 'static,
    options: StdioOptions,
) -> io::Result<()> {
    serve_with(mcp, requestor, reader, writer, options, Duration::from_millis(EOF_GRACE_MS)).await
}

/// Like [`serve`]; open requests may take up to `grace` after the input has ended.
pub(super) async fn serve_with(
    mcp: Arc<dyn Mcp>,
    requestor: Requestor,
    reader: impl AsyncRead + Send,
    writer: impl AsyncWrite + Send + 'static,
    options: StdioOptions,
    grace: Duration,
) -> io::Result<()> {
    let (out, queue) = mpsc::channel(QUEUE_MESSAGES_MAX);
    let mut writing = tokio::spawn(write_lines(writer, queue, Arc::clone(&options.quota), requestor));
    let reader = pin!(reader);
    let mut lines = LineReader::new(reader, options.line_bytes_max);
    // Held to the end: who stops the host waits for its last receiver.
    let phase = options.phase.subscribe();
    let mut connection = Connection {
        mcp,
        requestor,
        options,
        session: None,
        in_flight: Arc::default(),
        requests: JoinSet::new(),
        standalone: JoinSet::new(),
        out,
    };
    let read = tokio::select! {
        read = connection.read_all(&mut lines) => read,
        // What is open answers by itself.
        () = until_ending(phase.clone()) => Ok(()),
        // Nobody can be answered any more.
        written = &mut writing => return written.unwrap_or_else(|error| Err(io::Error::other(error))),
    };
    connection.in_flight.close();
    let finishing = async {
        // Open requests end first; then everything is closed, the queue to the writer last.
        while connection.requests.join_next().await.is_some() {}
        drop(connection);
        writing.await.unwrap_or_else(|error| Err(io::Error::other(error)))
    };
    let finished = tokio::time::timeout(grace, finishing).await;
    drop(phase);
    match finished {
        Ok(written) => read.and(written),
        Err(_) => read,
    }
}

struct Connection {
    mcp: Arc<dyn Mcp>,
    requestor: Requestor,
    options: StdioOptions,
    /// With the time when it began.
    session: Option<(Arc<Session>, Instant)>,
    /// The requests that belong to no session.
    in_flight: Arc<protocol::Connection>,
    requests: JoinSet<()>,
    standalone: JoinSet<()>,
    out: mpsc::Sender<Said>,
}

/// A message for the writer, with the room for it until it is written.
type Said = (Message, Option<Permit>);

impl Connection {
    async fn read_all(&mut self, lines: &mut LineReader<impl AsyncRead + Unpin>) -> io::Result<()> {
        while let Some(line) = lines.next().await? {
            while self.requests.try_join_next().is_some() {}
            match line {
                InputLine::Message(message) => self.receive(message).await,
                InputLine::TooLong => {
                    let limit = self.options.line_bytes_max;
                    let text = format!("The line is longer than {limit} bytes, which is the limit body_bytes_max");
                    self.say(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, text).body()).await;
                }
            }
        }
        Ok(())
    }

    async fn receive(&mut self, message: Bytes) {
        self.options.quota.count_bytes_in(&self.requestor, message.len());
        let message = message.slice(byte_order_mark(&message)..);
        if Batch::begins(&message) && self.session.as_ref().is_some_and(|(session, _)| session.takes_batches()) {
            return self.receive_batch(&message).await;
        }
        let envelope = Envelope::parse(message);
        let permit = match self.options.quota.admit_and_open(&self.requestor) {
            Ok(permit) => permit,
            Err(refusal) => {
                self.count(&refusal);
                // What is no request gets no answer.
                if let Some(id) = request_id(&envelope) {
                    self.say(refusal.to(Some(id)).body()).await;
                }
                return;
            }
        };
        let recipient = self.recipient(request_id(&envelope));
        match self.mcp.receive(self.peer(), &envelope) {
            Received::Exchange(exchange) => {
                let exchange = answered_at_end(exchange, recipient.id.clone(), &self.options.phase);
                let forwarded = forward(exchange, recipient, self.out.clone());
                self.requests.spawn(async move {
                    forwarded.await;
                    drop(permit);
                });
            }
            Received::Opened { session, reply } => {
                self.standalone.shutdown().await;
                self.end_session();
                self.say(reply).await;
                let standalone = self.mcp.standalone(&session, Rights::default());
                self.standalone.spawn(forward(standalone, self.recipient(None), self.out.clone()));
                self.session = Some((session, Instant::now()));
            }
            Received::Accepted => {}
            Received::Settling(work) => work.await,
            Received::Rejected { body, .. } => self.say(body).await,
        }
    }

    /// Several messages on one line: charged together, then taken one after the other, and answered on one line.
    async fn receive_batch(&mut self, message: &Bytes) {
        let parsed = Batch::parse(message);
        let count = parsed.as_ref().map_or(1, Batch::count);
        let charged = self.options.quota.admit_batch(&self.requestor, count, 0);
        let (batch, permit) = match (parsed, charged) {
            (Ok(batch), Ok(permit)) => (batch, permit),
            (Err(body), Ok(_)) => return self.say(body).await,
            (Err(_), Err(refusal)) => {
                self.count(&refusal);
                return self.say(refusal.body()).await;
            }
            (Ok(batch), Err(mut refusal)) => {
                self.count(&refusal);
                // What is no request gets no answer.
                if let Some(body) = refusal.batch_body(&batch) {
                    self.say(body).await;
                }
                return;
            }
        };
        let BatchReceived { exchanges, responses, settling } = batch.receive(&*self.mcp, &self.peer());
        for work in settling {
            work.await;
        }
        let phase = &self.options.phase;
        let exchanges = exchanges.into_iter().map(|(id, exchange)| {
            let short_id = short(id.as_deref());
            (id, answered_at_end(exchange, short_id, phase))
        });
        let exchange = joined(exchanges.collect(), responses, self.recipient(None));
        let forwarded = forward(exchange, self.recipient(None), self.out.clone());
        self.requests.spawn(async move {
            forwarded.await;
            drop(permit);
        });
    }

    fn count(&self, refusal: &Refusal) {
        if let Some(limit) = refusal.limit {
            self.options.quota.metrics.refused(limit);
        }
    }

    fn peer(&self) -> Peer<'static> {
        Peer {
            full: self.options.quota.full_of_answers(&self.requestor),
            requestor: self.requestor,
            rights: Rights::default(),
            session: self.session.as_ref().map(|(session, _)| Arc::clone(session)),
            declared: None,
            traceparent: None,
            connection: Some(self.in_flight.clone()),
            reads_events: true,
            ends: None,
        }
    }

    fn recipient(&self, id: Option<String>) -> Recipient {
        Recipient { quota: Arc::clone(&self.options.quota), requestor: self.requestor, id }
    }

    async fn say(&self, message: String) {
        // The writer ends only when writing failed, which ends everything else too.
        let _ = self.out.send((message.into(), None)).await;
    }

    fn end_session(&mut self) {
        if let Some((session, since)) = self.session.take() {
            session.close();
            let metrics = &self.options.quota.metrics;
            metrics.session_ended(Transport::Stdio, session.protocol_version(), since.elapsed());
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.end_session();
    }
}

async fn forward(mut exchange: Exchange, recipient: Recipient, out: mpsc::Sender<Said>) {
    while let Some(frame) = exchange.next().await {
        let answer = match frame.last {
            true => recipient.response(frame.message),
            false => match recipient.room(&frame.message) {
                Ok(permit) => (frame.message, permit),
                // It answers nothing, and whoever wants to know asks.
                Err(_) => continue,
            },
        };
        if out.send(answer).await.is_err() || frame.last {
            return;
        }
    }
}

async fn write_lines(
    writer: impl AsyncWrite + Send,
    mut queue: mpsc::Receiver<Said>,
    quota: Arc<EdgeQuota>,
    requestor: Requestor,
) -> io::Result<()> {
    let mut writer = pin!(writer);
    while let Some((message, permit)) = queue.recv().await {
        for chunk in Chunks::line(message) {
            writer.write_all(&chunk).await?;
            if let Some(counts) = quota.counts(&requestor) {
                counts.add_bytes_out(chunk.len() as u64);
            }
        }
        drop(permit);
        if queue.is_empty() {
            writer.flush().await?;
        }
    }
    writer.flush().await
}

#[derive(Debug, PartialEq, Eq)]
enum InputLine {
    Message(Bytes),
    TooLong,
}

/// Cuts what is read into lines of bounded length.
struct LineReader<R> {
    reader: R,
    buffer: BytesMut,
    /// Bytes of the buffer that hold no line break.
    searched: usize,
    /// The rest of a line that was too long is on its way.
    skipping: bool,
    bytes_max: usize,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    fn new(reader: R, bytes_max: usize) -> Self {
        Self { reader, buffer: BytesMut::new(), searched: 0, skipping: false, bytes_max }
    }

    /// The next line that is not empty; the last one may lack its line break.
    async fn next(&mut self) -> io::Result<Option<InputLine>> {
        loop {
            let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
            if let Some(at) = unsearched.iter().position(|byte| *byte == b'\n') {
                let mut line = self.buffer.split_to(self.searched + at + 1);
                line.truncate(self.searched + at);
                self.searched = 0;
                if std::mem::take(&mut self.skipping) {
                    continue;
                }
                if let Some(line) = self.checked(line) {
                    return Ok(Some(line));
                }
                continue;
            }
            self.searched = self.buffer.len();
            if self.searched > self.bytes_max || self.skipping {
                // Give the memory back as well: the rest is only looked at for its end.
                self.buffer = BytesMut::new();
                self.searched = 0;
                if !std::mem::replace(&mut self.skipping, true) {
                    return Ok(Some(InputLine::TooLong));
                }
            }
            self.buffer.reserve(READ_BYTES);
            if self.reader.read_buf(&mut self.buffer).await? == 0 {
                let line = std::mem::take(&mut self.buffer);
                self.searched = 0;
                let unread = if std::mem::take(&mut self.skipping) { None } else { self.checked(line) };
                return Ok(unread);
            }
        }
    }

    fn checked(&self, line: BytesMut) -> Option<InputLine> {
        match line.trim_ascii().is_empty() {
            true => None,
            false if line.len() > self.bytes_max => Some(InputLine::TooLong),
            false => Some(InputLine::Message(line.freeze())),
        }
    }
}
