//! One connection to the server.
//!
//! Owns how it is made: the way to the server, what is asked of its authentication, the settings of its session, the
//! prepared statements. Must not know what is read or written. Invariant: a password leaves the host only as the proof
//! of SCRAM; over a network, the proof is bound to the TLS connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio_postgres::tls::{ChannelBinding, NoTls, TlsConnect, TlsStream};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Row, Statement};

use super::super::Error;
use super::address::{Address, Endpoint};
use super::errors::{Failure, refuse, unavailable};
use super::sql::{Sql, TEXTS};

/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long a statement may take before the connection counts as broken: longer than the server's own timeout.
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// How long the server may be silent before callers are refused rather than kept waiting: a disk takes less for a group
/// of writes.
pub(super) const LATE_AFTER: Duration = Duration::from_secs(3);
/// Has the server end the session, and its lock, of a host that went away without a word, rather than after hours. On a
/// socket of the machine it means nothing.
const PROBE_WHEN_IDLE: &str = "set tcp_keepalives_idle = 10; set tcp_keepalives_interval = 5; set tcp_keepalives_count = 3; \
    set tcp_user_timeout = 20000";
/// Bytes of a message of the server that say what it asks for: its kind, its length, and the kind of authentication.
const AUTHENTICATION_BYTES: usize = 9;
const CLEAR_TEXT: u32 = 3;
const MD5: u32 = 5;

/// A connection over a network.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection whose TLS handshake is done and whose certificate was checked.
pub struct Secured {
    pub stream: Box<dyn Stream>,
    /// The digest of the server's certificate (RFC 5929, `tls-server-end-point`), if there is one for its kind of
    /// signature.
    pub end_point: Option<Vec<u8>>,
}

/// Makes connections over a network.
#[async_trait]
pub trait Dial: Send + Sync + 'static {
    /// Asks the server for TLS, and checks its certificate for this name.
    async fn dial(&self, host: &str, port: u16) -> Result<Secured, DialFailure>;
}

/// Why there is no connection over the network.
#[derive(Debug)]
pub enum DialFailure {
    /// Trying again may help.
    Unreachable(String),
    /// An operator has to change something: a sentence.
    Refused(String),
}

/// A session of the server.
pub(super) struct Connection {
    client: Client,
    statements: Vec<Statement>,
    /// Statements that were sent.
    pub(super) sent: Arc<AtomicU64>,
}

/// What is told of the payload of each notification.
pub(super) type Hear = Box<dyn Fn(&str) + Send + Sync>;

/// Parameters of a statement.
pub(super) type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

impl Connection {
    /// A session in which nothing is prepared yet: the schema may not be there.
    pub(super) async fn bare(address: &Address, dialer: Option<&Arc<dyn Dial>>) -> Result<Self, Error> {
        Self::made(address, dialer, None).await
    }

    /// The same, with what hears of the notifications of the channels that it listens to.
    pub(super) async fn listening(
        address: &Address,
        dialer: Option<&Arc<dyn Dial>>,
        hear: Hear,
    ) -> Result<Self, Error> {
        let connection = Self::made(address, dialer, Some(hear)).await?;
        connection.batch(PROBE_WHEN_IDLE).await.map_err(|failure| failure.undone())?;
        Ok(connection)
    }

    async fn made(address: &Address, dialer: Option<&Arc<dyn Dial>>, hear: Option<Hear>) -> Result<Self, Error> {
        let connecting = connect(address, dialer, hear);
        let client = tokio::time::timeout(CONNECT_MAX, connecting).await.map_err(|_| unavailable())??;
        Ok(Self { client, statements: Vec::new(), sent: Arc::default() })
    }

    /// A session in a schema.
    pub(super) async fn open(address: &Address, dialer: Option<&Arc<dyn Dial>>, schema: &str) -> Result<Self, Error> {
        let mut connection = Self::bare(address, dialer).await?;
        connection.enter(schema).await.map_err(|failure| failure.undone())?;
        Ok(connection)
    }

