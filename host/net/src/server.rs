//! HTTP/1.1 on a listener of the host: what is the same for clients and for administrators.
//!
//! Owns the accept loop, TLS, the bounds of a connection, and how connections end. Must not know what a request asks
//! for. Invariant: a connection costs a permit, a place of its address, time to shake hands and to send its headers,
//! and bytes for them, all of them bounded, before anything is done for it; connections do not outlive the last sender
//! of their phase.

mod addresses;
mod header_timeout;
mod proxies;
mod request_body;
mod tls;
mod workers;
mod write_timeout;

use std::error::Error;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Buf;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::AbortOnDrop;
use addresses::Addresses;
pub use proxies::Proxies;
pub use request_body::RequestBody;
use request_body::UnreadBody;
pub use tls::{Certificate, TlsError};
pub use workers::{ConnectionWorkers, WorkerPreference};

/// Connections that are told that the host is going down; they hold nothing up.
const LATE_CONNECTIONS_MAX: usize = 64;
/// Accepting fails when descriptors run out; trying again at once would only burn the CPU.
const ACCEPT_RETRY_MS: u64 = 50;
/// How long a client may go without reading what it is sent: longer than any pause of a network that still works.
const WRITE_STALL_MS_MAX: u64 = 60_000;

/// Where a listener is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Serving,
    /// Open requests may finish; nothing new begins.
    Draining,
    /// The time is over: what still runs answers that it does not end any more.
    Ending,
    /// What has no answer yet is refused.
    Refusing,
    /// Whatever is left is cut.
    Cut,
}

/// How long what runs has to answer that it does not end any more, in milliseconds.
const ENDING_MS: u64 = 100;
/// How long these answers, and those of what is refused then, have to be sent, in milliseconds.
const REFUSING_MS: u64 = 400;
/// The same together: how long connections last at most when what they serve has been told to end.
pub const ENDING: Duration = Duration::from_millis(ENDING_MS + REFUSING_MS);

/// What a listener works with.
pub struct HttpServerOptions {
    /// Without one, HTTP is served in the clear.
    pub certificate: Option<Arc<Certificate>>,
    /// Without them, connections live on the runtime that serves.
    pub workers: Option<Arc<ConnectionWorkers>>,
    pub proxies: Proxies,
    pub connections_max: u32,
    pub connections_per_address: u32,
    pub header_bytes_max: usize,
    /// One buffer of a connection; at least 8 KiB, and as much as its headers may have.
    pub buffer_bytes: usize,
    /// For a handshake, and for the headers of a request.
    pub header_read_max: Duration,
    /// A whole connection.
    pub connection_max: Option<Duration>,
}

/// A listener that serves. `connect` makes the service of one connection, from its address and where it would like to
/// be served.
pub struct HttpServer<F> {
    listener: TcpListener,
    phase: watch::Sender<Phase>,
    permits: Arc<Semaphore>,
    addresses: Arc<Addresses>,
    edge: Arc<Edge<F>>,
    _renewer: Option<AbortOnDrop<()>>,
}

/// What every connection is served with.
struct Edge<F> {
    connect: F,
    options: HttpServerOptions,
    acceptor: Option<TlsAcceptor>,
    phase: watch::Receiver<Phase>,
}

