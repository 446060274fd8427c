//! Logging in at the dashboard: at an issuer, and for longer than the process lives.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use reqwest::StatusCode;
use reqwest::header::SET_COOKIE;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tests::issuer::{Issuer, Key};
use tests::wait::until;
use tests::{Host, Setup, command};

use super::browser::{Browser, Page, client, link};

const RESOURCE: &str = "https://mcp.example.com/mcp";
const CLIENT: &str = "dashboard-client";
const ADMIN_TOKEN: &str = "fedcba9876543210fedcba9876543210";

/// A dashboard that stays where it is over restarts: the name of a cookie has its port.
fn setup(plugins: &[&str], further: &str) -> Setup {
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let port = port.expect("a port").port();
    let config = format!("[audit]\nenabled = true\n[dashboard]\nlisten = \"127.0.0.1:{port}\"\n{further}");
    Setup::with(plugins).config(&config)
}

/// One at which people of an issuer log in.
fn setup_oidc(issuer: &Issuer, tenant: &str, further: &str) -> Setup {
    let url = &issuer.url;
    let oidc = format!(
        "[dashboard.oidc]\nissuer = \"{url}\"\nclient_id = \"{CLIENT}\"\nscopes = [\"tasks\"]\n\
         operators = {{ claim = \"groups\", value = \"bulkhead-admins\" }}\n{further}\
         [auth]\nresource = \"{RESOURCE}\"\n[[auth.issuer]]\nissuer = \"{url}\"\nkeys_retry_ms = 100\n{tenant}\n"
    );
    setup(&["text", "desk"], &oidc)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs()
}

fn id_claims(issuer: &Issuer, subject: &str, nonce: &str) -> Value {
    json!({"iss": issuer.url, "aud": CLIENT, "sub": subject, "exp": now() + 600, "iat": now(), "nonce": nonce})
}

fn id_token(key: &Key, claims: &Value) -> String {
    let mut header = key.header();
    header["typ"] = json!("JWT");
    key.sign(&header, claims)
}

/// Goes to the issuer; where it is sent.
async fn leave(browser: &Browser) -> String {
    let page = browser.get("/login/oidc").await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.text);
    page.leads_to().to_owned()
}

/// Comes back to where the issuer sends it.
async fn come_back(browser: &Browser, address: &str) -> Page {
    browser.get(address.strip_prefix(&browser.base).expect("the dashboard's address")).await
}

/// The whole way, with these claims beside the usual ones.
async fn log_in(browser: &Browser, issuer: &Issuer, key: &Key, subject: &str, further: &Value) -> Page {
    let address = leave(browser).await;
    let back = issuer.authorize(&address, None, |nonce| {
        let mut claims = id_claims(issuer, subject, nonce);
        claims.as_object_mut().expect("claims").extend(further.as_object().cloned().unwrap_or_default());
        id_token(key, &claims)
    });
    come_back(browser, &back).await
}

async fn is_logged_in(browser: &Browser) -> bool {
    let page = browser.get("/tasks").await;
    assert!(page.status == StatusCode::OK || page.leads_to() == "/login", "{} {}", page.status, page.text);
    page.status == StatusCode::OK
}

fn session_of(browser: &Browser) -> String {
    let port = browser.base.rsplit(':').next().expect("a port");
    browser.cookies.borrow()[&format!("bulkhead_{port}")].clone()
}

/// Every file below a folder in which one of these is.
fn holding(folder: &Path, wanted: &[&[u8]]) -> Vec<String> {
    let mut found = Vec::new();
    for path in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if path.is_dir() && path.file_name().is_none_or(|name| name != "cache") {
            found.extend(holding(&path, wanted));
        } else if let Ok(bytes) = fs::read(&path) {
            let holds = |wanted: &&[u8]| bytes.windows(wanted.len()).any(|window| window == *wanted);
            found.extend(wanted.iter().any(holds).then(|| path.display().to_string()));
        }
    }
    found
}

async fn audit_log(setup: &Setup, until_there: &str) -> String {
    until("the lines of the audit log", async || {
        let files = fs::read_dir(setup.data().join("audit")).ok()?;
        let read = |file: fs::DirEntry| fs::read_to_string(file.path()).unwrap_or_default();
        let lines: String = files.flatten().map(read).collect();
        lines.contains(until_there).then_some(lines)
    })
    .await
}

