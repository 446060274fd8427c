//! What a request must be like before anything is done for it.
//!
//! Owns Host, the check that a form is one of ours, cookies and bodies. Must not know a route. Invariant: a foreign
//! page gets nowhere: it cannot name itself as the host (DNS rebinding), and what it sends is refused before a session
//! is looked at.

use std::time::Duration;

use bulkhead_net::address::{host_of, is_this_machine, normal_host};
use bulkhead_net::server::RequestBody;
use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderName, header};
use http_body_util::{BodyExt as _, Limited};

use crate::digests::random_text;

/// Bytes of a form that is sent to the dashboard.
const BODY_BYTES_MAX: usize = 64 << 10;
/// For the body of one.
const BODY_READ: Duration = Duration::from_secs(10);
/// Fields of a form that is sent to the dashboard; a plugin's question has fewer.
const FIELDS_MAX: usize = 1_000;

/// Browsers say here where a request comes from.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What a browser calls the dashboard by where nothing else gives it a name: these, with 32 hex digits between them.
/// Browsers resolve such a name to their own machine, and send its cookies to nobody who does not know it.
const OWN_NAME_BEGINS: &str = "bulkhead-";
const OWN_NAME_ENDS: &str = ".localhost";

/// How the dashboard is known to browsers.
pub(crate) struct Site {
    pub(crate) has_tls: bool,
    /// Whether browsers get names of their own: a certificate, and the address that an issuer sends them back to, have
    /// a fixed one.
    makes_names: bool,
    /// Names that it answers to besides those of this machine, in the normal spelling.
    pub(crate) hosts: Vec<String>,
    /// The cookie of sessions, and that of a person who is about to log in.
    pub(crate) session_cookie: String,
    pub(crate) login_cookie: String,
    /// That of a person who is away to log in at an issuer.
    pub(crate) attempt_cookie: String,
}

impl Site {
    /// Cookies do not tell ports apart, and names with `__Host-` need TLS.
    pub(crate) fn new(has_tls: bool, has_issuer: bool, port: u16, hosts: &[String]) -> Self {
        let name = |what: &str| match has_tls {
            true => format!("__Host-bulkhead{what}"),
            false => format!("bulkhead{what}_{port}"),
        };
        let hosts = hosts.iter().map(|host| normal_host(host)).collect();
        Self {
            has_tls,
            makes_names: !has_tls && !has_issuer,
            hosts,
            session_cookie: name(""),
            login_cookie: name("-login"),
            attempt_cookie: name("-attempt"),
        }
    }

    /// The name that the request came by, if it is one of ours.
    pub(crate) fn own_host<'a>(&self, request: &'a Parts) -> Option<&'a str> {
        let host = single(&request.headers, &header::HOST)?;
        let target = request.uri.authority().map(Authority::as_str);
        [Some(host), target].into_iter().flatten().all(|name| self.is_own(name)).then_some(host)
    }

    fn is_own(&self, name: &str) -> bool {
        let Some(host) = host_of(name) else { return false };
        let is_made = self.makes_names && is_made_name(&host);
        is_made || is_this_machine(&host) || self.hosts.contains(&host) || self.hosts.contains(&normal_host(name))
    }

    /// Where a browser goes on that came by a name of this machine, which servers of other ports have as well: cookies
    /// do not tell ports apart. A fresh name each time, so that nobody learns one that a session is kept by. Programs
    /// say nothing of where they come from.
    pub(crate) fn own_address(&self, request: &Parts, host: &str) -> Option<String> {
        let name = host_of(host)?;
        let is_shared = is_this_machine(&name) && !self.hosts.contains(&name);
        if !(self.makes_names && is_shared && request.headers.contains_key(FETCH_SITE)) {
            return None;
        }
        let port = host.parse::<Authority>().ok()?.port().map(|port| format!(":{port}")).unwrap_or_default();
        let path = request.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        Some(format!("http://{OWN_NAME_BEGINS}{}{OWN_NAME_ENDS}{port}{path}", random_text::<16>()?))
    }

    /// Whether a form was sent by a page of ours. `Referrer-Policy: no-referrer` makes browsers say `Origin: null`, so
    /// what counts first is where the browser says that the request comes from; one that does not say that says its
    /// origin.
    pub(crate) fn is_own_form(&self, headers: &HeaderMap, host: &str) -> bool {
        let scheme = if self.has_tls { "https" } else { "http" };
        let is_ours = |origin: &str| {
            origin
                .split_once("://")
                .is_some_and(|(origin_scheme, name)| origin_scheme == scheme && name.eq_ignore_ascii_case(host))
        };
        let origin = headers.contains_key(header::ORIGIN).then(|| single(headers, &header::ORIGIN).unwrap_or_default());
        match (headers.contains_key(FETCH_SITE), single(headers, &FETCH_SITE)) {
            (true, Some("same-origin")) => origin.is_none_or(|origin| origin == "null" || is_ours(origin)),
            (true, _) => false,
            (false, _) => origin.is_some_and(is_ours),
        }
    }
}

