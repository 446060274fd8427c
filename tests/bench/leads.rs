//! What the dashboard of one tenant's lead costs everybody else, when it is asked without pause.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use reqwest::header::{COOKIE, SET_COOKIE};
use reqwest::redirect::Policy;
use serde_json::json;
use tests::client::{Client, all_capabilities};
use tests::{Host, Setup, command};

use crate::Plan;
use crate::load::{self, Connection, Measured};
use crate::report::{Budget, Report};
use crate::throughput::{UNLIMITED, echo};

/// Connections of the one lead.
const ASKING: usize = 100;
/// The audit log from which on a page of it reads as much as it ever does.
const AUDIT_BYTES: u64 = 8 << 20;
const SCOPES: &str = "[[auth.scope]]\nname = \"use\"\ntools = [\"*\"]\ntasks = true\n\
    [[auth.scope]]\nname = \"lead\"\ntenant = true\n";

/// Each page of a lead on a hundred connections, beside the echo of another tenant.
pub(crate) async fn pages(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    let free = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let dashboard = format!("[dashboard]\nlisten = \"{free}\"\n[audit]\nenabled = true\n");
    let setup = Setup::with(&["text", "primes"]).config(&format!("{UNLIMITED}{SCOPES}{dashboard}"));
    let host = setup.start().await;
    let own = token(&setup, "anna", "acme", "use").await?;
    let other = token(&setup, "zoe", "globex", "use").await?;
    let task = Client::connect_as(&host, Some(&own), all_capabilities()).await;
    let task = task.task("count_primes", json!({"below": 10})).await;
    fill_audit_log(&host, &own, plan).await?;
    let base = format!("http://{free}");
    let http = reqwest::Client::builder().no_proxy().redirect(Policy::none()).build()?;
    let leo = token(&setup, "leo", "acme", "lead").await?;
    let cookie = logged_in(&http, &base, "/login", &format!("token={leo}")).await?;
    let task = format!("/tenant/tasks/{task}");
    for page in ["/tenant", "/tenant/tasks", &task, "/tenant/plugins", "/tenant/denials", "/tenant/audit?event=none"] {
        let alone = echoes(&host, &other, plan).await?;
        let lead = asking(&format!("{base}{page}"), &cookie);
        // A page that is not read at once waits some seconds for its turn: by then all are in step.
        tokio::time::sleep(plan.each).await;
        let before = host.cpu_ms();
        let began = Instant::now();
        tokio::time::sleep(plan.each).await;
        let share = (host.cpu_ms() - before) as f64 / began.elapsed().as_secs_f64() / 1e3;
        let beside = echoes(&host, &other, plan).await?;
        for one in lead {
            if one.is_finished() {
                return one.await?.with_context(|| format!("a connection of the lead on {page}"));
            }
            one.abort();
        }
        let name = if page == task { "/tenant/tasks/{task}" } else { page };
        let made_of = format!("{ASKING} connections of one lead, without other work");
        report.add(&format!("leads: {name}, processors"), made_of, share, "", Budget::AtMost(0.2));
        let [alone_us, beside_us] = [&alone, &beside].map(|measured| measured.quantile_us(0.5));
        let made_of = format!("medians: {:.2} ms beside them, {:.2} ms before", beside_us / 1e3, alone_us / 1e3);
        let work = format!("leads: {name}, an echo of another tenant beside it");
        report.add(&work, made_of, beside_us / alone_us, "x", Budget::AtMost(1.5));
    }
    Ok(())
}

async fn token(setup: &Setup, requestor: &str, tenant: &str, scope: &str) -> anyhow::Result<String> {
    let arguments = ["token", "create", "--requestor", requestor, "--tenant", tenant, "--scope", scope];
    let made = command::json(&arguments, &setup.data()).await;
    Ok(made["token"].as_str().context("a token")?.to_owned())
}

/// Echoes of a requestor, one after the other, in a session of its own.
async fn echoes(host: &Host, token: &str, plan: &Plan) -> anyhow::Result<Measured> {
    load::drive(vec![in_session(host, token).await?], plan.each, echo).await
}

async fn in_session(host: &Host, token: &str) -> anyhow::Result<Connection> {
    let client = Client::connect_as(host, Some(token), json!({})).await;
    let session = client.session.as_deref().context("a session")?;
    let bearer = format!("Bearer {token}");
    let headers =
        [("mcp-session-id", session), ("mcp-protocol-version", "2025-11-25"), ("authorization", bearer.as_str())];
    Connection::open(client.url(), &headers).await
}

/// Lets the tenant of the lead fill the log.
async fn fill_audit_log(host: &Host, token: &str, plan: &Plan) -> anyhow::Result<()> {
    const TURNS_MAX: u32 = 60;
    let folder = host.setup.data().join("audit");
    for _ in 0..TURNS_MAX {
        let mut connections = Vec::new();
        for _ in 0..crate::throughput::CONNECTIONS {
            connections.push(in_session(host, token).await?);
        }
        load::drive(connections, plan.each, echo).await?;
        let files = std::fs::read_dir(&folder)?.flatten();
        let bytes: u64 = files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum();
        if bytes >= AUDIT_BYTES {
            return Ok(());
        }
    }
    anyhow::bail!("the audit log does not fill")
}

/// The cookie of a session in the dashboard, from the form on this page with this field.
pub(crate) async fn logged_in(http: &reqwest::Client, base: &str, page: &str, field: &str) -> anyhow::Result<String> {
    let page = http.get(format!("{base}{page}")).send().await?;
    let before = cookie(&page)?;
    let text = page.text().await?;
    let (_, form) = text.split_once("name=\"form_token\" value=\"").context("a form")?;
    let form_token = form.split('"').next().context("its token")?;
    let request = http.post(format!("{base}/login")).header(COOKIE, before).header("sec-fetch-site", "same-origin");
    let request = request.header("origin", "null").header("content-type", "application/x-www-form-urlencoded");
    cookie(&request.body(format!("form_token={form_token}&{field}")).send().await?.error_for_status()?)
}

fn cookie(response: &reqwest::Response) -> anyhow::Result<String> {
    let pairs = response.headers().get_all(SET_COOKIE).iter().map(|line| {
        let line = line.to_str()?;
        anyhow::Ok(line.split(';').next().unwrap_or(line).to_owned())
    });
    Ok(pairs.collect::<Result<Vec<_>, _>>()?.join("; "))
}

/// Asks for a page on each of the connections, again as soon as there is an answer.
fn asking(url: &str, cookie: &str) -> Vec<tokio::task::JoinHandle<anyhow::Result<()>>> {
    let ask = |_| {
        let url = url.to_owned();
        let cookie = cookie.to_owned();
        tokio::spawn(async move {
            let http = reqwest::Client::builder().no_proxy().redirect(Policy::none()).build()?;
            loop {
                let Ok(response) = http.get(&url).header(COOKIE, &cookie).send().await else {
                    // It closed while the request was on its way.
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                };
                let status = response.status().as_u16();
                ensure!(matches!(status, 200 | 429), "{status}");
                drop(response.bytes().await);
            }
        })
    };
    (0..ASKING).map(ask).collect()
}