    /// Makes the schema the session's, and prepares the statements.
    pub(super) async fn enter(&mut self, schema: &str) -> Result<(), Failure> {
        let settings = format!(
            "set search_path = {schema}; set statement_timeout = '10s'; set lock_timeout = '5s'; \
             set idle_in_transaction_session_timeout = '10s'; set timezone = 'UTC'; {PROBE_WHEN_IDLE}"
        );
        self.batch(&settings).await?;
        for text in TEXTS {
            self.statements.push(in_time(self.client.prepare(text)).await?);
        }
        Ok(())
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Statements without parameters. Of several, none was done where one fails, unless they begin a transaction.
    pub(super) async fn batch(&self, text: &str) -> Result<(), Failure> {
        self.count();
        in_time(self.client.batch_execute(text)).await
    }

    /// Writes tables anew, without the usual bounds of time.
    pub(super) async fn rewrite(&self, tables: &[&str]) -> Result<(), Failure> {
        self.batch("set statement_timeout = 0; set lock_timeout = 0").await?;
        for table in tables {
            self.client.batch_execute(&format!("vacuum (full) {table}")).await?;
        }
        Ok(())
    }

    /// Whether the server answers in time.
    pub(super) async fn answers(&self) -> bool {
        matches!(tokio::time::timeout(LATE_AFTER, self.batch("")).await, Ok(Ok(())))
    }

    /// A statement that was not prepared.
    pub(super) async fn query_text(&self, text: &str, values: Values<'_>) -> Result<Vec<Row>, Failure> {
        self.count();
        in_time(self.client.query(text, values)).await
    }

    pub(super) async fn query(&self, sql: Sql, values: Values<'_>) -> Result<Vec<Row>, Failure> {
        self.count();
        in_time(self.client.query(self.statement(sql)?, values)).await
    }

    pub(super) async fn execute(&self, sql: Sql, values: Values<'_>) -> Result<u64, Failure> {
        self.count();
        in_time(self.client.execute(self.statement(sql)?, values)).await
    }

    fn count(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    fn statement(&self, sql: Sql) -> Result<&Statement, Failure> {
        let unprepared = || Failure::Broken("a statement was not prepared".to_owned());
        self.statements.get(sql as usize).ok_or_else(unprepared)
    }
}

async fn in_time<T>(answer: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, Failure> {
    let late = |_| Failure::Broken("the server does not answer".to_owned());
    Ok(tokio::time::timeout(ANSWER_MAX, answer).await.map_err(late)??)
}

/// Moves a session's messages, and tells of notifications, until it ends.
fn drive<S, T>(mut connection: tokio_postgres::Connection<S, T>, hear: Option<Hear>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: TlsStream + AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    tokio::spawn(async move {
        // It ends with an error, or with none, when the session does.
        while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
            if let (AsyncMessage::Notification(notification), Some(hear)) = (message, &hear) {
                hear(notification.payload());
            }
        }
    });
}

async fn connect(address: &Address, dialer: Option<&Arc<dyn Dial>>, hear: Option<Hear>) -> Result<Client, Error> {
    match &address.endpoint {
        Endpoint::Socket(path) => {
            let stream = UnixStream::connect(path).await.map_err(|error| unreachable_socket(path, &error))?;
            let guarded = PasswordGuard { stream, seen: Vec::new() };
            let connected = address.config.connect_raw(guarded, NoTls).await;
            let (client, connection) = connected.map_err(|error| session_error(error, address))?;
            drive(connection, hear);
            Ok(client)
        }
        Endpoint::Network { host, port } => {
            let no_dialer = || refuse("the database is not on this machine, and this program makes no connections");
            let secured = dialer.ok_or_else(no_dialer)?.dial(host, *port).await.map_err(|failure| match failure {
                DialFailure::Unreachable(reason) => {
                    tracing::debug!(reason, "the database cannot be reached");
                    unavailable()
                }
                DialFailure::Refused(sentence) => Error::Engine(sentence),
            })?;
            if secured.end_point.is_none() {
                return Err(refuse(
                    "the certificate of the database's server has a kind of signature that SCRAM cannot be bound to: \
                     give the server one signed with RSA or ECDSA",
                ));
            }
            let (client, connection) =
                address.config.connect_raw(secured, HandedOver).await.map_err(|error| session_error(error, address))?;
            drive(connection, hear);
            Ok(client)
        }
    }
}

fn unreachable_socket(path: &std::path::Path, error: &io::Error) -> Error {
    tracing::debug!(%error, socket = %path.display(), "the database cannot be reached");
    match error.kind() {
        io::ErrorKind::PermissionDenied => refuse(&format!("the socket {} may not be used: {error}", path.display())),
        _ => unavailable(),
    }
}

/// Why there is no session; the words of the client library are not an operator's.
fn session_error(error: tokio_postgres::Error, address: &Address) -> Error {
    let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    if source.contains(PLAIN_PASSWORD) || source.contains("did not use channel binding") {
        let lines = match address.endpoint {
            Endpoint::Socket(_) => "`local` lines of pg_hba.conf: peer or scram-sha-256",
            Endpoint::Network { .. } => "`hostssl` lines of pg_hba.conf: scram-sha-256",
        };
        return refuse(&format!(
            "the server asks for the password in the clear or as MD5, or for none at all, and the host proves it by SCRAM bound to the \
             connection only: set password_encryption = 'scram-sha-256', set the role's password again, and use {lines}"
        ));
    }
    if source.contains("password missing") {
        return refuse("the server asks for a password, and the address of the database has none: add it there");
    }
    match Failure::from(error) {
        Failure::Refused { code, message } if code.starts_with("28") || code.starts_with("3D") => {
            Error::Engine(format!("the server refuses the host: {message} (SQLSTATE {code})"))
        }
        failure => {
            tracing::debug!(reason = failure.describe(), "the database gives no session");
            failure.undone()
        }
    }
}

const PLAIN_PASSWORD: &str = "the server asks for a password that others could use";

/// Ends a connection whose server asks for a password in the clear or as MD5, before the client library answers.
struct PasswordGuard<S> {
    stream: S,
    /// How the server's first message begins.
    seen: Vec<u8>,
}

impl<S: AsyncRead + Unpin> AsyncRead for PasswordGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let missing = AUTHENTICATION_BYTES.saturating_sub(self.seen.len());
        if missing > 0 {
            let new = buffer.filled().get(before..).unwrap_or_default().iter().take(missing).copied();
            self.seen.extend(new.collect::<Vec<_>>());
            if asks_for_plain_password(&self.seen) {
                return Poll::Ready(Err(io::Error::other(PLAIN_PASSWORD)));
            }
        }
        Poll::Ready(Ok(()))
    }
}

