//! Small requests of the host's own: one document in, bounded in bytes and time; no redirect is followed.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, HOST, HeaderName, HeaderValue, USER_AGENT};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use super::dial::{self, DialError};
use crate::address::{Network, is_public, normal_host};

/// Bytes of a response's headers.
const HEADER_BYTES_MAX: usize = 64 << 10;
const AGENT: HeaderValue = HeaderValue::from_static(concat!("bulkhead/", env!("CARGO_PKG_VERSION")));

/// An absolute address on the web, without user, password or fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// As it was written.
    text: String,
    tls: bool,
    /// Normal.
    host: String,
    authority: HeaderValue,
    port: u16,
    /// With the query.
    path: String,
}

/// Why a text is no [`Url`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an https:// address (http:// is for this machine only), without user and fragment")]
pub struct NotAUrl(String);

impl FromStr for Url {
    type Err = NotAUrl;

    fn from_str(text: &str) -> Result<Self, NotAUrl> {
        let wrong = || NotAUrl(text.to_owned());
        let uri: http::Uri = text.parse().map_err(|_| wrong())?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wrong()),
        };
        let authority = uri.authority().ok_or_else(wrong)?;
        if authority.as_str().contains('@') || text.contains('#') || authority.host().is_empty() {
            return Err(wrong());
        }
        let host = normal_host(authority.host());
        let this_machine = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        if !tls && !this_machine {
            return Err(wrong());
        }
        Ok(Self {
            text: text.to_owned(),
            tls,
            host,
            authority: HeaderValue::from_str(authority.as_str()).map_err(|_| wrong())?,
            port: authority.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Url {
    /// The addresses that the operator named by it: an address as such, or this machine.
    pub fn named(&self) -> Vec<Network> {
        match self.host.parse() {
            Ok(address) => vec![Network::of(address)],
            Err(_) if self.host == "localhost" => Network::loopback().to_vec(),
            Err(_) => Vec::new(),
        }
    }

    /// Scheme and authority, without a slash at the end.
    pub fn origin(&self) -> &str {
        let path = self.text.find("://").map_or(0, |at| at + 3);
        let end = self.text.get(path..).and_then(|rest| rest.find(['/', '?'])).map_or(self.text.len(), |at| path + at);
        self.text.get(..end).unwrap_or_default()
    }

    /// The path, without a slash at the end and without the query.
    pub fn path(&self) -> &str {
        self.path.split('?').next().unwrap_or_default().trim_end_matches('/')
    }

    /// Without port and brackets, in lower case.
    pub fn host(&self) -> &str {
        &self.host
    }
}

/// Why a request brought nothing.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("the exchange broke: {0}")]
    Broken(#[from] hyper::Error),
    #[error("there was no answer within {0} ms")]
    Late(u64),
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the request cannot be written: {0}")]
    Unwritable(#[from] http::Error),
}

/// How far requests may go.
#[derive(Clone)]
pub struct Reach {
    pub tls: Arc<rustls::ClientConfig>,
    /// Addresses that are not public and may be reached all the same.
    pub named: Vec<Network>,
    /// The whole exchange, from the name to the last byte.
    pub ms_max: u64,
    /// A body.
    pub bytes_max: usize,
}

impl Reach {
    /// Fetches a document.
    ///
    /// # Errors
    /// [`RequestError`]; a status of the server is none.
    pub async fn get(&self, url: &Url) -> Result<(StatusCode, Bytes), RequestError> {
        self.send(Method::GET, url, &[], Bytes::new()).await
    }

    /// Sends a document and reads the answer.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn post(
        &self,
        url: &Url,
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), RequestError> {
        self.send(Method::POST, url, headers, body).await
    }

    async fn send(
        &self,
        method: Method,
        url: &Url,
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), RequestError> {
        let exchange = self.exchange(method, url, headers, body);
        let limit = Duration::from_millis(self.ms_max);
        tokio::time::timeout(limit, exchange).await.map_err(|_| RequestError::Late(self.ms_max))?
    }

    async fn exchange(
        &self,
        method: Method,
        url: &Url,
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), RequestError> {
        let may_reach = |address| is_public(address) || self.named.iter().any(|named| named.contains(address));
        let tls = url.tls.then(|| Arc::clone(&self.tls));
        let stream = dial::connect(&url.host, url.port, tls, may_reach).await?;
        let (mut sender, connection) =
            http1::Builder::new().max_buf_size(HEADER_BYTES_MAX).handshake(TokioIo::new(stream)).await?;
        let mut request = Request::builder()
            .method(method)
            .uri(&url.path)
            .header(HOST, &url.authority)
            .header(USER_AGENT, AGENT)
            .header(ACCEPT, "application/json");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body))?;
        // Both in this future: when it is dropped, the connection goes with it.
        let answer = async {
            let mut response = sender.send_request(request).await?;
            let mut bytes = BytesMut::new();
            while let Some(frame) = response.body_mut().frame().await {
                let Ok(data) = frame?.into_data() else { continue };
                if bytes.len() + data.len() > self.bytes_max {
                    return Err(RequestError::TooLarge(self.bytes_max));
                }
                bytes.extend_from_slice(&data);
            }
            Ok((response.status(), bytes.freeze()))
        };
        let mut connection = std::pin::pin!(connection);
        let mut answer = std::pin::pin!(answer);
        tokio::select! {
            answer = &mut answer => answer,
            // The connection may be over before its last bytes were read.
            ended = &mut connection => {
                ended?;
                answer.await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_needs_scheme_and_host_without_credentials() {
        let url: Url = "https://Login.example.com:8443/a/b/?x=1".parse().unwrap();
        assert_eq!(
            (url.origin(), url.path(), url.host()),
            ("https://Login.example.com:8443", "/a/b", "login.example.com")
        );
        let url: Url = "https://login.example.com".parse().unwrap();
        assert_eq!((url.origin(), url.path()), ("https://login.example.com", ""));
        assert_eq!("http://127.0.0.1:9".parse::<Url>().unwrap().named().len(), 1);
        for bad in
            ["http://example.com", "ftp://example.com", "https://u:p@example.com", "https://a/#b", "/x", "", "https://"]
        {
            assert!(bad.parse::<Url>().is_err(), "{bad}");
        }
    }
}
