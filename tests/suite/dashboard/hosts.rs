//! The dashboards of hosts that share a database: a balancer gives each request to another one.

use bulkhead_store::postgres_server;
use reqwest::StatusCode;

use super::browser::{Browser, link, setup};
use crate::postgres::cluster::two;

/// The name of the cookie of a session.
fn cookie(browser: &Browser) -> String {
    format!("bulkhead_{}", browser.base.rsplit(':').next().expect("a port"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn login_and_session_hold_at_any_host_that_shares_the_database() {
    let Some(server) = postgres_server::shared() else { return };
    let (one, two) = two(server, || setup(&["text"])).await;
    let link = link(&one).await;
    let code = link.rsplit('=').next().expect("a code");
    let log_in = async |browser: &Browser, code: &str| {
        let page = browser.get(&format!("/login/once?code={code}")).await;
        browser.post("/login", &page.token("/login"), &[("code", code)]).await
    };
    let forged = format!("{}{}", if code.starts_with('0') { "1" } else { "0" }, &code[1..]);
    let there = Browser::new(&two);
    assert_eq!(log_in(&there, &forged).await.status, StatusCode::UNAUTHORIZED);
    let done = log_in(&there, code).await;
    assert_eq!((done.status, done.leads_to()), (StatusCode::SEE_OTHER, "/"));
    for host in [&one, &two] {
        assert_eq!(log_in(&Browser::new(host), code).await.status, StatusCode::UNAUTHORIZED, "it works once");
    }

    // Browsers know hosts behind a balancer by one port.
    let session = there.cookies.borrow()[&cookie(&there)].clone();
    let here = Browser::new(&one);
    here.cookies.borrow_mut().insert(cookie(&here), session);
    assert_eq!(here.get("/").await.status, StatusCode::OK);
    let out = here.press("/", "/logout", &[]).await;
    assert_eq!((out.status, out.leads_to()), (StatusCode::SEE_OTHER, "/login"));
    assert_eq!(there.get("/").await.leads_to(), "/login", "it has ended everywhere");
}
