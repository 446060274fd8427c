//! A browser for the tests of the dashboard: it keeps cookies, sends forms, and runs no script.

use std::cell::RefCell;
use std::collections::BTreeMap;

use reqwest::header::{COOKIE, HeaderMap, LOCATION, SET_COOKIE};
use reqwest::{Method, RequestBuilder, StatusCode};
use tests::client::{Client, all_capabilities};
use tests::wait::soon;
use tests::{Host, Setup, command};

pub(super) const DASHBOARD: &str = "[dashboard]\nlisten = \"127.0.0.1:0\"\n";

/// What came of a request.
pub(super) struct Page {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

impl Page {
    pub(super) fn leads_to(&self) -> &str {
        self.headers.get(LOCATION).map_or("", |place| place.to_str().expect("a text"))
    }

    /// The token of the form that is sent there.
    pub(super) fn token(&self, action: &str) -> String {
        let (_, form) = self.text.split_once(&format!("action=\"{action}\"")).unwrap_or_else(|| {
            panic!("no form for {action} in {} {}", self.status, self.text);
        });
        let (_, value) = form.split_once("name=\"form_token\" value=\"").expect("a token");
        value.split('"').next().expect("a value").to_owned()
    }
}

/// A browser: it keeps cookies and says where its requests come from.
pub(super) struct Browser {
    pub(super) base: String,
    pub(super) http: reqwest::Client,
    pub(super) cookies: RefCell<BTreeMap<String, String>>,
}

impl Browser {
    pub(super) fn new(host: &Host) -> Self {
        let log = host.log();
        let line = log.lines().rfind(|line| line.contains("the dashboard is served")).expect("a dashboard");
        let (_, address) = line.split_once("address=\"").unwrap_or_else(|| panic!("{line}"));
        let base = address.split('"').next().expect("an address").to_owned();
        let http = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        Self { base, http: http.build().expect("a client"), cookies: RefCell::default() }
    }

    pub(super) async fn operator(host: &Host) -> Self {
        let browser = Self::new(host);
        let link = link(host).await;
        let page = browser.get(&link[browser.base.len()..]).await;
        let code = link.rsplit('=').next().expect("a code");
        let done = browser.post("/login", &page.token("/login"), &[("code", code)]).await;
        assert_eq!((done.status, done.leads_to()), (StatusCode::SEE_OTHER, "/"), "{}", done.text);
        browser
    }

    pub(super) async fn with_token(host: &Host, token: &str) -> Self {
        let browser = Self::new(host);
        let done = browser.log_in(token).await;
        assert_eq!((done.status, done.leads_to()), (StatusCode::SEE_OTHER, "/"), "{}", done.text);
        browser
    }

    pub(super) async fn log_in(&self, token: &str) -> Page {
        let page = self.get("/login").await;
        self.post("/login", &page.token("/login"), &[("token", token)]).await
    }

    pub(super) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let cookies: Vec<_> = self.cookies.borrow().iter().map(|(name, value)| format!("{name}={value}")).collect();
        let request = self.http.request(method, format!("{}{path}", self.base));
        if cookies.is_empty() { request } else { request.header(COOKIE, cookies.join("; ")) }
    }

    pub(super) async fn send(&self, request: RequestBuilder) -> Page {
        let response = soon("a page", request.send()).await.expect("an answer");
        for line in response.headers().get_all(SET_COOKIE) {
            let (name, rest) = line.to_str().expect("a text").split_once('=').expect("a cookie");
            let value = rest.split(';').next().expect("a value").to_owned();
            let mut cookies = self.cookies.borrow_mut();
            if value.is_empty() {
                cookies.remove(name);
            } else {
                cookies.insert(name.to_owned(), value);
            }
        }
        let status = response.status();
        let headers = response.headers().clone();
        Page { status, headers, text: response.text().await.expect("a text") }
    }

    pub(super) async fn get(&self, path: &str) -> Page {
        self.send(self.request(Method::GET, path)).await
    }

    /// Sends a form as browsers send that of a page of the same origin.
    pub(super) async fn post(&self, path: &str, token: &str, fields: &[(&str, &str)]) -> Page {
        let fields = [&[("form_token", token)], fields].concat();
        let request = self.request(Method::POST, path).header("sec-fetch-site", "same-origin").header("origin", "null");
        self.send(form(request, &fields)).await
    }

    /// Presses a button of a page.
    pub(super) async fn press(&self, on: &str, action: &str, fields: &[(&str, &str)]) -> Page {
        let token = self.get(on).await.token(action);
        self.post(action, &token, fields).await
    }
}

pub(super) fn form(request: RequestBuilder, fields: &[(&str, &str)]) -> RequestBuilder {
    let escaped = |text: &str| {
        let byte = |byte: u8| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        };
        text.bytes().map(byte).collect::<String>()
    };
    let pairs: Vec<_> = fields.iter().map(|(name, value)| format!("{}={}", escaped(name), escaped(value))).collect();
    request.header("content-type", "application/x-www-form-urlencoded").body(pairs.join("&"))
}

pub(super) async fn link(host: &Host) -> String {
    let said = command::json(&["dashboard", "login"], &host.setup.data()).await;
    said["link"].as_str().expect("a link").to_owned()
}

pub(super) async fn client(host: &Host, token: &str) -> Client {
    Client::connect_as(host, Some(token), all_capabilities()).await
}

pub(super) fn setup(plugins: &[&str]) -> Setup {
    Setup::with(plugins).config(DASHBOARD)
}

/// A page without what the host itself puts there: its one script, and what reloads a page where no script runs.
pub(super) fn without_ours(page: &str) -> String {
    let page = page.replace("<noscript><meta http-equiv=\"refresh\" content=\"15\"></noscript>", "");
    let Some((before, rest)) = page.split_once("<script src=\"/assets/live.") else { return page };
    let (digits, after) = rest.split_once(".js\" defer></script>").expect("the script of the host");
    assert!(digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()), "{digits}");
    format!("{before}{after}")
}
