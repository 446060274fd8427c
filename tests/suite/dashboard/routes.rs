//! Each address of the dashboard for each kind of viewer, as the table of routes says for whom it is there.

use bulkhead_dashboard::{AllowedViewers, Route, routes};
use reqwest::StatusCode;
use serde_json::json;
use tests::wait::until;
use tests::{Setup, command};

use super::browser::{Browser, client, setup};

const SCOPES: &str = "[[auth.scope]]\nname = \"use\"\ntools = [\"*\"]\ntasks = true\nsteer = true\n\
    [[auth.scope]]\nname = \"lead\"\ntools = [\"*\"]\ntasks = true\nsteer = true\ntenant = true\n\
    [[auth.scope]]\nname = \"control\"\ntools = [\"*\"]\ntasks = true\nsteer = true\ntenant = true\ntenant_control = true\n\
    [audit]\nenabled = true\n";

/// What there is on the host.
struct World {
    /// Of Anna, with an image as its second block.
    task: String,
    version: String,
    /// The id of a token that nobody uses.
    token: String,
}

impl World {
    /// An address that the names in braces of a route are about.
    fn place(&self, path: &str) -> String {
        let part = |part: &str| match part {
            "{task}" => self.task.clone(),
            "{place}" => "1".to_owned(),
            "{tool}" => "contents".to_owned(),
            "{plugin}" => "probe".to_owned(),
            "{version}" => self.version.clone(),
            "{tenant}" => "acme".to_owned(),
            "{token}" => self.token.clone(),
            part if part.starts_with('{') => panic!("say what {part} of {path} is here"),
            part => part.to_owned(),
        };
        path.split('/').map(part).collect::<Vec<_>>().join("/")
    }
}

async fn token(setup: &Setup, requestor: &str, tenant: &str, scope: &str) -> (String, String) {
    let arguments = ["token", "create", "--requestor", requestor, "--tenant", tenant, "--scope", scope];
    let made = command::json(&arguments, &setup.data()).await;
    let text = |member: &str| made[member].as_str().expect("a text").to_owned();
    (text("token"), text("id"))
}

/// Somebody in front of the dashboard.
struct Person {
    name: &'static str,
    /// For whom there are the addresses that this person has.
    is: &'static [AllowedViewers],
    /// Whose task it is.
    owns: bool,
    /// Whether the task is one of the tenant.
    is_of_tenant: bool,
    browser: Browser,
}

impl Person {
    fn has(&self, route: &Route) -> bool {
        self.is.contains(&route.allowed_viewers())
    }

    /// What a page answers.
    fn page(&self, route: &Route) -> StatusCode {
        let is_about_a_task = route.path().contains("{task}");
        let sees = match route.allowed_viewers() {
            AllowedViewers::Requestors => self.owns || !is_about_a_task,
            AllowedViewers::Leads => self.is_of_tenant || !is_about_a_task,
            _ => true,
        };
        if self.has(route) && sees { StatusCode::OK } else { StatusCode::NOT_FOUND }
    }
}

#[tokio::test]
async fn each_address_is_there_for_those_whom_the_table_names() {
    let setup = setup(&["probe"]).config(SCOPES);
    let host = setup.start().await;
    let (anna, _) = token(&setup, "anna", "acme", "use").await;
    let own = client(&host, &anna).await;
    let task = own.task("contents", json!({})).await;
    own.until_status(&task, "completed").await;
    let versions = command::json(&["plugin", "versions", "probe"], &setup.data()).await;
    let version = versions["versions"][0]["version"].as_str().expect("a digest").to_owned();
    let world = World { task, version, token: token(&setup, "unused", "acme", "use").await.1 };

    let all = &[AllowedViewers::Viewers, AllowedViewers::Requestors][..];
    let leads = &[AllowedViewers::Viewers, AllowedViewers::Requestors, AllowedViewers::Leads][..];
    let control =
        &[AllowedViewers::Viewers, AllowedViewers::Requestors, AllowedViewers::Leads, AllowedViewers::ControllingLeads]
            [..];
    let mut people = vec![Person {
        name: "anna",
        is: all,
        owns: true,
        is_of_tenant: true,
        browser: Browser::with_token(&host, &anna).await,
    }];
    for (name, tenant, scope, is) in [
        ("ben", "acme", "use", all),
        ("leo", "acme", "lead", leads),
        ("cleo", "acme", "control", control),
        ("zoe", "globex", "control", control),
    ] {
        let (token, _) = token(&setup, name, tenant, scope).await;
        let browser = Browser::with_token(&host, &token).await;
        people.push(Person { name, is, owns: false, is_of_tenant: tenant == "acme", browser });
    }
    let operator = &[AllowedViewers::Viewers, AllowedViewers::Operators][..];
    let browser = Browser::operator(&host).await;
    people.push(Person { name: "the operator", is: operator, owns: false, is_of_tenant: false, browser });

    let nobody = Browser::new(&host);
    for route in routes() {
        let path = world.place(route.path());
        if route.allowed_viewers() == AllowedViewers::Everyone {
            continue;
        }
        let refused = match route.is_read() {
            true => nobody.get(&path).await,
            false => nobody.post(&path, "", &[]).await,
        };
        match route.is_read() {
            true => assert_eq!((refused.status, refused.leads_to()), (StatusCode::SEE_OTHER, "/login"), "{path}"),
            false => assert_eq!(refused.status, StatusCode::UNAUTHORIZED, "{path}"),
        }
        for person in &people {
            let name = person.name;
            let browser = &person.browser;
            if !route.is_read() {
                // None of them has a form for it here, so it is refused whether or not it is there.
                for form_token in ["".to_owned(), browser.get("/").await.token("/logout")] {
                    if path == "/logout" && !form_token.is_empty() {
                        continue;
                    }
                    let done = browser.post(&path, &form_token, &[]).await;
                    assert_eq!(done.status, StatusCode::FORBIDDEN, "{path} of {name}");
                }
                continue;
            }
            // The same address may be there for others, with another page.
            let rows = routes().iter().filter(|row| row.is_read() && row.path() == route.path());
            let expected = rows.map(|row| person.page(row)).min().expect("a row");
            let shown = browser.get(&path).await;
            assert_eq!(shown.status, expected, "{path} of {name}: {}", shown.text);
            let is_owner = person.owns && route.allowed_viewers() == AllowedViewers::Requestors;
            assert!(is_owner || !shown.text.contains("iVBORw0KGgo"), "{path} of {name} shows a result");
        }
    }
    assert_eq!(own.about("tasks/get", &world.task).await.expect("a task")["status"], "completed");
    let tokens = command::json(&["token", "list"], &setup.data()).await;
    assert!(!tokens.to_string().contains("\"revoked_at\":1"), "{tokens}");
}