#[tokio::test]
async fn oidc_login_is_the_requestor_of_access_tokens_of_that_subject() {
    let key = Key::ec("k1");
    let issuer = Issuer::start(&[&key]).await;
    let setup = setup_oidc(&issuer, "tenant = \"acme\"", "");
    let host = setup.start().await;
    let access =
        json!({"iss": issuer.url, "aud": RESOURCE, "sub": "anna", "exp": now() + 600, "client_id": "an-mcp-client"});
    let access = key.token(&access);
    let own = client(&host, &access).await;
    let task = own.task("wait", json!({"ms": 600_000})).await;

    let browser = Browser::new(&host);
    let page = browser.get("/login").await;
    assert!(page.text.contains("href=\"/login/oidc\"") && page.text.contains(&issuer.url), "{}", page.text);
    let away = browser.get("/login/oidc").await;
    let set = away.headers[SET_COOKIE].to_str().expect("a text").to_owned();
    let (attempt, attributes) = set.split_once("; ").expect("attributes");
    assert!(attempt.starts_with("bulkhead-attempt_"), "{attempt}");
    assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Lax; Max-Age=600");
    let mut given = String::new();
    let back = issuer.authorize(away.leads_to(), None, |nonce| {
        given = id_token(&key, &id_claims(&issuer, "anna", nonce));
        given.clone()
    });
    assert!(back.starts_with(&format!("{}/login/callback?", browser.base)), "{back}");
    let done = come_back(&browser, &back).await;
    // A redirect would not bring the cookie with it, which is as strict as after any login.
    assert_eq!(done.status, StatusCode::OK, "{}", done.text);
    assert!(done.text.contains("content=\"0; url=/\"") && done.text.contains("href=\"/\""), "{}", done.text);
    let set: Vec<_> = done.headers.get_all(SET_COOKIE).iter().map(|line| line.to_str().expect("a text")).collect();
    assert!(set.iter().any(|line| line.ends_with("; Path=/; HttpOnly; SameSite=Strict")), "{set:?}");
    assert!(!browser.cookies.borrow().keys().any(|name| name.contains("attempt")), "it is used up");

    let page = format!("/tasks/{task}");
    assert!(browser.get("/tasks").await.text.contains(&page));
    assert_eq!(browser.press(&page, &format!("{page}/cancel"), &[]).await.leads_to(), page);
    assert_eq!(own.about("tasks/get", &task).await.expect("a task")["status"], "cancelled");
    let ben = Browser::new(&host);
    assert_eq!(log_in(&ben, &issuer, &key, "ben", &json!({})).await.status, StatusCode::OK);
    assert!(is_logged_in(&ben).await);
    assert_eq!(ben.get(&page).await.status, StatusCode::NOT_FOUND);

    let log = audit_log(&setup, "dashboard.login").await;
    let line = log.lines().find(|line| line.contains("dashboard.login")).expect("a line");
    assert!(line.contains("\"subject\":\"anna\"") && line.contains(&issuer.url), "{line}");
    let session = session_of(&browser);
    let said = host.log();
    let setup = host.kill().await;
    let (_, attempt) = attempt.split_once('=').expect("a value");
    for secret in ["code-0-of-a-login", "access-token-of-a-login", &session, &given, &access, attempt] {
        assert!(!log.contains(secret) && !said.contains(secret), "{secret} is in a log");
        assert_eq!(holding(&setup.data(), &[secret.as_bytes()]), Vec::<String>::new(), "{secret} is on the disk");
    }
}