fn asks_for_plain_password(message: &[u8]) -> bool {
    let [b'R', _, _, _, _, kind @ ..] = message else { return false };
    let kind = <[u8; 4]>::try_from(kind).map(u32::from_be_bytes);
    matches!(kind, Ok(CLEAR_TEXT | MD5))
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PasswordGuard<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Tells the client library that the handshake is done.
struct HandedOver;

impl TlsConnect<Secured> for HandedOver {
    type Stream = Secured;
    type Error = io::Error;
    type Future = std::future::Ready<io::Result<Secured>>;

    fn connect(self, stream: Secured) -> Self::Future {
        std::future::ready(Ok(stream))
    }
}

impl TlsStream for Secured {
    fn channel_binding(&self) -> ChannelBinding {
        self.end_point.clone().map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

impl AsyncRead for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Secured {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_password_is_told_from_scram() {
        let message = |kind: u32| [&b"R\0\0\0\x08"[..], &kind.to_be_bytes()].concat();
        assert!(asks_for_plain_password(&message(CLEAR_TEXT)));
        assert!(asks_for_plain_password(&message(MD5)));
        for other in [0, 10, 11] {
            assert!(!asks_for_plain_password(&message(other)));
        }
        assert!(!asks_for_plain_password(b"R\0\0\0\x08\0\0\0"), "the rest is yet to come");
    }
}