impl<F, S, B> HttpServer<F>
where
    F: Fn(IpAddr, WorkerPreference) -> S + Send + Sync + 'static,
    S: Service<Request<RequestBody>, Response = Response<B>, Future: Send> + Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body<Data: Buf + Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    /// # Errors
    /// The certificate cannot be served with.
    pub fn new(
        listener: TcpListener,
        phase: watch::Sender<Phase>,
        options: HttpServerOptions,
        connect: F,
    ) -> Result<Self, rustls::Error> {
        let acceptor = options.certificate.as_ref().map(Certificate::acceptor).transpose()?;
        let renewer = options.certificate.clone();
        Ok(Self {
            listener,
            permits: Arc::new(Semaphore::new(options.connections_max as usize)),
            addresses: Addresses::new(options.connections_per_address, options.proxies.clone()),
            edge: Arc::new(Edge { connect, options, acceptor, phase: phase.subscribe() }),
            phase,
            _renewer: renewer.map(|certificate| AbortOnDrop::spawn(async move { certificate.watch().await })),
        })
    }

    /// Accepts and serves until `shutdown` is done. From then on nothing new begins on open connections.
    pub async fn serve_until(&self, shutdown: impl Future<Output = ()>) {
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                (stream, peer, permit) = accept(&self.listener, &self.permits) => {
                    // What is over its limit is closed here: its permit goes to the next one.
                    if let Some(place) = self.addresses.enter(peer) {
                        let edge = Arc::clone(&self.edge);
                        let serve = move |stream, preference| {
                            let service = (edge.connect)(peer, preference);
                            async move {
                                edge.connection(stream, service).await;
                                drop((place, permit));
                            }
                        };
                        match &self.edge.options.workers {
                            Some(workers) => workers.spawn(stream, serve),
                            None => drop(tokio::spawn(serve(stream, WorkerPreference::default()))),
                        }
                    }
                }
            }
        }
        self.phase.send_replace(Phase::Draining);
    }

    /// Lets the connections that have a permit end. When they take too long, what they serve is told to end, then they
    /// are cut.
    pub async fn finish(&self, drain_max: Duration) {
        let all = || self.permits.acquire_many(self.edge.options.connections_max);
        let finished = async {
            let ending = Duration::from_millis(ENDING_MS);
            let refusing = Duration::from_millis(REFUSING_MS);
            for (time, next) in [(drain_max, Phase::Ending), (ending, Phase::Refusing), (refusing, Phase::Cut)] {
                if tokio::time::timeout(time, all()).await.is_ok() {
                    return;
                }
                self.phase.send_replace(next);
            }
            let _ = all().await;
        };
        tokio::select! {
            () = finished => {}
            () = self.answer_late() => {}
        }
    }

    /// While others finish: tells probes and clients that the host is going down.
    async fn answer_late(&self) {
        let permits = Arc::new(Semaphore::new(LATE_CONNECTIONS_MAX));
        loop {
            let (stream, peer, permit) = accept(&self.listener, &permits).await;
            let edge = Arc::clone(&self.edge);
            let service = (edge.connect)(peer, WorkerPreference::default());
            tokio::spawn(async move {
                edge.connection(stream, service).await;
                drop(permit);
            });
        }
    }
}