#[tokio::test]
async fn claim_makes_an_operator_who_is_named_in_the_audit_log() {
    let key = Key::rsa("k1", 0);
    let issuer = Issuer::start(&[&key]).await;
    // As RFC 6749 spells it in a header.
    issuer.set_client_secret("s%26cret");
    // An operator is in no tenant, and needs none in the token.
    let tenant = "tenant_claim = \"org\"\ntenants = [\"acme\"]";
    let setup = setup_oidc(&issuer, tenant, "client_secret_file = \"client.secret\"\n");
    fs::write(setup.path("client.secret"), "s&cret\n").expect("a file");
    let host = setup.start().await;
    let anna = setup.token("anna", "acme").await;
    let task = client(&host, &anna).await.task("wait", json!({"ms": 600_000})).await;
    let browser = Browser::new(&host);
    let done = log_in(&browser, &issuer, &key, "olga", &json!({"groups": ["staff", "bulkhead-admins"]})).await;
    assert_eq!(done.status, StatusCode::OK, "{}", done.text);
    assert!(browser.get("/").await.text.contains("Needs attention"));
    let page = format!("/tasks/{task}");
    assert_eq!(browser.press(&page, &format!("{page}/cancel"), &[]).await.leads_to(), page);
    for (subject, claims) in [
        ("ben", json!({"groups": ["staff"], "org": "acme"})),
        ("ben", json!({"groups": "bulkhead-admins-of-something", "org": "acme"})),
        ("ben", json!({"group": "bulkhead-admins", "org": "acme"})),
    ] {
        let other = Browser::new(&host);
        assert_eq!(log_in(&other, &issuer, &key, subject, &claims).await.status, StatusCode::OK, "{claims}");
        assert!(is_logged_in(&other).await);
        assert_eq!(other.get("/plugins").await.status, StatusCode::NOT_FOUND, "{claims}");
    }
    // Who is neither an operator nor in a tenant that the issuer may name is nobody.
    for claims in [json!({}), json!({"org": "globex"})] {
        let nobody = Browser::new(&host);
        assert_eq!(log_in(&nobody, &issuer, &key, "nobody", &claims).await.status, StatusCode::UNAUTHORIZED);
        assert!(!is_logged_in(&nobody).await);
    }
    let log = audit_log(&setup, "tasks_cancel").await;
    let line = log.lines().find(|line| line.contains("tasks_cancel")).expect("a line");
    assert!(line.contains(r#"dashboard operator \"olga\" at 127.0.0.1"#), "{line}");
    assert!(!host.log().contains("s&cret"));
}

#[tokio::test]
async fn return_is_for_the_browser_that_left_and_once() {
    let key = Key::ed("k1");
    let issuer = Issuer::start(&[&key]).await;
    let setup = setup_oidc(&issuer, "tenant = \"acme\"", "");
    let host = setup.start().await;
    let browser = Browser::new(&host);
    let sign = |nonce: &str| id_token(&key, &id_claims(&issuer, "anna", nonce));
    let refused = async |browser: &Browser, back: &str, why: &str| {
        let page = come_back(browser, back).await;
        assert_eq!(page.status, StatusCode::UNAUTHORIZED, "{why}: {}", page.text);
        assert!(page.text.contains("Begin it anew"), "{why}: {}", page.text);
        assert!(!is_logged_in(browser).await, "{why}");
    };
    let back = issuer.authorize(&leave(&browser).await, None, sign);
    refused(&Browser::new(&host), &back, "another browser").await;
    let other = Browser::new(&host);
    leave(&other).await;
    refused(&other, &back, "another browser that left, too").await;
    let (rest, state) = back.split_once("state=").expect("a state");
    let kept = browser.cookies.borrow().clone();
    for (why, wrong) in [
        ("no state", rest.to_owned()),
        ("another state", format!("{rest}state={}", state.replace(|digit: char| digit.is_ascii_digit(), "a"))),
        ("another issuer", format!("{back}&iss=https%3A%2F%2Flogin.example.com")),
    ] {
        browser.cookies.borrow_mut().clone_from(&kept);
        refused(&browser, &wrong, why).await;
    }
    // An attempt of long ago: its time cannot be changed, for the state is made of it.
    let later = kept.iter().map(|(name, value)| (name.clone(), format!("{value}0")));
    *browser.cookies.borrow_mut() = later.collect();
    refused(&browser, &back, "another time").await;
    assert_eq!(issuer.exchanged(), 0, "nobody was asked for any of them");
    assert_eq!(
        browser.send(browser.request(reqwest::Method::HEAD, "/login/callback")).await.status,
        StatusCode::METHOD_NOT_ALLOWED
    );

    let says = format!("{}&error=%3Cscript%3Edenied", back.replace("code=", "none="));
    browser.cookies.borrow_mut().clone_from(&kept);
    let page = come_back(&browser, &says).await;
    assert_eq!(page.status, StatusCode::FORBIDDEN);
    assert!(page.text.contains("&lt;script&gt;denied") && !page.text.contains("<script"), "{}", page.text);
    browser.cookies.borrow_mut().clone_from(&kept);
    refused(&browser, &back, "an attempt that came back before").await;

    let back = issuer.authorize(&leave(&browser).await, None, sign);
    let kept = browser.cookies.borrow().clone();
    assert_eq!(come_back(&browser, &back).await.status, StatusCode::OK);
    assert!(is_logged_in(&browser).await);
    let asked = issuer.exchanged();
    let again = Browser::new(&host);
    again.cookies.borrow_mut().clone_from(&kept);
    refused(&again, &back, "a code that was used").await;
    assert_eq!(issuer.exchanged(), asked);
    let other = setup.token("carla", "other").await;
    assert!(is_logged_in(&Browser::with_token(&host, &other).await).await, "other ways in go on");
}

#[tokio::test]
async fn id_token_that_is_not_of_this_login_lets_nobody_in_and_guesses_end() {
    let key = Key::ec("k1");
    let issuer = Issuer::start(&[&key]).await;
    let setup = setup_oidc(&issuer, "tenant = \"acme\"", "");
    let host = setup.start().await;
    let browser = Browser::new(&host);
    let of = |nonce: &str, name: &str, value: Value| {
        let mut claims = id_claims(&issuer, "anna", nonce);
        claims[name] = value;
        id_token(&key, &claims)
    };
    type Sign<'a> = Box<dyn Fn(&str) -> String + 'a>;
    let wrong: [(&str, Sign<'_>); 9] = [
        ("another nonce", Box::new(|_| of("a", "nonce", json!("0123456789abcdef")))),
        ("no nonce", Box::new(|_| of("a", "nonce", Value::Null))),
        ("another audience", Box::new(|nonce| of(nonce, "aud", json!(RESOURCE)))),
        ("an audience among others", Box::new(|nonce| of(nonce, "aud", json!([CLIENT, "other"])))),
        ("another client", Box::new(|nonce| of(nonce, "azp", json!("other")))),
        ("it has expired", Box::new(|nonce| of(nonce, "exp", json!(now() - 600)))),
        ("another issuer", Box::new(|nonce| of(nonce, "iss", json!("https://login.example.com")))),
        ("another key", Box::new(|nonce| id_token(&Key::ec("k1"), &id_claims(&issuer, "anna", nonce)))),
        ("an access token", Box::new(|nonce| key.token(&id_claims(&issuer, "anna", nonce)))),
    ];
    for (why, sign) in &wrong {
        let back = issuer.authorize(&leave(&browser).await, None, sign);
        let page = come_back(&browser, &back).await;
        assert_eq!(page.status, StatusCode::UNAUTHORIZED, "{why}: {}", page.text);
        assert!(!is_logged_in(&browser).await, "{why}");
    }
    assert_eq!(issuer.exchanged(), wrong.len());
    let tenants = command::json(&["tenant", "list"], &setup.data()).await;
    assert_eq!(tenants["tenants"].as_array().map(Vec::len), Some(1), "nobody came into being: {tenants}");
    assert_eq!(tenants["tenants"][0]["requestors"], 1, "{tenants}");
    // Guesses come to an end, and then the issuer is not asked either.
    let mut last = StatusCode::OK;
    for _ in 0..12 {
        let back = leave(&browser).await;
        let back = issuer.authorize(&back, None, |nonce| of(nonce, "nonce", json!("x")));
        last = come_back(&browser, &back).await.status;
        if last == StatusCode::TOO_MANY_REQUESTS {
            break;
        }
    }
    assert_eq!(last, StatusCode::TOO_MANY_REQUESTS);
    let asked = issuer.exchanged();
    let good = log_in(&browser, &issuer, &key, "anna", &json!({})).await;
    assert_eq!((good.status, issuer.exchanged()), (StatusCode::TOO_MANY_REQUESTS, asked));
    assert!(!is_logged_in(&browser).await);
}

#[tokio::test]
async fn oidc_session_ends_with_its_token_and_with_what_the_issuer_may_say() {
    let key = Key::ec("k1");
    let issuer = Issuer::start(&[&key]).await;
    let tenant = |names: &str| format!("tenant_claim = \"org\"\nclock_skew_ms = 0\ntenants = [{names}]");
    let setup = setup_oidc(&issuer, &tenant("\"acme\", \"globex\""), "");
    let host = setup.start().await;
    let anna = Browser::new(&host);
    let ben = Browser::new(&host);
    let short = Browser::new(&host);
    log_in(&anna, &issuer, &key, "anna", &json!({"org": "acme"})).await;
    log_in(&ben, &issuer, &key, "ben", &json!({"org": "globex"})).await;
    log_in(&short, &issuer, &key, "anna", &json!({"org": "acme", "exp": now() + 8})).await;
    assert!(is_logged_in(&anna).await && is_logged_in(&ben).await && is_logged_in(&short).await);
    until("the end of the token", async || (!is_logged_in(&short).await).then_some(())).await;
    let config = setup.path("bulkhead.toml");
    let text = fs::read_to_string(&config).expect("a configuration");
    fs::write(&config, text.replace("\"acme\", \"globex\"", "\"acme\"")).expect("a configuration");
    let reloaded = command::json(&["host", "reload"], &setup.data()).await;
    assert_eq!(reloaded["changed"], json!(["auth.issuer"]));
    until("the end of what the issuer may not say", async || (!is_logged_in(&ben).await).then_some(())).await;
    assert!(is_logged_in(&anna).await);
    // Without its issuer nobody could log in: that is refused as a whole.
    let text = fs::read_to_string(&config).expect("a configuration");
    fs::write(
        &config,
        text.replace("[dashboard.oidc]\nissuer = \"http://127", "[dashboard.oidc]\nissuer = \"http://128"),
    )
    .expect("a configuration");
    let data = setup.data();
    let refused = command::output(&mut command::bulkhead(), &["host", "reload", "--data"], Some(&data)).await;
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("dashboard.oidc.issuer"), "{said}");
}

/// A host with somebody of each kind in front of it.
async fn full_house(setup: &Setup, issuer: &Issuer, key: &Key) -> (Host, BTreeMap<&'static str, Browser>, String) {
    let host = setup.start().await;
    let made = command::json(&["token", "create", "--requestor", "anna", "--tenant", "acme"], &setup.data()).await;
    let token = made["token"].as_str().expect("a token");
    let id = made["id"].as_str().expect("an id");
    let person = Browser::new(&host);
    let olga = Browser::new(&host);
    assert_eq!(log_in(&person, issuer, key, "ben", &json!({})).await.status, StatusCode::OK);
    let groups = json!({"groups": ["bulkhead-admins"]});
    assert_eq!(log_in(&olga, issuer, key, "olga", &groups).await.status, StatusCode::OK);
    let carla = setup.token("carla", "globex").await;
    let browsers = BTreeMap::from([
        ("by link", Browser::operator(&host).await),
        ("by the administrators' token", Browser::with_token(&host, ADMIN_TOKEN).await),
        ("by token", Browser::with_token(&host, token).await),
        ("of another tenant", Browser::with_token(&host, &carla).await),
        ("at the issuer", person),
        ("at the issuer as an operator", olga),
    ]);
    (host, browsers, id.to_owned())
}

fn setup_full(issuer: &Issuer) -> Setup {
    let setup = setup_oidc(issuer, "tenant = \"acme\"", "");
    let file = setup.path("admin.token");
    fs::write(&file, ADMIN_TOKEN).expect("a file");
    setup.config(&format!("[admin]\nlisten = \"127.0.0.1:0\"\ntoken_file = {file:?}\n"))
}

#[tokio::test]
async fn sessions_outlive_a_killed_host_and_end_with_their_credentials() {
    let key = Key::ec("k1");
    let issuer = Issuer::start(&[&key]).await;
    let setup = setup_full(&issuer);
    let (host, browsers, id) = full_house(&setup, &issuer, &key).await;
    let mut forms = BTreeMap::new();
    for (who, browser) in &browsers {
        forms.insert(*who, browser.get("/tasks").await.token("/logout"));
    }
    let setup = host.kill().await;
    let host = setup.start().await;
    for (who, browser) in &browsers {
        assert!(is_logged_in(browser).await, "{who}");
        assert_eq!(browser.get("/tasks").await.token("/logout"), forms[who], "{who}: pages of before are good");
    }
    assert!(browsers["by link"].get("/").await.text.contains("Needs attention"));
    assert_eq!(browsers["by token"].get("/plugins").await.status, StatusCode::NOT_FOUND);
    // A token that is revoked now, and one while nobody runs.
    let carla = command::json(&["token", "list"], &setup.data()).await;
    let carla = carla["tokens"].as_array().expect("tokens").iter().find(|token| token["requestor"] == "carla");
    let carla = carla.expect("a token")["id"].as_str().expect("an id").to_owned();
    command::json(&["token", "revoke", &carla], &setup.data()).await;
    let gone = &browsers["of another tenant"];
    until("the session to end", async || (!is_logged_in(gone).await).then_some(())).await;
    let out = browsers["at the issuer"].post("/logout", &forms["at the issuer"], &[]).await;
    assert_eq!(out.leads_to(), "/login", "a form of before the restart works");

    let setup = host.kill().await;
    command::json(&["token", "revoke", &id], &setup.data()).await;
    fs::write(setup.path("admin.token"), "another-token-of-administrators-0").expect("a file");
    let host = setup.start().await;
    for (who, is_in) in [
        ("by link", true),
        ("at the issuer as an operator", true),
        ("by token", false),
        ("by the administrators' token", false),
    ] {
        assert_eq!(is_logged_in(&browsers[who]).await, is_in, "{who}");
    }
    let cookies = ["by link", "at the issuer as an operator"].map(|who| session_of(&browsers[who]));
    let log = host.log();
    let setup = host.kill().await;
    for cookie in &cookies {
        assert!(!log.contains(cookie));
        assert_eq!(holding(&setup.data(), &[cookie.as_bytes()]), Vec::<String>::new());
    }
    let checked = command::json(&["store", "check"], &setup.data()).await;
    assert_eq!(checked["problems"], json!([]), "{checked}");
}

#[tokio::test]
async fn sessions_go_with_their_tenant_and_leave_nothing_in_the_files() {
    let key = Key::ec("k1");
    let issuer = Issuer::start(&[&key]).await;
    let setup = setup_full(&issuer);
    let (host, browsers, _) = full_house(&setup, &issuer, &key).await;
    // The beginning of a key may be apart from the rest of it.
    let digest = |who: &str| Sha256::digest(session_of(&browsers[who]))[8..].to_vec();
    let erased = ["by token", "at the issuer"].map(digest);
    let store = setup.data().join("store");
    command::json(&["tenant", "purge", "acme", "--yes"], &setup.data()).await;
    for (who, browser) in &browsers {
        let is_gone = ["by token", "at the issuer"].contains(who);
        assert_eq!(is_logged_in(browser).await, !is_gone, "{who}");
    }
    let setup = host.kill().await;
    assert_eq!(holding(&store, &erased.each_ref().map(Vec::as_slice)), Vec::<String>::new());
    let other = digest("of another tenant");
    assert!(!holding(&store, &[&other]).is_empty(), "that of another tenant is there, so they could be found");
    let host = setup.start().await;
    assert!(!is_logged_in(&browsers["by token"]).await && is_logged_in(&browsers["of another tenant"]).await);
    assert!(is_logged_in(&browsers["by link"]).await);
    drop(host);
}

#[tokio::test]
async fn login_makes_a_new_cookie_and_ends_the_session_before() {
    let host = setup(&["text"], "").start().await;
    let token = host.setup.token("anna", "acme").await;
    let browser = Browser::with_token(&host, &token).await;
    let first = session_of(&browser);
    assert_eq!(browser.log_in(&token).await.leads_to(), "/");
    let second = session_of(&browser);
    assert_ne!(first, second);
    // A cookie that somebody else has planted is taken for nobody's.
    let port = browser.base.rsplit(':').next().expect("a port").to_owned();
    let planted = "0".repeat(64);
    let victim = Browser::new(&host);
    victim.cookies.borrow_mut().insert(format!("bulkhead_{port}"), planted.clone());
    let code = link(&host).await.rsplit('=').next().expect("a code").to_owned();
    let page = victim.get(&format!("/login/once?code={code}")).await;
    assert_eq!(victim.post("/login", &page.token("/login"), &[("code", &code)]).await.leads_to(), "/");
    assert_ne!(session_of(&victim), planted);
    for old in [first, planted] {
        let stranger = Browser::new(&host);
        stranger.cookies.borrow_mut().insert(format!("bulkhead_{port}"), old);
        assert!(!is_logged_in(&stranger).await);
    }
}