#[tokio::test]
async fn lead_sees_plugins_denials_and_the_log_of_its_tenant_alone() {
    let toolset = "[limits]\ntasks_stored_per_requestor = 1\n[[toolset]]\nname = \"few\"\ntenants = [\"acme\"]\nexclude = { plugins = [\"text\"] }\n";
    let setup = setup(&["probe", "text"]).config(SCOPES).config(toolset);
    let host = setup.start().await;
    let (leo, _) = token(&setup, "leo", "acme", "lead").await;
    let (zoe, _) = token(&setup, "zoe", "globex", "lead").await;
    for name in ["anna", "zara"] {
        let tenant = if name == "anna" { "acme" } else { "globex" };
        let own = client(&host, &token(&setup, name, tenant, "use").await.0).await;
        own.tool("settings", json!({})).await.expect("a result");
        own.task("facts", json!({})).await;
        own.create("facts", json!({})).await.expect_err("one task is all that there may be");
    }
    let leo = Browser::with_token(&host, &leo).await;
    let zoe = Browser::with_token(&host, &zoe).await;
    // Lines come to the log a little later.
    let shown = async |lead: &Browser, path: &str, part: &str| {
        until("a page of the lead", async || {
            let shown = lead.get(path).await;
            (shown.status == StatusCode::OK && shown.text.contains(part)).then_some(shown.text)
        })
        .await
    };
    for (lead, own, foreign) in [(&leo, "anna", "zara"), (&zoe, "zara", "anna")] {
        for path in ["/tenant/audit", "/tenant/audit?event=call.&tenant=globex", "/tenant/audit?tenant=acme"] {
            let shown = shown(lead, path, "<td>call.ended</td>").await;
            assert!(shown.contains(own) && !shown.contains(foreign), "{path}: {shown}");
            assert!(!shown.contains("The chain") && !shown.contains("dashboard operator"), "{shown}");
        }
        let tenant = if own == "anna" { ("acme", "globex") } else { ("globex", "acme") };
        let denied = shown(lead, "/tenant/denials?tenant=other", "tasks_stored_per_requestor").await;
        assert!(denied.contains(tenant.0) && !denied.contains(foreign), "{denied}");
        assert!(!denied.contains(tenant.1) && !denied.contains("Refusals of the last hour"), "{denied}");
    }
    let of_acme = shown(&leo, "/tenant/plugins", "</table>").await;
    let of_globex = shown(&zoe, "/tenant/plugins", "</table>").await;
    assert!(of_acme.contains("<td>probe</td>") && !of_acme.contains("<td>text</td>"), "{of_acme}");
    assert!(of_globex.contains("<td>probe</td>") && of_globex.contains("<td>text</td>"), "{of_globex}");
    assert!(!of_globex.contains(".wasm") && !of_globex.contains("action=\"/plugins"), "{of_globex}");
    let versions = command::json(&["plugin", "versions", "probe"], &setup.data()).await;
    let version = versions["versions"][0]["version"].as_str().expect("a digest");
    assert!(of_acme.contains(&version[..12]), "{of_acme}");
}