impl<F, S, B> Edge<F>
where
    F: Fn(IpAddr, WorkerPreference) -> S + Send + Sync + 'static,
    S: Service<Request<RequestBody>, Response = Response<B>, Future: Send> + Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body<Data: Buf + Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    async fn connection(&self, stream: TcpStream, service: S) {
        match self.options.connection_max {
            None => self.serve(stream, service).await,
            // A connection that takes longer is cut off.
            Some(longest) => drop(tokio::time::timeout(longest, self.serve(stream, service)).await),
        }
    }

    async fn serve(&self, stream: TcpStream, service: S) {
        let Some(acceptor) = &self.acceptor else { return self.requests(stream, service).await };
        let mut phase = self.phase.clone();
        let shaken = tokio::select! {
            shaken = tokio::time::timeout(self.options.header_read_max, acceptor.accept(stream)) => shaken,
            _ = phase.wait_for(|phase| *phase >= Phase::Ending) => return,
        };
        // A peer that shakes no hands in time, or not ours, gets nothing.
        if let Ok(Ok(stream)) = shaken {
            self.requests(stream, service).await;
        }
    }

    async fn requests<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(&self, stream: T, service: S) {
        let mut phase = self.phase.clone();
        let mut http = http1::Builder::new();
        http.keep_alive(*phase.borrow_and_update() == Phase::Serving)
            .timer(header_timeout::HeaderTimeout::default())
            .header_read_timeout(self.options.header_read_max)
            // Most answers are small: one copy costs less than a write in pieces.
            .writev(false)
            .max_header_size(self.options.header_bytes_max)
            .max_buf_size(self.options.buffer_bytes);
        let stream = TokioIo::new(write_timeout::Stalling::new(stream, Duration::from_millis(WRITE_STALL_MS_MAX)));
        let unread = &UnreadBody::default();
        let phases = &self.phase.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let waits_to_send = request_body::waits_to_send(request.headers());
            let answered = service.call(request.map(|incoming| unread.body(incoming)));
            async move {
                let mut response = answered.await?;
                // A drain ends the connection after this answer, which has to say so.
                unread.end(&mut response, || !waits_to_send && *phases.borrow() == Phase::Serving);
                Ok::<_, S::Error>(response)
            }
        });
        let mut connection = pin!(http.serve_connection(stream, service));
        // What ends a connection is the client's doing: nothing that an operator could act on.
        while until_changed(connection.as_mut(), unread, &mut phase).await {
            let now = *phase.borrow_and_update();
            // A phase that has no sender any more is that of a listener that is gone.
            match if phase.has_changed().is_ok() { now } else { Phase::Cut } {
                Phase::Serving => {}
                // A phase may be over before it is seen.
                Phase::Draining | Phase::Ending | Phase::Refusing => connection.as_mut().graceful_shutdown(),
                Phase::Cut => break,
            }
        }
    }
}

/// Drives a connection until it ends (`false`) or there is another phase (`true`).
async fn until_changed(
    mut connection: Pin<&mut impl Future>,
    unread: &UnreadBody,
    phase: &mut watch::Receiver<Phase>,
) -> bool {
    let look = phase.clone();
    let mut changed = pin!(phase.changed());
    let mut waker: Option<Waker> = None;
    poll_fn(|cx| {
        if connection.as_mut().poll(cx).is_ready() {
            return Poll::Ready(false);
        }
        unread.poll_discard(cx);
        // To ask takes a lock that all connections share, and every request comes by here; who has asked is woken.
        let is_told = waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        if is_told && matches!(look.has_changed(), Ok(false)) {
            return Poll::Pending;
        }
        waker = Some(cx.waker().clone());
        changed.as_mut().poll(cx).map(|_| true)
    })
    .await
}