fn is_made_name(host: &str) -> bool {
    let middle = host.strip_prefix(OWN_NAME_BEGINS).and_then(|rest| rest.strip_suffix(OWN_NAME_ENDS));
    middle.is_some_and(|middle| middle.len() == 32 && middle.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// The value of a header that is there once.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    value.to_str().ok().map(str::trim)
}

/// The value of a cookie that is there once.
pub(crate) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut values = pairs.filter(|(key, _)| *key == name).map(|(_, value)| value);
    values.next().filter(|_| values.next().is_none())
}

/// What a person filled in, or the query of an address.
#[derive(Default)]
pub(crate) struct Form(Vec<(String, String)>);

impl Form {
    /// Reads what browsers send; what is too much is left out.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        Self(url::form_urlencoded::parse(bytes).into_owned().take(FIELDS_MAX).collect())
    }

    /// The value of a field that is there.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The same, unless it is empty.
    pub(crate) fn filled(&self, name: &str) -> Option<&str> {
        self.get(name).map(str::trim).filter(|value| !value.is_empty())
    }

    /// Every field, with its value.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Every value of a field.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Reads the body of a form; `None`: it is too large, too slow or none.
pub(crate) async fn read_form(headers: &HeaderMap, body: RequestBody) -> Option<Form> {
    let media = single(headers, &header::CONTENT_TYPE)?.split(';').next()?.trim();
    if !media.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return None;
    }
    let body = tokio::time::timeout(BODY_READ, Limited::new(body, BODY_BYTES_MAX).collect()).await;
    Some(Form::parse(&body.ok()?.ok()?.to_bytes()))
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Request};

    use super::*;

    fn parts(host: &[&str]) -> Parts {
        let request = host.iter().fold(Request::builder(), |request, host| request.header(header::HOST, *host));
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn only_own_names_are_hosts() {
        let site = Site::new(true, false, 8810, &["Ops.example.com".to_owned()]);
        for good in ["127.0.0.1:8810", "localhost", "[::1]:8810", "ops.example.com", "OPS.example.com:8443"] {
            assert_eq!(site.own_host(&parts(&[good])), Some(good));
        }
        for bad in ["evil.example", "localhost.evil.example", "a@localhost", "ops.example.com.evil.example", ""] {
            assert_eq!(site.own_host(&parts(&[bad])), None, "{bad}");
        }
        assert_eq!(site.own_host(&parts(&[])), None);
        assert_eq!(site.own_host(&parts(&["localhost", "localhost"])), None);
    }

    #[test]
    fn browser_gets_a_name_that_no_other_port_is_called_by() {
        let visit = |host: &'static str, says: &[(&'static str, &'static str)]| {
            let request = Request::builder().uri("/login/once?code=1").header(header::HOST, host);
            let request = says.iter().fold(request, |request, (name, value)| request.header(*name, *value));
            request.body(()).unwrap().into_parts().0
        };
        let address = |site: &Site, host: &'static str, says: &[(&'static str, &'static str)]| {
            site.own_address(&visit(host, says), host)
        };
        let plain = Site::new(false, false, 8810, &[]);
        let browser = [("sec-fetch-site", "none")];
        let mut names = std::collections::HashSet::new();
        for (host, port) in [("127.0.0.1:8810", ":8810"), ("localhost:9000", ":9000"), ("[::1]", ""), ("127.0.0.1", "")]
        {
            let address = address(&plain, host, &browser).unwrap();
            let rest = address.strip_prefix("http://").unwrap();
            let name = rest.strip_suffix("/login/once?code=1").unwrap().to_owned();
            assert!(is_made_name(name.strip_suffix(port).unwrap()), "{address}");
            assert_eq!(plain.own_host(&parts(&[&name])), Some(name.as_str()));
            assert_eq!(plain.own_address(&visit("localhost", &browser), &name), None, "it stays there");
            assert!(names.insert(name), "a fresh name each time");
        }
        let named = Site::new(false, false, 8810, &["127.0.0.1".to_owned(), "ops.example.com".to_owned()]);
        let cases = [
            (&plain, "127.0.0.1:8810", &[][..], "a program stays"),
            (&named, "127.0.0.1:8810", &browser, "a name that the operator names"),
            (&named, "ops.example.com:8810", &browser, "another machine's"),
            (&Site::new(true, false, 8810, &[]), "127.0.0.1:8810", &browser, "a certificate has a name"),
            (&Site::new(false, true, 8810, &[]), "127.0.0.1:8810", &browser, "an issuer sends back to a name"),
        ];
        for (site, host, says, why) in cases {
            assert_eq!(address(site, host, says), None, "{why}");
        }
        let made = "bulkhead-0123456789abcdef0123456789abcdef.localhost:8810";
        assert_eq!(Site::new(true, false, 8810, &[]).own_host(&parts(&[made])), None);
        for bad in [
            "bulkhead-.localhost",
            "bulkhead-0123.localhost",
            "a.localhost",
            "bulkhead-0123456789abcdef0123456789abcdeg.localhost",
        ] {
            assert_eq!(plain.own_host(&parts(&[bad])), None, "{bad}");
        }
    }

    #[test]
    fn form_is_own_when_the_browser_says_so() {
        let site = Site::new(false, false, 8810, &[]);
        let is_own = |headers: &[(&'static str, &'static str)]| {
            let headers =
                headers.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            site.is_own_form(&headers.collect(), "127.0.0.1:8810")
        };
        assert!(is_own(&[("sec-fetch-site", "same-origin"), ("origin", "null")]));
        assert!(is_own(&[("sec-fetch-site", "same-origin")]));
        assert!(is_own(&[("origin", "http://127.0.0.1:8810")]));
        for wrong in [
            &[][..],
            &[("origin", "null")],
            &[("origin", "https://127.0.0.1:8810")],
            &[("origin", "http://127.0.0.1:8811")],
            &[("origin", "http://evil.example")],
            &[("sec-fetch-site", "cross-site"), ("origin", "http://127.0.0.1:8810")],
            &[("sec-fetch-site", "same-site"), ("origin", "http://127.0.0.1:8810")],
            &[("sec-fetch-site", "none")],
            &[("sec-fetch-site", "same-origin"), ("origin", "http://evil.example")],
        ] {
            assert!(!is_own(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn cookie_that_is_there_twice_is_none() {
        let headers = |line: &'static str| HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_static(line))]);
        assert_eq!(cookie(&headers("a=1; bulkhead_1=x"), "bulkhead_1"), Some("x"));
        assert_eq!(cookie(&headers("bulkhead_1=x; bulkhead_1=y"), "bulkhead_1"), None);
        assert_eq!(cookie(&headers("bulkhead_10=x"), "bulkhead_1"), None);
    }
}
