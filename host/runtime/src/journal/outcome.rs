//! What came of an outgoing request, as the guest sees it and the journal keeps it.
//!
//! Owns the bytes of outcomes. Secrets of the operator are taken out of a response before it comes here. Invariant: an
//! outcome that is delivered twice shows the guest the same bytes, in the same pieces.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use wasmtime_wasi_http::{Error, WasiBody};

use super::codec::fields;
use super::header::Digest;
use super::words;
use bulkhead_calls::policy::Denial;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Of the request's body.
    pub(super) request: Digest,
    /// What the guest was found to lack.
    pub(super) lacking: Vec<Denial>,
    pub(super) response: Result<Response, Failure>,
}

fields!(Outcome { request, lacking, response });

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Response {
    status: u16,
    headers: Headers,
    body: Vec<u8>,
    trailers: Option<Headers>,
    /// Why the body ends too early.
    broken: Option<Failure>,
}

fields!(Response { status, headers, body, trailers, broken });

type Headers = Vec<(String, Vec<u8>)>;

fn written(headers: &HeaderMap) -> Headers {
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec())).collect()
}

/// `None`: these are no headers.
fn read(headers: Headers) -> Option<HeaderMap> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.try_append(HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_bytes(&value).ok()?).ok()?;
    }
    Some(map)
}

/// How a body ended.
pub(super) enum BodyEnd {
    Whole(Option<HeaderMap>),
    Broken(Failure),
}

impl Response {
    pub(super) fn new(head: &http::response::Parts, body: Vec<u8>, end: BodyEnd) -> Self {
        let (trailers, broken) = match end {
            BodyEnd::Whole(trailers) => (trailers.as_ref().map(written), None),
            BodyEnd::Broken(failure) => (None, Some(failure)),
        };
        Self { status: head.status.as_u16(), headers: written(&head.headers), body, trailers, broken }
    }

    /// Bytes of its body.
    pub(super) fn len(&self) -> u64 {
        self.body.len() as u64
    }

    /// The response as the library takes it. `None`: it is none.
    pub(super) fn into_http(self) -> Option<http::Response<WasiBody>> {
        let Self { status, headers, body, trailers, broken } = self;
        let data = (!body.is_empty()).then(|| Ok(Frame::data(Bytes::from(body))));
        let trailers = match trailers {
            Some(trailers) => Some(Ok(Frame::trailers(read(trailers)?))),
            None => None,
        };
        let broken = broken.map(|failure| Err(failure.into_error()));
        let frames = data.into_iter().chain(trailers).chain(broken);
        let body = StreamBody::new(futures::stream::iter(frames)).boxed_unsync();
        let mut response = http::Response::new(body);
        *response.status_mut() = http::StatusCode::from_u16(status).ok()?;
        *response.headers_mut() = read(headers)?;
        Some(response)
    }
}

/// Why there is no response, as a number that never changes and the size that some of them name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    code: u8,
    size: Option<u64>,
}

fields!(Failure { code, size });

/// The failures that this host tells guests of.
macro_rules! failures {
    ($($code:literal => $name:ident),* ; $($sized:literal => $sized_name:ident),*) => {
        impl Failure {
            pub(super) fn of(error: &Error) -> Self {
                let (code, size) = match error {
                    $(Error::$name => ($code, None),)*
                    $(Error::$sized_name(size) => ($sized, size.map(u64::from)),)*
                    Error::Hyper(_) => (HTTP_PROTOCOL_ERROR, None),
                    Error::Connect(_) => (CONNECTION_REFUSED, None),
                    Error::Tls(_) => (TLS_PROTOCOL_ERROR, None),
                    Error::DnsError { .. } => (DNS_ERROR, None),
                    _ => (INTERNAL_ERROR, None),
                };
                Self { code, size }
            }

            pub(super) fn into_error(self) -> Error {
                match self.code {
                    $($code => Error::$name,)*
                    $($sized => Error::$sized_name(self.size.and_then(|size| size.try_into().ok())),)*
                    DNS_ERROR => Error::DnsError { rcode: None, info_code: None },
                    IN_DOUBT => Error::InternalError(Some(words::in_doubt(self.cause()))),
                    _ => Error::InternalError(None),
                }
            }

            /// What this failure is called where it is the cause of another one.
            fn name(code: u8) -> &'static str {
                match code {
                    $($code => stringify!($name),)*
                    $($sized => stringify!($sized_name),)*
                    DNS_ERROR => "DnsError",
                    _ => "InternalError",
                }
            }
        }
    };
}

const INTERNAL_ERROR: u8 = 0;
const HTTP_PROTOCOL_ERROR: u8 = 1;
const CONNECTION_REFUSED: u8 = 2;
const TLS_PROTOCOL_ERROR: u8 = 3;
const DNS_ERROR: u8 = 4;
const IN_DOUBT: u8 = 5;