/// The next connection. It takes its permit first: what has none waits in the kernel and costs nothing here.
async fn accept(listener: &TcpListener, permits: &Arc<Semaphore>) -> (TcpStream, IpAddr, OwnedSemaphorePermit) {
    let Ok(permit) = permits.clone().acquire_owned().await else {
        // The semaphore is never closed.
        return std::future::pending().await;
    };
    loop {
        match poll_fn(|cx| listener.poll_accept(cx)).await {
            Ok((stream, peer)) => {
                // Without this every event costs the 40 ms of a delayed acknowledgement. It fails only on a socket that
                // is gone.
                let _ = stream.set_nodelay(true);
                return (stream, peer.ip(), permit);
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(ACCEPT_RETRY_MS)).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::net::SocketAddr;

    use bytes::Bytes;
    use http_body_util::Full;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn accepted_connection_has_nodelay() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _, _permit) = accept(&listener, &Arc::new(Semaphore::new(1))).await;
        assert!(stream.nodelay().unwrap());
    }

    async fn answer(_: Request<RequestBody>) -> Result<Response<Full<Bytes>>, Infallible> {
        Ok(Response::new(Full::from("answered")))
    }

    /// A server whose answers are `answer`'s, its address and its phase.
    async fn serve() -> (AbortOnDrop<()>, SocketAddr, watch::Sender<Phase>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let options = HttpServerOptions {
            certificate: None,
            workers: None,
            proxies: Proxies::default(),
            connections_max: 2,
            connections_per_address: 2,
            header_bytes_max: 8192,
            buffer_bytes: 8192,
            header_read_max: Duration::from_secs(60),
            connection_max: None,
        };
        let phase = watch::Sender::new(Phase::Serving);
        let server = HttpServer::new(listener, phase.clone(), options, |_, _| service_fn(answer)).unwrap();
        let serving = AbortOnDrop::spawn(async move { server.serve_until(std::future::pending()).await });
        (serving, address, phase)
    }

    /// The headers of the next answer, in small letters, or nothing at the end. The body is always `answered`.
    async fn next_answer(connection: &mut TcpStream) -> String {
        let mut answer = Vec::new();
        let reading = async {
            while !answer.ends_with(b"\r\n\r\nanswered") {
                match connection.read_u8().await {
                    Ok(byte) => answer.push(byte),
                    Err(_) => break,
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), reading).await.expect("neither an answer nor the end");
        String::from_utf8(answer).unwrap().to_ascii_lowercase()
    }

    #[tokio::test]
    async fn connection_whose_request_was_not_read_serves_the_next_one_or_says_close() {
        let (_serving, address, phase) = serve().await;
        let whole = format!("Content-Length: {}", 64 << 10);
        let cases = [
            // The headers, the bytes of the body that come, the phase at the answer, and whether the next request is
            // served.
            ("Content-Length: 40", 40, Phase::Serving, true),
            (&*whole, 64 << 10, Phase::Serving, true),
            ("Content-Length: 65537", 65_537, Phase::Serving, false),
            ("Expect: 100-continue\r\nContent-Length: 40", 0, Phase::Serving, false),
            ("Transfer-Encoding: chunked", 0, Phase::Serving, false),
            ("Content-Length: 40\r\nConnection: close", 40, Phase::Serving, false),
            ("Content-Length: 0", 0, Phase::Serving, true),
            ("Content-Length: 40", 40, Phase::Draining, false),
        ];
        for (headers, bytes, phase_then, is_served) in cases {
            let case = format!("{headers} {phase_then:?}");
            let mut connection = TcpStream::connect(address).await.unwrap();
            let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{headers}\r\n\r\n");
            phase.send_replace(phase_then);
            connection.write_all(head.as_bytes()).await.unwrap();
            let first = next_answer(&mut connection).await;
            assert!(first.starts_with("http/1.1 200"), "{case}: {first}");
            assert_eq!(first.contains("connection: close"), !is_served, "{case}: {first}");
            tokio::time::sleep(Duration::from_millis(10)).await;
            let sent = connection.write_all(&vec![b'x'; bytes]).await;
            if is_served {
                sent.unwrap();
                connection.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
                let second = next_answer(&mut connection).await;
                assert!(second.starts_with("http/1.1 200"), "{case}: {second}");
            } else {
                assert_eq!(next_answer(&mut connection).await, "", "{case}");
            }
        }
    }

    #[tokio::test]
    async fn body_that_does_not_come_ends_its_connection() {
        let (_serving, address, _phase) = serve().await;
        let mut connection = TcpStream::connect(address).await.unwrap();
        connection.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\n\r\nx").await.unwrap();
        assert!(next_answer(&mut connection).await.starts_with("http/1.1 200"));
        assert_eq!(next_answer(&mut connection).await, "");
    }

    #[tokio::test]
    async fn connections_end_with_their_dropped_server() {
        let (serving, address, phase) = serve().await;
        drop(phase);
        let mut idle = TcpStream::connect(address).await.unwrap();
        let mut asking = TcpStream::connect(address).await.unwrap();
        asking.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let mut begin = [0; 12];
        asking.read_exact(&mut begin).await.unwrap();
        assert_eq!(&begin, b"HTTP/1.1 200");
        drop(serving);
        for connection in [&mut idle, &mut asking] {
            let mut rest = Vec::new();
            let ended = tokio::time::timeout(Duration::from_secs(20), connection.read_to_end(&mut rest)).await;
            assert!(ended.is_ok(), "a connection goes on without its listener");
        }
    }
}
