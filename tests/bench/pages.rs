//! What the dashboard's pages cost everybody else, and what they take beside a load: 200 live pages of operators, and a
//! list of 100 rows.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use reqwest::header::COOKIE;
use serde_json::json;
use tests::client::{Client, all_capabilities};
use tests::{Setup, command};
use tokio::task::JoinHandle;

use crate::Plan;
use crate::leads::logged_in;
use crate::load::{self, Measured};
use crate::report::{Budget, Report};
use crate::throughput::{CONNECTIONS, UNLIMITED, connections, echo};

/// Operators that are logged in.
const SESSIONS: usize = 25;
/// What each of them follows.
const FOLLOWED: [&str; 8] = [
    "/",
    "/tasks",
    "/tasks?status=running",
    "/tasks?status=succeeded",
    "/tasks?tool=count_primes",
    "/tasks?sort=tool",
    "/plugins",
    "/plugins/text",
];
/// The listener takes so many connections of one address as a browser has, so the browsers have some addresses of this
/// machine.
const ADDRESSES: usize = 5;
/// Turns without live pages and with them, one after the other.
const ROUNDS: u32 = 10;
/// The least that is left of the rate of calls beside live pages.
const RATE_MIN: f64 = 0.9;
/// Rows of a list of tasks.
const ROWS: usize = 100;
/// The most that such a list may take beside a load.
const PAGE_MS_MAX: f64 = 300.0;

pub(crate) async fn pages(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    let free = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let dashboard = format!("[dashboard]\nlisten = \"{free}\"\n");
    let setup = Setup::with(&["text", "primes"]).config(&format!("{UNLIMITED}{dashboard}"));
    let host = setup.start().await;
    let client = Client::connect_as(&host, None, all_capabilities()).await;
    for _ in 0..ROWS + ROWS / 5 {
        client.task("count_primes", json!({"below": 10})).await;
    }
    let base = format!("http://{free}");
    let mut browsers = Vec::new();
    for session in 0..SESSIONS {
        browsers.push(Browser::log_in(&setup, &base, session).await?);
    }

    let mut ratios = Vec::new();
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        let without = load::drive(connections(&host, CONNECTIONS).await?, plan.each, echo).await?;
        let followers = Followers::open(&browsers).await?;
        let with = load::drive(connections(&host, CONNECTIONS).await?, plan.each, echo).await?;
        followers.end().await?;
        ratios.push(with.per_second / without.per_second);
        rates[0].push(with);
        rates[1].push(without);
    }
    ratios.sort_unstable_by(f64::total_cmp);
    let median = ratios.get(ratios.len() / 2).copied().context("a round")?;
    let [with, without] = rates.map(|turns| Measured::of_turns(turns).per_second);
    let of = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect::<Vec<_>>().join(" ");
    let made_of = format!("{with:.0}/s to {without:.0}/s without, median of {ROUNDS} rounds: {of}");
    let work = format!("pages: echo beside {} live pages of {SESSIONS} operators", SESSIONS * FOLLOWED.len());
    report.add(&work, made_of, median, "x", Budget::AtLeast(RATE_MIN));

    let browser = browsers.first().context("an operator")?;
    let alone = browser.reads(plan.each).await?;
    let load = tokio::spawn(load::drive(connections(&host, CONNECTIONS).await?, plan.each * 2, echo));
    tokio::time::sleep(plan.each / 4).await;
    let beside = browser.reads(plan.each).await?;
    let load = load.await??;
    let ms = |measured: &Measured, part| measured.quantile_us(part) / 1e3;
    let made_of = format!(
        "p50 {:.1} ms, {} pages one after the other beside {:.0} echoes a second; p50 {:.1} ms and p99 {:.1} ms without",
        ms(&beside, 0.5),
        beside.calls(),
        load.per_second,
        ms(&alone, 0.5),
        ms(&alone, 0.99),
    );
    let work = format!("pages: a list of {ROWS} tasks beside a load, p99");
    report.add(&work, made_of, ms(&beside, 0.99), "ms", Budget::AtMost(PAGE_MS_MAX));
    Ok(())
}

/// An operator who is logged in.
#[derive(Clone)]
struct Browser {
    http: reqwest::Client,
    base: String,
    cookie: String,
}

impl Browser {
    async fn log_in(setup: &Setup, base: &str, session: usize) -> anyhow::Result<Self> {
        let last = u8::try_from(session % ADDRESSES + 2).unwrap_or(2);
        let from = IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
        let http = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        let http = http.local_address(from).build()?;
        let link = command::json(&["dashboard", "login"], &setup.data()).await;
        let link = link["link"].as_str().context("a link")?;
        let code = link.rsplit_once('=').context("a code")?.1;
        let path = format!("/login/once?code={code}");
        let cookie = logged_in(&http, base, &path, &format!("code={code}")).await?;
        Ok(Self { http, base: base.to_owned(), cookie })
    }

    /// Reads the list of tasks, one time after the other.
    async fn reads(&self, each: Duration) -> anyhow::Result<Measured> {
        let begun = Instant::now();
        let mut times = Vec::new();
        while begun.elapsed() < each {
            let asked = Instant::now();
            let page = self.http.get(format!("{}/tasks", self.base)).header(COOKIE, &self.cookie).send().await?;
            let page = page.error_for_status()?.text().await?;
            times.push(asked.elapsed());
            let rows = page.matches("href=\"/tasks/").count();
            ensure!(rows >= ROWS, "the list has {rows} rows");
        }
        Ok(Measured::new(begun.elapsed(), times))
    }

    /// Follows a page until it is ended, and begins anew where the host ends the stream.
    async fn follow(self, page: &'static str, open: Arc<AtomicUsize>) -> anyhow::Result<()> {
        let page: String = page.bytes().map(escaped).collect();
        let mut is_first = true;
        loop {
            let stream = self.http.get(format!("{}/live?page={page}", self.base)).header(COOKIE, &self.cookie);
            let mut stream = stream.send().await?.error_for_status()?;
            while stream.chunk().await?.is_some() {
                if is_first {
                    open.fetch_add(1, Ordering::Relaxed);
                    is_first = false;
                }
            }
        }
    }
}

/// A byte in a query.
fn escaped(byte: u8) -> String {
    match byte {
        b'a'..=b'z' | b'_' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    }
}

/// Pages that are open, each on a connection of its own.
struct Followers(Vec<JoinHandle<anyhow::Result<()>>>);

impl Followers {
    /// Returns when each page has been drawn once.
    async fn open(browsers: &[Browser]) -> anyhow::Result<Self> {
        const PATIENCE: Duration = Duration::from_secs(60);
        let open = Arc::new(AtomicUsize::new(0));
        let pages = browsers.iter().flat_map(|browser| FOLLOWED.map(|page| (browser.clone(), page)));
        let followers =
            Self(pages.map(|(browser, page)| tokio::spawn(browser.follow(page, Arc::clone(&open)))).collect());
        let begun = Instant::now();
        while open.load(Ordering::Relaxed) < followers.0.len() {
            followers.check()?;
            let count = open.load(Ordering::Relaxed);
            ensure!(begun.elapsed() < PATIENCE, "{count} of {} pages are live", followers.0.len());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(followers)
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.0.iter().any(JoinHandle::is_finished), "a page is live no more");
        Ok(())
    }

    async fn end(self) -> anyhow::Result<()> {
        let was_live = self.check();
        for follower in self.0 {
            follower.abort();
            match follower.await {
                Ok(ended) => ended.context("a live page")?,
                Err(error) => ensure!(error.is_cancelled(), "{error}"),
            }
        }
        was_live
    }
}