failures! {
    1 => HttpProtocolError,
    2 => ConnectionRefused,
    3 => TlsProtocolError,
    6 => DestinationNotFound,
    7 => DestinationIpProhibited,
    8 => ConnectionTerminated,
    9 => ConnectionTimeout,
    10 => ConnectionReadTimeout,
    11 => ConnectionWriteTimeout,
    12 => ConnectionLimitReached,
    13 => HttpRequestDenied,
    14 => HttpRequestUriInvalid,
    15 => HttpResponseTimeout,
    16 => ConfigurationError;
    32 => HttpRequestBodySize,
    33 => HttpResponseHeaderSectionSize,
    34 => HttpResponseBodySize
}

impl Failure {
    /// A request that was sent before the host stopped, and nobody knows what became of it.
    pub(super) const IN_DOUBT: Self = Self { code: IN_DOUBT, size: None };

    /// The same of a request that was sent again, and that failed so. The cause is kept in the place of the size, which
    /// this code does not have.
    pub(super) fn of_second_sending(self) -> Self {
        if self.code == IN_DOUBT { self } else { Self { code: IN_DOUBT, size: Some(self.code.into()) } }
    }

    /// Why a request that is in doubt was not answered when it was sent again.
    fn cause(self) -> Option<&'static str> {
        self.size.map(|code| Self::name(u8::try_from(code).unwrap_or(INTERNAL_ERROR)))
    }

    pub(super) fn is_denial(self) -> bool {
        matches!(self.into_error(), Error::HttpRequestDenied)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use bulkhead_calls::policy::{DeniedDirectory, DeniedRequest, DeniedSecret, SecretPlace};

    use super::super::codec::{decode, encode};
    use super::*;

    fn head(status: u16) -> http::response::Parts {
        let response = http::Response::builder().status(status).header("x-part", "one").header("x-part", "two");
        response.body(()).unwrap().into_parts().0
    }

    #[test]
    fn response_comes_back_with_its_headers_body_and_end() {
        let trailers = HeaderMap::from_iter([(HeaderName::from_static("sum"), HeaderValue::from_static("7"))]);
        let response = Response::new(&head(201), b"words".to_vec(), BodyEnd::Whole(Some(trailers.clone())));
        let request = |method: Option<&str>| {
            let method = method.map(str::to_owned);
            Denial::Http(DeniedRequest { method, tls: true, host: "a.example".to_owned(), port: 443 })
        };
        let lacking = vec![
            request(None),
            request(Some("GET")),
            Denial::Directory(DeniedDirectory { guest: "/data".to_owned(), write: true }),
            Denial::Variable("KEY".to_owned()),
            Denial::Keyvalue,
            Denial::Setting("size".to_owned()),
            Denial::Secret(DeniedSecret { name: "KEY".to_owned(), location: SecretPlace::Header }),
        ];
        let outcome = Outcome { request: [3; 8], lacking, response: Ok(response) };
        let again: Outcome = decode(&encode(&outcome)).unwrap();
        assert_eq!(again, outcome);
        let response = again.response.unwrap().into_http().unwrap();
        assert_eq!((response.status().as_u16(), response.headers().get_all("x-part").iter().count()), (201, 2));
        let body = response.into_body().collect().now_or_never().unwrap().unwrap();
        assert_eq!(body.trailers().unwrap(), &trailers);
        assert_eq!(body.to_bytes(), "words");
    }

    #[test]
    fn body_that_broke_off_breaks_off_again() {
        let end = BodyEnd::Broken(Failure::of(&Error::HttpResponseBodySize(Some(9))));
        let response = Response::new(&head(200), b"half".to_vec(), end).into_http().unwrap();
        let error = response.into_body().collect().now_or_never().unwrap().unwrap_err();
        assert!(matches!(error, Error::HttpResponseBodySize(Some(9))), "{error:?}");
    }

    #[test]
    fn failures_have_numbers_and_doubt_has_its_words() {
        for code in 0..=40 {
            let failure = Failure { code, size: None };
            let again = Failure::of(&failure.into_error());
            assert!(again == failure || matches!(failure.into_error(), Error::InternalError(_)), "{code}");
        }
        let doubt = Failure::IN_DOUBT.into_error();
        assert!(matches!(doubt, Error::InternalError(Some(text)) if text == words::IN_DOUBT));
        assert!(Failure::of(&Error::HttpRequestDenied).is_denial());
        for (error, cause) in
            [(Error::ConnectionRefused, "ConnectionRefused"), (Error::HttpRequestDenied, "HttpRequestDenied")]
        {
            let again = Failure::of(&error).of_second_sending();
            assert_eq!(decode::<Failure>(&encode(&again)), Some(again), "it is kept with its cause");
            let Error::InternalError(Some(said)) = again.into_error() else { panic!("{again:?}") };
            assert_eq!(said, format!("{}; it was sent again and not answered: {cause}", words::IN_DOUBT));
            assert!(!again.is_denial() && again.of_second_sending() == again);
        }
    }
}
