//! A listener for operators: administrators, scrapers of metrics, browsers of the dashboard.
//!
//! Owns how their connections are accepted and bounded. Must not know a credential, nor what is answered. Invariant: a
//! connection costs a permit and bounded time and bytes before anything is done for it.

use std::convert::Infallible;
use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::Authority;
use http::{HeaderName, Request, Response, header};
use hyper::body::Body;
use hyper::service::service_fn;
use tokio::net::TcpListener;
use tokio::sync::watch;

use bulkhead_net::AbortOnDrop;
use bulkhead_net::address::{host_of, is_this_machine};
use bulkhead_net::server::{Certificate, HttpServer, HttpServerOptions, Phase, Proxies, RequestBody};

/// For a handshake and for headers.
const ARRIVAL: Duration = Duration::from_secs(10);
/// The headers of one request to a listener for operators, in bytes.
const HEADER_BYTES_MAX: usize = 16 << 10;
/// Wrong credentials at one listener for operators from one address.
pub const FAILURES_PER_MINUTE_MAX: u32 = 10;
/// Browsers say here where a request comes from.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// How often what is idle is forgotten.
const FORGET_EVERY: Duration = Duration::from_secs(60);

/// What answers the requests of a listener.
pub trait Responder: Send + Sync + 'static {
    /// What answers consist of.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;

    /// The answer to a request from this address.
    fn respond(&self, request: Request<RequestBody>, peer: IpAddr)
    -> impl Future<Output = Response<Self::Body>> + Send;

    /// Lets go of what has not been used for a while, such as addresses without failures. Called once a minute.
    fn forget_idle(&self);
}

/// Bounds of the connections.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionBounds {
    /// At a time; more wait in the kernel.
    pub total: u32,
    pub per_address: u32,
    /// How long one lasts; `None`: as long as its client likes.
    pub lifetime: Option<Duration>,
}

/// Why a request comes from a page in a browser, or may. Pages have no business where programs ask. `by_own_name`: the
/// listener has nothing else that keeps a page out, so only names of this machine lead to it: by DNS rebinding, a page
/// has another one.
pub(crate) fn refuse_pages<B>(request: &Request<B>, by_own_name: bool) -> Result<(), &'static str> {
    let headers = request.headers();
    let mut hosts = headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
    let host = hosts.next();
    let target = request.uri().authority().map(Authority::as_str);
    let is_own = |name: &str| host_of(name.trim()).is_some_and(|host| is_this_machine(&host));
    if by_own_name && (host.is_none() || hosts.next().is_some() || !host.into_iter().chain(target).all(is_own)) {
        return Err("this listener answers to names of this machine only, such as 127.0.0.1 and localhost");
    }
    let mut sites = headers.get_all(FETCH_SITE).iter();
    if headers.contains_key(header::ORIGIN) || sites.any(|site| site != "none" && site != "same-origin") {
        return Err("this listener is not for web pages");
    }
    Ok(())
}

/// The listener. Dropping it ends it with its connections.
pub struct OperatorListener {
    _tasks: [AbortOnDrop<()>; 2],
}

impl OperatorListener {
    /// Serves; without a certificate in the clear.
    ///
    /// # Errors
    /// The certificate cannot be served with.
    pub fn spawn(
        listener: TcpListener,
        certificate: Option<Arc<Certificate>>,
        bounds: ConnectionBounds,
        responder: impl Responder,
    ) -> Result<Self, rustls::Error> {
        let options = HttpServerOptions {
            certificate,
            workers: None,
            proxies: Proxies::default(),
            connections_max: bounds.total,
            connections_per_address: bounds.per_address,
            header_bytes_max: HEADER_BYTES_MAX,
            buffer_bytes: HEADER_BYTES_MAX,
            header_read_max: ARRIVAL,
            connection_max: bounds.lifetime,
        };
        let responder = Arc::new(responder);
        let answering = Arc::clone(&responder);
        let connect = move |peer: IpAddr, _| {
            let responder = Arc::clone(&answering);
            let peer = peer.to_canonical();
            service_fn(move |request| {
                let responder = Arc::clone(&responder);
                async move { Ok::<_, Infallible>(responder.respond(request, peer).await) }
            })
        };
        let server = HttpServer::new(listener, watch::Sender::new(Phase::Serving), options, connect)?;
        let serving = async move { server.serve_until(std::future::pending()).await };
        let forgetting = async move {
            let mut tick = tokio::time::interval(FORGET_EVERY);
            loop {
                tick.tick().await;
                responder.forget_idle();
            }
        };
        Ok(Self { _tasks: [AbortOnDrop::spawn(serving), AbortOnDrop::spawn(forgetting)] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(uri: &str, said: &[(&str, &str)], by_own_name: bool) -> bool {
        let request =
            said.iter().fold(Request::builder().uri(uri), |request, (name, value)| request.header(*name, *value));
        refuse_pages(&request.body(()).unwrap(), by_own_name).is_err()
    }

    #[test]
    fn page_is_told_by_the_name_that_it_came_by_and_by_what_its_browser_says() {
        for own in ["127.0.0.1:9464", "localhost", "LOCALHOST.:9464", "[::1]:9464", "127.0.0.2"] {
            assert!(!refused("/metrics", &[("host", own)], true), "{own}");
        }
        let foreign =
            ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:9464", "a@localhost", "10.0.0.1", ""];
        for name in foreign {
            assert!(refused("/metrics", &[("host", name)], true), "{name}");
            assert!(!refused("/metrics", &[("host", name)], false), "something else keeps pages out: {name}");
        }
        assert!(
            refused("/metrics", &[], true)
                && refused("/metrics", &[("host", "localhost"), ("host", "localhost")], true)
        );
        assert!(refused("http://evil.example/metrics", &[("host", "localhost")], true), "the target names another one");
        for by_own_name in [true, false] {
            let browser =
                |site: &str| refused("/metrics", &[("host", "localhost"), ("sec-fetch-site", site)], by_own_name);
            assert!(!browser("none") && !browser("same-origin"));
            assert!(browser("cross-site") && browser("same-site") && browser(""));
            for origin in ["null", "http://localhost", "http://evil.example"] {
                assert!(refused("/metrics", &[("host", "localhost"), ("origin", origin)], by_own_name), "{origin}");
            }
        }
    }
}
