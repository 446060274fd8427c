//! The host's end of the control socket.
//!
//! Owns which side of its start a host is on: until it serves, commands are refused with how far the start is, and who
//! wants MCP waits. Must not do a command itself. Invariant: once a command was carried out, none is refused for the
//! start again.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::commands::{HostCommand, StdioAttach};
use super::{Answer, Command, ControlError, Operator, REQUEST_BYTES_MAX, Request as _, socket, wire};

/// Connections at a time; more wait in the kernel.
const CONNECTIONS_MAX: usize = 64;
/// Accepting fails when descriptors run out; trying again at once would only burn the CPU.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The reading half of an attached connection.
pub type AttachedReader = Box<dyn AsyncBufRead + Send + Unpin>;
/// The writing half of an attached connection.
pub type AttachedWriter = Box<dyn AsyncWrite + Send + Unpin>;

/// Speaks MCP over a connection that asked for it, until its end.
#[async_trait]
pub trait Attach: Send + Sync + 'static {
    async fn attach(&self, reader: AttachedReader, writer: AttachedWriter);
}

/// What carries out commands, and speaks MCP.
#[derive(Clone)]
struct Service {
    operator: Arc<dyn Operator>,
    attach: Arc<dyn Attach>,
}

/// Says how far a start is.
pub type DescribeStart = Arc<dyn Fn() -> String + Send + Sync>;

/// What a connection is answered by.
#[derive(Clone)]
struct ServiceState {
    describe_start: DescribeStart,
    /// `None` until the host serves.
    service: watch::Receiver<Option<Service>>,
}

/// A listening control socket. Dropping it removes the socket and ends its connections.
pub struct Server {
    path: PathBuf,
    accepting: JoinHandle<()>,
    service: watch::Sender<Option<Service>>,
}

impl Server {
    /// Listens in the data directory whose lock the caller holds. Commands are refused with how far the start is, until
    /// there is [something that carries them out](Self::serve).
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn spawn(path: &Path, describe_start: DescribeStart) -> io::Result<Self> {
        let listener = socket::listen(path)?;
        let service = watch::Sender::new(None);
        let state = ServiceState { describe_start, service: service.subscribe() };
        let accepting = tokio::spawn(accept(listener, state));
        Ok(Self { path: path.to_owned(), accepting, service })
    }

    /// Carries out commands from now on.
    pub fn serve(&self, operator: Arc<dyn Operator>, attach: Arc<dyn Attach>) {
        self.service.send_replace(Some(Service { operator, attach }));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(error = %error, "the control socket was not removed");
        }
    }
}

/// The connections live in a set that dies with this future.
async fn accept(listener: UnixListener, state: ServiceState) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let owner = rustix::process::geteuid().as_raw();
    let mut connections = JoinSet::new();
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(error = %error, "a control connection was not accepted");
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        let who = match stream.peer_cred() {
            Ok(peer) if peer.uid() == owner => match peer.pid() {
                Some(pid) => format!("user {owner}, process {pid}"),
                None => format!("user {owner}"),
            },
            Ok(peer) => {
                tracing::warn!(peer.uid = peer.uid(), "a control connection of another user was refused");
                continue;
            }
            Err(error) => {
                tracing::warn!(error = %error, "a control connection of nobody was refused");
                continue;
            }
        };
        let state = state.clone();
        connections.spawn(async move {
            if let Err(error) = converse(stream, &who, state).await {
                tracing::debug!(error = %error, "a control connection broke");
            }
            drop(permit);
        });
    }
}

/// Answers one line after the other, until the other side is done or asks for MCP. Who hangs up is missed between two
/// commands only: what was begun goes on to its end, and to its line in the audit log. What is followed (a drain, say)
/// is polled by its client, and attached connections read on, so both end with the other side.
async fn converse(stream: UnixStream, who: &str, mut state: ServiceState) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = Vec::new();
        (&mut reader).take(REQUEST_BYTES_MAX).read_until(b'\n', &mut line).await?;
        if line.is_empty() {
            return Ok(());
        }
        if line.last() != Some(&b'\n') {
            let refusal = ControlError::Invalid(format!("a request is one line of at most {REQUEST_BYTES_MAX} bytes"));
            return reply(&mut writer, Err(refusal)).await;
        }
        match wire::read_request(&line) {
            Ok(Command::Host(HostCommand::Attach(_))) => {
                // It ends without a word where the start fails, as everything of this host does.
                let Some(service) = state.service.wait_for(Option::is_some).await.ok().and_then(|now| now.clone())
                else {
                    return Ok(());
                };
                reply(&mut writer, StdioAttach::answer(&())).await?;
                service.attach.attach(Box::new(reader), Box::new(writer)).await;
                return Ok(());
            }
            Ok(command) => {
                let service = state.service.borrow().clone();
                let done = match service {
                    Some(service) => service.operator.execute_for(who, command).await,
                    None => Err(ControlError::Starting((state.describe_start)())),
                };
                reply(&mut writer, done).await?;
            }
            Err(refusal) => reply(&mut writer, Err(refusal)).await?,
        }
    }
}

async fn reply(writer: &mut (impl AsyncWrite + Unpin), done: Result<Answer, ControlError>) -> io::Result<()> {
    let mut line = wire::write_reply(done)?;
    line.push(b'\n');
    writer.write_all(&line).await?;
    writer.flush().await
}
